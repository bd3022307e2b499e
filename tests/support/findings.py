"""Findings of a run of the sanitizer, asked by their rule and by a mark in the source of the line that they name."""

from __future__ import annotations

import linecache
from typing import Any

from tinsmith.doctor.sanitizer import sanitize
from tinsmith.linter import Finding


class FoundByRun(list[Finding]):
    """Findings of one run."""

    def of(self, rule: str) -> list[Finding]:
        """Return the findings of a rule."""
        return [one for one in self if one.rule == rule]

    def one(self, rule: str, mark: str) -> Finding:
        """Return the only finding of a rule on the line that ends in `# mark`. Fail if there is none, or more."""
        marked = [one for one in self.of(rule) if _line(one).rstrip().endswith(f"# {mark}")]
        assert len(marked) == 1, "\n".join(map(str, self)) or "nothing was found"
        return marked[0]

    @property
    def rules(self) -> set[str]:
        """Rules that anything was found of."""
        return {one.rule for one in self}

    @property
    def errors(self) -> list[Finding]:
        """What is an error."""
        return [one for one in self if one.severity == "error"]


def sanitize_call(op: Any, *inputs: Any, **named: Any) -> FoundByRun:
    """Run the sanitizer on a call and return its findings."""
    return FoundByRun(sanitize(op, *inputs, **named))


def read_pointed_text(finding: Finding) -> str:
    """Return the text from a finding's column to the end of its line."""
    assert finding.column > 0, finding
    return _line(finding)[finding.column - 1 :]


def _line(finding: Finding) -> str:
    return linecache.getline(finding.path, finding.line)
