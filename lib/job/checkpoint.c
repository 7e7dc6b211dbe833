/* SPDX-License-Identifier: Apache-2.0
 * One checkpoint: what its file says, and whether it fits the run that is to go on from it. */
#include "echi_checkpoint_impl.h"
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- words */

/* Every word of the metadata. Of NUMBERS and REALS the run goes on; the rest is compared, or only for people. MORE may be missing: files
 * from before there was Adam have no optimizer, those from before there was a choice no first layer of the head; and what moments weigh
 * stands only with Adam, for each group there is. */
#define WORDS(TEXT, NUMBER, REAL, MORE)                                                                                          \
    TEXT(FORMAT, "echelon_checkpoint") TEXT(VERSION, "version") TEXT(MODEL, "model") TEXT(MODEL_HASH, "model_hash")           \
    TEXT(DATA, "data") TEXT(DATA_HASH, "data_hash") TEXT(ORDER, "order") TEXT(SYNC, "sync")                                   \
    NUMBER(WORLD, "world") NUMBER(BATCH, "batch") NUMBER(GROUPS, "groups") NUMBER(SEPARATED, "separated")                     \
    NUMBER(EPOCH, "epoch") NUMBER(START, "start") NUMBER(SAMPLES, "samples") NUMBER(ROUNDS, "rounds") NUMBER(EVALS, "looks")  \
    NUMBER(CLOCK, "training_ns") NUMBER(MEASURING, "measuring_ns") NUMBER(KEEPING, "checkpoint_ns")                           \
    NUMBER(TARGET_AT, "target_ns") NUMBER(TARGET_SAMPLES, "target_samples")                                                   \
    REAL(LR, "lr") REAL(MOMENTUM, "momentum") REAL(ACCURACY, "accuracy") REAL(BEST, "best_accuracy") REAL(LOSS, "train_loss") \
    MORE(OPTIMIZER, "optimizer") MORE(CUT, "head_from") MORE(WEIGH_0, "moments_weigh.0") MORE(WEIGH_1, "moments_weigh.1")       \
    MORE(WEIGH_2, "moments_weigh.2")                                                                                          \
    MORE(WEIGH_3, "moments_weigh.3") MORE(WEIGH_4, "moments_weigh.4") MORE(WEIGH_5, "moments_weigh.5") MORE(WEIGH_6, "moments_weigh.6") \
    MORE(WEIGH_7, "moments_weigh.7")
#define WORD_NAME(name, key) W_##name,
enum word { WORDS(WORD_NAME, WORD_NAME, WORD_NAME, WORD_NAME) N_WORDS };
_Static_assert(N_WORDS == ECHI_CHECKPOINT_WORDS && N_WORDS == W_WEIGH_0 + ECHI_GROUPS_MAX, "room for every word");
#define WORD_KEY(name, key) key,
static const char *const keys[N_WORDS] = {WORDS(WORD_KEY, WORD_KEY, WORD_KEY, WORD_KEY)};
#define IS_NUMBER(name, key) 'n',
#define IS_REAL(name, key) 'r',
#define IS_TEXT(name, key) 't',
#define IS_MORE(name, key) 'm',
static const char kinds[N_WORDS] = {WORDS(IS_TEXT, IS_NUMBER, IS_REAL, IS_MORE)};

#define BILLION UINT64_C(1000000000)
#define REAL_MOST 1000000   /* so that nine decimals come back as they went */

static void put_number(struct echi_word *w, uint64_t value) { snprintf(w->text, sizeof w->text, "%" PRIu64, value); }

/* Nine decimals, without a locale's opinion of the point. Negative: there is none. */
static void put_real(struct echi_word *w, double value) {
    const uint64_t scaled = value >= 0 && value < REAL_MOST ? (uint64_t)(value * (double)BILLION + 0.5) : 0;
    if (value < 0) snprintf(w->text, sizeof w->text, "none");
    else snprintf(w->text, sizeof w->text, "%" PRIu64 ".%09" PRIu64, scaled / BILLION, scaled % BILLION);
}

/* The bits of doubles, as hex digits: what a run goes on with has to be the same to the last of them. */
static void put_weigh(struct echi_word *w, const struct echi_adam_weights *weigh, int count) {
    struct echi_print p = {w->text, sizeof w->text, 0};
    for (int i = 0; i < 2 * count; i++) {
        uint64_t bits;
        memcpy(&bits, i % 2 ? &weigh[i / 2].second : &weigh[i / 2].first, sizeof bits);
        echi_print(&p, "%s%016" PRIx64, i ? " " : "", bits);
    }
}

int echi_checkpoint_words(struct echi_word words[ECHI_CHECKPOINT_WORDS], const struct echi_job *job, const struct echi_plan *plan,
                          const struct echi_standing *at, struct echi_adam_weights (*weigh)[2]) {
    for (int i = 0; i < N_WORDS; i++) words[i].key = keys[i];
    echi_word_text(&words[W_FORMAT], "1");
    echi_word_text(&words[W_VERSION], ECH_VERSION);
    echi_word_text(&words[W_MODEL], job->model->name);
    echi_model_hash(job->model, words[W_MODEL_HASH].text);
    echi_word_text(&words[W_DATA], job->data->name);
    echi_word_text(&words[W_DATA_HASH], job->data->hash);
    echi_job_order(job, words[W_ORDER].text);
    echi_word_text(&words[W_SYNC], echi_policy_of((enum echi_sync)plan->sync)->name);
    put_number(&words[W_WORLD], plan->world);
    put_number(&words[W_BATCH], plan->round);
    put_number(&words[W_GROUPS], plan->n_groups);
    put_number(&words[W_SEPARATED], plan->cut > 0);
    put_number(&words[W_EPOCH], at->epoch);
    put_number(&words[W_START], at->start);
    put_number(&words[W_SAMPLES], at->samples);
    put_number(&words[W_ROUNDS], at->samples / plan->round);
    put_number(&words[W_EVALS], at->evals);
    put_number(&words[W_CLOCK], (uint64_t)at->clock);
    put_number(&words[W_MEASURING], (uint64_t)at->measuring);
    put_number(&words[W_KEEPING], (uint64_t)at->keeping);
    if (at->target_at < 0) echi_word_text(&words[W_TARGET_AT], "none");
    else put_number(&words[W_TARGET_AT], (uint64_t)at->target_at);
    put_number(&words[W_TARGET_SAMPLES], at->target_samples);
    put_real(&words[W_LR], plan->lr);
    put_real(&words[W_MOMENTUM], plan->momentum);
    put_real(&words[W_ACCURACY], at->accuracy);
    put_real(&words[W_BEST], at->best_accuracy);
    put_real(&words[W_LOSS], at->loss);
    echi_word_text(&words[W_OPTIMIZER], echi_optimizer_name(plan->optimizer));
    echi_word_text(&words[W_CUT], plan->cut ? job->layer[plan->cut].name : "none");
    for (int g = 0; weigh && g < plan->n_groups; g++) put_weigh(&words[W_WEIGH_0 + g], weigh[g], g == 0 && plan->cut ? 2 : 1);
    return W_WEIGH_0 + (weigh ? plan->n_groups : 0);
}

/* -------------------------------------------------------------- reading */

struct reader {
    const char *name;
    bool given[N_WORDS], twice;
    char text[N_WORDS][sizeof ((struct echi_word *)0)->text];
    uint64_t number[N_WORDS];   /* reals in billionths */
    bool none[N_WORDS];
    struct ech_error *err;
};

static void take_word(void *self, const char *key, const char *text) {
    struct reader *r = self;
    for (int i = 0; i < N_WORDS; i++) {
        if (strcmp(keys[i], key) != 0) continue;
        r->twice = r->twice || r->given[i];
        r->given[i] = strlen(text) < sizeof r->text[i];
        if (r->given[i]) strcpy(r->text[i], text);
    }
}

static bool parse_number(const char **at, uint64_t *out) {
    const char *first = *at;
    for (*out = 0; **at >= '0' && **at <= '9'; ++*at)
        if (__builtin_mul_overflow(*out, 10u, out) || __builtin_add_overflow(*out, (uint64_t)(**at - '0'), out)) return false;
    return *at > first;
}

static bool parse_word(const char *text, char kind, uint64_t *out, bool *out_none) {
    *out_none = strcmp(text, "none") == 0;
    *out = 0;
    if (*out_none) return true;
    if (!parse_number(&text, out) || (kind == 'r' && *out >= REAL_MOST)) return false;
    if (kind == 'n') return !*text && *out <= INT64_MAX / 4; /* a run adds its own times to these, and them to each other */
    uint64_t billionths = 0;
    if (*text++ != '.' || strlen(text) != 9 || !parse_number(&text, &billionths) || *text) return false;
    *out = *out * BILLION + billionths;
    return true;
}

static double real_of(const struct reader *r, enum word w) { return r->none[w] ? -1 : (double)r->number[w] / (double)BILLION; }

static ech_status no_checkpoint(const struct reader *r, const char *why, const char *what) {
    return echi_fail(r->err, ECH_E_FORMAT, "checkpoint.read", "%s is no checkpoint that a run can go on from (%s%s)", r->name, why, what);
}

static ech_status read_words(struct reader *r) {
    if (!r->given[W_FORMAT]) return no_checkpoint(r, "its metadata lacks ", keys[W_FORMAT]);
    if (strcmp(r->text[W_FORMAT], "1") != 0)
        return echi_fail(r->err, ECH_E_UNSUPPORTED, "checkpoint.read",
                         "%s has format %s, version " ECH_VERSION " reads format 1: resume with the version that wrote it (%s)",
                         r->name, r->text[W_FORMAT], r->given[W_VERSION] ? r->text[W_VERSION] : "unknown");
    if (r->twice) return no_checkpoint(r, "its metadata says something twice", "");
    for (int i = 0; i < N_WORDS; i++) {
        if (kinds[i] == 'm') continue;
        if (!r->given[i]) return no_checkpoint(r, "its metadata lacks ", keys[i]);
        if (kinds[i] != 't' && !parse_word(r->text[i], kinds[i], &r->number[i], &r->none[i]))
            return no_checkpoint(r, "its metadata has no sound value for ", keys[i]);
        const bool may_be_none = kinds[i] == 'r' || i == W_TARGET_AT;
        if (r->none[i] && !may_be_none) return no_checkpoint(r, "its metadata has no value for ", keys[i]);
    }
    return ECH_OK;
}

/* What a checkpoint was trained on must be what is trained on now: the model, the data, and the order of the samples, in
 * which its place is given. The rest (lr, batch, policy, nodes) may change from one run to the next. */
static ech_status check_same(const struct reader *r, const struct echi_job *job) {
    struct echi_word now[2];
    char order[ECHI_JOB_WORD];
    echi_model_hash(job->model, now[0].text);
    echi_word_text(&now[1], job->data->hash);
    echi_job_order(job, order);
    if (strcmp(r->text[W_MODEL_HASH], now[0].text) != 0)
        return echi_fail(r->err, ECH_E_ARGUMENT, "checkpoint.read",
                         "%s was made with model %s (%.12s...), this run has model %s (%.12s...): give that model, "
                         "or another --checkpoint folder", r->name, r->text[W_MODEL], r->text[W_MODEL_HASH], job->model->name, now[0].text);
    if (strcmp(r->text[W_DATA_HASH], now[1].text) != 0)
        return echi_fail(r->err, ECH_E_ARGUMENT, "checkpoint.read",
                         "%s was made with data %s (%.12s...), this run has data %s (%.12s...): give that data, "
                         "or another --checkpoint folder", r->name, r->text[W_DATA], r->text[W_DATA_HASH], job->data->name, now[1].text);
    if (strcmp(r->text[W_ORDER], order) != 0)
        return echi_fail(r->err, ECH_E_ARGUMENT, "checkpoint.read",
                         "%s was made with samples in another order (%s, here %s): give the same --seed and --no-shuffle, "
                         "or another --checkpoint folder", r->name, r->text[W_ORDER], order);
    return ECH_OK;
}

/* The head begins with a layer that it may begin with. */
static bool read_cut(const struct reader *r, const struct echi_job *job, struct echi_checkpoint *c) {
    c->cut = r->number[W_SEPARATED] == 0 ? 0 : r->given[W_CUT] ? 1 : job->first_fc;
    if (r->number[W_SEPARATED] == 0) return !r->given[W_CUT] || strcmp(r->text[W_CUT], "none") == 0;
    while (r->given[W_CUT] && c->cut < job->n_layers && strcmp(job->layer[c->cut].name, r->text[W_CUT]) != 0) c->cut++;
    return echi_job_may_cut(job, c->cut);
}

/* The numbers make sense together: up to `samples` each sample of each epoch is in, and nothing else. */
static ech_status read_standing(const struct reader *r, const struct echi_job *job, struct echi_checkpoint *c) {
    const uint64_t *n = r->number;
    uint64_t in;
    if (n[W_GROUPS] < 1 || n[W_GROUPS] > ECHI_GROUPS_MAX || n[W_SEPARATED] > 1 || !read_cut(r, job, c))
        return no_checkpoint(r, "its groups make no sense", "");
    if (n[W_EPOCH] > UINT32_MAX || n[W_START] > job->train_samples || __builtin_mul_overflow(n[W_EPOCH], job->train_samples, &in) ||
        n[W_SAMPLES] != in + n[W_START])
        return no_checkpoint(r, "its place in the data makes no sense", "");
    if (n[W_ACCURACY] > BILLION || n[W_BEST] > BILLION || r->none[W_LOSS])
        return no_checkpoint(r, "its accuracy or loss makes no sense", "");
    c->groups = (int)n[W_GROUPS];
    c->local = strcmp(r->text[W_SYNC], echi_policy_of(ECHI_SYNC_LOCAL)->name) == 0;
    c->at = (struct echi_standing){.epoch = (uint32_t)n[W_EPOCH], .start = (uint32_t)n[W_START], .samples = n[W_SAMPLES],
        .evals = n[W_EVALS], .clock = (int64_t)n[W_CLOCK], .measuring = (int64_t)n[W_MEASURING], .keeping = (int64_t)n[W_KEEPING],
        .accuracy = real_of(r, W_ACCURACY), .best_accuracy = real_of(r, W_BEST), .loss = real_of(r, W_LOSS),
        .target_at = r->none[W_TARGET_AT] ? -1 : (int64_t)n[W_TARGET_AT], .target_samples = n[W_TARGET_SAMPLES]};
    return ECH_OK;
}

/* Numbers as put_weigh writes them, each a sum of weights that are 1 at most together. */
static bool parse_weigh(const char *text, struct echi_adam_weights *out, int count) {
    for (int i = 0; i < 2 * count; i++, text += 16) {
        if (i && *text++ != ' ') return false;
        uint64_t bits = 0;
        for (int k = 0; k < 16; k++) {
            static const char digits[] = "0123456789abcdef";
            const char *digit = text[k] ? strchr(digits, text[k]) : NULL;
            if (!digit) return false;
            bits = bits << 4 | (uint64_t)(digit - digits);
        }
        double *to = i % 2 ? &out[i / 2].second : &out[i / 2].first;
        memcpy(to, &bits, sizeof bits);
        if (!(*to >= 0 && *to < 1 + 1e-9)) return false;
    }
    return !*text;
}

static ech_status read_optimizer(const struct reader *r, struct echi_checkpoint *c) {
    int optimizer = ECHI_OPTIMIZER_SGD;
    if (r->given[W_OPTIMIZER])
        for (optimizer = 0; optimizer < ECHI_OPTIMIZERS && strcmp(r->text[W_OPTIMIZER], echi_optimizer_name(optimizer)) != 0;) optimizer++;
    if (optimizer == ECHI_OPTIMIZERS) return no_checkpoint(r, "this version does not know its optimizer ", r->text[W_OPTIMIZER]);
    snprintf(c->optimizer, sizeof c->optimizer, "%s", echi_optimizer_name(optimizer));
    c->adam = !c->local && echi_optimizer_adam(optimizer);
    for (int g = 0; c->adam && g < c->groups; g++) {
        if (!r->given[W_WEIGH_0 + g]) return no_checkpoint(r, "its metadata lacks ", keys[W_WEIGH_0 + g]);
        if (!parse_weigh(r->text[W_WEIGH_0 + g], c->weigh[g], g == 0 && c->cut ? 2 : 1))
            return no_checkpoint(r, "its metadata has no sound value for ", keys[W_WEIGH_0 + g]);
    }
    return ECH_OK;
}

int echi_checkpoint_parts(const struct echi_job *job, int groups, int cut, bool adam,
                          struct echi_checkpoint_part out[ECHI_CHECKPOINT_PARTS]) {
    const int all = job->model->n_layers;
    int n = 0;
    out[n++] = (struct echi_checkpoint_part){.set = {.end = all}, .group = -1};
    for (int second = 0; second <= adam; second++)
        for (int g = 0; g < groups; g++)
            for (int head = 0; head <= (cut > 0 && g == 0); head++) {
                struct echi_checkpoint_part *p = &out[n++];
                *p = (struct echi_checkpoint_part){.set = {.learned = true, .first = head ? job->border[cut].layer : 0,
                                                           .end = cut > 0 && !head ? job->border[cut].layer : all},
                                                   .group = g, .head = head, .second = second};
                snprintf(p->set.prefix, sizeof p->set.prefix, second ? "second.%d." : "momentum.%d.", g);
            }
    return n;
}

ech_status echi_checkpoint_tensors(const struct echi_job *job, const struct echi_checkpoint_part *parts, int n_parts,
                                   struct echi_tensors **out, struct ech_error *err) {
    struct echi_tensor_set sets[ECHI_CHECKPOINT_PARTS];
    for (int i = 0; i < n_parts; i++) sets[i] = parts[i].set;
    return echi_tensors_create(job->model, sets, n_parts, out, err);
}

static ech_status read_tensors(const struct reader *r, const uint8_t *bytes, size_t len, const struct echi_job *job,
                               struct echi_checkpoint *c) {
    struct echi_checkpoint_part parts[ECHI_CHECKPOINT_PARTS];
    struct echi_tensors *list;
    const int n_parts = echi_checkpoint_parts(job, c->groups, c->cut, c->adam, parts);
    c->weights = calloc(job->n_params, sizeof *c->weights);
    c->momentum = calloc((size_t)c->groups * job->n_params, sizeof *c->momentum);
    c->second = c->adam ? calloc((size_t)c->groups * job->n_params, sizeof *c->second) : NULL;
    if (!c->weights || !c->momentum || (c->adam && !c->second)) return echi_fail_memory(r->err, "checkpoint.read", "a checkpoint");
    parts[0].set.values = c->weights;
    for (int i = 1; i < n_parts; i++)
        parts[i].set.values = (parts[i].second ? c->second : c->momentum) + (size_t)parts[i].group * job->n_params;
    ECHI_TRY(echi_checkpoint_tensors(job, parts, n_parts, &list, r->err));
    const ech_status status = echi_tensors_read(r->name, bytes, len, list, r->err);
    echi_tensors_destroy(list);
    return status;
}

ech_status echi_checkpoint_parse(const char *name, const uint8_t *bytes, size_t len, const struct echi_job *job,
                                 struct echi_checkpoint *out, struct ech_error *err) {
    char shown[160];
    struct reader r = {.name = echi_printable_path(shown, sizeof shown, name), .err = err};
    struct echi_checkpoint c = {.groups = 0};
    ECHI_TRY(echi_tensors_words(name, bytes, len, take_word, &r, err));
    for (int i = 0; i < N_WORDS; i++) echi_printable(r.text[i], sizeof r.text[i], r.text[i], strlen(r.text[i]));
    ECHI_TRY(read_words(&r));
    ECHI_TRY(check_same(&r, job));
    ECHI_TRY(read_standing(&r, job, &c));
    ECHI_TRY(read_optimizer(&r, &c));
    const ech_status status = read_tensors(&r, bytes, len, job, &c);
    if (status == ECH_OK) *out = c;
    else echi_checkpoint_free(&c);
    return status;
}

void echi_checkpoint_free(struct echi_checkpoint *c) {
    free(c->weights);
    free(c->momentum);
    free(c->second);
    c->weights = c->momentum = c->second = NULL;
}

/* ------------------------------------------------------------- momentum */

/* Floats [at, at + count) for group g of `groups`. */
static void share_out(const struct echi_checkpoint *c, size_t n_params, int g, int groups, size_t at, size_t count, float *out) {
    bool first = true;
    for (int from = 0; from < c->groups; from++) {
        const float *v = c->momentum + (size_t)from * n_params;
        if ((from < groups ? from : 0) != g) continue;
        if (first) memcpy(out + at, v + at, count * sizeof *out);
        for (size_t i = at; !first && i < at + count; i++) out[i] += v[i];
        first = false;
    }
    if (first) memset(out + at, 0, count * sizeof *out);
}

/* Moments of floats [at, at + count) for group g, to where `m` says. They come from one group, but with layer separation they are two
 * parts that weigh differently: what matters is a moment divided by what is in it, so the later part is scaled to weigh as the first. */
static void share_moments(const struct echi_checkpoint *c, const struct echi_job *job, int g, size_t at, size_t count,
                          const struct echi_memory *m, float *out) {
    int from = g < c->groups && c->weigh[g][0].second > 0 ? g : 0;
    while (from + 1 < c->groups && !(c->weigh[from][0].second > 0)) from++;   /* an owner that was lost has none */
    const size_t cut = c->cut ? job->layer[c->cut].at : job->n_params;
    struct echi_adam_weights all = {0, 0};
    for (int part = 0; part < 2; part++) {
        const size_t first = part && cut > at ? cut : at, end = !part && cut < at + count ? cut : at + count;
        const struct echi_adam_weights *own = part ? &c->weigh[0][1] : &c->weigh[from][0];
        if (first >= end || !(own->first > 0 && own->second > 0)) continue;
        if (!(all.second > 0)) all = *own;
        const size_t source = (size_t)(part ? 0 : from) * job->n_params;
        const float scale[2] = {(float)(all.first / own->first), (float)(all.second / own->second)};   /* 1 for the first */
        for (size_t i = first; i < end; i++) {
            out[m->first + (i - at)] = c->momentum[source + i] * scale[0];
            out[m->second + (i - at)] = c->second[source + i] * scale[1];
        }
    }
    memcpy((uint8_t *)out + m->at, &all, sizeof all);
}

bool echi_checkpoint_carries(const struct echi_checkpoint *c, const struct echi_plan *plan) {
    return c->local == (plan->sync == ECHI_SYNC_LOCAL) && c->adam == echi_optimizer_adam(echi_plan_owner_optimizer(plan));
}

void echi_checkpoint_momentum(const struct echi_checkpoint *c, const struct echi_job *job, const struct echi_plan *plan, int g,
                              float *out) {
    const int optimizer = echi_plan_owner_optimizer(plan);
    memset(out, 0, echi_job_memory_bytes(job, optimizer));
    if (!echi_checkpoint_carries(c, plan) || !echi_plan_owner_remembers(plan)) return;
    for (int head = 0; head < 2; head++) {   /* of one head, where there is one */
        struct echi_memory m;
        size_t at, count;
        echi_job_range(job, plan, head, &at, &count);
        echi_job_memory(job, plan, optimizer, head, &m);
        if (count == 0 || (head && g > 0)) continue;
        if (c->adam) share_moments(c, job, g, at, count, &m, out);
        else share_out(c, job->n_params, g, head ? 1 : plan->n_groups, at, count, out);
    }
}

void echi_checkpoint_forget(const struct echi_job *job, const struct echi_plan *plan, float *momentum) {
    struct echi_memory m;
    echi_job_memory(job, plan, echi_plan_owner_optimizer(plan), false, &m);
    memset((uint8_t *)momentum + m.at, 0, m.bytes);
}
