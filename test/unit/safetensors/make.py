# SPDX-License-Identifier: Apache-2.0
# Writes the files beside it with the Python packages safetensors, numpy and ml_dtypes (safetensors 0.8.0 wrote those here), as PyTorch's state_dicts of these nets
# are called: test_safetensors.c reads them. Parameter i of the order in which the net was defined has i, i + 1/2, i, i + 1/2, ...
# usage: python3 make.py FOLDER
import sys

import ml_dtypes
import numpy
from safetensors.numpy import save_file

TYPES = {"F64": numpy.float64, "F32": numpy.float32, "F16": numpy.float16, "BF16": ml_dtypes.bfloat16}


def conv(name, out, channels, kernel, bias=False):
    return [(name + ".weight", [out, channels, kernel, kernel])] + ([(name + ".bias", [out])] if bias else [])


def linear(name, out, inputs):
    return [(name + ".weight", [out, inputs]), (name + ".bias", [out])]


def norm(name, channels):
    return [(name + "." + part, [channels]) for part in ("weight", "bias", "running_mean", "running_var")] + [
        (name + ".num_batches_tracked", None)]


def block(name, out, channels):
    net = conv(name + ".conv1", out, channels, 3) + norm(name + ".bn1", out)
    net += conv(name + ".conv2", out, out, 3) + norm(name + ".bn2", out)
    if out != channels:
        net += conv(name + ".downsample.0", out, channels, 1) + norm(name + ".downsample.1", out)
    return net


resnet = conv("conv1", 2, 3, 3) + norm("bn1", 2)
for stage, channels, out in (("layer1", 2, 2), ("layer2", 2, 4)):
    resnet += block(stage + ".0", out, channels) + block(stage + ".1", out, out)
resnet += linear("fc", 5, 4)

vgg = []
for at, channels, out in ((0, 1, 2), (3, 2, 2), (7, 2, 2), (10, 2, 2)):
    vgg += conv("module.features.%d" % at, out, channels, 3, True) + norm("module.features.%d" % (at + 1), out)
vgg += linear("module.classifier.0", 8, 8) + linear("module.classifier.3", 8, 8) + linear("module.classifier.6", 3, 8)

sequential = conv("0", 2, 1, 3, True) + linear("7", 4, 18) + linear("9", 4, 4) + linear("11", 4, 4)

words = conv("first", 2, 2, 3, True) + conv("second", 2, 2, 3, True) + conv("third", 2, 2, 3, True) + linear("last", 3, 8)


def write(path, net, dtype):
    tensors, i = {}, 0
    for name, shape in net:
        if shape is None:
            tensors[name] = numpy.array(12345, numpy.int64)
            continue
        count = int(numpy.prod(shape))
        tensors[name] = (i + numpy.arange(count) % 2 / 2).reshape(shape).astype(TYPES[dtype])
        i += 1
    save_file(tensors, path, metadata={"format": "pt"})


for name, net, dtype in (("resnet-bf16", resnet, "BF16"), ("vgg-f64", vgg, "F64"), ("sequential-f16", sequential, "F16"),
                         ("words-f32", words, "F32")):
    write("%s/%s.safetensors" % (sys.argv[1], name), net, dtype)
