/* SPDX-License-Identifier: Apache-2.0
 * Traces and OSU logs: what is taken can be planned. Its layers have parameters and a time, they become parts that cover the model once,
 * and times that another node would decode; links have a rate above 0. */
#include "fuzz.h"

#include "echi_import.h"
#include "echi_planner.h"

#include <math.h>
#include <string.h>

static struct echi_import import;
static struct echi_profile profile;
static struct echi_job job;

static bool within(double value, double least, double most) { return value >= least && value <= most; }   /* a NaN is not */

static void check_times(const struct echi_times *times) {
    static uint8_t bytes[ECHI_TIMES_BYTES_MAX];
    static struct echi_times again;
    const size_t len = echi_times_encode(times, bytes, sizeof bytes);
    FUZZ_CHECK(len > 0 && echi_times_decode(bytes, len, &again));
    for (uint32_t n = 1; n <= 65536; n *= 16) FUZZ_CHECK(isfinite(echi_times_whole(times, n)) && echi_times_whole(times, n) > 0);
}

static void check_job(void) {
    static struct echi_layers layers;
    static struct echi_parts parts;
    struct echi_part_fault fault;
    size_t at = 0;
    for (int i = 0; i < job.n_layers; at += job.layer[i++].count) FUZZ_CHECK(job.layer[i].at == at && job.layer[i].count > 0);
    FUZZ_CHECK(at == job.n_params && at * sizeof(float) <= UINT32_MAX);
    FUZZ_CHECK(job.cut_params >= 1 && job.cut_params <= job.n_layers && (job.cut_params < job.n_layers) == (echi_job_widest(&job) > 0));
    echi_job_layers(&job, &layers);
    const int cut = job.cut_params < job.n_layers ? job.cut_params : 0;
    echi_parts_make(&layers, cut, ECHI_CODEC_DENSE, ECHI_PART_SLICE, ECHI_PART_MERGED, &parts);
    FUZZ_CHECK(echi_parts_valid(&parts, ECHI_CODEC_DENSE, &fault) && echi_parts_fit(&parts, &layers, cut, &fault));
}

static void check_links(const struct echi_alpha_betas *links) {
    FUZZ_CHECK(links->nodes == 0 || within(links->nodes, 2, ECHI_WORLD_MAX));
    FUZZ_CHECK(within(links->pieces, 1, 2) && links->piece[0].from == 0);
    for (int i = 0; i < links->pieces; i++) {
        FUZZ_CHECK(links->piece[i].beta > 0 && within(links->piece[i].alpha, 0, 1e6));
        const struct echi_alpha_beta_link link = echi_alpha_beta_ring(links->piece[i], links->nodes ? links->nodes : 2);
        FUZZ_CHECK(link.rate > 0 && link.delay >= 0);
    }
}

static bool take_trace(const char *path) {
    struct ech_error err = {0};
    struct echi_alpha_betas links;
    double seconds = 0;
    const ech_status status = echi_import_load(path, &import, &err);
    if (status != ECH_OK) {
        fuzz_sentence(&err, status);
        FUZZ_CHECK(strstr(err.text, "/proc/self/fd/") != NULL); /* names the file */
        return false;
    }
    FUZZ_CHECK(import.count >= 1 && import.count <= ECHI_UNITS_MAX && import.cut >= 1 && import.cut <= import.count);
    FUZZ_CHECK((import.merged == 0 || import.merged > ECHI_UNITS_MAX) && import.batch <= ECHI_IMPORT_BATCH_MAX);
    FUZZ_CHECK(within(import.row, 0, 1e15) && within(import.reading, 0, 1e9));
    for (int i = 0; i < import.count; i++) {
        const struct echi_import_layer *l = &import.layer[i];
        FUZZ_CHECK(memchr(l->name, 0, sizeof l->name) && l->bytes > 0 && within(l->comm, 0, 1e9));
        FUZZ_CHECK(within(l->forward, 0, ECHI_IMPORT_SECONDS_MAX) && within(l->backward, 0, ECHI_IMPORT_SECONDS_MAX));
        seconds += l->forward + l->backward;
    }
    FUZZ_CHECK(seconds > 0.9e-6 && seconds <= ECHI_IMPORT_SECONDS_MAX * 1.001);
    if (import.batch == 0) import.batch = 64;
    echi_import_profile(&import, "a trace", &profile);
    echi_import_job(&import, &job);
    check_times(&profile.times);
    check_job();
    if (echi_import_alpha_beta(&import, &links)) check_links(&links);
    return true;
}

static bool take_links(const char *path) {
    struct ech_error err = {0};
    struct echi_alpha_betas links;
    const ech_status status = echi_alpha_beta_load(path, &links, &err);
    if (status == ECH_OK) check_links(&links);
    else fuzz_sentence(&err, status);
    return status == ECH_OK;
}

static bool one(const uint8_t *bytes, size_t len) {
    const char *path = fuzz_file(0, bytes, len);
    const bool trace = take_trace(path), links = take_links(path);
    FUZZ_CHECK(!(trace && links));
    return trace || links;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const char *const text[] = {
        "Id Name Forward Backward Comm. Size\n0 data 2e6 0 0 0\n1 conv1 100.5 200 3000 139776   # 11 x 11\r\n2 relu1 5 7 0 0\n"
        "3\tfc 50 60 4e3 64",
        "I0214 23:25:29.1 37187 distributed.cpp:112] [0, 9408, 0, 0]\nI0214 23:25:29.1 37187 distributed.cpp:112] [1, 64, 0, 0]\n"
        "I0214 23:25:29.1 37187 distributed.cpp:112] [0, 9408, 14690.2, 298]\nloss = 6.9\n[1, 64, 14690.2, 106]\n[2,5,3,1,0]\n",
        "node3 -- Linear(in_features=4) -- forward_compute_time=3.5, backward_compute_time=1, activation_size=8.0, parameter_size=64.0\n"
        "node2 -- Conv2d(3, 64) -- forward_compute_time=4, backward_compute_time=8, activation_size=32, parameter_size=400\n"
        "node1 -- Input -- forward_compute_time=600, backward_compute_time=0, activation_size=1204224, parameter_size=0\n"
        "\tnode2 -- node3\n\tnode1 -- node2",
        "# OSU MPI Allreduce Latency Test v5.4.0\n8,4                      31.92\n8,8 32.5\n8,16 33\n",
        "4 1\n8 2\n16 3\n32 5\n64 9\n128 17\n256 33\n512 65\n1024 100\n2048 110\n4096 120\n8192 130\n16384 140\n32768 150\n"
        "65536 160\n131072 170\n",
        NULL,
    };
    (void)good; /* all are */
    return fuzz_seed_text(text, i, out, cap);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "Id Name Forward Backward Comm. Size\n", "data ", "I0214 ", "distributed.cpp:112] [", "[0, ", "]\n", ", ", "node1", "node2", " -- ",
    "Input", "Linear(", "Conv2d(", "forward_compute_time=", "backward_compute_time=", "activation_size=", "parameter_size=",
    "\n\tnode1 -- node2\n", "8,", "1 a 1 2 3 4\n", "2 b 5 6 0 0\n", "4 31.92\n", "nan", "inf", "-0", "-1", "1e999", "1e-320", "1e-12",
    "3600000000", "4000000000", "0", "4096", "1000000", "1204224", "\n", "\r\n", "#", "", "\x1b[31m", "\t", NULL,
};
/* clang-format on */

/* Room for as many rows, nodes and edges as a trace may have. */
const struct fuzz_driver fuzz_import = {.name = "import", .one = one, .seed = seed, .words = words, .most = 8192, .heap = 2000000,
                                        .heap_a_byte = 8};
