"""The Python values that a kernel bakes in when it is compiled, and whether they changed.

An engine reads globals, closures and attributes once, at compilation, and never again: a
learning rate in a global, or `self.scale`, stays what it was at the first call. So an op
takes a fingerprint of every such value at every call, and a new fingerprint is a new kernel.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinMethodType, ModuleType
from typing import Any, TypeAlias

import numpy as np

from .._errors import KernelError, refusal
from .._lazy import lazy
from ..engines import Engine, Language, module_name
from ._calls import find_lent_arguments
from ._field_uses import FieldUses, field_uses
from ._fingerprints import MISSING, Item, describe, fingerprint, is_plain_object, owner_step
from ._nodes import is_item, resolve_callee
from ._read import Source, read

_STEADY_MODULES = ("math", "numpy")
_Chain: TypeAlias = "tuple[Any, ...]"
"""A name, then attributes and items (`Item`)."""


@dataclass(frozen=True)
class _Path:
    """Where a value is found: a free name of `source` or a template argument, then attributes and items."""

    source: Source | None
    name: str
    steps: tuple[str | Item, ...] = ()

    def value(self, templates: Mapping[str, Any]) -> Any:
        try:
            value = self.source.lookup(self.name) if self.source else templates[self.name]
            for step in self.steps:
                value = value[step.key] if isinstance(step, Item) else getattr(value, step)
        except (AttributeError, LookupError):
            return MISSING
        return value

    @property
    def is_captured(self) -> bool:
        """Whether it starts at a closure's variable or a parameter: kernels with one text differ in those."""
        return self.source is None or self.name in self.source.function.__code__.co_freevars

    def __str__(self) -> str:
        return _text_of((self.name, *self.steps))

    def then(self, *steps: str | Item) -> _Path:
        return _Path(self.source, self.name, (*self.steps, *steps))


@dataclass(frozen=True)
class Constants:
    """The values that a kernel bakes in. `paths` is empty for most kernels.

    Attributes:
        sources: the kernel, and the engine functions that it calls.
        fields: fields that the kernel reads or writes, with the name it knows them by.
        written: fields that it writes: their names, and where.
        places: the function that names each field, and where.
        read, whole: names of fields whose elements it reads, and of those that it passes on to functions.
        replaced: names of fields that it gives other values than sums of the old ones and something.
        gradients: those of fields that its own body names, as it names them: `x.grad`. It only stores to them, or loops
            over them. `gradient_use` is another use of a gradient: its name, and where.
        is_complete: whether every name had a value; a global may be assigned after the kernel is defined.
    """

    paths: tuple[_Path, ...]
    sources: tuple[Source, ...]
    fields: tuple[tuple[str, Any], ...]
    written: tuple[tuple[str, str], ...]
    places: Mapping[str, tuple[str, str]]
    read: frozenset[str]
    whole: frozenset[str]
    replaced: frozenset[str]
    gradients: frozenset[str]
    gradient_use: tuple[str, str] | None
    is_complete: bool
    engine: Engine
    _field_paths: frozenset[_Path]

    @lazy
    def has_numbers(self) -> bool:
        """Whether a value other than a field is baked in."""
        return len(self.paths) > len(self._field_paths)

    @lazy
    def _names(self) -> str:
        """Which values a fingerprint is made of: another set of them makes another fingerprint."""
        return " ".join(f"{path.name}.{'.'.join(map(str, path.steps))}" for path in self.paths)

    def fingerprint(self, templates: Mapping[str, Any]) -> tuple[Any, ...]:
        """A hashable fingerprint of all values now, () where there are none: equal ones compile to the same kernel."""
        if not self.paths:
            return ()
        return (self._names, *[fingerprint(path.value(templates), self.engine) for path in self.paths])

    def describe(self, templates: Mapping[str, Any], *, only_captured: bool = False) -> str:
        """The values now, as text that another process can compare with its own; "" where there are none.

        Args:
            templates: as for `fingerprint`. Those that are left out are described as missing.
            only_captured: leave out globals.
        """
        paths = [path for path in self.paths if path.is_captured or not only_captured]
        return " ".join(f"{path}={describe(fingerprint(path.value(templates), self.engine))}" for path in paths)

    def list_instances(self, kind: type, templates: Mapping[str, Any]) -> list[str]:
        """Values of a type that the kernel uses, or a method of, as it names them: `w`, `self.w`."""
        names = []
        for path in self.paths:
            value, name = path.value(templates), str(path)
            if isinstance(value, BuiltinMethodType):
                value, name = value.__self__, name.rpartition(".")[0]
            if isinstance(value, kind):
                names.append(name)
        return names

    def has_state(self, templates: Mapping[str, Any]) -> bool:
        """Whether it uses values, besides functions and templates that are left out, which may change between calls."""
        values = (path.value(templates) for path in self.paths)
        return any(value is not MISSING and self.engine.inner_function(value) is None for value in values)


def constants_of(source: Source, engine: Engine, templates: Mapping[str, Any], arrays: frozenset[str]) -> Constants:
    """Find every baked-in value of a kernel and of the engine functions it calls.

    Args:
        source: the kernel.
        engine: whose functions are followed.
        templates: template arguments by name, `self` among them; their attributes are baked in too.
        arrays: parameters that are memory, and so never baked in.
    """
    finder = _Finder(engine, templates)
    roots = {name: _Path(None, name) for name in templates if name not in arrays}
    finder.walk(source, roots)
    return Constants(
        tuple(dict.fromkeys(finder.paths)),
        tuple({one.function: one for one in finder.sources}.values()),
        tuple(finder.fields),
        tuple(finder.written),
        finder.places,
        frozenset(finder.read),
        frozenset(finder.whole),
        frozenset(finder.replaced),
        frozenset(finder.gradients),
        finder.gradient_use,
        finder.is_complete,
        engine,
        frozenset(finder.field_paths),
    )


class _Finder:
    """Walks a kernel and the engine functions that it calls, collecting paths."""

    def __init__(self, engine: Engine, templates: Mapping[str, Any]) -> None:
        self.engine = engine
        self.templates = templates
        self.paths: list[_Path] = []
        self.sources: list[Source] = []
        self.field_paths: list[_Path] = []
        self.fields: list[tuple[str, Any]] = []
        self.written: list[tuple[str, str]] = []
        self.places: dict[str, tuple[str, str]] = {}
        self.read: set[str] = set()
        self.whole: set[str] = set()
        self.replaced: set[str] = set()
        self.gradients: set[str] = set()
        self.gradient_use: tuple[str, str] | None = None
        self.is_complete = True
        self._seen: set[tuple[Any, Any]] = set()
        self._sources: dict[Any, Source] = {}
        self._entered: dict[tuple[Any, int], Source] = {}
        self._depth = 0

    def walk(self, source: Source, roots: Mapping[str, _Path]) -> None:
        self.sources.append(source)
        local = source.assigned_names | set(source.parameters)
        uses = field_uses(source.tree)
        lent = self._find_lent_names(source, roots)
        labels: list[str] = []
        gradients: list[str] = []
        for chain in _chains(source.tree):
            name, *attributes = chain
            if name in roots:
                path = roots[name].then(*attributes)
            elif name not in local and not self._is_builtin(source, name):
                path = _Path(source, name, tuple(attributes))
            else:
                continue
            field = self._field(path)
            if field is None:
                self._follow(path, source)
                continue
            label = _text_of(chain[: 1 + len(field.steps)])
            self.paths.append(field)  # the field itself is baked in, what it holds is not
            self.field_paths.append(field)
            self.fields.append((label, field.value(self.templates)))
            self.places.setdefault(label, (source.name, source.place(_first(source, name))))
            gradient = self._find_gradient(field, label, chain[1 + len(field.steps) :])
            if gradient:
                gradients.append(gradient)
                self._note_gradient(gradient, source, uses, lent)
            else:
                labels.append(label)
        for label in labels:
            written = _within(label, uses.written, gradients)[:1]
            self.written += [(label, source.place(uses.written[name])) for name in written]
            self.read |= {label} if _within(label, uses.read, gradients) else set()
            self.whole |= {label} if _within(label, uses.whole | lent, gradients, items=False) else set()
            self.replaced |= {label} if _within(label, uses.replaced, gradients) else set()

    def _find_gradient(self, path: _Path, label: str, steps: Sequence[str | Item]) -> str:
        """The gradient that steps from a field lead to, as the kernel names it; "" where they lead to none.

        Of a field of structs it is that of all members, `p.grad`, or of one, `p.a.grad`; a member may be called `grad`.
        """
        value = path.value(self.templates)
        for step in steps:
            is_leaf = any(leaf is value for _, leaf in self.engine.leaf_fields(value, ""))
            struct = None if is_leaf else Language(self.engine).struct_of(value)
            if not is_leaf and struct is None:
                return ""
            members: Mapping[str, Any] = {} if struct is None else struct.members
            if step == "grad" and step not in members:
                return f"{label}.grad"
            if not isinstance(step, str) or step not in members:
                return ""
            value, label = members[step], f"{label}.{step}"
        return ""

    def _note_gradient(self, text: str, source: Source, uses: FieldUses, lent: set[str]) -> None:
        """A kernel stores to a gradient, or does something else with it."""
        is_own = not self._depth
        if text in uses.read | uses.whole | lent or (text in uses.written and not is_own):
            place = source.place(uses.written.get(text) or _first(source, text.partition(".")[0]))
            self.gradient_use = self.gradient_use or (text, place)
        elif is_own:
            self.gradients.add(text)

    def _find_lent_names(self, source: Source, roots: Mapping[str, _Path]) -> set[str]:
        """Names whose elements are given to functions that may store to them."""
        changeable: set[str] = set()
        for call in source.calls:
            for name, *attributes in _chains_in(call.func)[:1]:
                path = roots[name] if name in roots else _Path(source, name)
                lent = find_lent_arguments(call, self._value(path.then(*attributes)), self.engine)
                changeable |= {_text_of(chain) for argument in lent for chain in _chains_in(argument)}
        return changeable

    def _value(self, path: _Path) -> Any:
        try:
            return path.value(self.templates)
        except KeyError:
            return MISSING  # a local, or a global that is assigned later

    def _is_builtin(self, source: Source, name: str) -> bool:
        try:
            return source.lookup(name) is getattr(builtins, name, MISSING)
        except KeyError:
            self.is_complete = False  # not assigned yet, or never: then the engine will name it
            return True

    def _field(self, path: _Path) -> _Path | None:
        """The stem of a path that leads to a field, if one does."""
        stem, value = self._longest(path)
        return stem if self.engine.is_field(value) else None

    def _follow(self, path: _Path, source: Source) -> None:
        root = _Path(path.source, path.name).value(self.templates)
        if isinstance(root, ModuleType) and (self.engine.owns(root) or root.__name__ in _STEADY_MODULES):
            return
        stem, value = self._longest(path)
        if value is MISSING:
            return
        self.paths.append(stem)
        self._enter_all(stem, value, source)

    def _enter_all(self, stem: _Path, value: Any, source: Source, depth: int = 0) -> None:
        """Look into an engine function, or into those that a container or an object holds, and for fields in these."""
        function = self.engine.inner_function(value)
        if function is not None and (function, stem) not in self._seen:
            self._seen.add((function, stem))
            self._enter(function, stem)
        elif depth and self.engine.is_field(value):
            self.fields.append((str(stem), value))
            self.places.setdefault(str(stem), (source.name, source.place(_first(source, stem.name))))
            self.whole.add(str(stem))  # which of a list's fields an index means is not followed
        elif isinstance(value, list | tuple | dict) and depth < 4:
            for key in value if isinstance(value, dict) else range(len(value)):
                self._enter_all(stem.then(Item(key)), value[key], source, depth + 1)
        elif is_plain_object(value, self.engine) and depth < 4:
            for name, held in list(vars(value).items()):
                self._enter_all(stem.then(name), held, source, depth + 1)

    def _longest(self, path: _Path) -> tuple[_Path, Any]:
        """The longest stem of a path that leads to a value, stopping at numbers, fields and functions."""
        stem = _Path(path.source, path.name)
        value = stem.value(self.templates)
        for step in path.steps:
            if value is MISSING or (self._is_leaf(value) and not _is_item_of(step, value)):
                break
            further = stem.then(step).value(self.templates)
            if further is MISSING:
                break
            stem, value = stem.then(step), further
        return stem, value

    def _is_leaf(self, value: Any) -> bool:
        return (
            isinstance(value, int | float | str | tuple | list | dict | np.ndarray | np.generic)
            or self.engine.is_field(value)
            or self.engine.matrix_entries(value) is not None
        )

    def _enter(self, function: Any, stem: _Path) -> None:
        """Walk a function. One that calls itself, of the same object, has nothing new to show the second time."""
        if function not in self._sources:  # one `Source` a function: paths into it are compared
            self._sources[function] = read(function)
        inner = self._sources[function]
        owner = self._owner(stem) if self.engine.is_bound(stem.value(self.templates)) else None
        key = function, 0 if owner is None else id(owner.value(self.templates))
        if key in self._entered:
            self._refuse_endless(key, stem)
            return
        self._entered[key] = inner
        self._depth += 1
        self.walk(inner, {} if owner is None else {inner.parameters[0]: owner})
        self._depth -= 1
        del self._entered[key]

    def _refuse_endless(self, key: tuple[Any, int], stem: _Path) -> None:
        """Refuse functions that call each other without end: engines compile for minutes, or until Python's stack ends.

        A real function is compiled once, and calls itself while it runs.
        """
        if Language(self.engine).is_real(stem.value(self.templates)):
            return
        circle = list(self._entered.values())[list(self._entered).index(key) :]
        if any(resolve_callee(call) == "static" for one in circle for call in one.calls):
            return
        name, caller = self._entered[key].name, circle[-1]
        calls = (call for call in caller.calls if _chains_in(call.func)[:1] and _chains_in(call.func)[0][-1] == name)
        words = f"function `{name}` calls itself, and nothing ends that while the kernel is compiled"
        static = f"{module_name(self.engine.name, caller.function)}.static(...)"
        remedy = f"Put the call under `if {static}` on a template parameter that ends the recursion, or write a loop."
        raise KernelError(refusal(words, [("at", caller.place(next(calls, caller.tree)))], remedy))

    def _owner(self, stem: _Path) -> _Path:
        """The path to the object that a bound function belongs to."""
        last = stem.steps[-1] if stem.steps else None
        if isinstance(last, str):
            return _Path(stem.source, stem.name, stem.steps[:-1])
        return stem.then(owner_step(stem.value(self.templates)))


def _first(source: Source, name: str) -> ast.AST:
    """The first use of a name in a body."""
    return next((one for one in source.nodes if isinstance(one, ast.Name) and one.id == name), source.tree)


def _chains(tree: ast.FunctionDef) -> list[_Chain]:
    """Every maximal `name.attribute["item"]` read in a body, as tuples."""
    return list(dict.fromkeys(chain for statement in tree.body for chain in _chains_in(statement)))


def _chains_in(part: ast.AST) -> list[_Chain]:
    chains: list[_Chain] = []

    def visit(node: ast.AST, tail: tuple[str | Item, ...]) -> None:
        if isinstance(node, ast.Attribute):
            visit(node.value, (node.attr, *tail))
        elif is_item(node):
            assert isinstance(node.slice, ast.Constant)
            visit(node.value, (Item(node.slice.value), *tail))
        elif isinstance(node, ast.Name):
            chains.append((node.id, *tail))
        else:
            for child in ast.iter_child_nodes(node):
                visit(child, ())

    visit(part, ())
    return chains


def _text_of(chain: tuple[str | Item, ...]) -> str:
    """A chain as the source writes it."""
    name, *steps = chain
    return str(name) + "".join(f"[{step.key!r}]" if isinstance(step, Item) else f".{step}" for step in steps)


def _is_item_of(step: str | Item, value: Any) -> bool:
    """Whether a step goes from a list or dict to what it holds: numbers of an array are baked in together."""
    return isinstance(step, Item) and isinstance(value, list | tuple | dict)


def _within(label: str, names: Iterable[str], gradients: Iterable[str], *, items: bool = True) -> list[str]:
    """Those of `names` that are a field's, or of a member of it: `p` and `p.mass`; but for gradients.

    With `items`, of an element too: `p[0]`, which is no use of the field as a whole.
    """
    ends = (".", "[") if items else (".",)
    members = (name for name in names if name == label or name.startswith(tuple(label + end for end in ends)))
    taken = tuple(gradient + end for gradient in gradients for end in (".", "["))
    return [name for name in members if name not in gradients and not name.startswith(taken)]
