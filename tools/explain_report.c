/* SPDX-License-Identifier: Apache-2.0
 * `echelon explain REPORT`: what the report of a run tells of its speed, what is most asked for first: how fast it was and how fast it was
 * predicted to be, what it waited for and what would change that; then what each node and each link had to do. */
#include "tool.h"
#include "echelon_dev.h"

#include <stdarg.h>
#include <string.h>

#define OFF 0.1          /* a prediction that misses by more wants a reason */
#define SHORT_RUN 5.0    /* seconds: of a shorter one the first steps are a part that shows */
#define WORTH 0.05       /* a part of the work, or of a link, that is worth a line */

/* One direction of a node's link, Mb/s: when it joined, of late, and what the prediction puts on it. */
struct way { int rank; bool in; struct ech_link_rate was, is; double use; };

static struct way way_of(const struct ech_report *r, int rank, bool in) {
    return (struct way){rank, in, in ? r->link_in[rank] : r->link_out[rank], in ? r->link_run_in[rank] : r->link_run_out[rank],
                        in ? r->predicted_link[rank].in : r->predicted_link[rank].out};
}

/* ---- predicted beside measured ---- */

/* What the report has that the prediction could not know, a line each. */
struct reasons { FILE *to; int count; };

static void reason(struct reasons *reasons, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void reason(struct reasons *reasons, const char *fmt, ...) {
    va_list args;
    fprintf(reasons->to, "  %-16s ", reasons->count++ ? "" : "may be why");
    va_start(args, fmt);
    vfprintf(reasons->to, fmt, args);
    va_end(args);
    fputc('\n', reasons->to);
}

/* How many times as much the one is as the other, 1 at least. */
static double apart(const struct way *w) { return w->was.rate > w->is.rate ? w->was.rate / w->is.rate : w->is.rate / w->was.rate; }

static void links_reason(struct reasons *reasons, const struct ech_report *r) {
    struct way worst = {0};
    int changed = 0;
    for (int i = 0; i < 2 * r->world; i++) {
        const struct way w = way_of(r, i / 2, i % 2);
        if (!link_changed(&w.was, &w.is)) continue;
        if (changed++ == 0 || apart(&w) > apart(&worst)) worst = w;
    }
    if (changed == 0) return;
    char more[60] = "";
    if (changed > 1) snprintf(more, sizeof more, "; %d more direction%s changed by a quarter or more", changed - 1, changed > 2 ? "s" : "");
    reason(reasons, "rank %d's link, %s, carried %.3g Mb/s when it joined and %.3g of late%s", worst.rank, worst.in ? "in" : "out",
           worst.was.rate, worst.is.rate, more);
}

/* A link that was measured to be this and that, and that the plan has much to send over. */
static void uncertain_reason(struct reasons *reasons, const struct ech_report *r) {
    for (int i = 0; i < 2 * r->world; i++) {
        const struct way w = way_of(r, i / 2, i % 2);
        if (!(w.use > WORTH * w.was.rate) || !(w.was.highest > 1.5f * w.was.lowest)) continue;
        reason(reasons, "rank %d's link, %s, was measured to carry %.3g to %.3g Mb/s: the prediction took %.3g", w.rank,
               w.in ? "in" : "out", w.was.lowest, w.was.highest, w.was.rate);
        return;
    }
}

static void print_reasons(FILE *to, const struct ech_report *r) {
    struct reasons reasons = {to, 0};
    const double again = (double)r->samples_again;   /* those of old pushes among them */
    if (r->seconds < SHORT_RUN)
        reason(&reasons, "it trained for %.3g s only, in which its first steps show; a prediction is of a run that goes on", r->seconds);
    if (r->resumed_samples > 0)
        reason(&reasons, "%llu of its samples are those of runs before it, and so is a part of its seconds",
               (unsigned long long)r->resumed_samples);
    if (r->n_lost > 0)
        reason(&reasons, "%d node%s lost on the way; the prediction is of all", r->n_lost, r->n_lost > 1 ? "s were" : " was");
    if (again > WORTH * (double)r->samples) reason(&reasons, "%.0f %% of its samples were trained twice", 100 * again / (double)r->samples);
    links_reason(&reasons, r);
    uncertain_reason(&reasons, r);
    if (r->regroups + r->resizes > 0) reason(&reasons, "nodes became faster or slower for good: see regrouping");
    if (r->better_plans > 0) reason(&reasons, "machines had changed so that another plan would have been better: see better plan");
    if (r->ratio_changes > 0) reason(&reasons, "parts of gradients that are sent were changed: see ratios");
    if (reasons.count > 0) return;
    reason(&reasons, "nothing that a report tells: steps may have become slower or faster since they were measured at the start;");
    reason(&reasons, "`echelon train --record DIR` and `echelon explain DIR` tell where the time goes");
}

static void print_error(FILE *to, const struct ech_report *r) {
    const double predicted = r->predicted_images_per_second;
    if (!(r->samples > 0) || !(predicted > 0) || !(r->images_per_second > 0)) return;
    const double off = predicted / r->images_per_second - 1;
    fprintf(to, "  prediction       %.0f %% %s than measured\n", 100 * (off < 0 ? -off : off), off < 0 ? "less" : "more");
    if (off > OFF || off < -OFF) print_reasons(to, r);
}

/* ---- where the time went ---- */

static void print_time(FILE *to, const struct ech_report *r) {
    const struct { const char *what; double seconds; } part[] = {
        {"training", r->seconds}, {"until it began", r->startup_seconds}, {"evaluations", r->measuring_seconds},
        {"checkpoints", r->checkpoint_seconds}};
    double all = 0;
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) all += part[i].seconds > 0 ? part[i].seconds : 0;
    if (!(all > 0)) return;
    fputs("  time             ", to);
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        if (i == 0 || part[i].seconds > 0)
            fprintf(to, "%s%s %.3g s (%.0f %%)", i ? ", " : "", part[i].what, part[i].seconds, 100 * part[i].seconds / all);
    fputc('\n', to);
}

/* What this node's worker would make by itself. */
static double alone(const struct ech_report *r, int rank) { return r->step_seconds[rank] > 0 ? 64 / r->step_seconds[rank] : 0; }

/* How much of what the machines can compute the run made use of. */
static void print_use(FILE *to, const struct ech_report *r) {
    double all = 0;
    int workers = 0;
    for (int i = 0; i < r->world; i++) {
        if (r->group_of[i] < 0 || r->batch[i] == 0) continue;
        workers++;
        all += alone(r, i);
    }
    if (workers < 2 || !(all > 0)) return;
    fprintf(to, "  workers          %d of %d nodes, which by themselves would make %.0f images/s in all", workers, r->world, all);
    if (r->samples > 0) fprintf(to, ": the run made %.0f %% of that", 100 * r->images_per_second / all);
    fputc('\n', to);
}

/* ---- what would change it ---- */

static const char *remedy(const char *what) {
    static const struct { const char *what, *remedy; } text[] = {
        {"steps", "faster devices, or more of them; --precision bf16 or tf32 where the device has it"},
        {"links", "faster links; --codec topk; a larger --batch, which sends less often; --exchange ring (bsp)"},
        {"latency", "a larger --batch, which has fewer messages for as many samples; nodes nearer to each other"},
        {"owners", "--shards, so that more nodes own parameters (bsp); an owner that does not train"},
        {"head", "a faster node with the head, another --separate LAYER, or --separate off"},
        {"variation", "nothing else on these machines; asp, ssp or gssp, which wait less for who is late"}};
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++)
        if (strcmp(text[i].what, what) == 0) return text[i].remedy;
    return "";
}

static void print_remedies(FILE *to, const struct ech_report *r) {
    if (r->n_what_if == 0 && r->net_negative < 0) return;
    fprintf(to, "\nwhat would change it, by prediction\n");
    for (int i = 0; i < r->n_what_if; i++) {
        fprintf(to, "  %+4.0f %% images/s   half the time for ", 100 * r->what_if[i].gain);
        what_print(to, &r->what_if[i]);
        fprintf(to, ": %s\n", remedy(r->what_if[i].what));
    }
    if (r->net_negative < 0) return;
    fprintf(to, "  %+4.0f %% images/s   without rank %d", 100 * r->net_negative_gain, r->net_negative);
    fputs(r->batch[r->net_negative] > 0 ? ": a run of the others, or --sync auto, which leaves it out\n" : ", which was left out\n", to);
}

/* ---- each node, each link ---- */

/* Rows of a table by rank; those of neighbours that are the same are one. */
struct rows { FILE *to; int first, last; char text[120]; };

static void end_rows(struct rows *rows) {
    char ranks[32];
    snprintf(ranks, sizeof ranks, rows->last > rows->first ? "%d to %d" : "%d", rows->first, rows->last);
    if (rows->last >= 0) fprintf(rows->to, "  %-14s %s\n", ranks, rows->text);
    rows->first = rows->last = -1;
}

static void add_row(struct rows *rows, int rank, const char *text) {
    if (rows->last < 0 || strcmp(rows->text, text) != 0) {
        end_rows(rows);
        rows->first = rank;
        snprintf(rows->text, sizeof rows->text, "%s", text);
    }
    rows->last = rank;
}

/* "12.5 ms", or "-" where it is not known. */
static const char *ms_text(double seconds, char *buf, size_t cap) {
    if (seconds > 0) snprintf(buf, cap, "%.3g ms", 1e3 * seconds);
    else snprintf(buf, cap, "-");
    return buf;
}

/* Seconds of its compute thread: with a task, without. */
static double computed(const struct ech_spent *s) { return (double)s->steps + s->owner + s->head + s->codec; }
static double waited(const struct ech_spent *s) { return (double)s->weights + s->lease + s->activations + s->gradients + s->other; }

/* Reports of older versions have none of these. */
static bool knows_spent(const struct ech_report *r) {
    for (int i = 0; i < r->world; i++)
        if (computed(&r->spent[i]) > 0) return true;
    return false;
}

/* Which part of its time a node computes. Where the report does not know: which part of its iterations a worker computes, by what a step
 * was measured to take, and as if it took as long as it has samples. With layer separation it computes less than that step, under `local`
 * it pushes after several. */
static const char *busy_text(const struct ech_report *r, int rank, char *buf, size_t cap) {
    const struct ech_spent *s = &r->spent[rank];
    const int group = r->group_of[rank];
    if (knows_spent(r)) {
        if (computed(s) > 0) snprintf(buf, cap, "%.0f %%", 100 * computed(s) / (computed(s) + waited(s)));
        else snprintf(buf, cap, "-");
        return buf;
    }
    const double iteration = group >= 0 && r->head < 0 && strcmp(r->sync, "local") != 0 ? r->iteration_seconds[group] : 0;
    if (iteration > 0 && r->step_seconds[rank] > 0 && r->batch[rank] > 0)
        snprintf(buf, cap, "%.0f %%", 100.0 * r->batch[rank] * r->step_seconds[rank] / 64 / iteration);
    else snprintf(buf, cap, "-");
    return buf;
}

static void print_ranks(FILE *to, const struct ech_report *r) {
    struct rows rows = {to, -1, -1, ""};
    fprintf(to, "\n  %-14s %5s %14s %12s %14s %10s %10s\n", "rank", "group", "samples a step", "64 of them", "alone", "computes", "delay");
    for (int i = 0; i < r->world; i++) {
        char text[120], group[16] = "-", step[24], busy[24], delay[24], speed[32] = "-";
        if (r->group_of[i] >= 0) snprintf(group, sizeof group, "%d", r->group_of[i]);
        if (alone(r, i) > 0) snprintf(speed, sizeof speed, "%.0f images/s", alone(r, i));
        snprintf(text, sizeof text, "%5s %14d %12s %14s %10s %10s", group, r->batch[i], ms_text(r->step_seconds[i], step, sizeof step),
                 speed, busy_text(r, i, busy, sizeof busy), ms_text(r->delay[i], delay, sizeof delay));
        add_row(&rows, i, text);
    }
    end_rows(&rows);
    fprintf(to, "  alone: by one whole step, measured at the start; computes: %s, the rest it waits\n",
            knows_spent(r) ? "so much of its time" : "about so much of an iteration");
    groups_print(to, r);
}

/* "12.5", or "-" for nothing. */
static const char *seconds_text(double seconds, char buf[12]) {
    if (seconds > 0) snprintf(buf, 12, "%.3g", seconds);
    else snprintf(buf, 12, "-");
    return buf;
}

/* What each node's compute thread did, and what it waited for. */
static void print_spent(FILE *to, const struct ech_report *r) {
    if (!knows_spent(r)) return;
    struct rows rows = {to, -1, -1, ""};
    fprintf(to, "\n  %-14s %-35s %s\n", "seconds", "computed", "waited for");
    fprintf(to, "  %-14s %8s %8s %8s %8s %10s %8s %8s %8s %8s\n", "rank", "steps", "owner", "head", "codec", "weights", "leases", "acts",
            "pushes", "other");
    for (int i = 0; i < r->world; i++) {
        const struct ech_spent *s = &r->spent[i];
        char text[120], b[9][12];
        snprintf(text, sizeof text, "%8s %8s %8s %8s %10s %8s %8s %8s %8s", seconds_text(s->steps, b[0]), seconds_text(s->owner, b[1]),
                 seconds_text(s->head, b[2]), seconds_text(s->codec, b[3]), seconds_text(s->weights, b[4]), seconds_text(s->lease, b[5]),
                 seconds_text(s->activations, b[6]), seconds_text(s->gradients, b[7]), seconds_text(s->other, b[8]));
        add_row(&rows, i, text);
    }
    end_rows(&rows);
    fputs("  acts: activations, or their gradients; other: messages that had to leave, batch-norms, losses\n", to);
}

/* "94 (90 to 95)", "94" where all measurements agree, or "-". */
static const char *rate_text(const struct ech_link_rate *rate, char *buf, size_t cap) {
    if (!(rate->rate > 0)) snprintf(buf, cap, "-");
    else if (rate->lowest < rate->highest) snprintf(buf, cap, "%.3g (%.3g to %.3g)", rate->rate, rate->lowest, rate->highest);
    else snprintf(buf, cap, "%.3g", rate->rate);
    return buf;
}

static void print_ways(FILE *to, const struct ech_report *r, bool in) {
    struct rows rows = {to, -1, -1, ""};
    fprintf(to, "\n  %-14s %24s %24s %18s\n", in ? "links, in" : "links, out", "Mb/s at the start", "of late in the run", "predicted use");
    for (int i = 0; i < r->world; i++) {
        const struct way w = way_of(r, i, in);
        char text[120], was[48], is[48], use[40] = "-";
        if (w.use > 0) snprintf(use, sizeof use, "%.3g", w.use);
        if (w.use > 0 && w.was.rate > 0) snprintf(use, sizeof use, "%.3g, %.0f %%", w.use, 100 * w.use / w.was.rate);
        snprintf(text, sizeof text, "%24s %24s %18s%s", rate_text(&w.was, was, sizeof was), rate_text(&w.is, is, sizeof is), use,
                 link_changed(&w.was, &w.is) ? "   changed" : "");
        add_row(&rows, i, text);
    }
    end_rows(&rows);
}

/* Where none is known nothing is said: on one machine nodes have no links. */
static void print_links(FILE *to, const struct ech_report *r) {
    bool known = false;
    for (int i = 0; i < 2 * r->world; i++) {
        const struct way w = way_of(r, i / 2, i % 2);
        known = known || w.was.rate > 0 || w.is.rate > 0;
    }
    for (int in = 0; known && in < 2; in++) print_ways(to, r, in);
}

/* ---- what went over links, what came of it ---- */

/* The kinds that most bytes are of; what is below a hundredth is "other". */
static void print_bytes(FILE *to, const struct ech_report *r) {
    const double all = sent_bytes(r);
    bool told[ECH_KINDS_MAX] = {false};
    double rest = all;
    char text[32];
    if (!(all > 0)) return;
    fprintf(to, "  sent             %s, by all nodes:", bytes_text(all, text, sizeof text));
    for (;;) {
        int most = -1;
        for (int k = 0; k < ECH_KINDS_MAX && r->kind_name[k]; k++)
            if (!told[k] && (most < 0 || r->bytes_sent[k] > r->bytes_sent[most])) most = k;
        if (most < 0 || (double)r->bytes_sent[most] < 0.01 * all) break;
        fprintf(to, " %s %.0f %%,", r->kind_name[most], 100 * (double)r->bytes_sent[most] / all);
        rest -= (double)r->bytes_sent[most];
        told[most] = true;
    }
    fprintf(to, " all else %.1f %%\n", 100 * rest / all);
}

static void print_staleness(FILE *to, const struct ech_report *r) {
    staleness_print(to, r);
    if (!(r->staleness_mean > 0) && !(r->predicted_staleness > 0)) return;
    fprintf(to, "  mean staleness   %.2f rounds", r->staleness_mean);
    if (r->predicted_staleness >= 0) fprintf(to, "; predicted were %.2f", r->predicted_staleness);
    fputc('\n', to);
}

static void print_report(FILE *to, const struct ech_report *r) {
    fprintf(to, "%s%s%s, %s, %d %snode%s, reported by echelon %s\n", r->model, r->data[0] ? " on " : "", r->data, r->sync, r->world,
            r->simulated ? "simulated " : "", r->world == 1 ? "" : "s", r->version);
    speed_print(to, r, r->simulated ? "virtual " : "");
    print_error(to, r);
    path_print(to, r);
    bottleneck_print(to, r);
    print_use(to, r);
    print_time(to, r);
    events_print(to, r);
    print_remedies(to, r);
    print_ranks(to, r);
    print_spent(to, r);
    print_links(to, r);
    fputc('\n', to);
    print_bytes(to, r);
    codec_print(to, r);
    print_staleness(to, r);
    accuracy_print(to, r, r->target_seconds >= 0);
    if (r->n_candidates == 0) return;
    fputc('\n', to);
    candidates_print(to, r, &(struct target){0});
}

int explain_report(const char *path) {
    struct ech_report *report = NULL;
    struct ech_error err = {0};
    const ech_status status = ech_report_read(path, &report, &err);
    if (status == ECH_OK) print_report(stdout, report);
    else fprintf(stderr, "echelon: %s\n", err.text);
    fflush(stdout);
    ech_report_destroy(report);
    return exit_status(status);
}
