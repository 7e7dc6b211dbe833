/* SPDX-License-Identifier: Apache-2.0
 * Tensors of a file matched with those of the model by the order of their names and by their shapes. */
#include "tensor_match.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum part { WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR, PARTS };
static const char *const part_names[PARTS] = {"weight", "bias", "running_mean", "running_var"};

/* The tensors of one layer. */
struct layer {
    const char *name; /* [len]: theirs, up to the last '.' */
    int len;
    const struct echi_tensor_form *part[PARTS]; /* NULL: it has none */
    int index[PARTS];                           /* in the list they come from */
    int number;                                 /* of the model's: which layer; of the file's: -1, or whom it is matched with */
};

/* All layers of one side. */
struct side { struct layer *layer; int count; };

bool echi_same_shape(const struct echi_tensor_form *a, const struct echi_tensor_form *b) {
    return a->dims == b->dims && a->dims <= ECHI_TENSOR_DIMS && !memcmp(a->shape, b->shape, (size_t)a->dims * sizeof *a->shape);
}

void echi_print_shape(struct echi_print *p, const struct echi_tensor_form *form) {
    echi_print(p, "[");
    for (int d = 0; d < form->dims && d < ECHI_TENSOR_DIMS; d++) echi_print(p, "%s%" PRIu64, d ? "," : "", form->shape[d]);
    echi_print(p, "]");
}

static bool is_norm(const struct layer *l) { return l->part[RUNNING_MEAN] != NULL; }

static bool alike(const struct layer *a, const struct layer *b) {
    for (int i = 0; i < PARTS; i++)
        if (!a->part[i] != !b->part[i] || (a->part[i] && !echi_same_shape(a->part[i], b->part[i]))) return false;
    return true;
}

/* Tensor i of the list; false: no part of a layer has its name, or one that is there already. */
static bool add(struct side *side, const struct echi_tensor_form *form, int i) {
    const char *dot = strrchr(form->name, '.'), *word = dot ? dot + 1 : form->name;
    const int len = dot ? (int)(dot - form->name) : 0;
    int part = 0, at = 0;
    while (part < PARTS && strcmp(word, part_names[part]) != 0) part++;
    if (part == PARTS) return false;
    while (at < side->count && (side->layer[at].len != len || memcmp(side->layer[at].name, form->name, (size_t)len) != 0)) at++;
    struct layer *l = &side->layer[at];
    if (at == side->count) *l = (struct layer){.name = form->name, .len = len, .number = -1}, side->count++;
    if (l->part[part]) return false;
    l->part[part] = form;
    l->index[part] = i;
    return true;
}

/* ------------------------------------------------------- order of names */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Digits from `at` on, without leading zeros. */
static int digits(const struct layer *l, int *at) {
    int end = *at;
    while (end < l->len && is_digit(l->name[end])) end++;
    while (*at + 1 < end && l->name[*at] == '0') ++*at;
    return end - *at;
}

/* Below 0: a's name is before b's; above: behind. 0: only letters tell them apart. "fc" is before "fc2". */
static int compare(const struct layer *a, const struct layer *b) {
    int at = 0;
    while (at < a->len && at < b->len && a->name[at] == b->name[at]) at++;
    while (at > 0 && is_digit(a->name[at - 1])) at--; /* a number is compared as one */
    const bool number_a = at < a->len && is_digit(a->name[at]), number_b = at < b->len && is_digit(b->name[at]);
    const bool end_a = at == a->len || a->name[at] == '.', end_b = at == b->len || b->name[at] == '.';
    if (number_a && number_b) {
        int at_a = at, at_b = at;
        const int n = digits(a, &at_a), m = digits(b, &at_b);
        return n != m ? n - m : memcmp(a->name + at_a, b->name + at_b, (size_t)n);
    }
    if (number_a && end_b) return 1;
    return number_b && end_a ? -1 : 0;
}

/* Where the last word of a name begins, and the number that it ends in. */
static int last_word(const struct layer *l, int *out_number) {
    int word = l->len;
    while (word > 0 && l->name[word - 1] != '.') word--;
    *out_number = l->len;
    while (*out_number > word && is_digit(l->name[*out_number - 1])) --*out_number;
    return word;
}

/* Is `norm` of `other` by its name? "a.bn2" of "a.conv2", "a.1" of "a.0". */
static bool names_go_together(const struct layer *norm, const struct layer *other) {
    int number, number_other;
    const int word = last_word(norm, &number), word_other = last_word(other, &number_other);
    if (word != word_other || memcmp(norm->name, other->name, (size_t)word) != 0) return false;
    const bool bare = number == word && number < norm->len;
    if (bare != (number_other == word && number_other < other->len)) return false;
    if (!bare) return norm->len - number == other->len - number_other &&
                      !memcmp(norm->name + number, other->name + number_other, (size_t)(norm->len - number));
    if (norm->len - word > 9 || other->len - word > 9) return false;
    return strtol(norm->name + word, NULL, 10) == strtol(other->name + word, NULL, 10) + 1;
}

/* ------------------------------------------------------------- matching */

/* Those of one shape in the order of their names; all norms, or all that are none. */
static bool match_shapes(const struct side *own, struct side *file, bool norms, struct echi_print *why) {
    for (int i = 0; i < own->count; i++) {
        struct layer *first = NULL;
        if (is_norm(&own->layer[i]) != norms) continue;
        for (int k = 0; k < file->count; k++) {
            struct layer *l = &file->layer[k];
            if (l->number < 0 && alike(l, &own->layer[i]) && (!first || compare(l, first) < 0)) first = l;
        }
        if (!first) {
            echi_print(why, "it has no layer, or too few, of the shape of '%.*s', ", own->layer[i].len, own->layer[i].name);
            echi_print_shape(why, own->layer[i].part[WEIGHT]);
            echi_print(why, "; give the file of this model");
            return false;
        }
        first->number = i;
    }
    return true;
}

/* Each norm with the layer whose output it takes; false: names or net are not made so. */
static bool match_norms(const struct ech_model *model, const struct side *own, struct side *file) {
    for (int k = 0; k < file->count; k++) {
        struct layer *norm = &file->layer[k];
        const struct layer *with = NULL;
        int to = 0;
        if (!is_norm(norm)) continue;
        for (int i = 0; i < file->count; i++) {
            const struct layer *l = &file->layer[i];
            if (is_norm(l) || !names_go_together(norm, l)) continue;
            if (with) return false;
            with = l;
        }
        if (!with) return false;
        const int output = own->layer[with->number].number + 1;   /* number of its output, as layers count them */
        while (to < own->count && !(is_norm(&own->layer[to]) && echi_layer_takes(model->layers, own->layer[to].number) == output)) to++;
        if (to == own->count || !alike(norm, &own->layer[to])) return false;
        norm->number = to;
    }
    return true;
}

/* The names' numbers agree with the model's order, and wherever shapes leave a choice the names make it. */
static bool check_order(const struct side *own, const struct side *file, bool norms_by_name, struct echi_print *why) {
    for (int i = 0; i < file->count; i++)
        for (int k = 0; k < file->count; k++) {
            const struct layer *a = &file->layer[i], *b = &file->layer[k];
            if (a->number >= b->number) continue;
            const int order = compare(a, b);
            const bool open = order == 0 && alike(a, b) && !(norms_by_name && is_norm(a));
            if (order < 0 || (order == 0 && !open)) continue;
            echi_print(why, "'%.*s' and '%.*s' ", a->len < 40 ? a->len : 40, a->name, b->len < 40 ? b->len : 40, b->name);
            if (open) echi_print(why, "have one shape, and no number tells which comes first; rename the tensors as the model's");
            else echi_print(why, "stand the other way round in the model ('%.*s', '%.*s'); rename the tensors as the model's",
                            own->layer[a->number].len, own->layer[a->number].name, own->layer[b->number].len, own->layer[b->number].name);
            return false;
        }
    return true;
}

static bool match_sides(const struct ech_model *model, const struct side *own, struct side *file, struct echi_print *why) {
    if (file->count != own->count) {
        echi_print(why, "it has %d layers with parameters, the model has %d; give the file of this model", file->count, own->count);
        return false;
    }
    if (!match_shapes(own, file, false, why)) return false;
    const bool norms_by_name = match_norms(model, own, file);
    if (!norms_by_name) {
        for (int k = 0; k < file->count; k++)
            if (is_norm(&file->layer[k])) file->layer[k].number = -1;
        if (!match_shapes(own, file, true, why)) return false;
    }
    return check_order(own, file, norms_by_name, why);
}

/* Number of the layer that a tensor of the model belongs to. */
static int number_of(const struct ech_model *model, const struct layer *l) {
    int i = 0;
    while (strlen(model->layers[i].name) != (size_t)l->len || memcmp(model->layers[i].name, l->name, (size_t)l->len) != 0) i++;
    return i;
}

bool echi_match_order(const struct ech_model *model, const struct echi_tensor_form *const *own, const struct echi_tensor_form *const *file,
                      int n, int *match, char *why, size_t why_cap) {
    struct echi_print p = {why, why_cap, 0};
    struct side ours = {.count = 0}, theirs = {.count = 0};
    struct layer *layers = calloc(2 * (size_t)n, sizeof *layers);
    bool ok = layers != NULL;
    why[0] = 0;
    if (!ok) {
        echi_print(&p, "no memory to compare them");
        return false;
    }
    ours.layer = layers;
    theirs.layer = layers + n;
    for (int i = 0; i < n; i++) add(&ours, own[i], i);
    for (int i = 0; i < ours.count; i++) ours.layer[i].number = number_of(model, &ours.layer[i]);
    for (int i = 0; i < n && ok; i++) {
        ok = add(&theirs, file[i], i);
        if (!ok) echi_print(&p, "'%s' is no weight, bias, running_mean or running_var of one layer; leave it out", file[i]->name);
    }
    ok = ok && match_sides(model, &ours, &theirs, &p);
    for (int k = 0; ok && k < theirs.count; k++)
        for (int part = 0; part < PARTS; part++)
            if (theirs.layer[k].part[part]) match[ours.layer[theirs.layer[k].number].index[part]] = theirs.layer[k].index[part];
    free(layers);
    return ok;
}
