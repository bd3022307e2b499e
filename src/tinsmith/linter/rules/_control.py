"""Rules about control flow: what engines' reverse modes cannot follow."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...frontend import carrying_nests, changed_loop_variables, dynamic, is_size, root, sources, walk
from .._finding import Finding
from .._subject import BOTH, ENGINES, Subject

STACK = 32
"""Entries of Taichi's gradient stack where it does not know the trip count."""


def mixed_top_level(subject: Subject) -> Iterator[Finding]:
    """TS201: engines take apart a kernel that is loops, or one that is statements."""
    if not subject.is_kernel:
        return
    loops = [one for one in subject.tree.body if isinstance(one, ast.For | ast.While)]
    for one in subject.tree.body if loops else ():
        if _does_work(one, subject):
            words = f"a statement beside loops at the kernel's top level: {BOTH} do not differentiate such a kernel"
            remedy = "for _ in range(1):  # around it, or a kernel of its own"
            yield subject.finding("TS201", "warning", one, words, remedy, ENGINES)


def _does_work(one: ast.stmt, subject: Subject) -> bool:
    """Whether a statement reads or changes memory."""
    if isinstance(one, ast.For | ast.While | ast.FunctionDef | ast.Pass | ast.Return):
        return False
    elements = (node for node in walk(one) if isinstance(node, ast.Subscript) and not is_size(node))
    return any(root(node) in subject.arrays for node in elements)


def early_ends(subject: Subject) -> Iterator[Finding]:
    """TS202 and TS203."""
    for spot in subject.spots:
        one = spot.statement
        if isinstance(one, ast.While):
            words = f"a `while` loop: {BOTH} refuse to differentiate it"
            remedy = "for _ in range(most):  # with the condition in an `if`"
            yield subject.finding("TS202", "warning", one, words, remedy, ENGINES)
        elif isinstance(one, ast.Break | ast.Continue) and dynamic(spot.loops[-1:]):
            word = "break" if isinstance(one, ast.Break) else "continue"
            words = f"`{word}`: {BOTH} refuse to differentiate a loop with `{word}`"
            yield subject.finding("TS203", "warning", one, words, "if ...:  # around what it skips", ENGINES)


def deep_loops(subject: Subject) -> Iterator[Finding]:
    """TS204: Taichi's stack has 32 entries, and the 33rd is written past its end."""
    if not subject.is_kernel or subject.engine_name == "quadrants":
        return
    nests = carrying_nests(subject.source, subject.needs.locals)
    seen: set[int] = set()
    for nest in nests:
        depth, loop = nest.depth({}, {}), next(iter(reversed(max(map(dynamic, nest.sites), key=len))), None)
        if loop is None or isinstance(loop, ast.While):
            continue  # unrolled; refused in any case
        if nest.is_aside and not _has_gradient(nest.local, subject):
            continue
        around = {id(one) for site in nest.sites for one in site} if nest.is_aside else {id(loop)}
        if (depth is None or depth > STACK) and not around & seen:
            seen.add(id(loop))
            count = (
                "as many values as the loop has iterations, and nothing says how many"
                if depth is None
                else f"{depth} values"
            )
            verb = "is used" if nest.is_aside else "changes"
            words = f"`{nest.local}` {verb} in this loop: Taichi's reverse mode keeps {count}; "
            more = f"its stack has {STACK} entries by default, and the process crashes when it needs more"
            remedy = f"{subject.module_name}.init(ad_stack_size=...)  # or Quadrants"
            yield subject.finding("TS204", "warning", loop, words + more, remedy, ("taichi",))


def changed_variables(subject: Subject) -> Iterator[Finding]:
    """TS205: ops have a local there, as Python has."""
    for name, change in changed_loop_variables(subject.source, subject.engine):
        words = f"`{name}` is the variable of a loop, whose body changes it: {BOTH} ignore the change, refuse the "
        words += "kernel, or end the process"
        match change:
            case ast.AugAssign(op=op, value=value):
                value = ast.BinOp(ast.Name(name, ast.Load()), op, value)
            case ast.Assign(value=value):
                pass
            case _:
                value = ast.Name(name, ast.Load())
        remedy = f"own_{name} = {subject.text(value)}  # and use it from there on"
        yield subject.finding("TS205", "warning", change, words, remedy)


def _has_gradient(local: str, subject: Subject) -> bool:
    """Whether elements of arrays of floats go into a local. Taichi keeps no other for a loop that only uses it.

    Measured with 100 iterations (Taichi 1.7.4): right for numbers, loop indices, and what is made of integer arrays.
    """
    names = sources(subject.tree, ast.Name(local, ast.Load()))
    values = (value for spot in subject.spots for target, value in spot.assignments if root(target) in names)
    return any(_reads_floats(node, subject) for value in values for node in walk(value))


def _reads_floats(node: ast.AST, subject: Subject) -> bool:
    if isinstance(node, ast.Call):
        return any(isinstance(one, ast.Name) and one.id in subject.floats for one in node.args)
    return isinstance(node, ast.Subscript) and not is_size(node) and root(node) in subject.floats
