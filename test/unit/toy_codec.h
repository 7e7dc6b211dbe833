/* SPDX-License-Identifier: Apache-2.0
 * The codec top-k over the toy model: a third of the words goes, whichever, and each tally; what does not go stays in the residual. A coded
 * layer is its words, of which those that did not go hold rubbish, and a word whose bits say which went. Coded weights and states have
 * one more word: what the sender believes that the receiver has then, all of it. Included by sched_sim.h. */

enum { CODED = WORDS + 1 };

static bool is_coded(const struct sim *s) { return s->plan.codec != ECHI_CODEC_DENSE; }
static bool coded_kind(const struct sim *s, int kind) {
    return is_coded(s) && (kind == ECHI_KIND_PUSH || kind == ECHI_KIND_WEIGHTS || kind == ECHI_KIND_STATE);
}
static bool goes(uint32_t ratio, uint32_t turn, int word) {
    return ratio == ECHI_RATIO_ONE || is_tally(word) || mix(turn, (uint32_t)word) % 3 == 0;
}

/* Writes the words of x that `go`, of layers [first, end), into a coded slot. */
static void write_coded(uint32_t *to, const uint32_t *x, int first, int end, uint32_t ratio, uint32_t turn) {
    for (int l = first; l < end; l++) {
        to[l * CODED + WORDS] = 0;
        for (int i = l * WORDS; i < (l + 1) * WORDS; i++) {
            const bool there = goes(ratio, turn, i);
            to[l * CODED + i % WORDS] = there ? x[i] : mix(turn, 77);
            to[l * CODED + WORDS] |= (uint32_t)there << i % WORDS;
        }
    }
}
static bool is_there(const uint32_t *coded, int word) { return coded[word / WORDS * CODED + WORDS] >> word % WORDS & 1; }
static uint32_t value_of(const uint32_t *coded, int word) { return coded[word / WORDS * CODED + word % WORDS]; }

/* STEP, BACKWARD: the gradients of layers [first, end) go through the residual. */
static void code_push(struct sim *s, int node, const struct echi_task *t, int first, int end) {
    if (!t->coded.kind) return;
    uint32_t *rest = place(s, node, t->state)->word, *to = place(s, node, t->coded)->word;
    const uint32_t *grads = place(s, node, t->grads)->word;
    for (int i = first * WORDS; i < end * WORDS; i++) {
        rest[i] = (t->first ? 0 : rest[i]) + grads[i];
        s->given[node][i] += grads[i];
    }
    write_coded(to, rest, first, end, t->ratio, t->lease.id);
    for (int i = first * WORDS; i < end * WORDS; i++)
        if (is_there(to, i)) rest[i] = 0;
}

/* ADD, APPLY: what a push brings; of what did not come nothing. */
static void read_push(struct sim *s, int node, const struct echi_task *t, uint32_t *out) {
    const uint32_t *from = place(s, node, t->grads)->word;
    if (!coded_kind(s, ECHI_KIND_PUSH) || t->grads.kind != ECHI_SLOT_OWNER_GRADS) {
        memcpy(out, from, PARAMS * sizeof *out);
        return;
    }
    for (int i = 0; i < cut_of(s) * WORDS; i++) out[i] = is_there(from, i) ? value_of(from, i) : 0;
}

static void note_taken(struct sim *s, int node, const struct echi_task *t) {
    uint32_t grads[PARAMS];
    if (!is_coded(s) || t->grads.kind != ECHI_SLOT_OWNER_GRADS) return;
    read_push(s, node, t, grads);
    for (int i = 0; i < cut_of(s) * WORDS; i++) s->taken[t->lease.worker][i] += grads[i];
}

static void encode(struct sim *s, int node, const struct echi_task *t) {
    uint32_t *known = place(s, node, t->state)->word, *to = place(s, node, t->coded)->word;
    const uint32_t *x = place(s, node, t->weights)->word;
    write_coded(to, x, 0, cut_of(s), t->ratio, t->number);
    for (int i = 0; i < cut_of(s) * WORDS; i++)
        if (is_there(to, i)) known[i] = x[i];
    to[cut_of(s) * CODED] = fold(known, 0, cut_of(s));
    place(s, node, t->coded)->holds = place(s, node, t->weights)->holds;
    s->partly += t->ratio != ECHI_RATIO_ONE;
}

/* What the receiver has is what its sender believes, after each message. */
static void decode(struct sim *s, int node, const struct echi_task *t) {
    uint32_t *to = place(s, node, t->state)->word;
    const uint32_t *from = place(s, node, t->coded)->word;
    for (int i = 0; i < cut_of(s) * WORDS; i++)
        if (is_there(from, i)) to[i] = value_of(from, i);
    CHECK(s, fold(to, 0, cut_of(s)) == from[cut_of(s) * CODED]);
    if (t->weights_out.kind) memcpy(place(s, node, t->weights_out)->word, to, (size_t)cut_of(s) * WORDS * sizeof *to);
    if (t->role == ECHI_ROLE_WORKER) {
        const struct place *came = own_place(s, node, t->coded);
        place(s, node, t->weights_out)->holds = came->holds;
        place(s, node, t->weights_out)->answer = came->answer;
        return;
    }
    const int g = t->coded.index;
    s->has_samples[node][g] = s->coming[node][g].samples;
    if (!t->weights_out.kind) return;
    const uint64_t version = s->coming[node][g].version;
    MUST(s, STATE, memcmp(to, s->state[g][version].word, (size_t)cut_of(s) * WORDS * sizeof *to) == 0);
    s->has_version[node][g] = place(s, node, t->weights_out)->holds = version;
}

/* At the end, where no owner was lost: of every living worker what it has computed is applied, or in its residual. */
static inline void check_residuals(struct sim *s) {
    for (int r = 0; r < s->plan.world && is_coded(s) && !s->owner_killed; r++) {
        const uint32_t *rest = place_at(s, r, ECHI_SLOT_WORKER_RESIDUAL, 0)->word;
        for (int i = 0; i < cut_of(s) * WORDS && s->node[r].role.worker && !s->node[r].dead; i++)
            CHECK(s, s->taken[r][i] + rest[i] == s->given[r][i]);
    }
}
