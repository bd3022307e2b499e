"""Distances: whether a vector leads from one element of an array to another, so that it has a length."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from ...frontend import definitions, index_parts, is_size, root
from .._subject import Subject


def joins_two_elements(vector: ast.expr, guards: Sequence[ast.expr], subject: Subject) -> bool:
    """Whether a vector is the difference of two elements of one array that are not the same element.

    These are ends of a spring, whose numbers come from arrays, `x[a[s]] - x[b[s]]`; neighbours, `x[i] - x[i + 1]`; and
    what a branch keeps apart, `if i != j`. Of `x[i] - x[j]` in two loops nothing says that `i` is not `j`.
    """
    single = definitions(subject.tree).single
    difference = _meaning(vector, single)
    if not (isinstance(difference, ast.BinOp) and isinstance(difference.op, ast.Sub)):
        return False
    one, other = _meaning(difference.left, single), _meaning(difference.right, single)
    if not (isinstance(one, ast.Subscript) and isinstance(other, ast.Subscript)):
        return False
    if ast.dump(one.value) != ast.dump(other.value) or root(one) not in subject.arrays:
        return False
    pairs = zip(index_parts(one.slice), index_parts(other.slice), strict=False)
    return any(_differ(*pair, guards, single, subject) for pair in pairs)


def _differ(
    one: ast.expr, other: ast.expr, guards: Sequence[ast.expr], single: Mapping[str, ast.expr], subject: Subject
) -> bool:
    both = {ast.dump(one), ast.dump(other)}
    if len(both) == 1:
        return False
    unequal = (guard for guard in guards if isinstance(guard, ast.Compare) and isinstance(guard.ops[0], ast.NotEq))
    if any({ast.dump(guard.left), ast.dump(guard.comparators[0])} == both for guard in unequal):
        return True
    one, other = _meaning(one, single), _meaning(other, single)
    if all(isinstance(end, ast.Subscript) and not is_size(end) and root(end) in subject.arrays for end in (one, other)):
        return ast.dump(one) != ast.dump(other)
    (base, shift), (other_base, other_shift) = _split_offset(one, single), _split_offset(other, single)
    return base == other_base and shift != other_shift


def _meaning(node: ast.expr, single: Mapping[str, ast.expr]) -> ast.expr:
    """What a local stands for that is given a value once."""
    seen: set[str] = set()
    while isinstance(node, ast.Name) and node.id in single and node.id not in seen:
        seen.add(node.id)
        node = single[node.id]
    return node


def _split_offset(index: ast.expr, single: Mapping[str, ast.expr]) -> tuple[str, int]:
    """An index as what it begins with and the number that is added to it."""
    match index:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=ast.Constant(value=int(number))):
            return ast.dump(_meaning(left, single)), number if isinstance(op, ast.Add) else -number
        case ast.BinOp(left=ast.Constant(value=int(number)), op=ast.Add(), right=right):
            return ast.dump(_meaning(right, single)), number
    return ast.dump(index), 0
