/* SPDX-License-Identifier: Apache-2.0
 * How gradients become changes: the optimisers, and the numbers of Adam. optimizer.c; bytes: message.c. */
#ifndef ECHI_OPTIMIZER_H
#define ECHI_OPTIMIZER_H
#include <stdbool.h>
#include <stdint.h>

/* How gradients become changes: PyTorch's SGD with momentum, or with Nesterov's (dampening 0); its Adam, whose weight decay is L2 added to
 * the gradient; or its AdamW, which decays the weights themselves. */
enum echi_optimizer { ECHI_OPTIMIZER_SGD, ECHI_OPTIMIZER_NESTEROV, ECHI_OPTIMIZER_ADAM, ECHI_OPTIMIZER_ADAMW, ECHI_OPTIMIZERS };
#define ECHI_BETA_MAX 0.999999
#define ECHI_EPSILON_MIN 1e-12        /* above the root of the least normal float: it alone divides where no gradient ever was */
struct echi_adam { double beta1, beta2, epsilon; };   /* decays of the first and of the second moment in a round;
                                                         what is added to the root */

struct echi_plan;
const char *echi_optimizer_name(int optimizer);   /* "nesterov"; NULL beyond the last */
bool echi_optimizer_adam(int optimizer);          /* ADAM or ADAMW: it keeps two moments of each parameter, and one of them otherwise */
/* That of the owners' and the head's steps: under `local` the outer step has Nesterov's momentum, whatever its workers' own steps have. */
int echi_plan_owner_optimizer(const struct echi_plan *plan);
/* Does an update depend on the gradients before it? Of the plan's optimiser, and of the owners' and the head's steps. Otherwise velocities
 * are 0, and no node has memory for them. */
bool echi_plan_remembers(const struct echi_plan *plan);
bool echi_plan_owner_remembers(const struct echi_plan *plan);
bool echi_adam_valid(const struct echi_adam *adam);
/* What the gradients in a pair of moments weigh together: 1 less the product of all beta^f; 0: none is in them. Kept beside them. */
struct echi_adam_weights { double first, second; };
/* A moment becomes keep * moment + gain * gradient (of the second: squared). */
struct echi_adam_push { double keep1, gain1, keep2, gain2; };
/* A push of weight f > 0: what it does to the moments, and `weights` behind it. */
void echi_adam_take(const struct echi_adam *adam, double f, struct echi_adam_weights *weights, struct echi_adam_push *out);
double echi_power(double base, double exponent);  /* base in [0, 1), exponent > 0; the same bits on every machine */

struct echi_reader;
struct echi_writer;
void echi_optimizer_put(struct echi_writer *w, int optimizer, const struct echi_adam *adam);
uint8_t echi_optimizer_get(struct echi_reader *r, struct echi_adam *adam);   /* not `ok` where they make no sense */
#endif
