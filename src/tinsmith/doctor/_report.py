"""Report: the result of checking an op, or files.

Its findings come from `lint`, `sanitize` and `gradcheck`. It is formatted by `_terminal` (for terminals), `_page` (for
browsers) and `_records` (for machines).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .._extras import require_packages
from .._html import write_paragraphs
from ..linter import Finding, Findings, in_order
from ._report_contents import ReportContents

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class Report(ReportContents):
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
        in_baseline: number of findings that a baseline left out.
        fixed: number of findings in that baseline that were not found any more.

    Example:
        >>> report = ts.Report("op `conv`", [ts.Finding("TS301", "error", "conv.py", 3, 1, "0.5 is cut to 0")])
        >>> report.ok, report.verdict, report.summary
        (False, 'wrong', '1 error')
    """

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
        """Return the report as HTML for notebooks: the verdict, then tables of the findings and the gradients."""
        from ._terminal import describe_engine_findings  # needs rich, which both engines install

        aside = describe_engine_findings(self.aside) if self.aside else ""
        looked = f" ({', '.join(self.looked)})" if self.looked else ""
        notes = [aside, self.coverage, self.baseline, f"{self.verdict}: {self.summary}{looked}"]
        findings = Findings(self.findings)._repr_html_() if self.findings else ""
        gradients = "".join(one.summary_in_html for one in self.gradients.values())
        head = write_paragraphs([f"check of {self.name}"])
        return head + findings + gradients + write_paragraphs(filter(None, notes))

    def __str__(self) -> str:
        from ._terminal import plain  # needs rich, which both engines install

        return plain(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from ._terminal import render_report

        yield from render_report(self, options.max_width)


def join_reports(name: str, reports: Iterable[Report]) -> Report:
    """Join several reports. Of findings with the same rule at the same place, those of the first report are kept.

    The other kernels of a file may use the engine's own reverse mode, so findings that were put aside are shown again.
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
