#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Nodes that a launcher starts, without options that say which node each is: with torchrun's variables, under the real Open MPI, and under
# a real Slurm whose daemons are started here (as root, with a MUNGE key of their own). What is not installed is left out.
# make check only: unit/test_launcher reads the same variables
# shellcheck source=test/cluster/cluster.bash
. "$(dirname "$0")/cluster.bash"
light_if_watched
idx_set "$work/data" 320 20
train="train --data $work/data --model $model --steps 4 --batch 32 --eval-every 0 --progress off"
daemons=() host=$(uname -n)
host=${host%%.*}
second=${host}x   # Slurm sorts hosts by their names: this one comes second

# one_run WHAT NODES FILE...: the files hold the output of one run of so many nodes, and of no other.
one_run() {
    local what=$1 nodes=$2
    shift 2
    checks=$((checks + 1))
    cat "$@" >"$work/out"
    grep -q " on .*, bsp, $nodes node" "$work/out" || bad "$what: no run of $nodes nodes"
    [ "$(grep -c ' on .*, bsp, ' "$work/out")" = 1 ] || bad "$what: not one run"
}
reports() { check "$1: stderr names the variables" grep -q "$2" "$work/out"; }

# --- torchrun
with_torchruns_variables() {
    local rank
    free_port
    # shellcheck disable=SC2086 # a list of words
    for rank in 1 0; do
        RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            "$echelon" $train >"$work/$rank.log" 2>&1 </dev/null &
        nodes[rank]=$!
    done
    node_ends 0 0 'rank 0 of 2, as torchrun reports \(RANK and WORLD_SIZE\); the nodes meet at 127.0.0.1' torchrun
    node_ends 1 0 'rank 1 of 2' torchrun
    one_run torchrun 2 "$work/0.log" "$work/1.log"
}

# --- Open MPI
mpi="mpirun --oversubscribe --bind-to none"
[ "$(id -u)" != 0 ] || mpi="$mpi --allow-run-as-root"
under_openmpi() {
    # shellcheck disable=SC2086 # lists of words
    $mpi -np 3 "$echelon" $train --report "$work/report" >"$work/mpi.log" 2>&1 </dev/null || bad "mpirun: status $?"
    one_run mpirun 3 "$work/mpi.log"
    reports mpirun 'rank 2 of 3, as Open MPI reports (OMPI_COMM_WORLD_RANK'
    # Options win: each of the two trains alone.
    # shellcheck disable=SC2086
    $mpi -np 2 "$echelon" $train --world 1 >"$work/mpi.log" 2>&1 </dev/null || bad "mpirun, --world 1: status $?"
    check "--world 1 under mpirun is two runs" [ "$(grep -c 'bsp, 1 node$' "$work/mpi.log")" = 2 ]
    cp "$work/mpi.log" "$work/out"
}

# --- Slurm
slurm_is_here() {
    local need
    for need in slurmctld slurmd srun sbatch munged; do command -v $need >/dev/null || return 1; done
    [ "$(id -u)" = 0 ]
}
# Each daemon has a port that is asked for: one of those that the system gives to connections may be taken at any time.
start_daemons() {
    local port_of_control port_of_first port_of_second node
    free_port && port_of_control=$port
    free_port && port_of_first=$port
    free_port && port_of_second=$port
    # This machine's name is the first node's: by it the ranks of the other find rank 0. On a busy machine every answer may come late.
    cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$port_of_control
SlurmUser=root
SlurmdUser=root
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/slurm
SlurmdSpoolDir=$work/slurm/%n
SlurmctldPidFile=$work/slurm/control.pid
SlurmdPidFile=$work/slurm/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
MessageTimeout=100
TCPTimeout=60
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 Port=$port_of_first CPUs=4
NodeName=$second NodeHostname=$second NodeAddr=127.0.0.1 Port=$port_of_second CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
END
    munged --force --foreground --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
        --log-file="$work/munge/log" --seed-file="$work/munge/seed" >"$work/munge.log" 2>&1 &
    daemons=($!)
    slurmctld -D >"$work/slurmctld.log" 2>&1 &
    daemons+=($!)
    for node in "$host" "$second"; do
        slurmd -D -N "$node" >"$work/slurmd.$node.log" 2>&1 &
        daemons+=($!)
    done
}
daemons_live() {
    local daemon
    for daemon in "${daemons[@]}"; do kill -0 "$daemon" 2>/dev/null || return 1; done
}
start_slurm() {
    local attempt tries
    export SLURM_CONF=$work/slurm.conf
    chmod 755 "$work"
    mkdir -m 755 "$work/munge" "$work/slurm"
    (umask 077 && head -c 128 /dev/urandom >"$work/munge/key")
    for attempt in 1 2 3; do   # another test may take a port between its choice and its use: that daemon ends
        start_daemons
        for tries in $(seq 240); do
            [ "$(timeout 20 sinfo -h -t idle -o %D 2>/dev/null)" != 2 ] || return 0
            daemons_live || break
            sleep 0.5
        done
        [ "$attempt" = 3 ] || stop_slurm
    done
    bad "Slurm does not start (attempt $attempt, try $tries)"
    return 1
}
stop_slurm() {
    kill "${daemons[@]}" 2>/dev/null
    sleep 1
    kill -KILL "${daemons[@]}" 2>/dev/null
    wait "${daemons[@]}" 2>/dev/null
}
trap '[ "$BASHPID" != $$ ] || stop_slurm; clean_up' EXIT
under_slurm() {
    # shellcheck disable=SC2086
    {
        srun -n 2 "$echelon" $train >"$work/step.log" 2>&1 </dev/null || bad "srun -n 2: status $?"
        one_run 'srun -n 2' 2 "$work/step.log"
        reports 'srun -n 2' 'rank 1 of 2, as Slurm reports (SLURM_PROCID'

        # The machine's name may stand for an address that is not loopback.
        if getent hosts "$host" >/dev/null; then
            srun -N 2 -n 3 "$echelon" $train --insecure >"$work/step.log" 2>&1 </dev/null || bad "srun -N 2: status $?"
            one_run 'srun -N 2 -n 3' 3 "$work/step.log"
            reports 'srun -N 2' "the nodes meet at $host:[0-9]"
        fi

        # A script of a job for two tasks is one process, and waits for nobody; its step is a run.
        sbatch -W -n 2 -o "$work/alone.log" --wrap "$echelon $train" >/dev/null || bad "sbatch, alone: status $?"
        one_run 'a batch script' 1 "$work/alone.log"
        sbatch -W -n 2 -o "$work/step.log" --wrap "srun $echelon $train" >/dev/null || bad "sbatch, srun: status $?"
        one_run "a batch script's step" 2 "$work/step.log"
        salloc -n 2 "$echelon" $train >"$work/alone.log" 2>&1 </dev/null || bad "salloc: status $?"
        one_run 'a shell in an allocation' 1 "$work/alone.log"

        # Slurm lists hosts in its own order, so nobody knows where task 0 is.
        srun -N 2 -n 2 -m arbitrary -w "$second,$host" "$echelon" $train >"$work/out" 2>&1 </dev/null
        check 'arbitrary order: a coordinator is asked for' grep -q 'option coordinator is missing: 2 nodes need one' "$work/out"
    }
}

with_torchruns_variables
export OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4
ends_with 2 'rank 1 of 4, as Open MPI reports .*; it names no place to meet' train --data "$work/data"
ends_with 2 'option coordinator is missing: 4 nodes need one HOST:PORT' train --data "$work/data"
# Options on the command line, or none of it, win over a launcher's variables.
for options in '--world 1' '--rank 0' '--local 1' '--launcher off'; do
    # shellcheck disable=SC2086
    ends_with 0 'bsp, 1 node$' $train $options
    check "$options leaves Open MPI out" [ ! -s "$work/err" ]
done
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
absent=
if command -v mpirun >/dev/null && mpirun --version 2>/dev/null | grep -q 'Open MPI'; then under_openmpi; else absent="Open MPI"; fi
if slurm_is_here; then
    if start_slurm; then under_slurm; fi
else
    absent="$absent${absent:+ and }Slurm (slurmctld, slurmd, munged, and root)"
fi
[ -z "$absent" ] || echo "left out, not here: $absent"
verdict launchers
