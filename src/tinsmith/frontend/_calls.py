"""Resolve calls: which engine functions a kernel calls, with which arguments, and which built-in ones it reaches."""

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
    """What the analyses of a kernel's tree ask of an engine. Lint answers it for files that are not run."""

    def inner_function(self, candidate: object) -> Any:
        """Return the function under an engine function's decorator, which `read` takes; None for other values."""
        ...

    def is_bound(self, function: object) -> bool:
        """Return True for a bound method: a call passes its object as the first argument."""
        ...

    def owns(self, value: object) -> bool:
        """Return True if a value is part of the engine's own package."""
        ...


class Callee(NamedTuple):
    """A called engine function, with its arguments by the names of its parameters.

    `functions` are the engine functions among the arguments; `source` knows what its parameters stand for.
    """

    source: Source
    arguments: dict[str, ast.expr]
    functions: tuple[Any, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """A hashable key: the function, and the functions that are passed to it."""
        return (self.source.identity, *self.functions)


def callee_of(source: Source, call: ast.Call, engine: EngineFacts) -> Callee | None:
    """Resolve a call in a kernel to the engine function that it calls; None for other calls."""
    value = find_called_function(source, call.func)
    callee = bind_callee(call, value, engine)
    if callee is None:
        return None
    # `apply(f, x)` and `apply(g, x)` do different things: functions among the arguments are part of the key, and calls
    # of the parameter that stands for one are followed.
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
    """Bind a call's arguments to the parameters of `value`; None if it is not an engine function.

    Unlike in `callee_of`, the source does not know what its parameters stand for.
    """
    function = engine.inner_function(value)
    if function is None:
        return None
    inner = read(function)
    # A bound method's object is not among the arguments of the call.
    names = inner.parameters[1:] if engine.is_bound(value) else inner.parameters
    by_name = {word.arg: word.value for word in call.keywords if word.arg in names}
    return Callee(inner, dict(zip(names, call.args, strict=False)) | by_name)


def find_reachable(source: Source, engine: EngineFacts) -> Iterator[Source]:
    """Yield a kernel and the engine functions that it calls, directly or through others, each once."""
    waiting = [source]
    # A function may call itself, under `static`, more than once: following every call would take exponential time
    # (tests/frontend/test_static_recursion.py).
    seen: set[tuple[Any, ...]] = {(source.identity,)}
    while waiting:
        one = waiting.pop()
        yield one
        for callee in (callee_of(one, call, engine) for call in one.calls):
            if callee is not None and callee.key not in seen:
                seen.add(callee.key)
                waiting.append(callee.source)


def engine_call(source: Source, engine: EngineFacts, names: Collection[str], *, is_used: bool = False) -> str | None:
    """Return the place, `file:line`, where a kernel or a function that it reaches calls one of these engine functions.

    None if there is no such call.

    With `is_used`, a call whose value reaches nothing does not count.
    """
    for one in find_reachable(source, engine):
        idle = one.idle_calls if is_used else frozenset()
        for call in one.calls:
            # The name is not enough: for a method of a local it is the text that stands there.
            is_meant = resolve_callee(call) in names and call not in idle
            if is_meant and engine.owns(find_called_function(one, call.func)):
                return one.place(call)
    return None


def draws(source: Source, engine: EngineFacts) -> bool:
    """Return True if `ti.random` or `ti.randn` is called anywhere in a kernel."""
    return engine_call(source, engine, ("random", "randn")) is not None


def multiplies_atomically(source: Source, engine: EngineFacts) -> bool:
    """Return True if `ti.atomic_mul` is called anywhere in a kernel."""
    return engine_call(source, engine, ("atomic_mul",)) is not None


def returns_from_atomics(source: Source, engine: EngineFacts) -> bool:
    """Return True if what an atomic returns is used anywhere in a kernel."""
    return engine_call(source, engine, _ATOMIC, is_used=True) is not None


def prints(source: Source, engine: EngineFacts) -> bool:
    """Return True if a kernel prints, which the IR does not express."""
    return any(one.value(call.func) is print for one in find_reachable(source, engine) for call in one.calls)


def find_breakpoint(source: Source, engine: EngineFacts) -> str | None:
    """Return where a kernel first calls `breakpoint()` or a debugger's `set_trace()`, as `file:line`, or None."""
    for one in find_reachable(source, engine):
        for node in one.nodes:
            if isinstance(node, ast.Call) and is_breakpoint(one.value(node.func)):
                return one.place(node)
    return None


def is_breakpoint(function: object) -> bool:
    """Return True if a function starts a debugger: the builtin `breakpoint`, or `set_trace` as in `pdb`."""
    # By name, since every debugger has a function of its own: `pdb.set_trace`, `debugpy.breakpoint`.
    is_set_trace = getattr(function, "__name__", "") in ("set_trace", "breakpoint") and isinstance(
        function, FunctionType | MethodType
    )
    return function is breakpoint or is_set_trace


def runs_in_blocks(source: Source, engine: EngineFacts) -> str | None:
    """Return where a kernel first uses shared memory, barriers or votes of a thread block, as `file:line`, or None."""
    return engine_call(source, engine, _OF_BLOCKS)


def find_frexp(source: Source, engine: EngineFacts) -> str | None:
    """Return where `ti.frexp` is called first, as `file:line`, or None."""
    return engine_call(source, engine, ("frexp",))
