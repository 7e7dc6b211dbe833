#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --device: a node on OpenCL learns; the gradient of one on the CPU and one on OpenCL is that of a single node on the CPU; what is not
# there, or does not go together, is refused; compiled kernels are kept.
# make check only: OpenCL on a processor is slow; ops/test_parity has its kernels.
. "$(dirname "$0")/cluster.bash"
[ -z "${SAN:-}" ] || skip "test_device has this code here; OpenCL's runtime is not watched"
bars "$work/data" 40 10
export XDG_CACHE_HOME=$work/cache
mkdir "$XDG_CACHE_HOME"

refuse 2 "device 'gpu' is not known; choose one of: cuda, opencl, cpu" --data "$work/data" --device gpu
refuse 16 "device 'cpu:7': 'cpu' has 1 device.*cpu:0" --data "$work/data" --device cpu:7
refuse 16 "device 'opencl:99': 'opencl' has [0-9]* device.*cpu:0" --data "$work/data" --device opencl:99
refuse 2 "names 3 devices, but there are 2 nodes" --data "$work/data" --local 2 --device cpu,cpu,cpu
refuse 2 "no device for rank 2" --data "$work/data" --local 3 --device cpu,cpu
refuse 2 "no device for rank 1" --data "$work/data" --local 3 --device cpu,,cpu
# the CPU, which alone has those kernels
expect 0 'accuracy' --data "$work/data" --device auto --deterministic --batch 64 --steps 1 --progress off
if "$echelon" train --data "$work/data" --steps 0 --device opencl 2>&1 | grep -q "has 0 device"; then
    echo "OpenCL has no device here (apt-get install ocl-icd-libopencl1 pocl-opencl-icd): the rest is not tested"
    verdict test_devices
    exit
fi
refuse 16 'deterministic .*give --device cpu' --data "$work/data" --device opencl --deterministic --batch 64
refuse 16 'slow .*give --device cpu' --data "$work/data" --device opencl --slow 2
check "no compiled kernels are kept in $XDG_CACHE_HOME" bash -c 'ls "$XDG_CACHE_HOME"/echelon/*.program > /dev/null'

expect 0 'accuracy +100.00 %' --data "$work/data" --device opencl:0 --optimizer adam --batch 32 --steps 40 --eval-every 0 --progress off

same_gradient opencl:0

# --- and a job of both learns, each node at its own speed
if [ -d "${ECHELON_DATA:-}/mnist" ] && "$root/tools/get-data" mnist --from "$ECHELON_DATA/mnist" --to "$work/mnist" >"$work/out" 2>&1; then
    expect 0 'target +98.50 %' --data "$work/mnist" --local 2 --device cpu,opencl:0 --sync gssp --epochs 8 --target-accuracy 0.985 \
        --progress off
else
    echo "no MNIST in \$ECHELON_DATA: what a job of both devices learns is not tested"
fi
verdict test_devices
