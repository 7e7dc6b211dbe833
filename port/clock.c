/* SPDX-License-Identifier: Apache-2.0
 * The clock, and sleeping on it. */
#include "echi_os.h"
#include "echi_timespec.h"

#include <errno.h>

/* Neither call can fail: the clock ids are fixed and every Linux has them. */
static int64_t read_clock(clockid_t id) {
    struct timespec t = {0};
    clock_gettime(id, &t);
    return echi_from_timespec(t);
}

int64_t echi_now(void) { return read_clock(CLOCK_MONOTONIC); }

int64_t echi_wall_clock(void) { return read_clock(CLOCK_REALTIME); }

int64_t echi_thread_cpu(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

void echi_sleep_until(int64_t deadline) {
    const struct timespec t = echi_to_timespec(deadline);
    /* Absolute, so a signal that interrupts the sleep costs no drift. */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
}

void echi_sleep(int64_t ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }
