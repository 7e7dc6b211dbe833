/* SPDX-License-Identifier: Apache-2.0
 * The kernels of ops/gpu as functions of the host, and the one of test/unit/test_hal.c. names.inc, made by the Makefile, has X(name) for
 * each in the text. And those of the texts for cards alone, which test/ops/texts.c lists. */
#include "host_cuda.h"

#include "../ops/texts.h"
#include "kernels.cl"

extern "C" void turn(const int *from, int *to, int add, float times) {
    __shared__ int near[32];
    const unsigned at = (blockIdx.y * 3 + blockIdx.x) * 32;
    near[threadIdx.x] = from[at + threadIdx.x];
    __syncthreads();
    to[at + threadIdx.x] = (int)((float)near[31 - threadIdx.x] * times) + add;
}

/* A call of `kernel`, whose parameters have types A, from where their values lie. */
template <class... A> struct caller {
    template <void (*kernel)(A...), size_t... I> static void spread(void *const *values, std::index_sequence<I...>) {
        kernel(*(A *)values[I]...);
    }
    template <void (*kernel)(A...)> static void call(void *const *values) { spread<kernel>(values, std::index_sequence_for<A...>()); }
};
template <class... A> static caller<A...> caller_of(void (*)(A...)) { return {}; }
template <class... A> static std::vector<size_t> sizes_of(void (*)(A...)) { return {sizeof(A)...}; }

void fake_kernels(std::map<std::string, launcher> &out) {
#define X(name) out[#name] = {sizes_of(name), &decltype(caller_of(name))::template call<name>, nullptr};
#include "names.inc"
    X(turn)
#undef X
    for (int i = 0; text_kernel_at(i); i++) {
        const struct text_kernel *k = text_kernel_at(i);
        out[k->name] = {std::vector<size_t>(k->bytes, k->bytes + k->parameters), nullptr, k->call};
    }
}
