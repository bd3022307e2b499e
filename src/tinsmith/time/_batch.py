"""The rule of `torch.func.vmap` for scans: a batch of scans is one scan whose step computes all samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ._job import Job, Like
from ._steps import Step

Dims = tuple[int | None, ...]


class BatchedStep(Step):
    """A step of all samples of a batch, by torch's vmap. It is one launch if the step is an op."""

    def __init__(self, step: Step, batched: Sequence[bool], randomness: str) -> None:
        self.name = step.name
        self.outputs = step.outputs
        self.batched = tuple(batched)
        self._step, self._randomness = step, randomness

    def __call__(
        self, state: Sequence[Any], inputs: Sequence[Any], parameters: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        ends = len(state), len(state) + len(inputs)

        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            following, outputs = self._step(tensors[: ends[0]], tensors[ends[0] : ends[1]], tensors[ends[1] :])
            return (*following, *outputs)

        dims = tuple([0 if one else None for one in self.batched])
        made = torch.func.vmap(run, dims, randomness=self._randomness)(*state, *inputs, *parameters)
        return list(made[: ends[0]]), list(made[ends[0] :])


class Batch:
    """A batch of scans as one job, and the conversion of tensors to its batch dims.

    A tensor of the job has a batch dim if it was passed with one, if it belongs to the state, or if it needs a
    gradient, which then differs between samples.
    """

    def __init__(self, job: Job, size: int, randomness: str, dims: Dims) -> None:
        self._size = size
        own = job.needs_gradient or (False,) * len(dims)
        states = job.sizes[0]
        self._batched = [
            dim is not None or place < states or wants for place, (dim, wants) in enumerate(zip(dims, own, strict=True))
        ]
        self._dims = dims
        # The first dim of inputs is time, so a batch is their second.
        self._at = [1 if states <= place < states + job.sizes[1] else 0 for place in range(len(dims))]
        self.job = self._make(job, randomness)

    def _make(self, job: Job, randomness: str) -> Job:
        """Build the job of the batch, which keeps its own states."""
        state = [Like(one.name, torch.Size((self._size, *one.shape)), one.dtype) for one in job.state]
        outputs = [Like(one.name, torch.Size((self._size, *one.shape)), one.dtype) for one in job.outputs]
        return replace(
            job,
            step=BatchedStep(job.step, self._batched, randomness),
            schedule=job.plan(state) if job.needs_gradient else job.schedule,
            state=state,
            outputs=outputs,
            keeps_graphs=False,
            begin=None,
            checkpoints=None,
            batches={},
        )

    def convert_arguments(self, tensors: Sequence[Tensor], dims: Dims) -> list[Tensor]:
        """Convert the arguments of a mapped call, with these batch dims, to those of the batch's job."""
        return [
            self._add_batch_dim(one, dim, at) if is_batched else one
            for one, dim, at, is_batched in zip(tensors, dims, self._at, self._batched, strict=True)
        ]

    def _add_batch_dim(self, tensor: Tensor, dim: int | None, at: int) -> Tensor:
        if dim is not None:
            return tensor.movedim(dim, at).contiguous()
        shape = list(tensor.shape)
        return tensor.unsqueeze(at).expand(*shape[:at], self._size, *shape[at:]).contiguous()

    def convert_cotangents(self, tensors: Sequence[Tensor], dims: Dims, given: Sequence[bool]) -> list[Tensor]:
        """Convert cotangents with these batch dims to those of the batch's job.

        `given` tells which results have one; `tensors` and `dims` have only these.
        """
        places = [at for at, is_given in zip(self.results, given, strict=True) if is_given]
        return [self._add_batch_dim(one, dim, at) for one, dim, at in zip(tensors, dims, places, strict=True)]

    @property
    def results(self) -> tuple[int, ...]:
        """The batch dim of each result: 1 if the first dim is time, else 0."""
        job = self.job
        return (*((0 if job.every is None else 1,) * len(job.state)), *((1,) * len(job.outputs)))

    @property
    def gradients(self) -> tuple[int, ...]:
        """The batch dim of the gradient of each argument."""
        return tuple(self._at)


def get_batch(job: Job, size: int, randomness: str, dims: Dims) -> Batch:
    """Return the batch of a job whose arguments have these batch dims. Make it in the first call.

    The backward pass gets the same batch, with the states that the forward pass kept.
    """
    key = size, randomness, dims
    if key not in job.batches:
        job.batches[key] = Batch(job, size, randomness, dims)
    return job.batches[key]
