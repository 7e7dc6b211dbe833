/* SPDX-License-Identifier: Apache-2.0
 * The text form of a model, one layer a line: reading it (with the line and word in every complaint), writing it, its
 * fingerprint. */
#include "echi_model.h"

#include "echi_error.h"
#include "echi_os.h"
#include "echi_print.h"
#include "echi_sha256.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX ((size_t)1 << 20) /* bytes of a model file */

/* The grammar: which word opens a layer and which keys, each with a number, may follow it. All may say `from`. */
enum key { OUT, KERNEL, STRIDE, PAD, BIAS, WITH, P, FROM, KEYS };
static const char *const key_words[KEYS] = {[OUT] = "out", [KERNEL] = "kernel", [STRIDE] = "stride", [PAD] = "pad", [BIAS] = "bias",
                                            [WITH] = "with", [P] = "p", [FROM] = "from"};
enum { HAS_OUT = 1 << OUT, HAS_KERNEL = 1 << KERNEL, HAS_STRIDE = 1 << STRIDE, HAS_PAD = 1 << PAD, HAS_BIAS = 1 << BIAS,
       HAS_WITH = 1 << WITH, HAS_P = 1 << P, HAS_FROM = 1 << FROM };
static const struct form {
    const char *word;
    unsigned needs, allows;
} forms[] = {
    [ECHI_OP_CONV2D] = {"conv2d", HAS_OUT | HAS_KERNEL, HAS_OUT | HAS_KERNEL | HAS_STRIDE | HAS_PAD | HAS_BIAS | HAS_FROM},
    [ECHI_OP_FC] = {"fc", HAS_OUT, HAS_OUT | HAS_BIAS | HAS_FROM},
    [ECHI_OP_MAX_POOL] = {"max_pool", HAS_KERNEL, HAS_KERNEL | HAS_STRIDE | HAS_PAD | HAS_FROM},
    [ECHI_OP_AVG_POOL] = {"avg_pool", HAS_KERNEL, HAS_KERNEL | HAS_STRIDE | HAS_PAD | HAS_FROM},
    [ECHI_OP_RELU] = {"relu", 0, HAS_FROM},
    [ECHI_OP_GLOBAL_AVG_POOL] = {"global_avg_pool", 0, HAS_FROM},
    [ECHI_OP_ADD] = {"add", HAS_WITH, HAS_WITH | HAS_FROM},
    [ECHI_OP_DROPOUT] = {"dropout", HAS_P, HAS_P | HAS_FROM},
    [ECHI_OP_TANH] = {"tanh", 0, HAS_FROM},
    [ECHI_OP_BATCH_NORM] = {"batch_norm", 0, HAS_FROM},
};
#define FORMS (sizeof forms / sizeof *forms)

/* --- reading --- */

struct word {
    const char *at;
    size_t len;
};

/* Where the reader is, for its messages and for its next word. */
struct reader {
    char name[120]; /* of the text, fit for a message */
    int line;
    const char *at, *end; /* what is left of the line */
    struct ech_error *err;
    int line_of[ECHI_LAYERS_MAX]; /* each layer's */
};

/* A refusal: its sentence begins with the text's name and the line. */
static ech_status complain(const struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static ech_status complain(const struct reader *r, const char *fmt, ...) {
    char text[320];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return echi_fail(r->err, ECH_E_FORMAT, "model.parse", "%s:%d: %s", r->name, r->line, text);
}

static bool is_space(char c) { return c == ' ' || c == '\t'; }

static bool next_word(struct reader *r, struct word *w) {
    while (r->at < r->end && is_space(*r->at)) r->at++;
    w->at = r->at;
    while (r->at < r->end && !is_space(*r->at)) r->at++;
    w->len = (size_t)(r->at - w->at);
    return w->len > 0;
}

static bool word_is(struct word w, const char *text) { return w.len == strlen(text) && !memcmp(w.at, text, w.len); }

/* For messages: at most 40 characters of the word. Each call's result lives in the caller's buffer. */
struct shown {
    char text[44];
};
static const char *show(struct word w, struct shown *s) { return echi_printable(s->text, sizeof s->text, w.at, w.len); }

/* "'kernal' is ...: did you mean 'kernel'? Known here: out, kernel, stride, pad". */
static ech_status unknown_word(const struct reader *r, struct word w, const char *what, const char *const *known, size_t count) {
    char list[120];
    struct echi_print p = {list, sizeof list, 0};
    const char *nearest = echi_nearest(w.at, w.len, known, count);
    for (size_t i = 0; i < count; i++) echi_print(&p, "%s%s", i ? ", " : "", known[i]);
    struct shown s;
    if (nearest) return complain(r, "'%s' is no %s: did you mean '%s'? (known: %s)", show(w, &s), what, nearest, list);
    return complain(r, "'%s' is no %s: use one of %s", show(w, &s), what, list);
}

static ech_status read_number(struct reader *r, struct word after, int *out) {
    struct word w;
    struct shown s, n;
    if (!next_word(r, &w)) return complain(r, "'%s' must be followed by a number", show(after, &s));
    int value = 0;
    for (size_t i = 0; i < w.len; i++) {
        bool digit = w.at[i] >= '0' && w.at[i] <= '9';
        if (digit) value = value * 10 + (w.at[i] - '0');
        if (!digit || value > ECHI_DIM_MAX)
            return complain(r, "'%s' after '%s' is not a whole number from 0 to %d", show(w, &n), show(after, &s), ECHI_DIM_MAX);
    }
    *out = value;
    return ECH_OK;
}

/* "0.5", as millionths; six digits behind the point say all that can be told apart. */
static ech_status read_fraction(struct reader *r, struct word after, int *out) {
    struct word w;
    struct shown s, n;
    if (!next_word(r, &w)) return complain(r, "'%s' must be followed by a number", show(after, &s));
    int value = 0;
    bool right = w.len >= 1 && w.len <= 8 && w.at[0] == '0' && (w.len == 1 || (w.len > 2 && w.at[1] == '.'));
    for (size_t i = 2; right && i < 8; i++) {
        const char digit = i < w.len ? w.at[i] : '0';
        right = digit >= '0' && digit <= '9';
        value = value * 10 + (digit - '0');
    }
    if (!right)
        return complain(r, "'%s' after '%s' is not a number from 0 to 0.999999 with at most six digits behind the point", show(w, &n),
                        show(after, &s));
    *out = value;
    return ECH_OK;
}

static ech_status read_end_of_line(struct reader *r) {
    struct word w;
    struct shown s;
    return next_word(r, &w) ? complain(r, "'%s' is too much on this line: remove it", show(w, &s)) : ECH_OK;
}

static ech_status read_input(struct reader *r, struct word first, struct ech_model **model) {
    int c, h, w;
    if (*model) return complain(r, "a second 'input': a model has one, on its first line");
    ECHI_TRY(read_number(r, first, &c));
    ECHI_TRY(read_number(r, first, &h));
    ECHI_TRY(read_number(r, first, &w));
    ECHI_TRY(read_end_of_line(r));
    struct ech_error why;
    ech_status status = ech_model_create(c, h, w, model, &why);
    return status ? echi_fail(r->err, status, "model.parse", "%s:%d: %s", r->name, r->line, why.text) : ECH_OK;
}

static ech_status read_keys(struct reader *r, struct word first, const struct form *form, int value[KEYS], unsigned *given) {
    struct word w;
    struct shown s, k;
    while (next_word(r, &w)) {
        const char *known[KEYS];
        size_t count = 0, key = KEYS;
        for (size_t i = 0; i < KEYS; i++) {
            if (!(form->allows >> i & 1)) continue;
            known[count++] = key_words[i];
            if (word_is(w, key_words[i])) key = i;
        }
        if (key == KEYS) {
            char what[40];
            snprintf(what, sizeof what, "key of '%s'", form->word);
            return unknown_word(r, w, what, known, count);
        }
        if (*given >> key & 1) return complain(r, "'%s' is given twice", show(w, &k));
        *given |= 1u << key;
        ECHI_TRY(key == P ? read_fraction(r, w, &value[key]) : read_number(r, w, &value[key]));
    }
    for (size_t i = 0; i < KEYS; i++)
        if (form->needs & ~*given & 1u << i) return complain(r, "'%s' needs '%s' and a number", show(first, &s), key_words[i]);
    return ECH_OK;
}

static ech_status read_layer(struct reader *r, struct word first, struct ech_model *model) {
    size_t op = 0;
    while (op < FORMS && !word_is(first, forms[op].word)) op++;
    if (op == FORMS) {
        const char *known[FORMS + 1];
        for (size_t i = 0; i < FORMS; i++) known[i] = forms[i].word;
        known[FORMS] = "input";
        return unknown_word(r, first, "layer", known, FORMS + 1);
    }
    if (!model) return complain(r, "'%s' comes before 'input': begin with 'input CHANNELS HEIGHT WIDTH'", forms[op].word);
    int value[KEYS] = {0};
    unsigned given = 0;
    ECHI_TRY(read_keys(r, first, &forms[op], value, &given));
    if (given & HAS_FROM) ech_model_from(model, value[FROM]);
    if (given & HAS_BIAS && value[BIAS] > 1) return complain(r, "'bias' is 0 or 1, not %d", value[BIAS]);
    if (given & HAS_BIAS && !value[BIAS]) ech_model_without_bias(model);
    if (!(given & HAS_STRIDE)) value[STRIDE] = op == ECHI_OP_CONV2D ? 1 : value[KERNEL];
    switch ((enum echi_op)op) {
    case ECHI_OP_CONV2D:
        ech_model_conv2d(model, value[OUT], value[KERNEL], value[STRIDE], value[PAD]);
        break;
    case ECHI_OP_FC:
        ech_model_fc(model, value[OUT]);
        break;
    case ECHI_OP_MAX_POOL:
        ech_model_max_pool(model, value[KERNEL], value[STRIDE], value[PAD]);
        break;
    case ECHI_OP_AVG_POOL:
        ech_model_avg_pool(model, value[KERNEL], value[STRIDE], value[PAD]);
        break;
    case ECHI_OP_RELU:
        ech_model_relu(model);
        break;
    case ECHI_OP_GLOBAL_AVG_POOL:
        ech_model_global_avg_pool(model);
        break;
    case ECHI_OP_ADD:
        ech_model_add(model, value[WITH]);
        break;
    case ECHI_OP_DROPOUT:
        ech_model_dropout(model, (double)value[P] / ECHI_WHOLE);
        break;
    case ECHI_OP_TANH:
        ech_model_tanh(model);
        break;
    case ECHI_OP_BATCH_NORM:
        ech_model_batch_norm(model);
        break;
    case ECHI_OPS:
        break;
    }
    if (!model->broken) {
        r->line_of[model->n_layers - 1] = r->line;
        return ECH_OK;
    }
    return echi_fail_at(r->err, model->error.code, "model.parse", -1, model->error.layer, "%s:%d: '%s' does not fit: %s", r->name,
                        r->line, forms[op].word, model->error.text);
}

static ech_status read_line(struct reader *r, struct ech_model **model) {
    if (memchr(r->at, 0, (size_t)(r->end - r->at))) return complain(r, "a NUL byte: this is no text file");
    const char *comment = memchr(r->at, '#', (size_t)(r->end - r->at));
    if (comment)
        r->end = comment;
    else if (r->end > r->at && r->end[-1] == '\r')
        r->end--;
    struct word first;
    if (!next_word(r, &first)) return ECH_OK;
    return word_is(first, "input") ? read_input(r, first, model) : read_layer(r, first, *model);
}

static ech_status read_lines(struct reader *r, const char *text, size_t len, struct ech_model **model) {
    const char *at = text, *end = text + len;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        r->line++;
        r->at = at;
        r->end = newline ? newline : end;
        at = newline ? newline + 1 : end;
        ECHI_TRY(read_line(r, model));
    }
    if (!*model)
        return echi_fail(r->err, ECH_E_FORMAT, "model.parse", "%s: has no 'input' line: begin with 'input CHANNELS HEIGHT WIDTH'",
                         r->name);
    if (!(*model)->n_layers)
        return echi_fail(r->err, ECH_E_FORMAT, "model.parse", "%s: has no layers: add at least one 'fc out CLASSES'", r->name);
    const int unread = echi_model_unread(*model);
    if (unread < 0) return ECH_OK;
    r->line = r->line_of[unread];
    return complain(r, "no layer takes the output of '%s', layer %d: remove it, or let a later layer say 'from %d' or 'add with %d'",
                    forms[(*model)->layers[unread].op].word, unread + 1, unread + 1, unread + 1);
}

ech_status ech_model_parse(const char *text, size_t len, const char *name, ech_model **out_model, struct ech_error *err) {
    if (!out_model || !text) return echi_fail(err, ECH_E_ARGUMENT, "model.parse", "%s is NULL", out_model ? "text" : "out_model");
    struct reader r = {.err = err};
    struct ech_model *model = NULL;
    if (!name) name = "model text";
    echi_printable_path(r.name, sizeof r.name, name);
    if (len > TEXT_MAX)
        return echi_fail(err, ECH_E_FORMAT, "model.parse",
                         "%s: has %zu bytes, but a model's text is at most %zu: is this a model file?", r.name, len, TEXT_MAX);
    ech_status status = read_lines(&r, text, len, &model);
    if (status) {
        ech_model_destroy(model);
        return status;
    }
    const char *slash = strrchr(name, '/'), *file = slash ? slash + 1 : name;
    echi_printable(model->name, sizeof model->name, file, strlen(file));
    *out_model = model;
    return ECH_OK;
}

ech_status ech_model_open(const char *name_or_path, ech_model **out_model, struct ech_error *err) {
    if (!name_or_path || !out_model)
        return echi_fail(err, ECH_E_ARGUMENT, "model.open", "%s is NULL", out_model ? "name_or_path" : "out_model");
    char list[64];
    struct echi_print p = {list, sizeof list, 0};
    for (const struct echi_builtin *b = echi_builtins; b->name; b++) {
        if (!strcmp(name_or_path, b->name)) return ech_model_parse(b->text, strlen(b->text), name_or_path, out_model, err);
        echi_print(&p, "%s%s", b > echi_builtins ? ", " : "", b->name);
    }
    uint8_t *bytes = NULL;
    size_t len = 0;
    struct ech_error why;
    ech_status status = echi_file_read(name_or_path, TEXT_MAX, &bytes, &len, &why);
    if (status) {
        char shown[120];
        return echi_fail(err, status, "model.open",
                         "'%s' is no built-in model (there is: %s) and no model file that can be read: %s",
                         echi_printable_path(shown, sizeof shown, name_or_path), list, why.text);
    }
    status = ech_model_parse((const char *)bytes, len, name_or_path, out_model, err);
    free(bytes);
    return status;
}

/* --- writing --- */

/* Six digits behind the point, without zeros at the end. */
static void print_fraction(struct echi_print *p, const char *word, uint32_t millionths) {
    int digits = 6;
    while (digits > 1 && millionths % 10 == 0) millionths /= 10, digits--;
    echi_print(p, " %s 0.%0*u", word, digits, (unsigned)millionths);
}

/* Line `i` of the canonical text, every key written out but a `from` or `bias` that says what is so anyway; line 0 is the input,
 * line i + 1 layer i. */
static void print_line(const struct ech_model *model, int i, struct echi_print *p) {
    if (i == 0) {
        echi_print(p, "input %d %d %d\n", model->input.c, model->input.h, model->input.w);
        return;
    }
    const struct echi_layer *layer = &model->layers[i - 1];
    const int value[KEYS] = {[OUT] = layer->out.c, [KERNEL] = layer->kernel_h, [STRIDE] = layer->stride_h, [PAD] = layer->pad_h,
                             [BIAS] = layer->bias, [WITH] = echi_layer_adds(model->layers, i - 1),
                             [FROM] = echi_layer_takes(model->layers, i - 1)};
    echi_print(p, "%s", forms[layer->op].word);
    for (int k = 0; k < KEYS; k++) {
        if (!(forms[layer->op].allows >> k & 1) || (k == FROM && layer->skip == 0) || (k == BIAS && layer->bias)) continue;
        if (k == P) print_fraction(p, key_words[k], layer->drop);
        else echi_print(p, " %s %d", key_words[k], value[k]);
    }
    echi_print(p, "\n");
}

size_t ech_model_text(const ech_model *model, char *buf, size_t cap) {
    struct echi_print p = {buf, cap, 0};
    struct ech_error why;
    if (ech_model_finish(model, &why))
        echi_print(&p, "# not a whole model: %s\n", why.text);
    else
        for (int i = 0; i <= model->n_layers; i++) print_line(model, i, &p);
    return p.len;
}

void echi_model_hash(const struct ech_model *model, char out[65]) {
    struct echi_sha256 sha;
    uint8_t digest[32];
    echi_sha256_begin(&sha);
    for (int i = 0; i <= model->n_layers; i++) {
        char line[80];
        struct echi_print p = {line, sizeof line, 0};
        print_line(model, i, &p);
        echi_sha256_add(&sha, line, p.len);
    }
    echi_sha256_end(&sha, digest);
    echi_sha256_hex(digest, out);
}
