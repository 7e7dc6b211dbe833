/* SPDX-License-Identifier: Apache-2.0
 * Convolutions whose inputs, weights and gradients are rounded to bf16 first, in blocks of 1 KiB as AMX's tiles are (bf16_x86.c). Nothing
 * is gathered for a position: its tap's input is a block already, of 32 channels x 16 samples, so an output's sum goes over blocks where
 * they lie, and taps that fall into the padding are left out.
 * A unit's ReLU, if any, is its forward's last step and its backward's first. */
#include "echi_cpu_bf16.h"
#include "echi_cpu_stack.h"

#include <string.h>

#if defined(__x86_64__)
/* Channels of a block that is summed over, and outputs at a time; samples, likewise: two groups. */
enum { CHANNELS = ECHI_CPU_BF16_STEPS, OUTPUTS = ECHI_CPU_BF16_PANEL, LANES = 16, BLOCK = ECHI_CPU_BF16_BLOCK };
/* Bytes of dy and x that the sums of all taps should find in the second-level cache. */
enum { BAND_BYTES = 768 << 10 };

static int taps_of(const struct echi_layer *l) { return l->kernel_h * l->kernel_w; }

/* Positions along one side, each with the taps that it takes from `from`: forward outputs, backward inputs. */
struct side { int count, from, kernel, stride, pad; };
struct taps { int count, tap, tap_step, at, step; };   /* tap, tap + tap_step, ... meet at, at + step, ... */

static struct taps taps_at(const struct side *s, bool back, int position) {
    if (!back) {
        const int at = position * s->stride - s->pad, first = max_int(0, -at);
        return (struct taps){max_int(0, min_int(s->kernel, s->from - at) - first), first, 1, at + first, 1};
    }
    /* The output behind tap k is (position + pad - k) / stride, where that is whole. */
    const int phase = (position + s->pad) % s->stride, at = (position + s->pad) / s->stride, beyond = max_int(0, at - (s->from - 1));
    const int first = phase + beyond * s->stride;
    const int taps = first < s->kernel ? parts_of(s->kernel - first, s->stride) : 0;
    return (struct taps){max_int(0, min_int(taps, at - beyond + 1)), first, s->stride, at - beyond, -1};
}

/* y[out] = start[out] + sum over taps and `in` of x * w; x is packed: [32 channels][row][column][group]. */
struct sums {
    bool back;                         /* x is the gradient of the outputs: `in` and `out` are the layer's outputs and inputs */
    int in, out;
    struct side rows, columns;
    struct echi_cpu_view y;
    const float *weights, *start;
    bool relu;
};

static void sum_blocks(const struct echi_cpu_stack *s, const struct echi_cpu_bf16_sums *p) {
    if (s->bf16 == ECHI_CPU_BF16_AMX) echi_cpu_bf16_sums_amx(p);
    else echi_cpu_bf16_sums_dot(p);
}
static void begin_sums(const struct echi_cpu_stack *s) { if (s->bf16 == ECHI_CPU_BF16_AMX) echi_cpu_amx_begin(); }
static void end_sums(const struct echi_cpu_stack *s) { if (s->bf16 == ECHI_CPU_BF16_AMX) echi_cpu_amx_end(); }

/* Weights of y's channels [o, o + 32): [32 of x's channels][tap][two blocks of rows]. What follows each other in memory is read so: forward
 * all kernels of an output, backward those of some inputs. */
static void pack_weights(const struct sums *a, int o, uint16_t *to) {
    const int taps = a->rows.kernel * a->columns.kernel, rows = min_int(OUTPUTS, a->out - o);
    if (!a->back)
        for (int row = 0; row < rows; row++)
            for (int i = 0; i < a->in; i += CHANNELS)
                echi_cpu_bf16_pack_weights(a->weights + ((ptrdiff_t)(o + row) * a->in + i) * taps, a->in - i, taps,
                                           to + ((ptrdiff_t)(i / CHANNELS) * taps * 2 + row / LANES) * BLOCK + row % LANES * CHANNELS,
                                           2 * BLOCK);
    else
        for (int i = 0; i < a->in; i += CHANNELS)
            for (int row = 0; row < rows; row += LANES)
                echi_cpu_bf16_pack_weights_turned(a->weights + ((ptrdiff_t)i * a->out + o + row) * taps, (ptrdiff_t)a->out * taps,
                                                  a->in - i, rows - row, taps,
                                                  to + ((ptrdiff_t)(i / CHANNELS) * taps * 2 + row / LANES) * BLOCK, 2 * BLOCK);
}

/* Item: a row of 32 outputs, those of one 32 behind each other, so that a thread packs their weights once. */
static void rows_of_outputs(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct sums *a = args;
    uint16_t *weights = s->own[place].bf16.weights;
    const int taps = a->rows.kernel * a->columns.kernel, from_w = a->columns.from;
    begin_sums(s);
    for (int item = begin; item < end; item++) {
        const int o = item / a->rows.count * OUTPUTS, row = item % a->rows.count;
        if (item == begin || row == 0) pack_weights(a, o, weights);
        const struct taps down = taps_at(&a->rows, a->back, row);
        for (int column = 0; column < a->columns.count; column++) {
            const struct taps across = taps_at(&a->columns, a->back, column);
            for (int g = 0; g < s->groups; g += 2)
                sum_blocks(s, &(struct echi_cpu_bf16_sums){
                    .a = weights + (ptrdiff_t)(down.tap * a->columns.kernel + across.tap) * 2 * BLOCK,
                    .b = s->bf16_room.channels + (((ptrdiff_t)down.at * from_w + across.at) * s->groups + g) * BLOCK,
                    .loop = {{parts_of(a->in, CHANNELS), 2 * taps, (ptrdiff_t)a->rows.from * from_w * s->groups},
                             {down.count, (ptrdiff_t)down.tap_step * a->columns.kernel * 2, (ptrdiff_t)down.step * from_w * s->groups},
                             {across.count, (ptrdiff_t)across.tap_step * 2, (ptrdiff_t)across.step * s->groups}},
                    .rows = min_int(OUTPUTS, a->out - o), .columns = min_int(2, s->groups - g), .start = a->start ? a->start + o : NULL,
                    .out = a->y.at + g * a->y.group + o * a->y.channel + row * a->y.row + column * a->y.column, .out_row = a->y.channel,
                    .out_next = a->y.group, .relu = a->relu});
        }
    }
    end_sums(s);
}

static void sum_outputs(struct echi_cpu_stack *s, const struct sums *a) {
    const double products = (double)a->in * OUTPUTS * a->rows.kernel * a->columns.kernel * a->columns.count * s->groups;
    echi_cpu_share_out(s, parts_of(a->out, OUTPUTS) * a->rows.count, products / 8, rows_of_outputs, a);
}

/* 32 channels of one group in a row, at `at`, to blocks of pairs of channels. */
static void pack_channels(const struct echi_cpu_stack *s, const float *at, struct echi_cpu_view v, int channels, int columns,
                          uint16_t *to) {
    for (int q = 0; q < columns; q++, at += v.column)
        echi_cpu_bf16_pack_pairs(&(struct echi_cpu_bf16_pairs){at, at + v.channel, 2 * v.channel, (channels + 1) / 2, channels / 2},
                                 to + (ptrdiff_t)q * s->groups * BLOCK);
}

/* Item: a row of 32 input channels. */
static void pack_inputs(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const int unit = *(const int *)args;
    const struct echi_layer *l = s->units[unit].layer;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[unit].from);
    (void)place;
    for (int item = begin; item < end; item++) {
        const int c = item / l->in.h * CHANNELS, row = item % l->in.h;
        for (int g = 0; g < s->groups; g++)
            pack_channels(s, x.at + g * x.group + c * x.channel + row * x.row, x, min_int(CHANNELS, l->in.c - c), l->in.w,
                          s->bf16_room.channels + ((ptrdiff_t)item * l->in.w * s->groups + g) * BLOCK);
    }
}

void echi_cpu_conv_bf16_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    echi_cpu_share_out(s, parts_of(l->in.c, CHANNELS) * l->in.h, 2.0 * CHANNELS * l->in.w * s->groups, pack_inputs, &unit);
    sum_outputs(s, &(struct sums){.in = l->in.c, .out = l->out.c, .rows = {l->out.h, l->in.h, l->kernel_h, l->stride_h, l->pad_h},
                                  .columns = {l->out.w, l->in.w, l->kernel_w, l->stride_w, l->pad_w}, .y = echi_cpu_value(s, unit + 1),
                                  .weights = params + l->weight_at, .start = l->bias ? params + l->bias_at : NULL, .relu = u->relu});
}

/* ---- backward ---- */

struct backward { int unit; float *grads; bool need_input_grad; };

/* Two groups' samples of 16 channels at one place. */
static struct echi_cpu_bf16_pairs samples_of(const struct echi_cpu_stack *s, const float *at, struct echi_cpu_view v, int g, int channels) {
    return (struct echi_cpu_bf16_pairs){at, at + v.group, v.channel, channels, g + 1 < s->groups ? channels : 0};
}
/* Blocks of samples: [16 channels][two groups][row][column], but two neighbours of the first are neighbours in the last. */
static uint16_t *samples_at(const struct echi_cpu_stack *s, uint16_t *to, int c, int g, int positions, int position) {
    return to + ((((ptrdiff_t)(c / OUTPUTS) * parts_of(s->groups, 2) + g / 2) * positions + position) * 2 + c / LANES % 2) * BLOCK;
}

/* The gradient before ReLU, of 32 outputs, is packed twice: as pairs of channels for the gradient of the input, as pairs of samples for
 * that of the weights. Without ReLU and bias it is where it came. Item: 32 outputs. */
static void pack_grads(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct backward *a = args;
    const struct echi_cpu_unit *u = &s->units[a->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view y = echi_cpu_value(s, a->unit + 1), dy = echi_cpu_grad(s, a->unit + 1);
    const int columns = l->out.w, positions = l->out.h * columns;
    const struct echi_cpu_view before = {s->own[place].bf16.before, (ptrdiff_t)CHANNELS * columns * LANES, (ptrdiff_t)columns * LANES, 0,
                                         LANES};
    const bool changed = u->relu || l->bias;
    for (int item = begin; item < end; item++) {
        const int o = item * CHANNELS, channels = min_int(CHANNELS, l->out.c - o);
        memset(s->bias_sums + o * LANES, 0, (size_t)channels * LANES * sizeof(float));
        for (int g = 0; g < s->groups; g += 2)
            for (int row = 0; row < l->out.h; row++) {
                const ptrdiff_t at = g * dy.group + o * dy.channel + row * dy.row;   /* dy lies as y does */
                const int groups = min_int(2, s->groups - g);
                for (int k = 0; k < groups * channels && changed; k++) {
                    const ptrdiff_t own = at + k / channels * dy.group + k % channels * dy.channel;
                    s->k->relu_back(dy.at + own, dy.column, u->relu ? y.at + own : NULL, y.column,
                                    before.at + k / channels * before.group + k % channels * before.channel, LANES, columns,
                                    s->bias_sums + (o + k % channels) * LANES);
                }
                const struct echi_cpu_view from = changed ? before : dy;
                const float *first = changed ? before.at : dy.at + at;
                for (int k = 0; k < groups && a->need_input_grad; k++)
                    pack_channels(s, first + k * from.group, from, channels, columns,
                                  s->bf16_room.channels + (((ptrdiff_t)item * l->out.h + row) * columns * s->groups + g + k) * BLOCK);
                for (int q = 0; q < columns; q++)
                    for (int c = 0; c < channels; c += LANES) {
                        const float *own = first + c * from.channel + q * from.column;
                        const struct echi_cpu_bf16_pairs p = samples_of(s, own, from, g, min_int(LANES, channels - c));
                        echi_cpu_bf16_pack_pairs(&p, samples_at(s, s->bf16_room.grads, o + c, g, positions, row * columns + q));
                    }
            }
        if (l->bias) s->k->reduce(s->bias_sums + o * LANES, (size_t)channels, a->grads + l->bias_at + o);
    }
}

/* Item: a row of 16 input channels. */
static void pack_samples(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct backward *a = args;
    const struct echi_layer *l = s->units[a->unit].layer;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[a->unit].from);
    (void)place;
    for (int item = begin; item < end; item++) {
        const int c = item / l->in.h * LANES, row = item % l->in.h;
        for (int g = 0; g < s->groups; g += 2)
            for (int q = 0; q < l->in.w; q++) {
                const float *at = x.at + g * x.group + c * x.channel + row * x.row + q * x.column;
                const struct echi_cpu_bf16_pairs p = samples_of(s, at, x, g, min_int(LANES, l->in.c - c));
                echi_cpu_bf16_pack_turned(&p, samples_at(s, s->bf16_room.samples, c, g, l->in.h * l->in.w, row * l->in.w + q));
            }
    }
}

/* dw[out][in] of a tap = sum over positions and samples of dy[out] * x[in]. Item: 32 outputs and 32 inputs. */
static void sum_weights(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct backward *a = args;
    const struct echi_layer *l = s->units[a->unit].layer;
    float *sums = s->own[place].bf16.sums;
    const int inputs = parts_of(l->in.c, OUTPUTS), taps = taps_of(l);
    const int positions = l->out.h * l->out.w, from_positions = l->in.h * l->in.w;
    const int band = max_int(1, BAND_BYTES / (2 * BLOCK * (int)sizeof(uint16_t)) / (l->out.w + l->stride_h * l->in.w));
    begin_sums(s);
    for (int item = begin; item < end; item++) {
        const int o = item / inputs * OUTPUTS, outputs = min_int(OUTPUTS, l->out.c - o);
        const int c = item % inputs * OUTPUTS, channels = min_int(OUTPUTS, l->in.c - c);
        memset(sums, 0, (size_t)taps * OUTPUTS * OUTPUTS * sizeof *sums);
        for (int g = 0; g < s->groups; g += 2)
            for (int first = 0; first < l->out.h; first += band)
                for (int tap = 0; tap < taps; tap++) {
                    const int ky = tap / l->kernel_w, kx = tap % l->kernel_w;
                    const struct echi_cpu_range rows = echi_cpu_inside(ky, first, min_int(first + band, l->out.h), l->in.h, l->stride_h,
                                                                       l->pad_h);
                    const struct echi_cpu_range columns = echi_cpu_inside(kx, 0, l->out.w, l->in.w, l->stride_w, l->pad_w);
                    const int y = rows.begin * l->stride_h - l->pad_h + ky, x = columns.begin * l->stride_w - l->pad_w + kx;
                    if (rows.begin == rows.end || columns.begin == columns.end) continue;
                    sum_blocks(s, &(struct echi_cpu_bf16_sums){
                        .a = samples_at(s, s->bf16_room.grads, o, g, positions, rows.begin * l->out.w + columns.begin),
                        .b = samples_at(s, s->bf16_room.samples, c, g, from_positions, y * l->in.w + x),
                        .loop = {{1, 0, 0}, {rows.end - rows.begin, 2 * l->out.w, (ptrdiff_t)2 * l->stride_h * l->in.w},
                                 {columns.end - columns.begin, 2, 2 * l->stride_w}},
                        .rows = outputs > LANES ? OUTPUTS : LANES, .columns = parts_of(channels, LANES),
                        .out = sums + (ptrdiff_t)tap * OUTPUTS * OUTPUTS, .out_row = OUTPUTS, .out_next = LANES, .add = true});
                }
        for (int i = 0; i < outputs; i++)
            for (int k = 0; k < channels; k += LANES)
                s->k->to_rows(sums + i * OUTPUTS + k, OUTPUTS * OUTPUTS, min_int(LANES, channels - k), taps,
                              a->grads + l->weight_at + ((ptrdiff_t)(o + i) * l->in.c + c + k) * taps, taps);
    }
    end_sums(s);
}

void echi_cpu_conv_bf16_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct backward a = {unit, grads, need_input_grad};
    const int blocks = parts_of(l->out.c, OUTPUTS) * parts_of(l->in.c, OUTPUTS);
    const double positions = (double)l->out.h * l->out.w * s->groups;
    echi_cpu_share_out(s, parts_of(l->out.c, CHANNELS), 4.0 * CHANNELS * positions, pack_grads, &a);
    echi_cpu_share_out(s, parts_of(l->in.c, LANES) * l->in.h, 4.0 * LANES * l->in.w * s->groups, pack_samples, &a);
    echi_cpu_share_out(s, blocks, OUTPUTS * OUTPUTS * taps_of(l) * positions / 8, sum_weights, &a);
    if (!need_input_grad) return;
    sum_outputs(s, &(struct sums){.back = true, .in = l->out.c, .out = l->in.c,
                                  .rows = {l->in.h, l->out.h, l->kernel_h, l->stride_h, l->pad_h},
                                  .columns = {l->in.w, l->out.w, l->kernel_w, l->stride_w, l->pad_w}, .y = echi_cpu_share(s, u->from),
                                  .weights = params + l->weight_at});
}

void echi_cpu_conv_bf16_room(const struct echi_layer *l, int groups, struct echi_cpu_bf16_room *room) {
    const size_t in = (size_t)parts_of(l->in.c, CHANNELS), out = (size_t)parts_of(l->out.c, CHANNELS);
    const size_t taps = (size_t)taps_of(l), pairs = (size_t)parts_of(groups, 2);
    const size_t inputs = (size_t)l->in.h * (size_t)l->in.w, outputs = (size_t)l->out.h * (size_t)l->out.w;
    raise_to(&room->channels, BLOCK * (size_t)groups * (in * inputs > out * outputs ? in * inputs : out * outputs));
    raise_to(&room->grads, 2 * BLOCK * pairs * out * outputs);
    raise_to(&room->samples, 2 * BLOCK * pairs * in * inputs);
    raise_to(&room->weights, 2 * BLOCK * taps * (in > out ? in : out));
    raise_to(&room->before, (size_t)2 * CHANNELS * LANES * (size_t)l->out.w);
    raise_to(&room->sums, OUTPUTS * OUTPUTS * taps);
}
#else
/* Never called: there is no bf16 here. */
void echi_cpu_conv_bf16_forward(struct echi_cpu_stack *s, int unit, const float *params) { (void)s, (void)unit, (void)params; }
void echi_cpu_conv_bf16_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    (void)s, (void)unit, (void)params, (void)grads, (void)need_input_grad;
}
void echi_cpu_conv_bf16_room(const struct echi_layer *l, int groups, struct echi_cpu_bf16_room *room) { (void)l, (void)groups, (void)room; }
#endif
