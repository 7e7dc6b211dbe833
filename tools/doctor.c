/* SPDX-License-Identifier: Apache-2.0
 * `echelon doctor`: what a run would find on this machine, on one page or as JSON; with --listen the other end of a
 * measured link; with --links a table of the links between all nodes. */
#include "tool.h"

#include "echelon_dev.h"

#include <stdlib.h>
#include <string.h>

static void print_help(void) {
    puts("usage: echelon doctor [options]\n\n"
         "Looks at this machine as `echelon train` with the same options would find it, and trains nothing: "
         "devices and whether they compute\n"
         "rightly, network, the coordinator's port or the link to it, memory for model and batch. Status 0 when training would begin.\n"
         "  echelon doctor --model resnet18 --batch 128                                     this machine by itself\n"
         "  echelon doctor --listen --coordinator 10.0.0.1:7000 --key run.key               on one machine, and meanwhile\n"
         "  echelon doctor --world 2 --rank 1 --coordinator 10.0.0.1:7000 --key run.key     on another: the link between the two\n"
         "  echelon plan --model resnet18 --doctors 10.0.0.1:7000 --key run.key             or there: what a run of both would make\n"
         "  echelon doctor --links --world 4 --rank R --coordinator 10.0.0.1:7000 --key run.key   on each of four: a table\n\n"
         "Options are those of `echelon train`, so the line of a run may be tried as it stands; what is not looked at changes nothing.");
    command_print_options(stdout, DOCTOR);
    command_print_statuses(stdout);
}

/* ------------------------------------------------------------- the page */

static const char *mark(const struct ech_doctor_check *check) { return check->status == ECH_OK ? "ok  " : "BAD "; }

static void print_trouble(const struct ech_doctor_check *check) {
    if (check->status != ECH_OK) printf("        %s\n", check->text);
}

/* Nothing where nothing was measured. */
static void print_rate(const char *before, double rate, const char *unit) {
    if (rate > 0) printf("%s%.*f %s", before, rate < 1e10 ? 2 : 0, rate * 1e-9, unit);
}

static void print_bits(double bytes, const char *after) {
    const double megabits = bytes * 8e-6;
    if (megabits >= 1000) printf("%.2f Gb/s%s", megabits * 1e-3, after);
    else printf("%.3g Mb/s%s", megabits, after);
}

static void print_devices(const struct ech_doctor *d) {
    char memory[32], left[32];
    puts("devices");
    for (int i = 0; i < d->n_devices; i++) {
        const struct ech_doctor_device *v = &d->device[i];
        printf("  %s  %s%s  %s; %d units", mark(&v->check), v->spec, v->used ? " (this node's)" : "",
               *v->name ? v->name : "it could not be opened", v->units);
        bytes_text((double)v->memory, memory, sizeof memory);
        if (v->memory_free) printf(", %s free of %s", bytes_text((double)v->memory_free, left, sizeof left), memory);
        else if (v->memory) printf(", %s in total", memory);
        if (*v->driver) printf("; driver %s", v->driver);
        if (*v->kernels) printf("; kernels from %s", v->kernels);
        printf("\n        %d known answers right", v->answers);
        print_rate("; copies to it ", v->to_device, "GB/s");
        print_rate(", from it ", v->from_device, "GB/s");
        print_rate("; products ", v->products, "billion multiply-adds a second");
        puts("");
        print_trouble(&v->check);
    }
    for (int i = 0; i < d->n_stacks; i++) {
        const struct ech_doctor_stack *s = &d->stack[i];
        printf("        %s: %s\n", s->library, s->found ? (*s->version ? s->version : "here") : "not here");
    }
}

static void print_network(const struct ech_doctor *d) {
    puts("network");
    for (int i = 0; i < d->n_interfaces; i++) {
        const struct ech_doctor_interface *n = &d->interface[i];
        printf("  %s  %s %s%s%s\n", *n->used ? "used" : "    ", n->name, n->address, *n->used ? ": " : "", n->used);
    }
    if (d->network.status != ECH_OK) puts("  BAD");
    print_trouble(&d->network);
    if (d->port.done) {
        printf("port\n  %s  %s%s\n", mark(&d->port.check), d->port.address, d->port.check.status == ECH_OK ? " is free" : "not free");
        print_trouble(&d->port.check);
    }
    if (!d->link.done) return;
    printf("link\n  %s  ", mark(&d->link.check));
    if (d->link.check.status == ECH_OK) {
        printf("round trip %.3g ms, ", d->link.round_trip * 1e3);
        const double offset = (d->link.offset < 0 ? -d->link.offset : d->link.offset) * 1e3;
        print_bits(d->link.out, " out (");
        print_bits(d->link.out_highest, " at most), ");
        print_bits(d->link.in, " in (");
        print_bits(d->link.in_highest, " at most)");
        printf("; its clock is %.*f ms %s (within %.2g ms)", offset < 100 ? 2 : 0, offset, d->link.offset < 0 ? "behind" : "ahead",
               d->link.within * 1e3);
    } else printf("not measured");
    puts("");
    print_trouble(&d->link.check);
}

static void print_memory(const struct ech_doctor *d) {
    char text[7][32];
    const double part[] = {(double)d->memory.total, (double)d->memory.weights, (double)d->memory.gradients, (double)d->memory.moments,
                           (double)d->memory.rows, (double)d->memory.activations, (double)d->memory.available};
    for (int i = 0; i < 7; i++) bytes_text(part[i], text[i], sizeof text[i]);
    printf("memory\n  %s  %s", mark(&d->memory.check), d->memory.model);
    if (d->memory.batch) printf(", batch %d: %d samples a step here", d->memory.batch, d->memory.step);
    if (d->memory.step_seconds > 0)
        printf("; %.0f images/s alone, %d thread%s", 64 / d->memory.step_seconds, d->threads, d->threads == 1 ? "" : "s");
    puts("");
    if (d->memory.check.status == ECH_OK)
        printf("        %s (weights %s, gradients %s, optimiser %s, rows %s, activations %s)%s%s\n", text[0], text[1], text[2], text[3],
               text[4], text[5], d->memory.available < SIZE_MAX ? " of " : "", d->memory.available < SIZE_MAX ? text[6] : "");
    print_trouble(&d->memory.check);
}

static void print_page(const struct ech_doctor *d) {
    printf("echelon %s doctor: rank %d of %d\n", d->version, d->rank, d->world);
    print_devices(d);
    print_network(d);
    print_memory(d);
    if (d->status == ECH_OK) puts("training would begin");
    else printf("training would fail: %s\n", d->trouble);
}

/* What `write` makes of `found`, as ech_doctor_json. */
static int print_json(size_t (*write)(const void *found, char *buf, size_t cap), const void *found) {
    const size_t len = write(found, NULL, 0);
    char *text = malloc(len + 1);
    if (!text) {
        fprintf(stderr, "echelon: no memory for %zu bytes of JSON\n", len);
        return exit_status(ECH_E_MEMORY);
    }
    write(found, text, len + 1);
    fputs(text, stdout);
    free(text);
    return 0;
}

static size_t page_json(const void *found, char *buf, size_t cap) { return ech_doctor_json(found, buf, cap); }
static size_t links_json(const void *found, char *buf, size_t cap) { return ech_doctor_links_json(found, buf, cap); }

/* -------------------------------------------------------------- listening */

/* What else the others have to be given. */
static const char *same_trust(const struct ech_config *c) { return c->key[0] ? ", and this --key" : c->insecure ? ", and --insecure" : ""; }

static void on_bound(void *user, const char *address) {
    fprintf(stderr, "echelon: listening at %s; on the other nodes: echelon doctor --world 2 --rank 1 --coordinator %s%s; or on one: "
            "echelon plan --doctors %s%s\n", address, address, same_trust(user), address, same_trust(user));
}

static void on_log(void *user, enum ech_log_level level, const char *line) {
    (void)user;
    if (level != ECH_LOG_DEBUG) fprintf(stderr, "echelon: %s\n", line);
}

static int listen_here(const struct command *command) {
    struct ech_config config = command->config;
    struct ech_error err = {.text = ""};
    config.on_bound = on_bound;
    config.on_log = on_log;
    config.user = &config;
    config.stop = &stops;
    watch_stops(1);
    const ech_status status = ech_doctor_listen(&config, &err);
    if (status != ECH_OK) fprintf(stderr, "echelon: %s\n", err.text);
    return exit_status(status);
}

/* ------------------------------------------------------------------ links */

static void on_meeting(void *user, const char *address) {
    const struct ech_config *config = user;
    fprintf(stderr, "echelon: listening at %s; on the other nodes: echelon doctor --links --world %d --rank 1%s --coordinator %s%s\n",
            address, config->world, config->world > 2 ? " (2, ...)" : "", address, same_trust(config));
}

static void print_table(const struct ech_doctor_links *t, const char *title, const double (*values)[ECH_DOCTOR_WORLD], double unit) {
    printf("%s\n  from \\ to", title);
    for (int to = 0; to < t->world; to++) printf(" %8d", to);
    puts("");
    for (int from = 0; from < t->world; from++) {
        printf("  %9d", from);
        for (int to = 0; to < t->world; to++) {
            const double value = values[from][to] * unit;
            if (from == to) printf(" %8s", "");
            else if (!(value > 0)) printf(" %8s", "?");
            else printf(" %8.*f", value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3, value);
        }
        puts("");
    }
}

static int count_unknown(const struct ech_doctor_links *t) {
    int unknown = 0;
    for (int from = 0; from < t->world; from++)
        for (int to = 0; to < t->world; to++) unknown += from != to && !(t->rate[from][to] > 0);
    return unknown;
}

static void print_links(const struct ech_doctor_links *t) {
    const int unknown = count_unknown(t);
    if (unknown == t->world * (t->world - 1)) {
        fprintf(stderr, "echelon: no link was measured: %s\n", t->check.text);
        return;
    }
    printf("echelon %s doctor: links of %d nodes, seen by rank %d\n", t->version, t->world, t->rank);
    print_table(t, "Mb/s", t->rate, 8e-6);
    print_table(t, "round trip, ms", t->round_trip, 1e3);
    if (t->check.status != ECH_OK) printf("not all was measured: %s\n", t->check.text);
    else if (unknown > 0) printf("%d of these were not measured: their nodes were too slow for it; try again\n", unknown);
    if (*t->slow) puts(t->slow);
    else if (unknown == 0) puts("no link is slow beside the others");
}

static int measure_links(const struct command *command) {
    struct ech_config config = command->config;
    struct ech_error err = {.text = ""};
    struct ech_doctor_links *found = malloc(sizeof *found);
    if (!found) {
        fputs("echelon: no memory for a table of links\n", stderr);
        return exit_status(ECH_E_MEMORY);
    }
    config.on_bound = on_meeting;
    config.on_log = on_log;
    config.user = &config;
    config.stop = &stops;
    watch_stops(1);
    const ech_status status = ech_doctor_links(&config, found, &err);
    int code = exit_status(status);
    if (status != ECH_OK) fprintf(stderr, "echelon: %s\n", err.text);
    else if (command->json) code = print_json(links_json, found);
    else print_links(found);
    if (status == ECH_OK && code == 0) code = exit_status(found->check.status);
    free(found);
    return code;
}

static int look(const struct command *command, const ech_model *model, const ech_data *data) {
    struct ech_error err = {.text = ""};
    if (command->listen) return listen_here(command);
    if (command->links) return measure_links(command);
    struct ech_doctor *found = malloc(sizeof *found);
    if (!found) {
        fputs("echelon: no memory for what is found\n", stderr);
        return exit_status(ECH_E_MEMORY);
    }
    ech_status status = ech_doctor(model, data, &command->config, found, &err);
    int code = exit_status(status);
    if (status != ECH_OK) fprintf(stderr, "echelon: %s\n", err.text);
    else if (command->json) code = print_json(page_json, found);
    else print_page(found);
    if (status == ECH_OK && code == 0) code = exit_status(found->status);
    free(found);
    return code;
}

int doctor_main(int argc, char **argv) { return command_run(DOCTOR, argc, argv, print_help, look); }
