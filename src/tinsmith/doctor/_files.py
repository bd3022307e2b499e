"""Files: their kernels linted without running them. Nothing here needs torch, an engine or an op."""

from __future__ import annotations

import os
import tokenize
from pathlib import Path

from ..linter import FileContents, Finding, describe_file, in_order, lint_file, not_run, scan_kernels
from ._excerpt import ignore_syntax_warnings, shorten_path
from ._report import Report


def check_file(path: Path) -> Report:
    """Lint every kernel in a Python file without running it. A file that cannot be read or parsed is a finding."""
    # Like the paths of imported kernels. `Path.resolve` would raise an error for a loop of links.
    path = Path(os.path.realpath(path))
    contents = FileContents(0, ())
    try:
        _require_python_file(path)
        # Use the encoding that Python would: UTF-8, or the one that the first lines declare.
        with tokenize.open(path) as file, ignore_syntax_warnings():
            text = file.read()
            subjects = scan_kernels(str(path), text)
            findings = lint_file(path, text, subjects)
            contents = describe_file(str(path), text, subjects)
    except SyntaxError as error:
        words = f"the file does not parse: {error.msg}"
        findings = [Finding("TS001", "error", str(path), error.lineno or 1, max(error.offset or 0, 0), words)]
    except (OSError, ValueError, LookupError) as error:  # not text, or not readable
        findings = [Finding("TS001", "error", str(path), 1, 0, f"the file cannot be read: {error}")]
    except Exception as error:  # noqa: BLE001  # report the file, and go on with the others
        findings = [not_run("lint of the file", error, str(path), 1)]
    counts = {"kernels": contents.kernels, "without_examples": contents.ops_without_examples}
    return Report(shorten_path(str(path)), in_order(findings), looked=("lint",), **counts)


def _require_python_file(path: Path) -> None:
    """Raise ValueError for a file that must not be read as Python: a notebook, which would parse as a dict, or no
    regular file.
    """
    if path.suffix == ".ipynb":
        raise ValueError("it is a notebook; convert it to a Python file with `jupyter nbconvert --to script`")
    if path.exists() and not path.is_file():
        # Opening a named pipe would wait forever.
        raise ValueError("it is not a regular file")
