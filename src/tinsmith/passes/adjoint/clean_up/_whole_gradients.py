"""Adjoints whose elements a launch is the first to change, each once: it stores and need not add.

`grad_x[i] = grad_x[i] + v`, as the first that is done to `grad_x`, is `grad_x[i] = v`. Where that is so for every i
there is, whoever makes the memory need not clear it: an elementwise kernel moves half as many bytes then. Where it is
so for some, as for the samples of segments, the others stay zero.

    for i in range(n):                              for i in range(n):
        g = grad_y[i] * 2 * x[i]             ->         g = grad_y[i] * 2 * x[i]
        grad_x[i] = grad_x[i] + g                       grad_x[i] = g
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TypeAlias

from ...._lazy import lazy
from ....analyses import PlacedStore, affine, definitions, find_covered, find_placed_stores, whole_definitions
from ....ir import nodes, walk
from ...polish import find_added_value
from .._program import AdjointProgram
from ._gathers import CleanUpOptions, Extent

Element: TypeAlias = tuple[tuple[int | None, ...], tuple[int, ...]]
"""The index of an element, as far as it is numbers, and the entry of a vector."""


def store_whole_gradients(program: AdjointProgram, options: CleanUpOptions) -> AdjointProgram:
    """Store to adjoints where the first change of an element adds to zero, and note those that are filled."""
    # A Counter keeps the order of the launches, so the first kernel that touches an adjoint comes first.
    launches = Counter(run.kernel for run in program.runs)
    looked_at = {kernel: _Kernel(kernel) for kernel in launches}
    owners = {gradient: array for array, gradient in program.gradients.items()}
    first_uses: dict[str, nodes.Kernel] = {}
    for kernel in launches:
        for name in walk.find_touched(kernel.body):
            first_uses.setdefault(name, kernel)
    stores: dict[nodes.Kernel, set[nodes.Store]] = {}
    whole: set[str] = set()
    for array in sorted(options.alone):
        gradient = program.gradients.get(array)
        first = None if gradient is None else first_uses.get(gradient)
        # A kernel that is launched again finds what its first launch added, and would lose it.
        if gradient is None or first is None or launches[first] > 1:
            continue
        kernel = looked_at[first]
        additions = kernel.find_additions(gradient)
        is_whole = bool(additions) and _fills(kernel, additions, gradient, options.extent, owners)
        if is_whole or (additions and _are_apart(kernel, additions)):
            stores.setdefault(first, set()).update(one.store for one in additions)
            whole |= {gradient} if is_whole else set()
    if stores:
        changed = {kernel: _without_sums(kernel, some) for kernel, some in stores.items()}
        program = program.with_kernels(lambda kernel: changed.get(kernel, kernel))
    return replace(program, whole=frozenset(whole)) if whole else program


class _Kernel:
    """What a kernel does with the adjoints, found once for all of them."""

    def __init__(self, kernel: nodes.Kernel) -> None:
        self.arrays = kernel.arrays
        self._body = kernel.body

    @lazy
    def definitions(self) -> Mapping[str, nodes.Expr]:
        """Return the definition of each local of the kernel, with other locals replaced by their definitions."""
        return whole_definitions(definitions(self._body))

    @lazy
    def _stores(self) -> Mapping[str, Sequence[PlacedStore]]:
        return find_placed_stores(self._body)

    @lazy
    def _touches(self) -> Counter[str]:
        return Counter(one.array for one in (*walk.loads(self._body), *walk.stores(self._body)))

    def find_additions(self, gradient: str) -> list[PlacedStore]:
        """Return the additions to an adjoint; an empty list if the kernel does anything else with it."""
        memory = self.arrays[gradient]
        placed = self._stores.get(gradient, ())
        additions = [one for one in placed if find_added_value(one.store) is not None]
        # Each addition loads its element and stores it, and nothing else may have to do with the array.
        is_all = self._touches[gradient] == 2 * len(additions)
        return additions if is_all and not memory.offset and not memory.label else []


def _are_apart(kernel: _Kernel, additions: Sequence[PlacedStore]) -> bool:
    """Return True if no element is added to twice.

    Iterations of a parallel loop add to elements of their own where they do it without an atomic. So this is about a
    single one of them: each variable of a loop inside moves an axis of its own, and two statements stand at two places.
    """
    known = kernel.definitions
    elements: list[Element] = []
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
        # A greater factor may wrap around in 32 bits, and then two iterations meet.
        if any(abs(index.terms[name]) != 1 for index, axis in zip(sums, moved, strict=True) for name in axis):
            return False
        # A number from memory may differ from one addition to the next.
        if any(map(walk.reads_memory, (atom for index in sums for atom in index.terms if not isinstance(atom, str)))):
            return False
        elements.append((tuple(index.number for index in sums), one.store.entry))
    return _write_disjoint_elements(elements)


def _write_disjoint_elements(elements: Sequence[Element]) -> bool:
    """Return True if any two additions certainly write different elements: constant indices or entries differ."""
    by_entry: dict[tuple[int, ...], list[tuple[int | None, ...]]] = {}
    for index, entry in elements:
        by_entry.setdefault(entry, []).append(index)
    return all(map(_are_disjoint, by_entry.values()))


def _are_disjoint(indices: Sequence[tuple[int | None, ...]]) -> bool:
    if len(indices) < 2:
        return True
    # Where all have a number on one axis, only those with the same number have to be compared any further.
    for axis, numbers in enumerate(zip(*indices, strict=True)):
        if None not in numbers and len(set(numbers)) > 1:
            by_number: dict[int | None, list[tuple[int | None, ...]]] = {}
            for index in indices:
                by_number.setdefault(index[axis], []).append(index)
            return all(map(_are_disjoint, by_number.values()))
    return all(
        any(a is not None and b is not None and a != b for a, b in zip(one, other, strict=True))
        for one, other in combinations(indices, 2)
    )


def _fills(
    kernel: _Kernel,
    additions: Sequence[PlacedStore],
    gradient: str,
    extent: Extent,
    owners: Mapping[str, str],
) -> bool:
    """Return True if additions reach each element of an adjoint exactly once.

    `owners` gives the array of each adjoint, by the adjoint's name.
    """
    if any(one.is_conditional for one in additions):
        return False

    def length(expr: nodes.Expr) -> object:
        return extent(owners.get(expr.array, expr.array), expr.axis) if isinstance(expr, nodes.Size) else None

    memory = kernel.arrays[gradient]
    sizes = [extent(owners[gradient], axis) for axis in range(memory.rank)]
    parts = find_covered(additions, memory, sizes, kernel.definitions, length)
    # With fewer parts than additions, two add to one part, and the later store would lose what the earlier one gave.
    return parts is not None and len(parts) == len(additions)


def _without_sums(kernel: nodes.Kernel, stores: Collection[nodes.Store]) -> nodes.Kernel:
    """Return a kernel in which these stores do not add to what they overwrite."""

    def change(part: nodes.Stmt) -> Sequence[nodes.Stmt]:
        value = find_added_value(part) if isinstance(part, nodes.Store) and part in stores else None
        return (part if value is None else replace(part, value=value),)

    return replace(kernel, body=walk.rewrite(kernel.body, change))
