/* SPDX-License-Identifier: Apache-2.0
 * Environments as launchers leave them: which node of which run each makes of a process. Those of Open MPI 4.1, Slurm 22.05 and torchrun
 * 2.x are as the real ones set them, less what nobody reads. */
#include "echi_launcher.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define VARIABLES 16
#define TORCHRUN "RANK=5", "WORLD_SIZE=8", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500"
#define OPENMPI "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "PMIX_RANK=1", "PMIX_NAMESPACE=620363777"
#define BATCH "SLURM_JOB_ID=7", "SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_NODELIST=n[1-2]", "SLURM_LOCALID=0", "SLURM_NODEID=0"
#define STEP(rank, world) \
    "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=" #rank, "SLURM_STEP_NUM_TASKS=" #world, "SLURM_NTASKS=64", "SLURM_NODEID=1"

struct wanted {
    const char *launcher;      /* NULL: none */
    int rank, world, local_rank, local_world;
    const char *coordinator;   /* with a port of 0: any of those that follow from a job */
    bool bound;
};
static const struct {
    const char *what, *variable[VARIABLES];
    struct wanted wanted;
} cases[] = {
    {"nothing", {NULL}, {NULL, 0, 1, 0, 0, "", false}},
    {"names of others", {"RANKS=1", "MY_RANK=1", "SLURM_CONF=/etc/slurm.conf"}, {NULL, 0, 1, 0, 0, "", false}},

    {"torchrun, two machines", {TORCHRUN, "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "TORCHELASTIC_USE_AGENT_STORE=False"},
     {"torchrun", 5, 8, 1, 4, "10.0.0.1:29500", false}},
    {"torchrun, whose agent listens at the port itself", {TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE=True"},
     {"torchrun", 5, 8, 0, 0, "10.0.0.1:29501", false}},
    {"torchrun on this machine", {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=29500", "LOCAL_RANK=0",
                                 "LOCAL_WORLD_SIZE=2"},
     {"torchrun", 0, 2, 0, 2, "localhost:29500", false}},
    {"IPv6", {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=fd00::2", "MASTER_PORT=29500"}, {"torchrun", 0, 2, 0, 0, "[fd00::2]:29500", false}},
    {"a rank and a world alone are not torchrun's", {"RANK=1", "WORLD_SIZE=2"}, {NULL, 0, 1, 0, 0, "", false}},

    {"mpirun on this machine", {OPENMPI, "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4", "OMPI_MCA_orte_bound_at_launch=1"},
     {"Open MPI", 1, 4, 1, 4, "127.0.0.1:0", true}},
    {"mpirun on several", {OPENMPI, "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}, {"Open MPI", 1, 4, 0, 2, "", false}},
    {"mpirun -np 1", {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"}, {"Open MPI", 0, 1, 0, 0, "", false}},

    {"MPICH", {"PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"}, {"PMI", 3, 4, 1, 2, "", false}},

    {"srun, one machine", {STEP(1, 2), "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NODELIST=n1", "SLURM_STEP_TASKS_PER_NODE=2",
                          "SLURM_LOCALID=1"},
     {"Slurm", 1, 2, 1, 0, "127.0.0.1:0", false}},
    {"srun, three machines", {STEP(2, 5), "SLURM_STEP_NUM_NODES=3", "SLURM_STEP_NODELIST=gpu[007-008,12]-ib,m1",
                              "SLURM_STEP_TASKS_PER_NODE=2(x2),1", "SLURM_LOCALID=0", "SLURM_CPU_BIND_TYPE=mask_cpu:"},
     {"Slurm", 2, 5, 0, 2, "gpu007-ib:0", true}},
    {"srun, one host of a list", {STEP(1, 2), "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=a.example.org,b[1-2]"},
     {"Slurm", 1, 2, 0, 0, "a.example.org:0", false}},
    {"srun in an order of the user's", {STEP(1, 2), "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_DISTRIBUTION=arbitrary"},
     {"Slurm", 1, 2, 0, 0, "", false}},
    {"srun of two parts", {STEP(1, 2), "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NODELIST=n1", "SLURM_HET_SIZE=2"},
     {"Slurm", 1, 2, 0, 0, "", false}},
    {"a list without an end", {STEP(1, 2), "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=n[1-"}, {"Slurm", 1, 2, 0, 0, "", false}},
    {"an sbatch script is one process", {BATCH}, {NULL, 0, 1, 0, 0, "", false}},
    {"tasks of no step", {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"}, {NULL, 0, 1, 0, 0, "", false}},
    {"a shell of salloc", {"SLURM_JOB_ID=7", "SLURM_NTASKS=2", "SLURM_NODELIST=n1"}, {NULL, 0, 1, 0, 0, "", false}},

    {"torchrun within srun", {STEP(0, 2), "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=n[1-2]", TORCHRUN},
     {"torchrun", 5, 8, 0, 0, "10.0.0.1:29500", false}},
    {"mpirun within a batch script", {BATCH, OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=2"}, {"Open MPI", 1, 4, 0, 2, "", false}},
    {"srun --mpi=pmi2", {STEP(1, 2), "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=n[1-2]", "PMI_RANK=1", "PMI_SIZE=2"},
     {"Slurm", 1, 2, 0, 0, "n1:0", false}},
    {"mpiexec of MPICH within srun", {STEP(1, 2), "SLURM_STEP_NODELIST=n[1-2]", "PMI_RANK=3", "PMI_SIZE=8"},
        {"PMI", 3, 8, 0, 0, "", false}},

    {"details that make no sense are left out", {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=9",
                                                "OMPI_COMM_WORLD_LOCAL_SIZE=x"}, {"Open MPI", 1, 2, 0, 0, "", false}},
};

/* cmocka's words in a table would hide which line is wrong: each is checked by its own sentence. */
static void test_environments(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *environment[VARIABLES + 1] = {NULL};
        for (int v = 0; cases[i].variable[v]; v++) environment[v] = (char *)(uintptr_t)cases[i].variable[v];
        const struct wanted *w = &cases[i].wanted;
        struct echi_launched got;
        struct ech_error err = {.text = ""};
        if (echi_launched_from(environment, &got, &err) != ECH_OK) fail_msg("%s: %s", cases[i].what, err.text);
        if (!w->launcher != !got.launcher || (w->launcher && strcmp(w->launcher, got.launcher) != 0))
            fail_msg("%s: taken from %s", cases[i].what, got.launcher ? got.launcher : "nobody");
        if (w->rank != got.rank || w->world != got.world) fail_msg("%s: rank %d of %d", cases[i].what, got.rank, got.world);
        if (w->local_rank != got.local_rank || w->local_world != got.local_world)
            fail_msg("%s: local rank %d of %d", cases[i].what, got.local_rank, got.local_world);
        if (w->bound != got.bound) fail_msg("%s: bound is %d", cases[i].what, got.bound);
        const size_t host = strcspn(w->coordinator, ":");
        const bool any_port = strcmp(w->coordinator + host, ":0") == 0;
        if (strncmp(w->coordinator, got.coordinator, any_port ? host + 1 : sizeof got.coordinator) != 0)
            fail_msg("%s: they meet at '%s'", cases[i].what, got.coordinator);
        int port = -1;
        if (any_port && (sscanf(got.coordinator + host, ":%d", &port) != 1 || port < 16384 || port > 32767))
            fail_msg("%s: port %d", cases[i].what, port);
    }
}

/* All nodes of a job compute the same port; the next job and the next step get another. */
static void test_ports(void **state) {
    (void)state;
    char *environment[][8] = {
        {"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=1",
         "SLURM_STEP_NODELIST=n"},
        {"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=1",
         "SLURM_STEP_NODELIST=n"},
        {"SLURM_JOB_ID=7", "SLURM_STEP_ID=1", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=1",
         "SLURM_STEP_NODELIST=n"},
        {"SLURM_JOB_ID=8", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=1",
         "SLURM_STEP_NODELIST=n"}};
    struct echi_launched got[4];
    for (int i = 0; i < 4; i++) assert_int_equal(echi_launched_from(environment[i], &got[i], NULL), ECH_OK);
    assert_string_equal(got[0].coordinator, got[1].coordinator);
    assert_string_not_equal(got[0].coordinator, got[2].coordinator);
    assert_string_not_equal(got[0].coordinator, got[3].coordinator);
}

static void test_refused(void **state) {
    (void)state;
    static const struct { const char *variable[VARIABLES], *word; } wrong[] = {
        {{"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=2"}, "OMPI_COMM_WORLD_RANK=2"},
        {{"OMPI_COMM_WORLD_RANK=-1", "OMPI_COMM_WORLD_SIZE=2"}, "OMPI_COMM_WORLD_RANK=-1"},
        {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=0"}, "OMPI_COMM_WORLD_SIZE=0"},
        {{"PMI_RANK=0", "PMI_SIZE=two"}, "PMI_SIZE=two"},
        {{"PMI_RANK=", "PMI_SIZE=2"}, "PMI_RANK="},
        {{"PMI_RANK=0", "PMI_SIZE=99999999999"}, "PMI_SIZE=99999999999"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=http"}, "MASTER_PORT=http"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=", "MASTER_PORT=1"}, "MASTER_ADDR="},
        {{"PMIX_RANK=1", "PMIX_NAMESPACE=x"}, "PMIX_RANK=1, but no variable gives the number"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char *environment[VARIABLES + 1] = {NULL};
        for (int v = 0; wrong[i].variable[v]; v++) environment[v] = (char *)(uintptr_t)wrong[i].variable[v];
        struct echi_launched got;
        struct ech_error err = {.text = ""};
        assert_int_equal(echi_launched_from(environment, &got, &err), ECH_E_ARGUMENT);
        if (!strstr(err.text, wrong[i].word)) fail_msg("'%s' lacks '%s'", err.text, wrong[i].word);
        assert_non_null(strstr(err.text, "--launcher off"));
    }
}

static void test_services(void **state) {
    (void)state;
    char *environment[] = {"ECH_SERVICE_HOST=10.96.0.7", "ECH_SERVICE_PORT=7000", "ECH_NET_SERVICE_HOST=10.96.0.8",
                           "ECH_NET_SERVICE_PORT=80",
                           "ECH_HALF_SERVICE_HOST=10.96.0.9", NULL};
    static const struct { const char *name; bool is, first; } names[] = {
        {"ECH_SERVICE_HOST", true, true}, {"ECH_SERVICE_PORT", true, false}, {"ECH_SERVICE_PORT_MEET", true, false},
        {"ECH_PORT", true, false}, {"ECH_PORT_7000_TCP", true, false}, {"ECH_PORT_7000_TCP_ADDR", true, false},
        {"ECH_NET_SERVICE_HOST", true, true}, {"ECH_NET_PORT_80_TCP_PROTO", true, false},
        {"ECH_HALF_SERVICE_HOST", false, false}, {"ECH_HALF_PORT", false, false}, {"ECH_PORTS", false, false}, {"ECH_RNAK", false, false},
        {"ECH_OTHER_PORT", false, false}, {"ECH_", false, false}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool first = false;
        const bool is = echi_variable_of_service(environment, names[i].name, strlen(names[i].name), &first);
        if (is != names[i].is || (is && first != names[i].first)) fail_msg("%s: %d, first %d", names[i].name, is, first);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_environments), cmocka_unit_test(test_ports), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_services)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
