/* SPDX-License-Identifier: Apache-2.0
 * Which link held up what a run saw. A window says what one end got through to another: at most what either link carries, and where an end
 * serves several at once, at most a share of it. So a rate above the one of the start is the link's; one below it only if what goes the
 * same way elsewhere shows that the other end would have let more through. */
#include "echi_follow.h"

/* Times less than others get, as of a thin link when a plan is made. Whoever shares with two others while one has all for itself gets no
 * less. */
#define THIRD 3.0

static struct echi_rate fresh(const struct echi_seen *s, int64_t now) {
    return now - s->at <= ECHI_SEEN_FRESH ? echi_seen_rate(s) : (struct echi_rate){0};
}

static const struct echi_seen *way_of(const struct echi_follow *f, int rank, bool in) {
    return in ? &f->host[rank].in : &f->host[rank].out;
}

/* Does `rank` send gradients to `server`, over a link? group -1: rows and their gradients, to its head. */
static bool is_client(const struct echi_plan *p, int rank, int server, int group) {
    if (rank == server || p->lost[rank] || p->group_of[rank] == ECHI_NONE) return false;
    return group < 0 ? echi_plan_head_rank(p, p->head_of[rank]) == server : p->group_of[rank] == group;
}

static int clients_of(const struct echi_plan *p, int server, int group) {
    int count = 0;
    for (int r = 0; r < p->world; r++) count += is_client(p, r, server, group);
    return count;
}

static bool is_head(const struct echi_plan *p, int rank) { return echi_plan_head_index(p, rank) >= 0; }

static bool serves(const struct echi_plan *p, int rank) {
    const int group = echi_plan_group_owned(p, rank);
    return (is_head(p, rank) && clients_of(p, rank, -1) > 0) || (group >= 0 && clients_of(p, rank, group) > 0);
}

/* What a worker's owner lets through this way, at least: what any other of its workers gets, and a fair share of what the owner takes in
 * from all of them. */
static double let_through(const struct echi_follow *f, const struct echi_plan *p, int rank, bool in, int64_t now) {
    const int group = p->group_of[rank], owner = p->owner_of[group];
    const double of_all = fresh(way_of(f, owner, !in), now).rate;
    double most = in ? of_all : of_all / clients_of(p, owner, group);
    for (int r = 0; r < p->world; r++) {
        if (r == rank || !is_client(p, r, owner, group)) continue;
        const double rate = fresh(way_of(f, r, in), now).rate;
        if (rate > most) most = rate;
    }
    return most;
}

static struct echi_rate of_worker(const struct echi_follow *f, const struct echi_plan *p, int rank, bool in, struct echi_rate joined,
                                  int64_t now) {
    const struct echi_rate seen = fresh(way_of(f, rank, in), now);
    if (seen.rate > joined.rate) return seen;
    return seen.rate > 0 && THIRD * seen.rate < let_through(f, p, rank, in, now) ? seen : joined;
}

/* All at once do not become slow, so what several get through to a server, and each could by itself, is the server's. */
static struct echi_rate of_server(const struct echi_follow *f, const struct echi_plan *p, int rank, const struct echi_times *workers,
                                  struct echi_rate joined, int64_t now) {
    const struct echi_rate seen = fresh(&f->host[rank].in, now);
    const int group = is_head(p, rank) ? -1 : echi_plan_group_owned(p, rank);
    double least = 0;
    if (seen.rate > joined.rate) return seen;
    for (int r = 0; r < p->world; r++)
        if (is_client(p, r, rank, group) && (least == 0 || workers[r].link.out.rate < least)) least = workers[r].link.out.rate;
    return seen.rate > 0 && clients_of(p, rank, group) > 1 && THIRD * seen.rate < least ? seen : joined;
}

void echi_follow_links(const struct echi_follow *f, const struct echi_plan *p, const struct echi_times *times, int64_t now,
                       struct echi_times *out) {
    for (int r = 0; r < p->world; r++) {
        out[r].link = times[r].link;
        if (p->lost[r] || p->group_of[r] == ECHI_NONE || serves(p, r) || p->owner_of[p->group_of[r]] == r) continue;
        out[r].link.out = of_worker(f, p, r, false, times[r].link.out, now);
        out[r].link.in = of_worker(f, p, r, true, times[r].link.in, now);
    }
    for (int r = 0; r < p->world; r++)
        if (!p->lost[r] && serves(p, r)) out[r].link.in = of_server(f, p, r, out, times[r].link.in, now);
}
