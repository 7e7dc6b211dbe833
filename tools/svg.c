/* SPDX-License-Identifier: Apache-2.0
 * --svg: a round of a plan, or a recorded step, as a picture, and what the plan would make on other links, and fewer nodes. SVG 1.1,
 * without scripts, of a fixed width; white behind, so that it can be read in dark viewers too. */
#include "tool.h"
#include "echelon_dev.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pixels. */
enum {
    WIDTH = 1200, LEFT = 84, RIGHT = 24, TOP = 130, PLOT = WIDTH - LEFT - RIGHT,
    COMPUTE = 18, LINK = 9, MESSAGES = 4, GAP = 12,   /* heights of a host's lanes, and what is between hosts */
    SWEEP = 220
};
#define HOSTS_MAX 16
#define PARTS 5            /* of the critical path that fit into a line */
#define MERGED 0.4         /* what is nearer than this to its like is one rectangle with it */

static const struct { const char *what, *colour; } legend[] = {
    {"forward", "#9cc7ec"}, {"backward", "#3a7bbf"}, {"apply", "#f0a83c"}, {"head", "#9467bd"}, {"codec", "#8c8c3a"},
    {"gradients", "#d65f5f"}, {"weights", "#5fb36a"}, {"activations", "#e39ac4"}, {"states", "#8c6d57"}, {"control", "#a0a0a0"}};
enum { LEGENDS = (int)(sizeof legend / sizeof legend[0]) };

static const char *colour_of(const char *what) {
    for (int i = 0; i < LEGENDS; i++)
        if (strcmp(legend[i].what, what) == 0) return legend[i].colour;
    return "#000000";
}

/* A host's lanes, from above. */
static const struct { const char *on, *label; int height; } lanes[] = {
    {"compute", "compute", COMPUTE}, {"out", "out", LINK}, {"in", "in", LINK}, {"messages", NULL, MESSAGES}};
enum { LANES = (int)(sizeof lanes / sizeof lanes[0]), HOST = COMPUTE + LINK + LINK + MESSAGES + LANES - 1 };

static int lane_of(const struct ech_interval *i) {
    int lane = 0;
    while (lane < LANES - 1 && strcmp(lanes[lane].on, i->on) != 0) lane++;
    return lane;
}

struct picture {
    FILE *to;
    const struct ech_report *report;
    const struct ech_timeline *line;
    int row[ECH_WORLD_MAX];   /* of each rank that is drawn; -1: it is not */
    int drawn, busy;          /* ranks; those that have anything to do */
};

static double x_of(const struct picture *p, double seconds) { return LEFT + PLOT * seconds / p->line->seconds; }
static double y_of(const struct picture *p, int rank, int lane) {
    double y = TOP + (double)p->row[rank] * (HOST + GAP);
    for (int i = 0; i < lane; i++) y += lanes[i].height + 1;
    return y;
}
static double bottom_of(const struct picture *p) { return TOP + (double)p->drawn * (HOST + GAP); }

/* Names come from files: what XML or a font may not know is a question mark. */
static void put_text(FILE *to, const char *text) {
    for (; *text; text++) {
        if (*text == '&') fputs("&amp;", to);
        else if (*text == '<') fputs("&lt;", to);
        else if (*text == '>') fputs("&gt;", to);
        else fputc(*text >= ' ' && *text <= '~' ? *text : '?', to);
    }
}

static void label(const struct picture *p, double x, double y, int size, const char *anchor, const char *text) {
    fprintf(p->to, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, size, anchor, text);
}

static bool is_cut(const struct picture *p) { return p->drawn < p->busy || p->line->left_out > 0; }

/* ---- who is drawn ---- */

/* The critical path's ranks first, those with the most of it in front; then by rank. */
static void choose(struct picture *p) {
    double weight[ECH_WORLD_MAX] = {0};
    bool has[ECH_WORLD_MAX] = {false};
    int chosen[HOSTS_MAX];
    for (int i = 0; i < p->line->count; i++) {
        has[p->line->interval[i].rank] = true;
        weight[p->line->interval[i].rank] += p->line->interval[i].path_to - p->line->interval[i].path_from;
    }
    for (int r = 0; r < p->report->world; r++) {
        p->row[r] = -1;
        p->busy += has[r];
    }
    while (p->drawn < HOSTS_MAX && p->drawn < p->busy) {
        int best = -1;
        for (int r = 0; r < p->report->world; r++)
            if (has[r] && (best < 0 || weight[r] > weight[best])) best = r;
        has[best] = false;
        chosen[p->drawn++] = best;
    }
    for (int i = 0; i < p->drawn; i++) {
        int row = 0;
        for (int k = 0; k < p->drawn; k++) row += chosen[k] < chosen[i];
        p->row[chosen[i]] = row;
    }
}

/* ---- the head ---- */

static void put_title(const struct picture *p) {
    const struct ech_report *r = p->report;
    fprintf(p->to, "<text x=\"%d\" y=\"30\" font-size=\"20\" font-weight=\"bold\">", LEFT);
    put_text(p->to, r->model);
    fputs(", ", p->to);
    put_text(p->to, r->sync);
    fprintf(p->to, ", %d node%s: ", r->world, r->world == 1 ? "" : "s");
    if (p->line->steps > 0)
        fprintf(p->to, "step %llu of %llu, as it was recorded</text>\n", (unsigned long long)p->line->step,
                (unsigned long long)p->line->steps);
    else fprintf(p->to, "%.0f images/s are predicted</text>\n", r->predicted_images_per_second);
    fprintf(p->to, "<text x=\"%d\" y=\"52\" font-size=\"13\">Critical path, ", LEFT);
    path_length_print(p->to, r);
    if (fabs(p->line->seconds - r->path_seconds) > 0.005 * r->path_seconds)   /* steps vary */
        fprintf(p->to, " in the mean (one of %.3g %s is drawn)", p->line->seconds * (p->line->seconds < 1 ? 1e3 : 1),
                p->line->seconds < 1 ? "ms" : "s");
    fprintf(p->to, ":</text>\n<text x=\"%d\" y=\"69\" font-size=\"13\">", LEFT);
    path_parts_print(p->to, r, PARTS);
    fputs("</text>\n", p->to);
}

/* Only what occurs. */
static void put_legend(const struct picture *p) {
    double x = LEFT;
    for (int i = 0; i < LEGENDS; i++) {
        bool occurs = false;
        for (int k = 0; k < p->line->count && !occurs; k++) occurs = strcmp(p->line->interval[k].what, legend[i].what) == 0;
        if (!occurs) continue;
        fprintf(p->to, "<rect x=\"%.1f\" y=\"82\" width=\"14\" height=\"12\" fill=\"%s\"/>\n", x, legend[i].colour);
        label(p, x + 19, 93, 12, "start", legend[i].what);
        x += 34 + 7.0 * (double)strlen(legend[i].what);
    }
    fprintf(p->to, "<rect x=\"%.1f\" y=\"83\" width=\"14\" height=\"10\" fill=\"none\" stroke=\"#000000\" stroke-width=\"2\"/>\n", x);
    label(p, x + 19, 93, 12, "start", "on the critical path");
}

/* ---- axes ---- */

/* 1, 2 or 5 times a power of ten, about an n-th of all. */
static double round_step(double all, int n) {
    const double raw = all / n, power = pow(10, floor(log10(raw))), part = raw / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static void put_axis(const struct picture *p) {
    const double all = p->line->seconds, step = round_step(all, 10), bottom = bottom_of(p);
    char text[32];
    for (int i = 0; i * step <= all * (1 + 1e-9); i++) {
        const double x = x_of(p, i * step);
        fprintf(p->to, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#d8d8d8\"/>\n", x, TOP - 14, x, bottom);
        snprintf(text, sizeof text, "%g", 1e3 * i * step);
        label(p, x, TOP - 18, 11, "middle", text);
    }
    label(p, LEFT - 8, TOP - 18, 11, "end", "ms");
}

static void put_hosts(const struct picture *p) {
    char text[80];
    for (int r = 0; r < p->report->world; r++) {
        if (p->row[r] < 0) continue;
        snprintf(text, sizeof text, "rank %d", r);
        label(p, LEFT - 8, y_of(p, r, 0) + 13, 12, "end", text);
        for (int i = 1; i < LANES; i++)
            if (lanes[i].label) label(p, LEFT - 8, y_of(p, r, i) + 8, 9, "end", lanes[i].label);
        fprintf(p->to, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n", LEFT, y_of(p, r, 0) + HOST + GAP / 2.0,
                LEFT + PLOT, y_of(p, r, 0) + HOST + GAP / 2.0);
    }
    if (!is_cut(p)) return;
    snprintf(text, sizeof text, "%d more nodes are not drawn", p->busy - p->drawn);
    if (p->line->left_out > 0) snprintf(text, sizeof text, "%d intervals were too many and are not drawn", p->line->left_out);
    label(p, LEFT, bottom_of(p) + 14, 12, "start", text);
}

/* ---- intervals ---- */

static int in_order(const void *a, const void *b) {
    const struct ech_interval *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (lane_of(x) != lane_of(y)) return lane_of(x) < lane_of(y) ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

static void put_rectangle(const struct picture *p, const struct ech_interval *i, double to, int merged) {
    const double x = x_of(p, i->from), width = x_of(p, to) - x, y = y_of(p, i->rank, lane_of(i));
    fprintf(p->to, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>", x, y, width < 0.2 ? 0.2 : width,
            lanes[lane_of(i)].height, colour_of(i->what));
    fprintf(p->to, "rank %d, %s: %s", i->rank, i->on, i->what);
    if (i->peer != i->rank && merged == 1) fprintf(p->to, " %s rank %d", strcmp(i->on, "out") == 0 ? "to" : "from", i->peer);
    if (i->layer >= 0 && merged == 1) fprintf(p->to, ", from layer %d on", i->layer);
    if (merged > 1) fprintf(p->to, ", %d times", merged);
    fprintf(p->to, ", %.4g to %.4g ms</title></rect>\n", 1e3 * i->from, 1e3 * to);
    if (lane_of(i) == 0 && width > 8.0 * (double)strlen(i->what))
        fprintf(p->to, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"11\" text-anchor=\"middle\" fill=\"%s\">%s</text>\n", x + width / 2, y + 13,
                strcmp(i->what, "forward") == 0 || strcmp(i->what, "apply") == 0 ? "#202020" : "#ffffff", i->what);
}

static bool is_like(const struct ech_interval *a, const struct ech_interval *b) {
    return a->rank == b->rank && lane_of(a) == lane_of(b) && strcmp(a->what, b->what) == 0;
}

static void put_intervals(const struct picture *p) {
    const struct ech_interval *all = p->line->interval;
    for (int i = 0, next; i < p->line->count; i = next) {
        double to = all[i].to;
        next = i + 1;
        for (; next < p->line->count && is_like(&all[i], &all[next]) && x_of(p, all[next].from) - x_of(p, to) < MERGED; next++)
            if (all[next].to > to) to = all[next].to;
        if (p->row[all[i].rank] >= 0) put_rectangle(p, &all[i], to, next - i);
    }
}

/* ---- the critical path ---- */

static int by_path(const void *a, const void *b) {
    const struct ech_interval *x = a, *y = b;
    return (x->path_from > y->path_from) - (x->path_from < y->path_from);
}

/* Outlines of what is on it, like neighbours as one, and lines from each to the next. */
static void put_path(const struct picture *p) {
    struct ech_interval *on = calloc((size_t)p->line->count + 1, sizeof *on);
    int n = 0;
    for (int i = 0; on && i < p->line->count; i++)
        if (p->line->interval[i].path_to > 0) on[n++] = p->line->interval[i];
    if (on) qsort(on, (size_t)n, sizeof *on, by_path);
    const struct ech_interval *last = NULL;
    double last_x = 0, last_y = 0;
    for (int i = 0, next; i < n; i = next) {
        double to = on[i].path_to;
        next = i + 1;
        for (; next < n && on[next].rank == on[i].rank && lane_of(&on[next]) == lane_of(&on[i]) &&
               x_of(p, on[next].path_from) - x_of(p, to) < MERGED; next++)
            to = on[next].path_to;
        if (p->row[on[i].rank] < 0) continue;
        const double x = x_of(p, on[i].path_from), end = x_of(p, to), y = y_of(p, on[i].rank, lane_of(&on[i]));
        const int height = lanes[lane_of(&on[i])].height;
        if (last)
            fprintf(p->to, "<line x1=\"%.2f\" y1=\"%.1f\" x2=\"%.2f\" y2=\"%.1f\" stroke-width=\"1\"/>\n", last_x, last_y, x,
                    y + height / 2.0);
        if (end - x > 1) fprintf(p->to, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\"/>\n", x, y, end - x, height);
        last = &on[i];
        last_x = end;
        last_y = y + height / 2.0;
    }
    free(on);
}

/* ---- on other links, and of fewer nodes ---- */

/* Images a second over what `name` says of each point; point `black` is the plan. */
struct curve_of { const char *title; int count, black; const double *value; char name[ECH_NODES_SWEEP][24]; };

static void put_curve(const struct picture *p, double top, const struct curve_of *c) {
    double most = 0;
    char text[80];
    for (int i = 0; i < c->count; i++) most = c->value[i] > most ? c->value[i] : most;
    const double step = round_step(most, 4), high = step * ceil(most / step), bottom = top + SWEEP;
    fprintf(p->to, "<text x=\"%d\" y=\"%.1f\" font-size=\"15\" font-weight=\"bold\">%s</text>\n", LEFT, top - 24, c->title);
    label(p, LEFT - 8, top - 24, 11, "end", "images/s");
    for (int i = 0; i * step <= high * (1 + 1e-9); i++) {
        const double y = bottom - SWEEP * i * step / high;
        fprintf(p->to, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#d8d8d8\"/>\n", LEFT, y, LEFT + PLOT, y);
        snprintf(text, sizeof text, "%g", i * step);
        label(p, LEFT - 8, y + 4, 11, "end", text);
    }
    fputs("<polyline fill=\"none\" stroke=\"#3a7bbf\" stroke-width=\"2\" points=\"", p->to);
    const double margin = 40, across = c->count > 1 ? (PLOT - 2 * margin) / (c->count - 1) : 0;
    for (int i = 0; i < c->count; i++)
        fprintf(p->to, "%s%.1f,%.1f", i ? " " : "", LEFT + margin + across * i, bottom - SWEEP * c->value[i] / high);
    fputs("\"/>\n", p->to);
    for (int i = 0; i < c->count; i++) {
        const double x = LEFT + margin + across * i, y = bottom - SWEEP * c->value[i] / high;
        fprintf(p->to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x, y, i == c->black ? "#000000" : "#3a7bbf");
        snprintf(text, sizeof text, "%.0f", c->value[i]);
        label(p, x, y - 9, 11, "middle", text);
        label(p, x, bottom + 16, 11, "middle", c->name[i]);
    }
}

static void put_links_sweep(const struct picture *p, double top) {
    const struct ech_timeline *l = p->line;
    struct curve_of c = {.title = "The same plan with links of other rates", .count = l->n_sweep, .black = -1,
                         .value = l->images_per_second};
    for (int i = 0; i < l->n_sweep; i++) {
        snprintf(c.name[i], sizeof c.name[i], "%.2g times", l->faster[i]);
        if (fabs(l->faster[i] - 1) < 0.01) c.black = i;
    }
    if (c.black >= 0) snprintf(c.name[c.black], sizeof c.name[c.black], "as they are");
    put_curve(p, top, &c);
}

static void put_nodes_sweep(const struct picture *p, double top) {
    const struct ech_timeline *l = p->line;
    struct curve_of c = {.title = "Only so many of the nodes, the fastest, planned anew", .count = l->n_nodes, .black = -1,
                         .value = l->images_per_second_of};
    for (int i = 0; i < l->n_nodes; i++) {
        if (l->nodes[i] == p->report->world) c.black = i;
        snprintf(c.name[i], sizeof c.name[i], "%s%d", i == c.black ? "all " : "", l->nodes[i]);
    }
    put_curve(p, top, &c);
}

/* ---- the file ---- */

static void put_all(struct picture *p) {
    choose(p);
    const double end = bottom_of(p) + (is_cut(p) ? 24 : 4), panel = SWEEP + 76;
    const int panels = (p->line->n_sweep > 0) + (p->line->n_nodes > 1);
    const double height = end + (panels > 0 ? 16 + panels * panel : 8);
    fprintf(p->to, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%d\" "
                   "height=\"%.0f\" viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" fill=\"#202020\">\n", WIDTH, height, WIDTH, height);
    fprintf(p->to, "<rect width=\"%d\" height=\"%.0f\" fill=\"#ffffff\"/>\n", WIDTH, height);
    put_title(p);
    put_legend(p);
    put_axis(p);
    put_hosts(p);
    put_intervals(p);
    fputs("<g fill=\"none\" stroke=\"#000000\" stroke-width=\"1.6\">\n", p->to);
    put_path(p);
    fputs("</g>\n", p->to);
    if (p->line->n_sweep > 0) put_links_sweep(p, end + 56);
    if (p->line->n_nodes > 1) put_nodes_sweep(p, end + 56 + panel * (panels - 1));
    fputs("</svg>\n", p->to);
}

#define INTERVALS 131072   /* of a round; memory that none needs is never touched */
ech_status svg_open(struct ech_timeline *out, const char *path, struct ech_error *err) {
    *out = (struct ech_timeline){.capacity = INTERVALS};
    if (!*path) return ECH_OK;
    out->interval = calloc(INTERVALS, sizeof *out->interval);
    if (out->interval) return ECH_OK;
    *err = (struct ech_error){.code = ECH_E_MEMORY, .peer = -1};
    snprintf(err->text, sizeof err->text, "no memory for the time line of --svg");
    return ECH_E_MEMORY;
}

static ech_status write_picture(const char *path, const struct ech_report *report, struct ech_timeline *line) {
    struct picture p = {.report = report, .line = line};
    if (!(line->seconds > 0)) {
        fprintf(stderr, "echelon: --svg has nothing to draw: rounds are recorded of up to 256 nodes of which none was lost, and of up to "
                        "65,536 intervals\n");
        return ECH_E_UNSUPPORTED;
    }
    p.to = fopen(path, "w");
    if (p.to) put_all(&p);
    const bool failed = !p.to || ferror(p.to);
    if ((!p.to || fclose(p.to) == 0) && !failed) return ECH_OK;
    fprintf(stderr, "echelon: --svg %s could not be written: %s\n", path, strerror(errno));
    return ECH_E_IO;
}

int svg_close(struct ech_timeline *line, const char *path, const struct ech_report *report, int status) {
    if (line->interval && status == 0) {
        qsort(line->interval, (size_t)line->count, sizeof *line->interval, in_order);
        status = exit_status(write_picture(path, report, line));
    }
    free(line->interval);
    return status;
}
