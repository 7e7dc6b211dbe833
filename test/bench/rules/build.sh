#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rule of others, made: `build.sh NAME TO` compiles lib/exec/exec.c as NAME.rule changes it and links the command TO with it.
# After `make`.
set -eu
cd "$(dirname "$0")/../../.."
B=${B:-build} LIB=${LIB:-$B/libechelon.a} CC=${CC:-gcc}
source test/seeds/plant.sh
plant "test/bench/rules/$1.rule" . || exit 1
mkdir -p "$(dirname "$2")"
source_of=$2.${file##*/}
printf '%s' "$text" >"$source_of"
# As the Makefile compiles that file. Objects come before the archive: its member of that name is not taken.
include=(-Iport/pure -Iport -Ihal -Iops -Ilib -Ilib/{model,data,exec,core/{types,cost,planner,sync,roles}} -Inet -Ilib/job -Ilib/drive/live)
# CC may be several words.
$CC -std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -ffp-contract=off -O2 -pthread "${include[@]}" -c -o "$2.o" "$source_of"
$CC -pthread -o "$2" "$B"/tools/*.o "$2.o" "$LIB" -lm -ldl -lpthread
