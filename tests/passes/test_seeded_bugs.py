"""A one-line bug in any pass is noticed without an engine: by the verifier, or by a golden text.

Each row of `seeded_bugs.txt` has a line of a pass, the same line with a plausible slip, and the text of `golden/` that
notices it. The changed source is compiled, and the code of the one function in which it differs runs in place of the
function's own: whoever imported the function runs it too. Passes keep nothing from one kernel to the next, and each run
parses a kernel of its own, so nothing but the function's code has to be restored.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

import tinsmith.passes
from support.pass_texts import RUNS, read_example
from tinsmith.ir import InvalidKernel

FOLDER = Path(tinsmith.passes.__file__).parent


class Bug(NamedTuple):
    """A module, by its dotted name in `tinsmith.passes`, a line of it, the line with a bug, and a text that notices."""

    module: str
    line: str
    bug: str
    text: str


def read_bugs() -> list[Bug]:
    """Read the table: rows of three lines, which begin with the module and the text, `-` and `+`."""
    bugs = []
    for row in Path(__file__).with_name("seeded_bugs.txt").read_text(encoding="utf-8").split("\n\n"):
        head, line, bug = row.strip().splitlines()
        module, _, text = head.partition(": ")
        assert (line[0], bug[0]) == ("-", "+"), row
        bugs.append(Bug(module, line[1:], bug[1:], text))
    return bugs


BUGS = read_bugs()


def find_difference(before: CodeType, after: CodeType, path: tuple[str, ...] = ()) -> tuple[tuple[str, ...], CodeType]:
    """Return the names that lead to the only function whose code differs, and the code that it has `after`."""
    inner = [[part for part in code.co_consts if isinstance(part, CodeType)] for code in (before, after)]
    differing = [pair for pair in zip(*inner, strict=True) if pair[0] != pair[1]]
    assert len(differing) == 1, f"{len(differing)} functions differ in {path}"
    old, new = differing[0]
    is_function = bool(new.co_flags & inspect.CO_OPTIMIZED)
    return ((*path, new.co_name), new) if is_function else find_difference(old, new, (*path, new.co_name))


def find_function(module: Any, path: tuple[str, ...]) -> FunctionType:
    """Return a function of a module or of a class in it, without what decorators put around it."""
    attribute = module
    for name in path:
        attribute = vars(attribute)[name]
    for wrapped in ("__func__", "fget", "func", "function"):
        attribute = getattr(attribute, wrapped, attribute)
    function = inspect.unwrap(attribute)
    assert isinstance(function, FunctionType)
    return function


@contextlib.contextmanager
def with_bug(name: str, line: str, bug: str) -> Iterator[None]:
    """Run a module with a bug in one line."""
    path = FOLDER.joinpath(*name.split(".")).with_suffix(".py")
    lines = path.read_text(encoding="utf-8").splitlines()
    places = [place for place, one in enumerate(lines) if one.strip() == line]
    assert len(places) == 1, (
        f"{path.name} has this line {len(places)} times, and the table of bugs needs it once: {line}"
    )
    (place,) = places
    changed = [*lines[:place], lines[place].replace(line, bug), *lines[place + 1 :]]
    codes = (compile("\n".join(text), path, "exec", dont_inherit=True) for text in (lines, changed))
    names, code = find_difference(*codes)
    function = find_function(importlib.import_module(f"tinsmith.passes.{name}"), names)
    original = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = original


def has_code(path: Path) -> bool:
    """Return True if a file has a function, and not only options."""
    return re.search(r"^\s*def ", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def is_noticed(text: str) -> bool:
    """Return True if a pass returns another text than the golden one, or an invalid kernel."""
    example = read_example(text)
    try:
        return example.made() != example.wanted
    except InvalidKernel:
        return True


@pytest.mark.parametrize("bug", BUGS, ids=[f"{one.module}: {one.bug}" for one in BUGS])
def test_a_bug_is_noticed(bug: Bug) -> None:
    with with_bug(bug.module, bug.line, bug.bug):
        assert is_noticed(bug.text), f"{bug.text} is the same with this bug"
    assert not is_noticed(bug.text)


def test_every_pass_has_a_bug() -> None:
    paths = (path for path in FOLDER.rglob("_[a-z]*.py") if has_code(path))
    modules = {".".join(path.relative_to(FOLDER).with_suffix("").parts) for path in paths}
    assert {bug.module for bug in BUGS} == modules
    assert {bug.text.partition(".")[0] for bug in BUGS} == RUNS.keys()


def test_a_line_that_is_not_there() -> None:
    with pytest.raises(AssertionError, match="has this line 0 times"), with_bug("_products", "return kernel + 1", ""):
        pass
