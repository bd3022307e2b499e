"""Sections: what is measured, one function a question. Each returns rows for the table."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

import _ways
from _harness import Call, Effort, Figure, Name, Timing, keep_memory, ratio, slope, timed
from _kernels import total, triple
from _report import Absent, Grid, Row, in_words
from _ways import ENGINES, Missing, Way

FEW = 64
"""Elements of the calls where nothing but the call itself counts."""
TORCH, TOTAL = "torch Function x * 3", "torch Function a + b + ..."
BUFFER, NEW = "torch.mul(x, 3, out=y)", "torch.mul(x, 3)"
IMPORT = "import torch, {engine}"


@dataclass
class Bench:
    """Where and how to measure, and what there is to measure. Grids are filled in as it goes.

    Attributes:
        batch: size of the batch that Tube is given; 0 for none.
        langs: the engines' modules by name.
        warp, stannum: modules, or why they are missing.
    """

    device: str
    effort: Effort
    sizes: Sequence[int]
    counts: Sequence[int]
    batch: int
    import_rounds: int
    is_quick: bool
    langs: dict[str, Any]
    warp: Any
    stannum: Any
    grids: dict[str, Grid] = field(default_factory=dict)

    def timed(self, calls: Mapping[Name, Call]) -> dict[Name, Timing]:
        return timed(calls, self.effort, torch.cuda.synchronize if self.device == "cuda" else lambda: None)

    def grid(self, title: str, number: str) -> Grid:
        return self.grids.setdefault(title, Grid(title, number))

    def ways(self) -> dict[str, Way]:
        """Everybody's y = 3 x for any number of elements."""
        found: dict[str, Way] = {f"ts.op on {name}": _ways.ours(lang) for name, lang in self.langs.items()}
        found |= {f"by hand on {name}": _ways.by_hand(triple(lang)) for name, lang in self.langs.items()}
        found[TORCH] = _ways.Triple.apply
        if not isinstance(self.warp, Missing):
            found["Warp"] = _ways.with_warp(self.warp)
        return found

    def fixed_ways(self, size: int) -> dict[str, Way]:
        """Those that know one size."""
        if isinstance(self.stannum, Missing) or "taichi" not in self.langs:
            return {}
        return {"Stannum EmptyTin": _ways.empty_tin(self.stannum, self.langs["taichi"], size, self.device)}


# How a way is used ------------------------------------------------------------------------
def forward(way: Way, inputs: Sequence[Tensor]) -> Call:
    """Without gradients."""

    def call() -> None:
        with torch.no_grad():
            way(*inputs)

    return call


def both(way: Way, inputs: Sequence[Tensor], cotangent: Tensor) -> Call:
    """Forward and backward, from a gradient that the caller has."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    mine = cotangent.clone()  # not everybody leaves it as it was

    def call() -> None:
        for leaf in leaves:
            leaf.grad = None
        way(*leaves).backward(mine)

    return call


def both_of_sum(way: Way, inputs: Sequence[Tensor]) -> Call:
    """Forward and backward, from a sum: the gradient that comes back is one number, expanded."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]

    def call() -> None:
        for leaf in leaves:
            leaf.grad = None
        way(*leaves).sum().backward()

    return call


# What a call costs ------------------------------------------------------------------------
def by_size(bench: Bench) -> list[Row | Absent]:
    """All sizes, forward and both; the bars are held at 64 elements."""
    open_ways, rows = bench.ways(), []
    for size in bench.sizes:
        ways = open_ways | bench.fixed_ways(size)
        inputs = [torch.rand(size, device=bench.device)]
        alone = bench.timed({name: forward(way, inputs) for name, way in ways.items()})
        given = torch.ones(size, device=bench.device)
        whole = bench.timed({name: both(way, inputs, given) for name, way in ways.items()})
        bench.grid("Forward", "elements").add(size, alone)
        bench.grid("Forward and backward", "elements").add(size, whole)
        if size == FEW:
            rows += _call_rows(f"{FEW} elements, y.backward(g)", whole)
            summed = {name: both_of_sum(way, inputs) for name, way in ways.items() if name != "Warp"}
            rows += _call_rows(f"{FEW} elements, y.sum().backward()", bench.timed(summed))
    rows += [Absent(f"beside {peer.name}", peer.reason) for peer in (bench.warp, bench.stannum) if _is_missing(peer)]
    return rows


def _call_rows(what: str, found: Mapping[str, Timing]) -> list[Row]:
    rows = []
    for engine in ENGINES:
        mine = f"ts.op on {engine}"
        if mine not in found:
            continue
        rows.append(_times_faster(what, mine, f"by hand on {engine}", found, bar=4, aim=6))
        rows.append(_times_as_long(what, mine, TORCH, found, bar=1.5, aim=1.2))
        if "Warp" in found:
            rows.append(_times_faster(what, mine, "Warp", found, bar=1))
        if "Stannum EmptyTin" in found:
            rows.append(_times_faster(what, mine, "Stannum EmptyTin", found, bar=4, aim=10))
    return rows


def of_tube(bench: Bench) -> list[Row | Absent]:
    """A kernel on template arguments, as Stannum's Tube wants it, also over a batch in one launch."""
    if _is_missing(bench.stannum) or "taichi" not in bench.langs:
        return []
    rows = []
    for batch in [None, *([bench.batch] if bench.batch else [])]:
        is_batched = batch is not None
        shape = (batch, FEW) if is_batched else (FEW,)
        inputs, given = [torch.rand(shape, device=bench.device)], torch.ones(shape, device=bench.device)
        ways = {
            f"ts.op on {name}": _ways.ours_of_templates(lang, batched=is_batched) for name, lang in bench.langs.items()
        }
        ways["Stannum Tube"] = _ways.tube(bench.stannum, bench.langs["taichi"], FEW, batched=is_batched)
        found = bench.timed({name: both(way, inputs, given) for name, way in ways.items()})
        what = f"{FEW} elements, y.backward(g)" + (f", batch of {batch}" if is_batched else "")
        rows += [_times_faster(what, f"ts.op on {n}", "Stannum Tube", found, bar=1000) for n in bench.langs]
    return rows


def by_arguments(bench: Bench) -> list[Row | Absent]:
    """What each further array argument costs, every one of them with a gradient."""
    alone, whole = {}, {}
    for count in bench.counts:
        inputs, given = [torch.rand(FEW, device=bench.device) for _ in range(count)], torch.ones(FEW)
        ways: dict[str, Way] = {f"ts.op on {n}": _ways.ours_total(lang, count) for n, lang in bench.langs.items()}
        ways |= {f"by hand on {n}": _ways.total_by_hand(total(lang, count)) for n, lang in bench.langs.items()}
        ways[TOTAL] = _ways.Total.apply
        for name, way in ways.items():
            alone[name, count] = forward(way, inputs)
            whole[name, count] = both(way, inputs, given.to(bench.device))
    return _argument_rows(bench, "Forward", alone) + _argument_rows(bench, "Forward and backward", whole)


def _argument_rows(bench: Bench, what: str, calls: Mapping[tuple[str, int], Call]) -> list[Row]:
    grid = bench.grid(f"{what}, {FEW} elements, by arguments", "inputs")
    for (name, count), timing in bench.timed(calls).items():
        grid.add(count, {name: timing})
    slopes = {name: slope(timings) for name, timings in grid.timings.items()}
    rows = []
    for engine in bench.langs:
        others = [f"{name} {in_words(slopes[name].middle)}" for name in (f"by hand on {engine}", TOTAL)]
        figure = slopes[f"ts.op on {engine}"]
        what_each = f"each further array, {what.lower()}"
        rows.append(Row(what_each, f"ts.op on {engine}", "; ".join(others), figure, "<=", 3, None, "us", 1e6))
    return rows


def of_many_elements(bench: Bench) -> list[Row | Absent]:
    """Where memory is what counts: torch's multiplication into a buffer that is already there.

    An op's result is a new tensor. On the CPU the system's work for new memory outweighs the kernel's, torch's
    own multiplication shows by how much; so it is asked twice, the second time with freed memory kept.
    """
    size = max(bench.sizes)
    x = torch.rand(size, device=bench.device)
    buffer = torch.empty_like(x)
    ways: dict[str, Way] = {}
    for engine, lang in bench.langs.items():
        ways[f"ts.op on {engine}"] = _ways.ours(lang)
        ways[f"ts.op on {engine}, init empty"] = _ways.ours_unfilled(lang)
    ways[NEW] = lambda x: torch.mul(x, 3.0)
    ways[BUFFER] = lambda x: torch.mul(x, 3.0, out=buffer)
    calls = {name: forward(way, [x]) for name, way in ways.items()}
    what = f"{size:,} elements, forward"
    rows = _rows_beside_buffer(what, bench.timed(calls))
    if bench.device == "cpu" and keep_memory():
        rows += _rows_beside_buffer(f"{what}, memory kept", bench.timed(calls))
    return rows


def _rows_beside_buffer(what: str, found: Mapping[str, Timing]) -> list[Row | Absent]:
    names = [name for name in found if name != BUFFER]
    rows = [_times_as_long(what, name, BUFFER, found, bar=1.5) for name in names]
    return [replace(row, bar=None) if name == NEW else row for name, row in zip(names, rows, strict=True)]


def of_import(bench: Bench) -> list[Row | Absent]:
    """Whole processes, with and without this library."""
    rows = []
    for engine in list(bench.langs)[: 1 if bench.is_quick else None]:
        base = IMPORT.format(engine=engine)
        codes = {base: base, f"{base}, tinsmith": f"{base}, tinsmith"}
        seconds: dict[str, list[float]] = {name: [] for name in codes}
        for number in range(bench.import_rounds):
            for name, code in codes.items():
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
                if number or bench.is_quick:  # the first writes bytecode, and reads the disk
                    seconds[name].append(time.perf_counter() - start)
        without, with_us = seconds.values()
        medians = statistics.median(with_us), statistics.median(without)
        figure = Figure.of([b - a for a, b in zip(without, with_us, strict=True)], medians[0] - medians[1])
        ours, against = (f"{name}: {in_words(t)}" for name, t in zip(reversed(codes), medians, strict=True))
        rows.append(Row("whole process", ours, against, figure, "<=", 0.2, None, "s"))
    return rows


# Rows -------------------------------------------------------------------------------------
def _times_faster(
    what: str, mine: str, other: str, found: Mapping[str, Timing], *, bar: float, aim: float | None = None
) -> Row:
    figure = ratio(found[other], found[mine])
    return Row(what, _said(mine, found), _said(other, found), figure, ">=", bar, aim, "x faster")


def _times_as_long(
    what: str, mine: str, other: str, found: Mapping[str, Timing], *, bar: float, aim: float | None = None
) -> Row:
    figure = ratio(found[mine], found[other])
    return Row(what, _said(mine, found), _said(other, found), figure, "<=", bar, aim, "x its time")


def _said(name: str, found: Mapping[str, Timing]) -> str:
    return f"{name}: {in_words(found[name].median)}"


def _is_missing(peer: Any) -> bool:
    return isinstance(peer, Missing)


# What comes out ---------------------------------------------------------------------------
def truth(bench: Bench) -> list[str]:
    """Whose gradients are right, as lines of markdown: speed without that is worth little."""
    lines = [
        "y = 3 x, with x a leaf and g all ones. A sibling is another term of the sum that y goes into.",
        "",
        "| way | x.grad, y.backward(g): 3 | x.grad, y.sum().backward(): 3 | sibling's gradient: 1 | g afterwards: 1 |",
        "|---|---|---|---|---|",
    ]
    ways = bench.ways() | bench.fixed_ways(FEW)
    if not _is_missing(bench.stannum) and "taichi" in bench.langs:
        ways["Stannum Tube"] = _ways.tube(bench.stannum, bench.langs["taichi"], FEW, batched=False)
    for name, way in ways.items():
        cells = [_tried(way, question, bench.device) for question in (_leaf, _leaf_of_sum, _sibling, _given)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _tried(way: Way, question: Any, device: str) -> str:
    x = torch.ones(FEW, device=device, requires_grad=True)
    try:
        found, right = question(way, x)
    except Exception as refusal:  # noqa: BLE001  # how it fails is what is asked
        return f"{type(refusal).__name__}: {str(refusal).splitlines()[0][:80]}"
    return f"{found:g}" if found == right else f"**{found:g}**"


def _leaf(way: Way, x: Tensor) -> tuple[float, float]:
    way(x).backward(torch.ones_like(x))
    return _first(x.grad), 3


def _leaf_of_sum(way: Way, x: Tensor) -> tuple[float, float]:
    way(x).sum().backward()
    return _first(x.grad), 3


def _sibling(way: Way, x: Tensor) -> tuple[float, float]:
    sibling = torch.ones_like(x, requires_grad=True)
    (way(x) + sibling).backward(torch.ones_like(x))
    return _first(sibling.grad), 1


def _given(way: Way, x: Tensor) -> tuple[float, float]:
    cotangent = torch.ones_like(x)
    way(x).backward(cotangent)
    return _first(cotangent), 1


def _first(tensor: Tensor | None) -> float:
    return float("nan") if tensor is None else tensor[0].item()
