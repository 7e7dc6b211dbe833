/* SPDX-License-Identifier: Apache-2.0
 * A built-in model's training step (input, forward, loss, backward, SGD) on one thread, as a whole and unit by unit.
 *
 *     bench_step [bf16] MODEL [BATCH]       a table: the parts of a step, by default at batch 64; LeNet-5 also at other sizes
 *     bench_step [bf16] train MODEL BATCH   two numbers: images a second of training at that batch, the median of some runs;
 *                                           and the peak of the process' memory in MiB
 *     bench_step batches MODEL [BATCH...]   training at batches that fill vectors and at others, in turn, the median of some runs; by the
 *                                           thread's processor time, so that other work on the machine shows less
 *     bench_step on DEVICE [tf32|bf16] train MODEL BATCH
 *                                           the same on another device, such as cuda; the memory is the stack's on it
 *
 * With bf16, or tf32, convolutions and fully connected layers are multiplied so; exits with 77 where the processor cannot, or where there
 * is no such device. On a device a step is all that a node's is: rows and parameters go to it, gradients come back, and all processors of
 * this machine take the optimiser's step. */
#include "cpu/echi_cpu_kernels.h"
#include "echi_model.h"
#include "echi_ops.h"
#include "echi_os.h"
#include "echi_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { MOST_PARTS = 400, MOST_N = 1024, MAX_SIZES = 16 };

struct bench {
    struct ech_model *model;
    struct echi_device *device;
    struct echi_buffer *params, *grads, *velocity;
    struct echi_stack *stack;
    int n, units;
    float *rows;
    uint16_t labels[MOST_N];
    struct echi_row who[MOST_N];   /* for dropout */
};

static void check(ech_status status, const struct ech_error *err) {
    if (status == ECH_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static enum echi_kernels kernels = ECHI_KERNELS_FAST;
static const char *device = "cpu";
static int threads = 1;

static bool there_is(const char *kind) {
    struct echi_device_info info;
    char spec[32];
    for (int i = 0; echi_device_at(i, spec, sizeof spec, &info); i++)
        if (strncmp(spec, kind, strlen(kind)) == 0) return true;
    return false;
}

static struct echi_device *open_device(void) {
    struct echi_device *out;
    struct ech_error err;
    const ech_status status = echi_ops_open(device, threads, echi_cpu_level(), kernels, NULL, &out, &err);
    if (status == ECH_E_UNSUPPORTED && !there_is(device)) {
        fprintf(stderr, "%s\n", err.text);
        exit(77);
    }
    check(status, &err);
    return out;
}

static void begin(struct bench *b, const char *model, int n) {
    struct ech_error err;
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 0);
    check(ech_model_open(model, &b->model, &err), &err);
    b->device = open_device();
    const size_t bytes = b->model->n_params * sizeof(float), image = echi_shape_size(b->model->input);
    check(echi_buffer_create_pinned(b->device, bytes, &b->params, &err), &err);
    check(echi_buffer_create_pinned(b->device, bytes, &b->grads, &err), &err);
    check(echi_buffer_create_host(b->device, bytes, &b->velocity, &err), &err);
    echi_model_init(b->model, 1, echi_buffer_host(b->params));
    check(echi_stack_create(b->device, kernels, b->model->layers, b->model->n_layers, n, &b->stack, &err), &err);
    b->n = n;
    b->units = echi_stack_units(b->stack);
    b->rows = malloc((size_t)n * image * sizeof(float));
    if (!b->rows) exit(1);
    for (size_t i = 0; i < (size_t)n * image; i++) b->rows[i] = (float)echi_random_normal(&r);
    for (int i = 0; i < n; i++) b->labels[i] = (uint16_t)echi_random_below(&r, 10);
}

static void end(struct bench *b) {
    echi_stack_destroy(b->stack);
    echi_buffer_destroy(b->params);
    echi_buffer_destroy(b->grads);
    echi_buffer_destroy(b->velocity);
    echi_device_close(b->device);
    ech_model_destroy(b->model);
    free(b->rows);
}

/* One step; *at gets the time after each part, in the order input, units forward, loss, units backward, SGD. */
static int step(struct bench *b, int64_t *at) {
    struct ech_error err;
    double loss;
    int correct, parts = 0;
    check(echi_stack_input(b->stack, b->n, b->rows, &err), &err);
    check(echi_stack_train(b->stack, &(struct echi_training){1, b->who, 1}, &err), &err);
    at[parts++] = echi_now();
    for (int u = 0; u < b->units; u++) {
        check(echi_stack_forward(b->stack, u, b->params, &err), &err);
        at[parts++] = echi_now();
    }
    check(echi_stack_loss(b->stack, b->labels, 1.0f / (float)b->n, &loss, &correct, &err), &err);
    at[parts++] = echi_now();
    for (int u = b->units - 1; u >= 0; u--) {
        check(echi_stack_backward(b->stack, u, b->params, b->grads, u > 0, &err), &err);
        at[parts++] = echi_now();
    }
    check(echi_stack_grads(b->stack, 0, &err), &err);
    const struct echi_step sgd = {.lr = 0.001f, .momentum = 0.9f};
    check(echi_apply(b->device, b->params, b->params, &(struct echi_moments){.buffer = b->velocity}, b->grads, 0, b->model->n_params, &sgd,
                     &err), &err);
    at[parts++] = echi_now();
    return parts;
}

static void evaluate(struct bench *b) {
    struct ech_error err;
    double loss;
    int correct;
    check(echi_stack_input(b->stack, b->n, b->rows, &err), &err);
    for (int u = 0; u < b->units; u++) check(echi_stack_forward(b->stack, u, b->params, &err), &err);
    check(echi_stack_loss(b->stack, b->labels, 1.0f, &loss, &correct, &err), &err);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

/* Of the whole process, as the kernel counts it; on a device that is not the host, of the stack. */
static double mebibytes(const struct bench *b) {
    struct rusage use;
    if (!echi_device_describe(b->device)->host_memory) return (double)echi_stack_bytes(b->stack) / (1 << 20);
    return getrusage(RUSAGE_SELF, &use) ? 0 : (double)use.ru_maxrss / 1024;
}

/* Images a second: the median of some runs of about a quarter of a second each, at least a step; and the memory, unless that is NULL. */
static double images_per_second(const char *model, int n, bool train, double *out_mebibytes) {
    enum { RUNS = 7 };
    struct bench b;
    double speed[RUNS];
    int64_t at[MOST_PARTS];
    begin(&b, model, n);
    for (int run = -1; run < RUNS; run++) {   /* the first one warms up */
        const int64_t start = echi_now();
        int64_t images = 0, now;
        do {
            if (train) step(&b, at);
            else evaluate(&b);
            images += n;
            now = echi_now();
        } while (now - start < 250000000);
        if (run >= 0) speed[run] = (double)images * 1e9 / (double)(now - start);
    }
    if (out_mebibytes) *out_mebibytes = mebibytes(&b);
    end(&b);
    return median(speed, RUNS);
}

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The first size is what the others are compared with. */
static void table_of_batches(const char *model, const int *sizes, int count) {
    enum { RUNS = 9 };
    static struct bench b[MAX_SIZES];
    double speed[MAX_SIZES][RUNS];
    int64_t at[MOST_PARTS];
    for (int i = 0; i < count; i++) begin(&b[i], model, sizes[i]);
    for (int run = -1; run < RUNS; run++)   /* the first one warms up */
        for (int i = 0; i < count; i++) {
            const double start = processor_seconds();
            int images = 0;
            do step(&b[i], at), images += sizes[i];
            while (processor_seconds() - start < 0.05);
            if (run >= 0) speed[i][run] = images / (processor_seconds() - start);
        }
    const double first = median(speed[0], RUNS);
    printf("%s, images trained a second of processor time, median of %d\n", model, RUNS);
    for (int i = 0; i < count; i++) {
        const double own = median(speed[i], RUNS);
        printf("  batch %4d  %10.0f  %5.2f of batch %d's\n", sizes[i], own, own / first, sizes[0]);
        end(&b[i]);
    }
}

/* Multiply-adds a second, in billions of operations, of the product kernel on data in the first-level cache: what the other
 * figures can hope for on this machine at this moment. */
static double ceiling(void) {
    enum { TERMS = 64, OUTPUTS = 6, VECTORS = 4, RUNS = 15, CALLS = 3000 };
    static _Alignas(64) float x[TERMS * VECTORS * 16], w[OUTPUTS * TERMS], out[OUTPUTS * VECTORS * 16];
    const struct echi_cpu_kernels *k = echi_cpu_kernels_for(echi_cpu_level());
    const struct echi_cpu_product p = {.x = x, .x_p = k->width, .w = w, .w_o = TERMS, .out = out, .out_o = VECTORS * k->width,
                                       .out_p = k->width, .loop = {{1, 0, 0}, {1, 0, 0}, {TERMS, VECTORS * k->width, 1}},
                                       .outputs = OUTPUTS, .vectors = VECTORS};
    double speed[RUNS];
    for (int run = 0; run < RUNS; run++) {
        const int64_t start = echi_now();
        for (int i = 0; i < CALLS; i++) k->product(&p);
        speed[run] = 2.0 * TERMS * OUTPUTS * VECTORS * k->width * CALLS / (double)(echi_now() - start);
    }
    return median(speed, RUNS);
}

/* Floating-point operations for one sample: forward, and each half of backward, alike. */
static double flops(const struct echi_layer *l) {
    if (l->op == ECHI_OP_CONV2D) return 2.0 * (double)l->weights * l->out.h * l->out.w;
    return l->op == ECHI_OP_FC ? 2.0 * (double)l->weights : 0.0;
}

static void print_part(const char *what, const char *kernel, double ns, double operations, double peak) {
    if (operations > 0.0)
        printf("  %-9s %-28s %8.1f us %8.1f GFLOP/s  %3.0f %% of the ceiling\n", what, kernel, ns / 1e3, operations / ns,
               100.0 * operations / ns / peak);
    else
        printf("  %-9s %-28s %8.1f us\n", what, kernel, ns / 1e3);
}

static void table_of_parts(const char *model, int n) {
    enum { STEPS = 301 };
    static double time[MOST_PARTS][STEPS];
    const double peak = ceiling();
    struct bench b;
    double all = 0.0;
    int64_t at[MOST_PARTS];
    begin(&b, model, n);
    const int64_t warm = echi_now();
    step(&b, at);
    int steps = (int)(4000000000 / (echi_now() - warm));   /* four seconds, or what there is room for */
    steps = steps < 3 ? 3 : steps > STEPS ? STEPS : steps;
    for (int i = 0; i < steps; i++) {
        int64_t before = echi_now();
        const int64_t start = before;
        const int parts = step(&b, at);
        for (int p = 0; p < parts; p++) {
            time[p][i] = (double)(at[p] - before);
            before = at[p];
        }
        time[parts][i] = (double)(before - start);
    }
    printf("one step of %s, batch %d, median of %d; ceiling (multiply-adds from the first-level cache): %.0f GFLOP/s\n", model, n, steps,
           peak);
    int p = 0;
    print_part("input", "", median(time[p++], steps), 0.0, peak);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < b.units; i++) {
            const int u = pass == 0 ? i : b.units - 1 - i;
            int first, last;
            double operations = 0.0;
            echi_stack_unit(b.stack, u, &first, &last);
            for (int l = first; l < last; l++) operations += n * flops(&b.model->layers[l]) * (pass == 0 || u == 0 ? 1.0 : 2.0);
            all += operations;
            print_part(pass == 0 ? "forward" : "backward", echi_stack_kernel(b.stack, u), median(time[p++], steps), operations,
                       peak);
        }
        print_part(pass == 0 ? "loss" : "sgd", "", median(time[p++], steps), 0.0, peak);
    }
    print_part("step", "", median(time[p], steps), all, peak);
    printf("  %zu KiB of activations and scratch\n", echi_stack_bytes(b.stack) / 1024);
    end(&b);
}

static int batch_of(const char *text) {
    const int n = atoi(text);
    if (n >= 1 && n <= MOST_N) return n;
    fprintf(stderr, "bench_step: batch %s is not in 1..%d\n", text, MOST_N);
    exit(1);
}

/* Takes "on DEVICE", "tf32" and "bf16" off the arguments; false where the processor cannot. */
static bool take_options(int *argc, char ***argv) {
    if (*argc > 2 && strcmp((*argv)[1], "on") == 0) {
        device = (*argv)[2];
        threads = echi_cpu_count();
        *argc -= 2;
        *argv += 2;
    }
    const bool host = strcmp(device, "cpu") == 0, bf16 = *argc > 1 && strcmp((*argv)[1], "bf16") == 0,
        tf32 = !host && *argc > 1 && strcmp((*argv)[1], "tf32") == 0;
    if (!bf16 && !tf32) return true;
    if (host && *echi_cpu_bf16_lacks()) {
        fprintf(stderr, "bench_step: this processor lacks %s\n", echi_cpu_bf16_lacks());
        return false;
    }
    kernels = bf16 ? ECHI_KERNELS_BF16_FAST : ECHI_KERNELS_TF32_FAST;
    (*argc)--;
    (*argv)++;
    return true;
}

int main(int argc, char **argv) {
    if (!take_options(&argc, &argv)) return 77;
    if (argc == 4 && strcmp(argv[1], "train") == 0) {
        double memory;
        const double speed = images_per_second(argv[2], batch_of(argv[3]), true, &memory);
        printf("%.1f %.0f\n", speed, memory);
        return 0;
    }
    if (argc >= 3 && strcmp(argv[1], "batches") == 0) {
        int sizes[MAX_SIZES] = {16, 1, 4, 17, 20, 24, 31, 33, 50, 64}, count = 10;
        if (argc > 3)
            for (count = 0; count < MAX_SIZES && count + 3 < argc; count++) sizes[count] = batch_of(argv[count + 3]);
        table_of_batches(argv[2], sizes, count);
        return 0;
    }
    if (argc < 2 || argc > 3 || strcmp(device, "cpu") != 0) {
        fprintf(stderr, "usage: bench_step [bf16] MODEL [BATCH]\n       bench_step [bf16] train MODEL BATCH\n"
                        "       bench_step batches MODEL [BATCH...]\n"
                        "       bench_step on DEVICE [tf32|bf16] train MODEL BATCH\n");
        return 1;
    }
    table_of_parts(argv[1], argc > 2 ? batch_of(argv[2]) : 64);
    if (argc > 2 || strcmp(argv[1], "lenet5") != 0) return 0;
    static const int sizes[] = {16, 20, 24, 32, 40, 48, 64, 128};
    printf("images a second    training  evaluation\n");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        printf("  batch %4d      %10.0f  %10.0f\n", sizes[i], images_per_second(argv[1], sizes[i], true, NULL),
               images_per_second(argv[1], sizes[i], false, NULL));
    return 0;
}
