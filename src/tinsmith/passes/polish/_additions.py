"""Additions to an element of memory, atomic or as a load and a store.

atomic add y[i], v    or    y[i] = y[i] + v
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

from ...ir import AtomicOperator, Operator, minus, negate, nodes, operators, plus


class Element(NamedTuple):
    """An element of an array: its name, the index, and the number of a vector's entry."""

    array: str
    at: tuple[nodes.Expr, ...]
    entry: tuple[int, ...]


class Addition(NamedTuple):
    """What is added to an element, or subtracted."""

    to: Element
    operator: Operator
    value: nodes.Expr


def is_atomic_addition(one: nodes.Stmt) -> TypeGuard[nodes.Atomic]:
    """Return True for an atomic sum or difference that does not return the element's old value."""
    adding = (AtomicOperator.ADD, AtomicOperator.SUB)
    return isinstance(one, nodes.Atomic) and one.operator in adding and one.result is None


def find_addition(one: nodes.Stmt) -> Addition | None:
    """Return a statement as an addition; None if it is something else."""
    if is_atomic_addition(one):
        return Addition(Element(one.array, one.index, one.entry), operators.ATOMIC[one.operator], one.value)
    match one:
        case nodes.Store(
            value=nodes.Binary(Operator.ADD | Operator.SUB as operator, nodes.Load() as load, value), takes=False
        ):
            element = Element(one.array, one.index, one.entry)
            is_own = (load.array, load.index, load.entry) == element and load.type == one.value.type
            return Addition(element, operator, value) if is_own else None
    return None


def find_added_value(one: nodes.Stmt) -> nodes.Expr | None:
    """Return the value that a statement adds to the element that it changes; None if it does something else."""
    addition = find_addition(one)
    # An adjoint is never subtracted from by an atomic.
    if addition is None or (isinstance(one, nodes.Atomic) and one.operator == AtomicOperator.SUB):
        return None
    return negate(addition.value) if addition.operator == Operator.SUB else addition.value


def write_out_addition(one: nodes.Stmt) -> nodes.Stmt:
    """Return an atomic sum or difference as a load and a store, for code that runs in order; others as they are."""
    # One whose old value is asked for stays: it would need a load into a local before it.
    if not is_atomic_addition(one):
        return one
    old = nodes.Load(one.array, one.index, one.entry, one.value.type)
    new = plus(old, one.value) if one.operator == AtomicOperator.ADD else minus(old, one.value)
    return nodes.Store(one.array, one.index, one.entry, new, one.line)
