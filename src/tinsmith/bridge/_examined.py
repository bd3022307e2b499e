"""Examined: one call of an op or of a layer, laid open for who checks it: its kernels as IR, and runs that tell.

What a check needs to know of a call is the abstract class; an op's call stands here, that of a layer on fields in
`layers`. A layer that runs on tensors is an op inside, and its call is that op's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from .._errors import ArgumentError, TinsmithError, refusal
from .._lazy import lazy
from ..engines import Language
from ..linter import Finding
from ..source.ir import Lowered, NotCovered
from ._binding import Bound
from ._case import Case
from ._lowered import lowered
from ._op import Op
from ._oracle import Cotangents, Observer, by_output, called, check_shapes, followed, leaves_of
from ._route import Form
from ._tracing import is_transformed
from .backward import AutoAt, HandWritten, SourceAt
from .derived import recorded_of

Tensors = Mapping[str, torch.Tensor]
Origin = Literal["source", "engine", "backward", "race"]
"""Where a gradient comes from: "race" where it is refused, since iterations of a parallel loop race."""


class Examined(ABC):
    """One call of an op or of a layer.

    What asks for the kernels as IR raises NotCovered where they cannot be had: `kernels`, `run`, `leaves`, `made`.
    """

    kind: Literal["op", "layer"]

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the op, or of the layer."""

    @property
    def title(self) -> str:
        """What was called, for messages: "op `blur`"."""
        return f"{self.kind} `{self.name}`"

    @property
    @abstractmethod
    def module_name(self) -> str:
        """What the file of its kernels calls the module of their engine: `ti`, `qd`."""

    @property
    @abstractmethod
    def inputs(self) -> dict[str, torch.Tensor]:
        """Tensors of the call by name, without what is hidden from the caller."""

    @property
    def differentiable(self) -> dict[str, torch.Tensor]:
        """The inputs that may have a gradient."""
        return {name: one for name, one in self.inputs.items() if one.is_floating_point()}

    @property
    def batchable(self) -> frozenset[str]:
        """Inputs that may have batch dims, which the kernels do not see."""
        return frozenset()

    @property
    def is_batch(self) -> bool:
        """Whether the inputs have batch dims in this call."""
        return False

    @property
    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """Names of the results, in their order."""

    @property
    @abstractmethod
    def starts(self) -> list[tuple[str, int]]:
        """File and line of each kernel."""

    @property
    def reason_unreadable(self) -> str:
        """Why the kernels cannot be had as IR, where that is known before they are asked for; "" otherwise."""
        return ""

    @property
    @abstractmethod
    def kernels(self) -> list[Lowered]:
        """The kernels as IR, in order, without batch dims; random numbers are statements."""

    @property
    @abstractmethod
    def default_float(self) -> str:
        """The type of a float that the kernels do not say the type of: "f32", "f64"."""

    @property
    @abstractmethod
    def made(self) -> dict[str, torch.dtype]:
        """Dtypes of outputs and scratch, by name."""

    @property
    @abstractmethod
    def uninitialised(self) -> frozenset[str]:
        """Outputs and scratch whose memory starts as anything."""

    @property
    @abstractmethod
    def draws(self) -> bool:
        """Whether random numbers follow from a seed that the call drew from torch's generator."""

    @property
    @abstractmethod
    def gradient(self) -> str:
        """Where the gradient comes from: "auto", "source", "engine", "backward"."""

    @abstractmethod
    def origin(self, active: frozenset[str]) -> Origin:
        """The same for the gradient by these inputs, with "auto" decided, and with "race" where it is refused."""

    @property
    @abstractmethod
    def engine_remedy(self) -> str:
        """What to do where the engine's gradient is taken, and wrong."""

    @abstractmethod
    def stored_by_hand(self, name: str) -> tuple[str, int] | None:
        """File and line of what stores an input's gradient, where a kernel written by hand does."""

    @property
    @abstractmethod
    def forkable_engine(self) -> str | None:
        """The engine, where a forked process could repeat the call; None where the call's memory is in this process."""

    @property
    def notes(self) -> Sequence[str]:
        """What a report says about the call besides."""
        return ()

    def preserve_memory(self) -> AbstractContextManager[None]:
        """Inside, `compute` may change memory that is not the call's own; afterwards that is as it was."""
        return nullcontext()

    @abstractmethod
    def compute(self, values: Tensors) -> dict[str, torch.Tensor]:
        """Outputs of the call by name, compiled and differentiable. `values` replace inputs of their name."""

    @abstractmethod
    def leaves(self) -> dict[str, torch.Tensor]:
        """Floating inputs and scalar arguments in float64, as new leaves of torch's autograd."""

    @abstractmethod
    def run(
        self,
        leaves: Tensors,
        *,
        faithful: bool = False,
        seeded: bool = False,
        observer: Observer | None = None,
    ) -> dict[str, torch.Tensor]:
        """Outputs, by interpreting; connected with `leaves`, which stand for arguments of their name.

        `faithful` rounds as the compiled kernel does.
        """

    def cotangents(self, given: Cotangents, outputs: Tensors) -> dict[str, torch.Tensor]:
        """Cotangents by the output's name. Raises ArgumentError or ShapeError for what does not fit."""
        found = by_output(self.title, self.outputs, given)
        check_shapes(self.title, found, dict(outputs))
        return found

    @abstractmethod
    def with_adjoint(self, adjoint: str | None) -> Examined:
        """The same call with its gradient from `adjoint` ("engine", "source"); the call itself for None.

        The engine's is taken also where it is known to go wrong: that is what is to be seen.
        """

    @abstractmethod
    def to_double(self) -> Examined | None:
        """The same call with its floats in float64; None where it does not take them."""

    @abstractmethod
    def with_bounds_checked(self) -> Examined:
        """The same call, which raises BoundsError for an index outside. Raises KernelError where that cannot be."""


class Examinable(ABC):
    """What can be called like an op and be looked into: layers derive from it."""

    @abstractmethod
    def _examine(self, inputs: tuple[Any, ...], who: str) -> Examined:
        """Lay open a call. `who` asks, for messages. Raises whatever a call raises."""

    @abstractmethod
    def _lint(self) -> list[Finding]:
        """Findings of its kernels."""


@dataclass(frozen=True)
class ExaminedOp(Examined):
    """One call of an op. `bound` and `form` are its arguments by kind, and the form in which it is run.

    `kind` is "layer" where the op is how a layer runs.
    """

    op: Op
    bound: Bound
    form: Form
    kind: Literal["op", "layer"] = "op"

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def module_name(self) -> str:
        return self.form.call.core.signature.stages[0].module_name

    @property
    def kernels(self) -> list[Lowered]:
        return self._plain_kernels

    @lazy
    def _plain_kernels(self) -> list[Lowered]:
        return lowered(self._case)

    @lazy
    def seeded_kernels(self) -> list[Lowered]:
        """The same, but random numbers follow from the seed that the call drew. Raises NotCovered."""
        return self.form.call.core.kernels(self._case)

    @lazy
    def _case(self) -> Case:
        """The kind of a call with one sample of its batch."""
        call = self.form.call
        return call.core.case(call.single)

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        pairs = zip(self.form.call.core.signature.arrays, self.bound.tensors, strict=True)
        return {name: tensor for name, tensor in pairs if name in self.op._signature.order}

    @property
    def batchable(self) -> frozenset[str]:
        return frozenset(item.name for item in self.op.spec.inputs if item.batch_name)

    @property
    def is_batch(self) -> bool:
        return bool(self.form.lead)

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything that the op is called with, by name."""
        bound = self.bound
        return {**self.inputs, **bound.scalars, **bound.templates, **bound.sizes}

    @property
    def draws(self) -> bool:
        return len(self.inputs) < len(self.bound.tensors)

    @property
    def default_float(self) -> str:
        return Language(self.form.call.core.signature.stages[0].engine).default_types[0]

    @property
    def made(self) -> dict[str, torch.dtype]:
        return {one.name: one.dtype for one in self.form.call.made}

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.form.call.core.signature.outputs

    @property
    def uninitialised(self) -> frozenset[str]:
        signature = self.form.call.core.signature
        return frozenset(name for name in self.made if not signature.starts_at_zero(name))

    @property
    def gradient(self) -> str:
        return self.form.call.core.reverse.name

    def origin(self, active: frozenset[str]) -> Origin:
        reverse = self.form.call.reverse
        if not isinstance(reverse, AutoAt | SourceAt):
            return "backward" if isinstance(self.form.call.core.reverse, HandWritten) else "engine"
        reason = self.refusal(active)
        if reason is not None and reason.race is not None:
            return "race"
        return "source" if reason is None or isinstance(reverse, SourceAt) else "engine"

    def refusal(self, active: frozenset[str]) -> NotCovered | None:
        """Why no gradient by these inputs is generated; None where one is, or none is wanted."""
        call = self.form.call
        recorded = recorded_of(call.core, call)
        at = call.reverse if recorded is None else recorded.replay_at(call.core.case(call))
        source = at.source if isinstance(at, AutoAt) else at
        return source.refusal(active) if isinstance(source, SourceAt) else None

    @property
    def engine_remedy(self) -> str:
        return 'leave out adjoint="engine": tinsmith generates a gradient from the kernel\'s source'

    def stored_by_hand(self, name: str) -> tuple[str, int] | None:
        reverse = self.form.call.core.reverse
        return reverse.place(name) if isinstance(reverse, HandWritten) else None

    @property
    def starts(self) -> list[tuple[str, int]]:
        stages = self.form.call.core.signature.stages
        return [(stage.source.path, stage.source.tree.lineno) for stage in stages]

    @property
    def forkable_engine(self) -> str | None:
        return None if self.op.fields else self.op.engine

    def compute(self, values: Tensors) -> dict[str, torch.Tensor]:
        found = self.op(**{**self.arguments, **values})
        return dict(zip(self.outputs, [found] if isinstance(found, torch.Tensor) else found, strict=True))

    def leaves(self) -> dict[str, torch.Tensor]:
        return leaves_of(self.bound, self.form)

    def run(
        self,
        leaves: Tensors,
        *,
        faithful: bool = False,
        seeded: bool = False,
        observer: Observer | None = None,
    ) -> dict[str, torch.Tensor]:
        kernels = self.seeded_kernels if seeded else self.kernels
        return followed(self.bound, self.form, leaves, faithful=faithful, kernels=kernels, observer=observer)

    def with_adjoint(self, adjoint: str | None) -> ExaminedOp:
        if adjoint is None:
            return self
        return self._of_twin(adjoint=adjoint, trust_engine=adjoint == "engine")

    def to_double(self) -> ExaminedOp | None:
        try:
            return self._of(self.op, {name: _widen(one) for name, one in self.arguments.items()})
        except TinsmithError:  # an annotation that wants another dtype; the call itself was found right before
            return None

    def with_bounds_checked(self) -> ExaminedOp:
        return self._of_twin(check_bounds=True)

    def _of_twin(self, **options: Any) -> ExaminedOp:
        """The same call of the op with other options."""
        return self._of(Op(self.op._kernels, self.op._text, replace(self.op._options, **options)), self.arguments)

    def _of(self, op: Op, arguments: Mapping[str, Any]) -> ExaminedOp:
        return ExaminedOp(op, *called(op, (), arguments), self.kind)


def _widen(value: Any) -> Any:
    return value.detach().double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def examined(subject: Any, inputs: tuple[Any, ...], named: Mapping[str, Any], who: str) -> Examined:
    """Lay open a call of an op or a layer.

    Args:
        subject: made by `tinsmith.op` or `tinsmith.chain`; or a layer.
        inputs: what it is called with.
        named: and what by name.
        who: the function that asks, for messages: "ts.sanitize".

    Raises:
        ArgumentError: neither of them, or asked inside a transform; and whatever a call raises.
    """
    if not isinstance(subject, Op | Examinable):
        remedy = "Make an op of a kernel with `ts.op(spec)(kernel)`."
        raise ArgumentError(refusal(f"{who} takes an op or a layer", [("came", type(subject).__name__)], remedy))
    if is_transformed():
        title = f"op `{subject.name}`" if isinstance(subject, Op) else type(subject).__name__
        words = f"{who} of {title} was asked inside a transform of torch.func, or forward mode"
        raise ArgumentError(refusal(words, remedy="Ask it outside."))
    if isinstance(subject, Examinable):
        if named:
            words = f"{who} of {type(subject).__name__} got `{next(iter(named))}` by name"
            raise ArgumentError(refusal(words, remedy="Pass its tensors by position, in the order of registration."))
        return subject._examine(inputs, who)
    op = subject.functional  # what it updates in place is compared as what it returns
    return ExaminedOp(op, *called(op, inputs, named))


def examined_layer(op: Op, inputs: Sequence[Any], named: Mapping[str, Any]) -> ExaminedOp:
    """Lay open a call of the op that a layer runs as."""
    return ExaminedOp(op, *called(op, tuple(inputs), named), "layer")


def lint_subject(subject: Op | Examinable) -> list[Finding]:
    """What is wrong with the kernels of an op or a layer, told from their source."""
    return subject.lint() if isinstance(subject, Op) else subject._lint()
