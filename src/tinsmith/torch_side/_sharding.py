"""Determines from an op's source which of its dims may be sharded over processes.

A dim may be sharded if each iteration of a loop over it only accesses its own part of the arrays. That holds if every
array that has the dim is indexed along it by the loop's index, the index is used nowhere else, and the loop writes to
no array without the dim. Then each process can run the op on its shard. Batch dims (`*b`) may always be sharded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from ..calls import CallKey, Core, Signature
from ..ir import NotCovered, nodes, walk
from ..spec import Named


class Shares(NamedTuple):
    """Which of an op's named dims may be sharded.

    Attributes:
        axes: for each dim that may be sharded, its axis in each array that has it, counted after batch dims.
        reasons: for each other dim that stands alone in an item of the spec, why it may not.
    """

    axes: Mapping[str, Mapping[str, int]]
    reasons: Mapping[str, str]


def find_shares(core: Core, dtypes: Sequence[torch.dtype]) -> Shares:
    """Find the dims that may be sharded, in calls whose inputs have these dtypes."""
    signature = core.signature
    names = _find_named_axes(signature)
    if any(item.has_rest for item in signature.spec.items):
        return Shares({}, dict.fromkeys(names, "`...` stands for any number of dims beside it"))
    if signature.templates:
        return Shares({}, dict.fromkeys(names, "template arguments decide what the kernel is"))
    try:
        kernels = [one.kernel for one in core.kernels(_make_key(core, dtypes))]
    except NotCovered as reason:
        return Shares({}, dict.fromkeys(names, f"the source is not understood: {reason.construct}"))
    axes, reasons = {}, {}
    for dim, dim_axes in names.items():
        why = next((why for kernel in kernels for why in _find_objections(kernel, dim_axes)), "")
        if why:
            reasons[dim] = why
        else:
            axes[dim] = dim_axes
    return Shares(axes, reasons)


def _make_key(core: Core, dtypes: Sequence[torch.dtype]) -> CallKey:
    """Return a key of calls whose inputs have these dtypes, to lower the kernels for. Its sizes are all 1."""
    signature = core.signature
    shapes = {}
    for item in signature.kernel_spec.items:
        element = signature.parameters(item.name)[0].element
        shapes[item.name] = (1,) * (len(item.dims) - len(element)) + element
    given = dict(zip(signature.arrays, dtypes, strict=True))
    made = {name: core.made_dtype(name, tuple(dtypes)) for name in signature.allocations}
    return CallKey(signature, shapes, given | made, frozenset(), core.captures.fingerprints({}), {})


def _find_named_axes(signature: Signature) -> dict[str, dict[str, int]]:
    """Return, for each dim, its axis in each array that has it.

    Only dims that always stand alone in the spec, and occur at most once in an array, are returned.
    """
    spec = signature.kernel_spec
    named: dict[str, dict[str, int]] = {}
    mixed: set[str] = set()
    for item in spec.items:
        plain = [dim.name for dim in item.dims if isinstance(dim, Named)]
        mixed |= {name for name in item.names if plain.count(name) != 1} | (set(plain) if item.has_rest else set())
        for axis, dim in enumerate(item.dims):
            if isinstance(dim, Named):
                named.setdefault(dim.name, {})[item.name] = axis
    given = {name for item in spec.inputs for name in item.names}
    return {name: axes for name, axes in named.items() if name in given - mixed - {*signature.scalars}}


def _find_objections(kernel: nodes.Kernel, axes: Mapping[str, int]) -> Iterator[str]:
    """Yield reasons why a dim may not be sharded: each names a line that uses the dim in another way."""
    for array, axis in axes.items():
        if array in kernel.arrays and axis >= kernel.arrays[array].rank:
            yield f"it is part of the vectors of `{array}`"
    outer = {name for task in kernel.body for name in walk.find_assigned(task) if not isinstance(task, nodes.For)}
    for task in kernel.body:
        index = _find_index(task, axes)
        if index is None:
            if walk.find_touched([task]) & axes.keys() or _uses_size(task, axes):
                yield f"line {task.line}: no loop over it is the outermost"
            continue
        assert isinstance(task, nodes.For)
        for name, bounds in zip(task.names, task.bounds, strict=True):
            for bound in bounds if name != index else ():
                yield from _check_expression(bound, index, axes, f"line {task.line}")
        for one in walk.statements(task.body):
            if outer.intersection(walk.find_assigned(one)):
                yield f"line {one.line}: its iterations carry a local"
            yield from _check_statement(one, index, axes)


def _find_index(task: nodes.Stmt, axes: Mapping[str, int]) -> str | None:
    """Return the name of the loop index that runs over the whole dim; None if the statement is not such a loop."""
    if not isinstance(task, nodes.For):
        return None
    for name, (first, end) in zip(task.names, task.bounds, strict=True):
        is_whole = isinstance(end, nodes.Size) and axes.get(end.array) == end.axis
        if is_whole and isinstance(first, nodes.Const) and first.value == 0:
            return name
    return None


def _uses_size(task: nodes.Stmt, axes: Mapping[str, int]) -> bool:
    exprs = (part for one in walk.statements([task]) for expr in walk.expressions(one) for part in walk.parts(expr))
    return any(isinstance(one, nodes.Size) and axes.get(one.array) == one.axis for one in exprs)


def _check_statement(one: nodes.Stmt, index: str, axes: Mapping[str, int]) -> Iterator[str]:
    where = f"line {one.line}"
    if isinstance(one, nodes.Store | nodes.Atomic):
        if one.array not in axes:
            yield f"{where}: `{one.array}`, which does not have it, is changed"
            return
        yield from _check_index(one.index, one.array, index, axes, where)
        yield from _check_expression(one.value, index, axes, where)
        return
    for expr in walk.expressions(one):
        yield from _check_expression(expr, index, axes, where)


def _check_index(
    indices: Sequence[nodes.Expr], array: str, index: str, axes: Mapping[str, int], where: str
) -> Iterator[str]:
    for axis, expr in enumerate(indices):
        if axis != axes.get(array):
            yield from _check_expression(expr, index, axes, where)
        elif not (isinstance(expr, nodes.Local) and expr.name == index):
            yield f"{where}: `{array}` is indexed by something else"


def _check_expression(expr: nodes.Expr, index: str, axes: Mapping[str, int], where: str) -> Iterator[str]:
    if isinstance(expr, nodes.Local) and expr.name == index:
        yield f"{where}: its index is used as a number"
    elif isinstance(expr, nodes.Size) and axes.get(expr.array) == expr.axis:
        yield f"{where}: its size is used as a number"
    elif isinstance(expr, nodes.Load):
        yield from _check_index(expr.index, expr.array, index, axes, where)
    else:
        for operand in walk.operands(expr):
            yield from _check_expression(operand, index, axes, where)
