/* SPDX-License-Identifier: Apache-2.0
 * A stack on a device that is not the host, as its files see it. A ReLU behind a convolution, fully connected layer, batch-norm or sum is
 * one unit with it; else a unit is a layer. Every activation and gradient that a unit ends with is in a buffer of the device from the input
 * to the loss.
 *
 * Parameters are the caller's, in memory of the host. Two queues: `queue` computes, `copies` brings a unit's parameters in while units
 * before it compute, and takes its gradients out while those after it do. So the host waits in a step for the loss, and where it is asked
 * to (gpu_grads, gpu_output). All that goes wrong is kept (`status`), later work is left out, and ops/stack.c asks after each call. */
#ifndef ECHI_GPU_STACK_H
#define ECHI_GPU_STACK_H
#include "echi_gpu.h"
#include "echi_gpu_products.h"

/* Products first. */
#define ECHI_GPU_KERNELS(X)                                                                                                           \
    X(fc_forward) X(fc_backward_weight) X(fc_backward_input) X(conv_forward) X(conv_backward_weight) X(conv_backward_input)           \
    X(sum_parts) X(relu_forward) X(relu_backward) X(tanh_forward) X(tanh_backward) X(add) X(add_relu) X(multiply)                     \
    X(max_pool_forward) X(max_pool_backward) X(avg_pool_forward) X(avg_pool_backward) X(sum_channels) X(norm_statistics)              \
    X(norm_join_statistics) X(norm_sums_backward)                                                                                     \
    X(norm_forward) X(norm_backward_params) X(norm_backward_input) X(softmax_loss)
enum echi_gpu_kernel {
#define ECHI_GPU_ENUM(name) K_##name,
    ECHI_GPU_KERNELS(ECHI_GPU_ENUM)
#undef ECHI_GPU_ENUM
    ECHI_GPU_KERNEL_COUNT
};

/* Border 0 is the input, border i + 1 the output of layer i; those inside a unit have nothing. */
struct echi_gpu_border {
    struct echi_buffer *value, *gradient;   /* [max_n][shape] */
    struct echi_buffer *extra;              /* of the same shape: factors of a dropout; where a max-pool's numbers came from */
    bool given;                             /* the gradient has a share already: others are added to it */
    bool of_relu;                           /* the unit that it is the end of ends with a ReLU */
    bool rectified;                         /* and all of its shares have gone back through that ReLU already */
};
/* Layers [first, end), and the ReLU that is the last of two. */
struct echi_gpu_unit { int first, end; bool relu; };

/* The products of a layer, as its step needs them; and how one is computed for as many samples as the stack has planned for. */
enum echi_gpu_way { ECHI_GPU_FORWARD, ECHI_GPU_BACKWARD_WEIGHT, ECHI_GPU_BACKWARD_INPUT, ECHI_GPU_WAYS };
struct echi_gpu_product {
    struct echi_product_plan plan;
    struct echi_kernel *pack_a, *pack_b, *multiply;   /* NULL where plan.text is ECHI_PRODUCT_PORTABLE */
};

/* What a layer has for itself, if it has any. */
struct echi_gpu_own {
    struct echi_buffer *weight, *bias, *dweight, *dbias, *stats;
    size_t staged;                          /* its place there: factors of a dropout [max_n][shape], or a batch-norm's statistics */
    bool known;                             /* weight and bias have come in, in this step or one before */
    bool owed;                              /* gradients are on their way to `grads`; there at `event` of the copies */
    echi_event event;
    const echi_real *params;
    echi_real *grads;
    struct echi_gpu_product product[ECHI_GPU_WAYS];   /* of a convolution or fully connected layer */
};

struct echi_gpu_stack {
    int count, n, n_units;                  /* layers; samples of the step under way */
    bool trains, same;                      /* same: parameters are those of the step before */
    echi_real of_round;                     /* what part of a round it is, if it trains */
    struct echi_layer *layers;              /* [count] */
    struct echi_gpu_unit *units;            /* [n_units] */
    struct echi_gpu_border *borders;        /* [count + 1] */
    struct echi_gpu_own *own;               /* [count] */
    struct echi_device *device;
    struct echi_queue *queue, *copies;      /* one and the same where a queue cannot wait for another */
    struct echi_kernel *kernel[ECHI_GPU_KERNEL_COUNT];
    struct echi_buffer *share;              /* a share of a gradient on its way to the others, of any border's size */
    struct echi_buffer *parts;              /* partial sums of products */
    struct echi_buffer *packed_a, *packed_b;   /* operands of the product under way, packed for a card's own text */
    struct echi_buffer *labels, *loss, *correct;   /* [max_n] */
    struct echi_buffer *staging;            /* pinned: what is on its way in and out, each at a place of its own, in bytes: */
    size_t rows_in, rows_out, grads_in, grads_out, labels_in, loss_out, correct_out;
    bool busy;                              /* something was submitted since the last wait for all */
    bool counting;                          /* make() only adds up what the stack takes */
    size_t bytes;
    struct echi_gpu_tile tile;              /* of products by products.cl */
    enum echi_product_precision precision;  /* of products: what the user allows */
    struct echi_product_card card;
    struct echi_program *text[ECHI_PRODUCT_SM90 + 1];   /* of the card's own products; NULL: not to be had */
    struct echi_product_room room;          /* numbers of packed_a, packed_b and parts: known when there is a plan of memory */
    int planned;                            /* products are planned for so many samples; 0: for none */
    ech_status status;                      /* of everything since the stack was made */
    struct ech_error err;
};

/* --- sizes --- */
static inline size_t echi_gpu_blocks(size_t count, size_t of) { return (count + of - 1) / of; }
static inline size_t echi_gpu_map(struct echi_shape s) { return (size_t)s.h * (size_t)s.w; }
static inline size_t echi_gpu_border_size(const struct echi_layer *layers, int i) { return echi_shape_size(echi_output_shape(layers, i)); }
static inline size_t echi_gpu_border_count(const struct echi_gpu_stack *g, int i) {
    return (size_t)g->n * echi_gpu_border_size(g->layers, i);
}
static inline size_t echi_gpu_border_bytes(const struct echi_gpu_stack *g, int i) { return echi_gpu_border_count(g, i) * sizeof(float); }

/* --- gpu_create.c: what there is before the first step. Arguments as of struct echi_stack_impl's entries --- */
const struct echi_source *echi_gpu_spare(const struct echi_device *device, enum echi_product_precision precision);
ech_status echi_gpu_create(struct echi_device *device, enum echi_product_precision precision, const struct echi_layer *layers, int count,
                           int max_n, void **out_state, struct echi_stack_unit *units, int *out_units, size_t *out_bytes,
                           struct ech_error *err);
void echi_gpu_destroy(void *state);

/* --- gpu_launch.c: work for the queues. What goes wrong is kept in g->status, and what comes behind it left out --- */
static inline bool echi_gpu_fine(const struct echi_gpu_stack *g) { return g->status == ECH_OK; }
void echi_gpu_wait_for(struct echi_gpu_stack *g, struct echi_queue *q, echi_event event);
echi_event echi_gpu_mark(struct echi_gpu_stack *g, struct echi_queue *q);
void echi_gpu_wait(struct echi_gpu_stack *g);   /* for all that was submitted */
/* What is submitted to `later` from now on waits for what `first` has been given. */
void echi_gpu_order(struct echi_gpu_stack *g, struct echi_queue *first, struct echi_queue *later);
/* `host` stays as it is until the queue has come past. */
void echi_gpu_copy_in(struct echi_gpu_stack *g, struct echi_queue *q, struct echi_buffer *to, const void *host, size_t bytes);
void echi_gpu_copy_out(struct echi_gpu_stack *g, struct echi_queue *q, const struct echi_buffer *from, void *host, size_t bytes);
void echi_gpu_copy(struct echi_gpu_stack *g, struct echi_buffer *to, const struct echi_buffer *from, size_t bytes);
static inline void *echi_gpu_staged(const struct echi_gpu_stack *g, size_t at) { return (uint8_t *)echi_buffer_host(g->staging) + at; }
void echi_gpu_launch(struct echi_gpu_stack *g, const struct echi_kernel *kernel, struct echi_launch how, const struct echi_argument *args,
                     size_t count);

/* Arguments of kernels, and launches by products.cl's and the other portable kernels' names. */
#define BUFFER(b) {.buffer = (b)}
#define INT(i) {.value = &(const int32_t){(int32_t)(i)}, .bytes = sizeof(int32_t)}
#define FLOAT(f) {.value = &(const float){(float)(f)}, .bytes = sizeof(float)}
#define VALUE(v) {.value = &(v), .bytes = sizeof(v)}
#define LAUNCH_AS(g, kernel, how, ...)                                                                                \
    echi_gpu_launch(g, kernel, how, (const struct echi_argument[]){__VA_ARGS__},                                      \
                    sizeof((const struct echi_argument[]){__VA_ARGS__}) / sizeof(struct echi_argument))
#define LAUNCH(g, k, x, y, z, ...)                                                                                    \
    LAUNCH_AS(g, (g)->kernel[k], ((struct echi_launch){.groups = {x, y, z}, .items = ECHI_GPU_ITEMS}), __VA_ARGS__)
/* An item for each of `count` numbers; the count is the last argument. */
#define LAUNCH_EACH(g, k, count, ...) LAUNCH(g, k, echi_gpu_blocks(count, ECHI_GPU_ITEMS), 1, 1, __VA_ARGS__, INT(count))

/* --- gpu_layers.c: convolutions and fully connected layers, by whichever text is chosen --- */
struct echi_window echi_gpu_window_of(const struct echi_layer *l, int n);
/* Plans the products of all such layers for n samples a step. While the stack counts what it takes, g->room becomes as large as they need;
 * later they keep within it. ECH_E_ARGUMENT where a text has no kernel of a name that was chosen. */
ech_status echi_gpu_plan_products(struct echi_gpu_stack *g, int n, struct ech_error *err);
/* How many groups share a sum over each channel of what the layer takes, or gives where that is not the same, with n samples; none is
 * without. They have ECHI_GPU_OF_CHANNEL numbers of g->parts a channel each. */
#define ECHI_GPU_OF_CHANNEL 2
size_t echi_gpu_groups_of_channel(const struct echi_gpu_stack *g, const struct echi_layer *l, size_t n);
/* y = layer(x), through the ReLU behind it where `relu`. */
void echi_gpu_product_forward(struct echi_gpu_stack *g, int layer, bool relu, struct echi_buffer *x, struct echi_buffer *y);
void echi_gpu_product_backward_params(struct echi_gpu_stack *g, int layer, struct echi_buffer *x, struct echi_buffer *dy);
/* `from`: what the layer took. True: dx has gone back through the ReLU before the layer, if there is one. */
bool echi_gpu_product_backward_input(struct echi_gpu_stack *g, int layer, const struct echi_gpu_border *from, struct echi_buffer *dy,
                                     struct echi_buffer *dx);
#endif
