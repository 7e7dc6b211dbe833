/* SPDX-License-Identifier: Apache-2.0
 * Who is still there: heartbeats, and the judgement of those from whom none comes.
 *
 * The I/O thread sends them, not a thread of their own. A heartbeat says "whoever waits for me will be served", and that is
 * true while this thread goes round: it receives, decides and sends, and everybody waits for it and for nobody else. A second
 * thread would go on saying so with this one stuck. What may hold it up is in DESIGN.md, section 5. Each node judges all others, since
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

static bool watches(const struct echi_node *n) { return n->ready && (!n->end_in || n->coordinator); }

int64_t echi_watch_beat(struct echi_node *n, int64_t now) {
    int64_t next = n->coordinator && n->coordinator->phase == ECHI_RUN_ENDS ? LAST_ROUND : ROUND;
    if (!watches(n)) return next;
    if (now >= n->heartbeat_at) {
        n->heartbeat_at = now + n->patience.beat;
        for (int r = 0; r < n->world; r++)
            if (r != n->rank && !n->gone[r]) echi_node_send_plain(n, r, ECHI_KIND_HEARTBEAT, ECHI_ROLE_NODE);
    }
    return n->heartbeat_at - now < next ? n->heartbeat_at - now : next;
}

static void judge(struct echi_node *n, int r) {
    struct echi_watched *w = &n->watched[r];
    const int64_t silent = n->fair.now - w->silence.since, bound = echi_silence_bound(&w->silence, &n->patience);
    const uint64_t bytes = echi_wire_bytes_from(n->wire, r);
    /* Under --local all nodes write to one stream: of a link between two others they say it once, when it counts. */
    const enum ech_log_level level = n->rank == 0 || r == 0 ? ECH_LOG_WARN : ECH_LOG_DEBUG;
    const double seconds = (double)silent * 1e-9, limit = (double)bound * 1e-9;
    if (bytes != w->bytes) {
        if (w->late) echi_node_log(n, level, "rank %d is heard again, after %.3g s", r, seconds);
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
        echi_node_log(n, level, "rank %d is late: no word for %.3g s; after %.3g s it counts as lost", r, seconds, limit);
    }
}

void echi_watch_judge(struct echi_node *n) {
    if (!watches(n)) return;
    for (int r = 0; r < n->world && !n->over; r++)
        if (r != n->rank && !n->watched[r].lost && !n->gone[r]) judge(n, r);
}
