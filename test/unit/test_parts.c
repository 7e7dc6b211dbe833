/* SPDX-License-Identifier: Apache-2.0
 * The default table of parts, for models from a seed: what must hold of each; and which tables are one of a model. */
#include "echi_job.h"
#include "echi_planner.h"
#include "echi_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct echi_parts parts;
static char text[200];

static bool is_valid(int codec) {
    struct echi_part_fault fault;
    const bool valid = echi_parts_valid(&parts, codec, &fault);
    if (!valid) echi_parts_sentence(&parts, &fault, text, sizeof text);
    return valid;
}
static bool fits(const struct echi_layers *l, bool separated) {
    struct echi_part_fault fault;
    const bool fit = echi_parts_fit(&parts, l, separated ? l->cut : 0, &fault);
    if (!fit) echi_parts_sentence(&parts, &fault, text, sizeof text);
    return fit;
}

static struct echi_layers any_model(struct echi_random *r) {
    struct echi_layers l = {.count = (uint16_t)(1 + echi_random_below(r, echi_random_below(r, 8) ? 60 : ECHI_UNITS_MAX))};
    for (int i = 0; i < l.count; i++) {
        l.params[i] = 1 + echi_random_below(r, 1u << (1 + echi_random_below(r, 22)));
        l.joined[i] = i > 0 && !l.joined[i - 1] && echi_random_below(r, 3) == 0;
    }
    l.cut = (uint16_t)(1 + echi_random_below(r, l.count));
    if (l.cut < l.count) l.joined[l.cut] = false;
    return l;
}

static uint64_t total(const struct echi_layers *l) {
    uint64_t sum = 0;
    for (int i = 0; i < l->count; i++) sum += l->params[i];
    return sum;
}

/* Written another way than the library's: by walking over layers. */
static void check_dense(const struct echi_layers *l, bool separated, uint64_t slice, uint64_t merged) {
    uint64_t at = 0, begins[ECHI_UNITS_MAX + 1] = {0};
    for (int i = 0; i < l->count; i++) begins[i + 1] = begins[i] + l->params[i];
    for (int i = 0; i < parts.count; i++) {
        const struct echi_part *p = &parts.part[i];
        assert_true(p->at == at && p->count > 0 && p->count <= slice && p->codec == ECHI_CODEC_DENSE && p->tolerance == 0);
        at += p->count;
        assert_true(begins[p->first] <= p->at && p->at < begins[p->first + 1]);
        assert_true(begins[p->last] < at && at <= begins[p->last + 1]);
        if (separated) assert_false(p->first < l->cut && p->last >= l->cut);
        /* A border inside a layer, or between a batch-norm and its convolution, is one of a slice: the two together exceed one. */
        const bool inside = at != begins[p->last + 1] || (p->last + 1 < l->count && l->joined[p->last + 1]);
        uint64_t unit_begin = begins[p->last], unit_end = begins[p->last + 1];
        if (l->joined[p->last]) unit_begin = begins[p->last - 1];
        else if (p->last + 1 < l->count && l->joined[p->last + 1]) unit_end = begins[p->last + 2];
        if (inside) assert_true(unit_end - unit_begin > slice);
        /* Neighbours that would fit into one part are one, but across the cut, and beside slices. */
        if (i == 0 || inside || (separated && p->first == l->cut)) continue;
        const struct echi_part *b = p - 1;
        const bool sliced = b->at != begins[b->first] || b->at + b->count != begins[b->last + 1] || p->at != begins[p->first];
        if (!sliced && (uint64_t)b->count + p->count <= merged)
            fail_msg("parts %d and %d have %u and %u of %llu", i - 1, i, b->count, p->count, (unsigned long long)merged);
    }
    assert_true(at == total(l));
}

static void a_default_table_keeps_the_rules(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 3000; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 70);
        const struct echi_layers l = any_model(&r);
        const bool separated = echi_random_below(&r, 2);
        const uint32_t size = echi_random_below(&r, 16);
        const uint64_t slice = UINT64_C(64) << size, merged = UINT64_C(64) << echi_random_below(&r, size + 1), least = total(&l) / 120;
        echi_parts_make(&l, separated ? l.cut : 0, ECHI_CODEC_DENSE, slice, merged, &parts);
        assert_in_range(parts.count, 1, ECHI_PARTS_MAX);
        if (!is_valid(ECHI_CODEC_DENSE) || !fits(&l, separated))
            fail_msg("seed %u: %s", seed, text);
        check_dense(&l, separated, slice > least ? slice : least, merged > least ? merged : least);
        if (separated) assert_int_equal(parts.part[echi_parts_before(&parts, l.cut)].first, l.cut < l.count ? l.cut : 0);
        echi_parts_make(&l, separated ? l.cut : 0, ECHI_CODEC_TOPK, slice, merged, &parts);
        assert_int_equal(parts.count, l.count);
        assert_true(is_valid(ECHI_CODEC_TOPK) && fits(&l, separated));
    }
}

/* Small neighbours are one part, a layer by itself is one, and a large layer as many slices as its limit asks for. */
static void models_of_known_sizes(void **state) {
    (void)state;
    const struct echi_layers lenet = {.count = 5, .cut = 2, .params = {156, 2416, 48120, 10164, 850}};
    echi_parts_make(&lenet, 0, ECHI_CODEC_DENSE, ECHI_PART_SLICE, ECHI_PART_MERGED, &parts);
    assert_true(parts.count == 3 && parts.part[0].count == 2572 && parts.part[1].count == 48120 && parts.part[2].count == 11014);
    echi_parts_make(&lenet, 0, ECHI_CODEC_DENSE, ECHI_PART_SLICE, ECHI_PART_SLICE, &parts);
    assert_true(parts.count == 1 && parts.part[0].count == 61706 && parts.part[0].last == 4);
    echi_parts_make(&lenet, 2, ECHI_CODEC_DENSE, ECHI_PART_SLICE, ECHI_PART_MERGED, &parts);
    assert_true(parts.count == 3 && parts.part[0].count == 2572 && parts.part[1].first == 2 && parts.part[1].at == 2572);
    assert_int_equal(echi_parts_before(&parts, 2), 1);
    const struct echi_layers large = {.count = 3, .cut = 3, .params = {100, 3 * ECHI_PART_SLICE + 1, 100}};
    echi_parts_make(&large, 0, ECHI_CODEC_DENSE, ECHI_PART_SLICE, ECHI_PART_MERGED, &parts);
    assert_true(parts.count == 6 && parts.part[1].first == 1 && parts.part[4].last == 1 && parts.part[5].first == 2);
    for (int i = 1; i < 5; i++) assert_in_range(parts.part[i].count, 3 * ECHI_PART_SLICE / 4, 3 * ECHI_PART_SLICE / 4 + 1);
    const struct echi_layers none = {0};
    echi_parts_make(&none, 0, ECHI_CODEC_DENSE, ECHI_PART_SLICE, ECHI_PART_MERGED, &parts);
    assert_int_equal(parts.count, 0);
}

/* Whatever is changed in a table of a model, it is refused, and the sentence names a part or says that there is no table. */
static void another_models_table_is_refused(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 3000; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 71);
        const struct echi_layers l = any_model(&r);
        const int codec = echi_random_below(&r, 2) ? ECHI_CODEC_DENSE : ECHI_CODEC_TOPK;
        echi_parts_make(&l, l.cut, codec, 1024, 512, &parts);
        struct echi_part *p = &parts.part[echi_random_below(&r, parts.count)];
        switch (echi_random_below(&r, 8)) {
        case 0: p->at++; break;
        case 1: p->count++; break;
        case 2: p->count--; break;
        case 3: p->first++; break;
        case 4: p->last++; break;
        case 5: p->codec ^= 1; break;
        case 6: p->tolerance = 1; break;
        default: parts.count--; break;
        }
        memset(text, 0, sizeof text);
        if (is_valid(codec) && fits(&l, true))
            fail_msg("seed %u is taken", seed);
        if (!strstr(text, "part ") && !strstr(text, "no table of parts")) fail_msg("seed %u: '%s'", seed, text);
    }
    const struct echi_layers two = {.count = 2, .cut = 1, .params = {10, 10}};
    echi_parts_make(&two, 0, ECHI_CODEC_DENSE, ECHI_PART_SLICE, ECHI_PART_MERGED, &parts);
    assert_true(fits(&two, false));
    assert_false(fits(&two, true));
    assert_string_equal(text, "part 0 has layers 0 to 1, but the head's layers begin with 1: part them there");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_default_table_keeps_the_rules), cmocka_unit_test(models_of_known_sizes),
                                       cmocka_unit_test(another_models_table_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
