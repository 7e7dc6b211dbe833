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
    } else {
        for (int k = 0; k < steps; k++)
            for (int i = 0; i < lines; i++) block[i][k] = at[i * l->line + k * l->step];
    }
}

/* 32 numbers at `low` and `high`, 16 at each. */
static inline __m512i rounded(const float *low, const float *high) {
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(high), _mm512_loadu_ps(low));
}

/* What is `low` in 16 lanes beside what is `high` in them. */
static inline __m512i beside(const float *low, const float *high) {
    const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3,
                                           18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(pairs, rounded(low, high));
}

static bool is_whole(const struct echi_cpu_lines *l, int first, int from) { return l->lines - first >= LINES && l->depth - from >= STEPS; }

/* Of 16 lines side by side two steps become 16 pairs. */
static void pairs_of(const float *at, ptrdiff_t step, uint16_t *to) {
    for (int k = 0; k < STEPS; k += 2, at += 2 * step) _mm512_storeu_si512(to + k * LINES, beside(at, at + step));
}

static void half_of_rows(const struct echi_cpu_lines *l, int first, int from, uint16_t *to) {
    float block[LINES][STEPS];
    const float *at = l->at + first * l->line + from * l->step;
    if (l->line == 1 && is_whole(l, first, from)) {
        uint16_t pairs[HALF] __attribute__((aligned(64)));
        pairs_of(at, l->step, pairs);
        /* Pairs are moved as floats are: their bits stay. */
        turn((const float *)(const void *)pairs, LINES, LINES, (float *)(void *)to, LINES);
        return;
    }
    const bool straight = l->step == 1 && is_whole(l, first, from);
    const ptrdiff_t line = straight ? l->line : STEPS;
    if (!straight) {
        fetch(l, first, from, block);
        at = block[0];
    }
    for (int i = 0; i < LINES; i++, at += line) _mm512_storeu_si512(to + i * STEPS, rounded(at, at + LINES));
}

static void half_of_columns(const struct echi_cpu_lines *l, int first, int from, uint16_t *to) {
    if (l->line == 1 && is_whole(l, first, from)) {
        pairs_of(l->at + first + from * l->step, l->step, to);
        return;
    }
    uint16_t rows[HALF] __attribute__((aligned(64)));
    half_of_rows(l, first, from, rows);
    turn((const float *)(const void *)rows, LINES, LINES, (float *)(void *)to, LINES);   /* as above */
}

void echi_cpu_bf16_pack_pairs(const struct echi_cpu_bf16_pairs *p, uint16_t *to) {
    static const float nothing[LINES];
    for (int i = 0; i < LINES; i++)
        _mm512_storeu_si512(to + i * STEPS, beside(i < p->firsts ? p->first + i * p->row : nothing,
                                                   i < p->seconds ? p->second + i * p->row : nothing));
}

void echi_cpu_bf16_pack_turned(const struct echi_cpu_bf16_pairs *p, uint16_t *to) {
    uint16_t rows[HALF] __attribute__((aligned(64)));
    echi_cpu_bf16_pack_pairs(p, rows);
    turn((const float *)(const void *)rows, LINES, LINES, (float *)(void *)to, LINES);   /* as above */
}

/* 16 numbers, `apart` from each other, of which so many are there. */
static inline __m512 gathered(const float *at, int apart, int count) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __mmask16 there = (__mmask16)(count >= LINES ? 0xffffu : count > 0 ? (1u << count) - 1 : 0);
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), there, _mm512_mullo_epi32(lane, _mm512_set1_epi32(apart)), at, sizeof(float));
}

void echi_cpu_bf16_pack_weights(const float *w, int in, int taps, uint16_t *to, ptrdiff_t tap_apart) {
    for (int tap = 0; tap < taps; tap++, w++, to += tap_apart)
        _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(gathered(w + LINES * taps, taps, in - LINES), gathered(w, taps, in)));
}

void echi_cpu_bf16_pack_weights_turned(const float *w, ptrdiff_t out_apart, int out, int in, int taps, uint16_t *to, ptrdiff_t tap_apart) {
    float rows[STEPS][LINES];
    uint16_t pairs[HALF] __attribute__((aligned(64)));
    for (int tap = 0; tap < taps; tap++, to += tap_apart) {
        for (int o = 0; o < STEPS; o++)
            _mm512_storeu_ps(rows[o], gathered(w + (o < out ? o * out_apart + tap : 0), taps, o < out ? in : 0));
        echi_cpu_bf16_pack_pairs(&(struct echi_cpu_bf16_pairs){rows[0], rows[1], (ptrdiff_t)2 * LINES, LINES, LINES}, pairs);
        turn((const float *)(const void *)pairs, LINES, LINES, (float *)(void *)to, LINES);
    }
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

/* Columns of more bytes than that are not all in a second-level cache. Of what each step of the next columns takes, a part is on its way
 * while a step of these is at work: a part for each 32 rows. */
enum { FAR_BYTES = 1 << 20, PARTS = ECHI_CPU_BF16_ROWS / PANEL, LINE = 32 };   /* numbers in a line of a cache */
static inline void fetch_part(const uint16_t *next) {
    for (int i = 0; i < 2 * HALF / PARTS; i += LINE) __builtin_prefetch(next + i, 0, 2);
}

/* From nothing, or beside what is there. `next`: see fetch_part; or NULL. */
static void amx_sums(int steps, const uint16_t *a, const uint16_t *b, const uint16_t *next, bool add, float sum[PANEL][PANEL]) {
    if (add) {
        _tile_loadd(0, sum[0], PANEL * sizeof(float));
        _tile_loadd(1, sum[0] + LINES, PANEL * sizeof(float));
        _tile_loadd(2, sum[LINES], PANEL * sizeof(float));
        _tile_loadd(3, sum[LINES] + LINES, PANEL * sizeof(float));
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int k = 0; k < steps; k++, a += 2 * HALF, b += 2 * HALF) {
        if (next) fetch_part(next + k * 2 * HALF);
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
static void dot_sums(int steps, const uint16_t *a, const uint16_t *b, const uint16_t *next, bool add, float sum[PANEL][PANEL]) {
    enum { ROWS = 8 };
    (void)next;
    for (int row = 0; row < PANEL; row += ROWS) {
        __m512 s[ROWS][2];
        _Pragma("GCC unroll 8") for (int o = 0; o < ROWS; o++) {
            s[o][0] = add ? _mm512_loadu_ps(sum[row + o]) : _mm512_setzero_ps();
            s[o][1] = add ? _mm512_loadu_ps(sum[row + o] + LINES) : _mm512_setzero_ps();
        }
        for (int k = 0; k < steps; k++) {
            const uint16_t *own = a + k * 2 * HALF + row * STEPS, *other = b + k * 2 * HALF;
            for (int pair = 0; pair < STEPS / 2; pair++) {
                const __m512bh low = (__m512bh)_mm512_loadu_si512(other + pair * STEPS);
                const __m512bh high = (__m512bh)_mm512_loadu_si512(other + HALF + pair * STEPS);
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

/* Rows [row, row + 32) and columns [at, at + 32) of the panel's: what is there goes out. */
static void put(const struct echi_cpu_panel *p, int row, int at, float sum[PANEL][PANEL]) {
    for (int o = row; o < min_int(row + PANEL, p->rows); o++) {
        const __m512 start = _mm512_set1_ps(p->start ? p->start[o] : 0.0f);
        for (int i = 0; i < PANEL && at + i < p->columns; i += LINES) {
            const int left = p->columns - at - i;
            const __mmask16 there = (__mmask16)(left >= LINES ? 0xffffu : (1u << left) - 1);
            float *to = p->out + o * p->out_row + (at + i) / LINES * p->out_vector;
            __m512 y = _mm512_loadu_ps(sum[o - row] + i) + (p->add ? _mm512_maskz_loadu_ps(there, to) : start);
            if (p->relu) y = _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_LE_OQ), _mm512_setzero_ps());
            _mm512_mask_storeu_ps(to, there, y);
        }
    }
}

/* So many steps of 32 columns, 16 KiB, stay in the first-level cache while all rows go by, whose sums wait in it, too. */
enum { NEAR_STEPS = 8 };

/* Part k of so many of the places where the sums of rows [row, row + 32) will go, so that writing them need not wait. */
static void fetch_places(const struct echi_cpu_panel *p, int row, int at, int k, int parts) {
    const float *out = p->out + at / LINES * p->out_vector;
    for (int o = row + PANEL * k / parts; o < min_int(row + PANEL * (k + 1) / parts, p->rows); o++) {
        __builtin_prefetch(out + o * p->out_row, 1, 2);
        __builtin_prefetch(out + o * p->out_row + p->out_vector, 1, 2);
    }
}

typedef void sums_function(int steps, const uint16_t *a, const uint16_t *b, const uint16_t *next, bool add, float sum[PANEL][PANEL]);
static inline __attribute__((always_inline)) void panel(const struct echi_cpu_panel *p, sums_function *sums) {
    const int steps = (p->depth + STEPS - 1) / STEPS;
    float sum[ECHI_CPU_BF16_ROWS / PANEL][PANEL][PANEL] __attribute__((aligned(64)));
    const uint16_t *b = p->b;
    const bool far = (size_t)p->columns * (size_t)p->depth * sizeof *b > FAR_BYTES;
    for (int at = 0; at < p->columns; at += PANEL, b += (ptrdiff_t)steps * 2 * HALF)
        for (int k = 0, n; k < steps; k += n) {
            n = min_int(NEAR_STEPS, steps - k);
            for (int row = 0; row < p->rows; row += PANEL) {
                const uint16_t *a = (const uint16_t *)p->a + ((ptrdiff_t)row / PANEL * steps + k) * 2 * HALF;
                if (far) fetch_places(p, row, at, k / NEAR_STEPS, parts_of(steps, NEAR_STEPS));
                const uint16_t *next = b + ((ptrdiff_t)steps + k) * 2 * HALF + row / PANEL * (2 * HALF / PARTS);
                sums(n, a, b + (ptrdiff_t)k * 2 * HALF, far && at + PANEL < p->columns ? next : NULL, k > 0, sum[row / PANEL]);
                if (k + n == steps) put(p, row, at, sum[row / PANEL]);
            }
        }
}
void echi_cpu_bf16_panel_amx(const struct echi_cpu_panel *p) { panel(p, amx_sums); }
void echi_cpu_bf16_panel_dot(const struct echi_cpu_panel *p) { panel(p, dot_sums); }

/* ---- sums of blocks, wherever they are ---- */

/* `low`, `right`: are there rows in the lower block, is there a second column? Loops with constants for both. */
static inline __attribute__((always_inline)) void add_blocks(const struct echi_cpu_bf16_sums *p, bool low, bool right) {
    const struct echi_cpu_bf16_loop l0 = p->loop[0], l1 = p->loop[1], l2 = p->loop[2];
    int fetched = 0;
    for (int i = 0; i < l0.n; i++)
        for (int j = 0; j < l1.n; j++) {
            const uint16_t *a = p->a + (i * l0.a + j * l1.a) * HALF, *b = p->b + (i * l0.b + j * l1.b) * HALF;
            for (int k = 0; k < l2.n; k++, a += l2.a * HALF, b += l2.b * HALF) {
                /* A few of the places that sums go to at a time, so that loads are not kept waiting. */
                for (const int until = min_int(fetched + 2, p->rows); fetched < until; fetched++) {
                    __builtin_prefetch(p->out + fetched * p->out_row, 1);
                    if (right) __builtin_prefetch(p->out + fetched * p->out_row + p->out_next, 1);
                }
                _tile_loadd(4, a, 64);
                _tile_loadd(6, b, 64);
                _tile_dpbf16ps(0, 4, 6);
                if (right) {
                    _tile_loadd(7, b + HALF, 64);
                    _tile_dpbf16ps(1, 4, 7);
                }
                if (!low) continue;
                _tile_loadd(5, a + HALF, 64);
                _tile_dpbf16ps(2, 5, 6);
                if (right) _tile_dpbf16ps(3, 5, 7);
            }
        }
}

/* A block of sums, 16 rows of 16: what is in it before, and where it goes. Rows that are not there are kept to themselves. */
struct places { float *at; ptrdiff_t row; int rows; };
static struct places places_of(const struct echi_cpu_bf16_sums *p, int half, int column) {
    return (struct places){p->out + half * LINES * p->out_row + column * p->out_next, p->out_row, min_int(LINES, p->rows - half * LINES)};
}
static void begin_with(const struct echi_cpu_bf16_sums *p, float *starts) {
    for (int i = 0; i < PANEL; i++) _mm512_storeu_ps(starts + i * LINES, _mm512_set1_ps(i < p->rows ? p->start[i] : 0.0f));
}
static void end_with(const struct echi_cpu_bf16_sums *p, struct places to, float *own) {
    for (int i = 0; i < to.rows && (p->relu || own); i++) {
        __m512 y = _mm512_loadu_ps(own ? own + i * LINES : to.at + i * to.row);
        if (p->relu) y = _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_LE_OQ), _mm512_setzero_ps());
        _mm512_storeu_ps(to.at + i * to.row, y);
    }
}

/* Tiles have numbers, not addresses: so what is done with each of the four is said for each. */
#define FOUR_TILES(what) what(0, 0, 0) what(1, 0, 1) what(2, 1, 0) what(3, 1, 1)
void echi_cpu_bf16_sums_amx(const struct echi_cpu_bf16_sums *p) {
    float own[PANEL][LINES] __attribute__((aligned(64)));
    const bool low = p->rows > LINES, right = p->columns > 1;
    if (p->start) begin_with(p, own[0]);
#define BEGIN(tile, half, column)                                                                                                 \
    if ((low || !half) && (right || !column)) {                                                                                   \
        const struct places from = places_of(p, half, column);                                                                    \
        if (p->add) _tile_loadd(tile, from.at, (size_t)from.row * sizeof(float));                                                 \
        else if (p->start) _tile_loadd(tile, own[half * LINES], LINES * sizeof(float));                                           \
        else _tile_zero(tile);                                                                                                    \
    }
    FOUR_TILES(BEGIN)
    if (low && right) add_blocks(p, true, true);
    else if (low) add_blocks(p, true, false);
    else if (right) add_blocks(p, false, true);
    else add_blocks(p, false, false);
#define END(tile, half, column)                                                                                                   \
    if ((low || !half) && (right || !column)) {                                                                                   \
        const struct places to = places_of(p, half, column);                                                                      \
        if (to.rows == LINES) _tile_stored(tile, to.at, (size_t)to.row * sizeof(float));                                          \
        else _tile_stored(tile, own[0], LINES * sizeof(float));                                                                   \
        end_with(p, to, to.rows == LINES ? NULL : own[0]);                                                                        \
    }
    FOUR_TILES(END)
}

/* 8 rows x 1 column at a time, pair by pair. */
void echi_cpu_bf16_sums_dot(const struct echi_cpu_bf16_sums *p) {
    enum { ROWS = 8 };
    const struct echi_cpu_bf16_loop l0 = p->loop[0], l1 = p->loop[1], l2 = p->loop[2];
    for (int row = 0; row < p->rows; row += ROWS)
        for (int column = 0; column < p->columns; column++) {
            const int rows = min_int(ROWS, p->rows - row);
            float *out = p->out + row * p->out_row + column * p->out_next, own[ROWS][LINES];
            __m512 s[ROWS];
            for (int o = 0; o < ROWS; o++)
                _mm512_storeu_ps(own[o], o >= rows ? _mm512_setzero_ps() : p->add ? _mm512_loadu_ps(out + o * p->out_row)
                                                                              : _mm512_set1_ps(p->start ? p->start[row + o] : 0.0f));
            _Pragma("GCC unroll 8") for (int o = 0; o < ROWS; o++) s[o] = _mm512_loadu_ps(own[o]);
            for (int i = 0; i < l0.n; i++)
                for (int j = 0; j < l1.n; j++)
                    for (int k = 0; k < l2.n; k++) {
                        const uint16_t *a = p->a + (i * l0.a + j * l1.a + k * l2.a) * HALF + row * STEPS;
                        const uint16_t *b = p->b + (i * l0.b + j * l1.b + k * l2.b + column) * HALF;
                        for (int pair = 0; pair < STEPS / 2; pair++) {
                            const __m512bh in = (__m512bh)_mm512_loadu_si512(b + pair * STEPS);
                            _Pragma("GCC unroll 8") for (int o = 0; o < ROWS; o++) {
                                int32_t two;
                                memcpy(&two, a + o * STEPS + 2 * pair, sizeof two);
                                s[o] = _mm512_dpbf16_ps(s[o], (__m512bh)_mm512_set1_epi32(two), in);
                            }
                        }
                    }
            _Pragma("GCC unroll 8") for (int o = 0; o < ROWS; o++) _mm512_storeu_ps(own[o], s[o]);
            end_with(p, (struct places){out, p->out_row, rows}, own[0]);
        }
}
#endif
