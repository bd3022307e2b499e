"""Modes: compares the other ways in which torch differentiates an op with its single backward pass.

A batch of two samples, forward mode and second derivatives have kernels of their own, whose errors would go unnoticed.
With f = sum(c * op(x)), its gradient g(x) by one plain backward pass, and a direction t:

    vmap(grad)           g of two samples at once           = g of each
    *b                   the same, by the spec's batch dims
    jacrev               two cotangents at once             = g for each
    jvp                  sum(c * jvp(x, t))                 = sum(g(x) * t)
    second derivatives   d sum(g(x) * t) / dx               = (g(x + h t) - g(x - h t)) / 2 h
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from ..._errors import TinsmithError
from ...ir import NotCovered
from ...linter import Finding
from ...operation.examination import Examination
from .._budget import Budget, TooLong
from ._function import (
    Dangerous,
    Function,
    Tensors,
    draw_normal,
    find_greatest,
    make_interpreted_function,
    make_op_function,
    pull_back,
)
from ._verdict import Tolerance

NAMES = ("vmap(grad)", "*b", "jacrev", "jvp", "second derivatives")
OPERATIONS = 100_000
"""The maximum number of operations of the interpreted run that tests the second sample of a batch."""
_Batch: TypeAlias = list[Tensors]


@dataclass(frozen=True)
class Mode:
    """The result of checking one way to differentiate.

    Attributes:
        name: "vmap(grad)", "*b", "jacrev", "jvp", "second derivatives".
        verdict: "right", "wrong", "refused" or "not compared".
        reason: which number is wrong, or why nothing was compared; "" if the mode is right.
    """

    name: str
    verdict: Literal["right", "wrong", "refused", "not compared"]
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.verdict}: {self.reason}" if self.reason else self.verdict


class _Differs(Exception):
    """Raised when a mode's result differs from that of the single backward pass."""


class _NotCompared(Exception):
    """Raised when there is nothing to compare a mode with."""


def skip_modes(call: Examination, reason: str) -> tuple[Mode, ...]:
    """Return all modes of an op as "not compared", with one reason."""
    return tuple(Mode(name, "not compared", reason) for name in _names(call))


def _names(call: Examination) -> list[str]:
    return [name for name in NAMES if name != "*b" or call.batchable]


@dataclass(frozen=True)
class Modes:
    """Checks the modes of one call.

    Attributes:
        call: the op's call; `function` runs it, from floating inputs to floating outputs.
        values: the floating inputs; `cotangents` are those of the outputs.
        tolerance: between a mode and the single backward pass.
        is_double: whether everything is computed in float64.
    """

    call: Examination
    values: Tensors
    cotangents: Tensors
    tolerance: Tolerance
    is_double: bool

    def compare(self) -> tuple[Mode, ...]:
        """Check every mode."""
        runs: dict[str, Callable[[], None]] = {
            "vmap(grad)": self._vmap_grad,
            "*b": self._batch_dims,
            "jacrev": self._jacrev,
            "jvp": self._jvp,
            "second derivatives": self._second,
        }
        with warnings.catch_warnings(), torch.enable_grad():
            # torch's forward mode compiles its own formulas when it is first used.
            warnings.filterwarnings("ignore", ".torch.jit.script. is deprecated", DeprecationWarning)
            return tuple(_judge_mode(name, runs[name]) for name in _names(self.call))

    # The modes --------------------------------------------------------------------------------

    def _vmap_grad(self) -> None:
        samples, seeds = self._samples(), self._seeds()
        gradients = torch.func.vmap(torch.func.grad(self._loss))(_stack_samples(samples), _stack_samples(seeds))
        self._require_same(gradients, self._alone(samples, seeds))

    def _batch_dims(self) -> None:
        if self.call.is_batch:
            return  # the call has batch dims, so its backward pass was compared already
        samples, seeds = self._samples(), self._seeds()
        batched = self.call.batchable
        others = {name: one for name, one in self.call.inputs.items() if name not in self.values}
        twice = {name: torch.stack([one, one]) if name in batched else one for name, one in others.items()}
        leaves = {name: _both(name, samples, batched).requires_grad_() for name in self.values}
        shared = {name for name in self.values if name not in batched}
        samples = [{**sample, **{name: self.values[name] for name in shared}} for sample in samples]
        named = self.call.compute({**twice, **leaves})
        ends, all_seeds = (
            [named[name] for name in seeds[0]],
            [torch.stack([one[name] for one in seeds]) for name in seeds[0]],
        )
        grads = torch.autograd.grad(
            ends, list(leaves.values()), [c.to(e) for c, e in zip(all_seeds, ends, strict=True)]
        )
        alone = self._alone(samples, seeds)
        wanted = {name: one.sum(0) if name in shared else one for name, one in alone.items()}
        self._require_same(dict(zip(leaves, grads, strict=True)), wanted)

    def _jacrev(self) -> None:
        seeds = self._seeds()
        pull: Any = torch.func.vjp(self._function, self._fresh(self.values))[1]
        (gradients,) = torch.func.vmap(pull)(_stack_samples(seeds))
        self._require_same(gradients, self._alone([self.values, self.values], seeds))

    def _jvp(self) -> None:
        tangents = _directions(self.values)
        moved: Tensors = torch.func.jvp(self._function, (self._fresh(self.values),), (tangents,))[1]
        mine = sum((self.cotangents[name].to(one) * one).sum().item() for name, one in moved.items())
        gradient = self._gradient(self.values, self.cotangents)
        parts = [gradient[name] * tangents[name].double() for name in gradient]
        wanted = sum(part.sum().item() for part in parts)
        scale = math.sqrt(sum((part * part).sum().item() for part in parts))
        if not self.tolerance.close(mine, wanted, scale or 1.0):
            raise _Differs(f"along a random direction it gives {mine:.6g}, the backward pass {wanted:.6g}")

    def _second(self) -> None:
        if not self.is_double:
            raise _NotCompared("differences of gradients in single precision are mostly rounding")
        # In proportion for numbers above 1, as the steps of all differences: a shorter step is lost in rounding.
        tangents = {name: one * self.values[name].abs().clamp(min=1) for name, one in _directions(self.values).items()}
        leaves = {name: one.clone().requires_grad_() for name, one in self.values.items()}
        loss = self._loss(leaves, self.cotangents)
        wanted = list(leaves.values())
        first = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True, materialize_grads=True)
        slope = sum(((one * t).sum() for one, t in zip(first, tangents.values(), strict=True)), torch.zeros(()))
        if not slope.requires_grad:
            second = [torch.zeros_like(one) for one in wanted]
        else:
            second = torch.autograd.grad(slope, wanted, allow_unused=True, materialize_grads=True)
        near, bends = self._difference_of_gradients(tangents, 1e-5)
        far, _ = self._difference_of_gradients(tangents, 1e-4)
        rough = Tolerance(1e-4, 1e-5)
        for name, one in near.items():
            scale = max(find_greatest(one), find_greatest(far[name])) or 1.0
            is_smooth = ((one - far[name]).abs() <= 1e-3 * scale) & (bends[name].abs() <= 1e-2 * scale)
            if not bool(is_smooth.all()):
                raise _NotCompared(
                    "the gradient changes too fast here for finite differences, as near a kink or a pole"
                )
        self._require_same(dict(zip(leaves, second, strict=True)), near, rough)

    def _difference_of_gradients(self, tangents: Tensors, step: float) -> tuple[Tensors, Tensors]:
        """Return the slope of the gradient between two points, and by how much it differs before and behind the middle:
        on both sides of a pole the gradient may be the same.
        """
        before, middle, behind = (
            self._gradient({name: one + shift * tangents[name] for name, one in self.values.items()}, self.cotangents)
            for shift in (-step, 0.0, step)
        )
        slopes = {name: (behind[name] - before[name]) / (2 * step) for name in self.values}
        bends = {name: (behind[name] - 2 * middle[name] + before[name]) / step for name in self.values}
        return slopes, bends

    # Shared ---------------------------------------------------------------------------------

    @property
    def _function(self) -> Function:
        return make_op_function(self.call)

    def _loss(self, values: Mapping[str, torch.Tensor], seeds: Mapping[str, torch.Tensor]) -> torch.Tensor:
        outputs = self._function(values)
        return torch.stack([(seeds[name].to(one.dtype) * one).sum() for name, one in outputs.items()]).sum()

    def _fresh(self, values: Tensors) -> Tensors:
        return {name: one.clone() for name, one in values.items()}

    def _gradient(self, values: Tensors, seeds: Mapping[str, torch.Tensor]) -> Tensors:
        return pull_back(self._function, values, seeds)

    def _alone(self, samples: _Batch, seeds: _Batch) -> Tensors:
        """Return the gradients of the samples, stacked, each from its own backward pass."""
        return _stack_samples([self._gradient(*pair) for pair in zip(samples, seeds, strict=True)])

    def _seeds(self) -> _Batch:
        return [
            self.cotangents,
            {name: one.flip(0) * 0.7 if one.ndim else one * 0.7 for name, one in self.cotangents.items()},
        ]

    def _samples(self) -> _Batch:
        """Return two samples. The second has other values if the interpreter runs them safely, or else the
        same values.
        """
        other = {name: one * 0.9 for name, one in self.values.items()}
        look = make_interpreted_function(self.call, Budget(OPERATIONS), is_strict=True)
        try:
            with torch.no_grad():
                look(other)
        except (Dangerous, TooLong, NotCovered, TinsmithError):  # then the same values stand in both samples
            other = self.values
        return [self.values, other]

    def _require_same(
        self, mine: Mapping[str, torch.Tensor], wanted: Tensors, tolerance: Tolerance | None = None
    ) -> None:
        """Raise _Differs if an element differs from the expected one."""
        tolerance = tolerance or self.tolerance
        for name, true in wanted.items():
            actual, true = mine[name].detach().double(), true.double()
            scale = find_greatest(true) or 1.0
            near = (actual - true).abs() <= tolerance.atol * scale + tolerance.rtol * torch.maximum(
                actual.abs(), true.abs()
            )
            wrong = ~(near | (~actual.isfinite() & ~true.isfinite()))
            if wrong.any():
                index = tuple(wrong.nonzero()[0].tolist())
                place = f"`{name}[{', '.join(map(str, index))}]`" if index else f"`{name}`"
                words = f"{int(wrong.sum())} of {wrong.numel()} numbers differ, such as {place}, which is "
                values = f"{actual[index].item():.6g} instead of {true[index].item():.6g}"
                raise _Differs(f"{words}{values}")


def _judge_mode(name: str, run: Callable[[], None]) -> Mode:
    try:
        run()
    except _Differs as words:
        return Mode(name, "wrong", str(words))
    except _NotCompared as reason:
        return Mode(name, "not compared", str(reason))
    # Torch raises NotImplementedError for an operator that lacks a mode, such as forward mode.
    except (TinsmithError, NotImplementedError) as reason:
        return Mode(name, "refused", str(reason).splitlines()[0])
    except Exception as reason:  # noqa: BLE001  # what raises anything else is broken
        first = (str(reason).splitlines() or [""])[0]
        return Mode(name, "wrong", f"it raises {type(reason).__name__}: {first}")
    return Mode(name, "right")


def describe_modes(call: Examination, modes: tuple[Mode, ...]) -> list[Finding]:
    """Return a finding for each mode that is wrong."""
    path, line = call.starts[0]
    words = "{} gives a wrong derivative, although a plain backward pass gives the right one: {}"
    return [
        Finding("TS701", "error", path, line, 0, words.format(_format_name(one), one.reason))
        for one in modes
        if one.verdict == "wrong"
    ]


def _format_name(mode: Mode) -> str:
    return mode.name if " " in mode.name else f"`{mode.name}`"


def _directions(values: Tensors) -> Tensors:
    generator = torch.Generator().manual_seed(1)
    return {name: draw_normal(one, generator).to(one) for name, one in values.items()}


def _stack_samples(samples: _Batch) -> Tensors:
    return {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}


def _both(name: str, samples: _Batch, batched: frozenset[str]) -> torch.Tensor:
    return torch.stack([sample[name] for sample in samples]) if name in batched else samples[0][name].clone()
