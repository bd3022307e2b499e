"""Names in a kernel: which values they have before it runs, and which of them its calls change."""

from __future__ import annotations

import ast
import builtins
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..._errors import KernelError, refusal
from .._annotations import read_annotations
from .._parsing import name_place
from .._trees import walk
from ._definitions import MISSING, Definition, look_up, read_definition

if TYPE_CHECKING:
    from ._interpreter import Interpreter


class Names:
    """The names of one function. `scopes` holds the locals defined so far, block by block."""

    def __init__(
        self, definition: Definition, run: Interpreter, names: Mapping[str, Any], objects: Mapping[str, Any]
    ) -> None:
        self._definition, self._run, self._names = definition, run, names
        self._objects = objects
        self._aliases: dict[str, Any] = {}
        arguments = definition.tree.args
        self._parameters = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        self._scopes: list[set[str]] = [set(self._parameters)]
        self._stored = _find_stored(definition.tree)

    def _is_local(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    def _refuse(self, node: ast.AST, words: str, remedy: str = "Rewrite that line without it.") -> KernelError:
        """Return an error about a statement or expression that compiled engines do not accept either."""
        place = name_place(self._definition.path, getattr(node, "lineno", self._definition.tree.lineno))
        return KernelError(refusal(f"`{self._definition.tree.name}` {words}", [("at", place)], remedy))

    def _check_defined(self, node: ast.Name) -> None:
        """Raise KernelError for a local whose block has ended: Python would use its value from another iteration."""
        name = node.id
        if not self._run.ends_locals_with_blocks or name not in self._stored:
            return
        if self._is_local(name) or name in self._names:
            return
        value = look_up(self._definition.function, name)
        if value is MISSING or value is getattr(builtins, name, MISSING):
            remedy = (
                "Assign the variable before the `if` or the loop: a local variable ends "
                "with the block that assigns it first."
            )
            raise self._refuse(node, f"uses `{name}` where it is not defined", remedy)

    def _find(self, node: ast.expr) -> Any:
        """Return the Python value of a name, attribute or item from outside the function; MISSING for anything else."""
        if isinstance(node, ast.Name):
            if node.id in self._names:
                return self._names[node.id]
            if node.id in self._objects and node.id not in self._stored:
                return self._objects[node.id]
            if node.id in self._aliases:
                return self._aliases[node.id]
            # Before a local of this name is defined, the name refers to a global.
            if node.id in self._parameters or self._is_local(node.id):
                return MISSING
            return look_up(self._definition.function, node.id)
        if isinstance(node, ast.Attribute):
            value = self._find(node.value)
            if value is not MISSING:
                return getattr(value, node.attr, MISSING)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            value = self._find(node.value)
            key: Any = node.slice.value
            if isinstance(value, list | tuple | dict):
                with contextlib.suppress(LookupError, TypeError):
                    return value[key]
        return MISSING

    def _name_of(self, node: ast.expr) -> str:
        """Return the engine's name of a built-in function, such as "lang.ops.sin"; "" for others."""
        value = self._find(node) if isinstance(node, ast.Name | ast.Attribute) else MISSING
        return "" if value is MISSING else self._run.language.name_of(value)

    def _is_static_call(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._name_of(node.func) == "lang.impl.static"

    def changes(self, node: ast.Call) -> bool:
        """Return True if a call changes memory or a variable of its caller."""
        if self._name_of(node.func).startswith("lang.ops.atomic_"):
            return True
        value = self._find(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else MISSING
        written = None if value is MISSING else self._run.find_source_function(value)
        return written is not None and not self._run.engine.owns(written) and _changes_anything(written, self._run)


def find_references(definition: Definition, run: Interpreter) -> tuple[str, ...]:
    """Return the by-reference parameters that a function may assign, itself or by a call of another function."""
    known = _REFERENCES.get(definition.tree)
    if known is None:
        annotations = read_annotations(definition.function)
        calls = [one for one in walk(definition.tree) if isinstance(one, ast.Call)]
        passed = {one.id for call in calls for one in call.args if isinstance(one, ast.Name)}
        passed |= {one.value.id for call in calls for one in call.keywords if isinstance(one.value, ast.Name)}
        given = _find_assigned(definition.tree) | passed
        names = [one.arg for one in definition.tree.args.args]
        known = tuple(name for name in names if name in given and run.language.is_template(annotations.get(name)))
        _REFERENCES[definition.tree] = known
    return known


_REFERENCES: WeakKeyDictionary[ast.FunctionDef, tuple[str, ...]] = WeakKeyDictionary()


def find_returned_name(tree: ast.FunctionDef) -> str | None:
    """Return the name that a function's last statement returns; None if it returns something else."""
    match tree.body[-1]:
        case ast.Return(value=ast.Name(id=name)):
            return name
    return None


_CHANGING: WeakKeyDictionary[Callable[..., Any], bool] = WeakKeyDictionary()
"""Whether a `ti.func` changes memory or variables of its caller, for the functions examined so far."""


def _changes_anything(function: Callable[..., Any], run: Interpreter) -> bool:
    """Return True if a `ti.func` changes memory, or a variable of its caller."""
    known = _CHANGING.get(function)
    if known is not None:
        return known
    # A recursive call adds nothing new.
    _CHANGING[function] = False
    definition = read_definition(function)
    annotations = read_annotations(function)
    parameters = [one.arg for one in definition.tree.args.args]
    copies = {name for name in parameters if not run.is_template(annotations.get(name))}
    own = (_find_stored(definition.tree) - set(parameters)) | copies
    looking = Names(definition, run, {}, {})
    nodes = list(walk(definition.tree))
    stored = [one for one in nodes if isinstance(one, ast.Name | ast.Subscript | ast.Attribute)]
    _CHANGING[function] = any(isinstance(one.ctx, ast.Store) and find_root(one) not in own for one in stored) or any(
        isinstance(one, ast.Call) and looking.changes(one) for one in nodes
    )
    return _CHANGING[function]


def find_root(node: ast.expr) -> str:
    """Return the name at the root of an element or member: "x" for `x[i].y`. Return "" if there is none."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _find_stored(tree: ast.FunctionDef) -> frozenset[str]:
    return frozenset(one.id for one in walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))


def _find_assigned(tree: ast.FunctionDef) -> frozenset[str]:
    """Return the names that are assigned as a whole, not just in parts, also by an atomic function."""
    atomics = (
        one.args[0]
        for one in walk(tree)
        if isinstance(one, ast.Call)
        and isinstance(one.func, ast.Name | ast.Attribute)
        and (one.func.id if isinstance(one.func, ast.Name) else one.func.attr).startswith("atomic_")
        and one.args
    )
    return _find_stored(tree) | {one.id for one in atomics if isinstance(one, ast.Name)}
