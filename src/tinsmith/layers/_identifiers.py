"""Identifiers: valid parameter names for kernels, derived from the names of tensors and fields."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

OURS = frozenset({"self", "_lang", "_batch", "place"})
"""Names of arrays and arguments in rewritten kernels."""


def make_identifier(wish: str, taken: set[str]) -> str:
    """Return a Python identifier like `wish` that is not in `taken`, and add it there."""
    word = re.sub(r"\W", "_", wish, flags=re.ASCII).lstrip("_0123456789") or "t"
    name = word if not keyword.iskeyword(word) else f"{word}_"
    tries: Iterable[str] = (f"{name}_{count}" for count in range(2, 1 << 30))
    free_name = name if name not in taken else next(one for one in tries if one not in taken)
    taken.add(free_name)
    return free_name
