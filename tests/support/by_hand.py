"""Kernels of the IR written by hand, for tests of what takes such kernels.

    x, y = array("x"), array("y")
    kernel([x, y], [loop("i", x.shape[0], [store(y, "i", x["i"] * 2.0)])])

Operators have the type that the engines' rules give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinsmith.ir import nodes, types

DEFAULTS = types.Defaults()


@dataclass(frozen=True)
class E:
    """An expression that Python's operators work on."""

    expr: nodes.Expr

    def __add__(self, other):
        return binary("+", self, other)

    def __radd__(self, other):
        return binary("+", other, self)

    def __sub__(self, other):
        return binary("-", self, other)

    def __rsub__(self, other):
        return binary("-", other, self)

    def __mul__(self, other):
        return binary("*", self, other)

    def __rmul__(self, other):
        return binary("*", other, self)

    def __truediv__(self, other):
        return binary("/", self, other)

    def __rtruediv__(self, other):
        return binary("/", other, self)

    def __lt__(self, other):
        return binary("<", self, other)

    def __gt__(self, other):
        return binary(">", self, other)

    def __ge__(self, other):
        return binary(">=", self, other)


@dataclass(frozen=True)
class A:
    """An array; subscripts read it."""

    array: nodes.Array

    def __getitem__(self, index):
        return self.at(index)

    def at(self, index, entry=()):
        index = index if isinstance(index, tuple) else (index,)
        exprs = tuple(to_expression(one).expr for one in index)
        return E(nodes.Load(self.array.name, exprs, entry, self.array.type))

    def size(self, axis=0):
        return E(nodes.Size(self.array.name, axis))


def array(name, kind="f32", rank=1, element=(), label=""):
    return A(nodes.Array(name, kind, rank, element, label))


def to_expression(value) -> E:
    """Return an expression for an expression, the name of an i32 local, or a Python number."""
    if isinstance(value, E):
        return value
    if isinstance(value, str):
        return E(nodes.Local(value, "i32"))
    return E(nodes.Const(value, types.of_literal(value, DEFAULTS)))


def const(value, kind):
    return E(nodes.Const(value, kind))


def local(name, kind="f32"):
    return E(nodes.Local(name, kind))


def argument(name, kind="f32", entry=()):
    return E(nodes.Argument(name, kind, entry))


def unary(operator, value, kind=None):
    value = to_expression(value).expr
    return E(nodes.Unary(operator, value, kind or value.type))


def binary(operator, left, right, kind=None):
    left, right = to_expression(left).expr, to_expression(right).expr
    kind = kind or types.of_operation(operator, left.type, right.type, DEFAULTS)
    return E(nodes.Binary(operator, left, right, kind))


def select(condition, then, otherwise):
    condition, then, otherwise = to_expression(condition).expr, to_expression(then).expr, to_expression(otherwise).expr
    return E(nodes.Select(condition, then, otherwise, types.promote(then.type, otherwise.type)))


def cast(value, kind, keeps_bits=False):
    return E(nodes.Cast(to_expression(value).expr, kind, keeps_bits))


def assign(name, value, line=0):
    return nodes.Assign(name, to_expression(value).expr, line)


def store(target, index, value, entry=(), line=0):
    load = target.at(index).expr
    return nodes.Store(target.array.name, load.index, entry, to_expression(value).expr, line)


def atomic(operator, target, index, value, result=None, line=0):
    load = target.at(index).expr
    return nodes.Atomic(operator, target.array.name, load.index, (), to_expression(value).expr, result, line)


def branch(condition, body, orelse=(), line=0):
    return nodes.If(to_expression(condition).expr, tuple(body), tuple(orelse), line)


def loop(names, ends, body, is_parallel=False, line=0):
    names = (names,) if isinstance(names, str) else tuple(names)
    ends = ends if isinstance(ends, tuple) else (ends,)
    bounds = tuple((to_expression(0).expr, to_expression(end).expr) for end in ends)
    return nodes.For(names, bounds, tuple(body), is_parallel, line)


def repeat(body, line=0):
    return nodes.While(tuple(body), line)


def kernel(
    arrays: Sequence[A],
    body: Sequence[nodes.Stmt],
    arguments: Mapping[str, tuple[str, tuple[int, ...]]] | None = None,
    **kinds: str,
) -> nodes.Kernel:
    """Build a kernel. `kinds` are the types of its locals."""
    held = {one.array.name: one.array for one in arrays}
    return nodes.Kernel("by_hand", "by_hand.py", held, arguments or {}, kinds, tuple(body))
