# SPDX-License-Identifier: Apache-2.0
# LeNet-5 in PyTorch, one thread, eager: prints images a second of training, the median of some runs.
#     bench_lenet_torch.py BATCH [VARIANT]
# Without VARIANT it tries all of them and prints "VARIANT SPEED" of the fastest.
import statistics
import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


# name: (options of SGD, oneDNN on, channels last). Old releases lack some options; those variants are skipped.
VARIANTS = {
    "plain": ({}, True, False),
    "foreach": ({"foreach": True}, True, False),
    "fused": ({"fused": True}, True, False),
    "fused-native": ({"fused": True}, False, False),
    "foreach-native": ({"foreach": True}, False, False),
    "foreach-channels-last": ({"foreach": True}, True, True),
}


def images_per_second(batch, variant, runs, seconds):
    options, onednn, channels_last = VARIANTS[variant]
    torch.manual_seed(1)
    model = lenet5()
    x = torch.randn(batch, 1, 28, 28)
    labels = torch.randint(0, 10, (batch,))
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, **options)
    loss_of = nn.CrossEntropyLoss()

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss_of(model(x), labels).backward()
        optimiser.step()

    speeds = []
    with torch.backends.mkldnn.flags(enabled=onednn):
        for run in range(-1, runs):  # the first one warms up
            start, images = time.perf_counter(), 0
            while time.perf_counter() - start < seconds:
                for _ in range(5):
                    step()
                images += 5 * batch
            if run >= 0:
                speeds.append(images / (time.perf_counter() - start))
    return statistics.median(speeds)


batch = int(sys.argv[1])
if len(sys.argv) > 2:
    print("%.0f" % images_per_second(batch, sys.argv[2], 7, 0.25))
else:
    best = (0.0, "")
    for name in VARIANTS:
        try:
            best = max(best, (images_per_second(batch, name, 3, 0.25), name))
        except (TypeError, RuntimeError):
            pass
    print("%s %.0f" % (best[1], best[0]))
