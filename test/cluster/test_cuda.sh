#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --device cuda, on the driver without a card of test/fake: a node learns; a mixed job has the gradient of a single node; drivers that are
# not there, too old, without a card or with one that is lost are told in a sentence; the card that OpenCL has too is listed once.
# make check only: 25 s of processor time; ops/test_parity has its kernels.
. "$(dirname "$0")/cluster.bash"
! under thread || skip "test_hal watches the threads that share a device"
fake=$(dirname "$echelon")/test/fake
[ -e "$fake/libcuda.so.1" ] || skip "no fake CUDA driver in this build (a C++ compiler makes it)"
bars "$work/data" 40 10
export XDG_CACHE_HOME=$work/cache
mkdir "$XDG_CACHE_HOME" "$work/older" "$work/none"
with() { export LD_LIBRARY_PATH=$1 FAKE_CUDA="${*:2}"; }   # with FOLDER [SETTINGS]: of the driver, from here on
shows() { grep -qE -e "$1" "$work/out" || bad "the page does not say '$1'"; }

# --- no driver, or none that is of use
sed 's/cuLaunchKernel/cuLaunchKernal/g' "$fake/libcuda.so.1" >"$work/older/libcuda.so.1"
printf 'no library\n' >"$work/none/libcuda.so.1"
with "$work/none"
refuse 16 "device 'cuda': 'cuda' has 0 device.*libcuda.so.1 is not here; there are: .*cpu:0" --data "$work/data" --device cuda
with "$work/older"
refuse 16 "'cuda' has 0 device.*libcuda.so.1 is too old: it has no cuLaunchKernel; there are" --data "$work/data" --device cuda:0
with "$fake" devices=0
refuse 16 "'cuda' has 0 device.*CUDA_ERROR_NO_DEVICE" --data "$work/data" --device cuda
with "$fake" init=803
refuse 16 "'cuda' has 0 device.*libcuda.so.1 says an error without a name" --data "$work/data" --device cuda
with "$fake" devices=2
refuse 16 "device 'cuda:2': 'cuda' has 2 device.*cuda:0, cuda:1" --data "$work/data" --device cuda:2
with "$fake" memory=1
expect 12 'has 1 MiB of memory' --data "$work/data" --device cuda --batch 512
with "$fake" memory=64 taken=63
expect 12 'has 64 MiB of memory, of which [01] MiB are free, .*or end other programs' --data "$work/data" --device cuda --batch 512
with "$fake" lost_after=3000
expect 27 "CUDA's device failed in .*CUDA_ERROR_LAUNCH_FAILED.*choose another device" --data "$work/data" --device cuda --steps 1000
if [ -n "${SAN:-}" ]; then   # what is left is arithmetic, which test/ops watches
    verdict test_cuda
    exit
fi

# --- one that is
with "$fake"
export OCL_ICD_VENDORS=$work/none   # a doctor looks at every device, and OpenCL on the processor would compile its kernels first
ends_with 0 '^training would begin$' doctor --device cuda
shows '^  ok    cuda:0 \(this node.s\)  fake card 0; 4 units, 1\.1 GB free of 1\.1 GB; driver CUDA 13.0; kernels from .* for sm_90$'
ends_with 0 '"driver": "CUDA 13.0", "kernels": "[^"]* for sm_90", "used": true' doctor --device cuda --json
json=$(grep -oE '"device": "cuda:0".*' "$work/out")
check "free and total memory of the card: $json" grep -qE '"memory": 1073741824, "memory_free": 1073741824,' <<<"$json"
refuse 16 'deterministic .*give --device cpu' --data "$work/data" --device cuda --deterministic --batch 64
# From here on the driver refuses copies from and to memory that is not pinned: what a run copies is.
with "$fake" pageable=0
# The net is small, for it is the device that is slow.
printf '%s
' 'input 1 28 28' 'conv2d out 4 kernel 5 stride 2' relu 'max_pool kernel 2' 'fc out 10' >"$work/small.model"
expect 0 'accuracy +100.00 %' --data "$work/data" --model "$work/small.model" --device cuda:0 --optimizer adam --batch 32 --steps 40 \
    --eval-every 0 --progress off --cache "$work/kept"
check "what the driver compiles and keeps is kept once more" [ -z "$(ls "$work/kept")" ]

# Nodes on one machine share its cards: two of the three get the first. A recording has the name of each node's device.
# With --shares each of them trains, however fast it was when it was measured.
with "$fake" devices=2 pageable=0
expect 0 '^  speed ' --data "$work/data" --model "$work/small.model" --device cuda --local 3 --batch 12 --shares 4,4,4 --steps 1 \
    --eval-every 0 --progress off --record "$work/record"
devices=$(for rank in 0 1 2; do grep -ao 'cuda[:0-9]*' "$work/record/rank$rank.events" | head -n 1; done)
check "each local rank has its card: $devices" [ "$devices" = $'cuda\ncuda:1\ncuda' ]
with "$fake" pageable=0
for way in '--sync local --inner-steps 1 --local 2' '--sync gssp --separate 1 --local 2'; do
    # shellcheck disable=SC2086 # a list of options
    expect 0 '^  speed ' --data "$work/data" --model "$work/small.model" --device cuda --batch 12 --steps 4 --eval-every 0 \
        --progress off $way
done

same_gradient cuda:0
with "$fake" fatbin=0 ptx=0
refuse 16 'no kernels for this CUDA device .sm_90, driver of CUDA 13.0.: .*NVRTC' --data "$work/data" --device cuda
verdict test_cuda
