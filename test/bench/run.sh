#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `make bench` runs: the machine, then each bench in turn. Each can be run alone, too.
#   make bench ONLY="step cluster"     of: step, product, opencl, conv, threads, accuracy, accuracy_nets, mnist99, cluster, sync,
#                                      separation, sweep, allreduce, predictions, grid, merge, sim_live, sim, plan, memory, net, crypto,
#                                      record, kills; and on an NVIDIA GPU gpu_texts, conv_cuda, step_cuda
# What is printed is also kept in build/bench/bench.txt.
source "$(dirname "$0")/common.sh"
here=$root/test/bench
export ECHELON=$echelon B=${B:-$root/build}

# Where samples are few, a net of 80 MB on one node: its copies of the model, beside activations. Then nodes that train LeNet-5, with MNIST
# loaded: one alone, and the largest of four in a cluster (rank 0, which looks).
memory() {
    bash "$root/test/cluster/test_memory.sh" | grep '^one node' || true
    local data report=$out/memory.json
    data=$(find_mnist) || { echo "no MNIST: skipped"; return 0; }
    local title options peak
    while IFS=: read -r title options; do
        "$echelon" train --data "$data" --steps 200 --progress off --report "$report" $options > /dev/null
        peak=$(value "$report" resident_peak)
        printf '  %-36s %6.1f MiB resident at most   <= 128 %s\n' "$title" "$(awk -v b="$peak" 'BEGIN { print b / 1048576 }')" \
            "$(compare "$peak" '<=' $((128 << 20)))"
    done <<< "one node:
rank 0 of four, bsp:--local 4
rank 0 of four, gssp, head apart:--local 4 --sync gssp"
}

bench() {
    case $1 in
    step) bash "$here/step.sh" ;;
    step_cuda) DEVICE=cuda bash "$here/step.sh" ;;
    accuracy | accuracy_nets | allreduce | predictions | grid | merge | mnist99 | cluster | sync | separation | sweep | product | opencl | \
        conv | conv_cuda | gpu_texts | threads | sim_live | net | record | kills)
        bash "$here/$1.sh"
        ;;
    memory) memory ;;
    crypto | sim | plan) "$B/test/bench/bench_$1" ;;
    *)
        echo "there is no bench '$1': step, product, opencl, conv, threads, accuracy, accuracy_nets, mnist99, cluster, sync, separation," \
            "sweep, allreduce, predictions, grid, merge, sim_live, sim, plan, memory, net, crypto, record, kills, gpu_texts," \
            "conv_cuda, step_cuda"
        return 2
        ;;
    esac
}

main() {
    local name status failed=
    machine
    for name in ${ONLY:-step mnist99 product opencl conv threads memory accuracy cluster sim_live sim plan net crypto record kills \
        gpu_texts conv_cuda step_cuda}; do
        printf '\n== %s\n' "$name"
        status=0
        bench "$name" || status=$?
        [ $status = 0 ] || [ $status = 77 ] || failed+=" $name"
        [ $status != 77 ] || echo "stays open: something that it needs, or compares with, is not here"
    done
    echo
    [ -z "$failed" ] || { echo "failed:$failed"; return 1; }
    echo "all ran"
}
main 2>&1 | tee "$out/bench.txt"
