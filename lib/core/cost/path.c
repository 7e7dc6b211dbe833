/* SPDX-License-Identifier: Apache-2.0
 * The critical path of a time line: from the end of its last round back through what began by the end of what. */
#include "echi_play.h"
#include "echi_records.h"
#include "echi_timeline.h"

#include <string.h>

const char *echi_path_name(int kind) {
    static const char *const name[ECHI_PATH_KINDS] = {"forward", "backward", "apply", "head", "codec", "out", "in", "messages", "wake",
                                                      "latency"};
    return kind >= 0 && kind < ECHI_PATH_KINDS ? name[kind] : "";
}

enum echi_path_kind echi_interval_kind(const struct echi_interval *i, bool backward) {
    if (i->on == ECHI_LINE_OUT) return ECHI_PATH_OUT;
    if (i->on == ECHI_LINE_IN) return ECHI_PATH_IN;
    if (i->on == ECHI_LINE_IO) return ECHI_PATH_MESSAGES;
    switch (i->what) {
    case ECHI_PLAY_STEP: return backward ? ECHI_PATH_BACKWARD : ECHI_PATH_FORWARD;
    case ECHI_PLAY_FORWARD: return ECHI_PATH_FORWARD;
    case ECHI_PLAY_BACKWARD: return ECHI_PATH_BACKWARD;
    case ECHI_PLAY_HEAD:
    case ECHI_PLAY_HEAD_APPLY: return ECHI_PATH_HEAD;
    case ECHI_PLAY_ENCODE:
    case ECHI_PLAY_DECODE:
    case ECHI_PLAY_ENCODE_STATE:
    case ECHI_PLAY_DECODE_STATE: return ECHI_PATH_CODEC;
    default: return ECHI_PATH_APPLY;
    }
}

const char *echi_interval_message(const struct echi_interval *i) {
    switch (i->what) {
    case ECHI_PLAY_PUSH:
    case ECHI_PLAY_HEAD_SUM:
    case ECHI_PLAY_SUM: return "gradients";
    case ECHI_PLAY_WEIGHTS:
    case ECHI_PLAY_HANDED: return "weights";
    case ECHI_PLAY_ROWS:
    case ECHI_PLAY_ANSWER: return "activations";
    case ECHI_PLAY_STATE: return "states";
    default: return "control";
    }
}

/* ---- from stretches of intervals to sums ---- */

static void add(struct echi_timeline *l, enum echi_path_kind kind, int rank, double ns) { l->ns[kind][1 + rank] += ns > 0 ? ns : 0; }

/* Of a thread's interval: what woke it and what messages took are spread over all of it. */
static void add_computed(struct echi_timeline *l, const struct echi_interval *i, int64_t from, int64_t to) {
    const double all = (double)(to - from), stolen = (double)i->stolen, wake = (double)i->wake < 1 - stolen ? (double)i->wake : 1 - stolen;
    const double own = all * (1 - wake - stolen);
    const double turn = (double)i->from + (double)i->turns * (double)(i->to - i->from);
    const double before = turn <= (double)from ? 0 : turn >= (double)to ? 1 : (turn - (double)from) / all;
    add(l, ECHI_PATH_WAKE, i->host, all * wake);
    add(l, ECHI_PATH_MESSAGES, i->host, all * stolen);
    add(l, echi_interval_kind(i, false), i->host, own * before);
    add(l, echi_interval_kind(i, true), i->host, own * (1 - before));
}

static void spend(struct echi_timeline *l, struct echi_interval *i, int64_t from, int64_t to) {
    if (i->on == ECHI_LINE_THREAD) add_computed(l, i, from, to);
    else add(l, echi_interval_kind(i, false), i->host, (double)(to - from));
    if (to <= l->from) return;   /* of a round before the last */
    i->path_from = from > l->from ? from : l->from;
    i->path_to = to;
}

/* ---- back from a moment to an earlier one ---- */

/* Which edge leads back from interval `i`, and who has the time on it; NULL: messages are on their way. */
struct edge { uint32_t cause; struct echi_interval *of; };
static struct edge edge_of(const struct echi_timeline *l, struct echi_interval *i, int32_t urgency) {
    const struct echi_interval *cause = echi_timeline_at(l, i->cause);
    struct echi_interval *blocker = i->blocker == ECHI_NOTHING ? NULL : echi_timeline_at(l, i->blocker);
    if (blocker && blocker->urgency <= urgency) return (struct edge){i->blocker, NULL};
    if (blocker) return (struct edge){i->cause, blocker};
    const bool passed = cause && i->on == ECHI_LINE_IN && cause->on == ECHI_LINE_IN && i->host == cause->host;   /* by more urgent ones */
    return (struct edge){i->cause, passed ? i : NULL};
}

/* The time from `from` to *at, if there is any, is that of interval `of`, or of none. */
static void go_back(struct echi_timeline *l, struct echi_interval *of, int64_t from, int64_t *at, bool spends) {
    if (from >= *at) return;
    if (spends && of) spend(l, of, from, *at);
    else if (spends) add(l, ECHI_PATH_LATENCY, -1, (double)(*at - from));
    *at = from;
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* From `at`, when interval `number` ended or had what it gave, back to `stop`. Returns how far it came: causes may be forgotten. With
 * `spends` the time is added to the sums.
 *
 * A message or a work has a resource behind all that is not less urgent: that, and what delayed the first of it, it waits for. So while the
 * path stays on a resource the least urgent that it came by decides what a cause is there, and what a delay. */
static int64_t walk(struct echi_timeline *l, uint32_t number, int64_t at, int64_t stop, bool spends) {
    struct echi_interval *i, *last = NULL;
    struct edge edge = {number, NULL};
    int32_t urgency = 0;
    for (; at > stop && (i = echi_timeline_at(l, edge.cause)); last = i) {
        const bool stays = last && last->on == i->on && last->host == i->host;
        urgency = stays && urgency > i->urgency ? urgency : i->urgency;
        go_back(l, edge.of, later(i->to, stop), &at, spends);
        go_back(l, i, later(i->from, stop), &at, spends);
        go_back(l, NULL, later(i->from - i->lag, stop), &at, spends);
        edge = edge_of(l, i, urgency);
    }
    return at;
}

/* ---- rounds ---- */

static uint32_t first_mark(const struct echi_timeline *l) { return l->marks > ECHI_LINE_MARKS ? l->marks - ECHI_LINE_MARKS : 0; }
static const struct echi_line_mark *mark_at(const struct echi_timeline *l, uint32_t m) { return &l->mark[m % ECHI_LINE_MARKS]; }

/* The rank whose rounds take the longest; -1: none has a whole one. */
static int slowest(struct echi_timeline *l, int64_t since) {
    int found = -1;
    double longest = 0;
    memset(l->of, 0, sizeof l->of);
    for (uint32_t m = first_mark(l); m < l->marks; m++) {
        const struct echi_line_mark *mark = mark_at(l, m);
        if (mark->at < since) continue;
        if (l->of[mark->rank].count++ == 0) l->of[mark->rank].first = mark->at;
        l->of[mark->rank].last = mark->at;
    }
    for (int r = 0; r < l->hosts; r++) {
        if (l->of[r].count < 2) continue;
        const double each = (double)(l->of[r].last - l->of[r].first) / (l->of[r].count - 1);
        if (each <= longest) continue;
        longest = each;
        found = r;
    }
    return found;
}

/* Its newest round, and the first one that can be followed back to. Returns how many these are. */
static uint32_t rounds_of(struct echi_timeline *l, int64_t since, int rank, int64_t *out_begins, const struct echi_line_mark **out_last) {
    uint32_t rounds = 0;
    int64_t reached = 0;
    *out_last = NULL;
    for (uint32_t m = l->marks; m-- > first_mark(l);) {
        const struct echi_line_mark *mark = mark_at(l, m);
        if (mark->rank != rank || mark->at < since) continue;
        if (!*out_last) {
            *out_last = mark;
            reached = walk(l, mark->cause, mark->at, since, false);
            continue;
        }
        if (mark->at < reached) break;
        if (rounds++ == 0) l->from = mark->at;
        *out_begins = mark->at;
    }
    return rounds;
}

/* ---- the sums, the longest first ---- */

static void insert(struct echi_path *path, struct echi_path_part part) {
    int at = path->parts < ECHI_PATH_PARTS - ECHI_PATH_KINDS ? path->parts++ : path->parts - 1;
    if (at == path->parts - 1 && path->part[at].seconds >= part.seconds) return;
    for (; at > 0 && path->part[at - 1].seconds < part.seconds; at--) path->part[at] = path->part[at - 1];
    path->part[at] = part;
}

static void sum_up(struct echi_timeline *l) {
    struct echi_path *path = &l->path;
    double left[ECHI_PATH_KINDS] = {0};
    for (int kind = 0; kind < ECHI_PATH_KINDS; kind++)
        for (int r = -1; r < l->hosts; r++) {
            const double seconds = l->ns[kind][1 + r] * 1e-9 / path->rounds;
            left[kind] += seconds;
            if (seconds > 0) insert(path, (struct echi_path_part){(uint8_t)kind, (int16_t)r, seconds});
        }
    for (int i = 0; i < path->parts; i++) left[path->part[i].kind] -= path->part[i].seconds;
    for (int kind = 0; kind < ECHI_PATH_KINDS; kind++)
        if (left[kind] > 1e-12 * path->seconds) path->part[path->parts++] = (struct echi_path_part){(uint8_t)kind, -1, left[kind]};
}

void echi_path_scale(struct echi_path *path, double seconds) {
    if (path->rounds == 0) return;
    for (int i = 0; i < path->parts; i++) path->part[i].seconds *= seconds / path->seconds;
    path->seconds = seconds;
}

void echi_timeline_path(struct echi_timeline *l, int64_t since, int rank) {
    const struct echi_line_mark *last;
    int64_t begins = 0;
    const int whose = rank >= 0 ? rank : slowest(l, since);
    l->path = (struct echi_path){.rank = rank >= 0 ? -1 : whose};
    const uint32_t rounds = whose < 0 ? 0 : rounds_of(l, since, whose, &begins, &last);
    if (rounds == 0) return;
    l->to = last->at;
    memset(l->ns, 0, sizeof l->ns);
    walk(l, last->cause, last->at, begins, true);
    l->path.rounds = rounds;
    l->path.seconds = (double)(last->at - begins) * 1e-9 / rounds;
    sum_up(l);
}
