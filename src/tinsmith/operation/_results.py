"""The types of results of ops with several outputs.

A result can be pickled, alone or as the output of a traced graph: its type can be imported from this module, by a
name that lists its fields.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch

from .._errors import SpecError, refusal

_PREFIX = "results_"


def result_type(name: str, outputs: Sequence[str], wanted: Any) -> Any:
    """Return the type of an op's results: the class passed as `returns=`, or a named tuple."""
    if wanted not in (None, torch.Tensor):
        fields = getattr(wanted, "_fields", ())
        if len(outputs) < 2 or tuple(fields) != tuple(outputs):
            words = f"`returns` of op `{name}` does not have the outputs as its fields, in their order"
            rows = [("outputs", ", ".join(outputs)), ("fields", ", ".join(fields) or f"none: {wanted!r:.60}")]
            raise SpecError(refusal(words, rows, "Pass a NamedTuple with these fields; one output alone is a tensor."))
        return wanted
    hidden = [output for output in outputs if output.startswith("_")] if len(outputs) > 1 else []
    if hidden:
        words = f"output `{hidden[0]}` of op `{name}` begins with an underscore, which no field of a named tuple may"
        remedy = "Give the kernel's parameter another name: several outputs are returned as one named tuple."
        raise SpecError(refusal(words, [("outputs", ", ".join(outputs))], remedy))
    label = name if name.isidentifier() else "outputs"
    return _named_tuple(label, tuple(outputs) if len(outputs) > 1 else ())


_TYPES: WeakValueDictionary[tuple[str, ...], Any] = WeakValueDictionary()
"""The named tuples that are in use. Pickle requires that a type's name finds the same type."""


def _named_tuple(label: str, fields: tuple[str, ...]) -> Any:
    known = _TYPES.get((label, *fields))
    if known is not None:
        return known
    typed: Any = [(field, torch.Tensor) for field in fields]
    made: Any = NamedTuple(f"{label}_outputs", typed)
    made.__getattr__ = functools.partialmethod(_refuse_attribute, label)
    made.__module__ = __name__
    made.__qualname__ = _PREFIX + "_".join(f"{len(word)}_{word}" for word in (label, *fields))
    # Another thread may have added it meanwhile.
    return _TYPES.setdefault((label, *fields), made)


def _refuse_attribute(outputs: Any, label: str, name: str) -> Any:
    """Raise an AttributeError that says what a result has instead of the methods of a tensor."""
    words = f"{type(outputs).__name__!r} object has no attribute {name!r}"
    if hasattr(torch.Tensor, name):
        names = ", ".join(f"`.{field}`" for field in outputs._fields)
        words += f": op `{label}` returns a named tuple of {len(outputs)} tensors, {names}"
        if name == "backward":
            total = " + ".join(f"out.{field}.sum()" for field in outputs._fields)
            words += f". Gradients are those of one number: `({total}).backward()`"
    raise AttributeError(words)


def __getattr__(name: str) -> Any:
    """Return the named tuple that `_named_tuple` gave this name: `results_3_sum_1_x_1_y` has the fields x and y."""
    words = []
    rest = name.removeprefix(_PREFIX)
    while rest != name and rest:
        length, _, rest = rest.partition("_")
        if not length.isdecimal():
            break
        words.append(rest[: int(length)])
        rest = rest[int(length) + 1 :]
    if not words or rest:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _named_tuple(words[0], tuple(words[1:]))
