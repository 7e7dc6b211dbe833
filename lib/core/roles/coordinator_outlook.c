/* SPDX-License-Identifier: Apache-2.0
 * Is another plan clearly better by now? What roles cannot change while a run goes (who trains, who owns, which policy) is chosen anew for
 * the machines as they are seen, and compared by prediction (PROTOCOL.md, "Plans while a run goes"). Only a person can do something about
 * it, so no action follows, and a replay need not ask. */
#include "echi_coordinator_impl.h"

#define EVERY INT64_C(20000000000)   /* ns between two checks; another plan must have been better for three of them */
#define IDLE 5                       /* after each choice that found nothing better twice as long, and so often doubled */
#define OVER 1.02                    /* below so many times the worth a change is over, and may be named again */
#define COST 200                     /* a check may take one part in so many of the time until the next */

static bool may_look(const struct echi_coordinator *c) {
    return c->request.regroup_after > 0 && !c->plan_given && c->phase == ECHI_RUN_TRAINS && c->n_lost == 0 && c->choice.count > 0 &&
           plan_of(c)->world > 1 && plan_of(c)->world <= ECHI_WHAT_IF_WORLD;
}

static double change(double was, double is) { return was > 0 && is > 0 ? (is > was ? is / was : was / is) : 1; }
static bool changed(double was, double is) { return change(was, is) > 1 + ECHI_REPLAN_GAIN; }

static struct echi_machine_seen seen_of(const struct echi_coordinator *c, int rank) {
    const struct echi_link *link = &c->work.now[rank].link;
    return (struct echi_machine_seen){echi_follow_slower(&c->follow, rank), link->out.rate, link->in.rate};
}

static uint64_t changes(const struct echi_coordinator *c) { return c->moves + c->sizes + c->shares.changes; }

/* Is all about as it was for the last choice, before the first one at the start? Then that choice holds. */
static bool as_before(const struct echi_coordinator *c) {
    if (changes(c) != c->outlook.changes) return false;
    for (int r = 0; r < plan_of(c)->world; r++) {
        const struct echi_machine_seen is = seen_of(c, r), *was = &c->outlook.seen[r];
        const struct echi_link *link = &c->times[r].link;
        if (changed(was->slower, is.slower) || changed(was->out > 0 ? was->out : link->out.rate, is.out) ||
            changed(was->in > 0 ? was->in : link->in.rate, is.in)) return false;
    }
    return true;
}

/* The other plan, and which machine has changed the most since the start. */
static void name(struct echi_coordinator *c) {
    struct echi_outlook *o = &c->outlook;
    double most = 0;
    o->count++;
    o->named.here = o->here;
    o->named.there = o->there;
    o->named.workers = echi_plan_workers(&o->plan, -1);
    o->named.shards = o->plan.shards;
    o->named.owner = o->plan.owner_of[0];
    for (int r = 0; r < plan_of(c)->world; r++) {
        const struct echi_machine_seen is = seen_of(c, r);
        const double was[3] = {1, c->times[r].link.out.rate, c->times[r].link.in.rate}, now[3] = {is.slower, is.out, is.in};
        for (int i = 0; i < 3; i++) {
            if (change(was[i], now[i]) <= most) continue;
            most = change(was[i], now[i]);
            o->named.cause = r;
            o->named.slower = is.slower;
            o->named.was = i ? was[i] : 0;
            o->named.is = i ? now[i] : 0;
        }
    }
}

/* The plan that goes, with the sizes that leases have, or with shares that rounds may be given (coordinator_shares.c). */
static bool judge_here(struct echi_coordinator *c) {
    struct echi_outlook *o = &c->outlook;
    o->plan = *plan_of(c);
    memcpy(o->plan.n, c->size, o->plan.world * sizeof *c->size);
    echi_plan_judge(&c->request, c->work.now, &o->plan, &c->work, &o->choice);
    o->here = o->choice.candidate[0];
    if (o->choice.count == 0 || !echi_shares_may_follow(c)) return o->choice.count > 0;
    echi_shares_of_round(plan_of(c), c->work.now, o->plan.n);
    echi_plan_judge(&c->request, c->work.now, &o->plan, &c->work, &o->choice);
    if (o->choice.candidate[0].goodput > o->here.goodput) o->here = o->choice.candidate[0];
    return true;
}

/* How many times as much the other plan is worth; 0: none can be made. */
static double other_is_worth(struct echi_coordinator *c) {
    struct echi_outlook *o = &c->outlook;
    char text[2];
    o->changes = changes(c);
    for (int r = 0; r < plan_of(c)->world; r++) o->seen[r] = seen_of(c, r);
    if (!judge_here(c)) return 0;
    if (echi_plan_choose(&c->request, c->work.now, &c->work, &o->plan, &o->choice, text, sizeof text) != ECH_OK) return 0;
    o->there = o->choice.candidate[o->choice.taken];
    return o->there.goodput / o->here.goodput;
}

bool echi_coordinator_outlook(struct echi_coordinator *c, int64_t now) {
    struct echi_outlook *o = &c->outlook;
    if (!may_look(c) || now < o->next_at) return false;
    echi_machines_seen(&c->follow, plan_of(c), c->times, now, c->work.now);
    if (!as_before(c)) {
        o->lasting.checks = 0;
        const double worth = other_is_worth(c);
        o->better = worth >= 1 + ECHI_REPLAN_GAIN;
        o->told = o->told && worth >= OVER;
        if (o->better) o->idle = 0;
        else if (o->idle < IDLE) o->idle++;
    }
    o->next_at = now + (EVERY << o->idle);
    if (!echi_lasting_check(&o->lasting, o->better && !o->told, 1, (ECHI_REPLAN_CHECKS - 1) * EVERY, now)) return true;
    echi_lasting_answered(&o->lasting, false, EVERY, now);
    o->told = true;
    name(c);
    return true;
}

void echi_coordinator_outlook_took(struct echi_coordinator *c, int64_t now, int64_t took) {
    if (now + COST * took > c->outlook.next_at) c->outlook.next_at = now + COST * took;
}
