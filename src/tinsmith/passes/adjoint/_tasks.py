"""A kernel as tasks: its parallel loops, and what stands between them.

Tasks share nothing but memory: a local of the top level that another task uses becomes an expression where it
is only a matter of sizes and arguments, else memory of its own, one element without dims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...analyses import tasks_of
from ...ir import Type, nodes, walk, with_cells
from ..polish import declare_locals, eliminate_dead_code, inline_sizes


@dataclass(frozen=True)
class Parts:
    """A kernel's tasks, and the arrays that hold what passes between them."""

    kernel: nodes.Kernel
    tasks: tuple[nodes.Block, ...]
    cells: frozenset[str]


def parts_of(kernel: nodes.Kernel) -> Parts:
    """Split a kernel. What may end a run has no derivative, and did not end the forward pass: it is left out."""
    body = kernel.body
    if any(map(walk.may_fail, body)):
        body = walk.rewrite(body, lambda one: () if one.may_fail else (one,))
    # A local that is a matter of sizes and arguments is written out in each task; only the others need memory.
    plain = replace(kernel, body=inline_sizes(declare_locals(eliminate_dead_code(body), kernel.locals)))
    whole = with_cells(plain, frozenset(_find_shared_locals(tasks_of(plain.body))))
    cells = frozenset(kernel.cells) | frozenset(whole.cells)
    return Parts(replace(whole, cells=()), tasks_of(whole.body), cells)


def kernel_of(
    kernel: nodes.Kernel,
    name: str,
    body: Sequence[nodes.Stmt],
    arrays: Mapping[str, nodes.Array],
    arguments: Mapping[str, tuple[Type, tuple[int, ...]]],
) -> nodes.Kernel:
    """Build a kernel from statements of another one, with those arrays and arguments that the statements use."""
    used = walk.find_touched(body) | walk.find_sized(body)
    asked = {part.name for part in walk.parts_in(body) if isinstance(part, nodes.Argument)}
    arrays = {key: array for key, array in arrays.items() if key in used}
    arguments = {key: kind for key, kind in arguments.items() if key in asked}
    # Whatever memory was its own is handed to it.
    made = replace(kernel, name=name, arrays=arrays, arguments=arguments, body=tuple(body))
    return replace(made, cells=(), block_memory={})


def _find_shared_locals(tasks: Sequence[nodes.Block]) -> list[str]:
    """Return the locals that one task assigns and another reads or changes."""
    shared: dict[str, None] = {}
    mentions = [walk.find_mentioned(task) for task in tasks]
    for place, task in enumerate(tasks):
        for one in task:
            for name in _find_assigned(one):
                if any(name in other for number, other in enumerate(mentions) if number != place):
                    shared[name] = None
    return list(shared)


def _find_assigned(one: nodes.Stmt) -> list[str]:
    """Return the locals of the top level that a statement assigns; those of a parallel loop are its iterations' own."""
    if isinstance(one, nodes.For) and one.is_parallel:
        return []
    return [
        name for part in walk.statements([one]) if not isinstance(part, nodes.For) for name in walk.find_assigned(part)
    ]
