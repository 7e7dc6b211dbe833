/* SPDX-License-Identifier: Apache-2.0
 * Messages to their posted buffers, and the ring of events. */
#include "echi_error.h"
#include "echi_net_impl.h"

#include <inttypes.h>
#include <string.h>

bool echi_event_room(const struct echi_net *net) { return net->n_events < ECHI_NET_EVENTS || net->phase == ECHI_NET_CLOSING; }

struct echi_net_event *echi_event_add(struct echi_net *net, enum echi_net_event_type type, int peer) {
    /* At the end nobody listens any more: events fall into the first slot. */
    int at = net->phase == ECHI_NET_CLOSING ? 0 : (net->first_event + net->n_events++) % ECHI_NET_EVENTS;
    net->events[at] = (struct echi_net_event){.type = type, .peer = peer, .meta = net->event_metas + net->meta_max * (size_t)at};
    return &net->events[at];
}

void echi_event_void(struct echi_net *net, int peer) {
    for (int i = net->handed; i < net->n_events; i++) {
        struct echi_net_event *event = &net->events[(net->first_event + i) % ECHI_NET_EVENTS];
        if (event->peer == peer && event->type == ECHI_NET_MESSAGE) event->type = ECHI_EVENT_VOID;
    }
}

void echi_event_sent(struct echi_net *net, struct echi_message *list) {
    for (struct echi_message *m = list, *next; m; m = next) {
        next = m->next;
        if (m->len > 0) {
            m->next = NULL;
            *net->sent_end = m;
            net->sent_end = &m->next;
        } else {
            echi_pool_give(&net->messages, m);
        }
    }
}

void echi_event_collect(struct echi_net *net) {
    if (net->has_news && echi_event_room(net)) {
        net->has_news = false;
        echi_event_add(net, ECHI_NET_WAITING, -1)->text = net->news;
    }
    while (net->sent_first && echi_event_room(net)) {
        struct echi_message *m = net->sent_first;
        net->sent_first = m->next;
        if (!m->next) net->sent_end = &net->sent_first;
        struct echi_net_event *event = echi_event_add(net, ECHI_NET_SENT, m->peer);
        event->kind = m->kind;
        event->name = m->name;
        event->payload_len = (size_t)m->len;
        event->cookie = m->cookie;
        echi_pool_give(&net->messages, m);
    }
    for (int i = 0; i < net->world && net->lost_untold > 0 && echi_event_room(net); i++) {
        struct echi_peer *peer = &net->peers[i];
        if (!peer->untold) continue;
        peer->untold = false;
        net->lost_untold--;
        struct echi_net_event *event = echi_event_add(net, ECHI_NET_LOST, i);
        event->orderly = peer->orderly;
        event->text = peer->text;
    }
}

static struct echi_net_event *add_message(struct echi_net *net, int rank, const struct echi_frame *frame, const uint8_t *meta,
                                          size_t meta_len) {
    struct echi_net_event *event = echi_event_add(net, ECHI_NET_MESSAGE, rank);
    event->kind = frame->kind;
    event->name = frame->name;
    event->meta_len = meta_len;
    if (meta_len) memcpy(net->event_metas + (event->meta - net->event_metas), meta, meta_len);
    return event;
}

/* The first chunk of a payload: it needs a posted buffer that holds it. */
static ech_status begin_payload(struct echi_peer *peer, struct echi_inlet *inlet, const struct echi_net_kind *kind,
                                const struct echi_receive *r, struct ech_error *err) {
    const struct echi_frame *f = &r->frame;
    if (inlet->open) return echi_fail(err, ECH_E_FORMAT, "net.read", "began a '%s' within another of its name", kind->name);
    if (!inlet->first) return echi_fail(err, ECH_E_FORMAT, "net.read", "sent a '%s' without a credit", kind->name);
    if (f->total > inlet->first->cap)
        return echi_fail(err, ECH_E_FORMAT, "net.read",
                         "sent a '%s' of %" PRIu64 " bytes into a buffer of %zu: both must size it alike", kind->name, f->total,
                         inlet->first->cap);
    inlet->open = true;
    peer->under_way++;
    inlet->number = f->message;
    inlet->total = f->total;
    inlet->got = 0;
    inlet->meta_len = f->meta_len;
    if (f->meta_len) memcpy(inlet->meta, r->meta, f->meta_len);
    return ECH_OK;
}

static struct echi_inlet *inlet_of(struct echi_net *net, int rank, const struct echi_frame *frame) {
    return &net->peers[rank].inlets[echi_queue_lane(&net->peers[rank].queue, frame->kind, frame->name)];
}

static ech_status deliver_data(struct echi_net *net, int rank, struct echi_receive *r, struct ech_error *err) {
    const struct echi_frame *f = &r->frame;
    const struct echi_net_kind *kind = &net->kinds[f->kind];
    struct echi_inlet *inlet = inlet_of(net, rank, f);
    if (f->total == 0) {
        if (inlet->open) return echi_fail(err, ECH_E_FORMAT, "net.read", "began a '%s' within another of its name", kind->name);
        add_message(net, rank, f, r->meta, f->meta_len);
        return ECH_OK;
    }
    if (f->offset == 0) ECHI_TRY(begin_payload(&net->peers[rank], inlet, kind, r, err));
    if (!inlet->open || f->offset != inlet->got || f->message != inlet->number || f->total != inlet->total)
        return echi_fail(err, ECH_E_FORMAT, "net.read", "sent a chunk of '%s' out of order", kind->name);
    echi_receive_place(r, inlet->first->buffer + f->offset);
    return ECH_OK;
}

void echi_deliver_chunk(struct echi_net *net, int rank, const struct echi_frame *frame) {
    struct echi_inlet *inlet = inlet_of(net, rank, frame);
    inlet->got += frame->chunk_len;
    if (inlet->got < inlet->total) return;
    struct echi_post *post = inlet->first;
    inlet->first = post->next;
    inlet->posts--;
    inlet->open = false;
    net->peers[rank].under_way--;
    echi_queue_used(&net->peers[rank].queue, frame->kind, frame->name);
    struct echi_net_event *event = add_message(net, rank, frame, inlet->meta, inlet->meta_len);
    event->payload = post->buffer;
    event->payload_len = (size_t)inlet->total;
    event->cookie = post->cookie;
    echi_pool_give(&net->posts, post);
}

ech_status echi_deliver_frame(struct echi_net *net, int rank, struct echi_receive *r, struct ech_error *err) {
    if (r->frame.type == ECHI_FRAME_DATA) return deliver_data(net, rank, r, err);
    if (!echi_queue_granted(&net->peers[rank].queue, r->frame.kind, r->frame.name, (int)r->frame.offset + 1, (uint32_t)r->frame.total))
        return echi_fail(err, ECH_E_FORMAT, "net.read", "granted more than %u credits", ECHI_NET_CREDITS_MAX);
    return ECH_OK;
}

void echi_peer_lose(struct echi_net *net, int rank, bool orderly, const char *why) {
    struct echi_peer *peer = &net->peers[rank];
    struct echi_conn *conn = peer->conn;
    echi_text_print(peer->text, sizeof peer->text, "rank %d %s", rank, why);
    peer->state = ECHI_PEER_LOST;
    peer->orderly = orderly;
    peer->untold = true;
    net->lost_untold++;
    peer->conn = NULL;
    net->open_flows -= peer->flow.open;
    net->flow.open = net->open_flows > 0;
    peer->flow.open = false;
    echi_conn_close(net, conn);
    echi_event_sent(net, echi_queue_clear(&peer->queue));
    for (int i = 0; i < peer->queue.n_lanes; i++) {
        struct echi_inlet *inlet = &peer->inlets[i];
        while (inlet->first) {
            struct echi_post *post = inlet->first;
            inlet->first = post->next;
            echi_pool_give(&net->posts, post);
        }
        inlet->posts = 0;
        inlet->open = false;
    }
}
