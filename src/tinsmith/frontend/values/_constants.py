"""The Python values that a kernel bakes in when it is compiled, and whether they changed.

An engine reads globals, closures and attributes once, at compilation, and never again: a
learning rate in a global, or `self.scale`, stays what it was at the first call. So an op
takes a fingerprint of every such value at every call, and a new fingerprint is a new kernel.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

from ..._lazy import lazy
from ...engines import Engine
from .._fingerprints import Same, describe, fingerprint, has_one_fingerprint, is_plain_object
from .._read import Source
from ..uses import FieldUse
from ._paths import Path


@dataclass(frozen=True)
class Constants:
    """The values that a kernel bakes in. `paths` is empty for most kernels.

    Attributes:
        paths: of an object, only those of the attributes that are read. A path that leads to nothing is one, too: what
            appears there later changes the fingerprint.
        by_type: paths whose value counts by its type: a kernel only asks whether the object is there. A
            Python function counts by identity, and the values that its body reads have paths of their own.
        sources: the kernel, and the engine functions that it calls.
        uses: of fields, one for each name and field.
        gradients: those of fields that its own body names, as it names them: `x.grad`. It only stores to them, or loops
            over them. `gradient_use` is another use of a gradient: its name, and where.
        is_complete: whether every name had a value; a global may be assigned after the kernel is defined.
        has_numbers: whether a value other than a field is baked in.
    """

    paths: tuple[Path, ...]
    by_type: frozenset[Path]
    sources: tuple[Source, ...]
    uses: tuple[FieldUse, ...]
    gradients: frozenset[str]
    gradient_use: tuple[str, str] | None
    is_complete: bool
    has_numbers: bool
    engine: Engine

    @lazy
    def _names(self) -> tuple[str, ...]:
        """Return the names of the values in a fingerprint: another set of names makes another fingerprint."""
        return tuple(map(str, self.paths))

    def fingerprint(self, templates: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return a fingerprint of all current values, () without values. Equal ones compile to the same kernel."""
        if not self.paths:
            return ()
        values = [path.value(templates) for path in self.paths]
        last = self._last
        # Most calls find the very numbers of the call before. Others would be made into text, at 2 us each.
        if last and all(map(operator.is_, values, last[0][0])):
            return last[0][1]
        pairs = zip(self.paths, values, strict=True)
        fingerprint = (self._names, *[self._fingerprint_value(path, value) for path, value in pairs])
        steady = zip(self.paths, values, strict=True)
        if all(path in self.by_type or has_one_fingerprint(value, self.engine) for path, value in steady):
            last[:] = [(values, fingerprint)]
        return fingerprint

    @lazy
    def _last(self) -> list[tuple[list[Any], tuple[Any, ...]]]:
        """Return a cache of at most one entry: the last values, if each has one fingerprint, and theirs."""
        return []

    def _fingerprint_value(self, path: Path, value: Any) -> Any:
        if path in self.by_type:
            function = value.__func__ if isinstance(value, MethodType) else value
            return Same(function if isinstance(function, FunctionType) else type(value))
        return fingerprint(value, self.engine)

    def describe(self, templates: Mapping[str, Any], *, only_captured: bool = False) -> str:
        """Return the current values as text that another process can compare with its own; "" without values.

        Args:
            templates: as for `fingerprint`. Those that are left out are described as missing.
            only_captured: leave out globals.
        """
        paths = [path for path in self.paths if path.is_captured or not only_captured]
        return " ".join(f"{path}={describe(self._fingerprint_value(path, path.value(templates)))}" for path in paths)

    def list_instances(self, kind: type, templates: Mapping[str, Any]) -> list[str]:
        """Return the names, `w` or `self.w`, of the values of a type that the kernel uses or calls a method of."""
        names = []
        for path in self.paths:
            value, name = path.value(templates), str(path)
            # What a kernel names in `w.sum()` is a bound method; the tensor is the object of it.
            if isinstance(value, BuiltinMethodType):
                value, name = value.__self__, name.rpartition(".")[0]
            if isinstance(value, kind):
                names.append(name)
        return names

    def find_held(self, kind: type, templates: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return name and place of the first value of a type that the kernel uses, or passes on in a list or an object.

        Of an object only what the kernel names is looked at, except where it uses the object as a whole.
        """
        for path in self.paths:
            # A path may go on from one: Quadrants takes its `shape` for that of an argument.
            stems = (Path(path.source, path.name, path.steps[:count]) for count in range(len(path.steps) + 1))
            held = next((stem for stem in stems if isinstance(stem.value(templates), kind)), None)
            is_whole = not held and path not in self.by_type
            inside = _find_in(path.value(templates), kind, self.engine) if is_whole else "" if held else None
            if inside is not None:
                return f"{held or path}{inside}", self._place(path)
        return None

    def _place(self, path: Path) -> str:
        """Return where the kernel, or a function that it reaches, first uses the value of a path."""
        text = str(path)
        for source in self.sources:
            for node in source.nodes:
                if isinstance(node, ast.expr) and ast.unparse(node) == text:
                    return source.place(node)
        return self.sources[0].place(self.sources[0].tree)

    def has_state(self, templates: Mapping[str, Any]) -> bool:
        """Return True if the kernel uses values that may change between calls.

        Templates that are left out do not count, and neither does a function under its own name: that is a definition.
        Under another name, `self.activation`, it is a choice.
        """
        for path in self.paths:
            value = path.value(templates)
            function = self.engine.inner_function(value)
            last = path.steps[-1] if path.steps else path.name
            is_left_out = path.source is None and path.name not in templates
            if not is_left_out and (function is None or function.__name__ != last):
                return True
        return False


def _find_in(value: Any, kind: type, engine: Engine, depth: int = 0) -> str | None:
    """Return the steps from a value to one of type `kind` inside it: "", ".w", "[0]"; None if there is none."""
    if isinstance(value, kind):
        return ""
    # Objects may refer to each other in a circle.
    if depth > 3:
        return None
    if isinstance(value, list | tuple):
        inner = [(f"[{place}]", one) for place, one in enumerate(value)]
    elif isinstance(value, dict):
        inner = [(f"[{key!r}]", one) for key, one in value.items()]
    elif is_plain_object(value, engine):
        inner = [(f".{name}", one) for name, one in vars(value).items()]
    else:
        return None
    results = ((step, _find_in(one, kind, engine, depth + 1)) for step, one in inner)
    return next((step + rest for step, rest in results if rest is not None), None)
