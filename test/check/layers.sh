#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No call points up: every ech_ or echi_ name that a room's objects use is defined in that room or in one below it; inside lib in a
# folder to its left (lib/README.md). And lib/core is pure: beyond such names it uses only memcpy, strlen and the like.
# usage: B=build OBJ="build/port/clock.o ..." NM=nm test/check/layers.sh
set -eu
status=0

# objects PREFIX...: the objects whose path below $B begins with one of them
objects() {
    local object prefix
    for object in $OBJ; do
        for prefix in "$@"; do
            case ${object#"$B"/} in "$prefix"*) echo "$object" && break ;; esac
        done
    done
}
# Both print "name" lines; nm's lines are "VALUE TYPE NAME" and "FILE:" headings.
defined() { [ $# = 0 ] || $NM -g --defined-only "$@" | awk 'NF == 3 { print $3 }' | sort -u; }
wanted() { [ $# = 0 ] || $NM -u "$@" | awk 'NF == 2 { print $2 }' | sort -u; }

# room NAME PREFIX...: the room's objects are those of the first prefix; all of them together must be closed.
room() {
    local name=$1 own all open
    own=$(objects "$2")
    shift
    all=$(objects "$@")
    # shellcheck disable=SC2086 # lists of objects
    open=$(comm -23 <(wanted $own | grep '^echi\?_') <(defined $all))
    if [ -n "$open" ]; then
        status=1
        echo "$name uses names that neither it nor a room below it defines:"
        for symbol in $open; do
            echo "    $symbol, in $(for o in $own; do ! $NM -u "$o" | grep -qw "$symbol" || echo "${o#"$B"/}"; done | tr '\n' ' ')"
        done
    fi
}
room port/pure port/pure/
room port      port/
room hal       hal/ port/
room ops       ops/ hal/ port/
room net       net/ port/
room lib/core/types   lib/core/types/ port/pure/
room lib/core/cost    lib/core/cost/ lib/core/types/ port/pure/
room lib/core/planner lib/core/planner/ lib/core/{cost,types}/ port/pure/
room lib/core/sync    lib/core/sync/ lib/core/{planner,cost,types}/ port/pure/
room lib/core/exchange lib/core/exchange/ lib/core/{sync,planner,cost,types}/ port/pure/
room lib/core/roles   lib/core/roles/ lib/core/ port/pure/
room lib/model        lib/model/ ops/ hal/ port/
room lib/data         lib/data/ port/
room lib/exec         lib/exec/ lib/core/types/ lib/{model,data}/ ops/ hal/ port/
room lib/job          lib/job/ lib/core/ lib/{exec,model,data}/ ops/ hal/ port/
room lib/import       lib/import/ lib/core/ lib/{job,exec,model,data}/ ops/ hal/ port/
room lib/drive/replay lib/drive/replay/ lib/core/ lib/{job,exec,model,data}/ ops/ hal/ port/
room lib/drive/live   lib/drive/live/ lib/drive/replay/ lib/core/ lib/{job,exec,model,data}/ net/ ops/ hal/ port/
room lib/drive/sim    lib/drive/sim/ lib/drive/ lib/core/ lib/{job,exec,model,data}/ net/ ops/ hal/ port/
room lib/api          lib/api/ lib/drive/ lib/core/ lib/{import,job,exec,model,data}/ net/ ops/ hal/ port/
room lib/doctor       lib/doctor/ lib/drive/{live,replay}/ lib/core/ lib/{job,exec,model,data}/ net/ ops/ hal/ port/

# No memory from the heap, no clock, thread, file or text, and nothing of libm: only memory and strings, and what compilers
# call by themselves (__stack_chk_fail, __udivdi3 on small machines) and sanitizers (__asan_..., __ubsan_..., __tsan_...).
pure='mem(cpy|set|move|cmp|chr)|str(cmp|len)|__(stack_chk|asan|ubsan|tsan|sanitizer|gcov|llvm|x86)[a-zA-Z0-9_.]*'
pure+='|__u?(div|mod|divmod|mul)[dt]i[34]|__(float|fix|aeabi_)[a-z0-9]*|__mem(cpy|set|move)_chk|_GLOBAL_OFFSET_TABLE_'
for object in $(objects lib/core/); do
    impure=$($NM -u "$object" | awk 'NF == 2 { print $2 }' | grep -vE "^(echi?_.*|$pure)\$" || true)
    if [ -n "$impure" ]; then
        status=1
        printf '%s is not pure: it uses\n%s\n' "${object#"$B"/}" "$impure"
    fi
done
exit $status
