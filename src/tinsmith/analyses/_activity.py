"""Activity: what varies with an input that has a derivative, and is useful to an output whose derivative is wanted.

Whatever the order of statements: what depends on it anywhere does so everywhere. Values flow from a local, an array
(with an `@` before its name) or an argument (with a `$`) to a local or an array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..ir import Operator, nodes, types, walk
from ._derivatives import is_flat

Edge = tuple[str, str]
"""From what, to what."""


def sources(expr: nodes.Expr) -> Iterator[str]:
    """Yield the locals, arrays and arguments that the derivative of an expression depends on."""
    for leaf in differentiated_leaves(expr):
        match leaf:
            case _ if not types.is_float(leaf.type):
                pass
            case nodes.Local():
                yield leaf.name
            case nodes.Load():
                yield f"@{leaf.array}"
            case nodes.Argument():
                yield f"${leaf.name}"


def differentiated_leaves(expr: nodes.Expr) -> Iterator[nodes.Expr]:
    """Yield what a float is computed from by operations that have derivatives: names, integers, rebuilt floats."""
    match expr:
        case nodes.Local() | nodes.Load() | nodes.Argument():
            yield expr
        # A float that is rebuilt from bits: `passes/_bits.py` decides whether its derivative is 0 or refused.
        case nodes.Cast(value, keeps_bits=True) if not types.is_float(value.type):
            yield expr
        case _ if not types.is_float(expr.type):
            yield expr
        # The condition has no derivative: it is a truth.
        case nodes.Select():
            yield from differentiated_leaves(expr.then)
            yield from differentiated_leaves(expr.otherwise)
        case nodes.Unary() | nodes.Binary() if is_flat(expr.operator):
            return
        case nodes.Binary(Operator.STRAIGHT_THROUGH, _, right):
            yield from differentiated_leaves(right)
        case _:
            for operand in walk.operands(expr):
                yield from differentiated_leaves(operand)


def edges_of(one: object) -> Iterator[Edge]:
    """Yield the edges along which a statement's values go, as far as they have derivatives."""
    match one:
        case nodes.Assign():
            yield from ((source, one.name) for source in sources(one.value))
        case nodes.Decompose():
            yield from ((source, name) for entry in one.matrix for source in sources(entry) for name in one.results)
        case nodes.Store() | nodes.Atomic():
            yield from ((source, f"@{one.array}") for source in sources(one.value))
        case nodes.Loop():
            for carried in one.carried:
                for source in (*sources(carried.first), *sources(carried.next)):
                    yield source, carried.head
                    yield source, carried.last
    # The old value that an atomic returns comes from its array.
    if isinstance(one, nodes.Atomic) and one.result is not None and types.is_float(one.value.type):
        yield f"@{one.array}", one.result


def find_reachable(start: Iterable[str], edges: Iterable[Edge]) -> set[str]:
    """Return all nodes that can be reached from `start` along edges, `start` included."""
    after: dict[str, list[str]] = {}
    for source, target in edges:
        after.setdefault(source, []).append(target)
    reached = {*start}
    waiting = list(reached)
    while waiting:
        new = [target for target in after.get(waiting.pop(), ()) if target not in reached]
        reached.update(new)
        waiting += new
    return reached


class Activity:
    """What has a derivative: what varies, and of that what is useful.

    Args:
        active: what varies and is useful.
        varied: what varies; left out, all of it is useful.
        useful: what is useful, whether it varies or not; left out, what is active.
    """

    def __init__(self, active: set[str], varied: set[str] | None = None, useful: set[str] | None = None) -> None:
        self._active = active
        self._varied = active if varied is None else varied
        self._useful = active if useful is None else useful

    def __contains__(self, local: str) -> bool:
        return local in self._active

    def add(self, local: str) -> None:
        """Note that a new local is active, since it holds a part of an active expression."""
        self._active.add(local)

    def has_array(self, name: str) -> bool:
        """Return True if an array is active: values with a derivative are stored in it."""
        return f"@{name}" in self._active

    def has_argument(self, name: str) -> bool:
        """Return True if a scalar argument is active: it has a derivative."""
        return f"${name}" in self._active

    def depends(self, expr: nodes.Expr) -> bool:
        """Return True if an expression is active: it reads something that has a derivative."""
        return not self._active.isdisjoint(sources(expr))

    def varies(self, expr: nodes.Expr) -> bool:
        """Return True if an expression depends on the active inputs, whether or not an output depends on it."""
        return not self._varied.isdisjoint(sources(expr))

    def is_useful(self, name: str) -> bool:
        """Return True if the derivative of a local or an array (`@name`) is needed, provided that it has one."""
        return name in self._useful


def find_varied(kernel: nodes.Kernel, given: Iterable[str], inert: Iterable[str] = ()) -> Activity:
    """Return the activity of a kernel in which some arrays and arguments have a derivative.

    Args:
        kernel: the kernel.
        given: arrays and arguments that have a derivative from the start.
        inert: arrays that get none.
    """
    shut = {*inert, *(name for name, one in kernel.arrays.items() if not one.is_differentiable)}
    kinds = {f"@{name}": one.type for name, one in kernel.arrays.items() if name not in shut} | {**kernel.locals}
    floating = {name for name, kind in kinds.items() if types.is_float(kind)}
    edges = [edge for one in walk.statements(kernel.body) for edge in edges_of(one) if edge[1] in floating]
    start = {f"@{name}" if name in kernel.arrays else f"${name}" for name in given}
    # Whatever reaches memory may be an output. Along reversed edges, reachable means useful.
    stored = (name for name in floating if name.startswith("@"))
    return Activity(find_reachable(start, edges), useful=find_reachable(stored, [(end, begin) for begin, end in edges]))


def along(turns: Sequence[int], edges: Sequence[Sequence[Edge]], start: set[str]) -> list[set[str]]:
    """Return what edges reach in each task over turns; arrays carry values from one turn to the next, locals do not."""
    reached = [set[str]() for _ in edges]
    # A simulation has thousands of turns, and after a few of them nothing new is reached: most are answered from here.
    known: dict[tuple[int, frozenset[str]], frozenset[str]] = {}
    arrays = frozenset(start)
    for number in turns:
        turn = number, arrays
        if turn not in known:
            here = find_reachable(arrays, edges[number])
            reached[number] |= here
            known[turn] = frozenset(key for key in here if key.startswith("@"))
        arrays = known[turn]
    return reached
