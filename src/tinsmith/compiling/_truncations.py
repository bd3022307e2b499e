"""Truncations: warns of floats that a kernel assigns to integers without a cast.

`s = 0` makes `s` an integer for good, and `s += x[i]` then adds truncated numbers, without a gradient. Engines warn of
some such assignments in their log, but not of `s = s * x[i]`. The types are those of a call, so lint alone cannot find
these assignments.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from .. import linter
from .._errors import refusal
from .._user_warnings import TruncationWarning
from ..ir import NotCovered, Type, nodes, types, walk
from ._stage import Stage
from ._variant import Variant

_WHOLE = frozenset({"ceil", "floor", "round"})


@functools.cache
def _get_cuts() -> linter.Cuts:
    """Return the finder of statements that truncate floats. It loads lint, so it is made for the first kernel that has
    one.
    """
    return linter.Cuts()


def warn_of_truncations(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> None:
    """Warn once of each line at which a kernel truncates a float to an integer.

    A kernel that the IR does not cover gets no warning, except in the engine's log.
    """
    try:
        kernel = stage.lower_variant(variant, values).kernel
    except NotCovered:
        return
    for line in sorted(set(_find_cut_lines(kernel))):
        cut = _get_cuts().at(kernel.path, line)
        if cut is None or ("TS301", kernel.path, cut.line) in stage.given_warnings:
            continue
        stage.given_warnings.add(("TS301", kernel.path, cut.line))
        if linter.drop_suppressed([linter.Finding("TS301", "warning", kernel.path, cut.line, cut.column, "")]):
            words = (
                f"`{cut.target}` holds integers in op `{op}`: the float assigned to it "
                "is truncated, and has no gradient"
            )
            remedy = (
                "Initialize it with a float, `0.0`, or make it an array of floats; write "
                "`int(...)` if truncation is intended."
            )
            warnings.warn_explicit(refusal(words, remedy=remedy), TruncationWarning, kernel.path, cut.line)


def _find_cut_lines(kernel: nodes.Kernel) -> Iterator[int]:
    """Yield the lines of statements that convert a float to an integer, with a cast or without."""
    for one in walk.statements(kernel.body):
        match one:
            case nodes.Assign():
                wanted = kernel.locals[one.name]
            case nodes.Store() | nodes.Atomic():
                wanted = kernel.arrays[one.array].type
            case _:
                continue
        if wanted == Type.U1 or types.is_float(wanted):
            continue
        if _may_have_fraction(one.value) or any(
            isinstance(part, nodes.Cast) and not part.keeps_bits and _may_have_fraction(part.value)
            for part in walk.parts(one.value)
            if not types.is_float(part.type) and part.type != Type.U1
        ):
            yield one.line


def _may_have_fraction(value: nodes.Expr) -> bool:
    """Return True if a value is a float that may have a fraction: not a rounded or converted integer, and not a whole
    constant.
    """
    match value:
        case nodes.Const():
            return isinstance(value.value, float) and value.value % 1 != 0
        case nodes.Unary(operator=operator) if operator in _WHOLE:
            return False
        case nodes.Cast() if not types.is_float(value.value.type):
            return False
    return types.is_float(value.type)
