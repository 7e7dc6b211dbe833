/* SPDX-License-Identifier: Apache-2.0
 * Rates of links as bytes. Pure and bounded, as message.c. */
#include "echi_link.h"
#include "echi_bytes.h"

static void put_rate(struct echi_writer *w, const struct echi_rate *r) {
    echi_put_f64(w, r->rate);
    echi_put_f64(w, r->lowest);
    echi_put_f64(w, r->highest);
}

static bool get_rate(struct echi_reader *r, struct echi_rate *out) {
    out->rate = echi_get_f64(r);
    out->lowest = echi_get_f64(r);
    out->highest = echi_get_f64(r);
    return echi_rate_valid(out);
}

void echi_link_put(struct echi_writer *w, const struct echi_link *link) {
    put_rate(w, &link->out);
    put_rate(w, &link->in);
}

bool echi_link_get(struct echi_reader *r, struct echi_link *out) {
    const bool valid = get_rate(r, &out->out);
    return get_rate(r, &out->in) && valid && r->ok;
}
