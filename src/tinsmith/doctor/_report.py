"""Report: the result of checking an op, or files.

Its findings come from `lint`, `sanitize` and `gradcheck`; it is formatted by `_terminal`
(a page for terminals), `_page` (one for browsers) and `_records` (files for machines).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .._errors import DEBUGGING, CheckError
from .._extras import require_packages
from ..linter import SEVERITIES, Finding, Severity, in_order
from ._gradcheck_result import Gradcheck

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

NOT_LOOKED_AT = frozenset({"TS001", "TS002"})
"""Rules for what could not be checked."""

_NOUNS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "hint"}


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a check. Print it, open its `html()`, or call `raise_if_failed()`.

    Attributes:
        name: what was checked: "op `conv`", "3 files".
        findings: the findings that are shown, sorted by file and line.
        gradients: results of gradient checks, by the name of the op, with the example's name if one was run.
        looked: the parts that ran: "lint", "sanitizer", "gradient check".
        places: (file, line) of kernels, so that a page also shows kernels without findings.
        aside: findings about the engine's own reverse mode, which the op does not use; one line counts them.
        kernels: number of kernels read in files; None if no file was read.
        without_examples: names of ops in those files without an example, which are not run.

    Example:
        >>> report = ts.Report("op `conv`", [ts.Finding("TS301", "error", "conv.py", 3, 1, "0.5 is cut to 0")])
        >>> report.ok, report.verdict, report.summary
        (False, 'wrong', '1 error')
    """

    name: str
    findings: list[Finding] = field(default_factory=list)
    gradients: Mapping[str, Gradcheck] = field(default_factory=dict)
    looked: tuple[str, ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    aside: tuple[Finding, ...] = ()
    kernels: int | None = None
    without_examples: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no finding of severity "error", and every gradient that was checked is right."""
        return not self.of("error") and all(one.ok for one in self.gradients.values())

    @property
    def gradient(self) -> Gradcheck | None:
        """The result of the gradient check; None without one, the first of several."""
        return next(iter(self.gradients.values()), None)

    @property
    def was_complete(self) -> bool:
        """Whether all parts of the check ran."""
        return not any(one.rule in NOT_LOOKED_AT for one in self.of("error"))

    @property
    def verdict(self) -> Literal["right", "no errors", "wrong", "refused", "not tested", "not checked"]:
        """One or two words; the last line of the printed report begins with them.

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
        """The numbers of findings in words: "2 errors, 1 hint"."""
        counts = Counter(one.severity for one in self.findings)
        words = [_format_count(counts[severity], _NOUNS[severity]) for severity in SEVERITIES if counts[severity]]
        return ", ".join(words) or "nothing found"

    @property
    def coverage(self) -> str:
        """The coverage in words: "2 kernels read. 1 op has no example, ..."; "" if no file was read."""
        if self.kernels is None:
            return ""
        words = f"{_format_count(self.kernels, 'kernel')} read." if self.kernels else "No kernel was found."
        if not self.without_examples:
            return words
        count = _format_count(len(self.without_examples), "op")
        verb, them = ("has no example", "it") if len(self.without_examples) == 1 else ("have no example", "them")
        return f"{words} {count} {verb}, so --run leaves {them} out: {', '.join(self.without_examples)}."

    def of(self, *severities: Severity) -> list[Finding]:
        """The findings of some severities."""
        return [one for one in self.findings if one.severity in severities]

    def at_least(self, severity: Severity) -> Report:
        """The report without findings that are less severe."""
        kept = SEVERITIES[: SEVERITIES.index(severity) + 1]
        return replace(self, findings=self.of(*kept), aside=self.aside if "warning" in kept else ())

    def raise_if_failed(self) -> None:
        """Raise CheckError with the errors and the result of the gradient check, unless `.ok`."""
        __tracebackhide__ = True
        if self.ok:
            return
        wrong = [one.summary for one in self.gradients.values() if not one.ok]
        parts = [f"{self.name} did not pass its check: {self.summary}", *map(str, self.of("error")), *wrong]
        if any(one.rule.startswith("TS6") for one in self.of("error")):  # of the sanitizer's run
            parts.append(f"To stop at such a line with a debugger: {DEBUGGING}.")
        raise CheckError("\n\n".join(parts))

    def html(self, path: str | Path | None = None) -> str:
        """Return one self-contained page: source with findings, heat maps of errors. Also written to `path`."""
        require_packages("the page of a report", "apps", "rich", "matplotlib")
        from ._page import page

        text = page(self)
        if path is not None:
            Path(path).write_text(text, "utf-8")
        return text

    def __repr__(self) -> str:
        return f"<tinsmith report of {self.name}: {self.verdict}, {self.summary}>"

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        from ._terminal import plain  # needs rich, which both engines bring along

        return plain(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from ._terminal import render_report

        yield from render_report(self, options.max_width)


def join_reports(name: str, reports: Iterable[Report]) -> Report:
    """Join several reports. Findings of the same rule at the same place are kept once, as the first report has them.

    Files may use kernels in other ways than an op, so findings that were put aside are shown again.
    """
    reports = list(reports)
    findings: dict[tuple[object, ...], list[Finding]] = {}
    for report in reports:
        new: dict[tuple[object, ...], list[Finding]] = {}
        for one in (*report.findings, *report.aside):
            new.setdefault((one.path, one.line, one.column, one.rule, one.severity), []).append(one)
        findings = new | findings
    gradients = {label: one for report in reports for label, one in report.gradients.items()}
    looked = tuple(dict.fromkeys(part for report in reports for part in report.looked))
    places = tuple(dict.fromkeys(place for report in reports for place in report.places))
    counts = [report.kernels for report in reports if report.kernels is not None]
    return Report(
        name,
        in_order([one for group in findings.values() for one in group]),
        gradients,
        looked,
        places,
        kernels=sum(counts) if counts else None,
        without_examples=tuple(dict.fromkeys(op for report in reports for op in report.without_examples)),
    )


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
