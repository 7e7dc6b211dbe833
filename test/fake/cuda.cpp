/* SPDX-License-Identifier: Apache-2.0
 * A CUDA driver without a card, for tests: the functions of libcuda.so.1 that hal/cuda calls, on memory of the host. It is stricter than a
 * real one: work is done only when somebody asks whether it is done, a piece a question, so that a wait that is missing is seen; memory has
 * guards on both sides and no other content than NaN; what a program must not do is kept in `complaint`. Kernels are those of ops/gpu,
 * compiled for the host, and a module is an image that names them. */
#include "../../hal/cuda/echi_cuda_api.h"
#include "../ops/simt_run.h"
#include "../ops/switch.h"
#include "fake_cuda.h"
#include "host_cuda.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <set>

#define DECLARE(type, name, parameters) extern "C" __attribute__((visibility("default"))) type name parameters;
ECHI_CUDA_CALLS(DECLARE)
extern "C" __attribute__((visibility("default"))) struct fake_cuda *fake_cuda(void);

static struct fake_cuda control = {1, 0, 13000, 90, 1024, 0, 1, 48, 0x3b, 1, 1, 0, "", 0, 0, "", 0, 0, 0, 0, 0, 0, 0, ""};
static std::recursive_mutex lock;
static bool told;

/* "devices=2 fail=cuMemAlloc_v2 fail_with=2" */
static void read_environment() {
    const char *text = getenv("FAKE_CUDA");
    const std::pair<const char *, int *> numbers[] = {
        {"devices=", &control.devices}, {"init=", &control.init}, {"version=", &control.version}, {"capability=", &control.capability},
        {"memory=", &control.memory}, {"taken=", &control.taken}, {"pageable=", &control.pageable},
        {"shared=", &control.shared},
        {"bus=", &control.bus}, {"fatbin=", &control.fatbin}, {"ptx=", &control.ptx},
        {"lost_after=", &control.lost_after}, {"fail_after=", &control.fail_after}, {"fail_with=", &control.fail_with},
        {"spoil_with=", &control.spoil_with}, {"pause=", &control.pause}};
    for (const auto &n : numbers)
        if (const char *at = text ? strstr(text, n.first) : NULL) *n.second = (int)strtol(at + strlen(n.first), NULL, 0);
    if (const char *at = text ? strstr(text, "fail=") : NULL) sscanf(at, "fail=%47s", control.fail);
    if (const char *at = text ? strstr(text, "spoil=") : NULL) sscanf(at, "spoil=%31s", control.spoil);
}

struct fake_cuda *fake_cuda(void) {
    if (!told) read_environment();
    told = true;
    return &control;
}

static void complain(const std::string &what) {
    if (!control.complaint[0]) snprintf(control.complaint, sizeof control.complaint, "%s", what.c_str());
}

/* ------------------------------------------------------------ what there is */

struct CUctx_st { int device, users; CUresult lost; };
struct command { std::function<CUresult()> run; };
struct CUstream_st { CUctx_st *context; std::deque<command> work; uint64_t done, taken; };
struct CUevent_st { CUctx_st *context; CUstream_st *stream; uint64_t at; };
struct CUmod_st { CUctx_st *context; std::string bytes; int made_for; };
struct CUfunc_st { const launcher *kernel; CUmod_st *module; std::string name; int shared; };   /* bytes that a launch may give it */

#define GUARD 4096   /* bytes on both sides */
struct memory { CUctx_st *context; uint8_t *block; size_t bytes; uint32_t guard; };   /* guard: a NaN of its own */

static CUctx_st contexts[16];
static bool begun;
static thread_local std::vector<CUctx_st *> current;
static std::map<uintptr_t, memory> memories;   /* by the address that the program has */
static std::map<uintptr_t, size_t> pinned;     /* bytes by address */
static std::set<CUstream_st *> streams;
static std::map<std::string, launcher> kernels;   /* by name */

/* Every call begins here: faults, and the context of this thread where the call needs one. */
static CUresult begin(const char *name, bool needs_context) {
    control.calls++;
    if (!begun && strcmp(name, "cuInit") != 0) return CUDA_ERROR_NOT_INITIALIZED;
    if (strcmp(control.fail, name) == 0 && control.fail_after-- == 0) {
        control.fail[0] = 0;
        return control.fail_with;
    }
    if (control.lost_after > 0 && --control.lost_after == 0)
        for (CUctx_st &c : contexts) c.lost = CUDA_ERROR_LAUNCH_FAILED;
    if (!needs_context) return CUDA_SUCCESS;
    if (current.empty()) {
        complain(std::string(name) + " without a context");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return current.back()->lost;
}
#define BEGIN(needs_context)                                              \
    std::lock_guard<std::recursive_mutex> locked(lock);                   \
    if (CUresult code = begin(__func__, needs_context)) return code

/* What is given back is gone, whatever else the call says. */
template <class T> static CUresult discard(const char *call, T *object) {
    std::lock_guard<std::recursive_mutex> locked(lock);
    const CUresult began = begin(call, true);
    delete object;
    control.alive--;
    return began;
}

/* [at, at + bytes) in one allocation. */
static bool inside(uintptr_t at, size_t bytes) {
    auto next = memories.upper_bound(at);
    if (next == memories.begin()) return false;
    --next;
    return at - next->first <= next->second.bytes && bytes <= next->second.bytes - (at - next->first);
}

static bool guards_hold(const memory &m) {
    for (size_t i = 0; i < GUARD; i += sizeof m.guard)
        if (memcmp(m.block + i, &m.guard, sizeof m.guard) || memcmp(m.block + GUARD + m.bytes + i, &m.guard, sizeof m.guard)) return false;
    return true;
}

static CUresult run_one(CUstream_st *s) {
    const command next = s->work.front();
    s->work.pop_front();
    const CUresult code = s->context->lost ? s->context->lost : next.run();
    if (code) s->context->lost = code;
    s->done++;
    return code;
}

static CUresult run_all(CUstream_st *s) {
    while (!s->work.empty()) run_one(s);
    return s->context->lost;
}

static CUresult submit(CUstream_st *s, std::function<CUresult()> run) {
    if (!s || streams.count(s) == 0 || s->context != current.back()) {
        complain("work for a stream that is not of this context");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    s->work.push_back({run});
    s->taken++;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------- kernels at work */

fake_three threadIdx, blockIdx, gridDim;
extern "C" char __start_fake_local[] __attribute__((weak)), __stop_fake_local[] __attribute__((weak));

/* A stack for each work-item of a group: one runs until it waits or is done, then the group goes on to the next. */
#define STACK (64 * 1024)
#define ITEMS_MOST 1024
enum item_state { IDLE, RUNS, WAITS };
struct item { void *here, *stack; item_state state; };
static item items[ITEMS_MOST];
static void *group_here;
static unsigned item_now;
static void (*kernel_now)(void *const *);
static void *const *values_now;

static void leave_item(item_state state) {
    item &me = items[item_now];
    me.state = state;
    switch_to(&me.here, group_here);
}

void fake_wait() { leave_item(WAITS); }

static void item_main() {
    for (;;) {
        kernel_now(values_now);
        leave_item(IDLE);
    }
}

static void enter_item(unsigned i) {
    if (!items[i].stack) {
        items[i].stack = aligned_alloc(64, STACK);
        items[i].here = switch_begin(items[i].stack, STACK, item_main);
    }
    item_now = i;
    threadIdx = {i, 0, 0};
    switch_to(&group_here, items[i].here);
}

/* False when some were done while others waited for them. Every other group goes backward: the order is nobody's to count on. */
static bool run_group(unsigned n, bool backward) {
    memset(__start_fake_local, 0xff, (size_t)(__stop_fake_local - __start_fake_local));
    for (unsigned i = 0; i < n; i++) items[i].state = RUNS;
    for (;;) {
        unsigned waiting = 0;
        for (unsigned k = 0; k < n; k++) {
            const unsigned i = backward ? n - 1 - k : k;
            enter_item(i);
            waiting += items[i].state == WAITS;
        }
        if (waiting == 0) return true;
        if (waiting < n) return false;
        for (unsigned i = 0; i < n; i++) items[i].state = RUNS;
    }
}

static CUresult launched() {
    control.launches++;
    control.late += control.pause * 1000000000LL;
    for (const auto &m : memories)
        if (!guards_hold(m.second)) {
            complain("a kernel wrote past the end of a buffer");
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
    return CUDA_SUCCESS;
}

static CUresult run_kernel(const launcher *kernel, const std::vector<std::vector<char>> &values, fake_three groups, unsigned n) {
    std::vector<void *> at;
    for (const auto &v : values) at.push_back((void *)v.data());
    kernel_now = kernel->call;
    values_now = at.data();
    gridDim = groups;
    for (unsigned z = 0; z < groups.z; z++)
        for (unsigned y = 0; y < groups.y; y++)
            for (unsigned x = 0; x < groups.x; x++) {
                blockIdx = {x, y, z};
                if (run_group(n, (x + y + z) % 2 != 0)) continue;
                complain("work-items of a kernel left while others waited for them");
                return CUDA_ERROR_ILLEGAL_INSTRUCTION;
            }
    return launched();
}

/* A kernel that only cards have: simt.h runs it, each time in another order, its copies at once or as late as may be. */
static CUresult run_text(const launcher *kernel, const std::vector<std::vector<char>> &values, fake_three groups, unsigned n,
                         unsigned shared) {
    std::vector<void *> at;
    for (const auto &v : values) at.push_back((void *)v.data());
    static uint32_t seed;
    simt_reaches = [](const void *from, size_t bytes) { return inside((uintptr_t)from, bytes); };
    seed++;
    const struct simt_launch how = {
        {(int)groups.x, (int)groups.y, (int)groups.z}, (int)n, shared, 1024, seed % 2 != 0, seed / 2 % 2 != 0, seed};
    if (const char *wrong = simt_run(kernel->text, at.data(), &how)) {
        complain(wrong);
        return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    }
    return launched();
}

/* --------------------------------------------------------------- the driver */

CUresult cuGetErrorName(CUresult code, const char **out) {
    static const std::map<CUresult, const char *> names = {
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"}, {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
        {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"}, {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}, {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
        {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}};
    const auto at = names.find(code);
    *out = at == names.end() ? NULL : at->second;
    return at == names.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char **out) {
    const char *name = NULL;
    *out = cuGetErrorName(code, &name) == CUDA_SUCCESS ? "so says the fake driver" : NULL;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuInit(unsigned) {
    BEGIN(false);
    fake_cuda();
    if (control.init) return control.init;
    if (control.devices == 0) return CUDA_ERROR_NO_DEVICE;
    for (int d = 0; d < 16; d++) contexts[d].device = d;
    fake_kernels(kernels);
    begun = true;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *out) {
    *out = fake_cuda()->version;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *out) {
    BEGIN(false);
    *out = control.devices;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *out, int d) {
    BEGIN(false);
    *out = d;
    return d >= 0 && d < control.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char *out, int cap, CUdevice d) {
    BEGIN(false);
    snprintf(out, (size_t)cap, "fake card %d", d);
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice) {
    BEGIN(false);
    *out = (size_t)control.memory << 20;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute what, CUdevice d) {
    BEGIN(false);
    switch (what) {
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *out = 0x7fffffff; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *out = 65535; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *out = 4; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *out = control.shared << 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = control.capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *out = control.capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *out = control.bus + d; break;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: *out = 0; break;
    default: complain("an attribute that this driver does not know"); return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d) {
    BEGIN(false);
    if (contexts[d].users == 0) contexts[d].lost = CUDA_SUCCESS;   /* a new one */
    contexts[d].users++;
    control.alive++;
    *out = &contexts[d];
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice d) {
    std::lock_guard<std::recursive_mutex> locked(lock);
    const CUresult began = begin(__func__, false);
    if (--contexts[d].users < 0) complain("a context that was not taken is given back");
    control.alive--;
    return began;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
    BEGIN(false);
    if (!context || context->users == 0) complain("a context that was given back");
    current.push_back(context);
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *out) {
    std::lock_guard<std::recursive_mutex> locked(lock);
    if (current.empty()) {
        complain("cuCtxPopCurrent_v2 without a context");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *out = current.back();
    current.pop_back();
    return CUDA_SUCCESS;
}

/* --- memory */

static size_t bytes_in_use(const CUctx_st *context) {
    size_t all = 0;
    for (const auto &m : memories) all += m.second.context == context ? m.second.bytes : 0;
    return all;
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *all) {
    BEGIN(true);
    const size_t most = (size_t)(control.memory - control.taken) << 20, used = bytes_in_use(current.back());
    *all = (size_t)control.memory << 20;
    *left = used < most ? most - used : 0;
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    BEGIN(true);
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const size_t most = (size_t)(control.memory - control.taken) << 20;
    if (bytes > most || bytes_in_use(current.back()) > most - bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    uint8_t *block = (uint8_t *)aligned_alloc(4096, (bytes + 2 * GUARD + 4095) / 4096 * 4096);
    if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
    static uint32_t number;
    const memory m = {current.back(), block, bytes, 0x7fc00000 + ++number % 0x10000};
    memset(block, 0xff, bytes + 2 * GUARD);
    for (size_t i = 0; i < GUARD; i += sizeof m.guard) {
        memcpy(block + i, &m.guard, sizeof m.guard);
        memcpy(block + GUARD + bytes + i, &m.guard, sizeof m.guard);
    }
    memories[(uintptr_t)block + GUARD] = m;
    control.alive++;
    *out = (uintptr_t)block + GUARD;
    return CUDA_SUCCESS;
}

/* As a real one it waits for all that is under way. */
CUresult cuMemFree_v2(CUdeviceptr at) {
    std::lock_guard<std::recursive_mutex> locked(lock);
    const CUresult began = begin(__func__, true);
    const auto found = memories.find(at);
    if (found == memories.end()) {
        complain("cuMemFree_v2 of what is no buffer");
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (CUstream_st *s : streams)
        if (s->context == found->second.context) run_all(s);
    if (!guards_hold(found->second)) complain("something wrote past the end of a buffer");
    free(found->second.block);
    memories.erase(found);
    control.alive--;
    return began;
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned) {
    BEGIN(true);
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(*out, 0xff, bytes);
    pinned[(uintptr_t)*out] = bytes;
    control.pinned += (long long)bytes;
    control.alive++;
    return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *host) {
    std::lock_guard<std::recursive_mutex> locked(lock);
    const CUresult began = begin(__func__, true);
    const auto found = pinned.find((uintptr_t)host);
    if (found == pinned.end()) {
        complain("cuMemFreeHost of what is not pinned");
        return CUDA_ERROR_INVALID_VALUE;
    }
    control.pinned -= (long long)found->second;
    pinned.erase(found);
    free(host);
    control.alive--;
    return began;
}

/* May a copy have [at, at + bytes) as the host's end? */
static bool may_cross(const void *at, size_t bytes) {
    auto next = pinned.upper_bound((uintptr_t)at);
    if (control.pageable) return true;
    if (next == pinned.begin()) return false;
    --next;
    return (uintptr_t)at + bytes <= next->first + next->second;
}

static CUresult copy(CUdeviceptr on_device, CUdeviceptr also, void *to, const void *from, size_t bytes, CUstream s) {
    if (inside(on_device, bytes) && inside(also, bytes))
        return submit(s, [=] {
            memcpy(to, from, bytes);
            return CUDA_SUCCESS;
        });
    complain("a copy past the end of a buffer");
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream s) {
    BEGIN(true);
    if (!inside(at, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return submit(s, [=] {
        memset((void *)(uintptr_t)at, value, bytes);
        return CUDA_SUCCESS;
    });
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s) {
    BEGIN(true);
    if (!may_cross(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return copy(to, to, (void *)(uintptr_t)to, from, bytes, s);
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
    BEGIN(true);
    if (!may_cross(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return copy(from, from, to, (const void *)(uintptr_t)from, bytes, s);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
    BEGIN(true);
    return copy(to, from, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes, s);
}

/* --- streams and events */

CUresult cuStreamCreate(CUstream *out, unsigned) {
    BEGIN(true);
    *out = new CUstream_st{current.back(), {}, 0, 0};
    streams.insert(*out);
    control.alive++;
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream s) {
    BEGIN(true);
    return run_all(s);
}
/* Comes to this stream's turn when the other has got as far as the event was when this was called. */
CUresult cuStreamWaitEvent(CUstream s, CUevent event, unsigned) {
    BEGIN(true);
    if (event->context != s->context) return CUDA_ERROR_INVALID_CONTEXT;
    CUstream_st *first = event->stream;
    const uint64_t at = event->at;
    return submit(s, [first, at]() -> CUresult {
        while (first && streams.count(first) && first->done < at) run_one(first);
        return CUDA_SUCCESS;
    });
}
CUresult cuStreamDestroy_v2(CUstream s) {
    std::lock_guard<std::recursive_mutex> locked(lock);
    const CUresult began = begin(__func__, true);
    run_all(s);
    streams.erase(s);
    delete s;
    control.alive--;
    return began;
}
CUresult cuEventCreate(CUevent *out, unsigned) {
    BEGIN(true);
    *out = new CUevent_st{current.back(), NULL, 0};
    control.alive++;
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) { return discard(__func__, event); }
CUresult cuEventRecord(CUevent event, CUstream s) {
    BEGIN(true);
    if (event->context != s->context) return CUDA_ERROR_INVALID_CONTEXT;
    event->stream = s;
    event->at = s->taken;
    return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
    BEGIN(true);
    CUstream_st *s = event->stream;
    if (s && s->done < event->at) run_one(s);
    if (event->context->lost) return event->context->lost;
    return s && s->done < event->at ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

/* --- modules */

/* The version of PTX that came with a CUDA: 60 of 9.0, 90 of 13.0 (PTX ISA manual, "Release notes"). */
static int ptx_of(int cuda) {
    const int major = cuda / 1000, minor = cuda % 1000 / 10;
    return major >= 11 ? 10 * (major - 4) + minor : major == 10 ? 63 + minor : major == 9 ? 60 + minor : 50 + minor;
}

static int field(const char *ptx, const char *name) {
    const char *at = strstr(ptx, name);
    int major = 0, minor = 0;
    if (at) sscanf(at + strlen(name), "%d.%d", &major, &minor);
    return strcmp(name, ".version ") == 0 ? 10 * major + minor : major;
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned, CUjit_option *, void **) {
    BEGIN(true);
    static const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba};
    const char *text = (const char *)image;
    const bool whole = memcmp(image, fatbin, 4) == 0, code = memcmp(image, "\177ELF", 4) == 0;
    std::string bytes;
    int made_for = control.capability;
    if (whole || code) {
        if (whole && (uintptr_t)image % 8) complain("an image that is not aligned");
        if (!control.fatbin) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    } else if (strstr(text, ".version ")) {
        made_for = field(text, ".target sm_");
        if (!control.ptx || field(text, ".version ") > ptx_of(control.version)) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
        if (made_for > control.capability) return CUDA_ERROR_NO_BINARY_FOR_GPU;
        bytes = text;
    } else return CUDA_ERROR_INVALID_IMAGE;
    *out = new CUmod_st{current.back(), bytes, made_for};
    control.alive++;
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) { return discard(__func__, module); }
CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    BEGIN(true);
    static std::map<std::pair<CUmodule, std::string>, CUfunc_st> functions;
    const auto kernel = kernels.find(name);
    if (kernel == kernels.end()) return CUDA_ERROR_NOT_FOUND;
    if (!module->bytes.empty() && module->bytes.find(std::string(".entry ") + name + "(") == std::string::npos) return CUDA_ERROR_NOT_FOUND;
    CUfunc_st &f = functions[{module, name}];
    f = {&kernel->second, module, name, 48 << 10};
    *out = &f;
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *out, CUfunction_attribute what, CUfunction f) {
    BEGIN(true);
    *out = what == CU_FUNC_ATTRIBUTE_PTX_VERSION       ? f->module->made_for
           : what == CU_FUNC_ATTRIBUTE_BINARY_VERSION  ? control.capability
           : what == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES ? 0
                                                       : ITEMS_MOST;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value) {
    BEGIN(true);
    if (what != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > control.shared << 10)
        return CUDA_ERROR_INVALID_VALUE;
    f->shared = value;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z,
                        unsigned shared, CUstream s, void **values, void **) {
    BEGIN(true);
    if (x * y * z < 1 || x > ITEMS_MOST || y != 1 || z != 1 || gx < 1 || gy < 1 || gz < 1 || gy > 65535 || gz > 65535 ||
        shared > (unsigned)f->shared)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::vector<char>> kept;
    for (size_t i = 0; i < f->kernel->sizes.size(); i++)
        kept.emplace_back((char *)values[i], (char *)values[i] + f->kernel->sizes[i]);
    const launcher *kernel = f->kernel;
    if (control.spoil[0] && f->name.find(control.spoil) != std::string::npos) {
        const CUresult code = control.spoil_with;
        return submit(s, [=] { return code; });
    }
    if (kernel->text) return submit(s, [=] { return run_text(kernel, kept, {gx, gy, gz}, x, shared); });
    return submit(s, [=] { return run_kernel(kernel, kept, {gx, gy, gz}, x); });
}
