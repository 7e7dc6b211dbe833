/* SPDX-License-Identifier: Apache-2.0
 * Nanoseconds to what the OS takes. Only for the files of port/. */
#ifndef ECHI_TIMESPEC_H
#define ECHI_TIMESPEC_H
#include <stdint.h>
#include <time.h>

#define ECHI_SECOND INT64_C(1000000000)

static inline int64_t echi_from_timespec(struct timespec t) { return (int64_t)t.tv_sec * ECHI_SECOND + t.tv_nsec; }

/* Where time_t has 32 bits a time that it cannot hold becomes the latest that it can, 68 years after start. */
static inline struct timespec echi_to_timespec(int64_t ns) {
    if (ns < 0) ns = 0;
    int64_t seconds = ns / ECHI_SECOND;
    if (sizeof(time_t) < sizeof seconds && seconds > INT32_MAX) seconds = INT32_MAX;
    return (struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)(ns % ECHI_SECOND)};
}
#endif
