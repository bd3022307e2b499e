"""Values that one iteration takes from an element and leaves zero there, in one step, where several may want them.

In `y[s[i]] = w[s[i]]` two iterations may store the same value to one element. Its adjoint belongs to one of them. In a
parallel loop a load and a store would let both have it: so it is an atomic product with zero, which returns what was
there. Engines have no atomic exchange; in code that runs in order the load and the store stay.

Passes that differentiate a kernel see the load and the store: this is done when a kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..analyses import concurrent_loop
from ..ir import AtomicOperator, nodes, walk


def exchange_values(kernel: nodes.Kernel) -> nodes.Kernel:
    """The kernel with atomics for the stores of parallel loops that take what was there."""
    if not any(isinstance(one, nodes.Store) and one.takes for one in walk.stores(kernel.body)):
        return kernel
    body = tuple([one if concurrent_loop(one) is None else walk.with_bodies(one, _block) for one in kernel.body])
    return replace(kernel, body=body)


def _block(body: Sequence[nodes.Stmt]) -> nodes.Block:
    changed: list[nodes.Stmt] = []
    for one in body:
        last = changed[-1] if changed else None
        match one:
            case nodes.Store(takes=True) if isinstance(last, nodes.Assign) and last.value == _load(one):
                changed[-1] = nodes.Atomic(
                    AtomicOperator.MUL, one.array, one.index, one.entry, one.value, last.name, one.line
                )
            case _:
                changed.append(walk.with_bodies(one, _block))
    return tuple(changed)


def _load(store: nodes.Store) -> nodes.Load:
    return nodes.Load(store.array, store.index, store.entry, store.value.type)
