/* SPDX-License-Identifier: Apache-2.0
 * What a run did, for people, on stdout. The same in full is --report's. */
#include "tool.h"

const char *bytes_text(double bytes, char *buf, size_t cap) {
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    int u = 0;
    for (; bytes >= 1000 && u < 4; u++) bytes /= 1000;
    snprintf(buf, cap, u == 0 ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
    return buf;
}

static void print_groups(FILE *to, const struct ech_report *r) {
    for (int g = 0; g < r->n_groups; g++) {
        fprintf(to, "  group %d          ", g);
        int n = 0;
        for (int rank = 0; rank < r->world; rank++)
            if (r->group_of[rank] == g) fprintf(to, "%s%d", n++ ? ", " : "ranks ", rank);
        fprintf(to, "; %s kept by rank %d\n", r->head >= 0 ? "convolutions" : "weights", r->owner_of[g]);
    }
    if (r->head >= 0) fprintf(to, "  fully connected  trained by rank %d\n", r->head);
}

void summary_print(FILE *to, const struct command *command, const struct ech_report *r, ech_status status) {
    if (r->n_groups == 0 || (status != ECH_OK && r->samples == 0)) return;   /* it ended before there was anything to tell */
    uint64_t bytes = 0;
    for (int k = 0; k < ECH_KINDS_MAX && r->kind_name[k]; k++) bytes += r->bytes_sent[k];
    char sent[32];
    fprintf(to, "%s on %s, %s, %d node%s\n", r->model, r->data, r->sync, r->world, r->world == 1 ? "" : "s");
    print_groups(to, r);
    fprintf(to, "  speed            %.0f images/s (%llu samples, %.2f epochs, %.1f s)\n", r->images_per_second,
            (unsigned long long)r->samples, r->epochs, r->seconds);
    if (r->target_seconds >= 0 && command->config.target_accuracy > 0)
        fprintf(to, "  target           %.2f %% after %.1f s, %.2f epochs\n", 100 * command->config.target_accuracy, r->target_seconds,
                r->target_epochs);
    else if (status == ECH_E_NOT_REACHED) fprintf(to, "  target           %.2f %% not reached\n", 100 * command->config.target_accuracy);
    if (r->test_accuracy >= 0)
        fprintf(to, "  accuracy         %.2f %% (best look %.2f %%)\n", 100 * r->test_accuracy, 100 * r->best_accuracy);
    if (r->n_lost > 0) {
        fprintf(to, "  lost             rank%s", r->n_lost > 1 ? "s" : "");
        for (int i = 0; i < r->n_lost; i++) fprintf(to, "%s %d", i ? "," : "", r->lost[i]);
        fprintf(to, "; %llu samples were issued again\n", (unsigned long long)r->samples_again);
    }
    fprintf(to, "  sent             %s, by all nodes\n", bytes_text((double)bytes, sent, sizeof sent));
}
