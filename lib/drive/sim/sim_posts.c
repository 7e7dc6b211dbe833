/* SPDX-License-Identifier: Apache-2.0
 * Places for payloads: as in net, a payload starts only when its receiver has posted one, and its sender has heard of it. The
 * credit travels for the delay between the two; its bytes are counted and take no time, as it mostly rides with other messages. */
#include "echi_sim.h"
#include "echi_frame.h"
#include "echi_net.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(ECHI_COST_CHUNK == ECHI_NET_CHUNK, "the engine's messages give way where those of net do");
_Static_assert(ECHI_COST_FRAME == ECHI_FRAME_HEADER, "predictions count the bytes of frames as net sends them");

#define ROOM_AT_FIRST 1024
#define RANK_BITS 10
#define KIND_BITS 6
#define NAME_BITS 16
#define UNUSED UINT64_MAX   /* no key: they have fewer bits */
_Static_assert(ECHI_WORLD_MAX <= 1 << RANK_BITS && ECHI_KINDS_MAX <= 1 << KIND_BITS, "each (to, from, kind, name) has a key of its own");

/* --------------------------------------------------------------- channels */

static uint64_t key_of(int from, int to, int kind, int name) {
    return (((uint64_t)to << RANK_BITS | (uint64_t)from) << KIND_BITS | (uint64_t)kind) << NAME_BITS | (uint64_t)name;
}

static struct echi_channel *find(const struct echi_channels *c, uint64_t key) {
    size_t i = key * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (c->room - 1);
    while (c->list[i].key != key && c->list[i].key != UNUSED) i = (i + 1) & (c->room - 1);
    return &c->list[i];
}

static bool grow(struct echi_channels *c) {
    struct echi_channels more = {.count = c->count, .room = c->room ? 2 * c->room : ROOM_AT_FIRST};
    more.list = malloc(more.room * sizeof *more.list);
    if (!more.list) return false;
    for (size_t i = 0; i < more.room; i++) more.list[i].key = UNUSED;
    for (size_t i = 0; i < c->room; i++)
        if (c->list[i].key != UNUSED) *find(&more, c->list[i].key) = c->list[i];
    free(c->list);
    *c = more;
    return true;
}

struct echi_channel *echi_channel_of(struct echi_sim *s, int from, int to, int kind, int name) {
    const uint64_t key = key_of(from, to, kind, name);
    struct echi_channels *c = &s->channels;
    if (2 * c->count >= c->room && !grow(c)) {
        echi_sim_no_memory(s);
        return NULL;
    }
    struct echi_channel *found = find(c, key);
    if (found->key != UNUSED) return found;
    c->count++;
    *found = (struct echi_channel){key, ECHI_NOTHING, ECHI_NOTHING, ECHI_NOTHING, ECHI_NOTHING};
    return found;
}

void echi_channels_free(struct echi_channels *channels) { free(channels->list); }

/* --------------------------------------------------------------- payloads */

uint64_t echi_sim_wire_bytes(size_t meta_len, size_t len) {
    const uint64_t chunks = len > ECHI_NET_CHUNK ? (len + ECHI_NET_CHUNK - 1) / ECHI_NET_CHUNK : 1;
    return chunks * ECHI_FRAME_HEADER + meta_len + len;
}

void echi_sim_count(struct echi_sim *s, const struct echi_transit *f) {
    if (f->from != f->to) s->sent[f->kind] += echi_sim_wire_bytes(f->meta_len, f->len);
}

/* Both slots are this message's from the send and the post on, until SENT and MESSAGE: so one copy will do, at any time between. */
static void copy(const struct echi_sim *s, const struct echi_transit *f) {
    if (!s->real || echi_lends(&s->node[f->to].setup.plan, f->from, f->to, (enum echi_kind)f->kind)) return;
    const uint8_t *from = echi_exec_slot(s->node[f->from].exec, f->slot, NULL);
    uint8_t *to = echi_exec_slot(s->node[f->to].exec, f->place, NULL);
    if (from && to) memcpy(to + f->at, from + f->at, f->len);
}

/* Starts what has a place. */
static void match(struct echi_sim *s, struct echi_channel *c) {
    while (c->post_first != ECHI_NOTHING && c->wait_first != ECHI_NOTHING) {
        const uint32_t id = c->wait_first, place = c->post_first;
        struct echi_transit *f = echi_records_at(&s->transits, id);
        struct echi_post *p = echi_records_at(&s->posts, place);
        const int64_t heard = p->at + echi_cost_delay(s->cost, f->to, f->from);
        c->wait_first = f->next;
        f->place = p->slot;
        copy(s, f);
        echi_sim_count(s, f);
        echi_cost_send(s->cost, f->from, f->to, f->priority, echi_sim_wire_bytes(f->meta_len, f->len), heard, id);
        c->post_first = p->next;
        echi_records_give(&s->posts, place);
    }
}

void echi_sim_wait_for_place(struct echi_sim *s, uint32_t id) {
    struct echi_transit *f = echi_records_at(&s->transits, id);
    struct echi_channel *c = echi_channel_of(s, f->from, f->to, f->kind, f->name);
    if (!c) return;
    f->next = ECHI_NOTHING;
    if (c->wait_first == ECHI_NOTHING) c->wait_first = id;
    else ((struct echi_transit *)echi_records_at(&s->transits, c->wait_last))->next = id;
    c->wait_last = id;
    match(s, c);
}

static void post_named(struct echi_sim *s, int rank, const struct echi_action *a, int name) {
    struct echi_channel *c = echi_channel_of(s, a->to, rank, a->kind, name);
    const uint32_t id = echi_records_take(&s->posts);
    if (!c || id == ECHI_NOTHING) return echi_sim_no_memory(s);
    *(struct echi_post *)echi_records_at(&s->posts, id) = (struct echi_post){.next = ECHI_NOTHING, .slot = a->slot, .at = echi_sim_now(s)};
    if (c->post_first == ECHI_NOTHING) c->post_first = id;
    else ((struct echi_post *)echi_records_at(&s->posts, c->post_last))->next = id;
    c->post_last = id;
    match(s, c);
}

/* Nobody reads any more what a slot has borrowed that is posted. */
static void end_loan(struct echi_sim *s, int rank, struct echi_slot posted) {
    const struct echi_loan ended = echi_loans_end(&s->node[rank].role.loans, posted);
    for (int i = 0; i < ended.messages; i++)
        echi_cost_timer(s->cost, echi_sim_now(s), rank, echi_sim_returns((enum echi_kind)ended.kind, ended.lender));
}

void echi_sim_post(struct echi_sim *s, int rank, const struct echi_action *a) {
    const struct echi_setup *setup = &s->node[rank].setup;
    end_loan(s, rank, a->slot);
    if (s->node[rank].role.gone[a->to]) return;
    if (a->to != rank) s->sent[ECHI_KINDS] += ECHI_FRAME_HEADER;   /* one frame grants all that is posted at once */
    for (int i = 0, posts = echi_posts(setup, a); i < posts; i++) post_named(s, rank, a, echi_posts_part(setup, a, i));
}

/* `rank` and the lost node have this channel no more: places are free, and what it holds from the lost node is gone. */
static void forget_in(struct echi_sim *s, struct echi_channel *c) {
    for (uint32_t id = c->post_first, next; id != ECHI_NOTHING; id = next) {
        next = ((struct echi_post *)echi_records_at(&s->posts, id))->next;
        echi_records_give(&s->posts, id);
    }
    for (uint32_t id = c->wait_first, next; id != ECHI_NOTHING; id = next) {
        next = ((struct echi_transit *)echi_records_at(&s->transits, id))->next;
        echi_sim_free_transit(s, id);
    }
    c->post_first = c->wait_first = ECHI_NOTHING;
}

/* What waits to go to the lost node comes back as sent. */
static void forget_out(struct echi_sim *s, int rank, struct echi_channel *c) {
    for (uint32_t id = c->wait_first, next; id != ECHI_NOTHING; id = next) {
        next = ((struct echi_transit *)echi_records_at(&s->transits, id))->next;
        echi_cost_timer(s->cost, echi_sim_now(s), rank, echi_sim_timer(ECHI_SIM_SENT_BACK, id));
    }
    c->wait_first = ECHI_NOTHING;
}

void echi_sim_forget(struct echi_sim *s, int rank, int lost) {
    const struct echi_channels *all = &s->channels;
    for (int k = 0; k < ECHI_KINDS && all->count > 0; k++) {
        if (!echi_kind_has_payload(k)) continue;
        for (int name = echi_kind_names(k) - 1; name >= 0; name--) {   /* as parts are sent */
            struct echi_channel *in = find(all, key_of(lost, rank, k, name)), *out = find(all, key_of(rank, lost, k, name));
            if (in->key != UNUSED) forget_in(s, in);
            if (out->key != UNUSED) forget_out(s, rank, out);
        }
    }
}
