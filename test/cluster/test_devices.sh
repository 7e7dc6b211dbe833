#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --device: a node on OpenCL learns; the gradient of one on the CPU and one on OpenCL is that of a single node on the CPU; what is not there, or does
# not go together, is refused; compiled kernels are kept.
. "$(dirname "$0")/cluster.bash"
! under thread || skip "OpenCL's runtime has threads of its own, which are not watched"
bars "$work/data" 40 10
export XDG_CACHE_HOME=$work/cache
mkdir "$XDG_CACHE_HOME"

refuse 2 "device 'gpu' is not known; choose one of: cuda, opencl, cpu" --data "$work/data" --device gpu
refuse 16 "device 'cpu:7': 'cpu' has 1 device.*cpu:0" --data "$work/data" --device cpu:7
refuse 16 "device 'opencl:99': 'opencl' has [0-9]* device.*cpu:0" --data "$work/data" --device opencl:99
refuse 2 "names 3 devices, but there are 2 nodes" --data "$work/data" --local 2 --device cpu,cpu,cpu
refuse 2 "no device for rank 2" --data "$work/data" --local 3 --device cpu,cpu
refuse 2 "no device for rank 1" --data "$work/data" --local 3 --device cpu,,cpu
expect 0 'accuracy' --data "$work/data" --device auto --deterministic --batch 64 --steps 1 --progress off   # the CPU, which alone has those kernels
if "$echelon" train --data "$work/data" --steps 0 --device opencl 2>&1 | grep -q "has 0 device"; then
    echo "OpenCL has no device here (apt-get install ocl-icd-libopencl1 pocl-opencl-icd): the rest is not tested"
    verdict test_devices
    exit
fi
if [ -n "${SAN:-}" ]; then   # what is left is arithmetic, which test/ops watches
    verdict test_devices
    exit
fi
patience=$((6 * patience))   # OpenCL on a processor takes its time
refuse 16 'deterministic .*give --device cpu' --data "$work/data" --device opencl --deterministic --batch 64
refuse 16 'slow .*give --device cpu' --data "$work/data" --device opencl --slow 2
check "no compiled kernels are kept in $XDG_CACHE_HOME" bash -c 'ls "$XDG_CACHE_HOME"/echelon/*.program > /dev/null'

expect 0 'accuracy +100.00 %' --data "$work/data" --device opencl:0 --optimizer adam --batch 32 --steps 40 --eval-every 0 --progress off

# --- the gradient of a round: what one step of plain SGD changes, by a rate so large that the weights' own rounding is none
floats() { od -An -v -w4 -t f4 -j $((8 + $(od -An -t u8 -N 8 "$1"))) "$1"; }
agree() {      # agree BEFORE WANTED GOT: apart by 1e-4 of the largest change at most
    paste <(floats "$1") <(floats "$2") <(floats "$3") |
        awk '{ d = $2 - $3; if (d < 0) d = -d; g = $2 - $1; if (g < 0) g = -g; if (g > most) most = g; if (d > off) off = d }
             END { printf "%d gradients, largest %g, %g apart\n", NR, most, off; exit !(NR == 61706 && most > 1 && off <= 1e-4 * most) }'
}
one="--data glyphs --batch 64 --lr 1000 --momentum 0 --eval-every 0 --progress off"
# shellcheck disable=SC2086 # a list of options
for run in "before --steps 0" "cpu --steps 1" "mixed --steps 1 --local 2 --shares 40,24 --device cpu,opencl:0"; do
    expect 0 '^  speed ' $one ${run#* } --save "$work/${run%% *}"
done
check "the gradient of a node on the CPU and one on OpenCL" agree "$work/before" "$work/cpu" "$work/mixed"
verdict test_devices
