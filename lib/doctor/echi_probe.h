/* SPDX-License-Identifier: Apache-2.0
 * How a link is measured: two nodes of a net (net/echi_net.h), so with its keys, caps and refusals, that speak of nothing but time.
 *
 *   caller                                   listener
 *   PING i                      -->                         answered at once, with the listener's clock; then the next
 *                               <--   PONG i
 *   BULK, n times               -->                         each acknowledged when all of it is there, counted since the last PING
 *                               <--   GOT i
 *   GIVE n                      -->
 *                               <--   BULK, n times
 *
 * Either end drops the other for anything else. */
#ifndef ECHI_PROBE_H
#define ECHI_PROBE_H
#include "echelon_dev.h"
#include "echi_net.h"
#include "echi_timespec.h"

enum echi_probe_type { ECHI_PROBE_PING = 1, ECHI_PROBE_PONG, ECHI_PROBE_GOT, ECHI_PROBE_GIVE };
#define ECHI_PROBE_MOST 256u        /* numbers are 1 to this */
struct echi_probe {
    uint8_t type;
    uint32_t number;
    int64_t clock;                  /* PONG: ns since 1970, not negative; else 0 */
};
/* On the wire: u8 type, 3 bytes of 0, u32 number, i64 clock; the lower byte first. */
#define ECHI_PROBE_BYTES 16
void echi_probe_store(const struct echi_probe *probe, uint8_t out[ECHI_PROBE_BYTES]);
/* ECH_E_FORMAT, with *out as it was, for bytes that are none. */
ech_status echi_probe_load(const uint8_t *bytes, size_t len, struct echi_probe *out, struct ech_error *err);

enum { ECHI_PROBE_WORD, ECHI_PROBE_BULK, ECHI_PROBE_KINDS };   /* kinds of messages */
#define ECHI_PROBE_BULK_BYTES ((size_t)256 << 10)
#define ECHI_PROBE_PLACES 4                                    /* for bulks that come */

/* One end of a measured link. All calls from one thread. */
struct echi_probe_end { struct echi_net *net; int peer; uint8_t *bulk, *places; };
/* rank 0 listens, rank 1 calls, at config's coordinator. ECH_OK: joining has begun. */
ech_status echi_probe_open(struct echi_probe_end *end, const struct ech_config *config, int rank, struct ech_error *err);
void echi_probe_close(struct echi_probe_end *end);
/* All places for what comes, once the two are connected; and one again, when what came there has been counted. */
ech_status echi_probe_post_all(struct echi_probe_end *end, struct ech_error *err);
ech_status echi_probe_post(struct echi_probe_end *end, uint64_t place, struct ech_error *err);
ech_status echi_probe_say(struct echi_probe_end *end, enum echi_probe_type type, uint32_t number, struct ech_error *err);
ech_status echi_probe_send(struct echi_probe_end *end, uint32_t bulks, struct ech_error *err);
/* The next thing that happens, by `until` (ns, echi_now), or ECHI_NET_WAITING when nothing has; what was sent, and news of who joins, are
 * passed over. A word is loaded into *word. */
ech_status echi_probe_next(struct echi_probe_end *end, int64_t until, struct echi_net_event *event, struct echi_probe *word,
                           struct ech_error *err);
#endif
