/* SPDX-License-Identifier: Apache-2.0
 * What is run: a model and its data, and which of their bytes and samples a plan gives to whom. job.c */
#ifndef ECHI_JOB_H
#define ECHI_JOB_H
#include "echelon.h"
#include "echi_data.h"
#include "echi_event.h"
#include "echi_model.h"

/* A model and its data as a run needs them, whether they are Echelon's or a custom trainer's. */
struct echi_job {
    const struct ech_model *model;            /* whose layers nodes compute; in a session those of its head, NULL: it has none */
    const struct ech_data *data;              /* NULL in a session */
    bool session;                             /* what is in front of the cut is the caller's: arrays, which are layers without a number in
                                                 the model (-1), and the arithmetic */
    int classes;                              /* labels are below this; 0: there are no labels */
    struct echi_param_layer layer[ECHI_LAYERS_MAX]; int n_layers;   /* with parameters */
    size_t n_params;
    /* Where the cut may lie. Counted in layers with parameters: in front of the first fully connected one, and in front of that which is
     * asked for, or else of the same; steps are measured there. n_layers: nowhere. And for each: the model's layer with which the head
     * would begin, and the floats a sample that cross the cut; width 0: no cut may be there. Of n_layers: one past the last, and 0. */
    int first_fc, cut_params;
    struct echi_border { int layer; size_t width; } border[ECHI_LAYERS_MAX + 1];
    uint32_t train_samples, test_samples;
    uint64_t seed;
    bool shuffle;
    bool augment;                             /* training samples are cropped and flipped at random */
    bool draws;                               /* the model has a dropout */
    enum echi_kernels kernels;                /* FIXED under --deterministic */
    double measure;                           /* seconds for which steps are measured */
    bool waits;                               /* there are other nodes: between steps it waits for what they send */
    echi_real *first_weights;                 /* rank 0: steps are measured with these, which then take no other memory; NULL: with some */
};
/* What ech_train runs, from model, data and options. ECH_E_SHAPE when model and data do not fit together. */
ech_status echi_job_make(const struct ech_model *model, const struct ech_data *data, const struct ech_config *config, struct echi_job *out,
                         struct ech_error *err);
/* The kernels that options ask for. */
enum echi_kernels echi_job_kernels(const struct ech_config *config);
bool echi_model_draws(const struct ech_model *model);   /* has it a dropout? */
/* What the roles of `rank` are told of the job under this plan, which is not the one in *out. */
void echi_job_setup(const struct echi_job *job, const struct echi_plan *plan, int rank, struct echi_setup *out);
/* The layers that parts are made of (echi_part.h). */
void echi_job_layers(const struct echi_job *job, struct echi_layers *out);
/* part_text.c: what is wrong with a table of parts. */
void echi_parts_sentence(const struct echi_parts *parts, const struct echi_part_fault *fault, char *text, size_t cap);
/* Can the plan be followed with this model? Else ECH_E_MISMATCH and why. */
ech_status echi_job_takes(const struct echi_job *job, const struct echi_plan *plan, struct ech_error *err);
/* job_cut.c: `first_fc`, `cut_params` and `border` of a job whose layers are known. ECH_E_ARGUMENT: the cut that option separate asks for
 * cannot be; the sentence says why, and which can. */
ech_status echi_job_find_cuts(const struct ech_config *config, struct echi_job *job, struct ech_error *err);
/* Those that can be, by name; with `numbers` as a plan file counts them, too. */
void echi_job_list_cuts(const struct echi_job *job, bool numbers, char *text, size_t cap);
/* May the cut lie in front of this layer with parameters? */
bool echi_job_may_cut(const struct echi_job *job, int cut);
/* Of the head under this plan: the model's layer that it begins with, one past the last where nothing is separated; floats a sample that
 * it is sent, 0 there. */
int echi_job_head(const struct echi_job *job, const struct echi_plan *plan);
size_t echi_job_width(const struct echi_job *job, const struct echi_plan *plan);
size_t echi_job_row_bytes(const struct echi_job *job, const struct echi_plan *plan);   /* of them, as they travel */
size_t echi_job_widest(const struct echi_job *job);   /* the most that any cut may be crossed by */
/* Is a batch-norm among the layers from `cut` on? */
bool echi_job_norms_behind(const struct echi_job *job, int cut);
/* Bytes of what batch-norms sum: of the largest. */
size_t echi_job_norm_bytes(const struct echi_job *job);
/* Floats [*at, *at + *count) that an owner (head false) or the head (true) keeps under this plan. */
void echi_job_range(const struct echi_job *job, const struct echi_plan *plan, bool head, size_t *at, size_t *count);
/* The same in pieces, ascending: of a rank that owns a shard the parts of it, neighbours as one; else the whole. Returns how many. */
struct echi_range { size_t at, count; };
int echi_job_ranges(const struct echi_job *job, const struct echi_plan *plan, int rank, bool head, struct echi_range out[ECHI_PARTS_MAX]);
size_t echi_job_kept(const struct echi_job *job, const struct echi_plan *plan, int rank, bool head);   /* floats in all of them */
/* What an optimiser remembers of those floats lies together in its slot, so that one message carries it: of Adam what the gradients in it
 * weigh (struct echi_adam_weights), the first moments, then the second; else velocities alone. Places in bytes, in floats where it says. */
struct echi_memory {
    size_t at, bytes;                         /* all of it */
    size_t first, second;                     /* floats: of the first parameter of the range; second == first: there are none */
};
void echi_job_memory(const struct echi_job *job, const struct echi_plan *plan, int optimizer, bool head, struct echi_memory *out);
size_t echi_job_memory_bytes(const struct echi_job *job, int optimizer);   /* of a slot for it */
/* How model and data are compared between nodes and with recordings: hashes; in a session, counts. */
#define ECHI_JOB_WORD 72
void echi_job_words(const struct echi_job *job, char model[ECHI_JOB_WORD], char data[ECHI_JOB_WORD]);
/* The order in which samples are dealt, in words; nodes compare it, and a checkpoint with the run that goes on from it. */
void echi_job_order(const struct echi_job *job, char out[ECHI_JOB_WORD]);
/* How training samples are augmented, in words, which nodes compare too. */
void echi_job_augment(const struct echi_job *job, char out[ECHI_JOB_WORD]);
/* Is there the layer, or the part, that a message of such a kind names? The extent of none but those is known. */
bool echi_job_knows(const struct echi_job *job, const struct echi_plan *plan, const struct echi_msg *m);
/* Where layers belong that came for an evaluation or a rescue: among the coordinator's weights; a worker's whole copy, where rank 0's own
 * worker may still write these, stays in the place to which it comes. */
struct echi_slot echi_job_params_slot(const struct echi_plan *plan, const struct echi_msg *m);
/* Puts the payload of a PARAMS that came from an owner, a worker or the head where its extent says, unless it is there; of an owner's
 * momentum what is of its shards alone, the rest is another's. */
void echi_job_take_params(const struct echi_job *job, const struct echi_plan *plan, int from, const struct echi_msg *m, const void *payload,
                          void *slot);
/* Bytes [*at, *at + *len) of a slot that a message carries. One place decides it for sender, receiver and replay. `head` says
 * whose layers a PARAMS is about. */
void echi_job_extent(const struct echi_job *job, const struct echi_plan *plan, int kind, const struct echi_msg *m, bool head, size_t *at,
                     size_t *len);
/* The labels that follow the rows of an ACT, two bytes each, the lower first; `at` needs no alignment. */
void echi_labels_put(void *at, const uint16_t *labels, uint32_t n);
void echi_labels_get(const void *at, uint16_t *out_labels, uint32_t n);
/* Under a codec some kinds are as long as what is written in them; the extent is then the longest. Whether a kind is coded, and the
 * length of what lies at `bytes`, of which the first words are read; 0: they make no sense. */
bool echi_job_coded(const struct echi_plan *plan, int kind);
size_t echi_job_length(const struct echi_plan *plan, int kind, const uint8_t *bytes, size_t most);
/* May a peer have sent these `len` bytes as a payload whose extent is `most`? A coded one is read to its end, so that no task fails
 * because of it. */
bool echi_job_fits(const struct echi_plan *plan, int kind, const uint8_t *bytes, size_t len, size_t most);
/* Sample numbers of a lease. */
void echi_job_samples(const struct echi_job *job, const struct echi_lease *lease, uint32_t *out_index);
/* The n samples from `start` of an epoch's permutation, as dropout is keyed by; nothing where nothing is drawn. */
void echi_job_rows(const struct echi_job *job, uint32_t epoch, uint32_t start, uint32_t n, struct echi_row *out_rows);
#endif
