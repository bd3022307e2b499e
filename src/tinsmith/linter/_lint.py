"""Lint: what the sources of kernels tell without running them."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..engines import one_at_a_time
from ..spec import Spec
from ._field_arguments import with_fields_handed
from ._finding import Finding, in_order
from ._live_kernels import subjects_of
from ._scan import scan_file
from ._subject import Subject, with_one_name_a_field
from ._suppressions import drop_suppressed
from .rules import RULES


@one_at_a_time
def lint_kernels(kernels: Sequence[Any], spec: Spec | None = None) -> list[Finding]:
    """Findings of kernels that are there, and of the engine functions that they call; `spec` is that of their op."""
    return _findings(subjects_of(kernels, spec))


@one_at_a_time
def lint_file(path: str | Path, text: str | None = None) -> list[Finding]:
    """What is wrong with the kernels and engine functions of a file, which is neither imported nor run.

    Args:
        path: the file.
        text: what stands in it, where it was read already.

    Raises:
        OSError: it cannot be read.
        SyntaxError: it is no Python.
    """
    text = Path(path).read_text(encoding="utf-8") if text is None else text
    linecache.checkcache(str(path))
    return _findings(scan_file(str(path), text))


def _findings(subjects: Iterable[Subject]) -> list[Finding]:
    kept: list[Finding] = []
    for plain in subjects:
        subject = with_fields_handed(with_one_name_a_field(plain))
        findings = (finding for rule in RULES for finding in rule(subject))
        kept += drop_suppressed(findings, {subject.source.path: subject.lines})
    return in_order(kept)
