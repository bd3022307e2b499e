"""Re-homing: a kernel's names looked up in another engine.

A Taichi kernel's text is also a Quadrants kernel's; what binds it to Taichi are the values
of its names: the module `ti`, what was taken from it (`vec3`, `f32`, `sqrt`), and functions
decorated with `ti.func`. Each is replaced by its namesake.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from typing import Any

from ..._errors import KernelError, refusal
from ...engines import Engine, translate
from ...source import Source, build, read


def rehomed(source: Source, home: Engine, to: Engine) -> dict[str, Any]:
    """The namespace of a kernel of `home` in which it compiles on `to`.

    Raises:
        KernelError: a value has no namesake in the other engine: a field, or an object with
            fields or functions of its own.
    """
    return _Mover(home, to).namespace(source)


class _Mover:
    def __init__(self, home: Engine, to: Engine) -> None:
        self.home = home
        self.to = to
        self._functions: dict[Any, Any] = {}

    def namespace(self, source: Source) -> dict[str, Any]:
        names = source.namespace()
        used = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
        return names | {name: self.value(names[name], name, source) for name in used & names.keys()}

    def value(self, value: Any, name: str, source: Source) -> Any:
        """The namesake of one value in the other engine; other values as they are."""
        function = self.home.inner_function(value)
        if function is not None:
            return self._function(function)
        if self.home.is_field(value) or getattr(type(value), "_data_oriented", False):
            raise KernelError(
                refusal(
                    f"kernel `{source.name}` cannot be moved from {self.home.name} to {self.to.name}",
                    [(f"`{name}`", f"is a {type(value).__name__} of {self.home.name}, at {source.place(source.tree)}")],
                    f"Pass it as an array, or write the kernel for {self.to.name}.",
                )
            )
        return translate(value, self.home, self.to)

    def _function(self, function: Callable[..., Any]) -> Any:
        if function not in self._functions:
            inner = read(function)
            moved, _ = build(inner.tree, self.namespace(inner), f"{inner.name} of {os.path.basename(inner.path)}")
            self._functions[function] = self.to.lang.func(moved)
        return self._functions[function]
