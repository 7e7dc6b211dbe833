# SPDX-License-Identifier: Apache-2.0
# Live runs over separate hosts; sourced by cluster.sh and sim_live.sh. They set before: `shares`, of a core, rank by rank; `data`;
# `dir`, for what a run leaves.
source "$root/tools/quota.bash"

world=${#shares[@]}
port=$((20000 + $$ % 10000))
free_port() {   # into $port
    port=$((port + 1))
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
}

# node RANK OPTIONS...: a node on its host, in place of this subshell.
if quota_open "echelon-bench-$$"; then
    trap quota_close EXIT
    trap 'exit 143' TERM   # so that EXIT is run then, too
    for rank in "${!shares[@]}"; do quota_set "$rank" "${shares[rank]}"; done
    echo "hosts: ${shares[*]} of a core each, by CPU quota (cgroup v$quota_version, periods of 8 ms)"
    node() { quota_enter "$1"; exec "$echelon" train --data "$data" --progress off "${@:2}"; }
else
    quota_version=
    echo "hosts: no CPU quotas ($quota_reason); ranks share the cores and play slow ones by --slow"
    most=$(printf '%s\n' "${shares[@]}" | sort -g | tail -1)
    node() { exec "$echelon" train --data "$data" --progress off --slow "$(ratio "$most" "${shares[$1]}")" "${@:2}"; }
fi

# train NAME OPTIONS...: a run over all hosts; its report is $dir/NAME.json. False when the target was not reached.
train() {
    local name=$1 rank pids=() status result=0
    shift
    free_port
    for ((rank = 0; rank < world; rank++)); do
        (node $rank --rank $rank --world "$world" --coordinator 127.0.0.1:$port --report "$dir/$name.json" "$@" \
            > "$dir/$name.$rank.out" 2>&1) &
        pids+=($!)
    done
    for rank in "${!pids[@]}"; do
        status=0
        wait "${pids[rank]}" || status=$?
        if [ $status = 26 ]; then result=1   # the target was not reached
        elif [ $status != 0 ]; then
            echo "rank $rank of $name ended with status $status:" >&2
            cat "$dir/$name.$rank.out" >&2
            exit 1
        fi
    done
    return $result
}

others_since
