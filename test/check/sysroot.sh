#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SYSROOT=: headers and libraries come from there and from nowhere else. Made-up systems: an empty one has no headers, one without libraries
# links nothing, and with both the command is built and runs.
# usage: MAKE=make CC=gcc B=build LIB=build/libechelon.a test/check/sysroot.sh
set -eu
case $($CC -dumpmachine) in x86_64-linux-gnu | x86_64-pc-linux-gnu | aarch64-linux-gnu) ;; *) echo "where $CC keeps its libraries is not known"; exit 77 ;; esac
machine=$($CC -print-multiarch 2>/dev/null) || machine=
[ -n "$machine" ] && [ -e "/usr/lib/$machine/libc.so" ] || { echo "the C library is not where Debian has it"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/system/usr"
# Only the command's own files are compiled: the archive is that of the ordinary build.
build() { $MAKE --no-print-directory -j2 CC="$CC" CFLAGS=-O0 SYSROOT="$work/system" B="$work/build" LIB="$LIB" OBJ= -o "$LIB" "$work/build/echelon" >"$work/log" 2>&1; }
bad() { echo "$1"; tail -n 5 "$work/log"; exit 1; }

build && bad "an empty system has no headers, and yet it is built"
grep -q 'fatal error: .*\.h' "$work/log" || bad "it is not a header that is missing"
ln -s /usr/include "$work/system/usr/include"
build && bad "a system without libraries, and yet it is linked"
grep -qE 'cannot find' "$work/log" || bad "it is not a library that is missing"
for part in usr/lib lib lib64 usr/lib64; do [ ! -e "/$part" ] || ln -s "/$part" "$work/system/$part"; done
build || bad "with headers and libraries it is not built"
[ "$("$work/build/echelon" --version)" = "echelon $(sed -n 's/.define ECH_VERSION "\(.*\)"/\1/p' lib/echelon.h)" ]
