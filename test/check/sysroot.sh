#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SYSROOT=: headers and libraries come from there. Made-up systems: one without a C library is refused, one without headers compiles
# nothing, and where both are, the linker takes all of its files from there.
# usage: MAKE=make CC=gcc B=build LIB=build/libechelon.a test/check/sysroot.sh
set -eu
machine=$($CC -print-multiarch 2>/dev/null) || machine=
[ -n "$machine" ] && [ -e "/usr/lib/$machine/libc.so" ] || { echo "the C library is not where Debian has it"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
system=$work/system
mkdir -p "$system/usr"
# Only the command's own files are compiled: the archive is that of the ordinary build.
build() {
    $MAKE --no-print-directory -j2 CC="$CC" CFLAGS=-O0 LDFLAGS=-Wl,--trace SYSROOT="$system" B="$work/build" LIB="$LIB" OBJ= -o "$LIB" \
        "$work/build/echelon" >"$work/log" 2>&1
}
bad() { echo "$1"; tail -n 5 "$work/log"; exit 1; }

build && bad "a system without a C library, and yet it is built"
grep -q "SYSROOT=$system has no C library" "$work/log" || bad "it is not the C library that is missing"
mkdir -p "$system/usr/lib" "$system/lib"
ln -s "/usr/lib/$machine" "$system/usr/lib/$machine"
ln -s "/lib/$machine" "$system/lib/$machine"
[ ! -e /lib64 ] || ln -s /lib64 "$system/lib64"
build && bad "a system without headers, and yet it is built"
grep -q 'fatal error: .*\.h' "$work/log" || bad "it is not a header that is missing"
ln -s /usr/include "$system/usr/include"
build || bad "with headers and libraries it is not built"
for file in crt1.o libm.so libc.so; do   # Scrt1.o, too
    grep -E "/S?$file(\.6)?\$" "$work/log" | grep -q "^$system/" || bad "$file is not the one of the system"
    grep -E "^/.*/S?$file\$" "$work/log" | grep -v "^$system/" && bad "$file is another system's"
done
[ "$("$work/build/echelon" --version)" = "echelon $(sed -n 's/.define ECH_VERSION "\(.*\)"/\1/p' lib/echelon.h)" ]
