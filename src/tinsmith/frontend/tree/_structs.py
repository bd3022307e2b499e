"""Structs as parameters: one that is a struct becomes a parameter for each of the struct's members.

`flatten_structs` does it for an engine's own structs (`ti.dataclass`), which hold numbers:

    def f(camera, x):                                     def f(camera_focal, camera_eye, x):
        for i in x:                                           for i in x:
            x[i] = camera.focal * dist(camera)     ->             x[i] = camera_focal * dist(
                                                                      Camera(focal=camera_focal, eye=camera_eye))

A member is a number or an array, which an op can pass and differentiate; a struct is neither.

`pass_members` does it for Python's dataclasses, which may hold arrays. Functions get members instead of the struct:

    def f(state: State):                                  def f(state_x, state_y):
        for i in state.x:                                     for i in state_x:
            state.y[i] = dist(i, state)            ->             state_y[i] = dist(state_x, i)
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, TypeAlias

from ...engines import Engine, copy_node, walk
from .._field_arguments import LiveFieldPasser, pass_fields_as_arrays, rebuild_function
from .._nodes import replace_nodes, root
from .._read import Source
from ._loops import NotRewritable, load

Path: TypeAlias = "tuple[str, ...]"
"""The path to a member: the struct's name, then names of members."""
Members: TypeAlias = "Mapping[Path, str]"
"""Parameters by their paths."""


def flatten_structs(tree: ast.FunctionDef, members: Members, types: Mapping[Path, str]) -> ast.FunctionDef:
    """Return a kernel that takes the members of structs instead of the structs.

    Where it uses a whole struct, in a call or by a method, the struct is built from its members there.

    Args:
        tree: the kernel.
        members: the parameters for the members.
        types: the kernel's names of the types of the structs, and of structs in them.

    Raises:
        NotRewritable: the kernel assigns to a struct, or to a member of one.
    """
    if not types:
        return tree
    _refuse_changes(tree, types)

    def replace(node: ast.AST) -> ast.AST | None:
        path = _path(node)
        return _build_member(path, members, types) if path in members or path in types else None

    twin = copy_node(tree)
    twin.body = [replace_nodes(statement, replace) for statement in twin.body]
    twin.args.args = [new for one in twin.args.args for new in _arguments(one, members)]
    return ast.fix_missing_locations(twin)


def _arguments(one: ast.arg, members: Members) -> list[ast.arg]:
    parts = [ast.arg(name) for path, name in members.items() if path[0] == one.arg]
    return parts or [one]


def _refuse_changes(tree: ast.FunctionDef, types: Mapping[Path, str]) -> None:
    for node in walk(tree):
        is_target = isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)
        if is_target and (root(node),) in types:
            raise _make_change_error(node)


def _build_member(path: Path, members: Members, types: Mapping[Path, str]) -> ast.expr:
    """Return the parameter of a member, or a call that builds a struct from its members."""
    if path in members:
        return load(members[path])
    names = dict.fromkeys(one[len(path)] for one in members if one[: len(path)] == path)
    parts = [ast.keyword(name, _build_member((*path, name), members, types)) for name in names]
    return ast.Call(load(types[path]), [], parts)


def _path(node: ast.AST) -> Path:
    """Return the names in `camera.pose.turn`, or () for an expression that does not begin with a name."""
    if isinstance(node, ast.Name):
        return (node.id,)
    before = _path(node.value) if isinstance(node, ast.Attribute) else ()
    return (*before, node.attr) if before and isinstance(node, ast.Attribute) else ()


@dataclass(frozen=True, eq=False)
class _Member:
    """Stands for a member of a struct while a kernel is rewritten: it becomes the parameter `name`."""

    name: str


class _Struct(SimpleNamespace):
    """Stands for a dataclass, or for a struct in one, while a kernel is rewritten.

    Its attributes are `_Member`s, and a `_Struct` for each struct in it. `_name` is a name for its class, `_class`.
    """

    _name: str
    _class: Any

    def has_constant(self, name: str) -> bool:
        """Return True if the class has a variable of this name, such as a `ClassVar`: neither a field nor a method."""
        value = inspect.getattr_static(self._class, name, None)
        is_code = callable(value) or isinstance(value, property | classmethod | staticmethod)
        is_variable = isinstance(self._class, type) and name not in vars(self) and not is_code
        return is_variable and value is not None


class _Members(LiveFieldPasser):
    """Members of structs that become parameters. Notes those that are used."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.used: set[str] = set()

    def array(self, source: Source, node: ast.expr) -> str:
        value = source.value(node)
        if not isinstance(value, _Member):
            return ""
        is_stored = not isinstance(getattr(node, "ctx", None), ast.Load)
        if is_stored:
            raise _make_change_error(node, source)
        self.used.add(value.name)
        return value.name

    def is_removed(self, value: Any) -> bool:
        return isinstance(value, _Struct | _Member)

    def rebuild(self, source: Source, tree: ast.FunctionDef, names: Mapping[str, Any]) -> Any:
        structs = {name: value for name, value in names.items() if isinstance(value, _Struct | _Member)}
        tree, classes = _read_class_variables(source, tree, structs)
        _refuse_whole(source, tree, structs)
        others = {name: value for name, value in names.items() if name not in structs}
        return super().rebuild(source, tree, {**others, **classes})


def pass_members(
    source: Source, engine: Engine, members: Members, classes: Mapping[Path, Any], listed: Collection[str]
) -> tuple[Source, Collection[str]]:
    """Return a kernel that takes the members of Python dataclasses instead of these; and the members that it takes.

    Args:
        source: the kernel.
        engine: the engine of the functions that it calls.
        members: the parameters for the members.
        classes: the dataclasses, and the structs in them, by path. Class variables of dataclasses are constants.
        listed: those of them that it takes even if it does not use them.

    Raises:
        NotRewritable: the kernel, or a function that it calls, assigns to a member or uses a struct as a whole.
    """
    if not members:
        return source, ()
    by_path = {path: _Struct(_name=f"_{'_'.join(path)}_type", _class=one) for path, one in classes.items()}
    for path, one in by_path.items():
        if len(path) > 1:
            vars(by_path[path[:-1]])[path[-1]] = one
    for path, name in members.items():
        vars(by_path[path[:-1]])[path[-1]] = _Member(name)
    structs = {path[0]: one for path, one in by_path.items() if len(path) == 1}
    hands = _Members(engine)
    hands.used |= set(listed) & set(members.values())
    rewritten = pass_fields_as_arrays(source.with_objects(structs), hands)
    tree, constants = _read_class_variables(source, rewritten.tree, structs)
    tree.args.args = [new for one in tree.args.args for new in _used_arguments(one, members, hands.used)]
    _refuse_whole(source, tree, structs)
    names = {**rewritten.names, **constants}
    function = rebuild_function(source, tree, names) if names else source.function
    return replace(source, function=function, tree=ast.fix_missing_locations(tree)), hands.used


def _used_arguments(one: ast.arg, members: Members, used: set[str]) -> Iterator[ast.arg]:
    names = [name for path, name in members.items() if path[0] == one.arg]
    if not names:
        yield one
    yield from (ast.copy_location(ast.arg(name), one) for name in names if name in used)


def _read_class_variables(
    source: Source, tree: ast.FunctionDef, structs: Mapping[str, Any]
) -> tuple[ast.FunctionDef, dict[str, Any]]:
    """Replace class variables of dataclasses in a function, `state.kind`, by those of the class, `_state_type.kind`.

    Args:
        source: the function as it was read, for errors.
        tree: the function. It is changed.
        structs: the `_Struct`s by name.

    Returns:
        The function, and the classes by their names in it.
    """
    classes: dict[str, Any] = {}

    def read_variable(node: ast.AST) -> ast.AST | None:
        path = _path(node)
        owner: Any = structs.get(path[0]) if len(path) > 1 else None
        for step in path[1:-1]:
            owner = getattr(owner, step, None)
        if not isinstance(owner, _Struct) or not isinstance(node, ast.Attribute) or not owner.has_constant(node.attr):
            return None
        if not isinstance(node.ctx, ast.Load):
            raise _make_change_error(node, source)
        classes[owner._name] = owner._class
        return ast.Attribute(load(owner._name), node.attr, ast.Load())

    return replace_nodes(tree, read_variable), classes


def _refuse_whole(source: Source, tree: ast.FunctionDef, structs: Mapping[str, Any]) -> None:
    """Refuse a use of a struct that is neither one of a member nor an argument of a function that can be rebuilt."""
    for node in walk(tree):
        # What has members was replaced: this is a class variable, a property, a method, or a struct in the struct.
        if isinstance(node, ast.Attribute) and (path := _path(node)) and path[0] in structs:
            raise _make_attribute_error(path, structs[path[0]], node, source)
    for node in walk(tree):
        if isinstance(node, ast.Name) and node.id in structs:
            raise _make_whole_error(node.id, node, source)


def _make_attribute_error(path: Path, owner: Any, node: ast.AST, source: Source) -> NotRewritable:
    """Return the error for an attribute of a struct that is none of its numbers and arrays."""
    names = [path[0]]
    for name in path[1:]:
        names.append(name)
        inner = getattr(owner, name, None)
        if not isinstance(inner, _Struct):
            break
        owner = inner
    else:
        return _make_whole_error(".".join(path), node, source)
    value = inspect.getattr_static(owner._class, names[-1], None)
    is_code = callable(value) or isinstance(value, classmethod | staticmethod)
    kind = "a property" if isinstance(value, property) else "a method" if is_code else "not a member"
    known = ", ".join(f"`{one}`" for one in vars(owner) if not one.startswith("_"))
    remedy = (
        "Write it as a function of the engine that takes the struct."
        if is_code or isinstance(value, property)
        else f"Use one of the members: {known}."
    )
    words = f"`{'.'.join(names)}` is {kind}, and only members that are numbers or arrays can be passed"
    return NotRewritable(words, node, remedy, source)


def _make_whole_error(text: str, node: ast.AST, source: Source) -> NotRewritable:
    words = f"`{text}` is a struct that is used as a whole, and only its members can be passed"
    return NotRewritable(words, node, "Use its members, or pass it to a function of the engine.", source)


def _make_change_error(node: ast.AST, source: Source | None = None) -> NotRewritable:
    words = f"the kernel assigns to `{ast.unparse(node)}`, which belongs to the caller"
    remedy = "Change a copy: `position = camera.position`, and then `position += ...`."
    return NotRewritable(words, node, remedy, source)
