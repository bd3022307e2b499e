"""Examined: one call of an op, laid open for who checks ops: its kernels as IR, and runs that tell what happens.

Nothing is compiled or launched here, but for `judged`, which is the same op with a gradient from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from .._errors import ArgumentError, refusal
from .._lazy import lazy
from ..engines import Language
from ..source.ir import Lowered
from ._binding import Bound
from ._case import Case
from ._core import Call
from ._lowered import lowered
from ._op import Op
from ._oracle import Cotangents, Observer, by_output, called, check_shapes, followed, leaves_of
from ._route import Route
from ._tracing import is_transformed
from .backward import AutoAt, HandWritten


@dataclass(frozen=True)
class Examined:
    """One call of an op. `bound` and `route` are its arguments by kind, and how the op would run them."""

    op: Op
    bound: Bound
    route: Route

    @lazy
    def kernels(self) -> list[Lowered]:
        """The kernels as IR, in order, without batch dims; random numbers are statements. Raises NotCovered."""
        return lowered(self._case)

    @lazy
    def seeded_kernels(self) -> list[Lowered]:
        """The same, but random numbers follow from the seed that the call drew. Raises NotCovered."""
        return self.route.call.core.kernels(self._case)

    @lazy
    def _case(self) -> Case:
        """The kind of a call with one sample of its batch."""
        call = self.route.call
        return call.core.case(Call(call.core, call.shapes, call.dtypes, call.scalars, call.templates, call.sizes))

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        """Tensors of the call by name, without what is hidden from the caller."""
        pairs = zip(self.route.call.core.signature.arrays, self.bound.tensors, strict=True)
        return {name: tensor for name, tensor in pairs if name in self.op.arguments}

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything that the op is called with, by name."""
        bound = self.bound
        return {**self.inputs, **bound.scalars, **bound.templates, **bound.sizes}

    @property
    def draws(self) -> bool:
        """Whether random numbers follow from a seed that the call drew from torch's generator."""
        return len(self.inputs) < len(self.bound.tensors)

    @property
    def default_float(self) -> str:
        """The type of a float that the kernels do not say the type of: "f32", "f64"."""
        return Language(self.route.call.core.signature.stages[0].engine).default_types[0]

    @property
    def made(self) -> dict[str, torch.dtype]:
        """Dtypes of outputs and scratch, by name."""
        return {one.name: one.dtype for one in self.route.call.core.made(self.route.call)}

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.route.call.core.signature.outputs

    @property
    def uninitialised(self) -> frozenset[str]:
        """Outputs and scratch whose memory starts as anything."""
        signature = self.route.call.core.signature
        return frozenset(name for name in self.made if not signature.starts_at_zero(name))

    @property
    def gradient(self) -> str:
        """Where the op's gradient comes from: "auto", "source", "engine", "backward"."""
        return self.route.call.core.reverse.name

    def origin(self, active: frozenset[str]) -> str:
        """The same for the gradient by these inputs, with "auto" decided."""
        at = self.route.call.reverse
        if not isinstance(at, AutoAt):
            return self.gradient
        return "source" if at.source.refusal(active) is None else "engine"

    def stored_by_hand(self, name: str) -> tuple[str, int] | None:
        """File and line of what stores an input's gradient, where a kernel written by hand does."""
        reverse = self.route.call.core.reverse
        return reverse.place(name) if isinstance(reverse, HandWritten) else None

    @property
    def starts(self) -> list[tuple[str, int]]:
        """File and line of each kernel."""
        stages = self.route.call.core.signature.stages
        return [(stage.source.path, stage.source.tree.lineno) for stage in stages]

    def leaves(self) -> dict[str, torch.Tensor]:
        """Floating inputs and scalar arguments in float64, as new leaves of torch's autograd."""
        return leaves_of(self.bound, self.route)

    def run(
        self,
        leaves: Mapping[str, torch.Tensor],
        *,
        faithful: bool = False,
        seeded: bool = False,
        observer: Observer | None = None,
    ) -> dict[str, torch.Tensor]:
        """Outputs, by interpreting; connected with `leaves`, which stand for arguments of their name.

        `faithful` rounds as the compiled kernel does. Raises NotCovered.
        """
        kernels = self.seeded_kernels if seeded else self.kernels
        return followed(self.bound, self.route, leaves, faithful=faithful, kernels=kernels, observer=observer)

    def cotangents(self, given: Cotangents, outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Cotangents by the output's name. Raises ArgumentError or ShapeError for what does not fit."""
        found = by_output(self.op, given)
        check_shapes(self.op, found, dict(outputs))
        return found


def examined(op: Any, inputs: tuple[Any, ...], named: Mapping[str, Any], who: str) -> Examined:
    """Lay open a call of an op.

    Args:
        op: made by `tinsmith.op` or `tinsmith.chain`.
        inputs: what it is called with.
        named: and what by name.
        who: the function that asks, for messages: "ts.sanitize".

    Raises:
        ArgumentError: no op, or asked inside a transform; and whatever a call raises.
    """
    if not isinstance(op, Op):
        remedy = "Make one of a kernel with `ts.op(spec)(kernel)`."
        raise ArgumentError(refusal(f"{who} takes an op", [("came", type(op).__name__)], remedy))
    if is_transformed():
        words = f"{who} of op `{op.name}` was asked inside a transform of torch.func, or forward mode"
        raise ArgumentError(refusal(words, remedy="Ask it outside."))
    return Examined(op, *called(op, inputs, named))


def judged(op: Op, adjoint: str | None) -> Op:
    """The same op with its gradient from `adjoint` ("engine", "source"); the op itself for None.

    The engine's is taken also where it is known to go wrong: that is what is to be seen.
    """
    if adjoint is None:
        return op
    return Op(op._kernels, op._text, **(op._options | {"adjoint": adjoint, "trust_engine": adjoint == "engine"}))


def bounds_checked(call: Examined) -> Examined:
    """The same call of the op with `check_bounds=True`."""
    op = call.op
    return replace(call, op=Op(op._kernels, op._text, **(op._options | {"check_bounds": True})))
