"""Ops with their slow twins in torch: one table that every test of the bridge walks along.

A row says how an op is built for an engine, what inputs it is tried on, and what torch would compute.
The same rows serve gradcheck, opcheck, vmap, compile and the comparisons with torch, so that a
new kernel is one row and no cell of the cross is forgotten. Rows live in the files beside this
one, by family; a row's kernel is right under the engines' own reverse modes (tried directly).

A file of kernels must not use `from __future__ import annotations`: both engines refuse it.
"""

from cases import _elementwise, _forms, _indices, _loops, _vectors  # noqa: F401 - each file adds its rows
from cases._case import REGISTRY, Case, Draw
from cases._compare import (
    assert_close,
    assert_same_values_and_gradients,
    compute_gradients,
    draw_cotangents,
    list_tensors,
    make_leaves,
    select_differentiable,
)

ALL: tuple[Case, ...] = tuple(REGISTRY.values())


def select_cases(*names: str) -> list[Case]:
    """Return the rows with these names, in this order."""
    return [REGISTRY[name] for name in names]


__all__ = [
    "ALL",
    "Case",
    "Draw",
    "assert_close",
    "assert_same_values_and_gradients",
    "draw_cotangents",
    "select_differentiable",
    "compute_gradients",
    "make_leaves",
    "select_cases",
    "list_tensors",
]
