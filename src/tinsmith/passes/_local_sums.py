"""Additions to memory as sums in locals, and without atomics where no other iteration can meet them.

    for r in range(x.shape[0]):                  for r in range(x.shape[0]):
        for s in range(x.shape[1]):                  y_sum = 0.0
            y[r] += x[r, s]              ->          for s in range(x.shape[1]):
                                                         y_sum = y_sum + x[r, s]
                                                     if not y_sum == 0.0:
                                                         y[r] = y[r] + y_sum

In a parallel loop `y[r] += v` is an atomic, which on a CPU takes as long as some twenty operations. A loop that uses an
element for nothing but additions adds to a local instead, and the element gets the sum after the loop; then additions
to elements that no other parallel iteration touches are plain ones (`analysis.find_owned`). Additions commute, so it
does not matter whether two of these elements are the same one.

A sum that is 0 is not added: a loop that adds nothing may name an element that does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..analyses import concurrent_loop, find_owned
from ..ir import AtomicOperator, Names, Type, constant, is_not_zero, nodes, walk
from .polish import Element, find_addition

_KINDS = frozenset({Type.F32, Type.F64, Type.I32, Type.I64, Type.U32, Type.U64})


def sum_in_locals(kernel: nodes.Kernel, *, leaves_known: bool = True) -> nodes.Kernel:
    """Return a kernel that sums in locals and adds without atomics where it can; the same object if it can nowhere.

    If it `leaves_known`, additions stay as they are that engines see for themselves not to need an atomic.
    """
    if not any(find_addition(one) for one in walk.stores(kernel.body)):
        return kernel
    names = Names.of_kernel(kernel)
    tasks = [
        _Task(one, kernel.arrays, names, leaves_known=leaves_known).rewrite() if isinstance(one, nodes.For) else one
        for one in kernel.body
    ]
    body = walk.keep_block(kernel.body, tasks)
    return kernel if body is kernel.body else replace(kernel, body=body, locals=names.types)


class _Task:
    """Rewrites one outermost loop."""

    def __init__(self, task: nodes.For, arrays: Mapping[str, nodes.Array], names: Names, *, leaves_known: bool) -> None:
        self.task = task
        self.names = names
        # Fields, which may be sparse, and memory of blocks stay as they are.
        self.kinds = {name: one.type for name, one in arrays.items() if one.is_given and one.type in _KINDS}
        self.own = self.kinds.keys() & (find_owned(task) if concurrent_loop(task) else walk.find_changed(task.body))
        # Engines see for themselves that `y[i] += v` needs no atomic, by the loop's own variable. Their compilers then
        # find the sum of an inner loop too, and short ones are faster than over a local. Without one, plain additions
        # can run in strips.
        has_loops = any(isinstance(one, nodes.For | nodes.While) for one in walk.statements(task.body))
        is_known = leaves_known and task.is_parallel and len(task.names) == 1 and has_loops
        variable = (nodes.Local(task.names[0], Type.I32),)
        self.known = {Element(name, variable, ()) for name in self.own if is_known}

    def rewrite(self) -> nodes.For:
        body = walk.rewrite(self.block(self.task.body), lambda one: [self.without_atomic(one)])
        return self.task if body == self.task.body else replace(self.task, body=body)

    def without_atomic(self, one: nodes.Stmt) -> nodes.Stmt:
        addition = find_addition(one) if isinstance(one, nodes.Atomic) else None
        is_own = addition is not None and addition.to.array in self.own and addition.to not in self.known
        return _plainly(one) if is_own else one

    def block(self, body: Sequence[nodes.Stmt]) -> nodes.Block:
        statements: list[nodes.Stmt] = []
        for one in body:
            # Inner loops first: what they add after their end may be summed by the loop around them again.
            inside = walk.with_bodies(one, self.block)
            statements += self.loop(inside) if isinstance(inside, nodes.For | nodes.While) else [inside]
        return tuple(statements)

    def loop(self, loop: nodes.For | nodes.While) -> list[nodes.Stmt]:
        """Return a loop inside the task, and around it the sums of what it adds to elements that stay the same."""
        totals: dict[Element, nodes.Local] = {}
        whole: list[nodes.Stmt] = []
        for element, addition in self.constant_elements(loop).items():
            kind = self.kinds[element.array]
            totals[element] = total = self.names.local(f"{element.array}_sum", kind)
            added = nodes.Atomic(AtomicOperator.ADD, *element, total, line=addition.line)
            statement = added if isinstance(addition, nodes.Atomic) else _plainly(added)
            whole.append(nodes.If(is_not_zero(total), (statement,), line=addition.line))
        if not totals:
            return [loop]

        def change(one: nodes.Stmt) -> list[nodes.Stmt]:
            addition = find_addition(one)
            total = totals.get(addition.to) if addition else None
            if addition is None or total is None:
                return [one]
            value = nodes.Binary(addition.operator, total, addition.value, total.type)
            return [nodes.Assign(total.name, value, one.line)]

        begun = [nodes.Assign(total.name, constant(0, total.type)) for total in totals.values()]
        return [*begun, replace(loop, body=walk.rewrite(loop.body, change)), *whole]

    def constant_elements(self, loop: nodes.For | nodes.While) -> dict[Element, nodes.Stmt]:
        """Return the elements that a loop does nothing with but add to them, if it does not change which they are."""
        defined, changed = walk.find_defined([loop]), walk.find_changed(loop.body)
        elements: dict[Element, nodes.Stmt] = {}
        used: set[str] = set()
        for one in walk.statements(loop.body):
            addition = find_addition(one)
            if addition is None:
                used |= walk.arrays_in(walk.expressions(one))
                used |= {one.array} if isinstance(one, nodes.Store | nodes.Atomic) else set()
                continue
            array, index, _ = addition.to
            used |= walk.arrays_in([*index, addition.value])
            is_constant = walk.locals_in(index).isdisjoint(defined) and walk.arrays_in(index).isdisjoint(changed)
            # One atomic among the additions makes the sum's addition atomic: other iterations may meet it there.
            if is_constant and array in self.kinds and addition.to not in self.known:
                elements[addition.to] = elements.get(addition.to, one) if isinstance(one, nodes.Store) else one
        return {element: one for element, one in elements.items() if element.array not in used}


def _plainly(one: nodes.Stmt) -> nodes.Stmt:
    """Return an atomic addition as a load and a store, with nothing simplified, as the source has it."""
    addition = find_addition(one)
    assert addition is not None
    load = nodes.Load(*addition.to, addition.value.type)
    value = nodes.Binary(addition.operator, load, addition.value, load.type)
    return nodes.Store(*addition.to, value, one.line)
