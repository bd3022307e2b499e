"""Summary: findings grouped by rule and cause, for projects with more findings than anybody would read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._errors import count_noun
from ..linter import RULES, SEVERITIES, Finding

if TYPE_CHECKING:
    from ._report_contents import ReportContents


_VARYING = re.compile(r"`[^`]*`|\bline \d+")
"""The parts of a message that may differ between findings of one cause: code, and line numbers."""


@dataclass(frozen=True)
class Cause:
    """Findings of one rule whose messages differ only in the code and line that they name.

    Attributes:
        findings: the findings, in the order of the report.
    """

    findings: Sequence[Finding]

    @property
    def words(self) -> str:
        """The message that the findings share, with `…` in place of the parts that differ."""
        messages = [_VARYING.findall(one.message) for one in self.findings]
        shared = iter([parts[0] if len({*parts}) == 1 else "" for parts in zip(*messages, strict=True)])
        return _VARYING.sub(lambda match: next(shared) or _hide(match), self.findings[0].message)

    @property
    def subjects(self) -> list[tuple[str, int]]:
        """The code that each message names first, with the number of such messages, the most frequent first; [] if all
        name the same.
        """
        names = [
            next((part.strip("`") for part in _VARYING.findall(one.message) if part[0] == "`"), "")
            for one in self.findings
        ]
        counts = Counter(names).most_common()
        return counts if len(counts) > 1 else []


def _hide(match: re.Match[str]) -> str:
    return "`…`" if match[0].startswith("`") else "line …"


@dataclass(frozen=True)
class RuleSummary:
    """The findings of one rule and severity, about kernels or about engines' own reverse modes, by cause."""

    rule: str
    severity: str
    causes: Sequence[Cause]

    @property
    def findings(self) -> list[Finding]:
        """All findings of the rule."""
        return [one for cause in self.causes for one in cause.findings]

    @property
    def files(self) -> int:
        """The number of files with such a finding."""
        return len({one.path for one in self.findings})

    @property
    def fixable(self) -> int:
        """The number of findings that `--fix` can fix."""
        return sum(one.fix is not None for one in self.findings)

    @property
    def name(self) -> str:
        """The rule's name; "" if there is no such rule."""
        return RULES[self.rule].name if self.rule in RULES else ""


def summarize(findings: Iterable[Finding]) -> list[RuleSummary]:
    """Group findings by rule and cause, the most useful first.

    Errors come before warnings, and warnings before hints. Within a severity, rules about the kernel itself come before
    those about an engine's own reverse mode, which ops do not use; then by id, which begins with what goes wrong in
    memory.
    """
    groups: dict[tuple[str, str, bool], dict[str, list[Finding]]] = {}
    for one in findings:
        words = _VARYING.sub(_hide, one.message)
        groups.setdefault((one.severity, one.rule, bool(one.engines)), {}).setdefault(words, []).append(one)
    summaries = [
        RuleSummary(rule, severity, sorted(map(Cause, causes.values()), key=lambda one: -len(one.findings)))
        for (severity, rule, _), causes in groups.items()
    ]
    return sorted(summaries, key=lambda one: (*rank_finding(one.findings[0]), one.rule))


def rank_finding(finding: Finding) -> tuple[int, bool]:
    """Return a key that sorts findings by usefulness: by severity, then those about the kernel itself first."""
    return SEVERITIES.index(finding.severity), bool(finding.engines)


def format_statistics(report: ReportContents) -> str:
    """Return a line for each rule and severity: the number of findings, the rule's id and name, and how many files
    have one. `[*]` marks rules whose findings `--fix` can fix. The most severe rules come first.
    """
    rows = summarize(report.findings)
    width = max([len(str(len(one.findings))) for one in rows], default=0)
    name_width = max([len(one.name) for one in rows], default=0)
    is_marked = any(one.fixable for one in rows)
    lines: list[str] = []
    for one in rows:
        mark = ("[*] " if one.fixable else "    ") if is_marked else ""
        files, count = count_noun(one.files, "file"), f"{len(one.findings):>{width}}"
        lines.append(f"{count}  {one.severity:7}  {one.rule}  {mark}{one.name:{name_width}}  in {files}")
    if is_marked:
        fixable = sum(one.fixable for one in rows)
        lines.append(f"[*] {fixable} can be fixed with --fix; --diff shows how.")
    return "\n".join(lines or ["nothing found"]) + "\n"


def statistics_as_json(report: ReportContents) -> str:
    """Return the statistics as a JSON list: rule, name, severity, and the numbers of findings, files and fixes."""
    rows = [
        {
            "rule": one.rule,
            "name": one.name,
            "severity": one.severity,
            "count": len(one.findings),
            "files": one.files,
            "fixable": one.fixable,
        }
        for one in summarize(report.findings)
    ]
    return json.dumps(rows, indent=2) + "\n"
