/* SPDX-License-Identifier: Apache-2.0
 * The live driver: what makes the roles' actions true on a node. One I/O thread runs the roles (node.c) over the wire
 * (wire.c); one lane computes (lane.c, exec.c). Data flows node -> lane -> node through two bounded queues. */
#ifndef ECHI_RUN_H
#define ECHI_RUN_H
#include "echelon.h"
#include "echi_data.h"
#include "echi_hal.h"
#include "echi_model.h"
#include "echi_net.h"
#include "echi_ops.h"
#include "echi_os.h"
#include "echi_profile.h"
#include "echi_roles.h"

#include <stdatomic.h>

/* ------------------------------------------------------------ what is run */

/* A model and its data as a run needs them, whether they are Echelon's or a custom trainer's (then no layers, no data). */
struct echi_job {
    const struct ech_model *model;            /* NULL in a session */
    const struct ech_data *data;              /* NULL in a session */
    struct echi_param_layer layer[ECHI_LAYERS_MAX]; int n_layers;   /* with parameters */
    size_t n_params;
    int cut;                                  /* first layer of the head (of the model's layers); 0 when there is none */
    int cut_params;                           /* the same, counted in layers with parameters; n_layers when there is none */
    size_t cut_width;                         /* floats a sample at the cut */
    uint32_t train_samples, test_samples;
    uint64_t seed;
    bool shuffle;
    bool augment;                             /* training samples are cropped and flipped at random */
    bool draws;                               /* the model has a dropout */
    bool norms_behind;                        /* it has a batch-norm behind the cut */
    enum echi_kernels kernels;                /* FIXED under --deterministic */
};
/* What ech_train runs, from model, data and options. ECH_E_SHAPE when model and data do not fit together. */
ech_status echi_job_make(const struct ech_model *model, const struct ech_data *data, const struct ech_config *config, struct echi_job *out,
                         struct ech_error *err);
/* What the roles of `rank` are told of the job under this plan, which is not the one in *out. */
void echi_job_setup(const struct echi_job *job, const struct echi_plan *plan, int rank, struct echi_setup *out);
/* Bytes of what batch-norms sum: of the largest. */
size_t echi_job_norm_bytes(const struct echi_job *job);
/* Floats [*at, *at + *count) that an owner (head false) or the head (true) keeps under this plan. */
void echi_job_range(const struct echi_job *job, const struct echi_plan *plan, bool head, size_t *at, size_t *count);
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
/* Bytes [*at, *at + *len) of a slot that a message carries. One place decides it for sender, receiver and replay. `head` says
 * whose layers a PARAMS is about. */
void echi_job_extent(const struct echi_job *job, const struct echi_plan *plan, int kind, const struct echi_msg *m, bool head, size_t *at,
                     size_t *len);
/* The labels that follow the rows of an ACT, two bytes each, the lower first; `at` needs no alignment. */
#define ECHI_LABEL_BYTES 2
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

/* ---------------------------------------------------------------- wire.c */

/* The net, plus what stays on this node: a message to one's own rank is copied from slot to slot under the same rules
 * (kinds, posts, order) and never touches a socket. I/O thread only. */
struct echi_wire;
/* The table of message kinds for this job among so many nodes: nobody accepts more than what a message of the kind can need. */
void echi_wire_kinds(const struct echi_job *job, int world, struct echi_net_kind out[ECHI_KINDS]);
/* What the options of a run say of net: who meets where, for how long, with which key. The file of the key is read here; `end` wipes it. */
ech_status echi_wire_options(const struct ech_config *config, struct echi_net_config *out, struct ech_error *err);
void echi_wire_options_end(struct echi_net_config *net);
ech_status echi_wire_open(const struct echi_net_config *config, struct echi_wire **out, struct ech_error *err);
void echi_wire_close(struct echi_wire *wire, int64_t linger);
const char *echi_wire_address(const struct echi_wire *wire);
ech_status echi_wire_poll(struct echi_wire *wire, int64_t deadline, struct echi_net_event *out, int cap, int *out_count,
                          struct ech_error *err);
void echi_wire_wake(struct echi_wire *wire);   /* any thread */
ech_status echi_wire_post(struct echi_wire *wire, int peer, int kind, void *buffer, size_t cap, uint64_t cookie, struct ech_error *err);
ech_status echi_wire_send(struct echi_wire *wire, int peer, int kind, const void *meta, size_t meta_len, const void *payload,
                          size_t len, uint64_t cookie, struct ech_error *err);
/* As echi_net_drop. From now on a payload sent to this peer comes back as SENT at the next poll. */
void echi_wire_drop(struct echi_wire *wire, int peer);
void echi_wire_bytes_sent(const struct echi_wire *wire, uint64_t out[ECHI_NET_KINDS_MAX + 1]);
uint64_t echi_wire_bytes_from(const struct echi_wire *wire, int peer);   /* not of oneself */
/* As echi_net_waiting; of messages to oneself those that wait for a post. */
int echi_wire_waiting(const struct echi_wire *wire, int peer, int kind, bool *out_for_credit);

/* ----------------------------------------------------------------- lane.c */

/* What comes back from a lane: a gradient of a layer, or a finished task. */
struct echi_done { bool gradient; int layer; struct echi_task task; struct echi_result result; ech_status status; struct ech_error error; };

/* One thread that runs tasks, the most urgent first; it looks for more urgent ones at every unit of a task. */
struct echi_lane;
typedef ech_status (*echi_lane_run)(void *self, const struct echi_task *task, struct echi_result *result, struct ech_error *err);
/* `notify` is called (any thread) after something was put where echi_lane_take finds it. slow >= 1 (see ech_config). */
ech_status echi_lane_create(echi_lane_run run, void *self, void (*notify)(void *), void *notify_self, double slow,
                            struct echi_lane **out, struct ech_error *err);
/* Drops what has not begun, and waits for what runs. False: it made no progress for so long, and is left behind: its thread and all that
 * it may touch must stay, and it goes no further when it comes back. */
bool echi_lane_destroy(struct echi_lane *lane, int64_t patience);
#define ECHI_PATIENCE_SLICES 20   /* that such a wait is cut into */
/* Called by a function that echi_lane_call runs, now and then: it makes progress. Does not return in a thread that is left behind. */
void echi_lane_stay(struct echi_lane *lane);
ech_status echi_lane_submit(struct echi_lane *lane, const struct echi_task *task, struct ech_error *err);
bool echi_lane_take(struct echi_lane *lane, struct echi_done *out);
/* While held no task starts or goes on but EVAL. echi_lane_is_held: true once nothing runs. */
void echi_lane_hold(struct echi_lane *lane, bool hold);
bool echi_lane_is_held(struct echi_lane *lane);
/* Called by the running task between units: runs what is more urgent than `kind`, waits while held, sleeps what a slow
 * node owes. */
void echi_lane_breathe(struct echi_lane *lane, enum echi_task_kind kind);
/* Of these three, and of echi_lane_stay, a lane that is NULL does nothing: a replay runs tasks without one. */
/* Called by the running task: the gradient of a layer, or of a head's rows, is in its place. Those of fewer bytes than
 * ECHI_WORTH_A_WAKE wait for the next, or for the end of their task. */
void echi_lane_gradient(struct echi_lane *lane, const struct echi_task *task, int layer, size_t bytes, const struct echi_result *result);
void echi_lane_rows(struct echi_lane *lane, const struct echi_task *task, const struct echi_result *result);
/* What a lane is at: the task in hand (the most urgent of those begun), since when, and how many wait. */
/* ticks: changes whenever the lane makes progress, which it should while it is busy. */
struct echi_lane_view { bool runs, held, busy; uint64_t ticks; struct echi_task task; int64_t since; int waiting; };
void echi_lane_look(struct echi_lane *lane, struct echi_lane_view *out);
/* Runs a function once on the lane's thread, then notifies (measuring, slots): as soon as the task in hand is at the end of a unit,
 * before any other task, held or not. It is no work of the node that is played slow. Does not wait; one at a time. */
void echi_lane_call(struct echi_lane *lane, void (*call)(void *self), void *self);

/* The debt of a node that plays a slow one. */
struct echi_slowness { double factor; int64_t cpu_mark, debt; };
void echi_slowness_begin(struct echi_slowness *s, double factor);   /* on the thread that computes */
void echi_slowness_pay(struct echi_slowness *s);

/* ----------------------------------------------------------------- exec.c */

/* Slots and the arithmetic on them. Slots are made by echi_exec_setup once the plan is known; after that only a loss allocates. */
struct echi_exec;
/* Kernels on the host keep to `level`; those compiled for another device are kept in the folder `cache` (NULL: nowhere). */
ech_status echi_exec_create(const struct echi_job *job, const char *device, int threads, enum echi_cpu_level level, const char *cache,
                            struct echi_exec **out, struct ech_error *err);
void echi_exec_destroy(struct echi_exec *exec);
/* Reads nothing ahead any more. False: what is being read does not come to its end for so long; then this must not be destroyed. */
bool echi_exec_rests(struct echi_exec *exec, int64_t patience);
void echi_exec_use_lane(struct echi_exec *exec, struct echi_lane *lane);   /* whose breathe and gradient it calls */
struct echi_device *echi_exec_device(struct echi_exec *exec);
ech_status echi_exec_setup(struct echi_exec *exec, const struct echi_setup *setup, struct ech_error *err);
ech_status echi_exec_setup_kept(struct echi_exec *exec, struct ech_error *err);   /* rank 0's, for checkpoints; after setup */
/* A node was lost, or a worker moved, and `plan` says so: makes the places for workers that join this node's group, and those of its
 * own worker for weights of another owner, once each. On the thread that runs tasks; events may go on under the plan before, which is
 * that of the setup. */
ech_status echi_exec_regroup(struct echi_exec *exec, const struct echi_plan *plan, struct ech_error *err);
/* After the setup, where this node's samples are the library's to read: from now on they are read while others are computed, if that pays.
 * spare: there is a processor besides those that compute. */
ech_status echi_exec_read_ahead(struct echi_exec *exec, bool spare, struct ech_error *err);
/* A step with the samples of this lease will come next, if all goes well. Any thread; does not wait. */
void echi_exec_expect(struct echi_exec *exec, const struct echi_lease *lease);
void *echi_exec_slot(struct echi_exec *exec, struct echi_slot slot, size_t *out_bytes);   /* NULL when there is none */
/* Bytes that are held, by what is in them: exec_bytes.c. */
struct echi_exec_bytes {
    size_t weights, gradients, moments;                    /* copies, sums and what is coded among them; an optimiser's memory */
    size_t rows, activations;                              /* between trunk and head; of stacks, with their scratch */
};
void echi_exec_bytes(const struct echi_exec *exec, struct echi_exec_bytes *out);
/* Names of the kernels that were chosen for each unit of each stack, for recordings. NUL-terminated, cut at cap. */
void echi_exec_kernels(const struct echi_exec *exec, char *buf, size_t cap);
/* The same for people: a line for each unit of each stack, why it was chosen, and one for each stack's memory. */
void echi_exec_tell_kernels(const struct echi_exec *exec, void (*tell)(void *self, const char *line), void *self);
/* A line for each layer that the chosen kernels leave to the reference. */
void echi_exec_tell_fallbacks(const struct echi_exec *exec, void (*tell)(void *self, const char *line), void *self);
/* codec top-k: a gradient that lies in its place goes through the residual; *out_bytes of it are to be sent. By the lane, or in a
 * session by the thread that computes the step. */
ech_status echi_exec_push(struct echi_exec *exec, const struct echi_task *task, int layer, size_t *out_bytes, struct ech_error *err);
ech_status echi_exec_run(void *exec, const struct echi_task *task, struct echi_result *result, struct ech_error *err);

/* -------------------------------------------------------------- measure.c */

/* Seconds of a step at several sizes, on the calling thread, which a slow node's factor holds up too: that of `lane`, or NULL. */
ech_status echi_measure(const struct echi_job *job, struct echi_device *device, double slow, struct echi_lane *lane, struct echi_times *out,
                        struct ech_error *err);

/* What other tasks cost this machine, for a profile; `times` as echi_measure gave them. On the same thread, a tenth of a second
 * for LeNet-5. */
ech_status echi_measure_costs(const struct echi_job *job, struct echi_device *device, const struct echi_times *times,
                              struct echi_lane *lane, struct echi_profile *out, struct ech_error *err);

/* ----------------------------------------------------------------- node.c */

/* A session's half of a node: the caller's thread computes the worker's steps. NULL in ech_train. */
struct echi_user_lane {
    void *self;
    void (*measure)(void *self);                          /* asks the caller's thread to measure; see `measured` */
    bool (*measured)(void *self, struct echi_times *out, ech_status *out_status);   /* true once, when it has; wakes the wire */
    void (*submit)(void *self, const struct echi_task *task);
    bool (*take)(void *self, struct echi_done *out);
    void (*final)(void *self, const echi_real *params);      /* the weights that the run ends with, all layers; on every rank */
};
struct echi_node_config {
    const struct ech_config *config;
    const struct echi_job *job;
    const struct echi_user_lane *user;
    const atomic_bool *abandoned;             /* sessions: the caller computes no more steps; NULL in ech_train */
    echi_real *params;                        /* rank 0: initial weights in, trained weights out, where *trained says so */
    bool *trained;                            /* rank 0, in ech_train: set to whether the run ended with weights; else NULL */
    struct ech_error *unrecorded;             /* filled when a recording breaks off, which ends no run; its code was ECH_OK before */
    struct echi_checkpoints *checkpoints;     /* rank 0, with --checkpoint; else NULL */
    bool *stays;                              /* set when a thread of this node is left behind, which may use job, model and data */
    struct echi_profile *profile;             /* rank 0, with --profile-out: filled once measured; else NULL */
    /* Called on the node's thread, may be NULL: the wire stands; later again: the slots stand as well; at last, with NULLs:
     * both are about to go. */
    void (*started)(void *self, struct echi_wire *wire, struct echi_exec *exec); void *started_self;
};
/* Threads of computation. Where nobody said how many, those who meet at an address that only this machine reaches share its processors. */
int echi_node_threads(const struct ech_config *config);
bool echi_node_has_spare(const struct ech_config *config);   /* a processor is left for other work */
/* The device of this node. Nodes on one machine that name a kind of GPU ("cuda") and no number get different ones, as far as there are. */
#define ECHI_NODE_DEVICE 64
void echi_node_device(const struct ech_config *config, char out[ECHI_NODE_DEVICE]);
/* What a node of this run computes with: on config's device, with its programs kept in config's cache. ECH_E_UNSUPPORTED where options ask
 * for what the device cannot do. */
ech_status echi_node_exec(const struct ech_config *config, const struct echi_job *job, struct echi_exec **out, struct ech_error *err);
/* Joins, runs, leaves. Blocks. */
ech_status echi_node_run(const struct echi_node_config *node, struct ech_report *report, struct ech_error *err);

/* The config of a caller whose header may be older or newer, as this version's. ECH_E_ARGUMENT: it sets what this version does not know. */
ech_status echi_config_whole(const struct ech_config *config, struct ech_config *out, struct ech_error *err);
enum echi_cpu_level echi_config_level(const struct ech_config *config);   /* --isa, checked, as a level of this processor */
/* Options made numbers: what the coordinator is to plan and when to stop. */
ech_status echi_wishes_from(const struct ech_config *config, const struct echi_job *job, struct echi_wishes *out, struct ech_error *err);
/* With --plan, *out_plan becomes that plan, checked against this run; else it stays as it is. */
ech_status echi_goal_from(const struct ech_config *config, const struct echi_job *job, const struct echi_wishes *wishes,
                          struct echi_plan *out_plan, struct echi_goal *out, struct ech_error *err);

/* --------------------------------------------- node_report.c, outcome.c */

/* Before a run: what is known of it. After it: what the coordinator knows, which began at `began` and stands at `now`; `plan` is NULL
 * while there is none. */
void echi_report_begin(struct ech_report *report, const struct ech_model *model, const struct ech_data *data,
                       const struct ech_config *config);
void echi_report_run(struct ech_report *report, const struct echi_coordinator *c, const struct echi_plan *plan, const struct echi_job *job,
                     int64_t began, int64_t now);
/* What on_progress is told, `passed` ns of the run's clock after it was told *shown; takes the sums that the coordinator keeps for it. */
void echi_progress_make(struct echi_coordinator *c, const struct echi_job *job, uint32_t round, int64_t passed, int64_t clock, bool looked,
                        uint64_t bytes, struct ech_progress *shown);
/* The coordinator's sentence for an end that is not as asked; nothing when it is. */
void echi_end_sentence(const struct echi_coordinator *c, const struct ech_config *config, struct ech_error *err);
/* The weights that a run begins with, from --init or the seed; *out is from echi_alloc_aligned. */
ech_status echi_first_weights(const struct ech_model *model, const struct ech_config *config, float **out, struct ech_error *err);
/* Writes what --save and --report ask for. */
ech_status echi_outcome_write(const struct ech_model *model, const struct ech_config *config, const float *weights,
                              const struct ech_report *report, struct ech_error *err);

/* ----------------------------------------------------------- choice_log.c */

/* Tells the caller's log why rank 0 took this plan: what was compared, what is predicted, and who holds the others up. */
void echi_choice_log(const struct ech_config *config, const struct echi_coordinator *coordinator);
/* And while the run goes, who moves, by the word `m` on it, and who gets steps of another size, once for each change: *told is how many
 * of those were told. */
void echi_move_log(const struct ech_config *config, const struct echi_coordinator *coordinator, const struct echi_msg *m);
void echi_resize_log(const struct ech_config *config, const struct echi_coordinator *coordinator, uint64_t *told);

/* ------------------------------------------------------------ plan_file.c */

/* A plan as a short text file that people read and edit. Errors name file, line and word. */
ech_status echi_plan_save(const char *path, const struct echi_plan *plan, struct ech_error *err);
ech_status echi_plan_load(const char *path, struct echi_plan *out, struct ech_error *err);
#endif
