/* SPDX-License-Identifier: Apache-2.0
 * Devices for arithmetic: chosen, opened, and seen to compute rightly. */
#include "echi_error.h"
#include "echi_known_answer.h"

#include <string.h>

/* Refused is what no layer at all can be made of. */
static ech_status has_kernels(struct echi_device *device, const struct echi_stack_impl *impl, struct ech_error *err) {
    const struct echi_layer relu = {.op = ECHI_OP_RELU, .in = {1, 1, 1}, .out = {1, 1, 1}, .name = "relu"};
    struct echi_stack *stack = NULL;
    const ech_status status = echi_stack_create_with(device, impl, &relu, 1, 1, &stack, err);
    echi_stack_destroy(stack);
    return status;
}

/* impl NULL: the usual ones, which may refuse no layer. */
static ech_status check_kernels(struct echi_device *device, const struct echi_stack_impl *impl, const struct echi_source **out_spare,
                                struct ech_error *err) {
    const ech_status status = echi_known_answers(device, impl, NULL, err);
    const struct echi_stack_impl *tried = impl != NULL ? impl : echi_stack_usual(device);
    if (status != ECH_OK && tried->spare != NULL) *out_spare = tried->spare(device);
    return status;
}

/* Floats first, whose answers are held to closely: they say whether a device works. Then the kernels asked for, if they are others. */
static ech_status check_answers(struct echi_device *device, enum echi_kernels kernels, const struct echi_source **out_spare,
                                struct ech_error *err) {
    const struct echi_stack_impl *impl = echi_stack_chosen(device, kernels);
    const struct echi_device_info *info = echi_device_describe(device);
    if (impl != NULL && !impl->far)
        return echi_fail(err, ECH_E_UNSUPPORTED, "device.open",
                         "--deterministic is for the device cpu, and this node has %s (%s): give --device cpu, or leave it out",
                         info->backend, info->name);
    if (impl != NULL) ECHI_TRY(has_kernels(device, impl, err));
    ECHI_TRY(check_kernels(device, NULL, out_spare, err));
    return impl != NULL ? check_kernels(device, impl, out_spare, err) : ECH_OK;
}

/* Who opens a device, and for what. */
struct request {
    const char *spec, *keep;
    int threads;
    enum echi_cpu_level level;
    enum echi_kernels kernels;
    const struct echi_source *without[ECHI_DISTRUSTED_MOST];
    int count;   /* of them */
};

/* *out_spare: what it may be tried without, where it fails; NULL: it has had its chance. */
static ech_status open_once(const struct request *r, struct echi_device **out, const struct echi_source **out_spare,
                            struct ech_error *err) {
    *out_spare = NULL;
    ECHI_TRY(echi_device_open_at(r->spec, r->threads, r->level, out, err));
    if (echi_device_describe(*out)->host_memory) return ECH_OK;
    echi_device_keep_programs(*out, r->keep);
    for (int i = 0; i < r->count; i++) echi_device_distrust(*out, r->without[i]);
    const ech_status status = check_answers(*out, r->kernels, out_spare, err);
    if (status == ECH_OK) return ECH_OK;
    echi_device_close(*out);
    *out = NULL;
    return status;
}

/* A device whose own kernels compute wrongly, or break it, may do without them. It is opened anew: a broken one does nothing more. */
static ech_status open_checked(const struct request *wanted, struct echi_device **out, struct ech_error *err) {
    struct request r = *wanted;
    for (;;) {
        const struct echi_source *spare;
        const ech_status status = open_once(&r, out, &spare, err);
        for (int i = 0; i < r.count; i++)
            if (r.without[i] == spare) spare = NULL;
        if (status == ECH_OK || spare == NULL || r.count == ECHI_DISTRUSTED_MOST) return status;
        r.without[r.count++] = spare;
    }
}

/* Processors by OpenCL are left out: our own kernels are faster there. */
static bool is_candidate(const struct echi_device_info *info) { return info->gpu || strcmp(info->backend, "cpu") == 0; }

static ech_status open_fastest(struct request r, struct echi_device **out, struct ech_error *err) {
    struct echi_device_info info;
    char at[32];
    double best = 0;
    bool gpu = false;
    r.spec = at;
    *out = NULL;
    for (int i = 0; !gpu && echi_device_at(i, at, sizeof at, &info); i++) gpu = info.gpu;
    for (int i = 0; gpu && echi_device_at(i, at, sizeof at, &info); i++) {
        struct echi_device *device = NULL;
        double rate = 0;
        if (!is_candidate(&info) || open_checked(&r, &device, NULL) != ECH_OK) continue;
        const bool faster = echi_device_rate(device, r.kernels, &rate, NULL) == ECH_OK && rate > best;
        echi_device_close(faster ? *out : device);
        if (!faster) continue;
        *out = device;
        best = rate;
    }
    if (*out != NULL) return ECH_OK;
    r.spec = "cpu";
    return open_checked(&r, out, err);
}

ech_status echi_ops_open(const char *spec, int threads, enum echi_cpu_level level, enum echi_kernels kernels, const char *keep,
                         struct echi_device **out, struct ech_error *err) {
    struct request r = {.spec = spec, .keep = keep, .threads = threads, .level = level, .kernels = kernels};
    return spec != NULL && strcmp(spec, "auto") == 0 ? open_fastest(r, out, err) : open_checked(&r, out, err);
}
