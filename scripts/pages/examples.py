"""An extension of griffe that reads our docstrings: `Example:` followed by a prompt, and items that share
their words.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SHARED = re.compile(r"^ {4}(?P<names>\w+(?:, \w+)+):(?P<words> \S.*(?:\n {8}.*)*)", re.MULTILINE)


class Examples(griffe.Extension):
    """Converts every docstring before griffe parses it."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Convert the docstring of a module, class, function or attribute. Called by griffe."""
        if obj.docstring:
            obj.docstring.value = as_griffe_reads(obj.docstring.value)


def as_griffe_reads(text: str) -> str:
    """Convert a docstring to the style that griffe expects: examples as code, and an item of its own for each of `a, b:
    words`.
    """
    text = re.sub(r"^Example:(?=\n\s+>>>)", "Examples:", text, flags=re.MULTILINE)
    return _SHARED.sub(
        lambda item: "\n".join(f"    {name}:{item['words']}" for name in item["names"].split(", ")), text
    )
