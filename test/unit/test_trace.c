/* SPDX-License-Identifier: Apache-2.0
 * Recordings of simulated clusters, whose nodes have clocks that are known, as one run: every message has its send; clocks are found; the
 * trace is JSON in which nothing overlaps and nothing is left out; layers have the time that there was. */
#include "tape.h"
#include "json_whole.h"

#include <math.h>

#define PLANS (60 / test_part())
#define TICK 100000.0      /* ns of a tick of the simulator */
enum { EVENTS_MAX = 1 << 17, TEXT = 1 << 26 };

/* ---- clocks that are known ---- */

static struct known { int64_t ahead; double ppm; } truth[NODES];
static int64_t shows(int node, int64_t now) {
    return truth[node].ahead + (int64_t)floor((double)now * TICK * (1 + truth[node].ppm * 1e-6));
}
static double time_at(int node, int64_t shown) { return (double)(shown - truth[node].ahead) / (1 + truth[node].ppm * 1e-6); }

static struct echi_recording recording[NODES];
static struct echi_clock found[NODES];

/* Both small and large, ahead and behind. */
static int record_apart(uint64_t seed) {
    struct echi_random random;
    echi_random_init(&random, seed, ECHI_STREAM_TEST, 78);
    for (int r = 0; r < NODES; r++)
        truth[r] = (struct known){(int64_t)(echi_random_unit(&random) * pow(10, 15 * echi_random_unit(&random))),
                                  200 * echi_random_unit(&random) - 100};
    tape_clock = shows;
    return record_run(seed);
}

static void open_all(int world) {
    for (int r = 0; r < world; r++) assert_int_equal(echi_recording_open(tape[r].bytes, tape[r].len, "tape", &recording[r], NULL), ECH_OK);
}

/* ---- the walk ---- */

struct counted { uint64_t records[NODES], events, passages, sends, messages; int64_t last[NODES]; };

static ech_status count_record(void *user, int rank, const struct echi_record *record, struct ech_error *err) {
    struct counted *c = user;
    const struct echi_event *e = &record->event.event;
    (void)err;
    c->records[rank]++;
    if (record->kind != ECHI_RECORD_EVENT) return ECH_OK;
    assert_true(e->now >= c->last[rank]);
    c->last[rank] = e->now;
    c->events++;
    c->messages += e->type == ECHI_EVENT_MESSAGE && e->from != rank;
    return ECH_OK;
}

static ech_status count_send(void *user, struct echi_passage *f, const struct echi_action *a, struct ech_error *err) {
    struct counted *c = user;
    (void)err;
    assert_true(f->from != f->to && f->user == NULL && (a ? a->kind : ECHI_KIND_PLAN) == f->kind);
    f->user = c;
    c->sends++;
    return ECH_OK;
}

static ech_status count_passage(void *user, struct echi_passage *f, struct ech_error *err) {
    struct counted *c = user;
    (void)err;
    assert_ptr_equal(f->user, c);
    if (time_at(f->from, f->sent) > time_at(f->to, f->came) + 2) fail_msg("a %s came before it was sent", echi_kind_name(f->kind));
    c->passages++;
    return ECH_OK;
}

static const struct echi_walker counter = {.record = count_record, .send = count_send, .arrive = count_passage};

static void every_message_has_its_send(void **state) {
    (void)state;
    uint64_t all = 0;
    for (uint64_t seed = 1; seed <= PLANS; seed++) {
        const int world = record_apart(seed);
        struct counted c = {.events = 0};
        struct echi_walker walker = counter;
        uint64_t events = 0;
        walker.user = &c;
        open_all(world);
        assert_int_equal(echi_recordings_walk(recording, world, &walker, NULL), ECH_OK);
        for (int r = 0; r < world; r++) events += tape[r].events;
        assert_int_equal(c.events, events);
        if (c.passages != c.messages) fail_msg("seed %d: %d of %d messages have a send", (int)seed, (int)c.passages, (int)c.messages);
        assert_true(c.sends >= c.passages);
        all += c.passages;
    }
    assert_true(all > 50 * PLANS);
}

enum { MANY = 3000 };
static ech_status in_order(void *user, struct echi_passage *f, struct ech_error *err) {
    int *count = user;
    (void)err;
    assert_int_equal(f->sent, 10 + 2 * (*count % MANY));
    assert_int_equal(f->came, 100000 + *count);
    ++*count;
    return ECH_OK;
}

/* More on their way at once than there were places for at first, each twice, word for word: the first sent is the first there. */
static void many_messages_are_under_way(void **state) {
    (void)state;
    struct echi_msg m[MANY];
    int count = 0;
    for (int node = 0; node < 2; node++) begin_by_hand(node, 2);
    for (int i = 0; i < MANY; i++)
        m[i] = (struct echi_msg){.kind = ECHI_KIND_ENTER, .to_role = ECHI_ROLE_OWNER, .from_role = ECHI_ROLE_WORKER,
                                 .lease = {.id = 1 + (uint32_t)i % (MANY / 2), .n = 1}};
    for (int i = 0; i < MANY; i++) {
        struct echi_action send = {.type = ECHI_ACTION_SEND, .kind = m[i].kind, .to = 1, .msg = m[i]};
        record_event(0, (struct echi_event){.type = ECHI_EVENT_SENT, .now = 10 + 2 * i}, &send, 1);
    }
    for (int i = 0; i < MANY; i++)
        record_event(1, (struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = 0, .now = 100000 + i, .msg = &m[i]}, NULL, 0);
    open_all(2);
    assert_int_equal(echi_recordings_walk(recording, 2, &(struct echi_walker){.user = &count, .arrive = in_order}, NULL), ECH_OK);
    assert_int_equal(count, MANY);
}

/* Of two runs: each waits for what the other never sends. All of both is walked through, and what was sent is found. */
static void what_nobody_sent_is_not_waited_for(void **state) {
    (void)state;
    struct counted c = {.events = 0};
    struct echi_walker walker = counter;
    const struct echi_msg m = {.kind = ECHI_KIND_ENTER, .to_role = ECHI_ROLE_OWNER, .from_role = ECHI_ROLE_WORKER,
                               .lease = {.id = 1, .n = 1}};
    struct echi_msg other = m;
    other.lease.id = 2;
    memset(truth, 0, sizeof truth);
    for (int node = 0; node < 2; node++) {
        struct echi_action send = {.type = ECHI_ACTION_SEND, .kind = m.kind, .to = (uint16_t)!node, .msg = m};
        begin_by_hand(node, 2);
        record_event(node, (struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)!node, .now = 10, .msg = &other}, NULL, 0);
        record_event(node, (struct echi_event){.type = ECHI_EVENT_SENT, .now = 20}, &send, 1);
        record_event(node, (struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)!node, .now = 30, .msg = &m}, NULL, 0);
    }
    walker.user = &c;
    open_all(2);
    assert_int_equal(echi_recordings_walk(recording, 2, &walker, NULL), ECH_OK);
    assert_true(c.events == 6 && c.messages == 4 && c.passages == 2);
}

static ech_status refuse(void *user, struct echi_passage *f, struct ech_error *err) {
    (void)user, (void)f, (void)err;
    return ECH_E_IO;
}

static void a_walk_ends_where_it_is_told_to(void **state) {
    (void)state;
    int world;
    for (uint64_t seed = 1; (world = record_apart(seed)) < 2; seed++) {}
    open_all(world);
    assert_int_equal(echi_recordings_walk(recording, world, &(struct echi_walker){.arrive = refuse}, NULL), ECH_E_IO);
    tape[1].bytes[tape[1].len / 2] ^= 1;
    open_all(world);
    assert_int_equal(echi_recordings_walk(recording, world, &(struct echi_walker){.user = NULL}, NULL), ECH_E_FORMAT);
}

static void clocks_of_recordings_are_found(void **state) {
    (void)state;
    int apart = 0;
    for (uint64_t seed = 1; seed <= PLANS; seed++) {
        const int world = record_apart(seed);
        open_all(world);
        assert_int_equal(echi_recordings_clocks(recording, world, found, NULL), ECH_OK);
        for (int r = 0; r < world; r++) {
            const double error = echi_clock_error(&found[r]);
            const int64_t shown[2] = {found[r].first, found[r].last};
            assert_true(found[r].bounded && found[r].misses == 0);
            for (int i = 0; i < 2; i++) {
                const int64_t zero = shows(0, 0) + (int64_t)(time_at(r, shown[i]) * (1 + truth[0].ppm * 1e-6));
                const double off = fabs((double)(echi_clock_on_zero(&found[r], shown[i]) - zero));
                if (off > error + 3) fail_msg("seed %d, rank %d: %g ns off, %g are stated", (int)seed, r, off, error);
            }
            apart += r > 0;
        }
    }
    assert_true(apart > (int)PLANS / 2);
}

/* ---- the trace ---- */

static char *text;
static size_t text_len;

static ech_status keep_text(void *user, const void *bytes, size_t len, struct ech_error *err) {
    (void)user, (void)err;
    assert_true(len > 0 && len <= 65536 && text_len + len < TEXT);
    memcpy(text + text_len, bytes, len);
    text_len += len;
    text[text_len] = 0;
    return ECH_OK;
}

static struct drawn { char phase; int pid, tid; double ts, dur; long id; bool has_id; char name[64]; } event[EVENTS_MAX];
static int events;

static double number(const char *line, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(line, quoted);
    return at ? strtod(at + strlen(quoted), NULL) : NAN;
}

/* An event a line. */
static void read_events(void) {
    events = 0;
    for (char *line = strstr(text, "\"traceEvents\": ["), *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        const char *phase = strstr(line, "\"ph\": \"");
        if (!phase) continue;
        assert_true(events < EVENTS_MAX);
        struct drawn *d = &event[events++];
        *d = (struct drawn){phase[7], (int)number(line, "pid"), (int)number(line, "tid"), number(line, "ts"), number(line, "dur"), 0,
                            strstr(line, "\"id\": ") != NULL, ""};
        if (d->has_id) d->id = (long)number(line, "id");
        sscanf(strstr(line, "\"name\": \"") + 9, "%63[^\"]", d->name);
    }
}

static void draw(int world) {
    text_len = 0;
    open_all(world);
    assert_int_equal(echi_recordings_clocks(recording, world, found, NULL), ECH_OK);
    assert_int_equal(echi_recordings_trace(recording, world, found, &(struct echi_sink){keep_text, NULL}, NULL), ECH_OK);
    assert_true(json_whole(text));
    read_events();
}

static int by_place(const void *a, const void *b) {
    const struct drawn *x = a, *y = b;
    if (x->pid != y->pid) return x->pid - y->pid;
    if (x->tid != y->tid) return x->tid - y->tid;
    if (x->ts != y->ts) return x->ts < y->ts ? -1 : 1;
    return (y->dur > x->dur) - (y->dur < x->dur);
}

/* Both ends of an arrow are there, right behind the slice that each is bound to, and it does not point back by more than may be. */
static int arrows(void) {
    static struct end { double ts; int pid; int count; } end[2][EVENTS_MAX];
    int count = 0;
    memset(end, 0, sizeof end);
    for (int i = 0; i < events; i++) {
        const struct drawn *d = &event[i];
        if (d->phase != 's' && d->phase != 'f') continue;
        const struct drawn *slice = d - 1;
        assert_true(i > 0 && d->id > 0 && d->id < EVENTS_MAX);
        assert_true(slice->phase == 'X' && slice->pid == d->pid && slice->tid == d->tid && slice->ts == d->ts);
        assert_string_equal(slice->name, d->name);
        struct end *e = &end[d->phase == 'f'][d->id];
        *e = (struct end){d->ts, d->pid, e->count + 1};
        count += d->phase == 's';
    }
    for (int id = 1; id <= count; id++) {
        const struct end *s = &end[0][id], *f = &end[1][id];
        assert_true(s->count == 1 && f->count == 1 && s->pid != f->pid);
        const double error[2] = {echi_clock_error(&found[s->pid]), echi_clock_error(&found[f->pid])};
        const double may = s->pid == 0 || f->pid == 0 ? 0.002 : 1e-3 * (error[0] + error[1]) + 0.002;
        if (error[0] >= 0 && error[1] >= 0 && s->ts - f->ts > may) fail_msg("an arrow points back by %g us, %g", s->ts - f->ts, may);
    }
    return count;
}

/* On one track one lies in the other, or behind it. */
static void nothing_overlaps(int world) {
    double end = 0;
    static struct drawn open[64];
    int depth = 0;
    for (int r = 0; r < world; r++) {
        int64_t begin = INT64_MAX;
        for (int k = 0; k < world; k++) begin = found[k].zero < begin ? found[k].zero : begin;
        end = fmax(end, 1e-3 * (double)(echi_clock_on_zero(&found[r], found[r].last) - begin));
    }
    qsort(event, (size_t)events, sizeof event[0], by_place);
    for (int i = 0; i < events; i++) {
        const struct drawn *d = &event[i];
        if (d->phase == 'M') continue;
        assert_true(d->ts >= 0 && d->ts <= end + 1e-3);
        if (d->phase != 'X') continue;
        assert_true(d->dur >= 0 && d->ts + d->dur <= end + 2e-3);
        while (depth > 0 && (open[depth - 1].pid != d->pid || open[depth - 1].tid != d->tid ||
                             open[depth - 1].ts + open[depth - 1].dur <= d->ts + 1e-4))
            depth--;
        if (depth > 0 && open[depth - 1].ts + open[depth - 1].dur < d->ts + d->dur - 1e-4)
            fail_msg("%s and %s overlap on track %d of %d", open[depth - 1].name, d->name, d->tid, d->pid);
        assert_true(depth < 64);
        open[depth++] = *d;
    }
}

static double drawn(int rank, int tid, int *count) {
    double all = 0;
    *count = 0;
    for (int i = 0; i < events; i++) {
        if (event[i].phase != 'X' || event[i].pid != rank || event[i].tid != tid) continue;
        all += event[i].dur;
        ++*count;
    }
    return 1e-6 * all;
}

/* What explain counts and what is drawn is the same time. */
static void all_time_is_drawn(int world) {
    static struct echi_record record;
    static struct echi_took waited[NODES * ECHI_KINDS];
    for (int r = 0; r < world; r++) {
        struct echi_spent spent = {.world = world, .waited = waited};
        int count;
        double computed = 0, waits = 0;
        uint64_t waits_count = 0;
        memset(waited, 0, sizeof waited);
        echi_recording_rewind(&recording[r]);
        assert_int_equal(echi_recording_spent(&recording[r], &record, &spent, NULL), ECH_OK);
        for (int k = 0; k < ECHI_TASKS; k++) computed += spent.task[k].seconds;
        for (int k = 0; k < world * ECHI_KINDS; k++) waits += waited[k].seconds, waits_count += waited[k].count;
        waits += spent.other.seconds;
        waits_count += spent.other.count;
        const double rate = 1 + found[r].rate;   /* it is drawn on rank 0's clock */
        assert_true(fabs(drawn(r, 1, &count) - computed * rate) < 1e-6 * computed + 1e-6);
        assert_true(fabs(drawn(r, 2, &count) - waits * rate) < 1e-6 * waits + 1e-6);
        assert_int_equal(count, waits_count);
    }
}

/* No more tracks of the way out than messages were on it at a time. */
static void tracks_are_used_again(int world) {
    for (int r = 0; r < world; r++) {
        int most = 1, last = 0;
        for (int i = 0; i < events; i++) {
            const struct drawn *d = &event[i];
            if (d->phase != 'X' || d->pid != r || d->tid < 5) continue;
            last = d->tid > last ? d->tid : last;
            int now = 0;
            for (int k = 0; k < events; k++) {
                const struct drawn *e = &event[k];
                now += e->phase == 'X' && e->pid == r && e->tid >= 5 && e->ts <= d->ts && e->ts + e->dur >= d->ts - 1e-4;
            }
            most = now > most ? now : most;
        }
        assert_true(last <= 4 + most);
    }
}

static void the_trace_has_all_of_a_run(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= PLANS; seed++) {
        const int world = record_apart(seed);
        struct counted c = {.events = 0};
        struct echi_walker walker = counter;
        walker.user = &c;
        draw(world);
        assert_int_equal(echi_recordings_walk(recording, world, &walker, NULL), ECH_OK);
        assert_int_equal(arrows(), c.passages);
        nothing_overlaps(world);
        all_time_is_drawn(world);
        if (seed <= 5) tracks_are_used_again(world);
        uint64_t messages = 0;
        for (int i = 0; i < events; i++) messages += event[i].phase == 'X' && event[i].tid >= 5;
        assert_int_equal(messages, c.sends);
    }
}

/* By hand: of messages from one place to one rank each leaves with its own SENT. One never leaves, one never comes; one has no payload. */
static void a_message_is_drawn_until_it_has_left(void **state) {
    (void)state;
    static const struct { uint8_t kind, slot; int64_t sent, left, came; double dur; } m[] = {
        {ECHI_KIND_WEIGHTS, 0, 100, 200, 260, 0.1}, {ECHI_KIND_PARAMS, 0, 100, 150, 250, 0.05}, {ECHI_KIND_WEIGHTS, 1, 100, 160, 240, 0.06},
        {ECHI_KIND_ENTER, 0, 110, 0, 230, 0}, {ECHI_KIND_WEIGHTS, 0, 300, 0, 330, 0.1}, {ECHI_KIND_PUSH, 0, 310, 0, 0, 0.09}};
    enum { COUNT = sizeof m / sizeof m[0] };
    struct echi_msg msg[COUNT];
    for (int node = 0; node < 2; node++) begin_by_hand(node, 2);
    for (int64_t now = 0; now <= 400; now += 10)
        for (int i = 0; i < COUNT; i++) {
            const struct echi_slot slot = {ECHI_SLOT_OWNER_WEIGHTS, m[i].slot};
            msg[i] = (struct echi_msg){.kind = m[i].kind, .to_role = ECHI_ROLE_WORKER, .from_role = ECHI_ROLE_OWNER, .version = 0,
                                       .samples = 0, .lease = {.id = 1, .n = 1}, .part = (uint16_t)(i % 5)};
            struct echi_action send = {.type = ECHI_ACTION_SEND, .kind = m[i].kind, .to = 1, .slot = slot, .msg = msg[i]};
            if (now == m[i].sent) record_event(0, (struct echi_event){.type = ECHI_EVENT_SENT, .from = 1, .now = now}, &send, 1);
            if (now > 0 && now == m[i].left)
                record_event(0, (struct echi_event){.type = ECHI_EVENT_SENT, .from = 1, .kind = m[i].kind, .slot = slot, .now = now}, NULL,
                             0);
            if (now > 0 && now == m[i].came)
                record_event(1, (struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = 0, .now = now, .msg = &msg[i]}, NULL, 0);
            if (now == 400 && i == 0) record_event(0, (struct echi_event){.type = ECHI_EVENT_SENT, .from = 1, .now = now}, NULL, 0);
        }
    draw(2);
    assert_int_equal(arrows(), 5);
    for (int i = 0; i < COUNT; i++) {
        int found_it = 0;
        for (int k = 0; k < events; k++)
            found_it += event[k].phase == 'X' && event[k].pid == 0 && event[k].tid >= 5 &&
                        strcmp(event[k].name, echi_kind_name(m[i].kind)) == 0 &&
                        fabs(event[k].ts - 1e-3 * (double)(m[i].sent - 100)) < 1e-6 && fabs(event[k].dur - m[i].dur) < 1e-6;
        if (found_it != 1) fail_msg("message %d is drawn %d times", i, found_it);
    }
    qsort(event, (size_t)events, sizeof event[0], by_place);
    nothing_overlaps(2);
}

/* Files that end anywhere: what is there is drawn. */
static void recordings_that_break_off_are_drawn(void **state) {
    (void)state;
    struct echi_random random;
    uint64_t missing = 0;
    for (uint64_t seed = 1; seed <= PLANS; seed++) {
        const int world = record_apart(seed);
        echi_random_init(&random, seed, ECHI_STREAM_TEST, 79);
        for (int r = 0; r < world; r++) {
            const size_t head = 12 + ECHI_RECORD_HEAD + echi_load32(tape[r].bytes + 12) + ECHI_RECORD_TAIL;
            if (echi_random_below(&random, 2)) tape[r].len = head + echi_random_below(&random, (uint32_t)(tape[r].len - head));
        }
        draw(world);
        arrows();
        struct counted c = {.events = 0};
        struct echi_walker walker = counter;
        walker.user = &c;
        assert_int_equal(echi_recordings_walk(recording, world, &walker, NULL), ECH_OK);
        for (int r = 0; r < world; r++) {   /* all of what is there, though sends are missing */
            static struct echi_record record;
            uint64_t records = 0;
            echi_recording_rewind(&recording[r]);
            while (echi_recording_read(&recording[r], &record, NULL) == ECH_OK && record.kind) records++;
            assert_int_equal(c.records[r], records);
            missing += c.messages - c.passages;
        }
    }
    assert_true(missing > 0);
}

/* Words of a recording are anybody's: JSON they are all the same, and so is what a node is told of a loss. */
static void foreign_words_are_escaped(void **state) {
    (void)state;
    struct tape *t = &tape[0];
    record_apart(1);
    open_all(1);
    struct echi_about about = recording[0].about;
    about.world = 1;
    about.request.world = 1;
    about.plan_given = false;
    memset(about.model, '"', sizeof about.model - 1);
    memset(about.data, '\\', sizeof about.data - 1);
    memset(about.device, 0xff, sizeof about.device - 1);
    memset(about.device_name, 0x1b, sizeof about.device_name - 1);
    char words[ECHI_TRACED_TEXT];
    memset(words, '\n', sizeof words);
    words[sizeof words - 1] = 0;
    t->len = 12;
    t->events = 0;
    t->check = echi_check(ECHI_CHECK_BEGIN, t->bytes, t->len);
    seal(t, ECHI_RECORD_ABOUT, echi_about_encode(&about, body_of(t), room_of(t)));
    const struct echi_event lost = {.type = ECHI_EVENT_LOST, .now = 1000, .text = words};
    const struct echi_actions none = {0};
    for (int i = 0; i < 300; i++) {
        struct echi_writer w = echi_writer_over(body_of(t), room_of(t));
        echi_trace_put(&w, ECHI_ROLE_NODE, &lost, &none, NULL);
        seal(t, ECHI_RECORD_EVENT, (size_t)(w.at - body_of(t)));
    }
    draw(1);
}

/* ---- the layers ---- */

/* Whatever is asked for, by parts and in any order: all that a rank's steps took is in some row, or said to be in none. */
static void layers_have_the_time_that_there_was(void **state) {
    (void)state;
    static struct echi_record record;
    static struct echi_layer_table table;
    static struct echi_took waited[NODES * ECHI_KINDS];
    static const int kind[] = {ECHI_TASK_STEP, ECHI_TASK_FORWARD, ECHI_TASK_BACKWARD, ECHI_TASK_HEAD};
    int separated = 0, exchanged = 0;
    for (uint64_t seed = 1; seed <= 2 * PLANS; seed++) {
        const int world = record_apart(seed);
        open_all(world);
        for (int r = 0; r < world; r++) {
            struct echi_times times = {.count = 1, .n = {8}, .trunk = {0.5}, .head = {0.25}, .units = LAYERS, .cut = CUT, .sizes = 1};
            double seconds[LAYERS][ECHI_PASSES], all = 0, rows = 0;
            struct echi_spent spent = {.world = world, .waited = waited};
            for (int u = 0; u < LAYERS; u++)
                for (int p = 0; p < ECHI_PASSES; p++) seconds[u][p] = 1 + u + 3 * p;
            assert_true(echi_times_share(&times, 0, (const double (*)[ECHI_PASSES])seconds));
            assert_int_equal(echi_recording_layers(&recording[r], &record, &recording[0].about.request.layers, seed % 2 ? &times : NULL,
                                                   &table, NULL), ECH_OK);
            memset(waited, 0, sizeof waited);
            echi_recording_rewind(&recording[r]);
            assert_int_equal(echi_recording_spent(&recording[r], &record, &spent, NULL), ECH_OK);
            for (int k = 0; k < 4; k++) all += spent.task[kind[k]].seconds;
            for (int u = 0; u < table.count; u++)
                for (int p = 0; p < ECHI_PASSES; p++) {
                    const bool head = table.count > CUT && u >= CUT && spent.task[ECHI_TASK_HEAD].count > 0;
                    assert_true(table.row[u].seconds[p] >= 0 && table.row[u].exchange >= 0);
                    rows += table.row[u].seconds[p] * (double)(head ? spent.task[ECHI_TASK_HEAD].count : table.steps);
                    separated += head;
                }
            rows += table.undivided * (double)table.steps;
            for (int u = 0; u < table.count; u++) exchanged += table.row[u].exchange > 0;
            if (table.steps == 0) continue;
            if (rows > all * 1.0001 + 1e-9 || (seed % 2 && rows < all * 0.95))
                fail_msg("seed %d, rank %d: %g s in rows, %g s computed", (int)seed, r, rows, all);
        }
    }
    assert_true(separated > 0 && exchanged > 0);
}

/* By hand: rank 1 of 2, three layers of which the last two report their gradients by themselves, each a part. Tenths of a second. */
static struct echi_setup by_hand(struct echi_layers *layers) {
    static struct echi_plan plan;
    *layers = (struct echi_layers){.count = 3, .cut = 3, .params = {10, 20000, 30000}};
    plan = (struct echi_plan){.sync = ECHI_SYNC_BSP, .world = 2, .n_groups = 1, .head = ECHI_NO_RANK, .flights = 1, .n = {4, 4}, .round = 8,
                              .lr = 0.1};
    memset(plan.owner_of, 0xff, sizeof plan.owner_of);
    memset(plan.group_of, ECHI_NONE, sizeof plan.group_of);
    plan.owner_of[0] = 0;
    plan.group_of[0] = plan.group_of[1] = 0;
    plan.parts.count = 3;
    for (int i = 0, at = 0; i < 3; at += (int)layers->params[i++])
        plan.parts.part[i] = (struct echi_part){.at = (uint64_t)at, .count = (uint32_t)layers->params[i], .first = (uint8_t)i,
                                                .last = (uint8_t)i};
    return (struct echi_setup){.rank = 1, .n_layers = 3, .cut = 3, .cut_width = 1, .plan = plan};
}

static struct echi_action hand_action[4];
static int hand_actions;
static void asks(const struct echi_task *t) {
    hand_action[hand_actions++] = (struct echi_action){.type = ECHI_ACTION_COMPUTE, .task = *t};
}
static void pushes(int part) {
    const struct echi_msg m = {.kind = ECHI_KIND_PUSH, .to_role = ECHI_ROLE_OWNER, .from_role = ECHI_ROLE_WORKER, .part = (uint16_t)part,
                               .lease = {.id = 1, .n = 4, .worker = 1}};
    hand_action[hand_actions++] = (struct echi_action){.type = ECHI_ACTION_SEND, .kind = ECHI_KIND_PUSH, .to = 0,
                                                       .slot = {ECHI_SLOT_WORKER_GRADS, 0}, .msg = m};
}
static void at_tenths(int tenths, struct echi_event e) {
    e.now = (int64_t)tenths * 100000000;
    record_event(1, e, hand_action, hand_actions);
    hand_actions = 0;
}

static void row_is(const struct echi_layer_table *t, int u, double forward, double backward, double exchange) {
    const struct echi_layer_row *r = &t->row[u];
    if (fabs(r->seconds[ECHI_FORWARD] - forward) > 1e-4 || fabs(r->seconds[ECHI_BACKWARD] - backward) > 1e-4 ||
        fabs(r->exchange - exchange) > 1e-9)
        fail_msg("layer %d: %g %g %g for %g %g %g", u, r->seconds[ECHI_FORWARD], r->seconds[ECHI_BACKWARD], r->exchange, forward, backward,
                 exchange);
}

static void layers_of_a_step_by_hand(void **state) {
    (void)state;
    static struct echi_record record;
    static struct echi_layer_table table;
    struct echi_layers layers;
    struct tape *t = &tape[1];
    const struct echi_setup setup = by_hand(&layers);
    const struct echi_task first = {.kind = ECHI_TASK_STEP, .until = 1, .lease = {.id = 1, .n = 4, .worker = 1}},
                           rest = {.kind = ECHI_TASK_STEP, .from = 1, .lease = {.id = 1, .n = 4, .worker = 1}};
    const struct echi_result none = {0};
    struct echi_msg weights[3];
    struct echi_event comes[3];
    for (int i = 0; i < 3; i++) {
        weights[i] = (struct echi_msg){.kind = ECHI_KIND_WEIGHTS, .to_role = ECHI_ROLE_WORKER, .from_role = ECHI_ROLE_OWNER,
                                       .part = (uint16_t)i};
        comes[i] = (struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = 0, .msg = &weights[i], .slot = {ECHI_SLOT_WORKER_WEIGHTS, 0}};
    }
    begin_by_hand(1, 2);
    seal(t, ECHI_RECORD_SETUP, echi_setup_encode(&setup, "none", body_of(t), room_of(t)));
    asks(&first);
    at_tenths(10, comes[0]);
    asks(&rest);
    at_tenths(14, (struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &first, .result = &none});   /* layer 0 forward: 0.4 */
    pushes(2);
    at_tenths(24, (struct echi_event){.type = ECHI_EVENT_GRADIENT, .layer = 2, .task = &rest, .result = &none});
    pushes(1);
    at_tenths(30, (struct echi_event){.type = ECHI_EVENT_GRADIENT, .layer = 1, .task = &rest, .result = &none});
    at_tenths(33, comes[2]);                                                                            /* 0.9 after its push */
    at_tenths(34, (struct echi_event){.type = ECHI_EVENT_GRADIENT, .layer = 0, .task = &rest, .result = &none});   /* too few bytes */
    pushes(0);
    at_tenths(35, (struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &rest, .result = &none});
    at_tenths(42, comes[1]);                                                                            /* 1.2 */
    at_tenths(50, comes[0]);                                                                            /* 1.5 */

    struct echi_recording r;
    assert_int_equal(echi_recording_open(t->bytes, t->len, "tape", &r, NULL), ECH_OK);
    assert_int_equal(echi_recording_layers(&r, &record, &layers, NULL, &table, NULL), ECH_OK);
    assert_true(table.count == 3 && table.steps == 1);
    row_is(&table, 0, 0.4, 0.5, 1.5);
    row_is(&table, 1, 0, 0.6, 1.2);       /* its forward pass ends within what nobody can divide */
    row_is(&table, 2, 0, 0, 0.9);
    assert_true(fabs(table.undivided - 1) < 1e-9 && table.row[0].bytes == 40 && table.row[2].bytes == 120000);

    /* With shares: 2.1 s of the second task, of which forward 1 : 2, backward 1 : 2 : 1, in sevenths. */
    struct echi_times times = {.count = 1, .n = {4}, .trunk = {1}, .units = 3, .cut = 3, .sizes = 1};
    const double seconds[3][ECHI_PASSES] = {{4, 1}, {1, 2}, {2, 1}};
    assert_true(echi_times_share(&times, 0, seconds));
    echi_recording_rewind(&r);
    assert_int_equal(echi_recording_layers(&r, &record, &layers, &times, &table, NULL), ECH_OK);
    row_is(&table, 0, 0.4, 0.3, 1.5);
    row_is(&table, 1, 0.3, 0.6, 1.2);
    row_is(&table, 2, 0.6, 0.3, 0.9);
    assert_true(table.undivided == 0);

    char lines[2048], *row;
    const size_t len = echi_layer_table_text(&table, &r.about, lines, sizeof lines);
    assert_true(len == strlen(lines) && echi_layer_table_text(&table, &r.about, lines, sizeof lines) == len);
    assert_non_null(row = strstr(lines, "\nId\tName\tForward\tBackward\tComm.\tSize\n0\tdata\t0\t0\t0\t0\n1\tlayer0\t"));
    double f, b, c;
    unsigned long long size;
    assert_int_equal(sscanf(strstr(row, "layer1") + 7, "%lf %lf %lf %llu", &f, &b, &c, &size), 4);
    assert_true(fabs(f - 300000) < 20 && fabs(b - 600000) < 40 && fabs(c - 1200000) < 0.01 && size == 80000);
    for (const char *line = lines; line[0]; line = strchr(line, '\n') + 1) assert_true(line[0] == '#' || line >= row);
}

/* What has `part` comes, from an owner. */
static void weights_at(int tenths, int from, int part) {
    struct echi_msg m = {.kind = ECHI_KIND_WEIGHTS, .to_role = ECHI_ROLE_WORKER, .from_role = ECHI_ROLE_OWNER, .part = (uint16_t)part};
    at_tenths(tenths, (struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .msg = &m,
                                          .slot = {ECHI_SLOT_WORKER_WEIGHTS, 0}});
}
static void push_at(int tenths, int part) {
    pushes(part);
    at_tenths(tenths, (struct echi_event){.type = ECHI_EVENT_SENT, .from = 0, .kind = ECHI_KIND_PUSH, .slot = {ECHI_SLOT_WORKER_GRADS, 0}});
}
static const struct echi_layer_table *table_of(const struct echi_layers *layers, const struct echi_times *times) {
    static struct echi_record record;
    static struct echi_layer_table table;
    struct echi_recording r;
    assert_int_equal(echi_recording_open(tape[1].bytes, tape[1].len, "tape", &r, NULL), ECH_OK);
    assert_int_equal(echi_recording_layers(&r, &record, layers, times, &table, NULL), ECH_OK);
    return &table;
}
static void begin_with(const struct echi_setup *setup) {
    begin_by_hand(1, 2);
    seal(&tape[1], ECHI_RECORD_SETUP, echi_setup_encode(setup, "none", body_of(&tape[1]), room_of(&tape[1])));
}

/* A layer in two slices is back with the second; coded weights come as one message, and bring back what went to their sender. */
static void a_layer_is_back_with_its_last_part(void **state) {
    (void)state;
    struct echi_layers layers;
    struct echi_setup setup = by_hand(&layers);
    struct echi_parts *parts = &setup.plan.parts;
    parts->count = 4;
    parts->part[3] = parts->part[2];
    parts->part[2].count = 10000;
    parts->part[3].at += 10000;
    parts->part[3].count = 20000;
    begin_with(&setup);
    push_at(10, 3);
    push_at(14, 2);
    push_at(15, 1);
    weights_at(20, 0, 3);
    weights_at(21, 0, 1);
    weights_at(26, 0, 2);
    push_at(30, 3);           /* once more: 1.6 and 0.4 s */
    push_at(30, 2);
    weights_at(33, 0, 2);
    weights_at(34, 0, 3);
    const struct echi_layer_table *table = table_of(&layers, NULL);
    row_is(table, 2, 0, 0, 1.0);
    row_is(table, 1, 0, 0, 0.6);
    row_is(table, 0, 0, 0, 0);

    setup = by_hand(&layers);
    setup.plan.codec = ECHI_CODEC_TOPK;
    setup.plan.state_ratio = setup.plan.base[0] = setup.plan.base[1] = 300000;
    for (int i = 0; i < 3; i++) setup.plan.parts.part[i].codec = ECHI_CODEC_TOPK;
    begin_with(&setup);
    push_at(10, 2);
    push_at(12, 1);
    weights_at(15, 1, 0);     /* another owner's */
    weights_at(20, 0, 0);
    table = table_of(&layers, NULL);
    row_is(table, 2, 0, 0, 1.0);
    row_is(table, 1, 0, 0, 0.8);
}

/* A visit of the head by the shares of all of its samples, 8, not of the first lease's. */
static void a_head_s_layers_by_hand(void **state) {
    (void)state;
    struct echi_layers layers;
    struct echi_setup setup = by_hand(&layers);
    struct echi_times times = {.count = 2, .n = {4, 8}, .trunk = {1, 2}, .head = {1, 2}, .units = 3, .cut = 1, .sizes = 2, .size = {0, 1}};
    const struct echi_task head = {.kind = ECHI_TASK_HEAD, .role = ECHI_ROLE_HEAD, .samples = 8, .lease = {.id = 1, .n = 4, .worker = 1},
                                   .n_rows = 2, .rows = {0, 1}, .row_count = {4, 4}},
                           backward = {.kind = ECHI_TASK_BACKWARD, .lease = {.id = 1, .n = 4, .worker = 1}};
    const struct echi_result none = {0};
    const double few[3][ECHI_PASSES] = {{1, 1}, {1, 1}, {1, 1}}, all[3][ECHI_PASSES] = {{1, 1}, {1, 2}, {3, 4}};
    assert_true(echi_times_share(&times, 0, few) && echi_times_share(&times, 1, all));
    setup.cut = 1;
    setup.plan.cut = 1;
    setup.plan.head = 1;
    begin_with(&setup);
    asks(&head);
    at_tenths(10, (struct echi_event){.type = ECHI_EVENT_SENT});
    asks(&backward);
    at_tenths(20, (struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &head, .result = &none});
    at_tenths(25, (struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &backward, .result = &none});
    const struct echi_layer_table *table = table_of(&layers, &times);
    assert_true(table->cut == 1 && table->steps == 1);
    row_is(table, 0, 0, 0.5, 0);
    row_is(table, 1, 0.1, 0.2, 0);
    row_is(table, 2, 0.3, 0.4, 0);
}

static int forget(void **state) {
    (void)state;
    for (int r = 0; r < NODES; r++) free(tape[r].bytes);
    free(text);
    return 0;
}

static int begin(void **state) {
    (void)state;
    text = malloc(TEXT);
    return text ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_has_its_send), cmocka_unit_test(many_messages_are_under_way),
        cmocka_unit_test(what_nobody_sent_is_not_waited_for),
        cmocka_unit_test(a_walk_ends_where_it_is_told_to),
        cmocka_unit_test(clocks_of_recordings_are_found), cmocka_unit_test(the_trace_has_all_of_a_run),
        cmocka_unit_test(a_message_is_drawn_until_it_has_left),
        cmocka_unit_test(recordings_that_break_off_are_drawn), cmocka_unit_test(foreign_words_are_escaped),
        cmocka_unit_test(layers_have_the_time_that_there_was), cmocka_unit_test(layers_of_a_step_by_hand),
        cmocka_unit_test(a_layer_is_back_with_its_last_part), cmocka_unit_test(a_head_s_layers_by_hand),
    };
    return cmocka_run_group_tests(tests, begin, forget);
}
