"""The scheme of tinn, in our own implementation of the idea as we understand it: many small networks in plain Taichi.

A kernel a layer, a thread a network, which goes through that network's batch; each layer's matrix is one element of a
field, so that Taichi unrolls its product; gradients by the engine's tape; the update in a kernel. (tinn has one field
for what stands between all hidden layers, which makes gradients wrong from the second on; here each has its own.)

As a program it says how long the first step takes, compilation included:

    python benchmarks/_tinn_scheme.py WIDTH HIDDEN
"""

import sys
import time

import taichi as ti
import torch

N_IN, N_OUT = 2, 3


class TinnScheme:
    """Networks of one shape, with their batches, weights and gradients in fields."""

    def __init__(self, weights, biases, x, target, rate=1e-3):
        cells, batch = x.shape[:2]
        self.batch, self.rate = batch, rate
        sizes = [(w.shape[2], w.shape[1]) for w in weights]  # rows are the outputs
        self.weights = [ti.Matrix.field(n, m, ti.f32, shape=cells, needs_grad=True) for n, m in sizes]
        self.biases = [ti.Vector.field(n, ti.f32, shape=cells, needs_grad=True) for n, _ in sizes]
        widths = [N_IN, *(n for n, _ in sizes)]
        self.values = [ti.Vector.field(n, ti.f32, shape=(batch, cells), needs_grad=True) for n in widths]
        self.target = ti.Vector.field(N_OUT, ti.f32, shape=(batch, cells))
        self.loss = ti.field(ti.f32, shape=(), needs_grad=True)
        self.values[0].from_torch(x.transpose(0, 1).contiguous())
        self.target.from_torch(target.transpose(0, 1).contiguous())
        for field, value in zip(self.weights, weights, strict=True):
            field.from_torch(value.detach().transpose(1, 2).contiguous())
        for field, value in zip(self.biases, biases, strict=True):
            field.from_torch(value.detach()[:, 0].contiguous())

    def step(self):
        """Run a training step; return the loss before it."""
        with ti.ad.Tape(self.loss):
            for number, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
                is_last = number == len(self.weights) - 1
                (_last if is_last else _hidden)(self.batch, self.values[number], self.values[number + 1], w, b)
            _error(self.batch, 1.0 / (self.batch * N_OUT), self.values[-1], self.target, self.loss)
        for field in (*self.weights, *self.biases):
            _descend(field, self.rate)
        return self.loss[None]


@ti.kernel
def _hidden(batch: int, x: ti.template(), y: ti.template(), w: ti.template(), b: ti.template()):
    for c in w:
        for i in range(batch):
            y[i, c] = ti.max(w[c] @ x[i, c] + b[c], 0.0)


@ti.kernel
def _last(batch: int, x: ti.template(), y: ti.template(), w: ti.template(), b: ti.template()):
    for c in w:
        for i in range(batch):
            y[i, c] = w[c] @ x[i, c] + b[c]


@ti.kernel
def _error(batch: int, part: float, y: ti.template(), target: ti.template(), loss: ti.template()):
    for i, c in y:
        loss[None] += part * (y[i, c] - target[i, c]).norm_sqr()


@ti.kernel
def _descend(field: ti.template(), rate: float):
    for c in field:
        field[c] -= rate * field.grad[c]


def first_step(width, hidden):
    """Return the seconds of the first step of 16 networks."""
    sizes = [(N_IN, width), *[(width, width)] * (hidden - 1), (width, N_OUT)]
    weights = [torch.randn(16, *size) for size in sizes]
    biases = [torch.zeros(16, 1, size[1]) for size in sizes]
    networks = TinnScheme(weights, biases, torch.rand(16, 8, N_IN), torch.rand(16, 8, N_OUT))
    begin = time.perf_counter()
    networks.step()
    return time.perf_counter() - begin


if __name__ == "__main__":
    ti.init(ti.cpu, offline_cache=False, log_level=ti.ERROR)
    print(f"{first_step(int(sys.argv[1]), int(sys.argv[2])):.2f}")
