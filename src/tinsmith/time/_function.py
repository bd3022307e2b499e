"""A scan as one autograd Function, and its gradient as another.

Both run without a graph. The gradient of the gradient, which is rarely needed, differentiates a plain loop over the
steps, for which autograd keeps all intermediate values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._errors import GradientError, refusal
from ..tracing import has_legacy_batch, is_transformed, unwrap_legacy_vmap, wrap_legacy_vmap
from ._batch import get_batch
from ._environment import restore_surroundings
from ._job import Arguments, Job, insert_missing, is_differentiable
from ._launch_reversal import Launched
from ._launches import prepare_launches
from ._recorder import pull_back
from ._replay import Replay


class Scan(torch.autograd.Function):
    """The autograd Function of a scan. Its results are the states, then the outputs."""

    @staticmethod
    def forward(job: Job, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(make_runner(job, tensors, job.needs_gradient).forward())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.job, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[one for one in output if not is_differentiable(one)])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        job, *tensors = arguments
        batch = get_batch(job, info.batch_size, info.randomness, in_dims[1:])
        return Scan.apply(batch.job, *batch.convert_arguments(tensors, in_dims[1:])), batch.results

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        tensors = ctx.saved_tensors
        wanted = tuple(ctx.needs_input_grad[1:])
        if all(one is None for one in cotangents):
            return (None,) * (1 + len(tensors))
        if has_legacy_batch(cotangents):
            return (None, *_differentiate_samples(ctx.job, wanted, tensors, cotangents))
        return (None, *compute_gradients(ctx.job, wanted, tensors, cotangents))


class ScanBackward(torch.autograd.Function):
    """The autograd Function of a scan's backward pass: from arguments and given cotangents to the wanted gradients."""

    @staticmethod
    def forward(job: Job, wanted: tuple[bool, ...], given: tuple[bool, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(wanted)
        cotangents = insert_missing(tensors[count:], given)
        made = make_runner(job, tensors[:count], wanted).backward(cotangents, wanted)
        pairs = zip(made, tensors, wanted, strict=False)
        return tuple(replace_missing(one, like, tensors) for one, like, wants in pairs if wants)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # torch's
        ctx.job, ctx.needs_gradient, ctx.given, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        job, wanted, given, *tensors = arguments
        dims, count = in_dims[3:], len(wanted)
        batch = get_batch(job, info.batch_size, info.randomness, dims[:count])
        if batch.job.begin is None:  # only the cotangents are a batch
            batch.job.begin = job.begin
        own = batch.convert_arguments(tensors[:count], dims[:count])
        cotangents = batch.convert_cotangents(tensors[count:], dims[count:], given)
        made = ScanBackward.apply(batch.job, wanted, given, *own, *cotangents)
        return made, tuple([at for at, wants in zip(batch.gradients, wanted, strict=True) if wants])

    @staticmethod
    def backward(ctx: Any, *directions: Tensor | None) -> Any:
        job, wanted, given = ctx.job, ctx.needs_gradient, ctx.given
        tensors = ctx.saved_tensors
        count = len(wanted)
        if job.arguments(tensors[:count]).captured and torch.is_grad_enabled():
            words = f"a scan over `{job.step.name}` has no third derivative, for its step uses a captured tensor"
            raise GradientError(refusal(words, remedy="Pass it in `parameters`."))
        needs = ctx.needs_input_grad[3:]
        if is_transformed():
            grads = _differentiate_twice(job, wanted, given, tensors, needs, directions)
            return (None, None, None, *insert_missing(grads, needs))
        with job.random.preserve_states(), restore_surroundings(job.surroundings), torch.enable_grad():
            if job.begin is not None:
                job.random.restore(job.begin)
            # Arguments may depend on each other outside of the scan, which this gradient must ignore.
            alias = _alias if torch.is_grad_enabled() and not job.arguments(tensors[:count]).captured else _detach
            own = [alias(one) if place < sum(job.sizes) or place >= count else one for place, one in enumerate(tensors)]
            results = run_loop(job, own[:count])
            cotangents = iter(own[count:])
            ends = [(y, next(cotangents)) for y, is_given in zip(results, given, strict=True) if is_given]
            leaves = [one for one, wants in zip(own, wanted, strict=False) if wants]
            first = pull_back(ends, leaves, create_graph=True)
            seconds = [(g, d) for g, d in zip(first, directions, strict=True) if g is not None and d is not None]
        asked = [one for one, needed in zip(own, needs, strict=True) if needed]
        grads = pull_back(seconds, asked, create_graph=torch.is_grad_enabled())
        return (None, None, None, *insert_missing(grads, needs))


def _differentiate_twice(
    job: Job,
    wanted: Sequence[bool],
    given: Sequence[bool],
    tensors: Sequence[Tensor],
    needs: Sequence[bool],
    directions: Sequence[Tensor | None],
) -> Sequence[Tensor]:
    """Compute the gradient of a scan's gradient under transforms of torch.func, by nested `vjp`.

    A tensor that was differentiated once need not be a leaf at the level where it is differentiated again.

    Args:
        job: the scan.
        wanted: which arguments have a first gradient.
        given: which results have a cotangent.
        tensors: the arguments of the scan and the cotangents.
        needs: which of `tensors` need a second gradient.
        directions: the cotangents of the first gradients.
    """
    count = len(wanted)

    def first(*asked: Tensor) -> tuple[Tensor, ...]:
        own = _replace(tensors, needs, asked)

        def results(*leaves: Tensor) -> tuple[Tensor, ...]:
            made = run_loop(job, _replace(own[:count], wanted, leaves))
            return tuple([one for one, is_given in zip(made, given, strict=True) if is_given])

        leaves = [one for one, wants in zip(own, wanted, strict=False) if wants]
        return torch.func.vjp(results, *leaves)[1](tuple(own[count:]))

    with job.random.preserve_states(), restore_surroundings(job.surroundings):
        if job.begin is not None:
            job.random.restore(job.begin)
        asked = [one for one, needed in zip(tensors, needs, strict=True) if needed]
        made, pull = torch.func.vjp(first, *asked)[:2]
        return pull(tuple([torch.zeros_like(y) if d is None else d for y, d in zip(made, directions, strict=True)]))


def _replace(tensors: Sequence[Tensor], places: Sequence[bool], others: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors with those at the marked places replaced by `others`, in order."""
    remaining = iter(others)
    return [next(remaining) if is_place else one for one, is_place in zip(tensors, places, strict=True)]


def compute_gradients(
    job: Job, wanted: tuple[bool, ...], tensors: Sequence[Tensor], cotangents: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Compute the gradients of all arguments of a scan by `ScanBackward`; None for those that are not wanted."""
    given = tuple(one is not None for one in cotangents)
    there = [one for one in cotangents if one is not None]
    grads: Any = ScanBackward.apply(job, wanted, given, *tensors, *there)
    return insert_missing(grads, wanted)


def make_runner(job: Job, tensors: Sequence[Tensor], wanted: Sequence[bool]) -> Replay | Launched:
    """Return the object that runs the steps of a job: prepared launches if possible, else torch step by step.

    `wanted` tells which arguments need a gradient.
    """
    launches = prepare_launches(job, tensors, wanted)
    return Replay(job, tensors) if launches is None else Launched(job, launches, tensors)


def run_loop(job: Job, tensors: Sequence[Any]) -> list[Tensor]:
    """Compute the results of a scan by a plain Python loop, which autograd and transforms trace step by step."""
    given: Arguments = job.arguments(tensors)
    state = list(given.state)
    if job.changes_state:
        state = [one.clone() for one in state]
    rows = list(zip(*(one.unbind(0) for one in given.inputs), strict=True)) or [()] * job.length
    states: list[Sequence[Tensor]] = []
    outputs: list[Sequence[Tensor]] = []
    for number in range(job.length):
        state, made = job.run(number, state, rows[number], given.parameters)
        outputs.append(made)
        if job.row(number + 1) is not None:
            states.append([one.clone() for one in state] if job.changes_state else state)
    last = [torch.stack(column) for column in zip(*states, strict=True)] if job.every is not None else state
    return [*last, *(torch.stack(column) for column in zip(*outputs, strict=True))]


def replace_missing(gradient: Tensor | None, like: Tensor, given: Sequence[Tensor]) -> Tensor:
    """Return a gradient; zeros if there is none; a copy if it is one of the arguments `given`.

    autograd does not allow a Function to return one of its arguments.
    """
    if gradient is None:
        return torch.zeros_like(like)
    return gradient.clone() if any(gradient is one for one in given) else gradient


def _alias(tensor: Tensor) -> Tensor:
    return tensor.view_as(tensor)


def _detach(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _differentiate_samples(
    job: Job, wanted: tuple[bool, ...], tensors: Sequence[Tensor], cotangents: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Compute gradients for batched cotangents of torch's legacy vmap (`is_grads_batched=True`), sample by sample."""
    level, whole, dims = unwrap_legacy_vmap(cotangents)
    size = next(c.shape[0] for c, dim in zip(whole, dims, strict=True) if c is not None and dim is not None)
    per_sample = []
    for sample in range(size):
        alone = [c if c is None or dim is None else c[sample] for c, dim in zip(whole, dims, strict=True)]
        per_sample.append(compute_gradients(job, wanted, tensors, alone))
    columns = zip(*per_sample, strict=True)
    return [None if column[0] is None else wrap_legacy_vmap(torch.stack(column), level) for column in columns]
