/* SPDX-License-Identifier: Apache-2.0
 * The fast stack's own state, shared by the files of this room.
 *
 * Between units lie *boundaries*: the activations that one unit writes and the next one reads, and their gradients. A
 * boundary is laid out as its reader likes it:
 *     for a convolution, a pool or ReLU   [group][channel][row][column][lane]   rows with zero margins for padding
 *     for a fully connected layer         [channel][row][column][group][lane]   so that one weight serves many groups
 * where a group is as many samples as a vector has lanes. Lanes beyond the batch hold zeros on input and a zero gradient.
 * Several readers of one boundary share its layout; a fully connected layer beside a convolution makes a copy of its own. */
#ifndef ECHI_CPU_STACK_H
#define ECHI_CPU_STACK_H
#include "echi_cpu_kernels.h"

/* Where vectors lie; `at` is group 0, channel 0, row 0, column 0. Strides in floats. */
struct echi_cpu_view { float *at; ptrdiff_t group, channel, row, column; };

struct echi_cpu_boundary {
    struct echi_shape shape;
    int left, right;           /* margin columns, always zero */
    bool convolved;            /* a convolution takes it */
    bool across;               /* the fully connected layout: groups side by side */
    int readers;               /* units that take it, an add that takes it twice counted twice */
    bool given;                /* grad has the share of a reader already: others are added to it */
    float *value, *grad;
};

struct echi_cpu_stack;
/* The kernels of one operation: a unit's forward, and its backward, which sets the gradients of parameters and, where they are wanted,
 * its share of those of its inputs. Without parameters backward is called for these alone. */
struct echi_cpu_op {
    const char *name;
    void (*forward)(struct echi_cpu_stack *s, int unit, const float *params);
    void (*backward)(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad);
    void (*params)(struct echi_cpu_stack *s, int unit, float *grads);   /* what a backward that postpones leaves; NULL: nothing */
};

struct echi_cpu_unit {
    const struct echi_layer *layer;      /* what it computes first */
    const struct echi_cpu_op *op;        /* by what */
    void *reference;                     /* no kernels here have the layer: a reference stack of this layer alone; or NULL */
    int from, also;                      /* boundaries that it takes; `also` is an add's second */
    const struct echi_layer *pool;       /* a max-pool run with a convolution, or NULL */
    bool relu;                           /* ReLU run with it */
    float *mean;                         /* batch-norm, of the step under way: means, then variances: [2][channel] */
    float *sums, *all;                   /* backward, [2][channel]: over the own samples, and over all whose mean and variance these are */
    int of;                              /* so many samples; 0: not known yet */
    bool summed;                         /* sums and all are there */
    float *factor;                       /* dropout, while training: [group][channel][row][column][lane] */
    int32_t *place;                      /* of each maximum: [group][channel][row][place_row], see relu_pool */
    ptrdiff_t place_row;
    float *dy;                           /* convolution: gradient before ReLU: [group][channel][row][margins, column][lane] */
    int dy_left;
    ptrdiff_t dy_row, dy_channel, dy_group;   /* dy_group 0: one group at a time */
    int winograd;                        /* convolution: m of F(m x m, 3 x 3), or another kind (echi_cpu_kernels.h); 0: directly */
    bool late, stages;                   /* convolution: those points by cpu_late.c, by cpu_stages.c */
    bool bf16;                           /* convolution: by cpu_conv_bf16.c */
    bool turned;                         /* convolution: the weights' gradient is that of cpu_turned.c */
    int halves;                          /* convolution, neither of these: parts of the groups whose gradients are summed apart, 1 or 2 */
    bool copies;                         /* fully connected: its input lies as a convolution likes it, so here is a copy that does not: */
    float *input, *input_grad;           /* groups side by side */
};

/* Scratch of one thread. */
struct echi_cpu_scratch {
    float *rows;                         /* convolution rows on their way to a pool */
    float *matrix;                       /* fully connected: room of echi_cpu_matrix */
    float *drawn;                        /* dropout: factors of one group as rows, [lane][channel][row][column] */
    struct { float *points, *products, *turned, *grads; } winograd;
    struct { float *weights, *products; } late;
    float *stages_turned;                /* see cpu_stages.c */
    struct { uint16_t *weights; float *before, *sums; } bf16;   /* see cpu_conv_bf16.c */
};

/* Floats of scratch that Winograd's transforms need. */
struct echi_cpu_winograd_room { size_t kernels, points, products, nothing, turned, grads, sums; };
struct echi_cpu_late_room { size_t points, grads, weights, products, nothing; };
struct echi_cpu_stages_room { size_t before, after, turned; };
/* Of bf16 numbers: inputs or dy by pairs of channels; dy and inputs by pairs of samples; a thread's weights; and of floats a thread's rows
 * of dy before ReLU, and sums of weights. */
struct echi_cpu_bf16_room { size_t channels, grads, samples, weights, before, sums; };

struct echi_cpu_stack {
    const struct echi_cpu_kernels *k;
    enum echi_cpu_bf16 bf16;             /* of products of fully connected layers, and of units that say so */
    struct echi_layer *layers;
    struct echi_cpu_unit *units;
    struct echi_cpu_boundary *boundaries;   /* n_units + 1: unit u writes boundary u + 1 */
    int n_units, max_groups;
    int n, groups;                       /* of the step */
    bool trains;                         /* the step does, and is this part of a round */
    /* Of a batch in two parts, see cpu_batch.c. The first, `whole` of the second, leaves weights' gradients to it: of convolutions the
     * sums, with which the second goes on; of fully connected layers both factors. The second adds its other gradients to the first's. */
    bool leaves_sums;
    bool postpones;                      /* backward leaves gradients of parameters that can be computed at the end of the step */
    const struct echi_cpu_stack *whole;
    float share_of_round;
    struct echi_team *team;              /* the device's threads; NULL: one */
    int threads;
    /* Scratch, used within one call. */
    struct echi_cpu_scratch *own;        /* [threads], of the thread at each place */
    float *sums, *bias_sums;             /* weight and bias gradients, a vector each, the first a wide one, [half][out]...;
                                            see cpu_conv.c; sums: those of both parts of a batch */
    float *dz;                           /* fully connected: gradient before ReLU, [out][group][lane] */
    float *turned, *turned_sums;         /* convolution: inputs as vectors over channels, and sums over them: see cpu_turned.c */
    struct { float *kernels, *nothing, *sums; } winograd;   /* see cpu_winograd.c; nothing: zeros, a row outside the input */
    struct { float *points, *grads, *nothing; } late;   /* see cpu_late.c */
    struct { float *before, *after; } stages;   /* points on both sides of the products: see cpu_stages.c */
    struct { uint16_t *channels, *grads, *samples; } bf16_room;   /* see cpu_conv_bf16.c */
    float *share;                        /* of a gradient, on its way to those of other readers; any boundary's size and layout */
    void *memory;                        /* all of the above arrays */
    size_t reference_bytes;              /* of the units that the reference computes */
};

/* cpu_stack.c: its state, and what it does; its entry `create` is this. cpu_batch.c is the only caller. `rest`: sums and packed panels have
 * no place of their own. `counts`: it is not to compute, and has no memory. */
ech_status echi_cpu_part_create(const struct echi_cpu_kernels *k, int winograd, enum echi_cpu_bf16 bf16, struct echi_team *team,
                                const struct echi_layer *layers, int count, int max_n, bool rest, bool counts,
                                struct echi_cpu_stack **out_stack, struct echi_stack_unit *units, size_t *out_bytes, struct ech_error *err);
extern const struct echi_stack_impl echi_cpu_part;

/* Samples of group g of the step: the last group may have fewer than lanes. */
static inline int echi_cpu_lanes(const struct echi_cpu_stack *s, int g) {
    const int left = s->n - g * s->k->width;
    return left < s->k->width ? left : s->k->width;
}
struct echi_cpu_view echi_cpu_value(const struct echi_cpu_stack *s, int boundary);
struct echi_cpu_view echi_cpu_grad(const struct echi_cpu_stack *s, int boundary);
/* Where a reader puts its share of a boundary's gradient: the first to come sets the gradient itself, the others' goes to scratch, and
 * echi_cpu_give adds it. */
struct echi_cpu_view echi_cpu_share(const struct echi_cpu_stack *s, int boundary);
void echi_cpu_give(struct echi_cpu_stack *s, int boundary);
struct echi_cpu_view echi_cpu_across(const struct echi_cpu_stack *s, struct echi_shape shape, float *data);   /* groups side by side */
void echi_cpu_copy(struct echi_cpu_stack *s, struct echi_shape shape, struct echi_cpu_view from, struct echi_cpu_view to);

/* Sums over the lanes of vectors, as gradients of parameters: set, or added to what is there. */
void echi_cpu_reduce(const struct echi_cpu_stack *s, const float *vectors, size_t count, float *grads);

/* cpu_ops.c: NULL where there are no kernels for it here. */
const struct echi_cpu_op *echi_cpu_op(enum echi_op op);

/* ---- cpu_border.c: rows of samples into a boundary and out of it ---- */

void echi_cpu_rows_in(struct echi_cpu_stack *s, int boundary, struct echi_cpu_view v, const float *rows);
void echi_cpu_rows_out(struct echi_cpu_stack *s, int boundary, struct echi_cpu_view v, float *rows);

/* ---- cpu_reference.c: a layer that has no kernels here, left to the reference. Nothing happens to units that have some ---- */

/* Makes it the unit's; ECH_E_UNSUPPORTED names a layer that cannot be left to it. */
ech_status echi_cpu_reference_create(struct echi_cpu_stack *s, struct echi_cpu_unit *u, int max_n, struct echi_stack_unit *told,
                                     struct ech_error *err);
void echi_cpu_reference_destroy(struct echi_cpu_unit *u);
void echi_cpu_reference_begin(const struct echi_cpu_stack *s, struct echi_cpu_unit *u);   /* a step */

/* ---- cpu_share.c: one piece of work, many threads ---- */

/* Work on items [begin, end); scratch is s->own[place]. What an item writes depends on its number alone, and no two items write the same,
 * so the bits are the same however the items are dealt out: it is outputs that are divided among threads, never the terms of a sum. */
typedef void (*echi_cpu_work)(struct echi_cpu_stack *s, const void *args, int begin, int end, int place);
/* Does `items` of them. cost: of one, in operations on vectors, roughly; what is not worth handing over is done by the caller. */
void echi_cpu_share_out(struct echi_cpu_stack *s, int items, double cost, echi_cpu_work work, const void *args);
/* Into how many ranges the outputs are to be cut, where `parts` other parts are already there to be dealt out; and range k of them, in
 * whole steps of `step`. */
struct echi_cpu_range { int begin, end; };
int echi_cpu_cuts(const struct echi_cpu_stack *s, int parts, int outputs, int step);
struct echi_cpu_range echi_cpu_cut(int outputs, int step, int k, int cuts);
/* Outputs that `product` likes to take at a time: whole steps of this leave no narrow tiles behind. */
enum { ECHI_CPU_STEP = 12 };

/* Of the outputs [begin, end) along one side those whose tap k is inside. */
struct echi_cpu_range echi_cpu_inside(int k, int begin, int end, int in, int stride, int pad);

/* Parts of the groups whose weight gradients a convolution sums apart, where it is not by points nor turned. */
int echi_cpu_conv_halves(const struct echi_layer *conv, int width);
/* Margins that a convolution needs on the rows it reads, forward and backward. */
void echi_cpu_conv_margins(const struct echi_layer *conv, int *left, int *right);
void echi_cpu_conv_grad_margins(const struct echi_layer *conv, int most_vectors, int *left, int *right);

/* ---- cpu_turned.c ---- */

/* The weights' gradient of a convolution with at least a vector of input channels; the unit's dy is there, whole. */
bool echi_cpu_turned_fits(const struct echi_layer *layer);
void echi_cpu_turned_room(const struct echi_layer *layer, int width, size_t *inputs, size_t *sums);   /* floats of scratch */
void echi_cpu_turned_sums(struct echi_cpu_stack *s, int unit, int g);     /* one group's share; group 0 first */
void echi_cpu_turned_grads(struct echi_cpu_stack *s, int unit, float *grads);   /* all of it: [out][in][row][column] */

/* ---- cpu_winograd.c ---- */

/* By which points this layer is expected to be fastest for so many groups of `width` samples: m at most `most` (2 or 4; 0: never). */
struct echi_cpu_points { int m; bool late, stages, bf16; };   /* m = 0: directly;
                                                                 the others: by cpu_late.c, cpu_stages.c, cpu_conv_bf16.c */
struct echi_cpu_points echi_cpu_winograd_choose(const struct echi_layer *layer, int groups, int width, int most, enum echi_cpu_bf16 bf16);
const char *echi_cpu_winograd_name(int m);   /* " F(4x4)"; 0: "" */
/* What it compared, for people: " whole 2x2 0.31, F(2x2) 0.52 of direct sums' time"; "" when it is no convolution. */
void echi_cpu_winograd_explain(const struct echi_layer *layer, int groups, int width, int most, enum echi_cpu_bf16 bf16, char *out,
                               size_t cap);
/* Columns of zeros that its tiles read: behind the input's rows, and beside those of the gradient before ReLU. */
void echi_cpu_winograd_margins(const struct echi_layer *layer, int m, int *in_right, int *grad_left, int *grad_right);
/* raises what is too little */
void echi_cpu_winograd_room(const struct echi_layer *layer, int m, int width, struct echi_cpu_winograd_room *room);
int echi_cpu_winograd_back(int m);                              /* what goes backward where m goes forward */
int echi_cpu_winograd_pad_back(int m, int pad);                 /* and the padding of that, where forward has so much */
int echi_cpu_winograd_points(int m);                            /* of a tile */
ptrdiff_t echi_cpu_winograd_kernels_apart(int in, int out, int width);   /* floats from one point of the weights to the next */
int echi_cpu_winograd_tiles(int out_h, int out_w, int m);       /* of a map */
/* The product at a point: as `product`, all but its loops, a sum over `depth` steps in parts of nearly equal length;
 * weights side by side. */
void echi_cpu_winograd_product(const struct echi_cpu_stack *s, struct echi_cpu_product p, int depth, ptrdiff_t x_step);
/* A convolution: y[out] = start[out] + sum over `in` of x * weights. Rows beyond x's are zero, columns are its margins. */
struct echi_cpu_winograd {
    int m, in, out, in_h, out_h, out_w, pad_h, pad_w;
    struct echi_cpu_view x, y;
    const float *weights; ptrdiff_t weight_out, weight_in;   /* a kernel of a pair of channels, from pair to pair */
    bool turned;                                             /* by half a turn: the gradient of the input */
    const float *start;
    bool relu;
    bool stages;                                             /* by cpu_stages.c */
};
/* first: the weights' points, for all groups */
void echi_cpu_winograd_kernels(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w);
void echi_cpu_winograd(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int groups);   /* from w's x and y on */
/* The gradient of the weights: the share of two groups, the first of each half of the batch (with one `groups` is 1: the second may lack),
 * x.group and dy.group apart; y is not used; with `add` beside what those before gave. Then all of it into grads. */
void echi_cpu_winograd_sums(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, struct echi_cpu_view dy, int groups, bool add);
void echi_cpu_winograd_weights_grad(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, float *grads);
/* Tile t of w->x, of w->y from channel o on, of dy; channels and points are the caller's to say. `nothing` is a row of zeros. */
struct echi_cpu_tile echi_cpu_winograd_inputs(const struct echi_cpu_winograd *w, int t, const float *nothing);
struct echi_cpu_tile echi_cpu_winograd_outputs(const struct echi_cpu_winograd *w, int t, int o);
struct echi_cpu_tile echi_cpu_winograd_grads(const struct echi_cpu_winograd *w, struct echi_cpu_view dy, int t, const float *nothing);

/* ---- cpu_late.c: the same convolutions, all groups together ---- */

bool echi_cpu_late_fits(const struct echi_layer *layer, int m, int groups, int width);
/* raises what is too little */
void echi_cpu_late_room(const struct echi_layer *layer, int m, int groups, int width, struct echi_cpu_late_room *room);
void echi_cpu_late_inputs(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int g);   /* group g's x to points */
void echi_cpu_late_outputs(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w);         /* all groups' y, of all groups' points */
/* group g's dy to points */
void echi_cpu_late_grads(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, struct echi_cpu_view dy, int g);
/* of all of these, and of all groups' x */
void echi_cpu_late_weights(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, float *grads);

/* ---- cpu_stages.c: the same convolutions, one stage after the other; w's x, y and dy are those of one group ---- */

bool echi_cpu_stages_fit(const struct echi_layer *layer, int m);
/* raises what is too little */
void echi_cpu_stages_room(const struct echi_layer *layer, int m, int width, struct echi_cpu_stages_room *room);
void echi_cpu_stages(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w);   /* from w's x and the weights' points */
/* Sums for the gradient of the weights, for echi_cpu_winograd_weights_grad; with `add` beside what groups before gave. */
void echi_cpu_stages_sums(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, struct echi_cpu_view dy, bool add);

/* ---- cpu_conv_bf16.c: convolutions of numbers rounded to bf16, where s->bf16 says how ---- */

void echi_cpu_conv_bf16_room(const struct echi_layer *layer, int groups, struct echi_cpu_bf16_room *room);   /* raises what is too little */
void echi_cpu_conv_bf16_forward(struct echi_cpu_stack *s, int unit, const float *params);
void echi_cpu_conv_bf16_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad);

void echi_cpu_conv_forward(struct echi_cpu_stack *s, int unit, const float *params);
void echi_cpu_conv_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad);
void echi_cpu_fc_forward(struct echi_cpu_stack *s, int unit, const float *params);
void echi_cpu_fc_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad);
void echi_cpu_fc_params(struct echi_cpu_stack *s, int unit, float *grads);
void echi_cpu_activation_forward(struct echi_cpu_stack *s, int unit, const float *params);
void echi_cpu_activation_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad);
void echi_cpu_pool_forward(struct echi_cpu_stack *s, int unit, const float *params);
void echi_cpu_pool_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad);
void echi_cpu_add_forward(struct echi_cpu_stack *s, int unit, const float *params);
void echi_cpu_add_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad);
void echi_cpu_norm_forward(struct echi_cpu_stack *s, int unit, const float *params);
void echi_cpu_norm_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad);
void echi_cpu_norm_sums(struct echi_cpu_stack *s, int unit, bool backward, const float *params, float *out);
void echi_cpu_norm_take(struct echi_cpu_stack *s, int unit, bool backward, int n, const float *all);
void echi_cpu_dropout_draw(struct echi_cpu_stack *s, int unit, uint64_t seed, const struct echi_row *rows);
void echi_cpu_dropout_forward(struct echi_cpu_stack *s, int unit, const float *params);
void echi_cpu_dropout_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad);
#endif
