"""The interpreter for tests: gradients of a kernel, a record of its accesses, and ops run in any mode of autograd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from tinsmith.codegen import build_exact_kernel
from tinsmith.engines import How, Number, Recorder
from tinsmith.ir import nodes, types
from tinsmith.operation.examination._oracle import bind_call, interpret_call


def interpret(
    kernel: nodes.Kernel,
    arrays: Mapping[str, torch.Tensor],
    arguments: Mapping[str, Any],
    *,
    faithful: bool = False,
    **options: Any,
) -> dict[str, torch.Tensor]:
    """Run a kernel once. The arrays after it are connected with those before, for torch's autograd in either mode."""
    return build_exact_kernel(kernel, is_faithful=faithful)(arrays, arguments, **options)


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind.

    Attributes:
        arrays: all arrays as they are afterwards, by name; float64 where they are floating.
        gradients: by name, of floating arrays as they were before, and floating arguments; none without cotangents.
    """

    arrays: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor]


def run_with_gradients(
    kernel: nodes.Kernel,
    arrays: Mapping[str, torch.Tensor],
    arguments: Mapping[str, Any],
    cotangents: Mapping[str, torch.Tensor] | None = None,
    *,
    faithful: bool = False,
    seed: int = 0,
    record: Recorder | None = None,
) -> Outcome:
    """Run a kernel, and pull cotangents of its arrays back to what they were before. Arguments are as of `interpret`.

    `cotangents` are those of arrays as they are afterwards, by name; an array without one has none.
    """
    options = {"faithful": faithful, "seed": seed, "record": record}
    if cotangents is None:
        with torch.no_grad():
            return Outcome(interpret(kernel, arrays, arguments, **options), {})
    floating_arrays = {
        name for name, array in kernel.arrays.items() if types.is_float(array.type) and name not in kernel.cells
    }
    floating_arguments = {name for name, (kind, _) in kernel.arguments.items() if types.is_float(kind)}
    arrays = {name: _leaf(one) if name in floating_arrays else one for name, one in arrays.items()}
    arguments = {name: _leaf(one) if name in floating_arguments else one for name, one in arguments.items()}
    with torch.enable_grad():
        after = interpret(kernel, arrays, arguments, **options)
    leaves = {
        name: leaf for name, leaf in {**arrays, **arguments}.items() if name in floating_arrays | floating_arguments
    }
    gradients = _pull_back(after, cotangents, leaves)
    return Outcome({name: one.detach() for name, one in after.items()}, gradients)


def _leaf(given: Any) -> torch.Tensor:
    tensor = (
        given.detach().to("cpu", torch.float64)
        if isinstance(given, torch.Tensor)
        else torch.tensor(given, dtype=torch.float64)
    )
    return tensor.clone().requires_grad_()


def _pull_back(
    after: Mapping[str, torch.Tensor], cotangents: Mapping[str, torch.Tensor], leaves: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    reached = [name for name in cotangents if after[name].requires_grad]
    outputs = [after[name] for name in reached]
    seeds = [cotangents[name].to("cpu", after[name].dtype) for name in reached]
    if not outputs or not leaves:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    gradients = torch.autograd.grad(outputs, list(leaves.values()), seeds, allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True))


class Access(NamedTuple):
    """One access.

    Attributes:
        how: "read", "write", or "atomic": both at once.
        array: its name in the kernel.
        position: of the number in the array, counted in memory order, an element's entries last.
        line: of the statement, as the kernel counts them.
        task: which statement of the kernel's top level it was, counted from 0.
        iteration: values of that loop's names; () in a statement that is not a loop.
    """

    how: How
    array: str
    position: int
    line: int
    task: int
    iteration: tuple[int, ...]


@dataclass
class Record:
    """All accesses of one run, in the order in which they happened."""

    accesses: list[Access] = field(default_factory=list)
    task: int = 0
    iteration: tuple[int, ...] = ()

    def enter(self, task: int, iteration: tuple[int, ...] = ()) -> None:
        """Begin an iteration: the accesses that follow belong to it."""
        self.task, self.iteration = task, iteration

    def add(
        self, how: How, array: str, position: int, line: int, operator: str = "", value: Number | None = None
    ) -> None:
        """Note an access of the present iteration; what was written is not kept."""
        self.accesses.append(Access(how, array, position, line, self.task, self.iteration))


def interpret_op(op: Any, *inputs: Any, faithful: bool = False, **sizes: int) -> tuple[torch.Tensor, ...]:
    """Return outputs of a call, as `ts.oracle` computes them before it differentiates."""
    bound, route = bind_call(op, inputs, sizes)
    return tuple(interpret_call(bound, route, {}, faithful=faithful).values())
