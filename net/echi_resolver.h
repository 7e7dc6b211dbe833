/* SPDX-License-Identifier: Apache-2.0
 * Looks up a name in a thread of its own: the system's resolver may take longer than whoever asks can wait. */
#ifndef ECHI_RESOLVER_H
#define ECHI_RESOLVER_H
#include "echi_address.h"

struct echi_resolver;
/* Begins to look up `text` as echi_address_parse does. ECH_E_MEMORY: there is no thread for it. */
ech_status echi_resolver_start(const char *text, const char *option, struct echi_resolver **out, struct ech_error *err);
/* ECH_E_AGAIN: it is not done; else what echi_address_parse returned. */
ech_status echi_resolver_result(const struct echi_resolver *resolver, struct echi_addresses *out, struct ech_error *err);
/* Waits for nobody: a thread that the system's resolver still holds frees what is left. NULL is harmless. */
void echi_resolver_end(struct echi_resolver *resolver);
#endif
