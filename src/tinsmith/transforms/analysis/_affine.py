"""Affine indices and aliasing: which elements an index names, as far as its text tells.

An index is taken for a sum: a constant, multiples of what is the same for every iteration (sizes and arguments), and
multiples of what is not (loop variables, and whatever is no such sum). Two indices with the same steady part name
different elements where their constants differ by no multiple of what moves them (the GCD test).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...source.ir import nodes

_INTEGERS = ("i32", "i64")
LARGEST_FACTOR = 2**16
"""Multiples of smaller factors that differ by less than 2**16 do not meet in 32 bits."""


@dataclass(frozen=True)
class Affine:
    """An index as a sum.

    Attributes:
        varying: factors of what differs from iteration to iteration: locals by name, and other expressions.
        steady: factors of sizes and arguments.
        constant: what is added.
    """

    varying: Mapping[str | nodes.Expr, int] = field(default_factory=dict)
    steady: Mapping[nodes.Expr, int] = field(default_factory=dict)
    constant: int = 0

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        """This and a multiple of another one."""
        return Affine(
            _sum(self.varying, other.varying, factor),
            _sum(self.steady, other.steady, factor),
            self.constant + factor * other.constant,
        )

    @property
    def number(self) -> int | None:
        """The constant, where there is nothing else."""
        return None if self.varying or self.steady else self.constant

    def never_equals(self, other: Affine) -> bool:
        """Whether the two differ, in whichever iterations, as 2 i and 2 j + 1 do: both move in multiples of 2."""
        steady = _sum(self.steady, other.steady, -1)
        step = math.gcd(*self.varying.values(), *other.varying.values(), *steady.values())
        apart = self.constant - other.constant
        return apart % step != 0 if step else apart != 0

    def distance(self, other: Affine) -> int | None:
        """How much more this is in the same iteration, and in no other; None where the text does not tell."""
        is_alike = self.varying == other.varying and self.steady == other.steady
        return self.constant - other.constant if is_alike else None

    def moves_with(self, name: str) -> bool:
        """Whether a loop variable alone moves it, so that another value of the variable is another element."""
        # Larger factors may wrap around: `i * 65536 * 65536` is 0 for every i of 32 bits.
        return self.varying.keys() == {name} and abs(self.varying[name]) < LARGEST_FACTOR


def _sum(one: Mapping, other: Mapping, factor: int) -> dict:
    found = {key: one.get(key, 0) + factor * other.get(key, 0) for key in {**one, **other}}
    return {key: value for key, value in found.items() if value}


def affine(expr: nodes.Expr, definitions: Mapping[str, nodes.Expr]) -> Affine:
    """An index as a sum.

    Args:
        expr: the index.
        definitions: what locals are worked out from that have one value wherever they are named.
    """
    match expr:
        case nodes.Const(value) if expr.type in _INTEGERS:
            return Affine(constant=int(value))
        case nodes.Local(name, "i32") if name in definitions:
            return affine(definitions[name], definitions)
        case nodes.Local(name):
            return Affine({name: 1})
        case nodes.Size() | nodes.Argument():
            return Affine(steady={expr: 1})
        case nodes.Binary("+" | "-" | "*", left, right) if expr.type in _INTEGERS:
            first, second = affine(left, definitions), affine(right, definitions)
            if expr.operator != "*":
                return first.plus(second, 1 if expr.operator == "+" else -1)
            for factor, other in ((first.number, second), (second.number, first)):
                if factor is not None:
                    return Affine().plus(other, factor)
    return Affine({expr: 1})


def are_owned(names: Sequence[str], indices: Sequence[Sequence[Affine]]) -> bool:
    """Whether no two iterations name one element: each variable of their loop moves an axis, alike in all indices."""

    def moves(name: str, axis: Sequence[Affine]) -> bool:
        return all(one.moves_with(name) and one.distance(axis[0]) == 0 for one in axis)

    return all(any(moves(name, axis) for axis in zip(*indices, strict=True)) for name in names)
