/* SPDX-License-Identifier: Apache-2.0
 * Convolutions on the first CUDA device, forward and both ways back, beside cuDNN's in the same mode: every unlike layer of the models.
 *
 *     bench_conv_cuda                 of ResNet-18 and VGG-19, batch 64
 *     bench_conv_cuda MODEL BATCH     of another
 *
 * Ours is what a step of a stack launches for the layer, no less: both operands packed anew, the product, and the sum of its parts; numbers
 * are floats in memory, in every mode. cuDNN's is the fastest of all algorithms that it offers, in the faster of its two layouts; in bf16
 * its numbers are bf16 in memory, too. fp32: its products are FMAs of floats. No bias. A rate is printed where both results are alike.
 * Exits with 77 where there is no card, or no cuDNN after our own figures. */
#include "bench_cudnn.h"
#include "cuda/echi_cuda.h"
#include "echi_hal_impl.h"
#include "echi_model.h"
#include "echi_os.h"
#include "echi_random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MOST = 64, FOUND_MOST = 16, ROUNDS = 5, TRIED = 3, TIMES_MOST = 2000 };
#define TAKES_ABOUT 0.02                  /* seconds that are timed at once: a wait may end 0.2 ms late (hal/cuda) */
#define WORK_MOST ((size_t)1 << 30)       /* bytes that an algorithm of cuDNN's may work in */
#define WANTED 0.6                        /* of cuDNN's rate, in the mean */

/* alike: how far results may be apart, in the largest magnitude: sums in another order, Winograd's, and in bf16 a rounded result. */
static const struct mode {
    const char *name;
    enum echi_kernels kernels;
    const struct echi_stack_impl *stack;
    int type, math;
    double alike;
} modes[] = {{"fp32", ECHI_KERNELS_FAST, &echi_stack_gpu, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, 1e-4},
             {"tf32", ECHI_KERNELS_TF32_FAST, &echi_stack_gpu_tf32, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 1.0 / 128},
             {"bf16", ECHI_KERNELS_BF16_FAST, &echi_stack_gpu_bf16, CUDNN_DATA_BFLOAT16, CUDNN_TENSOR_OP_MATH, 1.0 / 128}};
static const char *const way_names[ECHI_GPU_WAYS] = {[ECHI_GPU_FORWARD] = "forward", [ECHI_GPU_BACKWARD_WEIGHT] = "to weights",
                                                     [ECHI_GPU_BACKWARD_INPUT] = "to data"};
static const char *const format_names[CUDNN_FORMATS] = {[CUDNN_TENSOR_NCHW] = "NCHW", [CUDNN_TENSOR_NHWC] = "NHWC"};

/* One layer in one mode. */
struct bench {
    const struct mode *mode;
    const struct echi_layer *layer;
    enum echi_gpu_way way;
    struct echi_device *device;
    struct echi_gpu_stack *ours;
    int size[CUDNN_TENSORS][4];                       /* in the order of NCHW */
    float *numbers[CUDNN_TENSORS];                    /* so, and exact in bf16: what is multiplied */
    void *shape[CUDNN_TENSORS], *conv;                /* cuDNN's descriptors */
    struct echi_buffer *memory[CUDNN_TENSORS], *work; /* cuDNN's */
    int format, algorithm, math;                      /* what cuDNN is to launch */
};

static const struct echi_cuda_calls *cu;
static CUstream stream;   /* cuDNN's; our stacks have their own */
static bool beside;       /* there is a cuDNN */

static void check(ech_status status, const struct ech_error *err) {
    if (status == ECH_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}
static void must(int code, const char *what) {
    if (code == 0) return;
    fprintf(stderr, "%s: error %d\n", what, code);
    exit(1);
}
static void *room_for(size_t bytes) {
    void *room = malloc(bytes);
    must(room == NULL, "memory of the host");
    return room;
}

static size_t count_of(const struct bench *b, enum cudnn_tensor t) {
    const int *s = b->size[t];
    return (size_t)s[0] * (size_t)s[1] * (size_t)s[2] * (size_t)s[3];
}
static enum cudnn_tensor result_of(const struct bench *b) { return cudnn_operands[b->way][2]; }

/* All that was launched, ours and theirs, is done. */
static void finish(struct bench *b) {
    echi_gpu_wait(b->ours);
    check(b->ours->status, &b->ours->err);
    must(cu->cuStreamSynchronize(stream), "what cuDNN was doing");
}

/* --- ours --- */

static void open_ours(struct bench *b, const struct echi_layer *layer, int n) {
    struct echi_stack_unit unit;
    struct ech_error err;
    void *state;
    int units;
    size_t bytes;
    check(b->mode->stack->create(b->device, layer, 1, n, &state, &unit, &units, &bytes, &err), &err);
    b->layer = layer;
    b->ours = state;
    b->mode->stack->input(state, n, b->numbers[CUDNN_X]);
    echi_gpu_copy_in(b->ours, b->ours->queue, b->ours->own[0].weight, b->numbers[CUDNN_W], count_of(b, CUDNN_W) * sizeof(float));
    echi_gpu_copy_in(b->ours, b->ours->queue, b->ours->borders[1].gradient, b->numbers[CUDNN_Y], count_of(b, CUDNN_Y) * sizeof(float));
    finish(b);
}

static void launch_ours(struct bench *b) {
    struct echi_gpu_stack *g = b->ours;
    const struct echi_gpu_border *in = &g->borders[0], *out = &g->borders[1];
    if (b->way == ECHI_GPU_FORWARD) echi_gpu_product_forward(g, 0, false, in->value, out->value);
    else if (b->way == ECHI_GPU_BACKWARD_WEIGHT) echi_gpu_product_backward_params(g, 0, in->value, out->gradient);
    else echi_gpu_product_backward_input(g, 0, in, out->gradient, in->gradient);
}

static void read_ours(struct bench *b, float *to) {
    const struct echi_gpu_stack *g = b->ours;
    const struct echi_buffer *from = b->way == ECHI_GPU_FORWARD           ? g->borders[1].value
                                     : b->way == ECHI_GPU_BACKWARD_WEIGHT ? g->own[0].dweight
                                                                          : g->borders[0].gradient;
    echi_gpu_copy_out(b->ours, g->queue, from, to, count_of(b, result_of(b)) * sizeof *to);
    finish(b);
}

static const char *kernel_of_ours(const struct bench *b) {
    const struct echi_product_plan *plan = &b->ours->own[0].product[b->way].plan;
    return plan->text == ECHI_PRODUCT_PORTABLE ? "products.cl" : plan->kernel;
}

/* --- theirs --- */

static void open_theirs(struct bench *b) {
    const struct echi_layer *l = b->layer;
    struct ech_error err;
    must(cudnn.cudnnCreateConvolutionDescriptor(&b->conv), "cudnnCreateConvolutionDescriptor");
    must(cudnn.cudnnSetConvolution2dDescriptor(b->conv, l->pad_h, l->pad_w, l->stride_h, l->stride_w, 1, 1, CUDNN_CROSS_CORRELATION,
                                               CUDNN_DATA_FLOAT), "cudnnSetConvolution2dDescriptor");
    for (int t = 0; t < CUDNN_TENSORS; t++) {
        must((t == CUDNN_W ? cudnn.cudnnCreateFilterDescriptor : cudnn.cudnnCreateTensorDescriptor)(&b->shape[t]), "a descriptor");
        check(echi_buffer_create(b->device, count_of(b, (enum cudnn_tensor)t) * sizeof(float), &b->memory[t], &err), &err);
    }
}

static void close_theirs(struct bench *b) {
    for (int t = 0; t < CUDNN_TENSORS; t++) {
        (t == CUDNN_W ? cudnn.cudnnDestroyFilterDescriptor : cudnn.cudnnDestroyTensorDescriptor)(b->shape[t]);
        echi_buffer_destroy(b->memory[t]);
    }
    cudnn.cudnnDestroyConvolutionDescriptor(b->conv);
    echi_buffer_destroy(b->work);
    b->work = NULL;
}

/* Where number i of a tensor, counted as in NCHW, lies in cuDNN's memory. */
static size_t place(const struct bench *b, enum cudnn_tensor t, size_t i) {
    const size_t channels = (size_t)b->size[t][1], map = (size_t)b->size[t][2] * (size_t)b->size[t][3];
    return b->format == CUDNN_TENSOR_NCHW ? i : i / (channels * map) * (channels * map) + i % map * channels + i / map % channels;
}

static size_t number_bytes(const struct bench *b) { return b->mode->type == CUDNN_DATA_FLOAT ? sizeof(float) : sizeof(uint16_t); }

static void put_theirs(struct bench *b, enum cudnn_tensor t) {
    const size_t count = count_of(b, t);
    float *floats = room_for(count * sizeof *floats);
    uint16_t *halves = (uint16_t *)(void *)floats;   /* with bf16 */
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &b->numbers[t][i], sizeof bits);
        if (b->mode->type == CUDNN_DATA_FLOAT) floats[place(b, t, i)] = b->numbers[t][i];
        else halves[place(b, t, i)] = (uint16_t)(bits >> 16);
    }
    echi_gpu_copy_in(b->ours, b->ours->queue, b->memory[t], floats, count * number_bytes(b));
    finish(b);
    free(floats);
}

static void read_theirs(struct bench *b, float *to) {
    const enum cudnn_tensor t = result_of(b);
    const size_t count = count_of(b, t);
    float *floats = room_for(count * sizeof *floats);
    const uint16_t *halves = (const uint16_t *)(const void *)floats;
    echi_gpu_copy_out(b->ours, b->ours->queue, b->memory[t], floats, count * number_bytes(b));
    finish(b);
    for (size_t i = 0; i < count; i++) {
        const size_t at = place(b, t, i);
        const uint32_t bits = b->mode->type == CUDNN_DATA_FLOAT ? 0 : (uint32_t)halves[at] << 16;
        memcpy(&to[i], b->mode->type == CUDNN_DATA_FLOAT ? (const void *)&floats[at] : &bits, sizeof to[i]);
    }
    free(floats);
}

/* The operands in this layout; false where cuDNN has no such tensors. */
static bool lay_out_theirs(struct bench *b, int format) {
    const int type = b->mode->type;
    bool takes = true;
    b->format = format;
    for (int t = 0; t < CUDNN_TENSORS; t++) {
        const int *s = b->size[t];
        const int code = t == CUDNN_W ? cudnn.cudnnSetFilter4dDescriptor(b->shape[t], type, format, s[0], s[1], s[2], s[3])
                                      : cudnn.cudnnSetTensor4dDescriptor(b->shape[t], format, type, s[0], s[1], s[2], s[3]);
        takes = takes && code == 0;
    }
    for (int i = 0; i < 2 && takes; i++) put_theirs(b, cudnn_operands[b->way][i]);
    return takes;
}

static int run_theirs(struct bench *b) {
    static const float one = 1, zero = 0;
    const enum cudnn_tensor *o = cudnn_operands[b->way];
    return cudnn.way[b->way].run(cudnn.handle, &one, b->shape[o[0]], b->memory[o[0]]->memory, b->shape[o[1]], b->memory[o[1]]->memory,
                                 b->conv, b->algorithm, b->work->memory, echi_buffer_bytes(b->work), &zero, b->shape[o[2]],
                                 b->memory[o[2]]->memory);
}
static void launch_theirs(struct bench *b) { must(run_theirs(b), "cuDNN's convolution"); }

/* False where an algorithm cannot be had, or has no room to work in. */
static bool choose_theirs(struct bench *b, int algorithm, int math) {
    const enum cudnn_tensor *o = cudnn_operands[b->way];
    size_t bytes = 0;
    b->algorithm = algorithm, b->math = math;
    if (cudnn.cudnnSetConvolutionMathType(b->conv, math) != 0) return false;
    if (cudnn.way[b->way].room(cudnn.handle, b->shape[o[0]], b->shape[o[1]], b->conv, b->shape[o[2]], algorithm, &bytes) != 0) return false;
    if (bytes > WORK_MOST) return false;
    if (b->work == NULL || echi_buffer_bytes(b->work) < bytes) {
        echi_buffer_destroy(b->work);
        b->work = NULL;
        if (echi_buffer_create(b->device, bytes + 1, &b->work, NULL) != ECH_OK) return false;   /* there is none of no bytes */
    }
    const bool runs = run_theirs(b) == 0;
    finish(b);
    return runs;
}

/* --- seconds --- */

static double seconds_each(struct bench *b, void (*launch)(struct bench *), int times) {
    const int64_t start = echi_now();
    for (int i = 0; i < times; i++) launch(b);
    finish(b);
    return (double)(echi_now() - start) * 1e-9 / times;
}

static int times_for(double seconds) {
    const double times = TAKES_ABOUT / seconds;
    return times < 1 ? 1 : times > TIMES_MOST ? TIMES_MOST : (int)times;
}

/* cuDNN's fastest way of all that it offers in this mode, laid out and chosen; 0, or about how many seconds it takes. */
static double fastest_theirs(struct bench *b) {
    const enum cudnn_tensor *o = cudnn_operands[b->way];
    double least = 0;
    int format = 0, algorithm = 0, math = 0;
    for (int f = 0; f < CUDNN_FORMATS; f++) {
        struct cudnn_found found[FOUND_MOST];
        int count = 0;
        if (!lay_out_theirs(b, f) || cudnn.cudnnSetConvolutionMathType(b->conv, b->mode->math) != 0 ||
            cudnn.way[b->way].find(cudnn.handle, b->shape[o[0]], b->shape[o[1]], b->conv, b->shape[o[2]], FOUND_MOST, &count,
                                   found) != 0)
            continue;
        for (int i = 0; i < count; i++) {
            /* Floats by FMAs stay that; nothing is rounded to what was not asked for. */
            const int by = b->mode->math == CUDNN_FMA_MATH ? CUDNN_FMA_MATH : found[i].math;
            if (found[i].status != 0 || by == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) continue;
            if (!choose_theirs(b, found[i].algorithm, by)) continue;
            const double seconds = seconds_each(b, launch_theirs, TRIED);
            if (least == 0 || seconds < least) least = seconds, format = f, algorithm = found[i].algorithm, math = by;
        }
    }
    if (least > 0) must(!lay_out_theirs(b, format) || !choose_theirs(b, algorithm, math), "what cuDNN did before");
    return least;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *value) {
    qsort(value, ROUNDS, sizeof *value, by_value);
    return value[ROUNDS / 2];
}

/* --- rows of the table --- */

struct means { double logs[ECHI_GPU_WAYS]; int rows[ECHI_GPU_WAYS], unlike, none; };

/* Runs both once, and says where they differ. */
static bool alike(struct bench *b) {
    const size_t count = count_of(b, result_of(b));
    float *mine = room_for(count * sizeof *mine), *peer = room_for(count * sizeof *peer);
    double most = 0;
    size_t i = 0;
    launch_ours(b);
    launch_theirs(b);
    finish(b);
    read_ours(b, mine);
    read_theirs(b, peer);
    for (size_t k = 0; k < count; k++) most = fmax(most, fabs((double)peer[k]));
    while (i < count && fabs((double)mine[i] - (double)peer[i]) <= b->mode->alike * most) i++;   /* a NaN is unlike, too */
    if (i < count) printf("NOT ALIKE: number %zu is %g, cuDNN has %g of at most %g\n", i, (double)mine[i], (double)peer[i], most);
    free(mine);
    free(peer);
    return i == count;
}

static void row(struct bench *b, struct means *means) {
    const struct echi_layer *l = b->layer;
    const double operations = 2e-9 * b->size[CUDNN_Y][0] * (double)l->weights * l->out.h * l->out.w;
    double mine[ROUNDS], peer[ROUNDS], over[ROUNDS];
    printf("%-4s %3d to %3d %dx%d/%d @ %-3d %-10s %-30s ", b->mode->name, l->in.c, l->out.c, l->kernel_h, l->kernel_w, l->stride_h, l->in.h,
           way_names[b->way], kernel_of_ours(b));
    const double guess = beside ? fastest_theirs(b) : 0;
    if (guess > 0 && !alike(b)) {
        means->unlike++;
        return;
    }
    seconds_each(b, launch_ours, 1);   /* warm */
    const int times = times_for(seconds_each(b, launch_ours, TRIED)), their_times = guess > 0 ? times_for(guess) : 0;
    for (int i = 0; i < ROUNDS; i++) {
        mine[i] = seconds_each(b, launch_ours, times);
        peer[i] = guess > 0 ? seconds_each(b, launch_theirs, their_times) : 0;
        over[i] = peer[i] / mine[i];
    }
    printf("%9.1f", operations / median(mine));
    if (guess > 0) {
        const double ratio = median(over);
        printf(" %9.1f %6.2f   %s, algorithm %d\n", operations / median(peer), ratio, format_names[b->format], b->algorithm);
        means->logs[b->way] += log(ratio);
        means->rows[b->way]++;
    } else {
        printf("%s\n", beside ? "   cuDNN does not take it by these calls" : "");
        means->none++;
    }
    fflush(stdout);
}

static void sum_up(const struct mode *mode, const struct means *m) {
    double logs = 0;
    int rows = 0;
    for (int way = 0; way < ECHI_GPU_WAYS; way++) logs += m->logs[way], rows += m->rows[way];
    if (rows == 0) return;
    const double mean = exp(logs / rows);
    printf("%s: geometric mean %.2f of cuDNN over %d", mode->name, mean, rows);
    for (int way = 0; way < ECHI_GPU_WAYS; way++)
        if (m->rows[way] > 0) printf(", %s %.2f", way_names[way], exp(m->logs[way] / m->rows[way]));
    if (m->none > 0) printf("; %d that cuDNN does not take", m->none);
    if (m->unlike > 0) printf("; %d NOT ALIKE", m->unlike);
    printf("   >= %.1f %s\n", WANTED, mean >= WANTED && m->unlike == 0 ? "yes" : "NO");
}

/* --- all layers --- */

static bool same_layer(const struct echi_layer *a, const struct echi_layer *b) {
    return memcmp(&a->in, &b->in, sizeof a->in) == 0 && memcmp(&a->out, &b->out, sizeof a->out) == 0 && a->kernel_h == b->kernel_h &&
           a->kernel_w == b->kernel_w && a->stride_h == b->stride_h && a->stride_w == b->stride_w && a->pad_h == b->pad_h &&
           a->pad_w == b->pad_w;
}

/* Adds the convolutions of a model that are not among them yet, without biases. */
static int add_layers(const char *name, struct echi_layer *layers, int count) {
    struct ech_model *model;
    struct ech_error err;
    check(ech_model_open(name, &model, &err), &err);
    for (int i = 0; i < model->n_layers && count < LAYERS_MOST; i++) {
        const struct echi_layer *l = &model->layers[i];
        if (l->op != ECHI_OP_CONV2D) continue;
        layers[count] = (struct echi_layer){.name = "conv", .op = l->op, .in = l->in, .out = l->out, .kernel_h = l->kernel_h,
                                            .kernel_w = l->kernel_w, .stride_h = l->stride_h, .stride_w = l->stride_w, .pad_h = l->pad_h,
                                            .pad_w = l->pad_w, .weights = l->weights};
        int same = 0;
        while (!same_layer(&layers[same], &layers[count])) same++;
        count += same == count;
    }
    ech_model_destroy(model);
    return count;
}

static void set_sizes(struct bench *b, const struct echi_layer *l, int n) {
    const int sizes[CUDNN_TENSORS][4] = {[CUDNN_X] = {n, l->in.c, l->in.h, l->in.w},
                                         [CUDNN_W] = {l->out.c, l->in.c, l->kernel_h, l->kernel_w},
                                         [CUDNN_Y] = {n, l->out.c, l->out.h, l->out.w}};
    memcpy(b->size, sizes, sizeof sizes);
}

/* Normal numbers, cut to bf16. */
static float *random_numbers(struct echi_random *r, size_t count) {
    float *numbers = room_for(count * sizeof *numbers);
    for (size_t i = 0; i < count; i++) {
        const float x = (float)echi_random_normal(r);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        bits &= 0xffff0000u;
        memcpy(&numbers[i], &bits, sizeof bits);
    }
    return numbers;
}

/* of_input: the layer takes the pictures, whose gradient no step needs. */
static void all_ways(struct bench *b, const struct echi_layer *layer, int n, bool of_input, struct means *means) {
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 0);
    set_sizes(b, layer, n);
    for (int t = 0; t < CUDNN_TENSORS; t++) b->numbers[t] = random_numbers(&r, count_of(b, (enum cudnn_tensor)t));
    open_ours(b, layer, n);
    if (beside) open_theirs(b);
    for (int way = 0; way < ECHI_GPU_WAYS; way++) {
        b->way = (enum echi_gpu_way)way;
        if (way != ECHI_GPU_BACKWARD_INPUT || !of_input) row(b, means);
    }
    if (beside) close_theirs(b);
    echi_gpu_destroy(b->ours);
    for (int t = 0; t < CUDNN_TENSORS; t++) free(b->numbers[t]);
}

/* The context that our stacks have, current for cuDNN as well. */
static void open_stream(void) {
    CUcontext context;
    must(cu->cuDevicePrimaryCtxRetain(&context, echi_cuda_runtime()->at[0]), "the card's context");
    must(cu->cuCtxPushCurrent_v2(context), "the card's context");
    must(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "a stream");
}

int main(int argc, char **argv) {
    struct echi_layer layers[LAYERS_MOST];
    const struct echi_cuda_runtime *cuda = echi_cuda_runtime();
    int count = 0, unlike = 0;
    if (argc != 1 && (argc != 3 || atoi(argv[2]) < 1)) {
        fprintf(stderr, "usage: bench_conv_cuda [MODEL BATCH]\n");
        return 2;
    }
    if (cuda->count == 0) {
        fprintf(stderr, "no CUDA device here: %s\n", cuda->why);
        return 77;
    }
    cu = &cuda->cu;
    if (argc == 3) count = add_layers(argv[1], layers, count);
    else count = add_layers("vgg19", layers, add_layers("resnet18", layers, count));
    const int n = argc == 3 ? atoi(argv[2]) : 64;
    open_stream();
    const char *why = cudnn_open(stream);
    beside = why == NULL;
    printf("batch %d; GFLOP/s of ours, %s", n, beside ? "and of cuDNN " : "alone");
    if (beside) printf("%zu, and ours over cuDNN's", cudnn.version());
    printf("\n");
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        struct bench b = {.mode = &modes[m]};
        struct means means = {0};
        struct ech_error err;
        check(echi_ops_open("cuda", 1, echi_cpu_level(), modes[m].kernels, NULL, &b.device, &err), &err);
        if (m == 0) printf("%s, %s\n", echi_device_describe(b.device)->name, echi_device_describe(b.device)->driver);
        for (int i = 0; i < count; i++) all_ways(&b, &layers[i], n, i == 0, &means);
        echi_device_close(b.device);
        sum_up(&modes[m], &means);
        unlike += means.unlike;
    }
    if (beside) cudnn.cudnnDestroy(cudnn.handle);
    else fprintf(stderr, "no cuDNN to compare with: %s\n", why);
    return unlike > 0 ? 1 : beside ? 0 : 77;
}
