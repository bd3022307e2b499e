"""Forms of a call: the same work, with arguments of every kind beside tensors, and Python values that a kernel uses.

Also updates in place that autograd records.
"""

# Kernels are compiled from annotations that are values, so this file does not import `annotations`.
# pyright: reportInvalidTypeForm=false

from collections.abc import Callable
from typing import Any

import torch

import tinsmith as ts
from _report import Absent, Row
from _sections import FEW, Bench, times_as_long

TENSORS, FACTOR = "tensors alone", 3.0
TARGET = 2.0
"""A call of any form takes at most this number of times as long as one of tensors alone."""
IN_PLACE, FUNCTIONAL, MANY = "in place", "functional", 1_000_000
UPDATE_TARGET = 1.5
"""Updates in place and their gradient take at most this number of times as long as in the functional form."""


def by_form(bench: Bench) -> list[Row | Absent]:
    """Time forward calls of each form."""
    rows: list[Row | Absent] = []
    for engine, lang in bench.langs.items():
        timings = bench.timed(make_calls(lang, bench.device))
        what = f"{FEW} elements, forward, a form of call, ts.op on {engine}"
        rows += [times_as_long(what, form, TENSORS, timings, bar=TARGET) for form in timings if form != TENSORS]
    return rows


def of_updates(bench: Bench) -> list[Row | Absent]:
    """Time three updates of a state and their gradient: in place, and by the functional form of the same op."""
    rows: list[Row | Absent] = []
    for engine, lang in bench.langs.items():
        for count in (FEW, MANY):
            timings = bench.timed(make_updates(lang, bench.device, FEW if bench.is_quick else count))
            what = f"{count:,} elements, three updates and their gradient, ts.op on {engine}"
            rows += [times_as_long(what, IN_PLACE, FUNCTIONAL, timings, bar=UPDATE_TARGET)]
    return rows


def make_updates(lang: Any, device: str, count: int) -> dict[str, Callable[[], object]]:
    """Return three updates and their backward pass, in either form."""
    array = lang.types.ndarray()

    @ts.op("inout x[n], v[n] ->")
    @lang.kernel
    def move(x: array, v: array):
        for i in x:
            x[i] += 0.1 * v[i]

    start, speed = torch.rand(count, device=device), torch.rand(count, device=device, requires_grad=True)
    gradient = torch.ones(count, device=device)

    def in_place() -> None:
        x = start.clone()
        for _ in range(3):
            move(x, speed)
        torch.autograd.grad(x, speed, gradient)

    def functional() -> None:
        x = start.clone()
        for _ in range(3):
            x = move.functional(x, speed)
        torch.autograd.grad(x, speed, gradient)

    return {IN_PLACE: in_place, FUNCTIONAL: functional}


def make_calls(lang: Any, device: str) -> dict[str, Callable[[], object]]:
    """Return the call of each form, by its name."""
    x = torch.rand(FEW, device=device)
    return {**make_calls_with_arguments(lang, x), **make_calls_of_kernels(lang, x)}


def make_calls_with_arguments(lang: Any, x: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Return calls that differ in their arguments."""
    vector, array = lang.types.vector(3, lang.f32), lang.types.ndarray()

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scale(x: array, y: array):
        for i in y:
            y[i] = 3.0 * x[i]

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scale_by(x: array, factor: float, y: array):
        for i in y:
            y[i] = factor * x[i]

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scale_by_vector(x: array, factors: vector, y: array):
        for i in y:
            y[i] = factors[0] * x[i]

    @ts.op("x[n] -> y[m]")
    @lang.kernel
    def scale_some(x: array, y: array):
        for i in y:
            y[i] = 3.0 * x[i]

    return {
        TENSORS: lambda: scale(x),
        "a keyword": lambda: scale(x=x),
        "a number": lambda: scale_by(x, 3.0),
        "a vector": lambda: scale_by_vector(x, [3.0, 0.0, 0.0]),
        "a dim by keyword": lambda: scale_some(x, m=FEW),
    }


def make_calls_of_kernels(lang: Any, x: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Return calls that differ in what the kernel changes or uses."""
    array = lang.types.ndarray()

    @ts.op("inout x[n] ->")
    @lang.kernel
    def scale_in_place(x: array):
        for i in x:
            x[i] *= 1.0

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scale_by_value(x: array, y: array):
        for i in y:
            y[i] = FACTOR * x[i]

    @lang.func
    def triple(a):
        return 3.0 * a

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scale_by_function(x: array, y: array):
        for i in y:
            y[i] = triple(x[i])

    return {
        "an update in place": lambda: scale_in_place(x),
        "a Python value in the kernel": lambda: scale_by_value(x),
        "a function of the engine": lambda: scale_by_function(x),
    }
