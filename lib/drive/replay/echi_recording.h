/* SPDX-License-Identifier: Apache-2.0
 * Recordings: what a node's roles were told and what they asked for, in a file (README.md, "Recordings", has it byte by
 * byte). recorder.c writes one while a run goes, recording.c reads it, replay.c and recompute.c run it again. */
#ifndef ECHI_RECORDING_H
#define ECHI_RECORDING_H
#include "echi_exec.h"
#include "echi_sha256.h"
#include "echi_timeline.h"
#include "echi_trace.h"

#define ECHI_RECORDING_MAGIC "echevent"   /* 8 bytes, and then the format's number */
#define ECHI_RECORDING_FORMAT 26u
#define ECHI_RECORD_MAX (1u << 18)        /* bytes of a record's body at most */

/* Append only. */
enum echi_record_kind { ECHI_RECORD_ABOUT = 1, ECHI_RECORD_SETUP, ECHI_RECORD_EVENT, ECHI_RECORD_END };

/* Beyond enum echi_cpu_bf16. */
enum { ECHI_RECORDED_BF16_CARD = ECHI_CPU_BF16_AMX + 1, ECHI_RECORDED_TF32 };
/* The first record: whose recording this is, and all that must be the same where it is replayed. */
struct echi_about {
    char version[16], model[32], model_hash[ECHI_JOB_WORD], data[96], data_hash[ECHI_JOB_WORD];
    char device[64];          /* as given to --device */
    char device_name[64];     /* the processor; a word for people: another one with the same instruction set computes the same */
    char isa[16];
    char init[1024];          /* --init of rank 0; "" when the weights come from the seed */
    uint32_t threads;
    uint64_t seed;
    uint16_t rank, world;
    uint8_t real_bytes;       /* of a parameter: 4, or 8 in an archive built for double */
    bool deterministic;
    uint8_t winograd;         /* as given: 0, 2 or 4 */
    uint8_t rounded;          /* --precision bf16: by what, enum echi_cpu_bf16, or ECHI_RECORDED_BF16_CARD; tf32; 0: fp32 */
    bool augment;             /* training samples are cropped and flipped */
    bool shuffle, session;    /* session: the user's own model, whose arithmetic nobody can repeat */
    uint32_t train_samples, test_samples;
    /* rank 0 */
    struct echi_plan_request request;
    struct echi_goal goal;
    bool plan_given; struct echi_plan plan;
    uint8_t initial[32];      /* SHA-256 of the initial weights */
};

/* A plan was taken: the roles of this node stand from here on. */
struct echi_recorded_setup { struct echi_setup setup; char kernels[2048]; };

/* The last record. A file without it belongs to a node that was killed, or to a disk that was full. */
struct echi_recorded_end {
    uint32_t status;
    uint64_t events;
    bool has_weights; struct echi_slot whole; uint8_t weights[32];   /* rank 0: the slot of the trained weights, and their SHA-256 */
};

/* ------------------------------------------------------------- recorder.c */

/* I/O thread only. What does not fit into the buffer is written at once; nothing allocates after open. */
struct echi_recorder;
/* Makes DIR if it is not there (its parent must be) and DIR/rank<N>.events, as echi_file_create does: an older one is refused. */
ech_status echi_recorder_open(const char *dir, const struct echi_about *about, struct echi_recorder **out, struct ech_error *err);
/* These do nothing once a write has failed. */
void echi_recorder_setup(struct echi_recorder *r, const struct echi_setup *setup, const char *kernels);
void echi_recorder_event(struct echi_recorder *r, enum echi_role role, const struct echi_event *event, const struct echi_actions *actions,
                         const struct echi_coordinator *coordinator);
void echi_recorder_end(struct echi_recorder *r, const struct echi_recorded_end *end);
/* The sentence of the first failure; NULL when there is none. */
const char *echi_recorder_trouble(const struct echi_recorder *r);
void echi_recorder_close(struct echi_recorder *r);   /* takes a recording without an event away; NULL is harmless */

/* SHA-256 of weights, by which a replay is compared with its run. */
void echi_weights_hash(const echi_real *weights, size_t count, uint8_t out[32]);

/* ------------------------------------------------------------ recording.c */

/* Bytes and their check: each record's goes on from that of the one before, so that no record can be changed, left out or
 * moved unseen. Begin with ECHI_CHECK_BEGIN. */
#define ECHI_CHECK_BEGIN UINT64_C(0xcbf29ce484222325)
uint64_t echi_check(uint64_t check, const uint8_t *bytes, size_t len);

/* Encoders: 0 when it does not fit. Decoders: false when it is none; they are given bytes of strangers. */
size_t echi_about_encode(const struct echi_about *about, uint8_t *out, size_t cap);
bool echi_about_decode(const uint8_t *bytes, size_t len, struct echi_about *out);
size_t echi_setup_encode(const struct echi_setup *setup, const char *kernels, uint8_t *out, size_t cap);
bool echi_setup_decode(const uint8_t *bytes, size_t len, struct echi_recorded_setup *out);
size_t echi_end_encode(const struct echi_recorded_end *end, uint8_t *out, size_t cap);
bool echi_end_decode(const uint8_t *bytes, size_t len, struct echi_recorded_end *out);

/* Puts a record around a body: writes 5 bytes before `body` and 8 after it; returns the new check. */
#define ECHI_RECORD_HEAD 5u
#define ECHI_RECORD_TAIL 8u
uint64_t echi_record_seal(uint64_t check, enum echi_record_kind kind, uint8_t *body, size_t len);

/* A recording in memory and a place in it. */
struct echi_recording {
    const char *name;             /* of the file, for sentences */
    const uint8_t *bytes; size_t len, at;
    uint64_t check;
    uint64_t events;              /* read so far */
    int64_t now;                  /* of the last of them: a node's clock does not go back */
    struct echi_about about;
    bool ended; struct echi_recorded_end end;
};
/* Reads the head. `bytes` and `name` must stay. */
ech_status echi_recording_open(const uint8_t *bytes, size_t len, const char *name, struct echi_recording *out, struct ech_error *err);
void echi_recording_rewind(struct echi_recording *r);
/* The next record behind the head: its kind and body. *out_kind 0: no more; then `ended` says whether the last was an END.
 * ECH_E_FORMAT: the file is damaged at a place that the sentence names. */
ech_status echi_recording_next(struct echi_recording *r, int *out_kind, const uint8_t **out_body, size_t *out_len, struct ech_error *err);
/* The same, decoded. */
struct echi_record { int kind; struct echi_recorded_setup setup; struct echi_traced event; };
ech_status echi_recording_read(struct echi_recording *r, struct echi_record *out, struct ech_error *err);

/* --------------------------------------------------------------- replay.c */

/* Gives a node's events to fresh roles and compares what they ask for. Also checks that every event answers an action: no
 * task is done, slot sent or payload taken that no role asked for by name. *out_events, out_actions: compared so far, also
 * after a failure. ECH_E_MISMATCH with a sentence that names rank, event, role and both sides of the first difference. */
ech_status echi_replay_roles(struct echi_recording *r, uint64_t *out_events, uint64_t *out_actions, struct ech_error *err);

/* ----------------------------------------------------------------- walk.c */

/* A message that was sent to another node. */
struct echi_passage {
    struct echi_passage *next; uint64_t hash; const uint8_t *meta; size_t meta_len;   /* walk.c's own */
    uint16_t from, to;
    uint8_t kind;
    int64_t sent, came;           /* ns: when a role asked for it, by its sender's clock; when it was there, by its receiver's */
    void *user;                   /* NULL; the walker's to set in `send` */
};
/* What a walk reports; each may be NULL. What is passed stays until the call returns, a passage until it has arrived or the walk ends.
 * Another status than ECH_OK ends the walk. */
struct echi_walker {
    void *user;
    ech_status (*record)(void *user, int rank, const struct echi_record *record, struct ech_error *err);
    ech_status (*send)(void *user, struct echi_passage *f, const struct echi_action *a, struct ech_error *err);   /* a NULL: a PLAN */
    ech_status (*arrive)(void *user, struct echi_passage *f, struct ech_error *err);   /* before the record of its event */
};
/* Goes through the recordings of a run, one a rank, from their beginning: each in its order, a message after its send. A message whose
 * send is in no recording has no passage. Memory goes with the messages that are on their way at a time. ECH_E_FORMAT: one is damaged. */
ech_status echi_recordings_walk(struct echi_recording *recording, int world, const struct echi_walker *to, struct ech_error *err);

/* --------------------------------------------------------------- clocks.c */

/* A node's clock against that of rank 0. */
struct echi_clock {
    int rank, through;            /* by messages with that rank; -1: it is rank 0's, or there were none */
    bool messages;                /* there were some */
    bool bounded;                 /* they went both ways, on all of the way to rank 0: the errors below hold */
    int64_t first, last;          /* ns: its recording's first and last event by itself */
    int64_t zero;                 /* the first by rank 0's */
    double rate;                  /* rank 0's goes 1 + rate times as fast */
    double error_first, error_last;   /* ns: half of what is possible at its first and last event */
    double misses;                /* ns by which the best line misses a message; 0: a line fits all, as it does for clocks that go evenly */
};
struct echi_clocks;
struct echi_clocks *echi_clocks_create(int world);   /* NULL: no memory */
void echi_clocks_destroy(struct echi_clocks *c);     /* NULL is harmless */
/* Sent and there at these ns of either clock, 0 to 2^60. False: no memory. Takes that of the messages that bound the most. */
bool echi_clocks_message(struct echi_clocks *c, int from, int to, int64_t sent, int64_t came);
/* clock[world]: `first` and `last` in, the rest out. */
void echi_clocks_estimate(const struct echi_clocks *c, struct echi_clock *clock);
/* The same of recordings, of which it walks through all. */
ech_status echi_recordings_clocks(struct echi_recording *recording, int world, struct echi_clock *out, struct ech_error *err);
int64_t echi_clock_on_zero(const struct echi_clock *c, int64_t t);   /* its time t by rank 0's clock */
double echi_clock_error(const struct echi_clock *c);   /* ns that this may be off, from its first event to its last; -1: not bounded */
double echi_clock_drift(const struct echi_clock *c);   /* it goes 1 + drift times as fast as rank 0's */

/* --------------------------------------------------------------- chrome.c */

/* All nodes of a run on rank 0's clock, as Trace Event JSON (README.md, "Traces"), to `write`, piece by piece. */
struct echi_sink { ech_status (*write)(void *user, const void *bytes, size_t len, struct ech_error *err); void *user; };
ech_status echi_recordings_trace(struct echi_recording *recording, int world, const struct echi_clock *clock, const struct echi_sink *to,
                                 struct ech_error *err);

/* ------------------------------------------------------------ step_line.c */

/* A step as it was recorded: number `step` of the `steps` of `rank`, 1 the first. */
struct echi_recorded_step { int rank; uint64_t step, steps; };
/* Into `line`, cleared for so many hosts, what all nodes of a run did up to the end of a step, on rank 0's clock (README.md, "Time lines"):
 * of the rank whose steps take the longest, the step that takes as long as half of its steps do at least. Its last round is from the end of
 * the step before to its end. `plan` and `times`: what echi_recording_planned found. ECH_E_UNSUPPORTED: no rank has recorded two steps. */
ech_status echi_recordings_line(struct echi_recording *recording, int world, const struct echi_clock *clock, const struct echi_plan *plan,
                                const struct echi_times *times, struct echi_timeline *line, struct echi_recorded_step *out,
                                struct ech_error *err);

/* ---------------------------------------------------------------- spent.c */

/* What a compute thread is asked for, and has not done yet. Begins with zeros. */
struct echi_busy { uint32_t of[ECHI_TASKS], all; int64_t last; };
/* From one of a node's events to another, which ends it: a kind of task was computed, where several are asked for the most urgent; or
 * there was none, until this event brought one. */
enum echi_stretch_of { ECHI_STRETCH_NONE, ECHI_STRETCH_TASK, ECHI_STRETCH_WAIT };
struct echi_stretch { uint8_t of, task; bool done; int64_t begin, end; };   /* done: the task of the event is */
struct echi_stretch echi_busy_take(struct echi_busy *b, const struct echi_traced *t);
/* Samples of the step that ends with this task; 0: none does. A step that is several tasks ends with the last. */
uint32_t echi_task_trained(const struct echi_task *task);

/* Where a node's time went, from its first task to its last: by kind of task, where several are asked for that of the most urgent; and
 * while it was asked for none, by the message that ended that. */
struct echi_took { double seconds; uint64_t count; };
struct echi_spent {
    int world;
    uint64_t samples;                           /* of steps that were computed to their end */
    struct echi_took task[ECHI_TASKS], other;   /* other: no message ended the wait */
    struct echi_took *waited;                   /* [world * ECHI_KINDS], by sender and kind, the caller's */
};
/* Of a recording from where it is to its end; `out` is zeroed but for world and waited, which is zeroed. `record`: room. */
ech_status echi_recording_spent(struct echi_recording *r, struct echi_record *record, struct echi_spent *out, struct ech_error *err);
/* What rank 0 knew when training began, of a recording from where it is on: the plan, and what nodes had measured; times[r].count 0: not
 * known. False where the recording has no plan. */
bool echi_recording_planned(struct echi_recording *r, struct echi_record *record, struct echi_plan *out_plan,
                            struct echi_times times[ECHI_WORLD_MAX]);

/* ---------------------------------------------------------- layer_table.c */

/* Of a step of one rank, by layer with parameters: means, in seconds. What layers are in is layer_table.c's to say. */
struct echi_layer_row {
    double seconds[ECHI_PASSES];
    double exchange;              /* from its gradient being sent until its weights were back; 0: never, or the run had one node */
    uint64_t bytes;               /* of its gradient */
};
struct echi_layer_table {
    int count, cut;               /* count 0: the recording has no plan; cut: the first that is the head's, or count */
    uint64_t steps;
    double undivided;             /* of a step, in no row: nobody had measured which layers take it */
    struct echi_layer_row row[ECHI_UNITS_MAX];
};
/* Of a recording from where it is to its end. `times`: what this rank had measured, or NULL; `layers`: the model's, of rank 0's request. */
ech_status echi_recording_layers(struct echi_recording *r, struct echi_record *record, const struct echi_layers *layers,
                                 const struct echi_times *times, struct echi_layer_table *out, struct ech_error *err);
/* As text, in the thread's locale; returns the length that it needs without the NUL. */
size_t echi_layer_table_text(const struct echi_layer_table *t, const struct echi_about *about, char *buf, size_t cap);

/* ------------------------------------------------------------ recompute.c */

/* Repeats the arithmetic of a whole run, one recording a rank, whose roles were replayed before. `params`: the initial
 * weights in, the trained ones out. *out_tasks, *out_payloads: computed and copied. ECH_E_MISMATCH: another arithmetic. */
ech_status echi_recompute(struct echi_recording *recording, int world, const struct echi_job *job, echi_real *params, uint64_t *out_tasks,
                          uint64_t *out_payloads, struct ech_error *err);

/* ----------------------------------------------------------- trace_text.c */

/* One line of words, NUL-terminated. */
void echi_event_text(const struct echi_traced *t, char *buf, size_t cap);
void echi_action_text(const struct echi_traced_action *a, char *buf, size_t cap);
const char *echi_role_name(int role);
const char *echi_task_name(int kind);
#endif
