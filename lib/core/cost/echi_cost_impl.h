/* SPDX-License-Identifier: Apache-2.0
 * What the files of the cost engine share: cost.c (time), compute.c (works), quota.c (processor time by quota), links.c (messages),
 * timeline.c (who watches them). */
#ifndef ECHI_COST_IMPL_H
#define ECHI_COST_IMPL_H
#include "echi_cost.h"
#include "echi_events.h"
#include "echi_records.h"
#include "echi_timeline.h"

/* Kinds of due things. `turn`: what was due is not any more if the resource's turn has changed since. */
enum echi_cost_due {
    ECHI_DUE_TIMER,           /* who: host; what: the caller's cookie */
    ECHI_DUE_THREAD,          /* who: host; what: turn */
    ECHI_DUE_POOL,            /* who: pool; what: turn */
    ECHI_DUE_PERIOD,          /* who: host: a period of its quota begins */
    ECHI_DUE_HELD,            /* who: host */
    ECHI_DUE_QUEUE,           /* who: parcel */
    ECHI_DUE_OUT,             /* who: host; what: turn */
    ECHI_DUE_IN,              /* who: parcel */
    ECHI_DUE_IN_PART,         /* who: host; what: bytes */
    ECHI_DUE_ARRIVED,         /* who: parcel */
    ECHI_DUE_SELF_SENT        /* who: host; what: the message's cookie */
};

/* Works and parcels live in pools, and are named by their numbers there. */
struct echi_work_out { struct echi_work work; double ns; int unit; uint32_t next; };   /* unit: the next to be done */
/* A thread has nothing to do, computes, or has something to do and no quota left. */
enum echi_cost_uses { ECHI_RESTS, ECHI_USES, ECHI_STANDS };
struct echi_cost_thread {
    uint32_t first;           /* of its works, in the order in which they were asked for */
    uint32_t running;
    int until_unit;           /* the stretch under way ends with this unit */
    double began, length;     /* of the stretch: the thread's own time (see compute.c) at its beginning; ns of the work in it */
    double stretch_ns;        /* ns of the whole work, at the speed that the stretch goes at */
    uint32_t turn;
    int64_t since; double busy;   /* when its stretch began; ns of those that are over */
    int pool; enum echi_cost_uses state;   /* the pool that it computes in, -1: none; there: what it does */
    double debt, stolen;      /* ns that messages took from the stretch: not added to its length yet, and added */
    bool held, told;
};
struct echi_cost_pool {
    double clock;             /* ns for which each of its threads has computed: the threads' own time */
    int64_t at;               /* virtual time of that */
    int64_t active;           /* what its threads take that compute, in parts of ECHI_PROCESSOR */
    struct echi_events ends;  /* of stretches, by the pool's clock; who: host; what: turn of the thread */
    uint32_t turn;
};
/* What a host with a quota has used of it; all times virtual ns. See quota.c. */
struct echi_cost_used {
    double clock;             /* ns for which its thread has computed: the thread's own time */
    double used;              /* ns of the quota of period number `index`, more than there is where messages were in debt */
    int64_t at, index;        /* as it was then */
    double from;              /* the pool's clock then */
    double rest, stood;       /* ns for which it has stood still with work to do: in this period; in all, less what sockets go on for */
    bool due;                 /* the next period is */
};
struct echi_parcel {
    uint64_t cookie, left, bytes, part;   /* part: the bytes of the stretch that left last */
    int64_t entry, least;     /* when its last part begins to come in if nothing is before it; it is not whole before `least` */
    uint32_t next;
    uint32_t run_last;        /* while it waits and is the first of its priority: the last of that */
    uint16_t from, to, priority;
    bool follows, taken;      /* goes as one with the message before it; the receiver's processor has begun with it */
    uint32_t line;            /* if anybody watches: the interval whose end brought it to where it is */
    double waking;            /* of what a message takes its sender's processor, the part that this one does */
};
struct echi_cost_link {
    double ns_per_byte, in_ns_per_byte;   /* on the way out and in; 0: without bound */
    uint32_t first;           /* of those that wait: the most urgent first, of equals the oldest */
    uint32_t sending;
    int64_t began;            /* of what is sent now */
    uint64_t stretch;         /* bytes of it, until it is looked for a more urgent one */
    uint32_t turn;
    uint64_t sent;            /* messages so far, for the random numbers of losses */
    int64_t queued_at; int queued_to;   /* of the last that was queued; to: 1 + host, 0: none yet */
    int64_t in_free, urgent_free, cpu_free;   /* when the way in, that for what is most urgent, and the processor for what comes in
                                                 are free again */
    double pace;              /* ns a byte of what is sent now: as the link was when it began */
    double stood;             /* ns for which the host had stood still, as far as `began` knows; see quota.c */
    struct echi_carried { double bytes, ns; } carried[2];   /* out, in; see echi_cost_carried */
    double moved[2];          /* bytes of messages that have left, and that are whole here, since the beginning */
    double ns_per_message, ns_per_copy;   /* of the processor, at either end: a message, and each of its bytes */
};
/* What is due at this very moment, in a list. */
struct echi_at_once { struct echi_due due; uint32_t next; };
struct echi_cost {
    const struct echi_hosts *hosts;
    struct echi_supply supply;
    uint64_t seed;
    struct echi_events events;   /* all that is due later, and what was due later when it was added */
    struct echi_records at_once; uint32_t first_at_once, last_at_once;
    int64_t now;
    uint64_t happened;
    bool failed;              /* no memory */
    bool spells;              /* some host, or its link, has lasting slow-downs */
    bool *dead;               /* [hosts] */
    struct echi_cost_thread *thread;
    struct echi_cost_link *link;
    struct echi_cost_pool *pool; int pools;   /* those of `hosts`, and one of each host that has a quota and no other pool */
    struct echi_cost_used *quota;   /* [hosts], if any has one */
    struct echi_records works, parcels;
    int64_t *in_order;        /* [hosts * hosts], if any message may be lost: before this the next of the pair does not come */
    struct echi_timeline *line;   /* NULL: nobody watches */
};

/* To the nearest whole, halves away from 0; upwards. Beyond NEVER all is never. */
#define ECHI_NEVER 4e18   /* ns, 127 years: what would take longer is not waited for, and no sum of times overflows */
static inline double echi_least(double a, double b) { return a < b ? a : b; }
static inline double echi_most(double a, double b) { return a > b ? a : b; }
static inline int64_t echi_round(double x) {
    if (!(x < ECHI_NEVER)) return (int64_t)ECHI_NEVER;
    const int64_t whole = (int64_t)x;
    const double rest = x - (double)whole;
    return whole + (rest >= 0.5) - (rest <= -0.5);
}
static inline int64_t echi_round_up(double x) {
    if (!(x < ECHI_NEVER)) return (int64_t)ECHI_NEVER;
    const int64_t whole = (int64_t)x;
    return whole + (x > (double)whole);
}

/* cost.c */
void echi_cost_due(struct echi_cost *c, int64_t at, enum echi_cost_due kind, uint32_t who, uint64_t what);
/* A new record; ECHI_NOTHING, and the engine has failed, without memory. */
uint32_t echi_cost_new(struct echi_cost *c, struct echi_records *pool);
/* The product of the factors that hold now. */
double echi_spells(const struct echi_spell *spell, int count, int64_t now);

/* compute.c: true when there is something to tell the caller */
void echi_cost_thread_create(struct echi_cost *c, int host, int pool);
bool echi_cost_thread_due(struct echi_cost *c, int host, uint32_t turn, struct echi_happening *out);
bool echi_cost_pool_due(struct echi_cost *c, int pool, uint32_t turn, struct echi_happening *out);
bool echi_cost_held(const struct echi_cost *c, int host);   /* still asked to hold, and nothing under way */
/* Messages take so many ns of the host's processor: from its work, if there is one. */
void echi_cost_steal(struct echi_cost *c, int host, int64_t ns);

/* The time of the threads of a host's pool. There is one. */
double echi_cost_pool_clock(struct echi_cost *c, int host);
void echi_cost_period_due(struct echi_cost *c, int host);

/* quota.c */
/* That of a host that has one, as it is now; that of any, NULL: it has none. */
struct echi_cost_used *echi_cost_quota_now(struct echi_cost *c, int host);
static inline struct echi_cost_used *echi_cost_quota(struct echi_cost *c, int host) {
    return c->quota && c->hosts->host[host].quota > 0 ? echi_cost_quota_now(c, host) : NULL;
}
/* Of one that is as it is now: ns that are left of this period's; there is less than one; when nothing holds the processor up any more. */
double echi_cost_quota_left(const struct echi_cost *c, int host);
bool echi_cost_quota_empty(const struct echi_cost *c, int host);
int64_t echi_cost_quota_wait(const struct echi_cost *c, int host);
/* The next period is to be told of. */
void echi_cost_quota_expect(struct echi_cost *c, int host);
void echi_cost_thread_kill(struct echi_cost *c, int host);

/* links.c: likewise */
void echi_cost_link_create(struct echi_cost *c, int host, struct echi_cost_io io, double io_speed);
bool echi_cost_link_queue(struct echi_cost *c, uint32_t parcel, struct echi_happening *out);
bool echi_cost_link_out(struct echi_cost *c, int host, uint32_t turn, struct echi_happening *out);
void echi_cost_link_in(struct echi_cost *c, uint32_t parcel);
void echi_cost_link_in_part(struct echi_cost *c, int host, uint64_t bytes, int64_t entry);
bool echi_cost_link_arrived(struct echi_cost *c, uint32_t parcel, struct echi_happening *out);
void echi_cost_link_kill(struct echi_cost *c, int host);

/* timeline.c: only where somebody watches, which is seldom. */
#define ECHI_COLD __attribute__((cold))
ECHI_COLD void echi_watch_asked(struct echi_cost *c, uint32_t work);
/* `part` of it is behind it. */
ECHI_COLD void echi_watch_begins(struct echi_cost *c, int host, uint32_t work, const struct echi_work *w, double part);
/* So much of its work is behind it; parts of the stretch that waking took, and messages. */
ECHI_COLD void echi_watch_ends(struct echi_cost *c, int host, double part, double wake, double stolen);
ECHI_COLD void echi_watch_leaves(struct echi_cost *c, const struct echi_parcel *p);
ECHI_COLD void echi_watch_left(struct echi_cost *c, struct echi_parcel *p);
ECHI_COLD void echi_watch_part(struct echi_cost *c, const struct echi_parcel *p, int64_t entry);
ECHI_COLD void echi_watch_part_in(struct echi_cost *c, int host, int64_t from, int64_t to, int64_t entry);
ECHI_COLD void echi_watch_in(struct echi_cost *c, struct echi_parcel *p, int64_t from, int64_t to);
ECHI_COLD void echi_watch_taken(struct echi_cost *c, struct echi_parcel *p, int64_t before, int64_t to);
#endif
