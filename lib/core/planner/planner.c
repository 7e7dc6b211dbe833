/* SPDX-License-Identifier: Apache-2.0
 * The planner: who computes, who owns what, and how many samples each takes. */
#include "echi_message.h"
#include "echi_planner.h"
#include "echi_ratio.h"

#include <stddef.h>
#include <string.h>

/* Within a group nobody waits long when the slowest is at most this much slower than the fastest: with S = 3 the bound
 * then bites only after a dozen steps of drift, which jitter undoes. */
#define GROUP_RATIO 1.25
/* A head node's worker that would keep less than this part of its node is more trouble than help. */
#define LEAST_LEFT 0.10
/* "Efficient": this part of the best rate, when each step costs its arithmetic and its messages. */
#define EFFICIENT 0.85
/* All workers' samples under way, in rounds, at most: more of them are staler. Where every node trains all layers: 2. With
 * layer separation only the trunk is stale: 3; LeNet-5 on four nodes reached 98.5 % in 1.0 to 1.6 epochs with 1 round under way, 1.4 to
 * 1.9 (median 1.65 of seven seeds) with 2.75, and the long steps cost a fifth less than the short ones. */
#define MOST_ROUNDS_IN_FLIGHT 2
#define MOST_ROUNDS_BESIDE_HEAD 3
/* Two step times are a tie when the shorter is at least this part of the longer: measuring at start, on machines that do other
 * things besides, tells no smaller difference. */
#define TIE 0.9
/* Kernels take samples in vectors of up to so many: steps beside a head are whole blocks. */
#define BLOCK 16

static ech_status refuse(char *text, size_t cap, const char *sentence) {
    size_t len = strlen(sentence);
    if (cap == 0) return ECH_E_ARGUMENT;
    if (len >= cap) len = cap - 1;
    memcpy(text, sentence, len);
    text[len] = 0;
    return ECH_E_ARGUMENT;
}

/* With a number from 0 to 9 in it. */
static ech_status refuse_number(char *text, size_t cap, const char *before, int number, const char *behind) {
    char sentence[200];
    size_t len = strlen(before);
    memcpy(sentence, before, len);
    sentence[len++] = (char)('0' + number);
    memcpy(sentence + len, behind, strlen(behind) + 1);
    return refuse(text, cap, sentence);
}

/* Seconds of a step of n samples of the i-th of those who share. */
typedef double (*seconds_of)(const void *self, int i, uint32_t n);

/* Most samples, up to `most`, whose step takes at most `seconds`. Taken from above, because measured times may dip. */
static uint32_t samples_within(seconds_of takes, const void *self, int i, double seconds, uint32_t most) {
    if (takes(self, i, most) <= seconds) return most;
    uint32_t low = 0, high = most;   /* low fits, high does not */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (takes(self, i, middle) <= seconds) low = middle;
        else high = middle;
    }
    return low;
}

static void shares_by_speed(seconds_of takes, const void *self, int count, uint32_t batch, uint32_t *out_n) {
    double low = 0, high = takes(self, 0, batch);   /* high is always enough for all samples */
    for (int step = 0; step < 60; step++) {
        double middle = (low + high) / 2;
        uint64_t sum = 0;
        for (int i = 0; i < count && sum < batch; i++) sum += samples_within(takes, self, i, middle, batch);
        if (sum >= batch) high = middle;
        else low = middle;
    }
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) sum += out_n[i] = samples_within(takes, self, i, high, batch);
    /* Too many is as fast: take the surplus from the slowest, who then hold up nobody. */
    while (sum > batch) {
        int slowest = -1;
        for (int i = 0; i < count; i++)
            if (out_n[i] && (slowest < 0 || takes(self, i, batch) > takes(self, slowest, batch))) slowest = i;
        uint32_t surplus = (uint32_t)(sum - batch), take = out_n[slowest] < surplus ? out_n[slowest] : surplus;
        out_n[slowest] -= take;
        sum -= take;
    }
}

static double as_measured(const void *times, int i, uint32_t n) { return echi_times_whole((const struct echi_times *)times + i, n); }

void echi_shares_by_speed(const struct echi_times *times, int count, uint32_t batch, uint32_t *out_n) {
    shares_by_speed(as_measured, times, count, batch, out_n);
}

/* A run does not outlive rank 0. So on a tie rank 0 also gets what a run does not outlive the loss of: one such rank, not two. Unless it is
 * predicted what a plan without it would be. */
static int or_rank0(const struct echi_plan_request *w, const struct echi_times *times, int best, uint32_t n) {
    return !w->absent[0] && echi_times_whole(&times[best], n) >= TIE * echi_times_whole(&times[0], n) ? 0 : best;
}

/* Of the ranks from `first` on; the last, if all are absent. */
static int fastest_from(int first, const struct echi_plan_request *w, const struct echi_times *times, uint32_t n) {
    int best = first;
    while (best + 1 < w->world && w->absent[best]) best++;
    for (int r = best + 1; r < w->world; r++)
        if (!w->absent[r] && echi_times_whole(&times[r], n) < echi_times_whole(&times[best], n)) best = r;
    return best;
}
static int fastest(const struct echi_plan_request *w, const struct echi_times *times, uint32_t n) {
    return or_rank0(w, times, fastest_from(0, w, times, n), n);
}

/* Where the head goes, and the owner of its group. */
static int home_of(const struct echi_plan_request *w, const struct echi_times *times, uint32_t n) {
    return w->home ? w->home - 1 : fastest(w, times, n);
}

/* With a shadow the head goes where it may be lost: not to rank 0, nor, under a policy with one owner, to that. */
static int head_of(const struct echi_plan_request *w, const struct echi_times *times, int home) {
    if (!w->shadow || home != 0) return home;
    const int best = fastest_from(1, w, times, 64);
    return w->absent[best] ? home : best;
}

int echi_plan_best_shadow(const struct echi_times times[ECHI_WORLD_MAX], int world, const bool but[ECHI_WORLD_MAX], uint32_t round) {
    int best = -1;
    for (int r = 0; r < world; r++)
        if (!but[r] && (best < 0 || echi_times_head(&times[r], round) < TIE * echi_times_head(&times[best], round))) best = r;
    return best;
}

/* -1: none shall be. */
static int shadow_of(const struct echi_plan_request *w, const struct echi_times *times, int head, uint32_t round) {
    bool but[ECHI_WORLD_MAX];
    for (int r = 0; r < w->world; r++) but[r] = !w->shadow || r == head || w->absent[r];
    return echi_plan_best_shadow(times, w->world, but, round);
}

/* Seconds in which the head's link carries the rows of n samples and, the other way, their gradients; 0: not known, or without a bound. */
static double rows_on_link(const struct echi_plan_request *w, const struct echi_times *head, uint32_t n) {
    const double in = head->link.in.rate > 0 ? w->load.row / head->link.in.rate : 0;
    const double out = head->link.out.rate > 0 ? w->load.row_grad / head->link.out.rate : 0;
    return n * (in > out ? in : out);
}

/* ---- several heads ---- */

/* Seconds of a round's rows at a node: its arithmetic, or its link. */
static double rows_at_head(const struct echi_plan_request *w, const struct echi_times *t, uint32_t n) {
    const double link = rows_on_link(w, t, n), computed = echi_times_head(t, n);
    return link > computed ? link : computed;
}

/* Beside the first head those who train an equal part of a round's rows the soonest. */
static void choose_heads(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan) {
    const uint32_t n = plan->round / (uint32_t)w->heads;
    plan->head_rank[plan->heads++] = plan->head;
    while (plan->heads < w->heads) {
        int best = -1;
        for (int r = 0; r < w->world; r++) {
            if (w->absent[r] || echi_plan_head_index(plan, r) >= 0) continue;
            if (best < 0 || rows_at_head(w, &times[r], n) < TIE * rows_at_head(w, &times[best], n)) best = r;
        }
        if (best < 0) return;
        plan->head_rank[plan->heads++] = (uint16_t)best;
    }
}

/* Of a round: what its workers have, or before that is known an equal part. */
static uint32_t rows_of_head(const struct echi_plan *plan, int rank) {
    uint32_t rows = 0;
    if (plan->heads == 0) return plan->round;
    for (int r = 0; r < plan->world; r++) rows += echi_plan_head_rank(plan, plan->head_of[r]) == rank ? plan->n[r] : 0;
    return rows > 0 ? rows : plan->round / plan->heads;
}

/* Of the workers that have no head yet the one with the most samples; -1: all have one. */
static int largest_without(const struct echi_plan *plan, const bool *has) {
    int most = -1;
    for (int r = 0; r < plan->world; r++)
        if (plan->n[r] > 0 && !has[r] && (most < 0 || plan->n[r] > plan->n[most])) most = r;
    return most;
}

/* Each worker's rows go to the head of its own node, or to the one that is done with them the soonest, the largest share first; but each
 * head gets some worker's. False: there are more heads than workers. */
static bool deal_heads(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan) {
    bool has[ECHI_WORLD_MAX] = {false};
    uint32_t load[ECHI_HEADS_MAX] = {0};
    int left = 0, empty = plan->heads;
    for (int r = 0; r < plan->world; r++) left += plan->n[r] > 0;
    if (left < plan->heads) return false;
    for (int r = 0; r < plan->world; r++) {
        const int own = plan->n[r] > 0 ? echi_plan_head_index(plan, r) : -1;
        if (own < 0) continue;
        has[r] = true;
        plan->head_of[r] = (uint8_t)own;
        load[own] = plan->n[r];
        left--;
        empty--;
    }
    for (int r; (r = largest_without(plan, has)) >= 0; left--) {
        double soonest = 0;
        int best = -1;
        for (int h = 0; h < plan->heads; h++) {
            const double takes = rows_at_head(w, &times[plan->head_rank[h]], load[h] + plan->n[r]);
            if ((left == empty && load[h] > 0) || (best >= 0 && takes >= soonest)) continue;
            best = h;
            soonest = takes;
        }
        empty -= load[best] == 0;
        load[best] += plan->n[r];
        plan->head_of[r] = (uint8_t)best;
        has[r] = true;
    }
    return true;
}

/* The worker of a head that gives a sample away, or gets one within so many seconds of a step; -1: none may. */
static int giver(const struct echi_plan *plan, int head) {
    int most = -1;
    for (int r = 0; r < plan->world; r++)
        if (plan->n[r] > 1 && plan->head_of[r] == head && (most < 0 || plan->n[r] > plan->n[most])) most = r;
    return most;
}
static int taker(const struct echi_plan *plan, const struct echi_times *times, int head, double seconds) {
    int least = -1;
    for (int r = 0; r < plan->world; r++)
        if (plan->n[r] > 0 && plan->head_of[r] == head && echi_times_trunk(&times[r], plan->n[r] + 1) <= seconds &&
            (least < 0 || plan->n[r] < plan->n[least])) least = r;
    return least;
}

/* Samples go from workers of the head that takes the longest to workers of the one that is done the soonest, as long as the round's rows
 * are done sooner and no worker's step becomes longer than the longest. */
static void even_heads_out(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan) {
    double longest = 0;
    for (int r = 0; r < plan->world; r++) {
        const double takes = plan->n[r] > 0 ? echi_times_trunk(&times[r], plan->n[r]) : 0;
        longest = takes > longest ? takes : longest;
    }
    for (uint32_t moved = 0; moved < plan->round; moved++) {
        uint32_t load[ECHI_HEADS_MAX] = {0};
        double takes[ECHI_HEADS_MAX];
        int last = 0, first = 0;
        for (int r = 0; r < plan->world; r++) load[plan->head_of[r]] += plan->n[r];
        for (int h = 0; h < plan->heads; h++) {
            takes[h] = rows_at_head(w, &times[plan->head_rank[h]], load[h]);
            last = takes[h] > takes[last] ? h : last;
            first = takes[h] < takes[first] ? h : first;
        }
        const int from = giver(plan, last), to = taker(plan, times, first, longest);
        if (from < 0 || to < 0 || !(rows_at_head(w, &times[plan->head_rank[first]], load[first] + 1) < takes[last])) return;
        plan->n[from]--;
        plan->n[to]++;
    }
}

/* Samples a second of steps of the i-th measured size. */
static double step_rate(const struct echi_times *t, uint32_t i) { return t->n[i] / (t->trunk[i] + t->head[i] + t->messages); }

/* Where every node trains all layers: the smallest measured n at which the fastest is efficient, since small steps keep
 * staleness low. */
static uint32_t efficient_samples(const struct echi_times *t, uint32_t round, int workers) {
    double best = 0;
    for (uint32_t i = 0; i < t->count; i++)
        if (step_rate(t, i) > best) best = step_rate(t, i);
    uint32_t most = MOST_ROUNDS_IN_FLIGHT * round / (uint32_t)workers;
    uint32_t chosen = t->n[0];
    for (uint32_t i = 0; i < t->count && (t->n[i] <= most || i == 0); i++) {
        chosen = t->n[i];
        if (step_rate(t, i) >= EFFICIENT * best) break;
    }
    return chosen;
}

/* Seconds of a step of n samples at the head: their forward and backward, the update of its layers, which are most of the model, and of its
 * rows and their gradients the bytes and messages. Where nobody has measured an update it takes as long as an exchange. */
static double seconds_at_head(const struct echi_plan_request *w, const struct echi_times *head, uint32_t n) {
    const double model = (double)w->load.trunk + w->load.head, rows = (double)n * ((double)w->load.row + w->load.row_grad);
    const double bytes = head->add > 0 && model > 0 ? (head->exchange - head->add) * rows / model : 0;
    return echi_times_head(head, n) + (head->update > 0 ? head->update : head->exchange) + bytes + head->messages;
}

/* Seconds of a worker's step of n samples on the head's node, once all workers' rows have been through the head there.
 * Rates r_i = 1 / t_i of the others, in steps a second, no more than the head's link carries, and head cost c per step:
 * r_h t_h = 1 - (sum r_i + r_h) c. Negative when the head leaves too little. */
static double seconds_beside_head(const struct echi_plan_request *w, const struct echi_times *times, int head, uint32_t n) {
    double cost = seconds_at_head(w, &times[head], n);
    double own = echi_times_trunk(&times[head], n), others = 0;
    for (int r = 0; r < w->world; r++)
        if (r != head && !w->absent[r]) others += 1 / (echi_times_trunk(&times[r], n) + times[r].messages);
    const double link = rows_on_link(w, &times[head], n);
    if (link > 0 && others > 1 / link) others = 1 / link;
    double rate = (1 - others * cost) / (own + cost);
    return rate * own < LEAST_LEFT ? -1 : 1 / rate;
}

/* What a round takes on a node that is given so many samples: its layers of them, a push and weights back, at an only owner those of all
 * workers, where owners share them about as much again, and at the head the whole round's rows, as far as they count. `owners` as in the
 * plan request. */
static void bsp_times(const struct echi_times *times, const struct echi_plan *plan, int owners, double beside_head, int rank, int workers,
                      struct echi_times *out) {
    const int exchanges = owners > 1 ? 2 : rank == plan->owner_of[0] ? workers : 1;
    memcpy(out, times, offsetof(struct echi_times, exchange));   /* without its units' shares: thousands of these are asked for */
    for (uint32_t i = 0; i < out->count; i++) {
        if (plan->cut && !echi_plan_hosts(plan, rank, ECHI_ROLE_HEAD)) out->head[i] = 0;
        else if (plan->cut) out->head[i] = (1 - beside_head) * echi_times_head(times, rows_of_head(plan, rank));
        else out->head[i] += 2 * times->exchange * exchanges;
    }
}

/* Those who share a round: ranks and their times; there is no room for a copy of all times. */
struct sharers { const struct echi_times *times; const struct echi_plan *plan; const int *rank; int owners, workers; double beside_head; };
static double in_round(const void *self, int i, uint32_t n) {
    const struct sharers *s = self;
    struct echi_times t;
    bsp_times(&s->times[s->rank[i]], s->plan, s->owners, s->beside_head, s->rank[i], s->workers, &t);
    return echi_times_whole(&t, n);
}

/* The same of those whose leases have a largest size: a share that is larger takes too long, the longer the slower. */
#define TOO_LONG 1e6
static double in_room(const void *self, int i, uint32_t n) {
    const struct sharers *s = self;
    return in_round(self, i, n) + (n > echi_plan_room(s->plan, s->rank[i]) ? TOO_LONG : 0);
}

void echi_shares_of_round(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], uint32_t out_n[ECHI_WORLD_MAX]) {
    uint32_t n[ECHI_WORLD_MAX];
    int rank[ECHI_WORLD_MAX], workers = 0, most = 0;
    for (int r = 0; r < plan->world; r++)
        if (plan->group_of[r] != ECHI_NONE) rank[workers++] = r;
    memset(out_n, 0, plan->world * sizeof *out_n);
    if (workers == 0) return;
    shares_by_speed(in_room, &(struct sharers){times, plan, rank, plan->shards, workers, 0}, workers, plan->round, n);
    for (int i = 1; i < workers; i++)
        if (n[i] > n[most]) most = i;
    for (int i = 0; i < workers; i++) {   /* no worker loses its part in rounds */
        n[most] -= n[i] == 0;
        n[i] += n[i] == 0;
    }
    for (int i = 0; i < workers; i++) out_n[rank[i]] = n[i];
}

/* The shares nearest to n[0..world) that are whole reduction blocks: what is cut off goes where most was. */
static void whole_blocks(uint32_t *n, int world) {
    uint32_t rest[ECHI_WORLD_MAX], cut_off = 0;
    for (int r = 0; r < world; r++) {
        cut_off += rest[r] = n[r] % ECHI_REDUCTION_BLOCK;
        n[r] -= rest[r];
    }
    for (; cut_off >= ECHI_REDUCTION_BLOCK; cut_off -= ECHI_REDUCTION_BLOCK) {
        int most = 0;
        for (int r = 1; r < world; r++)
            if (rest[r] > rest[most]) most = r;
        n[most] += ECHI_REDUCTION_BLOCK;
        rest[most] = 0;
    }
}

/* Leaves the `most` fastest of rank[count], rank 0 among them where it is nearly as fast, by a step of an equal share. */
static int fastest_of(const struct echi_plan_request *w, const struct echi_times *times, int *rank, int count, int most) {
    const uint32_t round = echi_plan_request_round(w), n = round / (uint32_t)most > 0 ? round / (uint32_t)most : 1;
    for (; count > most; count--) {
        int slowest = 0;
        double longest = 0;
        for (int i = 0; i < count; i++) {
            const double seconds = echi_times_whole(&times[rank[i]], n) * (rank[i] == 0 ? TIE : 1);
            if (!(seconds >= longest)) continue;
            longest = seconds;
            slowest = i;
        }
        memmove(rank + slowest, rank + slowest + 1, (size_t)(count - 1 - slowest) * sizeof *rank);
    }
    return count;
}

static ech_status bsp_shares(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan, char *text,
                             size_t cap) {
    uint32_t n[ECHI_WORLD_MAX] = {0}, some[ECHI_WORLD_MAX];
    int rank[ECHI_WORLD_MAX], here = 0;
    for (int r = 0; r < w->world; r++)
        if (!w->absent[r]) rank[here++] = r;
    if (w->shares == ECHI_SHARES_LIST) {
        uint64_t sum = 0;
        for (int r = 0; r < w->world; r++) sum += n[r] = w->share[r];
        for (int r = 0; r < w->world; r++)
            if (w->absent[r] && n[r] > 0) return refuse(text, cap, "a node that has a share in --shares was lost before training began");
        if (sum != plan->round) return refuse(text, cap, "under --sync bsp the numbers of --shares must add up to --batch");
    } else if (w->shares == ECHI_SHARES_EQUAL) {
        if ((uint32_t)w->world > plan->round)
            return refuse(
                text, cap,
                "--sync bsp --shares equal needs at least one sample for each node: raise --batch to the number of nodes");
        for (int i = 0; i < here; i++)
            n[rank[i]] = plan->round / (uint32_t)here + ((uint32_t)i < plan->round % (uint32_t)here);
    } else {
        if (w->workers > 0) here = fastest_of(w, times, rank, here, w->workers);
        /* The owner's work depends on how many workers there are, and they on it: the second pass knows the first's. */
        int workers = here;
        for (int pass = 0; pass < 2; pass++) {
            shares_by_speed(in_round, &(struct sharers){times, plan, rank, w->shards, workers, w->beside_head}, here, plan->round, some);
            workers = 0;
            for (int i = 0; i < here; i++) workers += (n[rank[i]] = some[i]) > 0;
        }
    }
    if (w->deterministic) {
        bool whole = plan->round % ECHI_REDUCTION_BLOCK == 0;
        for (int r = 0; r < w->world; r++) whole = whole && (w->shares != ECHI_SHARES_LIST || n[r] % ECHI_REDUCTION_BLOCK == 0);
        if (!whole)
            return refuse(text, cap,
                          "--deterministic deals samples in reduction blocks of 4: 4 must divide --batch and each number of --shares");
        whole_blocks(n, w->world);
    }
    for (int r = 0; r < w->world; r++) {
        plan->n[r] = n[r];
        plan->group_of[r] = n[r] ? 0 : ECHI_NONE;
    }
    return ECH_OK;
}

/* Steps of about the same length: as many samples as a worker is fast (rates in samples a second), in whole blocks. A slow
 * node's gradients are then not staler than the others', who would else pass it many times in a step. */
static void samples_by_speed(const double *rate, double under_way, struct echi_plan *plan) {
    double all = 0;
    for (int r = 0; r < plan->world; r++) all += rate[r];
    const double seconds = (under_way > 0 ? under_way : MOST_ROUNDS_BESIDE_HEAD) * plan->round / plan->flights / all;
    for (int r = 0; r < plan->world; r++) {
        if (rate[r] <= 0) continue;
        const double blocks = rate[r] * seconds / BLOCK + 0.5, most = plan->round / BLOCK;
        plan->n[r] = BLOCK * (blocks < 1 || most < 1 ? 1 : (uint32_t)(blocks < most ? blocks : most));
    }
}

static void owners_by_link(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan) {
    bool but[ECHI_WORLD_MAX];
    for (int g = 0; g < plan->n_groups; g++) {
        for (int r = 0; r < plan->world; r++) but[r] = plan->group_of[r] != g;
        plan->owner_of[g] = (uint16_t)echi_plan_best_link(w, times, but);
    }
}

static void async_groups(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan) {
    const bool by_speed = plan->cut && w->samples_per_step == 0 && w->shares != ECHI_SHARES_LIST;
    const uint32_t n = w->samples_per_step ? w->samples_per_step
                       : plan->cut ? plan->round
                                         : efficient_samples(&times[fastest(w, times, 64)], plan->round, w->world);
    double rate[ECHI_WORLD_MAX] = {0};
    double value[ECHI_WORLD_MAX];
    uint16_t rank[ECHI_WORLD_MAX];
    int group[ECHI_WORLD_MAX], count = 0;
    for (int r = 0; r < w->world; r++) {
        if (w->absent[r]) continue;
        uint32_t own = w->shares == ECHI_SHARES_LIST ? w->share[r] : n;
        double seconds = own == 0 ? -1 : !plan->cut ? echi_times_whole(&times[r], own)
                         : echi_plan_hosts(plan, r, ECHI_ROLE_HEAD) ? seconds_beside_head(w, times, r, own)
                                                                    : echi_times_trunk(&times[r], own);
        if (w->world == 1 && own) seconds = echi_times_whole(&times[r], own);
        if (seconds <= 0) continue;
        plan->n[r] = own;
        rate[r] = own / seconds;
        int at = count++;
        for (; at > 0 && value[at - 1] > seconds; at--) {
            value[at] = value[at - 1];
            rank[at] = rank[at - 1];
        }
        value[at] = seconds;
        rank[at] = (uint16_t)r;
    }
    if (by_speed) samples_by_speed(rate, w->under_way, plan);
    plan->n_groups = 1;
    memset(group, 0, sizeof group);
    if (w->sync == ECHI_SYNC_GSSP && w->groups == 0) {
        plan->n_groups = (uint8_t)echi_cluster_auto(value, count, GROUP_RATIO, ECHI_GROUPS_MAX, group);
    } else if (w->sync == ECHI_SYNC_GSSP) {
        plan->n_groups = (uint8_t)(w->groups < count ? w->groups : count);
        echi_cluster(value, count, plan->n_groups, group);
    }
    /* Values ascend, so a group's first member is its fastest: its owner. */
    for (int i = count - 1; i >= 0; i--) {
        plan->group_of[rank[i]] = (uint8_t)group[i];
        plan->owner_of[group[i]] = rank[i];
    }
    if (w->owners == ECHI_OWNERS_OTHER) owners_by_link(w, times, plan);
    const bool home = plan->n_groups == 1 && w->home && plan->group_of[w->home - 1] != ECHI_NONE;
    if (home) plan->owner_of[0] = (uint16_t)(w->home - 1);
    if (home || w->owners == ECHI_OWNERS_OTHER || plan->group_of[0] == ECHI_NONE) return;
    uint16_t *owner = &plan->owner_of[plan->group_of[0]];
    *owner = (uint16_t)or_rank0(w, times, *owner, n < 64 ? n : 64);
}

/* `asp`: gradients in proportion to the time that a step takes there (Rescaled ASGD, arXiv 2605.13434): each worker then moves the
 * weights by as much a second, and the samples of the fast ones do not outweigh the others'. Over all pushes a sample counts for
 * lr / B in the mean, as without: a step of t_r seconds is weighted with t_r (sum 1 / t) / workers. */
static void weigh_by_time(const struct echi_times *times, struct echi_plan *plan) {
    double rate = 0;   /* steps a second of all */
    int workers = 0;
    for (int r = 0; r < plan->world; r++) {
        if (plan->n[r] == 0) continue;
        rate += 1 / echi_times_whole(&times[r], plan->n[r]);
        workers++;
    }
    for (int r = 0; r < plan->world; r++) {
        if (plan->n[r] == 0) continue;
        const double divisor = (double)plan->round * workers / (rate * echi_times_whole(&times[r], plan->n[r])) + 0.5;
        plan->divisor[r] = divisor < 1 ? 1 : (uint32_t)(divisor < 0x1p24 ? divisor : 0x1p24);
    }
}

/* `local`: rounds take about as long everywhere: H_i steps of t_i seconds, in the mean over the workers as many as wished. */
static void steps_by_speed(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan) {
    double rate = 0;   /* steps a second of all */
    int workers = 0;
    for (int r = 0; r < w->world; r++) {
        if (plan->n[r] == 0) continue;
        rate += 1 / echi_times_whole(&times[r], plan->n[r]);
        workers++;
    }
    const double seconds = (double)w->inner_steps * workers / rate;
    for (int r = 0; r < w->world; r++) {
        if (plan->n[r] == 0) continue;
        const double steps = seconds / echi_times_whole(&times[r], plan->n[r]) + 0.5;
        plan->inner[r] = steps < 1 ? 1 : steps > ECHI_INNER_MAX ? ECHI_INNER_MAX : (uint32_t)steps;
    }
}

/* Two steps in flight hide what a worker waits for, but steps are shorter: worth it where a step of a round's samples
 * is longer away, at the head and in messages, than it is computed here. Not for a slow link's sake: what is gained there costs twice the
 * staleness. */
static int flights_beside_head(const struct echi_plan_request *w, const struct echi_times *fast, uint32_t n) {
    return seconds_at_head(w, fast, n) > echi_times_trunk(fast, n) ? ECHI_FLIGHTS : 1;
}

const char *echi_plan_steps_whole(const struct echi_plan_request *w, const struct echi_plan *plan) {
    if (plan->sync != ECHI_SYNC_BSP || !plan->cut || plan->sync_norm)
        return "--micro-batches is of --sync bsp with --separate, without --sync-norm";
    if (w->one_flight) return "in a session the caller computes whole steps: leave --micro-batches out";
    if (2 * plan->world > ECHI_WORLD_MAX) return "--micro-batches is for 512 nodes at most: leave it out";
    if (echi_layers_norm_before(&w->layers, plan->cut))
        return "--micro-batches cuts steps, and a batch-norm in front of the separated layers takes its statistics over whole ones: "
               "leave it out";
    return NULL;
}

uint32_t echi_plan_request_round(const struct echi_plan_request *w) {
    const uint32_t by_nodes = w->deterministic ? 0 : 16u * (uint32_t)w->world; /* bits that nodes cannot change need a B that they cannot */
    return w->batch ? w->batch : by_nodes > 64 ? by_nodes : 64;
}

void echi_plan_add_reserve(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan) {
    if (!echi_policy_of((enum echi_sync)plan->sync)->grouped || plan->reserve || plan->n_groups == ECHI_GROUPS_MAX) return;
    int best = -1;
    for (int r = 0; r < plan->world; r++) {
        if (w->absent[r] || echi_plan_group_owned(plan, r) >= 0 || echi_plan_hosts(plan, r, ECHI_ROLE_HEAD)) continue;
        const double link = echi_link_slower(&times[r].link), most = best < 0 ? -1 : echi_link_slower(&times[best].link);
        if (link > most || (link == most && echi_times_whole(&times[r], 64) < echi_times_whole(&times[best], 64))) best = r;
    }
    if (best < 0) return;
    plan->base[plan->n_groups] = plan->base[plan->n_groups - 1];   /* groups are numbered by speed: as the slowest */
    plan->owner_of[plan->n_groups++] = (uint16_t)best;
    plan->reserve = 1;
}

/* Are several heads possible, whoever they are? */
static ech_status may_have_heads(const struct echi_plan_request *w, const struct echi_plan *plan, char *text, size_t cap) {
    int here = 0;
    for (int r = 0; r < w->world; r++) here += !w->absent[r];
    if (!plan->cut)
        return refuse(text, cap, "--heads are of layers that are separated: use --separate on, or --heads 1");
    if (w->sync != ECHI_SYNC_BSP)
        return refuse(text, cap, "several --heads add up their gradients once a round, which only --sync bsp waits for: use --heads 1");
    if (w->deterministic)
        return refuse(text, cap, "--deterministic has one head: use --heads 1");
    if (w->shadow)
        return refuse(text, cap, "a head that has a shadow is the only one: use --heads 1, or leave out --shadow");
    if (w->heads > here)
        return refuse_number(text, cap, "--heads are nodes of their own, and only ", here, " are here: so many heads work at most");
    return ECH_OK;
}

ech_status echi_plan_make(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan,
                          char *text, size_t cap) {
    echi_plan_clear(plan);
    plan->sync = (uint8_t)w->sync;
    plan->world = (uint16_t)w->world;
    plan->staleness = w->staleness;
    plan->rounds_apart = w->rounds_apart ? w->rounds_apart : 4;
    plan->deterministic = w->deterministic;
    plan->sync_norm = w->sync_norm;
    plan->shares_follow = w->sync == ECHI_SYNC_BSP && w->shares == ECHI_SHARES_SPEED && w->regroup_after > 0 && !w->deterministic;
    plan->round = echi_plan_request_round(w);
    if (w->separate == 1 && !w->has_cut)
        return refuse(text, cap,
                      "--separate 1 needs a model with convolutions followed by fully connected layers; use --separate off");
    const bool separated = w->has_cut && w->world > 1 && (w->separate == 1 || (w->separate == -1 && w->sync == ECHI_SYNC_GSSP));
    plan->cut = separated ? (uint8_t)(w->layers.count > 0 ? w->layers.cut : w->load.layers > 0 ? w->load.layers : 1) : 0;
    if ((w->drop_older > 0 || w->weigh_by_time) && (w->sync != ECHI_SYNC_ASP || plan->cut))
        return refuse(text, cap, "--drop-older and --weigh-by-time are of --sync asp with --separate off");
    if (plan->cut && w->sync == ECHI_SYNC_LOCAL)
        return refuse(text, cap, "--sync local trains all layers on every node: use --separate off");
    if (w->sync == ECHI_SYNC_GSSP && w->groups > ECHI_GROUPS_MAX)
        return refuse(text, cap, "--groups can be 8 at most; or leave it to auto");
    const int fast = home_of(w, times, plan->round < 64 ? plan->round : 64);
    if (plan->cut) {
        plan->head = (uint16_t)head_of(w, times, fast);
        plan->shadow = (uint16_t)(1 + shadow_of(w, times, plan->head, plan->round));
    }
    if (plan->cut) plan->activations = (uint8_t)w->activations;
    if (w->micro_batches > 1 && plan->cut) {
        const char *whole = echi_plan_steps_whole(w, plan);
        if (whole) return refuse(text, cap, whole);
        plan->micro_batches = (uint8_t)w->micro_batches;
    }
    if (w->heads > 1) {
        const ech_status refused = may_have_heads(w, plan, text, cap);
        if (refused != ECH_OK) return refused;
        choose_heads(w, times, plan);
    }
    const int home = plan->shadow == 0 ? fast : 0;   /* of an only owner */
    const bool async = w->sync != ECHI_SYNC_BSP;
    plan->flights = async && plan->cut && !w->one_flight ? (uint8_t)flights_beside_head(w, &times[fast], plan->round) : 1;
    plan->lr = w->lr;
    plan->momentum = w->momentum;
    plan->decay = w->decay;
    plan->optimizer = (uint8_t)w->optimizer;
    plan->adam = w->adam;
    plan->schedule = w->schedule;
    /* Only lr / B matters to whoever applies push by push, and how much of it is borne falls with the samples under way, which are so
     * many B: the lr of one node holds for all B (16 workers, B 256: times 4 nothing is learnt). A worker of `local` is by itself. */
    if (w->sync == ECHI_SYNC_LOCAL && !w->lr_given) plan->lr *= plan->round / 64.0;
    const bool usual = !w->lr_given && !w->momentum_given && !echi_optimizer_adam((int)w->optimizer);
    if (async && w->sync != ECHI_SYNC_LOCAL && !plan->cut && w->world > 1 && usual) {
        /* Without a head owner staleness hurts the FC layers, and is a memory by itself (Mitliagkas et al. 2016, "Asynchrony begets
         * momentum"): less of it, and half the lr / (1 - m). At the same, four nodes with MNIST seldom came to 98.5 % in three epochs
         * (3 runs of 16; 15 at half), and one run in 20 with glyphs never learnt. */
        plan->momentum = 0.5;
        plan->lr *= 2.5;
    }
    if (async) {
        plan->damping = w->damping;
        async_groups(w, times, plan);
        if (plan->n_groups == 1 && plan->shadow > 0) plan->owner_of[0] = (uint16_t)home;
        plan->drop_older = w->drop_older;
        if (w->weigh_by_time) weigh_by_time(times, plan);
        if (w->sync == ECHI_SYNC_LOCAL) {
            plan->outer_lr = w->outer_lr;
            plan->outer_momentum = w->outer_momentum;
            steps_by_speed(w, times, plan);
        }
    } else {
        plan->n_groups = 1;
        plan->owner_of[0] = (uint16_t)home;
        ech_status status = bsp_shares(w, times, plan, text, cap);
        if (status != ECH_OK) return status;
        if (plan->heads && !deal_heads(w, times, plan))
            return refuse_number(text, cap, "each of --heads trains the rows of some worker, and only ", echi_plan_workers(plan, -1),
                                 " nodes train: so many heads work at most");
        if (plan->heads && w->shares == ECHI_SHARES_SPEED) even_heads_out(w, times, plan);
    }
    echi_ratios_plan(w, times, plan);
    if (!echi_plan_valid(plan))
        return refuse(text, cap, "no node is left with samples to compute: check --shares, --batch and --groups");
    return ECH_OK;
}
