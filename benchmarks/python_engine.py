"""The Python engine: statements per second, and the first call of a small op.

    python benchmarks/python_engine.py

A kernel of simple statements (sums, products, loads, stores) runs five times, and the median counts. First calls are
those of ten new kernels, without and with a gradient.
"""

import statistics
import time

import taichi as ti
import torch

import tinsmith as ts

LENGTH = 20_000
STATEMENTS = 5
"""Statements of an iteration, its loop's own step among them."""


@ts.op("x[n] -> y[n]", engine="python")
@ti.kernel
def polynomial(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        a = x[i] * x[i]
        b = a * 2.0 + 1.0
        b += a
        y[i] = b


def make_small():
    """Build the README's op. Each call builds a new one."""

    @ts.op("x[n], k[m] -> y[n - m + 1]", engine="python")
    @ti.kernel
    def conv(x: ti.types.ndarray(), k: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[i + j] * k[j]

    return conv


def time_once(run):
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main():
    """Print both times."""
    ts.init("cpu")
    x = torch.rand(LENGTH)
    polynomial(x)
    seconds = statistics.median([time_once(lambda: polynomial(x)) for _ in range(5)])
    print(f"statements per second: {STATEMENTS * LENGTH / seconds:,.0f}")
    x, k = torch.rand(6), torch.rand(2, requires_grad=True)
    values, gradients = [], []
    for _ in range(10):
        op = make_small()
        values.append(time_once(lambda op=op: op(x, k.detach())))
        y = op(x, k)
        gradients.append(time_once(lambda y=y: y.sum().backward()))
    print(f"first call of a small op: {statistics.median(values) * 1000:.1f} ms")
    print(f"its first backward pass: {statistics.median(gradients) * 1000:.1f} ms")


if __name__ == "__main__":
    main()
