/* SPDX-License-Identifier: Apache-2.0
 * The roles of large clusters, up to the 1,024 nodes that a plan may have: whole runs, planned from step times, without arithmetic
 * (sched_sim.h has that, for few nodes). Messages pass through their bytes and arrive in order, tasks end in any order; some
 * nodes are lost on the way. Each sample that was asked for is applied exactly once, and nothing outgrows its bound. */
#include "echi_random.h"
#include "echi_roles.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { LAYERS = 2, TRAIN = 1u << 20, KILLS = 8 };

struct posted { struct posted *next; uint16_t from; uint8_t kind; struct echi_slot slot; };
struct message {
    struct message *next;
    uint32_t number;
    uint16_t from, to;
    uint8_t kind;
    struct echi_slot slot;
    size_t len;
    uint8_t bytes[];
};
struct work { uint16_t node, to; uint8_t kind; int layer; struct echi_task task; };   /* to, kind: of a payload that has left */
struct node {
    struct echi_setup setup;
    struct echi_node_role role;
    struct posted *posts;
    int asked;                              /* what the role waits for, an event; 0: nothing (START) */
    bool dead;
};
static struct cluster {
    int world;
    struct echi_random random;
    struct echi_coordinator coordinator;
    struct echi_action action[ECHI_ACTIONS_MAX];
    struct node node[ECHI_WORLD_MAX];
    struct message *first, *last; uint32_t sent;
    struct work work[8 * ECHI_WORLD_MAX]; int works;
    uint8_t applied[TRAIN];                 /* by sample */
    uint64_t events, held_back;             /* held_back: events of an owner that does not answer all because of a slower one */
    int most_actions, most_rows, lost;
    size_t most_bytes;
    bool done, owner_lost;
} s;

/* Four classes of nodes, each a quarter as fast as the one before. */
static int slower(int rank) { return 2 * (rank % 4); }

static void send(int from, int to, int kind, const uint8_t *bytes, size_t len, struct echi_slot slot) {
    if (s.node[to].dead) return;
    struct message *m = malloc(sizeof *m + len);
    assert_non_null(m);
    *m = (struct message){.number = s.sent++, .from = (uint16_t)from, .to = (uint16_t)to, .kind = (uint8_t)kind, .slot = slot, .len = len};
    memcpy(m->bytes, bytes, len);
    if (s.first) s.last->next = m;
    else s.first = m;
    s.last = m;
}

static void tell(int node, enum echi_role role, struct echi_event *e);
static void drop(int node, int peer);

/* Of the node role two messages have a body that is its driver's; of one it says nothing here. */
static void send_times(int rank) {
    uint8_t bytes[2 + ECHI_TIMES_BYTES_MAX] = {ECHI_ROLE_COORDINATOR, ECHI_ROLE_NODE};
    const double one = (1 << slower(rank)) * (1e-3 + 1e-6 * echi_random_unit(&s.random));
    const struct echi_times times = {.count = 2, .n = {1, 16}, .trunk = {one, 8 * one}, .head = {1e-6, 8e-6}};
    send(rank, 0, ECHI_KIND_MEASURED, bytes, 2 + echi_times_encode(&times, bytes + 2, sizeof bytes - 2), (struct echi_slot){0});
}

static void perform(int node, const struct echi_action *a) {
    struct node *n = &s.node[node];
    switch ((enum echi_action_type)a->type) {
    case ECHI_ACTION_SEND: {
        if (a->kind == ECHI_KIND_MEASURED) return send_times(node);
        uint8_t bytes[ECHI_MSG_MAX];
        const size_t len = echi_msg_encode(&a->msg, bytes, sizeof bytes);
        assert_in_range(len, 2, echi_kind_meta_cap(a->kind, s.world));
        if (len > s.most_bytes) s.most_bytes = len;
        send(node, a->to, a->kind, bytes, len, a->slot);
        if (!echi_kind_has_payload(a->kind)) break;
        /* The payload has left at once, but its role hears of that behind what it does now: as a task of no kind. */
        assert_true(s.works < 8 * ECHI_WORLD_MAX);
        s.work[s.works++] = (struct work){.node = (uint16_t)node, .to = a->to, .kind = a->kind,
                                          .task = {.kind = ECHI_TASKS, .role = a->msg.from_role, .weights = a->slot}};
        break;
    }
    case ECHI_ACTION_POST: {
        struct posted *p = malloc(sizeof *p), **end = &n->posts;
        assert_non_null(p);
        *p = (struct posted){.from = a->to, .kind = a->kind, .slot = a->slot};
        const enum echi_kind kind = (enum echi_kind)a->kind;
        for (int i = a->only ? 1 : echi_post_parts(&n->setup, kind, echi_post_owner(kind, node, a->to)); i > 1; i--) {
            struct posted *more = malloc(sizeof *more);
            *more = *p;
            p->next = more;
        }
        while (*end) end = &(*end)->next;
        *end = p;
        break;
    }
    case ECHI_ACTION_COMPUTE:
        if (a->task.kind == ECHI_TASK_HEAD && a->task.n_rows > s.most_rows) s.most_rows = a->task.n_rows;
        assert_true(s.works < 8 * ECHI_WORLD_MAX);
        s.work[s.works++] = (struct work){.node = (uint16_t)node, .layer = n->setup.cut, .task = a->task};
        break;
    case ECHI_ACTION_PLAN: {
        static uint8_t bytes[2 + ECHI_PLAN_BYTES_MAX];
        bytes[0] = bytes[1] = ECHI_ROLE_NODE;
        const size_t len = 2 + echi_plan_encode(&n->setup.plan, bytes + 2, sizeof bytes - 2);
        assert_in_range(len, 3, echi_kind_meta_cap(ECHI_KIND_PLAN, s.world));
        for (int r = 0; r < s.world; r++) send(0, r, ECHI_KIND_PLAN, bytes, len, (struct echi_slot){0});
        break;
    }
    case ECHI_ACTION_FAULT: fail_msg("rank %d: %s", node, a->msg.text); break;
    case ECHI_ACTION_DONE: s.done = true; break;
    case ECHI_ACTION_MEASURE: n->asked = ECHI_EVENT_MEASURED; break;
    case ECHI_ACTION_SLOTS: n->asked = ECHI_EVENT_SLOTS; break;
    case ECHI_ACTION_DROP: drop(node, a->to); break;
    case ECHI_ACTION_HOLD:   /* nothing is evaluated */
    case ECHI_ACTION_RELEASE:
    case ECHI_ACTION_FINAL:
    case ECHI_ACTION_LEAVE: break;
    }
}

/* The slots that were asked for are there: at first with memory for the roles. */
static void stand(int rank) {
    struct node *n = &s.node[rank];
    const struct echi_plan *p = &n->setup.plan;
    if (n->role.planned) return;
    n->setup.rank = rank;
    n->setup.n_layers = LAYERS;
    n->setup.cut = p->cut ? 1 : LAYERS;
    n->setup.cut_width = 1;
    if (echi_plan_hosts(p, rank, ECHI_ROLE_OWNER)) {
        assert_non_null(n->role.owner = malloc(sizeof *n->role.owner));
        memset(n->role.owner, 0xa5, sizeof *n->role.owner);
    }
    if (echi_plan_hosts(p, rank, ECHI_ROLE_HEAD)) {
        assert_non_null(n->role.head = malloc(sizeof *n->role.head));
        memset(n->role.head, 0xa5, sizeof *n->role.head);
    }
    if (echi_plan_hosts(p, rank, ECHI_ROLE_WORKER)) assert_non_null(n->role.worker = malloc(sizeof *n->role.worker));
}

static void tell(int node, enum echi_role role, struct echi_event *e) {
    struct node *n = &s.node[node];
    struct echi_actions list = {s.action, 0, ECHI_ACTIONS_MAX, false};
    e->now = (int64_t)++s.events;
    if (!echi_node_role_step(&n->role, role, e, &list)) return;
    assert_false(list.overflow);
    if (list.count > s.most_actions) s.most_actions = list.count;
    if (role == ECHI_ROLE_OWNER && echi_ranks_next(&n->role.owner->held_back, 0) >= 0) s.held_back++;
    /* No role is told anything meanwhile: the list, and the marks that it points to, stay as they are. */
    for (int i = 0; i < list.count; i++) perform(node, &list.list[i]);
    const int asked = n->asked;
    n->asked = 0;
    if (asked == ECHI_EVENT_SLOTS) stand(node);
    if (asked) tell(node, ECHI_ROLE_NODE, &(struct echi_event){.type = (uint8_t)asked});
}

static void forget_posts(struct node *n, int from) {   /* -1: of all */
    for (struct posted **at = &n->posts; *at;) {
        struct posted *p = *at;
        if (from >= 0 && p->from != from) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        free(p);
    }
}

/* Nothing of `peer` is taken any more. */
static void drop(int node, int peer) {
    for (struct message *q = s.first; q; q = q->next)
        if (q->to == node && q->from == peer) q->kind = ECHI_KINDS;
    forget_posts(&s.node[node], peer);
}

static void count_in(const struct echi_lease *l) {
    for (uint32_t i = l->start; i < l->start + l->n; i++) s.applied[i]++;
}

/* False when a payload has to wait for its place. */
static bool deliver(struct message *m) {
    struct node *n = &s.node[m->to];
    struct echi_msg msg;
    struct echi_event e = {.type = ECHI_EVENT_MESSAGE, .from = m->from, .msg = &msg, .bytes = m->bytes + 2, .len = m->len - 2};
    if (m->kind == ECHI_KINDS || n->dead) return true;
    if (echi_kind_has_payload(m->kind)) {
        struct posted **at = &n->posts;
        while (*at && ((*at)->from != m->from || (*at)->kind != m->kind)) at = &(*at)->next;
        struct posted *p = *at;
        if (!p) return false;
        for (const struct message *q = s.first; q; q = q->next)   /* one that has waited longer for that place */
            if (q->from == m->from && q->to == m->to && q->kind == m->kind && q->number < m->number) return false;
        e.slot = p->slot;
        *at = p->next;
        free(p);
    }
    assert_true(echi_msg_decode(m->kind, m->bytes, m->len, &msg));
    tell(m->to, (enum echi_role)msg.to_role, &e);
    return true;
}

/* One of the tasks that are out goes on: the gradient of a layer, the head's rows, or its end. A worker's take as much longer as
 * its node is slower. */
static void work_on(int at) {
    struct work now = s.work[at];
    const struct echi_task *t = &now.task;
    if (t->role == ECHI_ROLE_WORKER && t->kind != ECHI_TASKS && echi_random_below(&s.random, 1u << slower(now.node))) return;
    const struct echi_result result = {.loss = {1}};
    const bool layered = (t->kind == ECHI_TASK_STEP && t->until == 0) || (t->kind == ECHI_TASK_BACKWARD && t->micro + 1 == t->micros);
    const bool rows = t->kind == ECHI_TASK_HEAD && (t->weights_out.kind || t->state.kind);
    struct echi_event e = {.type = ECHI_EVENT_COMPUTED, .task = t, .result = &result};
    if (t->kind == ECHI_TASKS) e = (struct echi_event){.type = ECHI_EVENT_SENT, .from = now.to, .kind = now.kind, .slot = t->weights};
    if (t->kind != ECHI_TASKS && (layered || rows) && now.layer > 0) {
        e.type = ECHI_EVENT_GRADIENT;
        e.layer = layered ? now.layer - 1 : 0;
        s.work[at].layer = layered ? now.layer - 1 : 0;
    } else {
        s.work[at] = s.work[--s.works];
        if (t->kind == ECHI_TASK_APPLY && t->lease.n == t->samples &&
            s.node[now.node].role.owner->rules->push_arrived(&t->lease) == ECHI_TAKE_APPLY)
            count_in(&t->lease);
        if (t->kind == ECHI_TASK_ADD && t->only == 0) count_in(&t->lease);
        for (int i = 0; i < t->n_rows && t->only == 1; i++) count_in(&s.node[now.node].role.owner->push[t->rows[i]].lease);
    }
    if (!s.node[now.node].dead) tell(now.node, (enum echi_role)t->role, &e);
}

/* An owner first, where there are several, then whoever it hits. */
static void kill_one(void) {
    const struct echi_plan *p = &s.coordinator.plan;
    const int any = (int)(1 + echi_random_below(&s.random, (uint32_t)s.world - 1));
    const int rank = s.lost == 0 && p->n_groups > 1 ? p->owner_of[p->n_groups - 1] : any;
    if (s.node[rank].dead || !echi_plan_can_lose(p, rank)) return;
    s.owner_lost = s.owner_lost || echi_plan_group_owned(p, rank) >= 0;
    s.node[rank].dead = true;
    s.lost++;
    struct echi_event e = {.type = ECHI_EVENT_LOST, .from = (uint16_t)rank};
    tell(0, ECHI_ROLE_NODE, &e);
}

/* `n`: samples a step. */
static void run(enum echi_sync sync, int world, int separate, uint32_t n, int steps, bool kills) {
    memset(&s, 0, sizeof s);
    s.world = world;
    echi_random_init(&s.random, (uint64_t)world, ECHI_STREAM_TEST, (uint32_t)sync);
    const struct echi_plan_request request = {.sync = sync, .world = world, .separate = separate, .has_cut = separate,
                                              .samples_per_step = n,
                                       .shares = ECHI_SHARES_SPEED, .batch = n * (uint32_t)world, .staleness = 3, .lr = 0.1,
                                       .inner_steps = 3, .outer_lr = 0.7,
                                       .layers = {.count = LAYERS, .cut = 1, .params = {ECHI_PART_MERGED, ECHI_PART_MERGED}}};
    const struct echi_goal goal = {.train_samples = TRAIN, .samples = (uint64_t)world * n * (uint64_t)steps};
    assert_true(goal.samples <= TRAIN);
    echi_coordinator_init(&s.coordinator, &s.node[0].setup, &request, &goal, false);
    for (int r = 0; r < world; r++) echi_node_role_init(&s.node[r].role, &s.node[r].setup, r, world, false);
    s.node[0].role.coordinator = &s.coordinator;
    for (int r = 0; r < world; r++) tell(r, ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_START});
    uint64_t kill_at = (uint64_t)world * 20;
    while (!s.done) {
        if (s.works && (!s.first || echi_random_below(&s.random, 2))) {
            work_on((int)echi_random_below(&s.random, (uint32_t)s.works));
        } else {
            assert_non_null(s.first);   /* nothing moves, and the run has not ended */
            struct message *m = s.first;
            s.first = m->next;
            m->next = NULL;
            if (deliver(m)) {
                free(m);
            } else if (s.first) {
                s.last->next = m;
                s.last = m;
            } else {
                s.first = s.last = m;
            }
        }
        if (kills && s.events >= kill_at && s.lost < KILLS && s.coordinator.phase == ECHI_RUN_TRAINS) {
            kill_at = s.events + (uint64_t)world;
            kill_one();
        }
        assert_true(s.events < 200u * (uint64_t)world * (uint64_t)(steps + 20));
    }
    const struct echi_coordinator *c = &s.coordinator;
    assert_int_equal(c->status, ECH_OK);
    assert_true(c->applied == goal.samples && c->n_out == 0 && c->n_again == 0);
    assert_int_equal(s.lost, kills ? KILLS : 0);
    if (sync == ECHI_SYNC_SSP) assert_true(s.held_back > 0);
    /* What a lost owner had applied, and nobody else had of it, comes again. */
    for (uint32_t i = 0; i < goal.samples && !s.owner_lost; i++)
        if (s.applied[i] != 1) fail_msg("sample %u was applied %d times", i, s.applied[i]);
    assert_in_range(s.most_actions, 1, 4 * world + 512);
    assert_true(s.most_rows <= ECHI_MERGE_STEPS);
    if (n == 1) assert_int_equal(s.most_rows, ECHI_MERGE_STEPS);
    while (s.first) {
        struct message *m = s.first;
        s.first = m->next;
        free(m);
    }
    for (int r = 0; r < world; r++) {
        forget_posts(&s.node[r], -1);
        free(s.node[r].role.worker);
        free(s.node[r].role.owner);
        free(s.node[r].role.head);
    }
    print_message("  %d nodes, sync %d: %llu events, %d lost, %llu with weights held back, at most %d actions of one event, "
                  "messages of at most %zu bytes\n", world, (int)sync,
                  (unsigned long long)s.events, s.lost, (unsigned long long)s.held_back, s.most_actions, s.most_bytes);
}

static void bsp(void **state) {
    (void)state;
    run(ECHI_SYNC_BSP, 65, 0, 4, 5, false);
    run(ECHI_SYNC_BSP, 1024, 0, 4, 4, false);
    run(ECHI_SYNC_BSP, 1024, 1, 4, 4, true);
}

static void asp(void **state) {
    (void)state;
    run(ECHI_SYNC_ASP, 300, 0, 4, 5, true);
    run(ECHI_SYNC_ASP, 1024, 0, 4, 6, false);
    run(ECHI_SYNC_ASP, 1024, 1, 1, 6, false);   /* more steps wait at the head than one task takes */
}

static void ssp(void **state) {
    (void)state;
    run(ECHI_SYNC_SSP, 256, 0, 4, 24, true);
    run(ECHI_SYNC_SSP, 1024, 0, 4, 16, false);
}

static void gssp(void **state) {
    (void)state;
    run(ECHI_SYNC_GSSP, 128, 0, 4, 12, true);
    run(ECHI_SYNC_GSSP, 1024, 0, 4, 8, true);
    run(ECHI_SYNC_GSSP, 1024, 1, 4, 6, true);
}

static void local(void **state) {
    (void)state;
    run(ECHI_SYNC_LOCAL, 128, 0, 4, 12, true);
    run(ECHI_SYNC_LOCAL, 1024, 0, 4, 8, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bsp), cmocka_unit_test(asp), cmocka_unit_test(ssp), cmocka_unit_test(gssp),
                                       cmocka_unit_test(local)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
