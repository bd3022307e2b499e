"""One of two processes that run modules whose parameters are DTensors, compared with the modules on one process.

Run by test_replicated.py: `torchrun --nproc-per-node 2 replicated_worker.py ENGINES`.
"""

import copy
import os
import sys

import pytest
import setuptools  # noqa: F401 - before Quadrants, after which torch could not load it
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor

import tinsmith as ts
from support.engine_keeper import load_quietly

NETWORK = {"n_neurons": 8, "n_hidden_layers": 1}
GRID = {"otype": "DenseGrid", "n_levels": 2, "base_resolution": 4, "per_level_scale": 1.5}
WAVES = {"otype": "Frequency", "n_frequencies": 2}
JOINED = {"otype": "Composite", "nested": [{"n_dims_to_encode": 2, **GRID}, {"otype": "OneBlob", "n_bins": 4}]}
MODULES = {
    "Network": lambda engine: ts.nn.Network(3, 4, NETWORK),
    "joined": lambda engine: ts.nn.NetworkWithInputEncoding(3, 4, JOINED, NETWORK, engine=engine),
    "grid": lambda engine: ts.nn.Encoding(3, GRID, engine=engine),
    "frequencies": lambda engine: ts.nn.Encoding(3, WAVES, engine=engine),
    "array": lambda engine: ts.nn.NetworkArray((4,), 3, 4, NETWORK, engine=engine),
    "array with grids": lambda engine: ts.nn.NetworkArray((2, 2), 3, 4, NETWORK, GRID, engine=engine),
}


def compare(name, engine, mesh):
    torch.manual_seed(0)
    module = MODULES[name](engine)
    plain = copy.deepcopy(module)
    lead = getattr(module, "grid_shape", (4,))
    # 7 samples, which two processes share unevenly.
    x = torch.rand(*lead, 7, 3, requires_grad=True)
    want = plain(x)
    want.sin().sum().backward()
    distribute_module(module, mesh)
    for placement in (Shard(len(lead)), Shard(0), Replicate()):
        module.zero_grad()
        given = distribute_tensor(x.detach(), mesh, [placement]).requires_grad_()
        made = module(given)
        torch.testing.assert_close(made.full_tensor(), want)
        made.sin().sum().backward()
        torch.testing.assert_close(given.grad.full_tensor(), x.grad)
        for one, other in zip(module.parameters(), plain.parameters(), strict=True):
            if other.grad is not None:
                torch.testing.assert_close(one.grad.full_tensor(), other.grad)
    if isinstance(module, ts.nn.NetworkArray):
        compare_other_calls(module, plain, x.detach(), mesh)
    if sum(one.numel() for one in module.parameters()):
        refuse_mixtures(module, plain, x.detach(), mesh)


def compare_other_calls(module, plain, x, mesh):
    target, points, cells = torch.rand(*x.shape[:-1], 4), torch.rand(9, 3), torch.arange(9) % 4
    axis = x.ndim - 2
    losses = module.loss(distribute_tensor(x, mesh, [Shard(axis)]), distribute_tensor(target, mesh, [Shard(axis)]))
    torch.testing.assert_close(losses.full_tensor(), plain.loss(x, target))
    routed = module.route_points(*(distribute_tensor(one, mesh, [Shard(0)]) for one in (points, cells)))
    torch.testing.assert_close(routed.full_tensor(), plain.route_points(points, cells))


def refuse_mixtures(module, plain, x, mesh):
    kind = type(module).__name__
    with pytest.raises(ts.ArgumentError, match=rf"`x` of the {kind} is a plain tensor.*\n.*\n.*distribute_tensor\(x"):
        module(x)
    with pytest.raises(
        ts.ArgumentError, match=rf"`x` of the {kind} is sharded over processes.*\n.*`distribute_module\("
    ):
        plain(distribute_tensor(x, mesh, [Shard(0)]))


def main(engines):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for engine in engines:
        load_quietly(engine)
        ts.init("cpu", engine=engine)
        for name in MODULES:
            compare(name, engine, mesh)
    sys.stdout.write(f"process {dist.get_rank()}: the same\n")
    dist.destroy_process_group()
    sys.stdout.flush()
    # not through Python's end, where threads of the engine and of gloo now and then terminate the process
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
