"""Walking a kernel: every statement with the loops and branches around it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .._lazy import lazy
from ..source import called, is_static, walk
from ..source import names_in as _names_in

Loop = ast.For | ast.While


@dataclass(frozen=True)
class Spot:
    """A statement and what stands around it, the outermost first."""

    statement: ast.stmt
    loops: tuple[Loop, ...]
    guards: tuple[ast.expr, ...]

    @property
    def inner(self) -> tuple[Loop, ...]:
        """Loops that run in an iteration of the outermost one; those that `ti.static` unrolls do not count."""
        return dynamic(self.loops)[1:]

    @lazy
    def expressions(self) -> tuple[ast.expr, ...]:
        """Everything that the statement itself evaluates: the test of an `if`, not its body."""
        parts = [child for child in ast.iter_child_nodes(self.statement) if isinstance(child, ast.expr)]
        return tuple(node for part in parts for node in walk(part) if isinstance(node, ast.expr))

    @lazy
    def calls(self) -> tuple[ast.Call, ...]:
        """Calls among them."""
        return tuple(node for node in self.expressions if isinstance(node, ast.Call))

    @lazy
    def pairs(self) -> tuple[tuple[ast.expr, ast.expr], ...]:
        """(target, value) of an assignment, tuples taken apart; of `a += b` the value is `a + b`."""
        return tuple(pairs(self.statement))


def spots(tree: ast.FunctionDef) -> Iterator[Spot]:
    """All statements, in order."""
    yield from _spots(tree.body, (), ())


def _spots(body: Sequence[ast.stmt], loops: tuple[Loop, ...], guards: tuple[ast.expr, ...]) -> Iterator[Spot]:
    for one in body:
        yield Spot(one, loops, guards)
        if isinstance(one, ast.For | ast.While):
            yield from _spots(one.body + one.orelse, (*loops, one), guards)
        elif isinstance(one, ast.If):
            inside = guards if called(one.test) == "static" else (*guards, one.test)
            yield from _spots(one.body, loops, inside)
            yield from _spots(one.orelse, loops, inside)


def dynamic(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """Loops that the run goes through."""
    return tuple(loop for loop in loops if not is_static(loop))


def pairs(statement: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """(target, value) of assignments, tuples taken apart; of `a += b` the value is `a + b`."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=ends)], value=ast.Tuple(elts=values)) if len(ends) == len(values):
            return list(zip(ends, values, strict=True))
        case ast.Assign(value=value):
            return [(target, value) for target in statement.targets if not isinstance(target, ast.Tuple | ast.List)]
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            return [(target, value)]
        case ast.AugAssign(target=target, op=op, value=value):
            old = ast.copy_location(_loaded(target), target)
            return [(target, ast.copy_location(ast.BinOp(old, op, value), statement))]
    return []


def _loaded(target: ast.expr) -> ast.expr:
    match target:
        case ast.Name(id=name):
            return ast.Name(name, ast.Load())
        case ast.Subscript(value=value, slice=index):
            return ast.Subscript(value, index, ast.Load())
        case ast.Attribute(value=value, attr=attr):
            return ast.Attribute(value, attr, ast.Load())
    return target


def is_size(node: ast.AST) -> bool:
    """Whether an expression is `x.shape`, or a part of it."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            return True
        node = node.value
    return False


names_in = functools.lru_cache(maxsize=4096)(_names_in)  # rules ask it of the same statements again and again
