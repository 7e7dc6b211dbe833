/* SPDX-License-Identifier: Apache-2.0
 * What the `echelon` command can do beside training and users of the library need not: replaying recorded runs. In the
 * archive, but not installed, and free to change. */
#ifndef ECHELON_DEV_H
#define ECHELON_DEV_H
#include "echelon.h"

/* What a folder of recordings says of its run: the names to open the same model and data with. Read from rank 0's file. */
struct ech_recording {
    char version[16], model[32], data[96];
    int world;
    uint64_t seed;
    int session;                  /* 1: the user's own model: its roles can be replayed, its arithmetic cannot */
};
ech_status ech_recording_about(const char *dir, struct ech_recording *out, struct ech_error *err);

struct ech_replay_options {
    const char *dir;              /* as given to --record; with the files of all ranks */
    const ech_model *model;       /* both NULL: only the roles are replayed, the arithmetic is not repeated */
    const ech_data *data;
    int threads;                  /* 0: as recorded */
    const char *init;             /* initial weights (safetensors); NULL: where the run had them from */
    const char *save;             /* where the trained weights go (safetensors); NULL: nowhere */
};
struct ech_replay_report {
    int world;
    int unended;                  /* recordings without an end: their nodes were killed, or their disks full */
    uint64_t events, actions;     /* given to fresh roles; that came out the same */
    uint64_t tasks, payloads;     /* computed again; copied from node to node. 0 without model and data */
    double seconds;
    char weights[65];             /* SHA-256 of the trained weights, which are the recorded ones; "" without model and data */
};
/* Replays a recorded run in this process, on the calling thread. First every node's events go into fresh roles, whose actions
 * must be the recorded ones byte for byte; then the arithmetic is repeated, and every loss and the trained weights must be
 * the recorded ones bit for bit. out_report may be NULL; it is filled as far as the replay came, also on failure.
 * ECH_E_MISMATCH: something differs: the run's version, model, data, kernels, instruction set, threads or initial weights from
 * those here (the sentence has both sides), or an action or a number from the recorded one. ECH_E_FORMAT: a file is damaged or
 * has no end. ECH_E_UNSUPPORTED: the arithmetic is not Echelon's. ECH_E_IO: a file is not there. */
ech_status ech_replay(const struct ech_replay_options *options, struct ech_replay_report *out_report, struct ech_error *err);
/* The recording of one rank (-1: of all, one after the other) as lines for people. */
ech_status ech_replay_show(const char *dir, int rank, void (*line)(void *user, const char *text), void *user, struct ech_error *err);

/* ---- simulated clusters ---- */

struct ech_sim_counts {
    uint64_t events;              /* things that were due: the simulator's work goes with their number */
    uint64_t role_events;         /* of them, and beside them, what the nodes' roles were told */
};
struct ech_sim_options {
    const char *hosts;            /* host file; NULL: `workers` hosts of the named spread */
    int workers;
    const char *spread;           /* even, mild, strong, incast, links; NULL: even */
    int costs_only;               /* 1: nothing is computed, it only costs: no weights, losses of 0, and nobody looks at the test set */
    const char *profile;          /* what arithmetic costs; NULL: the built-in one */
    struct ech_sim_counts *counts;   /* filled if not NULL */
};
/* Runs what ech_train would run on all nodes of a cluster, in this thread and in virtual time. Nothing but the arguments decides:
 * the same seed gives the same bytes in config's save and report files, on machines that compute alike. config's rank, world,
 * coordinator, bind, join_timeout, key, insecure, slow, device and threads mean nothing here; checkpoint and record are refused
 * (ECH_E_UNSUPPORTED). deadline decides, as in a live run, how long a death goes unnoticed; a start waits for the last host to join.
 * Seconds in the report and in on_progress are virtual, on_progress comes at each look and about once a real second, resident_peak is 0.
 * out_report may be NULL; it is filled as far as the run came, also on failure. Statuses as of ech_train; ECH_E_TIMEOUT: the cluster
 * cannot make progress, and the sentence says who waits for whom (of all nodes: to on_log). */
ech_status ech_simulate(const ech_model *model, const ech_data *data, const struct ech_config *config,
                        const struct ech_sim_options *options, struct ech_report *out_report, struct ech_error *err);
#endif
