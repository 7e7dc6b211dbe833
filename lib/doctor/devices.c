/* SPDX-License-Identifier: Apache-2.0
 * Every device of every backend: does it compute rightly, and how fast does it copy and multiply? And which GPU software is here. */
#include "echi_doctor.h"
#include "echi_error.h"
#include "echi_known_answer.h"
#include "echi_ops.h"
#include "echi_os.h"
#include "echi_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 3                               /* of each measurement: the shortest counts */
#define COPIED ((size_t)32 << 20)             /* bytes: beyond most caches */
#define PATIENCE ((int64_t)30 * 1000000000)   /* ns for a copy */

static double seconds_since(int64_t began) { return (double)(echi_now() - began) * 1e-9; }

/* One way of COPIED bytes, in bytes a second. */
static ech_status time_copy(struct echi_queue *q, struct echi_buffer *buffer, void *host, bool in, double *out, struct ech_error *err) {
    for (int i = 0; i < TRIES; i++) {
        const int64_t began = echi_now();
        echi_event done;
        ECHI_TRY(in ? echi_queue_write(q, buffer, 0, host, COPIED, err) : echi_queue_read(q, buffer, 0, host, COPIED, err));
        ECHI_TRY(echi_queue_event(q, &done, err));
        ECHI_TRY(echi_event_wait(q, done, echi_now() + PATIENCE, err));
        const double rate = (double)COPIED / (seconds_since(began) + 1e-9);
        if (rate > *out) *out = rate;
    }
    return ECH_OK;
}

static ech_status measure_copies(struct echi_device *device, struct ech_doctor_device *out, struct ech_error *err) {
    struct echi_queue *queue = NULL;
    struct echi_buffer *buffer = NULL;
    void *host = echi_alloc_aligned(COPIED);
    ech_status status = host ? ECH_OK : echi_fail_memory(err, "doctor", "a copy of 32 MiB");
    if (status == ECH_OK) status = echi_buffer_create(device, COPIED, &buffer, err);
    if (status == ECH_OK) status = echi_queue_create(device, &queue, err);
    if (status == ECH_OK) status = time_copy(queue, buffer, host, true, &out->to_device, err);
    if (status == ECH_OK) status = time_copy(queue, buffer, host, false, &out->from_device, err);
    echi_queue_destroy(queue);
    echi_buffer_destroy(buffer);
    echi_free_aligned(host);
    return status;
}

/* "cpu" is "cpu:0". */
static bool names(const char *option, const char *spec) {
    const size_t len = strcspn(spec, ":");
    return strcmp(option, spec) == 0 || (strcmp(spec + len, ":0") == 0 && strlen(option) == len && memcmp(option, spec, len) == 0);
}

static void look_at(const char *spec, const struct ech_config *config, const char *keep, struct ech_doctor_device *out) {
    struct ech_error err = {.text = ""};
    struct echi_device *device = NULL;
    snprintf(out->spec, sizeof out->spec, "%s", spec);
    char own[ECHI_NODE_DEVICE];
    echi_node_device(config, own);
    out->used = names(own, spec);
    const int threads = echi_node_threads(config);
    /* As a run opens it. One that it would refuse is opened all the same, to tell how far it came. */
    ech_status status = echi_ops_open(out->spec, threads, echi_config_level(config), ECHI_KERNELS_FAST, keep, &device, NULL);
    if (status != ECH_OK) status = echi_device_open_at(out->spec, threads, echi_config_level(config), &device, &err);
    if (status == ECH_OK) {
        const struct echi_device_info *info = echi_device_describe(device);
        echi_device_keep_programs(device, keep);
        snprintf(out->name, sizeof out->name, "%s", info->name);
        snprintf(out->driver, sizeof out->driver, "%s", info->driver);
        out->units = info->compute_units;
        out->memory = info->memory;
        out->memory_free = echi_device_memory_free(device);
        status = echi_known_answers(device, NULL, &out->answers, &err);
        echi_device_kernels_from(device, out->kernels, sizeof out->kernels);
        /* Memory that is too small for these says nothing about a run. */
        struct ech_error none;
        if (status == ECH_OK) (void)measure_copies(device, out, &none);
        if (status == ECH_OK) (void)echi_device_rate(device, ECHI_KERNELS_FAST, &out->products, &none);
    }
    echi_doctor_note(&out->check, status, &err);
    echi_device_close(device);
}

void echi_doctor_devices(const struct ech_config *config, struct ech_doctor *out) {
    struct echi_device_info info;
    char spec[32];
    const bool automatic = strcmp(config->device, "auto") == 0;
    const char *keep = config->cache[0] && echi_folder_make(config->cache, NULL) == ECH_OK ? config->cache : NULL;
    struct ech_doctor_device *taken = NULL;   /* under `auto`: the fastest GPU that computes rightly or the CPU, as echi_ops_open does */
    for (int i = 0; out->n_devices < ECH_DOCTOR_DEVICES && echi_device_at(i, spec, sizeof spec, &info); i++) {
        struct ech_doctor_device *at = &out->device[out->n_devices++];
        look_at(spec, config, keep, at);
        if (automatic && at->check.status == ECH_OK && (info.gpu || names("cpu", spec)) && (!taken || at->products > taken->products))
            taken = at;
    }
    if (taken) taken->used = 1;
}

/* --------------------------------------------------------- GPU software */

/* cuDriverGetVersion (CUDA driver API): 12040 is 12.4. It may be called before cuInit. */
static void cuda_version(void *library, struct ech_doctor_stack *out) {
    int (*get)(int *version), version = 0;
    void *symbol = echi_library_symbol(library, "cuDriverGetVersion");
    memcpy(&get, &symbol, sizeof get);
    if (symbol && get(&version) == 0) snprintf(out->version, sizeof out->version, "CUDA %d.%d", version / 1000, version % 1000 / 10);
}

/* clGetPlatformIDs and clGetPlatformInfo (OpenCL 3.0, 4.1): the loader itself has no version, the platforms behind it have. */
static void opencl_version(void *library, struct ech_doctor_stack *out) {
    enum { CL_PLATFORM_VERSION = 0x0901 };
    int32_t (*ids)(uint32_t most, void **platforms, uint32_t *count);
    int32_t (*info)(void *platform, uint32_t what, size_t cap, void *value, size_t *size);
    void *ids_symbol = echi_library_symbol(library, "clGetPlatformIDs"), *info_symbol = echi_library_symbol(library, "clGetPlatformInfo");
    void *first = NULL;
    uint32_t count = 0;
    if (!ids_symbol || !info_symbol) return;
    memcpy(&ids, &ids_symbol, sizeof ids);
    memcpy(&info, &info_symbol, sizeof info);
    char text[256] = "";
    if (ids(1, &first, &count) != 0 || count == 0) count = 0;
    else if (info(first, CL_PLATFORM_VERSION, sizeof text, text, NULL) != 0) text[0] = 0;
    text[sizeof text - 1] = 0;
    snprintf(out->version, sizeof out->version, "%u platform%s%s%.60s", count, count == 1 ? "" : "s", *text ? ", the first " : "", text);
}

void echi_doctor_stacks(struct ech_doctor *out) {
    static const struct { const char *library; void (*version)(void *library, struct ech_doctor_stack *out); } known[ECH_DOCTOR_STACKS] = {
        {"libcuda.so.1", cuda_version}, {"libOpenCL.so.1", opencl_version}};
    out->n_stacks = ECH_DOCTOR_STACKS;
    for (int i = 0; i < ECH_DOCTOR_STACKS; i++) {
        struct ech_doctor_stack *stack = &out->stack[i];
        void *library = echi_library_open(known[i].library);
        stack->library = known[i].library;
        stack->found = library != NULL;
        if (!library) continue;
        known[i].version(library, stack);
        /* Kept open: drivers start threads that their library must outlive. */
    }
}
