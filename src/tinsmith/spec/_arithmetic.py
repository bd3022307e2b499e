"""Arithmetic on sizes, such as `n - m + 1` in a spec.

A tree is plain data: it can be compared, hashed and pickled, and evaluated with any integers, including symbolic
ones.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import TypeAlias

Tree: TypeAlias = int | str | tuple[str, "Tree", "Tree"]
"""A number, the name of a dim, or (operator, left, right)."""

_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv}


def evaluate(tree: Tree, sizes: Mapping[str, int]) -> int:
    """Evaluate a tree for the given sizes. Raise ZeroDivisionError if a divisor is zero."""
    if isinstance(tree, tuple):
        return _OPERATIONS[tree[0]](evaluate(tree[1], sizes), evaluate(tree[2], sizes))
    return sizes[tree] if isinstance(tree, str) else tree


def list_tree_names(tree: Tree) -> Iterator[str]:
    """Yield the names in a tree, from left to right."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, tuple):
        yield from list_tree_names(tree[1])
        yield from list_tree_names(tree[2])


def format_tree(tree: Tree) -> str:
    """Format a tree as source text, without unnecessary parentheses."""
    if not isinstance(tree, tuple):
        return str(tree)
    sign, left, right = tree
    left_text = f"({format_tree(left)})" if _strength(left) < _strength(tree) else format_tree(left)
    right_text = f"({format_tree(right)})" if _strength(right) <= _strength(tree) else format_tree(right)
    return f"{left_text} {sign} {right_text}"


def find_zero_divisor(tree: Tree, sizes: Mapping[str, int]) -> Tree | None:
    """Return the first divisor in a tree that evaluates to zero, innermost first; None if there is none."""
    return next((divisor for divisor in list_divisors(tree) if evaluate(divisor, sizes) == 0), None)


def list_divisors(tree: Tree) -> Iterator[Tree]:
    """Yield the divisors in a tree, innermost first."""
    if isinstance(tree, tuple):
        yield from list_divisors(tree[1])
        yield from list_divisors(tree[2])
        if tree[0] == "//":
            yield tree[2]


def _strength(tree: Tree) -> int:
    if not isinstance(tree, tuple):
        return 3
    return 2 if tree[0] in ("*", "//") else 1
