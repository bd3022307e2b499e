"""Run a kernel of the IR, number by number: slow, and right.

Floats are torch's 0-d tensors in float64, whatever their type in the kernel, so derivatives are those of
torch's autograd, exact to rounding. Nothing of the passes that make gradient kernels is used
here: this is what they are held against.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch

from ..._errors import ArgumentError, DtypeError, ShapeError, refusal
from ..ir import nodes, types
from ._accesses import Recorder
from ._casts import Number, Precision, wrapping
from ._expressions import Expressions
from ._memory import Memory, remember
from ._statements import Statements
from ._watch import Watch

Argument: TypeAlias = "bool | int | float | torch.Tensor"


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind.

    Attributes:
        arrays: all arrays as they are afterwards, by name; float64 where they are floating.
        gradients: by name, of floating arrays as they were before, and floating arguments; none without cotangents.
    """

    arrays: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor]


def run(
    kernel: nodes.Kernel,
    arrays: Mapping[str, torch.Tensor],
    arguments: Mapping[str, Argument],
    cotangents: Mapping[str, torch.Tensor] | None = None,
    *,
    faithful: bool = False,
    seed: int = 0,
    record: Recorder | None = None,
) -> Outcome:
    """Run a kernel, and pull cotangents of its arrays back to what they were before.

    Args:
        kernel: what to run.
        arrays: by name, (index dims, element dims). Not changed.
        arguments: by name, numbers; for a vector or matrix argument, a tensor.
        cotangents: by name, of arrays as they are afterwards; an array without one has none.
        faithful: round every float to its type in the kernel, as the compiled kernel does; so are the outcome's.
        seed: of random numbers. They cannot agree with an engine's.
        record: is notified of every access to an element.

    Raises:
        ArgumentError: an array or argument is missing.
        DtypeError: an array is floating and was to be whole, or the other way round.
        ShapeError: an array has another number of dims than the kernel knows, or other elements.
        KernelError: an index outside an array, an integer divided by zero.

    Example:
        >>> x = nodes.Load("x", (), (), "f32")
        >>> arrays = {"x": nodes.Array("x", "f32", 0), "y": nodes.Array("y", "f32", 0)}
        >>> body = (nodes.Store("y", (), (), nodes.Binary("*", x, x, "f32")),)
        >>> square = nodes.Kernel("square", "", arrays, {}, {}, body)
        >>> run(square, {"x": torch.tensor(3.0), "y": torch.tensor(0.0)}, {}, {"y": torch.tensor(1.0)}).gradients["x"]
        tensor(6., dtype=torch.float64)
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


def interpret(
    kernel: nodes.Kernel,
    arrays: Mapping[str, torch.Tensor],
    arguments: Mapping[str, Argument],
    *,
    faithful: bool = False,
    seed: int = 0,
    record: Recorder | None = None,
    watch: Watch | None = None,
) -> dict[str, torch.Tensor]:
    """The arrays after a run, connected with those before and with arguments, for torch's autograd in either mode.

    Args as of `run`; with a `watch`, which is notified, the run goes on after a wrong index and a division by zero.
    """
    precision = Precision(faithful)
    given = {name: array for name, array in kernel.arrays.items() if name not in kernel.cells}
    memories = {name: remember(array, _fitting(kernel, array, arrays), precision) for name, array in given.items()}
    memories |= {name: _cell(kernel.arrays[name], precision) for name in kernel.cells}
    expressions = Expressions(memories, _entries(kernel, arguments, precision), precision, record, watch)
    statements = Statements(expressions, kernel.locals, random.Random(seed))
    steps = [statements.task(number, stmt) for number, stmt in enumerate(kernel.body)]
    held: dict[str, object] = {}
    if watch is not None:
        watch.on_begin(held)
    was_parallel = False
    for stmt, step in zip(kernel.body, steps, strict=True):
        is_parallel = isinstance(stmt, nodes.For) and stmt.is_parallel
        if is_parallel or was_parallel:
            for memory in memories.values():
                memory.tied.clear()  # what stood there before a loop counts as one candidate, as it does for torch
        was_parallel = is_parallel
        step(held)
    return {name: memories[name].back() for name in given}


def _cell(array: nodes.Array, precision: Precision) -> Memory:
    """Memory of the kernel's own."""
    return remember(
        array, torch.zeros((), dtype=torch.float64 if types.is_float(array.type) else torch.int64), precision
    )


def _leaf(given: Argument) -> torch.Tensor:
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


def _fitting(kernel: nodes.Kernel, array: nodes.Array, arrays: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The tensor of an array, checked."""
    if array.name not in arrays:
        raise ArgumentError(
            refusal(f"`{kernel.name}` is run without its array `{array.name}`.", [("given", ", ".join(arrays))])
        )
    tensor = arrays[array.name]
    if tensor.is_floating_point() != types.is_float(array.type):
        rows = [("expected", array.type), ("got", str(tensor.dtype))]
        raise DtypeError(refusal(f"`{array.name}` does not fit the kernel `{kernel.name}`.", rows))
    if tensor.ndim == array.rank + len(array.element) and tuple(tensor.shape[array.rank :]) == array.element:
        return tensor
    wanted = ", ".join(["_"] * array.rank + [str(size) for size in array.element])
    rows = [("expected", f"[{wanted}]"), ("got", str(list(tensor.shape)))]
    raise ShapeError(refusal(f"`{array.name}` does not fit the kernel `{kernel.name}`.", rows))


def _entries(
    kernel: nodes.Kernel, arguments: Mapping[str, Argument], precision: Precision
) -> dict[tuple[str, tuple[int, ...]], Number]:
    """Every number of every argument, by name and entry."""
    entries: dict[tuple[str, tuple[int, ...]], Number] = {}
    for name, (kind, dims) in kernel.arguments.items():
        if name not in arguments:
            raise ArgumentError(
                refusal(f"`{kernel.name}` is run without its argument `{name}`.", [("given", ", ".join(arguments))])
            )
        given = _tensor(arguments[name], kind)
        for entry in itertools.product(*map(range, dims)):
            entries[name, entry] = _number(given[entry], kind, precision)
    return entries


def _tensor(given: Argument, kind: str) -> torch.Tensor:
    if isinstance(given, torch.Tensor):
        return given.to("cpu")
    return torch.as_tensor(given, dtype=torch.float64 if types.is_float(kind) else None)


def _number(given: torch.Tensor, kind: str, precision: Precision) -> Number:
    if types.is_float(kind):
        return given.to(precision.dtype(kind))
    return wrapping(kind)(int(given.item()))
