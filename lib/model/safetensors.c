/* SPDX-License-Identifier: Apache-2.0
 * Parameters as a safetensors file: eight bytes of header length, a JSON header that gives each tensor's dtype, shape and
 * place, then the data. Names and shapes are PyTorch's, so that either side reads the other's files.
 *
 * A file is foreign bytes: every length is checked before it is used, and `params` is written only when all is right.
 * What is allocated depends on the model and on the bytes that the file really has, on no number in it. */
#include "echi_model.h"
#include "echi_json_read.h"
#include "tensor_match.h"

#include "echi_bytes.h"
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_os.h"
#include "echi_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX ((size_t)100000000) /* the format's own bound */
/* Largest file that is read: so many bytes a parameter. A checkpoint may have, in F32, the weights and two moments for each
 * of 8 groups; F64 has 8. */
#define BYTES_PER_PARAM (4 * (1 + 2 * 8))
#define ENTRY_MIN (sizeof "\"\":{\"dtype\":\"\",\"shape\":[],\"data_offsets\":[0,0]}" - 1) /* bytes of a tensor in a header */

/* A tensor that the model has. */
struct tensor {
    struct echi_tensor_form form; /* its name: "conv1.weight" */
    float *values;                /* [count], where its set's are */
    size_t count;
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
    float *values = set->values ? set->values + (at - set->at) : NULL;
    *t = (struct tensor){.form = {.dims = 1, .shape = {count}}, .values = values, .count = count};
    struct echi_print p = {t->form.name, sizeof t->form.name, 0};
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
            weight->form.dims = 2;
            weight->form.shape[1] = l->weights / out;
        } else if (l->op == ECHI_OP_CONV2D) {
            weight->form.dims = 4;
            weight->form.shape[1] = (uint64_t)l->in.c;
            weight->form.shape[2] = (uint64_t)l->kernel_h;
            weight->form.shape[3] = (uint64_t)l->kernel_w;
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
    for (int i = 0; i < n_sets; i++)
        for (int k = sets[i].first; k < sets[i].end; k++) most += model->layers[k].weights ? 4 : 0;
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

/* --- saving --- */

/* What JSON would have to escape is for people only, and becomes '?'. */
void echi_word_text(struct echi_word *word, const char *text) {
    echi_printable_path(word->text, sizeof word->text, text);
    for (char *at = word->text; *at; at++)
        if (*at == '"' || *at == '\\') *at = '?';
}

size_t echi_tensors_header(const struct echi_tensors *list, const struct echi_word *words, int n_words, uint8_t *out, size_t cap) {
    const struct tensor *t = list->tensor;
    struct echi_print p = {(char *)out, out ? cap : 0, 8};
    size_t at = 0;
    for (int i = 0; i < n_words; i++)
        echi_print(&p, "%s\"%s\":\"%s\"", i ? "," : "{\"__metadata__\":{", words[i].key, words[i].text);
    if (n_words) echi_print(&p, "}");
    for (int i = 0; i < list->n; i++) {
        echi_print(&p, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":", i || n_words ? "," : "{", t[i].form.name);
        echi_print_shape(&p, &t[i].form);
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
    /* The keys that PyTorch's loaders know, and what a person would ask for. */
    enum { WORDS = 3 };
    struct echi_word words[WORDS] = {{.key = "format"}, {.key = "model"}, {.key = "version"}};
    struct echi_tensors *list;
    ECHI_TRY(list_weights(model, NULL, &list, err));
    echi_word_text(&words[0], "pt");
    echi_word_text(&words[1], model->name);
    echi_word_text(&words[2], ECH_VERSION);
    const size_t data_at = echi_tensors_header(list, words, WORDS, NULL, 0);
    size_t len;
    uint8_t *file = echi_mul_size(model->n_params, 4, &len) && echi_add_size(len, data_at + 1, &len) ? malloc(len) : NULL;
    if (!file) {
        echi_tensors_destroy(list);
        return echi_fail_memory(err, "safetensors.save", "the file's contents");
    }
    echi_tensors_header(list, words, WORDS, file, data_at + 1); /* the NUL behind it gives way to the data */
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

/* Element types that can be read; all become float. */
enum type { F32, F16, BF16, F64, TYPES };
static const struct { const char *name; size_t bytes; } types[TYPES] = {
    [F32] = {"F32", 4}, [F16] = {"F16", 2}, [BF16] = {"BF16", 2}, [F64] = {"F64", 8}};

/* A tensor as the file's header describes it. */
struct entry {
    struct echi_tensor_form form; /* its name fit for a message */
    bool plain;                   /* the name is just that: it may be compared with others */
    bool given;                   /* the header has it */
    char dtype[24];               /* fit for a message */
    int type;                     /* of enum type; TYPES: none of them */
    uint64_t begin, end;          /* its data */
};

/* Names for a sentence: the first few, and how many more there are. */
struct names {
    char text[136];
    struct echi_print p;
    int count;
};
enum { NAMES_SHOWN = 3 };

/* Where data of some tensor is, whether it is loaded or not. */
struct span { uint64_t begin, end; };

struct loader {
    char path[80]; /* fit for a message */
    const struct ech_model *model;
    const struct tensor *tensors; /* NULL: only the words are wanted */
    int n;
    bool foreign;            /* may be another program's: other names, other types, more in it than weights */
    struct entry *own;       /* [n] the file's tensors by the model's names: own[i] is for tensors[i]; */
    struct entry *strangers; /* [strangers_cap] those of other names, behind `own`; */
    int n_strangers;         /* so many, of which only the first are there if they are too many for the model */
    int strangers_cap;
    struct names left_out; /* entries that are no parameters */
    struct span *spans;    /* of all entries */
    size_t n_spans;
    const struct entry **from; /* [n] what each of `tensors` is loaded from */
    bool by_order;             /* and not by name */
    void (*word)(void *self, const char *key, const char *text); /* may be NULL */
    void *word_self;
    const uint8_t *data;
    size_t data_len;
    struct echi_json json;
    struct ech_error *err;
};

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

/* False: the name is too long, or has bytes that cannot be shown. */
static bool keep_name(char *out, size_t cap, const struct echi_json_string *name) {
    const size_t kept = name->len < sizeof name->text ? name->len : sizeof name->text;
    echi_printable(out, cap, name->text, kept);
    return name->len < cap && echi_json_equal(name, out);
}

static ech_status read_entry(struct loader *l, struct entry *e) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    enum { DTYPE, SHAPE, OFFSETS, KEYS };
    unsigned given = 0;
    int offsets = 0;
    uint64_t offset[2] = {0, 0};
    struct echi_json_string key, dtype = {.len = 0};
    echi_json_object(&l->json);
    while (echi_json_member(&l->json, &key)) {
        int k = 0;
        while (k < KEYS && !echi_json_equal(&key, keys[k])) k++;
        if (k == KEYS || given >> k & 1)
            return refuse(l, ECH_E_FORMAT, "tensor '%.36s' has %s in its header: is the file damaged?", e->form.name,
                          k == KEYS ? "a key besides dtype, shape and data_offsets" : "a key twice");
        given |= 1u << k;
        if (k == DTYPE) echi_json_string(&l->json, &dtype);
        if (k == SHAPE) e->form.dims = read_numbers(&l->json, e->form.shape, ECHI_TENSOR_DIMS);
        if (k == OFFSETS) offsets = read_numbers(&l->json, offset, 2);
    }
    if (l->json.wrong) return bad_json(l);
    if (given != (1u << KEYS) - 1 || offsets != 2)
        return refuse(l, ECH_E_FORMAT, "tensor '%.36s' must have a dtype, a shape and two data_offsets in its header", e->form.name);
    e->begin = offset[0];
    e->end = offset[1];
    keep_name(e->dtype, sizeof e->dtype, &dtype);
    for (e->type = 0; e->type < TYPES && !echi_json_equal(&dtype, types[e->type].name);) e->type++;
    e->given = true;
    return ECH_OK;
}

static bool ends_with(const char *text, const char *end) {
    const size_t len = strlen(text), n = strlen(end);
    return len >= n && !strcmp(text + len - n, end);
}

/* What belongs to training and not to the trained model: batch-norm's count of batches, which a running average with a fixed
 * rate does not need; and what an optimiser keeps, as our checkpoints name it ("momentum.0.conv1.weight") and as the
 * entries of PyTorch's optimisers are called. */
static bool is_no_parameter(const char *name) {
    static const char *const groups[] = {"momentum.", "second."};
    static const char *const ends[] = {"num_batches_tracked", ".momentum_buffer", ".exp_avg", ".exp_avg_sq", ".max_exp_avg_sq", ".step"};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const char *at = name + strlen(groups[i]);
        if (strncmp(name, groups[i], strlen(groups[i])) != 0 || *at < '0' || *at > '9') continue;
        while (*at >= '0' && *at <= '9') at++;
        if (*at == '.') return true;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i])) return true;
    return strncmp(name, "optimizer.", 10) == 0;
}

/* Where an entry belongs goes by its name. */
static ech_status keep_entry(struct loader *l, const struct entry *e) {
    int i = 0;
    while (i < l->n && !(e->plain && !strcmp(e->form.name, l->tensors[i].form.name))) i++;
    if (i < l->n && l->own[i].given) return refuse(l, ECH_E_FORMAT, "tensor '%s' is there twice", e->form.name);
    l->spans[l->n_spans++] = (struct span){e->begin, e->end};
    if (i < l->n) l->own[i] = *e;
    else if (l->foreign && e->plain && is_no_parameter(e->form.name)) add_name(&l->left_out, e->form.name);
    else if (l->n_strangers++ < l->strangers_cap) l->strangers[l->n_strangers - 1] = *e;
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
    bool metadata = false;
    echi_json_object(&l->json);
    while (echi_json_member(&l->json, &name)) {
        struct entry e = {.given = false};
        if (echi_json_equal(&name, "__metadata__")) {
            if (metadata) return refuse(l, ECH_E_FORMAT, "'__metadata__' is there twice");
            metadata = true;
            read_metadata(l);
            continue;
        }
        e.plain = keep_name(e.form.name, sizeof e.form.name, &name);
        ECHI_TRY(read_entry(l, &e));
        if (l->tensors) ECHI_TRY(keep_entry(l, &e));
    }
    return echi_json_end(&l->json) ? ECH_OK : bad_json(l);
}

/* Finds the header and what is behind it. */
static ech_status open_bytes(struct loader *l, const uint8_t *file, size_t len) {
    if (len < 8) return refuse(l, ECH_E_FORMAT, "has %zu bytes, too few for a safetensors file", len);
    const uint64_t header = echi_load64(file);
    if (header > HEADER_MAX && (!memcmp(file, "PK\3\4", 4) || !memcmp(file, "\x80\2", 2)))   /* a zip archive, or a bare pickle */
        return refuse(l, ECH_E_UNSUPPORTED, "a file of torch.save, which may run code when it is opened: write the state_dict with "
                                            "safetensors.torch.save_file and give that file");
    if (header > HEADER_MAX || header > len - 8)
        return refuse(l, ECH_E_FORMAT,
                      "its header would have %" PRIu64 " bytes but the file has %zu: cut short, or no safetensors file?", header,
                      len);
    l->data = file + 8 + (size_t)header;
    l->data_len = len - 8 - (size_t)header;
    echi_json_begin(&l->json, file + 8, (size_t)header);
    return ECH_OK;
}

static void free_loader(struct loader *l) {
    free(l->own);
    free(l->spans);
    free(l->from);
}

/* What depends on the model, and on the length that the header really has. */
static ech_status alloc_loader(struct loader *l) {
    l->strangers_cap = (l->foreign ? l->n : 0) + NAMES_SHOWN;
    l->own = calloc((size_t)(l->n + l->strangers_cap), sizeof *l->own);
    l->from = calloc((size_t)l->n + 1, sizeof *l->from);
    l->spans = calloc((size_t)(l->json.end - l->json.begin) / ENTRY_MIN + 1, sizeof *l->spans);
    if (!l->own || !l->from || !l->spans) return echi_fail_memory(l->err, "safetensors.load", "the list of tensors");
    l->strangers = l->own + l->n;
    return ECH_OK;
}

static ech_status refuse_names(const struct loader *l, const char *order) {
    struct names missing = {.count = 0}, extra = {.count = 0};
    for (int i = 0; i < l->n; i++)
        if (!l->own[i].given) add_name(&missing, l->tensors[i].form.name);
    for (int i = 0; i < l->n_strangers; i++) add_name(&extra, i < l->strangers_cap ? l->strangers[i].form.name : "");
    if (order[0] && 2 * missing.count > l->n)   /* hardly any name is the model's: somebody counts on the order */
        return refuse(l, ECH_E_SHAPE, "its names are not those of model '%s', nor does it fit by the order of its names: %s",
                      l->model->name, order);
    return refuse(l, ECH_E_SHAPE, "not the parameters of model '%s': %s%s%s%s%s; give the file of this model", l->model->name,
                  missing.count ? "it lacks " : "", missing.count ? end_names(&missing) : "",
                  missing.count && extra.count ? " and " : "", extra.count ? "it has besides " : "",
                  extra.count ? end_names(&extra) : "");
}

/* All parameters of the file, whatever their names, against all of the model's. */
static ech_status match_order(struct loader *l) {
    const struct echi_tensor_form **forms = calloc(2 * (size_t)l->n + 1, sizeof *forms);   /* the model's, then the file's */
    const struct entry **entry = calloc((size_t)l->n + 1, sizeof *entry);
    int *match = calloc((size_t)l->n + 1, sizeof *match), count = 0;
    char why[200];
    ech_status status = ECH_OK;
    if (!forms || !entry || !match) {
        status = echi_fail_memory(l->err, "safetensors.load", "the list of tensors");
        goto out;
    }
    for (int i = 0; i < l->n; i++) count += l->own[i].given;
    count += l->n_strangers;
    for (int i = 0, k = 0; count == l->n && i < l->n + l->strangers_cap; i++) {
        if (!l->own[i].given) continue;
        entry[k] = &l->own[i];
        forms[l->n + k++] = &l->own[i].form;
    }
    for (int i = 0; i < l->n; i++) forms[i] = &l->tensors[i].form;
    if (count != l->n) {
        snprintf(why, sizeof why, "it has %d parameters, the model has %d", count, l->n);
        status = refuse_names(l, why);
    } else if (!echi_match_order(l->model, forms, forms + l->n, l->n, match, why, sizeof why)) {
        status = refuse_names(l, why);
    } else {
        for (int i = 0; i < l->n; i++) l->from[i] = entry[match[i]];
        l->by_order = true;
    }
out:
    free(forms);
    free(entry);
    free(match);
    return status;
}

/* Whether a tensor of the file can be the model's. */
static ech_status check_entry(const struct loader *l, const struct tensor *t, const struct entry *e) {
    const char *name = e->form.name;
    if (e->type == TYPES || (e->type != F32 && !l->foreign))
        return refuse(l, ECH_E_UNSUPPORTED, "tensor '%s' has dtype %s, only F32%s can be read: convert the file to float32", name,
                      e->dtype, l->foreign ? ", F16, BF16 and F64" : "");
    if (!echi_same_shape(&e->form, &t->form)) {
        char has[120], needs[120];
        struct echi_print h = {has, sizeof has, 0}, w = {needs, sizeof needs, 0};
        echi_print_shape(&h, &e->form);
        echi_print_shape(&w, &t->form);
        return refuse(l, ECH_E_SHAPE, "tensor '%s' has shape %s but model '%s' needs %s: give the file of this model", name, has,
                      l->model->name, needs);
    }
    const uint64_t bytes = types[e->type].bytes * (uint64_t)t->count;
    if (e->end < e->begin || e->end - e->begin != bytes)
        return refuse(l, ECH_E_FORMAT, "tensor '%s' needs %" PRIu64 " bytes but its data_offsets are [%" PRIu64 ",%" PRIu64 "]", name,
                      bytes, e->begin, e->end);
    if (e->end > l->data_len)
        return refuse(l, ECH_E_FORMAT,
                      "tensor '%s' ends at byte %" PRIu64 " of the data but the file has only %zu: is it cut short?", name, e->end,
                      l->data_len);
    return ECH_OK;
}

/* Decides what each tensor of the model is loaded from. */
static ech_status match(struct loader *l) {
    int given = 0;
    for (int i = 0; i < l->n; i++) {
        l->from[i] = &l->own[i];
        given += l->own[i].given;
    }
    if (given == l->n && l->n_strangers == 0) return ECH_OK;
    if (l->foreign && given < l->n && l->n_strangers > 0) return match_order(l);
    for (int i = 0; i < l->n; i++)   /* a tensor of the model's name and another shape says more than the names that are missing */
        if (l->own[i].given) ECHI_TRY(check_entry(l, &l->tensors[i], &l->own[i]));
    return refuse_names(l, "");
}

static int by_begin(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The data must be covered exactly: a hole could hide something, an overlap make one weight two. */
static ech_status check_cover(const struct loader *l) {
    uint64_t covered = 0;
    qsort(l->spans, l->n_spans, sizeof *l->spans, by_begin);
    for (size_t i = 0; i < l->n_spans; i++) {
        const struct span *s = &l->spans[i];
        if (s->end < s->begin)
            return refuse(l, ECH_E_FORMAT, "a tensor has data_offsets [%" PRIu64 ",%" PRIu64 "]: is the file damaged?", s->begin, s->end);
        if (s->begin != covered)
            return refuse(l, ECH_E_FORMAT, "a tensor begins at byte %" PRIu64 " of the data but the one before ends at %" PRIu64,
                          s->begin, covered);
        covered = s->end;
    }
    if (covered != l->data_len)
        return refuse(l, ECH_E_FORMAT, "its data has %zu bytes but its tensors end at %" PRIu64, l->data_len, covered);
    return ECH_OK;
}

static uint32_t f16_bits(uint16_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    if (exponent == 0x1f) return sign | 0x7f800000 | fraction << 13;
    if (exponent) return sign | (exponent + 112) << 23 | fraction << 13;
    const float small = (float)fraction * 0x1p-24f; /* subnormal there, normal here: exact */
    uint32_t bits;
    memcpy(&bits, &small, sizeof bits);
    return sign | bits;
}

/* One element as the bits of a float, which a signalling NaN would not survive as a float. Only F64 is rounded, to the nearest,
 * ties to even; what is finite may so become infinite. */
static uint32_t element(int type, const uint8_t *bytes) {
    if (type == F32) return echi_load32(bytes);
    if (type == BF16) return (uint32_t)echi_load16(bytes) << 16;
    if (type == F16) return f16_bits(echi_load16(bytes));
    const uint64_t wide = echi_load64(bytes);
    double d;
    memcpy(&d, &wide, sizeof d);
    const float value = (float)d;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static ech_status check_range(const struct loader *l, const struct entry *e) {
    if (e->type != F64) return ECH_OK;
    for (const uint8_t *at = l->data + e->begin; at < l->data + e->end; at += 8) {
        const uint64_t wide = echi_load64(at);
        double d;
        memcpy(&d, &wide, sizeof d);
        if (isfinite(d) && (element(F64, at) & 0x7fffffff) == 0x7f800000)
            return refuse(l, ECH_E_FORMAT, "tensor '%s' has %g, which is too large for float32: scale the weights, or train them anew",
                          e->form.name, d);
    }
    return ECH_OK;
}

/* Everything but taking the values. */
static ech_status read_file(struct loader *l, const uint8_t *file, size_t len) {
    ECHI_TRY(open_bytes(l, file, len));
    ECHI_TRY(alloc_loader(l));
    ECHI_TRY(read_header(l));
    ECHI_TRY(match(l));
    for (int i = 0; i < l->n; i++) ECHI_TRY(check_entry(l, &l->tensors[i], l->from[i]));
    ECHI_TRY(check_cover(l));
    for (int i = 0; i < l->n; i++) ECHI_TRY(check_range(l, l->from[i]));
    return ECH_OK;
}

static ech_status load(struct loader *l, const char *path, const uint8_t *file, size_t len) {
    echi_printable_path(l->path, sizeof l->path, path);
    const ech_status status = read_file(l, file, len);
    for (int i = 0; status == ECH_OK && i < l->n; i++) {
        const struct entry *e = l->from[i];
        const uint8_t *at = l->data + (size_t)e->begin;
        for (size_t k = 0; k < l->tensors[i].count; k++) {
            const uint32_t bits = element(e->type, at + types[e->type].bytes * k);
            memcpy(&l->tensors[i].values[k], &bits, sizeof bits);
        }
    }
    return status;
}

/* What was done with a file that is not just the model's, in a line; and tensor by tensor for who wants to know. */
static void report(struct loader *l, echi_log *log, void *user) {
    char line[400];
    unsigned converted = 0;
    struct echi_print p = {line, sizeof line, 0};
    for (int i = 0; i < l->n; i++) converted |= (unsigned)(l->from[i]->type != F32) << l->from[i]->type;
    if (!log || !(l->by_order || converted || l->left_out.count)) return;
    echi_print(&p, "%s:", l->path);
    if (l->by_order)
        echi_print(&p, " its names are not the model's: its %d parameters were taken by the order of their names and by their shapes",
                   l->n);
    for (int type = 0; type < TYPES; type++)
        if (converted >> type & 1) echi_print(&p, "%s converted from %s", p.buf[p.len - 1] == ':' ? "" : ";", types[type].name);
    if (l->left_out.count) echi_print(&p, "%s left out %s", p.buf[p.len - 1] == ':' ? "" : ";", end_names(&l->left_out));
    log(user, l->by_order ? ECH_LOG_WARN : ECH_LOG_INFO, line);
    for (int i = 0; i < l->n; i++) {
        p = (struct echi_print){line, sizeof line, 0};
        echi_print(&p, "%s ", l->tensors[i].form.name);
        echi_print_shape(&p, &l->tensors[i].form);
        echi_print(&p, " is '%s' (%s)", l->from[i]->form.name, l->from[i]->dtype);
        log(user, ECH_LOG_DEBUG, line);
    }
}

ech_status echi_tensors_words(const char *path, const uint8_t *file, size_t len,
                              void (*each)(void *self, const char *key, const char *text), void *self, struct ech_error *err) {
    struct loader l = {.err = err, .word = each, .word_self = self};
    echi_printable_path(l.path, sizeof l.path, path);
    ECHI_TRY(open_bytes(&l, file, len));
    return read_header(&l);
}

ech_status echi_tensors_read(const char *path, const uint8_t *file, size_t len, struct echi_tensors *list, struct ech_error *err) {
    struct loader l = {.model = list->model, .tensors = list->tensor, .n = list->n, .err = err};
    const ech_status status = load(&l, path, file, len);
    free_loader(&l);
    return status;
}

ech_status echi_safetensors_load(const char *path, const struct ech_model *model, float *params, echi_log *log, void *user,
                                 struct ech_error *err) {
    struct echi_tensors *list;
    uint8_t *file = NULL;
    size_t len, most;
    if (!echi_mul_size(model->n_params, BYTES_PER_PARAM, &most) || !echi_add_size(most, 8 + HEADER_MAX, &most)) most = SIZE_MAX;
    ECHI_TRY(list_weights(model, params, &list, err));
    struct loader l = {.model = model, .tensors = list->tensor, .n = list->n, .foreign = true, .err = err};
    ech_status status = echi_file_read(path, most, &file, &len, err);
    if (status == ECH_OK) status = load(&l, path, file, len);
    if (status == ECH_OK) report(&l, log, user);
    free_loader(&l);
    free(file);
    echi_tensors_destroy(list);
    return status;
}
