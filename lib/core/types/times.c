/* SPDX-License-Identifier: Apache-2.0
 * Times of steps and of their units: to bytes and back, and for any number of samples. Pure and bounded, as message.c. */
#include "echi_bytes.h"
#include "echi_times.h"

#include <string.h>

/* ---- units ---- */

/* Shares of units [first, end), forward and backward. */
static uint32_t sum_of(const struct echi_unit_share *share, int first, int end) {
    uint32_t sum = 0;
    for (int u = first; u < end; u++) sum += (uint32_t)share[u].of[ECHI_FORWARD] + share[u].of[ECHI_BACKWARD];
    return sum;
}

static void put_units(struct echi_writer *w, const struct echi_times *t) {
    echi_put16(w, t->units);
    if (t->units == 0) return;
    echi_put16(w, t->cut);
    echi_put8(w, t->sizes);
    for (int i = 0; i < t->sizes; i++) {
        echi_put8(w, t->size[i]);
        for (int u = 0; u < t->units; u++)
            for (int pass = 0; pass < ECHI_PASSES; pass++) echi_put16(w, t->share[i][u].of[pass]);
    }
}

static bool get_units(struct echi_reader *r, struct echi_times *t) {
    t->units = echi_get16(r);
    if (t->units == 0) return true;
    t->cut = echi_get16(r);
    t->sizes = echi_get8(r);
    if (t->units > ECHI_UNITS_MAX || t->cut < 1 || t->cut > t->units || t->sizes < 1 || t->sizes > ECHI_UNIT_SIZES) return false;
    for (int i = 0; i < t->sizes; i++) {
        t->size[i] = echi_get8(r);
        if (t->size[i] >= t->count || (i > 0 && t->size[i] <= t->size[i - 1])) return false;
        for (int u = 0; u < t->units; u++)
            for (int pass = 0; pass < ECHI_PASSES; pass++) t->share[i][u].of[pass] = echi_get16(r);
        if (sum_of(t->share[i], 0, t->cut) != ECHI_SHARE_ALL) return false;
        if (t->cut < t->units && sum_of(t->share[i], t->cut, t->units) != ECHI_SHARE_ALL) return false;
    }
    return true;
}

/* Rounds to whole shares; what that leaves over goes to the longest. */
static bool share_out(struct echi_unit_share *out, int first, int end, const double (*seconds)[ECHI_PASSES]) {
    double all = 0;
    uint16_t *longest = NULL;
    double most = 0;
    for (int u = first; u < end; u++)
        for (int pass = 0; pass < ECHI_PASSES; pass++) all += seconds[u][pass];
    if (!(all > 0)) return first == end;
    for (int u = first; u < end; u++)
        for (int pass = 0; pass < ECHI_PASSES; pass++) {
            out[u].of[pass] = (uint16_t)(seconds[u][pass] / all * ECHI_SHARE_ALL + 0.5);
            if (seconds[u][pass] <= most) continue;
            most = seconds[u][pass];
            longest = &out[u].of[pass];
        }
    *longest = (uint16_t)(*longest + (uint32_t)ECHI_SHARE_ALL - sum_of(out, first, end));
    return true;
}

bool echi_times_share(struct echi_times *t, int i, const double (*seconds)[ECHI_PASSES]) {
    struct echi_unit_share share[ECHI_UNITS_MAX];
    if (!share_out(share, 0, t->cut, seconds) || !share_out(share, t->cut, t->units, seconds)) return false;
    memcpy(t->share[i], share, t->units * sizeof share[0]);
    return true;
}

/* The size at or before which n lies, and how far n is from there to the next, 0..1. */
struct between { int at; double part; };
static struct between between_sizes(const struct echi_times *t, uint32_t n) {
    struct between b = {0, 0};
    while (b.at + 1 < t->sizes && n > t->n[t->size[b.at + 1]]) b.at++;
    if (b.at + 1 == t->sizes || n <= t->n[t->size[b.at]]) return b;
    const double first = t->n[t->size[b.at]], next = t->n[t->size[b.at + 1]];
    b.part = (n - first) / (next - first);
    return b;
}

int echi_times_nearest(const struct echi_times *t, uint32_t n) {
    const struct between b = between_sizes(t, n);
    return b.at + (b.part > 0.5);
}

static double share_of(const struct echi_times *t, struct between b, int unit, enum echi_pass pass) {
    const double here = t->share[b.at][unit].of[pass], there = b.part > 0 ? t->share[b.at + 1][unit].of[pass] : here;
    return (here + b.part * (there - here)) / ECHI_SHARE_ALL;
}

bool echi_times_recut(struct echi_times *t, int cut) {
    double seconds[ECHI_UNIT_SIZES][ECHI_UNITS_MAX][ECHI_PASSES], trunk[ECHI_TIMES_MAX];
    struct echi_times other = *t;
    if (t->units == 0 || cut < 1 || cut > t->units) return false;
    if (cut == t->cut) return true;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct between b = between_sizes(t, t->n[i]);
        trunk[i] = 0;
        for (int u = 0; u < cut; u++)
            for (int pass = 0; pass < ECHI_PASSES; pass++)
                trunk[i] += share_of(t, b, u, (enum echi_pass)pass) * (u < t->cut ? t->trunk[i] : t->head[i]);
        other.head[i] = cut < t->units ? t->trunk[i] + t->head[i] - trunk[i] : 0;
        other.trunk[i] = cut < t->units ? trunk[i] : t->trunk[i] + t->head[i];
        if (!(other.trunk[i] > 0) || !(other.head[i] >= 0)) return false;
    }
    other.cut = (uint16_t)cut;
    for (int i = 0; i < t->sizes; i++) {
        for (int u = 0; u < t->units; u++)
            for (int pass = 0; pass < ECHI_PASSES; pass++)
                seconds[i][u][pass] = t->share[i][u].of[pass] * (u < t->cut ? t->trunk[t->size[i]] : t->head[t->size[i]]);
        if (!echi_times_share(&other, i, (const double (*)[ECHI_PASSES])seconds[i])) return false;
    }
    *t = other;
    return true;
}

double echi_times_unit(const struct echi_times *t, int unit, enum echi_pass pass, uint32_t n) {
    if (unit < 0 || unit >= t->units) return 0;
    return share_of(t, between_sizes(t, n), unit, pass) * (unit < t->cut ? echi_times_trunk(t, n) : echi_times_head(t, n));
}

double echi_times_forward(const struct echi_times *t, uint32_t n) {
    if (t->units == 0) return echi_times_trunk(t, n) / 3;
    const struct between b = between_sizes(t, n);
    double part = 0;
    for (int u = 0; u < t->cut; u++) part += share_of(t, b, u, ECHI_FORWARD);
    return part * echi_times_trunk(t, n);
}

double echi_times_granted(const struct echi_times *t) { return t->quota > 0 ? t->quota / t->period : 1; }

/* ---- bytes ---- */

/* Seconds of a quota and of its period. Linux grants no less than 1 ms, and knows no period beyond a second; a simulated host may have
 * others. */
#define QUOTA_LEAST 1e-5
#define QUOTA_MOST 10.0
#define TAKES_MOST (UINT16_MAX * (uint32_t)ECHI_PROCESSOR)

static void put_machine(struct echi_writer *w, const struct echi_machine *m) {
    echi_put64(w, m->id);
    echi_put16(w, m->processors);
    echi_put32(w, m->takes);
    echi_put_f64(w, m->crowd);
}

static bool get_machine(struct echi_reader *r, struct echi_machine *out) {
    out->id = echi_get64(r);
    out->processors = echi_get16(r);
    out->takes = echi_get32(r);
    out->crowd = echi_get_f64(r);
    if (out->id == 0) return out->processors == 0 && out->takes == 0 && out->crowd == 0;
    return out->processors > 0 && out->takes > 0 && out->takes <= TAKES_MOST && out->crowd >= 1 && out->crowd <= 1e4;
}

size_t echi_times_encode(const struct echi_times *t, uint8_t *out, size_t cap) {
    struct echi_writer w = echi_writer_over(out, cap);
    echi_put8(&w, (uint8_t)t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        echi_put32(&w, t->n[i]);
        echi_put_f64(&w, t->trunk[i]);
        echi_put_f64(&w, t->head[i]);
    }
    echi_put16(&w, t->block);
    echi_put_f64(&w, t->exchange);
    echi_put_f64(&w, t->messages);
    echi_link_put(&w, &t->link);
    echi_put_f64(&w, t->jitter);
    echi_put_f64(&w, t->stutter);
    echi_put_f64(&w, t->stutter_factor);
    echi_put_f64(&w, t->delay);
    echi_put_f64(&w, t->update);
    echi_put_f64(&w, t->add);
    echi_put_f64(&w, t->quota);
    echi_put_f64(&w, t->period);
    put_machine(&w, &t->machine);
    put_units(&w, t);
    return w.ok ? (size_t)(w.at - out) : 0;
}

static bool quota_is_sane(const struct echi_times *t) {
    const bool none = t->quota == 0 && t->period == 0;
    return none || (t->period >= QUOTA_LEAST && t->period <= QUOTA_MOST && t->quota >= QUOTA_LEAST && t->quota <= t->period);
}

bool echi_times_decode(const uint8_t *bytes, size_t len, struct echi_times *t) {
    memset(t, 0, sizeof *t);
    struct echi_reader r = echi_reader_over(bytes, len);
    t->count = echi_get8(&r);
    if (t->count < 1 || t->count > ECHI_TIMES_MAX) return false;
    for (uint32_t i = 0; i < t->count; i++) {
        t->n[i] = echi_get32(&r);
        t->trunk[i] = echi_get_f64(&r);
        t->head[i] = echi_get_f64(&r);
        /* Written so that a NaN is refused as well. */
        if (!(t->trunk[i] > 0 && t->trunk[i] < 1e6 && t->head[i] >= 0 && t->head[i] < 1e6)) return false;
        if (t->n[i] < 1 || (i && t->n[i] <= t->n[i - 1])) return false;
    }
    t->block = echi_get16(&r);
    t->exchange = echi_get_f64(&r);
    t->messages = echi_get_f64(&r);
    if (!echi_link_get(&r, &t->link)) return false;
    t->jitter = echi_get_f64(&r);
    t->stutter = echi_get_f64(&r);
    t->stutter_factor = echi_get_f64(&r);
    t->delay = echi_get_f64(&r);
    t->update = echi_get_f64(&r);
    t->add = echi_get_f64(&r);
    t->quota = echi_get_f64(&r);
    t->period = echi_get_f64(&r);
    if (!get_machine(&r, &t->machine)) return false;
    if (!(t->jitter >= 0 && t->jitter <= 2 && t->stutter >= 0 && t->stutter <= 1 && t->stutter_factor >= 0 && t->stutter_factor <= 1e4))
        return false;
    if (!(t->delay >= 0 && t->delay < 1e6 && t->update >= 0 && t->update < 1e6)) return false;
    if (!(t->exchange >= 0 && t->exchange < 1e6 && t->messages >= 0 && t->messages < 1e6)) return false;
    if (!(t->add >= 0 && t->add <= t->exchange && quota_is_sane(t))) return false;
    return get_units(&r, t) && r.ok && r.at == r.end;
}

/* ---- steps ---- */

/* Vector kernels compute samples in blocks, and an empty lane takes as long as a full one: 17 samples in vectors of 8 take as long as 24.
 * Up to the first size a step takes as long as that. */
static uint64_t whole_blocks(const struct echi_times *t, uint64_t n) {
    return t->block > 1 && n > t->n[0] ? (n - 1) / t->block * t->block + t->block : n;
}

/* Straight lines between the measured sizes; up to the first as that, beyond the last along the last slope, or in proportion where there
 * is none. A size below a block has kernels of its own: from there to a whole block is no slope (ResNet-18 in vectors of 16, steps of 8,
 * 16, 32 and 48 samples: 0.19, 0.29, 0.54 and 0.81 s). */
static double interpolate(const struct echi_times *t, const double *y, uint32_t samples) {
    if (samples == 0 || t->count == 0) return 0;
    const double n = (double)whole_blocks(t, samples);
    if (n <= t->n[0]) return y[0];
    uint32_t i = 1;
    while (i + 1 < t->count && n > t->n[i]) i++;
    const uint32_t last = t->count - 1;
    if (n > t->n[last] && (last == 0 || t->n[last - 1] < t->block)) return y[last] * n / t->n[last];
    double slope = (y[i] - y[i - 1]) / (t->n[i] - t->n[i - 1]);
    double value = y[i - 1] + slope * (n - t->n[i - 1]);
    return value > y[0] ? value : y[0];
}

double echi_times_trunk(const struct echi_times *t, uint32_t n) { return interpolate(t, t->trunk, n); }
double echi_times_head(const struct echi_times *t, uint32_t n) { return interpolate(t, t->head, n); }
double echi_times_whole(const struct echi_times *t, uint32_t n) { return echi_times_trunk(t, n) + echi_times_head(t, n); }
double echi_times_step(const struct echi_times *t, bool separated, uint32_t n) {
    return separated ? echi_times_trunk(t, n) : echi_times_whole(t, n);
}
