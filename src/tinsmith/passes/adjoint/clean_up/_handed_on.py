"""Adjoints handed on: that of `y` in `z = a * x + y` is that of `z`, which nobody has to copy.

Where a launch stores to every element of an adjoint what the adjoint of an output has at the same place, and nothing
else has to do with it, the memory of the one is the result for the other. torch does the same: autograd adds to a
gradient in place only where nobody else holds it.

    for i in range(n):                              for i in range(n):
        grad_x[i] = grad_z[i] * a            ->         grad_x[i] = grad_z[i] * a
        grad_y[i] = grad_z[i]                       (the memory of grad_z is also the gradient of y)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ....analyses import definitions, single_definitions
from ....ir import nodes, walk
from ...polish import declare_locals, eliminate_dead_code
from .._program import Program, Run
from ._options import CleanUpOptions, Extent


def hand_on_adjoints(program: Program, options: CleanUpOptions) -> Program:
    """Give the adjoint of an output as that of an input, where the two are equal."""
    outputs = options.outputs or ()
    given = {program.gradients[name]: name for name in outputs if name in program.gradients}
    given = {gradient: name for gradient, name in given.items() if name not in program.spoils}
    for array, gradient in program.gradients.items():
        # An adjoint that is filled in part is 0 elsewhere, which the output's need not be.
        if gradient not in program.whole:
            continue
        users = [run for run in program.runs if gradient in run.kernel.arrays]
        source = _find_source(users[0].kernel, gradient, given) if len(users) == 1 else None
        if source is None or _is_changed_from(program, users[0], source):
            continue
        if _is_alike(program.arrays, (array, given[source]), options.extent):
            program = _hand_on(program, users[0], gradient, source)
            program = replace(program, gradients={**program.gradients, array: source})
    return program


def _find_source(kernel: nodes.Kernel, gradient: str, given: Collection[str]) -> str | None:
    """Return the output's adjoint that a kernel copies to `gradient`, index by index; None if it does not."""
    known = single_definitions(definitions(kernel.body))
    sources = set[str]()
    for one in walk.stores(kernel.body):
        if one.array == gradient:
            value = known.get(one.value.name) if isinstance(one.value, nodes.Local) else one.value
            if not isinstance(value, nodes.Load) or (value.index, value.entry) != (one.index, one.entry):
                return None
            sources.add(value.array)
    return sources.pop() if len(sources) == 1 and sources <= {*given} else None


def _is_changed_from(program: Program, user: Run, adjoint: str) -> bool:
    """Return True if a launch, or one after it, changes an adjoint, as the reverse of an update in place clears it.

    Of an output without a cotangent the adjoint is memory of this pass, which any launch may change.
    """
    runs = [*program.runs]
    start = next(place for place, run in enumerate(runs) if run is user)
    return any(adjoint in walk.find_changed(run.kernel.body) for run in runs[start:])


def _is_alike(arrays: Mapping[str, nodes.Array], pair: tuple[str, str], extent: Extent) -> bool:
    """Return True if two arrays have the same type and sizes."""
    one, other = (arrays[name] for name in pair)
    return (one.type, one.rank, one.element) == (other.type, other.rank, other.element) and all(
        extent(pair[0], axis) == extent(pair[1], axis) for axis in range(one.rank)
    )


def _hand_on(program: Program, user: Run, gradient: str, source: str) -> Program:
    """Return the program without the stores to an adjoint, and without a launch that does nothing else."""

    def rename_size(one: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
        # The array is no longer an argument, so its sizes are asked of the other one.
        is_own = isinstance(one, nodes.Size) and one.array == gradient
        return replace(one, array=source) if is_own else one

    kernel = user.kernel
    body = walk.rewrite(
        walk.change_parts(kernel.body, rename_size),
        lambda one: [] if isinstance(one, nodes.Store) and one.array == gradient else [one],
    )
    # With a store may go the statement that declared a local, which others still use.
    body = declare_locals(eliminate_dead_code(body), kernel.locals)
    arrays = {name: array for name, array in kernel.arrays.items() if name != gradient}
    changed = replace(user, kernel=replace(kernel, body=body, arrays=arrays))
    left = [changed] if any(True for _ in walk.stores(body)) else []
    actions = (part for one in program.actions for part in (left if one is user else [one]))
    return replace(program, actions=tuple(actions))
