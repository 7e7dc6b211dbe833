/* SPDX-License-Identifier: Apache-2.0
 * A model as the rest of the library sees it: layers with shapes inferred and checked, and the places of its parameters
 * in one flat array. The public half (ech_model_*) is in echelon.h. */
#ifndef ECHI_MODEL_H
#define ECHI_MODEL_H
#include "echelon.h"
#include "echi_ops.h"

#define ECHI_LAYERS_MAX 256
#define ECHI_DIM_MAX 65536                      /* largest channels, height, width, kernel, stride, pad, outputs */

struct ech_model {
    char name[32];                              /* "lenet5", "custom", or the file's name */
    struct echi_shape input;
    struct echi_layer layers[ECHI_LAYERS_MAX];
    int n_layers;
    int from; bool from_given;                  /* what ech_model_from said of the next layer */
    bool without_bias;                          /* and ech_model_without_bias */
    size_t n_params;                            /* floats in the flat array, in the order of the layers,
                                                   weight before bias before running averages */
    bool broken; struct ech_error error;        /* a builder call failed: reported by every later use */
};

/* builtins.c: models by name, each as its text; the last has none. */
struct echi_builtin { const char *name, *text; };
extern const struct echi_builtin echi_builtins[];

/* A range of the flat array that travels and is applied as one: the parameters of one layer that has any. The last `running` of them are
 * running averages, which are not learned: batch-norm's (echi_ops.h). */
struct echi_param_layer { int layer; size_t at, count, running; char name[32]; };
/* Fills at most `cap`, returns how many there are. */
int echi_model_param_layers(const struct ech_model *model, struct echi_param_layer *out, int cap);

/* ECH_E_SHAPE/ECH_E_ARGUMENT unless the model is whole: at least one layer, ends in an fc (or conv) of `classes` outputs. */
ech_status echi_model_check(const struct ech_model *model, struct echi_shape data, int classes, struct ech_error *err);
/* First layer of the head: the first fc layer (its flattening belongs to it) with parameters in front of it such that it and the
 * layers after it take nothing from before it but the output in front of it; n_layers when there is none, for then there is nothing
 * to separate. */
int echi_model_cut(const struct ech_model *model);
/* May the head begin with this layer, from 0? What it and the layers behind it take, it hands over: the output in front of it and no other;
 * and there is something to train on both sides. *out_across, of a boundary that is crossed: the first layer behind it that takes
 * another. */
enum echi_boundary { ECHI_BOUNDARY_USABLE, ECHI_BOUNDARY_NO_TRUNK, ECHI_BOUNDARY_NO_HEAD, ECHI_BOUNDARY_CROSSED };
enum echi_boundary echi_model_boundary(const struct ech_model *model, int layer, int *out_across);
/* The layer with which the head begins where the cut is in front of a layer with parameters, `layer`: this one, or the last in front of it
 * that may be it and has no parameters between; -1: no cut may be there. */
int echi_model_cut_before(const struct ech_model *model, int layer);
/* A layer, from 0, whose output no other takes and which is not the last; -1 when there is none. */
int echi_model_unread(const struct ech_model *model);
/* Multiply-adds of one sample forward. */
uint64_t echi_layer_operations(const struct echi_layer *layer);
/* SHA-256 over the canonical text (ech_model_text's form, without comments), as 64 hex digits. */
void echi_model_hash(const struct ech_model *model, char out[65]);
/* PyTorch's default initialisation (weights and biases uniform in +-1/sqrt(fan_in)), keyed by (seed, layer, place). */
void echi_model_init(const struct ech_model *model, uint64_t seed, float *params);

/* A safetensors file with more in it than one model's weights (a checkpoint): several sets of the model's tensors, and words. */
struct echi_tensor_set {
    char prefix[24];                            /* in front of every name: "", "momentum.0." */
    int first, end;                             /* those of the model's layers [first, end) */
    bool learned;                               /* without running averages */
    float *values;                              /* laid out as the model's parameters, from parameter `at` on;
                                                   NULL: only the header is wanted */
    size_t at;
};
struct echi_word { const char *key; char text[80]; };   /* printable ASCII without quotes and backslashes */
void echi_word_text(struct echi_word *word, const char *text);   /* made such; of a longer text the end */
struct echi_tensors;                            /* which tensors, in the order of the file */
ech_status echi_tensors_create(const struct ech_model *model, const struct echi_tensor_set *sets, int n_sets, struct echi_tensors **out,
                               struct ech_error *err);
void echi_tensors_destroy(struct echi_tensors *tensors);
/* What stands in front of the data; like ech_model_text, but no NUL is written: `out` may be NULL. Allocates nothing. */
size_t echi_tensors_header(const struct echi_tensors *tensors, const struct echi_word *words, int n_words, uint8_t *out, size_t cap);
/* Range i of the data, from 0 up; false when there is none. */
bool echi_tensors_data(const struct echi_tensors *tensors, int i, const float **out_values, size_t *out_count);
/* From foreign bytes. The words: calls `each` for every one. The tensors: into their sets' values, only when all is right.
 * `path` is for messages. The list is then in the order of the file that was read. */
ech_status echi_tensors_words(const char *path, const uint8_t *file, size_t len,
                              void (*each)(void *self, const char *key, const char *text), void *self, struct ech_error *err);
ech_status echi_tensors_read(const char *path, const uint8_t *file, size_t len, struct echi_tensors *tensors, struct ech_error *err);

/* safetensors, PyTorch's names and shapes. save: in F32, with metadata as PyTorch's loaders know it.
 * load: the model's own names; or other names whose order and shapes leave no choice (tensor_match.h). F32, F16, BF16 and F64
 * are converted, to the nearest; what is no parameter (num_batches_tracked, an optimiser's) is left out. What was done other than
 * copying goes to `log`, which may be NULL, in a line, and tensor by tensor as ECH_LOG_DEBUG. */
typedef void echi_log(void *user, enum ech_log_level level, const char *line);
ech_status echi_safetensors_save(const char *path, const struct ech_model *model, const float *params, struct ech_error *err);
ech_status echi_safetensors_load(const char *path, const struct ech_model *model, float *params, echi_log *log, void *user,
                                 struct ech_error *err);
#endif
