"""Statistics: the number of findings of each rule, as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..linter import RULES
from ._summary import RuleSummary, summarize

if TYPE_CHECKING:
    from ._report_contents import ReportContents


def format_statistics(report: ReportContents) -> str:
    """Return a line for each rule and severity: the number of findings, the rule's id and name, and how many files
    have one. `[*]` marks rules whose findings `--fix` can fix. The most severe rules come first.
    """
    rows = summarize(report.findings)
    width = max([len(str(len(one.findings))) for one in rows], default=0)
    name_width = max([len(_get_name(one)) for one in rows], default=0)
    is_marked = any(_count_fixable(one) for one in rows)
    lines: list[str] = []
    for one in rows:
        mark = ("[*] " if _count_fixable(one) else "    ") if is_marked else ""
        files = f"{one.files} file{'' if one.files == 1 else 's'}"
        count = f"{len(one.findings):>{width}}"
        lines.append(f"{count}  {one.severity:7}  {one.rule}  {mark}{_get_name(one):{name_width}}  in {files}")
    if is_marked:
        fixable = sum(map(_count_fixable, rows))
        lines.append(f"[*] {fixable} can be fixed with --fix; --diff shows how.")
    return "\n".join(lines or ["nothing found"]) + "\n"


def statistics_as_json(report: ReportContents) -> str:
    """Return the statistics as a JSON list: rule, name, severity, and the numbers of findings, files and fixes."""
    rows = [
        {
            "rule": one.rule,
            "name": _get_name(one),
            "severity": one.severity,
            "count": len(one.findings),
            "files": one.files,
            "fixable": _count_fixable(one),
        }
        for one in summarize(report.findings)
    ]
    return json.dumps(rows, indent=2) + "\n"


def _get_name(row: RuleSummary) -> str:
    rule = RULES.get(row.rule)
    return rule.name if rule else ""


def _count_fixable(row: RuleSummary) -> int:
    return sum(one.fix is not None for one in row.findings)
