"""Examples run: the ops of a file, each run on the examples that it has, as a report."""

from __future__ import annotations

import traceback
from dataclasses import replace
from pathlib import Path

from ..doctor import Report, check_example, find_ops_in, join_reports
from ..linter import not_run
from ._import_file import import_file


def run_examples(path: Path, seen: set[int]) -> Report:
    """Import a file and check its ops on their examples; that it cannot be imported is a finding.

    Ops whose id is in `seen` were run already; it grows. Their modules keep them alive.
    """
    try:
        module = import_file(path)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the file is somebody's own code
        return Report(str(path), [not_run("the file", error, str(path.resolve()), _line(error, path))])
    reports: list[Report] = []
    without = dict.fromkeys(op.name for op in find_ops_in(vars(module)) if not op.examples and id(op) not in seen)
    for op in find_ops_in(vars(module)):
        if id(op) not in seen:
            seen.add(id(op))
            reports += [check_example(op, example) for example in op.examples]
    return replace(join_reports(str(path), reports), without_examples=tuple(without))


def _line(error: BaseException, path: Path) -> int:
    """Return the innermost line of the file in an error's traceback."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename) == path.resolve():
        return error.lineno or 1
    own = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.resolve()
    ]
    return (own[-1] if own else 1) or 1
