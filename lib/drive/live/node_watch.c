/* SPDX-License-Identifier: Apache-2.0
 * Who is still there: heartbeats, and the judgement of those from whom none comes.
 *
 * The I/O thread sends them, not a thread of their own. A heartbeat says "whoever waits for me will be served", and that is
 * true while this thread goes round: it receives, decides and sends, and everybody waits for it and for nobody else. A second
 * thread would go on saying so with this one stuck. What may hold it up is in PROTOCOL.md, "Liveness". Each node judges all others, since
 * a link may break between any two of them: what rank 0 finds is so, what another finds it reports to rank 0. */
#include "echi_node.h"
#include "echi_error.h"

#include <stdio.h>

#define ROUND (ECHI_SECOND / 5)        /* a round of the loop with nothing to do */
#define LAST_ROUND (ECHI_SECOND / 50)  /* the same when only last words are waited for */

void echi_watch_begin(struct echi_node *n) {
    n->ready = true;
    n->patience = echi_patience_of((int64_t)(n->c->config->deadline * 1e9));
    for (int r = 0; r < n->world; r++) echi_silence_begin(&n->watched[r].silence, &n->patience, n->fair.now);
}

int64_t echi_watch_beat(struct echi_node *n, int64_t now) {
    int64_t next = n->role.coordinator && n->role.coordinator->phase == ECHI_RUN_ENDS ? LAST_ROUND : ROUND;
    if (!n->ready) return next;
    if (now >= n->heartbeat_at) {
        struct echi_lane_view v;
        echi_lane_look(n->lane, &v);
        const bool computes = v.ticks != n->progress.told;   /* the coordinator wants to know that, of all others */
        n->progress.told = v.ticks;
        n->heartbeat_at = now + n->patience.beat;
        for (int r = 0; r < n->world; r++)
            if (r != n->rank && !n->role.gone[r])
                echi_node_send_plain(n, r, ECHI_KIND_HEARTBEAT, r == 0 && computes ? ECHI_ROLE_COORDINATOR : ECHI_ROLE_NODE);
    }
    return n->heartbeat_at - now < next ? n->heartbeat_at - now : next;
}

void echi_watch_between(void *node) {
    struct echi_node *n = node;
    const int64_t before = n->heartbeat_at;
    (void)echi_watch_beat(n, echi_node_now(n));
    if (n->heartbeat_at != before) echi_wire_flush(n->wire);
}

static void judge(struct echi_node *n, int r) {
    struct echi_watched *w = &n->watched[r];
    const int64_t silent = n->fair.now - w->silence.since, bound = echi_silence_bound(&w->silence, &n->patience);
    const uint64_t bytes = echi_wire_bytes_from(n->wire, r);
    /* Under --local all nodes write to one stream: of a link between two others they say it once, when it counts. */
    const enum ech_log_level level = n->rank == 0 || r == 0 ? ECH_LOG_WARN : ECH_LOG_DEBUG;
    const double seconds = (double)silent * 1e-9, limit = (double)bound * 1e-9;
    if (bytes != w->bytes) {
        if (w->late) echi_config_log(n->c->config, level, "rank %d is heard again, after %.3g s", r, seconds);
        w->bytes = bytes;
        w->late = false;
        echi_silence_word(&w->silence, &n->patience, n->fair.now);
    } else if (silent > bound) {
        char owed[120], text[200];
        snprintf(text, sizeof text, "no word for %.3g seconds%s; --deadline is %.3g", seconds, echi_tell_owed(n, r, owed, sizeof owed),
                 n->c->config->deadline);
        w->lost = true;
        echi_node_lost(n, r, false, text);
    } else if (!w->late && silent > bound / 2) {
        w->late = true;
        echi_config_log(n->c->config, level, "rank %d is late: no word for %.3g s; after %.3g s it counts as lost", r, seconds, limit);
    }
}

/* A node that receives and answers is heard, also when it computes nothing any more: a callback that blocks, a device that hangs. Only it
 * can see that by itself. While it measures nothing is known of it yet, nor of how long its slots take. */
#define TIMES 10
int64_t echi_watch_allowed(const struct echi_node *n, const struct echi_lane_view *lane) {
    const int64_t deadline = n->patience.most;
    /* An evaluation shows progress at each layer. But nothing measures what samples of a test set cost that are drawn or decoded when they
     * are read. */
    const bool evaluates = lane->runs && lane->task.kind == ECHI_TASK_EVAL;
    if (n->measuring || n->standing || evaluates || n->times.count == 0) return TIMES * deadline;
    const uint32_t most = n->role.planned && n->setup.plan.n[n->rank] > 64 ? n->setup.plan.n[n->rank] : 64;
    const double step = echi_times_whole(&n->times, most) + n->times.update + n->times.exchange;
    return step * TIMES * 1e9 > (double)deadline ? (int64_t)(step * TIMES * 1e9) : deadline;
}

static void judge_lane(struct echi_node *n) {
    struct echi_lane_view v;
    if (n->progress.stuck || n->fair.now - n->progress.checked < n->patience.beat) return;
    n->progress.checked = n->fair.now;
    echi_lane_look(n->lane, &v);
    if (!v.busy || v.ticks != n->progress.ticks) {
        n->progress.ticks = v.ticks;
        n->progress.since = n->fair.now;
    }
    const int64_t still = n->fair.now - n->progress.since, allowed = echi_watch_allowed(n, &v);
    if (still <= allowed) return;
    char text[200];
    snprintf(text, sizeof text,
             "computing has stood still for %.3g s, at %s (%.3g s are allowed): a data callback that blocks, or a device that hangs?",
             (double)still * 1e-9, echi_tell_work(n, &v), (double)allowed * 1e-9);
    n->progress.stuck = true;
    echi_node_failed(n, ECH_E_TIMEOUT, text);
}

void echi_watch_judge(struct echi_node *n) {
    if (!n->ready) return;
    judge_lane(n);
    for (int r = 0; r < n->world && !n->over; r++)
        if (r != n->rank && !n->watched[r].lost && !n->role.gone[r]) judge(n, r);
}

/* Each receiver tells of the hosts that send to it; what comes in from all of them is its own. Not where links are not measured. */
void echi_watch_rates(struct echi_node *n, int64_t now) {
    if (now < n->rates_at || !n->links.measures || !n->role.planned || n->role.ended) return;
    n->rates_at = now + ECHI_SECOND;
    for (int r = 0; r < n->world && !n->over; r++) {
        uint64_t bytes;
        int64_t ns;
        if (echi_wire_delivered(n->wire, r, ECHI_SEEN_WINDOW, &bytes, &ns))
            echi_node_event(n, ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_RATE, .from = (uint16_t)r, .flag = r == n->rank,
                                                                    .rate = (double)bytes * 1e9 / (double)ns});
    }
}
