"""Summary: findings grouped by rule and cause, for projects with more findings than anybody would read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..linter import SEVERITIES, Finding

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
