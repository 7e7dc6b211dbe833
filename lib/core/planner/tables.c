/* SPDX-License-Identifier: Apache-2.0
 * Which table of parts rounds get: the default one, or another that is predicted to be faster. Others have finer or coarser slices, all by
 * themselves, or merged as is the best where messages pass one link after the other (echi_merge.h). Where many messages are under way at
 * once it need not be, so predictions judge. */
#include "echi_choice_impl.h"
#include "echi_predict_rounds.h"

/* A table other than the default is taken where it gains so much: predictions are good to a tenth, and those of one owner that has many
 * small parts among thin links are too high by more than those of larger ones. */
#define TABLE_GAINS 1.1
#define TABLES_WORLD 64   /* of more nodes a prediction takes too long for several */

static double greater(double a, double b) { return a > b ? a : b; }

/* The trunk's layers, where the head is separated; else all. */
static int travelling(const struct echi_plan_request *w, const struct echi_plan *plan) {
    return plan->separated ? w->layers.cut : w->layers.count;
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

/* What gradients, and then weights, take a node that trains and owns its share: as if all were like those whose messages, links and sums
 * take the longest. */
static void stages_of(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_plan *plan,
                      struct echi_merge_stage out[ECHI_MERGE_STAGES]) {
    const double workers = echi_plan_workers(plan, -1), owners = plan->shards > 0 ? plan->shards : 1;
    const double others = greater((workers - 1) / owners, (owners - 1) / owners);   /* pushes that come in; or one's own that leaves */
    double message = 0, byte = 0, add = 0, all = 0;
    for (int i = 0; i < w->layers.count; i++) all += (double)w->layers.params[i];
    for (int r = 0; r < plan->world; r++) {
        if (plan->n[r] == 0 && echi_plan_shard_owned(plan, r) < 0) continue;
        const struct echi_times *t = &times[r];
        const double rate = echi_link_slower(&t->link);
        message = greater(message, t->messages / ECHI_STEP_MESSAGES);
        byte = greater(byte, rate > 0 ? 1 / rate : (t->exchange - t->add) / (4 * all));
        add = greater(add, t->add / all);
    }
    out[0] = (struct echi_merge_stage){(1 + others) * message, others * (4 * byte + add)};
    out[1] = (struct echi_merge_stage){(1 + others) * message, others * 4 * byte};
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
    struct echi_merge_stage stage[ECHI_MERGE_STAGES];
    bool begins[ECHI_PARTS_MAX];
    const int rank = slowest_worker(plan, times), count = echi_parts_before(&plan->parts, travelling(w, plan));
    const struct echi_times *t = &times[rank];
    const uint32_t n = plan->n[rank];
    double ready = 0;
    for (int u = 0; u < t->units; u++) ready += echi_times_unit(t, u, ECHI_FORWARD, n);
    for (int i = count - 1, u = t->units - 1; i >= 0; i--) {
        for (; u >= plan->parts.part[i].first; u--) ready += echi_times_unit(t, u, ECHI_BACKWARD, n);
        work->piece[i] = (struct echi_merge_piece){ready, plan->parts.part[i].count};
    }
    stages_of(w, times, plan, stage);
    for (int i = 0; i < ECHI_MERGE_STAGES; i++) stage[i].message *= weight;
    _Static_assert(sizeof(struct echi_merge_work) <= sizeof work->predict.bytes, "between two predictions their memory is free");
    echi_merge(work->piece, count, stage, (struct echi_merge_work *)(void *)work->predict.bytes, begins);
    join(&plan->parts, count, begins);
}

/* Slices so many times, or such a part, as large as the usual ones, and how much of a message's time counts where they are merged: one that
 * finds its thread awake takes less (ECHI_COST_AWAKE), and how many do nobody knows before. 0: each slice is a part. None is smaller than a
 * chunk of the wire unless the usual ones are: on two live hosts of 1 Gb/s LeNet-5 made 15,300 images/s in parts of 14 KB, and in such of
 * 7 KB, with which 10 % more were predicted, 15,000. */
static const struct { uint64_t times, part; double weight; } tries[] = {{1, 4, 0}, {4, 1, 0}, {1, 1, 0.5}, {1, 1, 1}, {4, 1, 0.5}};

void echi_choice_table(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_choice_work *work,
                       struct echi_plan *plan, struct echi_choice *choice) {
    struct echi_candidate *taken = &choice->candidate[choice->taken];
    const double of_default = taken->rate;
    if (!echi_predict_by_part(plan) || w->layers.count == 0 || plan->world > TABLES_WORLD) return;
    const uint64_t usual = echi_plan_slice(plan, &w->layers);
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        struct echi_plan *own = &work->tried;
        const uint64_t slice = usual * tries[i].times / tries[i].part;
        if (slice < usual && slice < ECHI_PART_MERGED) continue;
        *own = *plan;
        echi_parts_make(&w->layers, own->separated, own->codec, slice, 0, &own->parts);
        if (tries[i].weight > 0) merge(w, times, work, own, tries[i].weight);
        if (own->shards) echi_plan_deal_parts(own, times, echi_parts_before(&own->parts, travelling(w, own)));
        if (own->shards != plan->shards) continue;   /* fewer parts than owners */
        const struct echi_candidate c = echi_candidate_predicted(w, times, own, work);
        if (c.rate < of_default * TABLE_GAINS || c.rate < taken->rate * ECHI_CLEARLY) continue;
        *taken = c;
        *plan = *own;
        choice->table_gain = c.rate / of_default - 1;
    }
}
