#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An installed Echelon is whole: a program outside the tree builds with what pkg-config --static says and nothing else, and
# make uninstall leaves no file behind.
# usage: MAKE=make B=build CC=gcc STAGE=build/stage test/check/install.sh
set -eu
command -v pkg-config >/dev/null || { echo "pkg-config is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/program.c" <<'C'
#include <echelon.h>
#include <stdio.h>
int main(void) {
    printf("%s\n", ech_status_name(ECH_E_IO));
    return 0;
}
C
(
    cd "$work"
    export PKG_CONFIG_PATH=$STAGE/lib/pkgconfig
    # shellcheck disable=SC2046 # a list of flags
    $CC -std=c11 -Wall -Wextra -Werror program.c -o program $(pkg-config --static --cflags --libs echelon)
    [ "$(./program)" = ECH_E_IO ]
    [ "$(pkg-config --modversion echelon)" = "$(sed -n 's/.define ECH_VERSION "\(.*\)"/\1/p' "$STAGE/include/echelon/echelon.h")" ]
)

$MAKE --no-print-directory install B="$B" DESTDIR="$work/root" PREFIX=/opt/echelon
for file in lib/libechelon.a lib/pkgconfig/echelon.pc include/echelon/echelon.h include/echelon/ech_status.h; do
    [ -s "$work/root/opt/echelon/$file" ] || { echo "make install did not put down $file"; exit 1; }
done
grep -q '^prefix=/opt/echelon$' "$work/root/opt/echelon/lib/pkgconfig/echelon.pc"
$MAKE --no-print-directory uninstall B="$B" DESTDIR="$work/root" PREFIX=/opt/echelon
left=$(find "$work/root" -type f)
[ -z "$left" ] || { printf 'make uninstall left:\n%s\n' "$left"; exit 1; }
