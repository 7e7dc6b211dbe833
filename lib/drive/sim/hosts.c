/* SPDX-License-Identifier: Apache-2.0
 * Host files: the machines of a simulated cluster, one line a class. '#' starts a comment. Ranks follow the lines.
 *     default jitter 0.15 stutter 2 % 5 x link 1 Gb/s      (what the lines below have if they do not say otherwise)
 *     hosts 4 speed 2000 images/s                          (images/s of the model; or 0.5 x, of the profile's machine)
 *     hosts 2 speed 1 x cores 2                            (these two share two cores)
 *     hosts 1 speed 1 x cores 4 of desk                    (this one and all others "of desk" share four)
 *     hosts 1 speed 1 x quota 50 ms of 100 ms              (half a core, as a container's limit gives it)
 *     hosts 1 speed 0.25 x link 50 Mb/s delay 2 ms loss 0.1 % dies 60 s
 *     hosts 1 speed 1 x joins 10 s slow 4 x from 20 s until 50 s
 *     hosts 1 speed 1 x link 100 Mb/s thin 4 x from 60 s
 * test/hosts/README.md says what each word means. */
#include "echi_hosts.h"
#include "echi_error.h"
#include "echi_lines.h"
#include "echi_print.h"
#include "echi_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_NAME 32
#define LATEST 1e8   /* virtual seconds: three years */

struct reader {
    struct echi_lines lines;
    struct echi_hosts hosts;                     /* its `host` is made at the end */
    struct echi_host host[ECHI_WORLD_MAX];
    char pool_name[ECHI_WORLD_MAX][POOL_NAME];   /* "": of one class only */
    struct echi_host usual;                      /* as the lines so far say */
};

static const struct echi_host usual = {.speed = 1, .cores = -1, .stutter_factor = 1, .dies = -1, .joins = -1};

static const struct echi_unit speed_units[] = {{"x", 1}, {"images/s", 1}, {0}};
static const struct echi_unit link_units[] = {{"kb/s", 1e3 / 8}, {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8}, {0}};
static const struct echi_unit time_units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {0}};
static const struct echi_unit part_units[] = {{"%", 0.01}, {0}};
static const struct echi_unit times_units[] = {{"x", 1}, {0}};
static const struct echi_unit no_units[] = {{"", 1}, {0}};

/* ------------------------------------------------------------- the keys */

static ech_status read_speed(struct reader *r, struct echi_host *h) {
    static const char needs[] = "speed needs a number from 0.000001 to 1000000000 and its unit, as in '0.5 x' (as fast as the profile's "
                                "machine) or '500 images/s'";
    int unit;
    ECHI_TRY(echi_lines_amount(&r->lines, needs, speed_units, 1e-6, 1e9, &h->speed, &unit));
    h->in_images = unit == 1;
    return ECH_OK;
}

/* "cores 2": of this class alone. "cores 2 of NAME": of all that say so, and they must agree. */
static ech_status read_cores(struct reader *r, struct echi_host *h) {
    long cores;
    ECHI_TRY(echi_lines_whole(&r->lines, "cores needs how many the hosts of this line share, a whole number from 1 to 1024", 1, 1024,
                              &cores));
    const char *name = "";
    if (echi_lines_take(&r->lines, "of")) {
        name = echi_lines_word(&r->lines);
        if (!name || strlen(name) >= POOL_NAME) return echi_lines_refuse(&r->lines, "'of' needs a name of at most 31 letters", name);
    }
    for (int i = 0; *name && i < r->hosts.pools; i++) {
        if (strcmp(r->pool_name[i], name) != 0) continue;
        h->cores = i;
        if (r->hosts.pool_cores[i] == cores) return ECH_OK;
        return echi_lines_refuse(&r->lines, "another line gives this machine another number of cores: make them equal", name);
    }
    if (r->hosts.pools == ECHI_WORLD_MAX) return echi_lines_refuse(&r->lines, "there are more machines with shared cores than hosts", name);
    h->cores = r->hosts.pools++;
    r->hosts.pool_cores[h->cores] = (int)cores;
    memcpy(r->pool_name[h->cores], name, strlen(name) + 1);
    return ECH_OK;
}

static ech_status read_quota(struct reader *r, struct echi_host *h) {
    static const char needs[] = "quota needs two times from 0.01 ms to 10 s with their units, of which the first is not the longer, as in "
                                "'50 ms of 100 ms'";
    ECHI_TRY(echi_lines_amount(&r->lines, needs, time_units, 1e-5, 10, &h->quota, NULL));
    if (!echi_lines_take(&r->lines, "of")) return echi_lines_refuse(&r->lines, needs, echi_lines_word(&r->lines));
    ECHI_TRY(echi_lines_amount(&r->lines, needs, time_units, 1e-5, 10, &h->period, NULL));
    return h->quota <= h->period ? ECH_OK : echi_lines_refuse(&r->lines, needs, "quota");
}

static ech_status read_jitter(struct reader *r, struct echi_host *h) {
    static const char needs[] = "jitter needs the sigma of a step's lognormal factor, a number from 0 to 2 without a unit";
    return echi_lines_amount(&r->lines, needs, no_units, 0, 2, &h->jitter, NULL);
}

static ech_status read_stutter(struct reader *r, struct echi_host *h) {
    static const char needs[] = "stutter needs a part of the steps up to 100 % and how many times as long they take, from 1 x to 1000 x, "
                                "as in '2 % 5 x'";
    ECHI_TRY(echi_lines_amount(&r->lines, needs, part_units, 0, 1, &h->stutter, NULL));
    return echi_lines_amount(&r->lines, needs, times_units, 1, 1000, &h->stutter_factor, NULL);
}

static ech_status read_link(struct reader *r, struct echi_host *h) {
    static const char needs[] = "link needs a rate from 1 kb/s to 10000 Gb/s with its unit, kb/s, Mb/s or Gb/s (bits), or 'unbounded'";
    h->rate = 0;
    if (echi_lines_take(&r->lines, "unbounded")) return ECH_OK;
    return echi_lines_amount(&r->lines, needs, link_units, 1e3 / 8, 1e13 / 8, &h->rate, NULL);
}

static ech_status read_delay(struct reader *r, struct echi_host *h) {
    return echi_lines_amount(&r->lines, "delay needs a time from 0 to 60 s with its unit, s, ms or us", time_units, 0, 60, &h->delay, NULL);
}

static ech_status read_loss(struct reader *r, struct echi_host *h) {
    static const char needs[] = "loss needs the part of its messages that are lost, from 0 % to 50 %";
    return echi_lines_amount(&r->lines, needs, part_units, 0, 0.5, &h->loss, NULL);
}

static ech_status read_dies(struct reader *r, struct echi_host *h) {
    static const char needs[] = "dies needs a time above 0, up to 100000000 s, with its unit, s, ms or us";
    return echi_lines_amount(&r->lines, needs, time_units, 1e-6, LATEST, &h->dies, NULL);
}

static ech_status read_joins(struct reader *r, struct echi_host *h) {
    static const char needs[] = "joins needs a time above 0, up to 100000000 s, with its unit, s, ms or us";
    return echi_lines_amount(&r->lines, needs, time_units, 1e-6, LATEST, &h->joins, NULL);
}

/* "slow 4 x from 20 s until 50 s"; without "until" for ever. */
static ech_status read_spell(struct reader *r, const char *needs, struct echi_spell *spell, int *count) {
    if (*count == ECHI_HOST_SLOWS)
        return echi_lines_refuse(&r->lines, "a host has at most 4 lasting slow-downs, and as many of its link", "from");
    double from, until = INFINITY, factor;
    ECHI_TRY(echi_lines_amount(&r->lines, needs, times_units, 1, 1000, &factor, NULL));
    if (!echi_lines_take(&r->lines, "from")) return echi_lines_refuse(&r->lines, needs, echi_lines_word(&r->lines));
    ECHI_TRY(echi_lines_amount(&r->lines, needs, time_units, 0, LATEST, &from, NULL));
    if (echi_lines_take(&r->lines, "until")) {
        ECHI_TRY(echi_lines_amount(&r->lines, needs, time_units, 0, LATEST, &until, NULL));
        if (!(until > from))
            return echi_lines_refuse(&r->lines, "a slow-down must end after it begins: 'until' is not later than 'from'", "until");
    }
    spell[(*count)++] = (struct echi_spell){from, until, factor};
    return ECH_OK;
}

static ech_status read_slow(struct reader *r, struct echi_host *h) {
    return read_spell(r, "slow needs how many times as long its steps take, from 1 x to 1000 x, and when, as in '4 x from 20 s until 50 s'",
                      h->slow, &h->n_slow);
}

static ech_status read_thin(struct reader *r, struct echi_host *h) {
    return read_spell(r, "thin needs how many times as long its link takes for a byte, from 1 x to 1000 x, and when, as in "
                         "'4 x from 20 s until 50 s'", h->thin, &h->n_thin);
}

enum { SLOW = 10, THIN, KEYS };
static const char *const key[KEYS] = {"speed", "cores", "quota", "jitter", "stutter", "link", "delay", "loss", "dies", "joins",
                                      [SLOW] = "slow", [THIN] = "thin"};
static ech_status (*const read_key[KEYS])(struct reader *r, struct echi_host *h) = {
    read_speed, read_cores, read_quota, read_jitter, read_stutter, read_link, read_delay, read_loss, read_dies, read_joins,
    [SLOW] = read_slow, [THIN] = read_thin};

/* The rest of a line into *h. Said once, but for slow-downs, of which there may be several. */
static ech_status read_keys(struct reader *r, struct echi_host *h) {
    bool said[KEYS] = {false};
    for (const char *word; (word = echi_lines_word(&r->lines));) {
        int k = 0;
        while (k < KEYS && strcmp(word, key[k]) != 0) k++;
        if (k == KEYS) return echi_lines_unknown(&r->lines, "property of a host", word, key, KEYS);
        if (said[k] && k < SLOW) return echi_lines_refuse(&r->lines, "this was said before on this line", word);
        said[k] = true;
        ECHI_TRY(read_key[k](r, h));
    }
    return ECH_OK;
}

/* ------------------------------------------------------------ the lines */

static ech_status read_class(struct reader *r) {
    struct echi_hosts *all = &r->hosts;
    long count;
    ECHI_TRY(echi_lines_whole(&r->lines, "hosts needs how many there are, a whole number from 1", 1, 1000000, &count));
    struct echi_host h = r->usual;
    ECHI_TRY(read_keys(r, &h));
    if (all->count == 0 && h.dies >= 0)
        return echi_lines_refuse(&r->lines, "the first host is rank 0, which coordinates and cannot die: give it a line of its own before",
                                 "dies");
    if (all->count == 0 && h.joins >= 0)
        return echi_lines_refuse(&r->lines, "the first host is rank 0, which the others join: give it a line of its own before", "joins");
    if (h.dies >= 0 && h.dies <= h.joins) return echi_lines_refuse(&r->lines, "a host dies after it has joined, not before", "dies");
    if (count > ECHI_WORLD_MAX - all->count) {
        char needs[80];
        snprintf(needs, sizeof needs, "with this line there are %ld hosts: a cluster has at most %d", count + all->count, ECHI_WORLD_MAX);
        return echi_lines_refuse(&r->lines, needs, "hosts");
    }
    while (count-- > 0) r->host[all->count++] = h;
    return ECH_OK;
}

static ech_status read_lines(struct reader *r) {
    static const char *const known[] = {"hosts", "default"};
    for (const char *word; (word = echi_lines_next(&r->lines));) {
        if (strcmp(word, "hosts") == 0) ECHI_TRY(read_class(r));
        else if (strcmp(word, "default") == 0) ECHI_TRY(read_keys(r, &r->usual));
        else return echi_lines_unknown(&r->lines, "line of a host file", word, known, 2);
    }
    const size_t count = (size_t)r->hosts.count;
    if (count == 0)
        return echi_fail(r->lines.err, ECH_E_FORMAT, "hosts.load",
                         "%s describes no hosts: give a line such as 'hosts 4 speed 1 x link 1 Gb/s'", r->lines.path);
    r->hosts.host = malloc(count * sizeof *r->host);
    if (!r->hosts.host) return echi_fail_memory(r->lines.err, "hosts.load", "the hosts");
    memcpy(r->hosts.host, r->host, count * sizeof *r->host);
    return ECH_OK;
}

/* Reads what `r` was opened on. The reader is the caller's, and too large for a stack. */
static ech_status read_all(struct reader *r, ech_status opened, struct echi_hosts *out) {
    r->usual = usual;
    ech_status status = opened == ECH_OK ? read_lines(r) : opened;
    if (status == ECH_OK) *out = r->hosts;
    echi_lines_close(&r->lines);
    free(r);
    return status;
}

ech_status echi_hosts_load(const char *path, struct echi_hosts *out, struct ech_error *err) {
    struct reader *r = calloc(1, sizeof *r);
    if (!r) return echi_fail_memory(err, "hosts.load", "the hosts");
    return read_all(r, echi_lines_open(&r->lines, path, "hosts.load", err), out);
}

void echi_hosts_free(struct echi_hosts *hosts) {
    free(hosts->host);
    *hosts = (struct echi_hosts){0};
}

void echi_hosts_relate(struct echi_hosts *hosts, double images_per_second) {
    for (int i = 0; i < hosts->count; i++) {
        struct echi_host *h = &hosts->host[i];
        if (h->in_images) h->speed /= images_per_second;
        h->in_images = false;
    }
}

/* --------------------------------------------------------- named spreads */

/* The clusters that the project's figures are about: four classes, LeNet-5 images/s and Mb/s of each. test/hosts has them as files. */
enum { CLASSES = 4 };
static const struct spread {
    const char *name;
    int speed[CLASSES], link[CLASSES];
} spreads[] = {
    {"even", {2000, 2000, 2000, 2000}, {1000, 1000, 1000, 1000}},
    {"mild", {1000, 1260, 1590, 2000}, {1000, 1000, 1000, 1000}},
    {"strong", {500, 1000, 2000, 4000}, {1000, 1000, 1000, 1000}},
    {"incast", {2000, 2000, 2000, 2000}, {500, 500, 500, 500}},
    {"links", {1000, 1260, 1590, 2000}, {25, 50, 100, 200}},
};
enum { SPREADS = (int)(sizeof spreads / sizeof spreads[0]) };
#define UNREST "default jitter 0.15 stutter 2 % 5 x\n"

ech_status echi_hosts_named(int workers, const char *name, struct echi_hosts *out, struct ech_error *err) {
    const struct spread *spread = spreads;
    while (spread < spreads + SPREADS && strcmp(spread->name, name) != 0) spread++;
    if (spread == spreads + SPREADS) {
        char list[80] = "";
        struct echi_print p = {list, sizeof list, 0};
        for (int i = 0; i < SPREADS; i++) echi_print(&p, "%s%s", i ? ", " : "", spreads[i].name);
        return echi_fail(err, ECH_E_ARGUMENT, "hosts.named", "there is no spread '%.40s': give one of %s, or a host file", name, list);
    }
    if (workers < 1 || workers > ECHI_WORLD_MAX)
        return echi_fail(err, ECH_E_ARGUMENT, "hosts.named", "%d workers: give a number from 1 to %d", workers, ECHI_WORLD_MAX);
    char text[512] = UNREST;
    struct echi_print p = {text, sizeof text, strlen(UNREST)};
    for (int c = 0; c < CLASSES; c++) {   /* class c has the workers i with i * CLASSES / workers == c */
        const int count = ((c + 1) * workers + CLASSES - 1) / CLASSES - (c * workers + CLASSES - 1) / CLASSES;
        if (count > 0) echi_print(&p, "hosts %d speed %d images/s link %d Mb/s\n", count, spread->speed[c], spread->link[c]);
    }
    struct reader *r = calloc(1, sizeof *r);
    if (!r) return echi_fail_memory(err, "hosts.named", "the hosts");
    return read_all(r, echi_lines_open_text(&r->lines, name, text, "hosts.named", err), out);
}

ech_status echi_hosts_alike(int workers, double rate, double delay, struct echi_hosts *out, struct ech_error *err) {
    if (workers < 1 || workers > ECHI_WORLD_MAX)
        return echi_fail(err, ECH_E_ARGUMENT, "hosts.alike", "%d workers: give a number from 1 to %d", workers, ECHI_WORLD_MAX);
    struct echi_host *host = malloc((size_t)workers * sizeof *host);
    if (!host) return echi_fail_memory(err, "hosts.alike", "the hosts");
    for (int i = 0; i < workers; i++) {
        host[i] = usual;
        host[i].rate = rate;
        host[i].delay = delay;
    }
    *out = (struct echi_hosts){.count = workers, .host = host};
    return ECH_OK;
}

/* ------------------------------------------------------ random numbers */

static double unit(const uint32_t word[2]) { return (double)((uint64_t)(word[0] >> 5) << 26 | word[1] >> 6) * 0x1p-53; }

double echi_hosts_step_factor(const struct echi_hosts *hosts, uint64_t seed, int host, uint64_t step) {
    const struct echi_host *h = &hosts->host[host];
    uint32_t word[4];
    double factor = 1;
    if (h->jitter > 0) {   /* Box and Muller */
        echi_random4(seed, ECHI_STREAM_STEP_TIME, (uint32_t)host, 2 * step, word);
        factor = exp(h->jitter * sqrt(-2 * log(1 - unit(word))) * cos(6.283185307179586476925 * unit(word + 2)));
    }
    if (h->stutter > 0) {
        echi_random4(seed, ECHI_STREAM_STEP_TIME, (uint32_t)host, 2 * step + 1, word);
        if (unit(word) < h->stutter) factor *= h->stutter_factor;
    }
    return factor;
}
