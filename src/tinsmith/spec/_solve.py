"""Computation of the size of every dim, and of the shapes of outputs and scratch, from the shapes of a call.

This runs once for each new combination of shapes, so the path without errors is short; misfits are found here and
described by `_misfits`. Sizes may be the symbolic integers of a compiler: they are compared and computed with, and
never converted to plain ones. Comparisons that depend on data (`x[mask]`, `k.item()`) count as fitting; the call
itself checks them when the graph runs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._integers import read_integer
from . import _misfits
from ._arithmetic import evaluate
from ._dims import Arithmetic, Batch, Dim, Fixed, Item, Named, Rest, Spec
from ._misfits import Call, Sizes


@dataclass(frozen=True)
class Solution:
    """The sizes of one call.

    Attributes:
        dims: every named dim's size.
        batch: the sizes of `*b`; () when there are none.
        rest: the sizes of `...`; () when there are none.
        shapes: the full shapes of outputs and scratch, by name.
    """

    dims: Mapping[str, int]
    batch: Sizes
    rest: Sizes
    shapes: Mapping[str, Sizes]


def solve(spec: Spec, shapes: Mapping[str, Sizes], values: Mapping[str, int], op: str) -> Solution:
    """Compute the size of every dim of a spec in one call, and the shapes of outputs and scratch.

    Args:
        spec: a parsed spec.
        shapes: the shape of every input, by name.
        values: integer scalars and keyword dims, by name. Those that the spec does not mention are ignored.
        op: the op's name, for messages.

    Raises:
        ShapeError: ranks or sizes do not fit the spec or each other, or a computed size is invalid.
        ArgumentError: the size of a dim is not given, or is not an integer.

    Example:
        >>> from tinsmith.spec import parse
        >>> solve(parse("x[n], k[m] -> y[n - m + 1]"), {"x": (10,), "k": (3,)}, {}, "conv").shapes
        {'y': (8,)}
    """
    call = Call(spec, shapes, values, op)
    dims: dict[str, int] = {}
    groups: dict[str, Sizes] = {}
    for item in spec.solving_order:
        _match(call, item, dims, groups)
    # Scalars and keywords give the sizes that no input determines, and must agree with inputs on the others.
    for name, value in call.values.items():
        if name in dims and _is_certain(dims[name] != value):
            raise _misfits.unequal_value(call, name, dims[name])
    for name in call.spec.free_dims:
        if name not in call.values:
            raise _misfits.missing_value(call)
        dims[name] = _read_size(call, name)
    batch, rest = groups.get("*", ()), groups.get("...", ())
    made = {item.name: _shape(call, item, dims, batch, rest) for item in spec.allocations}
    return Solution(dims, batch, rest, made)


def _is_certain(fact: Any) -> bool:
    """Return True if a condition on sizes holds; return False if it depends on data, which a compiler does not know."""
    try:
        return bool(fact)
    except RuntimeError as error:
        # A compiler with symbolic sizes has loaded this module.
        symbolic: Any = sys.modules.get("torch.fx.experimental.symbolic_shapes")
        if symbolic is None or not isinstance(error, symbolic.GuardOnDataDependentSymNode):
            raise
        return False


def _differ(one: Sizes, other: Sizes) -> bool:
    """Return True if two shapes certainly differ."""
    return len(one) != len(other) or any(_is_certain(a != b) for a, b in zip(one, other, strict=True))


def _match(call: Call, item: Item, dims: dict[str, int], groups: dict[str, Sizes]) -> None:
    """Compare an input's shape with its dims, and store the sizes of new names in `dims` and `groups`."""
    shape, (has_batch, has_rest, _, plain) = call.shapes[item.name], item.layout
    if has_batch or has_rest:
        shape = _without_groups(call, item, groups)
    elif len(shape) != len(plain):
        raise _misfits.wrong_rank(call, item, groups)
    for wanted, size in zip(plain, shape, strict=True):
        if isinstance(wanted, str):
            if _is_certain(dims.setdefault(wanted, size) != size):
                raise _misfits.unequal_sizes(call, item, wanted, dims[wanted], size)
        elif wanted is not None and _is_certain(wanted != size):
            raise _misfits.wrong_size(call, item, wanted, size)


def _without_groups(call: Call, item: Item, groups: dict[str, Sizes]) -> Sizes:
    """Return an input's shape without the sizes of `*b` and `...`, which are stored in `groups` or compared with it."""
    shape, (has_batch, has_rest, before, plain) = tuple(call.shapes[item.name]), item.layout
    spare = len(shape) - len(plain)
    begin = spare if not has_rest else 0
    if has_batch and has_rest:  # another input of the spec already determined one of them
        begin = len(groups["*"]) if "*" in groups else spare - len(groups["..."])
    end = before + spare
    if not 0 <= begin <= spare:
        raise _misfits.wrong_rank(call, item, groups)
    if has_batch and _differ(groups.setdefault("*", shape[:begin]), shape[:begin]):
        raise _misfits.unequal_groups(call, item, "*", groups["*"])
    if has_rest and _differ(groups.setdefault("...", shape[begin + before : end]), shape[begin + before : end]):
        raise _misfits.unequal_groups(call, item, "...", groups["..."])
    return shape[begin : begin + before] + shape[end:] if has_rest else shape[begin:]


def _read_size(call: Call, name: str) -> int:
    number = read_integer(call.values[name])
    if number is None:
        raise _misfits.not_an_integer(call, name)
    return number


def _shape(call: Call, item: Item, dims: Mapping[str, int], batch: Sizes, rest: Sizes) -> Sizes:
    """Return the shape of an output or of scratch."""
    sizes: list[int] = []
    for dim in item.dims:
        if isinstance(dim, Batch):
            sizes.extend(batch)
        elif isinstance(dim, Rest):
            sizes.extend(rest)
        else:
            sizes.append(_size(call, item, dim, dims))
    return tuple(sizes)


def _size(call: Call, item: Item, dim: Dim, dims: Mapping[str, int]) -> int:
    if isinstance(dim, Fixed):
        return dim.size
    assert isinstance(dim, (Named, Arithmetic)), "parse refuses `_` in what is made"
    tree = dim.name if isinstance(dim, Named) else dim.tree
    try:
        size = evaluate(tree, dims)
    except ZeroDivisionError as error:
        raise _misfits.division_by_zero(call, item, tree, dims) from error
    if _is_certain(size < 0):
        raise _misfits.negative_size(call, item, tree, size)
    return size
