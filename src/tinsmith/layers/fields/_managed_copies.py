"""Managed copies: copies that field managers make, around an op on arrays.

A manager brings a tensor into its field in its own way, and out of it, and gradients likewise. The arrays that an op
works on in the fields' places hold what the manager left in the field. So a call is: the manager's `from_tensor`, the
field read as an array, the op, its results written into fields, the managers' `to_tensor`. A backward pass is: the
managers' `grad_from_tensor` of outputs, gradient fields read as arrays, the op's gradient, which is written into
gradient fields, the managers' `grad_to_tensor`.

Fields are one memory for all calls. A manager may keep notes, or look at its field while it moves a gradient; so each
backward step first has the field filled again from the tensor of its own call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from ...calls.fields import Copy, ManagedLoads, Transfer
from ...engines import gradient_field
from ...tracing import is_plain, keep_order
from .._pool import FIELDS_LOCK
from ._call import plain
from ._function import FieldFunction, OneSample, refuse_second
from ._layer_field import LayerField
from ._roles import Roles

Kind = Literal["load", "store"]


class ManagedCopies:
    """The copies of a layer whose fields have managers. None of them has a second derivative.

    Args:
        layer: its name, for messages.
        roles: what its fields are for; those without a manager are passed on as they are.
        reset: puts the managers' fields and their gradients back to where they began: a manager need not fill all.
        is_serial: whether our own copies run on one thread.
    """

    def __init__(
        self,
        layer: str,
        roles: Roles,
        reset: Callable[[], None] | None,
        *,
        is_serial: bool = False,
    ) -> None:
        self.layer = layer
        # A Tube's fields are freed with its roles. A graph holds this object and may outlive the layer.
        self._roles = roles
        filled, outputs = roles.filled, roles.outputs
        self._reset = reset
        self._is_serial = is_serial
        self.filled = tuple([one for one in filled if one.manager is not None])
        self.outputs = tuple([one for one in outputs if one.manager is not None])
        self.filled_places = _managed_places(filled)
        self.output_places = _managed_places(outputs)
        self.active = tuple([one for one in self.filled if one.has_gradient])
        self.differentiated = tuple([one for one in self.outputs if one.has_gradient])
        self._fill, self._read = _build_transfers(self.filled, "load", "store")
        self._show, self._write = _build_transfers(self.outputs, "store", "load")
        self._give, self._take_given = _build_transfers(self.differentiated, "load", "store", is_gradient=True)
        self._collect, self._put = _build_transfers(self.active, "store", "load", is_gradient=True)

    @property
    def is_any(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.filled or self.outputs)

    def keep_elements(self, memory: Sequence[torch.Tensor]) -> bool:
        """Return True if managers copy elements unchanged, judged by one call with `memory`."""
        given = [memory[place].detach() for place in self.filled_places]
        pairs = list(zip(given, self.fill(given) if given else (), strict=True))
        arrays = [_array(one) for one in self.outputs]
        for one in arrays:
            one.copy_(torch.arange(1, one.numel() + 1).reshape(one.shape))
        pairs += zip(arrays, self.show(arrays, is_written=False) if arrays else (), strict=True)
        return all(one.shape == other.shape and torch.equal(one, other.to(one.dtype)) for one, other in pairs)

    def fill(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Fill fields from tensors by their managers. Return what the fields hold then."""
        with FIELDS_LOCK, self._ready():
            self._fill_again(tensors)
            arrays = [_array(one) for one in self.filled]
            self._read.run(arrays, is_serial=self._is_serial)
            return arrays

    def show(self, arrays: Sequence[torch.Tensor], *, is_written: bool) -> list[torch.Tensor]:
        """Return the tensors that managers read from output fields.

        The fields are first filled from `arrays` unless `is_written`.
        """
        with FIELDS_LOCK, self._ready():
            if not is_written:
                self._write.run(plain(arrays), is_serial=self._is_serial)
            tensors = [_tensor(one) for one in self.outputs]
            self._show.run(tensors, is_serial=self._is_serial)
            return tensors

    def pull_shown(
        self, cotangents: Sequence[torch.Tensor], arrays: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return the gradients of output arrays from cotangents of the managers' tensors.

        `given` is what the call filled fields from.
        """
        with FIELDS_LOCK, self._ready():
            self._fill_again(given)
            self._write.run(plain(arrays), is_serial=self._is_serial)
            self._give.run(plain(cotangents), is_serial=self._is_serial)
            gradients = [_array(one) for one in self.differentiated]
            self._take_given.run(gradients, is_serial=self._is_serial)
            return gradients

    def pull_filled(
        self, cotangents: Sequence[torch.Tensor], given: Sequence[torch.Tensor], *, is_filled: bool
    ) -> list[torch.Tensor]:
        """Return the gradients of the input tensors from cotangents of their arrays.

        `is_filled` says that fields still hold `given`.
        """
        with FIELDS_LOCK, self._ready():
            if not is_filled:
                self._fill_again(given)
            self._put.run(plain(cotangents), is_serial=self._is_serial)
            gradients = [_tensor(one) for one in self.active]
            self._collect.run(gradients, is_serial=self._is_serial)
            return gradients

    def _fill_again(self, tensors: Sequence[torch.Tensor]) -> None:
        if self._reset is not None:
            self._reset()
        self._fill.run(plain(tensors), is_serial=self._is_serial)

    def _ready(self) -> AbstractContextManager[None]:
        one = (*self.filled, *self.outputs)[0]
        one.check_alive(self.layer)
        one.engine.require_ready(self.layer)
        return keep_order(one.engine, torch.device(one.runs_on), self.layer)


class ManagedCall:
    """One call: tensors become arrays, and arrays tensors. Both are differentiable.

    Attributes:
        loads: how often managers had filled fields when a backward pass last filled this call's; -1 before.
    """

    def __init__(self, copies: ManagedCopies) -> None:
        self.copies = copies
        self.loads = -1
        self._given: list[torch.Tensor] = []

    def fill(self, memory: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Replace the tensors of managed fields by arrays of what their managers fill in. Return all."""
        filled, copies = list(memory), self.copies
        self._given = [memory[place] for place in copies.filled_places]
        if self._given:
            arrays = _Fill.apply(self, *self._given) if _is_seen(self._given) else copies.fill(self._given)
            for place, one in zip(copies.filled_places, arrays, strict=True):
                filled[place] = one
        return filled

    def show(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Replace the arrays of managed outputs by the tensors that their managers read. Return all results."""
        shown, copies = list(results), self.copies
        arrays = [results[place] for place in copies.output_places]
        # Taken out, so that a graph that holds this call does not keep the tensors alive.
        given, self._given = [one.detach() for one in self._given], []
        if arrays:
            is_seen, is_written = _is_seen([*arrays, *given]), is_plain()
            tensors = (
                _Show.apply(self, is_written, *arrays, *given)
                if is_seen
                else copies.show(arrays, is_written=is_written)
            )
            for place, one in zip(copies.output_places, tensors, strict=True):
                shown[place] = one
        return shown


@dataclass(frozen=True, eq=False)
class _Step:
    """One step of a backward pass: gradients of the fields `results`, from tensors; the first `count` are cotangents.

    One that `is_shown` belongs to outputs, and the others to filled fields. One that `is_mapped` runs for many samples.
    """

    call: ManagedCall
    is_shown: bool
    count: int
    results: tuple[LayerField, ...]
    is_mapped: bool = False

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        call, copies = self.call, self.call.copies
        cotangents, rest = tensors[: self.count], tensors[self.count :]
        with FIELDS_LOCK:
            if self.is_shown:
                until = len(copies.outputs)
                gradients = copies.pull_shown(cotangents, rest[:until], rest[until:])
            else:
                is_filled = call.loads == ManagedLoads.count and not self.is_mapped
                gradients = copies.pull_filled(cotangents, rest, is_filled=is_filled)
            call.loads = -1 if self.is_mapped else ManagedLoads.count
        return gradients


class _ManagedFunction(FieldFunction):
    """A Function of managers' copies."""

    @classmethod
    def describe_forward_mode(cls, ctx: Any) -> tuple[str, Sequence[tuple[str, ...]], str]:  # noqa: ARG003
        return "a field manager moves its gradients, and only backwards", (), "Leave out the field manager"


class _Fill(_ManagedFunction):
    """From tensors to arrays, by managers."""

    @staticmethod
    def forward(call: ManagedCall, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(call.copies.fill(tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[torch.Tensor, ...]) -> None:
        ctx.call, *tensors = inputs
        ctx.layer = ctx.call.copies.layer
        _mark_silent(ctx, ctx.call.copies.filled, output)
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        copies = ctx.call.copies
        wanted = [gradient for one, gradient in zip(copies.filled, cotangents, strict=True) if one.has_gradient]
        if not wanted:
            return (None, *[None for _ in copies.filled])
        gradients = iter(
            _PullBack.apply(_Step(ctx.call, False, len(wanted), copies.active), *wanted, *ctx.saved_tensors)
        )
        return (None, *[next(gradients) if one.has_gradient else None for one in copies.filled])

    @staticmethod
    def one_sample(arguments: tuple[Any, ...]) -> OneSample:
        (call,) = arguments
        return OneSample((call,), [one.without_manager for one in call.copies.filled])


class _Show(_ManagedFunction):
    """From arrays to tensors, by managers. What fields were filled from comes last."""

    @staticmethod
    def forward(call: ManagedCall, is_written: bool, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(call.copies.show(tensors[: len(call.copies.outputs)], is_written=is_written))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[torch.Tensor, ...]) -> None:
        ctx.call, _, *tensors = inputs
        ctx.layer = ctx.call.copies.layer
        _mark_silent(ctx, ctx.call.copies.outputs, output)
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        copies = ctx.call.copies
        rest = (None,) * len(copies.filled)
        wanted = [gradient for one, gradient in zip(copies.outputs, cotangents, strict=True) if one.has_gradient]
        if not wanted:
            return (None, None, *[None for _ in copies.outputs], *rest)
        step = _Step(ctx.call, True, len(wanted), tuple([one.without_manager for one in copies.differentiated]))
        gradients = iter(_PullBack.apply(step, *wanted, *ctx.saved_tensors))
        return (None, None, *[next(gradients) if one.has_gradient else None for one in copies.outputs], *rest)

    @staticmethod
    def one_sample(arguments: tuple[Any, ...]) -> OneSample:
        call, _ = arguments
        return OneSample((call, False), call.copies.outputs)


class _PullBack(_ManagedFunction):
    """A step of a backward pass. It has no derivative: no manager says what it would be."""

    @staticmethod
    def forward(step: _Step, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(step.run(tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.layer = inputs[0].call.copies.layer

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise refuse_second(ctx.layer, "a field manager moves its gradients", "the field manager")

    @staticmethod
    def one_sample(arguments: tuple[Any, ...]) -> OneSample:
        (step,) = arguments
        return OneSample((replace(step, is_mapped=True),), step.results)


def _is_seen(tensors: Sequence[torch.Tensor]) -> bool:
    """Return True if autograd or a transform must follow operations on these tensors."""
    return not is_plain() or (torch.is_grad_enabled() and any([one.requires_grad for one in tensors]))  # noqa: C419


def _managed_places(fields: Sequence[LayerField]) -> tuple[int, ...]:
    return tuple([place for place, one in enumerate(fields) if one.manager is not None])


def _mark_silent(ctx: Any, fields: Sequence[LayerField], tensors: Sequence[torch.Tensor]) -> None:
    pairs = zip(fields, tensors, strict=True)
    ctx.mark_non_differentiable(*[tensor for one, tensor in pairs if not one.has_gradient])


def _build_transfers(
    fields: Sequence[LayerField], managers: Kind, ours: Kind, *, is_gradient: bool = False
) -> list[Transfer]:
    """Build two transfers of the same fields: one through their managers, and one that copies their memory directly.

    `managers` and `ours` are the directions of these two, "load" or "store"; callers pass opposite ones.
    """
    copied = [(gradient_field(o.field), o.gradient_facts) if is_gradient else (o.field, o.facts) for o in fields]
    managed = zip(copied, fields, strict=True)
    by_managers = [Copy(managers, *place, one.manager, is_gradient) for place, one in managed]
    by_us = [Copy(ours, *place) for place in copied]
    engine: Any = fields[0].engine if fields else None  # which nothing is copied with
    return [Transfer(engine, by_managers), Transfer(engine, by_us)]


def _array(one: LayerField) -> torch.Tensor:
    return torch.empty(one.facts.shape + one.facts.element, dtype=one.facts.dtype, device=one.runs_on)


def _tensor(one: LayerField) -> torch.Tensor:
    return torch.empty(one.memory_shape, dtype=one.memory_dtype, device=one.runs_on)
