#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What --record costs: the same run with and without it in turn, so that what changes on the machine meets both; the median of
# the ratios counts, of images a second and of processor time (start and all). Also what a recording takes on the disk.
#   PAIRS=7 test/bench/record.sh
source "$(dirname "$0")/common.sh"
report=$out/record.json folder=$out/record.events
trap 'rm -rf "$folder"' EXIT

# once ARGUMENT...: "IMAGES_PER_SECOND CPU_SECONDS" of one run
once() {
    local TIMEFORMAT='%U %S' cpu
    cpu=$({ time "$echelon" train --data glyphs --local 4 --eval-every 0 --epochs 5 --progress off --report "$report" "$@" \
        >/dev/null 2>&3; } 3>&2 2>&1)
    awk -v speed="$(value "$report" images_per_second)" -v cpu="$cpu" 'BEGIN { split(cpu, t, " "); print speed, t[1] + t[2] }'
}

pairs() {
    local title=$1 pair speed=() cpu=() with without
    shift
    for pair in $(seq "${PAIRS:-7}"); do
        rm -rf "$folder"   # a recording that is there is not written over
        if [ $((pair % 2)) = 0 ]; then
            without=$(once "$@") with=$(once "$@" --record "$folder")
        else
            with=$(once "$@" --record "$folder") without=$(once "$@")
        fi
        speed+=("$(awk -v a="${with% *}" -v b="${without% *}" 'BEGIN { print a / b }')")
        cpu+=("$(awk -v a="${with#* }" -v b="${without#* }" 'BEGIN { print a / b }')")
    done
    printf '  %-22s throughput x %.3f   >= 0.98 %s   processor time x %.3f   %.0f bytes an image\n' "$title" "$(median "${speed[@]}")" \
        "$(compare "$(median "${speed[@]}")" '>=' 0.98)" "$(median "${cpu[@]}")" \
        "$(awk -v bytes="$(cat "$folder"/* | wc -c)" -v images="$(value "$report" samples)" 'BEGIN { print bytes / images }')"
}
pairs "bsp" --sync bsp
pairs "asp" --sync asp
pairs "gssp, head apart" --sync gssp
