#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No line of code is longer than 140 characters.
set -eu
# Files that others were at work in when the rule came: empty it, and take it out.
waiting='Makefile|hal/opencl/echi_opencl_api[.]h|lib/run/(config|exec)[.]c|ops/(echi_known_answer[.]h|echi_ops[.]h|stack[.]c)'
waiting+='|ops/cpu/(bf16_x86|cpu_matrix)[.]c|ops/gpu/ptx[.]cuh|port/team[.]c|test/cluster/test_precision[.]sh'
waiting+='|test/ops/test_(device|gpu_texts)[.]c|test/unit/test_(config|hal)[.]c'
# shellcheck disable=SC2016 # awk's own $0
long=$(find Makefile hal lib net ops port test tools -type f \( -name Makefile -o -name '*.[ch]' -o -name '*.cpp' -o -name '*.cl' \
    -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' -o -name '*.bash' \) \
    -exec env LC_ALL=C awk -v most=140 -v waiting="^($waiting)\$" 'length > most && FILENAME !~ waiting {
        line = $0
        gsub(/[\200-\277]/, "", line)   # of a character of UTF-8 its first byte counts
        if (length(line) > most) print FILENAME ":" FNR ": " length(line) " characters, more than " most
    }' {} +)
[ -z "$long" ] || { echo "$long"; exit 1; }
