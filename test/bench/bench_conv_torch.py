# SPDX-License-Identifier: Apache-2.0
# 3 x 3 convolutions in PyTorch, one thread, channels last, the layers of bench_conv: medians of forward, to data and to weights.
import time

import torch

torch.set_num_threads(1)
LAYERS = [(3, 64, 32), (64, 64, 32), (64, 128, 16), (128, 128, 16), (128, 256, 8), (256, 256, 8), (256, 512, 4), (512, 512, 4), (512, 512, 2)]


def median_seconds(run):
    run()
    seconds, until = [], time.perf_counter() + 0.35
    while len(seconds) < 5 or (time.perf_counter() < until and len(seconds) < 400):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[len(seconds) // 2]


for channels, out, side in LAYERS:
    x, w, g = (torch.randn(shape).to(memory_format=torch.channels_last)
               for shape in ((32, channels, side, side), (out, channels, 3, 3), (32, out, side, side)))

    def backward(data, weights):
        return torch.ops.aten.convolution_backward(g, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [data, weights, False])

    runs = (lambda: torch.nn.functional.conv2d(x, w, padding=1)), (lambda: backward(True, False)), (lambda: backward(False, True))
    flops = 2 * 9 * channels * out * side * side * 32
    parts = [median_seconds(run) for run in runs]
    print(f"{channels:3d} to {out:3d} @ {side:<2d}  " + "".join(f"  {1e3 * s:7.2f} ms {flops / s * 1e-9:4.0f} GF" for s in parts), flush=True)
