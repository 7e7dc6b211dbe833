/* SPDX-License-Identifier: Apache-2.0
 * What is run: model and data as a job, ranges of parameters under a plan, and the samples of a lease. */
#include "echi_job.h"
#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_random.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Is there something for sync_norm to exchange, and nothing that it would leave out? */
static ech_status check_norms(const struct ech_config *config, const struct echi_job *job, struct ech_error *err) {
    if (!config->sync_norm) return ECH_OK;
    if (!echi_job_norms_behind(job, 0))
        return echi_fail(err, ECH_E_ARGUMENT, "run.setup", "option sync-norm is on, but model %s has no batch-norm: leave it out",
                         job->model->name);
    if (config->separate > 0 && echi_job_norms_behind(job, job->cut_params))
        return echi_fail(err, ECH_E_ARGUMENT, "run.setup", "option sync-norm is on, but the layers that separate separates, from %s on, "
                         "have a batch-norm among them, which it does not reach: give separate off",
                         job->layer[job->cut_params].name);
    return ECH_OK;
}

enum echi_kernels echi_job_kernels(const struct ech_config *config) {
    static const struct { const char *precision; enum echi_kernels by_winograd[3]; } known[] = {   /* 4, 2, off */
        {"fp32", {ECHI_KERNELS_FAST, ECHI_KERNELS_CLOSE, ECHI_KERNELS_PLAIN}},
        {"tf32", {ECHI_KERNELS_TF32_FAST, ECHI_KERNELS_TF32_CLOSE, ECHI_KERNELS_TF32_PLAIN}},
        {"bf16", {ECHI_KERNELS_BF16_FAST, ECHI_KERNELS_BF16_CLOSE, ECHI_KERNELS_BF16_PLAIN}}};
    enum echi_kernels kernels = ECHI_KERNELS_FAST;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(config->precision, known[i].precision) == 0) kernels = known[i].by_winograd[2 - config->winograd / 2];
    return config->deterministic ? ECHI_KERNELS_FIXED : kernels;
}

bool echi_model_draws(const struct ech_model *model) {
    for (int i = 0; i < model->n_layers; i++)
        if (model->layers[i].op == ECHI_OP_DROPOUT) return true;
    return false;
}

ech_status echi_job_make(const struct ech_model *model, const struct ech_data *data, const struct ech_config *config, struct echi_job *job,
                         struct ech_error *err) {
    memset(job, 0, sizeof *job);
    ECHI_TRY(echi_model_check(model, data->shape, data->classes, err));
    job->model = model;
    job->data = data;
    job->classes = data->classes;
    job->n_layers = echi_model_param_layers(model, job->layer, ECHI_LAYERS_MAX);
    job->n_params = model->n_params;
    ECHI_TRY(echi_job_find_cuts(config, job, err));
    job->train_samples = data->n_train;
    job->test_samples = data->n_test;
    job->seed = config->seed;
    job->shuffle = !config->no_shuffle;
    job->measure = config->measure;
    job->waits = config->world > 1;
    job->draws = echi_model_draws(model);
    if (strcmp(config->augment, "crop-flip") == 0 && data->augmenting == ECHI_AUGMENT_CANNOT)
        return echi_fail(err, ECH_E_ARGUMENT, "run.setup",
                         "option augment is crop-flip, but the samples of %s come from a function of the program's: augment them there, "
                         "and leave the option out", data->name);
    job->augment = strcmp(config->augment, "crop-flip") == 0 ||
                   (strcmp(config->augment, "auto") == 0 && data->augmenting == ECHI_AUGMENT_USUAL);
    ECHI_TRY(check_norms(config, job, err));
    job->kernels = echi_job_kernels(config);
    return ECH_OK;
}

void echi_job_setup(const struct echi_job *job, const struct echi_plan *plan, int rank, struct echi_setup *out) {
    if (plan != &out->plan) out->plan = *plan;
    out->norms = 0;
    memset(out->norm, 0, sizeof out->norm);
    out->rank = rank;
    out->n_layers = job->n_layers;
    out->cut_width = (uint32_t)echi_job_width(job, plan);
    out->cut = plan->cut ? plan->cut : job->n_layers;
    out->whole_steps = !job->model || job->session;
    for (int i = 0; i < out->cut && plan->sync_norm; i++)
        if (job->layer[i].running > 0) out->norm[out->norms++] = (uint8_t)i;
}

void echi_job_layers(const struct echi_job *job, struct echi_layers *out) {
    memset(out, 0, sizeof *out);
    out->count = (uint16_t)job->n_layers;
    out->cut = (uint16_t)job->cut_params;
    for (int i = 0; i < job->n_layers; i++) {
        const bool behind_arrays = i > 0 && job->layer[i - 1].layer < 0;   /* which are no convolutions */
        out->params[i] = job->layer[i].count;
        out->norm[i] = job->layer[i].running > 0;
        out->joined[i] = i > 0 && out->norm[i] && !behind_arrays;
        out->width[i] = (uint32_t)job->border[i].width;
    }
}

ech_status echi_job_takes(const struct echi_job *job, const struct echi_plan *plan, struct ech_error *err) {
    struct echi_layers layers;
    struct echi_part_fault fault;
    char text[200];
    if (plan->cut && !echi_job_may_cut(job, plan->cut))
        return echi_fail(err, ECH_E_MISMATCH, "run.setup",
                         "the plan separates the layers with parameters from number %d on, and this model cannot be cut there", plan->cut);
    if (job->session && plan->micro_batches)
        return echi_fail(err, ECH_E_ARGUMENT, "run.plan",
                         "the plan cuts steps in %d micro-batches, but in a session the caller computes whole ones: leave out the line "
                         "'micro_batches'", plan->micro_batches);
    if (job->session && plan->flights > 1)
        return echi_fail(err, ECH_E_MISMATCH, "run.setup",
                         "the plan has %d steps of a worker in flight, but a session has one, which is in the caller's hands: give "
                         "'flights 1'", plan->flights);
    echi_job_layers(job, &layers);
    if (echi_parts_fit(&plan->parts, &layers, plan->cut, &fault)) return ECH_OK;
    echi_parts_sentence(&plan->parts, &fault, text, sizeof text);
    return echi_fail(err, ECH_E_MISMATCH, "run.setup", "the plan's parts are not those of this model: %s", text);
}

bool echi_job_knows(const struct echi_job *job, const struct echi_plan *plan, const struct echi_msg *m) {
    return (!echi_kind_of_layer(m->kind) || m->layer < job->n_layers) && (!echi_kind_of_part(m->kind) || m->part < plan->parts.count);
}

bool echi_job_norms_behind(const struct echi_job *job, int cut) {
    for (int i = cut; i < job->n_layers; i++)
        if (job->layer[i].running > 0) return true;
    return false;
}

size_t echi_job_norm_bytes(const struct echi_job *job) {
    size_t most = 0;
    for (int i = 0; i < job->n_layers; i++)
        if (job->layer[i].running > most) most = job->layer[i].running;
    return most * sizeof(echi_real);
}

void echi_job_range(const struct echi_job *job, const struct echi_plan *plan, bool head, size_t *at, size_t *count) {
    const size_t cut = plan->cut ? job->layer[plan->cut].at : job->n_params;
    *at = head ? cut : 0;
    *count = head ? job->n_params - cut : cut;
}

int echi_job_ranges(const struct echi_job *job, const struct echi_plan *plan, int rank, bool head, struct echi_range out[ECHI_PARTS_MAX]) {
    int count = 0;
    echi_job_range(job, plan, head, &out[0].at, &out[0].count);
    if (head || plan->shards == 0 || echi_plan_shard_owned(plan, rank) < 0) return 1;
    const size_t cut = out[0].count;
    for (int i = 0; i < plan->parts.count && plan->parts.part[i].at < cut; i++) {
        const struct echi_part *p = &plan->parts.part[i];
        if (!echi_plan_owns_part(plan, rank, i)) continue;
        if (count > 0 && out[count - 1].at + out[count - 1].count == p->at) out[count - 1].count += p->count;
        else out[count++] = (struct echi_range){p->at, p->count};
    }
    return count;
}

size_t echi_job_kept(const struct echi_job *job, const struct echi_plan *plan, int rank, bool head) {
    struct echi_range range[ECHI_PARTS_MAX];
    const int ranges = echi_job_ranges(job, plan, rank, head, range);
    size_t count = 0;
    for (int i = 0; i < ranges; i++) count += range[i].count;
    return count;
}

struct echi_slot echi_job_params_slot(const struct echi_plan *plan, const struct echi_msg *m) {
    return (struct echi_slot){ECHI_SLOT_COORD_PARAMS, m->from_role == ECHI_ROLE_WORKER && echi_plan_evaluates_own(plan)};
}

void echi_job_take_params(const struct echi_job *job, const struct echi_plan *plan, int from, const struct echi_msg *m, const void *payload,
                          void *slot) {
    const bool head = m->from_role == ECHI_ROLE_HEAD;
    struct echi_range range[ECHI_PARTS_MAX];
    struct echi_memory memory;
    size_t at, len, first, count;
    echi_job_extent(job, plan, ECHI_KIND_PARAMS, m, head, &at, &len);
    if ((uint8_t *)slot + at == payload) return;   /* it came there */
    if (plan->shards == 0 || m->from_role != ECHI_ROLE_OWNER || m->flag != ECHI_PARAMS_MOMENTUM) {
        memcpy((uint8_t *)slot + at, payload, len);
        return;
    }
    const echi_real *from_at = (const echi_real *)payload;   /* the slot's float number at / sizeof */
    echi_real *to = slot;
    const size_t base = at / sizeof(echi_real);
    echi_job_memory(job, plan, echi_plan_owner_optimizer(plan), head, &memory);
    echi_job_range(job, plan, head, &first, &count);
    const int ranges = echi_job_ranges(job, plan, from, head, range);
    memcpy((uint8_t *)slot + at, payload, memory.first * sizeof(echi_real) - at);   /* the same in all shards */
    for (int i = 0; i < ranges; i++) {
        const size_t one = memory.first + range[i].at - first, two = memory.second + range[i].at - first;
        memcpy(to + one, from_at + (one - base), range[i].count * sizeof(echi_real));
        if (memory.second != memory.first) memcpy(to + two, from_at + (two - base), range[i].count * sizeof(echi_real));
    }
}

void echi_job_memory(const struct echi_job *job, const struct echi_plan *plan, int optimizer, bool head, struct echi_memory *out) {
    const bool adam = echi_optimizer_adam(optimizer);
    const size_t weights = adam ? sizeof(struct echi_adam_weights) : 0, moments = adam ? 2 : 1;
    size_t at, count;
    echi_job_range(job, plan, head, &at, &count);
    out->at = moments * at * sizeof(echi_real) + (head ? weights : 0);
    out->bytes = moments * count * sizeof(echi_real) + weights;
    out->first = (out->at + weights) / sizeof(echi_real);
    out->second = out->first + (adam ? count : 0);
}

size_t echi_job_memory_bytes(const struct echi_job *job, int optimizer) {
    if (!echi_optimizer_adam(optimizer)) return job->n_params * sizeof(echi_real);
    return 2 * (job->n_params * sizeof(echi_real) + sizeof(struct echi_adam_weights));   /* of trunk and head */
}

/* The sample at a place of an epoch. */
static uint32_t sample(const struct echi_job *job, uint32_t epoch, uint32_t at) {
    return job->shuffle ? echi_permute(job->seed, epoch, job->train_samples, at) : at;
}

void echi_job_samples(const struct echi_job *job, const struct echi_lease *lease, uint32_t *out_index) {
    for (uint32_t i = 0; i < lease->n; i++) out_index[i] = sample(job, lease->epoch, lease->start + i);
}

void echi_job_rows(const struct echi_job *job, uint32_t epoch, uint32_t start, uint32_t n, struct echi_row *out_rows) {
    for (uint32_t i = 0; job->draws && i < n; i++) out_rows[i] = (struct echi_row){epoch, sample(job, epoch, start + i)};
}

void echi_job_words(const struct echi_job *job, char model[ECHI_JOB_WORD], char data[ECHI_JOB_WORD]) {
    char hash[65] = "";
    if (job->model) echi_model_hash(job->model, hash);
    if (job->model && !job->session) snprintf(model, ECHI_JOB_WORD, "%s", hash);
    else snprintf(model, ECHI_JOB_WORD, "%zu floats in %d arrays%s%.16s", job->n_params, job->n_layers, job->model ? ", head " : "", hash);
    if (job->data) snprintf(data, ECHI_JOB_WORD, "%s", job->data->hash);
    else snprintf(data, ECHI_JOB_WORD, "%u samples", job->train_samples);
}

void echi_job_order(const struct echi_job *job, char out[ECHI_JOB_WORD]) {
    if (job->shuffle) snprintf(out, ECHI_JOB_WORD, "seed %" PRIu64, job->seed);
    else if (job->draws) snprintf(out, ECHI_JOB_WORD, "order of the file, seed %" PRIu64 " for dropout", job->seed);
    else snprintf(out, ECHI_JOB_WORD, "order of the file");
}

void echi_job_augment(const struct echi_job *job, char out[ECHI_JOB_WORD]) {
    if (job->augment) snprintf(out, ECHI_JOB_WORD, "crop-flip, seed %" PRIu64, job->seed);
    else snprintf(out, ECHI_JOB_WORD, "off");
}

bool echi_job_coded(const struct echi_plan *plan, int kind) {
    return plan->codec != ECHI_CODEC_DENSE && (kind == ECHI_KIND_PUSH || kind == ECHI_KIND_WEIGHTS || kind == ECHI_KIND_STATE);
}

size_t echi_job_length(const struct echi_plan *plan, int kind, const uint8_t *bytes, size_t most) {
    if (!echi_job_coded(plan, kind)) return most;
    return echi_coded_length(bytes, most, (most - echi_coded_most(0)) / sizeof(echi_real));
}

bool echi_job_fits(const struct echi_plan *plan, int kind, const uint8_t *bytes, size_t len, size_t most) {
    if (!echi_job_coded(plan, kind)) return len == most;
    return echi_coded_fits(bytes, len, (most - echi_coded_most(0)) / sizeof(echi_real));
}

void echi_labels_put(void *at, const uint16_t *labels, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) echi_store16((uint8_t *)at + i * ECHI_LABEL_BYTES, labels[i]);
}

void echi_labels_get(const void *at, uint16_t *out_labels, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) out_labels[i] = echi_load16((const uint8_t *)at + i * ECHI_LABEL_BYTES);
}

void echi_job_extent(const struct echi_job *job, const struct echi_plan *plan, int kind, const struct echi_msg *m, bool head, size_t *at,
                     size_t *len) {
    const size_t row = echi_job_row_bytes(job, plan);
    size_t first = 0, count = 0;
    switch (kind) {
    case ECHI_KIND_RING_WEIGHTS:
    case ECHI_KIND_WEIGHTS:
        if (echi_job_coded(plan, kind)) echi_job_range(job, plan, false, &first, &count);
        else first = plan->parts.part[m->part].at, count = plan->parts.part[m->part].count;
        break;
    case ECHI_KIND_RING_SUM:
    case ECHI_KIND_PUSH: {
        const struct echi_part *p = &plan->parts.part[m->part];
        if (plan->codec != ECHI_CODEC_DENSE) {   /* one part's message behind the other's, each with the room of its longest */
            *at = p->at * sizeof(echi_real) + m->part * echi_coded_most(0);
            *len = echi_coded_most(p->count);
            return;
        }
        const size_t number = plan->deterministic ? sizeof(int64_t) : sizeof(echi_real);
        *at = p->at * number;
        *len = p->count * number;
        return;
    }
    case ECHI_KIND_NORM:
    case ECHI_KIND_NORM_ALL:   /* as many as it has running averages */
        *at = 0;
        *len = job->layer[m->layer].running * sizeof(echi_real);
        return;
    case ECHI_KIND_ACT:
        *at = 0;
        *len = m->lease.n * (row + ECHI_LABEL_BYTES);
        return;
    case ECHI_KIND_ACT_GRAD:
        *at = 0;
        *len = m->lease.n * row;
        return;
    case ECHI_KIND_HEAD_COPY:
    case ECHI_KIND_PARAMS:
        if (m->flag == ECHI_PARAMS_MOMENTUM) {
            struct echi_memory memory;
            echi_job_memory(job, plan, echi_plan_owner_optimizer(plan), head, &memory);
            *at = memory.at;
            *len = memory.bytes;
            return;
        }
        if (m->flag == ECHI_PARAMS_FINAL) count = job->n_params;
        else if (echi_msg_of_shard(m, plan)) first = plan->parts.part[m->part].at, count = plan->parts.part[m->part].count;
        else echi_job_range(job, plan, head, &first, &count);
        break;
    case ECHI_KIND_HEAD_SUM: echi_job_range(job, plan, true, &first, &count); break;
    default: echi_job_range(job, plan, false, &first, &count); break;
    }
    if (echi_job_coded(plan, kind)) {
        *at = 0;
        *len = echi_coded_most(count);
        return;
    }
    *at = first * sizeof(echi_real);
    *len = count * sizeof(echi_real);
}
