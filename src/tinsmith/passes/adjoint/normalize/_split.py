"""Active expressions taken apart, as far as their derivatives need the values of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....analyses import Activity
from ....ir import Names, Operator, nodes, walk
from .._ssa import Step

_LINEAR = frozenset({"+", "-", "neg"})


def split(body: Sequence[Step], activity: Activity, names: Names) -> tuple[Step, ...]:
    """Steps in which every operand of an active operation that is not linear has a name or is a product of such."""
    return _Splitting(activity, names).block(body)


class _Splitting:
    def __init__(self, activity: Activity, names: Names) -> None:
        self.activity = activity
        self.names = names
        self.steps: list[Step] = []

    def block(self, body: Sequence[Step]) -> tuple[Step, ...]:
        outer, self.steps = self.steps, []
        for step in body:
            self.steps.append(self.step(step))
        steps, self.steps = tuple(self.steps), outer
        return steps

    def step(self, step: Step) -> Step:
        match step:
            case nodes.Assign() if step.name in self.activity and not isinstance(step.value, nodes.Load):
                return replace(step, value=self.split_expression(step.value, step.name, step.line, is_root=True))
            case _:
                return walk.with_bodies(step, self.block)

    def split_expression(self, expr: nodes.Expr, wish: str, line: int, *, is_root: bool = False) -> nodes.Expr:
        """An expression whose derivative can be written down: sums of named values, or one operation on them."""
        if isinstance(expr, nodes.Leaf) or not self.activity.depends(expr):
            return expr
        if isinstance(expr, nodes.Cast):
            return replace(expr, value=self.split_expression(expr.value, wish, line))
        if isinstance(expr, nodes.Unary | nodes.Binary) and expr.operator in _LINEAR:
            return walk.rebuild(expr, lambda part: self.split_expression(part, wish, line))
        if is_root or (isinstance(expr, nodes.Binary) and expr.operator == Operator.MUL):
            return walk.rebuild(expr, lambda part: self.leaf(part, wish, line))
        return self.leaf(expr, wish, line)

    def leaf(self, expr: nodes.Expr, wish: str, line: int) -> nodes.Expr:
        """A value by name."""
        if isinstance(expr, nodes.Leaf):
            return expr
        is_active = self.activity.depends(expr)
        value = self.split_expression(expr, wish, line, is_root=True) if is_active else expr
        name = self.names.fresh(wish, expr.type)
        self.steps.append(nodes.Assign(name, value, line))
        if is_active:
            self.activity.add(name)
        return nodes.Local(name, expr.type)
