#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Does `echelon sim` tell what live runs do? Four nodes with a CPU share each, as in cluster.sh, train LeNet-5 live under each scheme;
# then the same runs are simulated, on hosts with these shares, from the profile that rank 0 wrote in a live run of the same minutes.
# Prints images/s of both, seed by seed, the medians of their ratios, and whether both put the schemes in the same order. "alone" is
# host 0 without a cluster: what is not as simulated there already is the machine's, which is disturbed, and not the cluster's.
#   SEEDS="1 2"          other seeds than 1 to 3      NAMES="equal gssp"   other schemes
#   SHARES="1 1 1 .25"   of a core, rank by rank      EPOCHS=2             of each run
source "$(dirname "$0")/common.sh"

seeds=${SEEDS:-1 2 3}
read -ra shares <<< "${SHARES:-0.5 0.5 0.5 0.125}"
dir=$out/sim_live
rm -rf "$dir"
mkdir -p "$dir"
data=$(find_mnist) ||
    { echo "sim_live: no MNIST in \$ECHELON_DATA/mnist or data/mnist (tools/get-data mnist fetches it): skipped"; exit 0; }
source "$(dirname "$0")/nodes.sh"

names=${NAMES:-equal speed64 speed128 ssp asp gssp}
declare -A title=([alone]="host 0 alone" [equal]="BSP, equal shares (B 64)" [speed64]="BSP by speed (B 64)"
    [speed128]="BSP by speed (B 128)" [ssp]="SSP" [asp]="ASP" [gssp]="GSSP, head apart")
declare -A options=([alone]="--sync bsp --batch 64" [equal]="--sync bsp --shares equal --batch 64 --lr 0.02"
    [speed64]="--sync bsp --shares speed --batch 64 --lr 0.02"
    [speed128]="--sync bsp --shares speed --batch 128 --lr 0.04" [ssp]="--sync ssp" [asp]="--sync asp" [gssp]="--sync gssp")
run=(--epochs "${EPOCHS:-2}" --eval-every 0)

# The hosts, relative to rank 0, which measures: with quotas all have its whole processor for a part of the time, else they are slower
# and share the cores that there are. Messages go over the loopback device, which is bounded by the processors alone.
for share in "${shares[@]}"; do
    if [ -n "$quota_version" ]; then
        read -r quota period <<< "$(quota_of "$share")"
        awk -v b="${shares[0]}" -v q="$quota" -v p="$period" \
            'BEGIN { printf "hosts 1 speed %.6g x quota %g ms of %g ms delay 5 us\n", 1 / b, q / 1000, p / 1000 }'
    else
        awk -v a="$share" -v b="${shares[0]}" -v cores="$(nproc)" \
            'BEGIN { printf "hosts 1 speed %.6g x delay 5 us cores %d of here\n", a / b, cores }'
    fi
done > "$dir/hosts"
sed -n '1{s/ cores.*//;p}' "$dir/hosts" > "$dir/hosts-alone"

# both NAME SEED HOSTS: a run, live (over as many of the hosts) and simulated; images/s into $a and $b
both() {
    local name=$1 seed=$2 machines=$3
    if [ "$name" = alone ]; then
        (node 0 ${options[alone]} --seed "$seed" --epochs 0.5 --eval-every 0 --report "$dir/live-alone-$seed.json" \
            > "$dir/alone.out" 2>&1) || { cat "$dir/alone.out"; exit 1; }
    else
        train "live-$name-$seed" ${options[$name]} --seed "$seed" "${run[@]}"
    fi
    "$echelon" sim --data "$data" --hosts "$machines" --profile "$dir/profile-$seed" --compute model --progress off ${options[$name]} \
        --seed "$seed" "${run[@]}" --report "$dir/sim-$name-$seed.json" > "$dir/sim-$name-$seed.out"
    a=$(value "$dir/live-$name-$seed.json" images_per_second)
    b=$(value "$dir/sim-$name-$seed.json" images_per_second)
    live[$name]+=" $a"
    simulated[$name]+=" $b"
    ratios[$name]+=" $(ratio "$a" "$b")"
}

declare -A live simulated ratios
printf '  %-6s%-12s' seed ''
for name in alone $names; do printf '%10s' "$name"; done
echo "   busy with other work"
for seed in $seeds; do
    train "profile-$seed" --steps 0 --profile-out "$dir/profile-$seed"
    line_live= line_sim=
    for name in alone $names; do
        if [ $name = alone ]; then both alone "$seed" "$dir/hosts-alone"; else both $name "$seed" "$dir/hosts"; fi
        line_live+=$(printf '%10.0f' "$a")
        line_sim+=$(printf '%10.0f' "$b")
    done
    others_since
    printf '  %-6s%-12s%s   %s cores\n  %-6s%-12s%s\n' "$seed" live "$line_live" "$others" '' simulated "$line_sim"
done

echo
bad=0
for name in alone $names; do
    r=$(median ${ratios[$name]})
    within=$(awk -v r="$r" 'BEGIN { print (r >= 0.9 && r <= 1.1 ? "yes" : "NO") }')
    [ "$within" = yes ] || [ $name = alone ] || bad=$((bad + 1))
    printf '  %-26s live %8.0f   simulated %8.0f   ratio %.2f (median of %d)   within 10 %%: %s\n' "${title[$name]}" \
        "$(median ${live[$name]})" "$(median ${simulated[$name]})" "$r" "$(wc -w <<< "$seeds")" "$within"
done
# Where the simulator puts two schemes more than 15 % apart, live runs must order them alike.
for a in $names; do
    for b in $names; do
        awk -v a="$(median ${simulated[$a]})" -v b="$(median ${simulated[$b]})" 'BEGIN { exit !(a > 1.15 * b) }' || continue
        awk -v a="$(median ${live[$a]})" -v b="$(median ${live[$b]})" 'BEGIN { exit !(a > b) }' && continue
        bad=$((bad + 1))
        echo "  order: simulated, $a is more than 15 % above $b; live it is not"
    done
done
[ $bad = 0 ] && echo "  the simulator tells what live runs do" || echo "  not as live: $bad"
