/* SPDX-License-Identifier: Apache-2.0
 * Host files: what is said is what is simulated, in the units that were said; every refusal names the file and the line. Files of a
 * stranger are in test/fuzz. */
#include "echi_hosts.h"
#include "text_files.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char path[64];
static struct echi_hosts hosts;
static struct ech_error error;

static ech_status load_bytes(const char *text, size_t len) {
    write_bytes(path, text, len);
    echi_hosts_free(&hosts);
    memset(&error, 0, sizeof error);
    return echi_hosts_load(path, &hosts, &error);
}
static ech_status load(const char *text) { return load_bytes(text, strlen(text)); }
static void taken(const char *text) {
    if (load(text) != ECH_OK) fail_msg("'%s': %s", text, error.text);
}
/* A product of decimal numbers is not always the double nearest to its value. */
static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fabs(b); }

static void a_host_file_is_read(void **state) {
    (void)state;
    taken("# a cluster\n"
          "hosts 1 speed 1 x cores 4 of desk\r\n"
          "\n"
          "default jitter 0.15 stutter 2 % 5 x link 1 Gb/s   # from here on\n"
          "hosts 2 speed 500 images/s cores 2\n"
          "\thosts 1 speed 0.25x link 50Mb/s delay 2ms loss 0.1% dies 60s cores 4 of desk\n"
          "hosts 1 joins 10 s dies 2e3 s slow 4 x from 20 s until 50 s slow 1.5 x from 100 s jitter 0 link unbounded delay 30 us "
          "quota 50ms of 0.1 s thin 4 x from 60 s thin 2x from 1s until 2s\n"
          "default speed 3 x link 800 kb/s\n"
          "hosts 1");   /* no end of line */
    assert_int_equal(hosts.count, 6);
    const struct echi_host *h = hosts.host;
    assert_true(h[0].speed == 1 && !h[0].in_images && h[0].jitter == 0 && h[0].stutter == 0 && h[0].stutter_factor == 1);
    assert_true(h[0].rate == 0 && h[0].delay == 0 && h[0].loss == 0 && h[0].dies < 0 && h[0].joins < 0 && h[0].n_slow == 0);
    for (int i = 1; i < 3; i++) {
        assert_true(h[i].speed == 500 && h[i].in_images && h[i].jitter == 0.15 && near(h[i].stutter, 0.02) && h[i].stutter_factor == 5);
        assert_true(h[i].rate == 125e6 && h[i].dies < 0);
    }
    assert_true(h[3].speed == 0.25 && !h[3].in_images && near(h[3].rate, 50e6 / 8) && near(h[3].delay, 2e-3) && near(h[3].loss, 1e-3));
    assert_true(h[3].dies == 60 && h[3].joins < 0 && h[3].jitter == 0.15);
    assert_true(h[4].speed == 1 && h[4].joins == 10 && h[4].dies == 2000 && h[4].jitter == 0 && h[4].rate == 0 && near(h[4].delay, 3e-5));
    assert_int_equal(h[4].n_slow, 2);
    assert_true(near(h[4].quota, 0.05) && near(h[4].period, 0.1) && h[3].quota == 0 && h[5].quota == 0);
    assert_true(h[4].slow[0].factor == 4 && h[4].slow[0].from == 20 && h[4].slow[0].until == 50);
    assert_true(h[4].slow[1].factor == 1.5 && h[4].slow[1].from == 100 && h[4].slow[1].until == INFINITY);
    assert_true(h[4].n_thin == 2 && h[4].thin[0].factor == 4 && h[4].thin[0].from == 60 && h[4].thin[0].until == INFINITY);
    assert_true(h[4].thin[1].factor == 2 && h[4].thin[1].until == 2 && h[5].n_thin == 0);
    assert_true(h[5].speed == 3 && near(h[5].rate, 1e5) && h[5].jitter == 0.15);
    /* Two machines with shared cores: the desk's four for ranks 0 and 3, and two for those of line 5. */
    assert_int_equal(hosts.pools, 2);
    assert_true(h[0].cores == h[3].cores && h[1].cores == h[2].cores && h[0].cores != h[1].cores && h[4].cores == -1 && h[5].cores == -1);
    assert_true(hosts.pool_cores[h[0].cores] == 4 && hosts.pool_cores[h[1].cores] == 2);
}

/* A class of its own shares with no other that has as many cores; a default is shared by all. */
static void cores_without_a_name_are_the_lines_own(void **state) {
    (void)state;
    taken("hosts 2 cores 2\nhosts 2 cores 2\n");
    assert_int_equal(hosts.pools, 2);
    assert_true(hosts.host[0].cores == hosts.host[1].cores && hosts.host[0].cores != hosts.host[2].cores);
    taken("default cores 2\nhosts 2\nhosts 2\n");
    assert_int_equal(hosts.pools, 1);
    for (int i = 0; i < 4; i++) assert_int_equal(hosts.host[i].cores, 0);
    taken("hosts 1 cores 2 of a234567890123456789012345678901\n");   /* the longest name */
}

/* Only speeds in images/s depend on the profile. */
static void speeds_in_images_become_relative_once(void **state) {
    (void)state;
    taken("hosts 1 speed 500 images/s\nhosts 1 speed 2 x\n");
    for (int i = 0; i < 2; i++) {
        echi_hosts_relate(&hosts, 2000);
        assert_true(hosts.host[0].speed == 0.25 && hosts.host[1].speed == 2 && !hosts.host[0].in_images);
    }
}

/* The five clusters of the project's figures, by issue 5's numbers: four classes of four. */
static const struct { const char *name; double speed[4], mbit[4]; } published[] = {
    {"even", {2000, 2000, 2000, 2000}, {1000, 1000, 1000, 1000}}, {"mild", {1000, 1260, 1590, 2000}, {1000, 1000, 1000, 1000}},
    {"strong", {500, 1000, 2000, 4000}, {1000, 1000, 1000, 1000}}, {"incast", {2000, 2000, 2000, 2000}, {500, 500, 500, 500}},
    {"links", {1000, 1260, 1590, 2000}, {25, 50, 100, 200}},
};
enum { PUBLISHED = (int)(sizeof published / sizeof published[0]) };

static void check_published(int which, int workers) {
    assert_int_equal(hosts.count, workers);
    for (int i = 0; i < workers; i++) {
        const struct echi_host *h = &hosts.host[i];
        const int class = i * 4 / workers;
        if (h->speed != published[which].speed[class] || !h->in_images || !near(h->rate, published[which].mbit[class] * 1e6 / 8))
            fail_msg("%s, host %d of %d: speed %g, rate %g", published[which].name, i, workers, h->speed, h->rate);
        assert_true(h->jitter == 0.15 && near(h->stutter, 0.02) && h->stutter_factor == 5 && h->cores < 0);
        assert_true(h->delay == 0 && h->loss == 0 && h->dies < 0 && h->joins < 0 && h->n_slow == 0);
    }
}

static void the_files_are_the_published_clusters(void **state) {
    (void)state;
    for (int i = 0; i < PUBLISHED; i++) {
        char file[64];
        snprintf(file, sizeof file, "test/hosts/%s", published[i].name);
        echi_hosts_free(&hosts);
        if (echi_hosts_load(file, &hosts, &error) != ECH_OK) fail_msg("%s", error.text);
        check_published(i, 16);
    }
}

/* As tools/demo.sh starts its nodes: --slow 0=4,1=4,2=4,3=16. */
static void the_demo_has_a_file(void **state) {
    (void)state;
    echi_hosts_free(&hosts);
    if (echi_hosts_load("test/hosts/demo", &hosts, &error) != ECH_OK) fail_msg("%s", error.text);
    assert_int_equal(hosts.count, 4);
    for (int i = 0; i < 4; i++) {
        const struct echi_host *h = &hosts.host[i];
        assert_true(h->speed == 1 && !h->in_images && h->n_slow == 1 && h->slow[0].factor == (i < 3 ? 4 : 16) && h->slow[0].from == 0);
    }
}

static void a_name_gives_as_many_as_one_likes(void **state) {
    (void)state;
    for (int i = 0; i < PUBLISHED; i++)
        for (int workers = 1; workers <= ECHI_WORLD_MAX; workers++) {
            echi_hosts_free(&hosts);
            assert_int_equal(echi_hosts_named(workers, published[i].name, &hosts, &error), ECH_OK);
            check_published(i, workers);
        }
    echi_hosts_free(&hosts);
    assert_int_equal(echi_hosts_named(4, "stong", &hosts, &error), ECH_E_ARGUMENT);
    assert_non_null(strstr(error.text, "'stong'"));
    for (int i = 0; i < PUBLISHED; i++) assert_non_null(strstr(error.text, published[i].name));
    assert_int_equal(echi_hosts_named(0, "even", &hosts, &error), ECH_E_ARGUMENT);
    assert_int_equal(echi_hosts_named(ECHI_WORLD_MAX + 1, "even", &hosts, &error), ECH_E_ARGUMENT);
    assert_null(hosts.host);
}

static void a_refusal_names_file_and_line(void **state) {
    (void)state;
    static const struct { const char *line, *says; } table[] = {
        {"host 4", "did you mean 'hosts'"}, {"machines 4", "use one of hosts, default"}, {"hosts", "a whole number from 1"},
        {"hosts 0", "found '0'"}, {"hosts -1", "found '-1'"}, {"hosts four", "found 'four'"}, {"hosts 4.5", "found '4.5'"},
        {"hosts 1e1", "found '1e1'"}, {"hosts 99999999999999999999", "a whole number"}, {"hosts 4 fast", "'fast' is no property"},
        {"hosts 4 sped 1 x", "did you mean 'speed'"}, {"hosts 4 jiter 0.1", "did you mean 'jitter'"},
        {"hosts 4 speed", "found the end of the line"}, {"hosts 4 speed 1", "images/s"}, {"hosts 4 speed 1 y", "found '1 y'"},
        {"hosts 4 speed 0 x", "speed needs"}, {"hosts 4 speed -1 x", "found '-1'"}, {"hosts 4 speed nan x", "found 'nan'"},
        {"hosts 4 speed inf x", "found 'inf'"}, {"hosts 4 speed 1e999 x", "found '1e999'"}, {"hosts 4 speed 0x1p3 x", "speed needs"},
        {"hosts 4 speed 1,5 x", "speed needs"}, {"hosts 4 speed 1e10 x", "speed needs"}, {"hosts 4 speed 0 images/s", "speed needs"},
        {"hosts 4 speed 1 x speed 2 x", "said before"}, {"hosts 4 link 1", "kb/s, Mb/s or Gb/s"}, {"hosts 4 link 1 MB/s", "found '1 MB/s'"},
        {"hosts 4 link 0 Mb/s", "link needs"}, {"hosts 4 link -5Mb/s", "found '-5Mb/s'"}, {"hosts 4 link fast", "found 'fast'"},
        {"hosts 4 link 1e9 Gb/s", "link needs"}, {"hosts 4 jitter -0.1", "jitter needs"}, {"hosts 4 jitter 2.1", "jitter needs"},
        {"hosts 4 jitter 15 %", "jitter needs"}, {"hosts 4 jitter 0.15s", "jitter needs"}, {"hosts 4 stutter 2 %", "5 x"},
        {"hosts 4 stutter 2 5 x", "stutter needs"}, {"hosts 4 stutter 101 % 5 x", "stutter needs"},
        {"hosts 4 stutter -1 % 5 x", "stutter needs"},
        {"hosts 4 stutter 2 % 0.5 x", "stutter needs"}, {"hosts 4 stutter 2 % 5", "stutter needs"}, {"hosts 4 delay 5", "s, ms or us"},
        {"hosts 4 delay -5 ms", "delay needs"}, {"hosts 4 delay 61 s", "delay needs"}, {"hosts 4 delay 5 min", "found '5 min'"},
        {"hosts 4 loss 51 %", "loss needs"}, {"hosts 4 loss 0.01", "loss needs"}, {"hosts 4 loss -1 %", "loss needs"},
        {"hosts 4 dies 0 s", "dies needs"}, {"hosts 4 dies -1 s", "dies needs"}, {"hosts 4 dies 10", "dies needs"},
        {"hosts 4 joins 0 s", "joins needs"}, {"hosts 4 joins soon", "joins needs"},
        {"hosts 4 dies 5 s joins 5 s", "dies after it has joined"},
        {"hosts 4 slow 4 x", "'4 x from 20 s"}, {"hosts 4 slow 4 x from", "slow needs"}, {"hosts 4 slow 4 x from 2", "slow needs"},
        {"hosts 4 slow 4 x at 2 s", "found 'at'"}, {"hosts 4 slow 0.5 x from 2 s", "slow needs"},
        {"hosts 4 slow 4 x from -1 s", "slow needs"},
        {"hosts 4 slow 4 x from 5 s until 5 s", "must end after it begins"}, {"hosts 4 slow 4 x from 5 s until nan s", "slow needs"},
        {"hosts 4 slow 2 x from 1 s slow 2 x from 2 s slow 2 x from 3 s slow 2 x from 4 s slow 2 x from 5 s", "at most 4"},
        {"hosts 4 thin 4 x", "thin needs"}, {"hosts 4 thin 0.5 x from 2 s", "thin needs"},
        {"hosts 4 thin 2 x from 1 s thin 2 x from 2 s thin 2 x from 3 s thin 2 x from 4 s thin 2 x from 5 s", "at most 4"},
        {"hosts 4 quota 2 ms of 1 ms", "not the longer"}, {"hosts 4 quota 1 of 2 ms", "quota needs"},
        {"hosts 4 quota 1 ms 2 ms", "quota needs"},
        {"hosts 4 quota 1 us of 1 ms", "from 0.01 ms"}, {"hosts 4 quota 1 s of 11 s", "to 10 s"}, {"hosts 4 quota 1 ms of", "quota needs"},
        {"hosts 4 cores 0", "cores needs"},
        {"hosts 4 cores 1025", "cores needs"}, {"hosts 4 cores 1.5", "cores needs"},
        {"hosts 4 cores 2 of", "'of' needs a name"}, {"hosts 4 cores 2 of a2345678901234567890123456789012", "at most 31"},
        {"hosts 4 cores 2 of desk", "another number of cores"}, {"default cores 2 of desk", "another number of cores"},
        {"default 4", "no property"}, {"default speed 0 x", "speed needs"}, {"hosts 4 \x1b[31m", "no property"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[400], place[80];
        snprintf(text, sizeof text, "# line 1\nhosts 2 speed 1 x cores 3 of desk\n\n%s\nhosts 1\n", table[i].line);
        snprintf(place, sizeof place, "%s:4: ", path);
        if (load(text) != ECH_E_FORMAT) fail_msg("'%s' was taken", table[i].line);
        if (strncmp(error.text, place, strlen(place)) != 0 || !strstr(error.text, table[i].says))
            fail_msg("'%s': '%s' does not begin '%s' and say '%s'", table[i].line, error.text, place, table[i].says);
        assert_null(hosts.host);
    }
}

/* The coordinator is rank 0: there from the beginning, and to the end. */
static void rank_0_stays(void **state) {
    (void)state;
    static const struct { const char *text, *says; } table[] = {
        {"hosts 2 dies 5 s\n", "rank 0, which coordinates and cannot die"}, {"default dies 5 s\nhosts 2\n", "cannot die"},
        {"hosts 2 joins 5 s\n", "rank 0, which the others join"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_int_equal(load(table[i].text), ECH_E_FORMAT);
        if (!strstr(error.text, table[i].says)) fail_msg("%s", error.text);
    }
    taken("hosts 1\nhosts 2 joins 5 s dies 6 s\n");
}

static void a_cluster_has_some_hosts_and_not_too_many(void **state) {
    (void)state;
    char text[128], says[40];
    snprintf(text, sizeof text, "hosts %d\nhosts 1\n", ECHI_WORLD_MAX - 1);
    taken(text);
    assert_int_equal(hosts.count, ECHI_WORLD_MAX);
    snprintf(text, sizeof text, "hosts %d\n# too many\nhosts 2\n", ECHI_WORLD_MAX - 1);
    snprintf(says, sizeof says, ":3: with this line there are %d hosts", ECHI_WORLD_MAX + 1);
    assert_int_equal(load(text), ECH_E_FORMAT);
    if (!strstr(error.text, says)) fail_msg("%s", error.text);
    assert_int_equal(load("hosts 1000000\n"), ECH_E_FORMAT);
    assert_non_null(strstr(error.text, ":1: with this line there are 1000000 hosts"));
    static const char *const none[] = {"", "\n\n# hosts 4\n", "default speed 1 x\n"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_int_equal(load(none[i]), ECH_E_FORMAT);
        if (!strstr(error.text, path) || !strstr(error.text, "no hosts")) fail_msg("%s", error.text);
    }
}

static void what_is_no_host_file_is_refused(void **state) {
    (void)state;
    assert_int_equal(load_bytes("hosts 1\0hosts 2\n", 16), ECH_E_FORMAT);
    assert_non_null(strstr(error.text, "not a text file"));
    char *large = malloc(1 << 20);
    assert_non_null(large);
    memset(large, '#', 1 << 20);
    assert_int_not_equal(load_bytes(large, 1 << 20), ECH_OK);
    assert_non_null(strstr(error.text, path));
    free(large);
    unlink(path);
    assert_int_equal(echi_hosts_load(path, &hosts, &error), ECH_E_IO);
    assert_non_null(strstr(error.text, path));
}

/* The program's locale may write numbers with a comma; a host file is the same on every machine. */
static void a_comma_is_no_point(void **state) {
    (void)state;
    use_comma_locale();
    const ech_status point = load("hosts 1 speed 1.5 x jitter 0.15\n");
    const double speed = point == ECH_OK ? hosts.host[0].speed : 0;
    const ech_status with_comma = load("hosts 1 speed 1,5 x\n");
    const ech_status named = echi_hosts_named(4, "mild", &hosts, &error);
    setlocale(LC_ALL, "C");
    assert_true(point == ECH_OK && speed == 1.5 && with_comma == ECH_E_FORMAT && named == ECH_OK && hosts.host[0].jitter == 0.15);
}

static int clean_up(void **state) {
    (void)state;
    unlink(path);
    echi_hosts_free(&hosts);
    return 0;
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/echelon-hosts-%ld", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_file_is_read),
        cmocka_unit_test(cores_without_a_name_are_the_lines_own),
        cmocka_unit_test(speeds_in_images_become_relative_once),
        cmocka_unit_test(the_files_are_the_published_clusters),
        cmocka_unit_test(the_demo_has_a_file),
        cmocka_unit_test(a_name_gives_as_many_as_one_likes),
        cmocka_unit_test(a_refusal_names_file_and_line),
        cmocka_unit_test(rank_0_stays),
        cmocka_unit_test(a_cluster_has_some_hosts_and_not_too_many),
        cmocka_unit_test(what_is_no_host_file_is_refused),
        cmocka_unit_test(a_comma_is_no_point),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
