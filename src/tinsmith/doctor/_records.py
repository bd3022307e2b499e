"""Records: a report for machines, as JSON, as GitHub's annotations, and as SARIF 2.1.0, which code hosts read.

Paths are relative to a folder, the root of the repository. SARIF requires them as URIs.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .._errors import sentence
from .._version import __version__
from ..linter import RULES, SEVERITIES, Edit, Finding, Rule
from ._excerpt import read_lines

if TYPE_CHECKING:
    from ._report_contents import ReportContents

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}
"""The commands of GitHub's workflows that show a message beside a line."""
_ROOT = "%SRCROOT%"  # the name by which code hosts know the root


def as_json(report: ReportContents, root: Path) -> str:
    """Convert a report to JSON: `ok`, `verdict`, `complete`, `kernels`, `without_examples`, `findings` and
    `gradients`.
    """
    findings = [_record(one, root) for one in report.findings]
    gradients = {
        label: {
            "ok": one.ok,
            "verdict": one.verdict,
            "text": one.summary,
            "modes": [{"mode": mode.name, "verdict": mode.verdict, "reason": mode.reason} for mode in one.modes],
        }
        for label, one in report.gradients.items()
    }
    head = {"ok": report.ok, "verdict": report.verdict, "complete": report.was_complete}
    counts = {"kernels": report.kernels, "without_examples": list(report.without_examples)}
    counts |= {"in_baseline": report.in_baseline}
    whole = {**head, **counts, "findings": findings, "gradients": gradients}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _record(finding: Finding, root: Path) -> dict[str, Any]:
    """Convert a finding to a dict for JSON.

    `engines` has the engines whose own reverse mode the finding is limited to. `follows` is present if the finding
    follows from another one, and has that one's place. `fix` has the edit that corrects it, or null.
    """
    record = {
        "rule": finding.rule,
        "severity": finding.severity,
        "path": _relative(finding.path, root),
        "line": finding.line,
        "column": finding.column,
        "message": finding.message,
        "remedy": finding.remedy,
        "engines": list(finding.engines),
        "fix": None if finding.fix is None else _edit(finding.fix),
    }
    if finding.follows is None:
        return record
    path, line, column = finding.follows
    return record | {"follows": {"path": _relative(path, root), "line": line, "column": column}}


def _edit(edit: Edit) -> dict[str, Any]:
    (first, start), (last, end) = edit.start, edit.end
    return {
        "start": {"line": first, "column": start},
        "end": {"line": last, "column": end},
        "replacement": edit.replacement,
    }


def as_github(report: ReportContents, root: Path) -> str:
    """Convert a report to commands of GitHub's workflows: one line for each finding, the most severe first."""
    ordered = sorted(report.findings, key=lambda one: SEVERITIES.index(one.severity))
    return "".join(f"{_command(one, root)}\n" for one in ordered)


def _command(finding: Finding, root: Path) -> str:
    path = _relative(finding.path, root)
    place = {"file": path, "line": str(max(finding.line, 1))}
    if finding.column:
        place["col"] = str(finding.column)
    rule = RULES.get(finding.rule)
    place["title"] = f"{finding.rule} {rule.name}" if rule else finding.rule
    properties = ",".join(f"{key}={_escape(value, ':,')}" for key, value in place.items())
    words = f"{finding.message}\nwrite: {finding.remedy}" if finding.remedy else finding.message
    return f"::{_COMMANDS[finding.severity]} {properties}::{_escape(words)}"


def _escape(text: str, more: str = "") -> str:
    """Escape what would end a command or one of its properties. Percent signs come first: escapes have them."""
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def as_sarif(report: ReportContents, root: Path) -> str:
    """Convert a report to SARIF 2.1.0: all rules with their help, and one result for each finding."""
    rules = list(RULES.values())
    places = {rule.id: place for place, rule in enumerate(rules)}
    driver = {
        "name": "tinsmith",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"uri": root.resolve().as_uri().rstrip("/") + "/"}},
        "invocations": [{"executionSuccessful": report.was_complete}],
        "results": [_result(one, places[one.rule], root) for one in report.findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    about = sentence(rule.about)
    help_text = f"{about} To leave a line out, end it with the comment: tinsmith: ignore[{rule.id}]"
    markdown = f"{about}\n\nTo leave a line out, end it with `# tinsmith: ignore[{rule.id}]`."
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": about},
        "fullDescription": {"text": about},
        "help": {"text": help_text, "markdown": markdown},
        "properties": {"tags": ["differentiability"], "precision": "high"},
    }


def _result(finding: Finding, place: int, root: Path) -> dict[str, Any]:
    words = f"{finding.message}\n\nWrite:\n\n{finding.remedy}" if finding.remedy else finding.message
    region = {"startLine": max(finding.line, 1)}
    if finding.column:
        region["startColumn"] = finding.column
    result = {
        "ruleId": finding.rule,
        "ruleIndex": place,
        "level": _LEVELS[finding.severity],
        "message": {"text": words},
        "locations": [{"physicalLocation": {"artifactLocation": _artifact(finding.path, root), "region": region}}],
        "partialFingerprints": {"primaryLocationLineHash": _fingerprint(finding, root)},
    }
    return result if finding.fix is None else result | {"fixes": [_propose(finding.fix, finding, root)]}


def _propose(fix: Edit, finding: Finding, root: Path) -> dict[str, Any]:
    """Convert the edit that corrects a finding to a fix of SARIF."""
    (line, column), (end_line, end_column) = fix.start, fix.end
    region = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
    replacement = {"deletedRegion": region, "insertedContent": {"text": fix.replacement}}
    change = {"artifactLocation": _artifact(finding.path, root), "replacements": [replacement]}
    return {"description": {"text": f"Replace it by `{fix.replacement}`."}, "artifactChanges": [change]}


def _artifact(path: str, root: Path) -> dict[str, str]:
    relative = _relative(path, root)
    if os.path.isabs(relative):  # outside the root: a host cannot show the file, but its path is kept
        return {"uri": Path(relative).as_uri()}
    return {"uri": quote(os.fsencode(relative)), "uriBaseId": _ROOT}


def _relative(path: str, root: Path) -> str:
    """Return a path relative to the root, with `/`; the absolute path if it is outside."""
    whole = Path(os.path.realpath(path))
    try:
        return whole.relative_to(root.resolve()).as_posix()
    except ValueError:
        return str(whole)


def _fingerprint(finding: Finding, root: Path) -> str:
    """Return a digest of a finding's rule, file and line text, which stays the same when lines are added above."""
    lines = read_lines(finding.path)
    text = lines[finding.line - 1].strip() if 1 <= finding.line <= len(lines) else ""
    words = "\0".join([finding.rule, _relative(finding.path, root), text])
    return hashlib.sha256(words.encode(errors="surrogateescape")).hexdigest()[:32]
