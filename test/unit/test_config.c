/* SPDX-License-Identifier: Apache-2.0
 * The option table: defaults, text, environment, and what is refused with which words. */
#include "echelon.h"
#include "echi_run.h"
#include "text_files.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct ech_config fresh(void) {
    struct ech_config c;
    memset(&c, 0xa5, sizeof c);   /* init must not need zeros */
    ech_config_init(&c);
    return c;
}

static void set(struct ech_config *c, const char *name, const char *value) {
    struct ech_error err = {0};
    if (ech_config_set(c, name, value, &err) != ECH_OK) fail_msg("%s=%s: %s", name, value ? value : "(none)", err.text);
}

/* The call is refused, with a sentence that holds each of the words, and the config is as it was. */
static void refused(const char *name, const char *value, ech_status expected, const char *word) {
    struct ech_config c = fresh(), before = c;
    struct ech_error err = {0};
    ech_status status = ech_config_set(&c, name, value, &err);
    if (status != expected) fail_msg("%s=%s: %s, not %s", name, value, ech_status_name(status), ech_status_name(expected));
    assert_int_equal(err.code, expected);
    if (!strstr(err.text, word) || !strstr(err.text, name)) fail_msg("%s=%s: '%s' lacks '%s'", name, value, err.text, word);
    assert_memory_equal(&c, &before, sizeof c);
}

static void test_defaults(void **state) {
    (void)state;
    struct ech_config c = fresh();
    struct ech_error err;
    assert_int_equal(c.size, sizeof c);
    assert_int_equal(c.rank, 0);
    assert_int_equal(c.world, 1);
    assert_string_equal(c.coordinator, "");
    assert_string_equal(c.sync, "bsp");
    assert_string_equal(c.shares, "speed");
    assert_string_equal(c.device, "cpu");
    assert_int_equal(c.staleness, 3);
    assert_int_equal(c.groups, 0);
    assert_int_equal(c.separate, -1);
    assert_int_equal(c.batch, 0);
    assert_int_equal(c.samples_per_step, 0);
    assert_true(c.lr < 0 && c.momentum < 0 && c.weight_decay < 0);
    assert_true(c.epochs == 10 && c.steps < 0 && c.target_accuracy == 0 && c.eval_every == 3000);
    assert_true(c.seed == 1 && c.no_shuffle == 0 && c.threads == 0);
    assert_true(c.slow == 1 && c.deadline == 10 && c.join_timeout == 60);
    assert_null(c.on_log);
    assert_null(c.stop);
    assert_int_equal(ech_config_check(&c, &err), ECH_OK);
}

/* What --help shows as default is what init sets, and is accepted as text. */
static void test_fallbacks_are_settable(void **state) {
    (void)state;
    struct ech_config c = fresh(), d = fresh();
    int n;
    const struct ech_option *o = ech_options(&n);
    assert_true(n > 20);
    for (int i = 0; i < n; i++) {
        set(&c, o[i].name, o[i].fallback);
        assert_true(o[i].help && *o[i].help);
        for (int j = 0; j < i; j++) assert_string_not_equal(o[i].name, o[j].name);
    }
    assert_memory_equal(&c, &d, sizeof c);
}

static void test_set(void **state) {
    (void)state;
    struct ech_config c = fresh();
    set(&c, "rank", "3");
    set(&c, "world", "1024");
    set(&c, "coordinator", "[::1]:7000");
    set(&c, "sync", "gssp");
    set(&c, "groups", "2");
    set(&c, "separate", "off");
    set(&c, "batch", "65536");
    set(&c, "lr", "2.5e-2");
    set(&c, "weight-decay", "5e-4");
    set(&c, "steps", "0");
    set(&c, "target-accuracy", "0.985");
    set(&c, "eval-every", "4294967295");
    set(&c, "seed", "18446744073709551615");
    set(&c, "no-shuffle", NULL);
    set(&c, "save", "a file.safetensors");
    assert_true(c.rank == 3 && c.world == 1024 && c.groups == 2 && c.separate == 0 && c.batch == 65536);
    assert_string_equal(c.coordinator, "[::1]:7000");
    assert_string_equal(c.save, "a file.safetensors");
    assert_true(c.lr == 0.025 && c.weight_decay == 5e-4 && c.target_accuracy == 0.985);
    assert_true(c.steps == 0 && c.eval_every == UINT32_MAX && c.seed == UINT64_MAX && c.no_shuffle == 1);
    set(&c, "separate", "auto");
    assert_int_equal(c.separate, -1);
    set(&c, "separate", "fc2");
    assert_true(c.separate == 1 && strcmp(c.separate_from, "fc2") == 0);
    set(&c, "separate", "on");
    assert_true(c.separate == 1 && c.separate_from[0] == 0);
    set(&c, "separate", "fc2");
    set(&c, "separate", "11");
    assert_true(c.separate == 11 && c.separate_from[0] == 0);
    set(&c, "separate", "fc2");
    set(&c, "separate", "off");
    assert_true(c.separate == 0 && c.separate_from[0] == 0);
    set(&c, "no-shuffle", "off");
    assert_int_equal(c.no_shuffle, 0);
    set(&c, "lr", "auto");
    assert_true(c.lr < 0);
    set(&c, "sync", "auto");
    set(&c, "damping", "0.5");
    set(&c, "rounds-apart", "1");
    assert_true(c.damping == 0.5 && c.rounds_apart == 1);
    set(&c, "augment", "crop-flip");
    assert_string_equal(c.augment, "crop-flip");
    set(&c, "augment", "off");
    set(&c, "damping", "off");
    assert_true(c.damping == 0);
    set(&c, "optimizer", "nesterov");
    set(&c, "schedule", "step");
    set(&c, "warmup", "0.5");
    set(&c, "lr-steps", "0.25,30,60.5");
    set(&c, "lr-factor", "1");
    assert_true(c.warmup == 0.5 && c.lr_factor == 1);
    assert_string_equal(c.lr_steps, "0.25,30,60.5");
}

static void test_schedules_that_do_not_fit(void **state) {
    (void)state;
    static const struct { const char *schedule, *steps, *factor, *optimizer, *momentum, *word; } cases[] = {
        {"step", "3,6", "0.2", "nesterov", "0.9", NULL}, {"cosine", "", "0.1", "nesterov", "auto", NULL},
        {"constant", "", "0.1", "sgd", "0", NULL},
        {"step", "", "0.1", "sgd", "auto", "lr-steps is missing"}, {"cosine", "3,6", "0.1", "sgd", "auto", "option lr-steps is given"},
        {"constant", "", "0.2", "sgd", "auto", "option lr-factor is given"}, {"constant", "", "0.1", "nesterov", "0", "momentum is 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ech_config c = fresh();
        struct ech_error err = {0};
        set(&c, "schedule", cases[i].schedule);
        set(&c, "lr-steps", cases[i].steps);
        set(&c, "lr-factor", cases[i].factor);
        set(&c, "optimizer", cases[i].optimizer);
        set(&c, "momentum", cases[i].momentum);
        const ech_status status = ech_config_check(&c, &err);
        if (cases[i].word ? status != ECH_E_ARGUMENT || !strstr(err.text, cases[i].word) : status != ECH_OK)
            fail_msg("case %zu: '%s'", i, err.text);
    }
}

static void test_adam(void **state) {
    (void)state;
    static const struct { const char *optimizer, *name, *value, *word; } cases[] = {
        {"adam", "lr", "0.1", NULL}, {"adamw", "beta1", "0", NULL}, {"adam", "beta2", "0.9", NULL}, {"adamw", "epsilon", "1e-12", NULL},
        {"adam", "momentum", "0.9", "momentum is 0.9"}, {"adamw", "momentum", "0", "beta1 and beta2 instead"},
        {"sgd", "beta1", "0.8", "option beta1 is given"}, {"nesterov", "beta2", "0.8", "option beta2 is given"},
        {"sgd", "epsilon", "0.1", "option epsilon is given"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ech_config c = fresh();
        struct ech_error err = {0};
        assert_true(c.beta1 == 0.9 && c.beta2 == 0.999 && c.epsilon == 1e-8);
        set(&c, "optimizer", cases[i].optimizer);
        set(&c, cases[i].name, cases[i].value);
        const ech_status status = ech_config_check(&c, &err);
        if (cases[i].word ? status != ECH_E_ARGUMENT || !strstr(err.text, cases[i].word) : status != ECH_OK)
            fail_msg("case %zu: '%s'", i, err.text);
    }
}

/* Where an instruction set is lacking: as far as the library can see, `processor` is what this one has. */
static enum echi_cpu_level processor;
enum echi_cpu_level __wrap_echi_cpu_level(void);
enum echi_cpu_level __wrap_echi_cpu_level(void) { return processor; }

static void test_isa(void **state) {
    (void)state;
    static const char *const names[] = {"base", "avx2", "avx512"};
    for (int has = ECHI_CPU_BASE; has < ECHI_CPU_LEVELS; has++) {
        processor = (enum echi_cpu_level)has;
        struct ech_config c = fresh();
        assert_int_equal(echi_config_level(&c), has);
        for (int asked = ECHI_CPU_BASE; asked < ECHI_CPU_LEVELS; asked++) {
            struct ech_error err = {0};
            const ech_status status = ech_config_set(&c, "isa", names[asked], &err);
            if (status != (asked <= has ? ECH_OK : ECH_E_UNSUPPORTED)) fail_msg("%s of %s: %s", names[asked], names[has], err.text);
            if (status == ECH_OK) assert_int_equal(echi_config_level(&c), asked);
            else assert_true(strstr(err.text, names[asked]) && strstr(err.text, names[has]));
            struct echi_device *device = NULL;
            assert_int_equal(echi_device_open_at("cpu", 1, (enum echi_cpu_level)asked, &device, &err), status);
            if (status != ECH_OK) assert_true(!device && strstr(err.text, names[asked]) && strstr(err.text, names[has]));
            echi_device_close(device);
        }
    }
    struct ech_config c = fresh();
    struct ech_error err = {0};
    strcpy(c.precision, "bf16");
    strcpy(c.isa, "avx2");
    assert_int_not_equal(ech_config_check(&c, &err), ECH_OK);
    assert_true(strstr(err.text, "bf16"));
    refused("isa", "", ECH_E_ARGUMENT, "base, avx2 or avx512");
    refused("isa", "neon", ECH_E_ARGUMENT, "base, avx2 or avx512");
}

static void test_refused_text(void **state) {
    (void)state;
    static const struct { const char *name, *value, *word; } cases[] = {
        {"rank", "-1", "0 to 1023"}, {"rank", "1024", "0 to 1023"}, {"rank", "", "0 to 1023"}, {"rank", "1 ", "0 to 1023"},
        {"rank", " 1", "0 to 1023"}, {"rank", "1.0", "0 to 1023"}, {"rank", "0x1", "0 to 1023"}, {"rank", "+1", "0 to 1023"},
        {"world", "0", "1 to 1024"}, {"world", "1025", "1 to 1024"}, {"world", "99999999999999999999", "1 to 1024"},
        {"staleness", "-1", "0 to"}, {"batch", "-1", "'auto'"}, {"batch", "65537", "65536"}, {"groups", "9", "0 to 8"},
        {"lr", "-1", "'auto'"}, {"lr", "nan", "number"}, {"lr", "inf", "number"}, {"lr", "1e999", "number"},
        {"lr", "0,02", "number"}, {"lr", "0.02x", "number"}, {"lr", "1e", "number"}, {"momentum", "1", "0.999"},
        {"weight-decay", "2", "0 to 1"}, {"epochs", "-1", "0 to"}, {"steps", "-1", "'off'"}, {"target-accuracy", "98.5", "0 to 1"},
        {"eval-every", "4294967296", "4294967295"}, {"seed", "-1", "18446744073709551615"},
        {"seed", "18446744073709551616", "18446744073709551615"}, {"threads", "-1", "'auto'"}, {"threads", "1025", "1024"},
        {"slow", "0.5", "1 to"}, {"damping", "-1", "'off'"}, {"damping", "on", "'off'"}, {"rounds-apart", "0", "1 to"},
        {"optimizer", "SGD", "sgd, nesterov, adam or adamw"}, {"optimizer", "", "sgd, nesterov, adam or adamw"},
        {"beta1", "1", "0 to 0.999999"}, {"beta2", "-0.1", "0 to 0.999999"}, {"beta2", "nan", "number"}, {"epsilon", "0", "1e-12 to 1"},
        {"epsilon", "2", "1e-12 to 1"}, {"schedule", "linear", "constant, step or cosine"},
        {"warmup", "-1", "0 to 999999"}, {"warmup", "1e6", "0 to 999999"}, {"lr-factor", "0", "to 1"}, {"lr-factor", "1.1", "to 1"},
        {"lr-steps", "30,30", "ascending"}, {"lr-steps", "0,30", "ascending"}, {"lr-steps", "30,", "ascending"},
        {"lr-steps", "30 60", "ascending"},
        {"lr-steps", "1,2,3,4,5,6,7,8,9", "up to 8"}, {"lr-steps", "1e6", "ascending"}, {"lr-steps", "nan", "ascending"},
        {"deadline", "0", "0.01"}, {"join-timeout", "0", "0.01"}, {"no-shuffle", "maybe", "'on' or 'off'"}, {"sync", "BSP", "gssp"},
        {"sync", "", "gssp"}, {"augment", "", "crop-flip"}, {"precision", "", "fp32, tf32 or bf16"},
        {"precision", "fp16", "fp32, tf32 or bf16"}, {"activations", "", "fp32 or bf16"}, {"activations", "tf32", "fp32 or bf16"},
        {"heads", "0", "from 1 to 8"}, {"heads", "9", "from 1 to 8"}, {"heads", "12", "from 1 to 8"}, {"heads", "two", "or auto"},
        {"augment", "on", "crop-flip"}, {"augment", "crop", "auto"}, {"shares", "", "speed"}, {"shares", "1,,2", "speed"},
        {"shares", "1,2,", "speed"},
        {"shares", "-1,2", "speed"}, {"shares", "9999999", "speed"}, {"coordinator", "host", "HOST:PORT"},
        {"coordinator", ":7000", "HOST:PORT"}, {"coordinator", "host:", "HOST:PORT"}, {"coordinator", "host:65536", "HOST:PORT"},
        {"coordinator", "::1:7000", "HOST:PORT"}, {"coordinator", "host:99999999999999999999", "HOST:PORT"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i].name, cases[i].value, ECH_E_ARGUMENT, cases[i].word);
    refused("rank", NULL, ECH_E_ARGUMENT, "needs a value");
    refused("no-such-option", "1", ECH_E_ARGUMENT, "no option");
    refused("separate", "257", ECH_E_ARGUMENT, "by number from 2 to 256");
    refused("separate", "fc-2", ECH_E_ARGUMENT, "'on', or the layer");
    refused("separate", "", ECH_E_ARGUMENT, "as in fc2");
    refused("separate", "a_name_that_is_longer_than_names_are", ECH_E_ARGUMENT, "as in fc2");
    char long_text[2000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    refused("save", long_text, ECH_E_ARGUMENT, "1023 bytes");
}

/* Fields may be set without text: each of these changes a good config into one that is refused, naming `word`. */
static void spoil(int which, struct ech_config *c) {
    switch (which) {
    case 0: c->size = 0; break;
    case 1: c->rank = 4; break;
    case 2: c->rank = -1; break;
    case 3: c->coordinator[0] = 0; break;
    case 4: c->lr = (double)NAN; break;
    case 5: c->slow = 0; break;
    case 6: memset(c->save, 'x', sizeof c->save); break;
    case 7: c->separate = 2, strcpy(c->separate_from, "fc2"); break;
    case 8: strcpy(c->sync, "bsp"); break;           /* with two groups */
    case 9: c->groups = 5; break;                    /* of four nodes */
    case 10: strcpy(c->shares, "16,16,16,16"); break; /* under gssp */
    case 11: strcpy(c->sync, "local"); break;
    case 12: c->batch = -5; break;
    case 13: strcpy(c->save, "x"), strcpy(c->report, "x"); break;
    case 14: strcpy(c->report, "x"), strcpy(c->profile_out, "x"); break;
    case 15: strcpy(c->sync, "bsp"), c->groups = 0, c->damping = 1; break;
    case 16: c->damping = -1; break;
    case 17: c->rounds_apart = 0; break;
    default: c->deadline = (double)INFINITY; break;
    }
}

static void test_check(void **state) {
    (void)state;
    static const char *const word[] = {"ech_config_init", "rank is 4", "rank", "coordinator", "lr", "slow", "save", "separate",
                                       "groups", "groups", "shares", "sync", "batch", "save and report", "report and profile-out",
                                       "damping", "damping", "rounds-apart", "deadline"};
    struct ech_config good = fresh();
    struct ech_error err = {0};
    set(&good, "world", "4");
    set(&good, "coordinator", "127.0.0.1:0");
    set(&good, "sync", "gssp");
    set(&good, "groups", "2");
    assert_int_equal(ech_config_check(&good, &err), ECH_OK);
    for (int i = 0; i < (int)(sizeof word / sizeof word[0]); i++) {
        struct ech_config c = good;
        spoil(i, &c);
        if (ech_config_check(&c, &err) == ECH_OK || !strstr(err.text, word[i])) fail_msg("case %d: '%s'", i, err.text);
    }
    assert_int_equal(ech_config_check(NULL, &err), ECH_E_ARGUMENT);
    assert_int_not_equal(ech_config_check(NULL, NULL), ECH_OK);
}

static void test_share_lists(void **state) {
    (void)state;
    static const struct { const char *shares, *batch, *word; } cases[] = {
        {"24,24,12,4", "64", NULL}, {"64,0,0,0", "64", NULL},      {"24,24,12", "60", "3 numbers"},
        {"24,24,12,5", "64", "65"}, {"24,24,12,4", "auto", NULL},
        {"0,0,0,0", "auto", "work"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ech_config c = fresh();
        struct ech_error err = {0};
        set(&c, "world", "4");
        set(&c, "coordinator", "localhost:7000");
        set(&c, "shares", cases[i].shares);
        set(&c, "batch", cases[i].batch);
        ech_status status = ech_config_check(&c, &err);
        if ((status == ECH_OK) != !cases[i].word) fail_msg("%s: %s", cases[i].shares, err.text);
        if (cases[i].word && !strstr(err.text, cases[i].word)) fail_msg("%s: '%s'", cases[i].shares, err.text);
    }
    struct ech_config c = fresh();
    set(&c, "samples-per-step", "8");
    assert_int_equal(ech_config_check(&c, NULL), ECH_E_ARGUMENT);   /* bsp's steps follow from the shares */
    set(&c, "sync", "asp");
    assert_int_equal(ech_config_check(&c, NULL), ECH_OK);
}

static void test_key_options(void **state) {
    (void)state;
    struct ech_config c = fresh();
    struct ech_error err = {0};
    assert_true(!c.key[0] && !c.insecure);
    set(&c, "key", "run.key");
    assert_int_equal(ech_config_check(&c, &err), ECH_OK);
    set(&c, "insecure", "on");
    assert_int_equal(ech_config_check(&c, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "key and insecure contradict"));
    set(&c, "key", "");
    assert_int_equal(ech_config_check(&c, &err), ECH_OK);
}

static void test_environment(void **state) {
    (void)state;
    struct ech_config c = fresh(), before;
    struct ech_error err = {0};
    setenv("ECH_INSTALL", "0", 1);
    setenv("ECH_RANK", "1", 1);
    setenv("ECH_WORLD", "2", 1);
    setenv("ECH_COORDINATOR", "localhost:7000", 1);
    setenv("ECH_EVAL_EVERY", "500", 1);
    setenv("ECHELON_DATA", "/data", 1);   /* another name, not ours to judge */
    assert_int_equal(ech_config_from_env(&c, &err), ECH_OK);
    assert_true(c.rank == 1 && c.world == 2 && c.eval_every == 500);
    assert_string_equal(c.coordinator, "localhost:7000");
    before = c;
    setenv("ECH_EVAL_EVERY", "often", 1);
    assert_int_equal(ech_config_from_env(&c, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "ECH_EVAL_EVERY"));
    assert_memory_equal(&c, &before, sizeof c);
    unsetenv("ECH_EVAL_EVERY");
    static const char *const strangers[] = {"ECH_RNAK", "ECH_", "ECH_rank", "ECH_EVAL-EVERY", "ECH_RANK2", "ECH_INSTALLED"};
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        setenv(strangers[i], "1", 1);
        assert_int_equal(ech_config_from_env(&c, &err), ECH_E_ARGUMENT);
        assert_non_null(strstr(err.text, strangers[i]));
        unsetenv(strangers[i]);
    }
    assert_int_equal(ech_config_from_env(&c, &err), ECH_OK);
    unsetenv("ECH_RANK");
    unsetenv("ECH_WORLD");
    unsetenv("ECH_COORDINATOR");
}

struct heard {
    char warnings[600], notes[600];
    int lines;
};

static void hear(void *user, enum ech_log_level level, const char *line) {
    struct heard *heard = user;
    heard->lines++;
    snprintf(level == ECH_LOG_WARN ? heard->warnings : heard->notes, sizeof heard->notes, "%s", line);
}

static void put_all(const char *const *variable) {
    for (; *variable; variable += 2) setenv(variable[0], variable[1], 1);
}
static void clear_all(const char *const *variable) {
    for (; *variable; variable += 2) unsetenv(variable[0]);
}

/* What a launcher reports is taken where nobody gave anything, as a whole, and is told. */
static void test_launchers(void **state) {
    (void)state;
    static const char *const mpi[] = {"OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "3", "OMPI_COMM_WORLD_LOCAL_RANK", "2",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE", "3", "PMIX_NAMESPACE", "77", NULL};
    struct heard heard = {.lines = 0};
    struct ech_config plain = fresh();
    struct ech_error err = {0};
    plain.on_log = hear;
    plain.user = &heard;
    put_all(mpi);

    struct ech_config c = plain;
    assert_int_equal(ech_config_from_env(&c, &err), ECH_OK);
    assert_true(c.rank == 2 && c.world == 3 && c.local_rank == 2 && c.local_world == 3);
    assert_memory_equal(c.coordinator, "127.0.0.1:", 10);
    assert_int_equal(ech_config_check(&c, &err), ECH_OK);
    assert_int_equal(heard.lines, 1);
    assert_non_null(strstr(heard.notes, "rank 2 of 3, as Open MPI reports (OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE)"));
    assert_non_null(strstr(heard.notes, c.coordinator));

    c = plain;   /* a place to meet is no part of what says who this is */
    setenv("ECH_COORDINATOR", "10.0.0.1:7000", 1);
    assert_int_equal(ech_config_from_env(&c, &err), ECH_OK);
    assert_true(c.rank == 2 && c.world == 3);
    assert_string_equal(c.coordinator, "10.0.0.1:7000");

    setenv("ECH_WORLD", "5", 1);   /* half a set beside a whole one: whichever were taken, somebody would be surprised */
    struct ech_config before = c = plain;
    assert_int_equal(ech_config_from_env(&c, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "ECH_WORLD without ECH_RANK"));
    assert_memory_equal(&c, &before, sizeof c);
    setenv("ECH_RANK", "4", 1);   /* our own names come first */
    heard.lines = 0;
    assert_int_equal(ech_config_from_env(&c, &err), ECH_OK);
    assert_true(c.rank == 4 && c.world == 5 && c.local_world == 0 && heard.lines == 0);
    unsetenv("ECH_RANK");
    unsetenv("ECH_WORLD");
    unsetenv("ECH_COORDINATOR");

    c = plain;   /* a program that has placed this node itself */
    c.rank = 1;
    c.world = 2;
    assert_int_equal(ech_config_from_env(&c, &err), ECH_OK);
    assert_true(c.rank == 1 && c.world == 2 && !c.coordinator[0]);
    c = plain;
    setenv("ECH_LAUNCHER", "off", 1);
    assert_int_equal(ech_config_from_env(&c, &err), ECH_OK);
    assert_true(c.rank == 0 && c.world == 1);
    unsetenv("ECH_LAUNCHER");

    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);   /* several machines: the user must name a place to meet */
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
    c = plain;
    assert_int_equal(ech_config_from_env(&c, &err), ECH_OK);
    assert_non_null(strstr(heard.notes, "names no place to meet"));
    assert_int_equal(ech_config_check(&c, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "coordinator is missing: 3 nodes need one HOST:PORT"));
    clear_all(mpi);
}

/* A Service called "ech" puts its own ECH_ names into every container beside it. Others are typing errors as ever. */
static void test_kubernetes(void **state) {
    (void)state;
    static const char *const service[] = {"ECH_SERVICE_HOST", "10.96.0.7", "ECH_SERVICE_PORT", "7000", "ECH_SERVICE_PORT_MEET", "7000",
                                          "ECH_PORT", "tcp://10.96.0.7:7000", "ECH_PORT_7000_TCP", "tcp://10.96.0.7:7000",
                                          "ECH_PORT_7000_TCP_PROTO", "tcp", "ECH_PORT_7000_TCP_PORT", "7000", "ECH_PORT_7000_TCP_ADDR",
                                          "10.96.0.7", "ECH_RANK", "1", NULL};
    struct heard heard = {.lines = 0};
    struct ech_config c = fresh();
    struct ech_error err = {0};
    c.on_log = hear;
    c.user = &heard;
    put_all(service);
    assert_int_equal(ech_config_from_env(&c, &err), ECH_OK);
    assert_int_equal(c.rank, 1);
    assert_int_equal(heard.lines, 1);
    assert_non_null(strstr(heard.warnings, "ECH_SERVICE_HOST and others"));
    unsetenv("ECH_SERVICE_HOST");
    assert_int_equal(ech_config_from_env(&c, &err), ECH_E_ARGUMENT);
    clear_all(service);
}

static int two_classes(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test;
    for (int i = 0; i < n; i++) rows[i] = labels[i] = (uint16_t)(index[i] % 2);
    return 0;
}

static ech_status train_small(const struct ech_config *config, struct ech_error *err) {
    const struct ech_data_callback samples = {.channels = 1, .height = 1, .width = 1, .classes = 2, .train_samples = 64,
                                              .read = two_classes, .name = "two classes"};
    ech_model *model = NULL;
    ech_data *data = NULL;
    assert_int_equal(ech_model_create(1, 1, 1, &model, err), ECH_OK);
    ech_model_fc(model, 2);
    assert_int_equal(ech_data_from_callback(&samples, &data, err), ECH_OK);
    const ech_status status = ech_train(model, data, config, NULL, NULL, err);
    ech_data_destroy(data);
    ech_model_destroy(model);
    return status;
}

/* A program with the header of an older version has a smaller struct; what it lacks is as by default. */
static void test_older_caller(void **state) {
    (void)state;
    const size_t size = offsetof(struct ech_config, local_rank);
    struct ech_error err = {0};
    void *volatile room = malloc(size);   /* not a byte more: sanitizers watch its end, and the compiler must not */
    struct ech_config *c = room;
    assert_non_null(c);
    memset(c, 0xa5, size);
    ech_config_init_sized(c, size);
    struct ech_config now = fresh();
    now.size = size;
    assert_memory_equal(c, &now, size);
    assert_int_equal(ech_config_set(c, "lr", "0.5", &err), ECH_OK);
    assert_true(c->lr == 0.5 && c->size == size);
    assert_int_equal(ech_config_set(c, "launcher", "off", &err), ECH_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "launcher is newer than the header"));
    setenv("ECH_STEPS", "2", 1);
    assert_int_equal(ech_config_from_env(c, &err), ECH_OK);
    assert_true(c->steps == 2);
    setenv("ECH_LOCAL_RANK", "1", 1);
    assert_int_equal(ech_config_from_env(c, &err), ECH_E_UNSUPPORTED);
    unsetenv("ECH_LOCAL_RANK");
    unsetenv("ECH_STEPS");
    assert_int_equal(ech_config_check(c, &err), ECH_OK);
    if (train_small(c, &err) != ECH_OK) fail_msg("%s", err.text);
    c->size = 12;
    assert_int_equal(ech_config_check(c, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "ech_config_init first"));
    free(c);
}

/* One with the header of a newer version has fields that are not known here, which it must not have set. */
static void test_newer_caller(void **state) {
    (void)state;
    struct { struct ech_config c; char later[40]; } newer;
    struct ech_error err = {0};
    memset(&newer, 0xa5, sizeof newer);
    ech_config_init_sized(&newer.c, sizeof newer);
    assert_int_equal(newer.c.size, sizeof newer);
    assert_int_equal(ech_config_set(&newer.c, "steps", "2", &err), ECH_OK);
    assert_int_equal(ech_config_from_env(&newer.c, &err), ECH_OK);
    assert_int_equal(ech_config_check(&newer.c, &err), ECH_OK);
    if (train_small(&newer.c, &err) != ECH_OK) fail_msg("%s", err.text);
    newer.later[39] = 1;
    assert_int_equal(ech_config_check(&newer.c, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "is set: link with the archive of that header"));
    assert_int_equal(ech_config_set(&newer.c, "steps", "3", &err), ECH_E_ARGUMENT);
    assert_int_equal(train_small(&newer.c, &err), ECH_E_ARGUMENT);
}

/* A program may have a locale with a decimal comma; an option means the same there. */
static void test_locale(void **state) {
    (void)state;
    use_comma_locale();
    struct ech_config c = fresh();
    set(&c, "lr", "0.25");
    setlocale(LC_ALL, "C");
    assert_true(c.lr == 0.25);
}

/* Any text for any option: taken or refused with a sentence, never more. Seeded; what is taken passes the check of its
 * own field again when set anew. */
static void test_any_text(void **state) {
    (void)state;
    static const char letters[] = "0123456789.,-+eE:[]autofbspg xX\x80\xff";
    uint64_t x = 20240607;
    int n;
    const struct ech_option *o = ech_options(&n);
    for (int round = 0; round < 20000; round++) {
        char text[24];
        size_t len = 0;
        x = x * 6364136223846793005u + 1442695040888963407u;
        const struct ech_option *option = &o[(x >> 33) % (uint64_t)n];
        size_t want = (x >> 20) % sizeof text;
        for (; len < want; len++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            text[len] = letters[(x >> 33) % (sizeof letters - 1)];
        }
        text[len] = 0;
        struct ech_config c = fresh();
        struct ech_error err = {0};
        ech_status status = ech_config_set(&c, option->name, text, &err);
        if (status != ECH_OK && !strstr(err.text, option->name)) fail_msg("round %d: %s='%s': '%s'", round, option->name, text, err.text);
        if (status == ECH_OK && ech_config_set(&c, option->name, text, &err) != ECH_OK) fail_msg("round %d: %s", round, err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_fallbacks_are_settable), cmocka_unit_test(test_set),
        cmocka_unit_test(test_refused_text), cmocka_unit_test(test_check), cmocka_unit_test(test_schedules_that_do_not_fit),
        cmocka_unit_test(test_adam), cmocka_unit_test(test_share_lists), cmocka_unit_test(test_key_options),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_launchers), cmocka_unit_test(test_kubernetes),
        cmocka_unit_test(test_older_caller), cmocka_unit_test(test_newer_caller), cmocka_unit_test(test_locale),
        cmocka_unit_test(test_any_text), cmocka_unit_test(test_isa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
