# SPDX-License-Identifier: Apache-2.0
# One process of repeated all-reduces of MIB MiB of floats by torch.distributed over gloo, one thread: what allreduce.sh compares Echelon
# with.
#     bench_allreduce_torch.py MIB STEPS
# Rank, world and coordinator come from the environment, as tools/testbed sets them. Rank 0 prints a name and a value a line:
#     seconds, processor_seconds   an all-reduce, as bench_allreduce prints them
import datetime
import os
import sys
import time

import torch
from torch import distributed

WARM_UP = 3

mib, steps = int(sys.argv[1]), int(sys.argv[2])
rank, world = int(os.environ["ECH_RANK"]), int(os.environ["ECH_WORLD"])
torch.set_num_threads(1)
distributed.init_process_group("gloo", init_method="tcp://" + os.environ["ECH_COORDINATOR"], rank=rank, world_size=world,
                               timeout=datetime.timedelta(minutes=10))
index = torch.arange(mib * 2**18)
addends = [((index * 7 + r * 3) % 13 - 6).float() for r in range(world)]
values, total = addends[rank].clone(), sum(addends)
distributed.all_reduce(values)
if not torch.equal(values, total):
    sys.exit("the sum is wrong")
values.zero_()   # sums of sums would grow without end
for _ in range(WARM_UP - 1):
    distributed.all_reduce(values)
start, processor = time.perf_counter(), time.process_time()
for _ in range(steps):
    distributed.all_reduce(values)
seconds, processor = (time.perf_counter() - start) / steps, (time.process_time() - processor) / steps
if rank == 0:
    print("seconds %.5f\nprocessor_seconds %.5f" % (seconds, processor))
distributed.destroy_process_group()
