"""One of the processes of test_distributed: trains a network of a Tin, a Tube and an op on its share of the data.

    torchrun --nproc-per-node 2 distributed_worker.py ENGINE... FOLDER

Writes what it found to FOLDER/<engine>-<rank>.pt. The test imports this too, to train on all the data in one process.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tinsmith as ts
from support.engine_keeper import load_quietly

BATCH, SIZE, STEPS = 6, 3, 3
F64 = torch.float64


def weighing(lang, rows):
    """Make a Tin that multiplies each column by a weight."""

    @lang.data_oriented
    class Weighing:
        def __init__(self):
            self.x = lang.field(lang.f64, shape=(rows, SIZE), needs_grad=True)
            self.y = lang.field(lang.f64, shape=(rows, SIZE), needs_grad=True)
            self.w = lang.field(lang.f64, shape=SIZE, needs_grad=True)

        @lang.kernel
        def weigh(self):
            for i, j in self.x:
                self.y[i, j] = self.w[j] * self.x[i, j]

    made = Weighing()
    tin = ts.Tin(made, torch.device("cpu")).register_input_field(made.x).register_output_field(made.y)
    tin = tin.register_weight_field(made.w, name="w", value=torch.rand(SIZE, dtype=F64) + 0.5)
    return tin.register_kernel("weigh").finish()


def folding(lang):
    """Make a Tube that convolves each sample with a kernel that all samples share."""

    @lang.kernel
    def fold(x: lang.template(), k: lang.template(), y: lang.template()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[(i + j) % x.shape[0]] * k[j]

    dims = (ts.BatchDim, ts.MatchDim("n"))
    tube = ts.Tube().register_input_tensor(dims, F64, "x").register_input_tensor((2,), F64, "k")
    return tube.register_output_tensor(dims, F64, "y", True).register_kernel(fold, ["x", "k", "y"]).finish()


def squaring(lang):
    @ts.op("x[b, n] -> y[b, n]")
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i, j in x:
            y[i, j] = x[i, j] * x[i, j]

    return square


class Network(nn.Module):
    """x -> sum of squares, through a layer of each kind."""

    def __init__(self, lang, rows):
        super().__init__()
        self.first = nn.Linear(SIZE, SIZE, dtype=F64)
        self.tin = weighing(lang, rows)
        self.tube = folding(lang)
        self.kernel = nn.Parameter(torch.randn(2, dtype=F64))
        self.op = squaring(lang)

    def forward(self, x):
        return self.op(self.tube(self.tin(torch.tanh(self.first(x))), self.kernel)).sum(1)


def trained(lang, rank, processes):
    """Train; return each step's gradients, and the parameters after the last step by name."""
    generator = torch.Generator().manual_seed(7)
    data, target = (torch.rand(shape, dtype=F64, generator=generator) for shape in ((BATCH, SIZE), (BATCH,)))
    mine = slice(rank * BATCH // processes, (rank + 1) * BATCH // processes)
    torch.manual_seed(rank)  # processes begin with different weights: those of the first are to count
    network = Network(lang, BATCH // processes)
    model = DistributedDataParallel(network) if processes > 1 else network
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    steps = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        (model(data[mine]) - target[mine]).square().mean().backward()
        steps.append({name: one.grad.clone() for name, one in network.named_parameters()})
        optimizer.step()
    return {"gradients": steps, "parameters": {name: one.detach() for name, one in network.named_parameters()}}


def main(engines, folder):
    dist.init_process_group("gloo")
    for engine in engines:
        ts.init("cpu", engine=engine)
        gradients = trained(load_quietly(engine), dist.get_rank(), dist.get_world_size())
        torch.save(gradients, folder / f"{engine}-{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:-1], Path(sys.argv[-1]))
