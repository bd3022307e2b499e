"""Scan: the kernels of a file, and what is known of them, without running it."""

from __future__ import annotations

import ast
import builtins
import copy
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from .._errors import SpecError
from ..frontend import Unrun, resolve_callee, resolve_calls
from ..spec import Spec, parse
from ._flow import find_doubtful_arrays
from ._members import find_struct_fields, put_members_first
from ._modules import find_imports, parse_file, walk_file
from ._names import (
    StructName,
    find_memory,
    get_last_name,
    read_annotation,
    resolve,
    resolve_engine_value,
    statements_in_blocks,
)
from ._subject import ParameterFacts, Subject
from ._unrun import Element, EngineName, UnrunEngine, UnrunSource

_SHORT = {"ti": "taichi", "qd": "quadrants"}
"""What everybody calls them."""
_KERNELS, _FUNCTIONS = ("kernel",), ("func", "real_func", "pyfunc")
_ARRAYS = ("ndarray", "any_arr", "NDArray", "Ndarray")
_MENTIONS = ("taichi", "quadrants", ".kernel", ".func", ".real_func", ".pyfunc")
"""One of these stands in every file that has a kernel or an engine function."""
_OPS = re.compile(r"(?:op(?<!\wop)|chain(?<!\wchain))[\s\\]*\(")
"""What stands in every file that makes an op."""


@dataclass(frozen=True)
class _Place:
    """Where a definition stands.

    Attributes:
        path: the file.
        structs: texts of the fields in it whose elements have members.
        names: names that it sees.
        memory: fields and arrays that it sees, with what their numbers are; those of its object as `.x`.
        methods: engine functions of the class that it is a method of.
    """

    path: str
    structs: frozenset[str]
    names: Mapping[str, Any]
    memory: Mapping[str, Element] = field(default_factory=dict)
    methods: Mapping[str, Unrun] | None = None


def scan_file(path: str, text: str) -> Iterator[Subject]:
    """Yield every kernel and engine function of a file. Raises SyntaxError."""
    module = parse_file(path, text)
    if not any(word in text for word in _MENTIONS):  # most files of a package
        return
    # As Python counts lines: `splitlines` also ends one at a form feed.
    lines = tuple(io.StringIO(text, newline=None))
    default_fp = _default_fp(module) if "default_fp" in text else "f32"
    specs = _specs_given_later(module) if _OPS.search(text) else {}
    outermost = _Place(path, find_struct_fields(walk_file(module)), vars(builtins))
    for definition, place in _definitions(module, outermost):
        kind, engine = _kind(definition, place.names)
        if not kind:
            continue
        source = _source(definition, place)
        is_method = place.methods is not None and _takes_object(definition, place.names)
        if place.methods is not None and is_method:
            source = source.with_owner(SimpleNamespace(**place.methods))  # `self` has the class's engine functions
        spec = _spec(definition) or specs.get(definition.name)
        yield Subject(
            source=source,
            engine=UnrunEngine(),
            kind=kind,
            engine_name=engine,
            declared=_read_parameters(source.tree, place.names, spec, is_method=is_method),
            spec=spec,
            lines=lines,
            find_doubtful=find_doubtful_arrays,
            default_fp=default_fp,
            memory=place.memory,
        )


def _definitions(body: ast.AST, outer: _Place) -> Iterator[tuple[ast.FunctionDef, _Place]]:
    """Yield every function definition of a scope, with what its names mean there."""
    names = dict(outer.names) | find_imports(body, outer.path)
    statements = [node for node in ast.iter_child_nodes(body) if isinstance(node, ast.stmt)]
    names |= _constant_values(statements)
    names |= _other_engines(body, names) if isinstance(body, ast.Module) else {}
    names |= {one.name: StructName.read(one, names) for one in statements if isinstance(one, ast.ClassDef)}
    names |= _aliases(statements, names)
    memory = {**outer.memory, **dict(find_memory(body, names))}
    inside = replace(outer, names=names, memory=memory, methods=None)
    for node in statements_in_blocks(statements):
        if isinstance(node, ast.FunctionDef) and _kind(node, names)[0] in _FUNCTIONS:
            names[node.name] = Unrun(_callee_source(node, inside))
    for node in statements_in_blocks(statements):
        if isinstance(node, ast.FunctionDef):
            yield node, inside
        yield from _definitions_inside(node, inside)


def _definitions_inside(node: ast.stmt, outer: _Place) -> Iterator[tuple[ast.FunctionDef, _Place]]:
    """Yield the function definitions in a class or in a plain function; none for kernels and other statements."""
    match node:
        case ast.ClassDef():
            yield from _of_class(node, outer)
        case ast.AsyncFunctionDef():
            yield from _definitions(node, outer)
        case ast.FunctionDef() if not _kind(node, outer.names)[0]:
            yield from _definitions(node, outer)


def _of_class(node: ast.ClassDef, outer: _Place) -> Iterator[tuple[ast.FunctionDef, _Place]]:
    statements = [*statements_in_blocks(node.body)]
    defs = [one for one in statements if isinstance(one, ast.FunctionDef)]
    functions = [one for one in defs if _kind(one, outer.names)[0] in _FUNCTIONS]
    methods = {one.name: Unrun(_callee_source(one, outer), _takes_object(one, outer.names)) for one in functions}
    place = replace(outer, memory={**outer.memory, **_find_attributes(defs, outer.names)}, methods=methods)
    for one in statements:
        if isinstance(one, ast.FunctionDef):
            yield one, place
        yield from _definitions_inside(one, outer)


def _find_attributes(methods: list[ast.FunctionDef], names: Mapping[str, Any]) -> dict[str, Element]:
    """Return the fields and arrays that methods give their object, `.x`; "" for what they make in several ways."""
    attributes: dict[str, Element] = {}
    for one in methods:
        arguments = _positional_parameters(one)
        for name, element in find_memory(one, names, arguments[0].arg) if arguments else ():
            known = attributes.setdefault(f".{name}", element)
            attributes[f".{name}"] = element if element == known else ""
    return attributes


def _default_fp(module: ast.Module) -> str:
    """Return the float type that a file passes as `ti.init(default_fp=...)`; "f32" if it passes none."""
    words = (word for node in walk_file(module) if isinstance(node, ast.Call) for word in node.keywords)
    return next((get_last_name(word.value) for word in words if word.arg == "default_fp"), "") or "f32"


def _assignments(statements: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the name and value of each assignment `name = value` among statements."""
    for node in statements:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value):
                yield name, value


def _constant_values(statements: list[ast.stmt]) -> dict[str, Any]:
    """Return the names that are assigned once: a number, or the expression of an array type or struct type."""
    assigned = list(_assignments(statements))
    counts = Counter(name for name, _ in assigned)
    values: dict[str, Any] = {}
    for name, value in assigned:
        if counts[name] == 1 and isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            values[name] = value.value
        elif counts[name] == 1 and isinstance(value, ast.Call) and get_last_name(value.func) in (*_ARRAYS, "struct"):
            values[name] = value
    return values


def _aliases(statements: list[ast.stmt], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return names for an engine's functions or types, `static = ti.static`, and classes that hold such names."""
    aliases: dict[str, Any] = {}
    for node in statements:
        for name, value in _assignments([node]):
            meant = resolve_engine_value(value, {**names, **aliases})
            aliases |= {} if meant is None else {name: meant}
        if isinstance(node, ast.ClassDef):
            held = _aliases(node.body, {**names, **aliases})
            if held:
                aliases[node.name] = SimpleNamespace(**held)
    return aliases


def _other_engines(body: ast.AST, names: Mapping[str, Any]) -> dict[str, EngineName]:
    """Return names that decorate kernels but are not imported, as in `def build(lang): @lang.kernel`."""
    decorators = (one for node in walk_file(body) if isinstance(node, ast.FunctionDef) for one in node.decorator_list)
    roots = (
        one.value.id
        for one in decorators
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.attr in (*_KERNELS, *_FUNCTIONS)
    )
    return {name: EngineName(_SHORT.get(name, "")) for name in roots if name not in names}


# One definition ---------------------------------------------------------------------------------


def _kind(node: ast.FunctionDef, names: Mapping[str, Any]) -> tuple[str, str]:
    """Return what decorators make of a definition, and the engine: ("kernel", "taichi"); ("", "") for others."""
    for decorator in node.decorator_list:
        meant = resolve(decorator.func if isinstance(decorator, ast.Call) else decorator, names)
        if isinstance(meant, EngineName) and meant.last in (*_KERNELS, *_FUNCTIONS):
            return meant.last, meant.engine
    return "", ""


def _positional_parameters(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args]


def _takes_object(node: ast.FunctionDef, names: Mapping[str, Any]) -> bool:
    """Return True if the first parameter of a function of a class is the object (or the class) that it is called on."""
    is_static = any(resolve(one, names) is staticmethod for one in node.decorator_list)
    return not is_static and bool(_positional_parameters(node))


def _callee_source(node: ast.FunctionDef, place: _Place) -> UnrunSource:
    """Return the source of a function as its callers see it: what they find in it is placed at the call."""
    return _source(node, replace(place, path=""))


def _source(node: ast.FunctionDef, place: _Place) -> UnrunSource:
    put_members_first(node, place.structs)
    tree = copy.copy(node)
    tree.decorator_list = []
    # Engines refuse positional-only parameters; analyses read one list of positional ones.
    tree.args = copy.copy(node.args)
    tree.args.posonlyargs, tree.args.args = [], _positional_parameters(node)
    source = UnrunSource(function=None, tree=tree, path=place.path, names=place.names)  # type: ignore[arg-type]
    resolve_calls(source, _public_name)
    return source


def _public_name(value: Any) -> str | None:
    """Return the name of an engine's function, "" for a function of the file, and None for any other value."""
    if isinstance(value, EngineName):
        return value.last
    return "" if isinstance(value, Unrun) else None


def _spec(node: ast.FunctionDef) -> Spec | None:
    """Return the spec in a decorator, `@ts.op("x[n] -> y[n]", scratch="t[n]")`; None without one."""
    calls = (one for one in node.decorator_list if isinstance(one, ast.Call))
    return next((spec for call in calls if (spec := read_spec(call)) is not None), None)


def read_spec(call: ast.Call) -> Spec | None:
    """Return the spec that a call of `ts.op` or `ts.chain` gets as a literal; None if it has none or is invalid."""
    texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if resolve_callee(call) not in ("op", "chain") or len(texts) != 1:
        return None
    words = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
    scratch = words.get("scratch")
    try:
        return parse(texts[0], scratch if isinstance(scratch, str) else None)
    except SpecError:
        return None  # a spec that does not parse is refused where it is run, by name and place


def _specs_given_later(module: ast.Module) -> dict[str, Spec]:
    """Return specs of ops made by a call, `ts.op("x[n] -> y[n]")(conv_kernel)`, by the name of the kernel."""
    specs: dict[str, Spec] = {}
    for node in walk_file(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and len(node.args) == 1:
            spec = read_spec(node.func)
            if spec is not None and isinstance(node.args[0], ast.Name):
                specs[node.args[0].id] = spec
    return specs


def _read_parameters(
    node: ast.FunctionDef, names: Mapping[str, Any], spec: Spec | None, *, is_method: bool
) -> dict[str, ParameterFacts]:
    """Return what the annotations of a function say about each of its parameters, and where they say nothing, the spec
    of its op: what it lists with dims is an array.
    """
    arguments = _positional_parameters(node)
    objects = {one.arg: ParameterFacts("object") for one in arguments[: int(is_method)]}
    annotated = {one.arg: read_annotation(one.annotation, names) for one in arguments}
    listed = {item.name for item in spec.items if item.dims} if spec else set[str]()
    unknown = {name: ParameterFacts("array") for name, one in annotated.items() if one.kind == "any" and name in listed}
    return annotated | unknown | objects
