"""How many floating-point operations a kernel does, as far as its text and the sizes of a call tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...source.ir import nodes, types, walk
from .._evaluated import evaluate, extent

_COUNTED = {"+", "-", "*", "/", "pow", "min", "max", "atan2", "%"}
_FREE = {"not", "~"}


def count_flops(kernel: nodes.Kernel, shapes: Mapping[str, Sequence[int]], arguments: Mapping[str, Any]) -> int:
    """Sums, products, functions and atomic sums of floats; each counts 1.

    Both branches of an `if` are counted, and the body of a loop of unknown length once.

    Args:
        kernel: the kernel.
        shapes: of its arrays, by name, as far as they are known.
        arguments: its scalar arguments by name.
    """
    return _Counter(shapes, arguments).count(kernel.body)


class _Counter:
    def __init__(self, shapes: Mapping[str, Sequence[int]], arguments: Mapping[str, Any]) -> None:
        self.shapes = shapes
        self.arguments = arguments

    def count(self, body: Sequence[nodes.Stmt]) -> int:
        return sum(self.of_statement(one) for one in body)

    def of_statement(self, one: nodes.Stmt) -> int:
        own = sum(_is_flop(part) for expr in walk.expressions(one) for part in walk.parts(expr))
        if isinstance(one, nodes.Atomic):
            own += types.is_float(one.value.type)
        inside = sum(self.count(body) for body in walk.bodies(one))
        return own + inside * (self.iterations(one) if isinstance(one, nodes.For) else 1)

    def iterations(self, loop: nodes.For) -> int:
        formula = extent(loop.bounds)
        known = formula is not None and self._knows(formula)
        return evaluate(formula, self.shapes, self.arguments) if formula is not None and known else 1

    def _knows(self, formula: nodes.Expr) -> bool:
        parts = tuple(walk.parts(formula))
        arrays = (one.array for one in parts if isinstance(one, nodes.Size))
        arguments = (one.name for one in parts if isinstance(one, nodes.Argument))
        return self.shapes.keys() >= {*arrays} and self.arguments.keys() >= {*arguments}


def _is_flop(expr: nodes.Expr) -> bool:
    if isinstance(expr, nodes.Binary):
        return types.is_float(expr.type) and expr.operator in _COUNTED
    return isinstance(expr, nodes.Unary) and types.is_float(expr.type) and expr.operator not in _FREE
