#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `echelon sim` as a user meets it: it trains, the same seed gives the same bytes, virtual time is what the host file and the profile
# say, one simulated node trains what one live node does, and each mistake gets one sentence.
. "$(dirname "$0")/cluster.bash"
! under thread || skip "a simulation is one thread"
! under address || skip "test_sim has the same code, and its files are fuzzed"
good=$work/good
idx_set "$good" 2000 100
sims() { ends_with "$1" "$2" sim "${@:3}"; }        # sims STATUS PATTERN ARGUMENT...
refuse() {                                           # the same for what is wrong: one sentence, nothing on stdout
    sims "$@"
    [ "$(wc -l <"$work/err")" = 1 ] && [ ! -s "$work/out" ] || bad "not one sentence: echelon sim ${*:3}"
}
run() { sims 0 '^  speed ' --data "$good" "$@" --progress off; }

# --- words
sims 0 'Exit status:' --help
for option in hosts workers spread compute profile sync report save seed; do
    check "--help lists --$option" grep -q "^  --$option " "$work/out"
done
for option in rank coordinator local key slow record checkpoint profile-out; do
    check "--help does not list --$option" eval '! grep -q "^  --$option " "$work/out"'
done

# --- the same seed, the same bytes; under every policy, and another seed gives others
for policy in bsp asp ssp gssp local; do
    for which in one two; do
        run --workers 4 --spread strong --sync $policy --steps 30 --save "$work/$which.weights" --report "$work/$which.json"
        sleep 0.05   # what depends on the clock on the wall would differ
    done
    check "$policy: the same weights" cmp -s "$work/one.weights" "$work/two.weights"
    check "$policy: the same report" cmp -s "$work/one.json" "$work/two.json"
    run --workers 4 --spread strong --sync $policy --steps 30 --seed 2 --save "$work/other.weights" --report "$work/other.json"
    check "$policy: another seed, other weights" eval '! cmp -s "$work/one.weights" "$work/other.weights"'
done
sims 0 'simulated in [0-9.]* s' --data "$good" --workers 2 --steps 3
check "what costs are taken is said" grep -q 'arithmetic costs what it does on ' "$work/err"
check "wall time is on stderr only" eval '! grep -q "simulated in" "$work/out" && grep -q "simulated in" "$work/err"'
for which in one two; do run --workers 8 --spread mild --sync gssp --compute model --epochs 1 --report "$work/$which.json"; done
check "--compute model: the same report" cmp -s "$work/one.json" "$work/two.json"

sims 0 'group 0 +ranks 4[89] to 63;' --data "$good" --workers 64 --spread strong --sync gssp --compute model --steps 3

# --- one node, simulated and live, trains the same weights, bit for bit; with --deterministic any number of them
expect 0 '^  speed ' --data "$good" --steps 25 --progress off --save "$work/live.weights"
run --workers 1 --steps 25 --save "$work/sim.weights"
check "one node trains what a live one does" cmp -s "$work/live.weights" "$work/sim.weights"
expect 0 '^  speed ' --data "$good" --steps 8 --deterministic --progress off --save "$work/live.weights"
run --workers 3 --spread strong --steps 8 --deterministic --save "$work/sim.weights"
check "--deterministic: three nodes train what one live node does" cmp -s "$work/live.weights" "$work/sim.weights"

# --- it learns
sims 0 '^  accuracy ' --data glyphs --workers 4 --spread strong --sync gssp --epochs 0.5 --eval-every 4000 --report "$work/report" \
    --curve "$work/curve" --progress off
accuracy=$(value test_accuracy)
check "--curve has a line for each look, and the last" [ "$(wc -l <"$work/curve")" = 4 ]
check "and its seconds are virtual" awk -F, -v all="$(value seconds)" \
    'NR == 4 { exit !($3 == all + 0 || ($3 / all > 0.999 && $3 / all < 1.001)) }' "$work/curve"
check "GSSP learns the digits: $accuracy" awk -v a="$accuracy" 'BEGIN { exit !(a > 0.8) }'

# --- what was predicted stands beside what came of it, or alone; links by their slower direction
printf '%s\n' 'default link 200 Mb/s' 'hosts 2' 'hosts 1 link 50 Mb/s' 'hosts 1' >"$work/h"
sims 0 '^  links            50 Mb/s of rank 2 to 200 Mb/s of rank 0, in their slower direction$' \
    --data "$good" --hosts "$work/h" --compute model --shares equal --epochs 1
check "a prediction beside the speed" grep -Eq '^  speed            [0-9]+ images/s \(.*\); predicted were [0-9]+ images/s$' "$work/out"
sims 0 '^  speed            nothing was trained; predicted are [0-9]+ images/s$' --data "$good" --hosts "$work/h" --compute model --steps 0
printf '%s\n' 'default link 200 Mb/s' 'hosts 4' >"$work/h"
sims 0 '^  links            200 Mb/s, of every node$' --data "$good" --hosts "$work/h" --compute model --epochs 1

# --- virtual time. No jitter, links without bound: images/s follow from what the files say.
speed_of() { value images_per_second; }
ratio_is() {   # ratio_is WHAT A B LEAST MOST
    check "$1: $2 / $3" awk -v a="$2" -v b="$3" -v least="$4" -v most="$5" 'BEGIN { exit !(a / b >= least && a / b <= most) }'
}
one_host() {
    printf 'hosts 1 %s\n' "$1" >"$work/h"
    run --hosts "$work/h" --compute model --eval-every 0 --epochs 1 --report "$work/report" "${@:2}"
}
one_host 'speed 2000 images/s' --batch 64
ratio_is "a host of 2000 images/s" "$(speed_of)" 2000 0.9 1.01
one_host 'speed 1 x'
base=$(speed_of)
one_host 'speed 0.25 x'
ratio_is "a host of a quarter of the speed" "$(speed_of)" "$base" 0.249 0.251
one_host 'speed 1 x stutter 10 % 6 x' --epochs 100
ratio_is "a tenth of the steps six times as long" "$base" "$(speed_of)" 1.4 1.6
one_host 'speed 1 x jitter 0.5' --epochs 100
ratio_is "the mean of a lognormal factor, e^(sigma^2 / 2)" "$base" "$(speed_of)" 1.09 1.18
one_host 'speed 1 x slow 3 x from 0 s'
ratio_is "three times as slow for ever" "$base" "$(speed_of)" 2.7 3.05
# A profile of a machine twice as slow in everything.
expect 0 '' --data "$good" --steps 0 --profile-out "$work/profile"
awk '$1 == "step" { $4 *= 2; $7 *= 2 } /^(apply|add|refresh|copy|message|read|look) / { $2 *= 2 } { print }' "$work/profile" \
    >"$work/profile2"
one_host 'speed 1 x' --profile "$work/profile"
base=$(speed_of)
one_host 'speed 1 x' --profile "$work/profile2"
ratio_is "a profile twice as slow" "$(speed_of)" "$base" 0.499 0.501
one_host 'speed 1000 images/s' --profile "$work/profile2" --batch 64
ratio_is "images/s, whatever the profile" "$(speed_of)" 1000 0.9 1.01
# A slow link: two workers, dense, in step; each round moves all weights and gradients of the one that is not the owner. By default the two
# own half of the parameters each, and both ways are in use at a time.
printf 'hosts 2 speed 1 x link 1 Mb/s\n' >"$work/h"
bits=$((61706 * 4 * 8))   # of LeNet-5, one way; both ways are one behind the other
for shards in 1 auto; do
    run --hosts "$work/h" --compute model --steps 10 --eval-every 0 --separate off --shares equal --shards $shards --report "$work/report"
    ways=$([ $shards = 1 ] && echo 2 || echo 1.1)
    ratio_is "ten rounds over a link of 1 Mb/s, --shards $shards" "$(value seconds)" \
        "$(awk -v b=$bits -v w="$ways" 'BEGIN { print 10 * w * b / 1e6 }')" 0.9 1.15
done

# --- a plan is followed
run --workers 4 --spread strong --sync gssp --steps 20 --save-plan "$work/plan" --report "$work/one.json"
run --workers 4 --spread strong --plan "$work/plan" --steps 20 --report "$work/two.json"
check "the plan that was saved is followed" [ "$(value batch "$work/one.json")" = "$(value batch "$work/two.json")" ]

# --- hosts that come and go
printf '%s\n' 'default speed 500 images/s' 'hosts 3' 'hosts 1 speed 100 images/s dies 0.5 s' >"$work/h"
run --hosts "$work/h" --sync asp --epochs 1 --report "$work/report"
check "a worker that dies is lost" [ "$(value lost)" = '[3]' ]
check "and its samples are trained by others" [ "$(value samples)" = 2000 ]
printf '%s\n' 'hosts 1 speed 10 images/s' 'hosts 1 speed 1000 images/s dies 0.5 s' >"$work/h"
sims 18 'rank 1' --data "$good" --hosts "$work/h" --sync asp --epochs 5 --progress off
check "no report of success" eval '! grep -q "^  target" "$work/out"'

# --- mistakes
refuse 2 '--data is missing' --workers 2
refuse 2 'which machines.*--hosts FILE, or --workers N' --data "$good"
refuse 2 'leave --workers out' --data "$good" --workers 2 --hosts "$root/test/hosts/even"
refuse 2 'leave --spread out' --data "$good" --spread even --hosts "$root/test/hosts/even"
refuse 2 "no spread 'stong'.*strong" --data "$good" --workers 2 --spread stong
refuse 2 'workers.*0.*from 1' --data "$good" --workers 0
refuse 2 '--compute .fast.*real or model' --data "$good" --workers 2 --compute fast
refuse 2 '--save' --data "$good" --workers 2 --compute model --save "$work/s"
refuse 2 '--init' --data "$good" --workers 2 --compute model --init "$work/s"
refuse 2 'learns nothing that --curve' --data "$good" --workers 2 --compute model --curve "$work/s"
refuse 2 'no --target-accuracy' --data "$good" --workers 2 --compute model --target-accuracy 0.5
for option in '--rank 1' '--world 2' '--coordinator 127.0.0.1:1' '--bind 127.0.0.1' '--join-timeout 3' '--key k' \
    --insecure '--local 2' '--slow 2' '--device cpu' '--threads 2' '--checkpoint c' '--every 3' '--keep 2' --resume \
    '--record r' '--profile-out p'; do
    # shellcheck disable=SC2086 # two words
    refuse 2 "echelon sim has no ${option%% *}: " --data "$good" --workers 2 $option
done
ECH_WORLD=4 refuse 2 'the environment has ECH_WORLD, but echelon sim has no --world' --data "$good" --workers 2
refuse 2 'did you mean --workers' --data "$good" --worker 2
refuse 2 'groups is 3' --data "$good" --workers 2 --sync gssp --groups 3
refuse 2 'shares has 3 numbers for 2 nodes' --data "$good" --workers 2 --batch 60 --shares 20,20,20
refuse 2 'plan for 4 nodes, but the run has 3' --data "$good" --workers 3 --plan "$work/plan" --progress off
refuse 13 'no.hosts' --data "$good" --hosts "$work/no.hosts"
hosts_are() { printf '%s\n' "${@:2}" >"$work/h"; refuse 14 "$work/h$1" --data "$good" --hosts "$work/h"; }
hosts_are ':2: speed needs' 'hosts 2' 'hosts 2 speed -1 x'
hosts_are ':1: .*rank 0' 'hosts 2 dies 3 s'
hosts_are ':3: .*did you mean .link' '# a cluster' 'hosts 1' 'hosts 1 lnik 1 Mb/s'
hosts_are ' describes no hosts' '# hosts 2'
refuse 13 'no.profile' --data "$good" --workers 2 --profile "$work/no.profile"
sed 's/^add .*/add much/' "$work/profile" >"$work/p"
refuse 14 "$work/p:[0-9]*: add needs" --data "$good" --workers 2 --profile "$work/p"
refuse 13 '--report .*its folder is not there' --data "$good" --workers 2 --report "$work/no/r"
refuse 13 '--save .*it is a folder' --data "$good" --workers 2 --save "$work"
ends_with 13 '--profile-out .*its folder is not there' train --data "$good" --profile-out "$work/no/p"
ends_with 2 'echelon train has no --hosts' train --data "$good" --hosts "$root/test/hosts/even"
ends_with 2 'echelon train has no --profile: .*--profile-out' train --data "$good" --profile "$work/profile"
ends_with 2 'both name' train --data "$good" --report "$work/same" --profile-out "$work/same"

# --- told to end
env -u ECH_MEASURE "$echelon" sim --data "$good" --workers 8 --epochs 100000 --eval-every 0 --progress on --save "$work/stopped" \
    >"$work/out" 2>"$work/err" &
run=$!
says "$work/err" 'epoch' "a simulation begins"
kill -TERM $run
ended $run
check "SIGTERM ends a simulation in order" [ "$status" = 22 ]
check "and what was trained is saved" [ -s "$work/stopped" ]

verdict "sim"
