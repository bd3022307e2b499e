"""Calls: which engine functions a kernel calls, what each is given, and which of the engine's own they use."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from types import FunctionType, MethodType
from typing import Any, NamedTuple, Protocol

from ._nodes import resolve_callee
from ._read import Source, find_called_function, read, statements_of

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

    `functions` are those among the arguments, which the source is given.
    """

    source: Source
    arguments: dict[str, ast.expr]
    functions: tuple[Any, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from other functions, and from itself where it is given others."""
        return (self.source.identity, *self.functions)


def callee_of(source: Source, call: ast.Call, engine: EngineFacts) -> Callee | None:
    """The engine function that a call in a kernel calls; None for other calls."""
    value = find_called_function(source, call.func)
    callee = bind_callee(call, value, engine)
    if callee is None:
        return None
    values = {name: find_called_function(source, argument) for name, argument in callee.arguments.items()}
    functions = {name: one for name, one in values.items() if engine.inner_function(one) is not None}
    inner = callee.source.with_objects(functions)
    if isinstance(call.func, ast.Attribute) and engine.is_bound(value):
        inner = inner.with_owner(find_called_function(source, call.func.value))
    return Callee(inner, callee.arguments, tuple(functions.values()))


class ForwardedCall(NamedTuple):
    """The call that a function consists of.

    Attributes:
        function: what it calls; None if that is not known before the run.
        arguments: the names that it passes by position; "" for any other argument.
        place: the call, as `file:line`.
    """

    function: Any
    arguments: tuple[str, ...]
    place: str


def find_forwarded_call(source: Source) -> ForwardedCall | str:
    """Return the call that is a function's only statement, or the place of the first statement that is anything else.

    A function that begins with a call and goes on is anything else from its second statement on.
    """
    match statements_of(source.tree):
        case [ast.Expr(ast.Call(function, arguments, keywords) as call)]:
            names = [one.id if isinstance(one, ast.Name) else "" for one in arguments] + [""] * len(keywords)
            return ForwardedCall(find_called_function(source, function), tuple(names), source.place(call))
        case [_, other, *_] | [other]:
            return source.place(other)
    return source.place()


def bind_callee(call: ast.Call, value: Any, engine: EngineFacts) -> Callee | None:
    """A call of a Python value, where that is an engine function; the source is given nothing."""
    function = engine.inner_function(value)
    if function is None:
        return None
    inner = read(function)
    names = inner.parameters[1:] if engine.is_bound(value) else inner.parameters
    by_name = {word.arg: word.value for word in call.keywords if word.arg in names}
    return Callee(inner, dict(zip(names, call.args, strict=False)) | by_name)


def find_reachable(source: Source, engine: EngineFacts) -> Iterator[Source]:
    """A kernel, and the engine functions that it calls, straight or through others, each once."""
    waiting = [source]
    seen: set[tuple[Any, ...]] = {(source.identity,)}
    while waiting:
        one = waiting.pop()
        yield one
        for callee in (callee_of(one, call, engine) for call in one.calls):
            if callee is not None and callee.key not in seen:
                seen.add(callee.key)
                waiting.append(callee.source)


def engine_call(source: Source, engine: EngineFacts, names: Collection[str], *, is_used: bool = False) -> str | None:
    """Where a kernel, or a function that it reaches, calls one of these functions of the engine's; None without one.

    With `is_used`, a call whose value reaches nothing does not count.
    """
    for one in find_reachable(source, engine):
        idle = one.idle_calls if is_used else frozenset()
        for call in one.calls:
            is_meant = resolve_callee(call) in names and call not in idle
            if is_meant and engine.owns(find_called_function(one, call.func)):
                return one.place(call)
    return None


def draws(source: Source, engine: EngineFacts) -> bool:
    """Whether `ti.random` or `ti.randn` is called anywhere in a kernel."""
    return engine_call(source, engine, ("random", "randn")) is not None


def multiplies_atomically(source: Source, engine: EngineFacts) -> bool:
    """Whether `ti.atomic_mul` is called anywhere in a kernel."""
    return engine_call(source, engine, ("atomic_mul",)) is not None


def returns_from_atomics(source: Source, engine: EngineFacts) -> bool:
    """Whether what an atomic returns is used anywhere in a kernel."""
    return engine_call(source, engine, _ATOMIC, is_used=True) is not None


def prints(source: Source, engine: EngineFacts) -> bool:
    """Return whether a kernel prints, which the IR does not express."""
    nodes = (node for one in find_reachable(source, engine) for node in one.nodes)
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" for node in nodes
    )


def find_breakpoint(source: Source, engine: EngineFacts) -> str | None:
    """Where a kernel first calls `breakpoint()` or a debugger's `set_trace()`, `file:line`; None without one."""
    for one in find_reachable(source, engine):
        for node in one.nodes:
            if isinstance(node, ast.Call) and is_breakpoint(one.value(node.func)):
                return one.place(node)
    return None


def is_breakpoint(function: object) -> bool:
    """Return whether a function starts a debugger: the builtin `breakpoint`, or `set_trace` as in `pdb`."""
    is_set_trace = getattr(function, "__name__", "") in ("set_trace", "breakpoint") and isinstance(
        function, FunctionType | MethodType
    )
    return function is breakpoint or is_set_trace


def runs_in_blocks(source: Source, engine: EngineFacts) -> str | None:
    """Where a kernel first shares memory with the threads of a block, waits for them or counts them, `file:line`."""
    return engine_call(source, engine, _OF_BLOCKS)


def find_frexp(source: Source, engine: EngineFacts) -> str | None:
    """Where `ti.frexp` is called first, `file:line`; None without it."""
    return engine_call(source, engine, ("frexp",))
