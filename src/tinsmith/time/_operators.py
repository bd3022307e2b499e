"""A scan over an op as torch operators, for graphs of `torch.compile`.

A graph must not contain thousands of steps, and must not break. So each op has an operator for scans over it, named
after the op's operator, and one for their backward pass. They take the tensors of a scan in one list, and its other
arguments as numbers and names. Each run prepares the scan again, as a call outside of a graph does.

A graph can pass only tensors from the forward to the backward pass: all states, if the schedule keeps all of them.
Otherwise the backward pass runs the steps once more to compute the states that it keeps.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._errors import ArgumentError, GradientError, GraphError, refusal
from ..engines import COMPILING
from ..operation import Op
from ..torch_side import define_operator
from ..tracing import SingleLevelFunction, apply_at_one_level, dispatch_below_autograd
from ._arguments import Options
from ._batch import Batch, Dims, get_batch
from ._function import make_runner, replace_missing
from ._job import Job, Like, insert_missing, is_differentiable
from ._launch_reversal import Launched
from ._launches import Rows
from ._schedule import Schedule

Prepare = Callable[..., Any]
"""A function that checks the arguments of a scan and builds its job: `_scan._prepare`."""

_CALL = (
    "Scalar[] numbers, str[] names, int[] sizes, int length, int? keep, int? checkpoint, int? memory, int unroll, "
    "bool[] wanted, int? batch=None, int[] dims=[]"
)
ALL = 0
"""The operators' number for `checkpoint="all"`."""


class Asked(NamedTuple):
    """The arguments of an operator besides tensors.

    Attributes:
        numbers: the numbers among the parameters.
        names: the op's names for state, inputs, parameters that are tensors, and numbers.
        sizes: the numbers of tensors of state, inputs and parameters.
        length, keep, checkpoint, memory, unroll: as for `scan`; None stands for `"last"` and `"auto"`.
        needs_gradient: for each tensor, whether it needs a gradient; empty if none does.
        batch, dims: the size of a batch, and its dim in each tensor, -1 for tensors without it.
    """

    numbers: Sequence[Any]
    names: Sequence[str]
    sizes: Sequence[int]
    length: int
    keep: int | None
    checkpoint: int | None
    memory: int | None
    unroll: int
    needs_gradient: Sequence[bool]
    batch: int | None = None
    dims: Sequence[int] = ()

    def prepare(self, op: Op[Any], prepare: Prepare, tensors: Sequence[Tensor]) -> Job:
        """Build the job of a call with these tensors, of one sample if the operator's call has a batch."""
        items = [*zip(self.names, [*tensors, *self.numbers], strict=True)]
        begin, end = self.sizes[0], self.sizes[0] + self.sizes[1]
        state, inputs, parameters = dict(items[:begin]), dict(items[begin:end]), dict(items[end:])
        spacings: dict[Any, Any] = {None: "auto", ALL: "all"}
        checkpoint = spacings.get(self.checkpoint, self.checkpoint)
        options = Options("last" if self.keep is None else self.keep, checkpoint, self.memory, self.unroll)
        with torch.no_grad():
            job: Job = prepare(op, state, inputs, self.length, parameters, options).job
        job.needs_gradient = tuple(self.needs_gradient)
        return job

    @property
    def batch_dims(self) -> Dims:
        """The batch dim of each tensor, None for tensors without it."""
        return tuple([None if dim < 0 else dim for dim in self.dims])


def keeps_all(job: Job) -> bool:
    """Return True if a graph passes all states from the forward pass to the backward pass."""
    return bool(job.needs_gradient and job.length) and job.schedule.every == 1


class ScanOperators:
    """The forward and backward operator of scans over ops with equal content."""

    def __init__(self, name: str, prepare: Prepare) -> None:
        self._prepare_scan = prepare
        self._op: weakref.ref[Op[Any]] | None = None
        self._name = name
        forward = (self._forward, self._fake, self._autograd, self._vmap)
        self.forward = define_operator(f"{name}_scan", f"(Tensor[] tensors, {_CALL}) -> Tensor[]", *forward)
        backward = (self._backward, self._backward_fake, self._backward_autograd, self._backward_vmap)
        schema = f"(Tensor[] tensors, Tensor[] kept, Tensor?[] cotangents, {_CALL}) -> Tensor[]"
        self.backward = define_operator(f"{name}_scan_backward", schema, *backward)

    def add(self, op: Op[Any]) -> None:
        """Register an op with this content. The operators run any living one, since all are equivalent."""
        self._op = weakref.ref(op)

    def _prepare(self, tensors: Sequence[Tensor], asked: Asked) -> tuple[Job, Sequence[Tensor]]:
        """Build the job of an operator's call. Return it with its tensors, converted to its batch dims."""
        if asked.batch is None:
            return self._prepare_sample(tensors, asked), tensors
        batch = self._find_batch(tensors, asked.batch, asked)
        return batch.job, batch.convert_arguments(tensors, asked.batch_dims)

    def _find_batch(self, tensors: Sequence[Tensor], size: int, asked: Asked) -> Batch:
        pairs = zip(tensors, asked.batch_dims, strict=True)
        of_sample = [one if dim is None else one.select(dim, 0) for one, dim in pairs]
        return get_batch(self._prepare_sample(of_sample, asked), size, "error", asked.batch_dims)

    def _prepare_sample(self, tensors: Sequence[Tensor], asked: Asked) -> Job:
        op = self._op() if self._op is not None else None
        if op is None:
            words = f"a compiled graph scans over the op of `{self._name}`, which no longer exists"
            raise GraphError(refusal(words, remedy="Keep a reference to the op as long as the compiled graph is used."))
        return asked.prepare(op, self._prepare_scan, tensors)

    # Forward ----------------------------------------------------------------------------------
    def _forward(self, tensors: Sequence[Tensor], *call: Any) -> list[Tensor]:
        job, tensors = self._prepare(tensors, Asked(*call))
        if not keeps_all(job):
            job.keeps_graphs, job.schedule = False, Schedule(job.schedule.length)
            return _run(make_runner(job, tensors, job.needs_gradient).forward)
        whole = replace(job, every=1, keeps_graphs=False, schedule=Schedule(job.schedule.length))
        made = _run(make_runner(whole, tensors, job.needs_gradient).forward)
        states, outputs = made[: job.sizes[0]], made[job.sizes[0] :]
        if job.every == 1:
            return made
        rows = slice(job.every - 1, None, job.every) if job.every is not None else -1
        return [*(one[rows].clone() for one in states), *outputs, *states]

    def describe_results(self, tensors: Sequence[Tensor], asked: Asked) -> tuple[bool, int]:
        """Return whether the results include all states for the backward pass, and the number of other results."""
        job, _ = self._prepare(tensors, asked)
        return keeps_all(job), len(job.state) + len(job.outputs)

    def _fake(self, tensors: Sequence[Tensor], *call: Any) -> list[Tensor]:
        job, tensors = self._prepare(tensors, Asked(*call))
        results = [*(_compute_shape(one, job.every and job.rows) for one in job.state)]
        results += [_compute_shape(one, job.length) for one in job.outputs]
        kept = [_compute_shape(one, job.length) for one in job.state] if keeps_all(job) and job.every != 1 else []
        dtypes = [one.dtype for one in (*job.state, *job.outputs, *(job.state if kept else ()))]
        pairs = zip([*results, *kept], dtypes, strict=True)
        return [tensors[0].new_empty(shape, dtype=dtype) for shape, dtype in pairs]

    def _autograd(self, tensors: Sequence[Tensor], *call: Any) -> list[Tensor]:
        asked = Asked(*call)
        if asked.needs_gradient:  # in a graph, which has the gradient beside it
            with dispatch_below_autograd():
                return self.forward(list(tensors), *call)
        return list(apply_at_one_level(_Scan, self, asked, *tensors))

    def _vmap(self, info: Any, in_dims: Any, tensors: Sequence[Tensor], *call: Any) -> Any:
        asked = self._over_batch(info, in_dims[0], Asked(*call))
        made = self.forward(list(tensors), *asked)
        count, every = asked.sizes[0], asked.keep
        dims = [0 if every is None else 1] * count + [1] * (len(made) - count)
        return made, dims

    def _over_batch(self, info: Any, dims: Sequence[int | None], asked: Asked) -> Asked:
        if asked.batch is not None:
            words = "a scan in a compiled graph is mapped over two batches"
            raise ArgumentError(refusal(words, remedy="Map the scan over both dims outside of torch.compile."))
        return asked._replace(batch=info.batch_size, dims=[-1 if dim is None else dim for dim in dims])

    # Backward ---------------------------------------------------------------------------------
    def _backward(
        self, tensors: Sequence[Tensor], kept: Sequence[Tensor], cotangents: Sequence[Tensor | None], *call: Any
    ) -> list[Tensor]:
        job, tensors = self._prepare(tensors, Asked(*call))
        steps = make_runner(job, tensors, job.needs_gradient)
        job.keeps_graphs = False
        if kept:
            first = job.arguments(tensors).state
            job.checkpoints = GivenStates(first, [one.contiguous() for one in kept], job.unroll, job.random.note())
        made = _run(steps.backward, cotangents, job.needs_gradient)
        return [
            replace_missing(one, like, tensors)
            for one, like, w in zip(made, tensors, job.needs_gradient, strict=True)
            if w
        ]

    def _backward_fake(self, tensors: Sequence[Tensor], kept: Any, cotangents: Any, *call: Any) -> list[Tensor]:
        job, tensors = self._prepare(tensors, Asked(*call))
        return [one.new_empty(one.shape) for one, wants in zip(tensors, job.needs_gradient, strict=True) if wants]

    def _backward_autograd(
        self, tensors: Sequence[Tensor], kept: Sequence[Tensor], cotangents: Sequence[Tensor | None], *call: Any
    ) -> list[Tensor]:
        given = [one is not None for one in cotangents]
        run = functools.partial(self._run_backward, len(tensors), len(kept), given, call)
        there = [one for one in cotangents if one is not None]
        return list(apply_at_one_level(_ScanBackward, self._name, run, *tensors, *kept, *there))

    def _run_backward(
        self, tensors: int, kept: int, given: Sequence[bool], call: Any, *flat: Tensor
    ) -> Sequence[Tensor]:
        cotangents = insert_missing(flat[tensors + kept :], given)
        return self.backward(list(flat[:tensors]), list(flat[tensors : tensors + kept]), cotangents, *call)

    def _backward_vmap(
        self, info: Any, in_dims: Any, tensors: Sequence[Tensor], kept: Sequence[Tensor], cotangents: Any, *call: Any
    ) -> Any:
        asked = self._over_batch(info, in_dims[0], Asked(*call))
        batch = self._find_batch(tensors, info.batch_size, asked)
        are_batched = all(dim is not None for dim in in_dims[1])
        states = [one.movedim(dim, 1) for one, dim in zip(kept, in_dims[1], strict=True)] if are_batched else []
        given = [one is not None for one in cotangents]
        there = [(one, dim) for one, dim in zip(cotangents, in_dims[2], strict=True) if one is not None]
        moved = batch.convert_cotangents([one for one, _ in there], tuple(dim for _, dim in there), given)
        made = self.backward(list(tensors), states, insert_missing(moved, given), *asked)
        return made, [at for at, wants in zip(batch.gradients, asked.needs_gradient, strict=True) if wants]


class GivenStates:
    """All states of a scan, which a graph passes to the backward pass, with the methods of `Record` and of `Slots`."""

    def __init__(self, first: Sequence[Tensor], states: Sequence[Tensor], unroll: int, note: Any) -> None:
        self._first, self._states, self._unroll, self._note = list(first), states, unroll, note
        self._rows = [Rows.find(one) for one in states]

    def addresses(self, piece: int = 0) -> list[int]:
        """Return the addresses of the state after step number `piece`, as `Record.addresses` does, for launches."""
        return [first + piece * stride for first, stride in self._rows]

    def take(self, slot: int) -> tuple[list[Tensor], Any]:
        """Return the state before a stretch of steps, and a note of the random generators, as `Slots.take` does."""
        state = [one[slot * self._unroll - 1] for one in self._states] if slot else self._first
        return state, self._note


def _run(method: Callable[..., list[Any]], *arguments: Any) -> list[Any]:
    """Run the steps of a job by calling a method of its runner.

    Inside an operator torch's dispatcher excludes autograd and transforms, but steps other than prepared launches need
    them. The exclusion is a state of the thread, so such steps run in another thread.
    """
    if isinstance(getattr(method, "__self__", None), Launched):
        return method(*arguments)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(method, *arguments).result()


_KNOWN: dict[str, ScanOperators] = {}
"""The operators of scans by the names of the ops' operators. They are never removed: torch's graphs may call them."""


def define_scan_operators(prepare: Prepare, op: Op[Any]) -> str:
    """Return the name of the operator of scans over an op. Define the operators in the first call."""
    name = op.operator.name().partition("::")[2]
    with COMPILING:
        if name not in _KNOWN:
            _KNOWN[name] = ScanOperators(name, prepare)
        _KNOWN[name].add(op)
    return f"{name}_scan"


class _Scan(SingleLevelFunction):
    """The autograd Function of a scan's operator."""

    @staticmethod
    def forward(ctx: Any, operators: ScanOperators, asked: Asked, *tensors: Tensor) -> tuple[Tensor, ...]:
        needs = tuple(ctx.needs_input_grad[2:])
        asked = asked._replace(needs_gradient=list(needs) if any(needs) else [])
        with dispatch_below_autograd():
            results = operators.forward(list(tensors), *asked)
        ctx.operators, ctx.asked, ctx.count = operators, asked, len(tensors)
        is_kept, count = operators.describe_results(tensors, asked)
        kept = () if not is_kept else results[: asked.sizes[0]] if asked.keep == 1 else results[count:]
        ctx.save_for_backward(*tensors, *kept)
        ctx.mark_non_differentiable(*[one for one in results[:count] if not is_differentiable(one)])
        ctx.set_materialize_grads(False)
        # Without the kept states: the number of results must not depend on whether a gradient is needed.
        return tuple(results[:count])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        asked, count = ctx.asked, ctx.count
        if all(one is None for one in cotangents):
            return (None,) * (2 + count)
        saved = ctx.saved_tensors
        gradients = ctx.operators.backward(list(saved[:count]), list(saved[count:]), list(cotangents), *asked)
        return (None, None, *insert_missing(gradients, asked.needs_gradient))


class _ScanBackward(SingleLevelFunction):
    """The autograd Function of a scan's backward operator, whose own gradient is not available in a graph."""

    @staticmethod
    def forward(ctx: Any, name: str, run: Callable[..., Sequence[Tensor]], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.name = name
        with dispatch_below_autograd():
            return tuple(run(*tensors))

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        words = f"a scan over the op of `{ctx.name}` has no second derivative in a compiled graph"
        raise GradientError(refusal(words, remedy="Call it outside of torch.compile."))


def _compute_shape(one: Like, rows: int | None) -> tuple[int, ...]:
    return tuple(one.shape) if rows is None else (rows, *one.shape)
