"""Example inputs of ops: functions that return them, called only by checks.

    @conv.example
    def small():
        return torch.rand(5), torch.rand(2)

A function returns a tuple of inputs by position, a dict by name, or `(tuple, dict)`; anything else is the only input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .._errors import ArgumentError, refusal


def register_example(op: str, examples: dict[str, Callable[[], Any]], make: Any) -> Callable[[], Any]:
    """Register `make` as one of an op's examples under its name, and return it.

    Raises:
        ArgumentError: it is not a function, or there is another example of this name.
    """
    name = getattr(make, "__name__", "")
    if not callable(make) or not name:
        words = f"an example of op `{op}` must be a function that returns inputs"
        raise ArgumentError(
            refusal(words, [("got", type(make).__name__)], "Decorate a function that returns the inputs.")
        )
    if name in examples:
        _refuse_another(op, examples[name], make)
    examples[name] = make
    return make


def example_inputs(made: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Split the result of an example function into inputs by position and by name."""
    if isinstance(made, Mapping):
        return (), dict(made)
    if not isinstance(made, tuple):
        return (made,), {}
    if len(made) == 2 and isinstance(made[0], tuple) and isinstance(made[1], Mapping):
        return made[0], dict(made[1])
    return made, {}


def _refuse_another(op: str, kept: Any, make: Any) -> None:
    """Raise ArgumentError if two example functions of one name are in one file.

    A notebook cell that is run again counts as another file, so it may define its example again.
    """
    (file, line), (new_file, new_line) = _place(kept), _place(make)
    if file == new_file and line != new_line:
        words = f"op `{op}` has an example `{make.__name__}` already"
        rows = [("the first", f"{file}:{line}"), ("got", f"{new_file}:{new_line}")]
        raise ArgumentError(refusal(words, rows, "Give the function another name."))


def _place(make: Any) -> tuple[str, int]:
    code = getattr(make, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else (repr(make), 0)
