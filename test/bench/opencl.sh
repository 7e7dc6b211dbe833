#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Products of matrices, n x n x n, on the first OpenCL device, ours and CLBlast's (with the parameters it comes with) in turn, medians. Both
# are exact on the numbers that they are tried with first. Target: at least as fast, everywhere.
#   B         build folder (default build)
#   CLBLAST   its library (default libclblast.so.1, Debian's libclblast1)
# Exits with 77 when CLBlast or a device is not here, after our own figures if there is a device.
set -euo pipefail
ours=${B:-build}/test/bench/bench_opencl library=${CLBLAST:-libclblast.so.1}
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-opencl.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "load $(cut -d' ' -f1-3 /proc/loadavg) before"
status=0
"$ours" "$library" | tee "$work/table" || status=$?
if [ "$status" = 77 ]; then
    echo "no CLBlast, or no OpenCL device (packages libclblast1, pocl-opencl-icd): what is here alone"
    "$ours" || true
    exit 77
fi
[ "$status" = 0 ] || exit "$status"
echo "load $(cut -d' ' -f1-3 /proc/loadavg) after"
awk '/over it/ { for (i = 1; i < NF; i++) if ($i == "it" && (least == "" || $(i + 1) < least)) least = $(i + 1) }
     END { printf "least: %.2f times CLBlast   >= 1.00 %s\n", least, (least >= 1 ? "yes" : "NO") }' "$work/table"
