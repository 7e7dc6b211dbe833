/* SPDX-License-Identifier: Apache-2.0
 * A recorded step as a time line: two nodes by hand, whose intervals and critical path are known; which step is shown; of simulated
 * clusters under every policy what must hold of any. */
#include "tape.h"
#include "echi_time_line.h"

#include <math.h>

#define PLANS (60 / test_part())
enum { INTERVALS = 1 << 15 };

static struct echi_recording recording[NODES];
static struct echi_clock as_it_is[NODES];   /* that of rank 0 */
static struct echi_times times[ECHI_WORLD_MAX];
static struct echi_plan plan;
static struct ech_interval shown[INTERVALS];
static struct ech_report report;
static struct ech_error error;

static void open_all(int world) {
    for (int r = 0; r < world; r++) assert_int_equal(echi_recording_open(tape[r].bytes, tape[r].len, "tape", &recording[r], NULL), ECH_OK);
}

static ech_status show(int world, const struct echi_clock *clock, struct echi_recorded_step *step, struct ech_timeline *out) {
    struct echi_timeline *line = echi_time_line_make(world);
    assert_non_null(line);
    *out = (struct ech_timeline){.interval = shown, .capacity = INTERVALS};
    const ech_status status = echi_recordings_line(recording, world, clock, &plan, times, line, step, &error);
    if (status == ECH_OK) {
        echi_time_line_show(line, out);
        echi_time_line_path(line, &report);
    }
    free(line);
    return status;
}

/* ---- by hand ---- */

static const struct echi_slot gradients = {ECHI_SLOT_WORKER_GRADS, 0}, weights = {ECHI_SLOT_OWNER_WEIGHTS, 1};

static struct echi_msg message(int kind, uint32_t lease, int part) {
    return (struct echi_msg){.kind = (uint8_t)kind, .to_role = ECHI_ROLE_OWNER, .from_role = ECHI_ROLE_WORKER,
                             .lease = {.id = lease, .n = 4}, .part = (uint16_t)part};
}
static struct echi_action send_to(int to, struct echi_msg m, struct echi_slot slot) {
    return (struct echi_action){.type = ECHI_ACTION_SEND, .kind = m.kind, .to = (uint16_t)to, .slot = slot, .msg = m};
}
static struct echi_action ask_for(int kind, uint32_t lease) {
    return (struct echi_action){.type = ECHI_ACTION_COMPUTE, .task = {.kind = (uint8_t)kind, .lease = {.id = lease, .n = 4}}};
}
/* An event that brings nothing. */
static void at_time(int node, int64_t now) { record_event(node, (struct echi_event){.type = ECHI_EVENT_SENT, .now = now}, NULL, 0); }
static void come(int node, int from, int64_t now, struct echi_msg m, struct echi_action *asked, int count) {
    record_event(node, (struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .now = now, .msg = &m}, asked, count);
}
static void leave(int node, int to, int64_t now, int kind, struct echi_slot slot) {
    record_event(node, (struct echi_event){.type = ECHI_EVENT_SENT, .from = (uint16_t)to, .kind = (uint8_t)kind, .slot = slot, .now = now},
                 NULL, 0);
}
static void done(int node, int64_t now, int kind, uint32_t lease, struct echi_action *asked, int count) {
    const struct echi_task task = {.kind = (uint8_t)kind, .lease = {.id = lease, .n = 4}};
    const struct echi_result result = {.kept = false};
    record_event(node, (struct echi_event){.type = ECHI_EVENT_COMPUTED, .now = now, .task = &task, .result = &result}, asked, count);
}

static double path_of(const char *what, int rank) {
    for (int i = 0; i < report.n_path; i++)
        if (strcmp(report.path[i].what, what) == 0 && report.path[i].rank == rank) return 1e9 * report.path[i].seconds;
    return 0;
}
static const struct ech_interval *interval_of(const struct ech_timeline *line, int rank, const char *on, const char *what, double from) {
    for (int i = 0; i < line->count; i++) {
        const struct ech_interval *s = &shown[i];
        if (s->rank == rank && strcmp(s->on, on) == 0 && strcmp(s->what, what) == 0 && fabs(1e9 * s->from - from) < 1e-6) return s;
    }
    fail_msg("rank %d has no %s on %s from %g ns on", rank, what, on, from);
    return NULL;
}
static void lasts(const struct ech_interval *i, double until, double path_from, double path_to) {
    if (fabs(1e9 * i->to - until) > 1e-6 || fabs(1e9 * i->path_from - path_from) > 1e-6 || fabs(1e9 * i->path_to - path_to) > 1e-6)
        fail_msg("%s of rank %d until %g, on the path from %g to %g ns", i->what, i->rank, 1e9 * i->to, 1e9 * i->path_from,
                 1e9 * i->path_to);
}

/* A worker, rank 1, and an owner: two parts are pushed, applied when both are in, and weights come back. The owner hears at `left` that
 * they have left it; where that is late, another message leaves before them, of which it hears late, too. */
static void record_two(int64_t left) {
    static const struct echi_slot other = {ECHI_SLOT_OWNER_WEIGHTS, 2};
    const bool late = left > 500;
    struct echi_action a[2];
    for (int node = 0; node < 2; node++) begin_by_hand(node, 2);
    a[0] = send_to(1, message(ECHI_KIND_LEASE, 1, 0), gradients);
    record_event(0, (struct echi_event){.type = ECHI_EVENT_SENT, .now = 50}, a, 1);
    a[0] = ask_for(ECHI_TASK_STEP, 1);
    come(1, 0, 100, message(ECHI_KIND_LEASE, 1, 0), a, 1);
    a[0] = send_to(0, message(ECHI_KIND_PUSH, 1, 1), gradients);
    a[1] = send_to(0, message(ECHI_KIND_PUSH, 1, 0), gradients);
    done(1, 300, ECHI_TASK_STEP, 1, a, 2);
    leave(1, 0, 310, ECHI_KIND_PUSH, gradients);
    leave(1, 0, 330, ECHI_KIND_PUSH, gradients);
    come(0, 1, 340, message(ECHI_KIND_PUSH, 1, 1), NULL, 0);
    a[0] = ask_for(ECHI_TASK_APPLY, 1);
    come(0, 1, 360, message(ECHI_KIND_PUSH, 1, 0), a, 1);
    a[0] = send_to(1, message(ECHI_KIND_WEIGHTS, 0, 0), weights);
    a[1] = a[0];
    if (late) a[0] = send_to(1, message(ECHI_KIND_ACT_GRAD, 0, 0), other);
    done(0, 460, ECHI_TASK_APPLY, 1, a, 1 + late);
    if (late) leave(0, 1, left - 10, ECHI_KIND_ACT_GRAD, other);
    leave(0, 1, left, ECHI_KIND_WEIGHTS, weights);
    a[0] = ask_for(ECHI_TASK_STEP, 2);
    come(1, 0, 500, message(ECHI_KIND_WEIGHTS, 0, 0), a, 1);
    done(1, 700, ECHI_TASK_STEP, 2, NULL, 0);
    at_time(0, 800);
}

static void a_step_by_hand(void **state) {
    (void)state;
    struct echi_recorded_step step;
    struct ech_timeline line;
    record_two(480);
    open_all(2);
    plan.sync = ECHI_SYNC_BSP;
    assert_int_equal(show(2, as_it_is, &step, &line), ECH_OK);
    assert_true(step.rank == 1 && step.step == 2 && step.steps == 2 && line.rank == -1);
    assert_true(fabs(1e9 * line.seconds - 400) < 1e-6 && fabs(1e9 * report.path_seconds - 400) < 1e-6);
    lasts(interval_of(&line, 1, "out", "gradients", 0), 10, 0, 10);
    lasts(interval_of(&line, 1, "out", "gradients", 10), 30, 0, 0);   /* the link in was what it waited for */
    lasts(interval_of(&line, 0, "in", "gradients", 10), 40, 10, 40);
    lasts(interval_of(&line, 0, "in", "gradients", 40), 60, 40, 60);
    lasts(interval_of(&line, 0, "compute", "apply", 60), 160, 60, 160);
    lasts(interval_of(&line, 0, "out", "weights", 160), 180, 160, 180);
    lasts(interval_of(&line, 1, "in", "weights", 180), 200, 180, 200);
    lasts(interval_of(&line, 1, "compute", "forward", 200), 267, 200, 267);   /* a third of a step that nobody has measured */
    assert_true(fabs(path_of("in", 0) - 50) < 1e-3 && fabs(path_of("apply", 0) - 100) < 1e-3 && fabs(path_of("out", 1) - 10) < 1e-3);
    assert_true(fabs(path_of("out", 0) - 20) < 1e-3 && fabs(path_of("in", 1) - 20) < 1e-3);
    assert_true(fabs(path_of("forward", 1) - 200 / 3.0) < 1e-3 && fabs(path_of("backward", 1) - 400 / 3.0) < 1e-3);
}

/* A message has left no later than it was there. */
static void an_end_that_is_heard_of_late(void **state) {
    (void)state;
    struct echi_recorded_step step;
    struct ech_timeline line;
    record_two(650);
    open_all(2);
    assert_int_equal(show(2, as_it_is, &step, &line), ECH_OK);
    lasts(interval_of(&line, 0, "out", "weights", 160), 200, 160, 200);
    assert_true(fabs(path_of("out", 0) - 40) < 1e-3 && fabs(path_of("in", 1)) < 1e-3);
    assert_true(fabs(1e9 * report.path_seconds - 400) < 1e-6);
}

/* Layers take 1 and 3 forward, 2 and 4 backward: of a step in two tasks the first is forward, and the second until 40 ns are. */
static void a_step_turns_where_its_layers_do(void **state) {
    (void)state;
    const double seconds[2][ECHI_PASSES] = {{1, 2}, {3, 4}};
    struct echi_recorded_step step;
    struct ech_timeline line;
    struct echi_action a = ask_for(ECHI_TASK_STEP, 1);
    struct echi_task first = {.kind = ECHI_TASK_STEP, .lease = {.id = 2, .n = 4}, .until = 1};
    times[1] = (struct echi_times){.count = 1, .n = {4}, .trunk = {10}, .sizes = 1, .units = 2, .cut = 2};
    echi_times_share(&times[1], 0, seconds);
    for (int node = 0; node < 2; node++) begin_by_hand(node, 2);
    at_time(0, 10);
    record_event(1, (struct echi_event){.type = ECHI_EVENT_SENT, .now = 10}, &a, 1);
    done(1, 100, ECHI_TASK_STEP, 1, NULL, 0);
    a.task = first;
    record_event(1, (struct echi_event){.type = ECHI_EVENT_SENT, .now = 100}, &a, 1);
    const struct echi_result none = {.kept = false};
    record_event(1, (struct echi_event){.type = ECHI_EVENT_COMPUTED, .now = 120, .task = &first, .result = &none}, NULL, 0);
    a = ask_for(ECHI_TASK_STEP, 2);
    record_event(1, (struct echi_event){.type = ECHI_EVENT_SENT, .now = 150}, &a, 1);
    done(1, 230, ECHI_TASK_STEP, 2, NULL, 0);
    open_all(2);
    plan.sync = ECHI_SYNC_BSP;
    assert_int_equal(show(2, as_it_is, &step, &line), ECH_OK);
    times[1] = (struct echi_times){.count = 0};
    lasts(interval_of(&line, 1, "compute", "forward", 0), 20, 0, 20);
    lasts(interval_of(&line, 1, "compute", "forward", 50), 70, 50, 70);
    lasts(interval_of(&line, 1, "compute", "backward", 70), 130, 70, 130);
    assert_true(fabs(path_of("latency", -1) - 30) < 1e-3);
}

/* What a payload's end brings waited for its way out; what a message brings of which no send is recorded, for nobody. */
static void what_let_a_step_begin(void **state) {
    (void)state;
    struct echi_recorded_step step;
    struct ech_timeline line;
    for (int sent = 0; sent < 2; sent++) {
        struct echi_action a = ask_for(ECHI_TASK_STEP, 1);
        for (int node = 0; node < 2; node++) begin_by_hand(node, 2);
        record_event(1, (struct echi_event){.type = ECHI_EVENT_SENT, .now = 10}, &a, 1);
        a = send_to(1, message(ECHI_KIND_LEASE, 9, 0), gradients);
        record_event(0, (struct echi_event){.type = ECHI_EVENT_SENT, .now = 10}, &a, 1);
        a = send_to(0, message(ECHI_KIND_PUSH, 1, 0), gradients);
        done(1, 300, ECHI_TASK_STEP, 1, &a, 1);
        come(1, 0, 320, message(ECHI_KIND_LEASE, 9, 0), NULL, 0);
        a = ask_for(ECHI_TASK_STEP, 2);
        if (sent)
            record_event(1, (struct echi_event){.type = ECHI_EVENT_SENT, .kind = ECHI_KIND_PUSH, .slot = gradients, .now = 350}, &a, 1);
        else come(1, 0, 350, message(ECHI_KIND_LEASE, 2, 0), &a, 1);
        done(1, 500, ECHI_TASK_STEP, 2, NULL, 0);
        open_all(2);
        assert_int_equal(show(2, as_it_is, &step, &line), ECH_OK);
        assert_true(fabs(1e9 * line.seconds - 200) < 1e-6);
        assert_true(fabs(path_of(sent ? "out" : "latency", sent ? 1 : -1) - 50) < 1e-3);
    }
}

/* Steps of so many ns, of two nodes that exchange nothing. */
static void record_steps(int node, const int64_t *length, int count) {
    int64_t now = 10;
    begin_by_hand(node, 2);
    for (int i = 0; i < count; i++) {
        struct echi_action a = ask_for(ECHI_TASK_STEP, 1 + (uint32_t)i);
        record_event(node, (struct echi_event){.type = ECHI_EVENT_SENT, .now = now}, &a, 1);
        done(node, now += length[i], ECHI_TASK_STEP, 1 + (uint32_t)i, NULL, 0);
    }
}

static void the_median_step_of_the_slowest_is_shown(void **state) {
    (void)state;
    struct echi_recorded_step step;
    struct ech_timeline line;
    plan.sync = ECHI_SYNC_ASP;
    record_steps(0, (int64_t[]){90, 60, 60, 60, 60, 60, 60}, 7);
    record_steps(1, (int64_t[]){500, 300, 80, 200, 100}, 5);
    open_all(2);
    assert_int_equal(show(2, as_it_is, &step, &line), ECH_OK);
    assert_true(step.rank == 1 && step.step == 5 && step.steps == 5 && line.rank == 1);
    assert_true(fabs(1e9 * line.seconds - 100) < 1e-6 && fabs(path_of("backward", 1) - 200 / 3.0) < 1e-3);
    record_steps(1, (int64_t[]){500}, 1);
    open_all(2);
    assert_int_equal(show(2, as_it_is, &step, &line), ECH_OK);
    assert_true(step.rank == 0 && step.step == 2 && fabs(1e9 * line.seconds - 60) < 1e-6);
    record_steps(0, (int64_t[]){500}, 1);
    open_all(2);
    assert_int_equal(show(2, as_it_is, &step, &line), ECH_E_UNSUPPORTED);
    assert_non_null(strstr(error.text, "no node has recorded two steps"));
}

/* ---- simulated ---- */

static int by_lane(const void *a, const void *b) {
    const struct ech_interval *x = a, *y = b;
    if (x->rank != y->rank) return x->rank - y->rank;
    if (strcmp(x->on, y->on) != 0) return strcmp(x->on, y->on);
    return (x->from > y->from) - (x->from < y->from);
}

/* A thread does one thing at a time; all lies within the step; the path's stretches and what lies between them are the step. */
static void holds(const struct ech_timeline *line, int world) {
    double path = 0, parts = 0;
    assert_true(line->left_out == 0 && line->seconds > 0);
    qsort(shown, (size_t)line->count, sizeof shown[0], by_lane);
    for (int i = 0; i < line->count; i++) {
        const struct ech_interval *s = &shown[i], *before = i ? s - 1 : NULL;
        assert_true(s->rank < world && s->peer < world && s->from >= 0 && s->to > s->from && s->to <= line->seconds * (1 + 1e-9));
        assert_true(s->path_to == 0 || (s->path_from >= s->from - 1e-12 && s->path_to <= s->to + 1e-12));
        path += s->path_to - s->path_from;
        if (before && before->rank == s->rank && strcmp(s->on, "compute") == 0 && strcmp(before->on, "compute") == 0)
            assert_true(before->to <= s->from + 1e-12);
    }
    for (int i = 0; i < report.n_path; i++) parts += report.path[i].seconds;
    if (fabs(parts - line->seconds) > 1e-6 * line->seconds) fail_msg("the path takes %g s of a step of %g s", parts, line->seconds);
    const double latency = 1e-9 * path_of("latency", -1);
    if (fabs(path + latency - line->seconds) > 1e-6 * line->seconds)
        fail_msg("%g s of the path are drawn of %g s, %g s are on no lane", path, line->seconds, latency);
}

static void what_holds_of_any_run(void **state) {
    (void)state;
    static struct echi_record record;
    static struct echi_clock clock[NODES];
    int drawn = 0;
    for (uint64_t seed = 1; seed <= PLANS; seed++) {
        struct echi_recorded_step step;
        struct ech_timeline line;
        const int world = record_run(seed);
        open_all(world);
        assert_int_equal(echi_recordings_clocks(recording, world, clock, NULL), ECH_OK);
        echi_recording_rewind(&recording[0]);
        if (!echi_recording_planned(&recording[0], &record, &plan, times)) continue;
        const ech_status status = show(world, clock, &step, &line);
        if (status == ECH_E_UNSUPPORTED) continue;
        assert_int_equal(status, ECH_OK);
        assert_true(step.step >= 2 && step.step <= step.steps && plan.n[step.rank] > 0);
        assert_int_equal(line.rank, plan.sync == ECHI_SYNC_BSP ? -1 : step.rank);
        holds(&line, world);
        drawn++;
    }
    print_message("%d of %d runs have a step to show\n", drawn, (int)PLANS);
    assert_true(drawn > (int)PLANS / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_by_hand), cmocka_unit_test(an_end_that_is_heard_of_late),
        cmocka_unit_test(a_step_turns_where_its_layers_do), cmocka_unit_test(what_let_a_step_begin),
        cmocka_unit_test(the_median_step_of_the_slowest_is_shown), cmocka_unit_test(what_holds_of_any_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
