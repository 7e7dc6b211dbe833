# SPDX-License-Identifier: Apache-2.0
# A training step of one of Echelon's models in PyTorch, one thread: prints images a second and the process' peak of memory in MiB.
#     bench_step_torch.py [--cuda fp32|tf32|bf16] ECHELON MODEL BATCH [VARIANT]
# Without VARIANT it tries all of them and prints "VARIANT SPEED MEMORY" of the fastest. With --cuda on the first card, whose memory it then
# tells, with cuDNN choosing the fastest of its algorithms: fp32 without TF32, tf32 with it, bf16 by autocast. A step there brings its rows
# and labels to the card from pinned memory, as ours does; the clock is read when the card is done.
import contextlib
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
precision = None   # on the processor
if sys.argv[1] == "--cuda":
    precision = sys.argv[2]
    del sys.argv[1:3]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"

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
if precision:   # there is no oneDNN to do without
    VARIANTS = {name: variant for name, variant in VARIANTS.items() if variant[1]}


def images_per_second(echelon, name, batch, variant, runs, seconds):
    options, onednn, channels_last, compiled = VARIANTS[variant]
    torch.manual_seed(1)
    model = net.load(echelon, name)
    rows = torch.randn(batch, *model.input)
    classes = torch.randint(0, model.classes, (batch,))
    if channels_last:
        model, rows = model.to(memory_format=torch.channels_last), rows.to(memory_format=torch.channels_last)
    if precision:
        model, rows, classes = model.to("cuda"), rows.pin_memory(), classes.pin_memory()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, **options)
    loss_of = nn.CrossEntropyLoss()
    run_model = torch.compile(model) if compiled else model

    def step():
        x, labels = rows, classes
        if precision:
            x, labels = rows.to("cuda", non_blocking=True), classes.to("cuda", non_blocking=True)
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext():
            loss = loss_of(run_model(x), labels)
        loss.backward()
        optimiser.step()

    def finish():
        if precision:
            torch.cuda.synchronize()

    speeds = []
    with torch.backends.mkldnn.flags(enabled=onednn):
        for run in range(-1, runs):  # the first one warms up
            start, images = time.perf_counter(), 0
            while time.perf_counter() - start < seconds:
                step()
                images += batch
            finish()
            if run >= 0:
                speeds.append(images / (time.perf_counter() - start))
    return statistics.median(speeds)


def peak():
    if precision:
        return torch.cuda.max_memory_allocated() / 2**20
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
