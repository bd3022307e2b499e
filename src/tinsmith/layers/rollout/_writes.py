"""Writes: kernels that stand for what a Python function writes into a field between two kernels.

`loss[None] = 0`, `x[0, i] = [0.3, 0.4]`, `x.fill(1)` and `x.from_numpy(array)` become launches of these, so that they
come in order with all others. Numbers are arguments: other numbers take no other kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...codegen import build_from_text
from ...engines import NAMES, Engine, FieldFacts, array_text


def make_element_writer(engine: Engine, facts: FieldFacts) -> Any:
    """Make a kernel that writes one element, given the field, the index and the numbers: `target[i, j] = [a, b]`."""
    indices = [f"i{axis}" for axis in range(len(facts.shape))]
    body = ["for _ in range(1):", f"    target[{', '.join(indices) or 'None'}] = {_element(facts)}"]
    return _kernel(engine, [*(f"{one}: _lang.i32" for one in indices), *_numbers(facts)], body)


def make_filler(engine: Engine, facts: FieldFacts) -> Any:
    """Make a kernel that sets every element of a field to the same numbers."""
    return _kernel(
        engine, _numbers(facts), ["for place in _lang.grouped(target):", f"    target[place] = {_element(facts)}"]
    )


def make_loader(engine: Engine, facts: FieldFacts) -> Any:
    """Make a kernel that copies an array of the same shape into a field."""
    source = array_text(facts.dtype, len(facts.shape), facts.element, "unsafe", needs_grad=False)
    return _kernel(
        engine, [f"source: {source}"], ["for place in _lang.grouped(target):", "    target[place] = source[place]"]
    )


def make_row_filler(engine: Engine, facts: FieldFacts) -> Any:
    """Make a kernel that copies a field into a row of another: `target[t, i] = source[i]`."""
    rest = [f"i{axis}" for axis in range(1, len(facts.shape))]
    header = f"for {', '.join(rest)} in source:" if rest else "for _ in range(1):"
    target = f"target[{', '.join(['t', *rest])}]"
    body = [header, f"    {target} = source[{', '.join(rest) or 'None'}]"]
    return _kernel(engine, ["t: _lang.i32", "source: _lang.template()"], body)


def _names(facts: FieldFacts) -> list[str]:
    return [f"v{place}" for place in range(math.prod(facts.element))]


def _numbers(facts: FieldFacts) -> list[str]:
    return [f"{name}: _lang.{NAMES[facts.dtype]}" for name in _names(facts)]


def _element(facts: FieldFacts) -> str:
    """Return the source of an element built from the numbers."""
    names = _names(facts)
    if not facts.element:
        return names[0]
    if len(facts.element) == 1:
        return f"_lang.Vector([{', '.join(names)}])"
    width = facts.element[1]
    rows = [names[start : start + width] for start in range(0, len(names), width)]
    return f"_lang.Matrix([{', '.join('[' + ', '.join(row) + ']' for row in rows)}])"


def _kernel(engine: Engine, parameters: Sequence[str], body: Sequence[str]) -> Any:
    head = f"def write({', '.join(['target: _lang.template()', *parameters])}):"
    text = "\n".join([head, *(f"    {line}" for line in body)])
    lang: Any = engine.lang
    return lang.kernel(build_from_text(text, {"_lang": lang}, "write"))
