/* SPDX-License-Identifier: Apache-2.0
 * One piece of work, many threads. */
#include "echi_cpu_stack.h"

/* Operations on vectors that are worth handing to another thread: some 2 us; handing over takes a few tenths of one while the others are
 * awake. And parts for each thread: with more than one, a thread that is held up does not hold up the rest. */
enum { LEAST = 8000, PARTS = 4 };

struct job { struct echi_cpu_stack *s; echi_cpu_work work; const void *args; int items, parts; };

static void run(void *args, int part, int place) {
    const struct job *j = args;
    const int begin = (int)((int64_t)j->items * part / j->parts), end = (int)((int64_t)j->items * (part + 1) / j->parts);
    j->work(j->s, j->args, begin, end, place);
}

void echi_cpu_share_out(struct echi_cpu_stack *s, int items, double cost, echi_cpu_work work, const void *args) {
    struct job job = {s, work, args, items, PARTS * s->threads};
    if (job.parts > items) job.parts = items;
    if (job.parts > items * cost / LEAST) job.parts = (int)(items * cost / LEAST);
    if (job.parts > s->threads) job.parts -= job.parts % s->threads;
    if (s->threads == 1 || job.parts < 2) return work(s, args, 0, items, 0);
    echi_team_run(s->team, job.parts, run, &job);
}

int echi_cpu_cuts(const struct echi_cpu_stack *s, int parts, int outputs, int step) {
    const int most = (outputs + step - 1) / step;
    int cuts = 1;
    while (cuts < most && parts * cuts < PARTS * s->threads && parts * cuts % s->threads != 0) cuts++;
    return cuts;
}

struct echi_cpu_range echi_cpu_cut(int outputs, int step, int k, int cuts) {
    const int steps = (outputs + step - 1) / step;
    const int begin = (int)((int64_t)steps * k / cuts) * step, end = (int)((int64_t)steps * (k + 1) / cuts) * step;
    return (struct echi_cpu_range){begin, end < outputs ? end : outputs};
}
