/* SPDX-License-Identifier: Apache-2.0
 * When a plan is predicted to reach an accuracy, by how long another run took: epochs to a target are known of runs that reached it, and
 * of nothing else. Of the same model, data, B, learning rate and optimiser a plan is taken to need as many epochs as that run, times the
 * run's statistical efficiency over its own (Qiao et al., "Pollux", OSDI 2021, section 3.1). */
#include "tool.h"
#include "echelon_dev.h"

#include <math.h>
#include <string.h>

static ech_status refuse(const struct target *target, struct ech_error *err, const char *why) {
    *err = (struct ech_error){.code = ECH_E_ARGUMENT, .peer = -1};
    snprintf(err->text, sizeof err->text, "--target-from %.120s: %.240s", target->path, why);
    return ECH_E_ARGUMENT;
}

/* Steps by oneself change what an epoch is worth in a way that nobody has measured here. */
static bool known(const char *sync, double efficiency) { return efficiency > 0 && strcmp(sync, "local") != 0; }

/* Of the plan that the run followed; 0: it is not known. */
static double efficiency_of_run(const struct ech_report *run) {
    for (int i = 0; i < run->n_candidates; i++)
        if (run->candidate[i].taken && known(run->sync, run->candidate[i].efficiency)) return run->candidate[i].efficiency;
    return strcmp(run->sync, "bsp") == 0;
}

ech_status target_open(struct target *target, const char *path, struct ech_error *err) {
    *target = (struct target){.path = path};
    if (!path) return ECH_OK;
    const ech_status status = ech_report_read(path, &target->run, err);
    if (status != ECH_OK) return status;
    const struct ech_report *run = target->run;
    if (!(run->target_epochs > 0) || !(run->samples > 0) || !(run->epochs > 0))
        return refuse(target, err, "its run reached no target; give the report of one with --target-accuracy that did");
    if (!(efficiency_of_run(run) > 0))
        return refuse(target, err, "it does not have the statistical efficiency of its plan, as under local and of plans from files");
    return ECH_OK;
}

void target_close(struct target *target) { ech_report_destroy(target->run); }

ech_status target_check(const struct target *target, const struct ech_report *plan, struct ech_error *err) {
    const struct ech_report *run = target->run;
    char why[200];
    if (!run) return ECH_OK;
    if (strcmp(run->model, plan->model) != 0)
        snprintf(why, sizeof why, "its run trained %s, and the plan is for %s", run->model, plan->model);
    else if (run->round != plan->round)
        snprintf(why, sizeof why, "its run had rounds of %d samples, and nobody knows its epochs with the plan's %d: give --batch %d",
                 run->round, plan->round, run->round);
    else if (strcmp(run->codec, plan->codec) != 0)
        snprintf(why, sizeof why, "its run had the codec %s, and the plan has %s: give the same", run->codec, plan->codec);
    else return ECH_OK;
    return refuse(target, err, why);
}

double target_epochs(const struct target *target, const struct ech_candidate *plan) {
    if (!target->run || !known(plan->sync, plan->efficiency)) return (double)NAN;
    return target->run->target_epochs * efficiency_of_run(target->run) / plan->efficiency;
}

double target_seconds(const struct target *target, const struct ech_candidate *plan) {
    if (!target->run || !(plan->images_per_second > 0)) return (double)NAN;
    return target_epochs(target, plan) * (double)target->run->samples / target->run->epochs / plan->images_per_second;
}

void target_print(FILE *to, const struct target *target, const struct ech_report *plan) {
    const struct ech_candidate *taken = NULL;
    char what[40] = "it";
    for (int i = 0; i < plan->n_candidates; i++)
        if (plan->candidate[i].taken) taken = &plan->candidate[i];
    if (!target->run || !taken || !(target_seconds(target, taken) > 0)) return;
    if (target->run->target_accuracy > 0) snprintf(what, sizeof what, "%.2f %%", 100 * target->run->target_accuracy);
    fprintf(to, "  target           %s after %.3g s is predicted: %.3g epochs at efficiency %.2f, as %s took %.3g at %.2f\n", what,
            target_seconds(target, taken), target_epochs(target, taken), taken->efficiency, target->path, target->run->target_epochs,
            efficiency_of_run(target->run));
}
