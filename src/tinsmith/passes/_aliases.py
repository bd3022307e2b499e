"""One element under two indices: engines forget that a store by one index changes what a load by the other returns.

Both engines (Taichi 1.7.4, Quadrants 1.3.3) take `y[i]` for unchanged after `y[k[i]] = ...` if it was read before: in
control flow optimization, which can be left out; and, for entries of a vector, in common subexpressions, which cannot.
Taichi loses one of two additions where an inner loop moves one index and not the other (`is_swept`).

Arrays of vectors become arrays of numbers (`flat`), which the second of these optimizations leaves alone:

    array p: f32[1] of 3                         array p: f32[2]
    array m: f32[0] of 2x2                 ->    array m: f32[2]
    p[i]{2} = p[i]{0} * m[]{1, 0}                p[i, 2] = p[i, 0] * m[1, 0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..analyses import affine
from ..ir import AffineIndex, Type, nodes, walk


def has_aliases(body: Sequence[nodes.Stmt]) -> bool:
    """Return True if an array that statements both read and change is indexed in more than one way."""
    ways: dict[str, set[tuple[nodes.Expr, ...]]] = {}
    read, changed = walk.reads(body), set[str]()
    for load in walk.loads(body):
        ways.setdefault(load.array, set()).add(load.index)
    for store in walk.stores(body):
        ways.setdefault(store.array, set()).add(store.index)
        changed.add(store.array)
    return any(len(ways[name]) > 1 for name in read & changed)


def has_elements_at_top(kernel: nodes.Kernel) -> bool:
    """Return True if statements outside of loops use entries of vectors or matrices.

    Both engines (Taichi 1.7.4, Quadrants 1.3.3) end the process where a later loop uses the same vector: they share the
    vector's address between the tasks, and expect a whole vector behind it ("scalarize_store_stmt").
    """
    top = [one for one in kernel.body if not isinstance(one, nodes.For)]
    return any(kernel.arrays[name].element for name in walk.find_touched(top))


def is_swept(body: Sequence[nodes.Stmt]) -> bool:
    """Return True if an array is stored to, and two of its indices do not lie a constant distance apart."""
    first: dict[str, list[AffineIndex]] = {}
    # Taichi 1.7.4 keeps `y[i]` in a register while a loop over j runs, so that what `y[j]` adds to the same element is
    # lost (tests/bridge/test_swept.py).
    stored = {one.array for one in walk.stores(body) if isinstance(one, nodes.Store)}
    for access in (*walk.loads(body), *walk.stores(body)):
        if access.array in stored:
            index = [affine(one, {}) for one in access.index]
            pairs = zip(index, first.setdefault(access.array, index), strict=True)
            if any(one.distance(other) is None for one, other in pairs):
                return True
    return False


def flat(kernel: nodes.Kernel) -> nodes.Kernel:
    """Return the kernel on arrays of numbers instead of vectors and matrices: the same memory, with more dims."""
    # Fields keep the layout in which their owner placed them; a launch's tensors are contiguous, in either view.
    moved = {name: one for name, one in kernel.arrays.items() if one.element and not one.label}
    if not moved:
        return kernel

    def flatten(one: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
        if isinstance(one, nodes.Load | nodes.Store | nodes.Atomic) and one.array in moved:
            numbers = [nodes.Const(number, Type.I32) for number in one.entry]
            return replace(one, index=(*one.index, *numbers), entry=())
        return one

    plain = {name: _in_numbers(one) for name, one in moved.items()}
    return replace(kernel, arrays={**kernel.arrays, **plain}, body=walk.change_parts(kernel.body, flatten))


def _in_numbers(array: nodes.Array) -> nodes.Array:
    dims = array.dims and (*array.dims, *array.element)
    return replace(array, rank=array.rank + len(array.element), element=(), dims=dims)
