# SPDX-License-Identifier: Apache-2.0
# Matrix products in PyTorch (MKL, in its wheels), one thread, the sizes of bench_product given as IN,OUT,BATCH: medians of the product that
# a fully connected layer makes forward, to data and to weights, nothing packed beforehand, the result's memory given. To data is, as in
# bench_unit.h, what both products of a backward take longer than that to weights alone.
import sys
import time

import torch

torch.set_num_threads(1)


def seconds_of(products):
    start = time.perf_counter()
    for product in products:
        product()
    return time.perf_counter() - start


def median_seconds(products, without=()):
    seconds_of(products)
    seconds, until = [], time.perf_counter() + 0.35
    while len(seconds) < 5 or (time.perf_counter() < until and len(seconds) < 400):
        seconds.append(seconds_of(products) - seconds_of(without))
    return sorted(seconds)[len(seconds) // 2]


for size in sys.argv[1:]:
    inputs, out, batch = map(int, size.split(","))
    w, x, dy = torch.randn(out, inputs), torch.randn(inputs, batch), torch.randn(out, batch)
    dw, dx, y = torch.empty_like(w), torch.empty_like(x), torch.empty_like(dy)
    forward, data, weights = (lambda: torch.mm(w, x, out=y)), (lambda: torch.mm(w.t(), dy, out=dx)), (lambda: torch.mm(dy, x.t(), out=dw))
    flops = 2 * inputs * out * batch
    parts = median_seconds([forward]), median_seconds([weights, data], [weights]), median_seconds([weights])
    print(f"{inputs:5d} to {out:4d}, batch {batch:4d}" + "".join(f"  {1e3 * s:8.3f} ms {flops / s * 1e-9:4.0f} GF" for s in parts), flush=True)
