#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# 3 x 3 convolutions on one thread, batch 32: ours and PyTorch's in turn, ROUNDS times, and the median ratio of each part of each layer.
#   B             build folder (default build)
#   BENCH_PYTHON  a Python with torch (default: the system's)
# Exits with 77 when no PyTorch is here, after our own figures.
set -eu
here=$(dirname "$0")
ours=${B:-build}/test/bench/bench_conv python=${BENCH_PYTHON:-/usr/bin/python3} rounds=${ROUNDS:-3}
unset OPENBLAS_CORETYPE
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
if ! version=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null); then
    "$ours"
    echo "no PyTorch here: name a Python that has it in BENCH_PYTHON"
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-conv.XXXXXX")
trap 'rm -rf "$work"' EXIT
for ((i = 1; i <= rounds; i++)); do
    "$ours" | tee "$work/ours.$i"
    echo "PyTorch $version"
    "$python" -W ignore "$here/bench_conv_torch.py" | tee "$work/torch.$i"
done
echo
echo "PyTorch's milliseconds over ours, median of $rounds    forward  to data  to weights"
for ((i = 1; i <= rounds; i++)); do
    paste <(sed 1d "$work/ours.$i" | sed 's/ conv[^.]*  / /' | grep -o '[0-9.]* ms' | paste - - -) \
        <(grep -o '[0-9.]* ms' "$work/torch.$i" | paste - - -) <(cut -c1-15 "$work/torch.$i") |
        awk '{ l = ""; for (i = 13; i <= NF; i++) l = l " " $i; print l "|" $7 / $1, $9 / $3, $11 / $5 }'
done | awk -F'|' '{ if (!($1 in n)) name[++names] = $1; v[$1, ++n[$1]] = $2 }
    function middle(key, part,   i, j, k, a, t) {
        for (i = 1; i <= n[key]; i++) { split(v[key, i], k, " "); a[i] = k[part] }
        for (i = 2; i <= n[key]; i++) for (j = i; j > 1 && a[j] < a[j - 1]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
        return a[int((n[key] + 1) / 2)]
    }
    END {
        for (i = 1; i <= names; i++)
            printf "%-44s %10.2f %8.2f %11.2f\n", name[i], middle(name[i], 1), middle(name[i], 2), middle(name[i], 3)
    }'
