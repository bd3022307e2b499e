"""Cells: locals of the top level that a parallel loop changes become memory of the kernel's own.

    s = 0.0                              s[] = 0.0
    for i in range(x.shape[0]):    ->    for i in range(x.shape[0]):
        s = max(s, x[i])                     s[] = max(s[], x[i])
    y[0] = s                             y[0] = s[]

The engines do the same: `s += x[i]` is an atomic addition where `s` is a local from outside the parallel loop, and
an ordinary one where it is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from . import _nodes as nodes
from . import _walk as walk
from ._names import Names
from ._types import Type


def with_cells(kernel: nodes.Kernel, names: frozenset[str]) -> nodes.Kernel:
    """Convert locals with these names to cells: arrays of one element.

    Assignments become stores, and reads become loads. Atomics on these locals already name them as their array.
    """
    if not names:
        return kernel
    cells = tuple(name for name in kernel.locals if name in names)
    arrays = {**kernel.arrays, **{name: nodes.Array(name, kernel.locals[name], 0) for name in cells}}
    others = {name: kind for name, kind in kernel.locals.items() if name not in names}
    writing = _Writing(names, kernel.locals, Names(walk.names_of(kernel)))
    body = writing.block(kernel.body)
    return replace(kernel, arrays=arrays, locals={**others, **writing.free.types}, body=body, cells=cells)


@dataclass
class _Writing:
    """Rewrites statements so that some locals are cells.

    Attributes:
        names: the cells.
        kinds: types of the kernel's locals.
        free: gives names to locals that are added.
    """

    names: frozenset[str]
    kinds: Mapping[str, Type]
    free: Names

    def block(self, body: nodes.Block) -> nodes.Block:
        return tuple([new for old in body for new in self.statement(old)])

    def statement(self, one: nodes.Stmt) -> Iterator[nodes.Stmt]:
        one = walk.with_expressions(one, self.replace_cells)
        match one:
            case nodes.Assign() if one.name in self.names:
                yield nodes.Store(one.name, (), (), one.value, one.line)
            # A draw and an atomic give their values to locals alone, so the value is stored in a second step.
            case nodes.Draw() if one.name in self.names:
                local = self.local(one.name)
                yield replace(one, name=local.name)
                yield nodes.Store(one.name, (), (), local, one.line)
            case nodes.Atomic() if one.result is not None and one.result in self.names:
                local = self.local(one.result)
                yield replace(one, result=local.name)
                yield nodes.Store(one.result, (), (), local, one.line)
            case _:
                yield walk.with_bodies(one, self.block)

    def local(self, cell: str) -> nodes.Local:
        """Return a new local that holds a value until it is stored to a cell."""
        return self.free.local(f"{cell}_now", self.kinds[cell])

    def replace_cells(self, expr: nodes.Expr) -> nodes.Expr:
        if isinstance(expr, nodes.Local):
            return nodes.Load(expr.name, (), (), expr.type) if expr.name in self.names else expr
        return walk.rebuild(expr, self.replace_cells)
