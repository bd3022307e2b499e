"""Exchanges: an iteration takes an element's value and leaves zero there in one step, if several may want it.

    parallel for i in 0 .. s.shape[0]:           parallel for i in 0 .. s.shape[0]:
        grad = grad_y[s[i]]                ->        grad = atomic mul grad_y[s[i]], 0.0
        exchange grad_y[s[i]] = 0.0                  grad_w[i] = grad
        grad_w[i] = grad

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
    """Return the kernel with atomics for those stores of parallel loops that take the element's value."""
    if not any(isinstance(one, nodes.Store) and one.takes for one in walk.stores(kernel.body)):
        return kernel
    # Engines end the process on an atomic product in code that runs in order (`_products`): there the store stays.
    body = tuple([one if concurrent_loop(one) is None else walk.with_bodies(one, _block) for one in kernel.body])
    return replace(kernel, body=body)


def _block(body: Sequence[nodes.Stmt]) -> nodes.Block:
    changed: list[nodes.Stmt] = []
    for one in body:
        last = changed[-1] if changed else None
        match one:
            # The load stands right before its store: `GENERATED` runs this before bounds checks come between them.
            case nodes.Store(takes=True) if isinstance(last, nodes.Assign) and last.value == _load(one):
                changed[-1] = nodes.Atomic(
                    AtomicOperator.MUL, one.array, one.index, one.entry, one.value, last.name, one.line
                )
            case _:
                changed.append(walk.with_bodies(one, _block))
    return tuple(changed)


def _load(store: nodes.Store) -> nodes.Load:
    return nodes.Load(store.array, store.index, store.entry, store.value.type)
