"""Accesses as people write them: `y[i - 1]`, in the names of the source."""

from __future__ import annotations

from ..ir import AffineIndex, Operator, nodes
from ._access_walk import DIM
from ._accesses import LoopAccess
from ._conflicts import Conflict, Verdict

_SIGNS = frozenset({"+", "-", "*", "//", "%", "<<", ">>", "&", "|", "^", "/"})


def describe_access(access: LoopAccess, kernel: nodes.Kernel) -> str:
    """Return the element that an access uses, as it may stand in the source: `y[i - 1]`, `self.grid[i, j]`."""
    return _element(access.of, kernel)


def describe_conflict(conflict: Conflict, kernel: nodes.Kernel) -> str:
    """Return both accesses of a conflict in one sentence."""
    change, other = (describe_access(one, kernel) for one in (conflict.change, conflict.other))
    verb = "read" if conflict.other.is_load else "change"
    verb = f"{verb}s" if conflict.verdict is Verdict.CERTAIN else f"may {verb}"
    return (
        f"an iteration of the parallel loop changes `{change}`, and another iteration {verb} the same element, "
        f"`{other}` in line {conflict.other.line}: the result depends on the order of the iterations"
    )


def describe_sum(index: AffineIndex, kernel: nodes.Kernel) -> str:
    """Return a sum of atoms as it may stand in the source: `n - 1`, `x.shape[0]`."""
    return index.text(lambda atom: _expression(atom.expr, kernel))


def _element(one: nodes.Load | nodes.Store | nodes.Atomic, kernel: nodes.Kernel) -> str:
    array = kernel.arrays[one.array]
    name = array.label or kernel.source_name(one.array)
    if one.array in kernel.cells:
        return name
    index = ", ".join(_expression(part, kernel) for part in one.index) or "None"
    entry = ", ".join(map(str, one.entry))
    return f"{name}[{index}]" + (f"[{entry}]" if entry else "")


def _expression(expr: nodes.Expr, kernel: nodes.Kernel) -> str:
    match expr:
        case nodes.Const(value):
            return str(value)
        case nodes.Local(name) | nodes.Argument(name):
            return kernel.source_name(name)
        case nodes.Size(name, axis) if axis == DIM:
            return name
        case nodes.Size(array, axis):
            label = kernel.arrays[array].label if array in kernel.arrays else ""
            return f"{label or kernel.source_name(array)}.shape[{axis}]"
        case nodes.Load():
            return _element(expr, kernel)
        case nodes.Cast(value, kind):
            inner = _expression(value, kernel)
            return f"int({inner})" if value.type[0] == "f" != kind[0] else inner
        case nodes.Unary(operator, value):
            inner = _expression(value, kernel)
            return f"-{inner}" if operator == "neg" else f"{operator}({inner})"
        case nodes.Binary(Operator.ADD, left, nodes.Const(int() as value)) if value < 0:
            return f"{_expression(left, kernel)} - {-value}"
        case nodes.Binary(operator, left, right) if operator in _SIGNS:
            sides = (_expression(one, kernel) for one in (left, right))
            is_product = operator not in "+-"
            left_text, right_text = (
                f"({text})" if isinstance(one, nodes.Binary) and (is_product or one is right) else text
                for one, text in zip((left, right), sides, strict=True)
            )
            return f"{left_text} {operator} {right_text}"
        case nodes.Binary(operator, left, right):
            return f"{operator}({_expression(left, kernel)}, {_expression(right, kernel)})"
        case nodes.Select(condition, then, otherwise):
            return f"select({', '.join(_expression(one, kernel) for one in (condition, then, otherwise))})"
    raise AssertionError(expr)
