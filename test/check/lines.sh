#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No line of code is longer than 140 characters.
set -eu
# shellcheck disable=SC2016 # awk's own $0
long=$(find Makefile hal lib net ops port test tools -type f \( -name Makefile -o -name '*.[ch]' -o -name '*.cpp' -o -name '*.cl' \
    -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' -o -name '*.bash' \) \
    -exec env LC_ALL=C awk -v most=140 'length > most {
        line = $0
        gsub(/[\200-\277]/, "", line)   # of a character of UTF-8 its first byte counts
        if (length(line) > most) print FILENAME ":" FNR ": " length(line) " characters, more than " most
    }' {} +)
[ -z "$long" ] || { echo "$long"; exit 1; }
