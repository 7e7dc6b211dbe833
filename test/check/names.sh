#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every name that the archive gives to a program begins with ech_ or echi_; and no object of the library can print, end the
# process or read the environment (but the one with ech_config_from_env, which does when it is called).
# usage: B=build OBJ="build/port/clock.o ..." LIB=build/libechelon.a NM=nm test/check/names.sh
set -eu
status=0

# __x86.* are helpers that compilers place in 32-bit objects; the linker merges them.
foreign=$($NM -g --defined-only "$LIB" | awk 'NF == 3 { print $3 }' | grep -vE '^(echi?_|__x86\.)' || true)
if [ -n "$foreign" ]; then
    status=1
    printf 'global names that do not begin with ech_ or echi_ (make them static):\n%s\n' "$foreign"
fi

# Also as their checked forms (__printf_chk). A FILE may be used; the program's own streams may not.
banned='abort|exit|_exit|_Exit|quick_exit|__assert_fail|v?f?printf|puts|putchar|perror|stdout|stderr'
environment='getenv|secure_getenv|environ|__environ|setenv|putenv'
found=$($NM -A -u $OBJ | awk -v banned="^(__)?($banned)(_chk)?$" -v environment="^(__)?($environment)$" -v but="$B/lib/job/config_env.o:" '
    $NF ~ banned || ($1 != but && $NF ~ environment) { print "    " $1, $NF }')
if [ -n "$found" ]; then
    status=1
    printf 'the library may not use these (return an error, call the log callback):\n%s\n' "$found"
fi
exit $status
