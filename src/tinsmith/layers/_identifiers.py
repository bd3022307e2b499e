"""Identifiers: valid parameter names for kernels, derived from the names of tensors and fields."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Iterable
from typing import Any

from ..frontend import read

OURS = frozenset({"self", "_lang", "_batch"})
"""What rewritten kernels call things of the bridge."""


def find_used_names(function: Callable[..., Any]) -> set[str]:
    """Every name in a kernel's source."""
    tree = read(function).tree
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def identifier(wish: str, taken: set[str]) -> str:
    """An identifier as near to `wish` as may be, which is then taken."""
    word = re.sub(r"\W", "_", wish, flags=re.ASCII).lstrip("_0123456789") or "t"
    name = word if not keyword.iskeyword(word) else f"{word}_"
    tries: Iterable[str] = (f"{name}_{count}" for count in range(2, 1 << 30))
    free_name = name if name not in taken else next(one for one in tries if one not in taken)
    taken.add(free_name)
    return free_name
