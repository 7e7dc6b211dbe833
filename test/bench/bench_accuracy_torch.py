# SPDX-License-Identifier: Apache-2.0
# One pass over part of CIFAR-10 in PyTorch, as accuracy_nets.sh asks Echelon for it: prints the accuracy on the test set, in percent.
#     bench_accuracy_torch.py ECHELON MODEL DATA SEED BATCH STEPS RATE WARMUP (in epochs)
import math
import os
import sys

import numpy
import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pytorch"))
import net  # noqa: E402

echelon, name, data = sys.argv[1:4]
seed, batch, steps = (int(word) for word in sys.argv[4:7])
rate, warmup = float(sys.argv[7]), float(sys.argv[8])
torch.manual_seed(seed)
MEAN, DEVIATION = (torch.tensor(v).view(3, 1, 1) for v in ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)))


def read(*files):
    raw = numpy.concatenate([numpy.fromfile(os.path.join(data, f), numpy.uint8).reshape(-1, 3073) for f in files])
    return torch.from_numpy(raw[:, 1:].reshape(-1, 3, 32, 32).copy()), torch.from_numpy(raw[:, 0].astype(numpy.int64))


def normal(x):
    return ((x.float() / 255 - MEAN) / DEVIATION).contiguous(memory_format=torch.channels_last)


images, labels = read(*("data_batch_%d.bin" % k for k in range(1, 6)))
model = net.load(echelon, name).to(memory_format=torch.channels_last)
optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4, nesterov=True)
order = torch.randperm(len(images))
rising = warmup * len(images) / batch   # steps
for step in range(steps):
    for group in optimiser.param_groups:
        group["lr"] = rate * (step / rising if step < rising else 0.5 * (1 + math.cos(math.pi * (step - rising) / (steps - rising))))
    some = order[step * batch:(step + 1) * batch]
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(normal(images[some])), labels[some]).backward()
    optimiser.step()
model.eval()
images, labels = read("test_batch.bin")
with torch.no_grad():
    right = sum((model(normal(images[i:i + 250])).argmax(1) == labels[i:i + 250]).sum().item() for i in range(0, len(images), 250))
print("%.2f" % (100 * right / len(images)))
