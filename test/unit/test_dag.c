/* SPDX-License-Identifier: Apache-2.0
 * The cost engine against the DAG model of synchronous SGD (Shi, Wang, Chu, Li: A DAG Model of Synchronous Stochastic Gradient Descent in
 * Distributed Deep Learning, ICPADS 2018): its closed formulas for a step without overlap, with reading ahead, with wait-free
 * back-propagation, with merged layers (MG-WFBP, INFOCOM 2019) and with urgent layers first (P3, SysML 2019), for workers that are not
 * alike, and for a parameter server; and the formulas against the graph itself. dag_model.h has what other tests need of it.
 *
 * Where the engine is another model: what is less urgent gives way with its chunk of 64 KiB, where the DAG model's messages are whole; it
 * has no alpha that occupies a link, for which a delay that overlaps, or bytes, stand; a plan's round has no update that waits for all
 * layers. */
#include "framed.h"
#include "dag_model.h"
#include "echi_predict.h"
#include "echi_random.h"

enum { FEW = 9, STEPS = 6 };   /* layers of a random net, at most */

/* --------------------------------------------------------------- one step */

/* The vectors can be checked by hand: without overlap layer by layer and as one message, wait-free, and merged in the best way. */
static void vectors_of_one_step(void **state) {
    (void)state;
    const struct net net = {4, {5}, {4, 3, 2, 1}, {0.1, 0.4, 2, 4}};
    static const struct { struct line line; double by_layer, at_once, wait_free, merged; } v[] = {
        {{0.5, 1}, 23.5, 22, 15.6, 15.6}, {{2, 1}, 29.5, 23.5, 20.5, 18.5}, {{0.1, 0.2}, 16.7, 16.4, 15.12, 15.12}};
    double ready[LAYERS] = {0};
    ready_of(&net, ready);
    for (int i = 0; i < 3; i++) {
        const bool all[LAYERS] = {false, true, true, true};
        bool with[LAYERS];
        assert_near(step(&net, 1, v[i].line, NULL, false), v[i].by_layer, NEAR);
        assert_near(step(&net, 1, v[i].line, all, true), v[i].at_once, NEAR);
        assert_near(step(&net, 1, v[i].line, NULL, true), v[i].wait_free, NEAR);
        assert_near(best_merged(&net, v[i].line, ready, with), v[i].merged, NEAR);
        assert_near(step(&net, 1, v[i].line, with, true), v[i].merged, NEAR);
    }
    /* MG-WFBP's rule merges layer 3 into 2 here, and ends at 26. */
    const struct net other = {3, {0}, {6, 5, 2}, {1, 1, 5}};
    const struct line line = {6, 1};
    bool with[LAYERS];
    ready_of(&other, ready);
    merged_by_rule(&other, line, ready, 0, with);
    assert_true(!with[1] && with[2]);
    assert_near(step(&other, 1, line, with, true), 26, NEAR);
    assert_near(best_merged(&other, line, ready, with), 21, NEAR);
    assert_near(step(&other, 1, line, with, true), 21, NEAR);
    assert_true(with[1] && !with[2]);
}

static double any(struct echi_random *random, double most) { return most * (1 + echi_random_below(random, 1000)) / 1000; }
static struct net any_net(struct echi_random *random, int count) {
    struct net net = {.count = count};
    for (int l = 0; l < count; l++) {
        net.forward[l] = any(random, 2);
        net.backward[l] = any(random, 4);
        net.size[l] = any(random, 3);
    }
    return net;
}

/* Dynamic programming finds the best of all 2^(L-1) ways, the published rule does not; and the engine takes as long as both say. */
static void any_best_merging(void **state) {
    (void)state;
    struct echi_random random;
    int worse = 0;
    echi_random_init(&random, 22, ECHI_STREAM_TEST, 1);
    for (int run = 0; run < 2000; run++) {
        const struct net net = any_net(&random, 1 + (int)echi_random_below(&random, FEW));
        const struct line line = {any(&random, 4), any(&random, 2)};
        double ready[LAYERS] = {0};
        bool all[LAYERS], table[LAYERS], rule[LAYERS];
        ready_of(&net, ready);
        const double best = best_merged(&net, line, ready, all), tabled = best_by_table(&net, line, ready, table);
        merged_by_rule(&net, line, ready, 0, rule);
        const double ruled = wait_free(&net, line, ready, rule);
        assert_near(tabled, best, 1e-9);
        assert_near(wait_free(&net, line, ready, table), best, 1e-9);
        assert_true(ruled >= best - 1e-9 && ruled <= wait_free(&net, line, ready, NULL) + 1e-9);
        worse += ruled > best + 1e-9;
        if (run % 10) continue;
        assert_near(step(&net, 1, line, table, true), best, NEAR);
        assert_near(step(&net, 1, line, rule, true), ruled, NEAR);
    }
    assert_in_range(worse, 2000 / 20, 2000 / 2);   /* the test sees where the rule is not the best */
}

/* Workers that are not alike: a message leaves when the last of them has its layers, and all of them have the same sizes. */
static void any_step_of_unlike_workers(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 19, ECHI_STREAM_TEST, 1);
    for (int run = 0; run < 400; run++) {
        const int workers = 1 + (int)echi_random_below(&random, WORKERS), count = 1 + (int)echi_random_below(&random, FEW);
        const struct line line = {any(&random, 2), any(&random, 2)};
        struct net net[WORKERS];
        double ready[LAYERS] = {0}, one[LAYERS];
        bool with[LAYERS] = {false};
        for (int w = 0; w < workers; w++) {
            net[w] = any_net(&random, count);
            memcpy(net[w].size, net[0].size, sizeof net[w].size);
            ready_of(&net[w], one);
            for (int l = 0; l < count; l++) ready[l] = greater(ready[l], one[l]);
        }
        int messages = 1;
        for (int l = 1; l < count; l++) messages += !(with[l] = echi_random_below(&random, 2));
        assert_near(step(net, workers, line, with, true), wait_free(&net[0], line, ready, with), NEAR);
        assert_near(step(net, workers, line, with, false),
                    ready[0] + messages * line.alpha + line.beta * sum_of(net[0].size, count), NEAR);
    }
}

/* A parameter server: what all workers push comes in over one way, whose queue is first come, first served. */
static void pushes_of_all_are_one_queue(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 20, ECHI_STREAM_TEST, 1);
    for (int run = 0; run < 200; run++) {
        const int workers = 2 + (int)echi_random_below(&random, WORKERS - 1), count = 1 + (int)echi_random_below(&random, FEW);
        const double beta = any(&random, 1);
        struct net net[WORKERS];
        double ready[WORKERS][LAYERS], end = 0;
        struct pass pass[WORKERS];
        struct echi_happening what;
        open_cluster(workers, beta);
        echi_cost_set_link(cost, workers + 1, RATE / beta, (struct echi_cost_io){0});
        for (int w = 0; w < workers; w++) {
            net[w] = any_net(&random, count);
            ready_of(&net[w], ready[w]);
            compute(&pass[w], &net[w], w);
        }
        for (int l; echi_cost_next(cost, &what);)
            if (layer_ends(&what, count, &l))
                echi_cost_send(cost, what.host, workers + 1, 0, (uint64_t)llround(net[what.host].size[l] * RATE), 0, 0);
        /* The queue by hand: always the one that was ready first of those that are left. */
        for (int left = workers * count; left > 0; left--) {
            int w = 0, l = 0;
            for (int i = 0; i < workers * count; i++)
                if (ready[i / count][i % count] < ready[w][l]) {
                    w = i / count;
                    l = i % count;
                }
            end = greater(end, ready[w][l]) + beta * net[w].size[l];
            ready[w][l] = INFINITY;
        }
        assert_near(close_cluster(), end, NEAR);
    }
}

/* --------------------------------------------------------- step upon step */

/* Beside a net: reading and decoding samples, taking them to the device, updating the weights. */
struct beside { double read, copy, update; };

/* Formulas (1) to (4): from one update to the next. */
static double one_device(const struct net *n, struct beside b) {
    return b.read + b.copy + sum_of(n->forward, n->count) + sum_of(n->backward, n->count) + b.update;
}
static double naive(const struct net *n, struct line line, struct beside b) {
    return one_device(n, b) + line.alpha * n->count + line.beta * sum_of(n->size, n->count);
}
static double with_reading_ahead(const struct net *n, struct line line, struct beside b) {
    return greater(b.read + b.copy, naive(n, line, b) - b.read - b.copy);
}
static double with_wait_free(const struct net *n, struct line line, struct beside b) {
    double ready[LAYERS] = {0};
    ready_of(n, ready);
    return greater(b.read + b.copy, wait_free(n, line, ready, NULL) + b.update);
}

/* The graph: every edge by its name, the longest path to each node of STEPS iterations. */
enum { READ, COPY, FORWARD, BACKWARD = FORWARD + FEW, SEND = BACKWARD + FEW, UPDATE = SEND + FEW, NODES };
struct graph { const struct net *net; struct line line; struct beside beside; bool ahead, at_once; double end[STEPS][NODES]; };
static double after(const struct graph *g, int k, int node) { return k < 0 ? 0 : g->end[k][node]; }
static double longest_path(struct graph *g) {
    const int last = g->net->count - 1;
    for (int k = 0; k < STEPS; k++) {
        double *end = g->end[k];
        end[READ] = after(g, k - 1, g->ahead ? COPY : UPDATE) + g->beside.read;
        end[COPY] = end[READ] + g->beside.copy;
        for (int l = 0; l <= last; l++)
            end[FORWARD + l] = (l > 0 ? end[FORWARD + l - 1] : greater(end[COPY], after(g, k - 1, UPDATE))) + g->net->forward[l];
        for (int l = last; l >= 0; l--) end[BACKWARD + l] = (l < last ? end[BACKWARD + l + 1] : end[FORWARD + last]) + g->net->backward[l];
        for (int l = last; l >= 0; l--)
            end[SEND + l] = greater(l < last ? end[SEND + l + 1] : 0, end[g->at_once ? BACKWARD : BACKWARD + l]) + g->line.alpha +
                            g->line.beta * g->net->size[l];
        end[UPDATE] = end[SEND] + g->beside.update;
    }
    return g->end[STEPS - 1][UPDATE] - g->end[STEPS - 2][UPDATE];
}

/* The formulas are the longest path between two updates; each way to overlap is no slower than the one before; and what is not hidden
 * decides the speed-up: N / (1 + r). */
static void formulas_are_longest_paths(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 23, ECHI_STREAM_TEST, 1);
    for (int run = 0; run < 1000; run++) {
        const struct net net = any_net(&random, 1 + (int)echi_random_below(&random, FEW));
        const struct line line = {any(&random, 2), any(&random, 2)};
        const struct beside beside = {any(&random, 40), any(&random, 4), any(&random, 2)};
        struct graph g = {.net = &net, .line = line, .beside = beside, .at_once = true};
        double ready[LAYERS] = {0};
        bool with[LAYERS];
        const double second = naive(&net, line, beside), third = with_reading_ahead(&net, line, beside);
        const double fourth = with_wait_free(&net, line, beside);
        assert_near(longest_path(&g), second, 1e-9);
        g.ahead = true;
        assert_near(longest_path(&g), third, 1e-9);
        g.at_once = false;
        assert_near(longest_path(&g), fourth, 1e-9);
        ready_of(&net, ready);
        const double fifth = greater(beside.read + beside.copy, best_by_table(&net, line, ready, with) + beside.update);
        assert_true(second >= third && third >= fourth - 1e-9 && fourth >= fifth - 1e-9);
        const double alone = ready[0] + beside.update, shown = wait_free(&net, line, ready, NULL) - ready[0];
        if (beside.read + beside.copy < alone) assert_near(8 * alone / fourth, 8 / (1 + shown / alone), 1e-9);
        /* A device by itself is the graph whose messages take no time. */
        g = (struct graph){.net = &net, .beside = beside};
        assert_near(longest_path(&g), one_device(&net, beside), 1e-9);
    }
}

/* Formula (3): a reader that is one batch ahead; a step takes as long as the slower of both. */
static void reading_ahead(void **state) {
    (void)state;
    static const double read[] = {3, 7}, step_of[] = {5, 5};
    for (int i = 0; i < 2; i++) {
        struct echi_happening what;
        int reads = 0, begun = 0;
        bool busy = false;
        double last = 0, period = 0;
        open_cluster(2, 1);
        echi_cost_compute(cost, 0, &(struct echi_work){.seconds = read[i]});
        while (begun < STEPS && echi_cost_next(cost, &what)) {
            if (what.host == 0) reads++;
            else busy = false;
            if (busy || begun == reads) continue;
            busy = true;
            begun++;
            period = 1e-9 * (double)echi_cost_now(cost) - last;
            last += period;
            echi_cost_compute(cost, 1, &(struct echi_work){.seconds = step_of[i]});
            echi_cost_compute(cost, 0, &(struct echi_work){.seconds = read[i]});   /* into the place that is free now */
        }
        (void)close_cluster();
        assert_near(period, greater(read[i], step_of[i]), NEAR);
    }
}

/* Of the layers that are ready the first of the net has the way, also before one that is half through: when each is there. */
static void urgent_first(const struct net *net, double beta, double *there) {
    double ready[LAYERS] = {0}, left[LAYERS], now = 0;
    ready_of(net, ready);
    for (int l = 0; l < net->count; l++) left[l] = beta * net->size[l];
    for (int sent = 0; sent < net->count;) {
        int first = -1;
        double next = INFINITY;   /* when another layer is ready */
        for (int l = net->count - 1; l >= 0; l--) {
            if (left[l] == 0) continue;
            if (ready[l] <= now) first = l;
            else if (ready[l] < next) next = ready[l];
        }
        if (first < 0) now = next;
        else if (now + left[first] <= next) {
            there[first] = now += left[first];
            left[first] = 0;
            sent++;
        } else {
            left[first] -= next - now;
            now = next;
        }
    }
}

/* Formula (6) by hand: forward of a layer begins when it is there and the one before it is through. The next step's backward passes follow
 * the last of its forward passes at once, so what these wait for is the period, from one step's beginning to the next one's. */
static double period_of(const struct net *net, const double *there) {
    double end = 0;
    for (int l = 0; l < net->count; l++) end = greater(end, there[l]) + net->forward[l];
    return end - sum_of(net->forward, net->count);
}

static double period_on_the_engine(const struct net *net, double beta) {
    struct pass pass;
    struct echi_happening what;
    struct net backward = *net;
    int forward = 0, steps = 0, ended;
    bool there[LAYERS], under_way = true;
    double last = 0, period = 0;
    memset(backward.forward, 0, sizeof backward.forward);
    memset(there, 1, sizeof there);
    open_cluster(1, beta);
    echi_cost_compute(cost, 0, &(struct echi_work){.seconds = net->forward[0], .cookie = 1});
    while (steps < STEPS && echi_cost_next(cost, &what)) {
        const double now = 1e-9 * (double)echi_cost_now(cost);
        if (what.type == ECHI_HAPPENS_ARRIVED) there[what.cookie] = true;
        else if (what.type == ECHI_HAPPENS_DONE && what.cookie == 1) {
            under_way = false;
            forward++;
        } else {
            if (layer_ends(&what, net->count, &ended)) send(1, (struct line){0, beta}, net->size[ended], ended, (uint64_t)ended);
            continue;
        }
        if (forward == net->count) {
            period = now - last;
            last = now;
            steps++;
            forward = 0;
            under_way = false;
            memset(there, 0, sizeof there);
            compute(&pass, &backward, 0);
        } else if (!under_way && there[forward]) {
            under_way = true;
            echi_cost_compute(cost, 0, &(struct echi_work){.seconds = net->forward[forward], .cookie = 1});
        }
    }
    (void)close_cluster();
    return period;
}

/* On the engine what is less urgent gives way with its chunk, so each layer may wait for one. */
static void urgent_layers_first(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 21, ECHI_STREAM_TEST, 1);
    for (int run = 0; run < 300; run++) {
        const struct net net = any_net(&random, 1 + (int)echi_random_below(&random, FEW));
        double there[LAYERS] = {0};
        const double beta = any(&random, 4);
        urgent_first(&net, beta, there);
        const double by_hand = period_of(&net, there);
        const double chunks = beta * net.count * ECHI_COST_CHUNK / RATE;
        assert_near(period_on_the_engine(&net, beta), by_hand, chunks + NEAR);
    }
}

/* ------------------------------------------------------------- a plan's */

static struct echi_plan plan;
static struct echi_times times[ECHI_WORLD_MAX];
static struct echi_predict_work work;

/* Rank 0 owns all parts, one a layer, and two alike train. Nothing but their steps and links takes time. */
static double predicted(const struct net *net, double beta, double delay) {
    struct echi_load load = {.layers = (uint32_t)net->count};
    double seconds[ECHI_UNITS_MAX][ECHI_PASSES];
    uint64_t at = 0;
    plan = (struct echi_plan){.sync = ECHI_SYNC_BSP, .world = 3, .n_groups = 1, .flights = 1, .head = ECHI_NO_RANK, .round = 2};
    memset(plan.group_of, ECHI_NONE, sizeof plan.group_of);
    memset(plan.owner_of, 0xff, sizeof plan.owner_of);
    plan.owner_of[0] = 0;
    plan.parts.count = (uint16_t)net->count;
    for (int l = 0; l < net->count; l++) {
        const uint32_t count = (uint32_t)llround(net->size[l] * RATE / sizeof(float));
        plan.parts.part[l] = (struct echi_part){.at = at, .count = count, .first = (uint8_t)l, .last = (uint8_t)l};
        at += count;
        seconds[l][ECHI_FORWARD] = net->forward[l];
        seconds[l][ECHI_BACKWARD] = net->backward[l];
    }
    load.trunk = (uint32_t)(at * sizeof(float));
    for (int r = 0; r < 3; r++) {
        struct echi_times *t = &times[r];
        *t = (struct echi_times){.count = 1, .n = {1}, .trunk = {sum_of(net->forward, net->count) + sum_of(net->backward, net->count)},
                                 .units = (uint16_t)net->count, .cut = (uint16_t)net->count, .sizes = 1};
        assert_true(echi_times_share(t, 0, (const double (*)[ECHI_PASSES])seconds));
        if (r == 0) continue;
        plan.group_of[r] = 0;
        plan.n[r] = 1;
        t->link = echi_link_of(RATE / beta);
        t->delay = delay;
    }
    assert_true(echi_plan_valid(&plan));
    struct echi_prediction p;
    echi_predict(&plan, times, &load, 0, &work, &p);
    return 2 / p.rate;
}

/* A plan's prediction is formula (6) with two ways, out and in: gradients go by urgency, weights come in the order in which they went. */
static void predictions_of_a_chain(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 25, ECHI_STREAM_TEST, 1);   /* no two gradients are there so nearly at once that frames change their order */
    for (int run = 0; run < 300; run++) {
        struct net net = any_net(&random, 1 + (int)echi_random_below(&random, FEW));
        double there[LAYERS] = {0}, back[LAYERS], in_free = 0;
        const double beta = 10 * any(&random, 2), delay = run % 2 * any(&random, 1) / 10;
        for (int l = 0; l < net.count; l++) net.size[l] /= 10;   /* a plan's parts have 32 bits */
        urgent_first(&net, FRAMED * beta, there);
        for (int sent = 0; sent < net.count; sent++) {
            int first = -1;
            for (int l = 0; l < net.count; l++)
                if (there[l] < INFINITY && (first < 0 || there[l] < there[first])) first = l;
            in_free = back[first] = greater(in_free, there[first] + 2 * delay) + FRAMED * beta * net.size[first];
            there[first] = INFINITY;
        }
        const double by_hand = period_of(&net, back), shares = by_hand * net.count / ECHI_SHARE_ALL;
        assert_near(predicted(&net, beta, delay), by_hand, beta * 2 * net.count * ECHI_COST_CHUNK / RATE + shares + 1e-4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_one_step),         cmocka_unit_test(any_step_of_unlike_workers),
        cmocka_unit_test(any_best_merging),            cmocka_unit_test(formulas_are_longest_paths),
        cmocka_unit_test(pushes_of_all_are_one_queue), cmocka_unit_test(reading_ahead),
        cmocka_unit_test(urgent_layers_first),         cmocka_unit_test(predictions_of_a_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
