/* SPDX-License-Identifier: Apache-2.0
 * Clocks that jump, go back or stand still, of all machines (a virtual host that slept) or of one: a run goes on, accuses
 * nobody and ends, and no time in its report is negative.
 * make check only: 15 s of processor time, most of it waiting for clocks; unit/test_silence has the rule. */
#include "nodes.h"

#include <stdlib.h>

#define HOUR INT64_C(3600000000000)
#define MS INT64_C(1000000)
enum { WORLD = 3, EVERYBODY = -1 };

static struct inject_machine machine[WORLD];
static atomic_bool over;

static void *own_clock_main(void *self) {
    inject_clock_follow(&machine[((struct node *)self)->config.rank]);
    return node_main(self);
}
static void *own_clock_session(void *self) {
    inject_clock_follow(&machine[((struct node *)self)->config.rank]);
    return session_main(self);
}

static const struct trick {
    const char *name;
    int who;            /* rank, or EVERYBODY */
    int64_t first, then;/* how far the clock jumps, and how far some milliseconds later; again and again */
    int still_ms;       /* it stands still for so long between the two */
    bool at_start;      /* from before the nodes meet, else once they have */
    bool once;          /* and then the run goes on for longer than its deadline */
} tricks[] = {
    {"everybody's clock jumps an hour forward", EVERYBODY, HOUR, HOUR, 0, false, false},
    {"everybody's clock jumps an hour back", EVERYBODY, -HOUR / 4, -HOUR / 4, 0, false, false},
    {"everybody's clock jumps to and fro", EVERYBODY, HOUR, -HOUR, 0, false, false},
    {"everybody's clock trembles", EVERYBODY, 3 * MS, -3 * MS, 0, false, false},
    {"everybody's clock stands still now and then", EVERYBODY, 0, 0, 20, false, false},
    {"the clocks jump while nodes meet and measure", EVERYBODY, 3 * MS, -3 * MS, 0, true, false},
    {"the clocks stand still while nodes meet and measure", EVERYBODY, 0, 0, 200, true, false},
    {"the coordinator's clock jumps forward", 0, HOUR, 0, 0, false, false},
    {"the coordinator's clock jumps back", 0, -HOUR / 4, 0, 0, false, false},
    {"a worker's clock jumps forward", 2, HOUR, 0, 0, false, false},
    {"a worker's clock jumps back", 2, -HOUR / 4, 0, 0, false, false},
    {"everybody's clock jumps back once", EVERYBODY, -HOUR / 4, 0, 0, false, true},
    {"a worker's clock jumps back once", 2, -HOUR / 4, 0, 0, false, true},
    {"the coordinator's clock jumps forward once", 0, HOUR, 0, 0, false, true},
    {"a worker's clock jumps to and fro", 1, HOUR, -HOUR, 0, false, false},
};
enum { TRICKS = sizeof tricks / sizeof tricks[0] };

static void jump(const struct trick *t, int64_t by) {
    if (t->who == EVERYBODY) inject_clock_jump(by);
    else atomic_fetch_add(&machine[t->who].ahead, by);
}

/* By a clock that jumps a deadline is over at once, and whoever has not answered at the twelfth is lost. So that a slow machine has time to
 * answer, each of them has looked at its clock some times before it jumps again, unless it has nothing to do. */
static void let_all_answer(void) {
    long had[WORLD];
    for (int r = 0; r < WORLD; r++) had[r] = atomic_load(&machine[r].looks);
    usleep(50000);
    for (int ms = 0; ms < 1000 && !atomic_load(&over); ms++) {
        int r = 0;
        while (r < WORLD && atomic_load(&machine[r].looks) - had[r] >= 20) r++;
        if (r == WORLD) return;
        usleep(1000);
    }
}

static void *play(void *self) {
    const struct trick *t = self;
    while (!t->at_start && !atomic_load(&over) && !(atomic_load(&nodes[0].joined) && atomic_load(&nodes[WORLD - 1].joined))) usleep(200);
    while (!atomic_load(&over)) {
        usleep(5000);
        jump(t, t->first);
        if (t->still_ms) inject_clock_stop(true);
        usleep((useconds_t)(1000 * (5 + t->still_ms)));
        inject_clock_stop(false);
        jump(t, t->then);
        while (t->once && !atomic_load(&over)) usleep(200);
        if (llabs(t->first) >= HOUR / 4) let_all_answer();
    }
    return NULL;
}

static void one(const struct trick *t, const char *sync, bool session) {
    snprintf(nodes_doing, sizeof nodes_doing, "%s, %s%s", t->name, sync, session ? ", sessions" : "");
    prepare_nodes(WORLD, sync, session ? 0 : strcmp(sync, "gssp") == 0);
    for (int r = 0; r < WORLD; r++) {
        nodes[r].config.epochs = 150;
        nodes[r].config.eval_every = 30 * TRAIN;
        if (t->once) nodes[r].config.deadline = 3;
        atomic_store(&machine[r].ahead, 0);
    }
    atomic_store(&nodes_pause, t->once ? 3000 : 0);
    pthread_t player;
    atomic_store(&over, false);
    assert_int_equal(__real_pthread_create(&player, NULL, play, (void *)(uintptr_t)t), 0);
    run_nodes(WORLD, session ? own_clock_session : own_clock_main);
    atomic_store(&over, true);
    pthread_join(player, NULL);
    inject_clock_real();
    const struct ech_report *report = &nodes[0].report;
    for (int r = 0; r < WORLD; r++)
        if (nodes[r].status != ECH_OK)
            fail_msg("%s: rank %d: %s, '%s'", nodes_doing, r, ech_status_name(nodes[r].status), nodes[r].error.text);
    assert_int_equal(report->samples, 150 * TRAIN);
    const double times[] = {report->seconds, report->images_per_second, report->measuring_seconds, report->startup_seconds,
                            report->staleness_max};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (!(times[i] >= 0)) fail_msg("%s: time %d in the report is %g", nodes_doing, (int)i, times[i]);
    for (int r = 0; r < WORLD && !session; r++)
        if (!(report->step_seconds[r] > 0)) fail_msg("%s: rank %d measured %g s", nodes_doing, r, report->step_seconds[r]);
}

static void each_trick(void **state) {
    const struct trick *t = *state;
    const char *word = getenv("FAULTS_TRIED");
    const int kinds = word && strcmp(word, "all") == 0 ? 3 : 1;   /* else each trick is played on one kind of run */
    for (int k = 0; k < kinds; k++) {
        const int kind = (int)(t - tricks + k) % 3;
        one(t, kind == 0 ? "bsp" : kind == 1 ? "gssp" : "ssp", kind == 2);
    }
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[TRICKS];
    for (int i = 0; i < TRICKS; i++)
        tests[i] = (struct CMUnitTest){.name = tricks[i].name, .test_func = each_trick, .initial_state = (void *)(uintptr_t)&tricks[i]};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("clocks that jump", tests, nodes_setup, nodes_teardown);
}
