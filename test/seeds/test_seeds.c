/* SPDX-License-Identifier: Apache-2.0
 * Whole runs of the protocol under faults, each made from a seed: plan, goal, rates of faults, every delay.
 *   test_seeds [FIRST [RUNS]]   100,000 runs from seed 1, under sanitizers 2,000; where few cases are tried the TEST_PART-th of either
 *   SEED=n test_seeds           that one, and every event of it
 * The first run that breaks an invariant ends the program with its seed, the rates and the last events. Else counts are printed,
 * one a line, which seeds.sh sums up. */
#include "sanitized.h"
#include "unit/sched_runs.h"

enum { RUNS = SANITIZED ? 2000 : 100000 };

static struct counts counts;

static void ends(struct sim *s) {
    print_error("SEED=%llu test_seeds runs it again and tells every event\n", (unsigned long long)s->seed);
    exit(1);
}

/* Each kind of fault is in about half of the runs, and then between rare and all the time. */
static void draw_rates(struct sim *s) {
    struct rates *r = &s->rates;
    r->safety = 20 + below(s, below(s, 2) ? 200 : 1200);
    r->tails = below(s, 2) << below(s, 8);
    r->twice = below(s, 2) << below(s, 10);
    r->slow = below(s, 2) << below(s, 9);
    r->skewed = below(s, 2) ? 500 : 0;
    r->every = 5u << below(s, 7);
    r->pauses = below(s, 2) * (1 + below(s, 8));
    r->cuts = below(s, 2) * (1 + below(s, 4));
    r->walls = below(s, 2) * (1 + below(s, 4));
    r->kills = below(s, 2) * (1 + below(s, 4));
    r->fatal = below(s, 16) == 0;
    r->jumps = below(s, 2) * (1 + below(s, 4));
    r->stops = below(s, 8) == 0;
}

/* Workers of half of the runs with groups join other groups, and in a sixteenth of those under BSP rounds get other shares, at any events
 * of either phase; or, in an eighth of all runs, a head moves, where there is one. With numbers of its own: the rest of a seed is what it
 * is without. */
static void draw_moves(struct sim *s) {
    struct echi_random drawn;
    echi_random_init(&drawn, s->seed, ECHI_STREAM_TEST, 3);
    if (echi_random_below(&drawn, 2)) return;
    s->shares_change = s->seed / 4 % 8 == 5;
    s->heads_move = s->seed / 8 % 4 == 1;
    for (int i = 0; i < MOVES; i++) s->move_at[i] = 20 + echi_random_below(&drawn, echi_random_below(&drawn, 2) ? 300 : 2000);
}

/* A sample of whoever has the most. */
static void make_work(struct echi_plan *p, int rank) {
    int most = 0;
    if (p->n[rank] > 0) return;
    for (int other = 1; other < p->world; other++)
        if (p->n[other] > p->n[most]) most = other;
    p->n[most]--;
    p->n[rank]++;
}

/* Owners of shards are lost, one soon after the other: in the middle of rounds, of takeovers and of what is issued again. Rank 0 computes
 * and owns a shard, wherever its place among the owners is; or two others do, and rank 0 may do one of both, or neither. */
static void draw_shards(struct sim *s) {
    struct echi_plan *p = &s->plan;
    const bool deterministic = s->seed / 4 % 4 == 0, by_rank_0 = s->seed / 64 % 2;
    do {
        memset(p, 0, sizeof *p);
        chosen(s, ECHI_SYNC_BSP);
    } while (p->world < 3 || p->round < 3 || (deterministic && p->round > N_MAX / ECHI_REDUCTION_BLOCK));
    p->cut = p->activations = p->sync_norm = p->micro_batches = p->gathers = p->codec = 0;
    p->state_ratio = p->base[0] = 0;
    p->head = ECHI_NO_RANK;
    p->shadow = 0;
    give_up_heads(p);
    p->shards = (uint8_t)(2 + below(s, p->world - 1u));
    p->owner_of[0] = (uint16_t)((p->world - below(s, by_rank_0 ? p->shards : p->world)) % p->world);
    for (int r = 0; r < 2 && by_rank_0; r++) make_work(p, r);
    const int heirs = by_rank_0 ? 0 : below(s, 2) ? p->shards : 2, idle = p->owner_of[0] > 0 && below(s, 2);
    for (int i = 0; i < heirs; i++) make_work(p, (p->owner_of[0] + i) % p->world);
    if (!by_rank_0 && idle) {
        p->n[p->owner_of[0]] += p->n[0];
        p->n[0] = 0;
    }
    for (int r = 0; r < p->world; r++) p->group_of[r] = p->n[r] > 0 ? 0 : ECHI_NONE;
    if (deterministic) take_blocks(s);
    s->rates.kills = 1 + below(s, 6);
    s->rates.every = 5u << below(s, 6);
    s->rates.fatal = s->rates.stops = 0;
}

/* Links as drivers see them, in an eighth of the runs; in those with top-k the ratios follow them, by any of the policies. */
static void draw_links(struct sim *s) {
    if (s->seed % 8 != 2) return;
    echi_random_init(&s->told, s->seed, ECHI_STREAM_TEST, 4);
    s->tells_rates = true;
    if (s->plan.codec == ECHI_CODEC_DENSE) return;
    s->plan.ratios = (uint8_t)echi_random_below(&s->told, ECHI_RATIOS);
    s->request.ratios_after = 1 + echi_random_below(&s->told, 2000);
    s->request.params = PARAMS;
    s->request.trunk_params = CUT * WORDS;
}

static void draw_run(struct sim *s) {
    s->counts = &counts;
    s->fails = ends;
    s->loud = getenv("SEED") != NULL;
    draw_rates(s);
    draw_moves(s);
    if (s->seed % 4 == 0) return draw_shards(s);
    const uint32_t kind = below(s, 8);
    if (kind < 5) return chosen(s, (enum echi_sync)below(s, ECHI_SYNCS));
    if (kind == 5) {   /* several owners are lost, one soon after the other, while states are long under way */
        do {
            memset(&s->plan, 0, sizeof s->plan);
            chosen(s, ECHI_SYNC_GSSP);
        } while (s->plan.n_groups < 4);
        s->rates.slow = 100 + below(s, 400);
        s->rates.kills = s->rates.walls = 4;
        s->rates.every = 20 + below(s, 100);
        return;
    }
    choose_goal(s);
    s->stop_at = 0;
    choose_request(s, (enum echi_sync)below(s, ECHI_SYNCS));
}

/* A takeover may find that nobody is left with the weights that all owners were made of: of a round with fewer units than there were heirs,
 * rank 0 none of them. */
static bool lost_in_a_short_round(const struct sim *s) {
    const struct echi_coordinator *c = &s->coordinator;
    uint32_t heirs = 0, least = UINT32_MAX;
    for (int r = 0; r < s->plan.world; r++) heirs += s->plan.group_of[r] != ECHI_NONE && echi_plan_shard_owned(&s->plan, r) >= 0;
    for (int i = 0; i < ECHI_ROUNDS_KEPT; i++)
        if (c->dealt[i].size > 0 && c->dealt[i].size < least) least = c->dealt[i].size;
    return s->plan.shards && !echi_plan_is_heir(&s->plan,
                                                0) && (least - 1) / (s->plan.deterministic ? ECHI_REDUCTION_BLOCK : 1) + 1 < heirs;
}

static void check_end(struct sim *s) {
    const struct echi_coordinator *c = &s->coordinator;
    counts.losses += (uint64_t)c->n_lost;
    for (int i = 0; i < c->n_lost; i++) counts.lost_owners += echi_plan_group_owned(&s->plan, c->lost_rank[i]) >= 0;
    counts.again += c->again_leases;
    counts.repeats += s->repeats;
    counts.dropped += s->dropped;
    counts.keeps += (uint64_t)s->keeps;
    if (s->plan.sync == ECHI_SYNC_BSP) counts.shared += (uint64_t)s->moves;
    else counts.moves += (uint64_t)s->moves;
    counts.handed_back += s->handed_back;
    counts.woke += s->woke;
    counts.shadows += c->homes.shadows;
    counts.heads_moved += c->homes.moves;
    counts.ratio_changes += c->follow.changes;
    if (s->calm && (s->events - s->calm_at) * 1000 / s->live_events > counts.live_most)
        counts.live_most = (s->events - s->calm_at) * 1000 / s->live_events;
    if (c->status == ECH_E_PEER_LOST) {
        /* Without it there is no run: killed so, or cut off before there was a plan, which then gave it what is needed. */
        const bool early = s->node[c->lost_peer].doomed_early, untimely = lost_in_a_short_round(s);
        MUST(s, LEDGER, s->node[c->lost_peer].doomed && (s->fatal || early || untimely));
        MUST(s, LEDGER, !echi_plan_can_lose(&c->plan, c->lost_peer) || echi_plan_group_owned(&c->plan, c->lost_peer) >= 0 || untimely);
        counts.untimely += untimely;
        for (int r = 1; r < s->plan.world; r++) MUST(s, WAIT, s->node[r].role.over || s->node[r].doomed);
        check_rescued(s);
        counts.ended++;
        return;
    }
    if (c->status == ECH_E_ABORTED && c->issued == s->from.at.samples) {
        counts.early++;
        return;
    }
    check_counts(s);
    check_silence(s);
    check_weights(s);
    if (!s->killed) check_stalenesses(s);
}

/* The power goes; what is left is the last checkpoint. Other nodes, groups and, but for BSP, another policy go on from it. */
static void run_seed(uint64_t seed) {
    static struct kept kept;
    struct sim *s = sim_new(seed);
    draw_run(s);
    draw_links(s);
    counts.runs++;
    if (s->plan_given && below(s, 8) == 0) {
        s->goal.target_accuracy = 0;
        s->goal.keep = true;
        s->goal.keep_every = 1 + below(s, 3);
        s->cut_at = 1 + below(s, 20000);
    }
    sim_run(s);
    if (s->done) return check_end(s);
    counts.fault[FAULT_POWER]++;
    if (!s->kept.there) return;
    const struct echi_goal goal = s->goal;
    const enum echi_sync sync = (enum echi_sync)s->plan.sync;
    const uint32_t round = s->plan.round;
    const bool deterministic = s->plan.deterministic;
    kept = s->kept;
    s = sim_new(seed);
    echi_random_init(&s->random, seed, ECHI_STREAM_TEST, 2);
    s->counts = &counts;
    s->fails = ends;
    s->loud = getenv("SEED") != NULL;
    draw_rates(s);
    draw_moves(s);
    s->goal = goal;
    s->from = kept;
    resume_plan(s, sync, round, deterministic);
    take_up(s);
    counts.resumed++;
    sim_run(s);
    check_end(s);
}

static void tell(const char *what, const char *name, uint64_t n) { printf("%s%s %llu\n", what, name, (unsigned long long)n); }

int main(int argc, char **argv) {
    static const char *const due[DUES_OF] = {"messages", "sent", "work", "notices", "answers", "ends-itself", "times"};
    static const char *const task[ECHI_TASKS] = {
        [ECHI_TASK_HEAD] = "head", [ECHI_TASK_HEAD_APPLY] = "head-apply", [ECHI_TASK_NORM] = "norm", [ECHI_TASK_ADD] = "add",
        [ECHI_TASK_APPLY] = "apply", [ECHI_TASK_TAKE] = "take",
        [ECHI_TASK_ENCODE] = "encode", [ECHI_TASK_DECODE] = "decode", [ECHI_TASK_REFRESH] = "refresh", [ECHI_TASK_STATE] = "state",
        [ECHI_TASK_BACKWARD] = "backward",
        [ECHI_TASK_STEP] = "step", [ECHI_TASK_FORWARD] = "forward", [ECHI_TASK_EVAL] = "eval", [ECHI_TASK_KEEP] = "keep",
        [ECHI_TASK_LOCAL_APPLY] = "local-apply", [ECHI_TASK_LOCAL_DELTA] = "local-delta", [ECHI_TASK_LOCAL_JOIN] = "local-join"};
    const char *only = getenv("SEED");
    const uint64_t first = only ? strtoull(only, NULL, 10) : argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t runs = only ? 1 : argc > 2 ? strtoull(argv[2], NULL, 10) : RUNS / (test_few() ? test_part() : 1);
    for (uint64_t seed = first; seed < first + runs; seed++) run_seed(seed);
    uint64_t events = 0;
    for (int i = 0; i < DUES_OF; i++) events += counts.due[i];
    tell("", "runs", counts.runs);
    tell("", "with-a-second-phase", counts.calm);
    tell("", "stopped-before-training", counts.early);
    tell("", "ended-by-a-loss", counts.ended);
    tell("", "ended-by-a-loss.in-a-short-round", counts.untimely);
    tell("", "resumed", counts.resumed);
    for (int i = 0; i < FAULTS; i++) tell("fault.", fault_name[i], counts.fault[i]);
    tell("", "losses", counts.losses);
    tell("", "losses.of-owners", counts.lost_owners);
    tell("", "takeovers", counts.takeovers);
    tell("", "takeovers.of-shards", counts.taken);
    tell("", "takeovers.rounds-open-again", counts.reopened);
    tell("", "pushed-again", counts.pushed_again);
    tell("", "leases-again", counts.again);
    tell("", "rows-answered-again", counts.repeats);
    tell("", "pushes-dropped", counts.dropped);
    tell("", "checkpoints", counts.keeps);
    tell("", "rescued", counts.rescued);
    tell("", "workers-moved", counts.moves);
    tell("", "shares-changed", counts.shared);
    tell("", "shadows-made", counts.shadows);
    tell("", "heads-moved", counts.heads_moved);
    tell("", "copies-of-layers", counts.copies);
    tell("", "copies-of-layers.refused", counts.refused);
    tell("", "reserves-woken", counts.woke);
    tell("", "rates-of-links", counts.told_rates);
    tell("", "ratios-changed", counts.ratio_changes);
    tell("", "leases-handed-back", counts.handed_back);
    tell("", "parts-behind-a-norm", counts.norms);
    tell("", "forwards.on-weights-that-come", counts.forwards);
    tell("", "forwards.begun-again", counts.forwards_again);
    tell("", "parts-behind-a-norm.of-later-leases", counts.later_norms);
    tell("", "events", events);
    for (int i = 0; i < DUES_OF; i++) tell("event.", due[i], counts.due[i]);
    for (int i = 0; i < ECHI_KINDS; i++)
        if (counts.kind[i]) tell("message.", echi_kind_name(i), counts.kind[i]);
    for (int i = 0; i < ECHI_TASKS; i++)
        if (counts.task[i]) tell("task.", task[i] ? task[i] : "other", counts.task[i]);
    tell("", "as-stale-as-may-be", counts.stale_most);
    tell("most.", "thousandths-of-the-second-phase", counts.live_most);
    return 0;
}
