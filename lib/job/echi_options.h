/* SPDX-License-Identifier: Apache-2.0
 * Options made what a run is made of. config.c, plan_request.c */
#ifndef ECHI_OPTIONS_H
#define ECHI_OPTIONS_H
#include "echi_job.h"
#include "echi_ops.h"
#include "echi_roles.h"

/* The config of a caller whose header may be older or newer, as this version's. ECH_E_ARGUMENT: it sets what this version does not know. */
ech_status echi_config_whole(const struct ech_config *config, struct ech_config *out, struct ech_error *err);
enum echi_cpu_level echi_config_level(const struct ech_config *config);   /* --isa, checked, as a level of this processor */
/* Numbers behind commas, at most ECHI_SHARDS_MAX below 10,000: how many; 0: "auto"; -1: it is no such list. */
int echi_shard_list(const char *text, long out_number[ECHI_SHARDS_MAX]);
/* Options made numbers: what the coordinator is to plan and when to stop. */
ech_status echi_plan_request_from(const struct ech_config *config, const struct echi_job *job, struct echi_plan_request *out,
                                  struct ech_error *err);
/* With --plan, *out_plan becomes that plan, checked against this run, and out_link[0 .. ECHI_WORLD_MAX) (NULL: nobody asks) what its file
 * says of links; else they stay as they are. */
ech_status echi_goal_from(const struct ech_config *config, const struct echi_job *job, const struct echi_plan_request *request,
                          struct echi_plan *out_plan, struct echi_link *out_link, struct echi_goal *out, struct ech_error *err);
#endif
