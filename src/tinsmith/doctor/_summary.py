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
    """The findings of one rule and severity, by cause."""

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
    """Group findings by rule and cause: the most severe first, then those with the most findings."""
    groups: dict[tuple[str, str], dict[str, list[Finding]]] = {}
    for one in findings:
        words = _VARYING.sub(_hide, one.message)
        groups.setdefault((one.severity, one.rule), {}).setdefault(words, []).append(one)
    summaries = [
        RuleSummary(rule, severity, sorted(map(Cause, causes.values()), key=lambda one: -len(one.findings)))
        for (severity, rule), causes in groups.items()
    ]
    order = {severity: place for place, severity in enumerate(SEVERITIES)}
    return sorted(summaries, key=lambda one: (order[one.severity], -len(one.findings), one.rule))
