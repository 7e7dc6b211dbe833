/* SPDX-License-Identifier: Apache-2.0
 * What nodes say to each other: kinds, fields, bytes. message.c. */
#ifndef ECHI_MESSAGE_H
#define ECHI_MESSAGE_H
#include "echi_lease.h"

/* X(NAME, "name", carries a payload) in wire order: append only. */
#define ECHI_KIND_LIST(X)                                                                                              \
    X(HEARTBEAT, "heartbeat", 0)   /* node -> node: I am here. From the coordinator: are you? Answer with its number */  \
    X(MEASURED, "measured", 0)     /* node -> coordinator: step times */                                             \
    X(PLAN, "plan", 0)             /* coordinator -> node */                                                         \
    X(READY, "ready", 0)           /* node -> coordinator: my roles stand */                                         \
    X(STARTED, "started", 0)       /* owner, head -> coordinator: I have the initial weights */                      \
    X(LEASE, "lease", 0)           /* coordinator -> worker */                                                       \
    X(APPLIED, "applied", 0)       /* owner -> coordinator: the lease is in */                                       \
    X(HOLD, "hold", 0)             /* coordinator -> node: start no task */                                          \
    X(HELD, "held", 0)             /* node -> coordinator: no task runs */                                           \
    X(RELEASE, "release", 0)       /* coordinator -> node */                                                         \
    X(ASK, "ask", 0)               /* coordinator -> owner, head, worker: send me your layers. worker -> coordinator: the    \
                                         newest weights here, asked for as such, have so many samples in them */               \
    X(DRAIN, "drain", 0)           /* coordinator -> owner: no lease is out */                                       \
    X(DRAINED, "drained", 0)       /* owner -> coordinator: all owners have my complete state */                     \
    X(STATE_ACK, "state_ack", 0)   /* owner -> owner */                                                              \
    X(FAULT, "fault", 0)           /* node -> coordinator: I cannot go on */                                         \
    X(END, "end", 0)               /* coordinator -> node: the run is over */                                        \
    X(STATS, "stats", 0)           /* node -> coordinator: bytes sent */                                             \
    X(ACT_GRAD, "activation_grad", 1) /* head -> worker: rows [n][cut_width] */                                      \
    X(ACT, "activation", 1)        /* worker -> head: rows [n][cut_width], then n labels of two bytes, little-endian; `flag`: enum \
                                         echi_rows */ \
    X(WEIGHTS, "weights", 1)       /* owner -> worker: a snapshot of its layers, one part, the first part first; coded all of \
                                      them as part 0 */                                                              \
    X(PUSH, "push", 1)             /* worker -> owner: gradient of one part (echi_part.h), the last part first */    \
    X(STATE, "state", 1)           /* owner -> owner: the sum of a group's changes */                                \
    X(PARAMS, "params", 1)         /* initial, measured and final weights, to and from the coordinator; of an owner of shards those that \
                                      are measured or kept come as its parts, the first part first; the head's as the first part behind \
                                      the cut, so that they have another name than the trunk's */                    \
    X(ENTER, "enter", 0)           /* worker -> owner: I hold a lease again, this one */                                  \
    X(STOP, "stop", 0)             /* node -> coordinator: my user wants this node to leave, or (flag) the run to end */ \
    X(LOST, "lost", 0)             /* coordinator -> node: `peer` is gone, take nothing more from it; answer READY.     \
                                         `group` 1: and the run ends with it: no role is told */                               \
    X(REVOKE, "revoke", 0)         /* coordinator -> owner: is this lease in? If not, it never will be. Without a lease:  \
                                         the state of `group`, whose owner is lost, is `peer`'s copy */                      \
    X(REVOKED, "revoked", 0)       /* owner -> coordinator: the lease is in, revoked, or dropped (flag). Without a lease: my copy of  \
                                         `group`, whose owner is lost, has this version and these marks. worker -> coordinator:  \
                                         I have moved, and had not begun this lease of the owner before */                     \
    X(FROZEN, "frozen", 1)         /* owner -> owner: the last state of a group whose owner is lost */                \
    X(REGROUP, "regroup", 0)       /* coordinator -> node: the worker of `peer` joins `group`; answer READY */       \
    X(NORM, "norm", 1)             /* worker -> owner: what a batch-norm sums over the samples of its lease */       \
    X(NORM_ALL, "norm_all", 1)     /* owner -> worker: the same of all leases that are computed together */         \
    X(PROBE, "probe", 0)           /* node -> node: what is sent to measure their link (drive/live/echi_links.h) */ \
    X(STANDS, "stands", 0)         /* worker, owner -> coordinator: an owner of a shard is lost, and I have stopped at this version; \
                                         enum echi_stands. worker: the gradients of this lease are still here */ \
    X(TAKEOVER, "takeover", 0)     /* coordinator -> node: the shards of lost owners have others, which begin at `version`; the \
                                         ranks with a mark have that whole. Answer READY */                          \
    X(RESUME, "resume", 0)         /* worker -> owner: I know of the takeover, and have these weights (flag: none) */ \
    X(RING_SUM, "ring_sum", 1)     /* worker -> the next in the ring, a worker or at last the owner: a sum of one part's gradients, of \
                                         `samples` samples so far; of their leases the one that stands first in the data */ \
    X(RING_WEIGHTS, "ring_weights", 1) /* owner, worker -> the next worker in the ring: weights of one part */ \
    X(RING_LEASE, "ring_lease", 0) /* worker -> owner: the gradients of this lease are in what goes round the ring; fields as in PUSH */ \
    X(RATE, "rate", 0)             /* node -> coordinator: so much the link of `peer` has carried; `flag`: in */ \
    X(SHADOWED, "shadowed", 0)     /* head -> worker: the shadow has the rows of this lease */ \
    X(HEAD_SUM, "head_sum", 1)     /* head -> head: the sum of the gradients of its rows of round `version`, which are `samples`; of their \
                                         leases the one that stands first in the data */ \
    X(HEADS, "heads", 0)           /* coordinator -> node: enum echi_heads. Answer READY */ \
    X(HEAD_COPY, "head_copy", 1)   /* head -> who is to have its layers: weights behind `version` updates, or (flag) the momentum; enum \
                                         echi_params */ \
    X(PACE, "pace", 0)             /* head -> coordinator: `version` visits, of `samples` rows altogether, took `compute` ns */

enum echi_kind {
#define ECHI_KIND_ENUM(name, text, payload) ECHI_KIND_##name,
    ECHI_KIND_LIST(ECHI_KIND_ENUM)
#undef ECHI_KIND_ENUM
    ECHI_KINDS
};
/* So many kinds have room wherever something is kept by kind: masks of net, keys of the simulator, the report. */
#define ECHI_KINDS_MAX 64
_Static_assert(ECHI_KINDS <= ECHI_KINDS_MAX, "a kind too many");
const char *echi_kind_name(int kind);
bool echi_kind_has_payload(int kind);
bool echi_kind_has_body(int kind);      /* bytes of its own follow the two roles: step times, a plan, statistics, a probe */
bool echi_kind_of_layer(int kind);      /* its payload is of one layer, which the message names */
bool echi_kind_of_part(int kind);       /* the same of one part */
/* Messages of a kind have the names 0 to echi_kind_names - 1; a payload goes into the buffer that was posted under its name. A message
 * that carries a part has the part's number. */
int echi_kind_names(int kind);
bool echi_msg_of_shard(const struct echi_msg *m, const struct echi_plan *plan);   /* PARAMS: is it one of an owner's parts alone? */
/* Bytes of an encoded message of this kind at most, among so many nodes, the roles and a body behind them included. */
uint32_t echi_kind_meta_cap(int kind, int world);
/* And mostly: of a lease of all shards, without marks, text and body. */
uint32_t echi_kind_meta_usual(int kind);

enum echi_role { ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_ROLE_WORKER, ECHI_ROLE_OWNER, ECHI_ROLE_HEAD, ECHI_ROLES };
/* members.c: does the plan place this role on `rank`? */
bool echi_plan_hosts(const struct echi_plan *plan, int rank, enum echi_role role);

/* What an owner or the head is asked for: the weights as they are now; after a drain, the weights for the last evaluation, or for
 * a checkpoint; or the momentum, for a checkpoint. A worker, when the run cannot go on: how new its weights are (NEWEST), and for them;
 * rank 0's, to say when it has those of so many samples whole (WHOLE). The head, to send all that it has of its layers to who is to have
 * them as well (HAND_ON). */
enum echi_ask { ECHI_ASK_EVAL, ECHI_ASK_LAST, ECHI_ASK_KEEP, ECHI_ASK_MOMENTUM, ECHI_ASK_NEWEST, ECHI_ASK_WHOLE, ECHI_ASK_HAND_ON };
/* What PARAMS carries: the layers of the owner or head that sends or gets them; all layers; layers, or the momentum of
 * layers, for or from a checkpoint. */
enum echi_params { ECHI_PARAMS_PART, ECHI_PARAMS_FINAL, ECHI_PARAMS_KEPT, ECHI_PARAMS_MOMENTUM };

/* What HEADS says: `peer` gets a copy of the separated layers, from the head; from now on `peer` is the head, and the rank `part` - 1 its
 * shadow (`part` 0: it has none). */
enum echi_heads { ECHI_HEADS_COPY, ECHI_HEADS_HOMES };

/* What ACT brings: rows to be trained and answered; a copy of these for the head's shadow, which says SHADOWED and no more; rows whose copy
 * it has had, when it is the head: to be answered alone. */
enum echi_rows { ECHI_ROWS_NEW, ECHI_ROWS_COPY, ECHI_ROWS_AGAIN };

/* What an owner says of a lease: asked for, that it never will be in, or that it is; unasked, that its push was too old (drop_older). */
enum echi_revoked { ECHI_REVOKED_OUT, ECHI_REVOKED_IN, ECHI_REVOKED_DROPPED };

/* Of some workers the last lease that is in a state, in the form in which it travels: for each rank, ascending, the rank (u16)
 * and the lease (u32). Only the workers that have one: those of one group mostly, of what may be a large cluster. In a
 * message it points into the role that sends it, until that role's next event, or into the bytes that it was decoded from. */
#define ECHI_MARK_BYTES 6
#define ECHI_MARKS_MAX (ECHI_MARK_BYTES * ECHI_WORLD_MAX)
struct echi_marks { const uint8_t *at; int count; };
/* Of mark[0..world) those that are not 0, written to room, which has ECHI_MARK_BYTES for each of the world. */
struct echi_marks echi_marks_of(const uint32_t *mark, int world, uint8_t *room);
void echi_marks_get(struct echi_marks marks, uint32_t *out_mark, int world);   /* 0 where there is none; ranks beyond are left out */

/* STANDS: what a worker or an owner has stopped at; of either also that it has not all of the weights of that version, since an owner has
 * applied parts of the next round in their place; of an owner that it has done so beside them; that it has taken over. */
enum echi_stands { ECHI_STANDS_AT, ECHI_STANDS_BEGUN, ECHI_STANDS_WITHOUT, ECHI_STANDS_TAKEN };

#define ECHI_LABEL_BYTES 2   /* of a label behind the rows of an ACT */

/* What a message says; each kind uses the fields that echi_msg_encode writes for it, the others are zero. */
struct echi_msg {
    uint8_t kind, to_role, from_role;
    uint8_t group, flag;            /* flag: PUSH, APPLIED: the worker held another lease; ASK: enum echi_ask; PARAMS: enum
                                       echi_params; END: in order, each node answers with STATS; REVOKED: enum echi_revoked;
                                       WEIGHTS, STATE: complete: all values are in it; STATE_ACK: of a complete one; NORM, NORM_ALL:
                                       backward; ACT: enum echi_rows; HEADS: enum echi_heads; HEAD_COPY: enum echi_params; READY: this
                                       node has no memory for what it was to take */
    uint16_t peer;                  /* LOST, REGROUP, REVOKE, END, FAULT, HEADS: the rank that it is about; ECHI_NO_RANK */
    uint16_t layer;                 /* NORM, NORM_ALL; END, FAULT: ech_status */
    uint16_t part;                  /* PUSH, WEIGHTS, RING_SUM, RING_WEIGHTS: the one that it carries, of the plan's table; RESUME to the
                                       own node's owner, ASK to the coordinator: the index of the WORKER_WEIGHTS slot that it computes on,
                                       or that has these weights. HEADS: 1 + the shadow's rank */
    uint32_t correct;
    struct echi_lease lease;
    uint64_t version, samples;      /* samples: NORM_ALL, RING_SUM: it is made of so many; PARAMS, ASK: since the run began, or was
                                       resumed */
    uint64_t head;                  /* ACT_GRAD, PUSH, APPLIED: samples in the head's weights that the gradient came from */
    double loss, staleness;         /* loss: sum over the lease's samples; staleness in rounds */
    uint64_t acked;                 /* APPLIED: version of the group's state that all other owners have */
    uint64_t compute, exchange;     /* PACE; PUSH (of the last part to leave), APPLIED: ns that the worker computed since its push before,
                                       and the rest of that time, in APPLIED without what its owner took to apply and to answer */
    uint32_t members;               /* LOST, REGROUP, READY, LEASE, DRAIN, DRAINED, REVOKED, STATE: membership epoch, raised by each loss
                                       and each move, 0 until the first; STANDS, TAKEOVER, RESUME, HEADS; STARTED and ASK of the head: that
                                       at which it, or who gets its layers, was told of the copy. ENTER, PUSH, WEIGHTS, RING_*: that at
                                       which the worker joined this owner */
    struct echi_marks marks;        /* STATE, FROZEN, REVOKED: by worker, the last lease that is in this state */
    char text[240];                 /* FAULT, END; LOST: the reason */
    double rate;                    /* RATE: bytes a second, see ECHI_EVENT_RATE */
    uint32_t number;                /* WEIGHTS, STATE: on this link, from 1; changes count from the one before. HEARTBEAT: of the
                                       coordinator's question, repeated by its answer; 0: nobody asked */
};
#define ECHI_MSG_MAX (512 + ECHI_MARKS_MAX)   /* bytes of an encoded message at most; plans and times are larger, see below */
uint16_t echi_msg_name(const struct echi_msg *msg);
size_t echi_msg_encode(const struct echi_msg *msg, uint8_t *out, size_t cap);   /* 0 when it does not fit */
/* False when the bytes are not a message of this kind. Ranges that need a plan to judge are judged by the role. */
bool echi_msg_decode(int kind, const uint8_t *bytes, size_t len, struct echi_msg *out);

#define ECHI_PROBE_BODY 3584   /* bytes of a PROBE's body at most */

/* Bytes sent by kind, and by net itself; rows that the head answered again; of coded pushes and of coded weights and states to other
 * nodes the bytes, and those that they would have had uncoded; residuals given up; ns by use (echi_usage.h). */
#define ECHI_STATS_USES 9
#define ECHI_STATS_BYTES (8 * (ECHI_KINDS + 7 + ECHI_STATS_USES))
#endif
