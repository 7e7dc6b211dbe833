/* SPDX-License-Identifier: Apache-2.0
 * The builder: layers are added one by one, each with its output shape inferred and every size checked at once, so that
 * whoever gets a whole model may multiply its sizes in int without another check. */
#include "echi_model.h"

#include "echi_checked.h"
#include "echi_error.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Why these bounds: no tensor of one sample and no parameter array has more than 2^31 - 1 floats, so that an int or a
 * 32-bit index on a device or on the wire reaches all of it. */
#define FLOATS_MAX ((size_t)INT_MAX)

static const char *const name_stems[] = {
    [ECHI_OP_CONV2D] = "conv",       [ECHI_OP_FC] = "fc",     [ECHI_OP_MAX_POOL] = "max_pool",
    [ECHI_OP_AVG_POOL] = "avg_pool", [ECHI_OP_RELU] = "relu", [ECHI_OP_GLOBAL_AVG_POOL] = "global_avg_pool",
    [ECHI_OP_ADD] = "add",           [ECHI_OP_DROPOUT] = "dropout", [ECHI_OP_BATCH_NORM] = "bn",
    [ECHI_OP_TANH] = "tanh",
};

ech_status ech_model_create(int channels, int height, int width, ech_model **out_model, struct ech_error *err) {
    if (!out_model) return echi_fail(err, ECH_E_ARGUMENT, "model.create", "out_model is NULL: give a place for the model");
    if (channels < 1 || channels > ECHI_DIM_MAX || height < 1 || height > ECHI_DIM_MAX || width < 1 || width > ECHI_DIM_MAX)
        return echi_fail(err, ECH_E_ARGUMENT, "model.create",
                         "input %d x %d x %d: channels, height and width must each be 1 to %d", channels, height, width,
                         ECHI_DIM_MAX);
    size_t plane, size;
    if (!echi_mul_size((size_t)height, (size_t)width, &plane) || !echi_mul_size(plane, (size_t)channels, &size) ||
        size > FLOATS_MAX)
        return echi_fail(err, ECH_E_SHAPE, "model.create", "input %d x %d x %d: a sample may have at most %zu values", channels,
                         height, width, FLOATS_MAX);
    struct ech_model *model = calloc(1, sizeof *model);
    if (!model) return echi_fail_memory(err, "model.create", "a model");
    snprintf(model->name, sizeof model->name, "custom");
    model->input = (struct echi_shape){channels, height, width};
    *out_model = model;
    return ECH_OK;
}

void ech_model_destroy(ech_model *model) { free(model); }

/* Makes the model broken; the sentence begins with the layer's name. */
static void refuse(struct ech_model *model, const struct echi_layer *layer, ech_status code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void refuse(struct ech_model *model, const struct echi_layer *layer, ech_status code, const char *fmt, ...) {
    char text[sizeof model->error.text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    model->broken = true;
    echi_fail_at(&model->error, code, "model.build", -1, layer->name, "%s: %s", layer->name, text);
}

/* What layer `number` gives; 0: the model's input. */
static struct echi_shape output_shape(const struct ech_model *model, int number) {
    return number > 0 ? model->layers[number - 1].out : model->input;
}

static bool check_number(struct ech_model *model, const struct echi_layer *layer, const char *what, int number) {
    if (number >= 0 && number <= model->n_layers) return true;
    refuse(model, layer, ECH_E_ARGUMENT, "%s %d: before it there are only the input, 0, and layers 1 to %d", what, number, model->n_layers);
    return false;
}

/* The next layer of `op` with its input shape and name, not yet part of the model; false when nothing can be added. */
static bool begin_layer(struct ech_model *model, enum echi_op op, struct echi_layer *layer) {
    if (!model || model->broken) return false;
    int same = 1;
    for (int i = 0; i < model->n_layers; i++) same += model->layers[i].op == op;
    *layer = (struct echi_layer){.op = op, .number = (uint32_t)model->n_layers};
    snprintf(layer->name, sizeof layer->name, "%s%d", name_stems[op], same);
    if (model->n_layers == ECHI_LAYERS_MAX) {
        refuse(model, layer, ECH_E_ARGUMENT, "a model may have at most %d layers", ECHI_LAYERS_MAX);
        return false;
    }
    const int from = model->from_given ? model->from : model->n_layers;
    if (!check_number(model, layer, "from", from)) return false;
    model->from_given = false;
    layer->skip = model->n_layers - from;
    layer->in = layer->out = output_shape(model, from);
    return true;
}

void ech_model_from(ech_model *model, int layer) {
    if (!model) return;
    model->from = layer;
    model->from_given = true;
}

int ech_model_layers(const ech_model *model) { return model ? model->n_layers : 0; }

static bool check_range(struct ech_model *model, const struct echi_layer *layer, const char *what, int value, int least) {
    if (value >= least && value <= ECHI_DIM_MAX) return true;
    refuse(model, layer, ECH_E_ARGUMENT, "%s %d must be %d to %d", what, value, least, ECHI_DIM_MAX);
    return false;
}

static bool volume(int64_t c, int64_t h, int64_t w, size_t *out) {
    return echi_mul_size((size_t)h, (size_t)w, out) && echi_mul_size(*out, (size_t)c, out) && *out <= FLOATS_MAX;
}

/* Kernel, stride and padding of a convolution or pool, and the height and width that come out. */
static bool set_window(struct ech_model *model, struct echi_layer *layer, int kernel, int stride, int pad) {
    if (!check_range(model, layer, "kernel", kernel, 1) || !check_range(model, layer, "stride", stride, 1) ||
        !check_range(model, layer, "pad", pad, 0))
        return false;
    int64_t h = (int64_t)layer->in.h + 2 * (int64_t)pad, w = (int64_t)layer->in.w + 2 * (int64_t)pad;
    size_t padded;
    if (kernel > h || kernel > w) {
        refuse(model, layer, ECH_E_SHAPE,
               "kernel %d is larger than its input, %lld x %lld with pad %d: use a smaller kernel or more pad", kernel,
               (long long)h, (long long)w, pad);
        return false;
    }
    /* The padded input too must be countable: kernels may hold it. */
    if (!volume(layer->in.c, h, w, &padded)) {
        refuse(model, layer, ECH_E_SHAPE, "its input with pad %d, %d x %lld x %lld, has more than %zu values: use a smaller pad",
               pad, layer->in.c, (long long)h, (long long)w, FLOATS_MAX);
        return false;
    }
    layer->kernel_h = layer->kernel_w = kernel;
    layer->stride_h = layer->stride_w = stride;
    layer->pad_h = layer->pad_w = pad;
    layer->out.h = (int)((h - kernel) / stride + 1);
    layer->out.w = (int)((w - kernel) / stride + 1);
    return true;
}

/* Weights [out.c][fan_in], biases [out.c] and running averages [2][out.c] behind the parameters that are there;
 * fan_in at most FLOATS_MAX. */
static bool place_params(struct ech_model *model, struct echi_layer *layer, size_t fan_in) {
    const size_t out = (size_t)layer->out.c;
    size_t end;
    layer->biases = layer->bias ? out : 0;
    layer->running = layer->op == ECHI_OP_BATCH_NORM ? 2 * out : 0;
    if (!echi_mul_size(out, fan_in, &layer->weights) || !echi_add_size(model->n_params, layer->weights, &layer->bias_at) ||
        !echi_add_size(layer->bias_at, layer->biases, &layer->running_at) || !echi_add_size(layer->running_at, layer->running, &end) ||
        end > FLOATS_MAX) {
        refuse(model, layer, ECH_E_SHAPE, "with it the model has more than %zu parameters: make it, or its input, smaller",
               FLOATS_MAX);
        return false;
    }
    layer->weight_at = model->n_params;
    return true;
}

static void end_layer(struct ech_model *model, const struct echi_layer *layer) {
    size_t size;
    if (!volume(layer->out.c, layer->out.h, layer->out.w, &size)) {
        refuse(model, layer, ECH_E_SHAPE,
               "its output %d x %d x %d has more than %zu values: use a larger stride or fewer channels", layer->out.c,
               layer->out.h, layer->out.w, FLOATS_MAX);
        return;
    }
    model->layers[model->n_layers++] = *layer;
    model->n_params += echi_layer_params(layer);
}

void ech_model_without_bias(ech_model *model) {
    if (model) model->without_bias = true;
}

/* Whether the layer has a bias, which is said for one layer only. */
static bool take_bias(struct ech_model *model) {
    const bool bias = !model->without_bias;
    model->without_bias = false;
    return bias;
}

void ech_model_conv2d(ech_model *model, int out_channels, int kernel, int stride, int pad) {
    struct echi_layer layer;
    if (!begin_layer(model, ECHI_OP_CONV2D, &layer) || !check_range(model, &layer, "out", out_channels, 1) ||
        !set_window(model, &layer, kernel, stride, pad))
        return;
    layer.out.c = out_channels;
    layer.bias = take_bias(model);
    /* The window lies within the padded input, so in.c * kernel * kernel is within the bound that set_window checked. */
    if (place_params(model, &layer, (size_t)layer.in.c * (size_t)kernel * (size_t)kernel)) end_layer(model, &layer);
}

void ech_model_fc(ech_model *model, int outputs) {
    struct echi_layer layer;
    if (!begin_layer(model, ECHI_OP_FC, &layer) || !check_range(model, &layer, "out", outputs, 1)) return;
    layer.out = (struct echi_shape){outputs, 1, 1};
    layer.bias = take_bias(model);
    if (place_params(model, &layer, echi_shape_size(layer.in))) end_layer(model, &layer);
}

void ech_model_batch_norm(ech_model *model) {
    struct echi_layer layer;
    if (!begin_layer(model, ECHI_OP_BATCH_NORM, &layer)) return;
    layer.bias = true;
    if (place_params(model, &layer, 1)) end_layer(model, &layer);
}

void ech_model_relu(ech_model *model) {
    struct echi_layer layer;
    if (begin_layer(model, ECHI_OP_RELU, &layer)) end_layer(model, &layer);
}

void ech_model_tanh(ech_model *model) {
    struct echi_layer layer;
    if (begin_layer(model, ECHI_OP_TANH, &layer)) end_layer(model, &layer);
}

void ech_model_add(ech_model *model, int with) {
    struct echi_layer layer;
    if (!begin_layer(model, ECHI_OP_ADD, &layer) || !check_number(model, &layer, "with", with)) return;
    const struct echi_shape other = output_shape(model, with);
    if (other.c != layer.in.c || other.h != layer.in.h || other.w != layer.in.w) {
        refuse(model, &layer, ECH_E_SHAPE, "its input has %d x %d x %d but %s, %d, gives %d x %d x %d: what is added must have one shape",
               layer.in.c, layer.in.h, layer.in.w, with ? model->layers[with - 1].name : "the model's input", with, other.c, other.h,
               other.w);
        return;
    }
    layer.with = model->n_layers - with;
    end_layer(model, &layer);
}

void ech_model_dropout(ech_model *model, double p) {
    struct echi_layer layer;
    if (!begin_layer(model, ECHI_OP_DROPOUT, &layer)) return;
    if (!(p >= 0 && p < 1)) {
        refuse(model, &layer, ECH_E_ARGUMENT, "p %g must be at least 0 and below 1", p);
        return;
    }
    const uint32_t drop = (uint32_t)(p * ECHI_WHOLE + 0.5);
    layer.drop = drop < ECHI_WHOLE ? drop : ECHI_WHOLE - 1;
    end_layer(model, &layer);
}

static void add_pool(struct ech_model *model, enum echi_op op, int kernel, int stride, int pad) {
    struct echi_layer layer;
    if (!begin_layer(model, op, &layer) || !set_window(model, &layer, kernel, stride, pad)) return;
    if (pad >= kernel) {
        refuse(model, &layer, ECH_E_SHAPE, "pad %d must be below kernel %d, or a window would hold nothing but padding", pad,
               kernel);
        return;
    }
    end_layer(model, &layer);
}

void ech_model_max_pool(ech_model *model, int kernel, int stride, int pad) {
    add_pool(model, ECHI_OP_MAX_POOL, kernel, stride, pad);
}
void ech_model_avg_pool(ech_model *model, int kernel, int stride, int pad) {
    add_pool(model, ECHI_OP_AVG_POOL, kernel, stride, pad);
}

void ech_model_global_avg_pool(ech_model *model) {
    struct echi_layer layer;
    if (!begin_layer(model, ECHI_OP_GLOBAL_AVG_POOL, &layer)) return;
    layer.kernel_h = layer.in.h;
    layer.kernel_w = layer.in.w;
    layer.stride_h = layer.stride_w = 1;
    layer.out.h = layer.out.w = 1;
    end_layer(model, &layer);
}

int echi_model_unread(const struct ech_model *model) {
    for (int i = 0; i < model->n_layers - 1; i++)
        if (!echi_output_readers(model->layers, model->n_layers, i + 1)) return i;
    return -1;
}

ech_status ech_model_finish(const ech_model *model, struct ech_error *err) {
    if (!model)
        return echi_fail(err, ECH_E_ARGUMENT, "model.finish",
                         "no model was given (NULL): make one with ech_model_create or ech_model_open");
    if (model->broken) {
        if (err) *err = model->error;
        return model->error.code;
    }
    if (!model->n_layers)
        return echi_fail(err, ECH_E_ARGUMENT, "model.finish", "model '%s' has no layers: add at least one fc", model->name);
    const int unread = echi_model_unread(model);
    if (unread >= 0)
        return echi_fail_at(err, ECH_E_ARGUMENT, "model.finish", -1, model->layers[unread].name,
                            "%s: no layer takes its output: remove it, or let a later layer take from %d or add with %d",
                            model->layers[unread].name, unread + 1, unread + 1);
    return ECH_OK;
}

size_t ech_model_params(const ech_model *model) { return model && !model->broken ? model->n_params : 0; }

int echi_model_param_layers(const struct ech_model *model, struct echi_param_layer *out, int cap) {
    int count = 0;
    for (int i = 0; i < model->n_layers; i++) {
        const struct echi_layer *layer = &model->layers[i];
        if (!layer->weights) continue;
        if (count < cap) {
            out[count] = (struct echi_param_layer){.layer = i, .at = layer->weight_at, .count = echi_layer_params(layer),
                                                    .running = layer->running};
            memcpy(out[count].name, layer->name, sizeof layer->name);
        }
        count++;
    }
    return count;
}

ech_status echi_model_check(const struct ech_model *model, struct echi_shape data, int classes, struct ech_error *err) {
    ECHI_TRY(ech_model_finish(model, err));
    const struct echi_shape in = model->input;
    if (in.c != data.c || in.h != data.h || in.w != data.w)
        return echi_fail(err, ECH_E_SHAPE, "model.check",
                         "model '%s' takes samples of %d x %d x %d but the data has %d x %d x %d: change the model's input",
                         model->name, in.c, in.h, in.w, data.c, data.h, data.w);
    const struct echi_layer *last = &model->layers[model->n_layers - 1];
    if (last->op != ECHI_OP_FC && last->op != ECHI_OP_CONV2D && last->op != ECHI_OP_GLOBAL_AVG_POOL)
        return echi_fail_at(err, ECH_E_SHAPE, "model.check", -1, last->name,
                            "%s: model '%s' must end in an fc (or conv2d, or global_avg_pool) with one output for each of the %d classes",
                            last->name, model->name, classes);
    if (last->out.c != classes || last->out.h != 1 || last->out.w != 1)
        return echi_fail_at(
            err, ECH_E_SHAPE, "model.check", -1, last->name,
            "%s: the last layer of model '%s' has %d x %d x %d outputs but the data has %d classes: give it %d x 1 x 1",
            last->name, model->name, last->out.c, last->out.h, last->out.w, classes, classes);
    return ECH_OK;
}

/* Each of the out.c * out.h * out.w outputs is a dot product over its fan-in. Both factors are below 2^31, so the product fits;
 * layers without parameters multiply nothing. */
uint64_t echi_layer_operations(const struct echi_layer *layer) {
    return layer->weights ? (uint64_t)echi_shape_size(layer->out) * (layer->weights / (size_t)layer->out.c) : 0;
}

/* The first of the layers from `cut` on that takes anything from before it but the output in front of it; -1: none does. */
static int across(const struct ech_model *model, int cut) {
    for (int i = cut; i < model->n_layers; i++)
        if (echi_layer_takes(model->layers, i) < cut || (model->layers[i].op == ECHI_OP_ADD && echi_layer_adds(model->layers, i) < cut))
            return i;
    return -1;
}

/* Has any of layers [first, end) parameters? */
static bool learns(const struct ech_model *model, int first, int end) {
    for (int i = first; i < end; i++)
        if (model->layers[i].weights) return true;
    return false;
}

enum echi_boundary echi_model_boundary(const struct ech_model *model, int layer, int *out_across) {
    const int other = across(model, layer);
    if (!learns(model, 0, layer)) return ECHI_BOUNDARY_NO_TRUNK;
    if (!learns(model, layer, model->n_layers)) return ECHI_BOUNDARY_NO_HEAD;
    if (other < 0) return ECHI_BOUNDARY_USABLE;
    if (out_across) *out_across = other;
    return ECHI_BOUNDARY_CROSSED;
}

int echi_model_cut_before(const struct ech_model *model, int layer) {
    for (int i = layer; i > 0; i--) {
        if (echi_model_boundary(model, i, NULL) == ECHI_BOUNDARY_USABLE) return i;
        if (model->layers[i - 1].weights) return -1;
    }
    return -1;
}

int echi_model_cut(const struct ech_model *model) {
    bool trunk_learns = false;
    for (int i = 0; i < model->n_layers; i++) {
        if (model->layers[i].op == ECHI_OP_FC) {
            if (!trunk_learns) return model->n_layers;
            if (across(model, i) < 0) return i;
        }
        trunk_learns = trunk_learns || model->layers[i].weights;
    }
    return model->n_layers;
}
