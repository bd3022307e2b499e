"""Examples in docstrings, for griffe: `Example:` with a prompt below it is code, as `Examples:` is to it."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Reads every docstring before it is shown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:(?=\n\s+>>>)", "Examples:", obj.docstring.value, flags=re.MULTILINE)
