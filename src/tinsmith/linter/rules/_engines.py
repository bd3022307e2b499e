"""Rules about functions and locals that engines' reverse modes get wrong."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

from ...source import Source, called_function, read, walk
from .._carried import carried
from .._finding import Finding
from .._subject import BOTH, Subject
from .._walk import Loop, Spot, dynamic, names_in, root

_VECTORS = frozenset({"Vector", "Matrix", "vec2", "vec3", "vec4", "mat2", "mat3", "mat4"})


def atomics(subject: Subject) -> Iterator[Finding]:
    """TS401: whatever the atomic, the reverse is that of an addition."""
    for spot in subject.spots:
        for node in spot.expressions:
            name = subject.called(node)
            if not (isinstance(node, ast.Call) and name.startswith("atomic_") and node.args):
                continue
            array = root(node.args[0])
            if name in ("atomic_min", "atomic_max") and array not in subject.integers:
                words = f"`{name}`: {BOTH} give every candidate the whole gradient, not the one that won"
                yield subject.finding("TS401", "warning", node, words)
            elif name == "atomic_mul" and array not in subject.integers:
                words = "`atomic_mul` on floats: both engines end the process when they compile it"
                yield subject.finding("TS401", "error", node, words, "a product in a local, in a serial loop")
            if not isinstance(spot.statement, ast.Expr) and dynamic(spot.loops):
                words = f"uses what `{name}` returned: in a parallel loop that depends on who came first"
                yield subject.finding(
                    "TS402", "warning", node, words, "slot[i] = ...  # in integers, used in a later loop"
                )


def randoms(subject: Subject) -> Iterator[Finding]:
    """TS403."""
    for node in subject.source.nodes:
        if subject.called(node) in ("random", "randn") and subject.floats:
            words = f"`{subject.text(node)}`: {BOTH} refuse to differentiate a kernel that draws"
            yield subject.finding("TS403", "warning", node, words, "noise[i]  # an input, drawn by torch")


def carried_functions(subject: Subject) -> Iterator[Finding]:
    """TS404 and TS405: what Taichi does not keep of an inner loop's iterations."""
    if subject.engine_name == "quadrants":
        return
    for spot in subject.spots:
        for node in spot.calls if spot.inner else ():
            name = subject.called(node)
            if _is_unkept(node, subject) and _mentions(node, _moving(spot.inner)):
                local = _outside(spot, subject)
                words = f"`{subject.text(node)}` in a loop, beside the local `{local}` outside it"
                more = ": Taichi's reverse mode takes the last iteration's value for all"
                yield from [subject.finding("TS404", "warning", node, words + more)] if local else []
            handed = carried(spot.inner[-1]).keys() & subject.locals if name in ("min", "max") else ()
            if _mentions(node, handed):
                words = f"`{subject.text(node)}` of a local that the loop carries: Taichi keeps no old values for it"
                yield subject.finding("TS405", "warning", node, words)


_UNKEPT = frozenset({"exp", "tanh", "rsqrt"})


def _is_unkept(node: ast.Call, subject: Subject) -> bool:
    """Whether a call is one of those, or of an engine function that has one, or whose own functions have."""
    if subject.called(node):
        return subject.called(node) in _UNKEPT
    return _has_unkept(subject.source, node, subject, 0)


def _has_unkept(source: Source, node: ast.Call, subject: Subject, depth: int) -> bool:
    function = subject.engine.inner_function(_callee(source, node.func, subject.owner))
    if function is None or depth > 8:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return depth > 0 and name in _UNKEPT and subject.engine.owns(called_function(source, node.func))
    inner = read(function)
    calls = (one for one in inner.nodes if isinstance(one, ast.Call))
    return any(_has_unkept(inner, one, subject, depth + 1) for one in calls)


def _callee(source: Source, node: ast.expr, owner: Any) -> Any:
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return getattr(owner, node.attr, None) if is_own else called_function(source, node)  # type: ignore[attr-defined]


def _outside(spot: Spot, subject: Subject) -> str:
    """A local that the outermost loop's body has outside an inner loop around a statement, or outside a loop in that.

    Without one Taichi reverses each iteration on its own, and has all its values at hand.
    """
    task = [other for other in subject.spots if other.loops[:1] == spot.loops[:1]]
    for loop in dynamic([one for one in walk(spot.inner[0]) if isinstance(one, ast.For | ast.While)]):
        inside = {id(one) for one in walk(loop)}
        names = [name for other in task if id(other.statement) not in inside for name in _assigned(other)]
        if names:
            return names[0]
    return ""


def _assigned(spot: Spot) -> list[str]:
    """Locals that a statement gives a value."""
    return [root(target) for target, _ in spot.pairs if not isinstance(target, ast.Subscript)]


def _mentions(node: ast.Call, names: Collection[str]) -> bool:
    return bool(names) and any(not names_in(one).isdisjoint(names) for one in node.args)


@lru_cache(maxsize=64)
def _moving(loops: tuple[Loop, ...]) -> frozenset[str]:
    """Names whose values differ between iterations of inner loops."""
    targets = [loop.target for loop in loops if isinstance(loop, ast.For)]
    stored = (one for loop in loops for one in walk(loop) if isinstance(one, ast.Name))
    found = {one.id for one in stored if isinstance(one.ctx, ast.Store)}
    return frozenset().union(found, *map(names_in, targets))


def carried_vectors(subject: Subject) -> Iterator[Finding]:
    """TS406."""
    if subject.engine_name == "quadrants":
        return
    vectors = {
        target.id
        for spot in subject.spots
        for target, value in spot.pairs
        if isinstance(target, ast.Name) and any(subject.called(node) in _VECTORS for node in walk(value))
    }
    seen: set[str] = set()
    for spot in subject.spots:
        if not isinstance(spot.statement, ast.For | ast.While) or not dynamic(spot.loops):
            continue
        for name, change in carried(spot.statement).items():
            if name in vectors - seen:
                seen.add(name)
                words = f"`{name}` is a vector that the loop makes from itself: Taichi's reverse mode gets it wrong"
                yield subject.finding("TS406", "warning", change, words, "a scalar local for each number of it")


def without_rule(subject: Subject) -> Iterator[Finding]:
    """TS407."""
    for node in subject.source.nodes:
        if subject.called(node) == "tan" and subject.engine_name != "quadrants":
            remedy = subject.text(node).replace("tan(", "sin(") + " / " + subject.text(node).replace("tan(", "cos(")
            yield subject.finding("TS407", "warning", node, "Taichi has no derivative of `tan`, and refuses it", remedy)


def returned(subject: Subject) -> Iterator[Finding]:
    """TS408."""
    for node in subject.source.nodes if subject.is_kernel else ():
        if isinstance(node, ast.Return) and node.value is not None:
            words = f"the kernel returns a value: {BOTH} do not differentiate it, and an op has outputs instead"
            yield subject.finding("TS408", "warning", node, words, "out[None] = ...  # an output `out[]`")


def scalars(subject: Subject) -> Iterator[Finding]:
    """TS410."""
    items = {item.name for item in subject.spec.items} if subject.spec else set()
    for argument in subject.tree.args.args if subject.is_kernel else ():
        one = subject.declared.get(argument.arg)
        if (
            one is not None
            and one.kind == "scalar"
            and one.dtype in ("f16", "f32", "f64")
            and argument.arg not in items
        ):
            words = f"`{argument.arg}` is a number: it gets no gradient, a tensor's `.item()` loses its own"
            yield subject.finding(
                "TS410", "info", argument, words, f"{argument.arg}[] -> ...  # in the spec of `ts.op`"
            )


def baked_in(subject: Subject) -> Iterator[Finding]:
    """TS409: `self.scale` read as a number."""
    seen: set[str] = set()
    called = {id(node.func) for node in subject.source.nodes if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in subject.source.nodes if isinstance(node, ast.Attribute | ast.Subscript)}
    objects = {name for name, one in subject.declared.items() if one.kind == "object"}
    for node in subject.source.nodes:
        is_number = isinstance(node, ast.Attribute) and root(node) in objects
        if is_number and id(node) not in called | inner and subject.text(node) not in seen:
            seen.add(subject.text(node))
            words = f"`{subject.text(node)}` is a number of Python's: an engine keeps it from the first compilation"
            yield subject.finding("TS409", "info", node, words, "an argument; `ts.op` compiles anew where it changed")
