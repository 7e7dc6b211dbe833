/* SPDX-License-Identifier: Apache-2.0
 * `echelon explain`: where a recorded run's time went. Of a report: explain_report.c. */
#include "tool.h"
#include "echelon_dev.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define MAKES_THEM "`echelon train --record DIR` makes such a folder, `echelon train --report FILE` a report"

static const struct ech_option own[] = {
    {"rank", "R", "", "only that rank (of a recorded run)"},
    {"trace", "FILE", "", "write all nodes on one clock as a trace for chrome://tracing or ui.perfetto.dev"},
    {"layers", "FILE", "", "write what a step of --rank (default: the first that trains) takes by layer as a table"},
    {"svg", "FILE", "", "draw a step of all nodes as it was recorded, with its critical path (SVG)"},
    {"help", NULL, "", "this text"},
};
enum { N_OWN = (int)(sizeof own / sizeof own[0]) };

static void print_help(const struct words *w) {
    puts("usage: echelon explain REPORT\n"
         "       echelon explain DIR [options]\n\n"
         "A REPORT is the file of `echelon train --report FILE`, or of sim, from any machine. What it tells of the run's speed: measured\n"
         "and predicted, with what may be why they differ; what the run waited for, and what would change that; what each node and each\n"
         "link had to do; what was sent; how stale gradients were; what else could have been done.\n\n"
         "DIR is the folder of `echelon train --record DIR`, with the files of all nodes. They tell where the time of the run went: of\n"
         "each node, from its first task to its last, which part it computed, by task, and which it waited with nothing to compute, by\n"
         "the message that it waited for and who sent that. A node that hardly ever waits is what the others wait for. (n): so many\n"
         "tasks, or waits. Beside it what is predicted of the run by the step times and links that were measured at its start, and its\n"
         "bottleneck by that.\n\n"
         "--trace puts all nodes' clocks on that of rank 0, by the times of their messages, and prints each one's offset and drift.\n"
         "The table of --layers has the columns of the data set of the DAG model of synchronous SGD (Shi and others, 2018):\n"
         "Id Name Forward Backward Comm. Size, in microseconds and bytes.\n"
         "--svg draws the step that takes as long as the median one of the slowest node, on the same clock, from the end of the step\n"
         "before to its end, as `echelon plan --svg` draws what is predicted.\n");
    words_print_options(w);
    printf("\nExit status: 0, %d usage; others as `echelon train --help` lists.\n", EXIT_USAGE);
}

/* So many of a kind are printed, what is left of them as one; a part below this is never printed by itself. */
#define SHOWN 6
#define WORTH_A_WORD 0.001

static double share(double seconds, const struct ech_node_times *t) {
    const double all = t->computed + t->waited;
    return all > 0 ? seconds / all : 0;
}

static void print_parts(const char *what, double seconds, const struct ech_time_part *part, int count, const struct ech_node_times *t) {
    double rest = seconds;
    printf("    %-9s %5.1f %%", what, 100 * share(seconds, t));
    for (int i = 0; i < count && i < SHOWN && share(part[i].seconds, t) >= WORTH_A_WORD; i++) {
        const struct ech_time_part *p = &part[i];
        printf("%s%s", i ? ", " : "   ", p->what[0] ? p->what : "itself");
        if (p->rank >= 0 && p->what[0]) printf(" from %s%d", p->rank == t->rank ? "itself, rank " : "rank ", p->rank);
        printf(" %.1f %% (%llu)", 100 * share(p->seconds, t), (unsigned long long)p->count);
        rest -= p->seconds;
    }
    if (share(rest, t) >= WORTH_A_WORD) printf("%sother %.1f %%", rest < seconds ? ", " : "   ", 100 * share(rest, t));
    putchar('\n');
}

/* Of the nodes so far: who computes the longest part of its time, and who waits the longest, for what; what they trained in the longest
 * time of one. And what was predicted. */
struct told {
    const struct ech_run_prediction *predicted;
    int ranks, busiest, idlest, from;
    double computes, waits, samples, seconds;
    char what[32];
};

static void print_node(void *user, const struct ech_node_times *t) {
    struct told *e = user;
    printf("  rank %-4d %.3g s from its first task to %s\n", t->rank, t->computed + t->waited,
           t->ended ? "its last" : "the last that is in its recording, which breaks off");
    if (e->predicted->images_per_second > 0)
        printf("    predicted %5.1f %%   of its time with something to compute\n", 100 * e->predicted->computes[t->rank]);
    print_parts("computed", t->computed, t->task, t->n_tasks, t);
    print_parts("waited", t->waited, t->wait, t->n_waits, t);
    e->samples += (double)t->samples;
    if (t->computed + t->waited > e->seconds) e->seconds = t->computed + t->waited;
    if (e->ranks++ == 0 || share(t->computed, t) > e->computes) {
        e->computes = share(t->computed, t);
        e->busiest = t->rank;
    }
    if (t->n_waits == 0 || share(t->waited, t) <= e->waits) return;
    e->waits = share(t->waited, t);
    e->idlest = t->rank;
    e->from = t->wait[0].rank;
    snprintf(e->what, sizeof e->what, "%s", t->wait[0].what);
}

static void print_all(const struct told *e) {
    const double predicted = e->predicted->images_per_second;
    if (e->ranks == e->predicted->world && e->samples > 0 && e->seconds > 0) {
        printf("  speed            %.0f images/s in that time", e->samples / e->seconds);
        if (predicted > 0) printf("; predicted are %.0f images/s", predicted);
        putchar('\n');
    }
    if (e->predicted->n_what_if > 0) {
        what_if_print(stdout, e->predicted->what_if, e->predicted->n_what_if);
        putchar('\n');
    }
    if (e->ranks < 2) return;
    printf("  rank %d computes the most, %.0f %% of its time", e->busiest, 100 * e->computes);
    if (e->waits > 0) printf("; rank %d waits the most, %.0f %%", e->idlest, 100 * e->waits);
    if (e->waits > 0 && e->what[0]) printf(", the longest for %s of rank %d", e->what, e->from);
    putchar('\n');
}

/* ------------------------------------------------------ files for other programs */

static void print_clock(void *user, const struct ech_clock *c) {
    (void)user;
    if (c->rank == 0) return;
    if (c->through < 0) {
        printf("  clock of rank %-4d no message says how it stands to that of rank 0: taken to begin with it\n", c->rank);
        return;
    }
    printf("  clock of rank %-4d %.6f ms %s rank 0's, %.1f ppm %s", c->rank, 1e3 * (c->offset < 0 ? -c->offset : c->offset),
           c->offset < 0 ? "behind" : "ahead of", 1e6 * (c->drift < 0 ? -c->drift : c->drift), c->drift < 0 ? "slower" : "faster");
    if (c->error >= 0) printf("; a time of it may be %.6f ms off", 1e3 * c->error);
    else printf("; messages bound it from one side only, so its error is not known");
    if (c->through > 0) printf(" (by its messages with rank %d)", c->through);
    putchar('\n');
    if (c->misses > 0)
        printf("    it does not go evenly against that of rank %d: every line of offset and drift misses a message, the best by %.6f ms;\n"
               "    was a clock set, or are these the recordings of two runs?\n", c->through, 1e3 * c->misses);
}

static ech_status check_file(const struct words *w, const char *option, struct ech_error *err) {
    const char *path = words_given(w, option);
    return path ? check_writable(option, path, err) : ECH_OK;
}

static ech_status write_files(const struct words *w, int rank, struct ech_error *err) {
    const char *trace = words_given(w, "trace"), *layers = words_given(w, "layers");
    if (trace) {
        const ech_status status = ech_recording_trace(w->dir, trace, print_clock, NULL, err);
        if (status != ECH_OK) return status;
        printf("  trace            in %s, for chrome://tracing or ui.perfetto.dev\n", trace);
    }
    if (!layers) return ECH_OK;
    const ech_status status = ech_recording_layers(w->dir, rank, layers, &rank, err);
    if (status == ECH_OK) printf("  layers           of rank %d in %s\n", rank, layers);
    return status;
}

/* Returns the exit status. */
static int write_picture(const struct words *w) {
    const char *path = words_given(w, "svg");
    static struct ech_report report;
    struct ech_timeline line;
    struct ech_error err = {0};
    if (!path) return 0;
    ech_status status = svg_open(&line, path, &err);
    if (status == ECH_OK) status = ech_recording_timeline(w->dir, &line, &report, &err);
    if (status != ECH_OK) fprintf(stderr, "echelon: %s\n", err.text);
    const int ended = svg_close(&line, path, &report, exit_status(status));
    if (ended != 0) return ended;
    printf("  step             %llu of %llu is drawn in %s\n", (unsigned long long)line.step, (unsigned long long)line.steps, path);
    path_print(stdout, &report);
    return 0;
}

/* A file is a report. */
static int explain_file(const struct words *w) {
    static const char *const of_folder[] = {"rank", "trace", "layers", "svg"};
    for (size_t i = 0; i < sizeof of_folder / sizeof of_folder[0]; i++) {
        if (!words_given(w, of_folder[i])) continue;
        fprintf(stderr, "echelon: --%s goes with the folder of a recorded run, and '%.80s' is a file\n", of_folder[i], w->dir);
        return EXIT_USAGE;
    }
    return explain_report(w->dir);
}

static int explain_folder(const struct words *w) {
    struct ech_error err = {0};
    struct ech_recording about;
    static struct ech_run_prediction predicted;
    struct told told = {.predicted = &predicted};
    const char *advice = "";
    int rank = -1;
    if (!words_whole(w, "rank", 0, ECH_WORLD_MAX - 1, &rank)) return EXIT_USAGE;
    ech_status status = check_file(w, "trace", &err);
    if (status == ECH_OK) status = check_file(w, "layers", &err);
    if (status == ECH_OK) status = check_file(w, "svg", &err);
    if (status == ECH_OK) {
        status = ech_recording_about(w->dir, &about, &err);
        if (status == ECH_E_IO) advice = "; " MAKES_THEM;
    }
    if (status == ECH_OK && rank >= about.world) {
        fprintf(stderr, "echelon: --rank %d: the run had %d node%s, whose ranks begin with 0\n", rank, about.world,
                about.world == 1 ? "" : "s");
        return EXIT_USAGE;
    }
    if (status == ECH_OK) status = ech_recording_prediction(w->dir, &predicted, &err);
    if (status == ECH_OK) {
        printf("%s on %s, %d node%s, recorded by echelon %s\n", about.model, about.data, about.world, about.world == 1 ? "" : "s",
               about.version);
        status = ech_recording_times(w->dir, rank, print_node, &told, &err);
    }
    if (status == ECH_OK) print_all(&told);
    if (status == ECH_OK) status = write_files(w, rank, &err);
    fflush(stdout);
    if (status != ECH_OK) fprintf(stderr, "echelon: %s%s\n", err.text, advice);
    return status == ECH_OK ? write_picture(w) : exit_status(status);
}

int explain_main(int argc, char **argv) {
    struct words w = {.command = "explain", .option = own, .count = N_OWN,
                      .takes = "a report, or the folder of a recorded run: echelon explain REPORT|DIR (" MAKES_THEM ")"};
    struct stat found;
    if (!words_parse(&w, argc, argv)) return EXIT_USAGE;
    if (words_given(&w, "help")) {
        print_help(&w);
        return 0;
    }
    if (stat(w.dir, &found) == 0) return S_ISDIR(found.st_mode) ? explain_folder(&w) : explain_file(&w);
    fprintf(stderr, "echelon: cannot read '%.200s' (%s): give a report, or the folder of a recorded run (" MAKES_THEM ")\n", w.dir,
            strerror(errno));
    return exit_status(ECH_E_IO);
}
