/* SPDX-License-Identifier: Apache-2.0
 * The machines of a simulated cluster: from a text file that people write, one line a class of hosts (hosts.c), or from a name. */
#ifndef ECHI_HOSTS_H
#define ECHI_HOSTS_H
#include "ech_status.h"
#include "echi_machines.h"

/* Reads a host file (its form is in hosts.c and test/hosts/README.md). Ranks follow the order of its lines. *out is written only
 * on success and freed with echi_hosts_free. ECH_E_FORMAT with "file:line: ..." for what is not as it must be, ECH_E_IO. */
ech_status echi_hosts_load(const char *path, struct echi_hosts *out, struct ech_error *err);
/* `workers` hosts of a named spread: the four classes of the host file of that name in test/hosts, in its order, for any number
 * from 1 to ECHI_WORLD_MAX. ECH_E_ARGUMENT when there is no such name. */
ech_status echi_hosts_named(int workers, const char *spread, struct echi_hosts *out, struct ech_error *err);
/* So many of the profile's machine, steady, with links of `rate` bytes a second and `delay` seconds at either end. */
ech_status echi_hosts_alike(int workers, double rate, double delay, struct echi_hosts *out, struct ech_error *err);
/* Speeds given in images/s become relative to a machine that trains so many (> 0). Relative ones stay. */
void echi_hosts_relate(struct echi_hosts *hosts, double images_per_second);
/* How much longer step number `step` of a host takes than it usually does: its jitter (log-normal, median 1) and whether it
 * stutters, a function of (seed, host, step). For the caller to multiply a work's seconds with. */
double echi_hosts_step_factor(const struct echi_hosts *hosts, uint64_t seed, int host, uint64_t step);
void echi_hosts_free(struct echi_hosts *hosts);   /* harmless on zeroed ones */
#endif
