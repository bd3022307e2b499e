"""Delayed stores: what a sequence of statements stores comes after what it loads, for GPUs.

    y[i] = a * x[i]                 value = a * x[i]
    b = z[i]                 ->     b = z[i]
    w[i] = b                        value_1 = b
                                    y[i] = value
                                    w[i] = value_1

To an engine's compiler a store may change all memory, the addresses of the arrays and the numbers that come next among
it. So it loads nothing ahead of a store, and loads each address again behind one
(docs/about/decisions/device-code.md). Arrays with different names never share memory.

Stores keep their order. They wait no longer than to the end of a block of statements, to a statement that has blocks
inside, to an atomic, and to a statement that loads from an array with a waiting store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir import Names, Type, nodes, walk

_MOST = 16
"""The maximum number of stores that are delayed at once, since each keeps its value in a register."""
_KINDS = frozenset({Type.F32, Type.F64, Type.I32, Type.I64, Type.U32, Type.U64})


def delay_stores(kernel: nodes.Kernel) -> nodes.Kernel:
    """Move stores behind the loads that follow them, where that is safe. Return the same object if nothing changes."""
    names = Names.of_kernel(kernel)
    delay = _Delay(kernel, names)
    body = tuple(walk.with_bodies(one, delay.block) if walk.is_parallel(one) else one for one in kernel.body)
    return replace(kernel, body=body, locals=names.types) if body != kernel.body else kernel


class _Delay:
    """Rewrites the blocks of one kernel.

    Attributes:
        waiting: the stores that wait, with locals for their index and value.
        written: what has come since the first of them, with assignments of these locals in place of the stores.
        original: the same as it was.
        has_crossed: whether a load came behind a waiting store.
    """

    def __init__(self, kernel: nodes.Kernel, names: Names) -> None:
        self.kernel = kernel
        self.names = names
        self.begin()

    def begin(self) -> None:
        self.waiting: list[nodes.Store] = []
        self.written: list[nodes.Stmt] = []
        self.original: list[nodes.Stmt] = []
        self.has_crossed = False

    def block(self, body: Sequence[nodes.Stmt]) -> nodes.Block:
        """Rewrite the statements of a block, and those inside them."""
        done: list[nodes.Stmt] = []
        for one in body:
            is_plain = isinstance(one, nodes.Assign | nodes.Draw) or self.can_wait(one)
            loaded = {load.array for load in walk.loads([one])} if is_plain else set[str]()
            if not is_plain or loaded & {store.array for store in self.waiting}:
                done += self.flush()
            if not is_plain:
                done.append(walk.with_bodies(one, self.block))
                continue
            self.has_crossed |= bool(self.waiting and loaded)
            self.original.append(one)
            self.written += self.hold(one) if isinstance(one, nodes.Store) else [one]
            if len(self.waiting) >= _MOST:
                done += self.flush()
        return (*done, *self.flush())

    def can_wait(self, one: nodes.Stmt) -> bool:
        """Return True for a store to an array that a launch passes, and that takes nothing from its element."""
        if not isinstance(one, nodes.Store) or one.takes or one.array in self.kernel.cells:
            return False
        array = self.kernel.arrays.get(one.array)
        return array is not None and array.is_given and array.type in _KINDS

    def hold(self, store: nodes.Store) -> list[nodes.Stmt]:
        """Return the assignments of locals that hold the index and the value of a store, which waits from now on."""
        value = self.names.local(f"{store.array}_value", self.kernel.arrays[store.array].type)
        assigned: list[nodes.Stmt] = [nodes.Assign(value.name, store.value, store.line)]
        index: list[nodes.Expr] = []
        for part in store.index:
            if isinstance(part, nodes.Const):
                index.append(part)
                continue
            index.append(place := self.names.local("place", part.type))
            assigned.append(nodes.Assign(place.name, part, store.line))
        self.waiting.append(replace(store, index=tuple(index), value=value))
        return assigned

    def flush(self) -> list[nodes.Stmt]:
        """Return what has come since the first waiting store, with the stores at its end if that saves anything."""
        statements = [*self.written, *self.waiting] if self.has_crossed else self.original
        self.begin()
        return statements
