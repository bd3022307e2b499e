"""Lint of files, whose kernels are neither imported nor run, and the rules that every kernel is asked by."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..engines import one_at_a_time
from ._fields import with_fields_handed, with_one_name_a_field
from ._finding import Finding, drop_suppressed, in_order, not_run
from ._scan import scan_file
from ._subject import Subject
from .functions import find_hand_written
from .rules import RULES


@one_at_a_time
def scan_kernels(path: str, text: str) -> list[Subject]:
    """Return the kernels and engine functions of a file. Raises SyntaxError."""
    return list(scan_file(path, text))


@one_at_a_time
def lint_file(path: str | Path, text: str | None = None, subjects: Sequence[Subject] | None = None) -> list[Finding]:
    """Return the findings about the kernels and engine functions of a file, without importing or running it.

    Args:
        path: the file.
        text: what stands in it, where it was read already.
        subjects: its kernels and functions, where it was scanned already.

    Raises:
        OSError: it cannot be read.
        SyntaxError: it is no Python.
    """
    text = Path(path).read_text(encoding="utf-8") if text is None else text
    linecache.checkcache(str(path))
    subjects = list(scan_file(str(path), text)) if subjects is None else subjects
    return in_order([*find_all(subjects), *_hand_written(str(path), text, subjects)])


def find_all(subjects: Iterable[Subject]) -> list[Finding]:
    """Return the findings of all rules, without those that a comment turns off."""
    kept: list[Finding] = []
    for subject in subjects:
        kept += drop_suppressed(_apply_rules(subject), {subject.source.path: subject.lines})
    return in_order(kept)


def _hand_written(path: str, text: str, subjects: Sequence[Subject]) -> list[Finding]:
    """Return findings about a file's autograd Functions. If they cannot be read, return one finding that says so."""
    try:
        findings = list(find_hand_written(path, text, subjects))
    except Exception as error:  # noqa: BLE001
        findings = [not_run("lint of the file's autograd Functions", error, path, 1)]
    return drop_suppressed(findings, {path: tuple(text.splitlines(keepends=True))})


def _apply_rules(plain: Subject) -> Iterator[Finding]:
    """Yield the findings of all rules. A kernel that a rule cannot read is a finding; other rules and kernels go on."""
    try:
        subject = with_fields_handed(with_one_name_a_field(plain))
    except Exception as error:  # noqa: BLE001  # one odd kernel among many: it is named
        yield _not_linted(plain, error)
        return
    for rule in RULES:
        try:
            yield from rule(subject)
        except Exception as error:  # noqa: BLE001
            yield _not_linted(plain, error)


def _not_linted(subject: Subject, error: Exception) -> Finding:
    what = "kernel" if subject.is_kernel else "engine function"
    return not_run(f"lint of {what} `{subject.tree.name}`", error, subject.source.path, subject.tree.lineno)
