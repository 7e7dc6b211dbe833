# SPDX-License-Identifier: Apache-2.0
# Separate hosts on one machine; sourced by cluster.sh. Each node is a process in a CPU cgroup of its own with a quota, so
# that no node computes with another's share of a processor.
#
# A quota is a bucket that is filled once a period. The shorter the period, the more a host resembles a slower processor;
# the kernel allows no quota under 1 ms, so the period of a share is 1 ms / share: 2 ms for half a core, 8 ms for an eighth.

# hosts_open SHARE...: makes the hosts; false when this machine or user cannot.
hosts_open() {
    local base share rank=0
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        hosts_v=2 base=/sys/fs/cgroup
        { echo +cpu > $base/cgroup.subtree_control; } 2>/dev/null || { hosts_v=; return 1; }
    elif [ -e /sys/fs/cgroup/cpu/cpu.cfs_quota_us ]; then
        hosts_v=1 base=/sys/fs/cgroup/cpu
    else
        return 1
    fi
    hosts=$base/echelon-bench-$$
    mkdir "$hosts" 2>/dev/null || { hosts_v=; return 1; }
    trap hosts_close EXIT
    trap 'exit 143' TERM   # so that EXIT is run then, too
    [ $hosts_v = 1 ] || { echo +cpu > "$hosts/cgroup.subtree_control"; } 2>/dev/null || return 1
    # Ahead of whatever else the machine does: a host has its share when it wants it.
    if [ $hosts_v = 1 ]; then echo 100000 > "$hosts/cpu.shares"; else echo 10000 > "$hosts/cpu.weight"; fi
    for share; do
        mkdir "$hosts/$rank" || return 1
        host_share $rank "$share" || return 1
        rank=$((rank + 1))
    done
}

# host_share RANK SHARE: that part of one core.
host_share() {
    local period
    period=$(awk -v s="$2" 'BEGIN { printf "%d", 1000 / s + 0.5 }')
    if [ $hosts_v = 1 ]; then
        echo -1 > "$hosts/$1/cpu.cfs_quota_us"
        echo "$period" > "$hosts/$1/cpu.cfs_period_us"
        echo 1000 > "$hosts/$1/cpu.cfs_quota_us"
    else
        echo "1000 $period" > "$hosts/$1/cpu.max"
    fi
}

# on_host RANK COMMAND...: runs there, in place of this (sub)shell.
on_host() {
    local rank=$1
    shift
    echo $BASHPID > "$hosts/$rank/cgroup.procs"
    exec "$@"
}

hosts_close() {
    local host
    for host in "$hosts"/[0-9]* "$hosts"; do rmdir "$host" 2>/dev/null || true; done
}
