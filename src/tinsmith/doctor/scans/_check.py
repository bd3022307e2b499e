"""The check of a scan: its gradient against central differences after increasing numbers of steps, and its growth."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ... import _offers
from ..._errors import ArgumentError, CheckError, refusal
from ..._suggestions import unknown_option
from ...operation.examination import describe_non_finite, examine_call
from ...time import Given, make_step, scan, take_apart
from ..gradients import convert_to_double, draw_normal, draw_same_numbers, find_greatest
from ._non_finite import describe_origin
from ._result import Horizon, ScanCheck, Verdict

Loss = Callable[[Any, Any], Tensor]


def check_scan(
    step: Any,
    state: Any,
    inputs: Any = None,
    *,
    length: int | None = None,
    parameters: Any = (),
    loss: Loss | None = None,
    horizons: Sequence[int] | None = None,
    **options: Any,
) -> ScanCheck:
    """Compare a scan's gradient with central differences after 1, 2, 4, ... steps, and measure its growth.

    Each horizon uses one random direction in all floats at once: state, inputs, parameters; in float64 if the step
    supports it. In a chaotic simulation, differences of distant states carry no information; such a horizon is
    "unclear". The growth is the norm of the gradient of the loss after the last step by the state before each step.

    Args:
        step: as for `scan`.
        state: the initial state, as for `scan`. It is not changed.
        inputs: as for `scan`.
        length: as for `scan`.
        parameters: as for `scan`.
        loss: maps `(state, outputs)`, as the scan returns them, to a number; by default a random sum of the last state.
        horizons: numbers of steps to compare after; by default powers of two and the length.
        options: `checkpoint`, `memory` and `unroll` of `scan`.

    Returns:
        A `ScanCheck`: `.ok`, `.verdict`, `.horizons`, `.sizes`, `.explodes_at`, `.plot()`; print it to read it.

    Raises:
        ArgumentError, ShapeError, DtypeError, GradientError: as `scan` does.
        ArgumentError: the loss is not finite, and neither is a tensor that was passed.
        CheckError: the loss is not finite.

    Example:
        >>> def swing(state, _):
        ...     x, v = state
        ...     v = v - 0.1 * torch.sin(x)
        ...     return (x + 0.1 * v, v), None
        >>> ts.scan.check(swing, (torch.ones(2), torch.zeros(2)), length=100).verdict
        'right'
    """
    odd = sorted(set(options) - {"checkpoint", "memory", "unroll"})
    if odd:
        known = [name for name in inspect.signature(check_scan).parameters if name != "options"]
        raise ArgumentError(unknown_option("ts.scan.check", odd[0], [*known, "checkpoint", "memory", "unroll"]))
    given = [Given(*take_apart(one)) for one in (state, inputs, parameters)]
    made = make_step(step, *given)
    rows = given[1].tensors
    count = length if length is not None else len(rows[0]) if rows and rows[0].dim() else 0
    subject = _Subject(step, given, loss, options)
    with draw_same_numbers():
        _run_once(subject, count)
        subject, notes = _widen(subject, made)
        wanted = _horizons(horizons, count)
        compared = [_compare_beside_kinks(subject, steps) for steps in wanted]
        sizes, origin = _measure_growth(subject, count)
    return ScanCheck(made.name, tuple(compared), sizes, tuple(notes), origin)


@dataclass(frozen=True)
class _Subject:
    """A scan as a function of tensors.

    Attributes:
        step: the user's step.
        given: state, inputs and parameters, flattened.
        loss: a function of state and outputs; None for a random sum of the state.
        options: the options of `scan`.
    """

    step: Any
    given: Sequence[Given]
    loss: Loss | None
    options: Mapping[str, Any]

    @property
    def point(self) -> list[Tensor]:
        """The tensors that are differentiated: the floats among state, inputs and parameters."""
        return [one for given in self.given for one in given.tensors if one.is_floating_point()]

    def replace(self, tensors: Sequence[Tensor]) -> _Subject:
        """Return the same scan with other values for the differentiated tensors."""
        replacements = iter(tensors)

        def other(leaf: Any) -> Any:
            return next(replacements) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

        given = [Given([other(leaf) for leaf in one.leaves], one.tree) for one in self.given]
        return _Subject(self.step, given, self.loss, self.options)

    def value(self, steps: int) -> Tensor:
        """Compute the loss after some steps, in float64."""
        state, inputs, parameters = (
            one.tree.put_together([leaf[:steps] for leaf in one.leaves] if place == 1 else one.leaves)
            for place, one in enumerate(self.given)
        )
        options = {**self.options, "parameters": parameters}
        with draw_same_numbers():
            return self.loss_of(*scan(self.step, state, inputs, length=steps, **options))

    def loss_of(self, state: Any, outputs: Any) -> Tensor:
        """Compute the loss from the state and outputs of a scan, in float64."""
        if self.loss is not None:
            return self.loss(state, outputs).double()
        generator = torch.Generator().manual_seed(0)
        leaves = [one for one in take_apart(state)[0] if one.is_floating_point()]
        weights = [draw_normal(one, generator) for one in leaves]
        count = sum(one.numel() for one in leaves)
        total = torch.stack([(w * one.double()).sum() for w, one in zip(weights, leaves, strict=True)]).sum()
        return total / math.sqrt(max(count, 1))


def _run_once(subject: _Subject, count: int) -> None:
    """Run the scan once as it is given, so that its errors are raised. Raise CheckError if the loss is not finite, or
    ArgumentError if what was passed is not finite either.
    """
    with torch.no_grad():
        if not subject.value(count).isfinite():
            _refuse_non_finite(subject)
            subject = _Subject(subject.step, subject.given, subject.loss, {**subject.options, "check_finite": True})
            subject.value(count)
            words = "the loss of a scan is not finite, although its states are"
            remedy = "Look in `loss` for a division by zero, a logarithm of zero or an overflow."
            raise CheckError(refusal(words, remedy=remedy))


def _refuse_non_finite(subject: _Subject) -> None:
    pairs = zip(("state", "inputs", "parameters"), subject.given, strict=True)
    named = [pair for root, one in pairs for pair in zip(one.tree.names(root), one.leaves, strict=True)]
    tensors = [(name, leaf) for name, leaf in named if isinstance(leaf, Tensor)]
    odd = [(name, words) for name, leaf in tensors if (words := describe_non_finite(name, leaf))]
    if odd:
        words = "ts.scan.check takes finite numbers where its loss depends on them"
        raise ArgumentError(refusal(words, odd, "Pass finite numbers: at others, no gradient can be compared."))


def _widen(subject: _Subject, made: Any) -> tuple[_Subject, list[str]]:
    """Return the scan in float64 if its step supports it, or else unchanged; and a note that says which."""
    wide = subject.replace([one.detach().double() for one in subject.point])
    own = subject.replace([one.detach() for one in subject.point])
    if made.op is not None:
        arguments, named = made.arrange(*_list_first_arguments(wide.given))
        if convert_to_double(examine_call(made.op, tuple(arguments), named, "ts.scan.check")) is not None:
            return wide, ["in float64"]
    else:
        try:
            with torch.no_grad():
                states, _ = made(*_list_first_arguments(wide.given))
            if all(one.dtype == torch.float64 for one in states if one.is_floating_point()):
                return wide, ["in float64"]
        except Exception as error:  # noqa: BLE001  # the step is the user's code; the note has the reason
            return own, [
                f"in the step's own precision: in float64 it raises {str(error).strip().splitlines()[0]!r:.80}"
            ]
    return own, ["in the step's own precision, which is less than float64"]


def _list_first_arguments(given: Sequence[Given]) -> tuple[list[Any], list[Any], list[Tensor]]:
    """Return the arguments of the first step: state, one row of the inputs, and parameters."""
    state, inputs, parameters = given
    return [one.clone() for one in state.leaves], [one[0] for one in inputs.leaves], parameters.tensors


def _horizons(wanted: Sequence[int] | None, count: int) -> list[int]:
    powers = [2**power for power in range(count.bit_length()) if 2**power < count]
    steps = sorted({*powers, count} if wanted is None else set(wanted))
    odd = [one for one in steps if not 0 < one <= count]
    if odd or not steps:
        words = "`horizons` of ts.scan.check are numbers of steps, from 1 to the length of the scan"
        rows = [("length", str(count)), ("got", ", ".join(map(str, odd or steps)) or "none")]
        raise ArgumentError(refusal(words, rows, "Leave it out for 1, 2, 4, ... and the length."))
    return steps


def _compare_beside_kinks(subject: _Subject, steps: int) -> Horizon:
    """Compare the derivative after some steps with differences. If it seems wrong, compare it at a nearby point too.

    Simulations often begin at a kink, such as a body that rests on the floor. There the difference is the mean of two
    slopes and the gradient is one of them; at a nearby point, each number is on one side or the other.
    """
    horizon = _compare(subject, steps)
    if horizon.verdict != "wrong":
        return horizon
    generator = torch.Generator().manual_seed(-1)
    moved = [one + (1e-4 * _draw_direction(one, generator)).to(one) for one in subject.point]
    beside = _compare(subject.replace(moved), steps)
    return horizon._replace(verdict="at a kink") if beside.verdict == "right" else horizon


def _draw_direction(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a random direction in proportion to a tensor's largest finite number, which is taken as at least 1e-3.

    It is 0 along infinities and NaN, which cannot be moved.
    """
    drawn = max(find_greatest(tensor), 1e-3) * draw_normal(tensor, generator)
    return torch.where(tensor.isfinite(), drawn, 0.0)


def _compare(subject: _Subject, steps: int) -> Horizon:
    """Compare the derivative after some steps, along a random direction, with central differences."""
    generator = torch.Generator().manual_seed(steps)
    point = subject.point
    # Directions are proportional to the tensors' sizes, so each tensor has the same relative change.
    directions = [_draw_direction(one, generator) for one in point]
    leaves = [one.clone().requires_grad_() for one in point]
    with torch.enable_grad():
        here = subject.replace(leaves).value(steps)
        gradient = torch.autograd.grad(here, leaves, allow_unused=True, materialize_grads=True)
    products = [(one.double() * two).flatten() for one, two in zip(gradient, directions, strict=True)]
    derivative = sum(one.sum().item() for one in products)
    scale = math.sqrt(sum(one.square().sum().item() for one in products))

    def value(distance: float) -> float:
        moved = [one + (distance * two).to(one) for one, two in zip(point, directions, strict=True)]
        return subject.replace(moved).value(steps).item()

    is_double = all(one.dtype == torch.float64 for one in point)
    with torch.no_grad():
        difference, noise = _measure_difference(value, here.item(), is_double=is_double)
    verdict = _verdict(derivative, scale, difference, noise, 1e-5 if is_double else 2e-2)
    return Horizon(steps, derivative, difference, noise, scale, verdict)


def _measure_difference(value: Callable[[float], float], here: float, *, is_double: bool) -> tuple[float, float]:
    """Return the central difference of a function along a line, and its estimated error.

    Steps decrease by factors of ten; of three consecutive ones, those whose differences agree best are used. Small
    steps suffer from rounding and large ones from curvature; in between, there is a range without either. A chaotic
    simulation has no such range, and three of its differences do not agree by chance.
    """
    precision = torch.finfo(torch.float64 if is_double else torch.float32).eps
    steps = [10.0**-power for power in (range(3, 13) if is_double else range(1, 6))]
    slopes = [(value(step) - value(-step)) / (2 * step) for step in steps]
    noises = [precision * abs(here) / step for step in steps]
    triples = [
        (max(slopes[at : at + 3]) - min(slopes[at : at + 3]) + noises[at + 1], slopes[at + 1])
        for at in range(len(steps) - 2)
    ]
    noise, slope = min(triples, key=lambda one: one[0] if math.isfinite(one[0]) else math.inf)
    return slope, noise


def _verdict(derivative: float, scale: float, difference: float, noise: float, tolerance: float) -> Verdict:
    if not math.isfinite(derivative):
        return "not finite"
    if not math.isfinite(noise):
        return "unclear"
    if abs(derivative - difference) <= tolerance * scale + noise and noise <= 0.1 * scale:
        return "right"
    return "unclear" if noise > 0.1 * abs(difference) else "wrong"


def _measure_growth(subject: _Subject, count: int) -> tuple[Tensor, str]:
    """Return the norms of the gradient by the state before each step and after the last, and what made the gradient
    non-finite, or "".
    """
    state, inputs, parameters = subject.given
    made = make_step(subject.step, state, inputs, parameters)
    squares = torch.zeros(count + 1, dtype=torch.float64)

    def step_with_hooks(now: Sequence[Tensor], row: Sequence[Tensor], *others: Tensor) -> tuple[Any, Any]:
        number, *row = row
        now = [_add_hook(one, squares, number) for one in now]
        following, outputs = made(now, row, others)
        return tuple(following), tuple(outputs) or None

    rows = torch.arange(count), *inputs.leaves
    options = {**subject.options, "parameters": tuple(parameters.tensors)}
    with torch.enable_grad(), draw_same_numbers():
        leaves = [one.detach().requires_grad_(one.is_floating_point()) for one in state.leaves]
        last, outputs = scan(step_with_hooks, tuple(leaves), rows, length=count, **options)
        last = [_add_hook(one, squares, torch.tensor(count)) for one in last]
        rest = None if made.outputs is None else made.outputs.put_together(outputs or ())
        value = subject.loss_of(state.tree.put_together(last), rest)
        torch.autograd.grad(value, [one for one in leaves if one.requires_grad], allow_unused=True)
    sizes = squares.sqrt()
    odd = (~sizes.isfinite()).nonzero()
    is_of_step = len(odd) and int(odd[-1]) < count
    return sizes, _describe_origin_in(subject, made, int(odd[-1])) if is_of_step else ""


def _add_hook(tensor: Tensor, squares: Tensor, number: Tensor) -> Tensor:
    """Return a view of a tensor with a hook that adds the square of its gradient to `squares[number]`."""
    if not tensor.requires_grad:
        return tensor
    place = int(number)

    def add(gradient: Tensor) -> None:
        squares[place] += gradient.detach().double().square().sum().cpu()

    alias = tensor.view_as(tensor)
    alias.register_hook(add)
    return alias


def _describe_origin_in(subject: _Subject, made: Any, number: int) -> str:
    """Describe the operation that made the gradient infinite or NaN in step `number`."""
    state, inputs, parameters = subject.given
    now = state.leaves
    if number:
        begin = state.tree.put_together(state.leaves), inputs.tree.put_together([one[:number] for one in inputs.leaves])
        options = {**subject.options, "parameters": parameters.tree.put_together(parameters.leaves)}
        with torch.no_grad(), draw_same_numbers():
            now = take_apart(scan(subject.step, *begin, length=number, **options)[0])[0]
    rows = describe_origin(made, now, [one[number] for one in inputs.leaves], parameters.tensors, in_gradient=True)
    return ", ".join(" ".join(row) for row in rows)


_offers.checking_scan.register(check_scan)
_offers.describing_origin.register(describe_origin)
