/* SPDX-License-Identifier: Apache-2.0
 * What was found as one JSON object: struct ech_doctor, and struct ech_doctor_links. */
#include "echelon_dev.h"
#include "echi_json_write.h"

#include <math.h>

static void add_check(struct echi_json_put *j, const struct ech_doctor_check *check) {
    echi_json_put_bool(j, "ok", check->status == ECH_OK);
    echi_json_put_text(j, "trouble", check->text);
}

/* 0 says "not measured". */
static void add_rate(struct echi_json_put *j, const char *name, double value) {
    echi_json_put_real(j, name, value > 0 ? value : (double)NAN);
}

static void add_device(struct echi_json_put *j, const struct ech_doctor_device *d) {
    echi_json_put_object(j, NULL);
    echi_json_put_text(j, "device", d->spec);
    echi_json_put_text(j, "name", d->name);
    echi_json_put_text(j, "driver", d->driver);
    echi_json_put_text(j, "kernels", d->kernels);
    echi_json_put_bool(j, "used", d->used != 0);
    echi_json_put_integer(j, "units", d->units);
    echi_json_put_whole(j, "memory", d->memory);
    if (d->memory_free > 0) echi_json_put_whole(j, "memory_free", d->memory_free);
    echi_json_put_integer(j, "known_answers", d->answers);
    add_rate(j, "to_device_bytes_per_second", d->to_device);
    add_rate(j, "from_device_bytes_per_second", d->from_device);
    add_rate(j, "multiply_adds_per_second", d->products);
    add_check(j, &d->check);
    echi_json_put_close(j);
}

static void add_found(struct echi_json_put *j, const struct ech_doctor *d) {
    echi_json_put_list(j, "devices");
    for (int i = 0; i < d->n_devices; i++) add_device(j, &d->device[i]);
    echi_json_put_close(j);
    echi_json_put_list(j, "stacks");
    for (int i = 0; i < d->n_stacks; i++) {
        echi_json_put_object(j, NULL);
        echi_json_put_text(j, "library", d->stack[i].library);
        echi_json_put_bool(j, "found", d->stack[i].found != 0);
        echi_json_put_text(j, "version", d->stack[i].version);
        echi_json_put_close(j);
    }
    echi_json_put_close(j);
    echi_json_put_list(j, "interfaces");
    for (int i = 0; i < d->n_interfaces; i++) {
        echi_json_put_object(j, NULL);
        echi_json_put_text(j, "name", d->interface[i].name);
        echi_json_put_text(j, "address", d->interface[i].address);
        echi_json_put_bool(j, "loopback", d->interface[i].loopback != 0);
        echi_json_put_text(j, "used", d->interface[i].used);
        echi_json_put_close(j);
    }
    echi_json_put_close(j);
    echi_json_put_object(j, "network");
    add_check(j, &d->network);
    echi_json_put_close(j);
}

static void add_meeting(struct echi_json_put *j, const struct ech_doctor *d) {
    if (d->port.done) {
        echi_json_put_object(j, "port");
        echi_json_put_text(j, "address", d->port.address);
        add_check(j, &d->port.check);
        echi_json_put_close(j);
    }
    if (!d->link.done) return;
    const bool measured = d->link.check.status == ECH_OK;
    echi_json_put_object(j, "link");
    add_rate(j, "round_trip_seconds", d->link.round_trip);
    add_rate(j, "out_bytes_per_second", d->link.out);
    add_rate(j, "in_bytes_per_second", d->link.in);
    add_rate(j, "out_highest_bytes_per_second", d->link.out_highest);
    add_rate(j, "in_highest_bytes_per_second", d->link.in_highest);
    echi_json_put_real(j, "clock_offset_seconds", measured ? d->link.offset : (double)NAN);
    echi_json_put_real(j, "clock_offset_within_seconds", measured ? d->link.within : (double)NAN);
    add_check(j, &d->link.check);
    echi_json_put_close(j);
}

static void add_memory(struct echi_json_put *j, const struct ech_doctor *d) {
    echi_json_put_object(j, "memory");
    echi_json_put_text(j, "model", d->memory.model);
    echi_json_put_integer(j, "batch", d->memory.batch);
    echi_json_put_integer(j, "samples_per_step", d->memory.step);
    echi_json_put_whole(j, "weights", d->memory.weights);
    echi_json_put_whole(j, "gradients", d->memory.gradients);
    echi_json_put_whole(j, "optimizer", d->memory.moments);
    echi_json_put_whole(j, "rows", d->memory.rows);
    echi_json_put_whole(j, "activations", d->memory.activations);
    echi_json_put_whole(j, "total", d->memory.total);
    if (d->memory.available < SIZE_MAX) echi_json_put_whole(j, "available", d->memory.available);
    else echi_json_put_real(j, "available", (double)NAN);
    add_rate(j, "step_seconds", d->memory.step_seconds);
    add_check(j, &d->memory.check);
    echi_json_put_close(j);
}

size_t ech_doctor_json(const struct ech_doctor *d, char *buf, size_t cap) {
    if (buf && cap) buf[0] = 0;
    if (!d) return 0;
    struct echi_json_put json;
    echi_json_put_begin(&json, buf, cap);
    echi_json_put_text(&json, "version", d->version);
    echi_json_put_bool(&json, "ok", d->status == ECH_OK);
    echi_json_put_text(&json, "trouble", d->trouble);
    echi_json_put_integer(&json, "rank", d->rank);
    echi_json_put_integer(&json, "world", d->world);
    echi_json_put_integer(&json, "threads", d->threads);
    add_found(&json, d);
    add_meeting(&json, d);
    add_memory(&json, d);
    return echi_json_put_end(&json);
}

static void add_pair(struct echi_json_put *j, const struct ech_doctor_links *t, int from, int to) {
    echi_json_put_object(j, NULL);
    echi_json_put_integer(j, "from", from);
    echi_json_put_integer(j, "to", to);
    add_rate(j, "bytes_per_second", t->rate[from][to]);
    add_rate(j, "highest_bytes_per_second", t->highest[from][to]);
    add_rate(j, "round_trip_seconds", t->round_trip[from][to]);
    echi_json_put_close(j);
}

size_t ech_doctor_links_json(const struct ech_doctor_links *t, char *buf, size_t cap) {
    if (buf && cap) buf[0] = 0;
    if (!t) return 0;
    struct echi_json_put json;
    echi_json_put_begin(&json, buf, cap);
    echi_json_put_text(&json, "version", t->version);
    add_check(&json, &t->check);
    echi_json_put_integer(&json, "rank", t->rank);
    echi_json_put_integer(&json, "world", t->world);
    echi_json_put_text(&json, "slow", t->slow);
    echi_json_put_list(&json, "pairs");
    for (int from = 0; from < t->world; from++)
        for (int to = 0; to < t->world; to++)
            if (from != to) add_pair(&json, t, from, to);
    echi_json_put_close(&json);
    return echi_json_put_end(&json);
}
