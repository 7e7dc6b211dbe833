/* SPDX-License-Identifier: Apache-2.0
 * Layer-wise times that other systems have published, as the planner's layers: machines that nobody here has can be planned.
 *
 * Three formats, recognised by their contents:
 *   table   "Id Name Forward Backward Comm. Size", us and bytes (Shi, Wang, Chu, Li: A DAG Model of Synchronous Stochastic Gradient Descent
 *           in Distributed Deep Learning, ICPADS 2018). Row 0 is the layer that reads data. table.c
 *   log     "... [id, elements, backward us, all-reduce us(, merged us)]", lines of glog (B-Caffe, the same group). caffe.c
 *   graph   "node1 -- Conv2d(...) -- forward_compute_time=..., ...", ms and bytes (PipeDream, SOSP 2019). graph.c
 * README.md lists what each format lacks, and what is assumed instead. */
#ifndef ECHI_IMPORT_H
#define ECHI_IMPORT_H
#include "echelon_dev.h"
#include "echi_profile.h"

#define ECHI_IMPORT_ROWS_MAX 4096              /* layers and nodes of a file, with and without parameters */
#define ECHI_IMPORT_BYTES_MAX 4e9              /* of all gradients: a plan counts in 32 bits */
#define ECHI_IMPORT_SECONDS_MAX 3600.0         /* of one step */
#define ECHI_IMPORT_BATCH_MAX 65536

enum echi_import_format { ECHI_IMPORT_TABLE, ECHI_IMPORT_LOG, ECHI_IMPORT_GRAPH };

/* A layer with parameters and those behind it up to the next, as a unit (echi_times.h). Seconds of a step of one worker; bytes of its
 * gradients, > 0; comm 0: not in the file. */
struct echi_import_layer { char name[32]; double forward, backward, comm, bytes; };

struct echi_import {
    enum echi_import_format format;
    int count, merged;                    /* layers, the input's first; of so many in the file, neighbours together: 0: none were */
    int cut;                              /* the first fully connected layer, where only such follow; `count`: not known */
    double row;                           /* bytes of a step's activations in front of it */
    uint32_t batch;                       /* samples of a step; 0: not in the file */
    bool halved;                          /* the file has no forward times: half of the backward times are in their place */
    double reading;                       /* seconds to read a step's samples; 0: not in the file */
    struct echi_import_layer layer[ECHI_UNITS_MAX];
};

/* *out is written only on success. ECH_E_FORMAT: the sentence names file and line. ECH_E_IO, ECH_E_MEMORY. */
ech_status echi_import_load(const char *path, struct echi_import *out, struct ech_error *err);

/* ---- links: alpha_beta.c ---- */

/* t(M) = alpha + beta M, fitted by least squares; of two pieces where that leaves less than half of the squared error of one. A piece
 * holds from so many bytes on; the first from 0. */
struct echi_alpha_beta { double from, alpha, beta; };
struct echi_alpha_betas { int nodes, pieces; struct echi_alpha_beta piece[2]; };   /* nodes that all-reduced; 0: not known */
struct echi_alpha_beta_point { double bytes, seconds; };

/* Points are sorted by size. False when there are less than two sizes, or times do not grow with them. */
bool echi_alpha_beta_fit(struct echi_alpha_beta_point *point, int count, struct echi_alpha_betas *out);
/* A log of the OSU micro-benchmarks: "bytes us" a line, or "nodes,bytes us". Errors as of echi_import_load. */
ech_status echi_alpha_beta_load(const char *path, struct echi_alpha_betas *out, struct ech_error *err);
/* By the all-reduce times of the trace itself. False: it has none. */
bool echi_import_alpha_beta(const struct echi_import *import, struct echi_alpha_betas *out);
/* The link of each of `nodes` whose all-reduce round a ring takes alpha + beta M: 2 (n - 1) messages one after the other, and
 * 2 (n - 1) / n M bytes on each link. Of alpha half is at either end. */
struct echi_alpha_beta_link { double rate, delay; };
struct echi_alpha_beta_link echi_alpha_beta_ring(struct echi_alpha_beta all_reduce, int nodes);
/* The same where alpha + beta M is one message from one node to another. */
struct echi_alpha_beta_link echi_alpha_beta_message(struct echi_alpha_beta message);

/* ---- what is planned: plan.c ---- */

/* Step times of the machine of the trace, whose steps are of import->batch samples (> 0); steps of other sizes take in proportion. Costs of
 * *profile by parameter, byte and message stay. `name` is for people. */
void echi_import_profile(const struct echi_import *import, const char *name, struct echi_profile *profile);
/* A job without model and data: only what a plan and its prediction need. */
void echi_import_job(const struct echi_import *import, struct echi_job *out);
/* Loads options->trace and makes of it what ech_simulate plans on `nodes` nodes: *profile as above, the job, and in *config a round of one
 * step of each node, where it has no batch. *link: of hosts that are like the trace's machine. What is assumed goes to on_log as a warning.
 * ECH_E_ARGUMENT for options that do not fit, and as echi_import_load. */
ech_status echi_import_open(const struct ech_sim_options *options, const char *name, int nodes, struct ech_config *config,
                            struct echi_profile *profile, struct echi_job *job, struct echi_alpha_beta_link *link, struct ech_error *err);
#endif
