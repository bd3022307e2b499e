"""The contents of a report, which its formats show: findings, gradients, and the verdict on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from typing_extensions import Self

from .._errors import DEBUGGING, CheckError, count_noun
from ..linter import NOT_LOOKED_AT, SEVERITIES, Finding, Severity, count_severities

if TYPE_CHECKING:
    from ._gradcheck_result import Gradcheck


@dataclass(frozen=True, repr=False)
class ReportContents:
    """The findings and gradients of a check, and the verdict on them. `Report` describes the attributes."""

    name: str
    findings: list[Finding] = field(default_factory=list)
    gradients: Mapping[str, Gradcheck] = field(default_factory=dict)
    looked: tuple[str, ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    aside: tuple[Finding, ...] = ()
    kernels: int | None = None
    without_examples: tuple[str, ...] = ()
    in_baseline: int = 0
    fixed: int = 0

    @property
    def ok(self) -> bool:
        """True if there is no finding of severity "error", and every checked gradient is right."""
        return not self.of("error") and all(one.ok for one in self.gradients.values())

    @property
    def gradient(self) -> Gradcheck | None:
        """The result of the gradient check; the first of several, None if there is none."""
        return next(iter(self.gradients.values()), None)

    @property
    def was_complete(self) -> bool:
        """True if all parts of the check ran."""
        return not any(one.rule in NOT_LOOKED_AT for one in self.of("error"))

    @property
    def verdict(self) -> Literal["right", "no errors", "wrong", "refused", "not tested", "not checked"]:
        """What the check found, as the word or two that begin the last line of the printed report.

        "right": an op's gradient was compared, and nothing is wrong; "no errors": the same of kernels that were only
        read, of several ops, or of an op that has nothing to differentiate; "not tested": no errors, but all
        derivatives are 0 at these inputs; "refused": there is no gradient, and
        a call raises an error; "not checked": something could not be checked, and the rest has no errors.
        """
        if self.ok:
            right = {f"{one.kind} `{label}`" for label, one in self.gradients.items() if one.verdict == "right"}
            if self.gradients and all(one.verdict == "not tested" for one in self.gradients.values()):
                return "not tested"
            return "right" if self.name in right else "no errors"
        rules = {one.rule for one in self.of("error")}
        if not rules and all(one.ok or one.verdict == "not compared" for one in self.gradients.values()):
            return "not checked"
        if not rules or rules - NOT_LOOKED_AT - {"TS703"}:
            return "wrong"
        return "not checked" if rules & NOT_LOOKED_AT else "refused"

    @property
    def summary(self) -> str:
        """The numbers of findings as text: "2 errors, 1 hint"."""
        return count_severities(self.findings)

    @property
    def coverage(self) -> str:
        """The coverage as text: "2 kernels read. 1 op has no example, ..."; "" if no file was read."""
        if self.kernels is None:
            return ""
        words = f"{count_noun(self.kernels, 'kernel')} read." if self.kernels else "No kernel was found."
        if not self.without_examples:
            return words
        count = count_noun(len(self.without_examples), "op")
        verb, them = ("has no example", "it") if len(self.without_examples) == 1 else ("have no example", "them")
        return f"{words} {count} {verb}, so --run leaves {them} out: {', '.join(self.without_examples)}."

    @property
    def baseline(self) -> str:
        """What a baseline left out, as text: "12 findings are in the baseline."; "" without a baseline."""
        if not self.in_baseline + self.fixed:
            return ""
        verb = "is" if self.in_baseline == 1 else "are"
        words = f"{count_noun(self.in_baseline, 'finding')} {verb} in the baseline."
        if not self.fixed:
            return words
        verb = "was" if self.fixed == 1 else "were"
        return f"{words} {count_noun(self.fixed, 'other')} of it {verb} not found any more: write the baseline again."

    @property
    def fixes(self) -> str:
        """How many findings can be fixed, as text: "2 can be fixed: ..."; "" if none can."""
        count = sum(one.fix is not None for one in self.findings)
        return f"{count_noun(count, 'finding')} can be fixed with --fix; --diff shows how." if count else ""

    def of(self, *severities: Severity) -> list[Finding]:
        """Return the findings of some severities."""
        return [one for one in self.findings if one.severity in severities]

    def at_least(self, severity: Severity) -> Self:
        """Return the report without findings that are less severe than `severity`."""
        kept = SEVERITIES[: SEVERITIES.index(severity) + 1]
        return replace(self, findings=self.of(*kept), aside=self.aside if "warning" in kept else ())

    def keep(self, is_wanted: Callable[[Finding], bool]) -> Self:
        """Return the report with the findings for which `is_wanted` returns True."""
        kept = [one for one in self.findings if is_wanted(one)]
        return replace(self, findings=kept, aside=tuple(one for one in self.aside if is_wanted(one)))

    def raise_if_failed(self) -> None:
        """Raise CheckError with the errors and the result of the gradient check, unless `.ok`."""
        __tracebackhide__ = True
        if self.ok:
            return
        wrong = [one.summary for one in self.gradients.values() if not one.ok]
        parts = [f"{self.name} did not pass its check: {self.summary}", *map(str, self.of("error")), *wrong]
        if any(one.rule.startswith("TS6") for one in self.of("error")):  # a finding of the sanitizer
            parts.append(f"To stop at such a line with a debugger: {DEBUGGING}.")
        raise CheckError("\n\n".join(parts))
