"""Calls: which engine functions a kernel calls, what each is given, and which of the engine's own they use."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from ._nodes import resolve_callee
from ._read import Source, find_called_function, read

_OF_BLOCKS = (
    "SharedArray",
    "sync",
    "sync_all_nonzero",
    "sync_any_nonzero",
    "sync_count_nonzero",
    "mem_sync",
    "mem_fence",
    "thread_idx",
    "global_thread_idx",
)
"""Functions of the engines' `simt.block`."""
ARITHMETIC_FUNCTIONS = ("cos", "exp", "log", "sin", "tanh")
"""Functions that `kernels` has by arithmetic alone, by the engines' names."""
_ATOMIC = tuple(f"atomic_{word}" for word in ("add", "sub", "min", "max", "and", "or", "xor", "mul"))


class EngineFacts(Protocol):
    """What the analyses of a kernel's tree ask of an engine: little enough to answer for a file that nobody runs."""

    def inner_function(self, candidate: object) -> Any:
        """The function under an engine function's decorator, which `read` takes; None for other things."""
        ...

    def is_bound(self, function: object) -> bool:
        """Whether a call gives the function its object first."""
        ...

    def owns(self, value: object) -> bool:
        """Whether a value is the engine's own."""
        ...


class Callee(NamedTuple):
    """A called engine function, and the arguments that it is given by the names of its parameters.

    `owner` is the object of a method. `functions` are those among the arguments, which the source is given.
    """

    source: Source
    arguments: dict[str, ast.expr]
    owner: Any = None
    functions: tuple[Any, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from other functions, and from itself where it is given others."""
        return (self.source.identity, *self.functions)


def callee_of(source: Source, call: ast.Call, engine: EngineFacts, owner: Any = None) -> Callee | None:
    """The engine function that a call in a kernel calls; None for other calls. `owner` is the kernel's `self`."""
    value = find_called_function(source, call.func, owner)
    callee = _bind_callee(call, value, engine)
    if callee is None:
        return None
    holder = call.func.value if isinstance(call.func, ast.Attribute) and engine.is_bound(value) else None
    values = {name: find_called_function(source, argument, owner) for name, argument in callee.arguments.items()}
    functions = {name: one for name, one in values.items() if engine.inner_function(one) is not None}
    inner = callee.source
    if functions:
        inner = replace(inner, given={**inner.given, **functions})
    its_owner = None if holder is None else find_called_function(source, holder, owner)
    return Callee(inner, callee.arguments, its_owner, tuple(functions.values()))


def find_lent_arguments(call: ast.Call, value: Any, engine: EngineFacts) -> list[ast.expr]:
    """Arguments that a called function may change, those of template parameters; `value` is the function."""
    callee = _bind_callee(call, value, engine)
    return [a for name, a in callee.arguments.items() if callee.source.is_template(name)] if callee else []


def _bind_callee(call: ast.Call, value: Any, engine: EngineFacts) -> Callee | None:
    function = engine.inner_function(value)
    if function is None:
        return None
    inner = read(function)
    names = inner.parameters[1:] if engine.is_bound(value) else inner.parameters
    by_name = {word.arg: word.value for word in call.keywords if word.arg in names}
    return Callee(inner, dict(zip(names, call.args, strict=False)) | by_name)


def find_reachable(source: Source, engine: EngineFacts, owner: Any = None) -> Iterator[tuple[Source, Any]]:
    """A kernel, and the engine functions that it calls, straight or through others, each once, with its object."""
    waiting = [(source, owner)]
    seen: set[tuple[Any, ...]] = {(source.identity,)}
    while waiting:
        one, its_owner = waiting.pop()
        yield one, its_owner
        for callee in (callee_of(one, call, engine, its_owner) for call in one.calls):
            if callee is not None and callee.key not in seen:
                seen.add(callee.key)
                waiting.append((callee.source, callee.owner))


def engine_call(
    source: Source, engine: EngineFacts, names: Collection[str], owner: Any = None, *, is_used: bool = False
) -> str | None:
    """Where a kernel, or a function that it reaches, calls one of these functions of the engine's; None without one.

    With `is_used`, a call whose result nobody takes does not count.
    """
    for one, its_owner in find_reachable(source, engine, owner):
        idle = {node.value for node in one.nodes if isinstance(node, ast.Expr)} if is_used else set()
        for call in one.calls:
            is_meant = resolve_callee(call) in names and call not in idle
            if is_meant and engine.owns(find_called_function(one, call.func, its_owner)):
                return one.place(call)
    return None


def draws(source: Source, engine: EngineFacts, owner: Any) -> bool:
    """Whether `ti.random` or `ti.randn` is called anywhere in a kernel."""
    return engine_call(source, engine, ("random", "randn"), owner) is not None


def multiplies_atomically(source: Source, engine: EngineFacts, owner: Any) -> bool:
    """Whether `ti.atomic_mul` is called anywhere in a kernel."""
    return engine_call(source, engine, ("atomic_mul",), owner) is not None


def takes_functions(source: Source, engine: EngineFacts, owner: Any) -> bool:
    """Whether one of the functions that `kernels` has by arithmetic is called anywhere in a kernel."""
    return engine_call(source, engine, ARITHMETIC_FUNCTIONS, owner) is not None


def has_plain_loop(source: Source) -> bool:
    """Whether a loop of a kernel has none inside it, and no `while`."""
    loops = (one for one in ast.walk(source.tree) if isinstance(one, ast.For))
    return any(not any(isinstance(one, _CONTROL) for part in loop.body for one in ast.walk(part)) for loop in loops)


def may_end_early(source: Source, engine: EngineFacts, owner: Any) -> bool:
    """Whether a loop of a kernel, or of a function that it calls, is a `while` or has a `break`."""
    bodies = (one.nodes for one, _ in find_reachable(source, engine, owner))
    return any(isinstance(node, ast.While | ast.Break) for nodes in bodies for node in nodes)


_CONTROL = (ast.For, ast.While)


def returns_from_atomics(source: Source, engine: EngineFacts, owner: Any) -> bool:
    """Whether what an atomic returns is used anywhere in a kernel."""
    return engine_call(source, engine, _ATOMIC, owner, is_used=True) is not None


def divides(source: Source, engine: EngineFacts, owner: Any) -> bool:
    """Whether a kernel has `//`, `%` or their functions anywhere, of integers or of floats."""
    operations = (node for one, _ in find_reachable(source, engine, owner) for node in one.nodes)
    signs = (node.op for node in operations if isinstance(node, ast.BinOp | ast.AugAssign))
    is_sign = any(isinstance(sign, ast.FloorDiv | ast.Mod) for sign in signs)
    return is_sign or engine_call(source, engine, ("floordiv", "mod"), owner) is not None


def runs_in_blocks(source: Source, engine: EngineFacts, owner: Any = None) -> str | None:
    """Where a kernel first shares memory with the threads of a block, waits for them or counts them, `file:line`."""
    return engine_call(source, engine, _OF_BLOCKS, owner)
