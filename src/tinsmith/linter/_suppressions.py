"""Findings that a comment in their line turns off: `# tinsmith: ignore[TS101]`, or all: `# tinsmith: ignore`."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Mapping, Sequence

from ._finding import Finding

_MARK = re.compile(r"#\s*tinsmith:\s*ignore(?:\[([\w\s,]*)\])?")


def drop_suppressed(findings: Iterable[Finding], known: Mapping[str, Sequence[str]] | None = None) -> list[Finding]:
    """Findings that no comment turns off. `known` are lines of files that were read already, by path."""
    return [one for one in findings if not _is_off(one, (known or {}).get(one.path))]


def _is_off(finding: Finding, known: Sequence[str] | None) -> bool:
    lines = linecache.getlines(finding.path) if known is None else known
    mark = _MARK.search(_whole(lines, finding.line)) if 0 < finding.line <= len(lines) else None
    if mark is None:
        return False
    return mark[1] is None or finding.rule in {word.strip() for word in mark[1].split(",")}


def _whole(lines: Sequence[str], line: int) -> str:
    """A line with those that a backslash joins to it: it has no room for a comment itself."""
    text = lines[line - 1].rstrip()
    return _whole(lines, line + 1) if text.endswith("\\") and line < len(lines) else text
