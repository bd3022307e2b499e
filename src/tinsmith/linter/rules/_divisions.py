"""Divisions of integers that engines know when they compile, by another rule than the one at run time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...analyses import evaluate, expand
from ...ir import Operator, nodes, types, walk
from .._finding import Finding
from .._sketch import sketch_of
from .._subject import BOTH, Subject

_DIVISIONS = (Operator.FLOOR_DIV, Operator.MOD)


def known_divisions(subject: Subject) -> Iterator[Finding]:
    """TS306: of locals that are given a known number once, and never of what Python itself divides."""
    sketch = sketch_of(subject)
    divisions = [one for one in sketch.noted if isinstance(one.expr, nodes.Binary) and one.expr.operator in _DIVISIONS]
    misled = {one.expr for one in divisions if _is_rounded_up(one.expr, sketch.definitions)}
    for one in divisions:
        if one.expr not in misled or any(part in misled for part in walk.parts(*walk.operands(one.expr))):
            continue
        words = f"`{subject.text(one.node)}` divides integers that are known at compile time: there {BOTH} round "
        words += "towards zero, while Python and the engines at run time round down"
        local = next(part.name for part in walk.parts(one.expr) if isinstance(part, nodes.Local))
        value = next(other.node for other in sketch.noted if other.expr is sketch.definitions[local])
        remedy = f"{sketch.kernel.source_name(local)} = {subject.module_name}.static({subject.text(value)})"
        yield subject.finding("TS306", "warning", one.node, words, remedy)


def _is_rounded_up(one: nodes.Expr, known: Mapping[str, nodes.Expr]) -> bool:
    """Return True for a division of integers that the engine computes when it compiles, to another number."""
    if types.is_float(one.type) or not walk.locals_in([one]):
        return False
    dividend, divisor = (_evaluate(side, known) for side in walk.operands(one))
    if dividend is None or not divisor:
        return False
    return dividend % divisor != 0 and (dividend < 0) != (divisor < 0)


def _evaluate(expr: nodes.Expr, known: Mapping[str, nodes.Expr]) -> int | None:
    expanded = expand(expr, set(), known)
    result = None if expanded is None else evaluate(expanded, lambda leaf: None)
    return None if result is None or not result.is_defined[0] else int(result.numbers[0])
