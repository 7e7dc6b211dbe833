#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The rules of others that `make reproduce-gssp` compares with (test/bench/rules) still fit lib/exec/exec.c, compile and link: a bench that
# takes hours is no place to find out.
# make check only: it builds the library for each rule.
set -eu
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-rules.XXXXXX")
trap 'rm -rf "$work"' EXIT
status=0
for rule in test/bench/rules/*.rule; do
    name=$(basename "$rule" .rule)
    bash test/bench/rules/build.sh "$name" "$work/$name" >"$work/out" 2>&1 && [ -x "$work/$name" ] || { status=1; cat "$work/out"; }
done
exit $status
