/* SPDX-License-Identifier: Apache-2.0
 * Synchronous batch-norm over the toy model: two layers of the trunk are batch-norms, and without a cut the last one too. What one sums
 * is a word of the samples, a bit of each worker, and how many samples there are; so whoever goes on by what has come knows whose it is.
 * Gradients do not depend on it, so that what is trained stays that of one node, whoever is lost. Included by sched_sim.h. */

enum { NORM_WORDS = WORDS };

static void set_norms(const struct sim *s, struct echi_setup *setup) {
    static const uint8_t norm[] = {0, 2, 4};
    for (int i = 0; i < 3 && s->plan.sync_norm && norm[i] < setup->cut; i++) setup->norm[setup->norms++] = norm[i];
}
static int norms_of(const struct sim *s) { return !s->plan.sync_norm ? 0 : s->plan.cut ? 2 : 3; }
/* The batch-norm behind a part of a step. */
static int norm_behind(const struct sim *s, int part) { return 2 * (part < norms_of(s) ? part : 2 * norms_of(s) - 1 - part); }

/* The layers whose gradients a task makes: with parts those from its batch-norm down to the next. */
static void layers_of(const struct sim *s, const struct echi_task *t, int *first, int *end) {
    const bool stops = t->sums.kind != ECHI_SLOT_NONE, forward = t->until > 0 || (stops && t->part < norms_of(s));
    *end = forward ? 0 : t->part > norms_of(s) ? norm_behind(s, t->part - 1) + 1 : cut_of(s);
    *first = forward || !stops ? 0 : norm_behind(s, t->part) + 1;
}

static void toy_norm(const struct echi_lease *l, int layer, bool backward, uint32_t *out) {
    out[0] = 0;
    for (uint32_t i = l->start; i < l->start + l->n; i++) out[0] += mix(i, (uint32_t)(2 * layer + backward));
    out[1] = 1u << l->worker;
    out[2] = l->n;
}

static bool is_together(const struct echi_lease *a, const struct echi_lease *b) {
    return a->together && b->together && a->round == b->round && a->part == b->part;
}

/* What a step goes on by holds its own lease, each of a living worker that is computed together with it, and nothing else. */
static void watch_norm(struct sim *s, const struct work *w) {
    const struct echi_task *t = &w->task;
    const uint32_t *all = place(s, w->node, t->norm)->word;
    uint32_t sum = 0, samples = 0, workers = 0;
    for (uint32_t id = 1; id <= s->leases; id++) {
        const struct echi_lease *l = &s->seen[id].lease;
        uint32_t own[NORM_WORDS];
        if (!is_together(l, &t->lease)) continue;
        if (!(all[1] >> l->worker & 1)) {
            MUST(s, NORM, l->worker != w->node && s->node[l->worker].doomed);
            continue;
        }
        toy_norm(l, norm_behind(s, t->part - 1), t->part > norms_of(s), own);
        sum += own[0];
        workers |= own[1];
        samples += l->n;
    }
    MUST(s, NORM, all[0] == sum && all[1] == workers && all[2] == samples && t->samples == samples);
    MUST(s, NORM, samples <= t->lease.together);
    if (s->counts) s->counts->norms++;
    if (s->counts) s->counts->later_norms += t->lease.part > 0;
}

/* The words of a part's task beside its arithmetic. */
static void run_norms(struct sim *s, const struct work *w) {
    const struct echi_task *t = &w->task;
    MUST(s, NORM, (t->part == 0 && !t->norm.kind && !t->sums.kind) || echi_lease_exchanges(&t->lease));
    if (t->norm.kind) watch_norm(s, w);
    if (t->sums.kind) toy_norm(&t->lease, norm_behind(s, t->part), t->part >= norms_of(s), place(s, w->node, t->sums)->word);
}

static void join_norms(struct sim *s, const struct work *w) {
    const struct echi_task *t = &w->task;
    uint32_t *to = place(s, w->node, t->sums)->word;
    if (t->samples == 0) memset(to, 0, NORM_WORDS * sizeof *to);
    for (int i = 0; i < t->n_rows; i++) {
        const uint32_t *from = place_at(s, w->node, ECHI_SLOT_OWNER_NORM, t->rows[i])->word;
        MUST(s, NORM, from[1] == 1u << t->rows[i] && from[2] == t->row_count[i] && (i == 0 || t->rows[i] > t->rows[i - 1]));
        for (int k = 0; k < NORM_WORDS; k++) to[k] += from[k];
    }
}
