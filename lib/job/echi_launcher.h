/* SPDX-License-Identifier: Apache-2.0
 * Which node of a run this process is, as the program that started it reports in the environment. */
#ifndef ECHI_LAUNCHER_H
#define ECHI_LAUNCHER_H
#include "ech_status.h"

#include <stdbool.h>
#include <stddef.h>

struct echi_launched {
    const char *launcher;      /* "Slurm"; NULL: no launcher has left a complete set of variables */
    const char *variables;     /* that rank and world were read from, for sentences */
    int rank, world;
    int local_rank;            /* among the nodes on this machine; 0 where it is not known */
    int local_world;           /* nodes on this machine; 0 where it is not known */
    bool bound;                /* the launcher has bound this process to processors of its own */
    char coordinator[256];     /* "host:port"; "": the launcher's variables name no place to meet */
};
/* Reads the first complete set, never parts of two: torchrun, Open MPI, PMI, Slurm. ECH_E_ARGUMENT: a set makes no sense, or there is
 * a rank without a world. `environment` is an array of "NAME=value" that ends with NULL; NULL is an empty one. */
ech_status echi_launched_from(char *const *environment, struct echi_launched *out, struct ech_error *err);
/* The value of a variable, NULL when it is not set. */
const char *echi_variable(char *const *environment, const char *name);
/* Is this name one that Kubernetes makes for a Service that `environment` has, as ECH_PORT_7000_TCP is for one called "ech"? Into
 * *out_first: is it the one by which to mention that Service once? */
bool echi_variable_of_service(char *const *environment, const char *name, size_t len, bool *out_first);
#endif
