"""Adjoints of which a launch is the first to change an element, and changes it once: it stores and need not add.

`grad_x[i] = grad_x[i] + v`, as the first that is done to `grad_x`, is `grad_x[i] = v`. Where that is so for every i
there is, whoever makes the memory need not clear it: an elementwise kernel moves half as many bytes then. Where it is
so for some, as for the samples of segments, the others stay zero.

    for i in range(n):                              for i in range(n):
        g = grad_y[i] * 2 * x[i]             ->         g = grad_y[i] * 2 * x[i]
        grad_x[i] = grad_x[i] + g                       grad_x[i] = g
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations

from ....analyses import PlacedStore, affine, definitions, find_covered, find_placed_stores, whole_definitions
from ....ir import nodes, walk
from ...polish import find_added_value
from .._program import Program
from ._options import CleanUpOptions, Extent


def store_whole_gradients(program: Program, options: CleanUpOptions) -> Program:
    """Store to adjoints where the first change of an element adds to zero, and note those that are filled."""
    # A Counter keeps the order of the launches, so the first kernel that touches an adjoint is found below.
    launches = Counter(run.kernel for run in program.runs)
    touched = {kernel: walk.find_touched(kernel.body) for kernel in launches}
    changed: dict[nodes.Kernel, nodes.Kernel] = {}
    whole: set[str] = set()
    for array in sorted(options.alone):
        gradient = program.gradients.get(array)
        first = next((kernel for kernel in launches if gradient in touched[kernel]), None)
        # A kernel that is launched again finds what its first launch added, and would lose it.
        if gradient is None or first is None or launches[first] > 1:
            continue
        # Another gradient of the same kernel may have changed it already.
        kernel = changed.get(first, first)
        additions = _find_additions(kernel, gradient)
        is_whole = bool(additions) and _fills(kernel, additions, array, gradient, options.extent, program)
        if is_whole or (additions and _are_apart(kernel, additions)):
            stores = frozenset(one.store for one in additions)
            changed[first] = replace(kernel, body=tuple(_without_sum(one, stores) for one in kernel.body))
            whole |= {gradient} if is_whole else set()
    program = program.with_kernels(lambda kernel: changed.get(kernel, kernel)) if changed else program
    return replace(program, whole=frozenset(whole)) if whole else program


def _find_additions(kernel: nodes.Kernel, gradient: str) -> list[PlacedStore]:
    """Return the additions of a kernel to an adjoint; an empty list if it does anything else with it."""
    memory = kernel.arrays[gradient]
    placed = find_placed_stores(kernel.body, gradient)
    additions = [one for one in placed if find_added_value(one.store) is not None]
    touches = [*walk.loads(kernel.body), *walk.stores(kernel.body)]
    # Each addition loads its element and stores it, and nothing else may have to do with the array.
    is_all = sum(one.array == gradient for one in touches) == 2 * len(additions)
    return additions if is_all and not memory.offset and not memory.label else []


def _are_apart(kernel: nodes.Kernel, additions: Sequence[PlacedStore]) -> bool:
    """Return True if no element is added to twice.

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
        # A greater factor may wrap around in 32 bits, and then two iterations meet.
        if any(abs(index.terms[name]) != 1 for index, axis in zip(sums, moved, strict=True) for name in axis):
            return False
        # A number from memory may differ from one addition to the next.
        if any(map(walk.reads_memory, (atom for index in sums for atom in index.terms if not isinstance(atom, str)))):
            return False
        elements.append((tuple(index.number for index in sums), one.store.entry))
    return all(_differ(one, other) for one, other in combinations(elements, 2))


def _differ(
    one: tuple[tuple[int | None, ...], tuple[int, ...]], other: tuple[tuple[int | None, ...], tuple[int, ...]]
) -> bool:
    """Return True if two additions certainly write different elements: their constant indices or entries differ."""
    pairs = zip(one[0], other[0], strict=True)
    return one[1] != other[1] or any(a is not None and b is not None and a != b for a, b in pairs)


def _fills(
    kernel: nodes.Kernel,
    additions: Sequence[PlacedStore],
    array: str,
    gradient: str,
    extent: Extent,
    program: Program,
) -> bool:
    """Return True if additions reach each element of an adjoint exactly once."""
    if any(one.is_conditional for one in additions):
        return False
    owners = {name: one for one, name in program.gradients.items()}

    def length(expr: nodes.Expr) -> object:
        return extent(owners.get(expr.array, expr.array), expr.axis) if isinstance(expr, nodes.Size) else None

    memory = kernel.arrays[gradient]
    sizes = [extent(array, axis) for axis in range(memory.rank)]
    parts = find_covered(additions, memory, sizes, whole_definitions(definitions(kernel.body)), length)
    # With fewer parts than additions, two add to one part, and the later store would lose what the earlier one gave.
    return parts is not None and len(parts) == len(additions)


def _without_sum(one: nodes.Stmt, stores: Collection[nodes.Store]) -> nodes.Stmt:
    def change(part: nodes.Stmt) -> nodes.Stmt:
        value = find_added_value(part) if isinstance(part, nodes.Store) and part in stores else None
        return part if value is None else replace(part, value=value)

    return walk.transform(one, lambda expr: expr, change)
