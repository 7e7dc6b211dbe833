/* SPDX-License-Identifier: Apache-2.0
 * What a direction of a link carries, by windows of a run. */
#include "echi_follow.h"

void echi_seen_add(struct echi_seen *s, double rate, int64_t now) {
    s->at = now;
    s->window[s->next] = rate;
    s->next = (uint8_t)((s->next + 1) % ECHI_SEEN_WINDOWS);
    if (s->windows < ECHI_SEEN_WINDOWS) s->windows++;
}

struct echi_rate echi_seen_rate(const struct echi_seen *s) {
    double highest = 0, second = 0, lowest = s->window[0];
    if (s->windows < ECHI_SEEN_LEAST) return (struct echi_rate){0};
    for (int i = 0; i < s->windows; i++) {
        const double rate = s->window[i];
        if (rate < lowest) lowest = rate;
        if (rate > highest) {
            second = highest;
            highest = rate;
        } else if (rate > second) {
            second = rate;
        }
    }
    return (struct echi_rate){second, lowest, highest};
}
