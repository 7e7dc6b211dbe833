/* SPDX-License-Identifier: Apache-2.0
 * A peer's silence, and how long it may be. */
#include "echi_silence.h"

/* How much of a new gap's difference goes into the mean, and into the deviation when it rises and when it falls. */
#define MEAN_GAIN 8
#define RISE_GAIN 4
#define FALL_GAIN 32
#define DEVIATIONS 4

void echi_fair_begin(struct echi_fair *f, int64_t now) { *f = (struct echi_fair){.checked = now, .due = now}; }

void echi_fair_check(struct echi_fair *f, int64_t now, int64_t next) {
    const int64_t passed = now - f->checked, late = now - f->due;
    if (late > f->late_most) f->late_most = late;
    if (passed > 0) f->now += late > 0 ? f->due - f->checked : passed;
    f->checked = now;
    f->due = now + next;
}

struct echi_patience echi_patience_of(int64_t deadline) {
    const int64_t beat = deadline / 10, least = 2 * beat + deadline / 5;
    return (struct echi_patience){beat, least, deadline};
}

void echi_silence_begin(struct echi_silence *s, const struct echi_patience *p, int64_t now) {
    *s = (struct echi_silence){.since = now, .window = now, .mean = p->beat, .deviation = (p->most - p->beat) / DEVIATIONS + 1};
}

static void learn(struct echi_silence *s, int64_t gap) {
    const int64_t off = gap - s->mean, away = (off < 0 ? -off : off) - s->deviation;
    s->mean += off / MEAN_GAIN;
    s->deviation += away / (away > 0 ? RISE_GAIN : FALL_GAIN);
}

void echi_silence_word(struct echi_silence *s, const struct echi_patience *p, int64_t now) {
    const int64_t gap = now - s->since;
    if (gap > s->longest) s->longest = gap;
    s->since = now;
    if (now - s->window < p->beat) return;
    learn(s, s->longest);
    s->window = now;
    s->longest = 0;
}

int64_t echi_silence_bound(const struct echi_silence *s, const struct echi_patience *p) {
    const int64_t bound = s->mean + DEVIATIONS * s->deviation;
    return bound < p->least ? p->least : bound > p->most ? p->most : bound;
}
