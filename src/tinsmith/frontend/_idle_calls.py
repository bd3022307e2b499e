"""Find idle calls: calls whose values reach nothing, so that only what they change matters.

`ti.atomic_add(x[i], v)` adds; so does `old = ti.atomic_add(x[i], v)` if nothing reads `old`. Where the value is used,
it depends on what the element held before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ..engines import walk
from ._nodes import names_in, resolve_callee

_CASTS = frozenset({"f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "float", "int", "bool"})
_MATH = frozenset({"abs", "bit_cast", "cast", "ceil", "exp", "floor", "log", "max", "min", "pow", "round", "sqrt"})
_PURE = _CASTS | _MATH | {"Matrix", "Vector", "cos", "select", "sin", "tan", "tanh"}
"""Functions that compute a value and do nothing else. Others may do anything with their arguments."""


def find_idle_calls(tree: ast.FunctionDef) -> frozenset[ast.Call]:
    """Return the calls in a function whose values reach no store, condition, index, result or other function."""
    finder = _Finder({argument.arg for argument in tree.args.args})
    finder.run(tree.body)
    return frozenset(finder.idle)


class _Finder:
    """Separates expressions that are needed from those that only define locals which nothing reads.

    Attributes:
        needed: names whose values are needed. Parameters are, since one may stand for a variable of the caller.
        waiting: assignments, as targets and value, to locals that have not been needed so far.
        idle: calls whose values have not been needed so far.
    """

    def __init__(self, parameters: set[str]) -> None:
        self.needed = parameters
        self.waiting: list[tuple[frozenset[str], ast.expr]] = []
        self.idle: set[ast.Call] = set()

    def run(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)
        is_new = True
        # A needed value may read another local, in a loop also one that is assigned further down.
        while is_new:
            due = [pair for pair in self.waiting if not pair[0].isdisjoint(self.needed)]
            self.waiting = [pair for pair in self.waiting if pair[0].isdisjoint(self.needed)]
            for _, value in due:
                self._need(value)
            is_new = bool(due)

    def _statement(self, one: ast.stmt) -> None:
        match one:
            case ast.Expr(value):
                self._leave(value)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, value)
            case ast.Assign(targets=targets, value=value):
                self._assign(ast.Tuple(targets, ast.Store()), value)
            case ast.AnnAssign(target=target, value=value) | ast.AugAssign(target=target, value=value) if value:
                self._assign(target, value)
            case _:
                for part in ast.iter_child_nodes(one):
                    self._statement(part) if isinstance(part, ast.stmt) else self._need(part)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._assign(one, other)
        # All parts are names, so this assigns locals alone, and stores to no memory.
        elif all(isinstance(part, ast.Name | ast.Tuple | ast.List) for part in walk(target)):
            self.waiting.append((names_in(target), value))
            self._leave(value)
        else:
            self._need(target)
            self._need(value)

    def _need(self, node: ast.AST) -> None:
        """Note that an expression's value is used, and so are the names and the calls in it."""
        for part in walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                self.needed.add(part.id)
            elif isinstance(part, ast.Call):
                self.idle.discard(part)

    def _leave(self, node: ast.AST) -> None:
        """Note that a value is not needed. Arguments of calls in it are, except of functions without effects."""
        if isinstance(node, ast.NamedExpr):
            self._assign(node.target, node.value)
        elif isinstance(node, ast.Call):
            self.idle.add(node)
            parts = [*node.args, *(word.value for word in node.keywords)]
            is_pure = resolve_callee(node) in _PURE
            for part in parts:
                self._leave(part) if is_pure else self._need(part)
        elif isinstance(node, ast.Subscript):
            # An element stays, even if nothing uses it: its index may be out of range.
            self._need(node)
        else:
            for part, is_left in _parts(node):
                self._leave(part) if is_left else self._need(part)


def _parts(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the parts of an expression that is not needed, each with True if it is not needed either.

    A condition is needed if it decides whether a call runs.
    """
    match node:
        case ast.BoolOp(values=values):
            for place, value in enumerate(values):
                # `a and f()`: whether `f` runs depends on `a`.
                yield value, not _has_call(*values[place + 1 :])
        case ast.IfExp(test, body, orelse):
            yield test, not _has_call(body, orelse)
            yield from ((body, True), (orelse, True))
        case _:
            yield from ((part, isinstance(part, ast.expr)) for part in ast.iter_child_nodes(node))


def _has_call(*nodes: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) for node in nodes for part in walk(node))
