"""Fixes: apply the edits of findings to the text of a file, and keep those after which the findings are gone."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ._finding import Edit, Finding
from ._lint import lint_file

_MOST_ROUNDS = 20
"""How often a file is linted again. Edits that overlap others wait for the next round."""


def fix_text(path: str, text: str, is_wanted: Callable[[Finding], bool]) -> tuple[str, list[Finding]]:
    """Return a file's text with the findings fixed whose fix is certain, and these findings.

    An edit is kept only if the new text parses, the finding is gone from it, and it has no more errors than before.

    Args:
        path: the file.
        text: what stands in it, with its own line ends.
        is_wanted: returns True for findings to fix.

    Raises:
        SyntaxError: the file is not valid Python.
    """
    fixed: list[Finding] = []
    findings = lint_file(path, text)
    for _ in range(_MOST_ROUNDS):
        by_edit: dict[Edit, list[Finding]] = {}
        for one in findings:
            if one.fix is not None and is_wanted(one):
                by_edit.setdefault(one.fix, []).append(one)
        for edits in (_choose_disjoint(by_edit), *([edit] for edit in by_edit)):
            changed = apply_edits(text, edits)
            solved = [one for edit in edits for one in by_edit[edit]]
            left = _lint_again(path, changed)
            if solved and left is not None and _is_better(findings, left, solved):
                text, findings = changed, left
                fixed += solved
                break
        else:
            break
    return text, fixed


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with disjoint edits applied."""
    # Lines as Python counts them: `splitlines` also ends one at a form feed.
    lines = list(io.StringIO(text, newline=""))
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        (first, start), (last, end) = edit.start, edit.end
        lines[first - 1 : last] = [lines[first - 1][: start - 1] + edit.replacement + lines[last - 1][end - 1 :]]
    return "".join(lines)


def _choose_disjoint(edits: Iterable[Edit]) -> list[Edit]:
    chosen: list[Edit] = []
    for edit in sorted(edits, key=lambda one: (one.start, one.end)):
        if not chosen or chosen[-1].end <= edit.start:
            chosen.append(edit)
    return chosen


def _lint_again(path: str, text: str) -> list[Finding] | None:
    """Return the findings of a changed text; None if it is not valid Python."""
    try:
        return lint_file(path, text)
    except (SyntaxError, ValueError):
        return None


def _is_better(before: Sequence[Finding], after: Sequence[Finding], solved: Sequence[Finding]) -> bool:
    """Return True if as many findings of each rule are gone as were solved, and there are no new errors."""
    counts = Counter(one.rule for one in before)
    counts.subtract(one.rule for one in solved)
    rules = {one.rule for one in solved} | {one.rule for one in before if one.severity == "error"}
    rules |= {one.rule for one in after if one.severity == "error"}
    left = Counter(one.rule for one in after)
    return all(left[rule] <= counts[rule] for rule in rules)
