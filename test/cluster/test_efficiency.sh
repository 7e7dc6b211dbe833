#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `--efficiency FILE` as a user meets it: runs keep their loss curves, what a policy costs is measured by them, the next plan goes by that
# and says so; a recorded run that was planned by them replays; and one sentence for each mistake.
. "$(dirname "$0")/cluster.bash"
! under thread || skip "a simulation is one thread"
! under address || skip "test_curves has the same code, and the file is fuzzed"
file=$work/curves data=glyphs
bars "$work/bars" 200 10
sims() { ends_with "$1" "$2" sim --data "$data" --workers 4 --spread strong --lr 0.01 --eval-every 0 "${@:3}"; }
plans() { ends_with "$1" "$2" plan --workers 4 --spread strong --lr 0.01 "${@:3}"; }
refuse() {                                            # the same for what is wrong: one sentence, nothing on stdout
    "$@"
    [ "$(wc -l <"$work/err")" = 1 ] && [ ! -s "$work/out" ] || bad "not one sentence: $*"
}
err() { grep -qE -e "$1" "$work/err"; }
out() { grep -qE -e "$1" "$work/out"; }
runs_kept() { [ "$(grep -c '^run ' "$file")" = "$1" ]; }

# --- the first run has nothing to go by, and begins the file
plans 0 '^  efficiency +where nothing is measured: of a table made with LeNet-5, give or take 15 %$' --efficiency "$file"
check "a plan makes no file" [ ! -e "$file" ]
sims 0 '^  speed ' --sync bsp --steps 250 --efficiency "$file" --report "$work/bsp.json"
check "what the file had is said" err 'efficiency: .*curves has no run yet of this model, data, batch and learning rate$'
check "its run is in it" runs_kept 1
check "rounds are 1 by definition" [ "$(value measured_efficiency "$work/bsp.json")" = null ]

# --- a policy is compared with rounds: the samples to a loss, as reports have them, by another way
sims 0 '^  speed ' --sync gssp --separate off --steps 250 --efficiency "$file" --report "$work/gssp.json"
check "it is said" err 'efficiency: that of gssp at [0-9.]+ rounds is measured, [0-9.]+, give or take [0-9]+ %$'
measured=$(value measured_efficiency "$work/gssp.json")
error=$(value measured_efficiency_error "$work/gssp.json")
first_below() {                                       # first_below LOSS REPORT: samples until the mean of five bins is below
    value loss_curve "$2" | tr '{' '\n' | sed -n 's/.*: \(.*\), .*: \([^}]*\)}.*/\1 \2/p' | awk -v loss="$1" '
        { at[NR] = $1; sum += $2; of[NR] = $2; if (NR > 5) sum -= of[NR - 5]; if (NR >= 5 && sum / 5 < loss) { print at[NR - 2]; exit } }'
}
for loss in 0.5 0.4; do
    rounds=$(first_below $loss "$work/bsp.json") other=$(first_below $loss "$work/gssp.json")
    check "samples to $loss, $rounds and $other, are not as measured, $measured +- $error" awk -v a="${rounds:-0}" -v b="${other:-0}" \
        -v m="$measured" -v e="$error" 'BEGIN { off = a / b / m - 1; exit !(a > 0 && b > 0 && off < 0.1 + 2 * e && off > -0.1 - 2 * e) }'
done

# --- the next plan goes by it, without data too; one of another learning rate does not
plans 0 '^  efficiency +of gssp, [0-9] groups: measured by earlier runs, give or take [0-9]+ %$' --efficiency "$file" --separate off \
    --report "$work/plan.json"
check "and by the table where nothing is measured" out '^  efficiency +where nothing is measured: '
check "the report tells of both" eval 'grep -q "\"efficiency_from\": \"measured\"" "$work/plan.json" &&
    grep -q "\"efficiency_from\": \"table\"" "$work/plan.json"'
plans 0 '^[* ] gssp' --efficiency "$file" --lr 0.02 --separate off
check "not of another learning rate" eval '! out "measured by earlier"'
plans 0 '^[* ] gssp' --efficiency "$file" --staleness 7 --separate off
check "nor of another bound" eval '! out "measured by earlier"'
sims 0 '^  speed ' --sync auto --separate off --steps 20 --efficiency "$file"
check "a run's log tells which are measured" err 'plan: efficiency of gssp, [0-9] groups is measured by earlier runs, give or take'
check "and what the others are" err 'of the others is of a table made with LeNet-5, give or take [0-9]+ %: nothing is measured'

# --- what is trained is what is trained without; what is not kept, and why
data=$work/bars
sims 0 '^  speed ' --sync bsp --steps 20 --save "$work/without"
sims 0 '^  speed ' --sync bsp --steps 20 --save "$work/with" --efficiency "$work/any"
check "the same weights" cmp -s "$work/with" "$work/without"
sims 0 '^  speed ' --sync bsp --steps 10 --efficiency "$work/short"
check "too short" eval 'err "curve is not kept: it was too short" && [ ! -e "$work/short" ]'
sims 0 '^  speed ' --sync bsp --steps 20 --init "$work/with" --efficiency "$work/short"
check "not from random weights" eval 'err "not kept: it did not begin with random weights" && [ ! -e "$work/short" ]'
sims 0 '^  speed ' --sync local --steps 64 --efficiency "$work/short"
check "local" eval 'err "not kept: under local " && [ ! -e "$work/short" ]'

# --- a live run, planned by what was measured, is replayed: the same plan again
live() { ends_with "$1" "$2" train --data "$data" --local 2 --threads 1 --eval-every 0 --steps 40 --batch 64 "${@:3}"; }
live 0 '^  speed ' --efficiency "$file" --sync bsp
check "a live run adds its own" runs_kept 4
# And once more, as one of ssp.
awk '/^run / { n++; text[n] = "" } { text[n + 0] = text[n + 0] $0 "\n" }
     END { for (i = 0; i <= n; i++) printf "%s", text[i]
           sub("policy bsp separated 0 staleness 0", "policy ssp separated 0 staleness 3", text[n])
           sub("behind 0", "behind 0.4", text[n])
           printf "%s", text[n] }' "$file" >"$work/two"
live 0 '^  speed ' --efficiency "$work/two" --sync auto --record "$work/record"
check "the run was planned by the file" err 'efficiency: .*two has 2 runs .*, 1 of them of bsp'
ends_with 0 'all as recorded' replay "$work/record"

# --- mistakes
echo 'curves 9' >"$work/bad"
sims 14 "bad:1: a file of loss curves begins with 'curves 1', found '9'" --sync bsp --steps 20 --efficiency "$work/bad"
refuse plans 14 "bad:1: a file of loss curves begins" --efficiency "$work/bad"
refuse plans 2 'options report and efficiency both name' --efficiency "$work/x" --report "$work/x"
sims 13 "nowhere" --sync bsp --steps 20 --efficiency "$work/nowhere/curves"
ends_with 2 'it trains nothing' doctor --efficiency "$file"
verdict "test_efficiency.sh"
