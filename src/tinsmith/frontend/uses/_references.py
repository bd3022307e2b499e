"""Summarize what an engine function does with its template parameters, which are passed by reference.

`inc(y[i], v)` adds to `y[i]` where `inc` is `def inc(total: ti.template(), v): total += v`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from ...engines import walk
from .._calls import Callee, EngineFacts, bind_callee, callee_of, find_reachable
from .._effects import Kind, changes_of
from .._nodes import names_in, resolve_callee, root
from .._read import Source, find_called_function

_READING_METHODS = frozenset(
    {
        "all",
        "any",
        "cast",
        "cross",
        "determinant",
        "dot",
        "inverse",
        "max",
        "min",
        "norm",
        "norm_inv",
        "norm_sqr",
        "normalized",
        "outer_product",
        "sum",
        "trace",
        "transpose",
    }
)
"""Methods of vectors and matrices that do not change them."""


def reference_kinds(callee: Callee, parameter: str, engine: EngineFacts) -> tuple[Kind, ...]:
    """Return what a function does with a parameter, a read first; () if the parameter is passed by value."""
    kinds = _reference_kinds(callee, parameter, engine, set())
    order: tuple[Kind, ...] = ("read", "write", "add")
    return tuple(kind for kind in order if kind in kinds)


def _reference_kinds(outer: Callee, parameter: str, engine: EngineFacts, seen: set[tuple[Any, str]]) -> set[Kind]:
    """Collect what a function does with a parameter. Pairs in `seen`, of a function and a parameter, are skipped."""
    source = outer.source
    # Once is enough: following every call of a function that calls itself twice, under `static`, takes exponential
    # time.
    if not source.is_template(parameter) or (outer.key, parameter) in seen:
        return set()
    seen.add((outer.key, parameter))
    kinds: set[Kind] = set()
    changed: set[int] = set()
    for node in source.nodes:
        for change in changes_of(node):
            if root(change.target) == parameter:
                # An addition that is written out reads what it adds to: that is one of the loads below.
                kinds.update(["write"] if change.is_plain else change.kinds)
                changed |= {id(part) for part in walk(change.target)}
    for callee in (callee_of(source, call, engine) for call in source.calls):
        for name, argument in callee.arguments.items() if callee else ():
            if callee and root(argument) == parameter:
                kinds |= _reference_kinds(callee, name, engine, seen)
                changed |= {id(part) for part in walk(argument)} if callee.source.is_template(name) else set()
    # What a statement or a callee changes was counted above. Any other load is a read.
    loads = (n for n in source.nodes if isinstance(n, ast.Name) and n.id == parameter and id(n) not in changed)
    if any(isinstance(node.ctx, ast.Load) for node in loads):
        kinds.add("read")
    return kinds


def find_changed_loop_variable(source: Source, engine: EngineFacts) -> str | None:
    """Return where a kernel first changes the variable of a loop, as `file:line`, or None."""
    for one in find_reachable(source, engine):
        for _, changed in changed_loop_variables(one, engine):
            return one.place(changed)
    return None


def changed_loop_variables(source: Source, engine: EngineFacts) -> Iterator[tuple[str, ast.AST]]:
    """Yield the variables of loops over ranges and arrays that the loop changes, with the first statement that does.

    Taichi 1.7.4 and Quadrants 1.3.3 silently drop `i += 1`, or end the process on it, as on `i = i + 1`, which they
    refuse otherwise. In loops over `ndrange` and `grouped` variables are locals, and may be changed.
    """
    for loop in source.nodes:
        if isinstance(loop, ast.For) and resolve_callee(loop.iter) not in ("static", "ndrange", "grouped"):
            changed = _find_change(loop, source, engine)
            if changed is not None:
                yield changed


def _find_change(loop: ast.For, source: Source, engine: EngineFacts) -> tuple[str, ast.AST] | None:
    """Return the variable of a loop that its body changes, and the statement or call that does; None without one."""
    inside = [node for statement in loop.body for node in walk(statement)]
    headers = {name for node in inside if isinstance(node, ast.For) for name in names_in(node.target)}
    # The variable of a loop inside is another one of that name.
    names = names_in(loop.target) - headers
    for node in inside:
        for one in changes_of(node):
            if isinstance(one.target, ast.Name) and one.target.id in names:
                return one.target.id, node
        callee = callee_of(source, node, engine) if isinstance(node, ast.Call) else None
        for name, argument in callee.arguments.items() if callee else ():
            is_variable = isinstance(argument, ast.Name) and argument.id in names
            if callee and is_variable and {"write", "add"} & {*reference_kinds(callee, name, engine)}:
                return root(argument), node
    return None


def find_lent_names(source: Source, engine: EngineFacts, *, to_known: bool = True) -> frozenset[str]:
    """Return the names that called functions may change: arguments of template parameters, objects of unknown methods.

    Without `to_known`, arguments of functions with known source do not count.
    """
    names: set[str] = set()
    for node in source.calls:
        function = find_called_function(source, node.func)
        callee = bind_callee(node, function, engine)
        given = callee.arguments.items() if callee and to_known else ()
        lent = [argument for name, argument in given if callee and callee.source.is_template(name)]
        # Atomics and `fill` are stores, which other analyses see.
        is_known = function is not None or bool(changes_of(node))
        if not is_known and isinstance(node.func, ast.Attribute) and node.func.attr not in _READING_METHODS:
            # A method of a local or of a template argument may do anything.
            lent = [node.func.value, *node.args]
        names |= {root(argument) for argument in lent}
    return frozenset(names - {""})
