#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How much of each parser the corpus and a run of SECONDS a driver go through: builds the drivers with gcc's --coverage in a
# folder of its own, runs them, and prints lines and branches of each file that parses foreign bytes.
# usage: [CORPUS=folder] test/fuzz/coverage.sh [SECONDS]      without SECONDS: the short run of make test
set -eu
cd "$(dirname "$0")/../.."
build=build/coverage
make -s B=$build CFLAGS="-O0 -g --coverage" LDFLAGS=--coverage $build/test/fuzz/test_fuzz >/dev/null
find $build -name '*.gcda' -delete
$build/test/fuzz/test_fuzz ${1:+--seconds "$1"} ${CORPUS:+--keep "$CORPUS"} >/dev/null

parsers="ops/codec.c net/frame.c net/receive.c net/hello.c net/address.c lib/core/types/message.c lib/core/roles/trace.c lib/model/text.c
         lib/model/model.c lib/model/json_read.c lib/model/safetensors.c lib/model/tensor_match.c
         lib/data/idx.c lib/data/cifar.c lib/job/plan_file.c lib/job/config.c lib/job/config_check.c
         lib/job/number.c lib/drive/replay/recording.c lib/job/checkpoint.c lib/job/lines.c lib/job/profile.c lib/job/report_read.c
         lib/job/curves.c lib/job/curve_ratio.c lib/job/curve_evidence.c
         lib/import/import.c lib/import/table.c lib/import/caffe.c lib/import/graph.c lib/import/alpha_beta.c
         lib/drive/sim/hosts.c lib/doctor/meet.c lib/doctor/ask.c lib/drive/live/links.c port/pure/echi_error.c"
printf '%-26s %7s %9s %9s\n' file lines covered branches
for file in $parsers; do
    [ -e "$build/${file%.c}.gcno" ] || continue
    gcov -b -n -o "$build/${file%.c}.gcda" "$file" 2>/dev/null | awk -v file="$file" '
        $1 == "File" { ours = index($0, "\047" file "\047") }
        ours && /^Lines executed/ { split($2, part, ":"); lines = part[2]; count = $4 }
        ours && /^Taken at least once/ { split($4, part, ":"); branches = part[2] }
        END { printf "%-26s %7s %9s %9s\n", file, count, lines, branches }'
done
