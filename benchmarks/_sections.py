"""Sections of the overhead benchmark: one function for each question. Each returns rows for the table."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
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


@dataclass
class Bench:
    """The setup of the benchmark: device, effort, sizes and libraries; and the grids, which are filled by the sections.

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
        """Return all ways to compute y = 3 x for any number of elements."""
        all_ways: dict[str, Way] = {f"ts.op on {name}": _ways.ours(lang) for name, lang in self.langs.items()}
        all_ways |= {f"by hand on {name}": _ways.by_hand(triple(lang)) for name, lang in self.langs.items()}
        all_ways[TORCH] = _ways.Triple.apply
        if not isinstance(self.warp, Missing):
            all_ways["Warp"] = _ways.with_warp(self.warp)
        return all_ways

    def fixed_ways(self, size: int) -> dict[str, Way]:
        """Return the ways that are built for one size."""
        if isinstance(self.stannum, Missing) or "taichi" not in self.langs:
            return {}
        return {"Stannum EmptyTin": _ways.empty_tin(self.stannum, self.langs["taichi"], size, self.device)}


# How a way is used ------------------------------------------------------------------------
def forward(way: Way, inputs: Sequence[Tensor]) -> Call:
    """Return a call of a way without gradients."""

    def call() -> None:
        with torch.no_grad():
            way(*inputs)

    return call


def both(way: Way, inputs: Sequence[Tensor], cotangent: Tensor, leaves: int | None = None) -> Call:
    """Return a call of a way forward and backward, from a given cotangent. The first `leaves` inputs get gradients; all
    by default.
    """
    mine = [tensor.clone().requires_grad_(leaves is None or i < leaves) for i, tensor in enumerate(inputs)]
    given = cotangent.clone()  # some ways overwrite the cotangent

    def call() -> None:
        for leaf in mine[:leaves]:
            leaf.grad = None
        way(*mine).backward(given)

    return call


def both_of_sum(way: Way, inputs: Sequence[Tensor]) -> Call:
    """Return a call of a way forward and backward, from the sum of its output: the cotangent is one expanded number."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]

    def call() -> None:
        for leaf in leaves:
            leaf.grad = None
        way(*leaves).sum().backward()

    return call


# What a call costs ------------------------------------------------------------------------
def by_size(bench: Bench) -> list[Row | Absent]:
    """Time all sizes, forward and with backward. The targets are for 64 elements."""
    open_ways, rows = bench.ways(), []
    for size in bench.sizes:
        ways = open_ways | bench.fixed_ways(size)
        inputs = [torch.rand(size, device=bench.device)]
        alone = bench.timed({name: forward(way, inputs) for name, way in ways.items()})
        given = torch.ones(size, device=bench.device)
        whole = bench.timed({name: both(way, inputs, given) for name, way in ways.items()})
        bench.grid("Forward, one input", "elements").add(size, alone)
        bench.grid("Forward and backward, one input", "elements").add(size, whole)
        if size == FEW:
            rows += _call_rows(f"{FEW} elements, y.backward(g)", whole)
            summed = {name: both_of_sum(way, inputs) for name, way in ways.items() if name != "Warp"}
            rows += _call_rows(f"{FEW} elements, y.sum().backward()", bench.timed(summed))
    rows += [Absent(f"beside {peer.name}", peer.reason) for peer in (bench.warp, bench.stannum) if _is_missing(peer)]
    return rows


def _call_rows(what: str, timings: Mapping[str, Timing]) -> list[Row]:
    rows = []
    for engine in ENGINES:
        mine = f"ts.op on {engine}"
        if mine not in timings:
            continue
        rows.append(times_faster(what, mine, f"by hand on {engine}", timings, bar=4, aim=6))
        rows.append(times_as_long(what, mine, TORCH, timings, bar=1.5, aim=1.2))
        if "Warp" in timings:
            rows.append(times_faster(what, mine, "Warp", timings, bar=1))
        if "Stannum EmptyTin" in timings:
            rows.append(times_faster(what, mine, "Stannum EmptyTin", timings, bar=4, aim=10))
    return rows


def of_tube(bench: Bench) -> list[Row | Absent]:
    """Time a kernel on template arguments, as Stannum's Tube requires it, also over a batch in one launch."""
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
        timings = bench.timed({name: both(way, inputs, given) for name, way in ways.items()})
        what = f"{FEW} elements, y.backward(g)" + (f", batch of {batch}" if is_batched else "")
        rows += [times_faster(what, f"ts.op on {n}", "Stannum Tube", timings, bar=1000) for n in bench.langs]
    return rows


def by_arguments(bench: Bench) -> list[Row | Absent]:
    """Time each further array argument: forward, with one gradient for all, and with a gradient of its own."""
    alone, one, every = {}, {}, {}
    for count in bench.counts:
        inputs = [torch.rand(FEW, device=bench.device) for _ in range(count)]
        given = torch.ones(FEW, device=bench.device)
        ways: dict[str, Way] = {f"ts.op on {n}": _ways.ours_total(lang, count) for n, lang in bench.langs.items()}
        ways |= {f"by hand on {n}": _ways.total_by_hand(total(lang, count)) for n, lang in bench.langs.items()}
        ways[TOTAL] = _ways.Total.apply
        for name, way in ways.items():
            alone[name, count] = forward(way, inputs)
            one[name, count] = both(way, inputs, given, leaves=1)
            every[name, count] = both(way, inputs, given)
    return [
        *_argument_rows(bench, "forward", alone),
        *_argument_rows(bench, "forward and backward, one gradient", one),
        *_argument_rows(bench, "forward and backward, a gradient each", every, beyond_torch=True),
    ]


def _argument_rows(
    bench: Bench, what: str, calls: Mapping[tuple[str, int], Call], *, beyond_torch: bool = False
) -> list[Row | Absent]:
    """Build the rows for a further argument. If torch's own cost of a gradient exceeds the target, only the rest is
    compared.
    """
    grid = bench.grid(f"{what.capitalize()}, {FEW} elements", "inputs")
    for (name, count), timing in bench.timed(calls).items():
        grid.add(count, {name: timing})
    slopes = {name: slope(timings) for name, timings in grid.timings.items()}
    rows: list[Row | Absent] = []
    for engine in bench.langs:
        mine, by_hand = slopes[f"ts.op on {engine}"], slopes[f"by hand on {engine}"]
        floor = slopes[TOTAL].middle if beyond_torch else 0.0
        figure = Figure(mine.middle - floor, mine.low - floor, mine.high - floor)
        said = f"ts.op on {engine}: {in_words(mine.middle)}"
        against = f"by hand {in_words(by_hand.middle)}; {TOTAL} {in_words(slopes[TOTAL].middle)}"
        unit = "us beyond torch's" if beyond_torch else "us"
        rows.append(Row(f"each further array, {what}", said, against, figure, "<=", 3, None, unit, 1e6))
    return rows


def of_many_elements(bench: Bench) -> list[Row | Absent]:
    """Time large arrays, for which memory counts: compare with torch's multiplication into an existing buffer.

    An op's result is a new tensor. On the CPU, the system's work for new memory takes longer than the kernel, as
    torch's own multiplication shows. So it is timed twice, the second time with freed memory kept by the allocator.
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


def _rows_beside_buffer(what: str, timings: Mapping[str, Timing]) -> list[Row | Absent]:
    names = [name for name in timings if name != BUFFER]
    rows = [times_as_long(what, name, BUFFER, timings, bar=1.5) for name in names]
    return [replace(row, bar=None) if name == NEW else row for name, row in zip(names, rows, strict=True)]


def of_import(bench: Bench) -> list[Row | Absent]:
    """Time whole processes with and without this library, in processor time, which other programs on the machine do not
    affect.
    """
    rows: list[Row | Absent] = []
    for engine in list(bench.langs)[: 1 if bench.is_quick else None]:
        base = f"import torch, {engine}"
        codes = (base, f"{base}, tinsmith", f"{base}, tinsmith; tinsmith.op")
        for code in codes[: 0 if bench.is_quick else None]:
            _processor_seconds(code)  # the first time writes bytecode
        pairs = [[_processor_seconds(code) for code in codes] for _ in range(bench.import_rounds)]
        without, *with_us = (statistics.median(times) for times in zip(*pairs, strict=True))
        for place, (code, seconds) in enumerate(zip(codes[1:], with_us, strict=True), 1):
            figure = Figure.of([times[place] - times[0] for times in pairs], seconds - without)
            said = f"{code}: {in_words(seconds)}", f"{base}: {in_words(without)}"
            bar = 0.2 if place == 1 else None  # modules that a first op loads are reported without a target
            rows.append(Row("whole process, processor time", *said, figure, "<=", bar, None, "s"))
    return rows


def _processor_seconds(code: str) -> float:
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


# Rows -------------------------------------------------------------------------------------
def times_faster(
    what: str, mine: str, other: str, timings: Mapping[str, Timing], *, bar: float, aim: float | None = None
) -> Row:
    """Build a row that says how many times as fast `mine` is as `other`."""
    figure = ratio(timings[other], timings[mine])
    return Row(what, _said(mine, timings), _said(other, timings), figure, ">=", bar, aim, "x faster")


def times_as_long(
    what: str, mine: str, other: str, timings: Mapping[str, Timing], *, bar: float, aim: float | None = None
) -> Row:
    figure = ratio(timings[mine], timings[other])
    return Row(what, _said(mine, timings), _said(other, timings), figure, "<=", bar, aim, "x its time")


def _said(name: str, timings: Mapping[str, Timing]) -> str:
    return f"{name}: {in_words(timings[name].median)}"


def _is_missing(peer: Any) -> bool:
    return isinstance(peer, Missing)
