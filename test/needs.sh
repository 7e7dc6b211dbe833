#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the tests need beyond a compiler: cmocka and pkg-config. Finds out by trying, installs what is missing through the
# system's package manager when it may (root, or sudo without a password; ECH_INSTALL=0 forbids), otherwise says how.
# usage: CC="gcc FLAGS" test/needs.sh STAMP      the file STAMP is made when all is there
# shellcheck disable=SC2086 # commands are words
set -u
stamp=$1

have_cmocka() {
    "${CC_WORDS[@]}" -x c -o "$stamp.probe" - -lcmocka >/dev/null 2>&1 <<'C'
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
static void nothing(void **state) { (void)state; }
int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
C
}

missing() {
    local names=
    have_cmocka || names=cmocka
    command -v pkg-config >/dev/null || names="${names:+$names and }pkg-config"
    echo "$names"
}

# The command that installs all of it, for the first package manager there is.
install_command() {
    if   command -v apt-get >/dev/null; then echo "apt-get install -y libcmocka-dev pkg-config"
    elif command -v dnf     >/dev/null; then echo "dnf install -y libcmocka-devel pkgconf-pkg-config"
    elif command -v pacman  >/dev/null; then echo "pacman -S --needed --noconfirm cmocka pkgconf"
    elif command -v zypper  >/dev/null; then echo "zypper --non-interactive install libcmocka-devel pkg-config"
    elif command -v apk     >/dev/null; then echo "apk add cmocka-dev pkgconf"
    elif command -v brew    >/dev/null; then echo "brew install cmocka pkg-config"
    fi
}

read -ra CC_WORDS <<<"${CC:-cc}"
trap 'rm -f "$stamp.probe"' EXIT
lack=$(missing)
if [ -n "$lack" ]; then
    echo "The tests need: $lack"
    command=$(install_command)
    if [ -z "$command" ]; then
        echo "No known package manager here: install cmocka (https://cmocka.org) and pkg-config, then run make test again."
        exit 1
    fi
    case $command in
    brew*) as="" may=yes ;;
    *)  if [ "$(id -u)" = 0 ]; then as="" may=yes
        elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as="sudo -n " may=yes
        else as="sudo " may=no
        fi ;;
    esac
    if [ "${ECH_INSTALL:-1}" = 0 ] || [ $may = no ]; then
        echo "Install them, then run make test again:"
        echo "    ${as/ -n/}$command"
        exit 1
    fi
    echo "Installing them: $as$command"
    log=$stamp.log
    install() { # A fresh machine has no list of packages yet.
        $as$command || { [[ $command = apt-get* ]] && ${as}apt-get update && $as$command; }
    }
    if ! install >"$log" 2>&1 </dev/null; then
        tail -n 15 "$log"
        echo "That failed (all of its output: $log). Install them by hand, then run make test again:"
        echo "    ${as/ -n/}$command"
        exit 1
    fi
    lack=$(missing)
    if [ -n "$lack" ]; then
        echo "Installed, but $lack is still not found by ${CC:-cc}: give CPPFLAGS=-I... and LDFLAGS=-L..., or install it for this compiler."
        exit 1
    fi
fi
: >"$stamp"
