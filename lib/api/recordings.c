/* SPDX-License-Identifier: Apache-2.0
 * The recordings of a run, read from their folder. */
#include "echi_recordings.h"
#include "echi_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void echi_recordings_discard(struct echi_recordings *f) {
    if (!f) return;
    for (int r = 0; r < ECHI_WORLD_MAX; r++) free(f->bytes[r]);
    free(f->recording);
    free(f);
}

ech_status echi_recordings_load(struct echi_recordings *f, const char *dir, int rank, struct ech_error *err) {
    size_t len;
    snprintf(f->name[rank], sizeof f->name[rank], "%s/rank%d.events", dir, rank);
    if (f->world && !echi_file_exists(f->name[rank]))
        return echi_fail(err, ECH_E_IO, "replay",
                         "'%.200s' is missing: the run had %d nodes; copy the files of all of them into one folder", f->name[rank],
                         f->world);
    ECHI_TRY(echi_file_read(f->name[rank], SIZE_MAX / 2, &f->bytes[rank], &len, err));
    struct echi_recording *r = &f->recording[rank];
    ECHI_TRY(echi_recording_open(f->bytes[rank], len, f->name[rank], r, err));
    if (r->about.rank == rank) return ECH_OK;
    return echi_fail(err, ECH_E_FORMAT, "replay", "'%.200s' was recorded by rank %d: give each file the name it was written under",
                     f->name[rank], r->about.rank);
}

ech_status echi_recordings_make(const char *dir, struct echi_recordings **out, struct ech_error *err) {
    if (!dir) return echi_fail(err, ECH_E_ARGUMENT, "replay", "no folder was given");
    struct echi_recordings *f = calloc(1, sizeof *f);
    if (f) f->recording = calloc(ECHI_WORLD_MAX, sizeof *f->recording);
    if (!f || !f->recording) {
        echi_recordings_discard(f);
        return echi_fail_memory(err, "replay", "the recordings");
    }
    *out = f;
    return ECH_OK;
}

ech_status echi_recordings_differ(struct ech_error *err, int rank, const char *what, const char *recorded, const char *here,
                                  const char *advice) {
    return echi_fail_at(err, ECH_E_MISMATCH, "replay", rank, NULL, "%s differs: recorded '%.90s', here '%.90s'; %s", what, recorded, here,
                        advice);
}

ech_status echi_recordings_load_all(struct echi_recordings *f, const char *dir, struct ech_error *err) {
    ECHI_TRY(echi_recordings_load(f, dir, 0, err));
    const struct echi_about *first = &f->recording[0].about;
    f->world = first->world;
    for (int r = 1; r < f->world; r++) {
        ECHI_TRY(echi_recordings_load(f, dir, r, err));
        const struct echi_about *a = &f->recording[r].about;
        const char *advice = "are these the recordings of one run?";
        char was[24], is[24];
        snprintf(was, sizeof was, "%llu of %d", (unsigned long long)first->seed, first->world);
        snprintf(is, sizeof is, "%llu of %d", (unsigned long long)a->seed, a->world);
        if (strcmp(first->model_hash, a->model_hash) != 0)
            return echi_recordings_differ(err, r, "the model of two ranks", first->model_hash, a->model_hash, advice);
        if (strcmp(first->data_hash, a->data_hash) != 0)
            return echi_recordings_differ(err, r, "the data of two ranks", first->data_hash, a->data_hash, advice);
        if (strcmp(was, is) != 0 || first->shuffle != a->shuffle || first->augment != a->augment)
            return echi_recordings_differ(err, r, "the seed, order, augmentation or world of two ranks", was, is, advice);
    }
    return ECH_OK;
}
