# SPDX-License-Identifier: Apache-2.0
# One process of a PyTorch DDP run over gloo, one thread, on generated images: what sync.sh compares Echelon with.
#     bench_ddp_torch.py ECHELON MODEL BATCH STEPS VARIANT
# BATCH is of this process. Rank, world and coordinator come from the environment, as tools/testbed sets them; in a world of one there is
# no DDP. VARIANT is one of VARIANTS. Rank 0 prints a name and a value a line:
#     images_per_second, step_seconds   of STEPS steps after a few that warm up, by the clock, of the whole world
#     processor_seconds                 of this process a step, all its threads
#     link_bytes                        a step, in the busiest direction of a link: a ring all-reduce of the gradients
import datetime
import os
import sys
import time

import torch
from torch import distributed, nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pytorch"))
import net  # noqa: E402

VARIANTS = {"default": {}, "view": {"gradient_as_bucket_view": True}}   # options of DistributedDataParallel
WARM_UP = 3   # DDP lays its buckets out anew after the first step

echelon, name, batch, steps, variant = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
rank, world = int(os.environ.get("ECH_RANK", "0")), int(os.environ.get("ECH_WORLD", "1"))
torch.set_num_threads(1)
torch.manual_seed(1 + rank)
model = net.load(echelon, name)
rows = torch.randn(batch, *model.input)
classes = torch.randint(0, model.classes, (batch,))
gradient_bytes = 4 * sum(p.numel() for p in model.parameters())
if world > 1:
    distributed.init_process_group("gloo", init_method="tcp://" + os.environ["ECH_COORDINATOR"], rank=rank, world_size=world,
                                   timeout=datetime.timedelta(minutes=10))
    model = nn.parallel.DistributedDataParallel(model, **VARIANTS[variant])
optimiser = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
loss_of = nn.CrossEntropyLoss()


def train(count):
    for _ in range(count):
        optimiser.zero_grad()
        loss_of(model(rows), classes).backward()
        optimiser.step()
    if world > 1:
        distributed.barrier()


train(WARM_UP)
start, processor = time.perf_counter(), time.process_time()
train(steps)
step, processor = (time.perf_counter() - start) / steps, (time.process_time() - processor) / steps
if rank == 0:
    print("images_per_second %.4f\nstep_seconds %.5f\nprocessor_seconds %.5f\nlink_bytes %.0f"
          % (batch * world / step, step, processor, 2 * (world - 1) / world * gradient_bytes))
if world > 1:
    distributed.destroy_process_group()
