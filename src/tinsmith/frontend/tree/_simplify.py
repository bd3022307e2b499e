"""Simplification: names that only stand for something else are replaced by what they stand for.

    a = ti.static(x)                  pass
    n, m = a.shape                    pass
    for i in range(n):         ->     for i in range(x.shape[0]):
        if ti.static(a is None):          if ti.static(False):
            break                             break
        y[i] = a[i, m - 1]                y[i] = x[i, x.shape[1] - 1]

`a = ti.static(x)` is another name of the array `x`, which analyses of arrays must not miss. And no engine
differentiates a kernel in which a statement stands beside loops, not even `n, m = a.shape`, which has no gradient.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from ...engines import copy_node, walk
from .._effects import changes_of
from .._nodes import count_stores, names_in, replace_nodes, resolve_callee, root, unwrap_call

N = TypeVar("N", bound=ast.AST)

_PURE_CALLS = frozenset({"int", "float", "min", "max", "abs", "static", "cast", "floor", "ceil", "sqrt", "i32", "i64"})
_PURE_NODES = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.BinOp,
    ast.UnaryOp,
    ast.Tuple,
    ast.Call,
    ast.operator,
    ast.unaryop,
    ast.expr_context,
)


def simplify_tree(tree: ast.FunctionDef, arrays: Iterable[str], lent: Collection[str] = ()) -> ast.FunctionDef:
    """Replace second names of arrays, and sizes that are computed beside the loops.

    Args:
        tree: the kernel.
        arrays: names of its arrays.
        lent: names that the functions called by the kernel may change.
    """
    known = frozenset(arrays)
    twin = copy_node(tree)
    counts = count_stores(twin)
    # Aliases come first: in `n = a.shape[0]`, an `a` that is `x` makes `n` a size of `x`.
    aliases = {n: v for n, v in _pairs(walk(twin)) if counts.get(n) == 1 and _array(v, known) is not None}
    twin.body = _replace_names(twin.body, aliases)
    candidates = [(name, value) for name, value in _pairs(twin.body) if counts.get(name) == 1]
    # A name that is assigned to once may still be changed, by `atomic_add(n, 1)` or by a function.
    changed = find_changed_in_place(twin).union(lent) if candidates else frozenset[str]()
    sizes: dict[str, ast.expr] = {}
    for name, value in candidates:
        if name not in changed and _is_steady(value, known, counts, sizes):
            # An engine runs no loop over the elements of a field `static(self.x)`.
            inner = unwrap_call(value, "static")
            sizes[name] = _replace_reads(copy_node(inner if isinstance(inner, ast.Attribute) else value), sizes)
    twin.body = _replace_names(twin.body, sizes)
    if known:
        twin.body = [_decide_presence(statement, known) for statement in twin.body]
    return twin


def _decide_presence(tree: N, arrays: frozenset[str]) -> N:
    """Replace `x is None` by False, and `x is not None` by True, for arrays: an op has memory for each.

    Quadrants compares an array with None only where it is annotated `NDArray | None`, and it gets other annotations.
    """

    def decide(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Compare(ast.Name(name), [ast.Is() | ast.IsNot() as how], [ast.Constant(None)]) if name in arrays:
                return ast.Constant(isinstance(how, ast.IsNot))
        return None

    return replace_nodes(tree, decide)


def _pairs(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield every `name = value` among nodes, with those in `a, b = c, d` and `n, m = x.shape`."""
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield from _match_targets(node.targets[0], node.value)


def _match_targets(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and all(isinstance(part, ast.Name) for part in target.elts):
        for place, part in enumerate(target.elts):
            assert isinstance(part, ast.Name)
            part_value = _part(value, place, len(target.elts))
            if part_value is not None:
                yield part.id, part_value


def _part(value: ast.expr, place: int, count: int) -> ast.expr | None:
    """Return one of the `count` values that an expression unpacks into, or None if the source does not show it."""
    if isinstance(value, ast.Call) and resolve_callee(value) == "static" and len(value.args) == count:
        return value.args[place]
    if isinstance(value, ast.Tuple) and len(value.elts) == count:
        return value.elts[place]
    if isinstance(value, ast.Attribute) and value.attr == "shape":
        return ast.Subscript(value, ast.Constant(place), ast.Load())
    return None


def _array(value: ast.expr, arrays: frozenset[str]) -> str | None:
    """Return the array that an expression is only another name of, or None."""
    value = unwrap_call(value, "static")
    return value.id if isinstance(value, ast.Name) and value.id in arrays else None


def _is_steady(value: ast.expr, arrays: frozenset[str], counts: Mapping[str, int], sizes: dict[str, ast.expr]) -> bool:
    """Return True if an expression keeps its value during a launch: it has only sizes, arguments and constants."""
    shapes = {id(n.value) for n in ast.walk(value) if isinstance(n, ast.Attribute) and n.attr == "shape"}
    for node in ast.walk(value):
        if not isinstance(node, _PURE_NODES) or (
            isinstance(node, ast.Call) and resolve_callee(node) not in _PURE_CALLS
        ):
            return False
        if isinstance(node, ast.Name):
            # The sizes of an array keep their values, its elements may not.
            is_whole = node.id in arrays and id(node) not in shapes
            if is_whole or (node.id in counts and node.id not in sizes):
                return False
    return True


def _replace_names(body: list[ast.stmt], names: dict[str, ast.expr]) -> list[ast.stmt]:
    """Replace names by expressions, and drop assignments all of whose names are replaced."""

    def drop(node: ast.AST) -> ast.AST | None:
        pairs = {name for name, _ in _pairs([node])}
        is_gone = bool(pairs) and isinstance(node, ast.Assign) and names_in(node.targets[0]) == pairs <= names.keys()
        return ast.Pass() if is_gone else None

    return [replace_nodes(_replace_reads(statement, names), drop) for statement in body] if names else body


def _replace_reads(tree: N, names: dict[str, ast.expr]) -> N:
    def replace(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Name) or node.id not in names or not isinstance(node.ctx, ast.Load):
            return None
        value = names[node.id]
        plain = unwrap_call(value, "static")
        return copy_node(plain if isinstance(plain, ast.Name) else value)

    return replace_nodes(tree, replace)


def find_changed_in_place(tree: ast.AST) -> frozenset[str]:
    """Return the names that change without an assignment to them: by `atomic_add(n, 1)`, or in part, `v[0] = 1`."""
    pairs = ((node, one.target) for node in walk(tree) for one in changes_of(node))
    return frozenset(
        root(target) for node, target in pairs if isinstance(node, ast.Call) or not isinstance(target, ast.Name)
    )
