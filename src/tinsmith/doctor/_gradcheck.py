"""Gradcheck: compares an op's gradient with the oracle's and with central differences, element by element.

The three derivatives are independent: the op's own backward pass; torch's autograd through the interpreted kernel;
differences of the op's values at nearby points. If two agree, the third is wrong.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from .._errors import ArgumentError, BoundsError, GradientError, KernelError, TinsmithError, refusal
from .._integers import read_positive
from ..linter import Finding, drop_suppressed, in_order, join_lines
from ..operation import Op
from ..operation.examination import Cotangents, Examinable, Examination, describe_non_finite, examine_call
from ._budget import OPERATIONS, Budget, TooLong
from ._excerpt import describe_lines
from ._gradcheck_result import Gradcheck
from .gradients import (
    Comparison,
    Function,
    InputDerivatives,
    Mode,
    Modes,
    Steps,
    Tensors,
    Tolerance,
    convert_to_double,
    describe_gradient,
    describe_modes,
    describe_zeros,
    draw_same_numbers,
    find_differing_values,
    make_interpreted_function,
    make_op_function,
    propose,
    pull_back,
    pull_back_in_child,
    random_cotangents,
    skip_modes,
)
from .sanitizer import DryRun, dry_run

LARGE = 4096
"""If the inputs have more elements in all, the gradient is checked along random directions."""
SECONDS = 30.0
"""If differences for all elements would take longer, random directions are used."""


def gradcheck(
    op: Op | Examinable,
    *inputs: Any,
    cotangents: Cotangents | None = None,
    adjoint: str | None = None,
    eps: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    projections: int = 8,
    modes: bool = True,
    **named: Any,
) -> Gradcheck:
    """Compare an op's gradient with the oracle's and with central differences, element by element.

    All three are computed in float64 if the op accepts it and its kernels round nothing to a narrower type. Otherwise
    the op is checked in its own precision, and differences are those of its interpreted kernels. Inputs with more than
    4096 elements in all are checked along random directions, and so is a check that would take longer than half a
    minute. If the interpreter cannot run a kernel within 400,000 operations, the check runs without the oracle, and the
    result says so.

    The kernels are interpreted once before anything is launched. If that run uses an index outside an array, divides an
    integer by zero, reads an element that was never written or does not end, nothing is launched, and the verdict is
    "not compared". So it is where inputs that are not finite make outputs that are not: differences are NaN there.
    Beside finite outputs, only the other inputs are compared.

    An op whose gradient differs from the other two is wrong (TS701). At a kink (`max` of equal numbers) any number
    between the two slopes is a derivative; there, and where no derivative exists, TS702 says which was chosen.

    Args:
        op: an op of `tinsmith.op` or `tinsmith.chain`; its `backward=` is checked if it has one. Or a layer: one that
            runs on tensors is checked as the op that it is. For one on fields the gradient that it uses is checked,
            against the oracle if its kernels could be an op; the contents of fields are preserved.
        inputs: the arguments of a call. They are not changed; integers are not differentiated.
        cotangents: incoming gradients of outputs, as for `oracle`; by default random ones, always the same.
        adjoint: "engine" checks the engine's own reverse mode instead, even if the op would refuse it; "source" checks
            the generated gradient. A gradient that is not available is a finding (TS703).
        eps: step of the differences for numbers up to 1, in proportion for larger ones. 1e-6; in float32 5e-3.
        rtol: tolerance relative to the larger of two derivatives. In float64 1e-6 between op and oracle and 1e-4 for
            differences; 1e-2 in single precision.
        atol: tolerance relative to the largest derivative by that input: 1e-8, 1e-6, and 1e-3.
        projections: number of random directions.
        modes: also compare batches (`vmap(grad)`, `*b`, `jacrev`), forward mode (`jvp`) and second derivatives with
            single backward passes.
        named: inputs by name, and dims that no input fixes.

    Returns:
        A `Gradcheck`: `.ok`, `.findings`, `.inputs`, `.errors` (for heat maps), `.notes`; print it to read it.

    Raises:
        ArgumentError, ShapeError, DtypeError, DeviceError: as a call of the op does, and for invalid cotangents.

    Example:
        >>> @ts.op("x[n] -> y[n]")
        ... @ti.kernel
        ... def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in x:
        ...         y[i] = x[i] * x[i]
        >>> print(ts.gradcheck(square, torch.rand(5)).summary)
        the gradient of op `square`, generated from the kernel's source: right
          in float64
          central differences of the op, step 1e-06, each element
          x  (5)  op - oracle ..., op - differences ...
          vmap(grad)          right
          jacrev              right
          jvp                 right
          second derivatives  right
    """
    projections = read_positive("projections", "`ts.gradcheck`", projections)
    with draw_same_numbers():
        plain = examine_call(op, inputs, named, "ts.gradcheck")  # raises the errors of a call
    with draw_same_numbers():
        call = plain.with_adjoint(adjoint)
    with draw_same_numbers():
        wide = convert_to_double(call)
    options: dict[str, Any] = {"eps": eps, "rtol": rtol, "atol": atol, "projections": projections, "modes": modes}
    with call.preserve_memory():
        return _Check(wide or call, call, is_double=wide is not None, **options).result(cotangents)


class _Check:
    """A single gradient check."""

    def __init__(
        self,
        call: Examination,
        given: Examination,
        *,
        is_double: bool,
        eps: float | None,
        rtol: float | None,
        atol: float | None,
        projections: int,
        modes: bool,
    ) -> None:
        self.call = call
        self.given = given
        self.is_double = is_double
        self.eps = eps
        self.projections = projections
        self.with_modes = modes
        self.exact = _tolerance(rtol, atol, (1e-6, 1e-8) if is_double else (1e-2, 1e-3))
        self.rough = _tolerance(rtol, atol, (1e-4, 1e-6) if is_double else (1e-2, 1e-3))
        self.function = make_op_function(call)
        precision = "in float64" if is_double else f"in the {call.kind}'s own precision, which is less than float64"
        self.notes: list[str] = [precision, *call.notes]
        self.findings: list[Finding] = []
        self.dry_run = DryRun()

    def result(self, given: Cotangents | None) -> Gradcheck:
        """Run the check. `given` are the caller's cotangents; None for random ones."""
        values = {name: one.detach() for name, one in self.call.differentiable.items()}
        self.dry_run = dry_run(self.call)
        if not self.dry_run.obstacle and (self.dry_run.unknown or self.call.gradient == "backward"):
            self.dry_run = replace(self.dry_run, hazards=self._find_guarded_hazards(values))
        if self.dry_run.obstacle:
            return self._report_left_out(self.dry_run.obstacle, hazards=self.dry_run.hazards)
        with torch.no_grad():
            self.function(values)  # compiles
            (here, taken), (again, taken_again) = (_run_timed(self.function, values) for _ in range(2))
        taken = min(taken, taken_again)
        form = "{} at one call and {} at the next, with the same inputs"
        self._compare_values(here, again, (1e-9, 1e-3), form)
        odd = self.call.non_finite_inputs
        is_finite = all(bool(one.isfinite().all()) for one in here.values())
        if odd and (not is_finite or set(values) <= set(odd)):
            return self._report_left_out("; ".join(odd.values()), "pass finite numbers")
        cotangents = random_cotangents(here) if given is None else self._check_cotangents(given, here)
        try:
            if self.call.origin(frozenset(values)) == "engine":
                mine = pull_back_in_child(self.call, values, cotangents)
            else:
                with _fill_new_memory_with_nan():
                    mine = pull_back(self.function, values, cotangents)
        except GradientError as reason:
            return self._report_refusal(reason)
        oracle, interpreted = self._compute_oracle(values, cotangents)
        if interpreted is not None and not self.findings:
            self._compare_values(here, interpreted[1], (1e-6, 1e-2), "{}, its interpreted kernels {}")
        if not values or not here:
            what = "output" if values else "input"
            self.notes = [f"no {what} is a tensor of floats, so no gradient was compared"]
            return self._build_result()
        steps, seconds = self._choose_steps(values, cotangents, here, interpreted, taken)
        count = sum(one.numel() for one in values.values())
        directions = self.projections if count > LARGE or 2 * count * seconds > SECONDS else 0
        whose = f"the {self.call.kind}" if steps.function is self.function else "its interpreted kernels, in float64"
        how = f"along {directions} random directions an input, for {count:,} elements" if directions else "each element"
        self.notes.append(f"central differences of {whose}, step {steps.eps:g}, {how}")
        is_rough = not self.is_double and interpreted is None
        if is_rough:
            self.notes.append(
                "differences in single precision are rough: with small inputs, the oracle compares exactly"
            )
        comparison = Comparison(steps, self.exact, self.rough, directions, is_rough)
        compared = [comparison.of(name, mine[name], oracle.get(name)) for name in values if name not in odd]
        self.notes += [f"nothing was compared by `{name}`: {odd[name]}" for name in values if name in odd]
        for one in compared:
            self.findings += describe_gradient(self.call, one)
        self._describe_untested(compared, values, cotangents)
        modes = self._compare_modes(compared, values, cotangents) if self.with_modes else ()
        self.findings += describe_modes(self.call, modes)
        return replace(self._build_result(tuple(compared)), modes=modes)

    def _compare_modes(
        self, compared: list[InputDerivatives], values: Tensors, cotangents: Tensors
    ) -> tuple[Mode, ...]:
        """Compare other ways to differentiate with the backward pass, if the backward pass is right."""
        reasons = {
            "the gradient is wrong already": any(one.severity == "error" for one in self.findings),
            "nothing was tested": all(one.why_untested for one in compared),
            "the gradient is the engine's own": self.call.origin(frozenset(values)) == "engine",
            "the op draws random numbers": self.call.draws,
            "the inputs are too large": sum(one.numel() for one in values.values()) > LARGE,
        }
        reason = next((words for words, holds in reasons.items() if holds), "")
        if reason:
            return skip_modes(self.call, reason)
        return Modes(self.call, values, cotangents, self.exact, self.is_double).compare()

    def _describe_untested(self, compared: list[InputDerivatives], values: Tensors, cotangents: Tensors) -> None:
        """Report inputs by which all derivatives are 0, propose inputs by which they are not, and note lines that never
        ran.
        """
        zeros = [one.name for one in compared if one.is_zero]
        if zeros:
            dtypes = {name: one.dtype for name, one in self.given.inputs.items()}
            proposal = None if self.dry_run.unknown else propose(self.call, values, cotangents, zeros, dtypes)
            all_zero = all(one.why_untested for one in compared)
            self.findings.append(describe_zeros(self.call, zeros, proposal, all_zero=all_zero))
        if self.dry_run.unreached:
            self.notes.append(f"{describe_lines(self.dry_run.unreached)} never ran at these inputs, so not tested")

    def _build_result(self, compared: tuple[InputDerivatives, ...] = (), *, was_refused: bool = False) -> Gradcheck:
        origin = _ORIGINS[self.call.origin(frozenset(self.call.differentiable))]
        findings = drop_suppressed(in_order(self.findings))
        return Gradcheck(
            self.call.name, origin, findings, compared, tuple(self.notes), was_refused, kind=self.call.kind
        )

    def _report_refusal(self, reason: GradientError) -> Gradcheck:
        path, line = self.call.starts[0]
        words = join_lines(str(reason))
        self.findings.append(Finding("TS703", "error", path, line, 0, f"the gradient is refused: {words}"))
        self.notes.append("the gradient was refused, so there is nothing to compare")
        return self._build_result(was_refused=True)

    def _find_guarded_hazards(self, values: Tensors) -> list[Finding]:
        """Find indices out of bounds in a compiled run with bounds checks, for kernels that the interpreter did not run
        to the end.
        """
        try:
            function = make_op_function(self.call.with_bounds_checked())
            with torch.no_grad():
                outputs = function(values)
            if self.call.origin(frozenset(values)) != "engine":
                pull_back(function, values, random_cotangents(outputs))
        except BoundsError as reason:
            words = join_lines(str(reason))
            return [Finding("TS604", "error", reason.path, reason.line, 0, words)]
        except TinsmithError:  # the kernel has no guarded form, or no gradient: go on without
            return []
        return []

    def _check_cotangents(self, given: Cotangents, outputs: Tensors) -> Tensors:
        """Return the caller's cotangents by output. Raise ArgumentError if they do not fit, or are not finite."""
        cotangents = self.call.cotangents(given, outputs)
        odd = [(name, words) for name, one in cotangents.items() if (words := describe_non_finite(name, one))]
        if odd:
            headline = f"ts.gradcheck of {self.call.title} takes finite cotangents"
            raise ArgumentError(refusal(headline, odd, "Leave `cotangents` out for random ones."))
        return cotangents

    def _report_left_out(self, obstacle: str, remedy: str = "", hazards: Sequence[Finding] = ()) -> Gradcheck:
        """Build the result of a check that compared nothing, with the reason as an error."""
        path, line = self.call.starts[0]
        words = f"the gradient check was left out: {obstacle}"
        self.findings += hazards or [Finding("TS002", "error", path, line, 0, words, remedy)]
        self.notes = []
        return replace(self._build_result(), obstacle=obstacle)

    def _compute_oracle(
        self, values: Tensors, cotangents: Tensors
    ) -> tuple[Tensors, tuple[Function, Tensors, float] | None]:
        """Return the oracle's gradient, and the interpreted op with its outputs and its time in seconds. Return ({},
        None) without an oracle.
        """
        if self.dry_run.unknown:
            self.notes.append(f"without the oracle: {self.dry_run.unknown}")
            return {}, None
        wide = {name: one.double() for name, one in values.items()}
        try:
            gradient = pull_back(make_interpreted_function(self.call, Budget(OPERATIONS)), wide, cotangents)
            plain = make_interpreted_function(self.call)
            begin = time.perf_counter()
            with torch.no_grad():
                outputs = plain(wide)
            return gradient, (plain, outputs, time.perf_counter() - begin)
        except TooLong:
            self.notes.append(f"without the oracle: it would take more than {OPERATIONS:,} operations")
        except KernelError as reason:
            self.notes.append(f"without the oracle: {_first_line(reason)}")
        return {}, None

    def _compare_values(self, mine: Tensors, theirs: Tensors, tolerances: tuple[float, float], form: str) -> None:
        """Report the first output element on which two runs of the op differ."""
        place = find_differing_values(mine, theirs, tolerances[not self.is_double])
        if place is None:
            return
        name, index, one, other = place
        path, line = self.call.starts[0]
        words = f"the {self.call.kind} gives `{name}[{index}]` = {form.format(f'{one:.6g}', f'{other:.6g}')}: "
        words += "it depends on the order of its iterations, or on rounding"
        self.findings.append(Finding("TS704", "warning", path, line, 0, words))

    def _choose_steps(
        self,
        values: Tensors,
        cotangents: Tensors,
        here: Tensors,
        interpreted: tuple[Function, Tensors, float] | None,
        taken: float,
    ) -> tuple[Steps, float]:
        """Choose whose differences are taken, the op's or its interpreted kernels'; return them, and the seconds of one
        run.
        """
        if self.is_double or interpreted is None:
            kind = "f64" if self.is_double else "f32"
            precision = 4 * torch.finfo(torch.float64 if self.is_double else torch.float32).eps
            if kind == "f32":
                self.rough = Tolerance(max(self.rough.rtol, 3e-2), max(self.rough.atol, 1e-2))
            return Steps(self.function, values, cotangents, here, self.eps or _EPS[kind], precision), taken
        function, outputs, seconds = interpreted
        wide = {name: one.double() for name, one in values.items()}
        precision = 4 * torch.finfo(torch.float64).eps
        return Steps(function, wide, cotangents, outputs, self.eps or _EPS["f64"], precision), seconds


_EPS = {"f64": 1e-6, "f32": 5e-3}
_ORIGINS = {
    "source": "generated from the kernel's source",
    "engine": "by the engine's own reverse mode",
    "backward": "by a hand-written kernel",
    "race": "which is not generated, since iterations of a parallel loop race",
}


def _tolerance(rtol: float | None, atol: float | None, default: tuple[float, float]) -> Tolerance:
    return Tolerance(default[0] if rtol is None else rtol, default[1] if atol is None else atol)


@contextlib.contextmanager
def _fill_new_memory_with_nan() -> Iterator[None]:
    """Enter a context in which torch fills new memory with NaN, so that elements that a kernel leaves out are
    noticed.
    """
    was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=not was[0] or was[1])
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was[0], warn_only=was[1])


def _run_timed(function: Function, values: Tensors) -> tuple[Tensors, float]:
    begin = time.perf_counter()
    return function(values), time.perf_counter() - begin


def _first_line(reason: TinsmithError) -> str:
    return str(reason).splitlines()[0]
