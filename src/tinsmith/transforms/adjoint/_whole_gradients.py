"""Adjoints of which a launch is the first to change an element, and changes it once: it stores and need not add.

`grad_x[i] = grad_x[i] + v`, as the first that is done to `grad_x`, is `grad_x[i] = v`. Where that is so for every i
there is, whoever makes the memory need not clear it: an elementwise kernel moves half as many bytes then. Where it is
so for some, as for the samples of segments, the others stay zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
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
    """A store that adds to an element, the loops around it, and whether some of their iterations do without."""

    store: nodes.Store
    loops: tuple[nodes.For, ...]
    is_conditional: bool


def store_whole_gradients(program: Program, arrays: Collection[str], extent: Extent) -> tuple[Program, frozenset[str]]:
    """A program that stores, and does not add to, what it changes first; and the names of adjoints that it fills.

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
        additions = _find_additions(kernel, gradient)
        is_whole = bool(additions) and _fills(kernel, additions, array, gradient, extent, program)
        if is_whole or (additions and _are_apart(kernel, additions)):
            stores = frozenset(one.store for one in additions)
            changed[first] = replace(kernel, body=tuple(_without_sum(one, stores) for one in kernel.body))
            whole |= {gradient} if is_whole else set()
    return program.with_kernels(lambda kernel: changed.get(kernel, kernel)), frozenset(whole)


def _find_additions(kernel: nodes.Kernel, gradient: str) -> list[_Addition]:
    """All that a kernel does to an adjoint, if that is additions; else nothing."""
    memory, additions = kernel.arrays[gradient], list(_additions(kernel.body, gradient))
    touches = [*walk.loads(kernel.body), *walk.stores(kernel.body)]
    # Each addition loads its element and stores it, and nothing else may have to do with the array.
    is_all = sum(one.array == gradient for one in touches) == 2 * len(additions)
    return additions if is_all and not memory.offset and not memory.label else []


def _are_apart(kernel: nodes.Kernel, additions: Sequence[_Addition]) -> bool:
    """Whether no element is added to twice.

    Iterations of a parallel loop add to elements of their own where they do it without an atomic. So this is about a
    single one of them: each variable of a loop inside moves an axis of its own, and two statements stand at two places.
    """
    known = whole_definitions(definitions(kernel.body))
    elements: list[tuple[tuple[int | None, ...], tuple[int, ...]]] = []
    for one in additions:
        if not one.loops or not one.loops[0].is_parallel:
            return False
        inner = one.loops[1:]
        sums = [affine(expr, known) for expr in one.store.index]
        inside = walk.find_defined(inner)
        moved = [[name for name in index.terms if isinstance(name, str) and name in inside] for index in sums]
        names = [name for loop in inner for name in loop.names]
        if sorted(name for axis in moved for name in axis) != sorted(names) or any(len(axis) > 1 for axis in moved):
            return False
        if any(abs(index.terms[name]) != 1 for index, axis in zip(sums, moved, strict=True) for name in axis):
            return False
        if any(map(walk.reads_memory, (atom for index in sums for atom in index.terms if not isinstance(atom, str)))):
            return False
        elements.append((tuple(index.number for index in sums), one.store.entry))
    return all(_differ(one, other) for one, other in combinations(elements, 2))


def _differ(
    one: tuple[tuple[int | None, ...], tuple[int, ...]], other: tuple[tuple[int | None, ...], tuple[int, ...]]
) -> bool:
    """Whether places, as far as they are numbers, or entries of an element tell two additions apart."""
    pairs = zip(one[0], other[0], strict=True)
    return one[1] != other[1] or any(a is not None and b is not None and a != b for a, b in pairs)


def _fills(
    kernel: nodes.Kernel,
    additions: Sequence[_Addition],
    array: str,
    gradient: str,
    extent: Extent,
    program: Program,
) -> bool:
    """Whether additions give each element of an adjoint a value of its own."""
    if any(one.is_conditional for one in additions):
        return False
    memory = kernel.arrays[gradient]
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
        return False
    places = prod(size for axis, size in enumerate(sizes) if isinstance(size, int) and axis in (axes[0] or ()))
    return len(parts) == len(additions) == places * prod(memory.element)


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


def _additions(
    body: Sequence[nodes.Stmt], gradient: str, loops: tuple[nodes.For, ...] = (), *, is_conditional: bool = False
) -> Iterator[_Addition]:
    """Additions to elements of an adjoint that are made once, at the most, in every iteration of the loops around."""
    for one in body:
        match one:
            case nodes.Store() if one.array == gradient and find_added_value(one) is not None:
                yield _Addition(one, loops, is_conditional)
            case nodes.For():
                has_jumps = walk.has_jumps(one.body)
                yield from _additions(one.body, gradient, (*loops, one), is_conditional=is_conditional or has_jumps)
            case nodes.If():
                for part in walk.bodies(one):
                    yield from _additions(part, gradient, loops, is_conditional=True)
            case _:
                pass


def _without_sum(one: nodes.Stmt, stores: Collection[nodes.Store]) -> nodes.Stmt:
    def change(part: nodes.Stmt) -> nodes.Stmt:
        value = find_added_value(part) if isinstance(part, nodes.Store) and part in stores else None
        return part if value is None else replace(part, value=value)

    return walk.transform(one, lambda expr: expr, change)
