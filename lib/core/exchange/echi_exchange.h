/* SPDX-License-Identifier: Apache-2.0
 * Exchanges: how the gradients of a part come to its owner, and its weights to the workers, where several workers push in rounds.
 *
 *   server  each worker pushes to the owner, which sends each worker the weights (M. Li et al., "Scaling distributed machine learning with
 *           the parameter server", OSDI 2014)
 *   ring    a sum goes from worker to worker, behind the owner first, and each adds its gradients; the owner is the last. Weights go the
 *           same way round (Patarasuk and Yuan, JPDC 69(2), 2009). A node has one peer to send to and one to receive from, and what it
 *           sends of a step is the same as of N balanced shards. It ends when a worker is lost: then it is `server` (PROTOCOL.md,
 *           "Ring") */
#ifndef ECHI_EXCHANGE_H
#define ECHI_EXCHANGE_H
#include "echi_message.h"

struct echi_exchange_rules {
    const char *name;                       /* as in --exchange */
    enum echi_kind weights;                 /* the messages that carry them */
    /* Does an owner send its weights to this worker? */
    bool (*answers)(const struct echi_plan *plan, int owner, int rank);
};
/* That of the plan as it is now. */
const struct echi_exchange_rules *echi_exchange_of(const struct echi_plan *plan);
const char *echi_exchange_name(enum echi_exchange exchange);
#endif
