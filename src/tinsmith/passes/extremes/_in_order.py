"""Maxima and minima in code that runs in order, where no other iteration changes an element meanwhile.

The element goes over to each candidate that beats it, and its derivative is a running mean of those that tie:

    if v > y[k]:
        ties[k] = 0
        y[k] = v
    elif v == y[k]:
        count = ties[k] + 1
        ties[k] = count
        y[k] = y[k], with the derivative of y[k] + (v - y[k]) / (count + 1)

`ties` counts candidates that equal the element beyond the first, which may be what stood there before the task. Maxima
and minima of one array have a count each: the least of two candidates that tied as the greatest has one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...ir import (
    ONE,
    ZERO,
    AtomicOperator,
    Names,
    Operator,
    cast,
    compare,
    minus,
    nodes,
    over,
    plus,
    straight_through,
    walk,
)
from ._extreme import INTEGER, Beside, Extreme, extremes_in


def write_in_order(
    task: nodes.Block, kinds: Mapping[str, nodes.Array], arrays: Collection[str], names: Names
) -> tuple[nodes.Block, tuple[Beside, ...]]:
    """Return a task with its maxima and minima of some arrays written out, and memory that must be 0 before it.

    Args:
        task: the statements.
        kinds: the kernel's arrays.
        arrays: those whose maxima and minima are written out.
        names: where what is added gets its names.
    """
    wanted = sorted({(one.array, one.operator) for one in extremes_in(task, arrays)})
    extremes: dict[str, dict[str, Extreme]] = {name: {} for name, _ in wanted}
    for name, operator in wanted:
        extremes[name][operator] = Extreme(kinds[name], names.reserve_shared(f"{name}_ties"))

    def change(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        if not isinstance(one, nodes.Store | nodes.Atomic) or one.array not in extremes:
            return (one,)
        mine, others = None, dict(extremes[one.array])
        if isinstance(one, nodes.Atomic):
            mine = others.pop(one.operator, None)
        # An element that is not such a maximum any more has no ties.
        reset = tuple([nodes.Store(n.ties, one.index, one.entry, ZERO, one.line) for n in others.values()])
        if isinstance(one, nodes.Atomic) and mine is not None:
            return _candidate(one, mine, reset, names)
        return (*reset, one)

    rewritten = walk.rewrite(task, change)
    return rewritten, tuple(memory for both in extremes.values() for one in both.values() for memory in one.beside)


def _candidate(one: nodes.Atomic, extreme: Extreme, reset: nodes.Block, names: Names) -> nodes.Block:
    """Return statements for a maximum or minimum; `reset` clears the other one's count where the element changes."""
    array, index, entry, line = extreme.array, one.index, one.entry, one.line
    before: list[nodes.Stmt] = []
    # Cast first, as an atomic does: a float64 candidate that would beat a float32 element may tie with it.
    value = cast(one.value, array.type)
    if not isinstance(value, nodes.Const | nodes.Local | nodes.Argument):
        local = names.local(array.name, array.type)
        before.append(nodes.Assign(local.name, value, line))
        value = local
    old, ties = (extreme.load(name, index, entry) for name in (array.name, extreme.ties))
    if one.result is not None:
        before.append(nodes.Assign(one.result, old, line))
    count = names.local(extreme.ties, INTEGER)
    mean = plus(old, over(minus(value, old), cast(nodes.Binary(Operator.ADD, count, ONE, INTEGER), array.type)))
    won = (
        *reset,
        nodes.Store(extreme.ties, index, entry, ZERO, line),
        nodes.Store(array.name, index, entry, value, line),
    )
    tied = (
        *reset,
        nodes.Assign(count.name, plus(ties, ONE), line),
        nodes.Store(extreme.ties, index, entry, count, line),
        # The value stays exactly what won: the mean of three equal numbers may have other last bits, with which later
        # statements would compare, and infinite ones that tie have no mean.
        nodes.Store(array.name, index, entry, straight_through(old, mean), line),
    )
    is_tied = nodes.If(compare(Operator.EQ, value, old), tied, (), line)
    beats = Operator.GT if one.operator == AtomicOperator.MAX else Operator.LT
    return (*before, nodes.If(compare(beats, value, old), won, (is_tied,), line))
