"""Docstrings as we write them, for griffe to read: `Example:` with a prompt below, and items that share their words."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SHARED = re.compile(r"^ {4}(?P<names>\w+(?:, \w+)+):(?P<words> \S.*(?:\n {8}.*)*)", re.MULTILINE)


class Examples(griffe.Extension):
    """Reads every docstring before it is shown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = as_griffe_reads(obj.docstring.value)


def as_griffe_reads(text: str) -> str:
    """A docstring whose examples are code, and in which `a, b: words` is an item for each."""
    text = re.sub(r"^Example:(?=\n\s+>>>)", "Examples:", text, flags=re.MULTILINE)
    return _SHARED.sub(
        lambda item: "\n".join(f"    {name}:{item['words']}" for name in item["names"].split(", ")), text
    )
