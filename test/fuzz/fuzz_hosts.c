/* SPDX-License-Identifier: Apache-2.0
 * Host files: what is loaded is a cluster that can be simulated, every number in its range, and its speeds relate to any profile. */
#include "fuzz.h"

#include "echi_hosts.h"

#include <math.h>
#include <string.h>

/* The bounds that the simulator relies on, said here a second time; a NaN is in none of them. */
static void check_host(const struct echi_hosts *all, int rank) {
    const struct echi_host *h = &all->host[rank];
    FUZZ_CHECK(h->speed > 0 && h->speed < 1e10 && h->jitter >= 0 && h->jitter <= 2);
    FUZZ_CHECK(h->stutter >= 0 && h->stutter <= 1 && h->stutter_factor >= 1 && h->stutter_factor <= 1000);
    FUZZ_CHECK(h->rate == 0 || (h->rate >= 100 && h->rate < 1e13));
    FUZZ_CHECK(h->delay >= 0 && h->delay <= 60 && h->loss >= 0 && h->loss <= 0.5);
    FUZZ_CHECK(h->cores >= -1 && h->cores < all->pools);
    FUZZ_CHECK(h->quota == 0 || (h->quota >= 9e-6 && h->quota <= h->period && h->period <= 10));
    FUZZ_CHECK(h->dies == -1 || (h->dies > 0 && h->dies < 1e9 && h->dies > h->joins && rank > 0));
    FUZZ_CHECK(h->joins == -1 || (h->joins > 0 && h->joins < 1e9 && rank > 0));
    FUZZ_CHECK(h->n_slow >= 0 && h->n_slow <= ECHI_HOST_SLOWS);
    for (int i = 0; i < h->n_slow; i++)
        FUZZ_CHECK(h->slow[i].factor >= 1 && h->slow[i].factor <= 1000 && h->slow[i].from >= 0 && h->slow[i].until > h->slow[i].from);
}

static bool one(const uint8_t *bytes, size_t len) {
    struct echi_hosts hosts = {0};
    struct ech_error err = {0};
    const ech_status status = echi_hosts_load(fuzz_file(0, bytes, len), &hosts, &err);
    if (status != ECH_OK) {
        fuzz_sentence(&err, status);
        FUZZ_CHECK(strstr(err.text, "/proc/self/fd/") != NULL); /* names the file */
        FUZZ_CHECK(hosts.host == NULL && hosts.count == 0);
        return false;
    }
    FUZZ_CHECK(hosts.count >= 1 && hosts.count <= ECHI_WORLD_MAX && hosts.pools >= 0 && hosts.pools <= ECHI_WORLD_MAX);
    for (int i = 0; i < hosts.pools; i++) FUZZ_CHECK(hosts.pool_cores[i] >= 1 && hosts.pool_cores[i] <= 1024);
    for (int r = 0; r < hosts.count; r++) check_host(&hosts, r);
    echi_hosts_relate(&hosts, 1e-3);
    for (int r = 0; r < hosts.count; r++) FUZZ_CHECK(!hosts.host[r].in_images && hosts.host[r].speed > 0 && isfinite(hosts.host[r].speed));
    echi_hosts_free(&hosts);
    return true;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const char *const text[] = {
        "# a cluster\r\ndefault jitter 0.15 stutter 2 % 5 x link 1 Gb/s\nhosts 4 speed 500 images/s\nhosts 4 speed 0.5x\n",
        "hosts 1 cores 4 of desk\nhosts 2 cores 2\n\thosts 1 cores 4 of desk delay 2 ms loss 0.1 % dies 60 s",
        "hosts 1\nhosts 1 speed 1 x joins 10 s slow 4 x from 20 s until 50 s slow 1.5 x from 100 s link unbounded\n",
        "hosts 2 quota 1 ms of 2 ms\nhosts 1 speed 2 x quota 50ms of 0.1 s\n",
        NULL,
    };
    (void)good; /* all are */
    return fuzz_seed_text(text, i, out, cap);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "hosts 1 ", "default ", "speed ", "jitter ", "stutter ", "link ", "unbounded", "delay ", "loss ", "dies ", "joins ", "slow ", "cores ",
    "quota ", " of ", " from ", " until ", " x", " images/s", " kb/s", " Mb/s", " Gb/s", " s", " ms", " us", " %", "nan", "inf", "-0", "-1",
    "1e999", "1e-320", "1e", "0x1p3", "64", "65", "1024", "1025", "1000000", "\n", "\r\n", "#", "", "\x1b[31m", "\t", NULL,
};
/* clang-format on */

/* Room for as many hosts as a cluster may have, twice, and for their machines' names, whatever a line says; and the file. */
const struct fuzz_driver fuzz_hosts = {.name = "hosts", .one = one, .seed = seed, .words = words, .most = 4096,
    .heap = 65536 + ECHI_WORLD_MAX * (2 * sizeof(struct echi_host) + 40), .heap_a_byte = 4};
