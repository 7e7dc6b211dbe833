#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The codec top-k, live: every policy and ratio does what was asked, digits are learnt with a part of the bytes, a recorded run comes
# out again bit for bit, what does not go together is refused, and what a loss takes with it is reported.
# make check only: 60 s of processor time; test_every_kind.sh has a run of it
. "$(dirname "$0")/cluster.bash"
[ -z "${SAN:-}" ] || skip "a run of it is in test_every_kind.sh, which runs here; its messages are fuzzed"
idx_set "$work/data" 1000 50
less() { awk "BEGIN { exit !($1 < $2) }"; }
report() { expect 0 '^  speed ' --local "$1" --report "$work/report" --progress off "${@:2}"; }

# --- every policy, with sizes that do not divide; with the head apart only the trunk is coded. Where the head is trained is said here:
# if the plan chose it by today's speeds, both groups could have one worker, and no push would travel
policies=("bsp --shares equal --codec topk" "bsp --shares equal --separate 1 --codec topk:paper"
    "asp --codec topk:volume --samples-per-step 7" "ssp --codec topk:paper --staleness 0"
    "gssp --separate off --groups 2 --codec topk:balanced" "gssp --separate off --groups 2 --codec topk:volume --samples-per-step 13"
    "gssp --separate 1 --groups 2 --codec topk:paper")
for words in "${policies[@]}"; do
    read -ra sync <<<"$words"
    report 4 --data "$work/data" --batch 33 --epochs 2.05 --eval-every 300 --slow 1=3 --sync "${sync[@]}"
    check "$(value samples) samples, not 2050: $words" [ "$(value samples)" = 2050 ]
    check "codec $(value codec): $words" grep -q '"codec": "topk:' "$work/report"
    check "pushes of $(value push_ratio): $words" less "$(value push_ratio)" 0.4
    check "weights and states of $(value state_ratio): $words" less "$(value state_ratio)" 0.4
    check "residuals lost: $words" [ "$(value residuals_lost)" = 0 ]
done
report 3 --data "$work/data" --sync asp --steps 3
check "dense is dense" [ "$(value codec) $(value push_ratio) $(value state_ratio)" = '"dense" 1 1' ]
report 1 --data "$work/data" --codec topk --steps 3        # nothing travels
check "one node sends nothing" [ "$(value push_ratio)" = 1 ]

# --- digits are learnt: four epochs, two of them warm-up, pushes of about a seventh: how many of them fall into the warm-up depends on
# the speeds of the nodes where there are groups. The best evaluation counts: two groups with momentum now and then have a loss
# that rises for some dozen steps, one of 170 such runs at its end (81.6 %, where the others have 98.7 to 99.8).
learn=("bsp --shares equal" "gssp --separate off --groups 2")
for sync in "${learn[@]}"; do
    read -ra words <<<"$sync"
    report 4 --data glyphs --codec topk --epochs 4 --eval-every 10000 --sync "${words[@]}"
    check "accuracy $(value best_accuracy): $sync" less 0.9 "$(value best_accuracy)"
    check "pushes of $(value push_ratio): $sync" less "$(value push_ratio)" $([ "${sync%% *}" = bsp ] && echo 0.17 || echo 0.4)
    check "weights and states of $(value state_ratio): $sync" less "$(value state_ratio)" 0.26
done

# --- a recorded run again, roles and arithmetic
mkdir "$work/run"
for words in "gssp --separate off --groups 2 --codec topk:volume" "bsp --shares equal --separate 1 --codec topk"; do
    read -ra sync <<<"$words"
    rm -f "$work"/run/*
    rm -f "$work"/run/*
    expect 0 '^  speed ' --data "$work/data" --local 3 --batch 33 --steps 70 --record "$work/run" --sync "${sync[@]}"
    ends_with 0 'bit for bit' replay "$work/run" --data "$work/data"
done

# --- simulated: the same bytes twice; without arithmetic messages are as long as they are expected to be, and so is the run
sim() {
    ends_with 0 '^  speed ' sim --data "$work/data" --workers 8 --spread links --sync gssp --separate off --steps 100 --eval-every 0 \
        --progress off "$@"
}
sim --codec topk:volume --report "$work/report" --save "$work/weights"
sim --codec topk:volume --report "$work/again" --save "$work/weights2"
check "another simulated run" cmp -s "$work/report" "$work/again"
check "other simulated weights" cmp -s "$work/weights" "$work/weights2"
real="$(value push_ratio) $(value state_ratio) $(value seconds)"
sim --codec topk:volume --compute model --report "$work/report"
check "computed $real, not computed $(value push_ratio) $(value state_ratio) $(value seconds)" \
    awk -v real="$real" -v push="$(value push_ratio)" \
    -v state="$(value state_ratio)" -v seconds="$(value seconds)" 'BEGIN { split(real, r); exit !(r[1] < 1.05 * push && r[1] > 0.7 * push &&
    r[2] < 1.05 * state && r[2] > 0.7 * state && r[3] < 1.1 * seconds && r[3] > 0.8 * seconds) }'
sim --report "$work/report"
check "on slow links a run with a codec ($real) is not shorter than one without: $(value seconds) s" less "${real##* }" "$(value seconds)"

# --- a plan in a file
expect 0 '^  speed ' --data "$work/data" --local 4 --sync gssp --groups 2 --codec topk:paper --batch 33 --steps 2 --save-plan "$work/plan"
check "the plan says the codec" grep -q '^codec topk:paper' "$work/plan"
report 4 --data "$work/data" --plan "$work/plan" --save-plan "$work/again" --steps 2
check "a plan changed on its way through a file" cmp -s "$work/plan" "$work/again"
check "a plan's codec holds" grep -q '"codec": "topk:paper"' "$work/report"

# --- what is refused
refuse 2 'codec is .topk:most.: give dense, topk' --data "$work/data" --codec topk:most
refuse 2 'deterministic is on, but codec is topk' --data "$work/data" --codec topk --deterministic
ends_with 2 "in --hosts FILE, as in 'link 100" sim --data "$work/data" --workers 2 --link 5
refuse 2 'link is .-1' --data "$work/data" --link -1

# --- a worker is lost: its residual with it; an owner is lost: its workers clear theirs
plan_of_roles "$work/roles"
printf '%s\n' 'codec topk:volume' 'state_ratio 150000' 'base 0 200000' 'base 1 200000' >>"$work/roles"
for lost in 3 2; do
    free_port
    for rank in 0 1 2 3; do
        start $rank --data "$work/data" --world 4 --coordinator 127.0.0.1:$port --plan "$work/roles" --steps 1500 \
            --report "$work/report" --slow 2 --progress on
    done
    says "$work/0.log" 'epoch .*images/s' "the run begins"
    kill -KILL "${nodes[$lost]}"
    ended "${nodes[$lost]}"
    unset "nodes[$lost]"
    node_ends 0 0 '' "rank $lost is lost"
    check "lost $(value lost), not [$lost]" [ "$(value lost)" = "[$lost]" ]
    check "$(value samples) samples, not 96000" [ "$(value samples)" = 96000 ]
    check "residuals lost: $(value residuals_lost), with rank $lost" [ "$(value residuals_lost)" = $((lost == 2 ? 2 : 1)) ]
    for rank in 1 2 3; do [ -z "${nodes[$rank]:-}" ] || node_ends $rank 0 '' "rank $lost is lost"; done
done
verdict test_codec
