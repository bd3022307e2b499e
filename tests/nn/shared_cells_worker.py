"""One of several processes that share out the networks of an array, each held against the whole array.

Run by test_shared_cells.py: `torchrun --nproc-per-node N shared_cells_worker.py train|load FOLDER ENGINE...`. What
`train` writes, `load` goes on with in other numbers of processes.
"""

import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

import tinsmith as ts
from support.engine_keeper import load_quietly

F64 = torch.float64
GRID, BATCH, STEPS = (7, 1), 6, 3  # of 7 networks no number of processes below 7 gets as many each
CELLS = 7
ENCODINGS = {
    "plain": None,
    "frequencies": {"otype": "Frequency", "n_frequencies": 2},
    "hash_grid": {"otype": "HashGrid", "n_levels": 2, "log2_hashmap_size": 4, "base_resolution": 2},
}
ADAM = {"otype": "EMA", "decay": 0.9, "nested": {"otype": "Adam", "learning_rate": 0.01}}


def array_of(encoding, seed=3):
    network = {"n_neurons": 8, "n_hidden_layers": 2, "activation": "Tanh"}
    return ts.nn.NetworkArray(GRID, 2, 3, network, ENCODINGS[encoding], dtype=F64, seed=seed)


def batch(step):
    """Return a batch for all networks, the same in every process."""
    generator = torch.Generator().manual_seed(step)
    x = torch.rand(*GRID, BATCH, 2, dtype=F64, generator=generator)
    return x, torch.rand(*GRID, BATCH, 3, dtype=F64, generator=generator)


def of(array, tensor):
    """Return the part of a tensor [*grid, ...] that belongs to this process's networks."""
    return tensor.flatten(0, 1)[array.own_cells.start : array.own_cells.stop]


def same(array, whole):
    """Return True if parameters are those of the whole array, and shared out."""
    for (name, one), (_, other) in zip(array.named_parameters(), whole.named_parameters(), strict=True):
        assert isinstance(one, DTensor), name
        assert len(one.to_local()) == len(array.own_cells), name
        torch.testing.assert_close(one.full_tensor(), other.detach(), msg=f"{name}: ".__add__)


def check_calls(mesh, encoding):
    """Check outputs, losses and gradients of a process's own networks."""
    whole, shared = array_of(encoding), array_of(encoding, seed=3 + dist.get_rank()).shard(mesh)
    same(shared, whole)
    x, target = batch(0)
    torch.testing.assert_close(shared(of(shared, x)), of(shared, whole(x)))
    torch.testing.assert_close(shared.loss(of(shared, x), of(shared, target)), of(shared, whole.loss(x, target)))
    whole.loss(x, target).sum().backward()
    shared.loss(of(shared, x), of(shared, target)).sum().backward()
    for one, other in zip(shared.parameters(), whole.parameters(), strict=True):
        assert other.grad.abs().max() > 0
        torch.testing.assert_close(one.grad.full_tensor(), other.grad)
    last = shared.own_cells[-1]
    some = shared(of(shared, x)[-1:], at=[last])
    torch.testing.assert_close(some, whole(x).flatten(0, 1)[last : last + 1])
    for (one, biases), (other, _) in zip(shared.layers(), whole.layers(), strict=True):
        torch.testing.assert_close(one, other[shared.own_cells.start : shared.own_cells.stop])
        assert biases is not None


def check_routed(mesh, encoding, way):
    """Check points of any cell, of which one process has none: outputs, and gradients of points and parameters."""
    whole, shared = array_of(encoding), array_of(encoding).shard(mesh)
    whole.way = shared.way = way
    rank, processes = mesh.get_local_rank(), mesh.size()
    counts = [0 if one == processes - 1 else 11 + one for one in range(processes)]
    generator = torch.Generator().manual_seed(5)
    points = torch.rand(sum(counts), 2, dtype=F64, generator=generator).requires_grad_()
    cells = torch.randint(CELLS, (sum(counts),), generator=generator)
    weight = torch.rand(sum(counts), 3, dtype=F64, generator=generator)
    first = sum(counts[:rank])
    mine = slice(first, first + counts[rank])
    own = points.detach()[mine].requires_grad_()
    outputs = shared.route_points(own, cells[mine])
    expected = whole.route_points(points, cells)
    torch.testing.assert_close(outputs, expected[mine])
    (outputs * weight[mine]).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(own.grad, points.grad[mine])
    for one, other in zip(shared.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one.grad.full_tensor(), other.grad)


def check_optimizer(mesh):
    """Check one of torch's optimizers, on the parameters as they are."""
    whole, shared = array_of("hash_grid"), array_of("hash_grid").shard(mesh)
    optimizers = [torch.optim.Adam(one.parameters(), lr=0.01) for one in (whole, shared)]
    for step in range(STEPS):
        x, target = batch(step)
        for optimizer, array, inputs, wanted in (
            (optimizers[0], whole, x, target),
            (optimizers[1], shared, of(shared, x), of(shared, target)),
        ):
            optimizer.zero_grad()
            array.loss(inputs, wanted).sum().backward()
            optimizer.step()
    same(shared, whole)


class Scattered(torch.nn.Module):
    """A layer that all processes share as copies, before networks that are shared out."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(2, 2, dtype=F64)
        self.array = array_of("plain")

    def forward(self, x):
        cells = (x[:, 0] * CELLS).long().clamp(0, CELLS - 1)
        return self.array.route_points(self.layer(x), cells)


def check_trainer(mesh):
    """Check a model with sharded networks, trained by processes with a share of each batch."""
    whole, shared = Scattered(), Scattered()
    shared.array.shard(mesh)
    loss = lambda prediction, target: (prediction - target).square().mean()  # noqa: E731
    adam = {"otype": "Adam", "learning_rate": 0.01}
    one = ts.nn.Trainer(whole, torch.optim.Adam(whole.parameters(), lr=0.01), loss)
    all_of_them = ts.nn.Trainer(
        shared, torch.optim.Adam(shared.parameters(), lr=0.01), loss, process_group=dist.group.WORLD
    )
    for step in range(STEPS):
        x, target = (tensor.flatten(0, 2) for tensor in batch(step))
        mine = slice(mesh.get_local_rank(), None, mesh.size())
        expected = one.training_step(x, target)
        torch.testing.assert_close(all_of_them.training_step(x[mine], target[mine]), expected)
    torch.testing.assert_close(shared.layer.weight, whole.layer.weight)
    same(shared.array, whole.array)
    for make, words in (
        (lambda: ts.nn.Trainer(shared.array, adam, process_group=dist.group.WORLD), "no gradient to average"),
        (all_of_them.state_dict, "sharded over processes"),
        (lambda: shared.array.shard(mesh), "sharded already"),
        (lambda: shared.array(DTensor.from_local(torch.rand(3, 4, 2, dtype=F64), mesh)), "takes each process"),
        (lambda: shared.array.rows([(shared.array.own_cells.stop) % CELLS]), "a cell of another process"),
    ):
        with pytest.raises(ts.ArgumentError, match=words):
            make()


def steps(trainer, first, count):
    """Run steps of a Trainer, the last of which trains only some networks."""
    array = trainer.model
    for step in range(first, first + count):
        x, target = (of(array, tensor) if array.owners else tensor for tensor in batch(step))
        trainer.training_step(x, target)
    chosen = [cell for cell in array.own_cells if cell % 3 == 0]
    x, target = (tensor.flatten(0, 1)[chosen] for tensor in batch(first + count))
    trainer.training_step(x, target, at=chosen)


def train(mesh, folder):
    for encoding in ENCODINGS:
        check_calls(mesh, encoding)
        for way in ("fused", "matrices"):
            check_routed(mesh, encoding, way)
    check_optimizer(mesh)
    check_trainer(mesh)
    whole, shared = array_of("hash_grid"), array_of("hash_grid").shard(mesh)
    trainers = [ts.nn.Trainer(one, ADAM, "L2") for one in (whole, shared)]
    for trainer in trainers:
        steps(trainer, 0, STEPS)
    same(shared, whole)
    trainers[1].save(folder / "shared.safetensors")
    checkpoint.save({"model": shared.state_dict()}, checkpoint_id=folder / "parts")
    steps(trainers[0], 10, STEPS)
    if dist.get_rank() == 0:
        torch.save([one.detach() for one in whole.parameters()], folder / "expected.pt")
        torch.save(trainers[0].inference(batch(99)[0]), folder / "averaged.pt")


def load(mesh, folder):
    """Go on from the checkpoints of another number of processes."""
    whole, shared = array_of("hash_grid", seed=8), array_of("hash_grid", seed=9).shard(mesh)
    for array in (whole, shared):
        trainer = ts.nn.Trainer(array, ADAM, "L2")
        trainer.load(folder / "shared.safetensors")
        steps(trainer, 10, STEPS)
        for one, expected in zip(array.parameters(), torch.load(folder / "expected.pt"), strict=True):
            own = one.full_tensor() if array.owners else one
            torch.testing.assert_close(own.detach(), expected)
        averaged, expected = (
            trainer.inference(of(array, batch(99)[0]) if array.owners else batch(99)[0]),
            torch.load(folder / "averaged.pt"),
        )
        torch.testing.assert_close(averaged, of(array, expected) if array.owners else expected)
    same(shared, whole)
    state = {"model": array_of("hash_grid", seed=8).shard(mesh).state_dict()}
    checkpoint.load(state, checkpoint_id=folder / "parts")
    trainer = ts.nn.Trainer(array_of("hash_grid"), ADAM, "L2")
    trainer.load(folder / "shared.safetensors")
    for name, expected in trainer.model.state_dict().items():
        assert torch.equal(state["model"][name].full_tensor(), expected), name


def main(what, folder, engines):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for engine in engines:
        load_quietly(engine)
        ts.init("cpu", engine=engine)
        own = Path(folder) / engine
        own.mkdir(exist_ok=True)
        {"train": train, "load": load}[what](mesh, own)
    sys.stdout.write(f"process {dist.get_rank()}: the same\n")
    dist.destroy_process_group()
    sys.stdout.flush()
    # not through Python's end, where threads of the engine and of gloo now and then terminate the process
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
