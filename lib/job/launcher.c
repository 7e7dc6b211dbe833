/* SPDX-License-Identifier: Apache-2.0
 * What launchers leave in the environment of the processes that they start:
 *     torchrun     RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; also PyTorchJob of Kubeflow
 *     Open MPI     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
 *     PMI          PMI_RANK, PMI_SIZE: MPICH's and Intel's mpiexec, Cray's aprun, `srun --mpi=pmi2`
 *     Slurm        SLURM_PROCID, SLURM_STEP_NUM_TASKS, inside a step (SLURM_STEP_ID)
 * PMIx alone gives a rank in the environment, and the number of processes only to those who link with it.
 *
 * Nodes need one place to meet. torchrun names it. Slurm lists the step's hosts, of which the first has task 0. Where all processes are
 * on one machine they meet at a loopback address, at a port that follows from the job's number. Elsewhere the user must name it. */
#include "echi_launcher.h"
#include "echi_error.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *echi_variable(char *const *environment, const char *name) {
    const size_t len = strlen(name);
    for (char *const *at = environment; at && *at; at++)
        if (strncmp(*at, name, len) == 0 && (*at)[len] == '=') return *at + len + 1;
    return NULL;
}

static ech_status refuse(struct ech_error *err, const char *name, const char *value, const char *allowed) {
    return echi_fail(err, ECH_E_ARGUMENT, "config",
                     "the environment has %s=%.60s, which should be %s: mend it, or give --rank, --world and --coordinator, "
                     "or --launcher off",
                     name, value, allowed);
}

/* A whole number of at least `min`. */
static ech_status number(char *const *environment, const char *name, int min, int *out, struct ech_error *err) {
    const char *text = echi_variable(environment, name);
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < min || value > INT_MAX)
        return refuse(err, name, text, min > 0 ? "a whole number above 0" : "a whole number");
    *out = (int)value;
    return ECH_OK;
}

/* What helps to use a machine well, but is no part of a set: left alone where it makes no sense. */
static void number_if_any(char *const *environment, const char *name, int *out) {
    int value;
    if (echi_variable(environment, name) && number(environment, name, 0, &value, NULL) == ECH_OK) *out = value;
}

struct launcher {
    const char *name, *variables;
    const char *required[5];   /* a set is complete when it has all of these; the first two are rank and world */
    const char *local_rank, *local_world;
    ech_status (*details)(char *const *environment, struct echi_launched *launch, struct ech_error *err);
};

/* --- where to meet --- */

/* Ports below those that Linux gives to connections by itself (32768 and up). Jobs on one machine need different ones. */
#define PORT_FIRST 16384
#define PORTS 16384

/* FNV-1a, 32 bits (Fowler, Noll, Vo): the same on all nodes of a job. */
static unsigned port_of(const char *job, const char *step) {
    uint32_t hash = 2166136261u;
    for (const char *part = job; part; part = part == job ? step : NULL)
        for (const char *c = part; *c; c++) hash = (hash ^ (uint8_t)*c) * 16777619u;
    return PORT_FIRST + hash % PORTS;
}

/* Where all nodes are on one machine only that machine needs to reach the place. */
static void meet_here(struct echi_launched *launch, const char *job, const char *step) {
    snprintf(launch->coordinator, sizeof launch->coordinator, "127.0.0.1:%u", port_of(job, step));
}

/* torchrun's agent on rank 0's machine may listen at MASTER_PORT itself, for its workers. Then the nodes meet at the next port. */
static ech_status torchrun_details(char *const *environment, struct echi_launched *launch, struct ech_error *err) {
    const char *host = echi_variable(environment, "MASTER_ADDR"), *shared = echi_variable(environment, "TORCHELASTIC_USE_AGENT_STORE");
    int port;
    ECHI_TRY(number(environment, "MASTER_PORT", 1, &port, err));
    if (shared && strcmp(shared, "True") == 0) port++;
    const char *open = strchr(host, ':') && host[0] != '[' ? "[" : "", *close = *open ? "]" : "";   /* a bare IPv6 address */
    const size_t room = sizeof launch->coordinator;
    if (!*host || (size_t)snprintf(launch->coordinator, room, "%s%s%s:%d", open, host, close, port) >= room)
        return refuse(err, "MASTER_ADDR", host, "the name or address of rank 0's machine");
    return ECH_OK;
}

static ech_status openmpi_details(char *const *environment, struct echi_launched *launch, struct ech_error *err) {
    (void)err;
    const char *job = echi_variable(environment, "PMIX_NAMESPACE"), *bound = echi_variable(environment, "OMPI_MCA_orte_bound_at_launch");
    launch->bound = bound && strcmp(bound, "1") == 0;
    if (job && launch->local_world == launch->world) meet_here(launch, job, NULL);
    return ECH_OK;
}

/* "n[07-12,20],m3" becomes "n07". False when there is no end to a bracket, or no room. */
static bool first_host(const char *list, char *out, size_t cap) {
    size_t len = 0;
    bool skip = false, inside = false;
    for (const char *c = list; *c && (inside || *c != ','); c++) {
        if (*c == '[') inside = true;
        else if (*c == ']') inside = skip = false;
        else if (inside && (*c == '-' || *c == ',')) skip = true;
        else if (!skip) {
            if (len + 1 >= cap) return false;
            out[len++] = *c;
        }
    }
    out[len] = 0;
    return len > 0 && !inside;
}

/* "2(x3),1": tasks of each node, of which number `node` is wanted. 0 when it is not in there. */
static int tasks_of_node(const char *list, int node) {
    for (const char *at = list; *at;) {
        char *end;
        const long tasks = strtol(at, &end, 10);
        long times = 1;
        if (end == at || tasks < 1 || tasks > INT_MAX) return 0;
        if (strncmp(end, "(x", 2) == 0) {
            times = strtol(end + 2, &end, 10);
            if (*end++ != ')' || times < 1) return 0;
        }
        if (node < times) return (int)tasks;
        node -= (int)times;
        at = *end == ',' ? end + 1 : end;
    }
    return 0;
}

static ech_status slurm_details(char *const *environment, struct echi_launched *launch, struct ech_error *err) {
    (void)err;
    const char *job = echi_variable(environment, "SLURM_JOB_ID"), *step = echi_variable(environment, "SLURM_STEP_ID");
    const char *hosts = echi_variable(environment, "SLURM_STEP_NODELIST"), *tasks = echi_variable(environment, "SLURM_STEP_TASKS_PER_NODE");
    const char *order = echi_variable(environment, "SLURM_DISTRIBUTION"), *binding = echi_variable(environment, "SLURM_CPU_BIND_TYPE");
    int node = 0, nodes = 0;
    char host[200];
    launch->bound = binding && strncmp(binding, "mask_", 5) == 0;
    number_if_any(environment, "SLURM_NODEID", &node);
    number_if_any(environment, "SLURM_STEP_NUM_NODES", &nodes);
    if (tasks) launch->local_world = tasks_of_node(tasks, node);
    /* Of an arbitrary distribution the list is sorted, and task 0 may be anywhere; parts of a heterogeneous job each have their own. */
    if (!job || !hosts || (order && strcmp(order, "arbitrary") == 0) || echi_variable(environment, "SLURM_HET_SIZE")) return ECH_OK;
    if (nodes == 1) meet_here(launch, job, step);
    else if (first_host(hosts, host, sizeof host))
        snprintf(launch->coordinator, sizeof launch->coordinator, "%s:%u", host, port_of(job, step));
    return ECH_OK;
}

static const struct launcher launchers[] = {
    {"torchrun", "RANK and WORLD_SIZE", {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}, "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     torchrun_details},
    {"Open MPI", "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", openmpi_details},
    {"PMI", "PMI_RANK and PMI_SIZE", {"PMI_RANK", "PMI_SIZE"}, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
    {"Slurm", "SLURM_PROCID and SLURM_STEP_NUM_TASKS", {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"}, "SLURM_LOCALID",
     NULL, slurm_details},
};
enum { N_LAUNCHERS = (int)(sizeof launchers / sizeof launchers[0]), PMI = 2, SLURM = 3 };

static bool complete(const struct launcher *l, char *const *environment) {
    for (int i = 0; l->required[i]; i++)
        if (!echi_variable(environment, l->required[i])) return false;
    return true;
}

static bool same(char *const *environment, const char *one, const char *other) {
    return strcmp(echi_variable(environment, one), echi_variable(environment, other)) == 0;
}

/* `srun --mpi=pmi2` sets both, to the same: Slurm's tells where to meet, too. */
static bool is_slurms(const struct launcher *l, char *const *environment) {
    return l == &launchers[PMI] && complete(&launchers[SLURM], environment) && same(environment, "PMI_RANK", "SLURM_PROCID") &&
           same(environment, "PMI_SIZE", "SLURM_STEP_NUM_TASKS");
}

static ech_status read_set(const struct launcher *l, char *const *environment, struct echi_launched *out, struct ech_error *err) {
    ECHI_TRY(number(environment, l->required[1], 1, &out->world, err));
    ECHI_TRY(number(environment, l->required[0], 0, &out->rank, err));
    if (out->rank >= out->world) 
        return refuse(err, l->required[0], echi_variable(environment, l->required[0]), "below the number of processes");
    number_if_any(environment, l->local_rank, &out->local_rank);
    if (l->local_world) number_if_any(environment, l->local_world, &out->local_world);
    if (l->details) ECHI_TRY(l->details(environment, out, err));
    if (out->local_world > out->world || out->local_rank >= (out->local_world > 0 ? out->local_world : out->world))
        out->local_rank = out->local_world = 0;   /* of no use, and nothing depends on it */
    out->launcher = l->name;
    out->variables = l->variables;
    return ECH_OK;
}

ech_status echi_launched_from(char *const *environment, struct echi_launched *out, struct ech_error *err) {
    *out = (struct echi_launched){.world = 1};
    for (int i = 0; i < N_LAUNCHERS; i++)
        if (complete(&launchers[i], environment) && !is_slurms(&launchers[i], environment))
            return read_set(&launchers[i], environment, out, err);
    const char *alone = echi_variable(environment, "PMIX_RANK");
    if (!alone) return ECH_OK;
    return echi_fail(err, ECH_E_ARGUMENT, "config",
                     "the environment has PMIX_RANK=%.60s, but no variable gives the number of processes: give --rank, --world and "
                     "--coordinator, or --launcher off for a run of this process alone", alone);
}

/* --- Kubernetes --- */

/* Of a name ECH..._SERVICE_PORT_HTTP: how long the part in front of `mark` is; 0 without it. After it comes the end, or "_". */
static size_t front_of(const char *name, size_t len, const char *mark) {
    const size_t n = strlen(mark);
    for (size_t at = 3; at + n <= len; at++)
        if (strncmp(name + at, mark, n) == 0 && (at + n == len || name[at + n] == '_')) return at;
    return 0;
}

bool echi_variable_of_service(char *const *environment, const char *name, size_t len, bool *out_first) {
    static const char *const marks[] = {"_SERVICE_HOST", "_SERVICE_PORT", "_PORT"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        const size_t front = front_of(name, len, marks[i]);
        char host[128], port[128];
        if (front == 0 || front > sizeof host - 16) continue;
        snprintf(host, sizeof host, "%.*s_SERVICE_HOST", (int)front, name);
        snprintf(port, sizeof port, "%.*s_SERVICE_PORT", (int)front, name);
        *out_first = strlen(host) == len && i == 0;
        if (echi_variable(environment, host) && echi_variable(environment, port)) return true;
    }
    return false;
}
