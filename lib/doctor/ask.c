/* SPDX-License-Identifier: Apache-2.0
 * An ask as text, written and read. */
#include "echi_ask.h"
#include "echi_error.h"
#include "echi_model.h"
#include "echi_number.h"
#include "echi_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {"rank",      "world",    "seed",      "no-shuffle", "deterministic",
                                    "sync-norm", "winograd", "precision", "measure"};
enum { NAMES = (int)(sizeof names / sizeof names[0]) };

static const char *on_off(int value) { return value ? "on" : "off"; }

size_t echi_ask_write(const struct ech_config *c, int rank, const ech_model *model, char *buf, size_t cap) {
    struct echi_print p = {buf, cap, 0};
    struct echi_point point;
    echi_point_begin(&point);
    echi_print(&p, "rank %d\nworld %d\nseed %" PRIu64 "\n", rank, c->world, c->seed);
    echi_print(&p, "no-shuffle %s\ndeterministic %s\nsync-norm %s\n", on_off(c->no_shuffle), on_off(c->deterministic),
               on_off(c->sync_norm));
    echi_print(&p, "winograd %d\nprecision %s\nmeasure %g\n", c->winograd, c->precision, c->measure);
    echi_point_end(&point);
    echi_print(&p, "model %s\n", model->name);
    const size_t at = p.len < cap ? p.len : cap;
    return p.len + ech_model_text(model, buf ? buf + at : NULL, cap - at);
}

/* The next line, which is `name`, a blank and a value: the value. NULL: it is not. */
static const char *value_of(const char **at, const char *end, const char *name, char *value, size_t cap) {
    const size_t len = strlen(name);
    const char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop || (size_t)(stop - line) < len + 1 || memcmp(line, name, len) != 0 || line[len] != ' ') return NULL;
    const size_t count = (size_t)(stop - line) - len - 1;
    if (count == 0 || count >= cap || memchr(line, 0, (size_t)(stop - line))) return NULL;
    memcpy(value, line + len + 1, count);
    value[count] = 0;
    *at = stop + 1;
    return value;
}

ech_status echi_ask_read(const char *text, size_t len, struct ech_config *config, ech_model **out_model, struct ech_error *err) {
    const char *at = text, *end = text + len;
    char value[64], model[32];
    *out_model = NULL;
    for (int i = 0; i < NAMES; i++) {
        if (!value_of(&at, end, names[i], value, sizeof value))
            return echi_fail(err, ECH_E_FORMAT, "doctor.ask",
                             "what was asked lacks a line '%s VALUE' where one must be: all nodes must have the same version of echelon",
                             names[i]);
        ECHI_TRY(ech_config_set(config, names[i], value, err));
    }
    if (config->world < 2 || config->world > ECH_LIVE_MAX || config->rank < 1 || config->rank >= config->world)
        return echi_fail(err, ECH_E_FORMAT, "doctor.ask", "asked to be rank %d of %d: ranks 1 to %d of so many nodes take part",
                         config->rank, config->world, ECH_LIVE_MAX - 1);
    if (!value_of(&at, end, "model", value, sizeof value))
        return echi_fail(err, ECH_E_FORMAT, "doctor.ask", "what was asked names no model where it must");
    echi_printable(model, sizeof model, value, strlen(value));
    return ech_model_parse(at, (size_t)(end - at), model, out_model, err);
}
