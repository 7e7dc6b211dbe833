/* SPDX-License-Identifier: Apache-2.0
 * Profiles of PipeDream: nodes, in any order, and edges; milliseconds and bytes of a whole mini-batch, in 32-bit floats.
 *     node2 -- Conv2d(3, 64, ...) -- forward_compute_time=22.3, backward_compute_time=6.4, activation_size=198246400, parameter_size=93184
 *         node1 -- node2
 * node2 reads what node1 makes. Layers are taken in topological order, of those that may come next the lowest number first. */
#include "echi_import_impl.h"
#include "echi_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1e-3
#define MS_MAX (ECHI_IMPORT_SECONDS_MAX / MS)
#define EDGES_MAX 16384

struct node {
    double number, activation;        /* bytes of what it makes */
    bool input, linear;
    int before, position;             /* edges from nodes that have no position yet; its position in the order, -1: none */
    struct echi_import_layer layer;
};
struct edge { int from, to; };
struct graph {
    int nodes, edges;
    struct node node[ECHI_IMPORT_ROWS_MAX];
    struct edge edge[EDGES_MAX];
    double named[EDGES_MAX][2];       /* until all nodes are known */
    int line[EDGES_MAX];
    int order[ECHI_IMPORT_ROWS_MAX];
};

/* ------------------------------------------------------------------ lines */

static ech_status number_of(const struct echi_lines *lines, const char *word, double *out) {
    static const char needs[] = "a node is named like node12";
    const size_t digits = word && strncmp(word, "node", 4) == 0 ? strspn(word + 4, "0123456789") : 0;
    if (digits < 1 || digits > 9 || word[4 + digits]) return echi_lines_refuse(lines, needs, word);
    return echi_import_number(lines, word + 4, needs, 0, 1e9, out);
}

static struct node *find(struct graph *g, double number) {
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].number == number) return &g->node[i];
    return NULL;
}

/* "Conv2d(3, 64, ...) --", of which the first word names the layer. */
static ech_status read_description(struct echi_lines *lines, const char *word, struct node *n) {
    n->input = strcmp(word, "Input") == 0;
    n->linear = strncmp(word, "Linear(", 7) == 0;
    char text[48];
    snprintf(text, sizeof text, "node%.0f %.*s", n->number, (int)strcspn(word, "("), word);
    echi_printable(n->layer.name, sizeof n->layer.name, text, strlen(text));
    while (word && strcmp(word, "--") != 0) word = echi_lines_word(lines);
    return word ? ECH_OK : echi_lines_refuse(lines, "a node is written like 'node2 -- Conv2d(...) -- forward_compute_time=...'", word);
}

/* "forward_compute_time=22.316,". What follows the four is not read: PipeDream writes stages there. */
static ech_status read_fields(struct echi_lines *lines, struct node *n) {
    static const char needs[] = "a node has forward_compute_time=, backward_compute_time= (ms, 0 to 3600000), activation_size= and "
                                "parameter_size= (bytes, 0 to 4000000000), in this order";
    static const char *const key[] = {"forward_compute_time=", "backward_compute_time=", "activation_size=", "parameter_size="};
    double *const value[] = {&n->layer.forward, &n->layer.backward, &n->activation, &n->layer.bytes};
    for (int i = 0; i < 4; i++) {
        char *word = echi_lines_word(lines);
        const size_t len = strlen(key[i]);
        if (!word || strncmp(word, key[i], len) != 0) return echi_lines_refuse(lines, needs, word);
        const double most = i < 2 ? MS_MAX : i == 2 ? 1e15 : ECHI_IMPORT_BYTES_MAX;
        char *comma = strchr(word, ',');
        if (comma && !comma[1]) *comma = 0;
        ECHI_TRY(echi_import_number(lines, word + len, needs, 0, most, value[i]));
        if (i < 2) *value[i] *= MS;
    }
    return ECH_OK;
}

static ech_status read_line(struct echi_lines *lines, const char *word, struct graph *g) {
    double number, to;
    ECHI_TRY(number_of(lines, word, &number));
    if (!echi_lines_take(lines, "--"))
        return echi_lines_refuse(lines, "'--' stands between a node and its layer, or between two nodes", echi_lines_word(lines));
    const char *second = echi_lines_word(lines);
    if (!second) return echi_lines_refuse(lines, "behind '--' there is a layer or another node", second);
    if (strncmp(second, "node", 4) == 0) {
        ECHI_TRY(number_of(lines, second, &to));
        if (g->edges == EDGES_MAX) return echi_lines_refuse(lines, "a graph has at most 16384 edges", word);
        g->named[g->edges][0] = number;
        g->named[g->edges][1] = to;
        g->line[g->edges++] = lines->line;
        return echi_lines_end(lines);
    }
    if (find(g, number)) return echi_lines_refuse(lines, "each node is described once, and this one was there before", word);
    if (g->nodes == ECHI_IMPORT_ROWS_MAX) return echi_lines_refuse(lines, "a trace has at most 4096 layers", word);
    struct node *n = &g->node[g->nodes++];
    n->number = number;
    n->position = -1;
    ECHI_TRY(read_description(lines, second, n));
    return read_fields(lines, n);
}

static ech_status resolve(struct echi_lines *lines, struct graph *g) {
    for (int i = 0; i < g->edges; i++)
        for (int end = 0; end < 2; end++) {
            char word[24];
            const struct node *n = find(g, g->named[i][end]);
            *(end ? &g->edge[i].to : &g->edge[i].from) = n ? (int)(n - g->node) : -1;
            if (n) continue;
            snprintf(word, sizeof word, "node%.0f", g->named[i][end]);
            lines->line = g->line[i];
            return echi_lines_refuse(lines, "an edge leads between nodes that are described, and this one is missing", word);
        }
    return ECH_OK;
}

/* ------------------------------------------------------------------ order */

static int next_of(const struct graph *g) {
    int next = -1;
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].position < 0 && g->node[i].before == 0 && (next < 0 || g->node[i].number < g->node[next].number)) next = i;
    return next;
}

static ech_status sort(struct echi_lines *lines, struct graph *g) {
    char word[80];
    for (int i = 0; i < g->edges; i++) g->node[g->edge[i].to].before++;
    for (int position = 0; position < g->nodes; position++) {
        const int next = next_of(g);
        if (next < 0) {
            int on = 0;
            while (g->node[on].position >= 0) on++;
            snprintf(word, sizeof word, "there is a cycle in its graph, behind or through node%.0f", g->node[on].number);
            return echi_import_refuse(lines, word);
        }
        g->node[next].position = position;
        g->order[position] = next;
        for (int i = 0; i < g->edges; i++) g->node[g->edge[i].to].before -= g->edge[i].from == next;
    }
    return ECH_OK;
}

/* ------------------------------------------------------------ cut, batch */

/* The position of the first fully connected layer, if only such have parameters from there on and take but one node's output from in front
 * of it, which is *out_source; the number of nodes: there is none. */
static int cut_of(const struct graph *g, int *out_source) {
    int cut = 0, source = -1;
    *out_source = -1;
    while (cut < g->nodes && !g->node[g->order[cut]].linear) cut++;
    for (int position = cut; position < g->nodes; position++) {
        const struct node *n = &g->node[g->order[position]];
        if (n->layer.bytes > 0 && !n->linear) return g->nodes;
    }
    for (int i = 0; i < g->edges; i++) {
        if (g->node[g->edge[i].from].position >= cut || g->node[g->edge[i].to].position < cut) continue;
        if (source >= 0 && source != g->edge[i].from) return g->nodes;
        source = g->edge[i].from;
    }
    *out_source = source;
    return source >= 0 ? cut : g->nodes;
}

/* Pictures of ImageNet are 224 or 299 pixels high and wide, and have three floats a pixel: of one of these the input has a whole number. */
static uint32_t batch_of(double input) {
    static const double side[] = {224, 299};
    double batch = 0;
    int fit = 0;
    for (int i = 0; i < 2; i++) {
        const double pictures = input / (3 * side[i] * side[i] * sizeof(float));
        if (pictures < 1 || pictures > ECHI_IMPORT_BATCH_MAX || pictures != floor(pictures)) continue;
        batch = pictures;
        fit++;
    }
    return fit == 1 ? (uint32_t)batch : 0;
}

static ech_status read_graph(struct echi_lines *lines, const char *word, struct graph *g, struct echi_import_rows *out) {
    for (; word; word = echi_lines_next(lines)) ECHI_TRY(read_line(lines, word, g));
    ECHI_TRY(resolve(lines, g));
    ECHI_TRY(sort(lines, g));
    int source;
    const int cut = cut_of(g, &source);
    out->cut = ECHI_IMPORT_ROWS_MAX;
    for (int position = 0; position < g->nodes; position++) {
        const struct node *n = &g->node[g->order[position]];
        if (position == cut) {
            out->cut = out->count;
            out->row = g->node[source].activation;
        }
        if (n->input) {
            out->reading += n->layer.forward;
            out->batch = batch_of(n->activation);
        } else *echi_import_add(lines, out) = n->layer;   /* there is room for as many as there are nodes */
    }
    return ECH_OK;
}

ech_status echi_import_graph(struct echi_lines *lines, const char *word, struct echi_import_rows *out) {
    struct graph *g = calloc(1, sizeof *g);
    if (!g) return echi_fail_memory(lines->err, lines->operation, "a graph");
    const ech_status status = read_graph(lines, word, g, out);
    free(g);
    return status;
}
