#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The arithmetic's tests on AArch64, where the vector kernels become NEON, under qemu: a part of their cases, for it is some twenty times
# slower there. Takes gcc for AArch64, qemu-user, and cmocka for it, which is fetched beside the build when this is Debian.
#   PART=12    every twelfth case
# Exits with 77, and says why, when one of them is not here.
set -eu
cd "$(dirname "$0")/.."
cross=aarch64-linux-gnu- machine=aarch64-linux-gnu build=build/emulated debian=build/emulated/debian
for need in ${cross}gcc qemu-aarch64; do
    command -v $need >/dev/null || { echo "emulated: no $need here (Debian: gcc-$machine, qemu-user): skipped"; exit 77; }
done
if [ ! -e "$debian/usr/include/cmocka.h" ]; then
    mkdir -p "$debian"
    both=(-o APT::Architectures::=amd64 -o APT::Architectures::=arm64)   # for these calls; the system stays as it is
    (cd "$debian" && apt-get "${both[@]}" update -qq && apt-get "${both[@]}" download libcmocka0:arm64 libcmocka-dev:arm64 &&
        for package in libcmocka*.deb; do dpkg -x "$package" .; done) >"$debian/log" 2>&1 ||
        { echo "emulated: no cmocka for AArch64 can be fetched ($(tail -n 1 "$debian/log")): skipped"; exit 77; }
fi
library=$debian/usr/lib/$machine
tests=(test_exact_sums test_flat test_grad test_stack test_parity)
make -j2 CROSS_COMPILE=$cross B="$build" WERROR=1 CPPFLAGS="-I$debian/usr/include" LDFLAGS="-L$library" "${tests[@]/#/$build/test/ops/}" >"$debian/build.log" 2>&1 ||
    { tail -n 20 "$debian/build.log"; exit 1; }
failed=0
for test in "${tests[@]}"; do
    if TEST_PART=${PART:-12} qemu-aarch64 -L /usr/$machine -E LD_LIBRARY_PATH="$library" "$build/test/ops/$test" >"$debian/$test.log" 2>&1; then
        echo "ok      aarch64/$test"
    else
        echo "FAILED  aarch64/$test"
        grep -vE 'RUN|      OK' "$debian/$test.log" | tail -n 12
        failed=1
    fi
done
exit $failed
