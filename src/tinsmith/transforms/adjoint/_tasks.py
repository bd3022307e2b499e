"""A kernel as tasks: its parallel loops, and what stands between them.

Tasks share nothing but memory: a local of the top level that another task uses becomes an expression where it
is only a matter of sizes and arguments, else memory of its own, one element without dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...source.ir import nodes, walk, with_cells
from ..analysis import definitions, mentioned, single_definitions
from ..polish import declare_locals, eliminate_dead_code

Block = tuple[nodes.Stmt, ...]


@dataclass(frozen=True)
class Parts:
    """A kernel's tasks, and the arrays that hold what passes between them."""

    kernel: nodes.Kernel
    tasks: tuple[Block, ...]
    cells: frozenset[str]


def parts_of(kernel: nodes.Kernel) -> Parts:
    """Split a kernel."""
    plain = replace(kernel, body=_inlined(declare_locals(eliminate_dead_code(kernel.body), kernel.locals)))
    whole = with_cells(plain, frozenset(_shared(_split(plain.body))))
    cells = frozenset(kernel.cells) | frozenset(whole.cells)
    return Parts(replace(whole, cells=()), _split(whole.body), cells)


def _split(body: Block) -> tuple[Block, ...]:
    tasks: list[Block] = []
    between: list[nodes.Stmt] = []
    for one in body:
        if not (isinstance(one, nodes.For) and one.is_parallel):
            between.append(one)
            continue
        if between:
            tasks.append(tuple(between))
            between = []
        tasks.append((one,))
    return (*tasks, tuple(between)) if between else tuple(tasks)


def _inlined(body: Block) -> Block:
    """Statements in which locals of the top level that are worked out from sizes and arguments are no more."""
    single = single_definitions(definitions(body))
    known: dict[str, nodes.Expr] = {}
    kept: list[nodes.Stmt] = []
    for one in body:
        one = _substituted(one, known)
        if isinstance(one, nodes.Assign) and one.name in single and walk.is_invariant(one.value):
            known[one.name] = one.value
        else:
            kept.append(one)
    return tuple(kept)


def _shared(tasks: Sequence[Block]) -> list[str]:
    """Locals that one task gives a value and another reads or changes."""
    found: dict[str, None] = {}
    mentions = [mentioned(task) for task in tasks]
    for place, task in enumerate(tasks):
        for one in task:
            for name in _given(one):
                if any(name in other for number, other in enumerate(mentions) if number != place):
                    found[name] = None
    return list(found)


def _given(one: nodes.Stmt) -> list[str]:
    """Locals of the top level that a statement gives a value; those of a loop's body are its own."""
    if isinstance(one, nodes.For) and one.is_parallel:
        return []
    return [name for part in walk.statements([one]) if not isinstance(part, nodes.For) for name in walk.assigned(part)]


def _substituted(one: nodes.Stmt, values: dict[str, nodes.Expr]) -> nodes.Stmt:
    return walk.changed(one, lambda expr: walk.substituted(expr, values)) if values else one
