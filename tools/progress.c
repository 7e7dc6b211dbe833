/* SPDX-License-Identifier: Apache-2.0
 * What a run says while it runs, on stderr: one line that is rewritten on a terminal, now and then a line elsewhere. */
#include "tool.h"

#include <sys/ioctl.h>
#include <unistd.h>

void progress_init(struct progress *p, const struct command *command) {
    int rank = command->config.rank;
    *p = (struct progress){.quiet = command->progress == PROGRESS_OFF || rank != 0, .verbose = command->verbose,
                           .terminal = isatty(STDERR_FILENO) == 1, .clock = command->sub == SIM ? " virtual" : ""};
    if (command->sub == SIM) p->sender = "";
    else if (command->config.world > 1) p->sender = "rank 0 ";
    p->every = p->terminal || command->progress == PROGRESS_ON ? 0 : 10;
    if (rank == 0) snprintf(p->prefix, sizeof p->prefix, "echelon: ");
    else snprintf(p->prefix, sizeof p->prefix, "echelon: rank %d: ", rank);
}

/* Erases the line that \r would rewrite, so that another may be written in its place. */
static void clear_line(struct progress *p) {
    if (p->open) fputs("\r\033[K", stderr);
    p->open = false;
}

void progress_tell(struct progress *p, const char *line) {
    clear_line(p);
    fprintf(stderr, "%s%s\n", p->prefix, line);
}

void progress_log(struct progress *p, enum ech_log_level level, const char *line) {
    if (level < ECH_LOG_INFO || (level == ECH_LOG_INFO && !p->quiet) || (level == ECH_LOG_DEBUG && p->verbose)) progress_tell(p, line);
}

/* Columns of the terminal behind stderr: a line that is wider would not be rewritten, but scroll. */
static int columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
}

static void show(struct progress *p, const char *line) {
    clear_line(p);
    if (p->terminal) fprintf(stderr, "%.*s", columns(), line);
    else fprintf(stderr, "%s\n", line);
    p->open = p->terminal;
}

/* Meanwhile the clock of training stands still; calls come once a second. */
static void show_eval(struct progress *p, const struct ech_progress *now) {
    char line[120];
    if (p->evals++ < p->every) return;
    p->evals = 0;
    snprintf(line, sizeof line, "%6.1f s%s  epoch %.2f  evaluates: %u of %u test images", now->seconds, p->clock, now->epochs,
             now->evaluated, now->to_evaluate);
    show(p, line);
}

void progress_show(struct progress *p, const struct ech_progress *now) {
    if (p->quiet) return;
    if (now->to_evaluate > 0) return show_eval(p, now);
    p->evals = 0;
    if (!p->terminal && !now->new_accuracy && p->said && now->seconds - p->last < p->every) return;
    p->last = now->seconds;
    p->said = true;
    /* What matters most comes first: a narrow terminal cuts the end. */
    char line[256], bytes[32], loss[32] = "", accuracy[32] = "", shared[80] = "";
    if (now->loss > 0) snprintf(loss, sizeof loss, "  loss %.4f", now->loss);   /* none is known before the first round */
    if (now->accuracy >= 0) snprintf(accuracy, sizeof accuracy, "  test %.2f %%", 100 * now->accuracy);
    if (p->sender)
        snprintf(shared, sizeof shared, "  stale %.2f  %ssent %s", now->staleness, p->sender,
                 bytes_text((double)now->bytes_sent, bytes, sizeof bytes));
    snprintf(line, sizeof line, "%6.1f s%s  epoch %.2f%s%s  %.0f images/s%s", now->seconds, p->clock, now->epochs, loss, accuracy,
             now->images_per_second, shared);
    show(p, line);
}

void progress_end(struct progress *p) {
    if (p->open) fputc('\n', stderr);
    p->open = false;
}
