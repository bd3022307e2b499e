"""File names: what a Python file defines at its top level, read from its text, without running it.

What may be bound in ways that the text does not show (`from x import *`, `exec`, `globals()`) is left to a run.
"""

from __future__ import annotations

import tokenize
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from .._errors import InputError, nearest, refusal

if TYPE_CHECKING:
    from ..linter import Showable

_KINDS = {"class": "a class", "function": "a plain function", "constant": "a constant"}
_DECORATE = "Name what @ti.kernel, @qd.kernel or @ts.op decorates."


def require_defined(file: str, name: str) -> None:
    """Raise InputError if a file's text shows that `name` is missing, or is not a kernel or an op."""
    from ..frontend import ModuleNames

    text = _read(file)
    with _refuse_invalid(file):
        module = ModuleNames(text, file)
    if module.is_dynamic:
        return
    first, *members = name.split(".")
    if first not in module.names:
        _refuse(first, file, name, module.names, module.find_enclosing_function(first))
    if not members:
        kind = module.find_plain_kind(first)
        if kind is not None:
            refuse_other(file, name, _KINDS[kind])
        return
    known = module.find_members(first)
    if known is not None and members[0] not in known:
        _refuse(members[0], file, name, known)


def list_kernels(file: str) -> list[Showable]:
    """Return the kernels and ops of a file whose gradients can be printed, without running it.

    Raises:
        InputError: the file cannot be read, is not valid Python, or has no such kernel.
    """
    from ..linter import find_showable

    text = _read(file)
    with _refuse_invalid(file):
        kernels = find_showable(file, text)
    if not kernels:
        remedy = (
            "Name a file that defines kernels with array parameters at its top level, or in a class there. "
            'For a kernel on fields, print `explain("all")` of its layer.'
        )
        raise InputError(refusal("the file has no kernel with a gradient to print", [("file", file)], remedy))
    return kernels


def refuse_unknown(part: str, file: str, name: str, known: Iterable[str], remedy: str = "") -> NoReturn:
    """Raise InputError: `part` of `name` does not exist in a file that has the names `known`."""
    close = nearest(part, [one for one in known if not one.startswith("_")])
    remedy = f"Did you mean `{close}`?" if close else remedy or "Name a kernel or an op at the level of the module."
    parts = name.split(".")
    owner = ".".join(parts[: parts.index(part)])
    place = f"`{owner}`" if owner else "the file"
    raise InputError(refusal(f"there is no `{part}` in {place}", [("file", file), ("name", name)], remedy))


def refuse_other(file: str, name: str, type_name: str) -> NoReturn:
    """Raise InputError: `name` is of type `type_name`, and neither a kernel nor an op."""
    raise InputError(refusal(f"`{name}` is not a kernel or an op", [("file", file), ("got", type_name)], _DECORATE))


def _refuse(part: str, file: str, name: str, known: Iterable[str], owner: str = "") -> NoReturn:
    remedy = f"`{owner}` defines one: move it to the top level of the file." if owner else ""
    refuse_unknown(part, file, name, known, remedy)


def _read(file: str) -> str:
    try:
        with tokenize.open(file) as opened:  # as Python reads it: UTF-8, or what its first lines say
            return opened.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as cause:
        rows = [("file", file), ("because", str(cause))]
        raise InputError(refusal("the file cannot be read", rows, "Name a Python file.")) from cause


@contextmanager
def _refuse_invalid(file: str) -> Generator[None]:
    try:
        yield
    except (SyntaxError, ValueError) as error:
        rows = [("file", file), ("line", str(getattr(error, "lineno", None) or 1)), ("because", str(error))]
        raise InputError(refusal("the file is not valid Python", rows, "Correct it first.")) from error
    except (MemoryError, RecursionError) as error:
        rows = [("file", file), ("because", str(error))]
        remedy = "Split its longest expression into several statements."
        raise InputError(refusal("the file is nested too deeply to be read", rows, remedy)) from error
