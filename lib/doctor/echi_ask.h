/* SPDX-License-Identifier: Apache-2.0
 * What a planner asks of a node that waits: to take part in a run of no steps, which joins, measures, plans and trains nothing. As text,
 * the lines in this order, the model's text (ech_model_text) to the end:
 *
 *     rank 1
 *     world 3
 *     seed 1                    and all else that the nodes of a run must share
 *     no-shuffle off
 *     deterministic off
 *     sync-norm off
 *     winograd 4
 *     precision fp32
 *     measure 0.4
 *     model resnet18
 *     input 3 32 32
 *     ... */
#ifndef ECHI_ASK_H
#define ECHI_ASK_H
#include "echelon.h"
#include "echi_meet.h"

/* For rank `rank` of config's world. The bytes it needs (no NUL); into `buf` if cap >= those. */
size_t echi_ask_write(const struct ech_config *config, int rank, const ech_model *model, char *buf, size_t cap);
/* Into *config, which has this node's own options and keeps all others, and a model of the caller's. ECH_E_FORMAT, or what is wrong with a
 * value or the model; *out_model is NULL then, and *config is anything. */
ech_status echi_ask_read(const char *text, size_t len, struct ech_config *config, ech_model **out_model, struct ech_error *err);
/* The listener's end of an ask that has come to this meeting: answers, and takes part if all who were asked do. Closes the meeting.
 * *stays: a thread is left behind that stands still, so that this process can measure nothing any more. */
ech_status echi_ask_answer(const struct ech_config *config, struct echi_meet *meet, bool *stays, struct ech_error *err);
#endif
