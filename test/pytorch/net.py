# SPDX-License-Identifier: Apache-2.0
# A model of Echelon's as a PyTorch module, from the text that `echelon model NAME --text` prints. Parameters have the names of Echelon's
# safetensors files, which are those of the module's state_dict.
import subprocess

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self, text):
        super().__init__()
        lines = [line.split() for line in text.splitlines()]
        shapes = [tuple(int(n) for n in lines[0][1:])]
        self.steps = []   # (what it does, its module's name, the output it takes, the second that an add takes)
        count = {}
        for at, (op, *words) in enumerate(lines[1:], 1):
            value = dict(zip(words[0::2], (float(w) if "." in w else int(w) for w in words[1::2])))
            take = value.get("from", at - 1)
            c, h, w = shapes[take]
            count[op] = count.get(op, 0) + 1
            name = {"conv2d": "conv", "batch_norm": "bn"}.get(op, op) + str(count[op])
            kernel, stride, pad = value.get("kernel"), value.get("stride"), value.get("pad", 0)
            if op == "conv2d":
                self.add_module(name, nn.Conv2d(c, value["out"], kernel, stride, pad, bias=value.get("bias", 1) == 1))
                c = value["out"]
            elif op == "fc":
                self.add_module(name, nn.Linear(c * h * w, value["out"], bias=value.get("bias", 1) == 1))
                c, h, w = value["out"], 1, 1
            elif op == "batch_norm":
                self.add_module(name, nn.BatchNorm2d(c))
            elif op == "dropout":
                self.add_module(name, nn.Dropout(value["p"]))
            elif op == "max_pool":
                self.add_module(name, nn.MaxPool2d(kernel, stride, pad))
            elif op == "avg_pool":
                self.add_module(name, nn.AvgPool2d(kernel, stride, pad))
            elif op not in ("relu", "tanh", "add", "global_avg_pool"):
                raise ValueError("no layer '%s' in PyTorch's net yet" % op)
            if kernel:
                h, w = (h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1
            if op == "global_avg_pool":
                h = w = 1
            shapes.append((c, h, w))
            self.steps.append((op, name, take, value.get("with")))
        self.input, self.classes = shapes[0], shapes[-1][0]
        readers = [take for _, _, take, _ in self.steps] + [other for _, _, _, other in self.steps if other is not None]
        self.last = [max((i for i, (_, _, take, other) in enumerate(self.steps) if n in (take, other)), default=len(self.steps))
                     for n in range(len(shapes))]
        self.alone = [readers.count(n) == 1 for n in range(len(shapes))]

    def forward(self, x):
        outputs = [x]
        for i, (op, name, take, other) in enumerate(self.steps):
            x = outputs[take]
            if op == "relu":
                # In place where nobody else needs its input, as people write it; batch-norm keeps its own input, not its output.
                x = functional.relu(x, inplace=self.alone[take] and take > 0 and self.steps[take - 1][0] in ("batch_norm", "conv2d", "add"))
            elif op == "tanh":
                x = torch.tanh(x)
            elif op == "add":
                x = x + outputs[other]
            elif op == "global_avg_pool":
                x = x.mean((2, 3), keepdim=True)
            elif op == "fc":
                x = getattr(self, name)(x.flatten(1))
            else:
                x = getattr(self, name)(x)
            outputs.append(x)
            for n in {take, other} - {None}:
                if self.last[n] == i:
                    outputs[n] = None   # as local variables of a written-out net would end
        return x


def load(echelon, model):
    return Net(subprocess.run([echelon, "model", model, "--text"], check=True, stdout=subprocess.PIPE).stdout.decode())
