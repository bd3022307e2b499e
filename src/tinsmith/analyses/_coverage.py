"""Coverage: whether the stores of loops give every element of an array a value.

Each loop goes from 0 to the length of an axis, and an index is its variable: forwards, or backwards as `n - 1 - i`. An
axis of known length may be covered by numbers instead, as an unrolled loop has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from ..ir import AffineIndex, nodes, number, walk
from ._definitions import definitions, whole_definitions
from ._indices import affine

Length: TypeAlias = Callable[[nodes.Expr], object]
"""What is equal for sizes and arguments that are known to be equal; an int where they are known; None for unknown."""

Part: TypeAlias = tuple[tuple[tuple[int, int], ...], tuple[int, ...]]
"""The axes along which a store stays at one place, each with the place; and the entry of a vector that it stores."""


@dataclass(frozen=True)
class PlacedStore:
    """A store, the loops around it, and whether some of their iterations leave it out."""

    store: nodes.Store
    loops: tuple[nodes.For, ...]
    is_conditional: bool


def find_placed_stores(body: Sequence[nodes.Stmt]) -> dict[str, list[PlacedStore]]:
    """Return by array the stores that run at most once in every iteration of the loops around."""
    by_array: dict[str, list[PlacedStore]] = {}
    for one in _place_stores(body):
        by_array.setdefault(one.store.array, []).append(one)
    return by_array


def _place_stores(
    body: Sequence[nodes.Stmt], loops: tuple[nodes.For, ...] = (), *, is_conditional: bool = False
) -> Iterator[PlacedStore]:
    for one in body:
        match one:
            case nodes.Store():
                yield PlacedStore(one, loops, is_conditional)
            case nodes.For():
                # Behind a `break` or `continue`, some iterations leave out a store.
                is_left_out = is_conditional or any(walk.jumps_in(one.body))
                yield from _place_stores(one.body, (*loops, one), is_conditional=is_left_out)
            case nodes.If():
                # A store counts as unconditional where both arms give the same element a value.
                branches = [[*_place_stores(part, loops)] for part in walk.bodies(one)]
                always = set.intersection(
                    *({_element(own) for own in part if _is_always(own, loops)} for part in branches)
                )
                for own in (own for part in branches for own in part):
                    is_left_out = is_conditional or own.is_conditional or _element(own) not in always
                    yield replace(own, is_conditional=is_left_out)
            case _:
                pass


def find_covered(
    stores: Sequence[PlacedStore],
    memory: nodes.Array,
    sizes: Sequence[object],
    known: Mapping[str, nodes.Expr],
    length: Length,
) -> set[Part] | None:
    """Return the parts of an array that stores fill if these are the whole of it; otherwise None.

    Args:
        stores: what runs in each iteration of the loops around it.
        memory: the array.
        sizes: its lengths.
        known: the `whole_definitions` of the kernel's locals.
        length: what is known of lengths.
    """

    def resolve(expr: nodes.Expr) -> object:
        # A loop: a closure that calls itself is a reference cycle, which would keep alive what `length` refers to.
        while isinstance(expr, nodes.Local) and expr.name in known:
            expr = known[expr.name]
        return expr.value if isinstance(expr, nodes.Const) else length(expr)

    # An axis of three that a static loop unrolls has a store for each place, as numbers of a vector have.
    parts: set[Part] = set()
    for one in stores:
        layer = _find_layer(one, sizes, known, resolve)
        if layer is None:
            return None
        parts.add((layer, one.store.entry))
    # Stores that cover different axes by numbers may overlap, and counting them proves nothing.
    axes = [{axis for axis, _ in layer} for layer, _ in parts]
    if not axes or any(one != axes[0] for one in axes):
        return None
    places = prod(size for axis, size in enumerate(sizes) if isinstance(size, int) and axis in axes[0])
    return parts if len(parts) == places * prod(memory.element) else None


def find_filled(kernel: nodes.Kernel, length: Length) -> frozenset[str]:
    """Return the arrays whose every element a kernel stores before it reads it.

    Args:
        kernel: any kernel.
        length: what is known of lengths.
    """
    known = whole_definitions(definitions(kernel.body))
    filled, seen = set[str](), set[str]()
    for task in kernel.body:
        touched = walk.find_touched([task])
        placed, uses = find_placed_stores([task]), _find_uses([task])
        for memory in map(kernel.arrays.get, touched - seen):
            # What an earlier task has touched may be needed as it was.
            if memory is None or memory.offset:
                continue
            stores = [one for one in placed.get(memory.name, ()) if not one.is_conditional]
            if _fills(stores, len(uses.get(memory.name, ())), memory, known, length):
                filled.add(memory.name)
        seen |= touched
    return frozenset(filled)


def _fills(
    stores: Sequence[PlacedStore], count: int, memory: nodes.Array, known: Mapping[str, nodes.Expr], length: Length
) -> bool:
    """Return True if a loop stores to every element, and its iterations use only elements that they have stored to.

    `count` is the number of these uses.
    """
    sizes = [length(nodes.Size(memory.name, axis)) for axis in range(memory.rank)]
    if find_covered(stores, memory, sizes, known, length) is None:
        return False
    if not count:
        return True
    loops = stores[0].loops
    # In other loops, an iteration may use an element before the store of another one fills it.
    if not loops or any(one.loops != loops for one in stores):
        return False

    def element(one: nodes.Load | nodes.Store | nodes.Atomic) -> tuple[object, ...]:
        return *(affine(expr, known) for expr in one.index), one.entry

    # The variables of loops alone are in an index that covers an array, so an equal index is the same element.
    filled = [element(one.store) for one in stores]
    kept = [one.store for one in stores]
    body = loops[-1].body
    # Every use must stand after all stores, in the loop of the stores.
    last = max(place for place, one in enumerate(body) if any(store in kept for store in walk.stores([one])))
    later = _find_uses(body[last + 1 :]).get(memory.name, [])
    return len(later) == count and all(element(one) in filled for one in later)


def _find_uses(body: Sequence[nodes.Stmt]) -> dict[str, list[nodes.Load | nodes.Store | nodes.Atomic]]:
    """Return by array the accesses that need the value which it has there."""
    by_array: dict[str, list[nodes.Load | nodes.Store | nodes.Atomic]] = {}
    for one in (*walk.loads(body), *(store for store in walk.stores(body) if not isinstance(store, nodes.Store))):
        by_array.setdefault(one.array, []).append(one)
    return by_array


def _element(one: PlacedStore) -> tuple[str, tuple[nodes.Expr, ...], tuple[int, ...]]:
    return one.store.array, one.store.index, one.store.entry


def _is_always(one: PlacedStore, loops: tuple[nodes.For, ...]) -> bool:
    """Return True if a store runs whenever the statements inside these loops do."""
    return one.loops == loops and not one.is_conditional


def _find_layer(
    one: PlacedStore, sizes: Sequence[object], known: Mapping[str, nodes.Expr], length: Length
) -> tuple[tuple[int, int], ...] | None:
    """Return the axes along which a store's index is a constant, each with that index, if loops cover all other axes.

    Return None if the loops around the store leave out elements of another axis. For `y[i, 2]` in a loop over all of
    axis 0, return `((1, 2),)`.
    """
    ranges = {
        name: length(end)
        for loop in one.loops
        for name, (begin, end) in zip(loop.names, loop.bounds, strict=True)
        if begin == number(0)
    }
    left, layer = dict(ranges), list[tuple[int, int]]()
    for axis, (expr, size) in enumerate(zip(one.store.index, sizes, strict=True)):
        index = affine(expr, known)
        name = _variable(index, ranges, length)
        if isinstance(size, int) and index.number is not None and 0 <= index.number < size:
            layer.append((axis, index.number))
        elif name is None or size is None or left.pop(name, None) != size:
            return None
    # A loop that begins elsewhere than at 0 misses elements, and one that moves no axis may have no iteration at all.
    is_all = len(ranges) == sum(len(loop.names) for loop in one.loops)
    return tuple(layer) if is_all and not left else None


def _variable(index: AffineIndex, ranges: Mapping[str, object], length: Length) -> str | None:
    """Return the loop variable with which an index goes through all of an axis, upwards or downwards."""
    variables = [(atom, count) for atom, count in index.terms.items() if isinstance(atom, str)]
    sizes = [(length(atom), count) for atom, count in index.terms.items() if not isinstance(atom, str)]
    match variables, sizes, index.constant:
        # `i`.
        case [(name, 1)], [], 0:
            return name
        # `n - 1 - i`, where `i` goes up to `n`.
        case [(name, -1)], [(size, 1)], -1 if size is not None and size == ranges.get(name):
            return name
        # `7 - i`, where `i` goes up to 8.
        case [(name, -1)], [], last if ranges.get(name) == last + 1:
            return name
    return None
