/* SPDX-License-Identifier: Apache-2.0
 * A name, looked up by a thread that can be left behind. */
#include "echi_resolver.h"
#include "echi_error.h"
#include "echi_os.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct echi_resolver {
    atomic_int holders; /* the thread and its owner; the last one frees */
    atomic_bool done;   /* the fields below it are written before */
    ech_status status;
    struct echi_addresses found;
    struct ech_error err;
    char option[32], text[];
};

static void let_go(struct echi_resolver *r) {
    if (atomic_fetch_sub(&r->holders, 1) == 1) free(r);
}

static void *look_up(void *arg) {
    struct echi_resolver *r = arg;
    r->status = echi_address_parse(r->text, r->option, true, false, &r->found, &r->err);
    atomic_store(&r->done, true);
    let_go(r);
    return NULL;
}

ech_status echi_resolver_start(const char *text, const char *option, struct echi_resolver **out, struct ech_error *err) {
    struct echi_resolver *r = calloc(1, sizeof *r + strlen(text) + 1);
    if (!r) return echi_fail_memory(err, "net.resolve", "looking up a name");
    strcpy(r->text, text);
    snprintf(r->option, sizeof r->option, "%s", option);
    atomic_init(&r->holders, 2);
    struct echi_thread thread;
    const ech_status status = echi_thread_start(&thread, "resolver", look_up, r, err);
    if (status != ECH_OK) {
        free(r);
        return status;
    }
    echi_thread_leave(&thread);
    *out = r;
    return ECH_OK;
}

ech_status echi_resolver_result(const struct echi_resolver *r, struct echi_addresses *out, struct ech_error *err) {
    if (!atomic_load(&r->done)) return ECH_E_AGAIN;
    *out = r->found;
    if (r->status != ECH_OK && err) *err = r->err;
    return r->status;
}

void echi_resolver_end(struct echi_resolver *resolver) {
    if (resolver) let_go(resolver);
}
