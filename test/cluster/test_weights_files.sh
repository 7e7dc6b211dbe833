#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files of weights between Echelon and PyTorch: --init and --save beside what the Python package safetensors reads and writes, where a
# Python here has it (BENCH_PYTHON, python3), and a real state_dict where it has torch too.
source "$(dirname "$0")/cluster.bash"

idx_set "$work/data" 40 20
printf '%s\n' 'input 1 28 28' 'conv2d out 2 kernel 3 stride 4 bias 0' batch_norm relu 'conv2d out 3 kernel 3' relu \
    'fc out 6' relu 'fc out 6' relu 'fc out 10' >"$work/net"
net=(--data "$work/data" --model "$work/net" --progress off)
values() { od -An -v -t x4 -j $((8 + $(od -An -t u8 -N 8 "$1"))) "$1"; }
same_values() { [ "$(values "$1")" = "$(values "$2")" ]; }

# --- a checkpoint's weights are those that the run saved; its momentum stays behind, and is named
expect 0 . "${net[@]}" --steps 3 --batch 8 --checkpoint "$work/kept" --save "$work/saved"
expect 0 'left out momentum.0.conv1.weight, ' "${net[@]}" --steps 0 --progress on --init "$work"/kept/*.safetensors --save "$work/again"
check "a checkpoint as --init: other weights" same_values "$work/saved" "$work/again"
check "other bytes for the same weights" cmp -s "$work/saved" "$work/again"
expect 0 . "${net[@]}" --steps 0 --progress on --init "$work/saved" --save "$work/again"
check "a line about a file that is just the model's" eval '! grep -q "left out\|names" "$work/err"'

# --- metadata
header() { head -c $((8 + $(od -An -t u8 -N 8 "$1"))) "$1" | tail -c +9; }
version=$("$echelon" --version | sed 's/^echelon //')
check "the file's metadata" grep -qF \
    "{\"__metadata__\":{\"format\":\"pt\",\"model\":\"net\",\"version\":\"$version\"}," <(header "$work/saved")

for python in ${BENCH_PYTHON:+"$BENCH_PYTHON"} python3 ''; do
    [ -z "$python" ] || ! "$python" -c 'import numpy, safetensors' 2>/dev/null || break
done
runs() { "$python" "$@" >"$work/out" 2>&1; }
if [ -n "$python" ]; then
    # --- names of an nn.Sequential, each element type, random values: what numpy rounds them to
    cat >"$work/write.py" <<'END_PY'
import sys
import numpy
from safetensors import safe_open
from safetensors.numpy import save_file
saved, folder, version = sys.argv[1:]
with safe_open(saved, framework="np") as f:
    assert f.metadata() == {"format": "pt", "model": "net", "version": version}, f.metadata()
    own = {name: f.get_tensor(name) for name in f.keys()}
assert own["conv1.weight"].shape == (2, 1, 3, 3) and own["bn1.running_var"].shape == (2,) and own["fc1.weight"].shape == (6, 75)
assert all(v.dtype == numpy.float32 for v in own.values())
number = {"conv1": 0, "bn1": 1, "conv2": 3, "fc1": 6, "fc2": 8, "fc3": 10}
random = numpy.random.default_rng(1)
for dtype in "float16", "float32", "float64":
    file = {}
    for name, value in own.items():
        layer, part = name.split(".")
        file["net.%d.%s" % (number[layer], part)] = (random.standard_normal(value.shape) * 10 ** random.uniform(-9, 3)).astype(dtype)
    file["net.1.num_batches_tracked"] = numpy.array(3, numpy.int64)
    save_file(file, "%s/%s" % (folder, dtype), metadata={"format": "pt"})
    save_file({n: file["net.%d.%s" % (number[n.split(".")[0]], n.split(".")[1])].astype(numpy.float32) for n in own},
              "%s/%s.wanted" % (folder, dtype))
END_PY
    cat >"$work/compare.py" <<'END_PY'
import sys
from safetensors.numpy import load_file
a, b = load_file(sys.argv[1]), load_file(sys.argv[2])
assert a.keys() == b.keys(), (a.keys(), b.keys())
assert all((a[n].view("u4") == b[n].view("u4")).all() for n in a), [n for n in a if (a[n] != b[n]).any()]
END_PY
    mkdir "$work/files"
    check "the package does not open what --save wrote" runs "$work/write.py" "$work/saved" "$work/files" "$version"
    for dtype in float16 float32 float64; do
        expect 0 '13 parameters were taken by the order of their names' "${net[@]}" --steps 0 --init "$work/files/$dtype" \
            --save "$work/again"
        check "one line for the order, one for each tensor only with --verbose" [ "$(grep -c "is 'net" "$work/err")" = 0 ]
        check "$dtype: other values" runs "$work/compare.py" "$work/again" "$work/files/$dtype.wanted"
    done
    expect 0 "conv2.bias \[3\] is 'net.3.bias' \(F64\)" "${net[@]}" --verbose --steps 0 --init "$work/files/float64"
    check "with --verbose: not every tensor" [ "$(grep -c "is 'net" "$work/err")" = 13 ]
fi
if [ -n "$python" ] && "$python" -c 'import torch, safetensors.torch' 2>/dev/null; then
    # --- a real state_dict
    cat >"$work/state.py" <<'END_PY'
import sys
import torch
from torch import nn
from safetensors.torch import load_file, save_file
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(75, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 10))
        self.conv1, self.bn1 = nn.Conv2d(1, 2, 3, 4, bias=False), nn.BatchNorm2d(2)
        self.layer1 = nn.Conv2d(2, 3, 3)
    def forward(self, x): return self.head(self.layer1(self.bn1(self.conv1(x)).relu()).relu())
torch.manual_seed(1)
net = Net()
net(torch.randn(8, 1, 28, 28))
if len(sys.argv) == 3:
    own = [n for n in net.state_dict() if "num_batches" not in n]
    saved = load_file(sys.argv[2])
    names = {"conv1": "conv1", "bn1": "bn1", "layer1": "conv2", "head.1": "fc1", "head.3": "fc2", "head.5": "fc3"}
    for n in own:
        module, part = n.rsplit(".", 1)
        assert torch.equal(net.state_dict()[n].to(torch.bfloat16).float(), saved[names[module] + "." + part]), n
    assert len(own) == len(saved)
else:
    save_file({n: t.to(torch.bfloat16) if t.is_floating_point() else t for n, t in net.state_dict().items()}, sys.argv[1])
END_PY
    check "PyTorch writes its state_dict" runs "$work/state.py" "$work/state_dict"
    expect 0 'left out bn1.num_batches_tracked' "${net[@]}" --steps 0 --init "$work/state_dict" --save "$work/again"
    check "a state_dict: other values" runs "$work/state.py" "$work/state_dict" "$work/again"
fi

verdict weights_files
