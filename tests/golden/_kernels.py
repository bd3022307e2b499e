"""The kernels of the store, by name: each is a function that uses one in every way and returns what was generated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import torch

import cases
import rows
import tinsmith as ts
from fuzz.__main__ import DTYPES
from fuzz._brief import write_brief
from fuzz._grammar import Program, write
from fuzz._modes import Trial
from fuzz._stencils import write_stencils
from fuzz._vectors import write_vectors
from fuzz._wide import write_wide
from golden._capture import record, use_in_every_way
from support.as_op import make_op

Texts = Mapping[str, str]


class Entry(NamedTuple):
    """A kernel of the store.

    Attributes:
        default_fp: what Python's floats are in it.
        use: uses the kernel, written for an engine, in every way, and returns what was generated.
    """

    default_fp: str
    use: Callable[[ModuleType], Texts]


PROGRAMS: Mapping[str, tuple[Callable[[int], Program], str, int]] = {
    "wide": (write_wide, "f64", 100),
    "brief": (write_brief, "f64", 100),
    "nest": (write, "f64", 20),
    "vectors": (write_vectors, "f32", 40),
    "stencil": (write_stencils, "f32", 40),
}
"""Random programs: their grammar, type, and how many."""


def list_entries() -> dict[str, Entry]:
    """Return all entries by name."""
    entries = {f"case {one.name}": Entry("f32", partial(_use_case, one)) for one in cases.ALL}
    entries |= {f"row {one.name}": Entry("f32", partial(_use_row, one)) for one in rows.ALL}
    for name, (write_program, kind, count) in PROGRAMS.items():
        entries |= {f"{name} {seed}": Entry(kind, partial(_use_program, write_program, seed)) for seed in range(count)}
    return entries


def _use_case(case: cases.Case, lang: ModuleType) -> Texts:
    op = case.build(lang, lang.f32)
    return use_in_every_way(lambda *inputs: op(*inputs, **case.keywords), case.inputs(torch.float32))


def _use_row(row: Any, lang: ModuleType) -> Texts:
    try:
        op, inputs = make_op(row.build(lang, lang.f32), *row.draw(rows.Draw(torch.float32)))
    except ts.TinsmithError as refusal:
        return {"op": str(refusal)}
    return use_in_every_way(op, inputs)


def _use_program(write_program: Callable[[int], Program], seed: int, lang: ModuleType) -> Texts:
    trial = Trial(write_program(seed), lang, DTYPES[lang.lang.impl.get_runtime().default_fp.to_string()])
    floats, integers = trial._first(), tuple(trial.samples[0].integers.values())

    def call(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(trial._call(trial.op, given[: len(floats)], given[len(floats) :]).values())

    stacked = trial._stacked()
    batch = record(lambda: trial._call(trial._batched_op, *stacked))
    return {**use_in_every_way(call, (*floats, *integers)), "batch dims": batch}
