"""One of several processes that run ops on DTensors and hold the results against ops on whole tensors.

Run by test_distributed.py: `torchrun --nproc-per-node 2 distributed_worker.py ENGINES`.
"""

import os
import sys

import pytest
import setuptools  # noqa: F401 - before Quadrants, after which torch could not load it
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import tinsmith as ts
from support.engine_keeper import load_quietly

F64 = torch.float64


def rows(lang):
    """Make an op with a loop over n and weights that every row reads: n can be sharded."""

    @ts.op("x[n, m], w[m] -> y[n], s[n, m]")
    @lang.kernel
    def rows(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray(), s: lang.types.ndarray()):
        for i in range(x.shape[0]):
            total = 0.0
            for j in range(x.shape[1]):
                total += x[i, j] * w[j]
                s[i, j] = x[i, j] * x[i, j] * w[j]
            y[i] = total

    return rows


def elements(lang):
    """Make an op with a struct-for over both dims: either can be sharded."""

    @ts.op("x[n, m], y[n, m] -> z[n, m]")
    @lang.kernel
    def elements(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i, j in x:
            z[i, j] = x[i, j] * y[i, j] + x[i, j]

    return elements


def conv(lang):
    """Batch dims alone: neighbors are read, and an output's size is computed."""

    @ts.op("x[*b, n], k[m] -> y[*b, n - m + 1]")
    @lang.kernel
    def conv(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[i + j] * k[j]

    return conv


WEIGHT = 3.0


def weighted(lang):
    """Build an op with scratch, and a Python value that a graph's two passes compare."""

    @ts.op("x[n, m] -> y[n, m]", scratch="t[n, m]")
    @lang.kernel
    def weighted(x: lang.types.ndarray(), y: lang.types.ndarray(), t: lang.types.ndarray()):
        for i, j in x:
            t[i, j] = WEIGHT * x[i, j] * x[i, j]
            y[i, j] = t[i, j] * x[i, j]

    return weighted


def numbered(lang):
    """Make an op that uses the loop index as a number: no dim can be sharded."""

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def numbered(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = i * x[i] * x[i]

    return numbered


def total(lang):
    """Make an op that sums over the dim: each process needs the whole dim."""

    @ts.op("x[n] -> y[n], s[]")
    @lang.kernel
    def total(x: lang.types.ndarray(), y: lang.types.ndarray(), s: lang.types.ndarray()):
        for i in x:
            y[i] = 2 * x[i]
            s[None] += x[i] * x[i]

    return total


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def listed(outputs):
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def by_operator(op):
    """Return a function that calls the op by its torch operator, which also returns scratch."""
    count = len(op.spec.outputs)

    def run(*tensors):
        outputs = op.operator(*tensors)
        return outputs if isinstance(outputs, torch.Tensor) else tuple(outputs[:count])

    return run


def compare(name, op, mesh, inputs, placements, expected, *, wrap=lambda f: f):
    """Compare values, gradients and placements of results with those of the op on whole tensors."""
    shared = [distribute_tensor(x.clone(), mesh, p).requires_grad_() for x, p in zip(inputs, placements, strict=True)]
    plain = [x.clone().requires_grad_() for x in inputs]
    outputs, wanted = listed(wrap(op)(*shared)), listed(op(*plain))
    assert [list(one.placements) for one in outputs] == expected, (name, [one.placements for one in outputs])
    for one, want in zip(outputs, wanted, strict=True):
        torch.testing.assert_close(whole(one), want)
    torch.manual_seed(3)
    slopes = [torch.randn_like(want) for want in wanted]
    mixed = [distribute_tensor(slope, mesh, one.placements) for slope, one in zip(slopes, outputs, strict=True)]
    sum((one * slope).sum() for one, slope in zip(outputs, mixed, strict=True)).backward()
    sum((one * slope).sum() for one, slope in zip(wanted, slopes, strict=True)).backward()
    for one, want in zip(shared, plain, strict=True):
        torch.testing.assert_close(whole(one.grad), want.grad)


def check(lang, world):
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (world,))
    compiled = lambda f: torch.compile(f, backend="aot_eager", fullgraph=True)  # noqa: E731
    x, w = torch.randn(4 * world + 1, 6, dtype=F64), torch.randn(6, dtype=F64)  # the parts differ in size
    one = rows(lang)
    compare("rows", one, mesh, (x, w), ([Shard(0)], [Replicate()]), [[Shard(0)], [Shard(0)]])
    compare("rows of columns", one, mesh, (x, w), ([Shard(1)], [Shard(0)]), [[Replicate()], [Replicate()]])
    compare("rows, nothing shared", one, mesh, (x, w), ([Replicate()], [Replicate()]), [[Replicate()]] * 2)
    compare("an empty part", one, mesh, (x[:1], w), ([Shard(0)], [Replicate()]), [[Shard(0)], [Shard(0)]])
    even = x[: 4 * world]
    for wrap in (lambda f: f, compiled):
        compare("even rows", one, mesh, (even, w), ([Shard(0)], [Replicate()]), [[Shard(0)], [Shard(0)]], wrap=wrap)
    two = elements(lang)
    compare("columns", two, mesh, (x, x.sin()), ([Shard(1)], [Replicate()]), [[Shard(1)]])
    compare("the larger part", two, mesh, (x, x.sin()), ([Shard(0)], [Shard(0)]), [[Shard(0)]])
    three, k = conv(lang), torch.randn(3, dtype=F64)
    batch = torch.randn(world, 2 * world, 9, dtype=F64)
    for wrap in (by_operator, lambda op: compiled(by_operator(op))):
        compare("by the operator", one, mesh, (even, w), ([Shard(0)], [Replicate()]), [[Shard(0)]] * 2, wrap=wrap)
    compare("uneven, by the operator", one, mesh, (x, w), ([Shard(0)], [Shard(0)]), [[Shard(0)]] * 2, wrap=by_operator)
    compare("batch, by the operator", three, mesh, (batch, k), ([Shard(1)], [Shard(0)]), [[Shard(1)]], wrap=by_operator)
    four = weighted(lang)
    compare("with scratch and a global", four, mesh, (x,), ([Shard(0)],), [[Shard(0)]])
    compare("the same by the operator", four, mesh, (x,), ([Shard(0)],), [[Shard(0)]], wrap=by_operator)
    with torch.inference_mode():
        shared = [distribute_tensor(one, mesh, p) for one, p in ((even, [Shard(0)]), (w, [Replicate()]))]
        torch.testing.assert_close(one(*shared).y.full_tensor(), even @ w)
    compare("batch", three, mesh, (batch, k), ([Shard(0)], [Replicate()]), [[Shard(0)]])
    compare("second batch dim", three, mesh, (batch, k), ([Shard(1)], [Replicate()]), [[Shard(1)]])
    compare("neighbors", three, mesh, (batch, k), ([Shard(2)], [Shard(0)]), [[Replicate()]])
    line = torch.randn(5 * world, dtype=F64)
    compare("numbered", numbered(lang), mesh, (line,), ([Shard(0)],), [[Replicate()]])
    compare("total", total(lang), mesh, (line,), ([Shard(0)],), [[Replicate()]] * 2)
    if world == 4:
        plane = init_device_mesh("cpu", (2, 2))
        compare("a plane", two, plane, (x, x), ([Shard(0), Shard(1)], [Replicate(), Shard(1)]), [[Shard(0), Shard(1)]])
        compare(
            "a plane of batches",
            three,
            plane,
            (batch, k),
            ([Shard(0), Shard(1)], [Replicate()] * 2),
            [[Shard(0), Shard(1)]],
        )
    partial = DTensor.from_local(even / world, mesh, [Partial()])
    torch.testing.assert_close(one(partial, distribute_tensor(w, mesh, [Replicate()])).y.full_tensor(), even @ w)
    with pytest.raises(ts.ArgumentError, match="`w` of op `rows` is not a DTensor(?s:.*)distribute_tensor[(]w"):
        one(distribute_tensor(x, mesh, [Shard(0)]), w)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def drawn(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * lang.random()

    with pytest.raises(ts.ArgumentError, match="op `drawn` draws random numbers"):
        drawn(distribute_tensor(line, mesh, [Shard(0)]))


def main(engines):
    dist.init_process_group("gloo")
    for engine in engines:
        lang = load_quietly(engine)
        ts.init("cpu", engine=engine, default_fp=lang.f64)
        check(lang, dist.get_world_size())
    sys.stdout.write(f"process {dist.get_rank()}: the same\n")
    dist.destroy_process_group()
    sys.stdout.flush()
    # not through Python's end, where threads of the engine and of gloo now and then terminate the process
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
