"""Structs: arguments of a call with numbers, vectors and matrices by name, such as a `ti.dataclass`.

A kernel runs with the members as arguments of their own, so each may be a number or, where the spec lists it, a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._errors import ArgumentError, KernelError, refusal
from ..engines import Engine, Parameter
from ..frontend import Source, read
from ..frontend.tree import NotRewritable, flatten_structs


def without_structs_of(kernel: Any, engine: Engine) -> Source:
    """A kernel's source, in which members are parameters of their own. Raises KernelError where it changes one."""
    source = read(engine.function_of(kernel))
    structs = engine.structs(kernel)
    if not structs:
        return replace(source, given={"_lang": engine.lang})
    types = {path: f"_{'_'.join(path)}_type" for path in structs}
    members = {one.path: one.name for one in engine.parameters(kernel) if one.path}
    try:
        tree = flatten_structs(source.tree, members, types)
    except NotRewritable as reason:
        words = f"kernel `{source.name}` changes an argument: {reason}"
        remedy = "Change a copy: `position = camera.position`, and then `position += ...`."
        raise KernelError(refusal(words, [("at", source.place())], remedy)) from None
    given = {"_lang": engine.lang, **{name: structs[path] for path, name in types.items()}}
    return replace(source, tree=tree, given=given)


class Structs:
    """The structs among an op's arguments.

    Attributes:
        order: names of a call's arguments, structs whole.
    """

    def __init__(self, op: str, arguments: Sequence[Parameter]) -> None:
        self._op = op
        self._paths: dict[str, dict[str, tuple[str, ...]]] = {}
        order: list[str] = []
        for one in arguments:
            path = one.path
            order.append(path[0] if path else one.name)
            if path:
                self._paths.setdefault(path[0], {})[one.name] = path[1:]
        self.order = tuple(dict.fromkeys(order))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._paths)

    def take_apart(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """A call's arguments by name, with the members of structs in their places. Raises ArgumentError."""
        if len(arguments) > len(self.order):
            rows = [("expected", f"{len(self.order)}: {', '.join(self.order)}"), ("got", str(len(arguments)))]
            raise ArgumentError(refusal(f"op `{self._op}` got too many arguments", rows))
        values: dict[str, Any] = {}
        # Cut to one length, since torch 2.6's compiler reads `strict=False` as a check all the same.
        pairs = list(zip(self.order[: len(arguments)], arguments, strict=True))
        for name, value in [*pairs, *named.items()]:
            parts = self._members(name, value) if name in self._paths else {name: value}
            for part, one in parts.items():
                if part in values:
                    raise ArgumentError(refusal(f"argument `{part}` of op `{self._op}` was given twice"))
                values[part] = one
        return values

    def _members(self, name: str, value: Any) -> dict[str, Any]:
        first = [path[0] for path in self._paths[name].values()]
        for key in value if isinstance(value, Mapping) else ():
            if key not in first:
                words = f"argument `{name}` of op `{self._op}` has no field `{key}`"
                raise ArgumentError(refusal(words, [("members", ", ".join(dict.fromkeys(first)))], "Leave it out."))
        values = {}
        for part, path in self._paths[name].items():
            one = value
            for step in path:
                one = self._member(name, one, step)
            values[part] = one
        return values

    def _member(self, name: str, value: Any, step: str) -> Any:
        if isinstance(value, Mapping) and step in value:
            return value[step]
        if not isinstance(value, Mapping) and hasattr(value, step):
            return getattr(value, step)
        words = f"argument `{name}` of op `{self._op}` has no `{step}`"
        members = ", ".join(".".join(path) for path in self._paths[name].values())
        rows = [("expected", members), ("got", f"{type(value).__name__} {value!r:.60}")]
        raise ArgumentError(refusal(words, rows, "Pass an object with these attributes, or a dict with these keys."))
