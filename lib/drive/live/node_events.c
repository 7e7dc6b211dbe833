/* SPDX-License-Identifier: Apache-2.0
 * What happens to a node: the start, messages, lost peers, finished tasks. */
#include "echi_node.h"
#include "echi_address.h"
#include "echi_checkpoint.h"
#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_ratio.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------- to the node role */

void echi_node_tell(struct echi_node *n, enum echi_event_type type) {
    echi_node_event(n, ECHI_ROLE_NODE, &(struct echi_event){.type = (uint8_t)type});
}

void echi_node_lost(struct echi_node *n, int peer, bool orderly, const char *text) {
    echi_node_event(n, ECHI_ROLE_NODE,
                    &(struct echi_event){.type = ECHI_EVENT_LOST, .from = (uint16_t)peer, .flag = orderly, .text = text});
}

void echi_node_failed(struct echi_node *n, ech_status status, const char *text) {
    echi_node_event(n, ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_FAILED, .status = status, .text = text});
}

/* ---------------------------------------------------------- start-up */

/* On the lane's thread; the node takes the result when it is notified. */
static void measure_here(void *self) {
    struct echi_node *n = self;
    struct echi_device *device = echi_exec_device(n->exec);
    struct echi_cost_io io = {0};
    n->measure_status = echi_node_io(n->c->config, n->job, &io, &n->measure_error);
    if (n->link_byte > io.byte) io.byte = n->link_byte;
    if (n->measure_status == ECH_OK)
        n->measure_status = echi_measure(n->job, device, n->c->config->slow, n->lane, io, &n->times, &n->measure_error);
    (void)echi_lane_stay(n->lane);
    if (n->measure_status == ECH_OK && n->c->profile) {
        echi_profile_of(n->c->profile, echi_device_describe(device)->name, n->job->model, &n->times);
        n->measure_status = echi_measure_costs(n->job, device, &n->times, n->lane, io, n->c->profile, &n->measure_error);
    }
    atomic_store(&n->measured, true);
}

/* In a session the lane measures the head, if there is one, and then the caller the rest: neither holds the other up. */
static void measure_steps(struct echi_node *n) {
    if (n->job->model) return echi_lane_call(n->lane, measure_here, n);
    n->caller_measures = true;
    n->c->user->measure(n->c->user->self);
}

static bool caller_measured(struct echi_node *n) {
    struct echi_times steps;
    if (!n->c->user->measured(n->c->user->self, &steps, &n->measure_status)) return false;
    for (uint32_t i = 0; i < steps.count && n->job->model; i++) steps.head[i] = echi_times_head(&n->times, steps.n[i]);
    n->times = steps;
    return true;
}

/* False: not all of it yet. */
static bool has_measured(struct echi_node *n) {
    if (n->caller_measures) return caller_measured(n);
    if (!atomic_load(&n->measured)) return false;
    if (!n->job->session || n->measure_status != ECH_OK) return true;
    n->caller_measures = true;
    n->c->user->measure(n->c->user->self);
    return false;
}

/* Nodes of one machine have no link between them, and those of one process no address: what loopback costs is in the times of messages. */
static bool has_link(const struct echi_node *n) {
    const char *address = echi_wire_address(n->wire);
    return n->world > 1 && strncmp(address, "inproc", 6) != 0 && !echi_address_text_is_loopback(address);
}

/* Links first, because steps that are computed meanwhile would take longer. Step times take a while; the I/O thread goes on, so that
 * nobody takes this node for lost. */
void echi_node_measure(struct echi_node *n) {
    n->measuring = true;
    n->measuring_links = n->world > 1;
    const bool measures = n->c->config->link <= 0 && has_link(n);
    if (n->measuring_links) return echi_links_begin(&n->links, n->rank, n->world, measures, echi_node_now(n));
    measure_steps(n);
}

/* Bytes that are given to the system before they can leave, on a link of so many a second: those of 8 ms. A host whose share of a
 * processor is used up, or whose threads compute, does not come to send for milliseconds, and its link is idle once these are out: VGG-19
 * on 4 hosts of half a core (a quota each 8 ms), 1 Gb/s, images/s in turn with 1, 2 and 6 ms: 25.8 25.8 27.4, 25.6 25.8 27.0, 26.2 26.5
 * 27.0; GSSP with LeNet-5 at 100 Mb/s with 2 and 8 ms: 10,060 11,530, 11,560 12,150, 10,880 11,540. But what is urgent waits for them. No
 * more than a cache may still have when they leave. */
static uint32_t unsent_on(double rate) {
    const double most = 1 << 20, bytes = rate * 8e-3;
    return (uint32_t)(bytes > most ? most : bytes);
}

/* As --link says, or as it was measured. */
static struct echi_link own_link(const struct echi_node *n) {
    return n->c->config->link > 0 ? echi_link_of(n->c->config->link * 1e6 / 8) : n->links.link;
}

/* What a byte takes a host over these links: their packets come one by one, each with an interrupt, and many wake the I/O thread, while
 * loopback hands over what was sent at once. Of the millions of bytes that are measured the cheapest counts, since the first touch new
 * memory. In a run the thread takes less, as DATA is small, but part of the interrupts come while others of the host's threads compute,
 * and take their time. Four hosts of a test-bed, ns: the cheapest here; in a run of large parts all that the thread did, and interrupts
 * beside it: at 100 Mb/s 2.0 to 2.4, 1.5 and 0.5; at 1 Gb/s 0.5 to 0.8, 0.48 and 0.25; without a bound 0.38 to 0.52, 0.37 and 0. */
#define MOVED_ENOUGH ((uint64_t)1 << 20)
static void clock_links(struct echi_node *n) {
    const uint64_t moved = n->links.moved - n->links_moved;
    if (moved < MOVED_ENOUGH && n->links.moved > 0) return;
    const int64_t cpu = echi_thread_cpu();   /* a system call, so not for each message */
    const double byte = moved > 0 ? 1e-9 * (double)(cpu - n->links_cpu) / (double)moved : 0;
    if (byte > 0 && (n->link_byte == 0 || byte < n->link_byte)) n->link_byte = byte;
    n->links_moved = n->links.moved;
    n->links_cpu = cpu;
}

void echi_node_measure_links(struct echi_node *n) {
    uint8_t body[ECHI_LINKS_BYTES];
    bool for_credit;
    int peer;
    size_t len;
    if (!n->measuring_links) return;
    clock_links(n);
    for (;;) {
        const int partner = n->links.partner;
        if (partner >= 0 && (n->watched[partner].lost || n->role.gone[partner])) {
            echi_links_lost(&n->links, partner);
            continue;
        }
        const int queued = partner >= 0 ? echi_wire_waiting(n->wire, partner, ECHI_KIND_PROBE, &for_credit) : 0;
        if (!echi_links_next(&n->links, echi_node_now(n), queued, &peer, body, &len)) break;
        echi_node_send_body(n, peer, ECHI_KIND_PROBE, ECHI_ROLE_NODE, body, len);
    }
    if (!n->links.over) return;
    n->measuring_links = false;
    const struct echi_rate *out = &n->links.link.out, *in = &n->links.link.in;
    if (echi_link_slower(&n->links.link) > 0)
        echi_config_log(n->c->config, ECH_LOG_INFO,
                        "this node's link carries %.4g Mb/s out (%.4g to %.4g) and %.4g Mb/s in (%.4g to %.4g)%s",
                        out->rate * 8e-6, out->lowest * 8e-6, out->highest * 8e-6, in->rate * 8e-6, in->lowest * 8e-6, in->highest * 8e-6,
                        n->links.told ? ", as the plan says" : "");
    if (n->links.round_trip > 0)
        echi_config_log(n->c->config, ECH_LOG_INFO, "the shortest round trip to another node takes %.3g ms", n->links.round_trip * 1e3);
    measure_steps(n);
}

static void take_measured(struct echi_node *n) {
    if (!n->measuring || n->measuring_links) return;
    if (!has_measured(n)) return;
    n->measuring = false;
    if (n->measure_status != ECH_OK)
        return echi_node_failed(n, n->measure_status,
                                n->measure_error.text[0] ? n->measure_error.text : ech_status_text(n->measure_status));
    n->times.link = own_link(n);
    n->times.delay = echi_links_delay(&n->links, n->times.messages / ECHI_STEP_MESSAGES);
    if (n->report) echi_report_times(n->report, n->rank, &n->times);
    echi_node_tell(n, ECHI_EVENT_MEASURED);
}

static ech_status new_role(void *out, size_t size, struct ech_error *err) {
    void *p = calloc(1, size);
    if (!p) return echi_fail_memory(err, "run.setup", "a role");
    memcpy(out, &p, sizeof p);
    return ECH_OK;
}

/* How much of a gradient each group pushes, first and last. */
static void log_ratios(struct echi_node *n) {
    const struct echi_plan *p = &n->setup.plan;
    for (int g = 0; g < p->n_groups; g++)
        echi_config_log(n->c->config, ECH_LOG_INFO,
                        "plan: codec topk:%s: group %d pushes %.3g of a gradient at first, %.3g from the sixth epoch on; "
                        "%.3g of weights go back", echi_ratios_name((enum echi_ratios)p->ratios), g, echi_push_ratio(p, g, 0) * 1e-6,
                        echi_push_ratio(p, g, 5) * 1e-6, p->state_ratio * 1e-6);
}

/* The plan, in words, on every node. */
static void log_plan(struct echi_node *n) {
    const struct echi_plan *p = &n->setup.plan;
    if (n->world == 1) return;
    if (p->reserve)
        echi_config_log(n->c->config, ECH_LOG_INFO, "plan: rank %d keeps a place for a group of its own for who falls behind",
                        p->owner_of[p->n_groups - 1]);
    for (int g = 0; g < p->n_groups - p->reserve; g++) {
        char list[400] = "";
        size_t at = 0;
        for (int r = 0; r < p->world; r++)
            if (p->group_of[r] == g && at + 24 < sizeof list)
                at += (size_t)snprintf(list + at, sizeof list - at, p->inner[r] ? "%s%d (%u x %u)" : "%s%d (%u)", at ? ", " : "", r,
                                       p->n[r], p->inner[r]);
        echi_config_log(n->c->config, ECH_LOG_INFO, "plan: group %d: ranks (samples a step%s) %s; %s owned by rank %d%s", g,
                        p->sync == ECHI_SYNC_LOCAL ? " x steps a round" : "", list, p->cut ? "trunk" : "weights", p->owner_of[g],
                        p->shards ? " and others" : "");
    }
    for (int k = 0; k < p->shards; k++) {
        const int owner = p->shard_owner[k];
        echi_config_log(n->c->config, ECH_LOG_INFO, "plan: shard %d: %d parts, %zu parameters, owned by rank %d", k,
                        echi_post_parts(&n->setup, ECHI_KIND_PUSH, owner), echi_job_kept(n->job, p, owner, false), owner);
    }
    if (echi_plan_rings(p))
        echi_config_log(n->c->config, ECH_LOG_INFO, "plan: gradients are summed on a ring of all workers, in %d parts", p->parts.count);
    if (p->cut)
        echi_config_log(n->c->config, ECH_LOG_INFO, "plan: the head, from %s on, is trained by rank %d",
                        n->job->layer[p->cut].name, p->head);
    if (p->gathers) echi_config_log(n->c->config, ECH_LOG_INFO, "plan: the head computes each round's rows in one visit");
    if (p->activations)
        echi_config_log(n->c->config, ECH_LOG_INFO, "plan: activations and their gradients travel as %s",
                        echi_activations_name(p->activations));
    if (p->micro_batches) echi_config_log(n->c->config, ECH_LOG_INFO, "plan: each step is cut in %d micro-batches", p->micro_batches);
    for (int i = 0; i < p->heads; i++) {
        uint32_t rows = 0;
        for (int r = 0; r < p->world; r++) rows += p->head_of[r] == i ? p->n[r] : 0;
        echi_config_log(n->c->config, ECH_LOG_INFO, "plan: head %d of %d, rank %d, trains %u of %u rows of a round", i, p->heads,
                        p->head_rank[i], rows, p->round);
    }
    if (p->shadow > 0) echi_config_log(n->c->config, ECH_LOG_INFO, "plan: rank %d is the head's shadow", echi_plan_shadow(p));
    if (p->codec != ECHI_CODEC_DENSE) log_ratios(n);
    uint64_t at_once = 0;
    for (int r = 0; r < p->world; r++) at_once += p->n[r] * p->flights;
    if (!echi_policy_of((enum echi_sync)p->sync)->rounds && at_once > 4 * (uint64_t)p->round)
        echi_config_log(n->c->config, ECH_LOG_WARN,
                        "plan: %llu samples are on their way at once, more than 4 B (%u): expect staleness to hurt; lower "
                        "--samples-per-step or raise --batch", (unsigned long long)at_once, 4 * p->round);
}

/* Memory for the roles that the plan places here. */
static ech_status stand_roles(struct echi_node *n) {
    const struct echi_plan *p = &n->setup.plan;
    if (echi_plan_hosts(p, n->rank, ECHI_ROLE_WORKER)) ECHI_TRY(new_role(&n->role.worker, sizeof *n->role.worker, n->err));
    if (echi_plan_hosts(p, n->rank, ECHI_ROLE_OWNER)) ECHI_TRY(new_role(&n->role.owner, sizeof *n->role.owner, n->err));
    if (echi_plan_hosts(p, n->rank, ECHI_ROLE_HEAD)) ECHI_TRY(new_role(&n->role.head, sizeof *n->role.head, n->err));
    if (n->recorder) {
        char kernels[sizeof ((struct echi_recorded_setup *)0)->kernels];
        echi_exec_kernels(n->exec, kernels, sizeof kernels);
        echi_recorder_setup(n->recorder, &n->setup, kernels);
    }
    return ECH_OK;
}

/* Places for what checkpoints keep; in a resumed run the owners' momentum is in them first. */
static ech_status stand_checkpoints(struct echi_node *n, struct ech_error *err) {
    if (!n->c->checkpoints) return ECH_OK;
    const struct echi_checkpoint *from = echi_checkpoints_from(n->c->checkpoints);
    const float *kept[1 + ECHI_GROUPS_MAX];
    ECHI_TRY(echi_exec_setup_kept(n->exec, err));
    for (int i = 0; i < 1 + n->setup.plan.n_groups; i++) {
        float *slot = echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_COORD_KEPT, (uint8_t)i}, NULL);
        if (from && i > 0) echi_checkpoint_momentum(from, n->job, &n->setup.plan, i - 1, slot);
        kept[i] = slot;
    }
    return echi_checkpoints_start(n->c->checkpoints, &n->setup.plan, kept, echi_node_notify, n, err);
}

/* On the lane's thread, like measuring: the slots of a large model take seconds, and meanwhile this node must be heard. */
static void make_slots(void *self) {
    struct echi_node *n = self;
    n->slots_status = echi_exec_setup(n->exec, &n->setup, &n->slots_error);
    (void)echi_lane_stay(n->lane);
    if (n->slots_status == ECH_OK) n->slots_status = stand_checkpoints(n, &n->slots_error);
    (void)echi_lane_stay(n->lane);
    /* Who is played slow reads slowly, too: on the lane, which is held up. */
    if (n->slots_status == ECH_OK && n->c->config->slow <= 1)
        n->slots_status = echi_exec_read_ahead(n->exec, echi_node_has_spare(n->c->config), &n->slots_error);
    atomic_store(&n->has_slots, true);
}

/* On the lane's thread, as at the start: places for the gradients of workers that join this owner, and for weights of another owner. */
static void make_joined(void *self) {
    struct echi_node *n = self;
    n->full = false;
    n->slots_status = echi_exec_regroup(n->exec, &n->next_plan, &n->slots_error);
    if (n->slots_status == ECH_OK && n->next_plan.coming == 1 + n->rank) {
        n->slots_status = echi_exec_later_head(n->exec, &n->next_plan, &n->slots_error);
        n->full = n->slots_status == ECH_E_MEMORY;
        if (n->full) n->slots_status = ECH_OK;
    }
    atomic_store(&n->has_slots, true);
}

/* Rounds of BSP gain nothing where large messages leave one after the other: all owners turn to the same worker at a time (ResNet-18
 * through four owners at 100 Mb/s: 7.8 images/s for 8.4). */
static void give_way(struct echi_node *n) {
    const double rate = n->world > 1 ? own_link(n).out.rate : 0;
    if (rate > 0) echi_wire_give_way(n->wire, unsent_on(rate), n->setup.plan.sync == ECHI_SYNC_BSP ? 0 : rate);
}

static void set_up(struct echi_node *n) {
    const struct echi_plan *plan = &n->setup.plan;
    echi_job_setup(n->job, plan, n->rank, &n->setup);
    log_plan(n);
    give_way(n);
    const struct echi_checkpoint *from = n->c->checkpoints ? echi_checkpoints_from(n->c->checkpoints) : NULL;
    if (from && from->local != (plan->sync == ECHI_SYNC_LOCAL))
        echi_config_log(n->c->config, ECH_LOG_WARN,
                        "the checkpoint was made %s sync local, whose momentum is of another kind: momentum starts at zero",
                        from->local ? "with" : "without");
    else if (from && !echi_checkpoint_carries(from, plan))
        echi_config_log(n->c->config, ECH_LOG_WARN,
                        "the checkpoint was made with optimizer %s, this run has %s, which remembers gradients in another way: "
                        "its memory starts at zero", from->optimizer, echi_optimizer_name(plan->optimizer));
}

void echi_node_make_slots(struct echi_node *n) {
    struct ech_error why;
    const ech_status fits = echi_job_takes(n->job, &n->setup.plan, &why);
    if (fits != ECH_OK) {
        n->wrong.is = true;
        n->wrong.broke = false;
        n->wrong.status = fits;
        snprintf(n->wrong.text, sizeof n->wrong.text, "%.*s", (int)sizeof n->wrong.text - 1, why.text);
        return;
    }
    if (n->role.planned) echi_node_role_next(&n->role, &n->next_plan);
    else set_up(n);
    n->standing = true;
    echi_lane_call(n->lane, n->role.planned ? make_joined : make_slots, n);
}

/* -------------------------------------------------------- slots are there */

static ech_status begin_roles(struct echi_node *n) {
    ECHI_TRY(stand_roles(n));
    if (n->role.coordinator && n->c->params) {
        echi_real *first = echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0}, NULL);
        if (first != n->c->params) memcpy(first, n->c->params, n->job->n_params * sizeof *first);
    }
    if (n->c->started) n->c->started(n->c->started_self, n->wire, n->exec);
    return ECH_OK;
}

static void log_line(struct echi_node *n, enum ech_log_level level, const char *line) { echi_config_log(n->c->config, level, "%s", line); }
static void log_kernel(void *self, const char *line) { log_line(self, ECH_LOG_DEBUG, line); }
static void log_fallback(void *self, const char *line) { log_line(self, ECH_LOG_WARN, line); }

/* Memory for the role of a head, where its layers are about to come here. */
static ech_status stand_later_head(struct echi_node *n) {
    if (n->full) echi_config_log(n->c->config, ECH_LOG_WARN, "this node gets no copy of the separated layers: %s", n->slots_error.text);
    if (n->full || n->role.head || n->next_plan.coming != 1 + n->rank) return ECH_OK;
    return new_role(&n->role.head, sizeof *n->role.head, &n->slots_error);
}

static void take_slots(struct echi_node *n) {
    if (!n->standing || !atomic_load(&n->has_slots)) return;
    n->standing = false;
    atomic_store(&n->has_slots, false);
    if (n->slots_status == ECH_OK && !n->role.planned) {
        echi_exec_tell_kernels(n->exec, log_kernel, n);
        echi_exec_tell_fallbacks(n->exec, log_fallback, n);
        n->slots_status = begin_roles(n);
        if (n->slots_status != ECH_OK) n->slots_error = *n->err;
    }
    if (n->slots_status == ECH_OK && n->role.planned) n->slots_status = stand_later_head(n);
    if (n->slots_status == ECH_OK)
        echi_node_event(n, ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_SLOTS, .flag = n->full});
    else echi_node_failed(n, n->slots_status, n->slots_error.text);
}

/* ------------------------------------------------------------ messages */

void echi_node_stats(const struct echi_node *n, uint8_t body[ECHI_STATS_BYTES]) {
    uint64_t bytes[ECHI_NET_KINDS_MAX + 1] = {0};
    echi_wire_bytes_sent(n->wire, bytes);
    for (int k = 0; k <= ECHI_KINDS; k++) echi_store64(body + 8 * k, bytes[k]);
    echi_store64(body + 8 * (ECHI_KINDS + 1), n->role.head ? n->role.head->repeats : 0);
    for (int i = 0; i < 4; i++) echi_store64(body + 8 * (ECHI_KINDS + 2 + i), n->coded[i]);
    echi_store64(body + 8 * (ECHI_KINDS + 6), n->role.worker ? n->role.worker->residuals_cleared : 0);
    _Static_assert(ECHI_STATS_USES == ECHI_USES, "the message has a place for each use");
    for (int use = 0; use < ECHI_USES; use++) echi_store64(body + 8 * (ECHI_KINDS + 7 + use), (uint64_t)n->role.usage.ns[use]);
}

void echi_node_leaves(struct echi_node *n, const struct echi_msg *why) {
    const ech_status status = (ech_status)why->layer;
    const int peer = why->peer == ECHI_NO_RANK ? -1 : why->peer;
    char who[16] = "";
    if (why->kind == ECHI_KIND_LOST) {
        echi_fail_at(n->err, status, "run", 0, NULL, "rank 0, the coordinator, was lost (%s): this node leaves", why->text);
        return;
    }
    if (peer >= 0) snprintf(who, sizeof who, "rank %d: ", peer);
    /* Only what rank 0 says is news: "run.end" tells a caller who sees both. */
    if (peer == n->rank && (status == ECH_E_PEER_LOST || status == ECH_E_TIMEOUT))
        echi_fail_at(n->err, status, "run.end", peer, NULL, "this node was left out of the run: %s",
                     why->text[0] ? why->text : "nothing was heard of it");
    else if (peer == n->rank && status == ECH_E_ABORTED)
        echi_fail(n->err, status, "run", "this node's part in the run is over: %s", why->text);
    else if (status == ECH_E_PEER_LOST)
        echi_fail_at(n->err, status, "run.end", peer, NULL, "rank %d was lost: the coordinator ended the run", peer);
    else if (status != ECH_OK)
        echi_fail_at(n->err, status, "run.end", peer, NULL, "the coordinator ended the run: %s%s", who,
                     why->text[0] ? why->text : ech_status_text(status));
}

static void on_stats(struct echi_node *n, int from, const uint8_t *body, size_t len) {
    double seconds[ECHI_USES];
    if (len != ECHI_STATS_BYTES) return;
    for (int k = 0; k <= ECHI_KINDS; k++) n->sent_by_kind[k] += echi_load64(body + 8 * k);
    n->head_repeats += echi_load64(body + 8 * (ECHI_KINDS + 1));
    for (int i = 0; i < 4; i++) n->coded_of_all[i] += echi_load64(body + 8 * (ECHI_KINDS + 2 + i));
    n->residuals_cleared += echi_load64(body + 8 * (ECHI_KINDS + 6));
    for (int use = 0; use < ECHI_USES; use++) seconds[use] = 1e-9 * (double)echi_load64(body + 8 * (ECHI_KINDS + 7 + use));
    if (n->report) echi_report_usage(n->report, from, seconds);
}

/* Whose layers, for an evaluation or for a checkpoint, or whose momentum: where such a part belongs. While a checkpoint is not being
 * gathered its slots are being written to a file. */
static struct echi_slot place_of(const struct echi_node *n, int from, const struct echi_msg *m) {
    const bool gathers = n->role.coordinator->phase == ECHI_RUN_GATHERS || n->role.coordinator->phase == ECHI_RUN_LAST_KEEP;
    const struct echi_plan *p = &n->setup.plan;
    if (!gathers) return m->flag == ECHI_PARAMS_PART ? echi_job_params_slot(p, m) : (struct echi_slot){0};
    if (n->role.coordinator->writing) return (struct echi_slot){0};
    if (m->flag == ECHI_PARAMS_KEPT) return (struct echi_slot){ECHI_SLOT_COORD_KEPT, 0};
    if (m->flag == ECHI_PARAMS_MOMENTUM && m->from_role == ECHI_ROLE_HEAD) return (struct echi_slot){ECHI_SLOT_COORD_KEPT, 1};
    const int group = echi_plan_group_owned(p, from);
    if (m->flag != ECHI_PARAMS_MOMENTUM || group < 0) return (struct echi_slot){0};
    return (struct echi_slot){ECHI_SLOT_COORD_KEPT, (uint8_t)(1 + group)};
}

/* Puts a part of the weights or of the momentum in its place. When the run cannot go on parts of a checkpoint may still come. */
static bool place_params(struct echi_node *n, const struct echi_net_event *e, const struct echi_msg *m) {
    size_t at, len;
    if (n->role.coordinator->phase == ECHI_RUN_RESCUES && m->flag != ECHI_PARAMS_PART) return true;
    uint8_t *to = echi_exec_slot(n->exec, place_of(n, e->peer, m), NULL);
    echi_node_extent(n, ECHI_KIND_PARAMS, m, m->from_role == ECHI_ROLE_HEAD, &at, &len);
    if (!to || e->payload_len != len) return false;
    echi_job_take_params(n->job, &n->setup.plan, e->peer, m, e->payload, to);
    return true;
}

/* Of what came to another slot than it was posted for, the owner's parts go there. */
static void take_landed(struct echi_node *n, int kind, struct echi_slot slot) {
    const struct echi_slot from = echi_node_landing(n, kind, slot);
    struct echi_range range[ECHI_PARTS_MAX];
    if (from.kind == slot.kind) return;
    const int ranges = echi_job_ranges(n->job, &n->setup.plan, n->rank, false, range);
    const echi_real *came = echi_exec_slot(n->exec, from, NULL);
    echi_real *to = echi_exec_slot(n->exec, slot, NULL);
    for (int i = 0; i < ranges; i++) memcpy(to + range[i].at, came + range[i].at, range[i].count * sizeof *to);
}

/* The payload is for the role that asked for it and has the length that its message promises; the labels of rows are labels. */
static bool payload_fits(struct echi_node *n, const struct echi_net_event *e, const struct echi_msg *m) {
    if (!echi_kind_has_payload(e->kind)) return true;
    if (!n->role.planned || m->to_role != echi_node_role_of(e->cookie)) return false;
    if (!echi_job_knows(n->job, &n->setup.plan, m)) return false;
    size_t at, len;
    echi_node_extent(n, e->kind, m, m->from_role == ECHI_ROLE_HEAD || m->to_role == ECHI_ROLE_HEAD, &at, &len);
    if (!echi_job_fits(&n->setup.plan, e->kind, e->payload, e->payload_len, len)) return false;
    if (e->kind != ECHI_KIND_ACT) return true;
    const uint8_t *labels = (const uint8_t *)e->payload + m->lease.n * echi_job_row_bytes(n->job, &n->setup.plan);
    for (uint32_t i = 0; i < m->lease.n; i++)
        if (echi_load16(labels + i * ECHI_LABEL_BYTES) >= n->job->classes) return false;
    return true;
}

/* A lease is about samples that exist; a message that carries none has one of zeros. */
static bool lease_fits(const struct echi_node *n, const struct echi_lease *l) {
    return l->n <= n->job->train_samples && l->start <= n->job->train_samples - l->n;
}

static void malformed(struct echi_node *n, const struct echi_net_event *e) {
    char text[160];
    snprintf(text, sizeof text, "rank %d sent a malformed %s message to rank %d: do all nodes run the same version?", e->peer,
             echi_kind_name(e->kind) ? echi_kind_name(e->kind) : "?", n->rank);
    echi_node_event(n, ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_BROKE, .from = (uint16_t)e->peer, .text = text});
}

/* What rank 0 tells its nodes, at rank 0. */
static void log_change(struct echi_node *n, const struct echi_msg *m) {
    if (!n->role.coordinator) return;
    if (m->kind == ECHI_KIND_REGROUP) echi_move_log(n->c->config, n->role.coordinator, m);
    const bool ring_ends = n->setup.plan.exchange == ECHI_EXCHANGE_RING && n->role.coordinator->takeover.count == 1;
    if (m->kind == ECHI_KIND_TAKEOVER && ring_ends)
        echi_config_log(n->c->config, ECH_LOG_WARN, "the ring has ended: from round %llu on gradients go to their owners",
                        (unsigned long long)m->version);
    if (m->kind == ECHI_KIND_TAKEOVER && (!ring_ends || n->role.coordinator->takeover.params > 0))
        echi_config_log(n->c->config, ECH_LOG_WARN,
                        "the parameters of lost owners have other owners, from round %llu on; so far the momentum of %llu parameters "
                        "began anew",
                        (unsigned long long)m->version, (unsigned long long)n->role.coordinator->takeover.params);
    if (m->kind == ECHI_KIND_LOST && !m->group)
        echi_config_log(n->c->config, ECH_LOG_WARN, "rank %d was lost (%s): the others go on, what it had not finished is issued again",
                        m->peer, m->text[0] ? m->text : "nothing was heard of it");
    const struct echi_plan *p = &n->setup.plan;
    if (m->kind == ECHI_KIND_HEADS) return echi_homes_log(n->c->config, n->role.coordinator, p, m);
    if (m->kind != ECHI_KIND_LOST || m->group || p->shadow == 0) return;
    if (m->peer == p->head)
        echi_config_log(n->c->config, ECH_LOG_WARN, "the separated layers are trained by their shadow, rank %d, from now on; until it has "
                        "one its loss would end the run", echi_plan_shadow(p));
    if (m->peer == echi_plan_shadow(p))
        echi_config_log(n->c->config, ECH_LOG_WARN, "the head, rank %d, has no shadow any more: until it has another its loss would end "
                        "the run", p->head);
}

static void on_message(struct echi_node *n, const struct echi_net_event *e) {
    struct echi_msg m;
    if (n->role.gone[e->peer]) return;   /* what was on its way */
    if (!echi_msg_decode(e->kind, e->meta, e->meta_len, &m) || e->name != echi_msg_name(&m) || !lease_fits(n, &m.lease) ||
        !payload_fits(n, e, &m))
        return malformed(n, e);
    if (m.kind == ECHI_KIND_HEARTBEAT && m.to_role == ECHI_ROLE_NODE && m.from_role == ECHI_ROLE_NODE) return;   /* node_watch.c's own */
    if (m.kind == ECHI_KIND_PROBE) {   /* for no role */
        if (!echi_links_hear(&n->links, e->peer, e->meta + 2, e->meta_len - 2, echi_node_now(n))) malformed(n, e);
        return;
    }
    if (m.to_role == ECHI_ROLE_NODE && e->peer == 0) log_change(n, &m);
    if (m.to_role == ECHI_ROLE_COORDINATOR && m.kind == ECHI_KIND_STATS) on_stats(n, e->peer, e->meta + 2, e->meta_len - 2);
    if (m.to_role == ECHI_ROLE_COORDINATOR && m.kind == ECHI_KIND_MEASURED && n->report && n->role.coordinator) {
        struct echi_times times;
        if (echi_times_decode(e->meta + 2, e->meta_len - 2, &times)) echi_report_times(n->report, e->peer, &times);
    }
    if (m.to_role == ECHI_ROLE_COORDINATOR && m.kind == ECHI_KIND_PARAMS && n->role.coordinator && !place_params(n, e, &m))
        return malformed(n, e);
    struct echi_event event = {.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)e->peer, .msg = &m, .bytes = e->meta + 2,
        .len = e->meta_len - 2, .slot = echi_node_slot(e->cookie)};
    if (echi_kind_has_payload(e->kind)) take_landed(n, e->kind, event.slot);
    if (echi_lends(&n->setup.plan, e->peer, n->rank, (enum echi_kind)e->kind))
        echi_loans_begin(&n->role.loans, (enum echi_kind)e->kind, event.slot, echi_node_slot(echi_wire_lender(n->wire, e)));
    echi_node_event(n, (enum echi_role)m.to_role, &event);
}

void echi_node_on_net(struct echi_node *n, const struct echi_net_event *e) {
    switch (e->type) {
    case ECHI_NET_WAITING: echi_config_log(n->c->config, ECH_LOG_INFO, "%s", e->text); break;
    case ECHI_NET_READY:
        n->ready = true;
        echi_watch_begin(n);
        if (n->world > 1) echi_config_log(n->c->config, ECH_LOG_INFO, "all %d nodes have joined; measuring step times", n->world);
        if (n->job->model && echi_device_threads(echi_exec_device(n->exec)) > 1)
            echi_config_log(n->c->config, ECH_LOG_INFO, "rank %d computes on %d threads", n->rank,
                            echi_device_threads(echi_exec_device(n->exec)));
        echi_node_tell(n, ECHI_EVENT_START);
        break;
    case ECHI_NET_MESSAGE: on_message(n, e); break;
    case ECHI_NET_SENT: {
        struct echi_event event = {.type = ECHI_EVENT_SENT, .from = (uint16_t)e->peer, .kind = (uint8_t)e->kind,
            .slot = echi_node_slot(e->cookie)};
        echi_node_event(n, echi_node_role_of(e->cookie), &event);
        break;
    }
    case ECHI_NET_LOST:
        n->watched[e->peer].lost = true;
        echi_node_lost(n, e->peer, e->orderly, e->text);
        break;
    }
}

/* ----------------------------------------------------- computed things */

static void on_done(struct echi_node *n, const struct echi_done *d) {
    if (d->status != ECH_OK) {
        if (n->err) *n->err = d->error;
        return echi_node_failed(n, d->status, d->error.text);
    }
    struct echi_event event = {.type = d->gradient ? ECHI_EVENT_GRADIENT : ECHI_EVENT_COMPUTED, .layer = d->layer, .task = &d->task,
        .result = &d->result};
    echi_node_event(n, (enum echi_role)d->task.role, &event);
}

/* One that could not be written is no reason to end the training that it was to protect: the next is tried. */
static void on_kept(struct echi_node *n, const struct echi_done *d) {
    const struct ech_config *config = n->c->config;
    if (d->status == ECH_OK) echi_config_log(config, ECH_LOG_INFO, "checkpoint written: %s", echi_checkpoints_last(n->c->checkpoints));
    else echi_config_log(config, ECH_LOG_WARN, "no checkpoint this time: %s", d->error.text);
    const int left = echi_checkpoints_squeezed(n->c->checkpoints);
    if (left)
        echi_config_log(config, ECH_LOG_WARN, "the disk is full: the oldest checkpoints were removed, %d of --keep %d are left: free some "
                        "space", left, config->keep);
    struct echi_event event = {.type = ECHI_EVENT_COMPUTED, .task = &d->task, .result = &d->result};
    echi_node_event(n, ECHI_ROLE_COORDINATOR, &event);
}

/* Of a session's step the lane has computed the head's part, on rows that came from the caller, who goes on with the answer. */
static bool is_answer(const struct echi_node *n, const struct echi_done *d) {
    return n->c->user && d->task.kind == ECHI_TASK_STEP && !d->gradient && d->status == ECH_OK;
}

static void on_lane_done(struct echi_node *n, const struct echi_done *d) {
    if (is_answer(n, d)) n->c->user->answer(n->c->user->self, d->result.loss[0], d->result.correct[0]);
    else on_done(n, d);
}

static void on_caller_done(struct echi_node *n, const struct echi_done *d) {
    if (!d->rows) return on_done(n, d);
    const ech_status status = echi_lane_submit(n->lane, &d->task, n->err);
    if (status != ECH_OK) echi_node_give_up(n, status);
}

void echi_node_take_done(struct echi_node *n) {
    struct echi_done d;
    take_measured(n);
    take_slots(n);
    while (!n->over && echi_lane_take(n->lane, &d)) on_lane_done(n, &d);
    if (!n->over && n->c->checkpoints && echi_checkpoints_take(n->c->checkpoints, &d)) on_kept(n, &d);
    while (!n->over && n->c->user && n->c->user->take(n->c->user->self, &d)) on_caller_done(n, &d);
    if (n->held_asked && echi_lane_is_held(n->lane)) {
        n->held_asked = false;
        echi_node_tell(n, ECHI_EVENT_HELD);
    }
}
