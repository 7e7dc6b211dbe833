/* SPDX-License-Identifier: Apache-2.0
 * The wire of a node: net for the others, loans and copies for itself. */
#include "echi_run.h"
#include "echi_error.h"
#include "echi_secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Messages to oneself waiting, and posts for them: gradients and weights of two steps, a copy for the coordinator, and few others. */
#define LOCAL_MAX (6 * ECHI_PARTS_MAX)

struct local_message { struct echi_net_message m; uint8_t *meta; };   /* m.meta is `meta` */
struct local_post { int kind, name; void *buffer; size_t cap; uint64_t cookie; };

struct echi_wire {
    struct echi_net *net;
    const struct echi_net_kind *kinds;
    int rank;
    bool ready;                                    /* net has said READY; local messages wait for it */
    struct local_message *room;                    /* [LOCAL_MAX], the messages themselves */
    uint8_t *metas; size_t meta_max;               /* of each; net bounds it by kind */
    struct local_message *message[LOCAL_MAX];      /* that wait, in order */
    int messages;
    struct local_message *spare[LOCAL_MAX];        /* [0, free) are; the last n_given were given out since the last poll */
    int free, n_given;
    struct local_post post[LOCAL_MAX];
    int posts;
    struct { int peer, kind; uint64_t cookie; } back[LOCAL_MAX];   /* payloads that come back as SENT: for peers that are gone; lent ones */
    int n_back;
};

static uint64_t payload_cap(const struct echi_job *job, int kind) {
    const uint64_t width = echi_job_widest(job), most = 1u << 20; /* samples of a step: a plan has no more, a lease no more than all */
    const uint64_t rows = job->train_samples < most ? job->train_samples : most;
    const uint64_t integers = job->n_params * sizeof(int64_t), coded = echi_coded_most(job->n_params);
    switch (kind) {
    case ECHI_KIND_RING_SUM: return integers;
    case ECHI_KIND_PUSH:   /* a plan may have one part: what --deterministic sends of it, or a codec at most; a float is no larger */
        return integers > coded ? integers : coded;
    case ECHI_KIND_NORM:
    case ECHI_KIND_NORM_ALL: return echi_job_norm_bytes(job);
    case ECHI_KIND_ACT: return rows * (width * sizeof(echi_real) + ECHI_LABEL_BYTES);
    case ECHI_KIND_ACT_GRAD: return rows * width * sizeof(echi_real);
    case ECHI_KIND_WEIGHTS:
    case ECHI_KIND_STATE: return coded;
    case ECHI_KIND_PARAMS: return echi_job_memory_bytes(job, ECHI_OPTIMIZER_ADAM);   /* of a checkpoint's parts the largest */
    default: return echi_kind_has_payload(kind) ? job->n_params * sizeof(echi_real) : 0;
    }
}

_Static_assert(ECHI_KINDS_MAX == ECHI_NET_KINDS_MAX, "net takes as many kinds as a run may have");
_Static_assert(ECHI_PARTS_MAX <= ECHI_NET_NAMES_MAX, "and a name for each part");

void echi_wire_kinds(const struct echi_job *job, int world, struct echi_net_kind out[ECHI_KINDS]) {
    for (int k = 0; k < ECHI_KINDS; k++) {
        const uint64_t cap = payload_cap(job, k);
        out[k] = (struct echi_net_kind){.name = echi_kind_name(k), .names = (uint16_t)echi_kind_names(k),
            .meta_cap = echi_kind_meta_cap(k, world), .payload_cap = cap < SIZE_MAX ? cap : SIZE_MAX,
            .payload_least = cap > 0};   /* none of ours comes without the payload that it is about */
    }
}

/* Heartbeats judge silence (node_watch.c), on a clock that allows for a judge that was late. The kernel has no such clock, so it waits
 * for so many deadlines: it ends what nobody judges, such as a connection that is being closed. */
#define UNHEARD 3

ech_status echi_wire_options(const struct ech_config *c, struct echi_net_config *out, struct ech_error *err) {
    uint8_t *key = NULL;
    *out = (struct echi_net_config){.rank = c->rank, .world = c->world, .coordinator = c->coordinator[0] ? c->coordinator : NULL,
                                    .bind = c->bind[0] ? c->bind : NULL, .join_timeout = (int64_t)(c->join_timeout * 1e9),
                                    .unheard = (int64_t)(UNHEARD * c->deadline * 1e9), .insecure = c->insecure != 0};
    struct echi_file_owner owner = {0};
    if (c->key[0]) ECHI_TRY(echi_file_read_secret(c->key, ECHI_NET_KEY_MOST, &key, &out->key_len, &owner, err));
    if (owner.others && c->on_log) {
        char line[sizeof c->key + 200];
        snprintf(line, sizeof line, "the key '%s' belongs to user %u (mode %03o): others than this node's user can read or change it; "
                 "chown and chmod 600 it, and make a new one if somebody may have read it", c->key, owner.user, owner.mode);
        c->on_log(c->user, ECH_LOG_WARN, line);
    }
    out->key = key;
    return ECH_OK;
}

void echi_wire_options_end(struct echi_net_config *net) {
    uint8_t *key = (uint8_t *)(uintptr_t)net->key;   /* made above, and ours to change */
    if (key) echi_secret_wipe(key, net->key_len);
    free(key);
    net->key = NULL;
}

ech_status echi_wire_open(const struct echi_net_config *config, struct echi_wire **out, struct ech_error *err) {
    struct echi_wire *w = calloc(1, sizeof *w);
    if (!w) return echi_fail_memory(err, "run.open", "the wire");
    w->kinds = config->kinds;
    w->rank = config->rank;
    for (int k = 0; k < config->n_kinds; k++)
        if (config->kinds[k].meta_cap > w->meta_max) w->meta_max = config->kinds[k].meta_cap;
    w->room = calloc(LOCAL_MAX, sizeof *w->room);
    w->metas = calloc(LOCAL_MAX, w->meta_max + 1);
    const bool has_room = w->room && w->metas;
    for (size_t i = 0; i < LOCAL_MAX && has_room; i++) {
        w->spare[w->free++] = &w->room[i];
        w->room[i].meta = w->metas + i * w->meta_max;
    }
    ech_status status = has_room ? echi_net_open(config, &w->net, err) : echi_fail_memory(err, "run.open", "messages to oneself");
    if (status != ECH_OK) echi_wire_close(w, 0);
    else *out = w;
    return status;
}

void echi_wire_close(struct echi_wire *w, int64_t linger) {
    if (!w) return;
    echi_net_close(w->net, linger);
    free(w->metas);
    free(w->room);
    free(w);
}

const char *echi_wire_address(const struct echi_wire *w) { return echi_net_address(w->net); }
void echi_wire_flush(struct echi_wire *w) { echi_net_flush(w->net); }
void echi_wire_give_way(struct echi_wire *w, uint32_t bytes, double rate) { echi_net_give_way(w->net, bytes, rate); }
void echi_wire_wake(struct echi_wire *w) { echi_net_wake(w->net); }
void echi_wire_bytes_sent(const struct echi_wire *w, uint64_t out[ECHI_NET_KINDS_MAX + 1]) { echi_net_bytes_sent(w->net, out); }
bool echi_wire_delivered(struct echi_wire *w, int peer, int64_t least, uint64_t *out_bytes, int64_t *out_ns) {
    return echi_net_delivered(w->net, peer, least, out_bytes, out_ns);
}
uint64_t echi_wire_bytes_from(const struct echi_wire *w, int peer) { return echi_net_bytes_from(w->net, peer); }

int echi_wire_waiting(const struct echi_wire *w, int peer, int kind, bool *out_for_credit) {
    if (peer != w->rank) return echi_net_waiting(w->net, peer, kind, out_for_credit);
    int count = 0;
    for (int i = 0; i < w->messages; i++) count += w->message[i]->m.kind == kind;
    *out_for_credit = count > 0;
    return count;
}

void echi_wire_drop(struct echi_wire *w, int peer) { echi_net_drop(w->net, peer, "was declared lost"); }

ech_status echi_wire_post(struct echi_wire *w, int peer, int kind, int name, void *buffer, size_t cap, uint64_t cookie,
                          struct ech_error *err) {
    if (peer != w->rank) return echi_net_post(w->net, peer, kind, name, buffer, cap, cookie, err);
    if (w->posts == LOCAL_MAX) return echi_fail(err, ECH_E_INTERNAL, "run.post", "too many places posted for messages to oneself");
    w->post[w->posts++] = (struct local_post){kind, name, buffer, cap, cookie};
    return ECH_OK;
}

static ech_status come_back(struct echi_wire *w, int peer, int kind, uint64_t cookie, struct ech_error *err) {
    if (w->n_back == LOCAL_MAX) return echi_fail(err, ECH_E_INTERNAL, "run.send", "too many messages come back");
    w->back[w->n_back].peer = peer;
    w->back[w->n_back].kind = kind;
    w->back[w->n_back++].cookie = cookie;
    return ECH_OK;
}

ech_status echi_wire_send(struct echi_wire *w, int peer, const struct echi_net_message *message, struct ech_error *err) {
    if (peer != w->rank) {
        ech_status status = echi_net_send(w->net, peer, message, err);
        if (status != ECH_E_PEER_LOST || message->payload_len == 0) return status;
        return come_back(w, peer, message->kind, message->cookie, err);
    }
    if (w->free == 0 || message->meta_len > w->meta_max)
        return echi_fail(err, ECH_E_INTERNAL, "run.send", "too many or too long messages to oneself");
    struct local_message *l = w->spare[--w->free];
    memcpy(l->meta, message->meta, message->meta_len);
    l->m = *message;
    l->m.meta = l->meta;
    w->message[w->messages++] = l;
    return ECH_OK;
}

ech_status echi_wire_sent(struct echi_wire *w, enum echi_kind kind, uint64_t cookie, int count, struct ech_error *err) {
    for (int i = 0; i < count; i++) ECHI_TRY(come_back(w, w->rank, (int)kind, cookie, err));
    return ECH_OK;
}

uint64_t echi_wire_lender(const struct echi_wire *w, const struct echi_net_event *message) {
    return w->room[(size_t)(message->meta - w->metas) / w->meta_max].m.cookie;
}

/* Takes the first post for a message's kind and name; false when there is none. */
static bool take_post(struct echi_wire *w, const struct echi_net_message *m, struct local_post *out) {
    for (int i = 0; i < w->posts; i++) {
        if (w->post[i].kind != m->kind || w->post[i].name != m->name) continue;
        *out = w->post[i];
        memmove(&w->post[i], &w->post[i + 1], (size_t)(--w->posts - i) * sizeof w->post[0]);
        return true;
    }
    return false;
}

/* Hands out what can be delivered, in order within each kind and name: where one waits for a post there is none for those behind it
 * either. Each takes at most two events: MESSAGE and, unless it is lent, SENT. */
static ech_status deliver(struct echi_wire *w, struct echi_net_event *out, int cap, int *count, struct ech_error *err) {
    for (int i = 0; i < w->messages && *count + 2 <= cap;) {
        struct local_message *l = w->message[i];
        const struct echi_net_message *m = &l->m;
        struct local_post post = {0};
        if (m->payload_len > 0 && !take_post(w, m, &post)) {
            i++;
            continue;
        }
        if (m->payload_len > post.cap)
            return echi_fail(err, ECH_E_INTERNAL, "run.deliver", "a message of %zu bytes to oneself has only %zu bytes of room",
                             m->payload_len, post.cap);
        const bool lent = m->payload_len > 0 && !post.buffer, copied = m->payload_len > 0 && !lent;
        if (copied && post.buffer != m->payload) memcpy(post.buffer, m->payload, m->payload_len);   /* slots may be one memory */
        out[(*count)++] = (struct echi_net_event){.type = ECHI_NET_MESSAGE, .peer = w->rank, .kind = m->kind, .name = m->name,
            .meta = l->meta, .meta_len = m->meta_len, .payload = lent ? (void *)(uintptr_t)m->payload : post.buffer,
            .payload_len = m->payload_len, .cookie = post.cookie};
        if (copied)
            out[(*count)++] = (struct echi_net_event){.type = ECHI_NET_SENT, .peer = w->rank, .kind = m->kind, .name = m->name,
                .cookie = m->cookie};
        memmove(&w->message[i], &w->message[i + 1], (size_t)(--w->messages - i) * sizeof w->message[0]);
        w->spare[LOCAL_MAX - ++w->n_given] = l;   /* its room is the caller's until the next poll */
    }
    return ECH_OK;
}

ech_status echi_wire_poll(struct echi_wire *w, int64_t deadline, struct echi_net_event *out, int cap, int *out_count,
                          struct ech_error *err) {
    *out_count = 0;
    while (w->n_given > 0) w->spare[w->free++] = w->spare[LOCAL_MAX - w->n_given--];
    while (w->n_back > 0 && *out_count < cap / 4) {
        w->n_back--;
        out[(*out_count)++] = (struct echi_net_event){.type = ECHI_NET_SENT, .peer = w->back[w->n_back].peer,
            .kind = w->back[w->n_back].kind, .cookie = w->back[w->n_back].cookie};
    }
    if (w->ready) ECHI_TRY(deliver(w, out, cap / 2, out_count, err));
    int more = 0;
    ECHI_TRY(echi_net_poll(w->net, *out_count ? 0 : deadline, out + *out_count, cap - *out_count, &more, err));
    for (int i = *out_count; i < *out_count + more; i++)
        if (out[i].type == ECHI_NET_READY) w->ready = true;
    *out_count += more;
    return ECH_OK;
}
