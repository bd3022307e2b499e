"""One of two processes that train with torch's `fully_shard`, and hold it against training with all of the data.

Run by test_fsdp.py: `torchrun --nproc-per-node 2 fsdp_worker.py ENGINES`.
"""

import functools
import os
import sys

import setuptools  # noqa: F401 - before Quadrants, after which torch could not load it
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import tinsmith as ts
from support.engine_keeper import load_quietly

F64 = torch.float64
ROWS, STEPS = 32, 4
GRID = {"otype": "HashGrid", "n_levels": 4, "log2_hashmap_size": 8, "base_resolution": 4, "per_level_scale": 1.5}
NETWORK = {"otype": "FullyFusedMLP", "n_neurons": 16, "n_hidden_layers": 2}


def weighing(lang, rows):
    """Make a Tin that multiplies each column by a weight."""
    x, y = (lang.field(lang.f64, shape=(rows, 3), needs_grad=True) for _ in range(2))
    w = lang.field(lang.f64, shape=3, needs_grad=True)

    @lang.kernel
    def weigh():
        for i, j in x:
            y[i, j] = w[j] * x[i, j]

    tin = ts.EmptyTin().register_input_field(x).register_output_field(y)
    tin = tin.register_weight_field(w, name="w", value=torch.rand(3, dtype=F64) + 0.5)
    return tin.register_kernel(weigh).finish()


class Cells(nn.Module):
    """An array of networks, each on its own positions."""

    def __init__(self):
        super().__init__()
        self.array = ts.nn.NetworkArray((4,), 2, 3, network_config=NETWORK, dtype=F64)

    def forward(self, x):
        return self.array(x.reshape(-1, 4, 2).transpose(0, 1)).transpose(0, 1).reshape(-1, 3)


def compare(name, make, rank, processes):
    torch.manual_seed(1)
    x, target = torch.rand(ROWS, 2, dtype=F64), torch.rand(ROWS, 3, dtype=F64)
    share = ROWS // processes
    mine = slice(rank * share, (rank + 1) * share)
    torch.manual_seed(0)
    plain = make(ROWS)
    torch.manual_seed(0)
    shared = make(share)
    fully_shard(shared, mesh=init_device_mesh("cpu", (processes,)))
    for model, inputs, wanted in ((plain, x, target), (shared, x[mine], target[mine])):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(STEPS):
            optimizer.zero_grad()
            (model(inputs) - wanted).square().mean().backward()
            optimizer.step()
    for (parameter, one), (_, other) in zip(plain.named_parameters(), shared.named_parameters(), strict=True):
        assert isinstance(other, DTensor), parameter
        assert one.grad.abs().max() > 0, parameter
        words = f"{name}, {parameter}: "
        torch.testing.assert_close(other.full_tensor(), one.detach(), msg=words.__add__)


def grid(_lang, _rows):
    encoding = ts.nn.Encoding(2, GRID, dtype=F64)
    return nn.Sequential(encoding, nn.Linear(8, 16, dtype=F64), nn.Tanh(), nn.Linear(16, 3, dtype=F64))


def tin(lang, rows):
    return nn.Sequential(nn.Linear(2, 3, dtype=F64), weighing(lang, rows))


def array(_lang, _rows):
    return Cells()


def main(engines):
    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    for engine in engines:
        lang = load_quietly(engine)
        ts.init("cpu", engine=engine, default_fp=lang.f64)
        for make in (grid, tin, array):
            compare(make.__name__, functools.partial(make, lang), rank, processes)
    sys.stdout.write(f"process {rank}: the same\n")
    dist.destroy_process_group()
    sys.stdout.flush()
    # not through Python's end, where threads of the engine and of gloo now and then terminate the process
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
