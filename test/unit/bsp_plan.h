/* SPDX-License-Identifier: Apache-2.0
 * What tests of what BSP's plans may say share: a plan by its shares, and the way there and back as bytes and as a file. */
#ifndef TEST_UNIT_BSP_PLAN_H
#define TEST_UNIT_BSP_PLAN_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "echi_run.h"

static inline struct echi_plan bsp_plan(int world, const uint32_t *n) {
    struct echi_plan p = {.sync = ECHI_SYNC_BSP, .world = (uint16_t)world, .n_groups = 1, .head = ECHI_NO_RANK, .flights = 1,
                          .staleness = 3, .rounds_apart = 4, .lr = 0.02, .momentum = 0.9};
    memset(p.owner_of, 0xff, sizeof p.owner_of);
    memset(p.group_of, ECHI_NONE, sizeof p.group_of);
    p.owner_of[0] = 0;
    for (int r = 0; r < world; r++) {
        p.n[r] = n[r];
        p.round += n[r];
        if (n[r]) p.group_of[r] = 0;
    }
    return p;
}

static inline void plan_comes_back(const struct echi_plan *plan) {
    struct echi_plan back;
    uint8_t bytes[ECHI_PLAN_BYTES_MAX];
    assert_true(echi_plan_decode(bytes, echi_plan_encode(plan, bytes, sizeof bytes), &back));
    assert_memory_equal(plan, &back, sizeof back);
    char path[] = "/tmp/echelon-plan-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(echi_plan_save(path, plan, NULL, NULL), ECH_OK);
    assert_int_equal(echi_plan_load(path, 2, &back, NULL, NULL), ECH_OK);
    assert_memory_equal(plan, &back, sizeof back);
    unlink(path);
}
#endif
