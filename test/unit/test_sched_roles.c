/* SPDX-License-Identifier: Apache-2.0
 * The roles of whole clusters, thousands of runs under every policy, and single roles that are told wrong things.
 * SEED=17 build/test/unit/test_sched_roles repeats one run of each. */
#include "sched_suites.h"
#include "echi_coordinator_impl.h"

#include <math.h>

#define RUNS (2000 / test_part())

/* ---- kills ---- */

static enum echi_sync in_turn(struct sim *s) { return (enum echi_sync)(s->seed % ECHI_SYNCS); }
static enum echi_sync any(struct sim *s) { return (enum echi_sync)below(s, ECHI_SYNCS); }

/* What losses can bring about does come about. */
static void kills(void **state) {
    (void)state;
    struct came all;
    if (run_kills(in_turn, 4 * RUNS, &all))
        assert_true(all.killed > RUNS && all.owners > 100 / test_part() && all.again > RUNS && all.repeats > RUNS);
}

/* The only owner is killed: what a round has made of the weights is saved, to the bit, by whoever has it. */
static void the_only_owner_dies(void **state) {
    (void)state;
    struct counts counts = {0};
    uint64_t ended = 0, seed;
    for (const uint64_t last = seeds(2 * RUNS, &seed); seed <= last; seed++) {
        struct sim *s = sim_new(seed);
        chosen(s, ECHI_SYNC_BSP);
        s->goal.give_final = false;
        s->plan.codec = ECHI_CODEC_DENSE;
        s->plan.state_ratio = 0;
        memset(s->plan.base, 0, sizeof s->plan.base);
        s->rates = (struct rates){.safety = 1000, .fatal = 1, .every = 40};
        s->counts = &counts;
        sim_run(s);
        if (s->coordinator.status == ECH_E_PEER_LOST) check_rescued(s);
        else check_all(s);
        ended += s->coordinator.status == ECH_E_PEER_LOST;
    }
    if (ended > RUNS / 4) assert_true(counts.rescued > ended / 16);
}

/* Workers join other groups at any events, also while nodes die: whoever applied what, each sample counts once, and all owners end
 * with the same weights. */
static void run_moves(uint64_t runs, bool with_kills) {
    uint64_t moves = 0, back = 0, returned = 0, owners = 0, seed;
    for (const uint64_t last = seeds(runs, &seed); seed <= last; seed++) {
        struct sim *s = sim_new(seed);
        do {
            memset(&s->plan, 0, sizeof s->plan);
            chosen(s, ECHI_SYNC_GSSP);
        } while (s->plan.n_groups < 2);
        for (int i = 0; i < MOVES; i++) s->move_at[i] = 20 + below(s, below(s, 2) ? 300 : 2000);
        for (int i = 0; i < KILLS && with_kills; i++) {
            s->kill_at[i] = below(s, 3) ? 1 + below(s, below(s, 2) ? 500 : 2000) : 0;
            s->kill_rank[i] = below(s, 3) ? -1 : s->plan.owner_of[below(s, s->plan.n_groups)];
        }
        sim_run(s);
        check_all(s);
        moves += (uint64_t)s->moves;
        back += s->handed_back;
        owners += s->owner_killed;
        for (int r = 0; r < s->plan.world; r++) returned += s->coordinator.moved[r] > 1;
    }
    if (getenv("SEED")) return;
    if (moves < runs || back < runs || returned < runs / 10 || (with_kills && owners < runs / 10))
        fail_msg("%d moves, %d leases handed back, %d moved again, %d owners", (int)moves, (int)back, (int)returned, (int)owners);
}

static void moves(void **state) { (void)state; run_moves(2 * RUNS, false); }
static void moves_and_kills(void **state) { (void)state; run_moves(2 * RUNS, true); }

/* Two groups, of nodes of like speed in each. From some event on rank 2 is as slow as the other group, for good or not at all. */
static struct sim *speeds(uint64_t seed, bool changes) {
    struct sim *s = sim_new(seed);
    struct echi_plan *p = &s->plan;
    s->goal = (struct echi_goal){.train_samples = 128, .samples = 128 * 8};
    echi_plan_clear(p);
    p->sync = ECHI_SYNC_GSSP;
    p->world = 5;
    p->n_groups = 2;
    p->flights = 1;
    p->staleness = 3;
    p->rounds_apart = 4;
    p->round = 8;
    p->momentum = 0.9;
    for (int r = 0; r < 5; r++) {
        p->group_of[r] = r > 2;
        p->n[r] = 1;
    }
    p->owner_of[0] = 0;
    p->owner_of[1] = 3;
    s->plan_given = true;
    s->request.regroup_after = 1;
    for (int r = 0; r < 5; r++) s->speed[r] = r > 2 ? 4000 : 1000;
    s->speed_at = changes ? 3000 : 0;
    s->speed_of = 2;
    s->speed_then = 4000;
    return s;
}

/* A change that lasts moves that worker and nobody else; without one nearly nobody moves, however restless the links and tasks are. */
static void speeds_that_change_move_workers(void **state) {
    (void)state;
    int there = 0, others = 0, still = 0;
    for (uint64_t seed = 1; seed <= 60; seed += test_part())
        for (int changes = 0; changes < 2; changes++) {
            struct sim *s = speeds(seed, changes);
            sim_run(s);
            s->moves = (int)s->coordinator.moves;
            check_all(s);
            if (!changes) {
                still += s->moves == 0;
                continue;
            }
            there += s->coordinator.plan.group_of[2] == 1;
            for (int r = 0; r < 5; r++) others += r != 2 && s->coordinator.moved[r] > 0;
        }
    const int runs = (60 + (int)test_part() - 1) / (int)test_part(), few = runs / 10 > 0 ? runs / 10 : 1;
    if (there < runs - few || others > few || still < runs - few)
        fail_msg("of %d runs %d moved it, %d moved others, %d moved nobody where nothing had changed", runs, there, others, still);
}

/* Owners die, one soon after the other, so that also those die whose copy of a lost state was to be handed on. */
static void owners_die(void **state) {
    (void)state;
    uint64_t twice = 0, handed_on = 0, taken_back = 0;
    for (uint64_t seed = 1; seed <= 2 * RUNS; seed++) {
        struct sim *s = sim_new(seed);
        do {
            memset(&s->plan, 0, sizeof s->plan);
            chosen(s, ECHI_SYNC_GSSP);
        } while (s->plan.n_groups < 3);
        s->kill_at[0] = 50 + below(s, 600);
        for (int i = 1; i < KILLS - 1; i++) s->kill_at[i] = s->kill_at[i - 1] + 1 + below(s, below(s, 2) ? 40 : 200);
        for (int i = 0; i < KILLS - 1; i++) s->kill_rank[i] = s->plan.owner_of[below(s, s->plan.n_groups)];
        sim_run(s);
        check_all(s);
        twice += s->killed > 1;
        handed_on += s->handed_on > 0;
        taken_back += s->applied_samples > s->coordinator.applied;
    }
    const uint32_t least = 100 / test_part();
    assert_true(twice > least && handed_on > least && taken_back > least);
}

static void a_kill_at_every_event(void **state) { (void)state; run_a_kill_at_every_event(in_turn); }

/* Plans by the planner, from times that match the speeds; with kills, also before there is a plan. */
static void run_planned(bool with_kills) {
    uint64_t absent = 0, ended = 0;
    for (uint64_t seed = 1; seed <= RUNS / 2; seed++) {
        struct sim *s = sim_new(seed);
        choose_goal(s);
        choose_request(s, any(s));
        for (int i = 0; i < KILLS && with_kills; i++) {
            s->kill_at[i] = 1 + below(s, i ? 600 : 12);
            s->kill_rank[i] = -1;
        }
        sim_run(s);
        if (s->coordinator.status == ECH_E_ABORTED && s->coordinator.issued == 0) continue;
        for (int r = 0; r < s->plan.world; r++) absent += s->coordinator.request.absent[r];
        if (s->coordinator.status == ECH_E_PEER_LOST) {   /* it was planned in before anybody knew, and owns something */
            const int rank = s->coordinator.lost_peer;
            CHECK(s, s->node[rank].dead && s->coordinator.issued == 0 && (echi_plan_group_owned(&s->coordinator.plan, rank) >= 0 ||
                                                                                 !echi_plan_can_lose(&s->coordinator.plan, rank)));
            ended++;
            continue;
        }
        check_all(s);
        if (!with_kills) check_stalenesses(s);
    }
    if (with_kills) assert_true(absent > 50 / test_part() && (ended > 0 || test_few()) && ended < 100);
}

static void resumed(void **state) { (void)state; run_resumed(any, RUNS); }
static void planned(void **state) { (void)state; run_planned(false); }
static void planned_kills(void **state) { (void)state; run_planned(true); }
static void bsp(void **state) { (void)state; run_policy(ECHI_SYNC_BSP, RUNS); }
static void asp(void **state) { (void)state; run_policy(ECHI_SYNC_ASP, RUNS); }
static void ssp(void **state) { (void)state; run_policy(ECHI_SYNC_SSP, RUNS); }
static void gssp(void **state) { (void)state; run_policy(ECHI_SYNC_GSSP, RUNS); }
static void local(void **state) { (void)state; run_policy(ECHI_SYNC_LOCAL, RUNS); }

/* ---- one role by itself ---- */

static struct echi_setup setup;
static struct echi_action action[ACTIONS];
static struct echi_actions acted;

/* `workers` workers of one sample a step, one group each where `groups` says so; nothing separated. */
static void small_plan(enum echi_sync sync, int world, int groups) {
    memset(&setup, 0, sizeof setup);
    setup.n_layers = setup.cut = 1;
    setup.plan = (struct echi_plan){.sync = (uint8_t)sync,
                                    .world = (uint16_t)world,
                                    .n_groups = (uint8_t)groups,
                                    .head = ECHI_NO_RANK,
                                    .round = (uint32_t)world,
                                    .staleness = 1,
                                    .rounds_apart = 1,
                                    .flights = 1,
                                    .parts = {.count = 1, .part = {{.count = 1}}}};
    memset(setup.plan.owner_of, 0xff, sizeof setup.plan.owner_of);
    memset(setup.plan.group_of, ECHI_NONE, sizeof setup.plan.group_of);
    for (int r = 0; r < world; r++) {
        setup.plan.group_of[r] = (uint8_t)(r % groups);
        setup.plan.n[r] = 1;
    }
    for (int g = 0; g < groups; g++) setup.plan.owner_of[g] = (uint8_t)g;
    assert_true(echi_plan_valid(&setup.plan));
}
static struct echi_lease small_lease(uint32_t id, int worker) {
    return (struct echi_lease){.id = id, .n = 1, .round_size = setup.plan.round, .worker = (uint16_t)worker,
                               .owner = setup.plan.owner_of[setup.plan.group_of[worker]]};
}
/* The n-th action of a type (and kind, if it sends), or NULL. */
static const struct echi_action *acted_on(enum echi_action_type type, int kind, int n) {
    for (int i = 0; i < acted.count; i++)
        if (action[i].type == type && (type != ECHI_ACTION_SEND || action[i].kind == kind) && n-- == 0) return &action[i];
    return NULL;
}
static bool faulted(void) { return acted_on(ECHI_ACTION_FAULT, 0, 0) != NULL; }
static void acted_none(void) { acted = (struct echi_actions){action, 0, ACTIONS, false}; }

static void tell_owner(struct echi_owner *o, int from, const struct echi_msg *m) {
    const struct echi_event e = {.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .msg = m};
    acted_none();
    echi_owner_step(o, &e, &acted);
}
static void owner_started(struct echi_owner *o, int group) {
    const struct echi_event start = {.type = ECHI_EVENT_START};
    const struct echi_msg params = {.kind = ECHI_KIND_PARAMS};
    acted_none();
    echi_owner_init(o, &setup, group);
    echi_owner_step(o, &start, &acted);
    tell_owner(o, 0, &params);
}
/* Ends the task that the last event began. */
static void owner_computed(struct echi_owner *o) {
    const struct echi_action *a = acted_on(ECHI_ACTION_COMPUTE, 0, 0);
    assert_non_null(a);
    const struct echi_task task = a->task;
    const struct echi_event e = {.type = ECHI_EVENT_COMPUTED, .task = &task};
    acted_none();
    echi_owner_step(o, &e, &acted);
}
static void owner_sent(struct echi_owner *o, uint16_t to, struct echi_slot slot) {
    const struct echi_event e = {.type = ECHI_EVENT_SENT, .from = to, .kind = ECHI_KIND_WEIGHTS, .slot = slot};   /* of one part */
    acted_none();
    echi_owner_step(o, &e, &acted);
}
static void push(struct echi_owner *o, uint32_t id, int worker, bool more) {
    const struct echi_msg m = {.kind = ECHI_KIND_PUSH, .lease = small_lease(id, worker), .flag = more};
    tell_owner(o, worker, &m);
}
static void say_enter(struct echi_owner *o, uint32_t id, int worker) {
    const struct echi_msg m = {.kind = ECHI_KIND_ENTER, .lease = small_lease(id, worker)};
    tell_owner(o, worker, &m);
}

/* ENTER and the pushes before and after it may overtake each other. */
static void a_worker_counts_exactly_while_it_holds_a_lease(void **state) {
    (void)state;
    struct echi_owner o;
    small_plan(ECHI_SYNC_SSP, 2, 1);
    owner_started(&o, 0);
    assert_true(o.view[0].idle && o.view[1].idle);
    say_enter(&o, 1, 0);
    say_enter(&o, 2, 1);
    assert_false(o.view[0].idle || o.view[1].idle);
    push(&o, 1, 0, false);
    owner_computed(&o);
    assert_true(o.view[0].idle);
    /* word of lease 3 after a push of it: the push counts, and when it was the last the late word does not */
    push(&o, 3, 0, false);
    assert_false(o.view[0].idle);
    owner_computed(&o);
    say_enter(&o, 3, 0);
    assert_true(o.view[0].idle);
    /* word of lease 5 before the push of lease 4 that said there was none */
    say_enter(&o, 4, 0);
    say_enter(&o, 5, 0);
    push(&o, 4, 0, false);
    owner_computed(&o);
    assert_false(o.view[0].idle);
    push(&o, 5, 0, false);
    owner_computed(&o);
    assert_true(o.view[0].idle);
    assert_int_equal(o.view[0].steps, 4);
    /* a slow one that had run out enters with the smallest count of those that hold leases, a fast one with its own */
    push(&o, 2, 1, false);
    owner_computed(&o);
    assert_true(o.view[1].idle);
    say_enter(&o, 6, 0);
    say_enter(&o, 7, 1);
    assert_int_equal(o.view[1].steps, 4);
    push(&o, 6, 0, false);
    owner_computed(&o);
    assert_true(o.view[0].idle && o.view[0].steps == 5);
    say_enter(&o, 8, 0);
    assert_int_equal(o.view[0].steps, 5);
}

static void answers_take_turns(void **state) {
    (void)state;
    struct echi_owner o;
    uint32_t answers[8] = {0}, id = 1;
    small_plan(ECHI_SYNC_ASP, 8, 1);
    owner_started(&o, 0);
    /* Every answered worker of another node pushes at once; the places for sends are what is scarce. The owner's own takes none. */
    assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0)->to, 0);
    assert_int_equal(o.sends, ECHI_ANSWERS);
    for (int i = 0; i < 400; i++) {
        const struct echi_action *a = acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0);
        uint16_t to[8];
        struct echi_slot slot[8];
        int count = 0;
        for (; a; a = acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, count)) {
            to[count] = a->to;
            slot[count++] = a->slot;
        }
        assert_true(count > 0);
        for (int k = 0; k < count; k++) {
            answers[to[k]]++;
            if (to[k] == 0) continue;
            push(&o, id++, to[k], true);
            while (acted_on(ECHI_ACTION_COMPUTE, 0, 0)) owner_computed(&o);
            assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0));
        }
        struct echi_action kept[8];
        int n = 0;
        for (int k = 0; k < count; k++) {
            if (to[k] == 0) continue;   /* it computes on them */
            owner_sent(&o, to[k], slot[k]);
            for (int j = 0; acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, j); j++)
                kept[n++] = *acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, j);
        }
        memcpy(action, kept, (size_t)n * sizeof kept[0]);
        acted.count = n;
    }
    assert_int_equal(answers[0], 1);
    for (int r = 2; r < 8; r++) assert_in_range(answers[r], answers[1] - 1, answers[1] + 1);
}

/* The answers that the last event brought leave, and those that take their places; how many. */
static int answers_leave(struct echi_owner *o) {
    struct echi_action sent[16];
    int count = 0, left = 0;
    do {
        const struct echi_action *a;
        for (int k = 0; (a = acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, k)) != NULL; k++) sent[count++] = *a;
        if (left < count) owner_sent(o, sent[left].to, sent[left].slot);
    } while (left++ < count);
    return count;
}

/* An owner of eight workers, who have all their first weights: nothing is on its way. */
static void eight_have_begun(struct echi_owner *o, enum echi_sync sync) {
    small_plan(sync, 8, 1);
    setup.plan.staleness = 8;
    owner_started(o, 0);
    answers_leave(o);
}

/* Of those that wait for a place, under a bound, whoever has done the fewest steps has the next; without one it is the next rank's turn. */
static void stragglers_are_answered_first(void **state) {
    (void)state;
    static const enum echi_sync sync[] = {ECHI_SYNC_SSP, ECHI_SYNC_ASP};
    static const uint16_t expected[2][3] = {{6, 5, 7}, {5, 6, 7}};
    for (int s = 0; s < 2; s++) {
        static const int before[8] = {0, 1, 1, 1, 1, 2, 1, 3};   /* steps */
        struct echi_action answer[ECHI_ANSWERS];
        struct echi_owner o;
        uint32_t id = 1;
        eight_have_begun(&o, sync[s]);
        for (int r = 1; r < 8; r++)
            for (int i = 0; i < before[r]; i++) {
                push(&o, id++, r, true);
                owner_computed(&o);
                assert_int_equal(answers_leave(&o), 1);
            }
        for (int k = 0; k < ECHI_ANSWERS; k++) {   /* all places are taken */
            push(&o, id++, 1 + k, true);
            owner_computed(&o);
            answer[k] = *acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0);
        }
        for (int r = 7; r > 4; r--) {
            push(&o, id++, r, true);
            owner_computed(&o);
            assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0));
        }
        for (int k = 0; k < 3; k++) {
            owner_sent(&o, answer[k].to, answer[k].slot);
            assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0)->to, expected[s][k]);
        }
    }
}

/* Weights for the owner's own worker travel nowhere: all places are taken, and it is answered. The others keep their turn. */
static void the_own_worker_waits_for_no_place(void **state) {
    (void)state;
    static const enum echi_sync sync[] = {ECHI_SYNC_ASP, ECHI_SYNC_SSP};
    for (int s = 0; s < 2; s++) {
        static const uint16_t waits[] = {1, 7};
        struct echi_action first;
        struct echi_owner o;
        uint32_t id = 1;
        eight_have_begun(&o, sync[s]);
        for (int r = 3; r < 3 + ECHI_ANSWERS; r++) {   /* all places are taken */
            push(&o, id++, r, true);
            owner_computed(&o);
            if (r == 3) first = *acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0);
        }
        for (int i = 0; i < 2; i++) {
            push(&o, id++, waits[i], true);
            owner_computed(&o);
            assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0));
        }
        for (int i = 0; i < 3; i++) {
            push(&o, id++, 0, true);
            owner_computed(&o);
            assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0)->to, 0);
            assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 1));
            assert_int_equal(o.sends, ECHI_ANSWERS);
        }
        owner_sent(&o, first.to, first.slot);
        assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0)->to, 7);   /* behind rank 6, of equals under a bound as well */
    }
}

/* The next state leaves when the last has left and all have said that it is there, and has all that was applied by then. */
static void a_state_waits_for_the_word_on_the_last(void **state) {
    (void)state;
    struct echi_owner o;
    struct echi_action out = {0};
    small_plan(ECHI_SYNC_GSSP, 2, 2);
    owner_started(&o, 0);
    owner_computed(&o);   /* the first weights from w0 */
    for (uint32_t id = 1; id <= 3; id++) {
        push(&o, id, 0, true);
        owner_computed(&o);
        const struct echi_action *made = acted_on(ECHI_ACTION_SEND, ECHI_KIND_STATE, 0);
        const struct echi_action *answer = acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0);
        const struct echi_msg ack = {.kind = ECHI_KIND_STATE_ACK, .group = 0, .version = id, .samples = id};
        assert_true((made != NULL) == (id == 1));
        if (made) out = *made;
        if (answer) owner_sent(&o, answer->to, answer->slot);   /* its worker computes on later ones */
        if (id == 1) tell_owner(&o, 1, &ack);
        if (id != 2) continue;
        owner_sent(&o, out.to, out.slot);
        out = *acted_on(ECHI_ACTION_SEND, ECHI_KIND_STATE, 0);
        assert_int_equal(out.msg.version, 2);
        owner_sent(&o, out.to, out.slot);
    }
    const struct echi_msg ack = {.kind = ECHI_KIND_STATE_ACK, .group = 0, .version = 2, .samples = 2};
    tell_owner(&o, 1, &ack);
    assert_int_equal(o.peer[1].acked, 2);
    assert_int_equal(o.peer[1].acked_samples, 2);
    assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_STATE, 0)->msg.version, 3);
    const struct echi_msg never_sent = {.kind = ECHI_KIND_STATE_ACK, .group = 0, .version = 4, .samples = 4};
    tell_owner(&o, 1, &never_sent);
    assert_true(faulted());
}

/* R: with nobody acknowledging, an owner stops; the word on it makes it go on. */
static void an_owner_waits_for_acknowledgements(void **state) {
    (void)state;
    struct echi_owner o;
    small_plan(ECHI_SYNC_GSSP, 2, 2);
    owner_started(&o, 0);
    owner_computed(&o);
    uint32_t id = 1;
    for (; id <= 3; id++) {   /* R = 1 round of 2 samples: the third goes beyond it */
        push(&o, id, 0, true);
        owner_computed(&o);
        const struct echi_action *answer = acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0);
        if (answer) owner_sent(&o, answer->to, answer->slot);   /* its worker computes on later ones */
    }
    push(&o, id, 0, true);
    assert_null(acted_on(ECHI_ACTION_COMPUTE, 0, 0));
    const struct echi_msg ack = {.kind = ECHI_KIND_STATE_ACK, .group = 0, .version = 1, .samples = 1};
    tell_owner(&o, 1, &ack);
    assert_non_null(acted_on(ECHI_ACTION_COMPUTE, 0, 0));
}

/* Rank 0, one of four owners, of which the last two are lost. */
static void two_of_four_lost(struct echi_owner *o) {
    small_plan(ECHI_SYNC_GSSP, 4, 4);
    owner_started(o, 0);
    owner_computed(o);
    for (uint8_t rank = 2; rank <= 3; rank++) {
        const struct echi_msg lost = {.kind = ECHI_KIND_LOST, .peer = rank, .members = rank - 1u};
        const struct echi_event e = {.type = ECHI_EVENT_LOST, .from = rank, .msg = &lost};
        echi_plan_lose(&setup.plan, rank);
        acted_none();
        echi_owner_step(o, &e, &acted);
    }
}

/* Of two lost groups this owner hands on one, while another owner hands on the second: each takes what the other sends. */
static void an_owner_takes_a_lost_state_while_it_hands_on_another(void **state) {
    (void)state;
    struct echi_owner o;
    two_of_four_lost(&o);
    struct echi_msg revoke = {.kind = ECHI_KIND_REVOKE, .group = 2, .peer = 0};
    tell_owner(&o, 0, &revoke);
    const struct echi_action *a = acted_on(ECHI_ACTION_SEND, ECHI_KIND_FROZEN, 0);
    assert_true(a && a->to == 1 && a->msg.group == 2);
    revoke.group = 3;
    revoke.peer = 1;
    tell_owner(&o, 0, &revoke);
    a = acted_on(ECHI_ACTION_POST, 0, 0);
    assert_true(a && a->kind == ECHI_KIND_FROZEN && a->to == 1 && a->slot.kind == ECHI_SLOT_OWNER_PEER && a->slot.index / 2 == 3);
}

/* One owner hands on two lost groups' states, the second group's first: the places are in that order, also where both were made out while
 * a task was reading. What comes to another group's place is refused. */
static void lost_states_come_in_the_order_of_the_words(void **state) {
    (void)state;
    struct echi_owner o;
    two_of_four_lost(&o);
    o.busy = 1;
    for (uint8_t group = 3; group >= 2; group--) {
        const struct echi_msg revoke = {.kind = ECHI_KIND_REVOKE, .group = group, .peer = 1};
        tell_owner(&o, 0, &revoke);
        assert_null(acted_on(ECHI_ACTION_POST, 0, 0));
    }
    o.busy = 0;
    const struct echi_msg word = {.kind = ECHI_KIND_ASK, .flag = ECHI_ASK_EVAL};
    tell_owner(&o, 0, &word);
    int posts = 0;
    for (int i = 0; i < acted.count; i++) {
        const struct echi_action *a = &acted.list[i];
        if (a->type != ECHI_ACTION_POST || a->kind != ECHI_KIND_FROZEN) continue;
        assert_int_equal(a->to, 1);
        assert_int_equal(a->slot.index / 2, 3 - posts++);
    }
    assert_int_equal(posts, 2);
    struct echi_msg frozen = {.kind = ECHI_KIND_FROZEN, .group = 2, .version = 1, .samples = 1};
    const struct echi_event e = {.type = ECHI_EVENT_MESSAGE, .from = 1, .msg = &frozen, .slot = {ECHI_SLOT_OWNER_PEER, 6}};
    acted_none();
    echi_owner_step(&o, &e, &acted);
    assert_non_null(acted_on(ECHI_ACTION_FAULT, 0, 0));
}

static void owners_refuse_what_does_not_fit(void **state) {
    (void)state;
    struct echi_owner o;
    for (int i = 0; i < 12; i++) {
        small_plan(ECHI_SYNC_GSSP, 4, 2);
        struct echi_lease l = small_lease(1, 1);
        owner_started(&o, 1);
        owner_computed(&o);
        struct echi_msg m = {.kind = ECHI_KIND_PUSH, .lease = l};
        int from = 1;
        switch (i) {
        case 0: from = 3; break;                                   /* another's lease */
        case 1: from = 0, m.lease.worker = 0; break;               /* another group's worker */
        case 2: m.lease.owner = 0; break;
        case 3: m.lease.n = 2; break;
        case 4: m.lease.n = 0; break;
        case 5: m.lease.id = 0; break;
        case 6: m.lease.round_size = 5; break;
        case 7: m.part = 1; break;
        case 8: m.kind = ECHI_KIND_STATE, m.group = 1, m.version = 1; break;         /* one's own state */
        case 9: m.kind = ECHI_KIND_STATE, m.group = 0, m.version = 1; break;         /* by a node that does not own it */
        case 10: m.kind = ECHI_KIND_DRAIN; break;
        case 11: m.kind = ECHI_KIND_PARAMS, from = 0; break;                         /* a second time */
        }
        tell_owner(&o, from, &m);
        if (!faulted()) fail_msg("case %d was taken", i);
    }
    /* A lease that is in is not applied again. */
    small_plan(ECHI_SYNC_ASP, 2, 1);
    owner_started(&o, 0);
    push(&o, 7, 1, true);
    owner_computed(&o);
    push(&o, 7, 1, true);
    assert_true(faulted());
}

static void workers_refuse_what_does_not_fit(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct echi_worker w;
        const struct echi_event start = {.type = ECHI_EVENT_START};
        struct echi_msg m = {.kind = ECHI_KIND_LEASE};
        struct echi_event e = {.type = ECHI_EVENT_MESSAGE, .from = 0, .msg = &m};
        small_plan(ECHI_SYNC_ASP, 2, 1);
        setup.rank = 1;
        m.lease = small_lease(1, 1);
        acted_none();
        echi_worker_init(&w, &setup);
        echi_worker_step(&w, &start, &acted);
        switch (i) {
        case 0: e.from = 1; break;
        case 1: m.lease.worker = 0; break;
        case 2: m.lease.owner = 1; break;
        case 3: m.lease.n = 0; break;
        case 4: m.lease.round_size = 0; break;                     /* a divisor */
        case 5: m.kind = ECHI_KIND_WEIGHTS, e.from = 1; break;
        case 6: m.kind = ECHI_KIND_ACT_GRAD; break;                /* nobody asked */
        case 7:
            for (uint32_t id = 1; id <= ECHI_LEASES_HELD; id++) {
                m.lease.id = id;
                echi_worker_step(&w, &e, &acted);
            }
            assert_false(faulted());
            break;
        }
        echi_worker_step(&w, &e, &acted);
        if (!faulted()) fail_msg("case %d was taken", i);
    }
}

static void tell_head(struct echi_head *h, int from, const struct echi_msg *m) {
    const struct echi_slot slot = {ECHI_SLOT_HEAD_ROWS, (uint16_t)from};
    const struct echi_event e = {.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .msg = m, .slot = slot};
    acted_none();
    echi_head_step(h, &e, &acted);
}
static void head_did(struct echi_head *h, enum echi_event_type what, const struct echi_task *task) {
    static const struct echi_result result;
    const struct echi_event e = {.type = (uint8_t)what, .task = task, .result = &result};
    acted_none();
    echi_head_step(h, &e, &acted);
}

/* Rows merge up to 256, the oldest first; one that does not fit is the oldest next time. */
static void the_head_merges_what_fits(void **state) {
    (void)state;
    struct echi_head h;
    struct echi_msg m = {.kind = ECHI_KIND_PARAMS};
    small_plan(ECHI_SYNC_ASP, 5, 1);
    setup.plan.cut = 1;
    setup.plan.head = 0;
    const uint32_t n[] = {10, 100, 300, 100, 56};
    for (int r = 0; r < 5; r++) setup.plan.n[r] = n[r];
    echi_head_init(&h, &setup);
    tell_head(&h, 0, &m);
    struct echi_task t = {0};
    for (uint8_t r = 0; r < 5; r++) {
        m = (struct echi_msg){.kind = ECHI_KIND_ACT, .lease = small_lease(r + 1u, r)};
        m.lease.n = n[r];
        tell_head(&h, r, &m);
        assert_int_equal(acted_on(ECHI_ACTION_COMPUTE, 0, 0) != NULL, r == 0);
        if (r > 0) continue;
        t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
        head_did(&h, ECHI_EVENT_GRADIENT, &t);   /* now its update runs, and the others arrive */
        assert_non_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_ACT_GRAD, 0));
    }
    head_did(&h, ECHI_EVENT_COMPUTED, &t);
    assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_ACT_GRAD, 0));
    assert_int_equal(h.current, t.weights_out.index);
    t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
    assert_int_equal(t.n_rows, 3);
    assert_int_equal(t.samples, 256);
    assert_int_equal(t.rows[0], 1);
    assert_int_equal(t.rows[1], 3);
    assert_int_equal(t.rows[2], 4);
    assert_int_equal(t.weights.index, h.current);
    head_did(&h, ECHI_EVENT_GRADIENT, &t);
    head_did(&h, ECHI_EVENT_COMPUTED, &t);
    t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
    assert_int_equal(t.n_rows, 1);
    assert_int_equal(t.rows[0], 2);
    assert_int_equal(t.samples, 300);
}

/* Rows of a group have their places among all that wait by order of arrival, and those places by steps where there is a bound. */
static void the_head_serves_stragglers_first(void **state) {
    (void)state;
    static const uint16_t arrive[5] = {2, 1, 4, 5, 3}, served[2][5] = {{4, 5, 2, 3, 1}, {2, 1, 4, 5, 3}};
    static const uint32_t steps[6] = {0, 9, 3, 2, 1, 2};
    for (int s = 0; s < 2; s++) {
        struct echi_head h;
        struct echi_msg m = {.kind = ECHI_KIND_PARAMS};
        small_plan(s == 0 ? ECHI_SYNC_GSSP : ECHI_SYNC_ASP, 6, 2 - s);   /* even and odd ranks */
        setup.plan.cut = 1;
        setup.plan.head = 0;
        for (int r = 0; r < 6; r++) setup.plan.n[r] = 200;   /* one a visit */
        echi_head_init(&h, &setup);
        for (int r = 0; r < 6; r++) h.trained_count[r] = steps[r];
        tell_head(&h, 0, &m);
        struct echi_task t = {0};
        for (int i = 0; i < 6; i++) {
            const uint16_t rank = i == 0 ? 0 : arrive[i - 1];
            m = (struct echi_msg){.kind = ECHI_KIND_ACT, .lease = small_lease((uint32_t)i + 1, rank)};
            m.lease.n = 200;
            tell_head(&h, rank, &m);
            if (i == 0) t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
        }
        for (int i = 0; i < 5; i++) {
            head_did(&h, ECHI_EVENT_GRADIENT, &t);
            head_did(&h, ECHI_EVENT_COMPUTED, &t);
            t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
            assert_int_equal(t.rows[0], served[s][i]);
        }
    }
}

/* A worker is lost whose rows a shadow has, and has not trained. Who does its lease again comes before them: it has done fewer steps. */
static void a_shadow_trains_the_rows_of_the_lost_once(void **state) {
    (void)state;
    struct echi_head h;
    struct echi_msg m = {.kind = ECHI_KIND_PARAMS}, lost = {.kind = ECHI_KIND_LOST, .peer = 1, .members = 1};
    const struct echi_event e = {.type = ECHI_EVENT_LOST, .from = 1, .msg = &lost};
    const uint32_t start[] = {0, 200, 200};   /* of the leases of ranks 0, 1 and 2 */
    struct echi_task t = {0};
    small_plan(ECHI_SYNC_SSP, 3, 1);
    setup.plan.cut = 1;
    setup.plan.head = 1;
    setup.plan.shadow = 1 + 0;
    for (int r = 0; r < 3; r++) setup.plan.n[r] = 200;   /* one a visit */
    echi_head_init(&h, &setup);
    h.trained_count[1] = 5;
    tell_head(&h, 0, &m);
    for (uint16_t r = 0; r < 3; r++) {
        if (r == 2) {
            echi_plan_lose(&setup.plan, 1);
            assert_true(setup.plan.head == 0 && setup.plan.shadow == 0);
            acted_none();
            echi_head_step(&h, &e, &acted);
        }
        m = (struct echi_msg){.kind = ECHI_KIND_ACT, .flag = r < 2 ? ECHI_ROWS_COPY : ECHI_ROWS_NEW, .lease = small_lease(r + 1u, r)};
        m.lease.start = start[r];
        m.lease.n = 200;
        m.lease.again = r == 2;
        tell_head(&h, r, &m);
        assert_false(faulted());
        assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_SHADOWED, 0) != NULL, r < 2);
        if (r == 0) t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
    }
    head_did(&h, ECHI_EVENT_GRADIENT, &t);
    assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_ACT_GRAD, 0));
    head_did(&h, ECHI_EVENT_COMPUTED, &t);
    t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
    assert_int_equal(t.rows[0], 2);
    head_did(&h, ECHI_EVENT_GRADIENT, &t);
    assert_non_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_ACT_GRAD, 0));
    head_did(&h, ECHI_EVENT_COMPUTED, &t);
    assert_null(acted_on(ECHI_ACTION_COMPUTE, 0, 0));   /* the rows of the lost are these */
    assert_true(h.queued == 0 && h.samples == 400);
}

/* Which words about the separated layers fit a plan: four nodes, the head rank 1, its shadow rank 2 (or none), a copy on its way to rank 3
 * (or none), rank 0 lost (or not). */
static void homes_are_nodes_with_the_layers(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct echi_plan p;
        small_plan(ECHI_SYNC_SSP, 4, 1);
        p = setup.plan;
        p.cut = 1;
        p.head = 1;
        p.shadow = i & 1 ? 1 + 2 : 0;
        p.coming = i & 2 ? 1 + 3 : 0;
        p.lost[0] = (uint8_t)(i >> 2);
        for (uint16_t to = 0; to < 6; to++)
            for (uint16_t part = 0; part < 7; part++) {
                struct echi_msg m = {.kind = ECHI_KIND_HEADS, .flag = ECHI_HEADS_HOMES, .peer = to, .part = part};
                const bool has[7] = {false, true, i & 1, i & 2};
                const bool homes = to < 4 && has[to] && (part == 0 || (part <= 4 && has[part - 1] && part - 1 != to));
                assert_int_equal(echi_plan_may_home(&p, &m), homes);
                if (homes) {
                    struct echi_plan then = p;
                    echi_plan_told(&then, &m);
                    assert_true(then.head == to && then.shadow == part && then.coming == 0);
                }
                m.flag = ECHI_HEADS_COPY;
                const bool copies = to < 4 && !has[to] && !p.lost[to] && part == 0 && p.coming == 0;
                assert_int_equal(echi_plan_may_home(&p, &m), copies);
                m.flag = 2;
                assert_false(echi_plan_may_home(&p, &m));
            }
        p.cut = 0;
        assert_false(echi_plan_may_home(&p, &(struct echi_msg){.kind = ECHI_KIND_HEADS, .flag = ECHI_HEADS_HOMES, .peer = 1}));
    }
}

/* Rank 2 gets the head's layers from rank 1: weights and momentum, once, and from nobody else; then it says that it has them. */
static void a_copy_comes_from_the_head(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct echi_head h;
        const struct echi_slot slot[2] = {{ECHI_SLOT_HEAD_WEIGHTS, 1}, {ECHI_SLOT_HEAD_MOMENTUM, 0}};
        struct echi_msg m = {.kind = ECHI_KIND_HEADS, .flag = ECHI_HEADS_COPY, .peer = 2, .members = 7};
        struct echi_event e = {.type = ECHI_EVENT_HEADS, .msg = &m};
        small_plan(ECHI_SYNC_SSP, 3, 1);
        setup.plan.cut = 1;
        setup.plan.head = 1;
        setup.plan.momentum = 0.9;
        setup.rank = 2;
        echi_plan_told(&setup.plan, &m);
        echi_head_init(&h, &setup);
        acted_none();
        echi_head_step(&h, &e, &acted);
        assert_int_equal(acted.count, 3 + 2);   /* places for the rows of three, and for the copy */
        for (int k = 0; k < 2; k++) {
            const struct echi_action *post = acted_on(ECHI_ACTION_POST, 0, 3 + k);
            assert_true(post->kind == ECHI_KIND_HEAD_COPY && post->to == 1 && post->slot.kind == slot[k].kind &&
                        post->slot.index == slot[k].index);
        }
        for (int k = 0; k < 2; k++) {
            m = (struct echi_msg){.kind = ECHI_KIND_HEAD_COPY, .flag = k ? ECHI_PARAMS_MOMENTUM : ECHI_PARAMS_PART, .version = 5,
                                  .samples = 90};
            e = (struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)(i == 1 ? 0 : 1), .msg = &m, .slot = slot[k]};
            if (i == 2) m.flag = ECHI_PARAMS_FINAL;
            if (i == 3) setup.plan.coming = 0;
            acted_none();
            echi_head_step(&h, &e, &acted);
            assert_int_equal(faulted(), i >= 1 && i <= 3);
            if (faulted()) break;
            const struct echi_action *started = acted_on(ECHI_ACTION_SEND, ECHI_KIND_STARTED, 0);
            assert_int_equal(started != NULL, k == 1);
            assert_true(!started || started->msg.members == 7);
        }
        if (i == 0) assert_true(h.started && h.shadow && h.current == 1 && h.version == 5 && h.samples == 90);
        if (i < 4) continue;
        acted_none();
        echi_head_step(&h, &e, &acted);   /* once more */
        assert_true(faulted());
    }
}

/* One row of the head's own worker, or its sum, of a round of so many samples; all heads have one row of a round. */
static struct echi_msg of_head(int kind, int head, uint32_t round, uint32_t size) {
    struct echi_msg m = {.kind = (uint8_t)kind, .lease = small_lease(3 * round + (uint32_t)head + 1, head), .version = round, .samples = 1};
    m.lease.round = round;
    m.lease.round_size = size;
    m.lease.start = m.lease.id - 1;
    m.lease.head = (uint8_t)head;
    m.lease.head_rows = 1;
    return m;
}

/* Three heads. The third has no row of the first round, which is short: it may be done with that, and have sent its sum of the next, before
 * the second's sum of the first is here. */
static void a_head_counts_sums_in_their_round(void **state) {
    (void)state;
    struct echi_head h;
    struct echi_msg m = {.kind = ECHI_KIND_PARAMS};
    small_plan(ECHI_SYNC_BSP, 3, 1);
    setup.plan.cut = 1;
    setup.plan.head = 0;
    setup.plan.heads = 3;
    for (int r = 0; r < 3; r++) setup.plan.head_rank[r] = (uint16_t)r, setup.plan.head_of[r] = (uint8_t)r;
    assert_true(echi_plan_valid(&setup.plan));
    echi_head_init(&h, &setup);
    tell_head(&h, 0, &m);
    m = of_head(ECHI_KIND_ACT, 0, 0, 2);
    tell_head(&h, 0, &m);
    struct echi_task t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
    assert_true(t.state.kind == ECHI_SLOT_HEAD_SUM && t.state.index == 0 && t.first);
    m = of_head(ECHI_KIND_HEAD_SUM, 2, 1, 3);
    tell_head(&h, 2, &m);
    assert_false(faulted());
    head_did(&h, ECHI_EVENT_COMPUTED, &t);
    assert_null(acted_on(ECHI_ACTION_COMPUTE, 0, 0));
    for (int i = 0; i < 2; i++) {
        const struct echi_action *a = acted_on(ECHI_ACTION_SEND, ECHI_KIND_HEAD_SUM, i);
        assert_true(a && a->to == i + 1 && a->msg.samples == 1 && a->msg.version == 0 && a->slot.index == 0);
    }
    /* What is no sum of a head that lacks one: of a worker, of its own, a second one, of another round than its lease, of other samples, of
     * another head's lease, of another size of the round. */
    for (int i = 0; i < 7; i++) {
        m = of_head(ECHI_KIND_HEAD_SUM, i == 1 ? 0 : i == 2 ? 2 : 1, i == 2, i == 6 ? 3 : 2);
        if (i == 3) m.version = 1;
        if (i == 4) m.samples = 2;
        if (i == 5) m.lease.head = 2;
        tell_head(&h, i == 0 ? 7 : i == 1 ? 0 : i == 2 ? 2 : 1, &m);
        if (!faulted()) fail_msg("sum %d is taken", i);
    }
    m = of_head(ECHI_KIND_HEAD_SUM, 1, 0, 2);
    tell_head(&h, 1, &m);
    t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
    assert_true(t.kind == ECHI_TASK_HEAD_APPLY && t.grads.kind == ECHI_SLOT_HEAD_GRADS && t.samples == 2 && t.divisor == 2);
    assert_true(t.n_rows == 2 && t.rows[0] == 0 && t.rows[1] == 1 && t.lease.start == 0);
    head_did(&h, ECHI_EVENT_COMPUTED, &t);
    assert_true(h.version == 1 && h.samples == 2);
    const struct echi_action *post = acted_on(ECHI_ACTION_POST, 0, 0);   /* that of the third is not free yet */
    assert_true(post && post->kind == ECHI_KIND_HEAD_SUM && post->to == 1 && !acted_on(ECHI_ACTION_POST, 0, 1));
    /* Its own sum is not written before it has left, for both. */
    const struct echi_event answered = {.type = ECHI_EVENT_SENT, .kind = ECHI_KIND_ACT_GRAD, .slot = {ECHI_SLOT_HEAD_ROWS_GRAD, 0}};
    echi_head_step(&h, &answered, &acted);
    m = of_head(ECHI_KIND_ACT, 0, 1, 3);
    tell_head(&h, 0, &m);
    for (int i = 0; i < 2; i++) {
        const struct echi_event sent = {.type = ECHI_EVENT_SENT, .kind = ECHI_KIND_HEAD_SUM, .slot = {ECHI_SLOT_HEAD_SUM, 0}};
        assert_null(acted_on(ECHI_ACTION_COMPUTE, 0, 0));
        acted_none();
        echi_head_step(&h, &sent, &acted);
    }
    t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
    head_did(&h, ECHI_EVENT_COMPUTED, &t);
    m = of_head(ECHI_KIND_HEAD_SUM, 1, 1, 3);
    tell_head(&h, 1, &m);
    t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
    assert_true(t.kind == ECHI_TASK_HEAD_APPLY && t.n_rows == 3 && t.samples == 3);
    /* Who asks for the weights behind this update gets no others. */
    m = (struct echi_msg){.kind = ECHI_KIND_ASK, .flag = ECHI_ASK_LAST, .samples = 8};
    head_did(&h, ECHI_EVENT_COMPUTED, &t);
    tell_head(&h, 0, &m);
    assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_PARAMS, 0));
    m = of_head(ECHI_KIND_HEAD_SUM, 1, 2, 3);
    tell_head(&h, 1, &m);
    m = of_head(ECHI_KIND_HEAD_SUM, 2, 2, 2);
    tell_head(&h, 2, &m);
    assert_true(faulted());
}

/* Its lease may be in the state that is kept; if not, its samples come again, in parts maybe, and are not trained twice. */
static void the_head_trains_rows_for_a_lost_owner_once(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct echi_head h;
        struct echi_msg m = {.kind = ECHI_KIND_PARAMS}, lost = {.kind = ECHI_KIND_LOST, .peer = 2, .members = 1};
        const struct echi_event e = {.type = ECHI_EVENT_LOST, .from = 2, .msg = &lost};
        small_plan(ECHI_SYNC_GSSP, 5, 3);   /* rank 2 owns group 2, in which is worker 4 */
        setup.plan.cut = 1;
        setup.plan.head = 0;
        setup.plan.group_of[4] = 2;
        for (int r = 0; r < 5; r++) setup.plan.n[r] = 8;
        echi_head_init(&h, &setup);
        tell_head(&h, 0, &m);
        struct echi_msg rows = {.kind = ECHI_KIND_ACT, .lease = small_lease(1, 4)}, again = rows;
        rows.lease.n = 8;
        echi_plan_lose(&setup.plan, 2);
        acted_none();
        echi_head_step(&h, &e, &acted);
        again.lease = small_lease(2, 3);
        again.lease.again = 1;
        again.lease.start = 4;
        again.lease.n = 4;
        /* Whichever comes first is trained, the other is answered. */
        tell_head(&h, first ? 3 : 4, first ? &again : &rows);
        struct echi_task t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
        assert_int_equal(t.weights_out.kind, ECHI_SLOT_HEAD_WEIGHTS);
        head_did(&h, ECHI_EVENT_GRADIENT, &t);
        head_did(&h, ECHI_EVENT_COMPUTED, &t);
        tell_head(&h, first ? 4 : 3, first ? &rows : &again);
        assert_false(faulted());
        t = acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
        assert_int_equal(t.weights_out.kind, ECHI_SLOT_NONE);
        assert_int_equal(h.repeats, first ? 8 : 4);
    }
}

static struct echi_coordinator coordinator;
static void tell_coordinator(int from, const struct echi_msg *m) {
    const struct echi_event e = {.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .now = 1000, .msg = m};
    acted_none();
    echi_coordinator_step(&coordinator, &e, &acted);
}
static void coordinator_in(enum echi_run_phase phase) {
    const struct echi_plan_request request = {.world = setup.plan.world};
    const struct echi_goal goal = {.train_samples = 1000000, .samples = 100000000};
    echi_coordinator_init(&coordinator, &setup, &request, &goal, true);
    coordinator.plan = setup.plan;
    coordinator.policy = echi_policy_of((enum echi_sync)setup.plan.sync);
    echi_ledger_planned(&coordinator);
    coordinator.phase = phase;
    coordinator.waits_for = setup.plan.world;
}

static void the_ledger_believes_only_itself(void **state) {
    (void)state;
    small_plan(ECHI_SYNC_BSP, 4, 1);
    coordinator_in(ECHI_RUN_TRAINS);
    const struct echi_msg nothing = {.kind = ECHI_KIND_HELD};
    tell_coordinator(1, &nothing);   /* any event deals leases */
    assert_int_equal(coordinator.n_out, 2 * 4);
    /* A version that would be thousands of rounds ahead: no lease beyond the next round. */
    const struct echi_msg m = {.kind = ECHI_KIND_APPLIED, .lease = coordinator.out[0].lease, .version = UINT64_MAX / 2, .loss = 1};
    tell_coordinator(0, &m);
    assert_int_equal(coordinator.n_out, 2 * 4 - 1 + 4);
    assert_false(acted.overflow);
    /* The same again: it breaks a rule. */
    tell_coordinator(0, &m);
    assert_true(faulted());
}

static void a_fault_is_a_failure(void **state) {
    (void)state;
    static const struct { uint16_t said; ech_status meant; uint16_t peer; int lost; } table[] = {
        {ECH_E_DIVERGED, ECH_E_DIVERGED, ECHI_NO_RANK, -1}, {ECH_OK, ECH_E_INTERNAL, ECHI_NO_RANK, -1}, {999, ECH_E_INTERNAL, 0, -1},
        /* Of itself: that it goes. Rank 1 is the only owner. */
        {ECH_E_PEER_LOST, ECH_E_PEER_LOST, 1, 1}, {ECH_E_TIMEOUT, ECH_E_TIMEOUT, 1, 1}, {ECH_E_PEER_LOST, ECH_E_PEER_LOST, 200, 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct echi_msg m = {.kind = ECHI_KIND_FAULT, .layer = table[i].said, .peer = table[i].peer, .text = "why"};
        small_plan(ECHI_SYNC_ASP, 4, 1);
        if (table[i].lost >= 0) setup.plan.owner_of[0] = (uint8_t)table[i].lost;
        coordinator_in(ECHI_RUN_TRAINS);
        tell_coordinator(1, &m);
        assert_int_equal(coordinator.status, table[i].meant);
        assert_int_equal(coordinator.lost_peer, table[i].lost);
        assert_string_equal(coordinator.text, "why");
        /* An owner is lost: all say that they know, and that they have no weights that were trained. */
        const struct echi_msg knows = {.kind = ECHI_KIND_READY, .members = 1},
                              nothing_trained = {.kind = ECHI_KIND_ASK, .flag = ECHI_ASK_NEWEST};
        for (int k = 0; k < 8 && table[i].lost >= 0; k++) {
            if (k % 4 == table[i].lost) continue;
            assert_null(acted_on(ECHI_ACTION_DONE, 0, 0));
            tell_coordinator(k % 4, k < 4 ? &knows : &nothing_trained);
        }
        assert_non_null(acted_on(ECHI_ACTION_DONE, 0, 0));
        assert_false(coordinator.final);
    }
}

/* The only owner is lost: the worker whose weights have the most samples sends them, or whoever has the most when that one is lost too. */
static void the_newest_weights_are_saved(void **state) {
    (void)state;
    for (int end = 0; end < 3; end++) {
        small_plan(ECHI_SYNC_BSP, 4, 1);
        setup.plan.owner_of[0] = 1;
        coordinator_in(ECHI_RUN_TRAINS);
        acted_none();
        const struct echi_event lost = {.type = ECHI_EVENT_LOST, .from = 1}, lost_too = {.type = ECHI_EVENT_LOST, .from = 2},
                                early = {.type = ECHI_EVENT_TIME, .now = 999}, late = {.type = ECHI_EVENT_TIME, .now = 1000};
        coordinator.goal.rescue = 1000;
        echi_coordinator_step(&coordinator, &lost, &acted);
        const struct echi_msg knows = {.kind = ECHI_KIND_READY, .members = 1};
        for (int r = 0; r < 4; r++) {
            if (r == 1) continue;
            assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_ASK, 0));
            tell_coordinator(r, &knows);
        }
        static const uint64_t samples[] = {64, 0, 192, 128};
        for (int again = 0; again <= (end == 1); again++) {
            for (int r = 0; r < 4; r++) {
                const struct echi_msg m = {.kind = ECHI_KIND_ASK, .flag = ECHI_ASK_NEWEST, .samples = samples[r]};
                if (r == 1 || (again && r == 2)) continue;
                if (r == 0) assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_ASK, 0)->to, 0);
                tell_coordinator(r, &m);
            }
            const struct echi_action *ask = acted_on(ECHI_ACTION_SEND, ECHI_KIND_ASK, 0);
            assert_true(ask->to == (again ? 3 : 2) && ask->msg.to_role == ECHI_ROLE_WORKER && ask->msg.flag == ECHI_ASK_EVAL);
            if (end == 1 && !again) {
                const struct echi_msg knows_both = {.kind = ECHI_KIND_READY, .members = 2};
                acted_none();
                echi_coordinator_step(&coordinator, &lost_too, &acted);
                tell_coordinator(0, &knows);   /* of the first: too early */
                tell_coordinator(3, &knows_both);
                assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_ASK, 0));
                tell_coordinator(0, &knows_both);
            }
        }
        acted_none();
        const struct echi_msg params = {.kind = ECHI_KIND_PARAMS, .from_role = ECHI_ROLE_WORKER, .samples = 128};
        const struct echi_event copy = {.type = ECHI_EVENT_MESSAGE, .from = end == 1 ? 3 : 2, .msg = &params,
                                        .slot = {ECHI_SLOT_COORD_PARAMS, 1}};
        echi_coordinator_step(&coordinator, &early, &acted);   /* an alarm of before the loss */
        assert_null(acted_on(ECHI_ACTION_DONE, 0, 0));
        echi_coordinator_step(&coordinator, end == 2 ? &late : &copy, &acted);
        assert_non_null(acted_on(ECHI_ACTION_DONE, 0, 0));
        assert_int_equal(coordinator.status, ECH_E_PEER_LOST);
        assert_int_equal(coordinator.lost_peer, 1);
        assert_int_equal(coordinator.final, end != 2);   /* it did not come in time */
        if (end != 2) assert_int_equal(coordinator.saved_samples, 128);
    }
}

/* A plan of BSP whose shards rank 0 and rank 1 own. */
static void two_shards(int world) {
    small_plan(ECHI_SYNC_BSP, world, 1);
    setup.n_layers = setup.cut = 2;
    setup.plan.shards = 2;
    setup.plan.shard_owner[1] = 1;
    setup.plan.parts.count = 2;
    setup.plan.parts.part[1] = (struct echi_part){.at = 1, .count = 1, .first = 1, .last = 1, .shard = 1};
    assert_true(echi_plan_valid(&setup.plan));
}

/* Both owners of shards are lost. Rank 0's worker stops where it is, and the newest weights stay with it when no other has newer ones;
 * else a copy comes to where that worker does not write. */
static void a_rescue_of_shards(void **state) {
    (void)state;
    for (int own = 0; own < 2; own++) {
        two_shards(4);
        setup.plan.owner_of[0] = setup.plan.shard_owner[0] = 1;
        setup.plan.shard_owner[1] = 2;
        assert_true(echi_plan_evaluates_own(&setup.plan));
        coordinator_in(ECHI_RUN_TRAINS);
        for (uint16_t r = 1; r <= 2; r++) {
            const struct echi_event lost = {.type = ECHI_EVENT_LOST, .from = r};
            acted_none();
            echi_coordinator_step(&coordinator, &lost, &acted);
        }
        assert_int_equal(coordinator.phase, ECHI_RUN_RESCUES);
        const struct echi_msg knows = {.kind = ECHI_KIND_READY, .members = coordinator.members};
        tell_coordinator(0, &knows);
        tell_coordinator(3, &knows);
        const struct echi_msg whole = {.kind = ECHI_KIND_ASK, .flag = ECHI_ASK_WHOLE, .samples = 640};   /* of an evaluation before */
        tell_coordinator(0, &whole);
        const struct echi_msg mine = {.kind = ECHI_KIND_ASK, .flag = ECHI_ASK_NEWEST, .samples = 64, .part = 1},
                              others = {.kind = ECHI_KIND_ASK, .flag = ECHI_ASK_NEWEST, .samples = own ? 64 : 68};
        tell_coordinator(3, &others);
        tell_coordinator(0, &mine);
        if (!own) {
            const struct echi_action *ask = acted_on(ECHI_ACTION_SEND, ECHI_KIND_ASK, 0);
            assert_true(ask && ask->to == 3 && ask->msg.flag == ECHI_ASK_EVAL);
            acted_none();
            const struct echi_msg params = {.kind = ECHI_KIND_PARAMS, .from_role = ECHI_ROLE_WORKER, .samples = 68};
            const struct echi_event copy = {.type = ECHI_EVENT_MESSAGE, .from = 3, .msg = &params, .slot = {ECHI_SLOT_COORD_PARAMS, 1}};
            echi_coordinator_step(&coordinator, &copy, &acted);
        }
        assert_non_null(acted_on(ECHI_ACTION_DONE, 0, 0));
        assert_true(coordinator.final && coordinator.saved_samples == (own ? 64 : 68));
        assert_int_equal(coordinator.whole.kind, own ? ECHI_SLOT_WORKER_WEIGHTS : ECHI_SLOT_COORD_PARAMS);
        assert_int_equal(coordinator.whole.index, 1);

        static struct echi_worker w;
        setup.rank = 0;
        echi_worker_init(&w, &setup);
        const struct echi_event start = {.type = ECHI_EVENT_START}, newest = {.type = ECHI_EVENT_MESSAGE,
            .msg = &(struct echi_msg){.kind = ECHI_KIND_ASK, .flag = ECHI_ASK_NEWEST}};
        echi_worker_step(&w, &start, &acted);
        for (int times = 0; times < 2; times++) {   /* again, when one more is lost */
            acted_none();
            echi_worker_step(&w, &newest, &acted);
            assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_ASK, 0)->msg.flag, ECHI_ASK_NEWEST);
        }
        acted_none();
        const struct echi_msg lease = {.kind = ECHI_KIND_LEASE, .lease = small_lease(1, 0)};
        echi_worker_step(&w, &(struct echi_event){.type = ECHI_EVENT_MESSAGE, .msg = &lease}, &acted);
        assert_int_equal(acted.count, 0);
    }
}

/* An evaluation in the middle of a run with shards waits until rank 0's worker has all weights of the round, and reads them there; nobody
 * sends any. An answer to a question of before is none. */
static void an_evaluation_reads_the_workers_weights(void **state) {
    (void)state;
    two_shards(4);
    coordinator_in(ECHI_RUN_TRAINS);
    coordinator.goal.has_test = true;
    coordinator.goal.eval_every = 4;
    coordinator.next_eval = coordinator.issued = coordinator.applied = 4;
    const struct echi_msg held = {.kind = ECHI_KIND_HELD};
    acted_none();
    echi_coordinator_step(&coordinator, &(struct echi_event){.type = ECHI_EVENT_TIME, .now = 1}, &acted);
    assert_non_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_HOLD, 3));
    for (int r = 0; r < 4; r++) tell_coordinator(r, &held);
    const struct echi_action *ask = acted_on(ECHI_ACTION_SEND, ECHI_KIND_ASK, 0);
    assert_true(ask && ask->to == 0 && ask->msg.to_role == ECHI_ROLE_WORKER && ask->msg.flag == ECHI_ASK_WHOLE && ask->msg.samples == 4);
    assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_ASK, 1));
    assert_null(acted_on(ECHI_ACTION_POST, 0, 0));
    struct echi_msg whole = {.kind = ECHI_KIND_ASK, .flag = ECHI_ASK_WHOLE, .samples = 3, .part = 1};
    tell_coordinator(0, &whole);
    assert_null(acted_on(ECHI_ACTION_COMPUTE, 0, 0));
    whole.samples = 4;
    tell_coordinator(0, &whole);
    const struct echi_action *eval = acted_on(ECHI_ACTION_COMPUTE, 0, 0);
    assert_true(eval && eval->task.kind == ECHI_TASK_EVAL && eval->task.weights.kind == ECHI_SLOT_WORKER_WEIGHTS &&
                eval->task.weights.index == 1);
    whole.part = ECHI_WORKER_PLACES;
    tell_coordinator(0, &whole);
    assert_true(faulted());
}

/* ---- complaints ---- */

enum { COLLECT = 500 };
static void complains(int from, int about) {
    const struct echi_msg m = {.kind = ECHI_KIND_FAULT, .layer = ECH_E_PEER_LOST, .peer = (uint16_t)about, .text = "no word for 3 seconds"};
    tell_coordinator(from, &m);
}
static void answers_to(int from, uint32_t question) {
    const struct echi_msg m = {.kind = ECHI_KIND_HEARTBEAT, .number = question};
    tell_coordinator(from, &m);
}
static void answers(int from) { answers_to(from, coordinator.asked[from]); }
static void time_passes(int64_t now) {
    const struct echi_event e = {.type = ECHI_EVENT_TIME, .now = now};
    acted_none();
    echi_coordinator_step(&coordinator, &e, &acted);
}
static int lost_now(void) {
    int count = 0;
    for (int r = 0; r < setup.plan.world; r++) count += coordinator.plan.lost[r];
    return count;
}
/* A cluster of five under asp, rank 1 the only owner: its loss, like rank 0's, would end the run. */
static void five_trains(void) {
    small_plan(ECHI_SYNC_ASP, 5, 1);
    setup.plan.owner_of[0] = 1;
    coordinator_in(ECHI_RUN_TRAINS);
    coordinator.goal.collect = COLLECT;
}

/* A worker whose link to the owner broke complains first: the owner is asked, it lives, and it is the worker that goes. Everybody hears
 * why, the worker too. */
static void a_complaint_is_no_verdict(void **state) {
    (void)state;
    for (int first = 1; first <= 2; first++) {
        five_trains();
        complains(first, 3 - first);
        const struct echi_action *ask = acted_on(ECHI_ACTION_SEND, ECHI_KIND_HEARTBEAT, 0);
        assert_true(ask && ask->to == 3 - first && ask->msg.from_role == ECHI_ROLE_COORDINATOR);
        complains(first, 3 - first);   /* once is enough */
        assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_HEARTBEAT, 0));
        time_passes(1000 + 2 * COLLECT);   /* not before it has answered */
        assert_int_equal(lost_now(), 0);
        answers(3 - first);
        assert_int_equal(coordinator.status, ECH_OK);
        answers(3 - first);
        time_passes(1000 + 2 * COLLECT);
        assert_true(lost_now() == 1 && coordinator.plan.lost[2]);
    }
    five_trains();
    complains(2, 1);
    answers(1);
    assert_int_equal(coordinator.wake_at, 1000 + COLLECT);
    time_passes(1000 + COLLECT - 1);
    assert_int_equal(lost_now(), 0);
    time_passes(1000 + COLLECT);
    assert_int_equal(coordinator.wake_at, 0);
    static const char why[] = "rank 2 and rank 1 cannot reach each other: no word for 3 seconds";
    const struct echi_action *end = acted_on(ECHI_ACTION_SEND, ECHI_KIND_END, 0);
    assert_true(end && end->to == 2 && end->msg.peer == 2 && end->msg.layer == ECH_E_PEER_LOST);
    assert_string_equal(end->msg.text, why);
    for (int i = 0; i < 4; i++) assert_string_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_LOST, i)->msg.text, why);
    assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_LOST, 4));
}

/* A node that answered and was lost behind that: neither the answer to an earlier complaint nor a heartbeat, both still on their way, says
 * that it is there. */
static void an_older_answer_is_none(void **state) {
    (void)state;
    five_trains();
    complains(2, 1);
    const uint32_t older = coordinator.asked[1];
    complains(3, 1);
    const struct echi_action *ask = acted_on(ECHI_ACTION_SEND, ECHI_KIND_HEARTBEAT, 0);
    assert_true(ask && ask->to == 1 && ask->msg.number != older && ask->msg.number != 0);
    const uint32_t newer = ask->msg.number;
    answers_to(1, older);
    answers_to(1, 0);
    time_passes(1000 + COLLECT);
    assert_int_equal(lost_now(), 0);
    answers_to(1, newer);
    time_passes(1000 + COLLECT);
    assert_true(lost_now() == 2 && coordinator.plan.lost[2] && coordinator.plan.lost[3]);
}

/* The links of one host to all but rank 0 are cut: whoever complains of whom, in whatever order, that host goes and nobody else. */
static void of_many_complaints_the_one_they_are_about(void **state) {
    (void)state;
    static const int of[6][2] = {{1, 3}, {3, 1}, {2, 3}, {3, 2}, {4, 3}, {3, 4}};
    for (unsigned set = 1; set < 64; set++)
        for (int begin = 0; begin < 6; begin++) {
            unsigned pairs = 0;
            five_trains();
            for (int i = begin; i < begin + 6; i++) {
                if (!(set >> i % 6 & 1)) continue;
                complains(of[i % 6][0], of[i % 6][1]);
                answers(of[i % 6][1]);
                pairs |= 1u << (of[i % 6][0] + of[i % 6][1]);   /* which two: 4, 5, 7 */
            }
            time_passes(1000 + COLLECT);
            assert_int_equal(coordinator.status, ECH_OK);
            assert_int_equal(lost_now(), 1);
            const bool only_of_4 = pairs == 1u << 7;   /* two workers: either may go */
            assert_true(coordinator.plan.lost[3] || (only_of_4 && coordinator.plan.lost[4]));
        }
}

/* Who does not answer is lost when rank 0 finds so by itself, and then the complaint is settled; the run ends with the right name. */
static void the_accused_that_is_dead_is_the_lost_one(void **state) {
    (void)state;
    five_trains();
    complains(2, 4);
    complains(2, 3);
    answers(3);
    time_passes(1000 + COLLECT);
    assert_int_equal(lost_now(), 0);   /* rank 4 has not answered */
    const struct echi_event lost = {.type = ECHI_EVENT_LOST, .from = 4, .now = 3000};
    acted_none();
    echi_coordinator_step(&coordinator, &lost, &acted);
    assert_true(coordinator.plan.lost[4] && lost_now() == 2);
    five_trains();
    complains(2, 1);
    const struct echi_event owner = {.type = ECHI_EVENT_LOST, .from = 1, .now = 3000};
    acted_none();
    echi_coordinator_step(&coordinator, &owner, &acted);
    assert_int_equal(coordinator.status, ECH_E_PEER_LOST);
    assert_int_equal(coordinator.lost_peer, 1);
}

/* Two that the run needs both: it ends, and says which two they are. */
static void a_link_that_is_needed_ends_the_run(void **state) {
    (void)state;
    five_trains();
    setup.plan.cut = 1;
    setup.plan.head = 2;
    coordinator.plan = setup.plan;
    complains(2, 1);
    answers(1);
    time_passes(1000 + COLLECT);
    assert_int_equal(coordinator.status, ECH_E_PEER_LOST);
    assert_string_equal(coordinator.text, "rank 2 and rank 1 cannot reach each other: no word for 3 seconds");
    assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_END, 3) != NULL, true);
}

/* Before there is a plan anybody but rank 0 may go; a node that leaves before the end is nobody's fault. */
static void complaints_before_and_after_training(void **state) {
    (void)state;
    five_trains();
    coordinator.phase = ECHI_RUN_MEASURES;
    complains(2, 1);
    complains(3, 1);
    answers(1);
    time_passes(1000 + COLLECT);
    assert_true(coordinator.request.absent[1] && !coordinator.request.absent[2] && !coordinator.request.absent[3]);
    five_trains();
    coordinator.phase = ECHI_RUN_ENDS;
    complains(2, 1);
    time_passes(1000 + COLLECT);
    assert_true(coordinator.n_apart == 0 && lost_now() == 0);
}

/* ---- who is heard, and does not answer ---- */

static void ticks(int64_t *now, int count) {
    for (; count > 0; count--) time_passes(*now += COLLECT);
}

/* Rank 3 only sends heartbeats. In each phase in which all owe an answer it is lost in the end, rank 2, which computes, is not; and who
 * owes nothing has all the time. */
static void who_never_answers_is_lost(void **state) {
    (void)state;
    static const enum echi_run_phase phase[] = {ECHI_RUN_MEASURES, ECHI_RUN_PLANNED, ECHI_RUN_HOLDS, ECHI_RUN_TRAINS, ECHI_RUN_ENDS};
    for (size_t i = 0; i < sizeof phase / sizeof phase[0]; i++)
        for (int owed = 0; owed < 2; owed++) {
            int64_t now = 1000;
            five_trains();
            coordinator.goal.tick = COLLECT;
            coordinator.phase = phase[i];
            coordinator.calm = !owed || phase[i] != ECHI_RUN_TRAINS;
            coordinator.members = !coordinator.calm;
            for (int r = 0; r < 5; r++) {
                coordinator.mark[r] = !owed || r < 2 || r == 4;
                coordinator.ready[r] = coordinator.members && (r < 2 || r == 4);
            }
            coordinator.waits_for = 2;
            time_passes(now);
            for (int k = 0; k < 12; k++) {
                ticks(&now, 1);
                answers(2);
            }
            assert_int_equal(lost_now(), 0);
            ticks(&now, 1);
            if (!owed) {
                ticks(&now, 40);
                assert_true(lost_now() == 0 && !coordinator.request.absent[3]);
            } else if (phase[i] == ECHI_RUN_ENDS) {
                assert_true(coordinator.mark[3] && !coordinator.mark[2]);   /* without its last word */
            } else if (phase[i] == ECHI_RUN_MEASURES) {
                assert_true(coordinator.request.absent[3] && !coordinator.request.absent[2]);
            } else {
                assert_true(coordinator.plan.lost[3] && lost_now() == 1);
                assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_END, 0)->msg.layer, ECH_E_TIMEOUT);
            }
            assert_int_equal(coordinator.status, ECH_OK);
        }
}

static void a_node_may_leave_while_the_run_ends(void **state) {
    (void)state;
    const struct echi_msg stats = {.kind = ECHI_KIND_STATS};
    const struct echi_event lost = {.type = ECHI_EVENT_LOST, .from = 2}, stop = {.type = ECHI_EVENT_STOP};
    small_plan(ECHI_SYNC_ASP, 3, 1);
    coordinator_in(ECHI_RUN_ENDS);
    tell_coordinator(0, &stats);
    tell_coordinator(1, &stats);
    acted_none();
    echi_coordinator_step(&coordinator, &stop, &acted);
    echi_coordinator_step(&coordinator, &lost, &acted);
    assert_non_null(acted_on(ECHI_ACTION_DONE, 0, 0));
    assert_int_equal(coordinator.status, ECH_OK);
}

/* A worker that is to leave is told so, and the others go on; one without which there is no run ends it,
 * as a user does who means the run. */
static void a_node_leaves_when_its_user_asks(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        const int rank = how == 1 ? 0 : 2;
        const struct echi_msg stop = {.kind = ECHI_KIND_STOP, .flag = how == 3};
        small_plan(ECHI_SYNC_BSP, 4, 1);
        if (how == 2) setup.plan.owner_of[0] = 2;
        coordinator_in(ECHI_RUN_TRAINS);
        tell_coordinator(rank, &stop);
        const struct echi_action *end = acted_on(ECHI_ACTION_SEND, ECHI_KIND_END, 0);
        assert_int_equal(coordinator.stopping, how != 0);
        assert_int_equal(coordinator.status, how == 0 ? ECH_OK : ECH_E_ABORTED);
        assert_int_equal(coordinator.plan.lost[rank], how == 0);
        assert_int_equal(end != NULL, how == 0);
        if (end) assert_true(end->to == 2 && end->msg.peer == 2 && end->msg.layer == ECH_E_ABORTED && !end->msg.flag);
        if (how == 0) continue;
        tell_coordinator(3, &stop);   /* the run ends anyway: it stays to the end */
        assert_false(coordinator.plan.lost[3]);
    }
}

/* Whose loss ends a run, with its number; all others are told, and the run goes on. */
static void a_loss_ends_the_run_only_where_it_must(void **state) {
    (void)state;
    for (int world = 2; world <= 4; world++)
        for (int rank = 1; rank < world; rank++)
            for (int how = 0; how < 5; how++) {
                const struct echi_event lost = {.type = ECHI_EVENT_LOST, .from = (uint16_t)rank};
                small_plan(how == 4 ? ECHI_SYNC_GSSP : ECHI_SYNC_ASP, world, how == 4 ? 2 : 1);
                if (how == 1) setup.plan.cut = 1, setup.plan.head = (uint16_t)rank;
                if (how == 2) setup.plan.owner_of[0] = (uint16_t)rank;
                if (how == 3)   /* nobody else works */
                    for (int r = 0; r < world; r++)
                        if (r != rank) setup.plan.group_of[r] = ECHI_NONE, setup.plan.n[r] = 0;
                coordinator_in(ECHI_RUN_TRAINS);
                acted_none();
                echi_coordinator_step(&coordinator, &lost, &acted);
                const bool survived = how == 0 || how == 4;
                assert_int_equal(coordinator.status, survived ? ECH_OK : ECH_E_PEER_LOST);
                assert_int_equal(coordinator.lost_peer, survived ? -1 : rank);
                /* Of a lost head nobody has a copy: nothing is gathered. */
                for (int i = 0; i < world - 1; i++) {
                    const struct echi_action *told = acted_on(ECHI_ACTION_SEND, ECHI_KIND_LOST, i);
                    assert_int_equal(told != NULL, how != 1);
                    if (told) assert_int_equal(told->msg.group, !survived);
                }
                assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_LOST, world - 1));
                if (how != 0) continue;
                /* A second time it is no news; no lease leaves before all know. */
                acted_none();
                echi_coordinator_step(&coordinator, &lost, &acted);
                assert_int_equal(acted.count, 0);
                for (int r = 0; r < world; r++) {
                    const struct echi_msg ready = {.kind = ECHI_KIND_READY, .members = 1};
                    if (r == rank) continue;
                    assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_LEASE, 0));
                    tell_coordinator(r, &ready);
                }
                assert_non_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_LEASE, 0));
            }
    /* Before training it is the same: first weights go to the owners that are left. */
    for (uint8_t rank = 1; rank <= 2; rank++) {
        const struct echi_event lost = {.type = ECHI_EVENT_LOST, .from = rank};
        const struct echi_msg ready = {.kind = ECHI_KIND_READY};
        small_plan(ECHI_SYNC_GSSP, 4, 2);
        coordinator_in(ECHI_RUN_PLANNED);
        coordinator.waits_for = 4;
        acted_none();
        echi_coordinator_step(&coordinator, &lost, &acted);
        assert_int_equal(coordinator.status, ECH_OK);
        for (int r = 0; r < 4; r++)
            if (r != rank) tell_coordinator(r, &ready);
        assert_int_equal(coordinator.phase, ECHI_RUN_FEEDS);
        for (int r = 0; r < 2; r++) assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_PARAMS, r) != NULL, r != rank);
    }
}

/* A lost worker's leases: those that are in stay in, the others go out again, whole, with new numbers, to who is left. */
static void only_revoked_leases_go_out_again(void **state) {
    (void)state;
    const struct echi_event lost = {.type = ECHI_EVENT_LOST, .from = 2};
    const struct echi_msg nothing = {.kind = ECHI_KIND_HELD}, ready = {.kind = ECHI_KIND_READY, .members = 1};
    small_plan(ECHI_SYNC_ASP, 3, 1);
    setup.plan.n[2] = 5;   /* more than the others take at once */
    coordinator_in(ECHI_RUN_TRAINS);
    tell_coordinator(1, &nothing);
    struct echi_lease of_lost[2];
    for (int i = 0, k = 0; i < coordinator.n_out; i++)
        if (coordinator.out[i].lease.worker == 2) of_lost[k++] = coordinator.out[i].lease;
    acted_none();
    echi_coordinator_step(&coordinator, &lost, &acted);
    tell_coordinator(0, &ready);
    assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_REVOKE, 0));
    tell_coordinator(1, &ready);
    for (int i = 0; i < 2; i++) {
        assert_non_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_REVOKE, i));
        assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_REVOKE, i)->msg.lease.id, of_lost[i].id);
    }
    struct echi_msg in = {.kind = ECHI_KIND_REVOKED, .lease = of_lost[0], .flag = 1, .members = 1};
    tell_coordinator(0, &in);
    assert_int_equal(coordinator.n_again, 0);
    in.lease = of_lost[1];
    in.flag = 0;
    tell_coordinator(0, &in);
    assert_int_equal(coordinator.n_again, 1);
    tell_coordinator(0, &in);   /* no second time */
    assert_int_equal(coordinator.n_again, 1);
    /* Its five samples go out one by one as the others apply theirs. */
    uint32_t next = of_lost[1].start;
    while (coordinator.n_again > 0) {
        struct echi_msg m = {.kind = ECHI_KIND_APPLIED, .flag = 1, .loss = 1};
        for (int i = 0; i < coordinator.n_out; i++)
            if (coordinator.out[i].lease.worker != 2) m.lease = coordinator.out[i].lease;
        tell_coordinator(0, &m);
        const struct echi_action *a = acted_on(ECHI_ACTION_SEND, ECHI_KIND_LEASE, 0);
        assert_non_null(a);
        assert_true(a->msg.lease.again && a->msg.lease.n == 1 && a->msg.lease.start == next && a->msg.lease.id > of_lost[1].id);
        next++;
    }
    assert_int_equal(next, of_lost[1].start + 5);
    assert_int_equal(coordinator.again_samples, 5);
}

static void answer_revoke(int shard, const struct echi_lease *l, bool in) {
    const struct echi_msg m = {.kind = ECHI_KIND_REVOKED, .from_role = ECHI_ROLE_OWNER, .lease = *l, .members = 2,
                               .flag = in ? ECHI_REVOKED_IN : ECHI_REVOKED_OUT};
    tell_coordinator(shard, &m);
}

/* Two workers are lost in one round. Shard 0 has what the one computed, shard 1 what the other did: each is waited for by a round that the
 * other cannot end, so both go out again before anything is applied, to the shard that lacks them and to no other. */
static void what_a_shard_lacks_goes_out_at_once(void **state) {
    (void)state;
    struct echi_lease of_lost[2];
    two_shards(4);
    coordinator_in(ECHI_RUN_TRAINS);
    tell_coordinator(1, &(struct echi_msg){.kind = ECHI_KIND_HELD});
    for (int i = 0; i < coordinator.n_out; i++) {
        const struct echi_lease *l = &coordinator.out[i].lease;
        if (l->worker >= 2 && l->round == 0) of_lost[l->worker - 2] = *l;
    }
    for (uint16_t rank = 2; rank < 4; rank++) {
        acted_none();
        echi_coordinator_step(&coordinator, &(struct echi_event){.type = ECHI_EVENT_LOST, .from = rank}, &acted);
    }
    for (int r = 0; r < 2; r++) tell_coordinator(r, &(struct echi_msg){.kind = ECHI_KIND_READY, .members = 2});
    answer_revoke(0, &of_lost[0], true);
    answer_revoke(1, &of_lost[1], true);
    assert_int_equal(coordinator.again_leases, 0);   /* of none of the two both shards have answered */
    answer_revoke(1, &of_lost[0], false);
    assert_true(acted_on(ECHI_ACTION_SEND, ECHI_KIND_LEASE, 0)->msg.lease.shards == 2);
    assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_LEASE, 0)->msg.lease.start, of_lost[0].start);
    answer_revoke(0, &of_lost[1], false);
    assert_true(acted_on(ECHI_ACTION_SEND, ECHI_KIND_LEASE, 0)->msg.lease.shards == 1);
    assert_int_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_LEASE, 0)->msg.lease.start, of_lost[1].start);
    assert_int_equal(coordinator.again_leases, 2);
}

/* Shards apply rounds by themselves: no lease is dealt beyond the next evaluation, so that it finds one round in all of them. */
static void shards_meet_at_an_evaluation(void **state) {
    (void)state;
    two_shards(4);
    coordinator_in(ECHI_RUN_TRAINS);
    coordinator.goal.has_test = true;
    coordinator.next_eval = 4;   /* a round */
    tell_coordinator(1, &(struct echi_msg){.kind = ECHI_KIND_HELD});
    assert_int_equal(coordinator.n_out, 4);
    for (int shard = 0; shard < 2; shard++)
        for (int i = coordinator.n_out - 1; i >= 0; i--) {
            assert_int_equal(coordinator.phase, ECHI_RUN_TRAINS);
            assert_int_equal(coordinator.applied, shard == 0 ? 0 : 3 - i);
            tell_coordinator(shard, &(struct echi_msg){.kind = ECHI_KIND_APPLIED, .lease = coordinator.out[i].lease, .loss = 1});
        }
    assert_true(coordinator.applied == 4 && coordinator.n_out == 0 && coordinator.phase == ECHI_RUN_HOLDS);
    assert_true(coordinator.loss_sum == 4 && coordinator.loss_samples == 4);   /* with shard 0's word alone */
}

/* Who had none left while one was on its way is dealt one more ahead; only a lease dealt since then says so again, and none of a
 * worker that is short of leases because there are none. */
static int dealt_to(int rank) {
    int count = 0;
    for (int i = 0; i < coordinator.n_out; i++) count += coordinator.out[i].lease.worker == rank;
    return count;
}
static struct echi_lease oldest_of(int rank) {
    struct echi_lease found = {.id = UINT32_MAX};
    for (int i = 0; i < coordinator.n_out; i++)
        if (coordinator.out[i].lease.worker == rank && coordinator.out[i].lease.id < found.id) found = coordinator.out[i].lease;
    return found;
}
static void who_runs_out_is_dealt_further_ahead(void **state) {
    (void)state;
    const struct echi_msg nothing = {.kind = ECHI_KIND_HELD};
    small_plan(ECHI_SYNC_ASP, 4, 1);
    coordinator_in(ECHI_RUN_TRAINS);
    tell_coordinator(1, &nothing);   /* any event deals leases */
    assert_int_equal(dealt_to(2), 2);
    for (int i = 0; i < 40; i++) {
        const int before = dealt_to(2);
        const uint32_t newest = coordinator.next_lease;
        struct echi_msg m = {.kind = ECHI_KIND_APPLIED, .lease = oldest_of(2), .flag = 1, .loss = 1};
        tell_coordinator(0, &m);
        assert_int_equal(dealt_to(2), before);
        m.lease = oldest_of(2);
        m.flag = 0;
        tell_coordinator(0, &m);
        assert_int_equal(dealt_to(2), before < 1 + ECHI_LEASES_AHEAD ? before + 1 : before);
        /* Those that were on their way then say nothing new. */
        for (m.lease = oldest_of(2); m.lease.id < newest; m.lease = oldest_of(2)) tell_coordinator(0, &m);
        assert_int_equal(dealt_to(2), before < 1 + ECHI_LEASES_AHEAD ? before + 1 : before);
        assert_int_equal(dealt_to(1), 2);
    }
    /* No samples are left: who runs out then has no lease on its way. */
    coordinator.stopping = true;
    while (dealt_to(1) > 0) {
        const struct echi_msg m = {.kind = ECHI_KIND_APPLIED, .lease = oldest_of(1), .flag = dealt_to(1) > 1, .loss = 1};
        tell_coordinator(0, &m);
    }
    coordinator.stopping = false;
    tell_coordinator(1, &nothing);
    assert_int_equal(dealt_to(1), 2);
}

static void tell_move(struct echi_owner *o, int worker, int group, uint32_t members) {
    const struct echi_msg m = {.kind = ECHI_KIND_REGROUP, .peer = (uint16_t)worker, .group = (uint8_t)group, .members = members};
    const struct echi_event e = {.type = ECHI_EVENT_MOVED, .from = (uint16_t)worker, .msg = &m};
    echi_plan_move(&setup.plan, worker, group);
    acted_none();
    echi_owner_step(o, &e, &acted);
}

/* What a worker said in an earlier stay changes nothing in the present one: it gets weights once, when it enters. */
static void an_owner_knows_the_stays_of_a_worker(void **state) {
    (void)state;
    struct echi_owner o;
    small_plan(ECHI_SYNC_GSSP, 4, 2);
    owner_started(&o, 0);
    owner_computed(&o);
    say_enter(&o, 1, 2);
    assert_false(o.view[2].idle);
    for (uint32_t members = 1; members <= 2; members++) {   /* away and back */
        tell_move(&o, 2, members == 1, members);
        assert_int_equal(o.view[2].member, members == 2);
        assert_null(acted_on(ECHI_ACTION_POST, 0, 0));   /* the place for its pushes is there */
    }
    say_enter(&o, 2, 2);   /* with the epoch of its first stay */
    assert_true(o.view[2].idle && o.joins[2]);
    assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0));
    push(&o, 1, 2, true);  /* what it had begun then is applied, and not answered */
    owner_computed(&o);
    assert_int_equal(o.last[2], 1);
    assert_true(o.view[2].idle);
    assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0));
    struct echi_msg enters = {.kind = ECHI_KIND_ENTER, .lease = small_lease(3, 2), .members = 2};
    tell_owner(&o, 2, &enters);
    assert_false(o.view[2].idle || o.joins[2]);
    assert_non_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 0));
    assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS, 1));
    enters.members = 3;    /* an epoch that this owner was not told of */
    tell_owner(&o, 2, &enters);
    assert_true(faulted());
}

/* Steps that a worker had begun before it left, and that came meanwhile, count on top when it is back: else another's step might meet
 * these and as many new ones as the bound allows. */
static void late_steps_count_at_the_return(void **state) {
    (void)state;
    struct echi_owner o;
    small_plan(ECHI_SYNC_GSSP, 4, 2);
    setup.plan.rounds_apart = 4;
    owner_started(&o, 0);
    owner_computed(&o);
    say_enter(&o, 1, 2);
    say_enter(&o, 2, 0);
    tell_move(&o, 2, 1, 1);
    for (uint32_t id = 2; id <= 4; id += 2) {
        push(&o, id, 0, true);
        owner_computed(&o);
    }
    tell_move(&o, 2, 0, 2);
    push(&o, 1, 2, false);
    owner_computed(&o);
    assert_true(o.view[0].steps == 2 && o.view[2].steps == 1 && o.view[2].idle);
    const struct echi_msg enters = {.kind = ECHI_KIND_ENTER, .lease = small_lease(5, 2), .members = 2};
    tell_owner(&o, 2, &enters);
    assert_int_equal(o.view[2].steps, 3);
    push(&o, 6, 0, false);
    owner_computed(&o);
    say_enter(&o, 7, 0);   /* as ever, of one that had only run out */
    assert_int_equal(o.view[0].steps, 3);
}

/* All nodes are told which worker moves, also where there are more than a byte counts. */
static void a_move_names_its_worker(void **state) {
    (void)state;
    small_plan(ECHI_SYNC_GSSP, 300, 2);
    coordinator_in(ECHI_RUN_TRAINS);
    acted_none();
    assert_true(echi_coordinator_move(&coordinator, 298, 1, &acted));
    assert_false(acted.overflow);
    for (int r = 0; r < 300; r++) {
        const struct echi_action *a = acted_on(ECHI_ACTION_SEND, ECHI_KIND_REGROUP, r);
        assert_non_null(a);
        assert_int_equal(a->msg.peer, 298);
        assert_int_equal(a->msg.group, 1);
    }
}

/* A worker is back at an owner while leases of its earlier stay there are out: it is dealt none for that owner before they are settled,
 * since a mark means all that is below it. */
static void marks_rise_with_numbers_over_stays(void **state) {
    (void)state;
    const struct echi_event lost = {.type = ECHI_EVENT_LOST, .from = 1};
    struct echi_msg ready = {.kind = ECHI_KIND_READY, .members = 1};
    const struct echi_msg nothing = {.kind = ECHI_KIND_HELD};
    small_plan(ECHI_SYNC_GSSP, 4, 2);
    coordinator_in(ECHI_RUN_TRAINS);
    tell_coordinator(3, &nothing);
    struct echi_lease earlier[2];
    for (int i = 0, k = 0; i < coordinator.n_out; i++)
        if (coordinator.out[i].lease.worker == 2) earlier[k++] = coordinator.out[i].lease;
    acted_none();
    assert_true(echi_coordinator_move(&coordinator, 2, 1, &acted));
    assert_false(echi_coordinator_move(&coordinator, 2, 0, &acted));   /* not before it has arrived */
    for (int r = 0; r < 4; r++) tell_coordinator(r, &ready);
    acted_none();
    echi_coordinator_step(&coordinator, &lost, &acted);   /* its new owner: it is its old one's again */
    ready.members = 2;
    for (int r = 0; r < 4; r++)
        if (r != 1) tell_coordinator(r, &ready);
    for (int n = 0; acted_on(ECHI_ACTION_SEND, ECHI_KIND_LEASE, n); n++)
        assert_int_not_equal(acted_on(ECHI_ACTION_SEND, ECHI_KIND_LEASE, n)->to, 2);
    for (int k = 0; k < 2; k++) {
        const struct echi_msg back = {.kind = ECHI_KIND_REVOKED, .from_role = ECHI_ROLE_WORKER, .lease = earlier[k]};
        tell_coordinator(2, &back);
        int dealt = 0;
        for (int n = 0; acted_on(ECHI_ACTION_SEND, ECHI_KIND_LEASE, n); n++)
            dealt += acted_on(ECHI_ACTION_SEND, ECHI_KIND_LEASE, n)->to == 2;
        assert_int_equal(dealt, k == 0 ? 0 : 2);
    }
}

static void only_owners_drain(void **state) {
    (void)state;
    const struct echi_msg drained = {.kind = ECHI_KIND_DRAINED};
    small_plan(ECHI_SYNC_GSSP, 4, 2);
    coordinator_in(ECHI_RUN_DRAINS);
    coordinator.waits_for = 2;
    tell_coordinator(3, &drained);
    tell_coordinator(2, &drained);
    tell_coordinator(1, &drained);
    tell_coordinator(1, &drained);
    assert_int_equal(coordinator.phase, ECHI_RUN_DRAINS);
    tell_coordinator(0, &drained);
    assert_int_equal(coordinator.phase, ECHI_RUN_LAST_EVAL);
}

/* The bins of staleness: each edge is the last of its bin, and no number at all falls outside. */
static void staleness_has_its_bin(void **state) {
    (void)state;
    assert_int_equal(echi_staleness_bin(-1), 0);
    assert_int_equal(echi_staleness_bin(0), 0);
    for (int i = 0; i < ECHI_STALENESS_BINS - 1; i++) {
        assert_int_equal(echi_staleness_bin(echi_staleness_edge[i]), i);
        assert_int_equal(echi_staleness_bin(echi_staleness_edge[i] + 1e-9), i + 1);
    }
    assert_int_equal(echi_staleness_bin(1e300), ECHI_STALENESS_BINS - 1);
    assert_int_equal(echi_staleness_bin((double)INFINITY), ECHI_STALENESS_BINS - 1);
    assert_int_equal(echi_staleness_bin((double)NAN), ECHI_STALENESS_BINS - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(staleness_has_its_bin), cmocka_unit_test(resumed),
        cmocka_unit_test(bsp), cmocka_unit_test(asp), cmocka_unit_test(ssp), cmocka_unit_test(gssp), cmocka_unit_test(local),
        cmocka_unit_test(planned),
        cmocka_unit_test(kills), cmocka_unit_test(owners_die), cmocka_unit_test(the_only_owner_dies), cmocka_unit_test(planned_kills),
        cmocka_unit_test(a_kill_at_every_event),
        cmocka_unit_test(speeds_that_change_move_workers), cmocka_unit_test(moves), cmocka_unit_test(moves_and_kills),
        cmocka_unit_test(a_worker_counts_exactly_while_it_holds_a_lease),
        cmocka_unit_test(answers_take_turns),
        cmocka_unit_test(stragglers_are_answered_first), cmocka_unit_test(the_own_worker_waits_for_no_place),
        cmocka_unit_test(a_state_waits_for_the_word_on_the_last),
        cmocka_unit_test(an_owner_waits_for_acknowledgements),
        cmocka_unit_test(an_owner_takes_a_lost_state_while_it_hands_on_another),
        cmocka_unit_test(owners_refuse_what_does_not_fit),
        cmocka_unit_test(workers_refuse_what_does_not_fit),
        cmocka_unit_test(the_head_merges_what_fits),
        cmocka_unit_test(the_head_serves_stragglers_first),
        cmocka_unit_test(a_shadow_trains_the_rows_of_the_lost_once),
        cmocka_unit_test(homes_are_nodes_with_the_layers),
        cmocka_unit_test(a_copy_comes_from_the_head),
        cmocka_unit_test(a_head_counts_sums_in_their_round),
        cmocka_unit_test(the_head_trains_rows_for_a_lost_owner_once),
        cmocka_unit_test(the_ledger_believes_only_itself),
        cmocka_unit_test(a_fault_is_a_failure), cmocka_unit_test(the_newest_weights_are_saved),
        cmocka_unit_test(a_rescue_of_shards),
        cmocka_unit_test(an_evaluation_reads_the_workers_weights),
        cmocka_unit_test(a_complaint_is_no_verdict), cmocka_unit_test(an_older_answer_is_none),
        cmocka_unit_test(of_many_complaints_the_one_they_are_about),
        cmocka_unit_test(the_accused_that_is_dead_is_the_lost_one), cmocka_unit_test(a_link_that_is_needed_ends_the_run),
        cmocka_unit_test(complaints_before_and_after_training), cmocka_unit_test(who_never_answers_is_lost),
        cmocka_unit_test(a_node_may_leave_while_the_run_ends), cmocka_unit_test(a_node_leaves_when_its_user_asks),
        cmocka_unit_test(a_loss_ends_the_run_only_where_it_must),
        cmocka_unit_test(only_revoked_leases_go_out_again),
        cmocka_unit_test(what_a_shard_lacks_goes_out_at_once),
        cmocka_unit_test(shards_meet_at_an_evaluation),
        cmocka_unit_test(who_runs_out_is_dealt_further_ahead),
        cmocka_unit_test(only_owners_drain), cmocka_unit_test(an_owner_knows_the_stays_of_a_worker),
        cmocka_unit_test(late_steps_count_at_the_return),
        cmocka_unit_test(marks_rise_with_numbers_over_stays), cmocka_unit_test(a_move_names_its_worker),
        cmocka_unit_test(lost_states_come_in_the_order_of_the_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
