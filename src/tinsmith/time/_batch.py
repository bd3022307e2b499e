"""A batch of scans as one scan, whose step is that of all samples: the rule of `torch.func.vmap`."""

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
    """A step of a batch, by torch's vmap: one launch if the step is an op."""

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
    """A batch of scans.

    A tensor has a batch dim if it was passed with one, if it is of the state, or if each sample has a gradient of its
    own for it.
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
        """The job of the batch, which keeps its own states."""
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

    def into(self, tensors: Sequence[Tensor], dims: Dims) -> list[Tensor]:
        """The arguments of the batch."""
        return [
            self._with_batch(one, dim, at) if is_batched else one
            for one, dim, at, is_batched in zip(tensors, dims, self._at, self._batched, strict=True)
        ]

    def _with_batch(self, tensor: Tensor, dim: int | None, at: int) -> Tensor:
        if dim is not None:
            return tensor.movedim(dim, at).contiguous()
        shape = list(tensor.shape)
        return tensor.unsqueeze(at).expand(*shape[:at], self._size, *shape[at:]).contiguous()

    def cotangents(self, tensors: Sequence[Tensor], dims: Dims, given: Sequence[bool]) -> list[Tensor]:
        """The cotangents of the batch, of those results that have one."""
        places = [at for at, is_given in zip(self.results, given, strict=True) if is_given]
        return [self._with_batch(one, dim, at) for one, dim, at in zip(tensors, dims, places, strict=True)]

    @property
    def results(self) -> tuple[int, ...]:
        """Where the batch is in each result: behind time, where that is a dim of it."""
        job = self.job
        return (*((0 if job.every is None else 1,) * len(job.state)), *((1,) * len(job.outputs)))

    @property
    def gradients(self) -> tuple[int, ...]:
        """Where it is in the gradient of each argument."""
        return tuple(self._at)


def batch_of(job: Job, size: int, randomness: str, dims: Dims) -> Batch:
    """The batch of a job whose arguments have it in these dims. It is the same for the backward pass, which finds in it
    the states that the forward pass kept.
    """
    key = size, randomness, dims
    if key not in job.batches:
        job.batches[key] = Batch(job, size, randomness, dims)
    return job.batches[key]
