/* SPDX-License-Identifier: Apache-2.0
 * Who is still here: what a plan says of the nodes that are left. */
#include "echi_message.h"

#include <string.h>

void echi_plan_clear(struct echi_plan *plan) {
    memset(plan, 0, sizeof *plan);
    memset(plan->group_of, ECHI_NONE, sizeof plan->group_of);
    for (int g = 0; g < ECHI_GROUPS_MAX; g++) plan->owner_of[g] = ECHI_NO_RANK;
    plan->head = ECHI_NO_RANK;
}

int echi_plan_heads(const struct echi_plan *plan) { return plan->heads ? plan->heads : plan->cut > 0; }

int echi_plan_head_rank(const struct echi_plan *plan, int head) { return plan->heads ? plan->head_rank[head] : plan->head; }

int echi_plan_head_index(const struct echi_plan *plan, int rank) {
    for (int i = 0; i < echi_plan_heads(plan); i++)
        if (echi_plan_head_rank(plan, i) == rank) return i;
    return -1;
}

int echi_plan_head_of(const struct echi_plan *plan, const struct echi_lease *lease) { return echi_plan_head_rank(plan, lease->head); }

int echi_plan_workers(const struct echi_plan *plan, int group) {
    int count = 0;
    for (int r = 0; r < plan->world; r++)
        if (!plan->lost[r] && plan->group_of[r] != ECHI_NONE && (group < 0 || plan->group_of[r] == group)) count++;
    return count;
}

int echi_plan_group_owned(const struct echi_plan *plan, int rank) {
    for (int g = 0; g < plan->n_groups; g++)
        if (plan->owner_of[g] == rank) return g;
    return echi_plan_shard_owned(plan, rank) >= 0 ? 0 : -1;   /* where there are several shards there is one group */
}

/* Its shadow, or who is about to have a copy of its layers. */
static bool is_behind_head(const struct echi_plan *plan, int rank) {
    return echi_plan_shadow(plan) == rank || plan->coming == 1 + rank;
}

bool echi_plan_hosts(const struct echi_plan *plan, int rank, enum echi_role role) {
    switch (role) {
    case ECHI_ROLE_NODE: return true;
    case ECHI_ROLE_COORDINATOR: return rank == 0;
    case ECHI_ROLE_WORKER: return plan->group_of[rank] != ECHI_NONE;
    case ECHI_ROLE_OWNER: return echi_plan_group_owned(plan, rank) >= 0;
    case ECHI_ROLE_HEAD: return echi_plan_head_index(plan, rank) >= 0 || (plan->cut && is_behind_head(plan, rank));
    case ECHI_ROLES: break;
    }
    return false;
}

bool echi_plan_group_lives(const struct echi_plan *plan, int group) {
    for (int k = 0; k < echi_plan_shards(plan); k++)
        if (plan->lost[echi_plan_shard_owner(plan, group, k)]) return false;
    return true;
}

int echi_plan_reserve(const struct echi_plan *plan) { return plan->reserve ? plan->n_groups - 1 : -1; }

int echi_plan_first_group(const struct echi_plan *plan) {
    int g = 0;
    while (g + 1 < plan->n_groups && !echi_plan_group_lives(plan, g)) g++;
    return g;
}

bool echi_plan_can_lose(const struct echi_plan *plan, int rank) {
    if (rank == 0 || (echi_plan_head_index(plan, rank) >= 0 && plan->shadow == 0)) return false;
    if (echi_plan_has_heir_of(plan, rank)) return true;   /* a worker and owner is left */
    int owners = 0;
    const int owned = echi_plan_group_owned(plan, rank);
    for (int g = 0; g < plan->n_groups - plan->reserve; g++) owners += g != owned && echi_plan_group_lives(plan, g);
    if (owners == 0) return false;
    const int workers = echi_plan_workers(plan, -1);
    return workers - (!plan->lost[rank] && plan->group_of[rank] != ECHI_NONE) > 0;
}

/* The living group whose number is nearest: groups are numbered by speed. */
static int nearest(const struct echi_plan *plan, int group) {
    const int end = plan->n_groups - plan->reserve;
    for (int far = 1; far < plan->n_groups; far++) {
        if (group - far >= 0 && echi_plan_group_lives(plan, group - far)) return group - far;
        if (group + far < end && echi_plan_group_lives(plan, group + far)) return group + far;
    }
    return group;
}

static void join(struct echi_plan *plan, int rank, int group) {
    plan->was_in[rank] |= (uint8_t)(1u << plan->group_of[rank]);
    plan->group_of[rank] = (uint8_t)group;
}

void echi_plan_lose(struct echi_plan *plan, int rank) {
    plan->lost[rank] = 1;
    if (rank == plan->head || plan->coming == 1 + rank) plan->coming = 0;
    if (rank == plan->head || rank == echi_plan_shadow(plan)) {
        if (rank == plan->head && plan->shadow > 0) plan->head = (uint16_t)echi_plan_shadow(plan);
        plan->shadow = 0;
    }
    if (echi_plan_rings(plan) && plan->group_of[rank] != ECHI_NONE) plan->broken = ECHI_RING_BROKE;
    if (plan->shards) return;   /* its shards go to others later (echi_plan_take_over) */
    const int group = echi_plan_group_owned(plan, rank);
    if (group < 0) return;
    const int to = nearest(plan, group);
    for (int r = 0; r < plan->world; r++)
        if (!plan->lost[r] && plan->group_of[r] == group) join(plan, r, to);
}

bool echi_plan_may_move(const struct echi_plan *plan, int rank, int group) {
    return rank < plan->world && !plan->lost[rank] && plan->group_of[rank] != ECHI_NONE && group < plan->n_groups &&
           echi_plan_group_lives(plan, group);
}

void echi_plan_move(struct echi_plan *plan, int rank, int group) {
    plan->moved_from[rank] = (uint8_t)(1 + plan->group_of[rank]);
    join(plan, rank, group);
}

bool echi_plan_may_home(const struct echi_plan *plan, const struct echi_msg *msg) {
    const int to = msg->peer, shadow = msg->part - 1;
    if (!plan->cut || plan->heads || to >= plan->world || shadow >= plan->world || plan->lost[to]) return false;
    const bool has_layers = to == plan->head || is_behind_head(plan, to);
    if (msg->flag == ECHI_HEADS_COPY) return shadow < 0 && !has_layers && plan->coming == 0;
    if (msg->flag != ECHI_HEADS_HOMES || !has_layers) return false;
    return shadow < 0 || (shadow != to && !plan->lost[shadow] && (shadow == plan->head || is_behind_head(plan, shadow)));
}

static void go_home(struct echi_plan *plan, const struct echi_msg *msg) {
    if (msg->flag == ECHI_HEADS_COPY) {
        plan->coming = (uint16_t)(1 + msg->peer);
        return;
    }
    plan->head = msg->peer;
    plan->shadow = msg->part;
    plan->coming = 0;
}

void echi_plan_told(struct echi_plan *plan, const struct echi_msg *msg) {
    uint32_t mark[ECHI_WORLD_MAX];
    if (msg->kind == ECHI_KIND_TAKEOVER) {
        echi_marks_get(msg->marks, mark, plan->world);
        echi_plan_take_over(plan, mark);
    } else if (msg->kind == ECHI_KIND_REGROUP) echi_plan_move(plan, msg->peer, msg->group);
    else if (msg->kind == ECHI_KIND_HEADS) go_home(plan, msg);
    else echi_plan_lose(plan, msg->peer);
}

int echi_plan_places(const struct echi_plan *plan, int rank) {
    const unsigned groups = plan->was_in[rank] | 1u << plan->group_of[rank];
    int owners = 0;
    for (int g = 0; g < plan->n_groups; g++) owners += (groups >> g & 1) && echi_plan_group_lives(plan, g);
    return plan->flights * owners + (plan->exchange == ECHI_EXCHANGE_RING);   /* worker_ring.c: one for when it has ended */
}

static const struct echi_policy *policy_of(const struct echi_plan *plan) { return echi_policy_of((enum echi_sync)plan->sync); }
static bool in_rounds(const struct echi_plan *plan) { return policy_of(plan)->rounds && !policy_of(plan)->local; }

bool echi_plan_alone(const struct echi_plan *plan) {
    return plan->world == 1 && in_rounds(plan) && !plan->cut && plan->codec == ECHI_CODEC_DENSE;
}

int echi_plan_snapshots(const struct echi_plan *plan, bool others, bool own) {
    if (echi_plan_alone(plan) || echi_plan_grads_in_weights(plan)) return 1;
    if (in_rounds(plan)) return 2;
    return 2 + (others ? ECHI_ANSWERS : 0) + (own ? plan->flights : 0);
}

int echi_plan_known(const struct echi_plan *plan, int owner, int rank) {
    int first = 0;
    if (rank == owner || !policy_of(plan)->rounds) return rank;
    while (first == owner || plan->group_of[first] != plan->group_of[rank]) first++;
    return first;
}

uint32_t echi_plan_share(const struct echi_plan *plan, int rank) {
    return policy_of(plan)->local ? plan->n[rank] * plan->inner[rank] : plan->n[rank];
}

static uint32_t shares(const struct echi_plan *plan, bool of_lost) {
    uint32_t sum = 0;
    for (int r = 0; r < plan->world; r++) sum += plan->lost[r] && !of_lost ? 0 : plan->n[r] * plan->inner[r];
    return sum;
}

/* Under bsp B, whoever is left to do it; under `local` the others go on with as many steps as before. */
uint32_t echi_plan_round(const struct echi_plan *plan) { return policy_of(plan)->local ? shares(plan, false) : plan->round; }
uint32_t echi_plan_round_most(const struct echi_plan *plan) { return policy_of(plan)->local ? shares(plan, true) : plan->round; }

/* Asked at every message, so from the last rank on: servers that do not train are mostly the first ones. */
bool echi_plan_several_train(const struct echi_plan *plan) {
    int workers = 0;
    for (int r = plan->world - 1; r >= 0 && workers < 2; r--) workers += plan->group_of[r] != ECHI_NONE;
    return workers > 1;
}

bool echi_plan_rounds_by_part(const struct echi_plan *plan) {
    if (!policy_of(plan)->rounds || policy_of(plan)->local || plan->codec != ECHI_CODEC_DENSE) return false;
    return echi_plan_several_train(plan);
}

bool echi_plan_grads_in_weights(const struct echi_plan *plan) {
    return plan->shards > 0 && plan->exchange == ECHI_EXCHANGE_SERVER && plan->flights == 1 && !plan->deterministic && !plan->cut &&
           !plan->sync_norm && echi_plan_rounds_by_part(plan);
}

bool echi_plan_evaluates_own(const struct echi_plan *plan) {
    return echi_plan_grads_in_weights(plan) && plan->group_of[0] != ECHI_NONE;
}

bool echi_plan_sums_in_push(const struct echi_plan *plan) {
    int workers = 0;
    for (int r = 0; r < plan->world; r++) workers += plan->group_of[r] != ECHI_NONE;
    return workers <= ECHI_MERGE_STEPS && echi_plan_grads_in_weights(plan);
}

uint32_t echi_plan_divisor(const struct echi_plan *plan, const struct echi_lease *lease) {
    if (policy_of(plan)->local) return plan->round;
    return plan->divisor[lease->worker] ? plan->divisor[lease->worker] : lease->round_size;
}

uint32_t echi_plan_step(const struct echi_plan *plan, int rank) {
    return policy_of(plan)->local ? plan->n[rank] : echi_plan_room(plan, rank);
}

bool echi_plan_shares_follow(const struct echi_plan *plan) {
    return plan->shares_follow && echi_plan_several_train(plan);
}

uint32_t echi_plan_room(const struct echi_plan *plan, int rank) {
    const uint32_t share = echi_plan_share(plan, rank), unit = plan->deterministic ? ECHI_REDUCTION_BLOCK : 1;
    if (share == 0 || plan->world == 1 || !policy_of(plan)->rounds) return share;
    const uint32_t round = echi_plan_round_most(plan), part = ((round + unit - 1) / unit + ECHI_ROUND_PARTS - 1) / ECHI_ROUND_PARTS * unit;
    const uint32_t most = echi_plan_shares_follow(plan) ? share + (share + 1) / 2 : share;
    return most < part ? part : most < round ? most : round;
}
