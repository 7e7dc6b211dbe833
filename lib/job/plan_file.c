/* SPDX-License-Identifier: Apache-2.0
 * A plan as a text file: one fact a line, '#' starts a comment.
 *     sync gssp
 *     world 4
 *     round 64
 *     staleness 3
 *     rounds_apart 4
 *     flights 1                               (steps a worker has in flight: 2 with layer separation)
 *     micro_batches 4                         (bsp with a head: in which a step is cut; without it steps are whole)
 *     gathers 1                               (bsp with a head: it waits until all rows of a round are there; 0 or without: it does not)
 *     activations bf16                        (with a head: how they and their gradients travel; or fp32, the default)
 *     deterministic 0                         (1: samples in reduction blocks, sums in whole numbers)
 *     sync_norm 0                             (1: batch-norm's statistics are the round's)
 *     lr 0.02
 *     momentum 0.9
 *     decay 0
 *     optimizer nesterov                      (or sgd, adam, adamw; with Adam also beta1, beta2, epsilon, and momentum is 0)
 *     schedule step                           (or constant, or cosine with `lr_epochs 90`, where lr is 0)
 *     warmup 1                                (epochs in which lr rises from 0)
 *     lr_steps 30,60,80                       (epochs; only with schedule step, as the next)
 *     lr_factor 0.1
 *     damping 0                               (c: a push that is t rounds stale weighs 1 / (1 + c t); not under bsp)
 *     head 0 from 2                           (rank, and the first layer with parameters that is the head's, counted from 0 as in the lines
 *                                             of parts; without `from` the first fully connected one; or none)
 *     group 0 owner 1 workers 1:64 2:64       (rank:samples a step)
 *     reserve 3                               (owner of one group more, for who falls behind; without it there is none)
 *     group 1 owner 0 workers 0:64
 *     codec topk:paper                        (or dense; the next two only with topk)
 *     state_ratio 80000                       (of weights and states, in millionths)
 *     base 0 250000                           (of a group; what it means is the policy's: lib/core/cost/ratio.c)
 *     shards 0,2,3                            (bsp: who own the parts together, the group's owner first; without it there is one owner)
 *     exchange ring                           (bsp with shards: or server, the default)
 *     part 0 at 0 count 61706 layers 0-4 codec dense tolerance 0
 *                                             (a range of parameters, of these layers; in order; behind the tolerance `shard 2`, which
 *                                             counts in the list above, or shard 0. Without such lines: the default)
 *     link 0 out 941 lowest 930 highest 943 in 940 lowest 935 highest 942
 *                                             (what a rank's link carries each way, in Mb/s, and between what all measurements lie;
 *                                             a rate without its lowest and highest is certain. One for each rank, and links are not
 *                                             measured; without such lines they are)
 * Under `local` also outer_lr and outer_momentum, and a worker is rank:samples a step x steps a round, as in 1:32x16. Under `asp` also
 * drop_older (0: nothing is dropped), and a worker may have a divisor of its gradients, as in 1:32/85. */
#include "echi_plan_file.h"
#include "echi_job.h"
#include "echi_lease.h"
#include "echi_ratio.h"
#include "echi_error.h"
#include "echi_exchange.h"
#include "echi_number.h"
#include "echi_options.h"
#include "echi_os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_FILE_MAX (1 << 18)   /* 1,024 workers take 14 bytes each, their links 120 */
#define LINK_MIN 1e-3             /* Mb/s, as of a host file */
#define LINK_MAX 1e6              /* as of --link */
#define SPACE " \t\r"

#define MBITS 8e-6   /* of bytes */

/* What a file says, of all ranks or none. */
static bool all_known(const struct echi_times *times, int world) {
    int known = 0;
    for (int r = 0; times && r < world; r++) known += echi_link_known(&times[r].link);
    return known > 0 && known == world;
}

ech_status echi_plan_save(const char *path, const struct echi_plan *p, const struct echi_times *times, struct ech_error *err) {
    char *text = malloc(PLAN_FILE_MAX), *at = text;
    if (!text) return echi_fail_memory(err, "plan.save", "the plan");
    const char *end = text + PLAN_FILE_MAX;
    struct echi_point point;
    echi_point_begin(&point);
#define PRINT(...) at += snprintf(at, (size_t)(end - at), __VA_ARGS__)
    PRINT("# Plan of an Echelon run; give it back with --plan.\nsync %s\nworld %d\nround %u\nstaleness %u\nrounds_apart %u\n"
          "flights %d\ndeterministic %d\nsync_norm %d\nlr %.17g\nmomentum %.17g\ndecay %.17g\ndamping %.17g\n",
          echi_policy_of((enum echi_sync)p->sync)->name, p->world, p->round, p->staleness, p->rounds_apart, p->flights, p->deterministic,
          p->sync_norm, p->lr, p->momentum, p->decay, p->damping);
    PRINT("optimizer %s\nschedule %s\nwarmup %.17g\n", echi_optimizer_name(p->optimizer), echi_schedule_name(p->schedule.kind),
          p->schedule.warmup);
    if (echi_optimizer_adam(p->optimizer))
        PRINT("beta1 %.17g\nbeta2 %.17g\nepsilon %.17g\n", p->adam.beta1, p->adam.beta2, p->adam.epsilon);
    for (int i = 0; i < p->schedule.steps; i++) PRINT("%s%.17g", i ? "," : "lr_steps ", p->schedule.step[i]);
    if (p->schedule.kind == ECHI_SCHEDULE_STEP) PRINT("\nlr_factor %.17g\n", p->schedule.factor);
    if (p->schedule.kind == ECHI_SCHEDULE_COSINE) PRINT("lr_epochs %.17g\n", p->schedule.epochs);
    if (p->sync == ECHI_SYNC_ASP) PRINT("drop_older %.17g\n", p->drop_older);
    if (p->sync == ECHI_SYNC_LOCAL) PRINT("outer_lr %.17g\nouter_momentum %.17g\n", p->outer_lr, p->outer_momentum);
    if (p->cut) PRINT("head %d from %d\n", p->head, p->cut);
    else PRINT("head none\n");
    if (p->shadow > 0) PRINT("shadow %d\n", echi_plan_shadow(p));
    if (p->micro_batches) PRINT("micro_batches %d\n", p->micro_batches);
    if (p->gathers) PRINT("gathers 1\n");
    if (p->activations) PRINT("activations %s\n", echi_activations_name(p->activations));
    for (int h = 0; h < p->heads; h++) {
        const char *before = ":";
        PRINT("%s%d", h ? " " : "heads ", p->head_rank[h]);
        for (int r = 0; r < p->world; r++) {
            if (p->n[r] == 0 || p->head_of[r] != h) continue;
            PRINT("%s%d", before, r);
            before = ",";
        }
        if (h + 1 == p->heads) PRINT("\n");
    }
    for (int g = 0; g < p->n_groups - p->reserve; g++) {
        PRINT("group %d owner %d workers", g, p->owner_of[g]);
        for (int r = 0; r < p->world; r++)
            if (p->group_of[r] == g && p->inner[r]) PRINT(" %d:%ux%u", r, p->n[r], p->inner[r]);
            else if (p->group_of[r] == g && p->divisor[r]) PRINT(" %d:%u/%u", r, p->n[r], p->divisor[r]);
            else if (p->group_of[r] == g) PRINT(" %d:%u", r, p->n[r]);
        PRINT("\n");
    }
    if (p->reserve) PRINT("reserve %d\n", p->owner_of[p->n_groups - 1]);
    if (p->codec == ECHI_CODEC_TOPK) {
        PRINT("codec topk:%s\nstate_ratio %u\n", echi_ratios_name((enum echi_ratios)p->ratios), p->state_ratio);
        for (int g = 0; g < p->n_groups; g++) PRINT("base %d %u\n", g, p->base[g]);
    }
    for (int k = 0; k < p->shards; k++) PRINT("%s%d%s", k ? "," : "shards ", p->shard_owner[k], k + 1 < p->shards ? "" : "\n");
    if (p->exchange != ECHI_EXCHANGE_SERVER) PRINT("exchange %s\n", echi_exchange_name((enum echi_exchange)p->exchange));
    for (int i = 0; i < p->parts.count; i++) {
        const struct echi_part *part = &p->parts.part[i];
        PRINT("part %d at %" PRIu64 " count %u layers %d-%d codec %s tolerance %u", i, part->at, part->count, part->first, part->last,
              part->codec == ECHI_CODEC_TOPK ? "topk" : "dense", part->tolerance);
        if (p->shards) PRINT(" shard %d", part->shard);
        PRINT("\n");
    }
    for (int r = 0; all_known(times, p->world) && r < p->world; r++) {
        const struct echi_rate *out = &times[r].link.out, *in = &times[r].link.in;
        PRINT("link %d out %.6g lowest %.6g highest %.6g in %.6g lowest %.6g highest %.6g\n", r, out->rate * MBITS, out->lowest * MBITS,
              out->highest * MBITS, in->rate * MBITS, in->lowest * MBITS, in->highest * MBITS);
    }
#undef PRINT
    echi_point_end(&point);
    ech_status status = echi_file_write(path, text, (size_t)(at - text), err);
    free(text);
    return status;
}

struct reader {
    const char *path;
    int line;
    uint64_t said;   /* keys, by bit */
    char *rest;
    struct ech_error *err;
    uint16_t reserve;
    int usual_cut;
    struct echi_link *link;   /* of ECHI_WORLD_MAX ranks */
    bool has_head[ECHI_WORLD_MAX];   /* a line 'heads' names it as a worker */
};

static ech_status refuse(const struct reader *r, const char *what, const char *word) {
    return echi_fail(r->err, ECH_E_FORMAT, "plan.load", "%s:%d: %s, found '%.40s'", r->path, r->line, what, word ? word : "end of line");
}

/* The rest of the line is one whole number in [least, most]. */
static ech_status whole(struct reader *r, const char *word, unsigned long least, unsigned long most, const char *what, unsigned long *out) {
    char *end;
    if (!word || word[0] < '0' || word[0] > '9') return refuse(r, what, word);
    *out = strtoul(word, &end, 10);
    if (*end || *out < least || *out > most) return refuse(r, what, word);
    return ECH_OK;
}

static ech_status real(struct reader *r, const char *word, const char *what, double *out) {
    if (!word || !echi_parse_real(word, out) || !(*out >= 0 && *out < 1e6)) return refuse(r, what, word);
    return ECH_OK;
}

/* One of the words that `name` gives, by its place. */
static ech_status word_of(const struct reader *r, const char *word, const char *(*name)(int), const char *what, uint8_t *out) {
    for (int i = 0; word && name(i); i++) {
        if (strcmp(word, name(i)) != 0) continue;
        *out = (uint8_t)i;
        return ECH_OK;
    }
    return refuse(r, what, word);
}

static ech_status read_lr_steps(const struct reader *r, const char *word, struct echi_schedule *s) {
    s->steps = (uint8_t)(word ? echi_parse_reals(word, s->step, ECHI_LR_STEPS_MAX) : 0);
    return s->steps ? ECH_OK : refuse(r, "lr_steps needs up to 8 numbers of epochs, as in 30,60,80", word);
}

static ech_status read_group(struct reader *r, struct echi_plan *p) {
    unsigned long g, owner, rank, n, more;
    ECHI_TRY(whole(r, strtok_r(NULL, SPACE, &r->rest), 0, ECHI_GROUPS_MAX - 1, "group needs a number from 0 to 7", &g));
    char *word = strtok_r(NULL, SPACE, &r->rest);
    if (!word || strcmp(word, "owner") != 0) return refuse(r, "expected 'owner'", word);
    ECHI_TRY(whole(r, strtok_r(NULL, SPACE, &r->rest), 0, ECHI_WORLD_MAX - 1, "owner needs a rank", &owner));
    word = strtok_r(NULL, SPACE, &r->rest);
    if (!word || strcmp(word, "workers") != 0) return refuse(r, "expected 'workers'", word);
    if (p->owner_of[g] != ECHI_NO_RANK) return refuse(r, "this group was described before", "group");
    p->owner_of[g] = (uint16_t)owner;
    if (g + 1 > p->n_groups) p->n_groups = (uint8_t)(g + 1);
    while ((word = strtok_r(NULL, SPACE, &r->rest))) {
        char *colon = strchr(word, ':');
        if (!colon) return refuse(r, "a worker is written rank:samples", word);
        *colon = 0;
        char *behind = colon + 1 + strspn(colon + 1, "0123456789");   /* the samples */
        const char what = behind > colon + 1 ? *behind : 0;
        if (what == 'x' || what == '/') *behind = 0;
        ECHI_TRY(whole(r, word, 0, ECHI_WORLD_MAX - 1, "a worker's rank is a number from 0 to 1023", &rank));
        ECHI_TRY(whole(r, colon + 1, 1, 1u << 20, "a worker's samples are a number from 1 to 1048576", &n));
        more = 0;
        if (what == 'x')
            ECHI_TRY(whole(r, behind + 1, 1, ECHI_INNER_MAX, "a worker's steps in a round are a number from 1 to 10000", &more));
        if (what == '/') ECHI_TRY(whole(r, behind + 1, 1, 1u << 24, "a worker's divisor is a number from 1 to 16777216", &more));
        if (p->group_of[rank] != ECHI_NONE) return refuse(r, "this rank is in a group already", word);
        p->group_of[rank] = (uint8_t)g;
        p->n[rank] = (uint32_t)n;
        *(what == 'x' ? &p->inner[rank] : &p->divisor[rank]) = (uint32_t)more;
    }
    return ECH_OK;
}

static ech_status read_codec(struct reader *r, const char *word, struct echi_plan *p) {
    if (word && strcmp(word, "dense") == 0) return ECH_OK;
    p->codec = ECHI_CODEC_TOPK;
    for (int i = 0; word && i < ECHI_RATIOS; i++)
        if (strncmp(word, "topk:", 5) == 0 && strcmp(word + 5, echi_ratios_name((enum echi_ratios)i)) == 0) {
            p->ratios = (uint8_t)i;
            return ECH_OK;
        }
    return refuse(r, "codec is one of dense, topk:paper, topk:volume, topk:balanced", word);
}

static ech_status read_base(struct reader *r, struct echi_plan *p) {
    unsigned long g, ratio;
    ECHI_TRY(whole(r, strtok_r(NULL, SPACE, &r->rest), 0, ECHI_GROUPS_MAX - 1, "base needs a group, a number from 0 to 7", &g));
    ECHI_TRY(whole(r, strtok_r(NULL, SPACE, &r->rest), 1, ECHI_RATIO_ONE, "a ratio is a number of millionths from 1 to 1000000", &ratio));
    if (p->base[g] != 0) return refuse(r, "the base of this group was said before", "base");
    p->base[g] = (uint32_t)ratio;
    return ECH_OK;
}

/* What follows this word on the line is a whole number. */
static ech_status named(struct reader *r, const char *name, unsigned long least, unsigned long most, const char *what, unsigned long *out) {
    const char *word = strtok_r(NULL, SPACE, &r->rest);
    if (!word || strcmp(word, name) != 0) return refuse(r, "a part is written as in part 0 at 0 count 61706 layers 0-4 codec dense "
                                                        "tolerance 0", word);
    return whole(r, strtok_r(NULL, SPACE, &r->rest), least, most, what, out);
}

static ech_status read_layers(struct reader *r, struct echi_part *part) {
    static const char what[] = "layers are numbers from 0 to 255, as in layers 0-4";
    unsigned long v;
    char *word = strtok_r(NULL, SPACE, &r->rest);
    if (!word || strcmp(word, "layers") != 0) return refuse(r, "expected 'layers'", word);
    word = strtok_r(NULL, SPACE, &r->rest);
    char *dash = word ? strchr(word, '-') : NULL;
    if (!dash) return refuse(r, what, word);
    *dash = 0;
    ECHI_TRY(whole(r, word, 0, ECHI_UNITS_MAX - 1, what, &v));
    part->first = (uint8_t)v;
    ECHI_TRY(whole(r, dash + 1, 0, ECHI_UNITS_MAX - 1, what, &v));
    part->last = (uint8_t)v;
    return ECH_OK;
}

static ech_status read_part(struct reader *r, struct echi_plan *p) {
    struct echi_part part = {0};
    unsigned long v;
    ECHI_TRY(whole(r, strtok_r(NULL, SPACE, &r->rest), 0, ECHI_PARTS_MAX - 1, "part needs a number from 0 to 255", &v));
    if (v != p->parts.count)
        return echi_fail(r->err, ECH_E_FORMAT, "plan.load",
                         "%s:%d: part %lu stands where part %d belongs: parts are numbered from 0 on, in order", r->path, r->line, v,
                         p->parts.count);
    ECHI_TRY(named(r, "at", 0, 1ul << 40, "a part begins at a parameter, a whole number", &v));
    part.at = v;
    ECHI_TRY(named(r, "count", 1, UINT32_MAX, "a part has a number of parameters from 1 to 4294967295", &v));
    part.count = (uint32_t)v;
    ECHI_TRY(read_layers(r, &part));
    char *word = strtok_r(NULL, SPACE, &r->rest);
    if (!word || strcmp(word, "codec") != 0) return refuse(r, "expected 'codec'", word);
    word = strtok_r(NULL, SPACE, &r->rest);
    if (!word || (strcmp(word, "dense") != 0 && strcmp(word, "topk") != 0)) return refuse(r, "a part's codec is dense or topk", word);
    part.codec = strcmp(word, "topk") == 0 ? ECHI_CODEC_TOPK : ECHI_CODEC_DENSE;
    ECHI_TRY(named(r, "tolerance", 0, UINT32_MAX, "a part's tolerance is a number of millionths", &v));
    part.tolerance = (uint32_t)v;
    word = strtok_r(NULL, SPACE, &r->rest);
    if (word && strcmp(word, "shard") != 0) return refuse(r, "behind a part's tolerance comes 'shard', or nothing", word);
    if (word) {
        ECHI_TRY(whole(r, strtok_r(NULL, SPACE, &r->rest), 0, ECHI_SHARDS_MAX - 1, "a part's shard is a number from 0 to 63", &v));
        part.shard = (uint8_t)v;
    }
    p->parts.part[p->parts.count++] = part;
    return ECH_OK;
}

/* Megabits a second, as bytes. */
static ech_status mbits(struct reader *r, double *out) {
    static const char what[] = "a link's rates are numbers of Mb/s from 0.001 to 1000000, as in link 0 out 941 lowest 930 "
                               "highest 943 in 940";
    const char *word = strtok_r(NULL, SPACE, &r->rest);
    double value;
    if (!word || !echi_parse_real(word, &value) || !(value >= LINK_MIN && value <= LINK_MAX)) return refuse(r, what, word);
    *out = value / MBITS;
    return ECH_OK;
}

/* One direction; *word is the first that follows, NULL at the end of the line. */
static ech_status read_rate(struct reader *r, const char **word, struct echi_rate *out) {
    ECHI_TRY(mbits(r, &out->rate));
    *out = echi_rate_of(out->rate);
    *word = strtok_r(NULL, SPACE, &r->rest);
    if (!*word || strcmp(*word, "lowest") != 0) return ECH_OK;
    ECHI_TRY(mbits(r, &out->lowest));
    *word = strtok_r(NULL, SPACE, &r->rest);
    if (!*word || strcmp(*word, "highest") != 0) return refuse(r, "expected 'highest' behind 'lowest'", *word);
    ECHI_TRY(mbits(r, &out->highest));
    if (!echi_rate_valid(out)) return refuse(r, "a link's rate lies between its lowest and its highest", "lowest");
    *word = strtok_r(NULL, SPACE, &r->rest);
    return ECH_OK;
}

static ech_status read_link(struct reader *r) {
    unsigned long rank;
    ECHI_TRY(whole(r, strtok_r(NULL, SPACE, &r->rest), 0, ECHI_WORLD_MAX - 1, "link needs a rank, a number from 0 to 1023", &rank));
    struct echi_link *link = &r->link[rank];
    if (echi_link_known(link)) return refuse(r, "the link of this rank was described before", "link");
    const char *word = strtok_r(NULL, SPACE, &r->rest);
    if (!word || strcmp(word, "out") != 0) return refuse(r, "expected 'out'", word);
    ECHI_TRY(read_rate(r, &word, &link->out));
    if (!word || strcmp(word, "in") != 0) return refuse(r, "expected 'in'", word);
    ECHI_TRY(read_rate(r, &word, &link->in));
    return word ? refuse(r, "nothing more is expected on this line", word) : ECH_OK;
}

/* Links of ranks that the plan does not have, or of some of its ranks and not of others. */
static ech_status check_links(const struct reader *r, const struct echi_plan *p) {
    int without = -1, known = 0;
    for (int rank = 0; rank < ECHI_WORLD_MAX; rank++) {
        const bool here = echi_link_known(&r->link[rank]);
        if (here && rank >= p->world)
            return echi_fail(r->err, ECH_E_FORMAT, "plan.load", "%s has the link of rank %d, and a world of %d ranks", r->path, rank,
                             p->world);
        if (!here && rank < p->world && without < 0) without = rank;
        known += here;
    }
    if (known == 0 || without < 0) return ECH_OK;
    return echi_fail(r->err, ECH_E_FORMAT, "plan.load", "%s has links, but none of rank %d: give one for each rank, or none, and they are "
                     "measured", r->path, without);
}

static ech_status read_shards(struct reader *r, const char *word, struct echi_plan *p) {
    long number[ECHI_SHARDS_MAX];
    const int n = word ? echi_shard_list(word, number) : -1;
    if (n < 2) return refuse(r, "shards needs two ranks or more, as in 0,2,3", word);
    for (int i = 0; i < n; i++) p->shard_owner[i] = (uint16_t)number[i];
    p->shards = (uint8_t)n;
    return ECH_OK;
}

static ech_status read_exchange(struct reader *r, const char *word, struct echi_plan *p) {
    for (int i = 0; i < ECHI_EXCHANGES && word; i++) {
        if (strcmp(word, echi_exchange_name((enum echi_exchange)i)) != 0) continue;
        p->exchange = (uint8_t)i;
        return ECH_OK;
    }
    return refuse(r, "exchange is server or ring", word);
}

/* Each as rank:workers. */
static ech_status read_heads(struct reader *r, char *word, struct echi_plan *p) {
    static const char *const how = "heads are written rank:workers, as in heads 2:0,1 3:2,3";
    unsigned long v = 0;
    for (; word; word = strtok_r(NULL, SPACE, &r->rest)) {
        char *next = strchr(word, ':');
        if (!next) return refuse(r, how, word);
        *next++ = 0;
        ECHI_TRY(whole(r, word, 0, ECHI_WORLD_MAX - 1, how, &v));
        if (p->heads == ECHI_HEADS_MAX) return refuse(r, "there are 8 heads at most", word);
        p->head_rank[p->heads] = (uint16_t)v;
        while (next) {
            char *worker = next;
            next = strchr(worker, ',');
            if (next) *next++ = 0;
            ECHI_TRY(whole(r, worker, 0, ECHI_WORLD_MAX - 1, how, &v));
            if (r->has_head[v]) return refuse(r, "a worker's rows go to one head", worker);
            r->has_head[v] = true;
            p->head_of[v] = p->heads;
        }
        p->heads++;
    }
    return p->heads > 1 ? ECH_OK : refuse(r, "heads are two or more", "heads");
}

/* Behind the head's rank. */
static ech_status read_cut(struct reader *r, struct echi_plan *p) {
    unsigned long v = 0;
    char *word = strtok_r(NULL, SPACE, &r->rest);
    if (!word) return ECH_OK;
    if (strcmp(word, "from") != 0) return refuse(r, "behind the head's rank comes 'from', or nothing", word);
    ECHI_TRY(whole(r, strtok_r(NULL, SPACE, &r->rest), 1, ECHI_UNITS_MAX - 1, "the head begins with a layer, a number from 1 to 255", &v));
    p->cut = (uint8_t)v;
    return ECH_OK;
}

static ech_status read_line(struct reader *r, const char *key, struct echi_plan *p) {
    unsigned long v = 0;
    if (strcmp(key, "link") == 0) return read_link(r);
    if (strcmp(key, "group") == 0) return read_group(r, p);
    if (strcmp(key, "base") == 0) return read_base(r, p);
    if (strcmp(key, "part") == 0) return read_part(r, p);
    static const char *const once[] = {"sync", "world", "round", "staleness", "rounds_apart", "flights", "deterministic", "sync_norm", "lr",
        "momentum", "decay", "head", "damping", "codec", "state_ratio", "outer_lr", "outer_momentum", "drop_older", "reserve", "optimizer",
        "schedule", "warmup", "lr_steps", "lr_factor", "lr_epochs", "beta1", "beta2", "epsilon", "shards",
        "exchange", "shadow", "micro_batches", "heads", "gathers", "activations"};
    _Static_assert(sizeof once / sizeof once[0] <= 8 * sizeof r->said, "a bit each");
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++) {
        if (strcmp(key, once[i]) != 0) continue;
        if (r->said >> i & 1) return refuse(r, "this was said before", key);
        r->said |= UINT64_C(1) << i;
    }
    char *word = strtok_r(NULL, SPACE, &r->rest);
    if (strcmp(key, "sync") == 0) {
        for (int s = 0; s < ECHI_SYNCS && word; s++)
            if (strcmp(word, echi_policy_of((enum echi_sync)s)->name) == 0) {
                p->sync = (uint8_t)s;
                return ECH_OK;
            }
        return refuse(r, "sync is one of bsp, asp, ssp, gssp, local", word);
    }
    if (strcmp(key, "head") == 0) {
        if (word && strcmp(word, "none") == 0) return ECH_OK;
        ECHI_TRY(whole(r, word, 0, ECHI_WORLD_MAX - 1, "head needs a rank, or none", &v));
        p->head = (uint16_t)v;
        p->cut = (uint8_t)r->usual_cut;
        return read_cut(r, p);
    }
    if (strcmp(key, "shadow") == 0) {
        ECHI_TRY(whole(r, word, 0, ECHI_WORLD_MAX - 1, "shadow needs a rank", &v));
        p->shadow = (uint16_t)(1 + v);
        return ECH_OK;
    }
    if (strcmp(key, "heads") == 0) return read_heads(r, word, p);
    if (strcmp(key, "activations") == 0) return word_of(r, word, echi_activations_name, "activations is fp32 or bf16", &p->activations);
    if (strcmp(key, "reserve") == 0) {
        ECHI_TRY(whole(r, word, 0, ECHI_WORLD_MAX - 1, "reserve needs a rank", &v));
        p->reserve = 1;
        r->reserve = (uint16_t)v;
        return ECH_OK;
    }
    if (strcmp(key, "codec") == 0) return read_codec(r, word, p);
    if (strcmp(key, "shards") == 0) return read_shards(r, word, p);
    if (strcmp(key, "exchange") == 0) return read_exchange(r, word, p);
    if (strcmp(key, "lr") == 0) return real(r, word, "lr needs a number", &p->lr);
    if (strcmp(key, "momentum") == 0) return real(r, word, "momentum needs a number", &p->momentum);
    if (strcmp(key, "decay") == 0) return real(r, word, "decay needs a number", &p->decay);
    if (strcmp(key, "optimizer") == 0)
        return word_of(r, word, echi_optimizer_name, "optimizer is one of sgd, nesterov, adam, adamw", &p->optimizer);
    if (strcmp(key, "beta1") == 0) return real(r, word, "beta1 needs a number", &p->adam.beta1);
    if (strcmp(key, "beta2") == 0) return real(r, word, "beta2 needs a number", &p->adam.beta2);
    if (strcmp(key, "epsilon") == 0) return real(r, word, "epsilon needs a number", &p->adam.epsilon);
    if (strcmp(key, "schedule") == 0)
        return word_of(r, word, echi_schedule_name, "schedule is one of constant, step, cosine", &p->schedule.kind);
    if (strcmp(key, "warmup") == 0) return real(r, word, "warmup needs a number of epochs", &p->schedule.warmup);
    if (strcmp(key, "lr_steps") == 0) return read_lr_steps(r, word, &p->schedule);
    if (strcmp(key, "lr_factor") == 0) return real(r, word, "lr_factor needs a number", &p->schedule.factor);
    if (strcmp(key, "lr_epochs") == 0) return real(r, word, "lr_epochs needs a number of epochs", &p->schedule.epochs);
    if (strcmp(key, "outer_lr") == 0) return real(r, word, "outer_lr needs a number", &p->outer_lr);
    if (strcmp(key, "outer_momentum") == 0) return real(r, word, "outer_momentum needs a number", &p->outer_momentum);
    if (strcmp(key, "drop_older") == 0) return real(r, word, "drop_older needs a number of rounds", &p->drop_older);
    if (strcmp(key, "damping") == 0) return real(r, word, "damping needs a number", &p->damping);
    if (strcmp(key, "world") == 0) {
        ECHI_TRY(whole(r, word, 1, ECHI_WORLD_MAX, "world is a number from 1 to 1024", &v));
        p->world = (uint16_t)v;
    } else if (strcmp(key, "round") == 0) {
        ECHI_TRY(whole(r, word, 1, 1u << 24, "round is a number of samples", &v));
        p->round = (uint32_t)v;
    } else if (strcmp(key, "staleness") == 0) {
        ECHI_TRY(whole(r, word, 0, 1000000, "staleness is a number of steps", &v));
        p->staleness = (uint32_t)v;
    } else if (strcmp(key, "rounds_apart") == 0) {
        ECHI_TRY(whole(r, word, 1, 1000000, "rounds_apart is a number of rounds, at least 1", &v));
        p->rounds_apart = (uint32_t)v;
    } else if (strcmp(key, "flights") == 0) {
        ECHI_TRY(whole(r, word, 1, ECHI_FLIGHTS, "flights is 1 or 2", &v));
        p->flights = (uint8_t)v;
    } else if (strcmp(key, "micro_batches") == 0) {
        ECHI_TRY(whole(r, word, 1, ECHI_MICRO_MAX, "micro_batches is a number from 1 to 8", &v));
        p->micro_batches = (uint8_t)(v > 1 ? v : 0);
    } else if (strcmp(key, "gathers") == 0) {
        ECHI_TRY(whole(r, word, 0, 1, "gathers is 0 or 1", &v));
        p->gathers = (uint8_t)v;
    } else if (strcmp(key, "deterministic") == 0) {
        ECHI_TRY(whole(r, word, 0, 1, "deterministic is 0 or 1", &v));
        p->deterministic = (uint8_t)v;
    } else if (strcmp(key, "sync_norm") == 0) {
        ECHI_TRY(whole(r, word, 0, 1, "sync_norm is 0 or 1", &v));
        p->sync_norm = (uint8_t)v;
    } else if (strcmp(key, "state_ratio") == 0) {
        ECHI_TRY(whole(r, word, 1, ECHI_RATIO_ONE, "a ratio is a number of millionths from 1 to 1000000", &v));
        p->state_ratio = (uint32_t)v;
    } else {
        return refuse(r, "expected one of sync world round staleness rounds_apart flights micro_batches gathers activations deterministic "
                      "sync_norm lr momentum decay damping optimizer beta1 beta2 epsilon schedule warmup lr_steps lr_factor lr_epochs "
                      "outer_lr outer_momentum drop_older head shadow heads group reserve codec state_ratio base shards exchange part "
                      "link", key);
    }
    return ECH_OK;
}

/* The lines of a text, which it takes apart. */
static ech_status read_text(const char *path, int usual_cut, char *text, size_t len, struct echi_plan *p, struct echi_link *link,
                            struct ech_error *err) {
    echi_plan_clear(p);
    p->staleness = 3;
    p->flights = 1;
    p->rounds_apart = 4;
    struct reader r = {.path = path, .err = err, .reserve = ECHI_NO_RANK, .usual_cut = usual_cut, .link = link};
    ech_status status = strlen(text) == len ? ECH_OK : echi_fail(err, ECH_E_FORMAT, "plan.load", "%s is not a text file", path);
    for (char *line = text, *next; status == ECH_OK && line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        r.line++;
        line[strcspn(line, "#")] = 0;
        const char *key = strtok_r(line, SPACE, &r.rest);
        if (!key) continue;
        status = read_line(&r, key, p);
        const char *more = status == ECH_OK ? strtok_r(NULL, SPACE, &r.rest) : NULL;
        if (more) status = refuse(&r, "nothing more is expected on this line", more);
    }
    for (int rank = 0; rank < ECHI_WORLD_MAX && p->heads && status == ECH_OK; rank++)
        if (r.has_head[rank] != (rank < p->world && p->n[rank] > 0))
            status = echi_fail(err, ECH_E_FORMAT, "plan.load", "%s is not a whole plan: 'heads' has rank %d among %s", path, rank,
                               r.has_head[rank] ? "its workers, which has no samples: remove it there"
                                                : "no head's workers: add it to one's");
    bool beyond = p->reserve && p->n_groups == ECHI_GROUPS_MAX;
    if (p->reserve && !beyond) p->owner_of[p->n_groups++] = r.reserve;
    beyond = beyond || (p->codec == ECHI_CODEC_DENSE && p->state_ratio != 0); /* what does not belong would be dropped unseen */
    for (int rank = p->world; rank < ECHI_WORLD_MAX; rank++) beyond = beyond || p->group_of[rank] != ECHI_NONE;
    for (int g = p->codec == ECHI_CODEC_DENSE ? 0 : p->n_groups; g < ECHI_GROUPS_MAX; g++) beyond = beyond || p->base[g] != 0;
    if (status == ECH_OK && !echi_schedule_valid(&p->schedule))
        status = echi_fail(err, ECH_E_FORMAT, "plan.load",
                           "%s has no whole schedule: schedule step needs lr_steps, ascending and above 0, and lr_factor, "
                           "above 0 and at most 1; lr_epochs belongs to schedule cosine; leave out what belongs to another one", path);
    struct echi_part_fault fault;
    if (status == ECH_OK && !echi_parts_valid(&p->parts, p->codec, &fault)) {
        char why[200];
        echi_parts_sentence(&p->parts, &fault, why, sizeof why);
        status = echi_fail(err, ECH_E_FORMAT, "plan.load", "%s has no whole table of parts: %s", path, why);
    }
    if (status == ECH_OK && (beyond || !echi_plan_valid(p))) {
        char why[340];
        echi_plan_reason(p, why, sizeof why);
        status = echi_fail(err, ECH_E_FORMAT, "plan.load", "%s is not a whole plan: %s", path, why);
    }
    return status == ECH_OK ? check_links(&r, p) : status;
}

ech_status echi_plan_load(const char *path, int usual_cut, struct echi_plan *p, struct echi_link out_link[ECHI_WORLD_MAX],
                          struct ech_error *err) {
    uint8_t *bytes;
    size_t len;
    ECHI_TRY(echi_file_read(path, PLAN_FILE_MAX, &bytes, &len, err));
    char *text = malloc(len + 1);
    struct echi_link *link = calloc(ECHI_WORLD_MAX, sizeof *link);
    ech_status status = text && link ? ECH_OK : echi_fail_memory(err, "plan.load", "the plan");
    if (status == ECH_OK) {
        memcpy(text, bytes, len);
        text[len] = 0;
        status = read_text(path, usual_cut, text, len, p, link, err);
    }
    if (status == ECH_OK && out_link) memcpy(out_link, link, ECHI_WORLD_MAX * sizeof *link);
    free(link);
    free(text);
    free(bytes);
    return status;
}
