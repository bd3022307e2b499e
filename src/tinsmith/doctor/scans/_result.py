"""The result of a check of a scan: its gradient for each horizon, and how the gradient grows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from typing_extensions import deprecated

from ..._errors import CheckError
from ..._extras import require_packages
from ..._html import write_paragraphs, write_table

GROWTH = 1e6
"""A gradient explodes if its norm is this many times the norm at the end."""

_COLORS = {
    "right": "tab:green",
    "at a kink": "tab:olive",
    "wrong": "tab:red",
    "unclear": "0.6",
    "not finite": "tab:red",
}

Verdict = Literal["right", "at a kink", "wrong", "unclear", "not finite"]


class Horizon(NamedTuple):
    """The derivative of a loss after some steps, along one random direction.

    Attributes:
        steps: the number of steps.
        gradient: the derivative by the scan's gradient.
        difference: by central differences of the scan's values.
        noise: estimated error of the difference from rounding and curvature.
        scale: the size of derivatives along such directions.
        verdict: "unclear" if the noise of the differences is as large as the derivative; "at a kink" if the gradient is
            one of two slopes, and right at nearby points.
    """

    steps: int
    gradient: float
    difference: float
    noise: float
    scale: float
    verdict: Verdict

    @property
    def relative_error(self) -> float:
        """The absolute difference of gradient and difference quotient, divided by the scale."""
        return abs(self.gradient - self.difference) / (self.scale or 1.0)

    @property
    @deprecated("`Horizon.apart` is named `relative_error` now")
    def apart(self) -> float:
        """The old name of `relative_error`."""
        return self.relative_error


@dataclass(frozen=True)
class ScanCheck:
    """The result of checking a scan. Print it, `plot` it, or call `raise_if_failed()`.

    Attributes:
        name: the name of the step.
        horizons: gradient and differences after increasing numbers of steps.
        sizes: norms of the gradient by the state: `sizes[t]` before step `t`, the last one after the last step.
        notes: how the scan was checked.
        origin: what produced the first number that is not finite, if there is one.

    Example:
        >>> def grow(x, _):
        ...     return 1.1 * x, None
        >>> check = ts.scan.check(grow, torch.ones(3), length=200)
        >>> check.verdict, check.explodes_at
        ('explodes', 55)
    """

    name: str
    horizons: tuple[Horizon, ...]
    sizes: torch.Tensor
    notes: tuple[str, ...] = ()
    origin: str = ""

    @property
    @deprecated("`ScanCheck.birth` is named `origin` now")
    def birth(self) -> str:
        """The old name of `origin`."""
        return self.origin

    @property
    def reference(self) -> float:
        """The norm of the gradient where it starts: after the last step whose state the loss depends on."""
        there = self.sizes[self.sizes.isfinite() & (self.sizes > 0)]
        return there[-1].item() if len(there) else 0.0

    @property
    def explodes_at(self) -> int | None:
        """The step before which the norm is a million times `reference`. None if it stays below."""
        beyond = (self.sizes > GROWTH * self.reference).nonzero()
        return int(beyond[-1]) if len(beyond) else None

    @property
    def vanishes_at(self) -> int | None:
        """The step before which the norm is less than a millionth of `reference`. None if it stays above."""
        end = int((self.sizes == self.reference).nonzero()[-1]) if self.reference else 0
        below = (self.sizes[:end] < self.reference / GROWTH).nonzero()
        return int(below[-1]) if len(below) else None

    @property
    def not_finite_at(self) -> int | None:
        """The last step before which the gradient is infinite or NaN."""
        odd = (~self.sizes.isfinite()).nonzero()
        return int(odd[-1]) if len(odd) else None

    @property
    def ok(self) -> bool:
        """True if no horizon is wrong, and all numbers are finite."""
        return self.verdict in ("right", "explodes", "unclear")

    @property
    def verdict(self) -> Literal["right", "wrong", "not finite", "explodes", "unclear"]:
        """The result. "explodes": right, but too large to train with; "unclear": no horizon was comparable."""
        verdicts = [one.verdict for one in self.horizons]
        if "wrong" in verdicts:
            return "wrong"
        if "not finite" in verdicts or self.not_finite_at is not None:
            return "not finite"
        if self.explodes_at is not None:
            return "explodes"
        return "right" if {"right", "at a kink"} & {*verdicts} else "unclear"

    def raise_if_failed(self) -> None:
        """Raise CheckError with the printed result, unless `.ok`."""
        __tracebackhide__ = True
        if not self.ok:
            raise CheckError(str(self))

    def plot(self, path: str | Path | None = None) -> Any:
        """Plot with matplotlib the norm of the gradient before each step, and its error by horizon.

        Returns the figure, which is also written to `path` if passed.
        """
        return _plot(self, path)

    def __repr__(self) -> str:
        return f"<tinsmith check of a scan over `{self.name}`, {len(self.sizes) - 1} steps: {self.verdict}>"

    def _repr_html_(self) -> str:
        """Return the result as HTML for notebooks: a table of the horizons."""
        head, *notes = self._describe()
        rows = [
            (f"{one.steps}", f"{one.gradient:.4g}", f"{one.difference:.4g}", _format_error(one).strip(), one.verdict)
            for one in self.horizons
        ]
        table = write_table(head, rows, ("steps", "gradient", "differences", "error", "verdict"))
        return table + write_paragraphs([*notes, *self._growth()])

    def __str__(self) -> str:
        head, *notes = self._describe()
        lines = [head, *(f"  {note}" for note in notes)]
        lines.append(f"  {'steps':>7}  {'gradient':>12}  {'differences':>12}  {'error':>8}")
        lines += [
            f"  {one.steps:7}  {one.gradient:12.4g}  {one.difference:12.4g}  {_format_error(one)}  {one.verdict}"
            for one in self.horizons
        ]
        return "\n".join([*lines, *(f"  {line}" for line in self._growth())])

    def _describe(self) -> list[str]:
        """Return the verdict in a sentence, then the notes."""
        return [f"the gradient of a scan over `{self.name}`, {len(self.sizes) - 1} steps: {self.verdict}", *self.notes]

    def _growth(self) -> list[str]:
        """Return lines about how the gradient by the state grows, from the last step to the first."""
        sizes = self.sizes
        steps = len(sizes) - 1
        lines = [
            f"the gradient by the state: {sizes[-1]:.2e} long after the last step, {sizes[0]:.2e} before the first"
        ]
        if self.not_finite_at is not None:
            lines.append(f"it is not finite before step {self.not_finite_at}, and before all earlier ones")
        elif self.explodes_at is not None:
            lines.append(f"it explodes: a million times as long before step {self.explodes_at}, {self._rate()}")
        elif self.vanishes_at is not None:
            lines.append(f"it vanishes: a millionth as long before step {self.vanishes_at}, {self._rate()}")
        if self.origin:
            lines.append(self.origin)
        ratios = (sizes[:-1] / sizes[1:]).nan_to_num(0.0, 0.0, 0.0)
        if steps > 1 and self.explodes_at is not None and ratios.max() > 2:
            worst = int(ratios.argmax())
            lines.append(f"most of all in step {worst}, which makes it {ratios[worst]:.3g} times as long")
        return lines

    def _rate(self) -> str:
        first, steps = self.sizes[0].item(), len(self.sizes) - 1
        rate = math.exp((math.log(first) - math.log(self.reference)) / steps) if first > 0 else 0.0
        return f"{rate:.4g} times a step on average"


def _format_error(horizon: Horizon) -> str:
    return f"{horizon.relative_error:8.1e}" if horizon.verdict in ("right", "at a kink", "wrong") else " " * 8


def _plot(check: ScanCheck, path: str | Path | None) -> Any:
    """Draw the figure of `ScanCheck.plot`, and write it to `path` if one is given."""
    require_packages("the figure of a scan", "apps", "matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    sizes = check.sizes
    left.semilogy(range(len(sizes)), sizes.clamp(min=1e-300).tolist(), lw=1.2)
    left.set(title="gradient by the state", xlabel="step", ylabel="length")
    if check.explodes_at is not None:
        left.axhline(GROWTH * check.reference, color="tab:red", lw=0.8, ls=":")
        left.axvline(check.explodes_at, color="tab:red", lw=0.8, label=f"a million times at step {check.explodes_at}")
        left.legend(fontsize=8)
    for verdict, color in _COLORS.items():
        some = [one for one in check.horizons if one.verdict == verdict]
        if some:
            errors = [max(one.relative_error, 1e-16) for one in some]
            right.loglog([one.steps for one in some], errors, "o", color=color, label=verdict)
    right.set(title="gradient and differences", xlabel="steps", ylabel="relative error")
    right.legend(fontsize=8)
    if path is not None:
        figure.savefig(path)
    return figure
