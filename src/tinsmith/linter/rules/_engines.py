"""Rules about functions and locals that engines' reverse modes get wrong."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...frontend import changes_of, dynamic, find_carried, root, walk
from .._finding import Finding
from .._subject import BOTH, ENGINES, Subject
from .._types import types_of

_VECTORS = frozenset({"Vector", "Matrix", "vec2", "vec3", "vec4", "mat2", "mat3", "mat4"})


def atomics(subject: Subject) -> Iterator[Finding]:
    """TS401: whatever the atomic, the reverse is that of an addition."""
    for spot in subject.spots:
        for node in spot.expressions:
            name = subject.resolve_builtin(node)
            changes = changes_of(node) if name.startswith("atomic_") else []
            if not changes:
                continue
            array = root(changes[0].target)
            if name in ("atomic_min", "atomic_max") and array not in subject.integers:
                words = f"`{name}`: {BOTH} give every candidate the whole gradient, not the one that won"
                yield subject.finding("TS401", "warning", node, words, "", ENGINES)
            elif name == "atomic_mul" and array not in subject.integers:
                words = "`atomic_mul` on floats: both engines end the process when they compile it"
                yield subject.finding("TS401", "error", node, words, "a product in a local, in a serial loop")
            if not isinstance(spot.statement, ast.Expr) and dynamic(spot.loops):
                # Integers of the forward pass are kept for a generated gradient; floats have none, and it says so.
                engines = ENGINES if array in subject.integers else ()
                words = f"uses what `{name}` returned, which in a parallel loop depends on the order of the iterations"
                remedy = "slot[i] = ...  # in integers, used in a later loop"
                yield subject.finding("TS402", "warning", node, words, remedy, engines)


def randoms(subject: Subject) -> Iterator[Finding]:
    """TS403."""
    for node in subject.source.nodes:
        if subject.resolve_builtin(node) in ("random", "randn") and subject.floats:
            words = f"`{subject.text(node)}`: {BOTH} refuse to differentiate a kernel that draws random numbers"
            yield subject.finding("TS403", "warning", node, words, "noise[i]  # an input, drawn by torch", ENGINES)


def carried_vectors(subject: Subject) -> Iterator[Finding]:
    """TS406."""
    if subject.engine_name == "quadrants":
        return
    vectors = {
        target.id
        for spot in subject.spots
        for target, value in spot.assignments
        if isinstance(target, ast.Name) and any(subject.resolve_builtin(node) in _VECTORS for node in walk(value))
    }
    vectors -= types_of(subject).integers  # they have no gradient
    seen: set[str] = set()
    for spot in subject.spots:
        is_loop = isinstance(spot.statement, ast.For | ast.While) and bool(dynamic([spot.statement]))
        if not is_loop or not dynamic(spot.loops):
            continue
        for name, change in find_carried(spot.statement).items():
            if name in vectors - seen:
                seen.add(name)
                words = f"`{name}` is a vector that the loop makes from itself: Taichi's reverse mode gets it wrong"
                remedy = "a scalar local for each number of it"
                yield subject.finding("TS406", "warning", change, words, remedy, ("taichi",))


def without_rule(subject: Subject) -> Iterator[Finding]:
    """TS407."""
    for node in subject.source.nodes:
        if subject.resolve_builtin(node) == "tan" and subject.engine_name != "quadrants":
            remedy = subject.text(node).replace("tan(", "sin(") + " / " + subject.text(node).replace("tan(", "cos(")
            words = "Taichi has no derivative of `tan`, and refuses it"
            yield subject.finding("TS407", "warning", node, words, remedy, ("taichi",))


def find_returned_values(subject: Subject) -> Iterator[Finding]:
    """TS408."""
    known = {argument.arg for argument in subject.tree.args.args}
    is_output = subject.spec is not None and any(one.name not in known for one in subject.spec.outputs)
    for node in subject.source.nodes if subject.is_kernel and not is_output else ():
        if isinstance(node, ast.Return) and node.value is not None:
            words = "the kernel returns a value: a call gives a Python number, which has no gradient"
            yield subject.finding("TS408", "warning", node, words, '@ts.op("... -> out[]")  # the value is `out`')


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
            what, method = ("holds numbers", "tolist") if one.element else ("is a number", "item")
            words = f"`{argument.arg}` {what}: it gets no gradient, and `.{method}()` of a tensor drops the tensor's"
            item = f"{argument.arg}[{', '.join(map(str, one.element))}]"
            yield subject.finding("TS410", "info", argument, words, f"{item} -> ...  # in the spec of `ts.op`")


def baked_in(subject: Subject) -> Iterator[Finding]:
    """TS409: `self.scale` read as a number."""
    seen: set[str] = set()
    called = {id(node.func) for node in subject.source.nodes if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in subject.source.nodes if isinstance(node, ast.Attribute | ast.Subscript)}
    for node in subject.source.nodes:
        is_number = isinstance(node, ast.Attribute) and root(node) in subject.objects
        if is_number and id(node) not in called | inner and subject.text(node) not in seen:
            seen.add(subject.text(node))
            words = f"`{subject.text(node)}` is a Python number: an engine keeps its value from the first compilation"
            yield subject.finding("TS409", "info", node, words, "an argument; `ts.op` compiles again where it changed")
