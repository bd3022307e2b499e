"""Forward mode, and derivatives of gradients: the parts of the operators' autograd rules.

With y = f(x) and its tangent op T(x, v) = f'(x) v, the gradient g(x, c) = f'(x)^T c of cotangents c has

    dg in the direction of dc:      g(x, dc)
    dg in the direction of dx:      the gradient in x of <T(x, dx), c>, for second derivatives are symmetric
    the gradient of <v, g> in c:    T(x, v)
    the gradient of <v, g> in x:    the gradient in x of <T(x, v), c>

so only f, T and their gradients are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from ..._errors import GradientError, internal_error, refusal
from .._core import BackwardCall, Call
from ..backward import HandWritten
from ._tangents import TangentCore, find_tangent

Tensors = Sequence["torch.Tensor | None"]


def push_forward(
    call: Call, inputs: Sequence[torch.Tensor], tangents: Tensors, state: torch.Tensor | None
) -> list[torch.Tensor | None]:
    """Compute the tangents of outputs and scratch from those of the inputs; None for arrays that have no tangent.

    `state` stands for the Python values and fields of the call, which must not have changed.
    """
    signature = call.core.signature
    made = signature.allocations
    given = dict(zip(signature.arrays, tangents, strict=True))
    active = frozenset(name for name, tangent in given.items() if tangent is not None) & call.wanting
    if not active:
        return [None] * len(made)
    step = _Step(call, active, dict(zip(signature.arrays, inputs, strict=True)), given, state)
    moved = step.outputs()
    # torch refuses a tangent of an output without a gradient.
    return [None if name in signature.auxiliary else moved.get(name) for name in made]


class SecondOrder:
    """The derivatives of a call of a backward operator, `asked`."""

    def __init__(self, asked: BackwardCall) -> None:
        self.asked = asked
        self.call = asked.call
        self.active = tuple(name for name in asked.call.core.signature.arrays if name in asked.active)
        self.saved = asked.saved
        self.cotangents = asked.cotangents

    def pull_back(self, directions: Tensors, needs: Sequence[bool]) -> list[torch.Tensor | None]:
        """Differentiate the backward pass: return the gradients of the saved values, then those of the cotangents.

        `directions` are the cotangents of its outputs, the gradients. `needs` says which results are needed; others are
        None.
        """
        given = {n: v for n, v in zip(self.active, directions, strict=True) if v is not None}
        count = len(self.saved)
        if not given:
            return [None] * (count + len(self.cotangents))
        # A saved output is not an input of its own here: it is a function of the inputs.
        inputs = frozenset(n for n, needed in zip(self.saved, needs, strict=False) if needed) & self.call.wanting
        others = frozenset(n for n, needed in zip(self.cotangents, needs[count:], strict=True) if needed)
        step = _Step(self.call, frozenset(given), self.values(), given, self.asked.state)
        gradients = step.gradients(inputs, self.cotangents) if inputs else {}
        moved = step.outputs() if others else {}
        return [
            *(gradients.get(name) for name in self.saved),
            *(moved.get(name) if name in others else None for name in self.cotangents),
        ]

    def push_forward(self, saved: Tensors, cotangents: Tensors) -> list[torch.Tensor | None]:
        """Compute the tangents of the gradients from those of the saved values and of the cotangents."""
        total: dict[str, torch.Tensor] = {}
        if any(tangent is not None for tangent in cotangents):
            total = self.recompute(cotangents)
        signature = self.call.core.signature
        pairs = zip(self.saved, saved, strict=True)
        moved = {n: t for n, t in pairs if t is not None and n in signature.arrays and n in self.call.wanting}
        if moved:
            step = _Step(self.call, frozenset(moved), self.values(), moved, self.asked.state)
            for name, tangent in step.gradients(frozenset(self.active), self.cotangents).items():
                total[name] = total[name] + tangent if name in total else tangent
        return [total.get(name) for name in self.active]

    def recompute(self, cotangents: Tensors) -> dict[str, torch.Tensor]:
        """Compute the gradients for other cotangents. Return them by input."""
        given = {name: one for name, one in zip(self.cotangents, cotangents, strict=True) if one is not None}
        gradients = self.call.core.operators.launch_backward(self.asked._replace(cotangents=given))
        return dict(zip(self.active, gradients, strict=True))

    def values(self) -> dict[str, torch.Tensor]:
        """Return the inputs that were saved, by name."""
        return {name: tensor for name, tensor in self.saved.items() if name in self.call.core.signature.arrays}


class _Step:
    """The tangent op, called on values and tangents of some inputs."""

    def __init__(
        self,
        call: Call,
        active: frozenset[str],
        values: Mapping[str, torch.Tensor],
        tangents: Mapping[str, torch.Tensor | None],
        state: torch.Tensor | None,
    ) -> None:
        reverse = call.core.reverse
        if isinstance(reverse, HandWritten):
            words = (
                f"op `{call.core.signature.op}` has a hand-written backward, so no forward-mode or second derivative"
            )
            raise GradientError(refusal(words, remedy=reverse.otherwise))
        self.base = call
        self.state = state
        self.core: TangentCore = find_tangent(call.core, active)
        self.call = self.core.make_call(call)
        if self._missing(values):
            # The kernel for a whole batch reads arrays that were not saved; the one for a single sample does not.
            self.call = replace(self.call, is_apart=True)
        self._unknown = self._missing(values)
        moving = {self.core.dots[name]: tangents[name] for name in self.core.active}
        self.inputs = self.fill_inputs({**values, **{name: one for name, one in moving.items() if one is not None}})
        self.results: dict[str, torch.Tensor] | None = None

    def _missing(self, values: Mapping[str, torch.Tensor]) -> frozenset[str]:
        """Return the inputs that the tangent op reads and that were not saved."""
        return self.core.needs(self.call) & frozenset(self.base.core.signature.arrays) - values.keys()

    def _require(self, names: frozenset[str]) -> None:
        """Raise GradientError if one of these inputs was not saved."""
        lost = self._unknown & names
        if lost:
            words = (
                f"the second derivative of op `{self.base.core.signature.op}` needs `{min(lost)}`, which was not saved"
            )
            raise internal_error(GradientError, words)

    def fill_inputs(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return all inputs of the tangent op. An input that was not saved gets zeros of its size."""
        like = next(iter(values.values()))
        inputs = dict(values)
        names, shapes = self.base.core.signature.arrays, self.base.whole_shapes
        for name, shape, dtype in zip(names, shapes, self.base.dtypes, strict=True):
            if name not in values:
                inputs[name] = torch.zeros(shape, dtype=dtype, device=like.device)
        return {name: inputs[name] for name in self.core.signature.arrays}

    def outputs(self) -> dict[str, torch.Tensor]:
        """Run the tangent op once. Return the tangents of the outputs, by output."""
        if self.results is None:
            self._require(self._unknown)
            results = self.core.operators.results(self.call, list(self.inputs.values()), self.state)
            # The last result may be a state.
            self.results = dict(zip(self.core.moving, results, strict=False))
        return dict(self.results)

    def gradients(self, wanted: frozenset[str], cotangents: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the gradients of the `wanted` inputs, given cotangents of the outputs' tangents."""
        names = self.call.find_saved_names(wanted)
        # Inputs that only the computation of the tangents reads need no value here.
        self._require(frozenset(names))
        values = dict(self.inputs)
        if any(name not in values for name in names):
            values |= {self.core.dots[name]: one for name, one in self.outputs().items()}
        saved = {name: values[name] for name in names}
        moving = (name for name in self.core.moving if name in cotangents)
        given = {self.core.dots[name]: cotangents[name] for name in moving}
        gradients = self.core.operators.launch_backward(BackwardCall(self.call, wanted, saved, given, self.state))
        order = [name for name in self.core.signature.arrays if name in wanted]
        return dict(zip(order, gradients, strict=True))
