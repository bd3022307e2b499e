"""Terminal: a report as text for terminals, drawn with rich: findings by file, each below its source line.

No line exceeds the width: messages are wrapped, and long source lines are clipped around the column of the finding.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from .._errors import count_noun
from ..linter import RULES, Finding
from ._excerpt import describe_lines, find_common_folder, read_lines, shorten_path
from ._summary import rank_finding, summarize

if TYPE_CHECKING:
    from ._report_contents import ReportContents

_WIDTH = 80
_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_MOST_SUBJECTS = 4
"""The maximum number of names that a summary lists for a cause."""
_MARGIN = 9  # the width of "  123:45 ", by which messages are indented


def plain(report: ReportContents, width: int = _WIDTH, *, is_summary: bool = False) -> str:
    """Return a report as text without colors. `is_summary` lists only errors and causes instead of all findings."""
    # In a notebook, rich would otherwise show the text below the cell, too.
    console = Console(
        width=width, file=io.StringIO(), record=True, color_system=None, legacy_windows=False, force_jupyter=False
    )
    console.print(Group(*render_report(report, width, is_summary=is_summary)))
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def render_report(report: ReportContents, width: int, *, is_summary: bool = False) -> Iterator[RenderableType]:
    """Yield the parts of a report for rich to print. `is_summary` lists only errors and causes instead of all
    findings.
    """
    yield _heading(f"check of {report.name}")
    shown = causes(sorted(report.of("error") if is_summary else report.findings, key=rank_finding))
    for path, findings in groupby(shown, key=lambda one: one.path):
        yield Text(f"\n{shorten_path(path)}", style="bold", overflow="fold")
        lines = read_lines(path)
        for finding in findings:
            yield from _finding(finding, lines, width)
            if shown[finding]:
                yield _indent(Text(describe_followers(shown[finding]), style="dim"))
    if is_summary:
        yield from _render_summary(report)
    for label, gradient in report.gradients.items():
        yield Text()
        yield _heading(f"gradient of {label}")
        yield Text()
        yield from (_hanging(line, "" if gradient.ok else _STYLES["error"]) for line in gradient.summary.splitlines())
    if report.aside:
        yield Text()
        yield Text(describe_engine_findings(report.aside), style="dim")
    # Only files are fixed, and only they have a coverage.
    fixes = report.fixes if report.coverage else ""
    for words in filter(None, (report.coverage, report.baseline, fixes)):
        yield Text()
        yield Text(words, style="dim")
    yield Text()
    yield Rule(style="dim")
    yield _verdict(report)


def _render_summary(report: ReportContents) -> Iterator[RenderableType]:
    """Yield each rule, followed by each of its causes once, with the names that it mentions most and its
    first place.
    """
    rows = summarize(report.of("warning", "info"))
    folder = find_common_folder([one.path for row in rows for one in row.findings])
    if folder:
        yield Text(f"\nPaths are relative to {folder}", style="dim", overflow="fold")
    for one in rows:
        yield Text()
        count = f"{len(one.findings)} in {count_noun(one.files, 'file')}"
        name = f" {one.name}" if one.name else ""
        own = ", of the engine's own gradient" if one.findings[0].engines else ""
        yield Text.assemble((one.severity, _STYLES[one.severity]), f" {one.rule}", (name + own, "dim"), f": {count}")
        for cause in one.causes:
            first, subjects = cause.findings[0], cause.subjects
            named = ", ".join(f"{name} ({times})" for name, times in subjects[:_MOST_SUBJECTS])
            more = f" and {len(subjects) - _MOST_SUBJECTS} more" if len(subjects) > _MOST_SUBJECTS else ""
            path = os.path.relpath(first.path, folder) if folder else shorten_path(first.path)
            place = f"first at {path}:{first.line}"
            table = Table.grid(padding=(0, 2))
            table.add_column(justify="right", width=_MARGIN - 2)
            table.add_column(overflow="fold")
            table.add_row(str(len(cause.findings)), Text(cause.words))
            yield table
            yield Padding(Text(f"{named}{more}; {place}" if named else place, style="dim"), (0, 0, 0, _MARGIN))
    if rows:
        first = rows[0].rule
        words = f"`tinsmith rule {first}` explains a rule; `--select {first} --no-summary` lists its findings."
        yield Text(f"\n{words}", style="dim")


def causes(findings: Sequence[Finding]) -> dict[Finding, list[Finding]]:
    """Map each finding that does not follow from another one to the findings that follow from it."""
    places = {(one.path, one.line, one.column): one for one in findings if one.follows is None}
    consequences: dict[Finding, list[Finding]] = {
        one: [] for one in findings if one.follows is None or one.follows not in places
    }
    for one in findings:
        if one not in consequences and one.follows is not None:
            consequences[places[one.follows]].append(one)
    return consequences


def describe_followers(findings: Sequence[Finding]) -> str:
    """Describe the findings that follow from another one, in one sentence.

    Example:
        >>> describe_followers([Finding("TS604", "error", "k.py", line, 5, "") for line in (9, 10)])
        '2 more findings follow from this: TS604 in lines 9-10'
    """
    lines: dict[str, list[int]] = {}
    for one in findings:
        lines.setdefault(one.rule, []).append(one.line)
    places = "; ".join(f"{rule} in {describe_lines(sorted(set(at)))}" for rule, at in lines.items())
    count = "1 more finding follows" if len(findings) == 1 else f"{len(findings)} more findings follow"
    return f"{count} from this: {places}"


def _heading(words: str) -> Rule:
    return Rule(Text(words, style="bold"), align="left", style="dim")


def _verdict(report: ReportContents) -> Text:
    looked = f"  ({', '.join(report.looked)})" if report.looked else ""
    style = "bold green" if report.ok else _STYLES["error"]
    return Text.assemble((f"{report.verdict}: {report.summary}", style), (looked, "dim"))


def describe_engine_findings(findings: Sequence[Finding]) -> str:
    """Describe the findings about the engine's own reverse mode, in one sentence.

    Example:
        >>> describe_engine_findings([Finding("TS404", "warning", "splat.py", 12, 9, "...")])
        '1 warning holds only with adjoint="engine", which this op does not use: TS404 in line 12'
    """
    places = dict.fromkeys(f"{one.rule} in line {one.line}" for one in findings)
    count, verb = ("1 warning", "holds") if len(findings) == 1 else (f"{len(findings)} warnings", "hold")
    return f'{count} {verb} only with adjoint="engine", which this op does not use: {", ".join(places)}'


def _finding(finding: Finding, lines: list[str], width: int) -> Iterator[RenderableType]:
    yield Text()
    place = f"{finding.line}:{finding.column}" if finding.column else f"{finding.line}"
    rule = RULES.get(finding.rule)
    yield Text.assemble(
        (f"{place:>{_MARGIN - 2}}  ", "dim"),
        (finding.severity, _STYLES[finding.severity]),
        f" {finding.rule} ",
        (rule.name if rule else "", "dim"),
        (", of the engine's own gradient" if finding.engines else "", "dim"),
    )
    yield _indent(Text(finding.message))
    if 1 <= finding.line <= len(lines) and lines[finding.line - 1].strip():
        yield from _source(lines[finding.line - 1], finding, width - _MARGIN)
    if finding.remedy:
        yield from _remedy(finding.remedy)


def _source(line: str, finding: Finding, width: int) -> Iterator[RenderableType]:
    """Yield a source line, with a caret below the column if it is known."""
    text, caret = clip_line(line, finding.column, width - 2)
    yield _indent(Text.assemble(("│ ", "dim"), text, no_wrap=True, overflow="ellipsis"))
    if caret:
        mark = (" " * (caret - 1) + "^", _STYLES[finding.severity])
        yield _indent(Text.assemble(("│ ", "dim"), mark, no_wrap=True, overflow="ellipsis"))


def clip_line(line: str, column: int, width: int) -> tuple[str, int]:
    """Cut a line without its indentation to a width, around a column; return the text, and the column in it (0 if
    unknown).

    Example:
        >>> clip_line("    y[i] = x[i] + x[i + 1]", 19, 12)
        ('…i] + x[i +…', 7)
    """
    bare = line.lstrip().expandtabs(1)
    column = max(column - (len(line) - len(line.lstrip())), 1) if column else 0
    if len(bare) <= width:
        return bare, column
    start = min(max(column - 1 - width // 2, 0), len(bare) - width)
    cut = bare[start : start + width]
    cut = "…" + cut[1:] if start else cut
    cut = cut[:-1] + "…" if start + width < len(bare) else cut
    return cut, column - start if column else 0


def _remedy(remedy: str) -> Iterator[RenderableType]:
    """Yield a finding's remedy: code to write instead."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text("write", style="green"), Text(remedy))
    yield _indent(table)


def _hanging(line: str, style: str) -> RenderableType:
    """Format a line such that its wrapped rest has the same indentation as its start."""
    bare = line.lstrip()
    return Padding(Text(bare, style=style), (0, 0, 0, len(line) - len(bare)))


def _indent(piece: RenderableType) -> RenderableType:
    return Padding(piece, (0, 0, 0, _MARGIN))
