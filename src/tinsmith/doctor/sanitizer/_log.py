"""Log: the findings of a run, each once for its rule, line and array, with the number of repetitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...linter import SEVERITIES, Finding, Severity, in_order

Words = Callable[[], Finding]


@dataclass
class _Entry:
    finding: Finding
    count: int = 1


class Log:
    """The findings so far."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, int, str], _Entry] = {}

    def note(self, rule: str, severity: Severity, path: str, line: int, about: str, words: Words) -> None:
        """Count one occurrence. `words` builds the finding; it is called for the first occurrence, and for one that is
        more severe.
        """
        key = rule, path, line, about
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(words())
            return
        entry.count += 1
        if SEVERITIES.index(severity) < SEVERITIES.index(entry.finding.severity):
            entry.finding = words()

    def findings(self) -> list[Finding]:
        """Return all findings, sorted by file and line."""
        return in_order([_append_count(entry.finding, entry.count - 1) for entry in self._entries.values()])


def _append_count(finding: Finding, more: int) -> Finding:
    if not more:
        return finding
    times = "once more" if more == 1 else f"{more:,} more times"
    return replace(finding, message=f"{finding.message} ({times})")
