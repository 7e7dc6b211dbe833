/* SPDX-License-Identifier: Apache-2.0
 * Which table of parts rounds get: the default one, or another that is predicted to be faster. Others have finer or coarser slices, all by
 * themselves, or merged as is the best where messages pass one link after the other (echi_merge.h). Where many messages are under way at
 * once it need not be, so predictions judge. One part an owner and DDP's buckets are among them: neither is predicted to be faster than
 * what is taken. */
#include "echi_choice_impl.h"
#include "echi_predict_rounds.h"

/* A table of slices other than the default is taken where it gains so much: predictions are good to a tenth, and those of one owner that
 * has many small parts among thin links are too high by more than those of larger ones. Few parts, one an owner or a bucket's, are taken
 * for any gain. */
#define TABLE_GAINS 1.1
#define TABLES_WORLD 64   /* of more nodes a prediction takes too long for several */

/* The trunk's layers, where the head is separated; else all. */
static int travelling(const struct echi_plan_request *w, const struct echi_plan *plan) {
    return plan->cut ? plan->cut : w->layers.count;
}

/* Whose step takes the longest. Somebody trains. */
static int slowest_worker(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX]) {
    int slowest = -1;
    double most = -1;
    for (int r = 0; r < plan->world; r++) {
        const double seconds = plan->n[r] > 0 ? echi_times_whole(&times[r], plan->n[r]) : -1;
        if (!(seconds > most)) continue;
        most = seconds;
        slowest = r;
    }
    return slowest;
}

/* Of seconds of the clock of a host with a quota, how many pass where a step's are granted at once: rounds of short steps wait for links,
 * and then a host computes at full speed. Messages come when others of the host have used some of it: live they cost nearly what the clock
 * says. */
static double at_full_speed(const struct echi_times *t, uint32_t n) {
    const double granted = echi_times_granted(t);
    return granted * echi_times_whole(t, n) <= t->quota ? granted : 1;
}

/* What a part costs, as if all nodes were like those whose messages, links and sums take the longest. */
static struct echi_merge_costs costs_of(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX],
                                        const struct echi_plan *plan, double weight) {
    struct echi_merge_node node = {0};
    double all = 0;
    for (int i = 0; i < w->layers.count; i++) all += (double)w->layers.params[i];
    for (int r = 0; r < plan->world; r++) {
        if (plan->n[r] == 0 && echi_plan_shard_owned(plan, r) < 0) continue;
        const struct echi_times *t = &times[r];
        const double rate = echi_link_slower(&t->link);
        node.message = echi_greater(node.message, weight * t->messages / ECHI_STEP_MESSAGES);
        node.add = echi_greater(node.add, t->add / all);
        node.update = echi_greater(node.update, t->update / all);
        node.copy = echi_greater(node.copy, (t->exchange - t->add) / (4 * all));
        node.byte = echi_greater(node.byte, rate > 0 ? 1 / rate : node.copy);
    }
    return echi_merge_costs_of(&node, echi_plan_workers(plan, -1), plan->shards > 0 ? plan->shards : 1, 1);
}

/* Of the first so many parts those become one between which no message begins. */
static void join(struct echi_parts *parts, int count, const bool *begins) {
    int kept = 0;
    for (int i = 0; i < parts->count; i++) {
        if (i >= count || begins[i]) {
            parts->part[kept++] = parts->part[i];
            continue;
        }
        parts->part[kept - 1].count += parts->part[i].count;
        parts->part[kept - 1].last = parts->part[i].last;
    }
    parts->count = (uint16_t)kept;
}

static void merge(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_choice_work *work,
                  struct echi_plan *plan, double weight) {
    const struct echi_merge_costs costs = costs_of(w, times, plan, weight);
    bool begins[ECHI_PARTS_MAX];
    const int rank = slowest_worker(plan, times), count = echi_parts_before(&plan->parts, travelling(w, plan));
    const struct echi_times *t = &times[rank];
    const uint32_t n = plan->n[rank];
    const double speed = at_full_speed(t, n);
    double ready = 0;
    for (int u = 0; u < t->units; u++) ready += speed * echi_times_unit(t, u, ECHI_FORWARD, n);
    for (int i = count - 1, u = t->units - 1; i >= 0; i--) {
        for (; u >= plan->parts.part[i].first; u--) ready += speed * echi_times_unit(t, u, ECHI_BACKWARD, n);
        work->piece[i] = (struct echi_merge_piece){ready, plan->parts.part[i].count};
    }
    _Static_assert(sizeof(struct echi_merge_work) <= sizeof work->predict.bytes, "between two predictions their memory is free");
    echi_merge(work->piece, count, &costs, (struct echi_merge_work *)(void *)work->predict.bytes, begins);
    join(&plan->parts, count, begins);
}

/* ---- buckets ---- */

/* Of layers [first, last] a slice for each owner, as large as its share. False: the table has no room for them, or one gets nothing. */
static bool add_slices(const struct echi_layers *layers, const double *share, int owners, int first, int last, struct echi_parts *parts) {
    uint64_t params = 0, at = 0;
    double reached = 0;
    for (int l = first; l <= last; l++) params += layers->params[l];
    for (int k = 0; k < owners; k++) {
        reached += share[k] * (double)params;
        const uint64_t end = k + 1 < owners ? (uint64_t)reached : params;
        if (parts->count == ECHI_PARTS_MAX || end <= at) return false;
        echi_parts_add_slice(parts, layers, first, at, end - at);
        parts->part[parts->count - 1].shard = (uint8_t)k;
        at = end;
    }
    return true;
}

/* Layers as DDP has them in buckets: from the last one on, the one that fills a bucket is its last. A bucket is a part of each owner. The
 * head's parts stay. */
static bool fill_buckets(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], uint64_t first, uint64_t size,
                         struct echi_plan *plan) {
    const struct echi_layers *layers = &w->layers;
    const int count = travelling(w, plan), owners = plan->shards > 0 ? plan->shards : 1;
    const struct echi_parts before = plan->parts;
    double share[ECHI_SHARDS_MAX] = {1};
    bool begins[ECHI_UNITS_MAX];
    uint64_t params = 0, limit = first;
    if (plan->shards > 0) echi_plan_shard_shares(plan, times, share);
    for (int l = count - 1; l >= 0; l--) {
        params += layers->params[l];
        begins[l] = l == 0 || (params >= limit && !layers->joined[l]);
        if (!begins[l]) continue;
        params = 0;
        limit = size;
    }
    plan->parts.count = 0;
    for (int l = 0, end; l < count; l = end) {
        for (end = l + 1; end < count && !begins[end]; end++) {}
        if (!add_slices(layers, share, owners, l, end - 1, &plan->parts)) return false;
    }
    for (int i = echi_parts_before(&before, count); i < before.count; i++) {
        if (plan->parts.count == ECHI_PARTS_MAX) return false;
        plan->parts.part[plan->parts.count++] = before.part[i];
    }
    return true;
}

/* ---- which table ---- */

/* Slices so many times, or such a part, as large as the usual ones, and how much of a message's time counts where they are merged: one that
 * finds its thread awake takes less (ECHI_COST_AWAKE), and how many do nobody knows before. 0: each slice is a part. None is smaller than a
 * chunk of the wire unless the usual ones are: on two live hosts of 1 Gb/s LeNet-5 made 15,300 images/s in parts of 14 KB, and in such of
 * 7 KB, with which 10 % more were predicted, 15,000. */
static const struct { uint64_t times, part; double weight; } tries[] = {{1, 4, 0}, {4, 1, 0}, {1, 1, 0.5}, {1, 1, 1}, {4, 1, 0.5}};
/* Parameters of the bucket that leaves first, and of the others: one bucket; DDP's of 1 and 25 MiB. */
#define MIB (UINT64_C(1048576) / 4)
static const struct { uint64_t first, size; } buckets[] = {{UINT64_MAX, UINT64_MAX}, {MIB, 25 * MIB}};

/* The table of work->tried instead of the plan's, where that is predicted to gain so much. */
static void take_faster(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_choice_work *work,
                        double least, struct echi_plan *plan, struct echi_candidate *taken) {
    const struct echi_candidate c = echi_candidate_predicted(w, times, &work->tried, work);
    if (!(c.rate > least)) return;
    *taken = c;
    *plan = work->tried;
}

void echi_choice_table(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_choice_work *work,
                       struct echi_plan *plan, struct echi_choice *choice) {
    struct echi_candidate *taken = &choice->candidate[choice->taken];
    struct echi_plan *own = &work->tried;
    const double of_default = taken->rate;
    if (!echi_predict_by_part(plan) || w->layers.count == 0 || plan->world > TABLES_WORLD) return;
    const uint64_t usual = echi_plan_slice(plan, &w->layers);
    for (size_t i = 0; i < sizeof buckets / sizeof buckets[0]; i++) {
        *own = *plan;
        if (fill_buckets(w, times, buckets[i].first, buckets[i].size, own)) take_faster(w, times, work, taken->rate, plan, taken);
    }
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        const uint64_t slice = usual * tries[i].times / tries[i].part;
        if (slice < usual && slice < ECHI_PART_MERGED) continue;
        *own = *plan;
        echi_parts_make(&w->layers, own->cut, own->codec, slice, 0, &own->parts);
        if (tries[i].weight > 0) merge(w, times, work, own, tries[i].weight);
        if (own->shards) echi_plan_deal_parts(own, times, echi_parts_before(&own->parts, travelling(w, own)));
        if (own->shards != plan->shards) continue;   /* fewer parts than owners */
        take_faster(w, times, work, echi_greater(of_default * TABLE_GAINS, taken->rate * ECHI_CLEARLY), plan, taken);
    }
    choice->table_gain = taken->rate > of_default ? taken->rate / of_default - 1 : 0;
}
