"""Structs: arguments that contain numbers, vectors and matrices by name, such as a `ti.dataclass`.

A kernel runs with the members as arguments of their own, so each member may be a number or, if the spec lists it, a
tensor.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from .._errors import ArgumentError, KernelError, TinsmithError, refusal
from ..engines import Engine, Parameter
from ..frontend import Source, read
from ..frontend.tree import NotRewritable, flatten_structs, pass_members


def without_structs_of(
    kernel: Any, engine: Engine, parameters: Sequence[Parameter], listed: Collection[str]
) -> tuple[Source, Sequence[Parameter]]:
    """Replace the structs among a kernel's parameters by parameters for their members. Return the source and the new
    parameters.

    Of a Python dataclass, only members that the kernel uses or that are `listed` become parameters.

    Raises:
        KernelError: the kernel changes a member, or uses a Python dataclass in another way than by its members.
    """
    source = replace(read(engine.function_of(kernel)), given={"_lang": engine.lang})
    members = {one.path: one.name for one in parameters if one.path}
    if not members:
        return source, parameters
    source = source.with_owner(engine.owner_of(kernel))
    of_parameters = engine.structs(kernel)
    # What is in a dataclass belongs to it, be it a struct of the engine's own.
    classes = {path: one for path, one in of_parameters.items() if isinstance(of_parameters[path[:1]], type)}
    structs = {path: one for path, one in of_parameters.items() if path not in classes}
    types = {path: f"_{'_'.join(path)}_type" for path in structs}
    of_engine = {path: name for path, name in members.items() if path[:1] in structs}
    others = {path: name for path, name in members.items() if path not in of_engine}
    try:
        source = replace(source, tree=flatten_structs(source.tree, of_engine, types))
        source, used = pass_members(source, engine, others, classes, listed)
    except NotRewritable as reason:
        words = f"kernel `{source.name}` cannot take the members of its structs as arguments: {reason.reason}"
        place = (reason.source or source).place(reason.node)
        raise KernelError(refusal(words, [("at", place)], reason.remedy)) from None
    source = source.with_objects({name: structs[path] for path, name in types.items()})
    left_out = set(others.values()).difference(used)
    return source, [one for one in parameters if one.name not in left_out]


def spell_members(text: str, parameters: Iterable[Parameter]) -> str:
    """Replace the kernel's names of struct members in a text by the caller's: `state_q` by `state.q`."""
    names = {one.name: ".".join(one.path) for one in parameters if one.path}
    words = rf"\b({'|'.join(map(re.escape, names))})\b"
    return re.sub(words, lambda found: names[found[0]], text) if names else text


def name_members(error: TinsmithError, parameters: Iterable[Parameter]) -> None:
    """Rewrite an error's message to name members of structs as the caller does: `state.q`, not `state_q`."""
    error.args = (spell_members(str(error), parameters), *error.args[1:])


class Structs:
    """The structs among an op's arguments.

    Attributes:
        order: the names of a call's arguments, with structs as one argument. A call may also pass the members of all
            structs, in order.
    """

    def __init__(self, op: str, arguments: Sequence[Parameter], declared: Iterable[Parameter] = ()) -> None:
        """Collect the structs among the `arguments` of a call; `declared` are all parameters of the kernels, used or
        not.
        """
        self._op = op
        # A dict of all members of a dataclass fits a kernel that uses some of them.
        self._declared = {one.path[:2] for one in (*declared, *arguments) if one.path}
        self._paths: dict[str, dict[str, tuple[str, ...]]] = {}
        order: list[str] = []
        for one in arguments:
            path = one.path
            order.append(path[0] if path else one.name)
            if path:
                self._paths.setdefault(path[0], {})[one.name] = path[1:]
        self.order = tuple(dict.fromkeys(order))
        self._members_in_order = tuple([one.name for one in arguments])
        # By keyword a member may have its own name: `op(**{"state.q": q})`.
        self._names = {".".join(one.path): one.name for one in arguments if one.path}

    def __bool__(self) -> bool:
        """Return True if there are any structs."""
        return bool(self._paths)

    def take_apart(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call's arguments by name, with structs replaced by their members. Raise ArgumentError if they do not
        fit.
        """
        order = self._order_for(arguments)
        if len(arguments) > len(order):
            rows = [("expected", f"{len(order)}: {', '.join(order)}"), ("got", str(len(arguments)))]
            raise ArgumentError(refusal(f"op `{self._op}` got too many arguments", rows))
        values: dict[str, Any] = {}
        # Cut to one length, since torch 2.6's compiler reads `strict=False` as a check all the same.
        pairs = list(zip(order[: len(arguments)], arguments, strict=True))
        for name, value in [*pairs, *((self._names.get(name, name), value) for name, value in named.items())]:
            parts = self._members(name, value) if name in self._paths else {name: value}
            for part, one in parts.items():
                if part in values:
                    raise ArgumentError(refusal(f"argument `{part}` of op `{self._op}` was given twice"))
                values[part] = one
        return values

    def _order_for(self, arguments: Sequence[Any]) -> tuple[str, ...]:
        """Return the names of positional arguments: those of members if a tensor is passed in place of a struct."""
        pairs = zip(self.order, arguments, strict=False)
        is_apart = any(isinstance(value, torch.Tensor) for name, value in pairs if name in self._paths)
        return self._members_in_order if is_apart else self.order

    def _members(self, name: str, value: Any) -> dict[str, Any]:
        for key in value if isinstance(value, Mapping) else ():
            if (name, key) not in self._declared:
                first = dict.fromkeys(path[0] for path in self._paths[name].values())
                words = f"argument `{name}` of op `{self._op}` has no field `{key}`"
                raise ArgumentError(refusal(words, [("members", ", ".join(first))], "Leave it out."))
        values = {}
        for part, path in self._paths[name].items():
            one = value
            for place, step in enumerate(path):
                one = self._member((name, *path[:place]), one, step)
            values[part] = one
        return values

    def _member(self, path: tuple[str, ...], value: Any, step: str) -> Any:
        if isinstance(value, Mapping) and step in value:
            return value[step]
        if not isinstance(value, Mapping) and hasattr(value, step):
            return getattr(value, step)
        words = f"argument `{'.'.join(path)}` of op `{self._op}` has no `{step}`"
        whole = [(path[0], *one) for one in self._paths[path[0]].values()]
        members = ", ".join(".".join(one[len(path) :]) for one in whole if one[: len(path)] == path)
        rows = [("expected", members), ("got", f"{type(value).__name__} {value!r:.60}")]
        raise ArgumentError(refusal(words, rows, "Pass an object with these attributes, or a dict with these keys."))
