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

/* FAKE until engine merges */
struct ech_sim_options { const char *hosts; int workers; const char *spread; int costs_only; const char *profile; };
ech_status ech_simulate(const ech_model *model, const ech_data *data, const struct ech_config *config, const struct ech_sim_options *options,
                        struct ech_report *out_report, struct ech_error *err);
#endif
