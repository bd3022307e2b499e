"""Adjoints handed on: that of `y` in `z = a * x + y` is that of `z`, which nobody has to copy.

Where a launch stores to every element of an adjoint what the adjoint of an output has at the same place, and nothing
else has to do with it, the memory of the one is the result for the other. torch does the same: autograd adds to a
gradient in place only where nobody else holds it.

    for i in range(n):                              for i in range(n):
        grad_x[i] = grad_z[i] * a            ->         grad_x[i] = grad_z[i] * a
        grad_y[i] = grad_z[i]                       (the memory of grad_z is also the gradient of y)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from ....analyses import definitions, single_definitions
from ....ir import nodes, walk
from ...polish import declare_locals, eliminate_dead_code
from .._program import AdjointProgram, Run
from ._gathers import CleanUpOptions, Extent


def hand_on_adjoints(program: AdjointProgram, options: CleanUpOptions) -> AdjointProgram:
    """Use an output's adjoint as an input's gradient where both are equal, and remove the copy from its launch."""
    outputs = options.outputs or ()
    given = {program.gradients[name]: name for name in outputs if name in program.gradients}
    given = {gradient: name for gradient, name in given.items() if name not in program.spoils}
    # Without the stores of one adjoint, another one may be handed on.
    while given and (adjoints := [*_find_handed_on(program, given, options.extent)]):
        runs = [*program.runs]
        sources: dict[int, dict[str, str]] = {}
        for one in adjoints:
            sources.setdefault(one.user, {})[one.gradient] = one.source
        for user, some in sources.items():
            program = _hand_on(program, runs[user], some)
        program = replace(program, gradients={**program.gradients, **{one.array: one.source for one in adjoints}})
    return program


class _HandedOn(NamedTuple):
    """An input's adjoint that is only a copy of an output's adjoint.

    Attributes:
        array: the input.
        gradient: the input's adjoint.
        source: the output's adjoint.
        user: the position of the launch that copies it.
    """

    array: str
    gradient: str
    source: str
    user: int


def _find_handed_on(program: AdjointProgram, given: Mapping[str, str], extent: Extent) -> Iterator[_HandedOn]:
    """Yield the inputs' adjoints that only copy an output's adjoint, whose memory can be returned in their place.

    Skip a copy of an adjoint that was yielded before: that one is no longer stored.

    Args:
        program: the backward pass.
        given: the outputs by their adjoints.
        extent: returns what is known of an array's size along an axis.
    """
    runs = [*program.runs]
    users: dict[str, list[int]] = {}
    last_changes: dict[str, int] = {}
    for place, run in enumerate(runs):
        for name in run.kernel.arrays:
            users.setdefault(name, []).append(place)
        last_changes |= dict.fromkeys(walk.find_changed(run.kernel.body), place)
    copies: dict[nodes.Kernel, Mapping[str, str]] = {}
    handed_on = set[str]()
    for array, gradient in program.gradients.items():
        places = users.get(gradient, ())
        # An adjoint that is filled in part is 0 elsewhere, which the output's need not be.
        if gradient not in program.whole or len(places) != 1:
            continue
        kernel = runs[places[0]].kernel
        if kernel not in copies:
            copies[kernel] = _find_copies(kernel)
        source = copies[kernel].get(gradient)
        # Nor may the adjoint be changed later, as the reverse of an update in place clears it. Of an output without a
        # cotangent it is memory of this pass, which any launch may change.
        if source is None or source not in given or source in handed_on:
            continue
        if last_changes.get(source, -1) >= places[0]:
            continue
        if _is_alike(program.arrays, (array, given[source]), extent):
            handed_on.add(gradient)
            yield _HandedOn(array, gradient, source, places[0])


def _find_copies(kernel: nodes.Kernel) -> Mapping[str, str]:
    """Return the arrays that a kernel stores only copies to, each with the array that it is copied from.

    Each element is copied from the same index of that array.
    """
    known = single_definitions(definitions(kernel.body))
    sources: dict[str, set[str | None]] = {}
    for one in walk.stores(kernel.body):
        value = known.get(one.value.name) if isinstance(one.value, nodes.Local) else one.value
        is_copy = isinstance(value, nodes.Load) and (value.index, value.entry) == (one.index, one.entry)
        sources.setdefault(one.array, set()).add(value.array if is_copy and isinstance(value, nodes.Load) else None)
    pairs = ((array, *some) for array, some in sources.items() if len(some) == 1)
    return {array: source for array, source in pairs if source is not None}


def _is_alike(arrays: Mapping[str, nodes.Array], pair: tuple[str, str], extent: Extent) -> bool:
    """Return True if two arrays have the same type and sizes."""
    one, other = (arrays[name] for name in pair)
    return (one.type, one.rank, one.element) == (other.type, other.rank, other.element) and all(
        extent(pair[0], axis) == extent(pair[1], axis) for axis in range(one.rank)
    )


def _hand_on(program: AdjointProgram, user: Run, sources: Mapping[str, str]) -> AdjointProgram:
    """Return the program without a launch's copies of adjoints; without the launch if it stores nothing else.

    `sources` maps each copy, an input's adjoint, to the output's adjoint that takes its place.
    """

    def rename_size(one: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
        # The array is no longer an argument, so its sizes are asked of the other one.
        if isinstance(one, nodes.Size) and one.array in sources:
            return replace(one, array=sources[one.array])
        return one

    kernel = user.kernel
    body = walk.rewrite(
        walk.change_parts(kernel.body, rename_size),
        lambda one: [] if isinstance(one, nodes.Store) and one.array in sources else [one],
    )
    # With a store may go the statement that declared a local, which others still use.
    body = declare_locals(eliminate_dead_code(body), kernel.locals)
    arrays = {name: array for name, array in kernel.arrays.items() if name not in sources}
    changed = replace(user, kernel=replace(kernel, body=body, arrays=arrays))
    left = [changed] if walk.find_changed(body) else []
    actions = (part for one in program.actions for part in (left if one is user else [one]))
    return replace(program, actions=tuple(actions))
