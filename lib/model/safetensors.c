/* SPDX-License-Identifier: Apache-2.0
 * Parameters as a safetensors file: eight bytes of header length, a JSON header that gives each tensor's dtype, shape and
 * place, then the data. Names and shapes are PyTorch's, so that either side reads the other's files.
 *
 * A file is foreign bytes: every length is checked before it is used, and `params` is written only when all is right. */
#include "echi_model.h"
#include "json_read.h"

#include "echi_bytes.h"
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_os.h"
#include "echi_print.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX ((size_t)100000000) /* the format's own bound */
#define DIMS_MAX 8                     /* dimensions that are kept of a tensor in a file; ours have up to 4 */

/* A tensor that the model has. */
struct tensor {
    char name[48]; /* "conv1.weight" */
    uint64_t shape[4];
    int dims;
    float *values;    /* [count], where its set's are */
    size_t count;
    bool seen;        /* loading: the file's header has it, */
    uint64_t begin;   /*   and its data begins there */
};

struct echi_tensors {
    const struct ech_model *model;
    int n;
    struct tensor tensor[]; /* set after set, in the order of the layers, weight before bias */
};

/* A tensor of one dimension, of the layer's part of that name. */
static struct tensor *list_vector(struct echi_tensors *list, const struct echi_tensor_set *set, const char *layer, const char *part,
                                  size_t at, size_t count) {
    struct tensor *t = &list->tensor[list->n++];
    *t = (struct tensor){.values = set->values ? set->values + (at - set->at) : NULL, .count = count, .dims = 1, .shape = {count}};
    struct echi_print p = {t->name, sizeof t->name, 0};
    echi_print(&p, "%s%s.%s", set->prefix, layer, part);
    return t;
}

static void list_set(struct echi_tensors *list, const struct echi_tensor_set *set) {
    for (int i = set->first; i < set->end; i++) {
        const struct echi_layer *l = &list->model->layers[i];
        if (!l->weights) continue;
        const size_t out = (size_t)l->out.c;
        struct tensor *weight = list_vector(list, set, l->name, "weight", l->weight_at, out);
        weight->count = l->weights;
        if (l->op == ECHI_OP_FC) {
            weight->dims = 2;
            weight->shape[1] = l->weights / out;
        } else if (l->op == ECHI_OP_CONV2D) {
            weight->dims = 4;
            weight->shape[1] = (uint64_t)l->in.c;
            weight->shape[2] = (uint64_t)l->kernel_h;
            weight->shape[3] = (uint64_t)l->kernel_w;
        }
        if (l->biases) list_vector(list, set, l->name, "bias", l->bias_at, out);
        if (!l->running || set->learned) continue;
        list_vector(list, set, l->name, "running_mean", l->running_at, out);
        list_vector(list, set, l->name, "running_var", l->running_at + out, out);
    }
}

ech_status echi_tensors_create(const struct ech_model *model, const struct echi_tensor_set *sets, int n_sets, struct echi_tensors **out,
                               struct ech_error *err) {
    ECHI_TRY(ech_model_finish(model, err));
    size_t most = 0;
    for (int i = 0; i < n_sets; i++) most += 4 * (size_t)(sets[i].end - sets[i].first);
    struct echi_tensors *list = malloc(sizeof *list + most * sizeof list->tensor[0]);
    if (!list) return echi_fail_memory(err, "safetensors", "the list of tensors");
    list->model = model;
    list->n = 0;
    for (int i = 0; i < n_sets; i++) list_set(list, &sets[i]);
    *out = list;
    return ECH_OK;
}

void echi_tensors_destroy(struct echi_tensors *list) { free(list); }

/* The weights of the whole model, and nothing else. */
static ech_status list_weights(const struct ech_model *model, float *values, struct echi_tensors **out, struct ech_error *err) {
    const struct echi_tensor_set set = {.end = model->n_layers, .values = values};
    return echi_tensors_create(model, &set, 1, out, err);
}

static void print_shape(struct echi_print *p, const uint64_t *shape, int dims) {
    echi_print(p, "[");
    for (int d = 0; d < dims; d++) echi_print(p, "%s%" PRIu64, d ? "," : "", shape[d]);
    echi_print(p, "]");
}

/* --- saving --- */

size_t echi_tensors_header(const struct echi_tensors *list, const struct echi_word *words, int n_words, uint8_t *out, size_t cap) {
    const struct tensor *t = list->tensor;
    struct echi_print p = {(char *)out, out ? cap : 0, 8};
    size_t at = 0;
    for (int i = 0; i < n_words; i++)
        echi_print(&p, "%s\"%s\":\"%s\"", i ? "," : "{\"__metadata__\":{", words[i].key, words[i].text);
    if (n_words) echi_print(&p, "}");
    for (int i = 0; i < list->n; i++) {
        echi_print(&p, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":", i || n_words ? "," : "{", t[i].name);
        print_shape(&p, t[i].shape, t[i].dims);
        echi_print(&p, ",\"data_offsets\":[%zu,%zu]}", at, at + 4 * t[i].count);
        at += 4 * t[i].count;
    }
    echi_print(&p, "%s", list->n || n_words ? "}" : "{}");
    while (p.len % 8) echi_print(&p, " "); /* so that the data is aligned in the file */
    if (out && cap >= 8) echi_store64(out, p.len - 8);
    return p.len;
}

bool echi_tensors_data(const struct echi_tensors *list, int i, const float **out_values, size_t *out_count) {
    if (i < 0 || i >= list->n) return false;
    *out_values = list->tensor[i].values;
    *out_count = list->tensor[i].count;
    return true;
}

ech_status echi_safetensors_save(const char *path, const struct ech_model *model, const float *params, struct ech_error *err) {
    struct echi_tensors *list;
    ECHI_TRY(list_weights(model, NULL, &list, err));
    const size_t data_at = echi_tensors_header(list, NULL, 0, NULL, 0);
    size_t len;
    uint8_t *file = echi_mul_size(model->n_params, 4, &len) && echi_add_size(len, data_at + 1, &len) ? malloc(len) : NULL;
    if (!file) {
        echi_tensors_destroy(list);
        return echi_fail_memory(err, "safetensors.save", "the file's contents");
    }
    echi_tensors_header(list, NULL, 0, file, data_at + 1); /* the NUL behind it gives way to the data */
    for (size_t i = 0; i < model->n_params; i++) {
        uint32_t bits;
        memcpy(&bits, &params[i], 4);
        echi_store32(file + data_at + 4 * i, bits);
    }
    ech_status status = echi_file_write(path, file, len - 1, err);
    free(file);
    echi_tensors_destroy(list);
    return status;
}

/* --- loading --- */

struct loader {
    char path[80]; /* fit for a message */
    const struct ech_model *model;
    struct tensor *tensors; /* NULL: only the words are wanted */
    int n;
    void (*word)(void *self, const char *key, const char *text); /* may be NULL */
    void *word_self;
    const uint8_t *data;
    size_t data_len;
    struct echi_json json;
    struct ech_error *err;
};

/* One tensor as the file's header describes it. */
struct entry {
    char name[48]; /* fit for a message */
    struct echi_json_string dtype;
    uint64_t shape[DIMS_MAX], offset[2];
    int dims;
};

/* Names for a sentence: the first few, and how many more there are. */
struct names {
    char text[136];
    struct echi_print p;
    int count;
};
enum { NAMES_SHOWN = 3 };

static void add_name(struct names *names, const char *name) {
    if (!names->count) names->p = (struct echi_print){names->text, sizeof names->text, 0};
    if (names->count < NAMES_SHOWN) echi_print(&names->p, "%s%.36s", names->count ? ", " : "", name);
    names->count++;
}

static const char *end_names(struct names *names) {
    if (names->count > NAMES_SHOWN) echi_print(&names->p, " and %d more", names->count - NAMES_SHOWN);
    return names->text;
}

/* The sentence of a refusal begins with the file. */
static ech_status refuse(const struct loader *l, ech_status code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static ech_status refuse(const struct loader *l, ech_status code, const char *fmt, ...) {
    char text[320];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return echi_fail(l->err, code, "safetensors.load", "%s: %s", l->path, text);
}

static ech_status bad_json(const struct loader *l) {
    return refuse(l, ECH_E_FORMAT, "its header is not the JSON of a safetensors file (byte %td: %s): is the file damaged?",
                  l->json.at - l->json.begin, l->json.wrong);
}

/* An array of numbers: returns how many there are and keeps the first `cap`. */
static int read_numbers(struct echi_json *j, uint64_t *out, int cap) {
    int n = 0;
    echi_json_array(j);
    for (uint64_t value = 0; echi_json_element(j) && echi_json_whole(j, &value); n++)
        if (n < cap) out[n] = value;
    return n;
}

static ech_status read_entry(struct loader *l, struct entry *e) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    enum { DTYPE, SHAPE, OFFSETS, KEYS };
    unsigned given = 0;
    int offsets = 0;
    struct echi_json_string key;
    echi_json_object(&l->json);
    while (echi_json_member(&l->json, &key)) {
        int k = 0;
        while (k < KEYS && !echi_json_equal(&key, keys[k])) k++;
        if (k == KEYS || given >> k & 1)
            return refuse(l, ECH_E_FORMAT, "tensor '%s' has %s in its header: is the file damaged?", e->name,
                          k == KEYS ? "a key besides dtype, shape and data_offsets" : "a key twice");
        given |= 1u << k;
        if (k == DTYPE) echi_json_string(&l->json, &e->dtype);
        if (k == SHAPE) e->dims = read_numbers(&l->json, e->shape, DIMS_MAX);
        if (k == OFFSETS) offsets = read_numbers(&l->json, e->offset, 2);
    }
    if (l->json.wrong) return bad_json(l);
    if (given != (1u << KEYS) - 1 || offsets != 2)
        return refuse(l, ECH_E_FORMAT, "tensor '%s' must have a dtype, a shape and two data_offsets in its header", e->name);
    return ECH_OK;
}

/* Whether the file's tensor is the model's, and where its data begins. */
static ech_status check_entry(const struct loader *l, struct tensor *t, const struct entry *e) {
    char shown[24];
    if (t->seen) return refuse(l, ECH_E_FORMAT, "tensor '%s' is there twice", t->name);
    t->seen = true;
    if (!echi_json_equal(&e->dtype, "F32")) {
        size_t kept = e->dtype.len < sizeof e->dtype.text ? e->dtype.len : sizeof e->dtype.text;
        return refuse(l, ECH_E_UNSUPPORTED, "tensor '%s' has dtype %s, only F32 can be read: convert the file to float32",
                      t->name, echi_printable(shown, sizeof shown, e->dtype.text, kept));
    }
    if (e->dims != t->dims || memcmp(e->shape, t->shape, (size_t)t->dims * sizeof *t->shape)) {
        char has[120], needs[48];
        struct echi_print h = {has, sizeof has, 0}, w = {needs, sizeof needs, 0};
        print_shape(&h, e->shape, e->dims < DIMS_MAX ? e->dims : DIMS_MAX);
        print_shape(&w, t->shape, t->dims);
        return refuse(l, ECH_E_SHAPE, "tensor '%s' has shape %s but model '%s' needs %s: give the file of this model", t->name,
                      has, l->model->name, needs);
    }
    const uint64_t begin = e->offset[0], end = e->offset[1], bytes = 4 * (uint64_t)t->count;
    if (end < begin || end - begin != bytes)
        return refuse(l, ECH_E_FORMAT, "tensor '%s' needs %" PRIu64 " bytes but its data_offsets are [%" PRIu64 ",%" PRIu64 "]",
                      t->name, bytes, begin, end);
    if (end > l->data_len)
        return refuse(l, ECH_E_FORMAT,
                      "tensor '%s' ends at byte %" PRIu64 " of the data but the file has only %zu: is it cut short?", t->name,
                      end, l->data_len);
    t->begin = begin;
    return ECH_OK;
}

/* Words that are too long to be kept are nobody's here. */
static void read_metadata(struct loader *l) {
    struct echi_json_string key, value;
    echi_json_object(&l->json);
    while (echi_json_member(&l->json, &key) && echi_json_string(&l->json, &value)) {
        if (!l->word || key.len >= sizeof key.text || value.len >= sizeof value.text) continue;
        key.text[key.len] = value.text[value.len] = 0;
        l->word(l->word_self, key.text, value.text);
    }
}

static ech_status read_header(struct loader *l) {
    struct echi_json_string name;
    struct names missing = {.count = 0}, extra = {.count = 0};
    bool metadata = false;
    echi_json_object(&l->json);
    while (echi_json_member(&l->json, &name)) {
        struct entry e;
        struct tensor *t = l->tensors, *end = t ? t + l->n : NULL;
        if (echi_json_equal(&name, "__metadata__")) {
            if (metadata) return refuse(l, ECH_E_FORMAT, "'__metadata__' is there twice");
            metadata = true;
            read_metadata(l);
            continue;
        }
        echi_printable(e.name, sizeof e.name, name.text, name.len < sizeof name.text ? name.len : sizeof name.text);
        ECHI_TRY(read_entry(l, &e));
        if (!l->tensors) continue;
        while (t < end && !echi_json_equal(&name, t->name)) t++;
        if (t < end)
            ECHI_TRY(check_entry(l, t, &e));
        else
            add_name(&extra, e.name);
    }
    if (!echi_json_end(&l->json)) return bad_json(l);
    if (!l->tensors) return ECH_OK;
    for (int i = 0; i < l->n; i++)
        if (!l->tensors[i].seen) add_name(&missing, l->tensors[i].name);
    if (!missing.count && !extra.count) return ECH_OK;
    return refuse(l, ECH_E_SHAPE, "not the parameters of model '%s': %s%s%s%s%s; give the file of this model", l->model->name,
                  missing.count ? "it lacks " : "", missing.count ? end_names(&missing) : "",
                  missing.count && extra.count ? " and " : "", extra.count ? "it has besides " : "",
                  extra.count ? end_names(&extra) : "");
}

static int by_begin(const void *a, const void *b) {
    const struct tensor *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The data must be covered exactly: a hole could hide something, an overlap make one weight two. */
static ech_status check_cover(const struct loader *l) {
    uint64_t covered = 0;
    qsort(l->tensors, (size_t)l->n, sizeof *l->tensors, by_begin);
    for (int i = 0; i < l->n; i++) {
        const struct tensor *t = &l->tensors[i];
        if (t->begin != covered)
            return refuse(l, ECH_E_FORMAT,
                          "tensor '%s' begins at byte %" PRIu64 " of the data but the one before ends at %" PRIu64, t->name,
                          t->begin, covered);
        covered += 4 * (uint64_t)t->count;
    }
    if (covered != l->data_len)
        return refuse(l, ECH_E_FORMAT, "its data has %zu bytes but its tensors end at %" PRIu64, l->data_len, covered);
    return ECH_OK;
}

/* Finds the header and what is behind it. */
static ech_status open_bytes(struct loader *l, const uint8_t *file, size_t len) {
    if (len < 8) return refuse(l, ECH_E_FORMAT, "has %zu bytes, too few for a safetensors file", len);
    const uint64_t header = echi_load64(file);
    if (header > HEADER_MAX || header > len - 8)
        return refuse(l, ECH_E_FORMAT,
                      "its header would have %" PRIu64 " bytes but the file has %zu: cut short, or no safetensors file?", header,
                      len);
    l->data = file + 8 + (size_t)header;
    l->data_len = len - 8 - (size_t)header;
    echi_json_begin(&l->json, file + 8, (size_t)header);
    return read_header(l);
}

ech_status echi_tensors_words(const char *path, const uint8_t *file, size_t len,
                              void (*each)(void *self, const char *key, const char *text), void *self, struct ech_error *err) {
    struct loader l = {.err = err, .word = each, .word_self = self};
    echi_printable_path(l.path, sizeof l.path, path);
    return open_bytes(&l, file, len);
}

ech_status echi_tensors_read(const char *path, const uint8_t *file, size_t len, struct echi_tensors *list, struct ech_error *err) {
    struct loader l = {.model = list->model, .tensors = list->tensor, .n = list->n, .err = err};
    echi_printable_path(l.path, sizeof l.path, path);
    for (int i = 0; i < list->n; i++) list->tensor[i].seen = false;
    ECHI_TRY(open_bytes(&l, file, len));
    ECHI_TRY(check_cover(&l));
    for (const struct tensor *t = l.tensors; t < l.tensors + l.n; t++) {
        const uint8_t *from = l.data + (size_t)t->begin;
        for (size_t k = 0; k < t->count; k++) {
            const uint32_t bits = echi_load32(from + 4 * k);
            memcpy(&t->values[k], &bits, 4);
        }
    }
    return ECH_OK;
}

ech_status echi_safetensors_load(const char *path, const struct ech_model *model, float *params, struct ech_error *err) {
    struct echi_tensors *list;
    uint8_t *file = NULL;
    size_t len, most;
    if (!echi_mul_size(model->n_params, 4, &most) || !echi_add_size(most, 8 + HEADER_MAX, &most)) most = SIZE_MAX;
    ECHI_TRY(list_weights(model, params, &list, err));
    ech_status status = echi_file_read(path, most, &file, &len, err);
    if (status == ECH_OK) status = echi_tensors_read(path, file, len, list, err);
    free(file);
    echi_tensors_destroy(list);
    return status;
}
