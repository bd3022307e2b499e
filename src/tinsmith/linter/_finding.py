"""Findings: actual or possible mistakes in a kernel, their places, comments that turn them off, and lists of them."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from .._errors import TinsmithError, count_noun
from ..engines import file_lines, name_place

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""The worst first."""
_MARK = re.compile(r"#\s*tinsmith:\s*ignore(?:\[([\w\s,]*)\])?")
"""`# tinsmith: ignore[TS101]` turns off the findings of a rule in its line, `# tinsmith: ignore` all."""


@dataclass(frozen=True)
class Edit:
    """A replacement of a part of a file.

    Attributes:
        start: the line and column of the first character that is replaced, both counted from 1.
        end: those after the last one.
        replacement: the text that replaces it.
    """

    start: tuple[int, int]
    end: tuple[int, int]
    replacement: str


@dataclass(frozen=True)
class Finding:
    """One actual or possible mistake in a kernel.

    Attributes:
        rule: id of the rule, such as "TS101"; `RULES` describes it.
        severity: "error": wrong with any gradient; "warning": right with tinsmith's gradient, wrong with an engine's
            own reverse mode, which the message names; "info": a hint.
        path: the file.
        line: counted from 1.
        column: counted from 1; 0 if only the line is known, also in JSON. Text and SARIF then show no column.
        message: what goes wrong, in one sentence, with numbers if there are any.
        remedy: what to write instead; "" if there is no remedy.
        follows: path, line and column of the finding that this one is a consequence of; None if there is none.
        engines: names of the engines, if the finding only concerns their own reverse mode, which an op does not use
            unless `adjoint="engine"` is passed. Empty if it concerns the kernel itself.
        fix: the edit that corrects it, applied by `tinsmith check --fix`; None if there is none that is certain.

    Example:
        >>> message = "`count` is an integer: 0.5 is cut to 0"
        >>> print(ts.Finding("TS301", "error", "swarm.py", 12, 9, message, "count = 0.0"))
        swarm.py:12:9: error TS301: `count` is an integer: 0.5 is cut to 0
            write: count = 0.0
    """

    rule: str
    severity: Severity
    path: str
    line: int
    column: int
    message: str
    remedy: str = ""
    follows: tuple[str, int, int] | None = None
    engines: tuple[str, ...] = ()
    fix: Edit | None = None

    @property
    def place(self) -> str:
        """The file, line and column as text: "swarm.py:12:9"; "In[4]:12:9" in a cell of a notebook."""
        place = name_place(self.path, self.line)
        return f"{place}:{self.column}" if self.column else place

    def __repr__(self) -> str:
        return f"<{self.severity} {self.rule} at {self.place}: {' '.join(self.message.split())}>"

    def _repr_html_(self) -> str:
        """Return the finding as HTML for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        lines = [f"{self.place}: {self.severity} {self.rule}: {self.message}"]
        text = "".join(file_lines(self.path)[max(self.line - 1, 0) : self.line]).rstrip()
        if text:
            lines.append(f"    {text.strip()}")
        if text and self.column:
            lines.append(f"    {' ' * (self.column - 1 - (len(text) - len(text.lstrip())))}^")
        first, *further = self.remedy.splitlines() or [""]
        if first:
            lines += [f"    write: {first}", *(f"           {line}" for line in further)]
        return "\n".join(lines)


def in_order(findings: list[Finding]) -> list[Finding]:
    """Sort findings by file, line and column, and drop duplicates."""
    return sorted(dict.fromkeys(findings), key=lambda one: (one.path, one.line, one.column, one.rule))


def not_run(what: str, error: BaseException, path: str, line: int) -> Finding:
    """Return a TS002 finding for an exception: tinsmith's errors in full, the first line of others."""
    text = str(error).strip() or "it gave no reason"
    words = join_lines(text if isinstance(error, TinsmithError) else text.split("\n")[0])
    return Finding("TS002", "error", path, line, 0, f"{what} could not be run: {type(error).__name__}: {words}")


def join_lines(text: str) -> str:
    """Return a message of several lines in one, without the spaces that align its columns."""
    return "; ".join(" ".join(line.split()) for line in text.splitlines())


def drop_suppressed(findings: Iterable[Finding], known: Mapping[str, Sequence[str]] | None = None) -> list[Finding]:
    """Drop findings that a `# tinsmith: ignore` comment turns off. `known` has the lines of files, by path."""
    return [one for one in findings if not _is_off(one, (known or {}).get(one.path))]


def _is_off(finding: Finding, known: Sequence[str] | None) -> bool:
    lines = linecache.getlines(finding.path) if known is None else known
    mark = _MARK.search(_whole(lines, finding.line)) if 0 < finding.line <= len(lines) else None
    if mark is None:
        return False
    return mark[1] is None or finding.rule in {word.strip() for word in mark[1].split(",")}


def _whole(lines: Sequence[str], line: int) -> str:
    """Return the text of a line, or of the last line that backslashes join to it: only that one can have a comment."""
    text = lines[line - 1].rstrip()
    return _whole(lines, line + 1) if text.endswith("\\") and line < len(lines) else text


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
        return f"<{count_noun(len(self), 'finding')}: {count_severities(self)} ({rules})>"

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
    words = [count_noun(counts[one], _NOUNS[one]) for one in SEVERITIES if counts[one]]
    return ", ".join(words) or "nothing found"
