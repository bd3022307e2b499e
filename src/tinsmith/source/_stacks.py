"""How deep an engine's gradient stack must be for a kernel's loop-carried locals.

Reversing `p = p * x[j]` needs every old `p`. Taichi keeps them on a stack of 32 where it does
not know the trip count, and the 33rd is written past its end: the process dies (taichi
#8027). The depth that is needed follows from the loops' bounds, which a call's sizes give.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ..engines import Engine
from ._needs import needed_locals
from ._read import Source
from ._roles import Roles


@dataclass(frozen=True)
class Nest:
    """Loops inside one another that carry a local whose old values the gradient needs."""

    source: Source
    local: str
    loops: tuple[ast.For | ast.While, ...]
    assignments: int

    @property
    def place(self) -> str:
        return self.source.place(self.loops[-1])

    @property
    def names(self) -> frozenset[str]:
        """Names that the loops' bounds mention."""
        headers = [loop.iter for loop in self.loops if isinstance(loop, ast.For)]
        return frozenset(node.id for header in headers for node in ast.walk(header) if isinstance(node, ast.Name))

    def depth(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> int | None:
        """Entries that the stack needs; None where a bound cannot be told before the launch."""
        scope = _Scope(self.source, shapes, values)
        trips = 1
        for loop in self.loops:
            count = scope.trips(loop)
            if count is None:
                return None
            trips *= count
        return (trips + 1) * self.assignments + 1


def carrying_nests(source: Source, roles: dict[str, Roles], active: frozenset[str], engine: Engine) -> tuple[Nest, ...]:
    """Every nest of inner loops that carries a local whose values the gradient needs."""
    needed = needed_locals(source, roles, active, engine)
    found: list[Nest] = []
    _collect_top(source, source.tree.body, needed, set(), found)
    return tuple(found)


def _collect_top(
    source: Source, body: list[ast.stmt], needed: frozenset[str], outer: set[str], found: list[Nest]
) -> None:
    """Statements outside any loop: the iterations of a loop among them carry nothing, loops in a branch do."""
    for statement in body:
        if isinstance(statement, ast.For) and _is_static(statement):
            _collect_top(source, statement.body, needed, outer | _bound_in(statement), found)
        elif isinstance(statement, ast.For):
            _collect(source, statement.body, (), needed, outer | _bound_in(statement), found)
        else:
            _collect(source, [statement], (), needed, outer, found)
        outer = outer | set(_assigned([statement]))


def _collect(
    source: Source,
    body: list[ast.stmt],
    loops: tuple[ast.For | ast.While, ...],
    needed: frozenset[str],
    outer: set[str],
    found: list[Nest],
) -> None:
    for statement in body:
        if isinstance(statement, ast.For | ast.While):
            inner = loops if _is_static(statement) else (*loops, statement)
            carried = _assigned(statement.body)
            for name, count in carried.items():
                if inner and name in needed and name in outer and inner is not loops:
                    found.append(Nest(source, name, inner, count))
            _collect(source, statement.body, inner, needed, outer | set(carried), found)
        elif isinstance(statement, ast.If):
            _collect(source, statement.body + statement.orelse, loops, needed, outer, found)
        outer = outer | set(_assigned([statement]))


def _bound_in(loop: ast.For) -> set[str]:
    return {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}


def _assigned(body: list[ast.stmt]) -> dict[str, int]:
    """Locals that statements assign, with how often each is."""
    counts: dict[str, int] = {}
    for statement in body:
        for node in ast.walk(statement):
            for target in _targets(node):
                for leaf in ast.walk(target):
                    if isinstance(leaf, ast.Name) and isinstance(leaf.ctx, ast.Store):
                        counts[leaf.id] = counts.get(leaf.id, 0) + 1
    return counts


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return [_stored(a) for a in node.value.args if isinstance(a, ast.Name)]  # a function may change them
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr) else []


def _stored(name: ast.Name) -> ast.Name:
    return ast.Name(name.id, ast.Store())


def _is_static(loop: ast.For | ast.While) -> bool:
    return (
        isinstance(loop, ast.For)
        and isinstance(loop.iter, ast.Call)
        and isinstance(loop.iter.func, ast.Attribute)
        and loop.iter.func.attr == "static"
    )


class _Scope:
    """Evaluates loop bounds: sizes, scalars, Python constants, and locals assigned once from these."""

    def __init__(self, source: Source, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> None:
        self.source = source
        self.known: dict[str, Any] = {name: SimpleNamespace(shape=shape) for name, shape in shapes.items()}
        self.known |= values
        self._once = _assigned_once(source.tree)

    def trips(self, loop: ast.For | ast.While) -> int | None:
        if not (isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)):
            return None
        kind = loop.iter.func.attr if isinstance(loop.iter.func, ast.Attribute) else getattr(loop.iter.func, "id", "")
        bounds = [self._value(argument) for argument in loop.iter.args]
        if kind not in ("range", "ndrange") or any(bound is None for bound in bounds):
            return None
        if kind == "range":
            return max(0, len(range(*bounds)))
        count = 1
        for bound in bounds:
            count *= max(0, bound[1] - bound[0]) if isinstance(bound, tuple) else max(0, bound)
        return count

    def _value(self, node: ast.expr) -> Any:
        names = {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
        scope = {name: self._lookup(name) for name in names}
        if any(value is None for value in scope.values()):
            return None
        try:
            return eval(compile(ast.Expression(node), "<bound>", "eval", dont_inherit=True), {}, scope)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return None  # not a number that Python can tell: the caller refuses the kernel by name

    def _lookup(self, name: str) -> Any:
        if name in self.known:
            return self.known[name]
        if name in self._once:
            self.known[name] = None  # a local that is defined by itself has no value here
            self.known[name] = self._value(self._once[name])
            return self.known[name]
        try:
            return self.source.lookup(name)
        except KeyError:
            return None


def _assigned_once(tree: ast.FunctionDef) -> dict[str, ast.expr]:
    """Locals with a single assignment, and what is assigned."""
    counts = _assigned(tree.body)
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if counts[name] == 1:
                found[name] = node.value
    return found
