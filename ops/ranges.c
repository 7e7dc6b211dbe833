/* SPDX-License-Identifier: Apache-2.0
 * Long flat ranges, shared by the threads of a device. */
#include "echi_ranges.h"

/* Numbers that are worth handing to another thread, some 2 us of an SGD step; and parts for each thread, so that one that is held up does
 * not hold up the rest. Parts begin at multiples of the widest vector: none of its stores crosses from one to the next. */
enum { LEAST = 8192, PARTS = 4, STEP = 16 };

struct job { echi_range_work work; void *args; size_t count, parts; };

static size_t begin_of(const struct job *j, int part) {
    const size_t begin = (j->count / j->parts * (size_t)part + j->count % j->parts * (size_t)part / j->parts) / STEP * STEP;
    return (size_t)part < j->parts ? begin : j->count;
}

static void run(void *args, int part, int place) {
    const struct job *j = args;
    (void)place;
    j->work(j->args, begin_of(j, part), begin_of(j, part + 1));
}

void echi_ranges_run(struct echi_device *device, size_t count, echi_range_work work, void *args) {
    struct echi_team *team = echi_device_team(device);
    const size_t threads = (size_t)echi_team_threads(team), most = PARTS * threads;
    struct job j = {work, args, count, count / LEAST < most ? count / LEAST : most};
    if (j.parts > threads) j.parts -= j.parts % threads;
    if (!team || j.parts < 2) return work(args, 0, count);
    echi_team_run(team, (int)j.parts, run, &j);
}
