/* SPDX-License-Identifier: Apache-2.0
 * What the files of the computing lane share: exec.c (the tasks as they usually are), exec_given.c (gradients of
 * a session), exec_rows.c (rows at the cut), exec_slots.c (set-up), exec_blocks.c (the same
 * tasks under --deterministic), exec_codec.c (what the codec top-k adds), ahead.c (samples read while others are computed). */
#ifndef ECHI_EXEC_IMPL_H
#define ECHI_EXEC_IMPL_H
#include "echi_exec.h"

#include <stdatomic.h>

/* Room for samples as they are read. */
struct echi_samples { echi_real *rows; uint16_t *labels; uint32_t *index; };

struct echi_exec {
    const struct echi_job *job;
    struct echi_device *device;
    struct echi_lane *lane;                       /* NULL while measuring */
    const struct echi_setup *setup;
    const struct echi_loans *loans;               /* NULL: every slot has memory of its own */
    echi_real *params; bool params_move;          /* echi_exec_use_params; NULL: the coordinator's weights have memory of their own */
    size_t *counting;                             /* the set-up makes no slot, and adds here what it would take; NULL: it makes them */
    bool sum_is_push;                             /* a round has one push, and that is lent: the sum is where backward has left it */
    bool gives;                                   /* a session's gradients are these; WORKER_GRADS has what echi_exec_payload put there */
    struct { const echi_real *grad; echi_real factor; } given[ECHI_LAYERS_MAX];
    struct echi_buffer *slot[ECHI_SLOT_KINDS][ECHI_WORLD_MAX];
    struct echi_stack *trunk[ECHI_STACKS];        /* of each flight or micro-batch; all layers where nothing is separated */
    uint16_t *trunk_labels; uint32_t trunk_rows;  /* with a head elsewhere: of the samples in each of these, so many at most */
    struct echi_stack *head, *eval;
    struct { struct echi_adam_weights weights; struct echi_adam_push push; } adam;   /* of the round whose parts are applied one by one */
    /* scratch of the worker's, the head's and the evaluation's tasks, which may be nested in one another */
    struct echi_samples samples, eval_samples;
    struct echi_ahead *ahead;                     /* who reads the next `samples`; NULL: the lane itself does */
    uint32_t eval_rows;                           /* an evaluation takes so many samples at once */
    _Atomic uint32_t evaluated;                   /* of the test samples; how far an evaluation is */
    atomic_bool ends_eval;                        /* its result is not wanted any more */
    echi_real *rows;                              /* where rows travel in bf16: a worker's, of one micro-batch, as floats */
    echi_real *head_rows, *head_rows_grad;
    uint16_t *head_labels;
    struct echi_row *who, *head_who;              /* the samples of the rows, for dropout */
    /* --deterministic: a stack for each reduction block whose activations must be kept, the gradients of one, a round's sum made floats */
    struct echi_stack **block; uint32_t blocks, of_micro;   /* of_micro: so many belong to each micro-batch */
    struct echi_buffer *of_block, *rounded;
    /* codec top-k: room to select in for the worker's and the owner's tasks; a push as gradients */
    struct echi_codec_room *push_room, *state_room;
    struct echi_buffer *pushed;
};

/* ---- exec.c ---- */
static inline struct echi_buffer **buffer_of(struct echi_exec *x, struct echi_slot s) {
    const struct echi_slot at = x->loans ? echi_loans_slot(x->loans, s) : s;
    if (x->sum_is_push && at.kind == ECHI_SLOT_OWNER_SUM) return &x->slot[ECHI_SLOT_WORKER_GRADS][0];
    return &x->slot[at.kind][at.index];
}
static inline struct echi_buffer *slot(struct echi_exec *x, struct echi_slot s) { return *buffer_of(x, s); }
/* An owner's sum of a round becomes its first push, and nothing is copied: the two slots change their buffers, which are of one size
 * and in the host's memory. What the push's slot has then is of no use to anybody. Where the push is lent, it is its sender's slot that
 * changes. */
void echi_exec_set_sum(struct echi_exec *x, const struct echi_task *add);
/* exec_bytes.c: what of such a slot holds anything under the plan: parameters are addressed by their place in the model, and a node may
 * have few of them. Returns how many; what they take is in *held. */
#define ECHI_EXEC_SPANS (2 * ECHI_PARTS_MAX + 1)
int echi_exec_spans(const struct echi_exec *x, enum echi_slot_kind kind, int index, size_t bytes, struct echi_span out[ECHI_EXEC_SPANS],
                    size_t *held);
/* Is there so much memory for slots, beside the stacks that are there? Else ECH_E_MEMORY and a sentence. */
ech_status echi_exec_fits(const struct echi_exec *x, size_t slots, struct ech_error *err);
/* Of the parameters of an owner those that a task is about. Returns how many ranges they are. */
int echi_exec_ranges(const struct echi_exec *x, const struct echi_task *task, bool of_head, struct echi_range out[ECHI_PARTS_MAX]);
/* ADD, APPLY of a part: the sum in `to` takes in what has come of it; `sets`: there was none. */
ech_status echi_exec_add_rows(struct echi_exec *x, const struct echi_task *task, struct echi_slot to, bool sets, struct ech_error *err);
/* Behind a stack's input: the step trains, on these n samples. */
ech_status echi_exec_train(const struct echi_exec *x, struct echi_stack *stack, const struct echi_row *who, uint32_t n, uint32_t divisor,
                           struct ech_error *err);
/* Samples as rows of numbers: of the test set, or of the training set as it is in this epoch. */
ech_status echi_exec_read(const struct echi_job *job, bool test, uint32_t epoch, const uint32_t *index, int n, echi_real *rows,
                          uint16_t *labels, struct ech_error *err);
ech_status echi_samples_read(struct echi_samples *samples, const struct echi_job *job, const struct echi_lease *lease,
                             struct ech_error *err);
/* Those of a lease into exec->samples, and `who` they are. */
ech_status echi_exec_samples(struct echi_exec *x, const struct echi_lease *lease, struct ech_error *err);
/* The sum over n samples as it is reported: a loss that is lost is none, even while its floats are still finite. */
double echi_exec_sane_loss(double loss, uint32_t n);
/* Layers of a head on n rows: loss (a sum), right answers, and the gradients of the rows, which may come to where these were. `who`: the
 * samples, for dropout. Those of its layers are in `grads` after echi_exec_head_params. */
struct echi_pass_of { uint32_t n; const echi_real *rows; const uint16_t *labels; const struct echi_row *who; echi_real *rows_grad; };
ech_status echi_exec_head_pass(struct echi_exec *x, struct echi_stack *stack, const struct echi_task *task, const struct echi_pass_of *of,
                               struct echi_buffer *grads, double *loss, int *correct, struct ech_error *err);
ech_status echi_exec_head_params(struct echi_stack *stack, struct echi_buffer *grads, struct ech_error *err);
/* The update that APPLY, HEAD_APPLY or HEAD asks for, by these gradients. */
ech_status echi_exec_apply(struct echi_exec *x, const struct echi_task *task, const struct echi_buffer *grads, bool of_head,
                           struct ech_error *err);

/* ---- exec_rows.c: rows at the cut as they travel (echi_activations), in slots, and as numbers. Who is on the head's node sends them to
 * itself as others do, so what the head computes on depends on no placement ---- */
bool echi_exec_rounds_rows(const struct echi_exec *x);
void echi_exec_put_rows(struct echi_exec *x, void *to, const echi_real *rows, size_t count);
void echi_exec_get_rows(struct echi_exec *x, echi_real *rows, const void *from, size_t count);
/* What a trunk gives for the task's samples, into its slot; and what the head has answered, to the trunk. */
ech_status echi_exec_rows_out(struct echi_exec *x, struct echi_stack *trunk, const struct echi_task *task, struct ech_error *err);
ech_status echi_exec_rows_back(struct echi_exec *x, struct echi_stack *trunk, const struct echi_task *task, struct ech_error *err);

/* ---- exec_given.c ---- */
/* Where gradients are given. ADD of a worker in a ring: the sum of the part takes them in. The rows of a task, as echi_exec_add_rows. */
ech_status echi_exec_add_to_ring(struct echi_exec *x, const struct echi_task *task, struct ech_error *err);
ech_status echi_exec_add_rows_given(struct echi_exec *x, const struct echi_task *task, struct echi_slot to, bool sets,
                                    struct ech_error *err);

/* STEP of a session where its head is not separated: the head's part of it, on rows that were given. */
ech_status echi_exec_given_step(struct echi_exec *x, const struct echi_task *task, struct echi_result *result, struct ech_error *err);

/* ---- exec_slots.c ---- */
/* Slots [first, first + count) of a kind; those that are there stay. */
ech_status echi_exec_slots(struct echi_exec *x, enum echi_slot_kind kind, int first, int count, size_t bytes, struct ech_error *err);
/* Scratch of so many bytes, counted like them. */
ech_status echi_exec_scratch(struct echi_exec *x, size_t bytes, struct echi_buffer **out, struct ech_error *err);
/* Where an owner takes this worker's pushes: nowhere, if they are lent. */
ech_status echi_exec_pushes_of(struct echi_exec *x, int rank, size_t bytes, struct ech_error *err);
/* Layers [first, end) of the model, for up to n samples. */
ech_status echi_exec_stack(struct echi_exec *x, int first, int end, uint32_t n, struct echi_stack **out, struct ech_error *err);
/* Evaluations and measurements must not be what a machine lacks memory for: of large nets they take fewer samples at once. How many,
 * at most `most`, where a stack for ECHI_SPARE_BLOCK samples has `block_bytes`; never fewer than those. */
#define ECHI_SPARE_BLOCK 16u
uint32_t echi_exec_spare_rows(size_t block_bytes, uint32_t most);
ech_status echi_samples_create(struct echi_samples *out, const struct echi_job *job, uint32_t n, struct ech_error *err);
void echi_samples_destroy(struct echi_samples *samples);

/* ---- exec_codec.c: slots beside those of exec_slots.c, and tasks ---- */
bool echi_exec_coded(const struct echi_exec *x);
ech_status echi_codec_setup_worker(struct echi_exec *x, struct ech_error *err);
ech_status echi_codec_setup_places(struct echi_exec *x, int places, struct ech_error *err);   /* for weights as they come */
ech_status echi_codec_setup_owner(struct echi_exec *x, int group, struct ech_error *err);
ech_status echi_codec_setup_member(struct echi_exec *x, int rank, struct ech_error *err);   /* for each worker of the owner's group */
void echi_codec_destroy(struct echi_exec *x);
/* The layers of a push that has come, as numbers. */
ech_status echi_codec_read_push(struct echi_exec *x, struct echi_slot from, struct echi_buffer *to, enum echi_decode how,
                                struct ech_error *err);
ech_status echi_codec_encode(struct echi_exec *x, const struct echi_task *task, struct ech_error *err);
ech_status echi_codec_decode(struct echi_exec *x, const struct echi_task *task, struct ech_error *err);

/* ---- ahead.c: samples of leases of up to `most`, read before they are asked for ---- */
struct echi_ahead;
/* spare: there is a processor besides those that compute. Starts a thread. */
ech_status echi_ahead_create(const struct echi_job *job, uint32_t most, bool spare, struct echi_ahead **out, struct ech_error *err);
void echi_ahead_destroy(struct echi_ahead *ahead);
bool echi_ahead_rests(struct echi_ahead *ahead, int64_t patience);   /* as echi_exec_rests */
/* A step with these samples will come, if all goes well. Any thread; NULL is harmless. Does not wait. */
void echi_ahead_expect(struct echi_ahead *ahead, const struct echi_lease *lease);
/* They are needed now: *samples, which have the room that echi_samples_create(most) gives, become them, read ahead or here.
 * The lane's thread. */
ech_status echi_ahead_take(struct echi_ahead *ahead, const struct echi_lease *lease, struct echi_samples *samples, struct ech_error *err);

/* ---- exec_blocks.c ---- */
ech_status echi_blocks_setup_worker(struct echi_exec *x, uint32_t n, struct ech_error *err);
ech_status echi_blocks_run(struct echi_exec *x, const struct echi_task *task, struct echi_result *result, struct ech_error *err);
void echi_blocks_destroy(struct echi_exec *x);
#endif
