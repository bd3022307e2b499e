"""Rename arrays of a kernel.

    x -> y, y -> z:     y[i] = x[i]; z = y[i]     ->     z[i] = y[i]; z_1 = z[i]

All are renamed at once, so two arrays may swap their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..ir import Names, nodes, walk


def rename_arrays(kernel: nodes.Kernel, names: Mapping[str, str]) -> nodes.Kernel:
    """Return the kernel with arrays renamed; a local that has one of the new names gets another."""
    moved = {name: new for name, new in names.items() if name != new}
    if not moved:
        return kernel
    fresh = Names({*walk.names_of(kernel), *moved.values()}).fresh
    locals_ = {name: fresh(name) for name in kernel.locals if name in moved.values()}

    # Messages go on naming what the source does: memory of blocks has no label that would say so.
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
        block_memory={
            moved.get(name, name): tuple(_rename_sizes(size, moved) for size in sizes)
            for name, sizes in kernel.block_memory.items()
        },
        source_names=source_names,
    )


def _rename_sizes(expr: nodes.Expr, arrays: Mapping[str, str]) -> nodes.Expr:
    """Rename the arrays whose sizes a formula asks for."""
    renamed = walk.rebuild(expr, lambda part: _rename_sizes(part, arrays))
    return (
        replace(renamed, array=arrays.get(renamed.array, renamed.array)) if isinstance(renamed, nodes.Size) else renamed
    )


def with_names(
    body: Sequence[nodes.Stmt], arrays: Mapping[str, str], locals_: Mapping[str, str] = MappingProxyType({})
) -> nodes.Block:
    """Return statements with other names for arrays and locals."""

    def rename(one: Any) -> Any:
        if isinstance(one, nodes.Load | nodes.Size | nodes.Store | nodes.Atomic):
            one = replace(one, array=arrays.get(one.array, one.array))
        elif isinstance(one, nodes.Local):
            return replace(one, name=locals_.get(one.name, one.name))
        return walk.rename_results(one, lambda name: locals_.get(name, name))

    return walk.change_parts(body, rename)
