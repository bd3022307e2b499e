"""The check of a scan's results for numbers that are not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from .._errors import DEBUGGING, CheckError, refusal
from .._offers import describing_origin

if TYPE_CHECKING:
    from ._job import Job


def check_finite(
    job: Job,
    number: int,
    state: Sequence[Tensor],
    inputs: Sequence[Tensor],
    parameters: Sequence[Tensor],
    following: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> None:
    """Raise CheckError if the results of step `number`, `following` and `outputs`, have infinities or NaN.

    The message names the operation that produced the first one.
    """
    pairs = (*zip(job.state, following, strict=True), *zip(job.outputs, outputs, strict=True))
    for like, one in pairs:
        if one.dtype.is_floating_point and not bool(one.isfinite().all()):
            with job.random.preserve_states():
                rows = describing_origin(job.step, state, inputs, parameters)
            raise CheckError(_explain_origin(job, number, like.name, one, (*state, *inputs), rows))


def _explain_origin(
    job: Job, number: int, name: str, tensor: Tensor, before: Sequence[Tensor], rows: list[tuple[str, str]]
) -> str:
    odd = ~tensor.isfinite()
    place = tuple(odd.nonzero()[0].tolist())
    was_finite = all(bool(one.isfinite().all()) for one in before if one.dtype.is_floating_point)
    words = f"step {number} of a scan over `{job.step.name}` made numbers that are not finite"
    rows = [
        ("first", f"{name}{list(place) if place else ''} = {tensor[place].item()}"),
        ("in all", f"{int(odd.sum())} of {odd.numel()}"),
        ("before", "state and inputs were finite" if was_finite else "state or inputs were not finite either"),
        *rows,
    ]
    remedy = f"Scan {number} steps, `length={number}`, for the state before it. To stop at the line: {DEBUGGING}."
    return refusal(words, rows, remedy)
