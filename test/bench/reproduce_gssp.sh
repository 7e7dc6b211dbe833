#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# GSSP and GDTopK against what else there is, on simulated clusters of 16 unlike workers (test/hosts), LeNet-5 on MNIST with its
# real gradients in virtual time: time to 98.5 %, final accuracy, bytes and staleness in one table, and accuracy against time as a
# plot for each cluster. The paper claims 46 to 120 % faster with under 1 point lost (papers.md, 4).
#   make reproduce-gssp              everything; a run that is there already is not made again: stop and go on as you like
#   ONLY="strong" SEEDS=1            some clusters, other seeds than 1 to 7 (those that nothing is claimed of: 1 to 3)
#   JOBS=2                           runs at a time
# Runs are kept in build/bench/reproduce; a new build begins anew. Each is the same on every machine with the same instruction set.
source "$(dirname "$0")/common.sh"

target=0.985 jobs=${JOBS:-$(nproc)} only=${ONLY:-} dir=$out/reproduce
data=$(find_mnist) || { echo "reproduce-gssp: no MNIST in \$ECHELON_DATA/mnist or data/mnist (tools/get-data mnist fetches it): skipped"; exit 77; }
mkdir -p "$dir"
build=$(sha256sum "$echelon" | cut -c 1-16)
if [ "$(cat "$dir/build" 2>/dev/null)" != "$build" ]; then rm -rf "${dir:?}"/*; fi
echo "$build" > "$dir/build"

# Cluster | scheme | claimed (7 seeds) or shown (3) | epochs | options. B is 256; only lr / B matters to the asynchronous policies.
rows() {
    local hosts bsp='--sync bsp --lr 0.08' dense='--separate off'
    for hosts in even mild strong; do
        cat <<ROWS
$hosts|BSP, equal shares|claimed|5|$bsp --shares equal $dense
$hosts|BSP by speed, star|claimed|5|$bsp --shares speed $dense
$hosts|BSP by speed, head apart|claimed|5|$bsp --shares speed --separate 1
$hosts|SSP(3)|claimed|5|--sync ssp $dense
$hosts|ASP|shown|5|--sync asp $dense
$hosts|GSSP, nothing apart|claimed|5|--sync gssp $dense
$hosts|GSSP, head apart|claimed|5|--sync gssp --separate 1
$hosts|local|shown|5|--sync local $dense
ROWS
    done
    cat <<ROWS
incast|BSP, equal shares|shown|5|$bsp --shares equal $dense
incast|ASP|claimed|5|--sync asp $dense
incast|SSP(3)|shown|5|--sync ssp $dense
incast|GSSP, nothing apart|claimed|5|--sync gssp --groups 4 $dense
links|BSP, equal shares|claimed|10|$bsp --shares equal $dense
links|local|shown|10|--sync local $dense
links|GSSP, nothing apart|claimed|10|--sync gssp $dense
links|GDTopK, paper|claimed|10|--sync gssp $dense --codec topk:paper
links|GDTopK, volume|claimed|10|--sync gssp $dense --codec topk:volume
links|GDTopK, balanced|claimed|10|--sync gssp $dense --codec topk:balanced
ROWS
}
seeds_of() { if [ "$1" = claimed ]; then echo "${SEEDS:-1 2 3 4 5 6 7}"; else echo "${SEEDS:-1 2 3}"; fi; }
name_of() { tr -c 'A-Za-z0-9\n' - <<< "$1.$2" | tr -s -; }   # CLUSTER SCHEME: of its files

# one NAME SEED HOSTS EPOCHS OPTION...: a run, unless it is there. It is there when its report is: that is renamed last.
one() {
    local file=$dir/$1.$2 hosts=$root/test/hosts/$3 epochs=$4 seed=$2 status=0
    [ ! -e "$file.json" ] || return 0
    "$echelon" sim --data "$data" --hosts "$hosts" --epochs "$epochs" --seed "$seed" --progress off --report "$file.tmp" \
        --curve "$file.csv" "${@:5}" > "$file.log" 2>&1 < /dev/null || status=$?
    if [ $status != 0 ]; then echo "  $1, seed $seed: status $status: $(tail -n 1 "$file.log")"; return 0; fi
    mv "$file.tmp" "$file.json"
}
export -f one
export dir root data echelon

plan=$(mktemp "${TMPDIR:-/tmp}/echelon-reproduce.XXXXXX")
trap 'rm -f "$plan"' EXIT
while IFS='|' read -r hosts scheme kind epochs options; do
    [[ -z $only || " $only " = *" $hosts "* ]] || continue
    for seed in $(seeds_of "$kind"); do echo "$(name_of "$hosts" "$scheme") $seed $hosts $epochs $options"; done
done < <(rows) | sort -s -k 2,2n > "$plan"   # seed by seed: a table of few seeds is whole early
total=$(wc -l < "$plan")
echo "$total runs, $jobs at a time; those in ${dir#"$root"/} are not made again"
xargs -P "$jobs" -L 1 bash -c 'one "$@"' one < "$plan"

# When a curve first reached the target, in virtual seconds; "inf": never.
reached() { awk -F, -v t=$target 'NR > 1 && $5 >= t { print $3; found = 1; exit } END { if (!found) print "inf" }' "$1"; }
last_accuracy() { awk -F, 'END { print $5 }' "$1"; }

declare -A time=() final=() bytes=() rate=()
table() {
    local hosts scheme kind epochs options name file seed last= runs there
    printf '%-28s %5s %12s %8s %10s %10s %10s %9s\n' '' seeds '98.5 % at s' x 'final %' images/s 'B an image' staleness
    while IFS='|' read -r hosts scheme kind epochs options; do
        name=$(name_of "$hosts" "$scheme")
        local times=() finals=() all=() speeds=() stale=()
        runs=0 there=0
        for seed in $(seeds_of "$kind"); do
            file=$dir/$name.$seed
            [ -e "$file.json" ] || continue
            runs=$((runs + 1))
            times+=("$(reached "$file.csv")")
            [ "${times[-1]}" = inf ] || there=$((there + 1))
            finals+=("$(last_accuracy "$file.csv")")
            speeds+=("$(value "$file.json" images_per_second)")
            stale+=("$(value "$file.json" staleness_mean)")
            all+=("$(awk -v s="$(value "$file.json" samples)" '/"bytes_sent"/ { gsub(/[^0-9:,]/, ""); n = split($0, a, ","); for (i = 1; i <= n; i++) { sub(/.*:/, "", a[i]); b += a[i] } printf "%.0f", b / s }' "$file.json")")
        done
        [ $runs != 0 ] || continue
        [ "$hosts" = "$last" ] || printf '%s\n' "$hosts"
        last=$hosts
        time[$name]=$(median "${times[@]}") final[$name]=$(median "${finals[@]}") bytes[$name]=$(median "${all[@]}") rate[$name]=$(median "${speeds[@]}")
        printf '  %-26s %2d/%-2d %12.4g %8s %10.2f %10.0f %10.0f %9.2f\n' "$scheme" $there $runs "${time[$name]}" \
            "$(ratio "${time[$name]}" "${time[$(name_of "$hosts" 'BSP, equal shares')]:-inf}")" "$(awk -v a="${final[$name]}" 'BEGIN { print 100 * a }')" \
            "${rate[$name]}" "${bytes[$name]}" "$(median "${stale[@]}")"
    done < <(rows)
}

# claim TEXT VALUE OP BOUND
claim() { printf '  %-72s %8s   %s %-5s %s\n' "$1" "$2" "$3" "$4" "$(compare "$2" "$3" "$4")"; }
at() { local name; name=$(name_of "$1" "$2"); echo "${time[$name]:-inf}"; }
# points CLUSTER ONE OTHER: by how many points of final accuracy ONE is under OTHER
points() { awk -v a="${final[$(name_of "$1" "$2")]:-0}" -v b="${final[$(name_of "$1" "$3")]:-0}" 'BEGIN { printf "%.2f\n", 100 * (b - a) }'; }
has() { [ -n "${time[$(name_of "$1" "$2")]:-}" ]; }
better() { local a b; a=$(at "$1" 'BSP by speed, star') b=$(at "$1" 'BSP by speed, head apart'); [ "$(compare "$a" '<=' "$b")" = yes ] && echo "$a" || echo "$b"; }
claims() {
    local apart='GSSP, head apart' plain='GSSP, nothing apart' equal='BSP, equal shares' policy
    if has strong "$apart"; then
        claim "strong: GSSP, head apart: time over BSP equal" "$(ratio "$(at strong "$apart")" "$(at strong "$equal")")" '<=' 0.35
        claim "strong: the same over SSP" "$(ratio "$(at strong "$apart")" "$(at strong 'SSP(3)')")" '<=' 0.35
        claim "strong: the same over BSP by speed" "$(ratio "$(at strong "$apart")" "$(better strong)")" '<=' 0.8
        claim "strong: points under BSP equal at the end" "$(points strong "$apart" "$equal")" '<=' 0.3
        claim "strong: plain GSSP: time over BSP equal" "$(ratio "$(at strong "$plain")" "$(at strong "$equal")")" '<=' 0.45
        claim "strong: the same over SSP" "$(ratio "$(at strong "$plain")" "$(at strong 'SSP(3)')")" '<=' 0.45
        claim "strong: points under BSP equal at the end" "$(points strong "$plain" "$equal")" '<=' 1
    fi
    has mild "$apart" && claim "mild: GSSP, head apart: time over BSP by speed" "$(ratio "$(at mild "$apart")" "$(better mild)")" '<=' 0.9
    has incast "$plain" && claim "incast: GSSP's throughput over ASP's" \
        "$(ratio "${rate[$(name_of incast "$plain")]}" "${rate[$(name_of incast ASP)]}")" '>=' 1.2
    for policy in paper volume balanced; do
        has links "GDTopK, $policy" || continue
        claim "links: GDTopK $policy: bytes over dense GSSP's" \
            "$(ratio "${bytes[$(name_of links "GDTopK, $policy")]}" "${bytes[$(name_of links "$plain")]}")" '<=' 0.2
        claim "links: GDTopK $policy: points under BSP equal at the end" "$(points links "GDTopK, $policy" "$equal")" '<=' 0.5
    done
    return 0
}

plot() {       # plot CLUSTER: of each scheme the first seed
    local hosts scheme kind epochs options name lines= file=$dir/$1.svg
    while IFS='|' read -r hosts scheme kind epochs options; do
        name=$(name_of "$hosts" "$scheme")
        if [ "$hosts" = "$1" ] && [ -e "$dir/$name.1.csv" ]; then
            lines+="${lines:+, }'$dir/$name.1.csv' using 3:(100*\$5) skip 1 with lines lw 2 title '$scheme'"
        fi
    done < <(rows)
    [ -n "$lines" ] || return 0
    gnuplot -e "set datafile separator ','; set terminal svg size 900,560 font 'sans,13' background 'white'; set output '$file'; set key bottom right;
        set title 'LeNet-5 on MNIST, 16 workers ($1)'; set xlabel 'virtual seconds'; set ylabel 'test accuracy, %'; set yrange [90:100]; set grid; plot $lines" &&
        echo "  ${file#"$root"/}"
}

echo
table
echo
claims
echo
if command -v gnuplot > /dev/null; then
    for hosts in even mild strong incast links; do plot $hosts; done
else
    echo "no plots: gnuplot is not here"
fi
