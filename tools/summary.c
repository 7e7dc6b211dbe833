/* SPDX-License-Identifier: Apache-2.0
 * What a run did, for people, on stdout. The same in full is --report's. */
#include "tool.h"

#include <string.h>

const char *bytes_text(double bytes, char *buf, size_t cap) {
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    int u = 0;
    for (; bytes >= 1000 && u < 4; u++) bytes /= 1000;
    snprintf(buf, cap, u == 0 ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
    return buf;
}

double sent_bytes(const struct ech_report *r) {
    double all = 0;
    for (int k = 0; k < ECH_KINDS_MAX && r->kind_name[k]; k++) all += (double)r->bytes_sent[k];
    return all;
}

/* "ranks 0, 1, 7 to 1023": three or more in a row as their first and last. False when there are none. */
static bool print_ranks(FILE *to, const struct ech_report *r, int group) {
    const char *before = "ranks ";
    for (int rank = 0; rank < r->world; rank++) {
        if (r->group_of[rank] != group) continue;
        int last = rank;
        while (last + 1 < r->world && r->group_of[last + 1] == group) last++;
        if (last < rank + 2) last = rank;
        fprintf(to, "%s%d", before, rank);
        if (last > rank) fprintf(to, " to %d", last);
        before = ", ";
        rank = last;
    }
    return before[0] == ',';
}

/* After a loss a rank may own several. */
static int first_shard_of(const struct ech_report *r, int owner) {
    int k = 0;
    while (r->shard_owner[k] != owner) k++;
    return k;
}

void groups_print(FILE *to, const struct ech_report *r) {
    for (int g = 0; g < r->n_groups; g++) {
        fprintf(to, "  group %d          ", g);
        if (!print_ranks(to, r, g)) fprintf(to, "nobody");
        fprintf(to, "; %s kept by rank%s %d", r->head >= 0 ? "trunk" : "weights", r->n_shards ? "s" : "", r->owner_of[g]);
        for (int k = 1; k < r->n_shards; k++)
            if (first_shard_of(r, r->shard_owner[k]) == k) fprintf(to, ", %d", r->shard_owner[k]);
        if (r->iteration_seconds[g] > 0) fprintf(to, "; %.3g ms an iteration", 1e3 * r->iteration_seconds[g]);
        fputc('\n', to);
    }
    if (r->head < 0) return;
    fprintf(to, "  head             ");
    if (r->head_from[0]) fprintf(to, "separated from %s on, ", r->head_from);   /* else of a report of an older version */
    fprintf(to, "trained by rank%s %d", r->n_heads > 1 ? "s" : "", r->head);
    for (int i = 1; i < r->n_heads; i++) fprintf(to, ", %d", r->head_rank[i]);
    fputc('\n', to);
    if (strcmp(r->activations, "bf16") == 0) fputs("  activations      sent in bf16, and their gradients\n", to);
    if (r->micro_batches > 1) fprintf(to, "  micro-batches    %d of each step\n", r->micro_batches);
}

/* "<= 0.5": the upper edge of the bin that holds this part of all pushes. */
static const char *quantile(const struct ech_report *r, const uint64_t *bins, double part, char *buf, size_t cap) {
    uint64_t all = 0, below = 0;
    int bin = 0;
    for (int i = 0; i < ECH_STALENESS_BINS; i++) all += bins[i];
    while (bin < ECH_STALENESS_BINS - 1 && (double)(below += bins[bin]) < part * (double)all) bin++;
    if (bin == ECH_STALENESS_BINS - 1) snprintf(buf, cap, "> %g", r->staleness_edge[bin - 1]);
    else snprintf(buf, cap, "%s%g", bin ? "<= " : "", r->staleness_edge[bin]);
    return buf;
}

void staleness_print(FILE *to, const struct ech_report *r) {
    char median[32], most[32];
    if (!(r->staleness_max > 0)) return;   /* in step */
    fprintf(to, "  staleness        median %s, 95 %% %s, most %.2f rounds", quantile(r, r->staleness_trunk, 0.5, median, sizeof median),
            quantile(r, r->staleness_trunk, 0.95, most, sizeof most), r->staleness_max);
    if (r->head >= 0)
        fprintf(to, "; behind the head: median %s, 95 %% %s", quantile(r, r->staleness_head, 0.5, median, sizeof median),
                quantile(r, r->staleness_head, 0.95, most, sizeof most));
    fputc('\n', to);
}

/* A run of no steps has joined, measured and planned: what it would do is what it was begun for. */
void speed_print(FILE *to, const struct ech_report *r, const char *clock) {
    const double predicted = r->predicted_images_per_second;
    fprintf(to, "  speed            ");
    if (r->samples > 0)
        fprintf(to, "%.0f images/s (%llu samples, %.2f epochs, %.1f %ss)", r->images_per_second, (unsigned long long)r->samples, r->epochs,
                r->seconds, clock);
    else fprintf(to, "nothing was trained");
    if (predicted > 0) fprintf(to, "; predicted %s %.0f images/s", r->samples > 0 ? "were" : "are", predicted);
    fputc('\n', to);
}

void what_print(FILE *to, const struct ech_what_if *w) {
    static const struct { const char *what, *of_all, *of_one; } text[] = {
        {"steps", "steps", "steps"}, {"links", "links", "link"}, {"latency", "latency of messages", "latency of messages"},
        {"owners", "apply at owners", "apply as an owner"}, {"head", "head", "head"},
        {"variation", "variation of steps", "variation of steps"}};
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
        if (strcmp(w->what, text[i].what) != 0) continue;
        if (w->rank < 0) fputs(text[i].of_all, to);
        else fprintf(to, "rank %d's %s", w->rank, text[i].of_one);
        return;
    }
    fputs(w->what, to);   /* of a report of another version */
}

void what_if_print(FILE *to, const struct ech_what_if *what_if, int count) {
    fputs("  bottleneck       ", to);
    what_print(to, &what_if[0]);
    fprintf(to, ": in half the time %.0f %% more images/s are predicted", 100 * what_if[0].gain);
    for (int i = 1; i < count && i < 3; i++) {
        fputs(i == 1 ? "; then " : ", ", to);
        what_print(to, &what_if[i]);
        fprintf(to, " %.0f %%", 100 * what_if[i].gain);
    }
}

void bottleneck_print(FILE *to, const struct ech_report *r) {
    if (r->n_what_if == 0) return;
    what_if_print(to, r->what_if, r->n_what_if);
    if (r->net_negative >= 0 && r->batch[r->net_negative] > 0)   /* else it is left out, which the log has said */
        fprintf(to, "; without rank %d %.0f %%", r->net_negative, 100 * r->net_negative_gain);
    fputc('\n', to);
}

/* Of each kind of thing on the critical path, all ranks together, the most first. A rank is named that has half of it or more. */
static int path_kinds(const struct ech_report *r, struct ech_path_part out[ECH_PATH_MAX]) {
    int count = 0;
    for (int i = 0; i < r->n_path; i++) {
        struct ech_path_part all = {.what = r->path[i].what, .rank = -1};
        int at = 0;
        while (at < count && strcmp(out[at].what, all.what) != 0) at++;
        if (at < count) continue;   /* with the longest of its kind */
        for (int k = i; k < r->n_path; k++)
            if (strcmp(r->path[k].what, all.what) == 0) all.seconds += r->path[k].seconds;
        if (r->path[i].seconds >= all.seconds / 2) all.rank = r->path[i].rank;
        for (at = count++; at > 0 && out[at - 1].seconds < all.seconds; at--) out[at] = out[at - 1];
        out[at] = all;
    }
    return count;
}

/* "38 % backward of rank 3" */
static void print_part(FILE *to, const struct ech_path_part *part, double all) {
    const bool link = strcmp(part->what, "out") == 0 || strcmp(part->what, "in") == 0;
    const bool head = strcmp(part->what, "head") == 0, wake = strcmp(part->what, "wake") == 0;
    const char *text = head ? "separated head" : wake ? "wake-ups" : part->what;
    fprintf(to, "%.0f %% ", 100 * part->seconds / all);
    if (link && part->rank < 0) fprintf(to, "links, %s", part->what);
    else if (link) fprintf(to, "rank %d's link, %s", part->rank, part->what);
    else if (part->rank < 0) fputs(text, to);
    else fprintf(to, "%s of rank %d", text, part->rank);
}

void path_length_print(FILE *to, const struct ech_report *r) {
    if (r->path_seconds < 1) fprintf(to, "%.3g ms ", 1e3 * r->path_seconds);
    else fprintf(to, "%.3g s ", r->path_seconds);
    if (r->path_rank < 0) fputs("a round", to);
    else fprintf(to, "from a push of rank %d to its next", r->path_rank);
}

void path_parts_print(FILE *to, const struct ech_report *r, int most) {
    struct ech_path_part kind[ECH_PATH_MAX];
    const int count = path_kinds(r, kind);
    for (int i = 0; i < count && i < most && kind[i].seconds >= 0.02 * r->path_seconds; i++) {
        if (i > 0) fputs("; ", to);
        print_part(to, &kind[i], r->path_seconds);
    }
}

void path_print(FILE *to, const struct ech_report *r) {
    if (r->n_path == 0) return;
    fputs("  critical path    ", to);
    path_length_print(to, r);
    fputs(": ", to);
    path_parts_print(to, r, ECH_PATH_MAX);
    fputc('\n', to);
}

/* Where the efficiencies come from, and how well they are known. */
static void print_efficiency(FILE *to, const struct ech_report *r) {
    double table = 0;
    for (int i = 0; i < r->n_candidates; i++) {
        const struct ech_candidate *c = &r->candidate[i];
        if (strcmp(c->efficiency_from, "table") == 0 && c->efficiency_error > table) table = c->efficiency_error;
        if (strcmp(c->efficiency_from, "measured") != 0) continue;
        fprintf(to, "  efficiency       of %s", c->sync);
        if (c->groups > 1) fprintf(to, ", %d groups", c->groups);
        fprintf(to, "%s: measured by earlier runs, give or take %.0f %%\n", c->separated ? ", layer separation" : "",
                100 * c->efficiency_error);
    }
    if (table > 0)
        fprintf(to, "  efficiency       where nothing is measured: of a table made with LeNet-5, give or take %.0f %%\n", 100 * table);
}

void candidates_print(FILE *to, const struct ech_report *r, const struct target *target) {
    fprintf(to, "  %-36s %10s %10s %10s %10s%s\n", "predicted of", "images/s", "staleness", "efficiency", "goodput",
            target->run ? "  s to target" : "");
    for (int i = 0; i < r->n_candidates; i++) {
        const struct ech_candidate *c = &r->candidate[i];
        char groups[24] = "";
        if (c->groups > 1) snprintf(groups, sizeof groups, ", %d groups", c->groups);
        fprintf(to, "%c %s%s%-*s %10.0f %10.2f %10.2f %10.0f", c->taken ? '*' : ' ', c->sync, groups,
                (int)(36 - strlen(c->sync) - strlen(groups)), c->separated ? ", layer separation" : "", c->images_per_second, c->staleness,
                c->efficiency, c->goodput);
        const double seconds = target_seconds(target, c);
        if (seconds > 0) fprintf(to, " %12.3g", seconds);
        fputc('\n', to);
    }
    print_efficiency(to, r);
}

/* The direction of a link that has the most to carry, by what it can. */
static void print_busiest_link(FILE *to, const struct ech_report *r) {
    int rank = -1;
    double part = 0.005;   /* less is nothing to tell */
    bool in = false;
    for (int i = 0; i < r->world; i++) {
        const double of_out = r->link_out[i].rate > 0 ? r->predicted_link[i].out / r->link_out[i].rate : 0;
        const double of_in = r->link_in[i].rate > 0 ? r->predicted_link[i].in / r->link_in[i].rate : 0;
        if (!(of_out > part) && !(of_in > part)) continue;
        rank = i;
        in = of_in > of_out;
        part = in ? of_in : of_out;
    }
    if (rank >= 0)
        fprintf(to, "  busiest link     rank %d's, %s: %.3g Mb/s, %.0f %% of what it carries\n", rank, in ? "in" : "out",
                in ? r->predicted_link[rank].in : r->predicted_link[rank].out, 100 * part);
}

/* "8 (ranks 0 to 3), 16 (rank 4)": who computes how many samples a step. */
static void print_steps(FILE *to, const struct ech_report *r) {
    const char *before = "  samples a step   ";
    for (int rank = 0; rank < r->world; rank++) {
        int last = rank;
        while (last + 1 < r->world && r->batch[last + 1] == r->batch[rank]) last++;
        fprintf(to, "%s%d (rank%s %d", before, r->batch[rank], last > rank ? "s" : "", rank);
        if (last > rank) fprintf(to, " to %d", last);
        fputc(')', to);
        before = ", ";
        rank = last;
    }
    fprintf(to, "; a round has %d\n", r->round);
}

static double held_bytes(const struct ech_report *r, int rank) { return (double)r->slot_bytes[rank] + (double)r->activation_bytes[rank]; }

/* The last rank from this one on that holds as much, as far as people are told. */
static int last_alike(const struct ech_report *r, int rank) {
    char text[32], other[32];
    bytes_text(held_bytes(r, rank), text, sizeof text);
    while (rank + 1 < r->world && strcmp(bytes_text(held_bytes(r, rank + 1), other, sizeof other), text) == 0) rank++;
    return rank;
}

/* "310.0 MB (rank 0), 286.0 MB (ranks 1 to 3)"; of many kinds the least and the most. */
#define MEMORY_KINDS 6
static void print_memory(FILE *to, const struct ech_report *r) {
    const char *before = "  memory           ";
    char text[32];
    int kinds = 0, least = 0, most = 0;
    double stacks = 0;
    if (r->slot_bytes[0] == 0) return;
    for (int rank = 0; rank < r->world; rank++)
        if ((double)r->activation_bytes[rank] > stacks) stacks = (double)r->activation_bytes[rank];
    for (int rank = 0; rank < r->world; rank = last_alike(r, rank) + 1) {
        kinds++;
        if (held_bytes(r, rank) < held_bytes(r, least)) least = rank;
        if (held_bytes(r, rank) > held_bytes(r, most)) most = rank;
    }
    if (kinds > MEMORY_KINDS) {
        fprintf(to, "%s%s (rank %d)", before, bytes_text(held_bytes(r, least), text, sizeof text), least);
        fprintf(to, " to %s (rank %d)", bytes_text(held_bytes(r, most), text, sizeof text), most);
    }
    for (int rank = 0; rank < r->world && kinds <= MEMORY_KINDS; rank++) {
        const int last = last_alike(r, rank);
        fprintf(to, "%s%s (rank%s %d", before, bytes_text(held_bytes(r, rank), text, sizeof text), last > rank ? "s" : "", rank);
        if (last > rank) fprintf(to, " to %d", last);
        fputc(')', to);
        before = ", ";
        rank = last;
    }
    if (stacks > 0) fprintf(to, ", of it up to %s activations on a processor like this one\n", bytes_text(stacks, text, sizeof text));
    else fputs(", without activations\n", to);
}

/* Where none is known nothing is said: on one machine nodes have no links. */
static void print_links(FILE *to, const struct ech_report *r) {
    int thin = -1, wide = -1;
    for (int i = 0; i < r->world; i++) {
        if (!(r->link[i] > 0)) continue;
        if (thin < 0 || r->link[i] < r->link[thin]) thin = i;
        if (wide < 0 || r->link[i] > r->link[wide]) wide = i;
    }
    if (thin < 0) return;
    fprintf(to, "  links            ");
    if (r->link[wide] < 1.1 * r->link[thin]) fprintf(to, "%.3g Mb/s, of every node\n", r->link[thin]);
    else fprintf(to, "%.3g Mb/s of rank %d to %.3g Mb/s of rank %d, in their slower direction\n", r->link[thin], thin, r->link[wide], wide);
}

bool link_changed(const struct ech_link_rate *was, const struct ech_link_rate *is) {
    if (!(was->rate > 0) || !(is->rate > 0)) return false;
    return is->rate >= 1.25f * was->rate || was->rate >= 1.25f * is->rate;
}

/* The ranks whose links carry something else than when they joined. */
static void print_changed_links(FILE *to, const struct ech_report *r) {
    int lines = 0;
    for (int i = 0; i < r->world && lines < 8; i++) {
        const struct ech_link_rate *was[] = {&r->link_out[i], &r->link_in[i]}, *is[] = {&r->link_run_out[i], &r->link_run_in[i]};
        for (int in = 0; in < 2; in++) {
            if (!link_changed(was[in], is[in])) continue;
            fprintf(to, "  %-16s rank %d %s: %.3g Mb/s when it joined, of late %.3g (%.3g to %.3g)\n", lines++ ? "" : "links now", i,
                    in ? "in" : "out", was[in]->rate, is[in]->rate, is[in]->lowest, is[in]->highest);
        }
    }
}

static void print_ratios(FILE *to, const struct ech_report *r) {
    if (r->ratio_changes == 0) return;
    fprintf(to, "  ratios           changed %llu times, last after %.1f s (%s); %% of a gradient from the sixth epoch on, as planned and "
            "now:", (unsigned long long)r->ratio_changes, r->ratio_seconds, r->ratio_reason);
    for (int g = 0; g < r->n_groups; g++)
        fprintf(to, "%s group %d %.3g, %.3g", g ? ";" : "", g, 100 * r->ratio_planned[g], 100 * r->ratio[g]);
    fputc('\n', to);
}

void accuracy_print(FILE *to, const struct ech_report *r, bool reached) {
    const double target = 100 * r->target_accuracy;
    if (target > 0 && reached)
        fprintf(to, "  target           %.2f %% after %.1f s, %.2f epochs\n", target, r->target_seconds, r->target_epochs);
    else if (target > 0 && r->samples > 0) fprintf(to, "  target           %.2f %% not reached\n", target);
    if (r->test_accuracy >= 0)
        fprintf(to, "  accuracy         %.2f %% (best evaluation %.2f %%)\n", 100 * r->test_accuracy, 100 * r->best_accuracy);
}

void events_print(FILE *to, const struct ech_report *r) {
    if (r->n_lost > 0) {
        fprintf(to, "  lost             rank%s", r->n_lost > 1 ? "s" : "");
        for (int i = 0; i < r->n_lost; i++) fprintf(to, "%s %d", i ? "," : "", r->lost[i]);
        fprintf(to, "; %llu samples were issued again\n", (unsigned long long)r->samples_again);
    }
    if (r->regroups + r->resizes > 0)
        fprintf(to, "  regrouping       %llu moves of workers to other groups, %llu changes of step sizes\n",
                (unsigned long long)r->regroups, (unsigned long long)r->resizes);
    if (r->better_plans > 0)
        fprintf(to, "  better plan      %s; a new start, such as from a checkpoint with --resume, would have it\n", r->better_plan);
    if (r->leases_dropped > 0)
        fprintf(to, "  dropped          %llu gradients of %llu samples were too old; the samples were issued again\n",
                (unsigned long long)r->leases_dropped, (unsigned long long)r->samples_dropped);
}

/* Nodes report what they sent when a run ends in order: of one that was cut nothing is known. */
void codec_print(FILE *to, const struct ech_report *r) {
    if (sent_bytes(r) > 0 && r->codec[0] && strcmp(r->codec, "dense") != 0)
        fprintf(to, "  codec            %s: pushes of %.1f %%, weights and states of %.1f %% of their dense bytes\n", r->codec,
                100 * r->push_ratio, 100 * r->state_ratio);
    print_ratios(to, r);
}

void plan_print(FILE *to, const struct ech_report *r, const struct target *target) {
    fprintf(to, "%s, %s, %d node%s\n", r->model, r->sync, r->world, r->world == 1 ? "" : "s");
    candidates_print(to, r, target);
    groups_print(to, r);
    print_steps(to, r);
    print_links(to, r);
    print_busiest_link(to, r);
    print_memory(to, r);
    if (r->predicted_images_per_second > 0) fprintf(to, "  speed            %.0f images/s are predicted\n", r->predicted_images_per_second);
    target_print(to, target, r);
    path_print(to, r);
    bottleneck_print(to, r);
}

void summary_print(FILE *to, const struct command *command, const struct ech_report *r, ech_status status) {
    if (r->n_groups == 0 || (status != ECH_OK && r->samples == 0)) return;   /* it ended before there was anything to tell */
    const double bytes = sent_bytes(r);
    char sent[32];
    fprintf(to, "%s on %s, %s, %d %snode%s\n", r->model, r->data, r->sync, r->world, command->sub == SIM ? "simulated " : "",
            r->world == 1 ? "" : "s");
    groups_print(to, r);
    print_links(to, r);
    print_changed_links(to, r);
    speed_print(to, r, command->sub == SIM ? "virtual " : "");
    bottleneck_print(to, r);
    accuracy_print(to, r, r->target_seconds >= 0 && status != ECH_E_NOT_REACHED);   /* a resumed run must reach it again */
    events_print(to, r);
    staleness_print(to, r);
    codec_print(to, r);
    if (bytes > 0 || r->world == 1) fprintf(to, "  sent             %s, by all nodes\n", bytes_text(bytes, sent, sizeof sent));
}
