# SPDX-License-Identifier: Apache-2.0
# Matrix products in PyTorch (MKL, in its wheels), one thread, the sizes of bench_product given as IN,OUT,BATCH: medians of the product that
# a fully connected layer makes forward, to data and to weights, nothing packed beforehand, the result's memory given.
import sys
import time

import torch

torch.set_num_threads(1)


def median_seconds(run):
    run()
    seconds, until = [], time.perf_counter() + 0.35
    while len(seconds) < 5 or (time.perf_counter() < until and len(seconds) < 400):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[len(seconds) // 2]


for size in sys.argv[1:]:
    inputs, out, batch = map(int, size.split(","))
    w, x, y = torch.randn(out, inputs), torch.randn(inputs, batch), torch.randn(out, batch)
    to_w, to_x, to_y = torch.empty_like(w), torch.empty_like(x), torch.empty_like(y)
    runs = (lambda: torch.mm(w, x, out=to_y)), (lambda: torch.mm(w.t(), y, out=to_x)), (lambda: torch.mm(y, x.t(), out=to_w))
    flops = 2 * inputs * out * batch
    parts = [median_seconds(run) for run in runs]
    print(f"{inputs:5d} to {out:4d}, batch {batch:4d}" + "".join(f"  {1e3 * s:8.3f} ms {flops / s * 1e-9:4.0f} GF" for s in parts), flush=True)
