"""What an engine function does with a template parameter: it is the caller's own variable or element.

`inc(y[i], v)` adds to `y[i]` where `inc` is `def inc(total: ti.template(), v): total += v`.
"""

from __future__ import annotations

import ast
from typing import Any, Literal

from ._calls import Followed, callee_of, lent_arguments
from ._nodes import called, root
from ._read import Source, called_function
from ._walk import walk

Kind = Literal["read", "write", "add"]

_READING_METHODS = frozenset(
    {
        "all",
        "any",
        "cast",
        "cross",
        "determinant",
        "dot",
        "inverse",
        "max",
        "min",
        "norm",
        "norm_inv",
        "norm_sqr",
        "normalized",
        "outer_product",
        "sum",
        "trace",
        "transpose",
    }
)
"""Methods of vectors and matrices that leave them as they are."""


def reference_kinds(source: Source, parameter: str, engine: Followed) -> tuple[Kind, ...]:
    """What a function does with a parameter, a read first; () where it gets a copy of what it is given."""
    found = _reference_kinds(source, parameter, engine, set())
    order: tuple[Kind, ...] = ("read", "write", "add")
    return tuple(kind for kind in order if kind in found)


def _reference_kinds(source: Source, parameter: str, engine: Followed, seen: set[tuple[Any, str]]) -> set[Kind]:
    """`seen` are functions and parameters that were looked at: once is enough, also where a function calls itself."""
    if not source.is_template(parameter) or (source.identity, parameter) in seen:
        return set()
    seen.add((source.identity, parameter))
    found: set[Kind] = set()
    changed: set[int] = set()
    for node in source.nodes:
        for target, kind in _changes(node):
            if root(target) == parameter:
                found.add(kind)
                changed |= {id(part) for part in walk(target)}
    for callee in (callee_of(source, call, engine) for call in source.calls):
        for name, argument in callee.arguments.items() if callee else ():
            if callee and root(argument) == parameter:
                found |= _reference_kinds(callee.source, name, engine, seen)
                changed |= {id(part) for part in walk(argument)} if callee.source.is_template(name) else set()
    loads = (n for n in source.nodes if isinstance(n, ast.Name) and n.id == parameter and id(n) not in changed)
    if any(isinstance(node.ctx, ast.Load) for node in loads):
        found.add("read")
    return found


def lent_names(source: Source, engine: Followed, owner: Any = None) -> frozenset[str]:
    """Names that calls may change: what template parameters stand for, and objects of methods that change them.

    Args:
        source: the kernel.
        engine: whose functions are followed.
        owner: the object of a data-oriented kernel, to find its methods.
    """
    found: set[str] = set()
    for node in source.calls:
        callee = called_function(source, node.func, owner)
        lent = lent_arguments(node, callee, engine)
        if callee is None and isinstance(node.func, ast.Attribute) and node.func.attr not in _READING_METHODS:
            lent = [node.func.value, *node.args]  # a method of a local, or of a template argument: it may do anything
        found |= {root(argument) for argument in lent}
    return frozenset(found - {""})


def _changes(node: ast.AST) -> list[tuple[ast.expr, Kind]]:
    if isinstance(node, ast.Assign):
        return [(part, "write") for target in node.targets for part in _parts(target)]
    if isinstance(node, ast.AnnAssign):
        return [(node.target, "write")]
    if isinstance(node, ast.AugAssign):
        if isinstance(node.op, ast.Add | ast.Sub):
            return [(node.target, "add")]
        return [(node.target, "write"), (node.target, "read")]
    if isinstance(node, ast.Call) and node.args and called(node).startswith("atomic_"):
        if called(node) in ("atomic_add", "atomic_sub"):
            return [(node.args[0], "add")]
        return [(node.args[0], "write"), (node.args[0], "read")]
    return []


def _parts(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [part for element in target.elts for part in _parts(element)]
    return [target]
