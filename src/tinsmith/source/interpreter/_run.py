"""Run a kernel of the IR, number by number: slow, and right.

Floats are torch's 0-d tensors in float64, whatever their type in the kernel, so derivatives are those of
torch's autograd, exact to rounding. Nothing of the passes that make gradient kernels is used
here: this is what they are held against.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import TypeAlias

import torch

from ..._errors import ArgumentError, DtypeError, ShapeError, refusal
from ..ir import nodes, types
from ._casts import Number, Precision, wrapping
from ._expressions import Expressions
from ._memory import Memory, remember
from ._statements import Statements
from ._watch import Recorder, Watch

Argument: TypeAlias = "bool | int | float | torch.Tensor"


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

    Args:
        kernel: what to run.
        arrays: by name, (index dims, element dims). Not changed.
        arguments: by name, numbers; for a vector or matrix argument, a tensor.
        faithful: round every float to its type in the kernel, as the compiled kernel does; so are the results.
        seed: of random numbers. They cannot agree with an engine's.
        record: is notified of every access to an element.
        watch: is notified; then the run goes on after a wrong index and a division by zero.

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
        >>> interpret(square, {"x": torch.tensor(3.0), "y": torch.tensor(0.0)}, {})["y"]
        tensor(9., dtype=torch.float64)
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
