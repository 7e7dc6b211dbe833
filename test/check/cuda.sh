#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What can be seen of CUDA without a card: calls and values declared in hal/cuda are those of the toolkit's headers, and the driver has them
# under these names; cuDNN's, in test/bench, are those of its headers; the images have all kernels, for all that nvcc knows, and a PTX that
# the oldest driver takes; NVRTC compiles the text.
# make check only: NVRTC compiles the kernels for three architectures.
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-cuda.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0 seen=0
bad() {
    failures=$((failures + 1))
    echo "BAD  $*"
}
[[ ,${SAN:-}, = ,, ]] || { echo "the same without sanitizers"; exit 77; }
images=$IMAGES/ops/gpu/kernels
[ -e "$images.ptx" ] || { echo "this build is without CUDA"; exit 77; }

# --- the toolkit's headers and the driver's names
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
toolkit=$(dirname "$(dirname "$(readlink -f "${nvcc:-/nowhere/bin/nvcc}")")")
if [ -e "$toolkit/include/cuda.h" ] && [ -e "$toolkit/include/nvrtc.h" ]; then
    seen=$((seen + 1))
    {
        echo '#include <cuda.h>'
        echo '#include <nvrtc.h>'
        echo '#include "echi_cuda_api.h"'
        echo '#define SAME(type, name, parameters) type (*const same_##name) parameters = name;'
        echo 'ECHI_CUDA_CALLS(SAME) ECHI_NVRTC_CALLS(SAME) ECHI_NVRTC_CALLS_SINCE_11(SAME)'
        grep -oE '\b(CU(DA)?|NVRTC)_[A-Z0-9_]+ = [0-9]+' hal/cuda/echi_cuda_api.h |
            sed 's/\(.*\) = \(.*\)/_Static_assert((int)\1 == \2, "\1");/'
    } >"$work/same.c"
    values=$(grep -c _Static_assert "$work/same.c")
    [ "$values" -gt 45 ] || bad "only $values values were found in echi_cuda_api.h"
    $CC -std=gnu11 -Wall -Wno-deprecated-declarations -Werror -I"$toolkit/include" -Ihal/cuda -c -o "$work/same.o" "$work/same.c" ||
        bad "echi_cuda_api.h is not what the headers in $toolkit say"
    stub=$toolkit/lib64/stubs/libcuda.so
    if [ -e "$stub" ]; then
        while read -r name; do
            $NM -D --defined-only "$stub" | grep -qE " T $name$" || bad "the driver has no $name"
        done < <(sed -n '/ECHI_CUDA_CALLS/,/ECHI_NVRTC_CALLS/s/.*X([A-Za-z]*, \(cu[A-Za-z0-9_]*\),.*/\1/p' hal/cuda/echi_cuda_api.h)
    fi
else
    echo "no headers of CUDA here: what is declared was not compared"
fi

# --- cuDNN's headers; each way through a convolution has calls, and a struct of results, of its own
if echo '#include <cudnn.h>' | $CC -I"$toolkit/include" -E -o /dev/null -x c - 2>/dev/null; then
    seen=$((seen + 1))
    mine=test/bench/bench_cudnn.h
    {
        echo '#include <cudnn.h>'
        echo '#include <stddef.h>'
        grep '^struct cudnn_found ' $mine
        echo '#define AT(type, theirs, ours) _Static_assert(offsetof(type, theirs) == offsetof(struct cudnn_found, ours), #theirs);'
        echo '#define SAME(way, type) AT(type, algo, algorithm) AT(type, status, status) AT(type, time, milliseconds) \
            AT(type, memory, bytes) AT(type, determinism, determinism) AT(type, mathType, math) \
            _Static_assert(sizeof(type) == sizeof(struct cudnn_found), #type); \
            IS(cudnnGetConvolution##way##Algorithm_v7) IS(cudnnGetConvolution##way##WorkspaceSize) IS(cudnnConvolution##way)'
        echo '#define IS(call) void *const is_##call = (void *)call;'
        echo 'SAME(Forward, cudnnConvolutionFwdAlgoPerf_t) SAME(BackwardFilter, cudnnConvolutionBwdFilterAlgoPerf_t)'
        echo 'SAME(BackwardData, cudnnConvolutionBwdDataAlgoPerf_t)'
        grep -oE 'X\(cudnn[A-Za-z0-9]+,' $mine | sed 's/X(\(.*\),/IS(\1)/'
        grep -oE '\bCUDNN_[A-Z0-9_]+ = [0-9]+' $mine | sed 's/\(.*\) = \(.*\)/_Static_assert((int)\1 == \2, "\1");/'
    } >"$work/cudnn.c"
    [ "$(grep -c '^IS\|^_Static' "$work/cudnn.c")" -gt 20 ] || bad "too few calls and values were found in $mine"
    $CC -std=gnu11 -Wall -Wno-deprecated-declarations -Werror -I"$toolkit/include" -c -o "$work/cudnn.o" "$work/cudnn.c" ||
        bad "$mine is not what cudnn.h says"
else
    echo "no headers of cuDNN here: what is declared of it was not compared"
fi

# --- the images
mapfile -t kernels < <(sed -n 's/.*X(\([a-z_]*\)).*/\1/p' "$B/test/fake/names.inc" 2>/dev/null)
[ ${#kernels[@]} -gt 10 ] || bad "no list of the kernels in $B/test/fake"
if [ -s "$images.ptx" ]; then
    seen=$((seen + 1))
    grep -qx '\.version 6\.0' "$images.ptx" || bad "PTX: $(grep -m 1 '^.version' "$images.ptx"), not 6.0, which CUDA 9 takes"
    grep -qx '\.target sm_53' "$images.ptx" || bad "PTX: $(grep -m 1 '^.target' "$images.ptx"), not sm_53"
    for kernel in "${kernels[@]}"; do grep -q "\.entry $kernel(" "$images.ptx" || bad "PTX: no kernel $kernel"; done
    ! grep -q '\.extern' "$images.ptx" || bad "PTX: it asks for something from outside: $(grep -m 1 '\.extern' "$images.ptx")"
    if command -v ptxas >/dev/null; then
        for arch in $(nvcc --list-gpu-code); do
            ptxas -arch="$arch" -o "$work/code" "$images.ptx" || bad "PTX: ptxas refuses it for $arch"
        done
    fi
fi
if [ -s "$images.fatbin" ] && [ -n "$nvcc" ]; then
    seen=$((seen + 1))
    # A header of 16 bytes, then for each image: its kind (1 PTX, 2 machine code), its header's and its own bytes, and at 28 what it is for.
    found=$(od -An -v -w4 -t u4 "$images.fatbin" | awk '{ w[NR - 1] = $1 }
        END { for (i = 4; i < NR; i += (w[i + 1] + w[i + 2]) / 4) printf "%s_%d\n", w[i] % 65536 == 2 ? "sm" : "compute", w[i + 7] }')
    for code in $("$nvcc" --list-gpu-code); do grep -qx "$code" <<<"$found" || bad "nvcc's image has no machine code for $code"; done
    grep -q '^compute_' <<<"$found" || bad "nvcc's image has no PTX for what comes after it"
fi

# --- the text, by NVRTC: for a card older than it knows, the oldest that it knows and the newest. The image above is the same compiler's
# code, of the same text, for all of them.
cat >"$work/compile.c" <<'C'
#include "cuda/echi_cuda.h"
#include "gpu/echi_gpu.h"
#include <stdio.h>
#include <string.h>
int main(void) {
    static const int tried[] = {53, 75, 120};
    int made = 0;
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        char what[ECHI_CUDA_LOG], log[ECHI_CUDA_LOG];
        void *out = NULL;
        size_t len = 0;
        if (echi_nvrtc_compile(echi_gpu_source.text, tried[i], 13000, &out, &len, what, log)) made++;
        printf("sm_%d: %s, %zu bytes%s%s\n", tried[i], what, len, *log ? ": " : "", log);
        if (*log || (out && memcmp(out, "\177ELF", 4) != 0 && strstr(out, ".entry") == NULL)) return 1;
        if (!out && strstr(what, "there is no libnvrtc") != NULL) return 77;
    }
    return made == 0;
}
C
$CC -std=gnu11 -Iport/pure -Iport -Ihal -Iops -o "$work/compile" "$work/compile.c" "$LIB" -lm -ldl -lpthread &&
    "$work/compile" >"$work/said" 2>&1
case $? in
0) seen=$((seen + 1)) ;;
77) echo "no NVRTC here: it was not asked" ;;
*) bad "NVRTC, of the kernels' text: $(tail -n 1 "$work/said")" ;;
esac
[ $seen -gt 0 ] || { echo "neither nvcc nor a clang that makes PTX, nor NVRTC, is here"; exit 77; }
echo "CUDA: $failures not as it must be"
[ $failures = 0 ]
