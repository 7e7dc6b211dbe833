/* SPDX-License-Identifier: Apache-2.0
 * Step times at start, and those of the units of a step, at several numbers of samples: what the planner goes by. And, for a profile, what
 * other tasks cost. */
#include "echi_exec_impl.h"
#include "echi_measure.h"
#include "echi_error.h"
#include "echi_median.h"
#include "echi_random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every size is run for some milliseconds (of --measure, an equal part each), or once, in each of several sweeps. The median processor
 * time of its steps counts, since all nodes measure at once as they will compute at once: where they share caches, or the two threads of a
 * core, the least is what a step takes while the others happen to wait (hosts of a test-bed computed 1.3 to 2 times as long in the run).
 * Each sweep is short, so that what else the machine does for a while befalls all sizes alike. How much longer a whole sweep took on the
 * clock gives the scale, because a host may own only a share of a processor, dealt out in periods of up to 100 ms: a long step then never
 * fits between two waits, a short one does, and times on the clock would compare them wrongly. (Steps alone would not do: a size has had
 * its time once its steps waited, so theirs are more waits than a share has; half a core seemed 0.42.) The fastest sweeps count: what else
 * happens to run at start only makes steps wait (of several nodes the first, since later ones rest: see REST). */
#define SWEEPS 9
#define FEW_SWEEPS 3     /* no more of them than these after MORE_UNTIL times --measure */
#define MORE_UNTIL 2
#define STEPS_SHARE 0.4   /* of what a size has of a sweep: steps of the trunk, and as much for those of the head */
#define UNITS_SHARE 0.1   /* and their units, in steps of their own: see WATCHED_FROM */
#define SHORTEST 1e-6   /* seconds that a step takes at least, whatever the clocks say */
#define CROWD_MOST 1e4 /* and this often a processor's time passes on the clock at most */
#define NO_TIME 1e-9    /* and anything else: a clock that stands still, or goes back, must not make it less than nothing */
/* A large model on a small machine must not spend minutes here: no size is tried beyond one whose step takes so many seconds (but
 * two at least, for a slope), and none of the few sweeps begins after so many times --measure. That is 5 s by default, two or three
 * sweeps of ResNet-18 on half a core. */
#define LONG_STEP 0.15
#define LONG_SWEEPS 12
/* One of a step's messages takes so many times what the least message takes at one end of a socket, for what net, wire and roles do about
 * it, and the thread that wakes for it: of the time that the I/O thread of a worker with LeNet-5 takes a step, what its bytes leave over,
 * by the times that something comes or goes. */
#define MESSAGE_CALLS 4
/* Between two steps a node's caches see weights and gradients on their way through sockets, sums, momentum: in a run LeNet-5's steps of 16
 * samples took a tenth longer than one right after the other. So much other memory is touched, in sizes of all parameters; more than
 * MOST_BETWEEN bytes would leave nothing in any cache either. */
#define BETWEEN 8
#define MOST_BETWEEN ((size_t)16 << 20)
/* What an owner does takes about as long for each parameter of a larger model (3.2 million, whose momentum no cache keeps from one step to
 * the next: a tenth longer). More would be memory that a small machine lacks. */
#define MOST_OWNED ((size_t)1 << 19)
/* And a worker waits between two steps, for weights, for the head, for its quota: then caches have gone to others and the processor to
 * sleep, and a short step takes longer (LeNet-5, 16 samples on two virtual machines: 0.43 ms one after the other, 0.8 ms behind 3 ms of
 * rest, as in its run of 3 ms a round; 0.5 ms, and 0.65, where its rounds are of 1.8 ms and steps take 0.55). It waits for about as long
 * as it computes, and this long at most. Longer steps do not notice. */
#define REST 3e-3
#define RESTS_UP_TO 0.01
static const uint32_t coarse[] = {8, 16, 32, 48, 64, 96, 128};
/* Samples that do not fill the last vector have kernels of their own, which read all weights once more: of a net with 3 FC layers, 3.2
 * million parameters, in vectors of 16, steps of 16, 18, 24, 28 and 32 samples take 5.5, 7.1, 7.8, 9.1 and 8.5 ms. No line between whole
 * vectors says so. Of a net whose step of the first size is short a processor measures such sizes, too. */
static const uint32_t fine[] = {8, 12, 16, 20, 24, 28, 32, 48, 64, 96, 128};
#define FINE_UP_TO 0.01
enum { COARSE = sizeof coarse / sizeof coarse[0], SIZES = sizeof fine / sizeof fine[0] };
_Static_assert(SIZES <= ECHI_TIMES_MAX, "more sizes than struct echi_times holds");
_Static_assert(ECHI_LAYERS_MAX <= ECHI_UNITS_MAX, "more layers than struct echi_times holds units");

/* Reading the clock around each unit would make a short step longer by some percent. So units are timed in steps of their own, unless a
 * step takes so many seconds, and only divide what whole steps take. */
#define WATCHED_FROM 0.008

/* Steps of at least so many samples tell how much steps vary; shorter ones are over before anything befalls them. Their processor time,
 * in the median of their size: waiting for a processor is in the scale, and on a host with a share of one it is no accident
 * of a step but comes once a period. What takes so many times the median is no jitter but a stutter. */
#define VARIES_FROM 32
#define STUTTERS 2.5
/* So many make a distribution. A net of whose steps there are fewer has long ones, and then all sizes count, by their standard deviation
 * (ResNet-18, four hosts on two virtual processors: 0.12 in a run, and the longest of four steps 7 % above their mean); beyond the bound
 * it is a stutter, of whose frequency so few tell nothing. */
#define STEPS_TELL 8
#define FEW_VARY_MOST 0.15
#define STEPS_KEPT 48   /* of a size, the last ones */

struct bench {
    const struct echi_job *job;
    const uint32_t *sizes; int n_sizes;   /* coarse, or fine */
    struct echi_device *device;
    struct echi_lane *lane;
    struct echi_stack *trunk, *head;   /* trunk NULL: a session's, which is its caller's */
    struct echi_stack *few[2];   /* the same for the least size alone: a processor may have other kernels for a few samples. NULL: none */
    struct echi_buffer *params, *grads;
    struct echi_buffer *sum, *moment; size_t owned;   /* an owner's, of so many parameters */
    echi_real *rows, *cut_rows, *visit;   /* what comes to the head; one visit's, put together */
    uint16_t *labels;
    uint32_t *index, at;   /* samples are read on from here */
    struct echi_row *who;  /* for dropout: any will do */
    uint8_t *other;        /* memory that is touched between steps */
    size_t other_bytes;
    struct unit_watch *watch;   /* of the step under way; NULL: nobody watches its units */
    double (*unit)[ECHI_UNITS_MAX][ECHI_PASSES];   /* [SIZES]: the least processor time of each; 0: not measured */
};

/* As a step of a run reads them, scattered over a data set that no cache holds, or as an evaluation does, one after the other. */
static ech_status read_samples(struct bench *b, int n, bool eval, struct ech_error *err) {
    const uint32_t all = b->job->train_samples;
    for (uint32_t i = 0; i < (uint32_t)n; i++) b->index[i] = eval ? (b->at + i) % all : echi_permute(1, 0, all, (b->at + i) % all);
    b->at = (b->at + (uint32_t)n) % all;
    return echi_exec_read(b->job, false, 0, b->index, n, b->rows, b->labels, err);
}

/* Processor time of what a device's threads share: the caller's, who takes part in all of it; but never less than its part of all threads'
 * time, because where it had lost its processor the others did its work. Another processor's time is what passes while the caller
 * waits for it. */
struct spent { int64_t own, others; };
static struct spent spent_by(const struct echi_device *device) {
    const bool host = echi_device_describe(device)->host_memory;
    return (struct spent){host ? echi_thread_cpu() : echi_now(), echi_team_cpu(echi_device_team(device))};
}
static double seconds_since(struct spent began, const struct echi_device *device) {
    const struct spent now = spent_by(device);
    const double own = (double)(now.own - began.own), others = (double)(now.others - began.others);
    return fmax(fmax(own, (own + others) / echi_device_threads(device)) * 1e-9, NO_TIME);
}

/* Divides a step among units. What passes between two readings of the clock belongs to the layers of a stack's unit, and to the pass. */
struct unit_watch { struct spent at; double seconds[ECHI_UNITS_MAX][ECHI_PASSES]; };

/* The first layer with parameters, from `layer` of the model on; what has none belongs to the one before. */
static int unit_from(const struct echi_job *job, int layer) {
    int unit = 0;
    while (unit < job->n_layers && job->layer[unit].layer < layer) unit++;
    return unit;
}

/* Floats a sample that cross the cut at which steps are measured; 0: there is none. */
static size_t measured_width(const struct echi_job *job) { return job->border[job->cut_params].width; }

/* A stack may compute several layers with parameters as one; they are taken for equally long. */
static void note_unit(const struct bench *b, const struct echi_stack *stack, bool head, int unit, enum echi_pass pass) {
    struct unit_watch *w = b->watch;
    if (!w) return;
    const double seconds = seconds_since(w->at, b->device);
    const int from = head ? b->job->border[b->job->cut_params].layer : 0, side = head ? b->job->cut_params : 0;
    int first, end;
    echi_stack_unit(stack, unit, &first, &end);
    int of = unit_from(b->job, from + first), until = unit_from(b->job, from + end);
    if (of == until) of = of > side ? of - 1 : of, until = of + 1;
    for (int u = of; u < until; u++) w->seconds[u][pass] += seconds / (until - of);
    w->at = spent_by(b->device);
}

static ech_status train(struct echi_stack *stack, const struct bench *b, struct ech_error *err) {
    return echi_stack_train(stack, &(struct echi_training){1, b->who, 1}, err);
}

/* Measuring may take minutes, and nobody waits for what a node measures that has left its run. */
static ech_status stay(const struct bench *b, struct ech_error *err) {
    return echi_lane_stay(b->lane) ? ECH_OK : echi_fail(err, ECH_E_ABORTED, "run.measure", "this node left while it measured its steps");
}

static ech_status one_step(struct bench *b, int n, bool head, struct ech_error *err) {
    struct echi_stack *few = (uint32_t)n == b->sizes[0] ? b->few[head] : NULL, *stack = few ? few : head ? b->head : b->trunk;
    const bool loss_here = head || !b->head;
    const size_t cut_bytes = (size_t)n * measured_width(b->job) * sizeof *b->visit;
    if (head) memcpy(b->visit, b->cut_rows, cut_bytes);
    else ECHI_TRY(read_samples(b, n, false, err));
    ECHI_TRY(echi_stack_input(stack, n, head ? b->visit : b->rows, err));
    ECHI_TRY(train(stack, b, err));
    const int units = echi_stack_units(stack);
    for (int u = 0; u < units; u++) {
        ECHI_TRY(stay(b, err));
        ECHI_TRY(echi_stack_forward(stack, u, b->params, err));
        note_unit(b, stack, head, u, ECHI_FORWARD);
    }
    double loss;
    int correct;
    if (loss_here) ECHI_TRY(echi_stack_loss(stack, b->labels, 1, &loss, &correct, err));
    else {
        ECHI_TRY(echi_stack_output(stack, b->visit, err));
        ECHI_TRY(echi_stack_output_grad(stack, b->cut_rows, err));
    }
    for (int u = units - 1; u >= 0; u--) {
        ECHI_TRY(stay(b, err));
        ECHI_TRY(echi_stack_backward(stack, u, b->params, b->grads, head || u > 0, err));
        note_unit(b, stack, head, u, ECHI_BACKWARD);
    }
    ECHI_TRY(stay(b, err));
    ECHI_TRY(echi_stack_grads(stack, 0, err));
    if (!head) return ECH_OK;
    ECHI_TRY(echi_stack_input_grad(stack, b->visit, err));
    memcpy(b->other, b->visit, cut_bytes < b->other_bytes ? cut_bytes : b->other_bytes);   /* back to whoever sent them */
    return ECH_OK;
}

/* A step whose units are watched; the least of each is kept. */
static ech_status watched_step(struct bench *b, int size, bool head, struct ech_error *err) {
    const int first = head ? b->job->cut_params : 0, end = head || !b->head ? b->job->n_layers : b->job->cut_params;
    struct unit_watch watch = {.at = spent_by(b->device)};
    b->watch = &watch;
    const ech_status status = one_step(b, (int)b->sizes[size], head, err);
    b->watch = NULL;
    for (int u = first; u < end; u++)
        for (int pass = 0; pass < ECHI_PASSES; pass++) {
            double *least = &b->unit[size][u][pass];
            if (*least == 0 || watch.seconds[u][pass] < *least) *least = watch.seconds[u][pass];
        }
    return status;
}

/* [2]: trunk, head */
struct timing {
    int sizes, sweeps, steps[SIZES][2], owned;
    double warm[SIZES][2], step[SIZES][2][STEPS_KEPT];   /* of the processor: the first step of all; those that count */
    bool rested;                                         /* in this sweep, before a step of it at least */
    double cpu, wall, scale;                             /* of sweeps that are not in `scale` yet; the least scale, 0: none yet */
    double add[SWEEPS * SIZES], update[SWEEPS * SIZES];   /* of a parameter */
};

/* 0: there are none. */
static double median(const double *of, int count) {
    double sorted[SWEEPS * SIZES];
    _Static_assert(STEPS_KEPT <= SWEEPS * SIZES, "there is room for steps of one size, and for what an owner takes");
    memcpy(sorted, of, (size_t)count * sizeof sorted[0]);
    return count > 0 ? echi_median(sorted, count) : 0;
}

static int kept(const struct timing *t, int size, int head) {
    return t->steps[size][head] < STEPS_KEPT ? t->steps[size][head] : STEPS_KEPT;
}
static double typical(const struct timing *t, int size, int head) { return median(t->step[size][head], kept(t, size, head)); }

/* Where a step is so long that readings of the clock are nothing in it, its units are watched in the steps that are timed. */
static bool watches(const struct bench *b, const struct timing *t, int size, bool head) {
    return t->warm[size][head] > WATCHED_FROM && echi_device_describe(b->device)->host_memory;
}

/* Seconds of a size and sweep for what has this share of them. */
static double seconds_for(const struct bench *b, double share) { return share * b->job->measure / (SWEEPS * b->n_sizes); }

/* A device that is not the host computes behind what the host sees: its units are not known. */
static ech_status time_units(struct bench *b, int size, bool head, const struct timing *t, struct echi_slowness *slowness,
                             struct ech_error *err) {
    double sum = 0;
    if (watches(b, t, size, head) || !echi_device_describe(b->device)->host_memory) return ECH_OK;
    while (sum < seconds_for(b, UNITS_SHARE)) {
        const struct spent began = spent_by(b->device);
        ECHI_TRY(watched_step(b, size, head, err));
        sum += fmax(seconds_since(began, b->device), SHORTEST);
        echi_slowness_pay(slowness);
    }
    return ECH_OK;
}

/* One step, of *wall seconds on the clock, behind `rest` seconds of waiting. */
static ech_status timed_step(struct bench *b, int size, bool head, double rest, struct echi_slowness *slowness, struct timing *t,
                             double *wall, struct ech_error *err) {
    memset(b->other, t->steps[size][head], b->other_bytes);
    const int64_t began = echi_now(), owed = slowness->debt;
    if (rest > 0) echi_sleep((int64_t)(rest * 1e9));
    const struct spent cpu_began = spent_by(b->device);
    ECHI_TRY(watches(b, t, size, head) ? watched_step(b, size, head, err) : one_step(b, (int)b->sizes[size], head, err));
    const double cpu = fmax(seconds_since(cpu_began, b->device), SHORTEST);
    t->step[size][head][t->steps[size][head]++ % STEPS_KEPT] = cpu;
    echi_slowness_pay(slowness);
    /* No step ends before its processor time has passed: also beside a clock that goes back or stands still this ends. */
    *wall = fmax((double)(echi_now() - began + slowness->debt - owed) * 1e-9, rest + cpu);
    return ECH_OK;
}

static ech_status time_size(struct bench *b, int sweep, int size, bool head, struct echi_slowness *slowness, struct timing *t,
                            struct ech_error *err) {
    if (sweep == 0) {   /* warms caches and pages */
        const struct spent began = spent_by(b->device);
        ECHI_TRY(one_step(b, (int)b->sizes[size], head, err));
        t->warm[size][head] = fmax(seconds_since(began, b->device), SHORTEST);
        echi_slowness_pay(slowness);
    }
    /* The first sweep gives the scale: a processor that rests may have more of its quota than it is granted in the mean. All nodes rest in
     * the others, about at the same time; then only these count. */
    const bool rests = sweep > 0 && b->job->waits && t->warm[size][head] < RESTS_UP_TO && echi_device_describe(b->device)->host_memory;
    const double share = seconds_for(b, STEPS_SHARE), rest = rests ? fmin(fmin(REST, t->warm[size][head]), share) : 0;
    if (rests && sweep == 1) t->steps[size][head] = 0;
    t->rested |= rests;
    for (double sum = 0, wall; sum < share; sum += wall) ECHI_TRY(timed_step(b, size, head, rest, slowness, t, &wall, err));
    return ECH_OK;
}

/* Samples that are computed together, by the trunk or by the head. */
static uint16_t bench_block(const struct bench *b) {
    const int trunk = b->trunk ? echi_stack_block(b->trunk) : 1, head = b->head ? echi_stack_block(b->head) : 1;
    return (uint16_t)(trunk > head ? trunk : head);
}

/* Up to so many samples; once the first size's first step has told, which both lists begin with. */
static void choose_sizes(struct bench *b, uint32_t most, struct timing *t) {
    const double warm = t->warm[0][0] + t->warm[0][1];
    const bool whole = fine[1] % bench_block(b) == 0;   /* else it takes as long as the next whole block */
    if (warm > 0 && warm < FINE_UP_TO && whole && echi_device_describe(b->device)->host_memory) {
        b->sizes = fine;
        b->n_sizes = SIZES;
    }
    for (t->sizes = 0; t->sizes < b->n_sizes && b->sizes[t->sizes] <= most;) t->sizes++;
}

/* What an owner does about parameters: it adds what a push brings to a sum, and applies that. */
static ech_status time_owner(const struct bench *b, struct timing *t, struct ech_error *err) {
    const struct echi_step sgd = {.lr = (echi_real)0.01, .momentum = (echi_real)0.5};
    const struct spent began = spent_by(b->device);
    ECHI_TRY(echi_add(b->device, b->sum, b->grads, 0, b->owned, err));
    t->add[t->owned] = seconds_since(began, b->device) / (double)b->owned;
    const struct spent then = spent_by(b->device);
    ECHI_TRY(echi_apply(b->device, b->params, b->sum, &(struct echi_moments){.buffer = b->moment}, b->grads, 0, b->owned, &sgd, err));
    t->update[t->owned++] = seconds_since(then, b->device) / (double)b->owned;
    return ECH_OK;
}

/* Of sweeps together that are long enough for some periods of a quota. */
#define SCALE_FROM 0.15
static void note_scale(struct timing *t, double cpu, double wall) {
    t->cpu += cpu;
    t->wall += wall;
    if (t->wall < SCALE_FROM) return;
    if (t->scale == 0 || t->wall / t->cpu < t->scale) t->scale = t->wall / t->cpu;
    t->cpu = t->wall = 0;
}

/* One sweep over all sizes; the first of all chooses them. */
static ech_status time_sweep(struct bench *b, uint32_t most, double slow, struct echi_slowness *slowness, struct timing *t,
                             struct ech_error *err) {
    const int sweep = t->sweeps++;
    const int64_t began = echi_now(), owed = slowness->debt;
    const struct spent cpu_began = spent_by(b->device);
    t->rested = false;
    for (int i = 0; i < t->sizes; i++) {
        for (int head = b->trunk == NULL; head <= (b->head != NULL); head++) {
            ECHI_TRY(time_size(b, sweep, i, head, slowness, t, err));
            ECHI_TRY(time_units(b, i, head, t, slowness, err));
        }
        ECHI_TRY(time_owner(b, t, err));
        if (sweep == 0 && i == 0) choose_sizes(b, most, t);
        if (i > 0 && (typical(t, i, 0) + typical(t, i, 1)) * slow > LONG_STEP) t->sizes = i + 1;
    }
    const double cpu = fmax(seconds_since(cpu_began, b->device), SHORTEST);
    if (!t->rested) note_scale(t, cpu, fmax((double)(echi_now() - began + slowness->debt - owed) * 1e-9, cpu));
    return ECH_OK;
}

/* After so many times --measure. */
static bool goes_on(const struct timing *t, double measured) {
    return t->sweeps == 0 || (t->sweeps < SWEEPS && measured < (t->sweeps < FEW_SWEEPS ? LONG_SWEEPS : MORE_UNTIL));
}

/* How much longer than their processor time the fastest sweeps took; at least as much as the control group says. */
static double scale_of(const struct timing *t, double granted) {
    const double found = t->scale > 0 ? t->scale : t->cpu > 0 ? t->wall / t->cpu : 1;
    return fmax(found, 1 / granted);
}

/* The standard deviation of steps by the mean of their size; 0: no size has two. */
static double few_vary(const struct timing *t) {
    double squares = 0;
    int more = 0;   /* steps beyond the first of their size */
    for (int i = 0; i < 2 * t->sizes; i++) {
        const double *step = t->step[i / 2][i % 2];
        const int n = kept(t, i / 2, i % 2);
        double mean = 0;
        for (int k = 0; k < n; k++) mean += step[k] / n;
        for (int k = 0; k < n; k++) squares += (step[k] / mean - 1) * (step[k] / mean - 1);
        more += n > 1 ? n - 1 : 0;
    }
    return more ? sqrt(squares / more) : 0;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The middle half of the steps tells the jitter (of a normal number it is 1.349 deviations wide), so that few stutters do not. */
static void variation_of(const struct bench *b, const struct timing *t, struct echi_times *out) {
    double ratio[SIZES * 2 * STEPS_KEPT], stuttered = 0;
    int n = 0, stutters = 0;
    for (int i = 0; i < 2 * t->sizes; i++) {
        const int size = i / 2, head = i % 2;
        const double middle = typical(t, size, head);
        for (int k = 0; k < kept(t, size, head) && b->sizes[size] >= VARIES_FROM; k++) ratio[n++] = t->step[size][head][k] / middle;
    }
    if (n < STEPS_TELL) {
        out->jitter = fmin(few_vary(t), FEW_VARY_MOST);
        return;
    }
    qsort(ratio, (size_t)n, sizeof ratio[0], ascending);
    for (int i = n - 1; i >= 0 && ratio[i] > STUTTERS * ratio[n / 2]; i--, stutters++) stuttered += ratio[i] / ratio[n / 2];
    out->jitter = fmin(log(ratio[3 * n / 4] / ratio[n / 4]) / 1.349, 1);
    out->stutter = (double)stutters / n;
    out->stutter_factor = stutters ? fmin(stuttered / stutters, 1000) : 0;
}

static size_t bench_bytes(const struct bench *b) {
    return (b->trunk ? echi_stack_bytes(b->trunk) : 0) + (b->head ? echi_stack_bytes(b->head) : 0);
}

/* Of the trunk and, where there is one, of the head, for steps of up to `most` samples. */
static ech_status both_stacks(const struct bench *b, int most, struct echi_stack **trunk, struct echi_stack **head, struct ech_error *err) {
    const struct echi_job *job = b->job;
    const struct ech_model *model = job->model;
    const int cut = job->border[job->cut_params].layer;
    if (cut > 0) ECHI_TRY(echi_stack_create(b->device, job->kernels, model->layers, cut, most, trunk, err));
    if (cut == model->n_layers) return ECH_OK;
    return echi_stack_create(b->device, job->kernels, model->layers + cut, model->n_layers - cut, most, head, err);
}

static ech_status bench_stacks(struct bench *b, const struct echi_job *job, struct echi_device *device, struct echi_lane *lane, int most,
                                struct ech_error *err) {
    *b = (struct bench){.job = job, .sizes = coarse, .n_sizes = COARSE, .device = device, .lane = lane};
    return both_stacks(b, most, &b->trunk, &b->head, err);
}

static ech_status few_stacks(struct bench *b, struct ech_error *err) {
    return echi_device_describe(b->device)->host_memory ? both_stacks(b, (int)b->sizes[0], &b->few[0], &b->few[1], err) : ECH_OK;
}

/* What goes through them, filled with numbers of the size that samples have. */
static ech_status bench_fill(struct bench *b, int most, struct ech_error *err) {
    const struct echi_job *job = b->job;
    const size_t all = job->n_params * sizeof(echi_real);
    const bool there = job->first_weights && echi_device_describe(b->device)->host_memory;
    ECHI_TRY(there ? echi_buffer_wrap(b->device, job->first_weights, all, &b->params, err)
                   : echi_buffer_create_pinned(b->device, all, &b->params, err));
    ECHI_TRY(echi_buffer_create_pinned(b->device, all, &b->grads, err));
    b->owned = job->n_params < MOST_OWNED ? job->n_params : MOST_OWNED;
    ECHI_TRY(echi_buffer_create_host(b->device, b->owned * sizeof(echi_real), &b->sum, err));
    ECHI_TRY(echi_buffer_create_host(b->device, b->owned * sizeof(echi_real), &b->moment, err));
    b->rows = echi_alloc_aligned((size_t)most * echi_shape_size(job->model->input) * sizeof *b->rows);
    const size_t cut_bytes = (size_t)most * (measured_width(job) ? measured_width(job) : 1) * sizeof *b->cut_rows;
    b->cut_rows = echi_alloc_aligned(cut_bytes);
    b->visit = echi_alloc_aligned(cut_bytes);
    b->labels = calloc((size_t)most, sizeof *b->labels);
    b->index = calloc((size_t)most, sizeof *b->index);
    b->who = calloc((size_t)most, sizeof *b->who);
    b->other_bytes = job->n_params > MOST_BETWEEN / (BETWEEN * sizeof(echi_real)) ? MOST_BETWEEN
                                                                                  : job->n_params * BETWEEN * sizeof(echi_real);
    b->other = echi_alloc_aligned(b->other_bytes);
    b->unit = calloc(SIZES, sizeof *b->unit);
    if (!b->unit || !b->rows || !b->cut_rows || !b->visit || !b->labels || !b->index || !b->who || !b->other)
        return echi_fail(err, ECH_E_MEMORY, "run.measure",
                         "no memory for %zu bytes to measure a step of %d samples in; use a smaller batch or model",
                         (size_t)most * (echi_shape_size(job->model->input) + 2 * measured_width(job)) * sizeof(echi_real) + b->other_bytes,
                         most);
    if (!there) echi_model_init(job->model, 1, echi_buffer_host(b->params));
    for (size_t i = 0; i < (size_t)most * measured_width(job); i++) b->cut_rows[i] = (echi_real)(i % 13) / 10;
    return ECH_OK;
}

static void bench_close(struct bench *b) {
    echi_stack_destroy(b->trunk);
    echi_stack_destroy(b->head);
    echi_stack_destroy(b->few[0]);
    echi_stack_destroy(b->few[1]);
    echi_buffer_destroy(b->params);
    echi_buffer_destroy(b->grads);
    echi_buffer_destroy(b->sum);
    echi_buffer_destroy(b->moment);
    echi_free_aligned(b->rows);
    echi_free_aligned(b->cut_rows);
    echi_free_aligned(b->visit);
    free(b->labels);
    free(b->index);
    free(b->who);
    echi_free_aligned(b->other);
    free(b->unit);
}

/* The first size, the last and the one in the middle are those at which units are kept. */
static void units_of(const struct bench *b, struct echi_times *out) {
    const int sizes_there = (int)out->count;
    out->units = (uint16_t)b->job->n_layers;
    out->cut = (uint16_t)b->job->cut_params;
    for (int i = 0; i < ECHI_UNIT_SIZES && i < sizes_there; i++) {
        out->size[i] = (uint8_t)(sizes_there <= ECHI_UNIT_SIZES ? i : i * (sizes_there - 1) / (ECHI_UNIT_SIZES - 1));
        if (!echi_times_share(out, i, (const double (*)[ECHI_PASSES])b->unit[out->size[i]])) {
            out->units = 0;
            return;
        }
        out->sizes++;
    }
}

/* Seconds of a processor, without a quota: a step's messages, and a push's bytes through a socket. */
static double messages_take(struct echi_cost_io io) { return ECHI_STEP_MESSAGES * MESSAGE_CALLS * io.message; }
static double bytes_take(const struct echi_job *job, struct echi_cost_io io) {
    return (double)job->n_params * sizeof(echi_real) * io.byte;
}

/* What the threads that compute together may take: each has its part. One that is granted all of a processor has no quota. */
static void quota_of(const struct echi_device *device, struct echi_times *out) {
    double quota, period;
    if (!echi_device_describe(device)->host_memory || !echi_cpu_quota("", &quota, &period)) return;
    quota /= echi_device_threads(device);
    if (quota >= period) return;
    out->quota = quota;
    out->period = period;
}

/* What other threads of its processors took while this node measured is in its seconds. A slow node's are `slow` times as long beside. */
static void machine_of(const struct echi_device *device, double scale, double slow, struct echi_times *out) {
    const uint64_t id = echi_device_describe(device)->host_memory ? echi_cpu_place() : 0;
    if (id == 0) return;
    const double takes = echi_device_threads(device) / slow * ECHI_PROCESSOR, crowd = scale / slow * echi_times_granted(out);
    out->machine = (struct echi_machine){id, (uint32_t)fmax(takes, 1), (uint16_t)echi_cpu_allowed(), fmin(fmax(crowd, 1), CROWD_MOST)};
}

ech_status echi_measure(const struct echi_job *job, struct echi_device *device, double slow, struct echi_lane *lane,
                        struct echi_cost_io io, struct echi_times *out, struct ech_error *err) {
    struct bench b;
    struct timing timing = {0};
    struct echi_slowness slowness;
    ech_status status = ECH_OK;
    memset(out, 0, sizeof *out);
    slow = fmax(slow, 1);
    echi_slowness_begin(&slowness, slow);
    ECHI_TRY_GOTO(bench_stacks(&b, job, device, lane, ECHI_SPARE_BLOCK, err), out);
    const uint32_t most = echi_exec_spare_rows(bench_bytes(&b), coarse[COARSE - 1]);
    if (most > ECHI_SPARE_BLOCK) {
        bench_close(&b);
        ECHI_TRY_GOTO(bench_stacks(&b, job, device, lane, (int)most, err), out);
    }
    ECHI_TRY_GOTO(few_stacks(&b, err), out);
    ECHI_TRY_GOTO(bench_fill(&b, (int)most, err), out);
    choose_sizes(&b, most, &timing);
    const int64_t began = echi_now();
    while (goes_on(&timing, (double)(echi_now() - began) * 1e-9 / job->measure))
        ECHI_TRY_GOTO(time_sweep(&b, most, slow, &slowness, &timing, err), out);
    quota_of(device, out);
    const double scale = scale_of(&timing, echi_times_granted(out)), params = (double)job->n_params;
    machine_of(device, scale, slow, out);
    for (int i = 0; i < timing.sizes; i++) {
        out->n[i] = b.sizes[i];
        out->trunk[i] = typical(&timing, i, 0) * scale;
        out->head[i] = typical(&timing, i, 1) * scale;
    }
    out->count = (uint32_t)timing.sizes;
    out->block = bench_block(&b);
    out->add = params * median(timing.add, timing.owned) * scale;
    out->update = params * median(timing.update, timing.owned) * scale;
    out->exchange = out->add + bytes_take(job, io) * scale / slow;   /* the I/O thread does not sleep */
    out->messages = messages_take(io) * scale / slow;
    units_of(&b, out);
    variation_of(&b, &timing, out);
out:
    bench_close(&b);
    return status;
}

void echi_measure_messages(const struct echi_job *job, struct echi_cost_io io, struct echi_times *times) {
    times->exchange = bytes_take(job, io) / ECHI_EXCHANGE_COPY;
    times->messages = messages_take(io);
}

/* ---------------------------------------------------------- for a profile */

#define COST_RUNS 20      /* the shortest counts */
#define COST_SAMPLES 64   /* in a step, at most */

enum cost { REFRESH, EVAL, COSTS };
struct costs {
    struct bench *b;
    struct echi_buffer *state, *out;
    int n;
};

static ech_status forward(struct echi_stack *stack, const struct bench *b, int n, const echi_real *rows, struct ech_error *err) {
    const int count = echi_stack_units(stack);
    ECHI_TRY(echi_stack_input(stack, n, rows, err));
    for (int u = 0; u < count; u++) ECHI_TRY(echi_stack_forward(stack, u, b->params, err));
    return ECH_OK;
}

static ech_status one_cost(const struct costs *c, enum cost cost, struct ech_error *err) {
    struct bench *b = c->b;
    const size_t all = b->job->n_params;
    const struct echi_buffer *states[2] = {b->grads, c->state};
    double loss;
    int correct;
    switch (cost) {
    case REFRESH: return echi_sum_states(b->device, c->out, b->params, states, 2, 0, all, err);
    case EVAL:
        ECHI_TRY(read_samples(b, c->n, true, err));
        ECHI_TRY(forward(b->trunk, b, c->n, b->rows, err));
        if (b->head) ECHI_TRY(forward(b->head, b, c->n, b->cut_rows, err));
        return echi_stack_loss(b->head ? b->head : b->trunk, b->labels, 0, &loss, &correct, err);
    case COSTS: break;
    }
    return ECH_OK;
}

ech_status echi_measure_costs(const struct echi_job *job, struct echi_device *device, const struct echi_times *times,
                              struct echi_lane *lane, struct echi_cost_io io, struct echi_profile *out, struct ech_error *err) {
    struct bench b;
    struct costs c = {.b = &b, .n = 1};
    double least[COSTS] = {0};
    ech_status status = ECH_OK;
    for (uint32_t i = 0; i < times->count && times->n[i] <= COST_SAMPLES; i++) c.n = (int)times->n[i];
    ECHI_TRY_GOTO(bench_stacks(&b, job, device, lane, c.n, err), out);
    ECHI_TRY_GOTO(bench_fill(&b, c.n, err), out);
    ECHI_TRY_GOTO(echi_buffer_create_host(device, job->n_params * sizeof(echi_real), &c.state, err), out);
    ECHI_TRY_GOTO(echi_buffer_create_host(device, job->n_params * sizeof(echi_real), &c.out, err), out);
    for (int run = 0; run < COST_RUNS; run++)
        for (int cost = 0; cost < COSTS; cost++) {
            ECHI_TRY_GOTO(stay(&b, err), out);
            const struct spent began = spent_by(device);
            ECHI_TRY_GOTO(one_cost(&c, (enum cost)cost, err), out);
            const double seconds = seconds_since(began, device);
            if (run == 0 || seconds < least[cost]) least[cost] = seconds;
        }
    /* On the clock of this host, which may own a share of a processor only. */
    const double params = (double)job->n_params, scale = times->messages / messages_take(io);
    out->apply = times->update / params;
    out->add = times->add / params;
    out->refresh = least[REFRESH] * scale / params / 2;
    out->copy = io.byte * scale;
    out->message = times->messages / ECHI_STEP_MESSAGES;
    out->eval = least[EVAL] * scale / c.n;
out:
    echi_buffer_destroy(c.state);
    echi_buffer_destroy(c.out);
    bench_close(&b);
    return status;
}
