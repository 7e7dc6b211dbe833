/* SPDX-License-Identifier: Apache-2.0
 * Which connection a slow link carries first. TCP would give each of them a like part of it, so that two messages of like urgency both
 * arrive when both are through, and what is less urgent takes a part from what is waited for. Here the most urgent large message has the
 * way out, whoever it goes to, and the others what it leaves; small ones wait for nobody. */
#include "echi_net_impl.h"
#include "echi_os.h"

/* So many ns a peer is seen to take a message before it is judged. At first the link still carries what sockets held of another's, for 8 ms
 * and more: of looks of 50 ms on hosts with half a core some found 0.6 and 0.7 of the link where nobody else sent. */
#define LOOK 100000000LL
/* Of the link's rate: whom two looks in a row find to take less is held up elsewhere, and others send as well, for so many ns at first, and
 * twice as long each time that it is found again. */
#define FILLS 0.6
#define SLOW_LEAST 1000000000LL
#define SLOW_MOST 16000000000LL

/* The peer with the most urgent large message, of equals the oldest; -1: nobody has one that may go. */
static int most_urgent(const struct echi_net *net) {
    const struct echi_message *first = NULL;
    int peer = -1;
    for (int i = 0; i < net->world; i++) {
        const struct echi_message *m = net->peers[i].conn && !net->peers[i].conn->mute ? echi_queue_first(&net->peers[i].queue) : NULL;
        if (!m || m->len - m->at <= net->way_out.small || (first && !echi_message_before(m, first))) continue;
        first = m;
        peer = i;
    }
    return peer;
}

static void judge(struct echi_net *net, struct echi_peer *peer, int64_t now) {
    struct echi_way_out *way = &net->way_out;
    const bool fills = (double)way->put * 1e9 >= FILLS * way->rate * (double)(now - way->since);
    if (fills) peer->slow_for = 0;
    way->doubted = !fills && !way->doubted;
    if (fills || way->doubted) return;
    peer->slow_for = peer->slow_for == 0 ? SLOW_LEAST : peer->slow_for < SLOW_MOST / 2 ? 2 * peer->slow_for : SLOW_MOST;
    peer->slow_until = now + peer->slow_for;
}

bool echi_way_out_look(struct echi_net *net) {
    struct echi_way_out *way = &net->way_out;
    if (way->rate <= 0) return false;
    const int64_t now = echi_now();
    const int peer = most_urgent(net), before = way->peer;
    const bool stays = peer == before && !way->shared;
    if (stays && peer >= 0 && now - way->since >= LOOK) judge(net, &net->peers[peer], now);
    way->peer = peer;
    /* A clock that has gone back must not leave a peer slow for ever. */
    way->shared = peer >= 0 && net->peers[peer].slow_until > now && net->peers[peer].slow_until - now <= SLOW_MOST;
    if (!stays) way->doubted = false;
    if (!stays || now < way->since || now - way->since >= LOOK) {
        way->since = now;
        way->put = 0;
    }
    return peer != before;
}

size_t echi_way_out_most(const struct echi_net *net, int rank) {
    const struct echi_way_out *way = &net->way_out;
    return way->rate <= 0 || way->peer < 0 || way->peer == rank || way->shared ? SIZE_MAX : way->small;
}

void echi_way_out_put(struct echi_net *net, int rank, size_t bytes) {
    if (rank >= 0 && rank == net->way_out.peer) net->way_out.put += bytes;
}

int64_t echi_way_out_next(const struct echi_net *net) {
    const struct echi_way_out *way = &net->way_out;
    return way->rate <= 0 || way->peer < 0 || way->shared ? INT64_MAX : way->since + LOOK;
}
