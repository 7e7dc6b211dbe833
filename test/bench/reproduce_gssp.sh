#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# GSSP and GDTopK against what else there is, on simulated clusters of 16 unlike workers (test/hosts), LeNet-5 on MNIST with its
# real gradients in virtual time: time to 98.5 %, final accuracy, bytes and staleness in one table, and accuracy against time as a
# plot for each cluster. The paper (Sun et al., IEEE Transactions on Cloud Computing 10(4),
# 2022, abstract) claims 46 to 120 % faster with under 1 point lost. Behind them its other nets:
# ResNet-18 and VGG-19 on CIFAR-10, on `strong`, narrowed to a quarter of their channels, for a run of these takes half an hour of a
# core all the same.
#   make reproduce-gssp              everything; a run that is there already is not made again: stop and go on as you like
#   ONLY="strong" SEEDS=1            some clusters, other seeds than 1 to 7
#   SHOWN="1 2"                      and for those that nothing is claimed of, other than SEEDS or 1 to 3
#   ONLY="resnet18 vgg19"            the nets alone; NET_SEEDS="1 2 3" for other seeds than 1
#   NARROW=1                         those in full width: a day of a core each
#   JOBS=2                           runs at a time
#   LOOK=1                           no new runs: what there is so far
#   RATES=1                          the sweep that the learning rates come from, instead of the table
# Runs are kept in build/bench/reproduce; a new build begins anew. Each is the same on every machine with the same instruction set.
source "$(dirname "$0")/common.sh"

target=0.985 jobs=${JOBS:-$(nproc)} only=${ONLY:-} dir=$out/reproduce ring=$(cd "$root" && realpath "${B:-build}")/test/bench/bench_ring
data=$(find_mnist) ||
    { echo "reproduce-gssp: no MNIST in \$ECHELON_DATA/mnist or data/mnist (tools/get-data mnist fetches it): skipped"; exit 77; }
cifar=$(find_cifar) ||
    echo "reproduce-gssp: no CIFAR-10 in \$ECHELON_DATA/cifar10 or data/cifar10 (tools/get-data cifar10 fetches it): without its nets"
narrow=${NARROW:-4}
mkdir -p "$dir/rules"
build=$(cat "$echelon" "$ring" "$root"/test/bench/rules/*.rule | sha256sum | cut -c 1-16)
if [ "$(cat "$dir/build" 2>/dev/null)" != "$build" ]; then rm -rf "${dir:?}"/*; mkdir -p "$dir/rules"; fi
echo "$build" > "$dir/build"

# Learning rates. Each scheme has that of a sweep with seeds that are not in the table (100, the best few 101 too), on `strong`, which is
# hardest for all: of those that end within 0.2 point of the scheme's best the one that is first at 98.5 %. The sweep is below, what
# came of it is in results/. Under the asynchronous policies only lr / B matters to the weights.
rate() {
    case $1 in
    ssp) echo --batch 256 --samples-per-step 16 --momentum 0.5 --lr 0.1 ;;
    asp) echo --batch 256 --samples-per-step 16 --momentum 0.5 --lr 0.15 ;;
    plain) echo --batch 256 --samples-per-step 16 --momentum 0 --lr 0.2 ;;
    apart) echo --batch 64 --momentum 0.9 --lr 0.015 ;;
    local) echo --batch 256 --momentum 0.9 --lr 0.04 --inner-steps 16 ;;
    rules) echo --batch 256 --samples-per-step 16 --momentum 0.5 --lr 0.1 ;;   # rules about momentum need one: that of the library
    esac
}
# BSP learns the same on any cluster, so there the sweep's best rate of each B is enough (1.4 epochs to 98.5 %, 1.6 and 2.4),
# and B is the one with which epochs x seconds, of a run with --compute model, are least on this cluster played this way.
# One parameter server, as in the papers: --shards auto would be another baseline.
bsp() {
    case $1 in
    64) echo --sync bsp --shards 1 --batch 64 --momentum 0.9 --lr 0.02 ;;
    128) echo --sync bsp --shards 1 --batch 128 --momentum 0.9 --lr 0.03 ;;
    256) echo --sync bsp --shards 1 --batch 256 --momentum 0.9 --lr 0.03 ;;
    esac
}

# Cluster | scheme | claimed (7 seeds), shown (3) or also there (3, not drawn) | epochs | options. Options may begin with ring, see `one`,
# or with the name of a rule of others in rules/, which is then built in.
rows() {
    local hosts star ring apart_b by_speed others dense='--separate off' asp ssp plain apart local rule
    asp="--sync asp $dense $(rate asp)" ssp="--sync ssp $dense $(rate ssp)"
    plain="--sync gssp $dense $(rate plain)" apart="--sync gssp --separate 1 $(rate apart)" local="--sync local $dense $(rate local)"
    while read -r hosts star ring apart_b by_speed others; do   # the two last: claimed or shown
        cat <<ROWS
$hosts|BSP, equal shares|$others|5|$(bsp 256) --shares equal $dense
$hosts|BSP by speed, star|$by_speed|5|$(bsp "$star") --shares speed $dense
$hosts|BSP by speed, ring|$by_speed|5|ring $(bsp "$ring")
$hosts|BSP by speed, head apart|$by_speed|5|$(bsp "$apart_b") --shares speed --separate 1
$hosts|SSP(3)|$others|5|$ssp
$hosts|ASP|shown|5|$asp
$hosts|GSSP, nothing apart|$others|5|$plain
$hosts|GSSP, head apart|$by_speed|5|$apart
$hosts|local|shown|5|$local
ROWS
    done <<< 'strong 128 64 64 claimed claimed
mild 128 128 128 claimed shown
even 256 256 128 shown shown'
    cat <<ROWS
strong|ASP, drops older than 2|also|5|$asp --drop-older 2
strong|ASP, weighed by time|also|5|$asp --weigh-by-time
strong|GSSP, damping 0.5|also|5|$plain --damping 0.5
incast|BSP, equal shares|shown|5|$(bsp 256) --shares equal $dense
incast|BSP by speed, ring|shown|5|ring $(bsp 256)
incast|SSP(3)|shown|5|$ssp
incast|ASP|claimed|5|$asp
incast|GSSP, nothing apart|claimed|5|$plain
links|BSP, equal shares|claimed|10|$(bsp 256) --shares equal $dense
links|BSP by speed, ring|shown|10|ring $(bsp 128)
links|local|shown|10|$local
links|GSSP, nothing apart|claimed|10|$plain --groups 4
links|GDTopK, paper|claimed|10|$plain --groups 4 --codec topk:paper
links|GDTopK, volume|claimed|10|$plain --groups 4 --codec topk:volume
links|GDTopK, balanced|claimed|10|$plain --groups 4 --codec topk:balanced
links|GSSP, groups left open|shown|10|$plain
links|GDTopK volume, groups left open|shown|10|$plain --codec topk:volume
ROWS
    for rule in published averaged overwriting; do
        echo "strong|GSSP, $rule exchange|also|5|${rule}_exchange --sync gssp $dense $(rate rules)"
    done
    cat <<ROWS
strong|GSSP, published, momentum 0.9|also|5|published_exchange --sync gssp $dense $(rate rules) --momentum 0.9 --lr 0.02
strong|GSSP, published, its decay|also|5|published_exchange --sync gssp $dense $(rate rules) --weight-decay 5e-4
strong|GSSP, momentum at worker|also|5|momentum_at_worker --sync gssp $dense $(rate rules)
strong|GSSP, momentum by samples|also|5|momentum_by_samples --sync gssp $dense $(rate rules)
strong|GSSP, momentum 0.5, ours|also|5|--sync gssp $dense $(rate rules)
strong|GSSP, pushes are means|also|5|mean_push $plain
ROWS
    [ -z "$cifar" ] || for net in resnet18 vgg19; do cat <<ROWS
$net|BSP, equal shares|nets|10|--sync bsp --shards 1 --shares equal --separate off --batch 256 --lr $(net_rate $net 256)
$net|as planned|nets|10|--sync auto --batch 256 --lr $(net_rate $net 256)
$net|as planned, half as long again|nets|15|--sync auto --batch 256 --lr $(net_rate $net 256)
$net|GSSP, head apart|nets|10|--sync gssp --separate 1 --groups 5 --batch 64 --lr $(net_rate $net 64)
$net|GSSP, head apart, twice as long|nets|20|--sync gssp --separate 1 --groups 5 --batch 64 --lr $(net_rate $net 64)
ROWS
    done
}
# net_rate NET B: nets with batch-norm have PyTorch's usual rate for B samples, its decay, and the cosine that all of them are trained with.
# VGG-19 under BSP does not start at 0.1; at an eighth of the width, two epochs, it ends at 44.0 % with 0.05 and 53.0 with 0.02. The
# planner has BSP's own options. Half the rate was no better under GSSP, and B 256 worse (results/, gssp-nets).
net_rate() {
    case $1 in
    resnet18) awk -v b="$2" 'BEGIN { printf "%g", 0.1 * b / 256 }' ;;
    vgg19) awk -v b="$2" 'BEGIN { printf "%g --warmup 0.5", 0.02 * b / 256 }' ;;
    esac
    echo ' --momentum 0.9 --weight-decay 5e-4 --schedule cosine'
}
is_net() { [ "$1" = resnet18 ] || [ "$1" = vgg19 ]; }
# net_files NET: its model with as many channels as asked for, and what its arithmetic costs; the costs are measured once and kept, so that
# runs that go on later are of the same cluster.
net_files() {
    local model=$dir/$1.$narrow
    [ -e "$model" ] || "$echelon" model "$1" --text | awk -v by="$narrow" '$1 == "conv2d" { $3 /= by } { print }' > "$model"
    [ -e "$model.profile" ] || "$echelon" train --model "$model" --data "$cifar" --steps 1 --eval-every 0 --progress off \
        --profile-out "$model.profile" > /dev/null
}
# The sweep: as rows. BSP's accuracy by samples is one node's, whatever its cluster, so the rate is that of the fastest way to play it.
# A head apart has as many samples under way as B says; elsewhere a step's samples say it, and B only divides.
sweep() {
    local set scheme how
    for set in '256 0.02' '256 0.03' '256 0.04 twice' '256 0.06' '128 0.01' '128 0.02 twice' '128 0.03 twice' '128 0.04' '64 0.01 twice' \
               '64 0.015 twice' '64 0.02 twice' '512 0.03' '512 0.04' '512 0.06'; do
        set -- $set
        echo "strong|BSP ring B$1 lr$2|${3:-once}|5|ring --sync bsp --batch $1 --momentum 0.9 --lr $2"
    done
    for set in '256 0.9 0.02' '128 0.9 0.01' '128 0.9 0.015' '128 0.9 0.02 twice' '128 0.9 0.03 twice' '64 0.9 0.005' '64 0.9 0.0075' \
               '64 0.9 0.01 twice' '64 0.9 0.015 twice' '128 0.5 0.05' '64 0.5 0.025' '64 0.5 0.05 twice'; do
        set -- $set
        echo "strong|GSSP apart B$1 m$2 lr$3|${4:-once}|5|--sync gssp --separate 1 --batch $1 --momentum $2 --lr $3"
    done
    for set in '16 0.5 0.1 twice' '32 0.5 0.1 twice' '16 0.9 0.02 twice' '32 0.5 0.05' '16 0 0.2 twice' '32 0 0.2' '16 0.5 0.15' \
               '16 0 0.3' '16 0.3 0.14 twice'; do
        set -- $set
        for scheme in gssp ssp asp; do
            how="--sync $scheme --separate off --batch 256 --samples-per-step $1"
            echo "strong|$scheme n$1 m$2 lr$3|${4:-once}|5|$how --momentum $2 --lr $3"
        done
    done
    for set in '4 16 0.5 0.1' '4 16 0 0.2' '4 32 0 0.2' '3 16 0 0.2'; do
        set -- $set
        how="--sync gssp --separate off --groups $1 --batch 256 --samples-per-step $2"
        echo "strong|gssp G$1 n$2 m$3 lr$4|once|5|$how --momentum $3 --lr $4"
    done
    for set in '16 0.08' '16 0.04' '16 0.16' '4 0.08' '4 0.04' '4 0.16'; do
        set -- $set
        echo "strong|local H$1 lr$2|once|5|--sync local --separate off --batch 256 --inner-steps $1 --lr $2"
    done
}
what=rows
[ -z "${RATES:-}" ] || what=sweep
seeds_of() {
    case $1 in
    claimed) echo "${SEEDS:-1 2 3 4 5 6 7}" ;;
    shown | also) echo "${SHOWN:-${SEEDS:-1 2 3}}" ;;
    nets) echo "${NET_SEEDS:-1}" ;;
    once) echo 100 ;;
    twice) echo 100 101 ;;
    esac
}
name_of() { tr -c 'A-Za-z0-9.\n' - <<< "$1.$2" | tr -s -; }   # CLUSTER SCHEME: of its files

# one NAME SEED HOSTS EPOCHS OPTION...: a run, unless it is there. It is there when its report is: that is renamed last. A loss that is
# not a number any more is an outcome too.
one() {
    local file=$dir/$1.$2 hosts=$root/test/hosts/$3 epochs=$4 seed=$2 status=0 program=$echelon name=$1 way=
    [ ! -e "$file.json" ] || return 0
    set -- "$3" "${@:5}"
    local cluster=(--hosts "$hosts") samples=$data
    if is_net "$1"; then   # looks at 10,000 pictures cost as much as a third of so many trained
        cluster=(--hosts "$root/test/hosts/strong" --model "$dir/$1.$narrow" --profile "$dir/$1.$narrow.profile" --eval-every 12500)
        samples=$cifar
    fi
    shift
    if [ "$1" = ring ]; then way=ring cluster=(--workers 1); shift
    elif [ "${1#--}" = "$1" ]; then program=$dir/rules/$1; shift; [ -x "$program" ] || return 0; fi
    "$program" sim --data "$samples" "${cluster[@]}" --epochs "$epochs" --seed "$seed" --progress off --report "$file.tmp" \
        --curve "$file.csv" "$@" > "$file.log" 2>&1 < /dev/null || status=$?
    if [ $status != 0 ] && [ $status != 21 ]; then echo "  $name, seed $seed: status $status: $(tail -n 1 "$file.log")"; return 0; fi
    [ -z "$way" ] || in_a_ring "$file" "$hosts" "$seed" "$@"
    [ -e "$file.tmp" ] || echo '{}' > "$file.tmp"
    mv "$file.tmp" "$file.json"
}
# in_a_ring FILE HOSTS SEED OPTION...: a run of BSP on one node becomes that of a ring: weights are the same, seconds are bench_ring's.
in_a_ring() {
    local batch seconds bytes
    batch=$(sed 's/.*--batch \([0-9]*\).*/\1/' <<< "$*")
    read -r seconds _ _ bytes _ < <("$ring" "$2" "$batch" "$3")
    awk -F, -v OFS=, -v t="$seconds" -v b="$batch" 'NR > 1 { $3 = t * $1 / b } { print }' "$1.csv" > "$1.ring" && mv "$1.ring" "$1.csv"
    awk -F, -v t="$seconds" -v b="$batch" -v bytes="$bytes" 'END {
        printf "{\n  \"samples\": %d,\n  \"images_per_second\": %.1f,\n  \"staleness_mean\": 0,\n  \"bytes_sent\": {\"ring\": %.0f}\n}\n",
            $1, b / t, $1 / b * bytes }' "$1.csv" > "$1.tmp"
}
export -f one in_a_ring is_net
export dir root data cifar narrow echelon ring

for rule in "$root"/test/bench/rules/*.rule; do
    name=$(basename "$rule" .rule)
    [ -x "$dir/rules/$name" ] || B=${B:-$root/build} "$root/test/bench/rules/build.sh" "$name" "$dir/rules/$name" ||
        echo "  its row is missing"
done
plan=$(mktemp "${TMPDIR:-/tmp}/echelon-reproduce.XXXXXX")
trap 'rm -f "$plan"' EXIT
while IFS='|' read -r hosts scheme kind epochs options; do
    [[ -z $only || " $only " = *" $hosts "* ]] || continue
    for seed in $(seeds_of "$kind"); do echo "$(name_of "$hosts" "$scheme") $seed $hosts $epochs $options"; done
done < <($what) | sort -s -k 2,2n > "$plan"   # seed by seed: a table of few seeds is whole early
total=$(wc -l < "$plan")
if [ -z "${LOOK:-}" ]; then
    for net in resnet18 vgg19; do ! grep -q " $net " "$plan" || net_files $net; done
    echo "$total runs, $jobs at a time; those in ${dir#"$root"/} are not made again"
    xargs -P "$jobs" -L 1 bash -c 'one "$@"' one < "$plan"
fi

# What a curve must reach: 98.5 %, and with the nets what BSP with equal shares ends at, in the median.
target_of() {
    local file finals=()
    is_net "$1" || { echo "$target"; return; }
    for file in "$dir/$(name_of "$1" 'BSP, equal shares')".*.json; do
        [ ! -e "$file" ] || finals+=("$(last_accuracy "${file%.json}.csv")")
    done
    [ ${#finals[@]} != 0 ] && median "${finals[@]}" || echo 1
}
# When a curve first reached the target, in column 2 epochs, 3 virtual seconds; "inf": never.
reached() { awk -F, -v t="$3" -v c="$2" 'NR > 1 && $5 >= t { print $c; found = 1; exit } END { if (!found) print "inf" }' "$1"; }
last_accuracy() { awk -F, 'END { print (NR > 1 ? $5 : 0.1) }' "$1"; }
# sent REPORT [KIND]: bytes of all kinds of messages or of one, a sample
sent() {
    awk -v s="$(value "$1" samples)" -v kind="${2:-}" '/"bytes_sent"/ {
            sub(/.*{/, "")
            n = split($0, a, ",")
            for (i = 1; i <= n; i++) {
                if (kind != "" && !index(a[i], "\"" kind "\"")) continue
                sub(/.*:/, "", a[i])
                gsub(/[^0-9]/, "", a[i])
                b += a[i]
            }
        }
        END { printf "%.0f", (s ? b / s : 0) }' "$1"
}

# By how much an iteration takes longer in the slowest group than in the fastest, seconds.
gap() {
    value "$1" iteration_seconds | tr -d '[] ' | tr , '\n' |
        awk '$1 > 0 { if (!n++ || $1 < least) least = $1; if ($1 > most) most = $1 } END { print most - least }'
}

declare -A time=() final=() bytes=() pushes=() speed=() spread=() apart_by=()
table() {
    local hosts scheme kind epochs options name file seed last= runs there goal
    printf '%-30s %5s %12s %7s %7s %8s %14s %9s %10s %9s\n' '' seeds '98.5 % at s' 'epochs' x 'final %' 'least to most' images/s \
        'B an image' staleness
    while IFS='|' read -r hosts scheme kind epochs options; do
        name=$(name_of "$hosts" "$scheme")
        local times=() passes=() finals=() all=() pushed=() speeds=() stale=() gaps=()
        runs=0 there=0 goal=$(target_of "$hosts")
        for seed in $(seeds_of "$kind"); do
            file=$dir/$name.$seed
            [ -e "$file.json" ] || continue
            runs=$((runs + 1))
            times+=("$(reached "$file.csv" 3 "$goal")")
            passes+=("$(reached "$file.csv" 2 "$goal")")
            [ "${times[-1]}" = inf ] || there=$((there + 1))
            finals+=("$(last_accuracy "$file.csv")")
            speeds+=("$(value "$file.json" images_per_second)")
            stale+=("$(value "$file.json" staleness_mean)")
            all+=("$(sent "$file.json")")
            pushed+=("$(sent "$file.json" push)")
            gaps+=("$(gap "$file.json")")
        done
        [ $runs != 0 ] || continue
        [ "$hosts" = "$last" ] ||
            printf '%s%s\n' "$hosts" "$(is_net "$hosts" && awk -v t="$goal" 'BEGIN { printf ", to %.2f %%", 100 * t }')"
        last=$hosts
        time[$name]=$(median "${times[@]}") final[$name]=$(median "${finals[@]}") speed[$name]=$(median "${speeds[@]}")
        bytes[$name]=$(median "${all[@]}") pushes[$name]=$(median "${pushed[@]}")
        apart_by[$name]=$(median "${gaps[@]}")
        spread[$name]=$(printf '%s\n' "${finals[@]}" | sort -g | awk 'NR == 1 { a = $1 } END { printf "%.2f to %.2f", 100 * a, 100 * $1 }')
        printf '  %-28s %2d/%-2d %12.4g %7.2f %7s %8.2f %14s %9.0f %10.0f %9.2f\n' "$scheme" $there $runs "${time[$name]}" \
            "$(median "${passes[@]}")" "$(ratio "${time[$name]}" "${time[$(name_of "$hosts" 'BSP, equal shares')]:-inf}")" \
            "$(awk -v a="${final[$name]}" 'BEGIN { print 100 * a }')" \
            "${spread[$name]}" "${speed[$name]}" "${bytes[$name]}" "$(median "${stale[@]}")"
    done < <($what | sort -t '|' -s -k 1,1)
}

# claim TEXT VALUE OP BOUND
claim() { printf '  %-72s %8s   %s %-5s %s\n' "$1" "$2" "$3" "$4" "$(compare "$2" "$3" "$4")"; }
at() { local name; name=$(name_of "$1" "$2"); echo "${time[$name]:-inf}"; }
# points CLUSTER ONE OTHER: by how many points of final accuracy ONE is under OTHER
points() {
    awk -v a="${final[$(name_of "$1" "$2")]:-0}" -v b="${final[$(name_of "$1" "$3")]:-0}" 'BEGIN { printf "%.2f\n", 100 * (b - a) }'
}
has() { [ -n "${time[$(name_of "$1" "$2")]:-}" ]; }
# The fastest way to play BSP by speed.
by_speed() {
    printf '%s\n' "$(at "$1" 'BSP by speed, star')" "$(at "$1" 'BSP by speed, ring')" "$(at "$1" 'BSP by speed, head apart')" |
        sed 's/inf/1e30/' | sort -g | head -n 1 | sed 's/1e30/inf/'
}
claims() {
    local apart='GSSP, head apart' plain='GSSP, nothing apart' equal='BSP, equal shares' policy
    if has strong "$apart"; then
        claim "strong: GSSP, head apart: time over BSP equal" "$(ratio "$(at strong "$apart")" "$(at strong "$equal")")" '<=' 0.35
        claim "strong: the same over SSP" "$(ratio "$(at strong "$apart")" "$(at strong 'SSP(3)')")" '<=' 0.35
        claim "strong: the same over BSP by speed" "$(ratio "$(at strong "$apart")" "$(by_speed strong)")" '<=' 0.8
        claim "strong: points under BSP equal at the end" "$(points strong "$apart" "$equal")" '<=' 0.3
        claim "strong: plain GSSP: time over BSP equal" "$(ratio "$(at strong "$plain")" "$(at strong "$equal")")" '<=' 0.45
        claim "strong: the same over SSP" "$(ratio "$(at strong "$plain")" "$(at strong 'SSP(3)')")" '<=' 0.45
        claim "strong: points under BSP equal at the end" "$(points strong "$plain" "$equal")" '<=' 1
    fi
    has mild "$apart" && claim "mild: GSSP, head apart: time over BSP by speed" "$(ratio "$(at mild "$apart")" "$(by_speed mild)")" '<=' 0.9
    has incast "$plain" && claim "incast: GSSP's throughput over ASP's, both in steps of 16 samples" \
        "$(ratio "${speed[$(name_of incast "$plain")]}" "${speed[$(name_of incast ASP)]}")" '>=' 1.2
    for policy in paper volume balanced; do
        has links "GDTopK, $policy" || continue
        claim "links: GDTopK $policy: bytes over dense GSSP's" \
            "$(ratio "${bytes[$(name_of links "GDTopK, $policy")]}" "${bytes[$(name_of links "$plain")]}")" '<=' 0.2
        claim "links: GDTopK $policy: pushed bytes over dense GSSP's" \
            "$(ratio "${pushes[$(name_of links "GDTopK, $policy")]}" "${pushes[$(name_of links "$plain")]}")" '<=' \
            "$([ $policy = paper ] && echo 0.143 || echo 0.1)"
        claim "links: GDTopK $policy: the gap between groups' iterations over dense GSSP's" \
            "$(ratio "${apart_by[$(name_of links "GDTopK, $policy")]}" "${apart_by[$(name_of links "$plain")]}")" '<=' 0.5
        claim "links: GDTopK $policy: points under dense GSSP at the end, within its seeds' spread" \
            "$(points links "GDTopK, $policy" "$plain")" '<=' \
            "$(awk '{ print $3 - $1 }' <<< "${spread[$(name_of links "$plain")]}")"
        claim "links: GDTopK $policy: points under BSP equal at the end" "$(points links "GDTopK, $policy" "$equal")" '<=' 0.5
    done
    for net in resnet18 vgg19; do
        for policy in 'as planned' 'as planned, half as long again' 'GSSP, head apart, twice as long'; do
            has $net "$policy" || continue
            claim "$net: $policy: time to where BSP equal ends, over its own" \
                "$(ratio "$(at $net "$policy")" "$(at $net "$equal")")" '<=' 0.45
            claim "$net: the same: points under BSP equal at the end" "$(points $net "$policy" "$equal")" '<=' 1
        done
    done
    return 0
}
# What the planner chooses where all is left to it, and where nothing may be separated.
choices() {
    local hosts separate file=$dir/choice.json
    for hosts in strong mild even incast links; do
        for separate in auto off; do
            "$echelon" sim --data "$data" --hosts "$root/test/hosts/$hosts" --sync auto --separate $separate --batch 256 --steps 1 \
                --compute model --progress off --report "$file" > /dev/null 2>&1 || continue
            printf '  %-8s %-22s %s%s, groups of %s\n' "$hosts" \
                "$([ $separate = off ] && echo 'nothing to be apart:' || echo 'all left open:')" \
                "$(value "$file" sync | tr -d '"')" "$([ "$(value "$file" separate)" = 1 ] && echo ', head apart')" \
                "$(value "$file" groups | grep -o '\[[0-9, ]*\]' | awk -F, '{ printf "%s%d", (NR > 1 ? ", " : ""), NF }')"
        done
    done
}

plot() {       # plot CLUSTER: of each scheme the first seed. There are eight colours: what comes behind them is dashed
    local hosts scheme kind epochs options name lines= count=0 file=$dir/$1.svg
    while IFS='|' read -r hosts scheme kind epochs options; do
        name=$(name_of "$hosts" "$scheme")
        if [ "$hosts" = "$1" ] && [ "$kind" != also ] && [ -e "$dir/$name.1.json" ]; then
            lines+="${lines:+, }'$dir/$name.1.csv' using 3:(100*\$5) skip 1 with lines lw 2 dt $((1 + count++ / 8)) title '$scheme'"
        fi
    done < <(rows)
    [ -n "$lines" ] || return 0
    gnuplot -e "set datafile separator ','; set terminal svg size 900,560 font 'sans,13' background 'white'; set output '$file';
        set key outside below maxcols 3;
        set title '$(is_net "$1" && echo "$1 on CIFAR-10, 16 workers (strong)" || echo "LeNet-5 on MNIST, 16 workers ($1)")';
        set xlabel 'virtual seconds'; set logscale x; set ylabel 'test accuracy, %';
        set yrange [$(is_net "$1" && echo 20 || echo 90):100]; set grid; plot $lines" &&
        echo "  ${file#"$root"/}"
}

echo
table
[ $what = rows ] || exit 0
echo
claims
echo
echo "What the planner chooses (--sync auto):"
choices
echo
if command -v gnuplot > /dev/null; then
    for hosts in even mild strong incast links resnet18 vgg19; do plot $hosts; done
else
    echo "no plots: gnuplot is not here"
fi
