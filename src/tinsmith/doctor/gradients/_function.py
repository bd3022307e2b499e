"""Functions: an op or its interpreted kernels as a function of named tensors, which returns its floating outputs by
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import torch

from ...engines import Recorder, Watch
from ...ir import NotCovered, nodes, types, walk
from ...operation.examination import Examination
from .._budget import Budget

Tensors: TypeAlias = dict[str, torch.Tensor]
Function: TypeAlias = Callable[[Mapping[str, torch.Tensor]], Tensors]


def convert_to_double(call: Examination) -> Examination | None:
    """Convert a call to float64; return None if it computes with narrower floats anyway."""
    wide = call.to_double()
    return wide if wide is not None and _is_double(wide) else None


def _is_double(call: Examination) -> bool:
    """Return True if a call rounds nothing to less than float64."""
    try:
        if any(dtype.is_floating_point and dtype != torch.float64 for dtype in call.allocated_dtypes.values()):
            return False
        return all(_works_in_double(lowered.kernel) for lowered in call.kernels)
    except NotCovered:
        return call.default_float == "f64"


def _works_in_double(kernel: nodes.Kernel) -> bool:
    held = [*kernel.locals.values(), *(kernel.arrays[one.array].type for one in walk.stores(kernel.body))]
    exprs = (
        part for stmt in walk.statements(kernel.body) for one in walk.expressions(stmt) for part in walk.parts(one)
    )
    made = [one.type for one in exprs if isinstance(one, nodes.Unary | nodes.Binary | nodes.Select | nodes.Cast)]
    return not any(types.is_float(kind) and kind != "f64" for kind in [*held, *made])


def make_op_function(call: Examination) -> Function:
    """Return the op or the layer of a call as a function. If it draws random numbers, each call draws the same ones."""

    def run(values: Mapping[str, torch.Tensor]) -> Tensors:
        with draw_same_numbers() if call.draws else nullcontext():
            outputs = call.compute(values)
        return {name: one for name, one in outputs.items() if one.is_floating_point()}

    return run


@contextmanager
def draw_same_numbers() -> Iterator[None]:
    """Enter a context in which an op draws the same random numbers as the function from `make_op_function`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


class Dangerous(Exception):
    """Raised when an interpreted run uses an index out of bounds, or divides an integer by zero."""


def make_interpreted_function(call: Examination, budget: Budget | None = None, *, is_strict: bool = False) -> Function:
    """Return a call's kernels, interpreted in float64, as a function. It raises TooLong beyond the budget and, if
    strict, Dangerous.
    """
    counter = None if budget is None else (_Strict if is_strict else _Counter)(budget)

    def observer(*_: Any) -> tuple[Recorder | None, Watch | None]:
        return None, counter

    def run(values: Mapping[str, torch.Tensor]) -> Tensors:
        outputs = call.run(dict(values), seeded=call.draws, observer=None if counter is None else observer)
        return {name: one for name, one in outputs.items() if one.is_floating_point()}

    return run


class _Counter(Watch):
    """Counts operations against a budget. Errors of the run are ignored here; the sanitizer reports them."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def on_statement(self, operations: int, line: int) -> None:
        """Subtract a statement's operations from the budget."""
        self._budget.count(operations)


class _Strict(_Counter):
    """Counts operations, and stops a run that would be dangerous as a launch."""

    def on_index_out_of_range(self, array: str, index: tuple[int, ...], line: int, *, is_read: bool) -> None:
        """Stop the run."""
        raise Dangerous

    def on_division_by_zero(self, operator: str, left: int, line: int) -> None:
        """Stop the run."""
        raise Dangerous


def find_greatest(tensor: torch.Tensor) -> float:
    """Return the greatest magnitude of the finite numbers of a tensor; 0 if it has none."""
    finite = tensor[tensor.isfinite()].abs()
    return finite.max().item() if finite.numel() else 0.0


def draw_normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw normal float64 numbers on the CPU, for each element of a tensor; return them on the tensor's device."""
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.device)


def random_cotangents(outputs: Mapping[str, torch.Tensor]) -> Tensors:
    """Draw normally distributed cotangents for outputs: the same ones for the same shapes."""
    generator = torch.Generator().manual_seed(0)
    return {name: draw_normal(one, generator) for name, one in outputs.items()}


def pull_back(
    function: Function, values: Mapping[str, torch.Tensor], cotangents: Mapping[str, torch.Tensor]
) -> Tensors:
    """Compute the gradient of a function by autograd, in float64, given the cotangents of its outputs."""
    leaves = {name: one.detach().clone().requires_grad_() for name, one in values.items()}
    with torch.enable_grad():
        outputs = function(leaves)
        ends = [name for name in cotangents if outputs[name].requires_grad]
        if not ends:
            return {name: torch.zeros_like(one, dtype=torch.float64) for name, one in leaves.items()}
        seeds = [cotangents[name].to(outputs[name]) for name in ends]
        wanted = list(leaves.values())
        roots = [outputs[name] for name in ends]
        gradients = torch.autograd.grad(roots, wanted, seeds, allow_unused=True, materialize_grads=True)
    return {name: one.detach().double() for name, one in zip(leaves, gradients, strict=True)}
