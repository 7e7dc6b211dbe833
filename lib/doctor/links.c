/* SPDX-License-Identifier: Apache-2.0
 * ech_doctor_links: the links between all nodes, by pair, and which of them is slow. */
#include "echi_doctor.h"
#include "echi_error.h"
#include "echi_meet.h"
#include "echi_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(ECH_DOCTOR_WORLD == ECHI_NET_WORLD_MAX, "a table has a place for each node of a net");

#define SLOW 2.0   /* times slower than most others */
enum { PAIRS = ECH_DOCTOR_WORLD * ECH_DOCTOR_WORLD };

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What most links carry: three quarters of those that are measured carry this at most, so several slow hosts do not pass for the rule.
 * Without those of `but_host`, and without the link `but_from` to `but_to`; 0: there is no other. */
static double usual(const struct ech_doctor_links *t, int but_host, int but_from, int but_to) {
    double sorted[PAIRS];
    size_t count = 0;
    for (int from = 0; from < t->world; from++)
        for (int to = 0; to < t->world; to++) {
            if (from == but_host || to == but_host || (from == but_from && to == but_to) || !(t->rate[from][to] > 0)) continue;
            sorted[count++] = t->rate[from][to];
        }
    qsort(sorted, count, sizeof sorted[0], compare);
    return count ? sorted[3 * count / 4] : 0;
}

/* What one way of a host's link carries with the best of its partners; 0: not measured. */
static double best(const struct ech_doctor_links *t, int host, bool out) {
    double most = 0;
    for (int other = 0; other < t->world; other++) {
        const double rate = out ? t->rate[host][other] : t->rate[other][host];
        if (rate > most) most = rate;
    }
    return most;
}

static const char *rate_text(double bytes, char text[24]) {
    const double megabits = bytes * 8e-6;
    if (megabits >= 1000) snprintf(text, 24, "%.3g Gb/s", megabits * 1e-3);
    else snprintf(text, 24, "%.3g Mb/s", megabits);
    return text;
}

/* A host that is slow with all explains its links, so hosts come before links. With two hosts nothing tells which of them it is. */
void echi_doctor_slow(const struct ech_doctor_links *t, char *text, size_t cap) {
    char slow[24], others[24];
    double worst = SLOW, rate = 0, most = 0;
    int host = -1, from = -1, to = -1, hosts = 0;
    bool out = false;
    text[0] = 0;
    for (int h = 0; h < t->world; h++) {
        const double without = usual(t, h, -1, -1), leaves = best(t, h, true), comes = best(t, h, false);
        if (!(without > 0 && leaves > 0 && comes > 0)) continue;
        const double least = leaves < comes ? leaves : comes;
        hosts += without > SLOW * least;
        if (!(without > worst * least)) continue;
        worst = without / least;
        host = h;
        out = leaves < comes;
        rate = least;
        most = without;
    }
    if (host >= 0) {
        const bool both = most > SLOW * best(t, host, !out);
        char more[40] = "";
        if (hosts > 1) snprintf(more, sizeof more, " (and %d more such host%s)", hosts - 1, hosts == 2 ? "" : "s");
        snprintf(text, cap,
                 "rank %d%s carries %s at most, the others %s%s: a thin cable, Wi-Fi, or a port that fell back to a lower speed?", host,
                 both ? "" : out ? "'s way out" : "'s way in", rate_text(rate, slow), rate_text(most, others), more);
        return;
    }
    for (int a = 0; a < t->world; a++)
        for (int b = 0; b < t->world; b++) {
            if (!(t->rate[a][b] > 0) || (from >= 0 && t->rate[a][b] >= rate)) continue;
            rate = t->rate[a][b];
            from = a;
            to = b;
        }
    most = from >= 0 ? usual(t, -1, from, to) : 0;
    if (most > SLOW * rate)
        snprintf(text, cap, "rank %d to rank %d carries %s, the others %s: another path, a switch between them, or a duplex mismatch?",
                 from, to, rate_text(rate, slow), rate_text(most, others));
}

ech_status ech_doctor_links(const struct ech_config *given, struct ech_doctor_links *out, struct ech_error *err) {
    struct ech_config config;
    if (!given || !out)
        return echi_fail(err, ECH_E_ARGUMENT, "doctor.links", "ech_doctor_links needs a config and a place for what it finds");
    ECHI_TRY(echi_config_whole(given, &config, err));
    ECHI_TRY(ech_config_check(&config, err));
    if (config.world < 2 || config.world > ECH_DOCTOR_WORLD || !config.coordinator[0])
        return echi_fail(err, ECH_E_ARGUMENT, "doctor.links",
                         "--links measures between nodes: give --world N (2 to %d), --rank R and --coordinator HOST:PORT, as in the run, "
                         "on each", ECH_DOCTOR_WORLD);
    memset(out, 0, sizeof *out);   /* not a literal: too large for the stack of a thread */
    out->rank = config.rank;
    out->world = config.world;
    snprintf(out->version, sizeof out->version, "%s", ECH_VERSION);
    struct echi_meet *meet = NULL;
    struct ech_error why = {.text = ""};
    ech_status status = echi_meet_open(&config, config.rank, config.world, ECHI_DOCTOR_MEET_LINKS,
                                       (int64_t)(config.join_timeout * 1e9), &meet, &why);
    if (status == ECH_OK && config.rank == 0 && config.on_bound) config.on_bound(config.user, echi_net_address(meet->net));
    if (status == ECH_OK) status = echi_meet_measure(meet, out, &why);
    echi_meet_close(meet);
    echi_doctor_slow(out, out->slow, sizeof out->slow);
    echi_doctor_note(&out->check, status, &why);
    return ECH_OK;
}
