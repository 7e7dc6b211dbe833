/* SPDX-License-Identifier: Apache-2.0
 * Times of machines of one kind tell of each other: how long a step takes by its samples, and a push and a message beside it, is theirs
 * together, how fast a machine is its own (partial pooling). A plan made from each one's few steps would follow their noise, and be
 * promised the best of it: four like hosts of half a core were dealt 10, 32, 14 and 8 samples of a net with 3 FC layers, and made 1,320
 * images/s; with 16 each 1,730 to 1,830. */
#include "echi_planner.h"
#include "echi_median.h"

#include <string.h>

/* Machines are of one kind when the faster takes at least this part of the slower one's time, in the median over the sizes. */
#define ALIKE 0.9
/* What rounding makes of times that are alike to begin with: they stay as they are. */
#define ROUNDING 1e-9

/* Those of one kind, and how many times as long as the first's their steps take. */
struct pool { struct echi_times *times; int rank[ECHI_WORLD_MAX], count; double longer[ECHI_WORLD_MAX]; };

static double step(const struct echi_times *t, uint32_t i) { return t->trunk[i] + t->head[i]; }

static bool same_sizes(const struct echi_times *a, const struct echi_times *b) {
    return a->count == b->count && a->block == b->block && memcmp(a->n, b->n, a->count * sizeof a->n[0]) == 0;
}

/* How many times as long one's steps take as the other's, of the same sizes. */
static double longer_than(const struct echi_times *one, const struct echi_times *other) {
    double ratio[ECHI_TIMES_MAX];
    for (uint32_t i = 0; i < one->count; i++) ratio[i] = step(one, i) / step(other, i);
    return echi_median(ratio, (int)one->count);
}

/* All the times of a machine, in order: steps by size, then what its pushes and messages take. */
enum { OTHERS = 4 };
#define TIMES(t) (2 * (int)(t)->count + OTHERS)
static double *time_of(struct echi_times *t, int i) {
    double *const other[OTHERS] = {&t->exchange, &t->add, &t->update, &t->messages};
    const int size = i / 2;
    return size >= (int)t->count ? other[i - 2 * (int)t->count] : i % 2 ? &t->head[size] : &t->trunk[size];
}

/* The median of what the pool's machines measured, each by its speed. */
static double shared(const struct pool *p, int time) {
    double value[ECHI_WORLD_MAX];
    for (int i = 0; i < p->count; i++) value[i] = *time_of(&p->times[p->rank[i]], time) / p->longer[i];
    return echi_median(value, p->count);
}

static void set_time(double *time, double pooled) {
    if (pooled > *time * (1 + ROUNDING) || pooled < *time * (1 - ROUNDING)) *time = pooled;
}

/* How fast each is, is taken once more, beside what all share: the first one's own noise is in what it was compared with. */
static void share(struct pool *p) {
    struct echi_times of_all = p->times[p->rank[0]];
    for (int i = 0; i < TIMES(&of_all); i++) *time_of(&of_all, i) = shared(p, i);
    for (int k = 0; k < p->count; k++) {
        struct echi_times *t = &p->times[p->rank[k]];
        const double longer = longer_than(t, &of_all);
        for (int i = 0; i < TIMES(t); i++) set_time(time_of(t, i), longer * *time_of(&of_all, i));
    }
}

void echi_times_pool(struct echi_times times[ECHI_WORLD_MAX], int world) {
    bool done[ECHI_WORLD_MAX] = {false};
    for (int first = 0; first < world; first++) {
        struct pool p = {.times = times};
        for (int r = first; r < world && times[first].count > 0 && !done[first]; r++) {
            const double longer = done[r] || !same_sizes(&times[first], &times[r]) ? 0 : longer_than(&times[r], &times[first]);
            if (longer < ALIKE || longer > 1 / ALIKE) continue;
            p.longer[p.count] = longer;
            p.rank[p.count++] = r;
        }
        for (int i = 0; i < p.count; i++) done[p.rank[i]] = true;
        if (p.count > 1) share(&p);
    }
}

/* A node that measured beside all others took as many times as long as there are threads for a processor, one that measured alone did
 * not. Whoever plays a slow node takes less of a processor, and is another kind. */
int echi_times_crowded(const struct echi_times times[ECHI_WORLD_MAX], int world) {
    const struct echi_machine *machine = &times[0].machine;
    const uint32_t n = times[0].count > 0 ? times[0].n[times[0].count - 1] : 0;
    const double most = (double)world * machine->takes / ((double)machine->processors * ECHI_PROCESSOR);
    if (n == 0 || machine->id == 0 || !(most > 1)) return 0;
    double shortest = echi_times_whole(&times[0], n), longest = shortest;
    for (int r = 0; r < world; r++) {
        const struct echi_machine *m = &times[r].machine;
        if (times[r].count == 0 || m->id != machine->id || m->takes != machine->takes) return 0;
        const double seconds = echi_times_whole(&times[r], n);
        if (seconds < shortest) shortest = seconds;
        if (seconds > longest) longest = seconds;
    }
    return longest <= most * shortest ? machine->processors : 0;
}
