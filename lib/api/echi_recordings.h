/* SPDX-License-Identifier: Apache-2.0
 * The recordings of a run, in memory: what replays, explanations and traces begin with. */
#ifndef ECHI_RECORDINGS_H
#define ECHI_RECORDINGS_H
#include "echi_recording.h"

struct echi_recordings {
    int world;                            /* 0 until rank 0's is loaded with the others */
    char name[ECHI_WORLD_MAX][1200];
    uint8_t *bytes[ECHI_WORLD_MAX];
    struct echi_recording *recording;     /* [ECHI_WORLD_MAX] */
};

/* Empty at first; destroyed by whoever made them, also after a failure. ECH_E_ARGUMENT: dir is NULL. */
ech_status echi_recordings_make(const char *dir, struct echi_recordings **out, struct ech_error *err);
void echi_recordings_discard(struct echi_recordings *f);   /* NULL is harmless */
/* DIR/rank<N>.events, read whole and opened. */
ech_status echi_recordings_load(struct echi_recordings *f, const char *dir, int rank, struct ech_error *err);
/* Those of all ranks, of one run. */
ech_status echi_recordings_load_all(struct echi_recordings *f, const char *dir, struct ech_error *err);
/* ECH_E_MISMATCH with both sides. */
ech_status echi_recordings_differ(struct ech_error *err, int rank, const char *what, const char *recorded, const char *here,
                                  const char *advice);
#endif
