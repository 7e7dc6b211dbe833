/* SPDX-License-Identifier: Apache-2.0
 * What roles are told, and what they ask for: events and actions. action.c. */
#ifndef ECHI_EVENT_H
#define ECHI_EVENT_H
#include "ech_status.h"
#include "echi_message.h"
#include "echi_task.h"

/* What a run trains, as far as roles must know it. The driver derives it from the model; the same on all nodes. */
struct echi_setup {
    int rank;
    int n_layers;                         /* with parameters */
    int cut;                              /* first of them that belongs to the head; n_layers when not separated */
    uint32_t cut_width;                   /* floats a sample at the cut */
    bool whole_steps;                     /* a session: its user computes a step, on weights that are whole when it begins */
    int norms;                            /* sync_norm: so many of the layers in front of the cut are batch-norms */
    struct echi_plan plan;
    uint8_t norm[256];                    /* these, ascending */
};

enum echi_event_type {
    ECHI_EVENT_START,      /* the role's slots stand: post what you take, say that you are there */
    ECHI_EVENT_MESSAGE,    /* payload, if any, whole in `slot` */
    ECHI_EVENT_SENT,       /* the payload that a message of `kind` sent from `slot` to `from` has left it; where it stays on this node,
                              nobody reads it there any more (echi_loan.h) */
    ECHI_EVENT_GRADIENT,   /* BACKWARD, STEP: the gradient of `layer` is in its place; HEAD with weights_out: the rows', with `result` */
    ECHI_EVENT_COMPUTED,   /* `task` is done, with `result` */
    ECHI_EVENT_LOST,       /* node: the driver cannot reach `from` any more, for the reason in `text`; `flag`: `from` left in order.
                              The node role passes it to the coordinator (the reason is in `msg`), and to the other roles once the
                              coordinator has declared the loss: then the plan has it already, and nothing from that node comes any
                              more. Places posted for it are the role's again; SENT comes for what was sent to it, before or after
                              this, also when it is sent later */
    ECHI_EVENT_STOP,       /* node: its user wants it to leave, or (flag) the run to end; coordinator: an orderly end */
    ECHI_EVENT_MOVED,      /* worker `from` joins another group, by the coordinator's word in `msg`; the plan says so already. From the
                              node role only */
    ECHI_EVENT_TAKEOVER,   /* shards of lost owners have new ones, by the coordinator's word in `msg`; the plan says so already. From the
                              node role only */
    ECHI_EVENT_HEADS,      /* the separated layers get other nodes, by the coordinator's word in `msg`; the plan says so already. From the
                              node role only */
    ECHI_EVENT_TIME,       /* coordinator: the time that it waits for (`wake_at`) has come */
    /* Of the driver, to the node role. The first three answer actions. */
    ECHI_EVENT_MEASURED,   /* MEASURE: the step times are there */
    ECHI_EVENT_SLOTS,      /* SLOTS: the slots are there, and the first time `setup` and the memory of the roles; or (flag) there is no
                              memory for the head's, of which the node is to have a copy, and none are there */
    ECHI_EVENT_HELD,       /* HOLD: no task runs */
    ECHI_EVENT_BROKE,      /* `from` has broken a rule: `text` */
    ECHI_EVENT_FAILED,     /* this node cannot go on: `status`, `text` */
    ECHI_EVENT_RATE        /* the link of `from`, this node's or another's, has carried `rate` bytes a second out of that host (flag: into
                              it): what was delivered over so long a time in which more was always waiting to be sent there. At most
                              what the link can carry: others may have had a part of it */
};
struct echi_event {
    uint8_t type;
    uint16_t from;
    uint8_t kind;                           /* SENT */
    int64_t now;                            /* ns */
    const struct echi_msg *msg;             /* MESSAGE, LOST (to the coordinator: NULL, or with the reason in `text`), MOVED, TAKEOVER,
                                               HEADS */
    const uint8_t *bytes; size_t len;       /* MESSAGE of kind MEASURED: encoded times */
    struct echi_slot slot;
    int layer;
    const struct echi_task *task; const struct echi_result *result;
    bool flag;                              /* LOST, STOP, RATE, SLOTS to the node role */
    double rate;                            /* RATE */
    ech_status status;                      /* FAILED */
    const char *text;                       /* LOST, BROKE, FAILED to the node role; NULL: "" */
};

enum echi_action_type {
    ECHI_ACTION_SEND,      /* msg to role msg.to_role of node `to`, with the payload in `slot` if its kind carries one */
    ECHI_ACTION_POST,      /* the next payload of `kind` from node `to` goes to `slot`; of a kind that comes by part the next so many
                              (echi_post_parts) */
    ECHI_ACTION_COMPUTE,
    ECHI_ACTION_PLAN,      /* coordinator: send `plan` to all nodes */
    ECHI_ACTION_FAULT,     /* a role refuses the event: status in msg.layer, sentence in msg.text. The driver answers with BROKE where
                              the event was a message of another node, else with FAILED */
    ECHI_ACTION_DONE,      /* coordinator: the run has ended */
    /* Of the node role. A SEND of MEASURED or STATS has a body that the driver adds. */
    ECHI_ACTION_MEASURE,   /* measure step times; MEASURED answers */
    ECHI_ACTION_SLOTS,     /* make the slots of the next plan (echi_node_role_next); SLOTS answers. The first time also `setup`, and memory
                              for the roles that the plan places here, later for a head that it places here */
    ECHI_ACTION_HOLD,      /* begin no task but EVAL; HELD answers */
    ECHI_ACTION_RELEASE,
    ECHI_ACTION_DROP,      /* take nothing more from node `to`, and send it nothing */
    ECHI_ACTION_FINAL,     /* NODE_FINAL holds the final weights: they are the user's */
    ECHI_ACTION_LEAVE      /* the run is over for this node: `msg` is the END that ended it, or a LOST of rank 0 with the reason; its
                              status in msg.layer */
};
struct echi_action {
    uint8_t type, kind;
    uint16_t to;
    uint16_t only;                /* POST of a kind that carries a part: for this one alone, counted from 1; 0: for all that come */
    struct echi_slot slot;
    union {
        struct echi_msg msg;      /* SEND, FAULT, LEAVE */
        struct echi_task task;    /* COMPUTE */
    };
};
/* The list a role appends to. A list that is full means a bug: `overflow` is set and the driver ends the run. So many are enough
 * for one event: among `world` nodes the leases of two rounds, one a worker and the parts of large shares, or two words to each, or the
 * parts of a copy for the coordinator; beside them the parts of all answers that an owner may have on their way or lend to its own
 * worker. */
#define ECHI_ACTIONS_MAX (4 * ECHI_WORLD_MAX + 512 + (ECHI_SNAPSHOTS - 2) * ECHI_PARTS_MAX)
struct echi_actions { struct echi_action *list; int count, cap; bool overflow; };
/* Never NULL: room for one action, zeroed but for a message or task that its type does not have. */
struct echi_action *echi_act(struct echi_actions *out, enum echi_action_type type);
/* An action that sends `kind` to (node, role) from `from_role`; the caller fills the rest of ->msg and ->slot. */
struct echi_action *echi_act_send(struct echi_actions *out, int to, enum echi_role to_role, enum echi_role from_role,
                                  enum echi_kind kind);
/* Pushes and weights travel by part, with a message for each that `owner` owns in front of the cut; but what is coded is one message of
 * weights. How many messages of this kind go to or come from that owner, and which part the i-th of them carries: weights from the first
 * on, as forward needs them, gradients from the last, as backward makes them; -1 behind the last. Of other kinds there is one, which is
 * part 0. (A coordinator's PARAMS is posted part by part, by `only`: who is asked for what decides how many come.) */
int echi_post_parts(const struct echi_setup *setup, enum echi_kind kind, int owner);
int echi_post_part(const struct echi_setup *setup, enum echi_kind kind, int owner, int i);
/* Whose parts a POST of this kind by `rank`, for messages from `from`, has places for. */
int echi_post_owner(enum echi_kind kind, int rank, int from);
/* So many places this POST of the setup's rank makes, and the i-th is for this part. */
int echi_posts(const struct echi_setup *setup, const struct echi_action *post);
int echi_posts_part(const struct echi_setup *setup, const struct echi_action *post, int i);
void echi_act_post(struct echi_actions *out, int from, enum echi_kind kind, struct echi_slot slot);
void echi_act_post_part(struct echi_actions *out, int from, enum echi_kind kind, struct echi_slot slot, int part);
void echi_act_fault(struct echi_actions *out, ech_status status, const char *text);
#endif
