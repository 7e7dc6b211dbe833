# SPDX-License-Identifier: Apache-2.0
# ResNet-18, VGG-19 and AlexNet on CIFAR-10, Echelon's gradients against PyTorch's, batch by batch from PyTorch's weights. AlexNet sees the
# pictures seven times as wide and high, and has no dropout, which each library draws for itself.
#     compare_nets.py BUILD DATA [STEPS [NET...]]
# BUILD has Echelon (echelon, test/pytorch/gradients, double/test/pytorch/gradients), DATA CIFAR-10's binary files. Exit status 0: all
# within bounds.
#
# PyTorch trains STEPS (30) steps in float. At each, for the same weights and batch:
# (a) Echelon in double against PyTorch in double: the gradient of each tensor within 1e-8 of its norm;
# (b) in float the loss within 1e-5, and the distance of all gradients from (a) at most twice PyTorch's own, with Winograd's F(4x4) twelve
#     times, in the median over the batches. One ReLU or maximum that rounding turns moves VGG-19's gradients by 1e-2, in PyTorch as here;
# (c) so the nets with tanh in place of ReLU and means in place of maxima, where nothing turns: within 1e-4, with F(4x4) 5e-4.
import os
import statistics
import subprocess
import sys
import tempfile

import numpy
import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import net as nets  # noqa: E402

BATCH, MOMENTUM = 8, 0.9
LR = {"resnet18": 0.02, "vgg19": 0.02, "alexnet": 0.002}   # AlexNet has no batch-norm: at 0.02 PyTorch's loss climbs to 43 in 30 batches
DOUBLE_BOUND, LOSS_BOUND = 1e-8, 1e-5
FLOAT = {"plain": (2, 1e-4), "close": (2, 1e-4), "fast": (12, 5e-4)}   # times PyTorch's distance; of the norm, where nothing turns

build, data = sys.argv[1:3]
steps = int(sys.argv[3]) if len(sys.argv) > 3 else 30
echelon = os.path.join(build, "echelon")
torch.manual_seed(1)
good = True


def batches(side):
    """Pictures of side x side: each pixel becomes a square."""
    raw = numpy.fromfile(os.path.join(data, "data_batch_1.bin"), numpy.uint8).reshape(-1, 3073)
    mean, deviation = ([[v] for v in values] for values in ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)))
    while True:
        for k in range(len(raw) // BATCH):
            part = raw[k * BATCH:(k + 1) * BATCH]
            x = (part[:, 1:].reshape(BATCH, 3, 1024) / 255.0 - numpy.array(mean)) / numpy.array(deviation)
            x = x.astype(numpy.float32).reshape(BATCH, 3, 32, 32).repeat(side // 32, axis=2).repeat(side // 32, axis=3)
            yield torch.from_numpy(x), torch.from_numpy(part[:, 0].astype(numpy.int64))


class Ours:
    """Echelon's gradients, of one kind of kernels."""

    def __init__(self, path, model, kernels):
        self.process = subprocess.Popen([path, model, kernels, str(BATCH)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def gradients(self, net, x, y):
        state = net.state_dict()
        pieces = [state[name].detach().float().numpy().ravel() for name in names(net)]
        self.process.stdin.write(b"".join(p.astype("<f4").tobytes() for p in pieces + [x.numpy().ravel()]) + y.numpy().astype("<i4").tobytes())
        self.process.stdin.flush()
        total = 1 + sum(p.size for p in pieces)
        got = numpy.frombuffer(self.process.stdout.read(8 * total), "<f8")
        made, at = {}, 1
        for name, p in zip(names(net), pieces):
            if "running" not in name:
                made[name] = got[at:at + p.size]
            at += p.size
        return got[0], made


def names(net):
    """Parameters and running averages in the order of Echelon's flat array."""
    return [n for n in net.state_dict() if "num_batches" not in n]


def torchs(net, x, y):
    net.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    return loss.item(), {n: p.grad.detach().double().numpy().ravel() for n, p in net.named_parameters()}


def apart(a, b):
    """|a - b| / |a| over all tensors."""
    return (sum(((a[n] - b[n])**2).sum() for n in a) / sum((a[n]**2).sum() for n in a))**0.5


def worst(a, b):
    return max((numpy.linalg.norm(a[n] - b[n]) / max(numpy.linalg.norm(a[n]), 1e-30), n) for n in a)


def verdict(what, value, bound, where=""):
    global good
    within = value <= bound
    good &= within
    print("  %-60s %8.1e  (at most %.1e)  %s%s" % (what, value, bound, "yes" if within else "NO", where and ", " + where), flush=True)


def compare(title, path, lr, smooth):
    model = nets.load(echelon, path)
    optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM)
    inner = Ours(os.path.join(build, "double/test/pytorch/gradients"), path, "reference")
    outer = {kind: Ours(os.path.join(build, "test/pytorch/gradients"), path, kind) for kind in FLOAT}
    doubles, losses, peers, distances = (0.0, ""), {k: 0.0 for k in FLOAT}, [], {k: [] for k in FLOAT}
    for _, (x, y) in zip(range(steps), batches(model.input[1])):
        twin = nets.load(echelon, path).double()
        twin.load_state_dict(model.state_dict())
        _, truth = torchs(twin, x.double(), y)
        _, mine = inner.gradients(model, x, y)
        doubles = max(doubles, worst(truth, mine))
        made = {kind: ours.gradients(model, x, y) for kind, ours in outer.items()}
        loss, own = torchs(model, x, y)
        peers.append(apart(truth, own))
        for kind, (told, gradients) in made.items():
            losses[kind] = max(losses[kind], abs(told - loss))
            distances[kind].append(apart(truth, gradients))
        optimiser.step()
    print("%s, %d batches of %d, loss %.3f; PyTorch's floats are %.1e from its doubles" % (title, steps, BATCH, loss, statistics.median(peers)))
    verdict("(a) in double, gradient of a tensor, of its norm", doubles[0], DOUBLE_BOUND, doubles[1])
    for kind, (times, bound) in FLOAT.items():
        verdict("(b) %s: loss" % kind, losses[kind], LOSS_BOUND)
        if smooth:
            verdict("(c) %s: gradients, of their norm" % kind, max(distances[kind]), bound)
        else:
            verdict("(b) %s: gradients, of PyTorch's distance" % kind, statistics.median(d / p for d, p in zip(distances[kind], peers)), times)


with tempfile.TemporaryDirectory() as work:
    for name in sys.argv[4:] or ["resnet18", "vgg19", "alexnet"]:
        text = subprocess.run([echelon, "model", name, "--text"], check=True, stdout=subprocess.PIPE).stdout.decode()
        text = "".join(line for line in text.splitlines(True) if not line.startswith("dropout"))
        path = os.path.join(work, name)
        for title, smooth in (name, False), (name + " with tanh and means", True):
            with open(path, "w") as out:
                out.write(text.replace("relu", "tanh").replace("max_pool", "avg_pool") if smooth else text)
            compare(title, path, LR[name], smooth)
sys.exit(0 if good else 1)
