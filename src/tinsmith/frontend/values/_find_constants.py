"""Find the Python values that a kernel bakes in (`Constants`)."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from types import MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..._errors import KernelError, refusal
from ...engines import Engine, Language, module_name
from .._definitions import definitions
from .._fingerprints import MISSING, Item, Same, is_plain_object, owner_step
from .._nodes import resolve_callee
from .._read import Source, read
from ..uses import BodyUse, FieldUse, uses_in_body
from ._constants import Constants
from ._paths import (
    Chain,
    Path,
    chain_of,
    chains,
    chains_in,
    find_tested,
    has_truth_value,
    read_python_function,
    take_step,
    text_of,
)

# Kernels use their constants everywhere and programs do not assign to them, so they are not compared at each call.
_STEADY_MODULES = ("math", "numpy")


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
        self._seen: set[tuple[Any, ...]] = set()
        self._entered: dict[tuple[Any, ...], Source] = {}
        self._by_type: set[Path] = set()
        self._whole: set[Path] = set()

    def constants(self) -> Constants:
        """Return the Python values and fields that the search has found in the kernel."""
        paths = tuple(dict.fromkeys(self._paths))
        return Constants(
            paths,
            frozenset(self._by_type - self._whole),
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
        # A body may name a member of a field of structs as a field: `x.y[i]`.
        named = [
            (name[len(label) + 1 :], uses) for name, uses in self._uses.items() if f"{name}.".startswith(f"{label}.")
        ]
        members = [
            use._replace(member=".".join(filter(None, (member, use.member))))
            for member, uses in named
            for one in uses
            for use in one.members
        ]
        uses = [one for _, uses in named for one in uses]
        return FieldUse(
            label,
            field,
            *self._places[label],
            next((one.written_at for one in uses if one.written_at), ""),
            any(one.is_read for one in uses),
            any(one.is_replaced for one in uses),
            all(one.is_followed for one in uses),
            tuple(members),
        )

    def walk(self, source: Source, roots: Mapping[str, Path]) -> None:
        """Note the values that a body uses. `roots` are the paths of parameters that stand for Python values."""
        self._sources.setdefault(source.function, source)
        names: dict[str, str] = {}
        gradients: set[str] = set()
        for chain in chains(source.tree, self._follow_objects(source, roots)):
            path = self._resolve(chain, source, roots)
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
            self._note_field(label, self.engine.unwrap(field.value(self.templates)), source, chain[0])
            member, is_gradient = self._find_member(field, label, chain[own_steps:])
            # `x.grad` gets a name apart from that of `x`, so that a store to the gradient is no use of the field.
            names |= {text: label, text + member.removeprefix(label): member}
            gradients |= {member} if is_gradient else set()
        objects = {name: path.value(self.templates) for name, path in roots.items()}
        for name, use in uses_in_body(source, names, objects, self.engine).items():
            if name in gradients:
                self._note_gradient(name, use, source)
            else:
                self._uses.setdefault(name, []).append(use)

    def _resolve(self, chain: Chain, source: Source, roots: Mapping[str, Path]) -> Path | None:
        """Return the path of a chain in a body; None if it starts at a local or at a built-in function."""
        name, *steps = chain
        if name in roots:
            return roots[name].then(*steps)
        if name in source.assigned_names or name in source.parameters or self._is_builtin(source, name):
            return None
        return Path(source, name, tuple(steps))

    # Objects ------------------------------------------------------------------------------------
    def _is_object(self, value: Any) -> bool:
        """Return True for an object whose attributes are baked in only if they are read."""
        return is_plain_object(value, self.engine) and not self._is_leaf(value)

    def _find_object(self, node: ast.AST, source: Source, roots: Mapping[str, Path]) -> Path | None:
        """Return the path of an expression that is a chain to an object; None for any other."""
        chain = chain_of(node)
        path = None if chain is None else self._resolve(chain, source, roots)
        return path if path is not None and self._is_object(path.value(self.templates)) else None

    def _follow_objects(self, source: Source, roots: Mapping[str, Path]) -> set[ast.AST]:
        """Record what a body reads of objects that it uses as a whole, not by an attribute. Return the nodes of them.

        These are objects that it passes to engine functions, whose bodies are searched in turn; objects whose
        attributes it reads by `getattr` or `hasattr`; and objects that it uses only for their type or truth value.
        """
        names: set[ast.AST] = set()
        for node in source.nodes:
            if isinstance(node, ast.Call):
                names |= self._follow_arguments(node, source, roots)
            match node:
                case ast.Call(ast.Name("hasattr" | "getattr"), [ast.expr() as part, ast.Constant(str() as name), *_]):
                    if (path := self._find_object(part, source, roots)) is not None:
                        self._follow(path.then(name), source)
                        names.add(part)
            for part in find_tested(node):
                path = self._find_object(part, source, roots)
                if path is not None and not has_truth_value(path.value(self.templates)):
                    self._paths.append(path)
                    self._by_type.add(path)
                    names.add(part)
        return names

    def _follow_arguments(self, call: ast.Call, source: Source, roots: Mapping[str, Path]) -> set[ast.AST]:
        """Collect the values that an engine function uses, if a call passes objects to it. Return these arguments."""
        chain = chain_of(call.func)
        stem = None if chain is None else self._resolve(chain, source, roots)
        value = MISSING if stem is None else stem.value(self.templates)
        function = self.engine.inner_function(value)
        if stem is None or function is None or any(isinstance(one, ast.Starred) for one in call.args):
            return set()
        inner = self._read(function)
        # As for fields (`FieldPasser`): not parameters with defaults.
        count = len(inner.parameters) - len(inner.tree.args.defaults)
        names = inner.parameters[int(self.engine.is_bound(value)) : count]
        arguments = dict(zip(names, call.args, strict=False))
        arguments |= {word.arg: word.value for word in call.keywords if word.arg in names}
        paths = {name: self._find_object(node, source, roots) for name, node in arguments.items()}
        paths = {name: path for name, path in paths.items() if inner.is_constant(name)}
        objects = {name: path for name, path in paths.items() if path is not None}
        key = (function, stem, *objects.items())
        if objects and key not in self._seen:
            self._seen.add(key)
            self._enter(function, stem, objects)
        return {arguments[name] for name in objects}

    def _note_field(self, label: str, field: Any, source: Source, name: str) -> None:
        self._fields.append((label, field))
        self._places.setdefault(label, (source.name, source.place(_first(source, name))))

    def _find_member(self, path: Path, label: str, steps: Sequence[str | Item]) -> tuple[str, bool]:
        """Return the field that attributes of a field name in the kernel, and whether it is a gradient.

        A field of structs leads to its members, `p.a`, and to the gradient of all of them, `p.grad`, or of one,
        `p.a.grad`; a member may be called `grad`.
        """
        value = self.engine.unwrap(path.value(self.templates))
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
            self._paths.append(Path(source, name))
            return True

    def _field(self, path: Path) -> Path | None:
        """Return the stem of a path that leads to a field; None if none does."""
        stem, value = self._longest(path)
        return stem if self.engine.is_field(value) else None

    def _follow(self, path: Path, source: Source) -> None:
        """Note the value that a path leads to, and walk the functions in it."""
        root = path.root_value(self.templates)
        if isinstance(root, ModuleType) and (self.engine.owns(root) or root.__name__ in _STEADY_MODULES):
            return
        stem, value = self._longest(path)
        self._paths.append(stem)
        if self._follow_python(stem, value):
            return
        self._whole.add(stem)
        self._enter_all(stem, value, source)

    def _follow_python(self, stem: Path, value: Any) -> bool:
        """Note what a Python function of the user reads, which runs while the kernel is compiled.

        Return False if its body does not tell: then everything that it may reach is baked in.
        """
        function = value.__func__ if isinstance(value, MethodType) else value
        source = read_python_function(function, self.engine)
        is_method = isinstance(value, MethodType)
        if source is None or (is_method and not (stem.steps and isinstance(stem.steps[-1], str) and source.parameters)):
            return False
        self._by_type.add(stem)
        if (function, stem) not in self._seen:
            self._seen.add((function, stem))
            self._walk_python(source, {source.parameters[0]: self._owner(stem)} if is_method else {})
        return True

    def _walk_python(self, source: Source, roots: Mapping[str, Path]) -> None:
        aliases = dict(roots)
        renamed: set[ast.AST] = set()
        for name, node in definitions(source.tree).single.items():
            path = self._find_object(node, source, aliases)
            if path is not None and name not in source.parameters:
                aliases[name] = path
                renamed.add(node)
        for chain in chains(source.tree, renamed | self._follow_objects(source, aliases)):
            path = self._resolve(chain, source, aliases)
            if path is not None:
                self._follow(path, source)

    def _enter_all(self, stem: Path, value: Any, source: Source, depth: int = 0) -> None:
        """Walk the engine functions, and note the fields, that a value is or holds in containers and objects."""
        function = self.engine.inner_function(value)
        if function is not None and (function, stem) not in self._seen:
            self._seen.add((function, stem))
            self._enter(function, stem)
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
        """Return the stem of a path that is baked in, and its value. It ends at numbers, fields and missing values."""
        count, value = 0, path.root_value(self.templates)
        for step in path.steps:
            if value is MISSING or (
                self._is_leaf(value) and not (isinstance(step, Item) and isinstance(value, list | tuple | dict))
            ):
                break
            count, value = count + 1, take_step(value, step)
        return Path(path.source, path.name, path.steps[:count]), value

    def _is_leaf(self, value: Any) -> bool:
        """Return True for a value that is baked in as a whole: what its attributes hold follows from it."""
        return (
            isinstance(value, int | float | str | tuple | list | dict | np.ndarray | np.generic)
            or self.engine.is_field(value)
            or self.engine.matrix_entries(value) is not None
        )

    def _read(self, function: Any) -> Source:
        # One `Source` for each function, since paths are compared by the sources that they start from.
        if function not in self._sources:
            self._sources[function] = read(function)
        return self._sources[function]

    def _enter(self, function: Any, stem: Path, objects: Mapping[str, Path] = MappingProxyType({})) -> None:
        """Walk a function. One that calls itself, of the same object, has nothing new to show the second time.

        `objects` are the paths of the Python objects that it gets as arguments.
        """
        inner = self._read(function)
        owner = self._owner(stem) if self.engine.is_bound(stem.value(self.templates)) else None
        # With the object: a method of a tree may call itself on each child, and ends at the leaves.
        roots = {**objects, **({} if owner is None else {inner.parameters[0]: owner})}
        key = function, *[(name, Same(path.value(self.templates))) for name, path in roots.items()]
        if key in self._entered:
            self._refuse_endless(key, stem)
            return
        self._entered[key] = inner
        self.walk(inner, roots)
        # `_entered` is the chain of calls that lead here. A function that is called twice, one call after the other,
        # is not a recursion.
        del self._entered[key]

    def _refuse_endless(self, key: tuple[Any, ...], stem: Path) -> None:
        """Refuse functions that call each other without end: engines compile for minutes, or until Python's stack ends.

        A real function is compiled once, and calls itself while it runs.
        """
        if Language(self.engine).is_real(stem.value(self.templates)):
            return
        circle = list(self._entered.values())[list(self._entered).index(key) :]
        # A branch under `static` may end it while the kernel is compiled.
        if any(resolve_callee(call) == "static" for one in circle for call in one.calls):
            return
        name, caller = self._entered[key].name, circle[-1]
        calls = (call for call in caller.calls if chains_in(call.func)[:1] and chains_in(call.func)[0][-1] == name)
        words = f"function `{name}` calls itself without end while the kernel is compiled"
        static = f"{module_name(self.engine.name, caller.function)}.static(...)"
        remedy = f"Put the call under `if {static}` on a template parameter that ends the recursion, or write a loop."
        raise KernelError(refusal(words, [("at", caller.place(next(calls, caller.tree)))], remedy))

    def _owner(self, stem: Path) -> Path:
        """Return the path to the object of a bound function."""
        last = stem.steps[-1] if stem.steps else None
        if isinstance(last, str):
            return Path(stem.source, stem.name, stem.steps[:-1])
        # In a list, `fs[0]`, the path has no step to the object: the bound method itself leads to it.
        return stem.then(owner_step(stem.value(self.templates)))


def _first(source: Source, name: str) -> ast.AST:
    """Return the first use of a name in a body; the `def` if there is none."""
    return next(iter(source.names_read.get(name, ())), source.tree)
