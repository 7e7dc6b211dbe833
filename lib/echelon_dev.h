/* SPDX-License-Identifier: Apache-2.0
 * What the `echelon` command can do beside training and users of the library need not: replaying recorded runs,
 * simulated clusters, a check of a machine before a run. In the archive, but not installed, and free to change. */
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
 * those here (the sentence has both sides), or an action or a number from the recorded one. ECH_E_FORMAT: a file is damaged, or
 * rank 0's has no end; others' may break off where their nodes were killed. ECH_E_UNSUPPORTED: the arithmetic is not
 * Echelon's. ECH_E_IO: a file is not there. */
ech_status ech_replay(const struct ech_replay_options *options, struct ech_replay_report *out_report, struct ech_error *err);
/* The recording of one rank (-1: of all, one after the other) as lines for people. */
ech_status ech_replay_show(const char *dir, int rank, void (*line)(void *user, const char *text), void *user, struct ech_error *err);

/* Where a node's time went, by its recording: from its first task to its last. */
struct ech_time_part {
    const char *what;             /* a kind of task; or of the message that a wait was for, "" when it was for none */
    int rank;                     /* who sent it; of a task -1 */
    double seconds;
    uint64_t count;               /* tasks; waits */
};
struct ech_node_times {
    int rank, world;
    int ended;                    /* 0: the recording breaks off, where its node was killed or its disk was full */
    double computed, waited;      /* seconds, which are all there are */
    uint64_t samples;             /* that it trained; with --sync-norm 0 */
    int n_tasks, n_waits;
    const struct ech_time_part *task, *wait;   /* the longest first; those that took no time are left out */
};
/* Of one rank, or of all (-1), one after the other. What is passed stays until `node` returns. Errors as of ech_replay_show. */
ech_status ech_recording_times(const char *dir, int rank, void (*node)(void *user, const struct ech_node_times *times), void *user,
                               struct ech_error *err);

/* What the planner says of the same run, by the step times and links that were measured at its start. */
struct ech_run_prediction {
    double images_per_second;     /* 0: nodes had measured nothing, or left before they had */
    int world;
    float computes[ECH_WORLD_MAX];   /* the part of its time in which a node has something to compute, 0..1 */
    int n_what_if; struct ech_what_if what_if[ECH_WHAT_IF_MAX];   /* as in a report */
};
/* From rank 0's recording. Errors as of ech_replay_show. */
ech_status ech_recording_prediction(const char *dir, struct ech_run_prediction *out, struct ech_error *err);

/* A node's clock against that of rank 0, by the times of the messages between them (or through another rank's). */
struct ech_clock {
    int rank;
    int through;                  /* the rank whose messages say so; -1: it is rank 0's, or no message does: then both begin at once */
    double offset;                /* seconds by which it is ahead when its recording begins */
    double drift;                 /* by so much faster than rank 0's: 40e-6 is 40 ppm */
    double error;                 /* seconds by which a time of it may be off on rank 0's clock; -1: messages went one way only, or none */
    double misses;                /* seconds by which even the best line misses a message: the clock was set, or slewed; 0: none */
};
/* Writes the recordings of all ranks as one trace on rank 0's clock to the file at `path` (replaced whole or not at all), in the Trace
 * Event format that chrome://tracing and ui.perfetto.dev open. `clock`, when not NULL, gets each rank's once the file is there. Errors as
 * of ech_replay_show, and ECH_E_IO, ECH_E_ARGUMENT for `path`. */
ech_status ech_recording_trace(const char *dir, const char *path, void (*clock)(void *user, const struct ech_clock *clock), void *user,
                               struct ech_error *err);
/* Writes what a step of a rank (-1: of the first that trains) takes by layer to the text file at `path`, in the columns of the data set
 * of Shi, Wang, Chu, Li, "A DAG Model of Synchronous Stochastic Gradient Descent in Distributed Deep Learning" (ICPADS 2018): Id, Name,
 * Forward, Backward, Comm. (all microseconds), Size (bytes of gradients); lines that begin with '#' state what a column was made from.
 * Errors as above; ECH_E_UNSUPPORTED: that rank has recorded no step. out_rank, when not NULL: whose they are. */
ech_status ech_recording_layers(const char *dir, int rank, const char *path, int *out_rank, struct ech_error *err);

/* A step as it was recorded, of all nodes on rank 0's clock, into *out (struct ech_timeline below): of the node whose steps take the
 * longest the one that takes as long as the median of them, from the end of the step before to its end. What a recording lacks is taken
 * for a queue: a message is on its sender's way out from the end of the one that left before until it had left, then on its receiver's
 * way in. *out_report is filled with the run's model, data, policy and world, and with the step's critical path. Errors as of
 * ech_recording_trace; ECH_E_UNSUPPORTED: no node has recorded two steps. */
struct ech_timeline;
ech_status ech_recording_timeline(const char *dir, struct ech_timeline *out, struct ech_report *out_report, struct ech_error *err);

/* ---- reports ---- */

/* The report in a file that ech_train, ech_simulate or ech_report_json has written, of this version or of another: keys that it does not
 * know are left out, and what the file does not tell is as it is in the report of a run that knew nothing. Control characters in texts
 * become '?', so that they can be shown. *out and all texts that it points to are the caller's until ech_report_destroy.
 * ECH_E_FORMAT: the file is no report, is damaged, or has values that no report has; the sentence names line, byte and key. ECH_E_IO. */
ech_status ech_report_read(const char *path, struct ech_report **out, struct ech_error *err);
void ech_report_destroy(struct ech_report *report);   /* NULL is harmless */

/* ---- simulated clusters ---- */

struct ech_sim_counts {
    uint64_t events;              /* things that were due: the simulator's work goes with their number */
    uint64_t role_events;         /* of them, and beside them, what the nodes' roles were told */
};
/* What a node's compute thread, the way out or in of its link, or its I/O thread does, which takes messages in. */
struct ech_interval {
    int rank, peer;               /* peer: at the other end of a message; else rank */
    const char *on;               /* "compute", "out", "in", "messages" */
    const char *what;             /* compute: as in struct ech_path_part; else "gradients", "weights", "activations", "states", "control" */
    int layer;                    /* of a message the first layer that it has parameters of; -1: all, or none */
    double from, to;              /* seconds since the round began, and within it */
    double path_from, path_to;    /* its stretch on the round's critical path; 0, 0: none */
};
/* A round of the plan, as predicted: the last one that was played. Where nobody waits for rounds it is from a push of the slowest node to
 * its next. None after a loss, of more than 256 nodes. */
#define ECH_SWEEP 9
#define ECH_NODES_SWEEP 12
struct ech_timeline {
    struct ech_interval *interval; int capacity;   /* the caller's */
    int count, left_out;          /* left_out: for want of capacity */
    double seconds;               /* of the round; 0: there is none */
    int rank;                     /* the slowest node; -1: all wait for rounds */
    uint64_t step, steps;         /* it was recorded: number `step`, from 1 on, of so many; steps 0: it is predicted */
    /* Images a second with all links so many times as fast, the plan unchanged; n_sweep 0: no link is known. */
    int n_sweep; double faster[ECH_SWEEP], images_per_second[ECH_SWEEP];
    /* Images a second of only so many nodes, those with the shortest steps, up to all or the largest number here that is below; planned
     * anew for each, under the plan's policy and with its round, where none is left out. Numbers without such a plan do not occur. */
    int n_nodes, nodes[ECH_NODES_SWEEP]; double images_per_second_of[ECH_NODES_SWEEP];
};
struct ech_sim_options {
    const char *hosts;            /* host file; NULL: `workers` hosts of the named spread */
    int workers;
    const char *spread;           /* even, mild, strong, incast, links; NULL: even */
    int costs_only;               /* 1: nothing is computed, it only costs: no weights, losses of 0, and nobody evaluates. `data` may be
                                     NULL: then there are 65,536 samples of the model's shape */
    const char *profile;          /* what arithmetic costs; NULL: the built-in one */
    const char *trace;            /* layer-wise times that another system has measured (lib/import/README.md). They are planned, with
                                     costs_only and config's steps 0, in the place of a model, which is NULL as `data` is. hosts' speeds are
                                     relative to its machine; `workers` are as fast. Without a profile only steps and bytes take time.
                                     NULL: there is none */
    const char *alpha_beta;       /* with `trace` and `workers`: "50e-6,0.8e-9", seconds of a message and of a byte between two of them, or
                                     a log of OSU's all-reduce, whose fit counts as a ring's. NULL: as the trace's own all-reduce times */
    int trace_batch;              /* samples of a step in the trace, up to 65,536; 0: as its file specifies, else 64 */
    struct ech_sim_counts *counts;   /* filled if not NULL */
    struct ech_timeline *timeline;   /* likewise, of rank 0's plan */
};
/* Runs what ech_train would run on all nodes of a cluster, in this thread and in virtual time. Nothing but the arguments decides:
 * the same seed gives the same bytes in config's save and report files, on machines that compute alike. config's rank, world,
 * coordinator, bind, join_timeout, key, insecure, slow, device and threads mean nothing here; checkpoint and record are refused
 * (ECH_E_UNSUPPORTED). deadline decides, as in a live run, how long a death goes unnoticed; a start waits for the last host to join.
 * Seconds in the report and in on_progress are virtual, on_progress comes at each evaluation and about once a real second, resident_peak
 * is 0. out_report may be NULL; it is filled as far as the run came, also on failure. Statuses as of ech_train; ECH_E_TIMEOUT: the cluster
 * cannot make progress, and the sentence says who waits for whom (of all nodes: to on_log). */
ech_status ech_simulate(const ech_model *model, const ech_data *data, const struct ech_config *config,
                        const struct ech_sim_options *options, struct ech_report *out_report, struct ech_error *err);

/* ---- before a run: what would go wrong ---- */

#define ECH_DOCTOR_DEVICES 16
#define ECH_DOCTOR_INTERFACES 32
#define ECH_DOCTOR_STACKS 2
#define ECH_DOCTOR_WORLD 64
/* One thing that was looked at: ECH_OK and "", or what is wrong and what to do. */
struct ech_doctor_check { ech_status status; char text[400]; };
struct ech_doctor_device {
    char spec[32], name[64];      /* "cpu:0", as --device takes it */
    char driver[64];              /* its driver's version, in its own words; "": it has none */
    char kernels[200];            /* what its kernels were made of: "nvcc's image, of compute_90 for sm_90"; "": nothing to tell */
    int units;                    /* cores, multiprocessors */
    size_t memory;                /* bytes; 0: the system's */
    size_t memory_free;           /* of it, before the device was tried; 0: its runtime does not report it */
    int used;                     /* 1: the one that config's device names; with `auto`, that it takes */
    int answers;                  /* small problems that it solved as the reference does (ops/echi_known_answer.h) */
    double to_device, from_device;/* bytes a second of a large copy; 0: not measured, as below */
    double products;              /* multiply-adds a second of a product of matrices, forward */
    struct ech_doctor_check check;
};
struct ech_doctor_stack {         /* GPU software found at run time */
    const char *library;          /* "libcuda.so.1" */
    int found;
    char version[96];             /* as it tells of itself; "" */
};
struct ech_doctor_interface {
    char name[16], address[64];
    int loopback;
    char used[120];               /* why this is the one that a run would use; "": it is not */
};
/* Found by ech_doctor. What was not looked at has `done` 0. */
struct ech_doctor {
    char version[16];
    int rank, world, threads;
    int n_devices, n_stacks, n_interfaces;
    struct ech_doctor_device device[ECH_DOCTOR_DEVICES];
    struct ech_doctor_stack stack[ECH_DOCTOR_STACKS];
    struct ech_doctor_interface interface[ECH_DOCTOR_INTERFACES];
    struct ech_doctor_check network;
    struct {                      /* rank 0: can it listen at config's coordinator? */
        int done;
        char address[64];         /* what the others would dial */
        struct ech_doctor_check check;
    } port;
    struct {                      /* other ranks: to where ech_doctor_listen answers */
        int done;
        double round_trip;        /* seconds, the shortest of several */
        double out, in;           /* bytes a second from here, and to here */
        double out_highest, in_highest;   /* the most that was seen of each while it was measured */
        double offset, within;    /* seconds by which its clock is ahead of this one's, give or take `within` */
        struct ech_doctor_check check;
    } link;
    struct {                      /* one step measured, and all that a run would set up before the first, made and taken away again */
        char model[32];
        int batch, step;          /* B; this rank's samples a step where all nodes are as fast */
        size_t weights, gradients, moments, rows, activations, total;   /* bytes */
        size_t available;         /* before; SIZE_MAX: the system does not say */
        double step_seconds;      /* of 64 samples; 0: not measured */
        struct ech_doctor_check check;
    } memory;
    ech_status status;            /* of the first check that would make training fail; a device that is not used does not count */
    char trouble[400];
};
/* Looks at this machine as a node of the run that config describes would find it. data NULL: samples of the model's shape, all of them
 * black. Blocks for a second or two, and for a link at most join_timeout and three times the deadline of config. Takes no part in a
 * run. `out` is some 25 KB. Fails only for arguments that no run would take; what it finds is in *out. */
ech_status ech_doctor(const ech_model *model, const ech_data *data, const struct ech_config *config, struct ech_doctor *out,
                      struct ech_error *err);
/* A node that waits, at config's coordinator (its key and insecure count, too), and serves one caller after the other until *config->stop
 * is not 0: the other end of ech_doctor's link; or a node of a run without steps, with config's device, threads, slow, bind and link, for
 * ech_doctor_plan. Such a run has join_timeout and 30 times the deadline of config at most. on_bound is called once it listens, on_log for
 * each caller. A caller that sends what makes no sense, or nothing for the deadline, is dropped. ECH_E_TIMEOUT: computing stood still, as
 * of ech_train, and this process can measure nothing any more. */
ech_status ech_doctor_listen(const struct ech_config *config, struct ech_error *err);
/* Plans a run on this machine, which is rank 0, and on those where ech_doctor_listen waits: ranks 1, 2, ... at `doctors`, "HOST:PORT" with
 * commas between them. All of them join, as for the run that config describes, with black samples of the model's shape, measure links and
 * steps, and rank 0 plans and predicts: what `ech_train` does with 0 steps. They are given the model and what all nodes must share, and go
 * back to waiting. config's coordinator: where rank 0 waits for them, port 0 for any; "": where this machine is left for the first of
 * them. Blocks: each of them has join_timeout to answer, and so have all to join. ECH_E_PEER_LOST and what else ech_train may return;
 * out_report (NULL: nobody wants it) is filled as far as the run came, and written to config's report and save_plan. */
ech_status ech_doctor_plan(const ech_model *model, const struct ech_config *config, const char *doctors, struct ech_report *out_report,
                           struct ech_error *err);
/* What was found as one JSON object, like ech_model_text. */
size_t ech_doctor_json(const struct ech_doctor *found, char *buf, size_t cap);

/* Links by pair, each measured as a run measures it when its nodes have joined. */
struct ech_doctor_links {
    char version[16];
    int rank, world;
    /* [from][to], for ranks below world; 0: not measured, and from a node to itself. */
    double rate[ECH_DOCTOR_WORLD][ECH_DOCTOR_WORLD];         /* bytes a second that `from` got through to `to` */
    double highest[ECH_DOCTOR_WORLD][ECH_DOCTOR_WORLD];      /* the most that was seen meanwhile */
    double round_trip[ECH_DOCTOR_WORLD][ECH_DOCTOR_WORLD];   /* seconds, the shortest of several that `to` took */
    char slow[240];               /* a sentence about the link that is slow where others are not; "": there is none */
    struct ech_doctor_check check;
};
/* On every node of the run that config describes, at the same time: they join as they would for the run (join_timeout), measure each link
 * between two of them and tell each other; all get the whole table. on_bound, on_log and stop as in a run. Blocks for 0.3 to 2 seconds a
 * node, and fails when for config's deadline nothing goes on. `out` is some 100 KB. Fails only for arguments that no run would take; what
 * is found is in *out. */
ech_status ech_doctor_links(const struct ech_config *config, struct ech_doctor_links *out, struct ech_error *err);
size_t ech_doctor_links_json(const struct ech_doctor_links *found, char *buf, size_t cap);
#endif
