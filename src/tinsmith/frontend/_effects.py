"""Find the effects of a statement: which locations it changes, how, and what it computes for that.

A *location* is what an assignment may have on its left: a local, an element `x[i]`, a part `x[i].y` or `x[i][0]`. A
statement has one of two effects on a location that it changes: it *writes* (what was there is gone), or it *adds* (to
what was there: additions may run in any order). It *reads* the location too where the old value decides the new one in
another way than as a term of a sum: `x[i] *= v`, `atomic_max(x[i], v)`.

What a called function does to its arguments: `uses/_references.py`. Who asks for effects:
docs/about/decisions/analyses.md.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeGuard

from ..engines import walk
from ._nodes import is_size, resolve_callee, root, unwrap_call

Kind = Literal["read", "write", "add"]


@dataclass(frozen=True)
class Change:
    """A location that a statement or an atomic changes.

    Attributes:
        target: the location, as it is written.
        kind: "write" or "add".
        value: the new value, or what is added. None for a declaration without a value.
        reads: whether the new value depends on the old one, other than as a term of a sum.
        is_plain: whether it is an assignment: additions of `+=` and `atomic_add` are atomic, `x[i] = x[i] + e` is not.
    """

    target: ast.expr
    kind: Literal["write", "add"]
    value: ast.expr | None
    reads: bool = False
    is_plain: bool = False

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """All effects on the location, a read first."""
        return ("read", self.kind) if self.reads else (self.kind,)


def changes_of(node: ast.AST) -> list[Change]:
    """Return the changes by a statement, or a call of an atomic or of `fill`, without those by parts inside it."""
    match node:
        case ast.Assign(targets=targets, value=value):
            addend = addend_of(node)
            if addend is not None:
                return [Change(targets[0], "add", addend, is_plain=True)]
            return [Change(part, "write", value, is_plain=True) for one in targets for part in _parts(one)]
        case ast.AnnAssign(target=target, value=value):
            return [Change(target, "write", value, is_plain=True)]
        case ast.AugAssign(target=target, op=op, value=value):
            return [_build_update(target, value, is_sum=isinstance(op, ast.Add | ast.Sub))]
        case ast.Call(args=[target, *others]) if resolve_callee(node).startswith("atomic_"):
            return [
                _build_update(
                    target, others[0] if others else None, is_sum=resolve_callee(node) in ("atomic_add", "atomic_sub")
                )
            ]
        case ast.Call(func=ast.Attribute(value=target, attr="fill"), args=args, keywords=words) if args or words:
            # `x[i].fill(v)` stores to all numbers of a vector.
            return [Change(target, "write", args[0] if args else words[0].value)]
    return []


def _build_update(target: ast.expr, value: ast.expr | None, *, is_sum: bool) -> Change:
    """Return the change by `target op= value`."""
    return Change(target, "add" if is_sum else "write", value, reads=not is_sum)


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _parts(element)
    else:
        yield target


def addend_of(node: ast.Assign) -> ast.expr | None:
    """Return what an assignment adds to its target: `a - b` for `x[i] = a + x[i] - b`; None if it is no addition.

    As for `x[i] -= e`, the sign is not kept.
    """
    if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Subscript) or not _is_sum(node.value):
        return None
    target = ast.unparse(node.targets[0])
    rest = _without_term(node.value, target)
    # `x[i] = x[i] + v * x[i]` is not a sum of the old value and something that does not depend on it.
    return None if rest is None or target in ast.unparse(rest) else rest


def _without_term(total: ast.expr, term: str) -> ast.expr | None:
    """Return a sum without a term; None if the term is not added in it."""
    if not _is_sum(total):
        return None
    if ast.unparse(total.left) == term:
        return total.right
    # The right operand of a `-` is subtracted: in `a - x[i]` the old value is not a term.
    if isinstance(total.op, ast.Add) and ast.unparse(total.right) == term:
        return total.left
    inner = _without_term(total.left, term)
    return None if inner is None else ast.copy_location(ast.BinOp(inner, total.op, total.right), total)


def _is_sum(node: ast.expr) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)


def indices_of(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the indices of a location, the outermost first. They are read, whatever happens to the location."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Subscript):
            yield node.slice
        node = node.value


def shaping_name(iterator: ast.expr) -> str:
    """Return the array that a loop uses only for its shape, `for i in x` or `ti.grouped(x)`; "" for other loops."""
    inner = unwrap_call(iterator, "grouped")
    return inner.id if isinstance(inner, ast.Name) else ""


def possibly_changed(tree: ast.FunctionDef, arrays: Iterable[str]) -> frozenset[str]:
    """Return the arrays that a function may change: by a store or an atomic, or by passing them to a function."""
    known, changed = set(arrays), set()
    for node in walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            changed |= {root(node)}
        # These pass an array to nothing that could change it.
        elif isinstance(node, ast.Call) and resolve_callee(node) not in (
            "grouped",
            "static",
            "cast",
            "int",
            "stop_grad",
        ):
            # A size is a number: nothing can change the array through it.
            changed |= {root(argument) for argument in node.args if not is_size(argument)}
    return frozenset(changed & known)
