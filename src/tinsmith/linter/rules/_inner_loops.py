"""Rules about what Taichi's reverse mode does not keep of an inner loop's iterations.

Where nothing but the inner loop stands in an iteration of the parallel one, Taichi reverses each iteration of the
inner loop on its own, and has all its values at hand. Beside a load of an array with a gradient, or an addition to
one, it runs the loop forwards first, and what it does not put on its stack is the last iteration's for all: results of
some functions, operands of min and max, decisions of branches and bounds of loops inside. Seen by trying a hundred
small kernels, held against the exact gradient.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import lru_cache

from ...frontend import (
    Loop,
    Spot,
    callee_of,
    dynamic,
    engine_call,
    find_carried,
    is_static,
    names_in,
    resolve_callee,
    root,
    walk,
)
from .._finding import Finding
from .._subject import Subject
from .._types import types_of


def results(subject: Subject) -> Iterator[Finding]:
    """TS404."""
    for spot, node in _calls(subject):
        if _is_unkept(node, subject) and _mentions(node, _moving(spot.inner)):
            beside = _array_outside(spot, subject) or _local_outside(spot, subject)
            if beside:
                words = f"`{subject.text(node)}` in a loop, beside {beside} outside it"
                more = ": Taichi's reverse mode takes the last iteration's value for all"
                yield subject.finding("TS404", "warning", node, words + more, "", ("taichi",))


def operands(subject: Subject) -> Iterator[Finding]:
    """TS405."""
    for spot, node in _calls(subject):
        if subject.resolve_builtin(node) not in ("min", "max"):
            continue
        text = subject.text(node)
        if _mentions(node, find_carried(spot.inner[-1]).keys() & subject.source.assigned_names):
            words = f"`{text}` of a local that the loop carries: Taichi keeps no old values for it"
            yield subject.finding("TS405", "warning", node, words, "", ("taichi",))
        elif _is_real(node, spot, subject) and (beside := _array_outside(spot, subject)):
            words = f"`{text}` in a loop, beside {beside} outside it"
            more = ": Taichi's reverse mode takes the last iteration's for all"
            yield subject.finding("TS405", "warning", node, words + more, "", ("taichi",))


def decisions(subject: Subject) -> Iterator[Finding]:
    """TS412."""
    for spot in subject.spots if subject.engine_name != "quadrants" else ():
        steer = _steer(spot.statement)
        if not spot.inner or steer is None or names_in(steer).isdisjoint(_moving(spot.inner)):
            continue
        beside = _array_outside(spot, subject) if _has_floats(spot.statement, subject) else ""
        if beside:
            what = "if" if isinstance(spot.statement, ast.If) else "a loop over"
            words = f"`{what} {subject.text(steer)}` in a loop, beside {beside} outside it"
            more = ": Taichi's reverse mode takes the last iteration's decision for all"
            remedy = (
                f"{subject.module_name}.select(..., ..., 0.0)  # in place of the branch; or load in a loop of its own"
            )
            yield subject.finding("TS412", "warning", steer, words + more, remedy, ("taichi",))


def _calls(subject: Subject) -> Iterator[tuple[Spot, ast.Call]]:
    """Calls in inner loops."""
    if subject.engine_name != "quadrants":
        yield from ((spot, node) for spot in subject.spots if spot.inner for node in spot.calls)


def _steer(statement: ast.stmt) -> ast.expr | None:
    """What decides whether, or how often, the body of a statement runs."""
    if isinstance(statement, ast.If):
        return None if resolve_callee(statement.test) == "static" else statement.test
    return statement.iter if isinstance(statement, ast.For) and not is_static(statement) else None


def _has_floats(statement: ast.stmt, subject: Subject) -> bool:
    """Whether its body uses arrays that may have a gradient."""
    inside = (node for one in _body(statement) for node in walk(one))
    return any(isinstance(node, ast.Name) and node.id in subject.floats for node in inside)


def _body(statement: ast.stmt) -> list[ast.stmt]:
    return [*getattr(statement, "body", ()), *getattr(statement, "orelse", ())]


def _is_real(node: ast.Call, spot: Spot, subject: Subject) -> bool:
    """Whether a min or max is of values that move with the loop, arrays' or locals' that are not whole numbers."""
    names = frozenset().union(*map(names_in, node.args)) & _moving(spot.inner)
    reads = any(isinstance(one, ast.Subscript) and root(one) in subject.floats for one in walk(node))
    return bool(names) and (reads or bool(names & subject.source.assigned_names - types_of(subject).integers))


_UNKEPT = frozenset({"exp", "tanh", "rsqrt"})


def _is_unkept(node: ast.Call, subject: Subject) -> bool:
    """Whether a call is one of those, or of an engine function that has one, or whose own functions have."""
    if subject.resolve_builtin(node):
        return subject.resolve_builtin(node) in _UNKEPT
    callee = callee_of(subject.source, node, subject.engine)
    return callee is not None and engine_call(callee.source, subject.engine, _UNKEPT) is not None


def _array_outside(spot: Spot, subject: Subject) -> str:
    """A load or an addition that an iteration of the outermost loop has outside an inner loop around a statement."""
    task = _parts(spot.loops[0])
    for loop in _inner(spot.inner[0]):
        outside = task - _parts(loop)
        for name in sorted(subject.floats & subject.roles.keys()):
            access = next((one for one in subject.roles[name].of("read", "add") if id(one.node) in outside), None)
            if access is not None:
                label = subject.label(name)
                return f"the load of `{label}`" if access.kind == "read" else f"the addition to `{label}`"
    return ""


def _local_outside(spot: Spot, subject: Subject) -> str:
    """The same of a local."""
    task = [other for other in subject.spots if other.loops[:1] == spot.loops[:1]]
    for loop in _inner(spot.inner[0]):
        inside = _parts(loop)
        names = [name for other in task if id(other.statement) not in inside for name in _find_assigned_locals(other)]
        if names:
            return f"the local `{names[0]}`"
    return ""


@lru_cache(maxsize=64)
def _inner(loop: Loop) -> tuple[Loop, ...]:
    """A loop and those in it, but for those that `ti.static` unrolls."""
    return dynamic([one for one in walk(loop) if isinstance(one, ast.For | ast.While)])


@lru_cache(maxsize=64)
def _parts(loop: Loop) -> frozenset[int]:
    """Ids of all that a loop is made of."""
    return frozenset(map(id, walk(loop)))


def _find_assigned_locals(spot: Spot) -> list[str]:
    """Locals that a statement gives a value."""
    return [root(target) for target, _ in spot.assignments if not isinstance(target, ast.Subscript)]


def _mentions(node: ast.Call, names: Collection[str]) -> bool:
    return bool(names) and any(not names_in(one).isdisjoint(names) for one in node.args)


@lru_cache(maxsize=64)
def _moving(loops: tuple[Loop, ...]) -> frozenset[str]:
    """Names whose values differ between iterations of inner loops."""
    targets = [loop.target for loop in loops if isinstance(loop, ast.For)]
    stored = (one for loop in loops for one in walk(loop) if isinstance(one, ast.Name))
    assigned = {one.id for one in stored if isinstance(one.ctx, ast.Store)}
    return frozenset().union(assigned, *map(names_in, targets))
