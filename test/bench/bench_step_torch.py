# SPDX-License-Identifier: Apache-2.0
# A training step of one of Echelon's models in PyTorch, one thread: prints images a second and the process' peak of memory in MiB.
#     bench_step_torch.py ECHELON MODEL BATCH [VARIANT]
# Without VARIANT it tries all of them and prints "VARIANT SPEED MEMORY" of the fastest.
import os
import resource
import statistics
import sys
import time

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pytorch"))
import net  # noqa: E402

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

# name: (options of SGD, oneDNN on, channels last, compiled). Old releases lack some options; those variants are skipped.
VARIANTS = {
    "plain": ({}, True, False, False),
    "fused": ({"fused": True}, True, False, False),
    "fused-native": ({"fused": True}, False, False, False),
    "foreach-native": ({"foreach": True}, False, False, False),
    "fused-channels-last": ({"fused": True}, True, True, False),
    "foreach-channels-last": ({"foreach": True}, True, True, False),
    "compiled": ({"fused": True}, True, False, True),
    "compiled-channels-last": ({"fused": True}, True, True, True),
}


def images_per_second(echelon, name, batch, variant, runs, seconds):
    options, onednn, channels_last, compiled = VARIANTS[variant]
    torch.manual_seed(1)
    model = net.load(echelon, name)
    x = torch.randn(batch, *model.input)
    labels = torch.randint(0, model.classes, (batch,))
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, **options)
    loss_of = nn.CrossEntropyLoss()
    run_model = torch.compile(model) if compiled else model

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss_of(run_model(x), labels).backward()
        optimiser.step()

    speeds = []
    with torch.backends.mkldnn.flags(enabled=onednn):
        for run in range(-1, runs):  # the first one warms up
            start, images = time.perf_counter(), 0
            while time.perf_counter() - start < seconds:
                step()
                images += batch
            if run >= 0:
                speeds.append(images / (time.perf_counter() - start))
    return statistics.median(speeds)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


echelon, name, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
if len(sys.argv) > 4:
    print("%.1f %.0f" % (images_per_second(echelon, name, batch, sys.argv[4], 7, 0.25), peak()))
else:
    best = (0.0, "")
    for variant in VARIANTS:
        try:
            speed = images_per_second(echelon, name, batch, variant, 3, 0.25)
            print("    %-24s %10.1f" % (variant, speed), file=sys.stderr)
            best = max(best, (speed, variant))
        except Exception as problem:   # an option or a compiler that is not there
            print("    %-24s %s" % (variant, str(problem).splitlines()[0] if str(problem) else type(problem).__name__), file=sys.stderr)
    print("%s %.1f" % (best[1], best[0]))
