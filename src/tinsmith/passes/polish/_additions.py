"""Additions to an element of memory, atomic or as a load and a store.

    atomic add y[i], v    ->    y[i] = y[i] + v

`write_out_addition` makes the second of the first, and `find_added_value` recognizes both.
"""

from __future__ import annotations

from ...ir import AtomicOperator, Operator, minus, negate, nodes, plus


def find_added_value(one: nodes.Stmt) -> nodes.Expr | None:
    """Return the value that a statement adds to the element that it changes; None if it does something else."""
    match one:
        case nodes.Atomic(AtomicOperator.ADD, value=value, result=None):
            return value
        case nodes.Store(
            array, index, entry, nodes.Binary(Operator.ADD | Operator.SUB as sign, nodes.Load(other, at, part), value)
        ):
            if (array, index, entry) == (other, at, part):
                return negate(value) if sign == "-" else value
    return None


def write_out_addition(one: nodes.Stmt) -> nodes.Stmt:
    """Return an atomic sum or difference as a load and a store, for code that runs in order; others as they are."""
    match one:
        # One whose old value is asked for stays: it would need a load into a local before it.
        case nodes.Atomic(AtomicOperator.ADD | AtomicOperator.SUB as operator, array, index, entry, value, None):
            old = nodes.Load(array, index, entry, value.type)
            new = plus(old, value) if operator == "add" else minus(old, value)
            return nodes.Store(array, index, entry, new, one.line)
        case _:
            return one
