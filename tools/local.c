/* SPDX-License-Identifier: Apache-2.0
 * --local N: N nodes as child processes of this one, which only watches them. Model and data are opened before, so the
 * children share their memory, and no thread exists when they are forked. */
#include "tool.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct nodes {
    const struct command *command;
    char key[40];                 /* path of the key that they have in common; "": the user's, or none */
    const ech_model *model;
    const ech_data *data;
    int world, running;
    pid_t pid[ECH_LIVE_MAX];     /* 0: not started, or ended */
    int status[ECH_LIVE_MAX];    /* exit status as a shell gives it */
    int first_failed;             /* rank, of those that failed before the run went, and 0; -1: none has */
    double since;                 /* when rank 0 ended or a node failed; negative: neither */
    int channel;                  /* from rank 0: its address, and later that the run goes; -1: closed */
    bool goes;                    /* all have joined and train: what becomes of a lost node is rank 0's to decide */
    int told;                     /* SIGUSR1s passed on */
    enum { FREE_TO_RUN, ASKED_TO_END, KILLED } asked;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void signal_all(const struct nodes *n, int number) {
    for (int r = 0; r < n->world; r++)
        if (n->pid[r] > 0) kill(n->pid[r], number);
}

/* The child's side of fork: never returns. */
static void child(const struct nodes *n, int rank, const char *coordinator, int address_fd, pid_t parent, sigset_t stop_signals) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_STATUS + ECH_E_ABORTED);   /* it died before prctl */
    stops = 0;                 /* those were the parent's, which passes them on */
    watch_stops(stops_of(rank));
    signal(SIGINT, SIG_IGN);   /* a terminal sends it to us too; the parent passes it on as SIGTERM */
    sigprocmask(SIG_UNBLOCK, &stop_signals, NULL);
    struct command mine = *n->command;
    mine.config.rank = mine.config.local_rank = rank;
    if (n->key[0]) snprintf(mine.config.key, sizeof mine.config.key, "%s", n->key);
    if (mine.slow[rank] > 0) mine.config.slow = mine.slow[rank];
    struct ech_error err;
    command_device(n->command, rank, &mine.config, &err);   /* has been tried for each */
    if (coordinator) snprintf(mine.config.coordinator, sizeof mine.config.coordinator, "%s", coordinator);
    _exit(flushed(train_node(&mine, n->model, n->data, address_fd)));
}

static bool start(struct nodes *n, int rank, const char *coordinator, int address_fd, int parents_fd) {
    fflush(NULL);   /* or the child would write what is still buffered again */
    sigset_t stop_signals;
    sigemptyset(&stop_signals);
    sigaddset(&stop_signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &stop_signals, NULL);   /* the child opens its ears when it has its own way to hear */
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        if (parents_fd >= 0) close(parents_fd);
        child(n, rank, coordinator, address_fd, parent, stop_signals);
    }
    sigprocmask(SIG_UNBLOCK, &stop_signals, NULL);
    if (pid < 0) {
        fprintf(stderr, "echelon: rank %d cannot be started: %s\n", rank, strerror(errno));
        return false;
    }
    n->pid[rank] = pid;
    n->running++;
    return true;
}

/* Takes note of one child that has ended, if there is one. */
static bool reap(struct nodes *n) {
    int raw;
    pid_t pid = waitpid(-1, &raw, WNOHANG);
    if (pid <= 0) return false;
    for (int r = 0; r < n->world; r++) {
        if (n->pid[r] != pid) continue;
        n->pid[r] = 0;
        n->running--;
        n->status[r] = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
        if (n->status[r] != 0 && n->first_failed < 0 && (!n->goes || r == 0)) n->first_failed = r;
        if (r == 0 || (n->since < 0 && n->status[r] != 0)) n->since = now();
        if (r == 0) n->goes = false;
        if (WIFSIGNALED(raw) && n->asked != KILLED) fprintf(stderr, "echelon: rank %d was ended by signal %d\n", r, WTERMSIG(raw));
    }
    return true;
}

/* Rank 0's word that the run goes, or the end of its channel. */
static void hear(struct nodes *n) {
    char byte;
    struct pollfd ready = {.fd = n->channel, .events = POLLIN};
    if (n->channel < 0 || poll(&ready, 1, 0) <= 0) return;
    if (read(n->channel, &byte, 1) == 1) {
        n->goes = n->pid[0] > 0;
        return;
    }
    close(n->channel);
    n->channel = -1;
}

/* Reads rank 0's address; false when rank 0 ended instead (it has said why) or the user stopped the run. */
static bool read_address(int fd, char *buf, size_t cap) {
    size_t len = 0;
    while (len + 1 < cap && !stops) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 100) <= 0) continue;
        if (read(fd, buf + len, 1) != 1) return false;
        if (buf[len] == '\n') {
            buf[len] = 0;
            return true;
        }
        len++;
    }
    return false;
}

static void ask_to_end(struct nodes *n) {
    if (n->asked != FREE_TO_RUN) return;
    n->asked = ASKED_TO_END;
    if (n->goes) kill(n->pid[0], SIGTERM);   /* rank 0 ends the run; to others it would mean that they leave */
    else signal_all(n, SIGTERM);
}

static void kill_all(struct nodes *n) {
    n->asked = KILLED;
    signal_all(n, SIGKILL);
}

/* After a node has failed while they were still joining the others are asked to end, and what has not ended long after is
 * killed: a command must not hang. Once the run goes, rank 0 decides: it goes on without the lost one, or ends for all. */
static void hurry(struct nodes *n) {
    if (n->goes) return;
    const double patience = n->command->config.deadline + 5, waited = n->since < 0 ? 0 : now() - n->since;
    /* A node that was killed may leave a run that goes on, once it has measured and planned. */
    const bool was_killed = n->first_failed > 0 && n->status[n->first_failed] >= 128;
    if (waited > (was_killed ? n->command->config.deadline : 2) && n->first_failed >= 0) ask_to_end(n);
    if (waited > patience && n->asked != KILLED) {
        fprintf(stderr, "echelon: %d of %d nodes did not end within %.0f s after the first; killed\n", n->running, n->world, patience);
        kill_all(n);
    }
}

static void wait_for_all(struct nodes *n) {
    while (n->running > 0) {
        hear(n);
        while (reap(n)) {}
        if (stops > 0) ask_to_end(n);
        if (stops > 1 && n->asked != KILLED) kill_all(n);   /* a second signal means it */
        if (tells != n->told) {
            n->told = tells;
            signal_all(n, SIGUSR1);
        }
        hurry(n);
        if (n->running > 0) poll(NULL, 0, 50);              /* any signal ends the wait at once */
    }
}

/* Rank 0's word is the run's, unless it only ended because it was told to after another had failed. Where it did all that was
 * asked, nodes may have been lost on the way: killed, or alone (the coordinator is then what they have lost), or
 * told to leave. */
static int result(const struct nodes *n) {
    bool told = n->status[0] == exit_status(ECH_E_ABORTED) || n->status[0] == 128 + SIGKILL;
    if (n->first_failed >= 0 && told) return n->status[n->first_failed];
    for (int r = 1; r < n->world && n->status[0] == 0; r++)
        if (n->status[r] != 0 && n->status[r] != exit_status(ECH_E_PEER_LOST) && n->status[r] != exit_status(ECH_E_ABORTED) &&
            n->status[r] < 128)
            return n->status[r];
    return n->status[0];
}

/* Loopback is open to everybody on this machine. So these nodes have a key of their own, in memory that only they can open; unless the
 * user has given them one, or has said that they need none. */
static bool make_key(struct nodes *n) {
    uint8_t bytes[32];
    if (n->command->config.key[0] || n->command->config.insecure) return true;
    const int fd = memfd_create("echelon key", 0);   /* stays open: the children read it there */
    const bool made = fd >= 0 && getrandom(bytes, sizeof bytes, 0) == sizeof bytes && fchmod(fd, 0600) == 0 &&
                      write(fd, bytes, sizeof bytes) == sizeof bytes;
    explicit_bzero(bytes, sizeof bytes);
    if (made) snprintf(n->key, sizeof n->key, "/proc/self/fd/%d", fd);
    else fprintf(stderr, "echelon: no key can be made for the nodes of --local: %s; give --key FILE, or --insecure if whoever uses this "
                         "machine may join the run\n", strerror(errno));
    return made;
}

int local_run(const struct command *command, const ech_model *model, const ech_data *data) {
    struct nodes n = {.command = command, .model = model, .data = data, .world = command->local, .first_failed = -1, .since = -1,
                      .channel = -1};
    char address[256];
    int channel[2];
    if (pipe(channel) != 0) {
        fprintf(stderr, "echelon: no pipe to rank 0: %s\n", strerror(errno));
        return exit_status(ECH_E_BUSY);
    }
    if (!make_key(&n)) return exit_status(ECH_E_BUSY);
    watch_stops(0);
    bool started = start(&n, 0, NULL, channel[1], channel[0]);
    close(channel[1]);   /* so that the pipe ends when rank 0 does */
    bool bound = started && read_address(channel[0], address, sizeof address);
    n.channel = channel[0];
    for (int r = 1; bound && started && r < n.world; r++) started = start(&n, r, address, -1, channel[0]);
    if (!started) ask_to_end(&n);
    wait_for_all(&n);
    if (n.channel >= 0) close(n.channel);
    return started ? result(&n) : exit_status(ECH_E_BUSY);
}
