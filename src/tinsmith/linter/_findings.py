"""Findings: the list that `ts.lint` and `ts.sanitize` return, with text and HTML for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ._finding import SEVERITIES, Finding

_NOUNS = {"error": "error", "warning": "warning", "info": "hint"}


class Findings(list[Finding]):
    """A list of findings. Print it to read each one below its source line; a notebook shows a table.

    Example:
        >>> found = Findings([ts.Finding("TS301", "error", "swarm.py", 12, 9, "0.5 is cut to 0", "count = 0.0")])
        >>> found
        <1 finding: 1 error (TS301)>
        >>> print(found)
        swarm.py:12:9: error TS301: 0.5 is cut to 0
            write: count = 0.0
    """

    def __repr__(self) -> str:
        if not self:
            return "<no findings>"
        rules = ", ".join(sorted({one.rule for one in self}))
        return f"<{len(self)} finding{'s' * (len(self) > 1)}: {count_severities(self)} ({rules})>"

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no findings"

    def _repr_html_(self) -> str:
        """Return a table of the findings, the first in the file first."""
        # Here, so that a program that shows nothing does not load it.
        from .._html import write_table

        rows = [(one.place, one.severity, one.rule, one.message, one.remedy) for one in self]
        return write_table(repr(self)[1:-1], rows, ("place", "severity", "rule", "message", "write") if rows else ())


def count_severities(findings: Iterable[Finding]) -> str:
    """Return the numbers of findings as text: "2 errors, 1 hint". Without findings: "nothing found"."""
    counts = Counter(one.severity for one in findings)
    words = [f"{counts[one]} {_NOUNS[one]}{'s' * (counts[one] > 1)}" for one in SEVERITIES if counts[one]]
    return ", ".join(words) or "nothing found"
