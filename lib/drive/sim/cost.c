/* SPDX-License-Identifier: Apache-2.0
 * The cost engine: virtual time, and what is due. */
#include "echi_cost_impl.h"
#include "echi_error.h"
#include "echi_random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void echi_cost_due(struct echi_cost *c, int64_t at, enum echi_cost_due kind, uint32_t who, uint64_t what) {
    if (!echi_events_add(&c->events, at > c->now ? at : c->now, kind, who, what)) c->failed = true;
}

uint32_t echi_cost_new(struct echi_cost *c, struct echi_records *pool) {
    const uint32_t id = echi_records_take(pool);
    if (id == ECHI_NOTHING) c->failed = true;
    return id;
}

ech_status echi_cost_create(const struct echi_hosts *hosts, struct echi_cost_io io, const double *io_speed, uint64_t seed,
                            struct echi_cost **out, struct ech_error *err) {
    const size_t n = (size_t)hosts->count;
    struct echi_cost *c = calloc(1, sizeof *c);
    if (!c) return echi_fail_memory(err, "sim.cost", "the cost engine");
    c->hosts = hosts;
    c->seed = seed;
    c->now = 1;
    echi_records_init(&c->works, sizeof(struct echi_work_out));
    echi_records_init(&c->parcels, sizeof(struct echi_parcel));
    c->dead = calloc(n, sizeof *c->dead);
    c->lane = calloc(n, sizeof *c->lane);
    c->link = calloc(n, sizeof *c->link);
    c->pool = calloc((size_t)hosts->pools + 1, sizeof *c->pool);
    bool losses = false, quotas = false;
    for (size_t h = 0; h < n; h++) {
        losses = losses || hosts->host[h].loss > 0;
        quotas = quotas || hosts->host[h].quota > 0;
    }
    if (quotas) c->quota = calloc(n, sizeof *c->quota);
    if (losses) c->in_order = calloc(n * n, sizeof *c->in_order);
    if (!c->dead || !c->lane || !c->link || !c->pool || (losses && !c->in_order) || (quotas && !c->quota)) {
        echi_cost_destroy(c);
        return echi_fail_memory(err, "sim.cost", "the hosts");
    }
    for (int h = 0; h < hosts->count; h++) {
        echi_cost_lane_create(c, h);
        echi_cost_link_create(c, h, io, io_speed ? io_speed[h] : hosts->host[h].speed);
    }
    *out = c;
    return ECH_OK;
}

void echi_cost_destroy(struct echi_cost *c) {
    if (!c) return;
    for (int p = 0; c->pool && p < c->hosts->pools; p++) echi_events_free(&c->pool[p].ends);
    echi_events_free(&c->events);
    free(c->dead);
    free(c->lane);
    free(c->link);
    free(c->pool);
    echi_records_free(&c->works);
    echi_records_free(&c->parcels);
    free(c->in_order);
    free(c->quota);
    free(c);
}

int64_t echi_cost_now(const struct echi_cost *c) { return c->now; }
uint64_t echi_cost_events(const struct echi_cost *c) { return c->happened; }
bool echi_cost_failed(const struct echi_cost *c) { return c->failed; }

void echi_cost_timer(struct echi_cost *c, int64_t at, int host, uint64_t cookie) {
    echi_cost_due(c, at, ECHI_DUE_TIMER, (uint32_t)host, cookie);
}

static bool tell(struct echi_happening *out, enum echi_happening_type type, int host, uint64_t cookie) {
    *out = (struct echi_happening){.type = type, .host = host, .cookie = cookie};
    return true;
}

/* Does what is due; true when the caller is to know. */
static bool happen(struct echi_cost *c, const struct echi_due *due, struct echi_happening *out) {
    const int who = (int)due->who;
    switch ((enum echi_cost_due)due->kind) {
    case ECHI_DUE_TIMER: return tell(out, ECHI_HAPPENS_TIMER, who, due->what);
    case ECHI_DUE_LANE: return echi_cost_lane_due(c, who, (uint32_t)due->what, out);
    case ECHI_DUE_POOL: return echi_cost_pool_due(c, who, (uint32_t)due->what, out);
    case ECHI_DUE_HELD: return echi_cost_held(c, who) && tell(out, ECHI_HAPPENS_HELD, who, 0);
    case ECHI_DUE_QUEUE: return echi_cost_link_queue(c, due->who, out);
    case ECHI_DUE_OUT: return echi_cost_link_out(c, who, (uint32_t)due->what, out);
    case ECHI_DUE_IN: echi_cost_link_in(c, due->who); return false;
    case ECHI_DUE_IN_PART: echi_cost_link_in_part(c, who, due->what, due->at); return false;
    case ECHI_DUE_ARRIVED: return echi_cost_link_arrived(c, due->who, out);
    case ECHI_DUE_SELF_SENT: return !c->dead[who] && tell(out, ECHI_HAPPENS_SENT, who, due->what);
    }
    return false;
}

bool echi_cost_next(struct echi_cost *c, struct echi_happening *out) {
    struct echi_due due;
    while (!c->failed && echi_events_take(&c->events, &due)) {
        c->now = due.at;
        c->happened++;
        if (happen(c, &due, out)) return true;
    }
    return false;
}

void echi_cost_kill(struct echi_cost *c, int host) {
    if (c->dead[host]) return;
    c->dead[host] = true;
    echi_cost_lane_kill(c, host);
    echi_cost_link_kill(c, host);
}

/* ------------------------------------------------------ random numbers */

static double unit(const uint32_t word[2]) { return (double)((uint64_t)(word[0] >> 5) << 26 | word[1] >> 6) * 0x1p-53; }

double echi_cost_step_factor(const struct echi_cost *c, int host, uint64_t step) {
    const struct echi_host *h = &c->hosts->host[host];
    uint32_t word[4];
    double factor = 1;
    if (h->jitter > 0) {   /* Box and Muller */
        echi_random4(c->seed, ECHI_STREAM_STEP_TIME, (uint32_t)host, 2 * step, word);
        factor = exp(h->jitter * sqrt(-2 * log(1 - unit(word))) * cos(6.283185307179586476925 * unit(word + 2)));
    }
    if (h->stutter > 0) {
        echi_random4(c->seed, ECHI_STREAM_STEP_TIME, (uint32_t)host, 2 * step + 1, word);
        if (unit(word) < h->stutter) factor *= h->stutter_factor;
    }
    return factor;
}
