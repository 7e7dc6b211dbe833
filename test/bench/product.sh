#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Matrix products on one thread: a fully connected layer's three, ours, PyTorch's (MKL) and OpenBLAS' in turn, ROUNDS times; then ours in
# GFLOP/s, as a fraction of what the core's registers do, and over the faster of the peers: medians of ratios of neighbours in time.
#   B             build folder (default build)
#   BENCH_PYTHON  a Python with torch (default: the system's); without one that peer is left out
#   OPENBLAS      its library (default libopenblas.so.0); left out where it is not there. Its core type is its own choice: name
#                 the right one in OPENBLAS_CORETYPE, such as SkylakeX, where a virtual machine leads it astray
# Exits with 77 when neither peer is here, after our own figures.
set -eu
here=$(dirname "$0")
ours=${B:-build}/test/bench/bench_product python=${BENCH_PYTHON:-/usr/bin/python3} blas=${OPENBLAS:-libopenblas.so.0} rounds=${ROUNDS:-3}
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-product.XXXXXX")
trap 'rm -rf "$work"' EXIT
peers=()
if version=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null); then
    peers+=(torch)
    echo "PyTorch $version"
fi
if "$ours" openblas "$blas" peek >/dev/null 2>&1; then
    peers+=(openblas)
    echo "OpenBLAS ${OPENBLAS_CORETYPE:-, core type of its own choice}"
fi
mapfile -t sizes < <("$ours" sizes)
torch() { "$python" -W ignore "$here/bench_product_torch.py" "${sizes[@]}"; }
openblas() { "$ours" openblas "$blas"; }
plain() { "$ours"; }
bf16() { "$ours" bf16; }
peak=$("$ours" peak)
"$ours" bf16 peek >/dev/null 2>&1 && kinds=(plain bf16) || kinds=(plain)
[ "${#kinds[@]}" = 2 ] || echo "this processor lacks bf16 products: those rows stay open"
echo "load $(cut -d' ' -f1-3 /proc/loadavg) before; registers alone do $peak GFLOP/s"
for ((i = 1; i <= rounds; i++)); do
    for who in "${kinds[@]}" ${peers[@]+"${peers[@]}"}; do
        # name | three rates
        "$who" | sed -E 's/^(.*batch +[0-9]+)(.*)$/\1|\2/; s/ +[0-9.]+ ms +([0-9]+) GF/ \1/g' | sed "s/^/$i|$who|/" | tee -a "$work/rates"
    done
done
echo "load $(cut -d' ' -f1-3 /proc/loadavg) after"
echo
echo "medians of $rounds; over: over the faster peer of the same round, bf16 over the faster fp32 of a peer"
printf '%-5s %-26s %28s %28s %28s\n' "" "" "forward" "to data" "to weights"
awk -F'|' -v peak="$peak" '
    { split($4, rate, " ")
      for (p = 1; p <= 3; p++) {
          r[$1, $2, $3, p] = rate[p]
          if (($2 == "torch" || $2 == "openblas") && rate[p] > best[$1, $3, p]) best[$1, $3, p] = rate[p]
      }
      if (!($3 in seen)) { seen[$3] = 1; name[++names] = $3 } if ($1 > rounds) rounds = $1; has[$2] = 1 }
    function middle(a, n,   i, j, t) {
        for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j - 1]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
        return n ? a[int((n + 1) / 2)] : 0
    }
    function cell(who, what, p,   i, n, a, b, m, rates) {
        for (i = 1; i <= rounds; i++) {
            a[i] = r[i, who, what, p]
            if (best[i, what, p]) b[++m] = a[i] / best[i, what, p]
        }
        rates = middle(a, rounds)
        return sprintf("%5d GF %s %s", rates, peak > 0 && who == "plain" ? sprintf("%3d %%", 100 * rates / peak) : "     ",
                       m ? sprintf("over %5.2f", middle(b, m)) : "")
    }
    END { for (k = 1; k <= 2; k++) { who = k == 1 ? "plain" : "bf16"
        for (i = 1; has[who] && i <= names; i++)
            printf "%-5s %-26s %28s %28s %28s\n", k == 1 ? "fp32" : who, name[i],
                cell(who, name[i], 1), cell(who, name[i], 2), cell(who, name[i], 3) } }' "$work/rates"
[ "${#peers[@]}" -gt 0 ] || { echo "neither PyTorch nor OpenBLAS is here: name a Python in BENCH_PYTHON, a library in OPENBLAS"; exit 77; }
