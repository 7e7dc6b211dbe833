# SPDX-License-Identifier: Apache-2.0
# Is each sample in once? By what the owners that are left have recorded, not by the coordinator's counts. Each place of each epoch
# is in one lease that an owner applied, or in one up to the watermark of the last state that came from a lost owner.
#   echelon replay DIR --show | awk -v samples=N -v lost="1,3" -v task=apply -f once.awk
# task: what an owner does with a push, "add" under local. Fails with a sentence. Of two lost owners of several it cannot tell.
function count(text) {   # ... lease I (epoch E, samples S+N, rank W)...
    sub(/.*\(epoch /, "", text)
    split(text, n, /[^0-9]+/)
    for (i = n[2]; i < n[2] + n[3]; i++) times[n[1], i]++
    leases++
}
function number_behind(text, word) {
    return substr(text, index(text, word) + length(word)) + 0
}
BEGIN { for (i = split(lost, list, /[^0-9]+/); i > 0; i--) is_lost[list[i]] }
/^rank [0-9]+ of / { rank = $2 }
rank in is_lost { next }
$3 == "owner" && $0 ~ "  done: " task ", lease " {
    count($0)
    applied[number_behind($0, ", lease ")]
}
$3 == "owner" && $4 == "from" && /: state, / && $6 + 0 in is_lost {
    text = $0
    while (match(text, /up to lease [0-9]+ of rank [0-9]+/)) {
        split(substr(text, RSTART, RLENGTH), word, " ")
        if (word[4] + 0 > mark[word[7]] + 0) mark[word[7]] = word[4]
        text = substr(text, RSTART + RLENGTH)
    }
}
$1 == "->" && /: lease, lease / { dealt[number_behind($0, "lease, lease ")] = $0 }
END {
    for (id in dealt) {
        worker = dealt[id]
        sub(/.*, rank /, "", worker)
        if (!(id in applied) && id + 0 <= mark[worker + 0] + 0) count(dealt[id])
    }
    for (place in times) { places++; if (times[place] != 1) twice++ }
    if (places != samples || twice) print places + 0 " places of " samples ", " twice + 0 " not once, in " leases + 0 " leases"
    exit places != samples || twice
}
