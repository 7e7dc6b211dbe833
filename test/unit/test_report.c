/* SPDX-License-Identifier: Apache-2.0
 * The report's JSON: the keys that scripts read, and that it is JSON whatever is in it (by a checker of RFC 8259 that
 * shares nothing with the writer). */
#include "echelon.h"
#include "part.h"
#include "text_files.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Each function returns the place after what it has read, or NULL when it is not there. */
static const char *value(const char *at);
static const char *space(const char *at) { return at + strspn(at, " \t\r\n"); }
static const char *digits(const char *at) { return strspn(at, "0123456789") ? at + strspn(at, "0123456789") : NULL; }

static const char *number(const char *at) {
    if (*at == '-') at++;
    if (at[0] == '0' && at[1] >= '0' && at[1] <= '9') return NULL;
    at = digits(at);
    if (at && *at == '.') at = digits(at + 1);
    if (at && (*at == 'e' || *at == 'E')) at = digits(at + 1 + (at[1] == '+' || at[1] == '-'));
    return at;
}

static const char *string(const char *at) {
    if (*at++ != '"') return NULL;
    for (; *at && *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) return NULL;
        if (*at != '\\') continue;
        at++;
        if (*at == 'u') {
            if (strspn(at + 1, "0123456789abcdefABCDEF") < 4) return NULL;
            at += 4;
        } else if (!*at || !strchr("\"\\/bfnrt", *at)) return NULL;
    }
    return *at == '"' ? at + 1 : NULL;
}

static const char *list(const char *at, bool object, char end) {
    at = space(at + 1);
    if (*at == end) return at + 1;
    for (;;) {
        if (object) {
            at = string(space(at));
            if (!at) return NULL;
            at = space(at);
            if (*at++ != ':') return NULL;
        }
        at = value(at);
        if (!at) return NULL;
        at = space(at);
        if (*at == end) return at + 1;
        if (*at++ != ',') return NULL;
    }
}

static const char *value(const char *at) {
    at = space(at);
    if (*at == '{') return list(at, true, '}');
    if (*at == '[') return list(at, false, ']');
    if (*at == '"') return string(at);
    if (strncmp(at, "null", 4) == 0) return at + 4;
    return number(at);
}

static bool is_json(const char *text) {
    const char *end = *space(text) == '{' ? value(text) : NULL;
    return end && !*space(end);
}

/* UTF-8 by the C library, in a locale of that kind when there is one. */
static bool is_utf8(const char *text) { return setlocale(LC_CTYPE, "C.UTF-8") == NULL || mbstowcs(NULL, text, 0) != (size_t)-1; }

static struct ech_report sample(void) {
    struct ech_report r = {.model = "lenet5", .data = "data/mnist", .sync = "gssp", .version = "0.1.0", .world = 4, .separate = 1,
                           .n_groups = 2, .group_of = {0, 0, -1, 1}, .owner_of = {1, 3}, .head = 2, .head_from = "fc1",
                           .batch = {8, 8, 0, 8},
                           .round = 64, .step_seconds = {0.01, 0.01, 0.008, 0.04}, .link = {94, 0, 940.5, 0},
                           .link_out = {{94, 90, 95}}, .delay = {[1] = 0.002}, .link_in = {[2] = {940.5f, 930, 940.5f}},
                           .iteration_seconds = {0.0125, 0.05, 7}, .steps = 4690,
                           .samples = 300160, .epochs = 5.0027, .seconds = 41.5, .images_per_second = 7232.77, .measuring_seconds = 2.5,
                           .startup_seconds = 1.25, .train_loss = 0.0123, .test_accuracy = 0.9871, .best_accuracy = 0.9874,
                           .target_seconds = 20.25, .target_epochs = 2.5, .bytes_sent = {1000, UINT64_MAX},
                           .kind_name = {"push", "weights"}, .staleness_edge = {0, 0.25, 0.5},
                           .staleness_trunk = {1, 20, 300, [12] = UINT64_MAX}, .staleness_head = {7, [11] = 8, 9},
                           .staleness_max = 1.75, .staleness_mean = 0.5, .seed = UINT64_MAX, .resident_peak = 104857600, .threads = 3,
                           .lost_peer = -1, .checkpoint_seconds = 0.125, .resumed_samples = 64,
                           .n_lost = 2, .lost = {3, 1}, .leases_again = 4, .samples_again = 96, .head_repeats = 32, .codec = "topk:paper",
                           .push_ratio = 0.125, .state_ratio = 0.25, .residuals_lost = 2, .momentum_lost = 77,
                           .shadows_made = 6, .head_moves = 8, .head_seconds = 3.5,
                           .predicted_images_per_second = 7000.5, .predicted_staleness = 0.75, .net_negative = 2,
                           .net_negative_gain = 0.125, .leases_dropped = 5, .samples_dropped = 160, .regroups = 2, .resizes = 1,
                           .predicted_over_measured = 0.96875, .n_candidates = 1, .predicted_link = {[1] = {750.5f, 250}},
                           .candidate = {{"gssp", 2, 1, 1, 7000.5, 0.75, 0.5, 3500.25, 0.125, "measured"}},
                           .n_what_if = 2, .what_if = {{"links", 3, 0.41}, {"steps", -1, 0.25}}, .target_accuracy = 0.875,
                           .n_path = 2, .path_rank = -1, .path_seconds = 0.0625, .path = {{"in", 1, 0.05}, {"latency", -1, 0.0125}},
                           .slot_bytes = {1000, [3] = UINT64_MAX}, .activation_bytes = {[2] = 7}, .behind = 1.5,
                           .n_loss_curve = 2, .loss_curve = {{32, 2.25}, {96, 1.5}},
                           .measured_efficiency = 0.875, .measured_efficiency_error = -1, .simulated = 1,
                           .n_heads = 2, .head_rank = {2, 0}, .activations = "bf16",
                           .spent = {{0.5f, 1, 1.5f, 2, 2.5f, 3, 3.5f, 4, 4.5f}}};
    return r;
}

static const char *json(const struct ech_report *r) {
    static char buf[524288];
    size_t len = ech_report_json(r, buf, sizeof buf);
    assert_true(len < sizeof buf);
    assert_int_equal(len, strlen(buf));
    return buf;
}

static void test_keys(void **state) {
    (void)state;
    static const char *const lines[] = {
        "\"version\": \"0.1.0\"", "\"model\": \"lenet5\"", "\"data\": \"data/mnist\"", "\"sync\": \"gssp\"", "\"separate\": 1",
        "\"world\": 4", "\"groups\": [[0, 1], [3]]", "\"owners\": [1, 3]", "\"head\": [2]", "\"head_from\": \"fc1\"",
        "\"activations\": \"bf16\"",
        "\"batch\": [8, 8, 0, 8]",
        "\"round\": 64", "\"step_seconds\": [0.01, 0.01, 0.008, 0.04]", "\"link\": [94, 0, 940.5, 0]",
        "\"link_out\": [{\"rate\": 94, \"lowest\": 90, \"highest\": 95}, {\"rate\": 0, \"lowest\": 0, \"highest\": 0}, ",
        "\"link_in\": [{\"rate\": 0, \"lowest\": 0, \"highest\": 0}, ", "\"delay\": [0, 0.002, 0, 0]",
        "\"iteration_seconds\": [0.0125, 0.05]", "\"steps\": 4690",
        "\"samples\": 300160", "\"epochs\": 5.0027", "\"seconds\": 41.5", "\"images_per_second\": 7232.77", "\"measuring_seconds\": 2.5",
        "\"startup_seconds\": 1.25", "\"train_loss\": 0.0123", "\"test_accuracy\": 0.9871", "\"best_accuracy\": 0.9874",
        "\"target_seconds\": 20.25", "\"target_epochs\": 2.5", "\"bytes_sent\": {\"push\": 1000, \"weights\": 18446744073709551615}",
        "\"staleness_edges\": [0, 0.25, 0.5, 0, 0, 0, 0, 0, 0, 0, 0, 0]",
        "\"staleness_trunk\": [1, 20, 300, 0, 0, 0, 0, 0, 0, 0, 0, 0, 18446744073709551615]",
        "\"staleness_head\": [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 9]",
        "\"staleness_max\": 1.75", "\"staleness_mean\": 0.5", "\"seed\": 18446744073709551615", "\"resident_peak\": 104857600",
        "\"threads\": 3", "\"lost_peer\": null", "\"checkpoint_seconds\": 0.125", "\"resumed_samples\": 64",
        "\"lost\": [3, 1]", "\"leases_again\": 4", "\"samples_again\": 96", "\"head_repeats\": 32",
        "\"codec\": \"topk:paper\"", "\"push_ratio\": 0.125", "\"state_ratio\": 0.25", "\"residuals_lost\": 2", "\"momentum_lost\": 77",
        "\"shadows_made\": 6", "\"head_moves\": 8", "\"head_seconds\": 3.5",
        "\"predicted_images_per_second\": 7000.5", "\"predicted_staleness\": 0.75", "\"net_negative\": 2", "\"net_negative_gain\": 0.125",
        "\"leases_dropped\": 5", "\"samples_dropped\": 160", "\"regroups\": 2", "\"resizes\": 1", "\"predicted_over_measured\": 0.96875",
        "\"predicted_link\": [{\"out\": 0, \"in\": 0}, {\"out\": 750.5, \"in\": 250}, {\"out\": 0, \"in\": 0}, ",
        "\"candidates\": [{\"sync\": \"gssp\", \"groups\": 2, \"separated\": 1, \"taken\": 1, \"images_per_second\": 7000.5, "
        "\"staleness\": 0.75, \"efficiency\": 0.5, \"goodput\": 3500.25, \"efficiency_error\": 0.125, \"efficiency_from\": \"measured\"}]",
        "\"what_if\": [{\"what\": \"links\", \"rank\": 3, \"gain\": 0.41}, {\"what\": \"steps\", \"rank\": null, \"gain\": 0.25}]",
        "\"target_accuracy\": 0.875", "\"path_seconds\": 0.0625", "\"path_rank\": null",
        "\"path\": [{\"what\": \"in\", \"rank\": 1, \"seconds\": 0.05}, {\"what\": \"latency\", \"rank\": null, \"seconds\": 0.0125}]",
        "\"slot_bytes\": [1000, 0, 0, 18446744073709551615]", "\"activation_bytes\": [0, 0, 7, 0]",
        "\"behind\": 1.5", "\"loss_curve\": [{\"samples\": 32, \"loss\": 2.25}, {\"samples\": 96, \"loss\": 1.5}]",
        "\"measured_efficiency\": 0.875", "\"measured_efficiency_error\": null", "\"simulated\": 1",
        "\"spent\": [{\"steps\": 0.5, \"owner\": 1, \"head\": 1.5, \"codec\": 2, \"weights\": 2.5, \"lease\": 3, \"activations\": 3.5, "
        "\"gradients\": 4, \"other\": 4.5}, {\"steps\": 0, "};
    struct ech_report r = sample();
    const char *text = json(&r);
    assert_true(is_json(text));
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char line[240];   /* a key a line, for scripts without a JSON reader */
        snprintf(line, sizeof line, "\n  %s", lines[i]);
        if (!strstr(text, line)) fail_msg("no line '%s' in %s", lines[i], text);
    }
}

static void test_nothing_to_say(void **state) {
    (void)state;
    struct ech_report r = sample();
    r.head = -1;
    r.n_groups = 0;
    r.target_seconds = r.test_accuracy = -1;
    r.train_loss = (double)NAN;
    r.images_per_second = (double)INFINITY;
    r.kind_name[0] = NULL;
    const char *text = json(&r);
    assert_true(is_json(text));
    assert_non_null(strstr(text, "\"head\": []"));
    assert_non_null(strstr(text, "\"groups\": []"));
    assert_non_null(strstr(text, "\"staleness_head\": []"));
    assert_non_null(strstr(text, "\"target_seconds\": null"));
    assert_non_null(strstr(text, "\"test_accuracy\": null"));
    assert_non_null(strstr(text, "\"train_loss\": null"));
    assert_non_null(strstr(text, "\"images_per_second\": null"));
    assert_non_null(strstr(text, "\"bytes_sent\": {}"));
    struct ech_report zero = {0};
    assert_true(is_json(json(&zero)));
    assert_int_equal(ech_report_json(NULL, NULL, 0), 0);
}

/* Like ech_model_text: the length it needs, and never a byte past cap. */
static void test_caps(void **state) {
    (void)state;
    struct ech_report r = sample();
    char whole[8192], part[8192];
    size_t need = ech_report_json(&r, NULL, 0);
    assert_int_equal(ech_report_json(&r, whole, sizeof whole), need);
    for (size_t cap = 0; cap <= need + 1; cap++) {
        memset(part, 0x5a, sizeof part);
        assert_int_equal(ech_report_json(&r, part, cap), need);
        size_t kept = cap == 0 ? 0 : cap <= need ? cap - 1 : need;
        assert_memory_equal(part, whole, kept);
        if (cap) assert_int_equal(part[kept], 0);
        assert_int_equal(part[cap], 0x5a);
    }
}

/* Whatever bytes are in the report, the text is JSON in UTF-8. Seeded. */
static void test_any_bytes(void **state) {
    (void)state;
    uint64_t x = 7;
    for (uint32_t round = 0; round < 1000; round += test_part()) {
        struct ech_report r = sample();
        for (size_t i = 0; i < sizeof r.data - 1; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            unsigned pick = (unsigned)(x >> 40);
            r.data[i] = (char)(pick % 3 == 0 ? pick >> 8 : pick % 3 == 1 ? 0x80 | (pick >> 8 & 0x3f) : 0xe0 | (pick >> 8 & 0x1f));
        }
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(&r.seconds, &x, sizeof x);
        r.world = (int)(x >> 50) - 4096;
        r.n_groups = (int)(x >> 45 & 15) - 4;
        const char *text = json(&r);
        if (!is_json(text) || !is_utf8(text)) fail_msg("round %u: %s", (unsigned)round, text);
    }
    setlocale(LC_ALL, "C");
}

static void test_locale(void **state) {
    (void)state;
    use_comma_locale();
    struct ech_report r = sample();
    const char *text = json(&r);
    setlocale(LC_ALL, "C");
    assert_non_null(strstr(text, "41.5"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys), cmocka_unit_test(test_nothing_to_say), cmocka_unit_test(test_caps),
        cmocka_unit_test(test_any_bytes), cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
