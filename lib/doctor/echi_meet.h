/* SPDX-License-Identifier: Apache-2.0
 * Nodes that meet to measure the links between them, and train nothing: nodes of a net (net/echi_net.h), so with its keys, caps and
 * refusals, that measure as a run does when its nodes have joined (drive/live/echi_links.h). Here each meets every other, and each tells
 * all others what came to it:
 *
 *   PROBE   <-->   between each two, in turn
 *   ROW      -->   to each other, when this node has met all
 *
 * A meeting of two may be about a run of no steps instead, which one of them asks for (echi_ask.h):
 *
 *   ASK      -->   the listener, by the caller: what to take part in, in place of its first PROBE
 *   ANSWER   <--   whether it will
 *   GO       -->   all who were asked will: the caller's run waits at this port of the host that it calls from
 *
 * Rule: a node sends nothing but the handshake to an address that is not --coordinator's until whoever listens there has completed the
 * handshake of this meeting and, with --key, has proved that it has the key. Then it sends each other node 2.1 MB at most. So nobody can
 * make nodes flood a third party. */
#ifndef ECHI_MEET_H
#define ECHI_MEET_H
#include "echelon_dev.h"
#include "echi_links.h"
#include "echi_net.h"

enum { ECHI_MEET_PROBE, ECHI_MEET_ROW, ECHI_MEET_ASK, ECHI_MEET_ANSWER, ECHI_MEET_GO, ECHI_MEET_KINDS };   /* kinds of messages */
/* What the links of others to one node carry, by their ranks: f64 rate, f64 highest, f64 round trip, as in ech_doctor_links; its own is
 * 0. */
#define ECHI_MEET_ROW_BYTES 24
void echi_meet_store(const struct ech_doctor_links *table, int rank, uint8_t *out);
/* False, with *table as it was, for bytes that are no row of this rank. */
bool echi_meet_load(struct ech_doctor_links *table, int rank, const uint8_t *bytes, size_t len);

#define ECHI_MEET_ASK_MOST 65536u     /* bytes of an ASK's payload */
#define ECHI_MEET_ANSWER_MOST 404u    /* an ech_status u32 and, unless that is ECH_OK, a sentence */
#define ECHI_MEET_GO_BYTES 2u         /* the port u16 */

/* All calls from one thread. */
struct echi_meet {
    struct echi_net *net;
    const struct ech_config *config;
    int rank, world;
    bool is_awaited;                                             /* joining has an end: the log reports who is missing */
    struct echi_links links;
    struct echi_links_pair pair[ECHI_NET_WORLD_MAX];             /* this node's, to each other */
    bool has_row[ECHI_NET_WORLD_MAX], lost[ECHI_NET_WORLD_MAX];
    struct ech_doctor_links *table;
    char *ask; size_t ask_len;                                   /* of ECHI_MEET_ASK_MOST bytes, where an ASK comes to; NULL: none may */
    ech_status status; struct ech_error why;                     /* of the first node without which the others were measured */
};
/* A meeting at config's coordinator; all nodes have join_timeout ns to come. `purpose`: those who meet for another do not meet these.
 * ECH_OK: joining has begun. On failure *out is NULL. */
ech_status echi_meet_open(const struct ech_config *config, int rank, int world, const char *purpose, int64_t join_timeout,
                          struct echi_meet **out, struct ech_error *err);
/* Until the rows of all who are left are here; fills `table`, which has rank and world, as far as it comes. ECH_E_TIMEOUT: for config's
 * deadline nothing went on; ECH_E_END: config->stop is set; ECH_E_FORMAT, ECH_E_PEER_LOST: of a rank, and those who are left were
 * measured. ECH_OK with ask_len > 0: an ASK has come, and nothing is measured any more. */
ech_status echi_meet_measure(struct echi_meet *meet, struct ech_doctor_links *table, struct ech_error *err);
/* Of a meeting of two: waits until the other end is there (kind -1), or for its next message of this kind; whatever else comes is nothing
 * to whoever waits. *out_len bytes of its meta in `meta`, of as many bytes as the kind may have. ECH_E_TIMEOUT at `until` (echi_now),
 * ECH_E_PEER_LOST, ECH_E_END as above, or why the two did not meet. */
ech_status echi_meet_await(struct echi_meet *meet, int kind, int64_t until, uint8_t *meta, size_t *out_len, struct ech_error *err);
/* To the other end. The payload stays as it is until the other end has answered, or the meeting is closed. */
ech_status echi_meet_tell(struct echi_meet *meet, int kind, const void *meta, size_t len, const void *payload, size_t payload_len,
                          struct ech_error *err);
/* After an attempt to meet listeners that began at `since` and ended so: may it be repeated now? Waits a moment where a listener serves
 * another node, and at random up to as long again as the attempt took: two that are in each other's way do not stay in step. Who comes
 * while that one is still at the door is told that its rank is taken, so a mismatch is believed at the last of several: *mismatches counts
 * them, from 0. */
bool echi_meet_again(ech_status status, int64_t since, int *mismatches, int64_t give_up);
void echi_meet_close(struct echi_meet *meet);   /* NULL is harmless */
#endif
