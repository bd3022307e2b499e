"""Parts: where the time of a call goes, from autograd alone to the whole op, each way with one part more.

A part is the difference of two ways that are timed in the same rounds. Its time inside a call is larger than alone,
since the other parts take the processor's caches from it.
"""

# pyright: reportIncompatibleMethodOverride=false
# torch declares a Function's backward as (ctx, *grad_outputs); everybody writes its real arguments.

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import _ways
from _harness import Figure, Timing
from _report import Absent, Row, in_words
from _sections import FEW, Bench, both
from _ways import Way
from tinsmith.calls import BoundArguments
from tinsmith.engines import HeldLaunch, make_held_launch

PARTS = (
    ("autograd and new memory", "torch's own work for a Function, and two tensors"),
    ("the engine's launches", "with arguments that are filled in already"),
    ("launch arguments", "addresses and sizes into the launch, checks, the clock"),
    ("the autograd rule", "what is saved, which gradients are wanted, which pass runs them"),
    ("binding and key", "what the call is: dtypes, memory, modes, the program for it"),
)


def of_parts(bench: Bench) -> list[Row | Absent]:
    """Time the parts of a call with its gradient, on a few elements. They are shown, and have no target."""
    rows: list[Row | Absent] = []
    for engine, lang in bench.langs.items():
        mine, what = f"ts.op on {engine}", f"part of {FEW} elements, y.backward(g)"
        x, given = torch.rand(FEW, device=bench.device), torch.ones(FEW, device=bench.device)
        ways = _cumulative_ways(_ways.ours(lang), x, given)
        if ways is None:
            rows.append(Absent(f"{what}, {mine}", "a launch has a context of its own each time"))
            continue
        timings = bench.timed({name: both(way, [x], given) for name, way in ways.items()})
        rows += _rows(f"{what}, {mine}", timings)
    return rows


def _rows(what: str, timings: Mapping[str, Timing]) -> list[Row]:
    rows, before = [], Timing(dict.fromkeys(next(iter(timings.values())).rounds, 0.0))
    for name, words in PARTS:
        now = timings[name]
        own = [now.rounds[place] - before.rounds[place] for place in now.rounds if place in before.rounds]
        figure = Figure.of(own, now.median - before.median)
        rows.append(Row(what, f"{name}: {words}", f"in all {in_words(now.median)}", figure, unit="us", scale=1e6))
        before = now
    return rows


def _cumulative_ways(op: Any, x: Tensor, given: Tensor) -> dict[str, Way] | None:
    """Return the ways, each with one part more; None if an engine cannot keep arguments in a launch."""
    leaf = x.clone().requires_grad_()
    for _ in range(2):
        op(leaf).backward(given)
    program = next(one for one in op._core.programs.values() if one.active)
    numbers = program.solve([x.shape], {})
    forward = program.own_passes.forward.find(numbers, {})
    backward = next(iter(program.known_runners.values())).find(numbers, {})
    first, kept = _hold(forward, (x,), (), numbers)
    second, kept_too = _hold(backward, {"x": x}, (given,), numbers)
    if first is None or second is None:
        return None
    asked = op._core, program, numbers, BoundArguments((), {}, {}, {})

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return torch.empty_like(x)

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            return torch.empty_like(dy)

    class Launches(torch.autograd.Function):
        memory = kept, kept_too

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            first.run()
            return torch.empty_like(x)

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            second.run()
            return torch.empty_like(dy)

    class Passes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return forward((x,), (), numbers, {})[1]

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            return backward({"x": x}, (dy,), numbers, {})[0]

    functions = (Nothing.apply, Launches.apply, Passes.apply, lambda x: op._eager(asked, x), op)
    return {name: way for (name, _), way in zip(PARTS, functions, strict=True)}


def _hold(run: Any, inputs: Any, cotangents: Any, numbers: Any) -> tuple[HeldLaunch | None, Any]:
    """Return the launch of a pass with its arguments filled in, and the objects that keep their memory alive."""
    seen = []
    names = {**run.__globals__, "launch": lambda *arguments: seen.append(arguments)}
    kept = types.FunctionType(run.__code__, names)(inputs, cotangents, numbers, {})
    return make_held_launch(run.__globals__["launch"], *seen[0]), (inputs, cotangents, kept)
