/* SPDX-License-Identifier: Apache-2.0
 * Long flat ranges, shared by the threads of a device. */
#ifndef ECHI_RANGES_H
#define ECHI_RANGES_H
#include "echi_hal.h"

/* Work on numbers [begin, end), each of which depends on no other. Several threads at a time. */
typedef void (*echi_range_work)(void *args, size_t begin, size_t end);
/* Does all of [0, count), cut among the device's threads where it is long enough for more than one. */
void echi_ranges_run(struct echi_device *device, size_t count, echi_range_work work, void *args);
#endif
