"""Find the Python values that a kernel bakes in when it is compiled, and whether they changed.

An engine reads globals, closures and attributes once, at compilation, and never again: a
learning rate in a global, or `self.scale`, stays what it was at the first call. So an op
takes a fingerprint of every such value at every call, and a new fingerprint is a new kernel.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinMethodType, ModuleType
from typing import Any

import numpy as np

from ..._errors import KernelError, refusal
from ..._lazy import lazy
from ...engines import Engine, Language, module_name
from .._calls import bind_callee
from .._fingerprints import MISSING, Item, describe, fingerprint, is_plain_object, owner_step
from .._nodes import is_item, resolve_callee
from .._read import Source, read
from ..uses import BodyUse, FieldUse, uses_in_body
from ._paths import Chain, Path, chains, chains_in, text_of
from ._value_changes import UNKNOWN, Change, find_change, show

# Kernels use their constants everywhere and programs do not assign to them, so they are not compared at each call.
_STEADY_MODULES = ("math", "numpy")


@dataclass(frozen=True)
class Constants:
    """The values that a kernel bakes in. `paths` is empty for most kernels.

    Attributes:
        sources: the kernel, and the engine functions that it calls.
        uses: of fields, one for each name and field.
        gradients: those of fields that its own body names, as it names them: `x.grad`. It only stores to them, or loops
            over them. `gradient_use` is another use of a gradient: its name, and where.
        is_complete: whether every name had a value; a global may be assigned after the kernel is defined.
        has_numbers: whether a value other than a field is baked in.
    """

    paths: tuple[Path, ...]
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
        return (self._names, *[fingerprint(path.value(templates), self.engine) for path in self.paths])

    def describe(self, templates: Mapping[str, Any], *, only_captured: bool = False) -> str:
        """Return the current values as text that another process can compare with its own; "" without values.

        Args:
            templates: as for `fingerprint`. Those that are left out are described as missing.
            only_captured: leave out globals.
        """
        paths = [path for path in self.paths if path.is_captured or not only_captured]
        return " ".join(f"{path}={describe(fingerprint(path.value(templates), self.engine))}" for path in paths)

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
            inside = "" if held else _find_in(path.value(templates), kind, self.engine)
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
            if value is not MISSING and (function is None or function.__name__ != last):
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


def constants_of(source: Source, engine: Engine, templates: Mapping[str, Any], arrays: frozenset[str]) -> Constants:
    """Find every baked-in value of a kernel and of the engine functions that it calls.

    Args:
        source: the kernel.
        engine: whose functions are followed.
        templates: template arguments by name, `self` among them; their attributes are baked in too.
        arrays: parameters that are memory, and so never baked in.
    """
    finder = _Finder(engine, templates)
    roots = {name: Path(None, name) for name in templates if name not in arrays}
    finder.walk(source, roots)
    return finder.constants()


def find_changed_value(before: tuple[Any, ...] | None, now: tuple[Any, ...]) -> Change:
    """Return the first value in which two different fingerprints of one kernel differ.

    If `before` is None, it was not kept: then the change names all current values.
    """
    if before is None:
        return Change("`, `".join(now[0]), "", ", ".join(map(show, now[1:])))
    if before and now and before[0] == now[0]:
        pairs = zip(now[0], before[1:], now[1:], strict=True)
        return next(find_change(name, old, new) for name, old, new in pairs if old != new)
    olds, news = (dict(zip(one[0], one[1:], strict=True)) if one else {} for one in (before, now))
    # Here the names differ too. One that only one of the two has counts as a change to or from `UNKNOWN`.
    name = next(name for name in (*olds, *news) if olds.get(name) != news.get(name))
    return find_change(name, olds.get(name, UNKNOWN), news.get(name, UNKNOWN))


class _Finder:
    """Walks a kernel and the engine functions that it calls, collecting paths."""

    def __init__(self, engine: Engine, templates: Mapping[str, Any]) -> None:
        self.engine = engine
        self.templates = templates
        self._paths: list[Path] = []
        self._sources: dict[Any, Source] = {}
        self._fields: list[tuple[str, Any]] = []
        self._field_paths: set[Path] = set()
        self._places: dict[str, tuple[str, str]] = {}
        self._uses: dict[str, list[BodyUse]] = {}
        self._gradients: set[str] = set()
        self._gradient_use: tuple[str, str] | None = None
        self._is_complete = True
        self._seen: set[tuple[Any, Any]] = set()
        self._entered: dict[tuple[Any, Any], Source] = {}
        self._walked: set[tuple[Any, ...]] = set()

    def constants(self) -> Constants:
        """Return what was found."""
        paths = tuple(dict.fromkeys(self._paths))
        return Constants(
            paths,
            tuple(self._sources.values()),
            tuple([self._use(label, field) for label, field in self._fields]),
            frozenset(self._gradients),
            self._gradient_use,
            self._is_complete,
            len(paths) > len(self._field_paths),
            self.engine,
        )

    def _use(self, label: str, field: Any) -> FieldUse:
        """Combine what all bodies do with the field that they call by this name."""
        uses = self._uses[label]
        return FieldUse(
            label,
            field,
            *self._places[label],
            next((one.written_at for one in uses if one.written_at), ""),
            any(one.is_read for one in uses),
            any(one.is_replaced for one in uses),
            all(one.is_followed for one in uses),
        )

    def walk(self, source: Source, roots: Mapping[str, Path]) -> None:
        """Note the values that a body uses. `roots` are the paths of parameters that stand for Python values."""
        self._sources.setdefault(source.function, source)
        local = source.assigned_names | set(source.parameters)
        names: dict[str, str] = {}
        gradients: set[str] = set()
        for chain in chains(source.tree, self._pass_objects(source, roots, local)):
            path = self._path_of(chain, source, roots, local)
            if path is None:
                continue
            field = self._field(path)
            if field is None:
                self._follow(path, source)
                continue
            # The steps of the body itself, without those that lead to a parameter.
            own_steps = len(field.steps) - len(path.steps) + len(chain)
            text = text_of(chain[:own_steps])
            # A parameter may stand for another object in each call, so there a field is called as the kernel calls it.
            label = str(field) if chain[0] in roots else text
            # The field itself is baked in: its numbers are read by each launch.
            self._paths.append(field)
            self._field_paths.add(field)
            self._note_field(label, self._value(field), source, chain[0])
            member, is_gradient = self._find_member(field, label, chain[own_steps:])
            # `x.grad` gets a name apart from that of `x`, so that a store to the gradient is no use of the field.
            names |= {text: label, text + member.removeprefix(label): member if is_gradient else label}
            gradients |= {member} if is_gradient else set()
        objects = {name: self._value(path) for name, path in roots.items()}
        for name, use in uses_in_body(source, names, objects, self.engine).items():
            if name in gradients:
                self._note_gradient(name, use, source)
            else:
                self._uses.setdefault(name, []).append(use)

    def _path_of(self, chain: Chain, source: Source, roots: Mapping[str, Path], local: Container[str]) -> Path | None:
        """Return the path of a chain; None for one that begins with a local, or with one of Python's own functions."""
        name, *steps = chain
        if name in roots:
            return roots[name].then(*steps)
        if name in local or self._is_builtin(source, name):
            return None
        return Path(source, name, tuple(steps))

    def _pass_objects(self, source: Source, roots: Mapping[str, Path], local: Container[str]) -> set[ast.AST]:
        """Walk the functions that a body passes objects to. Return the arguments that this explains.

        Of such an object only what the functions use counts.
        """
        objects = {name: self._value(path) for name, path in roots.items()}
        known = source.with_objects(objects)
        explained: set[ast.AST] = set()
        for call in source.calls:
            value = known.value(call.func)
            callee = None if value is MISSING else bind_callee(call, value, self.engine)
            # Which parameters `*args` fills is not known.
            if callee is None or any(isinstance(argument, ast.Starred) for argument in call.args):
                continue
            passed: dict[str, Path] = {}
            for parameter, argument in callee.arguments.items():
                path = self._path_of_node(argument, source, roots, local)
                if path is not None and callee.source.is_constant(parameter) and self._is_object(self._value(path)):
                    passed[parameter] = path
                    explained.add(argument)
            if passed:
                is_method = self.engine.is_bound(value)
                of = call.func.value if is_method and isinstance(call.func, ast.Attribute) else None
                owner = None if of is None else self._path_of_node(of, source, roots, local)
                self._enter(value, passed if owner is None else {callee.source.parameters[0]: owner, **passed})
                explained.add(call.func)
        return explained

    def _path_of_node(
        self, node: ast.expr, source: Source, roots: Mapping[str, Path], local: Container[str]
    ) -> Path | None:
        """Return the path of an expression that is a chain; None for any other expression."""
        chains = chains_in(node) if isinstance(node, ast.Name | ast.Attribute) or is_item(node) else []
        return self._path_of(chains[0], source, roots, local) if len(chains) == 1 else None

    def _is_object(self, value: Any) -> bool:
        """Return True for an object whose attributes a function may use."""
        return value is not MISSING and is_plain_object(value, self.engine) and not self.engine.is_field(value)

    def _value(self, path: Path) -> Any:
        """Return the current value of a path; MISSING if there is none."""
        return self.engine.unwrap(path.value(self.templates))

    def _read(self, function: Any) -> Source:
        """Return the source of a function: one for each, since paths are compared by the sources they start from."""
        if function not in self._sources:
            self._sources[function] = read(function)
        return self._sources[function]

    def _note_field(self, label: str, field: Any, source: Source, name: str) -> None:
        self._fields.append((label, field))
        self._places.setdefault(label, (source.name, source.place(_first(source, name))))

    def _find_member(self, path: Path, label: str, steps: Sequence[str | Item]) -> tuple[str, bool]:
        """Return what the steps from a field lead to, as the kernel names it, and whether that is a gradient.

        A field of structs leads to its members, `p.a`, and to the gradient of all of them, `p.grad`, or of one,
        `p.a.grad`; a member may be called `grad`.
        """
        value = self._value(path)
        for step in steps:
            is_leaf = any(leaf is value for _, leaf in self.engine.leaf_fields(value, ""))
            struct = None if is_leaf else Language(self.engine).struct_of(value)
            members: Mapping[str, Any] = {} if struct is None else struct.members
            if isinstance(step, str) and step in members:
                value, label = members[step], f"{label}.{step}"
            else:
                is_gradient = step == "grad" and (is_leaf or struct is not None)
                return (f"{label}.grad", True) if is_gradient else (label, False)
        return label, False

    def _note_gradient(self, text: str, use: BodyUse, source: Source) -> None:
        """Note that a kernel only stores to a gradient, or where it does something else with it."""
        # Stores to gradients are left out of the kernel's own body alone (`tree.drop_gradient_stores`), so one in a
        # called function is another use.
        is_own = not self._entered
        if use.is_read or not use.is_followed or (use.written_at and not is_own):
            place = use.written_at or source.place(_first(source, text.partition(".")[0]))
            self._gradient_use = self._gradient_use or (text, place)
        elif is_own:
            self._gradients.add(text)

    def _is_builtin(self, source: Source, name: str) -> bool:
        try:
            # By value: a global may hide `min` or `max`.
            return source.lookup(name) is getattr(builtins, name, MISSING)
        except KeyError:
            # Assigned later, or never: then the engine reports the name when it compiles the kernel.
            self._is_complete = False
            return True

    def _field(self, path: Path) -> Path | None:
        """Return the stem of a path that leads to a field; None if none does."""
        stem, value = self._longest(path)
        return stem if self.engine.is_field(value) else None

    def _follow(self, path: Path, source: Source) -> None:
        """Note the value that a path leads to, and walk the functions in it."""
        root = self._value(Path(path.source, path.name))
        if isinstance(root, ModuleType) and (self.engine.owns(root) or root.__name__ in _STEADY_MODULES):
            return
        stem, value = self._longest(path)
        if value is MISSING:
            return
        self._paths.append(stem)
        self._enter_all(stem, value, source)

    def _enter_all(self, stem: Path, value: Any, source: Source, depth: int = 0) -> None:
        """Walk the engine functions, and note the fields, that a value is or holds in containers and objects."""
        function = self.engine.inner_function(value)
        if function is not None and (function, stem) not in self._seen:
            self._seen.add((function, stem))
            owner = self._owner(stem) if self.engine.is_bound(value) else None
            self._enter(value, {} if owner is None else {self._read(function).parameters[0]: owner})
        elif depth and self.engine.is_field(value):
            self._note_field(str(stem), value, source, stem.name)
            # Which of a list's fields an index means is not followed.
            self._uses.setdefault(str(stem), []).append(BodyUse("", True, True, is_followed=False))
        # Deeper than this nothing is looked for, since objects may refer to each other in a circle.
        elif isinstance(value, list | tuple | dict) and depth < 4:
            for key in value if isinstance(value, dict) else range(len(value)):
                self._enter_all(stem.then(Item(key)), value[key], source, depth + 1)
        elif is_plain_object(value, self.engine) and depth < 4:
            # A copy: Quadrants 1.3.3 adds a method to its object's attributes when the method is looked up.
            for name, held in list(vars(value).items()):
                self._enter_all(stem.then(name), held, source, depth + 1)

    def _longest(self, path: Path) -> tuple[Path, Any]:
        """Return the longest stem of a path that has a value, and the value. It ends at numbers and fields."""
        stem = Path(path.source, path.name)
        value = self._value(stem)
        for step in path.steps:
            if value is MISSING or (self._is_leaf(value) and not _is_item_of(step, value)):
                break
            further = self._value(stem.then(step))
            if further is MISSING:
                break
            stem, value = stem.then(step), further
        return stem, value

    def _is_leaf(self, value: Any) -> bool:
        """Return True for a value that is baked in as a whole: what its attributes hold follows from it."""
        return (
            isinstance(value, int | float | str | tuple | list | dict | np.ndarray | np.generic)
            or self.engine.is_field(value)
            or self.engine.matrix_entries(value) is not None
        )

    def _enter(self, callee: Any, roots: Mapping[str, Path]) -> None:
        """Walk a function. One that calls itself, for the same objects, has nothing new to show the second time.

        `roots` are the paths of parameters that stand for objects.
        """
        function = self.engine.inner_function(callee)
        inner = self._read(function)
        # With the objects: a method of a tree may call itself on each child, and ends at the leaves.
        key = function, tuple((name, id(self._value(path))) for name, path in roots.items())
        if key in self._entered:
            self._refuse_endless(key, callee)
            return
        if (function, *roots.items()) in self._walked:
            return
        self._walked.add((function, *roots.items()))
        self._entered[key] = inner
        self.walk(inner, roots)
        # `_entered` is the chain of calls that lead here. A function that is called twice, one call after the other,
        # is not a recursion.
        del self._entered[key]

    def _refuse_endless(self, key: tuple[Any, Any], callee: Any) -> None:
        """Refuse functions that call each other without end: engines compile for minutes, or until Python's stack ends.

        A real function is compiled once, and calls itself while it runs.
        """
        if Language(self.engine).is_real(callee):
            return
        circle = list(self._entered.values())[list(self._entered).index(key) :]
        # A branch under `static` may end it while the kernel is compiled.
        if any(resolve_callee(call) == "static" for one in circle for call in one.calls):
            return
        name, caller = self._entered[key].name, circle[-1]
        calls = (call for call in caller.calls if chains_in(call.func)[:1] and chains_in(call.func)[0][-1] == name)
        words = f"function `{name}` calls itself, and nothing ends that while the kernel is compiled"
        static = f"{module_name(self.engine.name, caller.function)}.static(...)"
        remedy = f"Put the call under `if {static}` on a template parameter that ends the recursion, or write a loop."
        raise KernelError(refusal(words, [("at", caller.place(next(calls, caller.tree)))], remedy))

    def _owner(self, stem: Path) -> Path:
        """Return the path to the object of a bound function."""
        last = stem.steps[-1] if stem.steps else None
        if isinstance(last, str):
            return Path(stem.source, stem.name, stem.steps[:-1])
        # In a list, `fs[0]`, the path has no step to the object: the bound method itself leads to it.
        return stem.then(owner_step(self._value(stem)))


def _first(source: Source, name: str) -> ast.AST:
    """Return the first use of a name in a body; the `def` if there is none."""
    return next((one for one in source.nodes if isinstance(one, ast.Name) and one.id == name), source.tree)


def _is_item_of(step: str | Item, value: Any) -> bool:
    """Return True for a step from a list or dict to an item. Numbers of an array are baked in together."""
    return isinstance(step, Item) and isinstance(value, list | tuple | dict)
