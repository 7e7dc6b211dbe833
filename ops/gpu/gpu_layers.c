/* SPDX-License-Identifier: Apache-2.0
 * Convolutions and fully connected layers of a stack: each of their products by the text that echi_product_choose says, or as products.cl
 * has it. */
#include "echi_error.h"
#include "echi_gpu_stack.h"

/* --- sizes --- */

struct echi_window echi_gpu_window_of(const struct echi_layer *l, int n) {
    const bool moves = l->stride_h > 0;   /* it has a window */
    struct echi_window w = {.n = n, .in_c = l->in.c, .in_h = l->in.h, .in_w = l->in.w, .out_c = l->out.c, .out_h = l->out.h,
                            .out_w = l->out.w, .kernel_h = l->kernel_h, .kernel_w = l->kernel_w, .stride_h = l->stride_h,
                            .stride_w = l->stride_w, .pad_h = l->pad_h, .pad_w = l->pad_w};
    w.far_h = l->in.h + l->pad_h + l->kernel_h + l->out.h;
    w.far_w = l->in.w + l->pad_w + l->kernel_w + l->out.w;
    w.by_in_c = echi_divisor_of(l->in.c), w.by_in_map = echi_divisor_of(l->in.h * l->in.w), w.by_in_w = echi_divisor_of(l->in.w);
    w.by_out_map = echi_divisor_of(l->out.h * l->out.w), w.by_out_w = echi_divisor_of(l->out.w);
    if (!moves) return w;
    w.by_area = echi_divisor_of(l->kernel_h * l->kernel_w), w.by_kernel_w = echi_divisor_of(l->kernel_w);
    w.by_stride_h = echi_divisor_of(l->stride_h), w.by_stride_w = echi_divisor_of(l->stride_w);
    return w;
}

/* Groups that share the sums of a convolution's weights: enough for every unit of the device to have some, as the matrix is small and its
 * sums are long. */
#define PART_LEAST 512   /* numbers of a sum in a part */
static size_t weight_parts(const struct echi_gpu_stack *g, const struct echi_layer *l, size_t n) {
    const size_t out = (size_t)l->out.c, depth = n * echi_gpu_map(l->out);
    const size_t tiles = echi_gpu_blocks(l->weights / out, g->tile.high) * echi_gpu_blocks(out, g->tile.wide);
    const size_t wanted = echi_gpu_blocks(4 * (size_t)echi_device_describe(g->device)->compute_units, tiles);
    const size_t most = echi_gpu_blocks(depth, PART_LEAST);
    return wanted < most ? wanted : most;
}

/* As many as give every unit several, unless their shares would be small; of the output, whose channels and places batch-norm leaves. */
#define SHARE_LEAST 2048
size_t echi_gpu_groups_of_channel(const struct echi_gpu_stack *g, const struct echi_layer *l, size_t n) {
    const size_t count = n * echi_gpu_map(l->out);
    const size_t wanted = echi_gpu_blocks(4 * (size_t)echi_device_describe(g->device)->compute_units, (size_t)l->out.c);
    const size_t most = echi_gpu_blocks(count, SHARE_LEAST), groups = wanted < most ? wanted : most;
    return echi_gpu_blocks(count, echi_gpu_blocks(count, groups));
}

/* --- by a card's own text --- */

static bool multiplies(const struct echi_layer *l) { return l->op == ECHI_OP_CONV2D || l->op == ECHI_OP_FC; }

/* As echi_gpu_products.h has it: of a fully connected layer x [n][in], weight [out][in], dy [n][out]. */
static struct echi_product product_of(const struct echi_gpu_stack *g, const struct echi_layer *l, enum echi_gpu_way way, int n) {
    static const enum echi_product_op ops[ECHI_GPU_WAYS] = {ECHI_PRODUCT_CONV_FORWARD, ECHI_PRODUCT_CONV_BACKWARD_WEIGHT,
                                                            ECHI_PRODUCT_CONV_BACKWARD_INPUT};
    const int in = (int)echi_shape_size(l->in), out = l->out.c;
    struct echi_product p = {.op = ECHI_PRODUCT_MATRIX, .precision = g->precision, .bias = way == ECHI_GPU_FORWARD && l->bias};
    if (l->op == ECHI_OP_CONV2D) p.op = ops[way], p.window = echi_gpu_window_of(l, n);
    else if (way == ECHI_GPU_FORWARD) p.rows = n, p.cols = out, p.depth = in, p.row_a = in, p.k_a = 1, p.k_b = 1, p.col_b = in;
    else if (way == ECHI_GPU_BACKWARD_WEIGHT) p.rows = out, p.cols = in, p.depth = n, p.row_a = 1, p.k_a = out, p.k_b = in, p.col_b = 1;
    else p.rows = n, p.cols = in, p.depth = out, p.row_a = out, p.k_a = 1, p.k_b = in, p.col_b = 1;
    return p;
}

static ech_status open_product(const struct echi_gpu_stack *g, struct echi_gpu_product *p, struct ech_error *err) {
    struct echi_program *packs = g->text[echi_product_packs(p->plan.text)];
    ECHI_TRY(echi_program_kernel(packs, p->plan.a.kernel, &p->pack_a, err));
    ECHI_TRY(echi_program_kernel(packs, p->plan.b.kernel, &p->pack_b, err));
    return echi_program_kernel(g->text[p->plan.text], p->plan.kernel, &p->multiply, err);
}

static void make_room(struct echi_gpu_stack *g, int layer, enum echi_gpu_way way, int n) {
    const struct echi_layer *l = &g->layers[layer];
    const struct echi_product_plan *plan = &g->own[layer].product[way].plan;
    const bool packed = plan->text != ECHI_PRODUCT_PORTABLE, conv_weight = l->op == ECHI_OP_CONV2D && way == ECHI_GPU_BACKWARD_WEIGHT;
    const size_t parts = packed ? (size_t)plan->parts : conv_weight ? weight_parts(g, l, (size_t)n) : 1;
    if (packed) raise_to(&g->room.a, plan->a.words);
    if (packed) raise_to(&g->room.b, plan->b.words);
    if (parts > 1) raise_to(&g->room.parts, packed ? parts * (size_t)plan->rows * (size_t)plan->cols : parts * l->weights);
}

ech_status echi_gpu_plan_products(struct echi_gpu_stack *g, int n, struct ech_error *err) {
    g->planned = n;
    for (int i = 0; i < g->count; i++)
        for (int way = 0; way < ECHI_GPU_WAYS && multiplies(&g->layers[i]); way++) {
            struct echi_gpu_product *p = &g->own[i].product[way];
            struct echi_product product = product_of(g, &g->layers[i], (enum echi_gpu_way)way, n);
            product.room = g->counting ? NULL : &g->room;
            echi_product_choose(&product, &g->card, &p->plan);
            if (p->plan.text != ECHI_PRODUCT_PORTABLE) ECHI_TRY(open_product(g, p, err));
            if (g->counting) make_room(g, i, (enum echi_gpu_way)way, n);
        }
    return ECH_OK;
}

/* Of sums that several groups have each computed a part of. */
static void sum_parts(struct echi_gpu_stack *g, const struct echi_buffer *to, size_t count, size_t parts) {
    LAUNCH(g, K_sum_parts, echi_gpu_blocks(count, ECHI_GPU_ITEMS), 1, 1, BUFFER(g->parts), BUFFER(to), INT(count), INT(parts));
}

static void pack(struct echi_gpu_stack *g, const struct echi_kernel *kernel, const struct echi_product_pack *pack,
                 const struct echi_buffer *from, const struct echi_buffer *to) {
    LAUNCH_AS(g, kernel, ((struct echi_launch){.groups = {(size_t)pack->groups, 1, 1}, .items = ECHI_PACK_ITEMS}), BUFFER(from), BUFFER(to),
              VALUE(pack->how));
}

/* to = a b, with the bias of a forward product; false, and nothing, where products.cl computes it. */
static bool multiply(struct echi_gpu_stack *g, const struct echi_gpu_product *p, const struct echi_buffer *a, const struct echi_buffer *b,
                     const struct echi_buffer *bias, const struct echi_buffer *to) {
    const struct echi_product_plan *l = &p->plan;
    if (l->text == ECHI_PRODUCT_PORTABLE) return false;
    const struct echi_launch how = {.groups = {(size_t)l->groups[0], (size_t)l->groups[1], (size_t)l->groups[2]},
                                    .items = (size_t)l->items, .shared = (size_t)l->shared};
    pack(g, p->pack_a, &l->a, a, g->packed_a);
    pack(g, p->pack_b, &l->b, b, g->packed_b);
    LAUNCH_AS(g, p->multiply, how, BUFFER(g->packed_a), BUFFER(g->packed_b), BUFFER(bias), BUFFER(l->parts > 1 ? g->parts : to),
              INT(l->rows), INT(l->cols), INT(l->words), INT(l->slice), VALUE(l->put), VALUE(l->gather));
    if (l->parts > 1) sum_parts(g, to, (size_t)l->rows * (size_t)l->cols, (size_t)l->parts);
    return true;
}

/* --- by products.cl --- */

/* A product of rows x cols, its sums over `depth` dealt to `n_parts` groups. */
#define LAUNCH_PRODUCT(g, k, rows, cols, depth, n_parts, ...)                                                                             \
    LAUNCH_AS(g, (g)->kernel[k],                                                                                                        \
              ((struct echi_launch){.groups = {echi_gpu_blocks(cols, (g)->tile.wide), echi_gpu_blocks(rows, (g)->tile.high), n_parts},  \
                                    .items = (g)->tile.items}),                                                                         \
              __VA_ARGS__, INT(rows), INT(cols), INT(depth), INT(echi_gpu_blocks(depth, n_parts)))

static void conv_forward(struct echi_gpu_stack *g, const struct echi_layer *l, const struct echi_gpu_own *own, bool relu,
                         struct echi_buffer *x, struct echi_buffer *y) {
    const struct echi_window w = echi_gpu_window_of(l, g->n);
    const size_t out = (size_t)l->out.c, places = (size_t)g->n * echi_gpu_map(l->out);
    LAUNCH_PRODUCT(g, K_conv_forward, out, places, l->weights / out, 1, BUFFER(x), BUFFER(own->weight),
                   BUFFER(l->bias ? own->bias : own->weight), INT(l->bias), INT(relu), BUFFER(y), VALUE(w));
}

static void fc_forward(struct echi_gpu_stack *g, const struct echi_layer *l, const struct echi_gpu_own *own, bool relu,
                       struct echi_buffer *x, struct echi_buffer *y) {
    const size_t in = echi_shape_size(l->in), out = (size_t)l->out.c, n = (size_t)g->n;
    LAUNCH_PRODUCT(g, K_fc_forward, n, out, in, 1, BUFFER(x), BUFFER(own->weight), BUFFER(l->bias ? own->bias : own->weight),
                   INT(l->bias), INT(relu), BUFFER(y));
}

static void conv_backward_weight(struct echi_gpu_stack *g, const struct echi_layer *l, const struct echi_gpu_own *own,
                                 struct echi_buffer *x, struct echi_buffer *dy) {
    const struct echi_window w = echi_gpu_window_of(l, g->n);
    const size_t out = (size_t)l->out.c, depth = (size_t)g->n * echi_gpu_map(l->out), parts = weight_parts(g, l, (size_t)g->n);
    LAUNCH_PRODUCT(g, K_conv_backward_weight, l->weights / out, out, depth, parts, BUFFER(x), BUFFER(dy),
                   BUFFER(parts > 1 ? g->parts : own->dweight), VALUE(w));
    if (parts > 1) sum_parts(g, own->dweight, l->weights, parts);
}

static void fc_backward_weight(struct echi_gpu_stack *g, const struct echi_layer *l, const struct echi_gpu_own *own, struct echi_buffer *x,
                               struct echi_buffer *dy) {
    const size_t in = echi_shape_size(l->in), out = (size_t)l->out.c;
    LAUNCH_PRODUCT(g, K_fc_backward_weight, out, in, (size_t)g->n, 1, BUFFER(dy), BUFFER(x), BUFFER(own->dweight));
}

static void conv_backward_input(struct echi_gpu_stack *g, const struct echi_layer *l, const struct echi_gpu_own *own,
                                const struct echi_gpu_border *from, struct echi_buffer *dy, struct echi_buffer *dx) {
    const struct echi_window w = echi_gpu_window_of(l, g->n);
    LAUNCH_PRODUCT(g, K_conv_backward_input, (size_t)l->in.c, (size_t)g->n * echi_gpu_map(l->in), l->weights / (size_t)l->in.c, 1,
                   BUFFER(dy), BUFFER(own->weight), BUFFER(from->value), INT(from->of_relu), BUFFER(dx), VALUE(w));
}

static void fc_backward_input(struct echi_gpu_stack *g, const struct echi_layer *l, const struct echi_gpu_own *own,
                              const struct echi_gpu_border *from, struct echi_buffer *dy, struct echi_buffer *dx) {
    const size_t in = echi_shape_size(l->in), out = (size_t)l->out.c;
    LAUNCH_PRODUCT(g, K_fc_backward_input, (size_t)g->n, in, out, 1, BUFFER(dy), BUFFER(own->weight), BUFFER(from->value),
                   INT(from->of_relu), BUFFER(dx));
}

/* --- whichever it is --- */

void echi_gpu_product_forward(struct echi_gpu_stack *g, int layer, bool relu, struct echi_buffer *x, struct echi_buffer *y) {
    const struct echi_layer *l = &g->layers[layer];
    const struct echi_gpu_own *own = &g->own[layer];
    const bool conv = l->op == ECHI_OP_CONV2D;
    if (!multiply(g, &own->product[ECHI_GPU_FORWARD], conv ? own->weight : x, conv ? x : own->weight, l->bias ? own->bias : own->weight, y))
        (conv ? conv_forward : fc_forward)(g, l, own, relu, x, y);
    else if (relu) LAUNCH_EACH(g, K_relu_forward, (size_t)g->n * echi_shape_size(l->out), BUFFER(y), BUFFER(y));
}

void echi_gpu_product_backward_params(struct echi_gpu_stack *g, int layer, struct echi_buffer *x, struct echi_buffer *dy) {
    const struct echi_layer *l = &g->layers[layer];
    const struct echi_gpu_own *own = &g->own[layer];
    const size_t places = echi_gpu_map(l->out);
    if (!multiply(g, &own->product[ECHI_GPU_BACKWARD_WEIGHT], dy, x, own->weight, own->dweight))
        (l->op == ECHI_OP_CONV2D ? conv_backward_weight : fc_backward_weight)(g, l, own, x, dy);
    if (!l->bias) return;
    const size_t groups = echi_gpu_groups_of_channel(g, l, (size_t)g->n), count = (size_t)g->n * places;
    LAUNCH(g, K_sum_channels, (size_t)l->out.c, groups, 1, BUFFER(dy), BUFFER(groups > 1 ? g->parts : own->dbias), INT(l->out.c),
           INT(places), INT(count), INT(echi_gpu_blocks(count, groups)));
    if (groups > 1) sum_parts(g, own->dbias, (size_t)l->out.c, groups);
}

bool echi_gpu_product_backward_input(struct echi_gpu_stack *g, int layer, const struct echi_gpu_border *from, struct echi_buffer *dy,
                                     struct echi_buffer *dx) {
    const struct echi_layer *l = &g->layers[layer];
    const struct echi_gpu_own *own = &g->own[layer];
    const struct echi_gpu_product *product = &own->product[ECHI_GPU_BACKWARD_INPUT];
    const bool conv = l->op == ECHI_OP_CONV2D;
    if (multiply(g, product, conv ? own->weight : dy, conv ? dy : own->weight, own->weight, dx)) return false;
    (conv ? conv_backward_input : fc_backward_input)(g, l, own, from, dy, dx);
    return true;
}
