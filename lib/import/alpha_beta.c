/* SPDX-License-Identifier: Apache-2.0
 * Links by the alpha-beta model: logs of the OSU micro-benchmarks, fits, and what follows for each node's link. A log:
 *     # OSU MPI Allreduce Latency Test v5.4.0
 *     # Size       Avg Latency(us)
 *     8,4                      31.92        (or without "8,", the number of nodes) */
#include "echi_import_impl.h"

#include <stdlib.h>
#include <string.h>

#define US 1e-6
#define US_MAX (ECHI_IMPORT_SECONDS_MAX / US)
#define POINTS_MAX 4096
#define PIECE_LEAST 8       /* points of a piece, where there are two: a protocol that changes shows in less, but so does noise */
#define PIECES_WORTH 0.5    /* two of them leave this part of the squared error of one, or less */
#define NOISE 0.01          /* of the mean time: one line that is no further off is good enough */

/* -------------------------------------------------------------------- fit */

/* alpha + beta M by least squares, and the squared error that it leaves; about the mean, so that sums lose no digits. */
struct line { double alpha, beta, error, mean; };
static struct line fit(const struct echi_alpha_beta_point *p, int count) {
    double bytes = 0, seconds = 0, square = 0, both = 0;
    for (int i = 0; i < count; i++) {
        bytes += p[i].bytes / count;
        seconds += p[i].seconds / count;
    }
    for (int i = 0; i < count; i++) {
        square += (p[i].bytes - bytes) * (p[i].bytes - bytes);
        both += (p[i].bytes - bytes) * (p[i].seconds - seconds);
    }
    struct line l = {.beta = square > 0 ? both / square : 0, .mean = seconds};
    l.alpha = seconds - l.beta * bytes;
    for (int i = 0; i < count; i++) {
        const double off = p[i].seconds - l.alpha - l.beta * p[i].bytes;
        l.error += off * off;
    }
    return l;
}

/* A message takes no less than no time. */
static struct echi_alpha_beta piece_of(double from, struct line l) {
    return (struct echi_alpha_beta){from, l.alpha > 0 ? l.alpha : 0, l.beta};
}

static int by_size(const void *a, const void *b) {
    const double x = ((const struct echi_alpha_beta_point *)a)->bytes, y = ((const struct echi_alpha_beta_point *)b)->bytes;
    return (x > y) - (x < y);
}

bool echi_alpha_beta_fit(struct echi_alpha_beta_point *point, int count, struct echi_alpha_betas *out) {
    qsort(point, (size_t)count, sizeof *point, by_size);
    *out = (struct echi_alpha_betas){.pieces = 1};
    if (count < 2) return false;
    const struct line one = fit(point, count);
    double best = PIECES_WORTH * one.error;
    out->piece[0] = piece_of(0, one);
    if (one.error < count * (NOISE * one.mean) * (NOISE * one.mean)) best = 0;
    for (int at = PIECE_LEAST; at + PIECE_LEAST <= count; at++) {
        const struct line low = fit(point, at), high = fit(point + at, count - at);
        if (!(low.error + high.error < best) || !(low.beta > 0) || !(high.beta > 0) || point[at].bytes == point[at - 1].bytes) continue;
        best = low.error + high.error;
        out->pieces = 2;
        out->piece[0] = piece_of(0, low);
        out->piece[1] = piece_of(point[at].bytes, high);
    }
    return out->piece[0].beta > 0;
}

/* -------------------------------------------------------------------- log */

/* "8,1024": of eight nodes; they stay as many. */
static ech_status read_size(const struct echi_lines *lines, char *word, int *nodes, double *out) {
    static const char needs[] = "a line of an OSU log is 'bytes us' or 'nodes,bytes us': bytes from 1 to 1000000000000, nodes from 2 "
                                "to 1024 and in all lines the same";
    char *comma = strchr(word, ',');
    double count = 0;
    if (comma) {
        *comma = 0;
        ECHI_TRY(echi_import_number(lines, word, needs, 2, ECHI_WORLD_MAX, &count));
    }
    if ((*nodes >= 0 && count != *nodes) || count != (int)count) return echi_lines_refuse(lines, needs, word);
    *nodes = (int)count;
    return echi_import_number(lines, comma ? comma + 1 : word, needs, 1, 1e12, out);
}

static ech_status read_log(struct echi_lines *lines, struct echi_alpha_beta_point *point, struct echi_alpha_betas *out) {
    static const char needs[] = "a size is followed by its time in us, above 0 and up to 3600000000";
    int count = 0, nodes = -1;
    for (char *word; (word = echi_lines_next(lines)); count++) {
        if (count == POINTS_MAX) return echi_lines_refuse(lines, "an OSU log has at most 4096 lines", word);
        ECHI_TRY(read_size(lines, word, &nodes, &point[count].bytes));
        ECHI_TRY(echi_import_number(lines, echi_lines_word(lines), needs, 1e-6, US_MAX, &point[count].seconds));
        point[count].seconds *= US;
        ECHI_TRY(echi_lines_end(lines));
    }
    if (!echi_alpha_beta_fit(point, count, out))
        return echi_fail(lines->err, ECH_E_FORMAT, lines->operation,
                         "%s describes no link: it needs the times of two sizes or more, which grow with them", lines->path);
    out->nodes = nodes;
    return ECH_OK;
}

ech_status echi_alpha_beta_load(const char *path, struct echi_alpha_betas *out, struct ech_error *err) {
    struct echi_lines lines;
    struct echi_alpha_betas fitted;
    struct echi_alpha_beta_point *point = malloc(POINTS_MAX * sizeof *point);
    if (!point) return echi_fail_memory(err, "links.load", "an OSU log");
    ech_status status = echi_lines_open(&lines, path, "links.load", err);
    if (status == ECH_OK) status = read_log(&lines, point, &fitted);
    if (status == ECH_OK) *out = fitted;
    echi_lines_close(&lines);
    free(point);
    return status;
}

bool echi_import_alpha_beta(const struct echi_import *import, struct echi_alpha_betas *out) {
    struct echi_alpha_beta_point point[ECHI_UNITS_MAX];
    int count = 0;
    for (int i = 0; i < import->count; i++)
        if (import->layer[i].comm > 0) point[count++] = (struct echi_alpha_beta_point){import->layer[i].bytes, import->layer[i].comm};
    return echi_alpha_beta_fit(point, count, out);
}

/* ------------------------------------------------------------------ links */

struct echi_alpha_beta_link echi_alpha_beta_message(struct echi_alpha_beta m) {
    return (struct echi_alpha_beta_link){1 / m.beta, m.alpha / 2};
}

struct echi_alpha_beta_link echi_alpha_beta_ring(struct echi_alpha_beta a, int nodes) {
    const double steps = 2.0 * (nodes - 1);
    return echi_alpha_beta_message((struct echi_alpha_beta){.alpha = a.alpha / steps, .beta = a.beta / (steps / nodes)});
}
