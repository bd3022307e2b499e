"""Adjoints that one launch fills: each element is stored once, where zeros would be stored, loaded and added to.

`grad_x[i] = grad_x[i] + v`, for every i there is, as the first that is done to `grad_x`, is `grad_x[i] = v`: whoever
makes the memory need not clear it. An elementwise kernel moves half as many bytes then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...source import AffineIndex
from ...source.ir import nodes, walk
from ..analysis import affine, definitions, whole_definitions
from ..polish import find_added_value
from ._program import Program

Extent = Callable[[str, int], object]
"""What is equal for axes of arrays that are known to be equally long: of an array and an axis."""


@dataclass(frozen=True)
class _Addition:
    """A store that adds to an element, and the loops around it."""

    store: nodes.Store
    loops: tuple[nodes.For, ...]


def store_whole_gradients(program: Program, arrays: Collection[str], extent: Extent) -> tuple[Program, frozenset[str]]:
    """A program that stores, and does not add to, adjoints that one of its launches fills; and the names of these.

    Args:
        program: a backward pass.
        arrays: those whose adjoints start at zero.
        extent: tells which axes are equally long.
    """
    launches = Counter(run.kernel for run in program.runs)  # in order
    touched = {kernel: walk.find_touched(kernel.body) for kernel in launches}
    changed: dict[nodes.Kernel, nodes.Kernel] = {}
    whole: set[str] = set()
    for array in arrays:
        gradient = program.gradients.get(array)
        first = next((kernel for kernel in launches if gradient in touched[kernel]), None)
        if gradient is None or first is None or launches[first] > 1:
            continue
        kernel = changed.get(first, first)
        stores = _filling_stores(kernel, gradient, array, extent, program)
        if stores:
            changed[first] = replace(kernel, body=tuple(_without_sum(one, stores) for one in kernel.body))
            whole.add(gradient)
    return program.with_kernels(lambda kernel: changed.get(kernel, kernel)), frozenset(whole)


def _filling_stores(
    kernel: nodes.Kernel, gradient: str, array: str, extent: Extent, program: Program
) -> frozenset[nodes.Store]:
    """The stores of a kernel by which each element of an adjoint gets a value of its own; none if it is not so."""
    memory = kernel.arrays[gradient]
    additions = list(_additions(kernel.body, gradient, ()))
    touches = [*walk.loads(kernel.body), *walk.stores(kernel.body)]
    # Each addition loads its element and stores it, and nothing else may have to do with the array.
    if len([one for one in touches if one.array == gradient]) != 2 * len(additions) or memory.offset or memory.label:
        return frozenset()
    known = whole_definitions(definitions(kernel.body))
    owners = {name: one for one, name in program.gradients.items()}
    sizes = [extent(array, axis) for axis in range(memory.rank)]

    def length(expr: nodes.Expr) -> object:
        match expr:
            case nodes.Size(name, axis):
                return extent(owners.get(name, name), axis)
            case nodes.Const(value):
                return value
        return None

    # An axis of three that a static loop unrolls has an addition for each place, as numbers of a vector have.
    parts = {(_find_layer(one, sizes, known, length), one.store.entry) for one in additions}
    axes = [{axis for axis, _ in layer} if layer is not None else None for layer, _ in parts]
    if not parts or None in axes or any(one != axes[0] for one in axes):
        return frozenset()
    places = prod(size for axis, size in enumerate(sizes) if isinstance(size, int) and axis in (axes[0] or ()))
    is_whole = len(parts) == len(additions) == places * prod(memory.element)
    return frozenset(one.store for one in additions) if is_whole else frozenset()


def _find_layer(
    one: _Addition,
    sizes: Sequence[object],
    known: Mapping[str, nodes.Expr],
    length: Callable[[nodes.Expr], object],
) -> tuple[tuple[int, int], ...] | None:
    """The axes of known size along which an addition stays, each with the place; None if it misses others' elements."""
    ranges = {
        name: length(end)
        for loop in one.loops
        for name, (begin, end) in zip(loop.names, loop.bounds, strict=True)
        if begin == nodes.Const(0, "i32")
    }
    left, layer = dict(ranges), list[tuple[int, int]]()
    for axis, (expr, size) in enumerate(zip(one.store.index, sizes, strict=True)):
        index = affine(expr, known)
        name = _variable(index, ranges, length)
        if isinstance(size, int) and index.number is not None and 0 <= index.number < size:
            layer.append((axis, index.number))
        elif name is None or left.pop(name, None) != size:
            return None
    is_all = len(ranges) == sum(len(loop.names) for loop in one.loops)
    return tuple(layer) if is_all and not left else None


def _variable(index: AffineIndex, ranges: Mapping[str, object], length: Callable[[nodes.Expr], object]) -> str | None:
    """The loop variable that an index goes through all of an axis with, upwards or downwards."""
    variables = [(atom, count) for atom, count in index.terms.items() if isinstance(atom, str)]
    sizes = [(length(atom), count) for atom, count in index.terms.items() if not isinstance(atom, str)]
    match variables, sizes, index.constant:
        case [(name, 1)], [], 0:
            return name
        case [(name, -1)], [(size, 1)], -1 if size is not None and size == ranges.get(name):
            return name
    return None


def _additions(body: Sequence[nodes.Stmt], gradient: str, loops: tuple[nodes.For, ...]) -> Iterator[_Addition]:
    """Additions to elements of an adjoint that are made in every iteration of the loops around them."""
    for one in body:
        match one:
            case nodes.Store() if one.array == gradient and find_added_value(one) is not None:
                yield _Addition(one, loops)
            case nodes.For() if not walk.has_jumps(one.body):
                yield from _additions(one.body, gradient, (*loops, one))
            case _:
                pass


def _without_sum(one: nodes.Stmt, stores: Collection[nodes.Store]) -> nodes.Stmt:
    def change(part: nodes.Stmt) -> nodes.Stmt:
        value = find_added_value(part) if isinstance(part, nodes.Store) and part in stores else None
        return part if value is None else replace(part, value=value)

    return walk.transform(one, lambda expr: expr, change)
