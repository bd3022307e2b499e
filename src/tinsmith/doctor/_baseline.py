"""Baseline: a file with the known findings of a project. A check with a baseline fails only if it finds new ones.

A finding is recognized by its rule, its file, and the text of its line, so that lines above may be added or removed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from .._errors import InputError, refusal
from .._version import __version__
from ..linter import NOT_LOOKED_AT, Finding
from ._excerpt import read_lines
from ._report_contents import ReportContents

_Report = TypeVar("_Report", bound=ReportContents)
_FORMAT = 1


class _Entry(NamedTuple):
    """What a finding is recognized by. `path` is relative to the baseline's folder."""

    path: str
    rule: str
    code: str


def write_baseline(report: ReportContents, file: Path) -> int:
    """Write the findings of a report to a baseline file; return their number.

    Files and parts that could not be checked (TS001, TS002) are left out: they always fail.

    Raises:
        InputError: the file cannot be written.
    """
    counts = _count_entries(report.findings, file)
    findings = [{**entry._asdict(), "count": counts[entry]} for entry in sorted(counts)]
    text = json.dumps({"format": _FORMAT, "tinsmith": __version__, "findings": findings}, indent=1, ensure_ascii=False)
    try:
        file.write_bytes((text + "\n").encode("utf-8", "backslashreplace"))
    except OSError as cause:
        rows = [("--write-baseline", str(file)), (type(cause).__name__, cause.strerror or str(cause))]
        words = "the baseline cannot be written"
        raise InputError(refusal(words, rows, "Name a file in a folder that exists.")) from cause
    return sum(counts.values())


def apply_baseline(report: _Report, file: Path, checked: Iterable[Path]) -> _Report:
    """Remove the findings of a baseline from a report. If several findings are alike, remove as many as the baseline
    counts.

    Args:
        report: all findings of the checked files.
        file: the baseline.
        checked: the files that were checked. What the baseline has of other files that exist does not count as fixed.

    Raises:
        InputError: the file cannot be read, or is not a baseline.
    """
    known = _read_baseline(file)
    total, new = sum(known.values()), list[Finding]()
    for finding, entry in _find_entries(report.findings, file):
        if finding.rule not in NOT_LOOKED_AT and known[entry] > 0:
            known[entry] -= 1
        else:
            new.append(finding)
    paths = {_escape(_relative(str(one), file)) for one in checked}
    gone = {one.path for one in known if one.path not in paths and not (file.parent / one.path).exists()}
    fixed = sum(count for entry, count in known.items() if entry.path in paths | gone)
    return replace(report, findings=new, in_baseline=total - sum(known.values()), fixed=fixed)


def _count_entries(findings: Iterable[Finding], file: Path) -> Counter[_Entry]:
    return Counter(entry for one, entry in _find_entries(findings, file) if one.rule not in NOT_LOOKED_AT)


def _find_entries(findings: Iterable[Finding], file: Path) -> Iterator[tuple[Finding, _Entry]]:
    """Yield each finding with the entry that it is recognized by. Each file is read once."""
    known: dict[str, tuple[str, list[str]]] = {}
    for one in findings:
        if one.path not in known:
            known[one.path] = _escape(_relative(one.path, file)), read_lines(one.path)
        path, lines = known[one.path]
        code = " ".join(lines[one.line - 1].split()) if 1 <= one.line <= len(lines) else ""
        yield one, _Entry(path, one.rule, code)


def _escape(path: str) -> str:
    """Escape the bytes of a path that are not valid text, as the baseline has them."""
    return path.encode("utf-8", "backslashreplace").decode()


def _relative(path: str, file: Path) -> str:
    whole, folder = os.path.realpath(path), os.path.realpath(file.parent)
    try:
        return Path(os.path.relpath(whole, folder)).as_posix()
    except ValueError:  # another drive
        return Path(whole).as_posix()


def _read_baseline(file: Path) -> Counter[_Entry]:
    remedy = "Write it with `tinsmith check FILE_OR_FOLDER... --write-baseline FILE`."
    try:
        content = json.loads(file.read_text("utf-8"))
    except OSError as cause:
        rows = [("--baseline", str(file)), (type(cause).__name__, cause.strerror or str(cause))]
        raise InputError(refusal("the baseline cannot be read", rows, remedy)) from cause
    except ValueError as cause:
        rows = [("--baseline", str(file)), (type(cause).__name__, str(cause))]
        raise InputError(refusal("the baseline is not valid JSON", rows, remedy)) from cause
    try:
        if content["format"] != _FORMAT:
            rows = [
                ("--baseline", str(file)),
                ("expected", f"format {_FORMAT}"),
                ("got", f"format {content['format']}"),
            ]
            raise InputError(refusal("the baseline was written by another version of tinsmith", rows, remedy))
        counts: Counter[_Entry] = Counter()
        for one in content["findings"]:
            counts[_Entry(str(one["path"]), str(one["rule"]), str(one["code"]))] += int(one["count"])
    except (KeyError, TypeError, ValueError) as cause:
        rows = [("--baseline", str(file)), (type(cause).__name__, str(cause))]
        raise InputError(refusal("the file is not a baseline", rows, remedy)) from cause
    return counts
