/* SPDX-License-Identifier: Apache-2.0
 * The clocks of a run's nodes put on rank 0's: offset and drift from message times alone.
 *
 * A message is there no earlier than it was sent. So each one bounds the offset of its receiver's clock from one side, and one that goes
 * back from the other side; offset and drift are a line between the two sets of points (Duda, Harrus, Haddad, Bernard, "Estimating Global
 * Time in Distributed Systems", ICDCS 1987). Only the fastest messages matter, and they are the corners of a convex hull (Moon, Skelly,
 * Towsley, "Estimation and Removal of Clock Skew from Network Delay Measurements", INFOCOM 1999). Of all lines that fit, the one is taken
 * whose ends are the middle of what is possible there: the set of lines is convex, so it is one of them. */
#include "echi_recording.h"
#include "echi_error.h"

#include <math.h>
#include <stdlib.h>

/* Of a clock against another: kernels discipline one by 500 ppm at most (RFC 5905, section 7.1). */
#define DRIFT_MAX 1e-3
#define POINTS_FIRST 64u
#define CORNERS_MAX 512u                   /* kept of a hull; with fewer the bounds are wider, and still bounds */
#define TIME_MAX 0x1p60                    /* ns, as of a recording's events */
#define READING 1.0                        /* ns: a clock that is read is up to so much further */

/* A message by the sender's clock, and how much more the receiver's said when it was there. */
struct point { int64_t sent, later; };
/* Those from one node to another: corners of the hull first, then those that have come since. */
struct passages { struct point *point; size_t count, cap, corners; };
/* A bound on the offset: at so many ns behind the first of a recording, so much. */
struct bound { double x, y; };

struct echi_clocks {
    int world;
    struct passages *passages;             /* [from][to] */
    struct bound *lower, *upper;           /* [CORNERS_MAX] */
    double *slope;                         /* [2 * CORNERS_MAX + 2] */
};

/* ---------------------------------------------------------------- the hull */

static int by_sent(const void *a, const void *b) {
    const struct point *p = a, *q = b;
    if (p->sent != q->sent) return p->sent < q->sent ? -1 : 1;
    return (p->later > q->later) - (p->later < q->later);
}

/* Is b on or above the line from a to c? */
static bool above(const struct point *a, const struct point *b, const struct point *c) {
    const double bx = (double)(b->sent - a->sent), cx = (double)(c->sent - a->sent);
    return (double)(b->later - a->later) * cx >= (double)(c->later - a->later) * bx;
}

/* Leaves the corners from below. */
static void reduce(struct passages *p) {
    size_t top = 0;
    if (p->count == p->corners) return;
    qsort(p->point, p->count, sizeof *p->point, by_sent);
    for (size_t i = 0; i < p->count; i++) {
        if (top > 0 && p->point[top - 1].sent == p->point[i].sent) continue;   /* the lower one came first */
        while (top > 1 && above(&p->point[top - 2], &p->point[top - 1], &p->point[i])) top--;
        p->point[top++] = p->point[i];
    }
    while (top > CORNERS_MAX) {
        size_t kept = 0;
        for (size_t i = 0; i < top; i += 2) p->point[kept++] = p->point[i];
        top = kept;
    }
    p->count = p->corners = top;
}

static struct passages *between(const struct echi_clocks *c, int from, int to) {
    return &c->passages[(size_t)from * (size_t)c->world + (size_t)to];
}

bool echi_clocks_message(struct echi_clocks *c, int from, int to, int64_t sent, int64_t came) {
    struct passages *p = between(c, from, to);
    if (p->count == p->cap) {
        reduce(p);
        const size_t cap = p->cap == 0 ? POINTS_FIRST : p->count > p->cap / 2 ? 2 * p->cap : p->cap;
        struct point *more = cap == p->cap ? p->point : realloc(p->point, cap * sizeof *more);
        if (!more) return false;
        p->point = more;
        p->cap = cap;
    }
    p->point[p->count++] = (struct point){sent, came - sent};
    return true;
}

struct echi_clocks *echi_clocks_create(int world) {
    struct echi_clocks *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->world = world;
    c->passages = calloc((size_t)world * (size_t)world, sizeof *c->passages);
    c->lower = malloc(CORNERS_MAX * sizeof *c->lower);
    c->upper = malloc(CORNERS_MAX * sizeof *c->upper);
    c->slope = malloc((2 * CORNERS_MAX + 2) * sizeof *c->slope);
    if (c->passages && c->lower && c->upper && c->slope) return c;
    echi_clocks_destroy(c);
    return NULL;
}

void echi_clocks_destroy(struct echi_clocks *c) {
    if (!c) return;
    for (size_t i = 0; c->passages && i < (size_t)c->world * (size_t)c->world; i++) free(c->passages[i].point);
    free(c->passages);
    free(c->lower);
    free(c->upper);
    free(c->slope);
    free(c);
}

/* ------------------------------------------------ lines between two sets of points */

struct bounds { const struct bound *lower, *upper; size_t lowers, uppers; double length; };
struct line { double at_first, drift, error_first, error_last, misses; };

/* Of lines with this slope: the offset at the first event, from lowest to highest. */
struct range { double low, high; };
static struct range range_at(const struct bounds *b, double slope) {
    struct range r = {-INFINITY, INFINITY};
    for (size_t i = 0; i < b->lowers; i++) r.low = fmax(r.low, b->lower[i].y - slope * b->lower[i].x);
    for (size_t i = 0; i < b->uppers; i++) r.high = fmin(r.high, b->upper[i].y - slope * b->upper[i].x);
    return r;
}

static size_t add_slopes(const struct bound *b, size_t count, double *slope, size_t slopes) {
    for (size_t i = 0; i + 1 < count; i++) {
        const double s = (b[i + 1].y - b[i].y) / (b[i + 1].x - b[i].x);
        if (s > -DRIFT_MAX && s < DRIFT_MAX) slope[slopes++] = s;
    }
    return slopes;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Offsets that are possible at the first event and at the last. */
struct possible { struct range first, last; };
static void allow(struct possible *p, struct range r, double slope, double length) {
    p->first.low = fmin(p->first.low, r.low);
    p->first.high = fmax(p->first.high, r.high);
    p->last.low = fmin(p->last.low, r.low + slope * length);
    p->last.high = fmax(p->last.high, r.high + slope * length);
}

/* The slope between one that fits and one that does not at which a line just fits. */
static double crossing(double fits, struct range at_fits, double misses, struct range at_misses) {
    const double room = at_fits.high - at_fits.low, lacks = at_misses.low - at_misses.high;
    return room + lacks > 0 ? fits + (misses - fits) * room / (room + lacks) : fits;
}

/* The lines that fit are a polygon of (slope, offset), whose corners have the slope of a hull's edge, or lie where the two hulls meet.
 * Where none fits, the one that misses the least. */
static struct line middle(const struct bounds *b, double *slope) {
    struct possible p = {{INFINITY, -INFINITY}, {INFINITY, -INFINITY}};
    struct range before = {0, 0}, best = {0, 0};
    double best_slope = 0, least = INFINITY;
    bool fitted = false;
    size_t slopes = add_slopes(b->lower, b->lowers, slope, 0);
    slopes = add_slopes(b->upper, b->uppers, slope, slopes);
    slope[slopes++] = -DRIFT_MAX;
    slope[slopes++] = DRIFT_MAX;
    qsort(slope, slopes, sizeof *slope, ascending);
    for (size_t i = 0; i < slopes; i++) {
        const struct range r = range_at(b, slope[i]);
        const bool fits = r.low <= r.high;
        if (i > 0 && fits != fitted) {
            const double meets = fits ? crossing(slope[i], r, slope[i - 1], before) : crossing(slope[i - 1], before, slope[i], r);
            const struct range at = range_at(b, meets);
            const double point = (at.low + at.high) / 2;
            allow(&p, (struct range){point, point}, meets, b->length);
        }
        if (fits) allow(&p, r, slope[i], b->length);
        if (r.low - r.high < least) least = r.low - r.high, best = r, best_slope = slope[i];
        before = r;
        fitted = fits;
    }
    if (least > 0)
        return (struct line){(best.low + best.high) / 2, best_slope, least / 2, least / 2, least / 2};
    const double first = (p.first.low + p.first.high) / 2, last = (p.last.low + p.last.high) / 2;
    return (struct line){first, b->length > 0 ? (last - first) / b->length : 0, p.first.high - first, p.last.high - last, 0};
}

/* -------------------------------------------------------------- all clocks */

int64_t echi_clock_on_zero(const struct echi_clock *c, int64_t t) {
    const int64_t since = t - c->first;
    return c->zero + since + (int64_t)llround(c->rate * (double)since);
}

/* What a clock's own estimate may be off where rank 0's says this: linear between its ends, and beyond them. */
static double error_at(const struct echi_clock *c, int64_t zero) {
    const double length = (double)(c->last - c->first), along = length > 0 ? (double)(zero - c->zero) / length : 0;
    return fabs(1 - along) * c->error_first + fabs(along) * c->error_last;
}

/* Where a clock's first event is by rank 0's; times of strangers must not leave the range of numbers. */
static int64_t place(int64_t first, int64_t base, double offset) {
    const double all = (double)first + (double)base + offset;
    if (fabs(all) >= TIME_MAX) return all > 0 ? (int64_t)TIME_MAX : -(int64_t)TIME_MAX;
    return first + base + (int64_t)llround(offset);
}

/* The bounds on the offset of a clock from rank 0's, by its messages with one that is known. They are counted from *out_base, the first of
 * them, so that they are small beside the times. */
static struct bounds bounds_by(const struct echi_clocks *c, const struct echi_clock *known, const struct echi_clock *clock,
                               int64_t *out_base) {
    struct passages *to = between(c, known->rank, clock->rank), *back = between(c, clock->rank, known->rank);
    reduce(to);
    reduce(back);
    *out_base = 0;
    for (size_t i = 0; i < to->count; i++) {
        const int64_t came = to->point[i].sent + to->point[i].later, offset = echi_clock_on_zero(known, to->point[i].sent) - came;
        if (i == 0) *out_base = offset;
        c->lower[i] = (struct bound){(double)(came - clock->first), (double)(offset - *out_base) - READING};
    }
    for (size_t i = 0; i < back->count; i++) {
        const int64_t sent = back->point[i].sent, offset = echi_clock_on_zero(known, sent + back->point[i].later) - sent;
        if (i == 0 && to->count == 0) *out_base = offset;
        c->upper[i] = (struct bound){(double)(sent - clock->first), (double)(offset - *out_base) + READING};
    }
    return (struct bounds){c->lower, c->upper, to->count, back->count, (double)(clock->last - clock->first)};
}

/* A clock by its messages with one that is known; false: there is none. One that has messages one way only is put where the fastest of
 * them took no time. */
static bool estimate(const struct echi_clocks *c, const struct echi_clock *known, struct echi_clock *out) {
    int64_t base;
    const struct bounds b = bounds_by(c, known, out, &base);
    if (b.lowers == 0 && b.uppers == 0) return false;
    const bool both = b.lowers > 0 && b.uppers > 0;
    const struct range still = range_at(&b, 0);
    const struct line l = both ? middle(&b, c->slope) : (struct line){.at_first = b.lowers > 0 ? still.low : still.high};
    out->through = known->rank;
    out->messages = true;
    out->bounded = both && known->bounded;
    out->zero = place(out->first, base, l.at_first);
    out->rate = l.drift;
    out->misses = l.misses;
    out->error_first = l.error_first + error_at(known, out->zero);
    out->error_last = l.error_last + error_at(known, echi_clock_on_zero(out, out->last));
    return true;
}

double echi_clock_error(const struct echi_clock *c) { return c->bounded ? fmax(c->error_first, c->error_last) : -1; }
double echi_clock_drift(const struct echi_clock *c) { return 1 / (1 + c->rate) - 1; }

static bool both_ways(const struct echi_clocks *c, int a, int b) { return between(c, a, b)->count > 0 && between(c, b, a)->count > 0; }

/* One more hop from rank 0: each clock that is not known yet, by the one of those that are that says it best. */
static bool hop(const struct echi_clocks *c, struct echi_clock *clock, bool *known, bool one_way) {
    bool any = false, found[ECHI_WORLD_MAX];
    for (int r = 0; r < c->world; r++) {
        found[r] = false;
        for (int k = 0; k < c->world && !known[r]; k++) {
            struct echi_clock by = clock[r];
            if (!known[k] || (!one_way && !both_ways(c, k, r)) || !estimate(c, &clock[k], &by)) continue;
            const double error = echi_clock_error(&by);
            if (!found[r] || (error >= 0 && (error < echi_clock_error(&clock[r]) || !clock[r].bounded))) clock[r] = by;
            found[r] = true;
        }
        any = any || found[r];
    }
    for (int r = 0; r < c->world; r++) known[r] = known[r] || found[r];
    return any;
}

void echi_clocks_estimate(const struct echi_clocks *c, struct echi_clock *clock) {
    bool known[ECHI_WORLD_MAX] = {true};
    for (int r = 0; r < c->world; r++) {   /* one that no message is of begins with rank 0's */
        const struct echi_clock alone = {.rank = r, .through = -1, .first = clock[r].first, .last = clock[r].last, .zero = clock[0].first,
                                         .bounded = r == 0};
        clock[r] = alone;
    }
    while (hop(c, clock, known, false) || hop(c, clock, known, true)) {}
}

/* ------------------------------------------------------------ of recordings */

struct listener { struct echi_clocks *clocks; struct echi_clock *clock; bool *began; };

static ech_status note_span(void *user, int rank, const struct echi_record *record, struct ech_error *err) {
    struct listener *l = user;
    (void)err;
    if (record->kind != ECHI_RECORD_EVENT) return ECH_OK;
    l->clock[rank].last = record->event.event.now;
    if (!l->began[rank]) l->clock[rank].first = record->event.event.now;
    l->began[rank] = true;
    return ECH_OK;
}

static ech_status note_message(void *user, struct echi_passage *f, struct ech_error *err) {
    struct listener *l = user;
    const bool taken = echi_clocks_message(l->clocks, f->from, f->to, f->sent, f->came);
    return taken ? ECH_OK : echi_fail_memory(err, "replay.clocks", "the times of messages");
}

ech_status echi_recordings_clocks(struct echi_recording *recording, int world, struct echi_clock *out, struct ech_error *err) {
    bool began[ECHI_WORLD_MAX] = {false};
    struct listener l = {echi_clocks_create(world), out, began};
    const struct echi_walker walker = {.user = &l, .record = note_span, .arrive = note_message};
    if (!l.clocks) return echi_fail_memory(err, "replay.clocks", "the clocks of a run");
    for (int r = 0; r < world; r++) out[r].first = out[r].last = 0;
    const ech_status status = echi_recordings_walk(recording, world, &walker, err);
    if (status == ECH_OK) echi_clocks_estimate(l.clocks, out);
    echi_clocks_destroy(l.clocks);
    return status;
}
