# SPDX-License-Identifier: Apache-2.0
# LeNet-5 on MNIST, Echelon against PyTorch, from the same weights and on the same batches:
#     compare.py ECHELON DATA [--threads T]
# ECHELON is the command, DATA a folder with MNIST's four idx files. Needs torch and numpy. Exit status 0: all within bounds.
#
# Restarted: PyTorch trains 30 steps. Before each, its weights and the batch go to Echelon, which makes one step with a
# learning rate of 512 and neither momentum nor decay, so that (before - after) / 512 is its gradient. 512 is a power of two and
# large: the weights' own rounding, 6e-8 of a weight, is divided by it too.
# Free: both train 10 steps by themselves, with momentum and decay, and with Adam and AdamW.
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy
import torch
from torch import nn

import net

BATCH, STEPS, FREE = 64, 30, 10
LR, MOMENTUM, DECAY = 0.02, 0.9, 5e-4
# Adam divides a gradient by its size, so one that is all rounding moves its weight as far as any: an epsilon of a usual gradient's size.
# AdamW with a decay of 0.01 meets a ReLU so near its kink that it flips with the order of a sum, and moves fc1 by 1e-3; with 0.1 it meets none.
ADAM_DECAY, ADAMW_DECAY, EPSILON = 0.01, 0.1, 1e-3
PROBE = 512.0
LOSS_BOUND, GRADIENT_BOUND, FREE_BOUND = 1e-5, 1e-4, 1e-4
# One node, and others whose sums must be the same; the last of a pair says how many of the 30 steps it is tried on.
WAYS = [([], STEPS), (["--local", "3", "--shares", "40,4,20"], 5), (["--local", "4", "--separate", "1", "--shares", "16,4,0,44"], 5),
        (["--deterministic"], 5)]

echelon, data = sys.argv[1:3]
torch.manual_seed(1)


# --- files

def read_idx(name):
    """Images or labels of the training set, as uint8."""
    for path in (os.path.join(data, name), os.path.join(data, name.replace("-idx", ".idx"))):
        if os.path.exists(path):
            raw = open(path, "rb").read()
            dims = struct.unpack(">%dI" % raw[3], raw[4:4 + 4 * raw[3]])
            return numpy.frombuffer(raw, numpy.uint8, offset=4 + 4 * raw[3]).reshape(dims)
    sys.exit("%s has no %s: give a folder with MNIST's four files, unpacked" % (data, name))


def write_idx(path, array):
    with open(path, "wb") as out:
        out.write(struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(">%dI" % array.ndim, *array.shape))
        out.write(numpy.ascontiguousarray(array).tobytes())


def write_data(folder, images, labels):
    """A data set of one batch, which is its test set too."""
    os.makedirs(folder, exist_ok=True)
    for part in "train", "t10k":
        write_idx(os.path.join(folder, part + "-images-idx3-ubyte"), images)
        write_idx(os.path.join(folder, part + "-labels-idx1-ubyte"), labels)


def read_weights(path):
    raw = open(path, "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    found = {}
    for name, t in json.loads(raw[8:8 + size].decode()).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in t["data_offsets"])
            found[name] = torch.from_numpy(numpy.frombuffer(raw[begin:end], "<f4").reshape(t["shape"]).copy())
    return found


def write_weights(path, weights):
    header, at, body = {}, 0, b""
    for name, value in weights.items():
        piece = value.detach().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + len(piece)]}
        at, body = at + len(piece), body + piece
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + body)


def train(folder, *options):
    """Runs `echelon train`; returns the weights and the loss."""
    save, report = (os.path.join(folder, name) for name in ("saved", "report"))
    command = [echelon, "train", "--model", "lenet5", "--progress", "off", "--no-shuffle", "--eval-every", "0", "--save", save,
               "--report", report] + [str(o) for o in options] + sys.argv[3:]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit("%s\nended with %d:\n%s" % (" ".join(command), done.returncode, done.stdout.decode()))
    return read_weights(save), json.load(open(report))["train_loss"]


# --- PyTorch's side

def weights_of(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def batch(k):
    x = (torch.from_numpy(images[k * BATCH:(k + 1) * BATCH].astype(numpy.float32)) / 255 - 0.1307) / 0.3081
    return x.unsqueeze(1), torch.from_numpy(labels[k * BATCH:(k + 1) * BATCH].astype(numpy.int64))


# What trains freely: PyTorch's class with its arguments, and the command's options.
OPTIMISERS = [(torch.optim.SGD, {"lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY}, ["--lr", LR, "--momentum", MOMENTUM, "--weight-decay", DECAY]),
              (torch.optim.Adam, {"lr": 0.001, "weight_decay": ADAM_DECAY, "eps": EPSILON},
               ["--optimizer", "adam", "--weight-decay", ADAM_DECAY, "--epsilon", EPSILON]),
              (torch.optim.AdamW, {"lr": 0.001, "weight_decay": ADAMW_DECAY, "eps": EPSILON},
               ["--optimizer", "adamw", "--weight-decay", ADAMW_DECAY, "--epsilon", EPSILON])]


def trajectory(start, steps, kind):
    """(weights before, loss, gradients) of each step, and the weights after the last."""
    model = net.load(echelon, "lenet5")
    model.load_state_dict(start)
    optimiser = kind[0](model.parameters(), **kind[1])
    seen = []
    for k in range(steps):
        x, y = batch(k)
        before = weights_of(model)
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        seen.append((before, loss.item(), {name: p.grad.detach().clone() for name, p in model.named_parameters()}))
        optimiser.step()
    return seen, weights_of(model)


# --- the comparison

def apart(a, b):
    """The largest |a - b| / |a| of a tensor, by name."""
    return max((((a[n].double() - b[n].double()).norm() / a[n].double().norm()).item(), n) for n in a)


def verdict(what, value, bound, where=""):
    good = value <= bound
    print("  %-46s %8.1e  (at most %.0e)  %s%s" % (what, value, bound, "yes" if good else "NO", where and ", " + where))
    return good


images, labels = read_idx("train-images-idx3-ubyte"), read_idx("train-labels-idx1-ubyte")
with tempfile.TemporaryDirectory() as work:
    start, _ = train(work, "--data", data, "--steps", 0)
    steps, end = trajectory(start, STEPS, OPTIMISERS[0])
    print("PyTorch %s, LeNet-5, batch %d; loss from %.4f to %.4f" % (torch.__version__, BATCH, steps[0][1], steps[-1][1]))
    init, one = os.path.join(work, "init"), os.path.join(work, "batch")
    worst = [[0.0, (0.0, "")] for _ in WAYS]
    for k, (before, loss, gradients) in enumerate(steps):
        write_weights(init, before)
        write_data(one, images[k * BATCH:(k + 1) * BATCH], labels[k * BATCH:(k + 1) * BATCH])
        for way, (options, count) in zip(worst, WAYS):
            if k >= count:
                continue
            after, told = train(work, "--data", one, "--init", init, "--steps", 1, "--batch", BATCH, "--lr", PROBE, "--momentum", 0,
                                "--weight-decay", 0, *options)
            way[0] = max(way[0], abs(told - loss))
            way[1] = max(way[1], apart(gradients, {n: (before[n].double() - after[n].double()) / PROBE for n in before}))
    good = True
    for (loss, (gradient, name)), (options, count) in zip(worst, WAYS):
        print("%d steps, each from PyTorch's weights: %s" % (count, " ".join(options) or "one node"))
        good &= verdict("loss", loss, LOSS_BOUND)
        good &= verdict("gradient of a tensor, of its norm", gradient, GRADIENT_BOUND, name)
    for kind in OPTIMISERS:
        _, free_end = trajectory(start, FREE, kind)
        moved = {n: free_end[n] - start[n] for n in start}
        for options, _ in WAYS:
            print("%d free steps, %s: %s" % (FREE, " ".join(str(o) for o in kind[2]), " ".join(options) or "one node"))
            after, _ = train(work, "--data", data, "--steps", FREE, "--batch", BATCH, *kind[2], *options)
            value, name = apart(moved, {n: after[n] - start[n] for n in start})
            good &= verdict("weights of a tensor, of what they moved", value, FREE_BOUND, name)
sys.exit(0 if good else 1)
