/* SPDX-License-Identifier: Apache-2.0
 * Products of matrices whose numbers are rounded to bf16 (eight bits of a float's 24) and summed in float, by AMX's tiles or by
 * AVX512-BF16's pairs. Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and volume 2, VDPBF16PS.
 *
 * Packed: [panel][32 steps of the depth][half panel], a half of 16 lines in 1 KiB, as a tile register has it: rows as [line][step], columns
 * as [pair of steps][line][step of the pair]. What is not there, in lines or in depth, is zeros. */
#include "echi_cpu_bf16.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

enum { LINES = 16, STEPS = 32, HALF = LINES * STEPS, PANEL = 2 * LINES };

static void turn(const float *vectors, ptrdiff_t vector, int columns, float *rows, ptrdiff_t row) {
    echi_cpu_to_rows_avx512(vectors, vector, LINES, columns, rows, row);
}

/* Lines [first, first + 16), steps [from, from + 32) as numbers, in [line][step]. */
static void fetch(const struct echi_cpu_lines *l, int first, int from, float block[LINES][STEPS]) {
    const int lines = min_int(LINES, l->lines - first), steps = min_int(STEPS, l->depth - from);
    const float *at = l->at + first * l->line + from * l->step;
    if (lines < LINES || steps < STEPS) memset(block, 0, HALF * sizeof(float));
    if (l->step == 1) {
        for (int i = 0; i < lines; i++) memcpy(block[i], at + i * l->line, (size_t)steps * sizeof(float));
    } else if (lines == LINES && steps == STEPS && l->line == 1) {
        turn(at, l->step, STEPS, block[0], STEPS);
    } else {
        for (int k = 0; k < steps; k++)
            for (int i = 0; i < lines; i++) block[i][k] = at[i * l->line + k * l->step];
    }
}

/* 32 numbers at `low` and `high`, 16 at each. */
static inline __m512i rounded(const float *low, const float *high) {
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(high), _mm512_loadu_ps(low));
}

static void half_of_rows(const struct echi_cpu_lines *l, int first, int from, uint16_t *to) {
    float block[LINES][STEPS];
    const bool straight = l->step == 1 && l->lines - first >= LINES && l->depth - from >= STEPS;
    const float *at = l->at + first * l->line + from;
    const ptrdiff_t line = straight ? l->line : STEPS;
    if (!straight) {
        fetch(l, first, from, block);
        at = block[0];
    }
    for (int i = 0; i < LINES; i++, at += line) _mm512_storeu_si512(to + i * STEPS, rounded(at, at + LINES));
}

static void half_of_columns(const struct echi_cpu_lines *l, int first, int from, uint16_t *to) {
    if (l->line == 1 && l->lines - first >= LINES && l->depth - from >= STEPS) {
        /* Two steps of 16 lines become 16 pairs. */
        const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3,
                                               18, 2, 17, 1, 16, 0);
        const float *at = l->at + first + from * l->step;
        for (int k = 0; k < STEPS; k += 2, at += 2 * l->step)
            _mm512_storeu_si512(to + k * LINES, _mm512_permutexvar_epi16(pairs, rounded(at, at + l->step)));
        return;
    }
    uint16_t rows[HALF] __attribute__((aligned(64)));
    half_of_rows(l, first, from, rows);
    turn((const float *)(const void *)rows, LINES, LINES, (float *)(void *)to, LINES);   /* pairs are moved as floats are: their bits stay */
}

typedef void half_function(const struct echi_cpu_lines *l, int first, int from, uint16_t *to);

/* What lies together is read together: lines side by side, or a line's steps. */
static inline __attribute__((always_inline)) void pack(const struct echi_cpu_lines *l, half_function *half, uint16_t *to) {
    const int steps = (l->depth + STEPS - 1) / STEPS, halves = (l->lines + PANEL - 1) / PANEL * 2;
    const bool across = l->line == 1;
    for (int outer = 0; outer < (across ? steps : halves); outer++)
        for (int inner = 0; inner < (across ? halves : steps); inner++) {
            const int i = across ? inner : outer, k = across ? outer : inner;
            half(l, i * LINES, k * STEPS, to + (((ptrdiff_t)(i / 2) * steps + k) * 2 + i % 2) * HALF);
        }
}
void echi_cpu_bf16_pack_rows(const struct echi_cpu_lines *l, void *to) { pack(l, half_of_rows, to); }
void echi_cpu_bf16_pack_columns(const struct echi_cpu_lines *l, void *to) { pack(l, half_of_columns, to); }

/* ---- sums of 32 x 32 places, into sum[row][column] ---- */

/* Palette 1, all eight tiles 16 rows of 64 bytes. Constant: gcc 12 believes that only the first bytes of it are read. */
static const struct { uint8_t palette, start_row, reserved[14]; uint16_t row_bytes[16]; uint8_t rows[16]; } tiles = {
    .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {LINES, LINES, LINES, LINES, LINES, LINES, LINES, LINES}};
void echi_cpu_amx_begin(void) { _tile_loadconfig(&tiles); }
void echi_cpu_amx_end(void) { _tile_release(); }

static void amx_sums(int steps, const uint16_t *a, const uint16_t *b, float sum[PANEL][PANEL]) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int k = 0; k < steps; k++, a += 2 * HALF, b += 2 * HALF) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + HALF, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + HALF, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sum[0], PANEL * sizeof(float));
    _tile_stored(1, sum[0] + LINES, PANEL * sizeof(float));
    _tile_stored(2, sum[LINES], PANEL * sizeof(float));
    _tile_stored(3, sum[LINES] + LINES, PANEL * sizeof(float));
}

/* 8 rows x 2 vectors at a time; a row's pair is 32 bits. */
static void dot_sums(int steps, const uint16_t *a, const uint16_t *b, float sum[PANEL][PANEL]) {
    enum { ROWS = 8 };
    for (int row = 0; row < PANEL; row += ROWS) {
        __m512 s[ROWS][2];
        _Pragma("GCC unroll 8") for (int o = 0; o < ROWS; o++) s[o][0] = s[o][1] = _mm512_setzero_ps();
        for (int k = 0; k < steps; k++) {
            const uint16_t *own = a + k * 2 * HALF + row * STEPS, *other = b + k * 2 * HALF;
            for (int pair = 0; pair < STEPS / 2; pair++) {
                const __m512bh low = (__m512bh)_mm512_loadu_si512(other + pair * STEPS), high = (__m512bh)_mm512_loadu_si512(other + HALF + pair * STEPS);
                _Pragma("GCC unroll 8") for (int o = 0; o < ROWS; o++) {
                    int32_t two;
                    memcpy(&two, own + o * STEPS + 2 * pair, sizeof two);
                    const __m512bh weight = (__m512bh)_mm512_set1_epi32(two);
                    s[o][0] = _mm512_dpbf16_ps(s[o][0], weight, low);
                    s[o][1] = _mm512_dpbf16_ps(s[o][1], weight, high);
                }
            }
        }
        _Pragma("GCC unroll 8") for (int o = 0; o < ROWS; o++) {
            _mm512_storeu_ps(sum[row + o], s[o][0]);
            _mm512_storeu_ps(sum[row + o] + LINES, s[o][1]);
        }
    }
}

/* Columns [at, at + 32) of the panel's: what is there goes out. */
static void put(const struct echi_cpu_panel *p, int at, float sum[PANEL][PANEL]) {
    for (int o = 0; o < p->rows; o++) {
        const __m512 start = _mm512_set1_ps(p->start ? p->start[o] : 0.0f);
        for (int i = 0; i < PANEL && at + i < p->columns; i += LINES) {
            const int left = p->columns - at - i;
            const __mmask16 there = (__mmask16)(left >= LINES ? 0xffffu : (1u << left) - 1);
            float *to = p->out + o * p->out_row + (at + i) / LINES * p->out_vector;
            __m512 y = _mm512_loadu_ps(sum[o] + i) + (p->add ? _mm512_maskz_loadu_ps(there, to) : start);
            if (p->relu) y = _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_LE_OQ), _mm512_setzero_ps());
            _mm512_mask_storeu_ps(to, there, y);
        }
    }
}

static inline __attribute__((always_inline)) void panel(const struct echi_cpu_panel *p, void sums(int, const uint16_t *, const uint16_t *, float[PANEL][PANEL])) {
    const int steps = (p->depth + STEPS - 1) / STEPS;
    float sum[PANEL][PANEL] __attribute__((aligned(64)));
    const uint16_t *b = p->b;
    for (int at = 0; at < p->columns; at += PANEL, b += (ptrdiff_t)steps * 2 * HALF) {
        sums(steps, p->a, b, sum);
        put(p, at, sum);
    }
}
void echi_cpu_bf16_panel_amx(const struct echi_cpu_panel *p) { panel(p, amx_sums); }
void echi_cpu_bf16_panel_dot(const struct echi_cpu_panel *p) { panel(p, dot_sums); }
#endif
