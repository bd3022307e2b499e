"""Cells: locals of the top level that a parallel loop changes become memory of the kernel's own.

The engines do the same: `s += x[i]` is an atomic addition where `s` is a local from outside the parallel loop, and
an ordinary one where it is not.
"""

from __future__ import annotations

from dataclasses import replace

from . import _nodes as nodes
from . import _walk as walk


def with_cells(kernel: nodes.Kernel, names: frozenset[str]) -> nodes.Kernel:
    """A kernel whose locals of these names are cells. Atomics on them name them as their array already."""
    if not names:
        return kernel
    cells = tuple(name for name in kernel.locals if name in names)
    arrays = {**kernel.arrays, **{name: nodes.Array(name, kernel.locals[name], 0) for name in cells}}
    others = {name: kind for name, kind in kernel.locals.items() if name not in names}
    return replace(kernel, arrays=arrays, locals=others, body=_block(kernel.body, names), cells=cells)


def _block(body: tuple[nodes.Stmt, ...], names: frozenset[str]) -> tuple[nodes.Stmt, ...]:
    return tuple([_statement(one, names) for one in body])


def _statement(one: nodes.Stmt, names: frozenset[str]) -> nodes.Stmt:
    one = walk.with_expressions(one, lambda expr: _loaded(expr, names))
    match one:
        case nodes.Assign() if one.name in names:
            return nodes.Store(one.name, (), (), one.value, one.line)
        case nodes.If():
            return replace(one, body=_block(one.body, names), orelse=_block(one.orelse, names))
        case nodes.For() | nodes.While():
            return replace(one, body=_block(one.body, names))
        case _:
            return one


def _loaded(expr: nodes.Expr, names: frozenset[str]) -> nodes.Expr:
    if isinstance(expr, nodes.Local):
        return nodes.Load(expr.name, (), (), expr.type) if expr.name in names else expr
    return walk.rebuilt(expr, lambda one: _loaded(one, names))
