"""The result of a gradient check: its verdict, its findings, and the derivatives that were compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch

from .._html import write_paragraphs, write_table
from ..linter import Finding, Findings
from .gradients import InputDerivatives, Mode

Verdict = Literal["right", "wrong", "refused", "not compared", "not tested", "nothing to differentiate"]


@dataclass(frozen=True, repr=False)
class Gradcheck:
    """The result of a gradient check. Print it to read it.

    Attributes:
        name: name of the op or layer; `kind` says which it is.
        origin: where the gradient comes from.
        ok: whether there is no finding of severity "error", and the check could launch the op.
        findings: mistakes, each with its rule and line.
        inputs: for each differentiable input, the gradients of the op and the oracle, and differences.
        notes: how the gradient was checked, and what was skipped.
        was_refused: whether there is no gradient, even if a comment suppresses the finding.
        modes: the other ways to differentiate (batches, forward mode, second derivatives), each with its verdict.
        obstacle: why nothing was compared, even if a comment suppresses the finding; empty otherwise.

    Example:
        >>> @ts.op("x[n] -> y[n]")
        ... @ti.kernel
        ... def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in x:
        ...         y[i] = x[i] * x[i]
        >>> result = ts.gradcheck(square, torch.rand(5))
        >>> result.verdict, result.findings, result.errors["x"].shape
        ('right', [], (5,))
    """

    name: str
    origin: str
    findings: list[Finding]
    inputs: tuple[InputDerivatives, ...] = ()
    notes: tuple[str, ...] = field(default=())
    was_refused: bool = False
    obstacle: str = ""
    modes: tuple[Mode, ...] = ()
    kind: Literal["op", "layer"] = "op"

    @property
    def ok(self) -> bool:
        return not self.obstacle and not any(one.severity == "error" for one in self.findings)

    @property
    def verdict(self) -> Verdict:
        """The result in a few words; "right" only if derivatives were compared.

        "refused": there is no gradient to compare, so `.ok` is false, but no call gives a wrong one. "not compared":
        launching the kernel on these inputs would be dangerous or meaningless, or inputs are not finite. "not tested":
        all derivatives are 0 at these inputs, or none is finite. "nothing to differentiate": no input, or no output, is
        a tensor of floats.
        """
        if self.was_refused:
            return "refused"
        if self.obstacle:
            return "not compared"
        if not self.ok:
            return "wrong"
        if not self.inputs:
            return "nothing to differentiate"
        return "right" if any(not one.why_untested for one in self.inputs) else "not tested"

    @property
    def errors(self) -> dict[str, np.ndarray]:
        """The error of each element by input, relative to the oracle, or to differences if there is no oracle."""
        pairs = ((one.name, one.op, one.reference) for one in self.inputs)
        return {name: (op - true).abs().cpu().numpy() for name, op, true in pairs if true is not None}

    @property
    def summary(self) -> str:
        """The text of the result without its findings."""
        head, *notes = self._describe()
        lines = [head, *(f"  {note}" for note in notes)]
        width = max([0, *(len(one.name) for one in self.inputs)])
        lines += [f"  {one.name:{width}}  {_line(self.kind, one)}" for one in self.inputs]
        width = max([0, *(len(one.name) for one in self.modes)])
        lines += [f"  {one.name:{width}}  {one}" for one in self.modes]
        return "\n".join(lines)

    def _describe(self) -> list[str]:
        """Return the verdict in a sentence, then notes about how the gradient was checked."""
        origin = (
            f", {self.origin}" if self.inputs or self.was_refused else ""
        )  # without a gradient, its origin does not matter
        verdict = "WRONG" if self.verdict == "wrong" else self.verdict
        lines = [f"the gradient of {self.kind} `{self.name}`{origin}: {verdict}"]
        untested = [one for one in self.inputs if one.why_untested]
        if self.verdict == "not tested":
            reasons = dict.fromkeys(one.why_untested for one in untested)
            lines[0] += f", since {' and '.join(reasons)} at these inputs"
        elif untested:
            lines[0] += f", but not tested by {', '.join(f'`{one.name}`' for one in untested)}"
        if self.obstacle:
            lines.append(f"{self.obstacle}, so nothing was compared")
        return [*lines, *self.notes]

    def __repr__(self) -> str:
        return f"<tinsmith gradient check of {self.kind} `{self.name}`: {self.verdict}>"

    def _repr_html_(self) -> str:
        """Return the result as HTML for notebooks: tables of the derivatives, the modes and the findings."""
        return self.summary_in_html + (Findings(self.findings)._repr_html_() if self.findings else "")

    @property
    def summary_in_html(self) -> str:
        """The tables of the result without its findings, as HTML."""
        head, *notes = self._describe()
        parts = [
            write_table(head, [(one.name, *_compare(one)) for one in self.inputs], _COLUMNS if self.inputs else ())
        ]
        if self.modes:
            parts.append(write_table("other ways to differentiate", [(one.name, str(one)) for one in self.modes]))
        return "".join([*parts, write_paragraphs(notes)])

    def __str__(self) -> str:
        return "\n".join([self.summary, *map(str, self.findings)])


_COLUMNS = ("input", "shape", "off from the oracle by", "off from differences by")


def _compare(one: InputDerivatives) -> tuple[str, str, str]:
    """Return the shape of an input, and the greatest differences of its gradient from the oracle's and from difference
    quotients; "" where nothing was compared.
    """
    shape = f"({', '.join(map(str, one.op.shape))})"
    oracle = "" if one.oracle is None else f"{_greatest(one.op, one.oracle):.1e}"
    if one.differences is None:
        return shape, oracle, f"{one.along:.1e} along directions"
    return shape, oracle, f"{_greatest(one.op, one.differences):.1e}"


def _line(kind: str, one: InputDerivatives) -> str:
    """Format the greatest differences between the derivatives by one input."""
    shape, oracle, differences = _compare(one)
    parts = [f"{kind} - oracle {oracle}"] if oracle else []
    return f"{shape}  {', '.join([*parts, f'{kind} - differences {differences}'])}"


def _greatest(left: torch.Tensor, right: torch.Tensor) -> float:
    apart = (left - right).abs()[~right.isnan()]
    return apart.max().item() if apart.numel() else 0.0
