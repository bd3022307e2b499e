"""The examination of an op's call, and `examine_call` for any op or layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from ..._errors import ArgumentError, TinsmithError, refusal
from ..._lazy import lazy
from ...calls import BoundArguments, Call, CallKey, lower_stages
from ...calls.backward import AutoAt, HandWritten, SourceAt
from ...calls.derived import find_recorded
from ...engines import Language
from ...frontend.lowering import LoweredKernel
from ...ir import NotCovered
from ...linter import Finding
from ...tracing import is_transformed
from .._op import Op
from ._examination import Examinable, Examination, Origin, Tensors
from ._oracle import Observer, bind_call, interpret_call, make_leaves


@dataclass(frozen=True)
class OpExamination(Examination):
    """One call of an op. `bound` holds its arguments by kind, and `call` the checked call.

    `kind` is "layer" if a layer runs as this op.
    """

    op: Op
    bound: BoundArguments
    call: Call
    kind: Literal["op", "layer"] = "op"

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def module_name(self) -> str:
        return self.call.core.signature.stages[0].module_name

    @property
    def kernels(self) -> list[LoweredKernel]:
        return self._plain_kernels

    @lazy
    def _plain_kernels(self) -> list[LoweredKernel]:
        return lower_stages(self._case)

    @lazy
    def seeded_kernels(self) -> list[LoweredKernel]:
        """Return the kernels as IR, with random numbers computed from the seed that the call drew. Raise NotCovered."""
        return self.call.core.kernels(self._case)

    @lazy
    def _case(self) -> CallKey:
        """Return the key of a call with a single sample of the batch."""
        call = self.call
        return call.core.key(call.single)

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        pairs = zip(self.call.core.signature.arrays, self.bound.tensors, strict=True)
        return {name: tensor for name, tensor in pairs if name in self.op._signature.order}

    @property
    def scalars(self) -> Mapping[str, Any]:
        return self.bound.scalars

    @property
    def batchable(self) -> frozenset[str]:
        return frozenset(item.name for item in self.op.spec.inputs if item.batch_name)

    @property
    def promises(self) -> Mapping[str, tuple[str, int]]:
        lead = len(self.call.lead)
        given = (item for item in self.op.spec.inputs if item.promise)
        return {item.name: (item.promise, lead if item.batch_name else 0) for item in given}

    @property
    def is_batch(self) -> bool:
        return bool(self.call.lead)

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments of the call, by name."""
        bound = self.bound
        return {**self.inputs, **bound.scalars, **bound.templates, **bound.sizes}

    @property
    def draws(self) -> bool:
        return len(self.inputs) < len(self.bound.tensors)

    @property
    def default_float(self) -> str:
        return Language(self.call.core.signature.stages[0].engine).default_types[0]

    @property
    def allocated_dtypes(self) -> dict[str, torch.dtype]:
        return {one.name: one.dtype for one in self.call.allocations}

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.call.core.signature.outputs

    @property
    def uninitialized_arrays(self) -> frozenset[str]:
        signature = self.call.core.signature
        return frozenset(name for name in self.allocated_dtypes if not signature.starts_at_zero(name))

    @property
    def gradient(self) -> str:
        return self.call.core.reverse.name

    def origin(self, active: frozenset[str]) -> Origin:
        reverse = self.call.reverse
        if not isinstance(reverse, AutoAt | SourceAt):
            return "backward" if isinstance(self.call.core.reverse, HandWritten) else "engine"
        reason = self.refusal(active)
        if reason is not None and reason.race is not None:
            return "race"
        return "source" if reason is None or isinstance(reverse, SourceAt) else "engine"

    def refusal(self, active: frozenset[str]) -> NotCovered | None:
        """Return why no gradient by these inputs can be generated; None if one is, or if the op does not use one."""
        call = self.call
        recorded = find_recorded(call.core, call)
        at = call.reverse if recorded is None else recorded.specialize_replay(call.core.key(call))
        source = at.source if isinstance(at, AutoAt) else at
        return source.refusal(active) if isinstance(source, SourceAt) else None

    @property
    def engine_remedy(self) -> str:
        return 'leave out adjoint="engine": tinsmith generates a gradient from the kernel\'s source'

    def find_hand_written_store(self, name: str) -> tuple[str, int] | None:
        reverse = self.call.core.reverse
        return reverse.place(name) if isinstance(reverse, HandWritten) else None

    @property
    def starts(self) -> list[tuple[str, int]]:
        stages = self.call.core.signature.stages
        return [(stage.source.path, stage.source.tree.lineno) for stage in stages]

    @property
    def forkable_engine(self) -> str | None:
        return None if self.op.fields else self.op.engine

    def compute(self, values: Tensors) -> dict[str, torch.Tensor]:
        result = self.op(**{**self.arguments, **values})
        return dict(zip(self.outputs, [result] if isinstance(result, torch.Tensor) else result, strict=True))

    def leaves(self) -> dict[str, torch.Tensor]:
        return make_leaves(self.bound, self.call)

    def run(
        self,
        leaves: Tensors,
        *,
        faithful: bool = False,
        seeded: bool = False,
        observer: Observer | None = None,
    ) -> dict[str, torch.Tensor]:
        kernels = self.seeded_kernels if seeded else self.kernels
        return interpret_call(self.bound, self.call, leaves, faithful=faithful, kernels=kernels, observer=observer)

    def with_adjoint(self, adjoint: str | None) -> OpExamination:
        if adjoint is None:
            return self
        return self._examine_variant(adjoint=adjoint, trust_engine=adjoint == "engine")

    def to_double(self) -> OpExamination | None:
        try:
            return self._examine_arguments(self.op, {name: _widen(one) for name, one in self.arguments.items()})
        except TinsmithError:  # an annotation requires another dtype; the call itself was checked before
            return None

    def with_bounds_checked(self) -> OpExamination:
        return self._examine_variant(check_bounds=True)

    def _examine_variant(self, **options: Any) -> OpExamination:
        """Return an examination of the same call on a copy of the op with other options."""
        return self._examine_arguments(
            Op(self.op._kernels, self.op._text, replace(self.op._options, **options)), self.arguments
        )

    def _examine_arguments(self, op: Op, arguments: Mapping[str, Any]) -> OpExamination:
        return OpExamination(op, *bind_call(op, (), arguments), self.kind)


def _widen(value: Any) -> Any:
    return value.detach().double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def examine_call(subject: Any, inputs: tuple[Any, ...], named: Mapping[str, Any], who: str) -> Examination:
    """Examine a call of an op or a layer.

    Args:
        subject: made by `tinsmith.op` or `tinsmith.chain`; or a layer.
        inputs: positional arguments of the call.
        named: keyword arguments of the call.
        who: the function that asks, for messages: "ts.sanitize".

    Raises:
        ArgumentError: `subject` is neither, or a transform is active; also the errors of a call.
    """
    if not isinstance(subject, Op | Examinable):
        remedy = "Make an op of a kernel with `ts.op(spec)(kernel)`."
        raise ArgumentError(refusal(f"{who} takes an op or a layer", [("got", type(subject).__name__)], remedy))
    if is_transformed():
        title = f"op `{subject.name}`" if isinstance(subject, Op) else type(subject).__name__
        words = f"{who} of {title} cannot run inside a transform of torch.func or in forward mode"
        raise ArgumentError(refusal(words, remedy="Call it outside."))
    if isinstance(subject, Examinable):
        if named:
            words = f"{who} of {type(subject).__name__} got `{next(iter(named))}` by name"
            raise ArgumentError(refusal(words, remedy="Pass its tensors by position, in the order of registration."))
        return subject._examine(inputs, who)
    # Updated arguments are compared as results.
    op = subject.functional
    if not inputs and not named and (order := op._core.signature.order):
        words = f"{who} of op `{op.name}` got no inputs"
        remedy = f"Pass what a call of the op takes: `{who}({', '.join([op.name, *order])})`."
        raise ArgumentError(refusal(words, remedy=remedy))
    return OpExamination(op, *bind_call(op, inputs, named))


def examine_layer(op: Op, inputs: Sequence[Any], named: Mapping[str, Any]) -> OpExamination:
    """Examine a call of the op that a layer runs as."""
    return OpExamination(op, *bind_call(op, tuple(inputs), named), "layer")


def lint_subject(subject: Op | Examinable) -> list[Finding]:
    """Return lint findings in the source of an op's or layer's kernels."""
    return subject.lint() if isinstance(subject, Op) else subject._lint()
