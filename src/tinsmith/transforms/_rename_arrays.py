"""A kernel of the IR whose arrays have other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ..source.ir import nodes, walk


def rename_arrays(kernel: nodes.Kernel, names: Mapping[str, str]) -> nodes.Kernel:
    """The kernel with arrays renamed; a local that has one of the new names gets another."""
    moved = {name: new for name, new in names.items() if name != new}
    if not moved:
        return kernel
    taken = {*kernel.arrays, *kernel.arguments, *kernel.locals, *moved.values()}
    locals_ = {name: _free(name, taken) for name in kernel.locals if name in moved.values()}

    source_names = {locals_.get(name, name): own for name, own in kernel.source_names.items()}
    source_names |= {new: kernel.source_name(name) for name, new in moved.items() if name in kernel.block_memory}
    source_names |= {new: kernel.source_name(name) for name, new in locals_.items()}

    arrays = {moved.get(name, name): replace(one, name=moved.get(name, name)) for name, one in kernel.arrays.items()}
    return replace(
        kernel,
        arrays=arrays,
        locals={locals_.get(name, name): kind for name, kind in kernel.locals.items()},
        body=with_names(kernel.body, moved, locals_),
        cells=tuple([moved.get(name, name) for name in kernel.cells]),
        block_memory={moved.get(name, name): sizes for name, sizes in kernel.block_memory.items()},
        source_names=source_names,
    )


def with_names(
    body: Sequence[nodes.Stmt], arrays: Mapping[str, str], locals_: Mapping[str, str] = MappingProxyType({})
) -> tuple[nodes.Stmt, ...]:
    """Statements with other names for arrays and locals."""

    def expression(expr: nodes.Expr) -> nodes.Expr:
        match expr:
            case nodes.Load():
                index = tuple([expression(one) for one in expr.index])
                return replace(expr, array=arrays.get(expr.array, expr.array), index=index)
            case nodes.Size():
                return replace(expr, array=arrays.get(expr.array, expr.array))
            case nodes.Local():
                return replace(expr, name=locals_.get(expr.name, expr.name))
            case _:
                return walk.rebuild(expr, expression)

    def statement(one: nodes.Stmt) -> nodes.Stmt:
        one = walk.rename_results(one, lambda name: locals_.get(name, name))
        if isinstance(one, nodes.Store | nodes.Atomic):
            return replace(one, array=arrays.get(one.array, one.array))
        return one

    return tuple([walk.transform(one, expression, statement) for one in body])


def _free(name: str, taken: set[str]) -> str:
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    taken.add(f"{name}_{number}")
    return f"{name}_{number}"
