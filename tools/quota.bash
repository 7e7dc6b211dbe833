# SPDX-License-Identifier: Apache-2.0
# A host's share of the processors, as a quota of a CPU control group (version 1 or 2). Sourced by tools/testbed and by the benches.
#
# A quota is a bucket that is filled once a period. The shorter the period, the more a host resembles a slower processor. But the kernel
# notices that a running thread has used up its quota at the next tick, 4 ms at CONFIG_HZ=250, and a bucket holds one period's quota: what
# is filled in meanwhile is lost. A thread with 1 ms of each 2 gets 0.33 to 0.37 of a core instead of a half. So a period is two ticks.

# quota_of SHARE: quota and period in microseconds. The kernel allows no quota under 1 ms, so a share below an eighth has a longer period.
quota_of() { awk -v s="$1" 'BEGIN { p = s < 0.125 ? int(1000 / s + 0.5) : 8000; print s < 0.125 ? 1000 : int(s * p + 0.5), p }'; }

# quota_open NAME: a control group for the hosts, ahead of whatever else this machine does. Sets quota_root and quota_version;
# false, with quota_reason, where this machine or user cannot.
quota_open() {
    local base
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        quota_version=2 base=/sys/fs/cgroup
        { echo +cpu > $base/cgroup.subtree_control; } 2>/dev/null ||
            { quota_reason="the control group $base does not hand on its controller cpu (this takes root)"; return 1; }
    elif [ -e /sys/fs/cgroup/cpu/cpu.cfs_quota_us ]; then
        quota_version=1 base=/sys/fs/cgroup/cpu
    else
        quota_reason="there is no control group with CPU quotas under /sys/fs/cgroup"
        return 1
    fi
    quota_root=$base/$1
    mkdir -p "$quota_root" 2>/dev/null || { quota_reason="$quota_root could not be made (this takes root)"; return 1; }
    if [ $quota_version = 1 ]; then
        echo 100000 > "$quota_root/cpu.shares"
    else
        echo 10000 > "$quota_root/cpu.weight"
        { echo +cpu > "$quota_root/cgroup.subtree_control"; } 2>/dev/null ||
            { quota_reason="$quota_root does not hand on its controller cpu"; return 1; }
    fi
}

# quota_set HOST SHARE: at most that many cores (0.125, 1, 1.5) for what runs on the host.
quota_set() {
    local group=$quota_root/$1 quota period
    mkdir -p "$group" || return 1
    read -r quota period <<< "$(quota_of "$2")"
    if [ $quota_version = 1 ]; then
        echo -1 > "$group/cpu.cfs_quota_us"   # a new period is checked against the old quota
        echo "$period" > "$group/cpu.cfs_period_us"
        echo "$quota" > "$group/cpu.cfs_quota_us"
    else
        echo "$quota $period" > "$group/cpu.max"
    fi
}

# quota_enter HOST: this (sub)shell, and what it starts, runs there from now on.
quota_enter() { echo $BASHPID > "$quota_root/$1/cgroup.procs"; }

# quota_close: after the last process of the hosts has ended.
quota_close() {
    local group
    [ -n "${quota_root:-}" ] || return 0
    for group in "$quota_root"/[0-9]* "$quota_root"; do rmdir "$group" 2>/dev/null || true; done
}
