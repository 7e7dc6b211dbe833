/* SPDX-License-Identifier: Apache-2.0
 * Messages to other nodes and to oneself. wire.c */
#ifndef ECHI_WIRE_H
#define ECHI_WIRE_H
#include "echi_job.h"
#include "echi_net.h"

/* The net, plus what stays on this node: a message to one's own rank goes from slot to slot under the same rules (kinds, names, posts,
 * order) and never touches a socket. Its payload is copied, or, of kinds that are lent (echi_loan.h), stays where it is: then MESSAGE
 * points to the sender's memory, the post needs no buffer, and SENT comes when echi_wire_sent asks for it. I/O thread only. */
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
void echi_wire_flush(struct echi_wire *wire);
void echi_wire_give_way(struct echi_wire *wire, uint32_t bytes, double rate);   /* echi_net_give_way */
void echi_wire_wake(struct echi_wire *wire);   /* any thread */
ech_status echi_wire_post(struct echi_wire *wire, int peer, int kind, int name, void *buffer, size_t cap, uint64_t cookie,
                          struct ech_error *err);
ech_status echi_wire_send(struct echi_wire *wire, int peer, const struct echi_net_message *message, struct ech_error *err);
/* Of a MESSAGE that is lent, until the next poll: the cookie that its sender gave. */
uint64_t echi_wire_lender(const struct echi_wire *wire, const struct echi_net_event *message);
/* So many lent payloads of this kind that were sent with this cookie come back, as SENT, with the next polls. */
ech_status echi_wire_sent(struct echi_wire *wire, enum echi_kind kind, uint64_t cookie, int count, struct ech_error *err);
/* As echi_net_drop. From now on a payload sent to this peer comes back as SENT at the next poll. */
void echi_wire_drop(struct echi_wire *wire, int peer);
void echi_wire_bytes_sent(const struct echi_wire *wire, uint64_t out[ECHI_NET_KINDS_MAX + 1]);
uint64_t echi_wire_bytes_from(const struct echi_wire *wire, int peer);   /* not of oneself */
bool echi_wire_delivered(struct echi_wire *wire, int peer, int64_t least, uint64_t *out_bytes, int64_t *out_ns);   /* echi_net_delivered */
/* As echi_net_waiting; of messages to oneself those that wait for a post. */
int echi_wire_waiting(const struct echi_wire *wire, int peer, int kind, bool *out_for_credit);
#endif
