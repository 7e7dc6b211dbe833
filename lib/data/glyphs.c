/* SPDX-License-Identifier: Apache-2.0
 * "glyphs": a generated digit set in the format of MNIST, for a machine with no data and no network.
 *
 * A digit is a few strokes; a stroke is a polygon of control points that a quadratic B-spline follows. For each sample the
 * points are moved a little, the figure is stretched, slanted, turned and shifted, drawn with a pen of some width and
 * softness, and noise is added. Sample i of a set is a pure function of (seed, set, i), and of nothing that differs
 * between machines: only + - * / and square roots, which IEEE 754 rounds the same everywhere, no sin, exp or log. */
#include "echi_pixels.h"

#include "echi_error.h"
#include "echi_random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, TRAIN = 20000, TEST = 4000, STROKES = 3, POINTS = 14, STEPS = 5 };

struct point { float x, y; };                           /* x to the right, y down */
struct stroke { int points; struct point at[POINTS]; };  /* the same point twice: a corner */
struct figure { int digit, strokes; struct stroke stroke[STROKES]; };

/* In a box of 1 x 1. People write some digits in more than one way. */
static const struct figure figures[] = {
    {0, 1, {{11, {{.55f, .01f}, {.30f, -.03f}, {.12f, .18f}, {.08f, .55f}, {.15f, .95f}, {.45f, 1.06f}, {.80f, .98f}, {.93f, .60f},
                  {.90f, .20f}, {.75f, -.02f}, {.52f, .01f}}}}},
    {0, 1, {{10, {{.52f, .00f}, {.32f, .00f}, {.09f, .28f}, {.08f, .72f}, {.30f, 1.00f}, {.68f, 1.00f}, {.92f, .74f}, {.92f, .30f},
                  {.68f, .00f}, {.50f, .00f}}}}},
    {1, 1, {{3, {{.52f, .00f}, {.50f, .50f}, {.48f, 1.00f}}}}},
    {1, 1, {{5, {{.28f, .24f}, {.42f, .14f}, {.54f, .00f}, {.54f, .00f}, {.52f, 1.00f}}}}},
    {1, 2, {{5, {{.28f, .22f}, {.42f, .12f}, {.52f, .00f}, {.52f, .00f}, {.52f, 1.00f}}}, {2, {{.24f, 1.00f}, {.80f, 1.00f}}}}},
    {2, 1, {{9, {{.14f, .26f}, {.22f, .00f}, {.62f, -.06f}, {.92f, .16f}, {.72f, .56f}, {.40f, .78f}, {.10f, 1.00f}, {.10f, 1.00f},
                 {.92f, .98f}}}}},
    {2, 1, {{11, {{.16f, .20f}, {.34f, -.04f}, {.74f, -.04f}, {.88f, .24f}, {.66f, .66f}, {.34f, 1.04f}, {.06f, 1.02f}, {.12f, .80f},
                  {.40f, .82f}, {.66f, 1.04f}, {.96f, .92f}}}}},
    {3, 1, {{10, {{.14f, .14f}, {.34f, -.04f}, {.84f, -.04f}, {.88f, .40f}, {.42f, .47f}, {.42f, .47f}, {.94f, .50f}, {.94f, .98f},
                  {.44f, 1.06f}, {.10f, .86f}}}}},
    {3, 1, {{9, {{.14f, .02f}, {.86f, .02f}, {.86f, .02f}, {.46f, .42f}, {.46f, .42f}, {.92f, .46f}, {.94f, .98f}, {.46f, 1.08f},
                 {.10f, .88f}}}}},
    {4, 2, {{4, {{.62f, .00f}, {.08f, .66f}, {.08f, .66f}, {.94f, .66f}}}, {3, {{.64f, .00f}, {.66f, .40f}, {.66f, 1.00f}}}}},
    {4, 2, {{4, {{.20f, .02f}, {.14f, .52f}, {.14f, .52f}, {.82f, .52f}}}, {3, {{.80f, .00f}, {.78f, .50f}, {.72f, 1.00f}}}}},
    {5, 1, {{10, {{.82f, .00f}, {.26f, .00f}, {.26f, .00f}, {.20f, .46f}, {.20f, .46f}, {.58f, .28f}, {.94f, .50f}, {.86f, 1.00f},
                  {.44f, 1.06f}, {.12f, .88f}}}}},
    {5, 2, {{8, {{.26f, .02f}, {.22f, .44f}, {.22f, .44f}, {.60f, .34f}, {.92f, .54f}, {.82f, 1.02f}, {.40f, 1.06f}, {.10f, .92f}}},
            {2, {{.26f, .02f}, {.88f, .00f}}}}},
    {6, 1, {{10, {{.72f, .00f}, {.42f, .10f}, {.14f, .46f}, {.10f, .84f}, {.40f, 1.08f}, {.82f, .98f}, {.88f, .62f}, {.54f, .46f},
                  {.24f, .58f}, {.14f, .80f}}}}},
    {6, 1, {{9, {{.44f, -.02f}, {.22f, .40f}, {.16f, .80f}, {.34f, 1.06f}, {.74f, 1.04f}, {.84f, .74f}, {.60f, .56f}, {.30f, .66f},
                 {.18f, .84f}}}}},
    {7, 1, {{5, {{.10f, .03f}, {.88f, .03f}, {.88f, .03f}, {.60f, .44f}, {.42f, 1.00f}}}}},
    {7, 2, {{5, {{.12f, .03f}, {.86f, .03f}, {.86f, .03f}, {.60f, .44f}, {.40f, 1.00f}}}, {2, {{.32f, .50f}, {.78f, .48f}}}}},
    {8, 1, {{12, {{.80f, .14f}, {.56f, -.08f}, {.14f, .02f}, {.16f, .34f}, {.52f, .48f}, {.92f, .66f}, {.86f, 1.02f}, {.50f, 1.08f},
                  {.08f, 1.00f}, {.10f, .64f}, {.50f, .46f}, {.82f, .16f}}}}},
    {8, 2, {{7, {{.52f, .46f}, {.16f, .40f}, {.20f, -.04f}, {.54f, -.04f}, {.86f, .00f}, {.84f, .42f}, {.50f, .46f}}},
            {7, {{.50f, .46f}, {.10f, .52f}, {.08f, 1.04f}, {.50f, 1.04f}, {.94f, 1.02f}, {.90f, .50f}, {.52f, .46f}}}}},
    {9, 1, {{9, {{.84f, .18f}, {.68f, -.06f}, {.22f, -.04f}, {.10f, .36f}, {.40f, .60f}, {.78f, .42f}, {.86f, .10f}, {.84f, .50f},
                 {.70f, 1.02f}}}}},
    {9, 2, {{7, {{.78f, .16f}, {.58f, -.06f}, {.18f, .06f}, {.18f, .46f}, {.50f, .56f}, {.80f, .36f}, {.78f, .14f}}},
            {4, {{.78f, .10f}, {.80f, .56f}, {.70f, 1.04f}, {.24f, 1.00f}}}}},
};
enum { FIGURES = sizeof figures / sizeof *figures };

static float between(struct echi_random *r, float low, float high) { return low + (high - low) * (float)echi_random_unit(r); }

/* From the box to pixels. */
struct warp { float xx, xy, yx, yy, x, y; };

static struct warp random_warp(struct echi_random *r) {
    float wide = between(r, 10.0f, 18.0f), high = between(r, 15.0f, 21.0f), slant = between(r, -0.25f, 0.45f);
    float half = between(r, -0.16f, 0.16f);   /* tangent of half the angle: about 18 degrees either way */
    float c = (1.0f - half * half) / (1.0f + half * half), s = 2.0f * half / (1.0f + half * half);
    /* Turn * slant * stretch; a positive slant leans to the right, as y points down. */
    return (struct warp){.xx = c * wide, .xy = (-c * slant - s) * high, .yx = s * wide, .yy = (-s * slant + c) * high,
                         .x = 14.0f + between(r, -2.5f, 2.5f), .y = 14.0f + between(r, -2.5f, 2.5f)};
}

static struct point warped(const struct warp *w, struct point p) {
    float x = p.x - 0.5f, y = p.y - 0.5f;
    return (struct point){w->xx * x + w->xy * y + w->x, w->yx * x + w->yy * y + w->y};
}

struct pen { float radius, soft; };   /* pixels; ink fades from 1 to 0 over `soft` around the radius */

static int clamp_pixel(float at) { return at < 0.0f ? 0 : at > (float)SIDE ? SIDE : (int)at; }

/* Draws the line from a to b: each pixel near it takes the ink that its distance from the line gives, if that is more. Beyond `reach` it
 * gives none, however quotients are rounded. Whether it is more is a maximum, not a branch: nobody could guess it. */
static void draw_line(float ink[PIXELS], struct pen pen, struct point a, struct point b) {
    const float reach = pen.radius + 0.5f * pen.soft + 0.01f, dx = b.x - a.x, dy = b.y - a.y, len2 = dx * dx + dy * dy;
    const float over = len2 > 0.0f ? len2 : 1.0f;   /* a point is near itself alone */
    int x0 = clamp_pixel(fminf(a.x, b.x) - reach), x1 = clamp_pixel(fmaxf(a.x, b.x) + reach + 1.0f);
    int y0 = clamp_pixel(fminf(a.y, b.y) - reach), y1 = clamp_pixel(fmaxf(a.y, b.y) + reach + 1.0f);
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++) {
            float px = (float)x + 0.5f - a.x, py = (float)y + 0.5f - a.y;
            float t = (px * dx + py * dy) / over;
            t = t < 0.0f ? 0.0f : t > 1.0f ? 1.0f : t;
            float ex = px - t * dx, ey = py - t * dy;
            float cover = (pen.radius - sqrtf(ex * ex + ey * ey)) / pen.soft + 0.5f;
            float *at = &ink[y * SIDE + x];
            cover = cover > 1.0f ? 1.0f : cover;
            *at = cover > *at ? cover : *at;
        }
}

static struct point middle(struct point a, struct point b) { return (struct point){(a.x + b.x) * 0.5f, (a.y + b.y) * 0.5f}; }

/* Between the middles of its sides a control polygon's quadratic B-spline is a parabola with the corner as its control
 * point; at the two ends it runs to the end points themselves. */
static void draw_stroke(float ink[PIXELS], struct pen pen, const struct point *p, int points) {
    struct point from = p[0];
    for (int i = 1; i < points; i++) {
        struct point start = i > 1 ? middle(p[i - 2], p[i - 1]) : p[0], control = p[i - 1], end = middle(p[i - 1], p[i]);
        for (int k = 1; k <= STEPS; k++) {
            float t = (float)k / (float)STEPS, u = 1.0f - t;
            struct point to = {u * u * start.x + 2.0f * u * t * control.x + t * t * end.x,
                               u * u * start.y + 2.0f * u * t * control.y + t * t * end.y};
            draw_line(ink, pen, from, to);
            from = to;
        }
    }
    draw_line(ink, pen, from, p[points - 1]);
}

static void draw_sample(uint64_t seed, int test, uint32_t i, uint8_t pixels[PIXELS], uint8_t *label) {
    struct echi_random r;
    echi_random_init(&r, seed, ECHI_STREAM_GLYPHS, i << 1 | (uint32_t)test);
    const struct figure *figure = &figures[echi_random_below(&r, FIGURES)];
    while (figure->digit != (int)(i % 10)) figure = &figures[echi_random_below(&r, FIGURES)];
    struct warp warp = random_warp(&r);
    struct pen pen = {.radius = between(&r, 0.7f, 1.9f), .soft = between(&r, 0.9f, 1.7f)};
    float ink[PIXELS] = {0};
    for (int s = 0; s < figure->strokes; s++) {
        const struct stroke *stroke = &figure->stroke[s];
        struct point p[POINTS] = {{0}};
        for (int k = 0; k < stroke->points; k++) {
            struct point at = stroke->at[k];
            if (k > 0 && at.x == stroke->at[k - 1].x && at.y == stroke->at[k - 1].y) {
                p[k] = p[k - 1];   /* a corner stays one */
                continue;
            }
            at.x += between(&r, -0.07f, 0.07f);
            at.y += between(&r, -0.05f, 0.05f);
            p[k] = warped(&warp, at);
        }
        draw_stroke(ink, pen, p, stroke->points);
    }
    float strength = between(&r, 170.0f, 255.0f), noise = between(&r, 0.0f, 40.0f) / 128.0f;
    for (int k = 0; k < PIXELS; k += 4) {
        uint32_t word = echi_random_u32(&r);
        for (int b = 0; b < 4; b++, word >>= 8) {
            int v = (int)(ink[k + b] * strength + ((float)(word & 255) - 127.5f) * noise);
            pixels[k + b] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
    }
    *label = (uint8_t)figure->digit;
}

static ech_status make_set(uint64_t seed, int test, uint32_t count, struct echi_pixel_set *set, struct ech_error *err) {
    *set = (struct echi_pixel_set){.pixel_block = malloc((size_t)count * PIXELS), .label_block = malloc(count), .count = count};
    if (!set->pixel_block || !set->label_block) return echi_fail_memory(err, "data.open", "the samples of glyphs");
    set->pixels = set->pixel_block;
    set->labels = set->label_block;
    for (uint32_t i = 0; i < count; i++) draw_sample(seed, test, i, set->pixel_block + (size_t)i * PIXELS, set->label_block + i);
    return ECH_OK;
}

ech_status echi_glyphs_open(uint64_t seed, struct ech_data **out, struct ech_error *err) {
    struct echi_pixel_set train = {0}, test = {0};
    ech_status status = make_set(seed, 0, TRAIN, &train, err);
    if (status == ECH_OK) status = make_set(seed, 1, TEST, &test, err);
    const struct echi_pixel_form form = echi_pixels_digits(SIDE, SIDE);
    if (status == ECH_OK) return echi_pixels_data(train, test, &form, "glyphs", out, err);
    echi_pixel_set_free(&train);
    echi_pixel_set_free(&test);
    return status;
}
