#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a small board gets, under qemu: no board was at hand. The archive of PROFILE=edge for AArch64, where the vector kernels become NEON:
# the tests of the arithmetic (a part of their cases, for it is some twenty times slower there) and of units, the size of a program that
# trains, and one run of an x86-64 node and an emulated one, to the same bits as two x86-64 nodes. And the command of STATIC=1, which asks
# for no library. Takes gcc for AArch64, qemu-user, and cmocka for it, which is fetched beside the build when this is Debian.
#   PART=96    every ninety-sixth case
# Exits with 77, and says why, when one of them is not here.
# shellcheck source-path=SCRIPTDIR source=cluster/cluster.bash
. "$(dirname "$0")/cluster/cluster.bash"
unset ECH_MEASURE   # one of the tests is about the environment
set -e
cd "$root"
cross=aarch64-linux-gnu- machine=aarch64-linux-gnu build=build/emulated debian=build/emulated/debian static=build/static/$machine
for need in ${cross}gcc qemu-aarch64; do
    command -v $need >/dev/null || skip "emulated: no $need here (Debian: gcc-$machine, qemu-user): skipped"
done
if [ ! -e "$debian/usr/include/cmocka.h" ]; then
    mkdir -p "$debian"
    both=(-o APT::Architectures::=amd64 -o APT::Architectures::=arm64)   # for these calls; the system stays as it is
    (cd "$debian" && apt-get "${both[@]}" update -qq && apt-get "${both[@]}" download libcmocka0:arm64 libcmocka-dev:arm64 &&
        for package in libcmocka*.deb; do dpkg -x "$package" .; done) >"$debian/log" 2>&1 ||
        skip "emulated: no cmocka for AArch64 can be fetched ($(tail -n 1 "$debian/log")): skipped"
fi
library=$debian/usr/lib/$machine
tests=(ops/test_{exact_sums,flat,grad,stack,parity,known_answer}
    unit/test_{adam,address_static,ahead,available,codec_roles,config,crypto,crypto_word32,damping,data,data_callback}
    unit/test_{fuzz_net,reduction_blocks,lessons,messages}
    unit/test_{model,model_text,net,net_join,node,plan_file,port,pure,ratio,report,safetensors,schedule,silence,sync_norm,team})
builds() { make -j2 WERROR=1 "$@" >"$debian/build.log" 2>&1 || { tail -n 20 "$debian/build.log"; exit 1; }; }
# With the flags of that profile, whatever the caller has for other builds.
(
    unset CFLAGS
    LDFLAGS="-L$library" builds PROFILE=edge CROSS_COMPILE=$cross B="$build" CPPFLAGS="-I$debian/usr/include" \
        "${tests[@]/#/$build/test/}" "$build/worker"
)
builds STATIC=1 CROSS_COMPILE=$cross
builds build/worker
set +e
emulated() { timeout -k 5 600 qemu-aarch64 -L /usr/$machine -E LD_LIBRARY_PATH="$library" "$@"; }

# --- the arithmetic, and the units but those that take minutes here
export TEST_PART=${PART:-96} library machine build work
export -f emulated
printf '%s\n' "${tests[@]}" |
    xargs -P "$(nproc)" -I @ bash -c 'emulated "$build/test/$1" >"$work/${1#*/}.log" 2>&1 || echo "$1" >>"$work/failed"' one @
checks=$((checks + ${#tests[@]}))
for test in $(cat "$work/failed" 2>/dev/null); do
    failures=$((failures + 1))
    echo "FAILED  aarch64/$test"
    grep -vE 'RUN|      OK' "$work/${test#*/}.log" | tail -n 12
done
unset TEST_PART

# --- what a program that trains weighs, and whom it asks for
text=$(${cross}size "$build/worker" | awk 'END { print $1 }')
echo "aarch64/worker: $text bytes of text, archive $(wc -c <"$build/libechelon.a") bytes;" \
    "$(READELF=${cross}readelf tools/needs-libc "$build/worker")"
check "a program that trains has $text bytes of text, not less than 1 MiB" [ "$text" -lt 1048576 ]
check "$static/echelon asks for a C library" \
    [ "$(READELF=${cross}readelf tools/needs-libc "$static/echelon")" = "$static/echelon: none, it is static" ]

# --- one run of two unlike machines: rank 0 here, rank 1 where "$@" runs it
run_of() {     # run_of NAME COMMAND...: weights into $work/NAME
    local name=$1
    shift
    free_port
    local of_both=(ECH_WORLD=2 "ECH_COORDINATOR=127.0.0.1:$port" ECH_DETERMINISTIC=1 ECH_BATCH=32 ECH_STEPS=12 ECH_EVAL_EVERY=0
        ECH_JOIN_TIMEOUT=60 ECH_DEADLINE=60 ECH_THREADS=1)
    env "${of_both[@]}" ECH_RANK=0 ECH_SAVE="$work/$name" build/worker >"$work/0.log" 2>&1 &
    nodes[0]=$!
    env "${of_both[@]}" ECH_RANK=1 "$@" >"$work/1.log" 2>&1 &
    nodes[1]=$!
    node_ends 0 0 'accuracy .* on 2 nodes' "$name"
    node_ends 1 0 '' "$name"
}
run_of alike build/worker
run_of unlike qemu-aarch64 -L /usr/$machine "$build/worker"
check "an x86-64 node and an emulated AArch64 one end with other weights than two x86-64 nodes" cmp "$work/alike" "$work/unlike"

# --- the command that runs anywhere
cat >"$work/on-a-board" <<END
#!/bin/sh
exec qemu-aarch64 $root/$static/echelon "\$@"
END
chmod +x "$work/on-a-board"
echelon=$work/on-a-board
ends_with 0 '^training would begin$' doctor --threads 1
check "it found a library to open" grep -q 'libcuda.so.1: not here' "$work/out"
ends_with 2 'board.local is no number, and this static build asks no name service' train --data glyphs --world 2 --rank 1 \
    --coordinator board.local:7000
bars "$work/data" 10 1
ends_with 0 '^  accuracy ' train --data "$work/data" --steps 5
verdict "emulated AArch64"
