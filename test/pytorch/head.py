# SPDX-License-Identifier: Apache-2.0
# A PyTorch trunk with a head of Echelon's: torch computes two convolutions, Echelon the fully connected layers, on a node that trains them
# for all. Processes of one machine learn MNIST. In the first step of each, when the head's weights are still those that torch has too, the
# gradient that comes back and the loss are held against torch's own; at the end torch's head with the trained weights against Echelon's.
#     head.py SESSION.SO FOLDER-WITH-MNIST [NODES [SYNC]]
import ctypes
import os
import socket
import subprocess
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

HEAD = "input 32 4 4\nfc out 128\nrelu\nfc out 10\n"
BATCH, STEPS, LEAST = 64, 300, 0.93   # came to 0.965 to 0.969 under bsp, to 0.943 to 0.957 under gssp
CLOSE = 5e-5   # of a gradient's norm
FLOATS = ctypes.POINTER(ctypes.c_float)


def idx(folder, name, offset):
    for dot in ("-", "."):
        path = os.path.join(folder, name.replace("-idx", dot + "idx"))
        if os.path.exists(path):
            return np.fromfile(path, np.uint8)[offset:]
    sys.exit(f"head.py: {folder} has no {name}")


def mnist(folder, part):
    images = idx(folder, f"{part}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    return images, idx(folder, f"{part}-labels-idx1-ubyte", 8).astype(np.uint16)


def rows_of(images):
    return torch.from_numpy((images.astype(np.float32) / 255 - 0.1307) / 0.3081)


def pointer(array):
    return array.ctypes.data_as(FLOATS)


class Trainer:
    def __init__(self, library, trunk):
        self.c = ctypes.CDLL(library)
        self.c.trainer_create.restype = ctypes.c_void_p
        self.c.trainer_error.restype = ctypes.c_char_p
        self.c.trainer_head_params.restype = ctypes.c_size_t
        self.t = ctypes.c_void_p(self.c.trainer_create(HEAD.encode()))
        self.head = np.zeros(self.c.trainer_head_params(self.t), np.float32)
        self.params, self.grads = list(trunk.parameters()), []
        for p in self.params:   # Echelon writes the weights where torch has them
            value, grad = p.data.numpy(), np.zeros(p.shape, np.float32)
            self.grads.append(grad)
            self.check(self.c.trainer_add(self.t, pointer(value), pointer(grad), ctypes.c_size_t(p.numel())))

    def check(self, status):
        if status != 0:
            sys.exit("head.py: " + self.c.trainer_error(self.t).decode())

    def set(self, **options):
        for name, value in options.items():
            self.check(self.c.trainer_set(self.t, name.replace("_", "-").encode(), str(value).encode()))

    def open(self, first, samples, measure):
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_int)
        self.measure = kind(lambda user, index, n: measure(np.ctypeslib.as_array(index, (n,)).copy()))
        self.check(self.c.trainer_open(self.t, pointer(first), pointer(self.head), ctypes.c_uint32(samples), self.measure))

    def begin(self):
        index = ctypes.POINTER(ctypes.c_uint32)()
        n = self.c.trainer_begin(self.t, ctypes.byref(index))
        if n < 0:
            self.check(n)
        return np.ctypeslib.as_array(index, (n,)).copy() if n else None

    def exchange(self, rows, labels):
        grads, loss = np.empty_like(rows), ctypes.c_double()
        self.check(self.c.trainer_exchange(self.t, pointer(rows), ctypes.c_size_t(rows.size),
                                           labels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint16)), pointer(grads), ctypes.byref(loss)))
        return grads, loss.value

    def end(self):
        for p, grad in zip(self.params, self.grads):
            grad[...] = p.grad.numpy()
        self.check(self.c.trainer_end(self.t))


def flat(module):
    return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])


def apart(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def node(library, folder, sync, rank, world, port):
    torch.set_num_threads(1)
    torch.manual_seed(1 if rank == 0 else 99)   # rank 0's weights are those of all
    trunk = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2))
    torch.manual_seed(2)
    head = nn.Sequential(nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))
    images, labels = mnist(folder, "train")
    trainer = Trainer(library, trunk)
    lr, momentum, shares = (0.02, 0.9, "equal") if sync == "bsp" else (0.05, 0.5, "speed")   # staleness is a momentum of its own
    trainer.set(rank=rank, world=world, coordinator=f"127.0.0.1:{port}", sync=sync, separate="on", batch=BATCH, steps=STEPS, lr=lr,
                momentum=momentum, threads=1, shares=shares)

    def measure(index):
        trunk.zero_grad()
        made = trunk(rows_of(images[index]))
        made.backward(torch.ones_like(made))
        return 0

    trainer.open(flat(head), len(images), measure)
    steps = 0
    while (index := trainer.begin()) is not None:
        trunk.zero_grad()
        made = trunk(rows_of(images[index]))
        rows = made.detach().numpy()
        grads, loss = trainer.exchange(rows, labels[index])
        if steps == 0 and sync == "bsp":   # the head's weights are the first ones
            own = made.detach().requires_grad_()
            theirs = functional.cross_entropy(head(own), torch.from_numpy(labels[index].astype(np.int64)))
            theirs.backward()
            difference = apart(grads, own.grad.numpy())
            print(f"rank {rank}: the gradient of {len(index)} rows is {difference:.2g} of its norm from torch's")
            if difference > CLOSE or (world == 1 and abs(loss - theirs.item()) > CLOSE):
                sys.exit(f"head.py: {difference} is more than {CLOSE}, or the loss {loss} is not {theirs.item()}")
        made.backward(torch.from_numpy(grads))
        trainer.end()
        steps += 1
    trainer.check(trainer.c.trainer_close(trainer.t))
    if rank != 0:
        return
    images, labels = mnist(folder, "t10k")
    with torch.no_grad():
        rows = trunk(rows_of(images))
        nn.utils.vector_to_parameters(torch.from_numpy(trainer.head), head.parameters())
        theirs = head(rows).numpy()
    ours = np.empty((len(images), 10), np.float32)
    trainer.check(trainer.c.trainer_forward(trainer.t, pointer(trainer.head), len(images), pointer(rows.numpy()), pointer(ours)))
    accuracy = float((ours.argmax(1) == labels).mean())
    print(f"{sync}, {world} nodes: accuracy {accuracy:.4f} after {STEPS} rounds of {BATCH}; outputs are {apart(ours, theirs):.2g} from torch's")
    if accuracy < LEAST or apart(ours, theirs) > CLOSE:
        sys.exit(f"head.py: an accuracy of {LEAST} and outputs within {CLOSE} were wanted")


def main():
    library, folder = sys.argv[1:3]
    world, sync = int(sys.argv[3]) if len(sys.argv) > 3 else 3, sys.argv[4] if len(sys.argv) > 4 else "bsp"
    if len(sys.argv) > 5:
        return node(library, folder, sync, int(sys.argv[5]), world, int(sys.argv[6]))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), library, folder, str(world), sync]
    nodes = [subprocess.Popen(command + [str(r), str(port)]) for r in range(world)]
    if any([n.wait() for n in nodes]):
        sys.exit(1)


if __name__ == "__main__":
    main()
