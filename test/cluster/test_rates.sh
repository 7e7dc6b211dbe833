#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A link that becomes thin in the middle of a run: the report has what it carries since, and GDTopK's ratios follow. In virtual time: three
# groups of a worker each, whose owner is another host; the link of one worker drops to a quarter after 60 s.
. "$(dirname "$0")/cluster.bash"
! under thread || skip "a simulation is one thread"
! under address || skip "test_sim has the same code"
printf '%s\n' 'default speed 2000 images/s link 100 Mb/s' 'hosts 3' 'hosts 2 link 10 Mb/s' 'hosts 1 link 20 Mb/s thin 4 x from 60 s' \
    >"$work/hosts"
{
    printf '%s\n' 'sync gssp' 'world 6' 'round 96' 'lr 0.05' 'momentum 0.5' 'decay 0' 'head none' 'group 0 owner 0 workers 3:16' \
        'group 1 owner 1 workers 4:16' 'group 2 owner 2 workers 5:16' 'codec topk:balanced' 'state_ratio 80000' 'base 0 10000' \
        'base 1 10000' 'base 2 30000'
    for each in '0 100' '1 100' '2 100' '3 10' '4 10' '5 20'; do
        read -r rank rate <<<"$each"
        echo "link $rank out $rate lowest $rate highest $rate in $rate lowest $rate highest $rate"
    done
} >"$work/plan"
# simulate WHEN EPOCHS [ARGUMENT...]: a run that follows, or not
simulate() {
    ends_with 0 '^  speed ' sim --data glyphs --hosts "$work/hosts" --plan "$work/plan" --compute model --eval-every 0 --epochs "$2" \
        --regroup "$1" --progress off --report "$work/report" "${@:3}"
}
# is NAME AWK: a value of the report, as x, is so
is() { check "$1 is $(value "$1"): $2" awk -v x="$(value "$1")" "BEGIN { exit !($2) }"; }
between() { awk -v a="$1" -v b="$2" -v c="$3" -v d="$4" 'BEGIN { printf "%.1f", (b - a) / (d - c) }'; }

declare -A late
for when in auto off; do
    simulate $when 5
    samples=$(value samples) seconds=$(value seconds)
    simulate $when 9
    late[$when]=$(between "$samples" "$(value samples)" "$seconds" "$(value seconds)")
    is regroups 'x == 0'   # what is compared are ratios
    if [ $when = off ]; then
        is ratio_changes 'x == 0'
        check "not followed: what was planned" grep -q '"ratio":\[0.01,0.01,0.03\]' <(tr -d ' \n' <"$work/report")
    else
        is ratio_changes 'x == 1'
        is ratio_seconds 'x > 90 && x < 97'   # four windows of 0.3 s that the link was used, and 30 s
        check "followed: group 2 pushes less" grep -q '"ratio":\[0.01,0.01,0.004\]' <(tr -d ' \n' <"$work/report")
        check "and the report says why" grep -q '"ratio_reason":"the link of group 2 carries 5 Mb/s, before 20"' \
            <(sed 's/" *: */":/g' "$work/report")
        check "and the summary" grep -q '^  ratios  *changed 1 times, last after 9[0-9.]* s' "$work/out"
        check "with the link" grep -q '^  links now  *rank 5 out: 20 Mb/s when it joined, of late 5 (5 to 5)' "$work/out"
    fi
    check "the links of the run" grep -q '"link_run_out":\[\({[^}]*},\)\{5\}{"rate":5,"lowest":5,"highest":5}\]' \
        <(tr -d ' \n' <"$work/report")
done
echo "after the change: ${late[auto]} images/s where ratios follow, ${late[off]} where they do not"
check "following pays" awk -v a="${late[auto]}" -v b="${late[off]}" 'BEGIN { exit !(a > 1.03 * b) }'

# The same seed gives the same bytes, and dense codecs have no ratios to change.
simulate auto 5 --progress on && cp "$work/report" "$work/before"
check "the log tells of the change" grep -q 'the link of group 2 carries 5 Mb/s, before 20: pushes of each group are now' "$work/err"
simulate auto 5
check "the same report" cmp -s "$work/report" "$work/before"
sed -e '/^codec/d' -e '/^state_ratio/d' -e '/^base/d' -i "$work/plan"
simulate auto 3
is ratio_changes 'x == 0'
verdict test_rates
