/* SPDX-License-Identifier: Apache-2.0
 * Sockets that fail on purpose, at each place: a byte at a time, "not yet", a link that breaks, a bit that turns. Two
 * nodes exchange a few messages; each must end with all of them, or with a peer lost or a join failed in words; with a key
 * a turned bit never changes a message. Many such worlds go on by turns in one thread, so that their pauses overlap. */
#include "net_faults.h"
#include "net_nodes.h"
#include "part.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/time.h>

enum { PUSH_LEN = 300, ROWS_LEN = 90, AT_ONCE = 16 };
static int at_once = AT_ONCE;   /* worlds: each has to join in time, beside the others */
enum outcome { GOING, DONE, LOST, FAILED };

struct side {
    struct echi_net *net;
    struct faults faults;
    enum outcome outcome;
    ech_status status;
    char text[400];
    bool wrong; /* a message came that nobody sent */
    int told, turns;
    uint8_t in[PUSH_LEN];
};
struct world { struct echi_net_hub *hub; struct side side[2]; bool busy; int64_t failed; };

static uint8_t byte_at(unsigned kind, size_t i) { return (uint8_t)(kind * 91 + i * 7 + 3); }

static void on_event(struct world *w, int rank, const struct echi_net_event *e) {
    static uint8_t push[PUSH_LEN], rows[ROWS_LEN];
    struct side *me = &w->side[rank];
    struct ech_error err;
    for (size_t i = 0; i < PUSH_LEN; i++) push[i] = byte_at(PUSH, i);
    for (size_t i = 0; i < ROWS_LEN; i++) rows[i] = byte_at(ROWS, i);
    if (e->type == ECHI_NET_READY) {
        (void)echi_net_post(me->net, 1 - rank, rank ? PUSH : ROWS, 0, me->in, sizeof me->in, 7, &err); /* it may be lost already */
        if (rank == 0) {
            (void)send_kind(me->net, 1, NOTE, "first", 5, NULL, 0, 0, &err);
            (void)send_kind(me->net, 1, PUSH, "meta", 4, push, sizeof push, 0, &err);
        }
    } else if (e->type == ECHI_NET_MESSAGE && e->kind == HEARTBEAT) {
        me->wrong |= e->meta_len != 3 || memcmp(e->meta, "bip", 3) != 0;
    } else if (e->type == ECHI_NET_MESSAGE && e->kind == NOTE) {
        me->wrong |= rank != 1 || me->told++ != 0 || e->meta_len != 5 || memcmp(e->meta, "first", 5) != 0;
    } else if (e->type == ECHI_NET_MESSAGE && e->kind == PUSH) {
        me->wrong |= rank != 1 || me->told++ != 1 || e->meta_len != 4 || memcmp(e->meta, "meta", 4) != 0 ||
                     e->payload_len != PUSH_LEN || memcmp(me->in, push, PUSH_LEN) != 0;
        (void)send_kind(me->net, 0, ROWS, NULL, 0, rows, sizeof rows, 0, &err);
    } else if (e->type == ECHI_NET_MESSAGE && e->kind == ROWS) {
        me->wrong |= rank != 0 || e->meta_len != 0 || e->payload_len != ROWS_LEN || memcmp(me->in, rows, ROWS_LEN) != 0;
        me->outcome = w->side[1].outcome = DONE;
    } else if (e->type == ECHI_NET_MESSAGE) {
        me->wrong = true;
    } else if (e->type == ECHI_NET_LOST && me->outcome == GOING) {
        me->outcome = LOST;
        snprintf(me->text, sizeof me->text, "%s", e->text);
    }
}

static void turn(struct world *w, int rank) {
    struct side *me = &w->side[rank];
    struct ech_error err = {.code = ECH_OK};
    struct echi_net_event e[8];
    int count;
    if (me->outcome != GOING) return;
    ech_status status = echi_net_poll(me->net, 0, e, 8, &count, &err);
    if (status != ECH_OK) {
        me->outcome = FAILED;
        me->status = status;
        snprintf(me->text, sizeof me->text, "%s", err.text);
        echi_net_close(me->net, 0); /* as a node does that cannot join */
        me->net = NULL;
        return;
    }
    for (int i = 0; i < count; i++) on_event(w, rank, &e[i]);
    /* What a changed length makes the other side wait for comes in time. Seldom: a byte at a time takes many turns. */
    if (me->outcome == GOING && ++me->turns % 200 == 0) (void)send_kind(me->net, 1 - rank, HEARTBEAT, "bip", 3, NULL, 0, 0, &err);
}

static const char *world_at; /* NULL: in-process */
static int64_t join_timeout = LONG; /* none ends by its own time, however busy the machine is, but where that is the test */

static void open_side(struct world *w, int rank, const char *at) {
    struct side *me = &w->side[rank];
    struct echi_net_config config = node_config(rank, 2, w->hub, at);
    config.join_timeout = join_timeout;
    config.wrap = faulty_wrap;
    config.wrap_self = &me->faults;
    struct ech_error err;
    if (echi_net_open(&config, &me->net, &err) != ECH_OK) fail_msg("%s", err.text);
}

static void open_world(struct world *w, const struct faults f[2]) {
    *w = (struct world){.busy = true};
    for (int i = 0; i < 2; i++) w->side[i].faults = f[i];
    if (!world_at) assert_int_equal(echi_net_hub_create(2, &w->hub, NULL), ECH_OK);
    open_side(w, 0, world_at);
    open_side(w, 1, world_at ? echi_net_address(w->side[0].net) : NULL);
}

static void close_world(struct world *w) {
    for (int i = 0; i < 2; i++) echi_net_close(w->side[i].net, 0);
    echi_net_hub_destroy(w->hub);
    w->busy = false;
}

/* The other one of a world must end too once one has: by what it hears, or, in the join, by its own time. */
static bool step_world(struct world *w) {
    for (int i = 0; i < 2; i++) turn(w, i);
    struct side *a = &w->side[0], *b = &w->side[1];
    if (a->outcome == LOST && a->net && b->outcome == GOING) {
        echi_net_close(a->net, 0);
        a->net = NULL;
    } else if (b->outcome == LOST && b->net && a->outcome == GOING) {
        echi_net_close(b->net, 0);
        b->net = NULL;
    }
    /* One that cannot join leaves the other waiting for as long as its user said. */
    bool failed = a->outcome == FAILED || b->outcome == FAILED;
    if (failed && !w->failed) w->failed = echi_now();
    if (failed && echi_now() - w->failed > 50 * MS) return false;
    if (world_at && a->outcome == FAILED) return false;   /* its port may be another world's by now, who would refuse us */
    return a->outcome == GOING || b->outcome == GOING;
}

struct tally { int worlds, done, lost, failed, struck; };

/* Runs worlds with `set(faults, place)` for places first, first + step, ... until one is not reached any more. */
static struct tally at_each_place(void (*set)(struct faults f[2], uint64_t place), uint64_t first, uint64_t step,
                                  void (*judge)(const struct world *w)) {
    static struct world worlds[AT_ONCE];
    struct tally t = {0};
    uint64_t place = first;
    bool reached = true;
    int busy = 0;
    memset(worlds, 0, sizeof worlds);
    while (reached || busy > 0) {
        if (!reached) echi_sleep_until(echi_now() + MS / 5); /* the last ones wait for their time */
        for (int i = 0; i < at_once; i++) {
            struct world *w = &worlds[i];
            if (!w->busy && reached) {
                struct faults f[2] = {NO_FAULTS, NO_FAULTS};
                set(f, place);
                place += step;
                open_world(w, f);
                busy++;
            }
            if (!w->busy || step_world(w)) continue;
            t.worlds++;
            bool struck = w->side[0].faults.struck || w->side[1].faults.struck;
            t.struck += struck;
            if (!struck && w->side[0].outcome == DONE && w->side[1].outcome == DONE) reached = false;
            for (int s = 0; s < 2; s++) {
                t.done += w->side[s].outcome == DONE;
                t.lost += w->side[s].outcome == LOST;
                t.failed += w->side[s].outcome == FAILED;
            }
            judge(w);
            close_world(w);
            busy--;
        }
    }
    return t;
}

static void tell(const char *what, const struct tally *t) {
    print_message("%s: %d worlds, %d struck; ends: %d done, %d lost, %d failed to join\n", what, t->worlds, t->struck, t->done, t->lost,
                  t->failed);
}

/* --- what must hold --- */

static void judge_unharmed(const struct world *w) {
    for (int s = 0; s < 2; s++) {
        if (w->side[s].outcome != DONE) fail_msg("rank %d: %s", s, w->side[s].text);
        assert_false(w->side[s].wrong);
    }
}

static void judge_broken(const struct world *w) {
    for (int s = 0; s < 2; s++) {
        const struct side *me = &w->side[s];
        assert_false(me->wrong);
        if (me->outcome == FAILED && me->status != ECH_E_PEER_LOST) fail_msg("rank %d: %d, %s", s, me->status, me->text);
        if (me->outcome == LOST && !strstr(me->text, s ? "rank 0 " : "rank 1 ")) fail_msg("names nobody: %s", me->text);
    }
}

/* A bit may end what it likes; what it must not do is change a message. (Done all the same: where the link broke in the
 * join and was made anew, or where the bit came behind the last message.) */
static void judge_flipped(const struct world *w) {
    for (int s = 0; s < 2; s++) assert_false(w->side[s].wrong);
}

/* --- the tests, each over both transports and keyed or not --- */

static void set_again_0(struct faults f[2], uint64_t place) { f[0].again_at = place; }
static void set_again_1(struct faults f[2], uint64_t place) { f[1].again_at = place; }
static void set_read_0(struct faults f[2], uint64_t place) { f[0].break_read = place; }
static void set_read_1(struct faults f[2], uint64_t place) { f[1].break_read = place; }
static void set_write_0(struct faults f[2], uint64_t place) { f[0].break_write = place; }
static void set_write_1(struct faults f[2], uint64_t place) { f[1].break_write = place; }
static void set_deaf_0(struct faults f[2], uint64_t place) {
    f[0].break_write = place;
    f[0].only_writes = true;
}
static void set_deaf_1(struct faults f[2], uint64_t place) {
    f[1].break_write = place;
    f[1].only_writes = true;
}
static void set_flip_0(struct faults f[2], uint64_t place) { f[0].flip_at = place; }
static void set_flip_1(struct faults f[2], uint64_t place) { f[1].flip_at = place; }
static void set_bytes(struct faults f[2], uint64_t place) {
    (void)place;
    f[0].one_byte = f[1].one_byte = true;
}

struct way { const char *address, *key; };
static void take_way(void **state) {
    const struct way *way = *state;
    world_at = way->address;
    test_key = way->key;
}

static void test_one_byte(void **state) {
    take_way(state);
    at_once = 1;   /* one world is as good as many, and a stranger has three seconds for a hello of so many turns */
    struct tally t = at_each_place(set_bytes, 0, 1, judge_unharmed);
    at_once = AT_ONCE;
    tell("a byte at a time", &t);
    assert_true(t.done == 2 * t.worlds);
}

static void test_again(void **state) {
    take_way(state);
    struct tally t = at_each_place(set_again_0, 0, 1, judge_unharmed), u = at_each_place(set_again_1, 0, 1, judge_unharmed);
    tell("not yet", &t);
    assert_true(t.struck > 5 && u.struck > 5);
}

static void test_broken(void **state) {
    void (*const sets[])(struct faults *, uint64_t) = {set_read_0, set_read_1, set_write_0, set_write_1, set_deaf_0, set_deaf_1};
    take_way(state);
    for (int i = 0; i < 6; i++) {
        struct tally t = at_each_place(sets[i], 0, world_at ? 17 : test_part(), judge_broken);
        tell("broken links", &t);
        assert_true(t.struck > (world_at ? 15 : 300 / (int)test_part()) && t.done > 0 && t.lost > 10);
    }
}

static void test_flipped(void **state) {
    take_way(state);
    join_timeout = SECOND; /* a length that is larger than it was: both wait until then */
    struct tally t = at_each_place(set_flip_0, 0, 1, judge_flipped), u = at_each_place(set_flip_1, 0, 1, judge_flipped);
    join_timeout = LONG;
    tell("turned bits", &t);
    tell("turned bits", &u);
    assert_true(t.struck > 300 && u.struck > 600 && t.lost > 50 && u.lost > 100);
}

/* --- signals --- */

static volatile sig_atomic_t rings;
static void on_ring(int number) {
    (void)number;
    rings++;
}

static void under_signals(struct node *node) {
    const size_t len = 8u << 20;
    uint8_t *bytes = malloc(len);
    expect(node, ECHI_NET_READY);
    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < len; i++) bytes[i] = (uint8_t)(node->rank ? 0 : i * 31 + (size_t)round);
        if (node->rank == 0) {
            send_to(node, 1, BULK, NULL, 0, bytes, len, 1);
            CHECK(expect(node, ECHI_NET_SENT).cookie == 1);
        } else {
            post_for(node, 0, BULK, bytes, len, 2);
            CHECK(expect(node, ECHI_NET_MESSAGE).cookie == 2);
            size_t good = 0;
            while (good < len && bytes[good] == (uint8_t)(good * 31 + (size_t)round)) good++;
            CHECK(good == len);
        }
    }
    free(bytes);
}

static void test_signals(void **state) {
    take_way(state);
    struct sigaction action = {.sa_handler = on_ring}, before; /* without SA_RESTART: calls return EINTR */
    struct itimerval often = {{0, 150}, {0, 150}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &often, NULL);
    atomic_store(&failures, 0);
    run_world(2, world_at, under_signals, NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    assert_int_equal(atomic_load(&failures), 0);
    assert_true(rings > 10);
}

int main(void) {
    static struct way inproc, tcp = {"127.0.0.1:0", NULL};
    static struct way keyed = {NULL, "sixteen bytes ok"}, keyed_tcp = {"127.0.0.1:0", "sixteen bytes ok"};
#define ON(test, way) {#test " " #way, test, NULL, NULL, &(way)}
    const struct CMUnitTest tests[] = {
        ON(test_one_byte, inproc), ON(test_one_byte, tcp), ON(test_one_byte, keyed), ON(test_one_byte, keyed_tcp),
        ON(test_again, inproc),    ON(test_again, tcp),    ON(test_again, keyed),    ON(test_again, keyed_tcp),
        ON(test_broken, inproc),   ON(test_broken, tcp),   ON(test_broken, keyed),   ON(test_broken, keyed_tcp),
        ON(test_flipped, keyed),   ON(test_signals, tcp),  ON(test_signals, keyed_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
