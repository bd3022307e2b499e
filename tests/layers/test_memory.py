"""A layer that is trained for long does not grow: neither the process, nor what it keeps by shape."""

import ctypes
import gc
import os
from pathlib import Path

import pytest
import torch

import tinsmith as ts
from support.dropin import CPU
from support.scenes import model

BOUND = 2**20
"""Bytes, over however many steps. A step that keeps its graph keeps some thousand."""

steps = pytest.mark.parametrize("steps", [1000, pytest.param(10_000, marks=pytest.mark.costly)])
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


def resident():
    """Return the resident bytes of the process, after freed memory was returned to the system."""
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(step, steps):
    """Return by how many bytes the process grows over so many steps, after everything one-time is allocated."""
    for number in range(steps // 5):
        step(number)
    before = resident()
    for number in range(steps):
        step(number)
    return resident() - before


def test_the_measurement_notices_leaks():
    freed = [torch.rand(4096) for _ in range(3000)]  # as earlier tests leave behind
    del freed
    kept = []
    # Several pages each: smaller ones would find room in pages that somebody else keeps a part of.
    assert grown(lambda number: kept.append(torch.rand(4096)), 1000) > BOUND


def tube(lang):
    @lang.kernel
    def scale(w: lang.template(), x: lang.template(), y: lang.template()):
        for i, j in x:
            y[i, j] = w[j] * x[i, j]

    dims = (ts.BatchDim, ts.AnyDim, ts.MatchDim("n"))
    made = ts.Tube().register_input_tensor((ts.MatchDim("n"),), torch.float32, "w")
    made = made.register_input_tensor(dims, torch.float32, "x")
    made = made.register_output_tensor(lambda name, dims, shapes: (None, *shapes["x"][1:]), torch.float32, "y", True)
    return made.register_kernel(scale, ["w", "x", "y"]).finish()


@pytest.mark.compiled_engine
@steps
def test_a_tube_does_not_grow_while_shapes_change(lang, steps):
    layer = tube(lang)
    w = torch.rand(4, requires_grad=True)

    def step(number):
        w.grad = None
        layer(w, torch.rand(1 + number % 3, 1 + number % 7, 4)).sum().backward()

    assert grown(step, steps) < BOUND


@pytest.mark.costly
@steps
def test_a_tin_does_not_grow_while_it_trains(lang64, steps):
    made = model(lang64)
    layer = ts.Tin(made, CPU).register_input_field(made.x).register_output_field(made.y)
    layer = layer.register_weight_field(made.w, name="w").register_kernel("scale").register_kernel("shift", 1.0, 0.5)
    optimizer = torch.optim.SGD(layer.finish().parameters(), lr=1e-6)
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)

    def step(number):
        optimizer.zero_grad()
        x.grad = None
        layer(x).sum().backward()
        optimizer.step()

    assert grown(step, steps) < BOUND


@steps
def test_a_layer_that_is_called_without_a_backward_does_not_grow(lang, steps):
    layer = tube(lang)
    w = torch.rand(4, requires_grad=True)
    assert grown(lambda number: layer(w, torch.rand(2, 3, 4)), steps) < BOUND
