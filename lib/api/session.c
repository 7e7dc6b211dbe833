/* SPDX-License-Identifier: Apache-2.0
 * Sync only: a custom trainer's arrays and arithmetic. The caller's thread is the lane of the worker's steps; a thread
 * of ours runs the node. They meet in a small mailbox.
 *
 * With a head the caller computes what is in front of it. In a step it hands over rows, which go to the node that trains the head, or,
 * where nothing is separated, to this node's own lane; it waits for their gradient, and goes on. So no head waits for a caller. */
#include "echi_run.h"
#include "echi_error.h"
#include "echi_report_keys.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DONE_MAX (2 * ECHI_LAYERS_MAX)
#define MEASURE_STEPS 3

struct ech_session {
    struct ech_config config;
    struct echi_job job;
    struct ech_param param[ECHI_LAYERS_MAX]; int n_params;   /* the caller's arrays; the layers of a head follow them in the job */
    struct ech_model *head;                  /* its layers, with places behind these arrays; NULL: there is none */
    float *head_weights;                     /* the caller's, may be NULL */
    struct echi_user_lane lane;
    struct echi_node_config node;
    struct ech_report report;
    struct ech_error error, unrecorded;
    float *first;                            /* rank 0: the initial weights, then the final ones */
    struct echi_thread thread;
    bool running;                            /* the thread was started */
    bool stays;                              /* a thread of the node is left behind */
    atomic_bool abandoned;                   /* the caller computes no more steps */
    /* the caller's thread */
    bool in_step, ready[ECHI_LAYERS_MAX];
    bool lends;                              /* some array's weights are read where they are, all through a step */
    bool reads;                              /* they are, now: `exec` is borrowed for that */
    bool exchanged;                          /* the head has answered in this step */
    bool over;                               /* nobody waits for this step any more */
    double loss; uint32_t correct;           /* of the step: the head's, the loss a sum */
    struct echi_task task;                   /* of the step in hand */
    uint32_t *index;
    uint32_t index_room;
    struct echi_slowness slowness;
    int (*measure)(void *user, const uint32_t *index, int n);
    void *measure_user;
    /* under the mutex */
    struct echi_mutex mutex;
    struct echi_cond changed;
    struct echi_wire *wire;
    struct echi_exec *exec;
    bool asked_measure, measured, has_task, ended, final_in;
    struct { bool in; double loss; uint32_t correct; } answer;   /* of the step in hand */
    int borrowed;                            /* how often the caller's thread uses `exec`, which stays until it has finished */
    struct echi_times times;
    ech_status measure_status;
    struct echi_task next_task;
    struct echi_done *done;                  /* [DONE_MAX], a ring */
    int done_first, done_count;
    ech_status status;
};

/* --------------------------------------------- called on the node's thread */

static void lane_measure(void *self) {
    struct ech_session *s = self;
    echi_mutex_lock(&s->mutex);
    s->asked_measure = true;
    echi_cond_broadcast(&s->changed);
    echi_mutex_unlock(&s->mutex);
}

static bool lane_measured(void *self, struct echi_times *out, ech_status *out_status) {
    struct ech_session *s = self;
    echi_mutex_lock(&s->mutex);
    const bool measured = s->measured;
    if (measured) {   /* before that the caller's thread is writing them */
        *out = s->times;
        *out_status = s->measure_status;
    }
    echi_mutex_unlock(&s->mutex);
    return measured;
}

static void lane_submit(void *self, const struct echi_task *task) {
    struct ech_session *s = self;
    echi_mutex_lock(&s->mutex);
    s->next_task = *task;
    s->has_task = true;
    echi_cond_broadcast(&s->changed);
    echi_mutex_unlock(&s->mutex);
}

static void lane_answer(void *self, double loss, uint32_t correct) {
    struct ech_session *s = self;
    echi_mutex_lock(&s->mutex);
    s->answer.in = true;
    s->answer.loss = loss;
    s->answer.correct = correct;
    echi_cond_broadcast(&s->changed);
    echi_mutex_unlock(&s->mutex);
}

static bool lane_take(void *self, struct echi_done *out) {
    struct ech_session *s = self;
    echi_mutex_lock(&s->mutex);
    const bool some = s->done_count > 0;
    if (some) {
        *out = s->done[s->done_first];
        s->done_first = (s->done_first + 1) % DONE_MAX;
        s->done_count--;
    }
    echi_mutex_unlock(&s->mutex);
    return some;
}

static void lane_final(void *self, const float *params) {
    struct ech_session *s = self;
    echi_mutex_lock(&s->mutex);
    memcpy(s->first, params, s->job.n_params * sizeof *params);
    s->final_in = true;
    echi_mutex_unlock(&s->mutex);
}

static void node_started(void *self, struct echi_wire *wire, struct echi_exec *exec) {
    struct ech_session *s = self;
    echi_mutex_lock(&s->mutex);
    s->wire = wire;
    s->exec = exec;
    echi_cond_broadcast(&s->changed);
    while (s->borrowed > 0) echi_cond_wait(&s->changed, &s->mutex, INT64_MAX);
    echi_mutex_unlock(&s->mutex);
}

static void *node_main(void *self) {
    struct ech_session *s = self;
    ech_status status = echi_node_run(&s->node, &s->report, &s->error);
    echi_mutex_lock(&s->mutex);
    s->ended = true;
    s->status = status;
    echi_cond_broadcast(&s->changed);
    echi_mutex_unlock(&s->mutex);
    return NULL;
}

/* ------------------------------------------------- the caller's thread */

static void copy_in(const struct ech_param *param, const float *from) {
    memcpy(param->value, from, param->count * sizeof *from);
}

/* The weights of a step, where the caller wants them. */
static void hand_weights(struct ech_session *s, const float *flat) {
    for (int p = 0; p < s->n_params; p++) {
        const float *from = flat + s->job.layer[p].at;
        if (s->param[p].lent) *s->param[p].lent = from;
        else copy_in(&s->param[p], from);
    }
}

/* Nothing is lent any more. */
static void call_in(struct ech_session *s) {
    for (int p = 0; p < s->n_params; p++)
        if (s->param[p].lent) *s->param[p].lent = s->param[p].value;
}

static void hand_final(struct ech_session *s) {
    for (int p = 0; p < s->n_params; p++) copy_in(&s->param[p], s->first + s->job.layer[p].at);
    if (s->head_weights) memcpy(s->head_weights, s->first + s->job.layer[s->n_params].at, s->head->n_params * sizeof(float));
    call_in(s);
}

/* Slots are read and written without the mutex, since the node's thread takes it in each round of its loop: a model takes tens of
 * milliseconds, in which that thread would serve nobody. NULL: the node has ended. */
static struct echi_exec *borrow(struct ech_session *s) {
    echi_mutex_lock(&s->mutex);
    struct echi_exec *exec = s->exec;
    s->borrowed += exec != NULL;
    echi_mutex_unlock(&s->mutex);
    return exec;
}

static void give_back(struct ech_session *s) {
    echi_mutex_lock(&s->mutex);
    s->borrowed--;
    echi_cond_broadcast(&s->changed);
    echi_mutex_unlock(&s->mutex);
}

static void end_reading(struct ech_session *s) {
    if (s->reads) give_back(s);
    s->reads = false;
}

/* Hands something to the node. The node may have ended meanwhile: then nobody takes it, and nobody needs to. */
static void hand_over(struct ech_session *s, const struct echi_done *d) {
    echi_mutex_lock(&s->mutex);
    if (s->wire && s->done_count < DONE_MAX) {
        s->done[(s->done_first + s->done_count++) % DONE_MAX] = *d;
        echi_wire_wake(s->wire);
    }
    echi_mutex_unlock(&s->mutex);
}

static ech_status failure(const struct ech_session *s, struct ech_error *err) {
    if (err) *err = s->error;
    return s->status;
}

/* Seconds of the caller's steps at a few sizes, equal for all when there is nothing to call; and what messages cost this machine. */
static ech_status run_measure(struct ech_session *s, struct ech_error *err) {
    static const uint32_t sizes[] = {8, 16, 32, 64};
    memset(&s->times, 0, sizeof s->times);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint32_t n = sizes[i];
        s->times.n[i] = n;
        s->times.trunk[i] = n * 1e-5;
        s->times.count++;
        if (!s->measure) continue;
        for (uint32_t k = 0; k < n; k++) s->index[k] = k % s->job.train_samples;
        for (int step = 0; step <= MEASURE_STEPS; step++) {
            const int64_t began = echi_now();
            echi_slowness_begin(&s->slowness, s->config.slow);
            if (s->measure(s->measure_user, s->index, (int)n) != 0)
                return echi_fail(err, ECH_E_ABORTED, "session.open", "the measure callback asked to stop");
            echi_slowness_pay(&s->slowness);
            const double seconds = ((double)(echi_now() - began) + (double)s->slowness.debt) * 1e-9;
            /* The first step warms up; of the others the fastest is what the machine can do. */
            if (step == 1 || (step > 1 && seconds < s->times.trunk[i])) s->times.trunk[i] = seconds > 1e-9 ? seconds : 1e-9;
        }
    }
    struct echi_cost_io io = {0};
    if (s->config.world == 1) return ECH_OK;   /* it sends nothing */
    ECHI_TRY(echi_node_io(&s->config, &s->job, &io, err));
    echi_measure_messages(&s->job, io, &s->times);
    return ECH_OK;
}

/* The model's layers get places behind the caller's arrays, in a copy of it. */
static ech_status fill_head(struct ech_session *s, const struct ech_head *head, struct ech_error *err) {
    struct echi_job *job = &s->job;
    const struct ech_model *model = head->model;
    const size_t at = job->n_params;
    size_t all;
    if (!model) return echi_fail(err, ECH_E_ARGUMENT, "session.open", "the head has no model");
    ECHI_TRY(ech_model_finish(model, err));
    const struct echi_layer *last = &model->layers[model->n_layers - 1];
    ECHI_TRY(echi_model_check(model, model->input, last->out.c, err));
    if (model->n_params == 0 || last->out.c < 2)
        return echi_fail(err, ECH_E_SHAPE, "session.open", "a head with %zu parameters and %d classes has nothing to learn",
                         model->n_params, last->out.c);
    s->head = malloc(sizeof *s->head);
    if (!s->head) return echi_fail_memory(err, "session.open", "the head");
    *s->head = *model;
    for (int i = 0; i < model->n_layers; i++) {
        s->head->layers[i].weight_at += at;
        s->head->layers[i].bias_at += at;
        s->head->layers[i].running_at += at;
    }
    const int most = ECHI_LAYERS_MAX - s->n_params, layers = echi_model_param_layers(s->head, job->layer + s->n_params, most);
    if (layers > most)
        return echi_fail(err, ECH_E_ARGUMENT, "session.open",
                         "%d arrays and %d layers of the head with parameters are more than %d together", s->n_params, layers,
                         ECHI_LAYERS_MAX);
    if (__builtin_add_overflow(at, model->n_params, &all) || all > SIZE_MAX / sizeof(float))
        return echi_fail(err, ECH_E_ARGUMENT, "session.open", "the arrays and the head are larger than memory can be");
    job->model = s->head;
    job->classes = last->out.c;
    job->n_layers += layers;
    job->n_params = all;
    job->border[s->n_params].width = echi_shape_size(model->input);
    job->border[job->n_layers].layer = model->n_layers;
    job->kernels = echi_job_kernels(&s->config);
    job->draws = echi_model_draws(model);
    job->measure = s->config.measure;
    job->waits = s->config.world > 1;
    s->head_weights = head->weights;
    return ECH_OK;
}

static ech_status fill(struct ech_session *s, const struct ech_param *params, int n_params, uint32_t train_samples,
                       const struct ech_head *head, struct ech_error *err) {
    struct echi_job *job = &s->job;
    job->session = true;
    job->n_layers = job->cut_params = job->first_fc = s->n_params = n_params;
    job->train_samples = train_samples;
    job->seed = s->config.seed;
    job->shuffle = !s->config.no_shuffle;
    for (int p = 0; p < n_params; p++) {
        if (!params[p].name || !params[p].value || !params[p].grad || params[p].count == 0)
            return echi_fail(err, ECH_E_ARGUMENT, "session.open", "array %d needs a name, a value, a grad and a count above 0", p);
        s->param[p] = params[p];
        s->lends = s->lends || params[p].lent;
        job->layer[p].layer = -1;
        job->layer[p].at = job->n_params;
        job->layer[p].count = params[p].count;
        snprintf(job->layer[p].name, sizeof job->layer[p].name, "%s", params[p].name);
        if (__builtin_add_overflow(job->n_params, params[p].count, &job->n_params) || job->n_params > SIZE_MAX / sizeof(float))
            return echi_fail(err, ECH_E_ARGUMENT, "session.open", "the arrays up to '%s' are larger than memory can be", params[p].name);
    }
    if (head) ECHI_TRY(fill_head(s, head, err));
    s->first = malloc(job->n_params * sizeof *s->first);
    s->done = calloc(DONE_MAX, sizeof *s->done);
    s->index_room = 65536;
    s->index = calloc(s->index_room, sizeof *s->index);
    if (!s->first || !s->done || !s->index) return echi_fail_memory(err, "session.open", "the session");
    for (int p = 0; p < n_params; p++) memcpy(s->first + job->layer[p].at, params[p].value, params[p].count * sizeof(float));
    if (head && head->first) memcpy(s->first + job->layer[n_params].at, head->first, s->head->n_params * sizeof(float));
    else if (head) echi_model_init(s->head, s->config.seed, s->first);
    call_in(s);
    return ECH_OK;
}

static void discard(struct ech_session *s) {
    if (s->stays) return;   /* a thread of the node may use it for ever */
    echi_cond_destroy(&s->changed);
    echi_mutex_destroy(&s->mutex);
    free(s->first);
    free(s->done);
    free(s->index);
    free(s->head);
    free(s);
}

/* The node asks for the step times once, when all have joined; wait for that, or for its end. */
static ech_status meet(struct ech_session *s, struct ech_error *err) {
    echi_mutex_lock(&s->mutex);
    while (!s->asked_measure && !s->ended) echi_cond_wait(&s->changed, &s->mutex, INT64_MAX);
    const bool ended = s->ended;
    echi_mutex_unlock(&s->mutex);
    if (ended) return failure(s, err);
    ech_status status = run_measure(s, err);
    echi_mutex_lock(&s->mutex);
    s->measured = true;
    s->measure_status = status;
    if (s->wire) echi_wire_wake(s->wire);
    while (!s->exec && !s->ended) echi_cond_wait(&s->changed, &s->mutex, INT64_MAX);
    if (status == ECH_OK && s->ended) status = failure(s, err);
    echi_mutex_unlock(&s->mutex);
    return status;
}

/* A head is cut off where the trunk ends, and nowhere else. */
static ech_status separate_fits(const struct ech_config *config, const struct ech_head *head, struct ech_error *err) {
    if (!head && config->separate > 0)
        return echi_fail(err, ECH_E_ARGUMENT, "session.open",
                         "option separate is %d, but this session has no head to separate: open it with ech_session_open_with_head, "
                         "or leave separate out", config->separate);
    if (config->separate <= 1 && !config->separate_from[0]) return ECH_OK;
    return echi_fail(err, ECH_E_ARGUMENT, "session.open",
                     "option separate names a layer, but a session's head begins behind the caller's arrays: give on, auto or off");
}

ech_status ech_session_open(const struct ech_param *params, int n_params, uint32_t train_samples, const struct ech_config *config,
                            int (*measure)(void *user, const uint32_t *index, int n), void *user, ech_session **out_session,
                            struct ech_error *err) {
    return ech_session_open_with_head(params, n_params, NULL, train_samples, config, measure, user, out_session, err);
}

ech_status ech_session_open_with_head(const struct ech_param *params, int n_params, const struct ech_head *head, uint32_t train_samples,
                                      const struct ech_config *config, int (*measure)(void *user, const uint32_t *index, int n),
                                      void *user, ech_session **out_session, struct ech_error *err) {
    if (!params || n_params < 1 || n_params > ECHI_LAYERS_MAX || train_samples < 1 || !config || !out_session)
        return echi_fail(err, ECH_E_ARGUMENT, "session.open", "ech_session_open needs 1 to %d arrays, at least one sample and a config",
                         ECHI_LAYERS_MAX);
    ECHI_TRY(ech_config_check(config, err));
    ECHI_TRY(separate_fits(config, head, err));
    if (config->target_accuracy > 0 || config->init[0] || config->save[0] || config->checkpoint[0] ||
        config->profile_out[0] || config->efficiency[0])
        return echi_fail(err, ECH_E_ARGUMENT, "session.open",
                         "in a session evaluations and files are the caller's: leave target-accuracy, init, save, checkpoint, profile-out "
                         "and efficiency alone");
    if (config->deterministic)
        return echi_fail(err, ECH_E_ARGUMENT, "session.open",
                         "deterministic orders the arithmetic of Echelon's own layers, and in a session it is the caller's: leave it out");
    if (config->sync_norm)
        return echi_fail(err, ECH_E_ARGUMENT, "session.open",
                         "sync-norm exchanges statistics of Echelon's own layers, and in a session the layers are the caller's: "
                         "leave it out");
    if (strcmp(config->augment, "crop-flip") == 0)
        return echi_fail(err, ECH_E_ARGUMENT, "session.open",
                         "option augment is crop-flip, but in a session samples are read by the program: augment them there (ech_step says "
                         "the epoch), and leave the option out");
    struct ech_session *s = calloc(1, sizeof *s);
    if (!s) return echi_fail_memory(err, "session.open", "the session");
    ech_status status = echi_mutex_init(&s->mutex, err);
    if (status != ECH_OK) {
        free(s);
        return status;
    }
    status = echi_cond_init(&s->changed, err);
    if (status != ECH_OK) {
        echi_mutex_destroy(&s->mutex);
        free(s);
        return status;
    }
    (void)echi_config_whole(config, &s->config, NULL);   /* checked above */
    s->config.eval_every = 0;
    s->measure = measure;
    s->measure_user = user;
    ECHI_TRY_GOTO(fill(s, params, n_params, train_samples, head, err), failed);
    s->lane = (struct echi_user_lane){s, lane_measure, lane_measured, lane_submit, lane_take, lane_answer, lane_final};
    s->node = (struct echi_node_config){.config = &s->config, .job = &s->job, .user = &s->lane, .abandoned = &s->abandoned,
                                        .params = s->first, .unrecorded = &s->unrecorded, .stays = &s->stays,
                                        .started = node_started, .started_self = s};
    echi_report_clear(&s->report);
    s->report.world = config->world;
    s->report.seed = config->seed;
    snprintf(s->report.sync, sizeof s->report.sync, "%s", config->sync);
    snprintf(s->report.model, sizeof s->report.model, "session");
    snprintf(s->report.version, sizeof s->report.version, "%s", ECH_VERSION);
    ECHI_TRY_GOTO(echi_thread_start(&s->thread, "ech-node", node_main, s, err), failed);
    s->running = true;
    status = meet(s, err);
    if (status != ECH_OK) goto failed;
    *out_session = s;
    return ECH_OK;
failed:
    if (s->running) {
        atomic_store(&s->abandoned, true);
        echi_thread_join(&s->thread);
    }
    discard(s);
    return status;
}

ech_status ech_step_begin(ech_session *s, struct ech_step *out, struct ech_error *err) {
    if (!s || !out) return echi_fail(err, ECH_E_ARGUMENT, "step.begin", "ech_step_begin needs a session and a place for the step");
    if (s->in_step) return echi_fail(err, ECH_E_ARGUMENT, "step.begin", "the step before has not ended: call ech_step_end first");
    echi_mutex_lock(&s->mutex);
    while (!(s->has_task && s->exec) && !s->ended) echi_cond_wait(&s->changed, &s->mutex, INT64_MAX);
    const bool task = !s->ended;
    struct echi_exec *exec = s->exec;
    ech_status status = ECH_OK;
    if (task) {
        s->task = s->next_task;
        s->has_task = false;
        s->borrowed++;
    } else if (s->final_in) {
        hand_final(s);
        status = echi_fail(err, ECH_E_END, "step.begin", "the run %s; the weights are final",
                           s->status == ECH_E_ABORTED ? "was stopped" : "is over");
    } else {
        call_in(s);
        status = failure(s, err);
    }
    echi_mutex_unlock(&s->mutex);
    if (!task) return status;
    if (s->task.lease.n > s->index_room) {
        give_back(s);
        return echi_fail(err, ECH_E_INTERNAL, "step.begin", "a step of %u samples is larger than a session takes", s->task.lease.n);
    }
    hand_weights(s, echi_exec_slot(exec, s->task.weights, NULL));
    s->reads = s->lends;
    if (!s->reads) give_back(s);
    echi_job_samples(&s->job, &s->task.lease, s->index);
    memset(s->ready, 0, sizeof s->ready);
    s->in_step = true;
    s->exchanged = s->over = false;
    echi_slowness_begin(&s->slowness, s->config.slow);
    *out = (struct ech_step){.n = (int)s->task.lease.n, .index = s->index, .epoch = s->task.lease.epoch};
    return ECH_OK;
}

/* Of the step whose rows were handed over, under the mutex. `over`: another step has come in its place, since its owner was lost. */
static bool is_answered(const struct ech_session *s) {
    return s->answer.in && (s->task.kind == ECHI_TASK_STEP || (s->has_task && s->next_task.kind == ECHI_TASK_BACKWARD));
}
static bool is_over(const struct ech_session *s) { return s->has_task && s->next_task.kind != ECHI_TASK_BACKWARD; }

/* What was lent is called in meanwhile: the node's end waits for whoever reads. *out_exec: where the answer is, borrowed; NULL: there is
 * none. */
static ech_status await_answer(struct ech_session *s, struct echi_exec **out_exec, struct ech_error *err) {
    ech_status status = ECH_OK;
    *out_exec = NULL;
    end_reading(s);
    echi_mutex_lock(&s->mutex);
    while (!s->ended && !(s->exec && (is_answered(s) || is_over(s)))) echi_cond_wait(&s->changed, &s->mutex, INT64_MAX);
    if (s->ended && !s->final_in) {
        s->in_step = false;
        call_in(s);
        status = failure(s, err);
    } else if (s->ended || is_over(s)) {
        s->over = true;
        call_in(s);
    } else {
        *out_exec = s->exec;
        s->borrowed++;
        s->loss = s->answer.loss;
        s->correct = s->answer.correct;
        if (s->task.kind != ECHI_TASK_STEP) {
            s->task = s->next_task;
            s->has_task = false;
        }
    }
    echi_mutex_unlock(&s->mutex);
    return status;
}

static ech_status check_rows(const struct ech_session *s, size_t count, const uint16_t *labels, struct ech_error *err) {
    const struct echi_shape in = s->head->input;
    const uint32_t n = s->task.lease.n;
    if (count != n * echi_shape_size(in))
        return echi_fail(err, ECH_E_SHAPE, "head.exchange",
                         "%zu floats were given, but the rows of %u samples, %d x %d x %d each, have %zu", count, n, in.c, in.h, in.w,
                         n * echi_shape_size(in));
    for (uint32_t i = 0; i < n; i++)
        if (labels[i] >= s->job.classes)
            return echi_fail(err, ECH_E_ARGUMENT, "head.exchange",
                             "the label of row %u is %u, but the head has %d classes: labels go from 0 to %d", i, labels[i],
                             s->job.classes, s->job.classes - 1);
    return ECH_OK;
}

ech_status ech_head_exchange(ech_session *s, const float *rows, size_t count, const uint16_t *labels, float *out_row_grads,
                             struct ech_head_answer *out, struct ech_error *err) {
    if (!s || !rows || !labels || !out_row_grads || !out)
        return echi_fail(err, ECH_E_ARGUMENT, "head.exchange",
                         "ech_head_exchange needs a session, rows, labels, and places for the gradient of the rows and the answer");
    if (!s->head)
        return echi_fail(err, ECH_E_ARGUMENT, "head.exchange", "this session has no head: open it with ech_session_open_with_head");
    if (!s->in_step) return echi_fail(err, ECH_E_ARGUMENT, "head.exchange", "no step is in hand: call ech_step_begin first");
    if (s->exchanged) return echi_fail(err, ECH_E_ARGUMENT, "head.exchange", "the head has had the rows of this step already");
    ECHI_TRY(check_rows(s, count, labels, err));
    echi_slowness_pay(&s->slowness);
    struct echi_exec *exec = borrow(s);
    if (exec) {
        echi_exec_give_rows(exec, &s->task, rows, labels);
        give_back(s);
    }
    struct echi_done d;
    memset(&d, 0, sizeof d);
    d.rows = s->task.kind == ECHI_TASK_STEP;
    d.task = s->task;
    s->answer.in = false;   /* nobody answers before this is handed over */
    hand_over(s, &d);
    const int n = (int)s->task.lease.n;
    ECHI_TRY(await_answer(s, &exec, err));
    s->exchanged = true;
    *out = (struct ech_head_answer){.divisor = n, .over = s->over};
    if (s->over) {
        memset(out_row_grads, 0, count * sizeof *out_row_grads);
        return ECH_OK;
    }
    echi_exec_take_rows(exec, &s->task, out_row_grads);
    s->reads = s->lends;
    if (!s->reads) give_back(s);
    out->loss = s->loss / n;
    out->correct = (int)s->correct;
    return ECH_OK;
}

ech_status ech_gradient_ready(ech_session *s, int param, struct ech_error *err) {
    if (!s || !s->in_step) return echi_fail(err, ECH_E_ARGUMENT, "gradient.ready", "no step is in hand: call ech_step_begin first");
    if (param < 0 || param >= s->n_params)
        return echi_fail(err, ECH_E_ARGUMENT, "gradient.ready", "array %d is none of 0..%d", param, s->n_params - 1);
    if (s->head && !s->exchanged)
        return echi_fail(err, ECH_E_ARGUMENT, "gradient.ready", "the head has not had the rows of this step: call ech_head_exchange first");
    if (s->ready[param])
        return echi_fail(err, ECH_E_ARGUMENT, "gradient.ready", "the gradient of '%s' was already given in this step",
                         s->job.layer[param].name);
    s->ready[param] = true;
    if (s->over) return ECH_OK;
    /* Mean over n to sum over n divided by B (PROTOCOL.md, "Weight of a sample"). */
    const float factor = (float)((double)s->task.lease.n / s->task.divisor);
    const float *grad = s->param[param].grad;
    struct echi_exec *exec = borrow(s);
    if (exec) {
        echi_exec_give(exec, &s->task, param, grad, factor);
        size_t bytes;
        const ech_status status = s->task.coded.kind ? echi_exec_push(exec, &s->task, param, &bytes, err) : ECH_OK;
        give_back(s);
        if (status != ECH_OK) return status;
    }
    struct echi_done d;
    memset(&d, 0, sizeof d);
    d.gradient = true;
    d.layer = param;
    d.task = s->task;
    hand_over(s, &d);
    return ECH_OK;
}

ech_status ech_step_end(ech_session *s, double loss, struct ech_error *err) {
    if (!s || !s->in_step) return echi_fail(err, ECH_E_ARGUMENT, "step.end", "no step is in hand: call ech_step_begin first");
    if (s->head && !s->exchanged)
        return echi_fail(err, ECH_E_ARGUMENT, "step.end", "the head has not had the rows of this step: call ech_head_exchange first");
    for (int p = 0; p < s->n_params; p++)
        if (!s->ready[p])
            return echi_fail(err, ECH_E_ARGUMENT, "step.end",
                             "the gradient of '%s' was not given: call ech_gradient_ready for each array", s->job.layer[p].name);
    echi_slowness_pay(&s->slowness);
    s->in_step = false;
    if (s->over) return ECH_OK;
    struct echi_done d;
    memset(&d, 0, sizeof d);
    d.task = s->task;
    d.result.loss[0] = s->head ? s->loss : loss * s->task.lease.n;
    d.result.correct[0] = s->head ? s->correct : 0;
    hand_over(s, &d);
    end_reading(s);
    if (isfinite(d.result.loss[0])) return ECH_OK;
    return echi_fail(err, ECH_E_DIVERGED, "step.end",
                     "the loss is not a number any more: lower the learning rate, or look for bad samples");
}

ech_status ech_session_close(ech_session *s, struct ech_report *out_report, struct ech_error *err) {
    if (!s) return ECH_OK;
    end_reading(s);
    call_in(s);
    atomic_store(&s->abandoned, true);   /* means something only while the run is not over */
    echi_thread_join(&s->thread);
    const struct ech_error *why = s->status == ECH_OK ? &s->unrecorded : &s->error;
    const ech_status status = s->status == ECH_OK ? s->unrecorded.code : s->status;
    if (status != ECH_OK && err) *err = *why;
    if (out_report) *out_report = s->report;
    discard(s);
    return status;
}
