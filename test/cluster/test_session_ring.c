/* SPDX-License-Identifier: Apache-2.0
 * Sessions on a ring. Gradients stay in the caller's arrays: also when a node is killed in the middle of a step, and the others push again
 * what they had added to sums. A run that is lost leaves weights of one round in the arrays. Each node is a process. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echelon.h"

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD = 4, SAMPLES = 64, BATCH = 16, EPOCHS = 10, ARRAYS = 3, LENDS = 2, KILLED = 3, NOBODY = -1 };
/* One is of several parts, the others are parts of one. */
static const size_t count[ARRAYS] = {300000, 7, 1001};

static int address_pipe[2];
static void on_bound(void *user, const char *address) {
    (void)user;
    if (write(address_pipe[1], address, strlen(address) + 1) < 0) _exit(9);
}

/* A gradient is the same for each seventh element. */
enum { PERIOD = 7 };
static float of_sample(uint32_t index, size_t i) { return (float)((index * 3 + i) % PERIOD) - 2; }

/* Each sample has moved each number once an epoch, whoever computed it. */
static bool is_trained(float *const value[ARRAYS], double lr) {
    double all[PERIOD] = {0};
    for (size_t i = 0; i < PERIOD; i++)
        for (uint32_t k = 0; k < SAMPLES; k++) all[i] += (double)of_sample(k, i);
    for (int p = 0; p < ARRAYS; p++)
        for (size_t i = 0; i < count[p]; i++)
            if (fabs((double)value[p][i] + all[i % PERIOD] * EPOCHS * lr / BATCH) > 1e-4) return false;
    return true;
}

/* All of those whose gradient is the same were moved in the same rounds. */
static bool is_of_one_round(const float *const value[ARRAYS]) {
    for (int p = 0; p < ARRAYS; p++)
        for (size_t i = 0; i < count[p]; i++)
            if (value[p][i] != value[0][i % PERIOD]) return false;
    return true;
}

/* The exit status of this node's process. */
static int node(int rank, const char *address, int killed) {
    static const char *const name[ARRAYS] = {"large", "small", "middle"};
    struct ech_config c;
    struct ech_param param[ARRAYS];
    struct ech_error err;
    struct ech_report *report = calloc(1, sizeof *report);
    float *value[ARRAYS], *grad[ARRAYS];
    const float *weights[ARRAYS];   /* where they are: on one node in Echelon's memory */
    const bool lends = rank == LENDS;
    ech_session *session;
    struct ech_step step;
    ech_config_init(&c);
    c.rank = rank;
    c.world = WORLD;
    c.batch = BATCH;
    c.lr = 1.0 / 64;
    c.momentum = c.weight_decay = 0;
    c.epochs = EPOCHS;
    c.deadline = 60;   /* a killed process is found by its connections */
    c.on_bound = on_bound;
    snprintf(c.sync, sizeof c.sync, "bsp");
    snprintf(c.shares, sizeof c.shares, "equal");
    snprintf(c.exchange, sizeof c.exchange, "ring");
    snprintf(c.coordinator, sizeof c.coordinator, "%s", address);
    for (int p = 0; p < ARRAYS; p++) {
        value[p] = calloc(count[p], sizeof *value[p]);
        grad[p] = calloc(count[p], sizeof *grad[p]);
        if (!value[p] || !grad[p] || !report) return 2;
        weights[p] = value[p];
        param[p] = (struct ech_param){name[p], value[p], grad[p], count[p], lends ? &weights[p] : NULL};
    }
    if (ech_session_open(param, ARRAYS, SAMPLES, &c, NULL, NULL, &session, &err) != ECH_OK) return 3;
    ech_status status;
    for (int steps = 0; (status = ech_step_begin(session, &step, &err)) == ECH_OK; steps++) {
        if (lends == (weights[0] == value[0]) || !is_of_one_round(weights)) return 10;
        for (int p = ARRAYS - 1; p >= 0; p--) {
            if (rank == killed && steps == 7 && p == 0) {
                usleep(100000);   /* the others have what does not depend on this array */
                kill(getpid(), SIGKILL);
            }
            float sum[PERIOD] = {0};
            for (size_t i = 0; i < PERIOD; i++)
                for (int k = 0; k < step.n; k++) sum[i] += of_sample(step.index[k], i) / (float)step.n;
            for (size_t i = 0; i < count[p]; i++) grad[p][i] = sum[i % PERIOD];
            if (ech_gradient_ready(session, p, &err) != ECH_OK) return 4;
        }
        if (ech_step_end(session, 1, &err) != ECH_OK) return 5;
    }
    if (killed == 0) {   /* the coordinator */
        const bool right = status == ECH_E_PEER_LOST && is_of_one_round(weights);
        return ech_session_close(session, report, NULL) == ECH_E_PEER_LOST && right ? 0 : 9;
    }
    if (status != ECH_E_END || ech_session_close(session, report, &err) != ECH_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
        return 6;
    }
    if (rank == 0 && report->n_lost != (killed != NOBODY)) return 7;
    return is_trained(value, c.lr) ? 0 : 8;
}

static void run(int killed) {
    pid_t pid[WORLD];
    char address[64] = "127.0.0.1:0";
    assert_int_equal(pipe(address_pipe), 0);
    for (int r = 0; r < WORLD; r++) {
        pid[r] = fork();
        if (pid[r] == 0) _exit(node(r, address, killed));
        if (r == 0) assert_true(read(address_pipe[0], address, sizeof address) > 0);
    }
    for (int r = 0; r < WORLD; r++) {
        int status = 0;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        if (r == killed) assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
    }
    close(address_pipe[0]);
    close(address_pipe[1]);
}

static void test_each_sample_counts_once_an_epoch(void **state) {
    (void)state;
    run(NOBODY);
}

static void test_a_killed_node_leaves_no_gap(void **state) {
    (void)state;
    run(KILLED);
}

static void test_a_lost_run_leaves_weights_of_one_round(void **state) {
    (void)state;
    run(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_sample_counts_once_an_epoch),
                                       cmocka_unit_test(test_a_killed_node_leaves_no_gap),
                                       cmocka_unit_test(test_a_lost_run_leaves_weights_of_one_round)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
