"""Scan: the kernels of a file, and what is known of them, without running it."""

from __future__ import annotations

import ast
import builtins
import copy
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from .._errors import SpecError
from ..engines import parse_expression, parse_module, walk
from ..frontend import Unrun, resolve_callee, resolve_calls
from ..spec import Spec, parse
from ._subject import ParameterFacts, Subject
from ._unrun import EngineName, MatrixTypeName, UnrunEngine, UnrunSource

_ENGINES = ("taichi", "quadrants")
_SHORT = {"ti": "taichi", "qd": "quadrants"}
"""What everybody calls them."""
_KERNELS, _FUNCTIONS = ("kernel",), ("func", "real_func", "pyfunc")
_MATRIX_TYPES = {"vector": "Vector", "matrix": "Matrix"}
"""What makes a type in `ti.types`, and what a call of that type does."""
_ARRAYS = ("ndarray", "any_arr", "NDArray", "Ndarray")
_SCALARS = {"int": "i32", "float": "f32", "bool": "i32"}
MATH_TYPES = {
    **{
        f"{letter}vec{size}": (dtype, None, (size,))
        for letter, dtype in (("", "f32"), ("i", "i32"), ("u", "u32"))
        for size in (2, 3, 4)
    },
    **{f"mat{size}": ("f32", None, (size, size)) for size in (2, 3, 4)},
}
"""Vector and matrix types of the engines' `math`, as `ParameterFacts` has them."""


@dataclass(frozen=True)
class _Place:
    """Where a definition stands: names that it sees, and the class that it is a method of."""

    names: Mapping[str, Any]
    methods: Mapping[str, Unrun] | None = None


def scan_file(path: str, text: str) -> Iterator[Subject]:
    """Every kernel and engine function of a file. Raises SyntaxError."""
    module = parse_module(text, path)
    # As Python counts lines: `splitlines` also ends one at a form feed.
    lines = tuple(io.StringIO(text, newline=None))
    default_fp = _default_fp(module)
    specs = _specs_given_later(module)
    for definition, place in _definitions(module, _Place(vars(builtins))):
        kind, engine = _kind(definition, place.names)
        if not kind:
            continue
        source = _source(definition, path, place.names)
        is_method = place.methods is not None and _takes_object(definition, place.names)
        if place.methods is not None and is_method:
            source = source.with_owner(SimpleNamespace(**place.methods))  # `self` has the class's engine functions
        spec = _spec(definition) or specs.get(definition.name)
        yield Subject(
            source=source,
            engine=UnrunEngine(),
            kind=kind,
            engine_name=engine,
            declared=_read_parameters(source.tree, place.names, is_method=is_method),
            spec=spec,
            lines=lines,
            default_fp=default_fp,
        )


def _definitions(body: ast.AST, place: _Place) -> Iterator[tuple[ast.FunctionDef, _Place]]:
    """All `def`s, each with what its names mean."""
    names = dict(place.names) | _find_imports(body)
    statements = [node for node in ast.iter_child_nodes(body) if isinstance(node, ast.stmt)]
    names |= _constant_values(statements)
    names |= _other_engines(body, names)
    names |= _aliases(statements, names)
    inside = _Place(names)
    for node in statements_in_blocks(statements):
        if isinstance(node, ast.FunctionDef) and _kind(node, names)[0] in _FUNCTIONS:
            names[node.name] = Unrun(_source(node, "", names))
    for node in statements_in_blocks(statements):
        if isinstance(node, ast.FunctionDef):
            yield node, inside
        yield from _definitions_inside(node, names)


def _definitions_inside(node: ast.stmt, names: Mapping[str, Any]) -> Iterator[tuple[ast.FunctionDef, _Place]]:
    """The `def`s in a function or a class of a scope with these names; none of a kernel, or of another statement."""
    match node:
        case ast.ClassDef():
            yield from _of_class(node, names)
        case ast.AsyncFunctionDef():
            yield from _definitions(node, _Place(names))
        case ast.FunctionDef() if not _kind(node, names)[0]:
            yield from _definitions(node, _Place(names))


def _of_class(node: ast.ClassDef, names: Mapping[str, Any]) -> Iterator[tuple[ast.FunctionDef, _Place]]:
    statements = [*statements_in_blocks(node.body)]
    defs = [one for one in statements if isinstance(one, ast.FunctionDef)]
    methods = {
        one.name: Unrun(_source(one, "", names), _takes_object(one, names))
        for one in defs
        if _kind(one, names)[0] in _FUNCTIONS
    }
    place = _Place(names, methods)
    for one in statements:
        if isinstance(one, ast.FunctionDef):
            yield one, place
        yield from _definitions_inside(one, names)


def _default_fp(module: ast.Module) -> str:
    """What `ti.init(default_fp=ti.f64)` says, float32 without one."""
    words = (word for node in walk(module) if isinstance(node, ast.Call) for word in node.keywords)
    return next((_last(word.value) for word in words if word.arg == "default_fp"), "") or "f32"


def statements_in_blocks(nodes: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Statements, and all that stand in their blocks, as in loops and under `try`; functions and classes are closed."""
    for one in nodes:
        if isinstance(one, ast.stmt):
            yield one
        # Not a list of the statements that have blocks: `except` and `case` have theirs below a node of another type.
        # An expression contains no statement.
        if not isinstance(one, ast.expr | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from statements_in_blocks(ast.iter_child_nodes(one))


def _find_imports(body: ast.AST) -> dict[str, Any]:
    """Names that imports give to engines, and to what lies in them; None is what other imports give."""
    meanings: dict[str, Any] = {}
    scope = ast.iter_child_nodes(body)
    for node in walk(body) if isinstance(body, ast.Module) else statements_in_blocks(scope):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root, _, path = alias.name.partition(".")
                meant = EngineName(root, path if alias.asname else "") if root in _ENGINES else None
                meanings[alias.asname or root] = meant
        elif isinstance(node, ast.ImportFrom) and node.module:
            root, _, path = node.module.partition(".")
            for alias in node.names:
                meant = EngineName(root, f"{path}.{alias.name}" if path else alias.name) if root in _ENGINES else None
                meanings[alias.asname or alias.name] = meant
    return meanings


def _assignments(statements: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """`name = value` among statements."""
    for node in statements:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value):
                yield name, value


def _constant_values(statements: list[ast.stmt]) -> dict[str, Any]:
    """Names that are given a number, or the type of an array (the expression), once."""
    assigned = list(_assignments(statements))
    counts = Counter(name for name, _ in assigned)
    values: dict[str, Any] = {}
    for name, value in assigned:
        if counts[name] == 1 and isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            values[name] = value.value
        elif counts[name] == 1 and isinstance(value, ast.Call) and _last(value.func) in _ARRAYS:
            values[name] = value
    return values


def _aliases(statements: list[ast.stmt], names: Mapping[str, Any]) -> dict[str, Any]:
    """Names that are given what lies in an engine, and classes that hold such: `static = ti.static`."""
    aliases: dict[str, Any] = {}
    for node in statements:
        for name, value in _assignments([node]):
            meant = _of_engine(value, {**names, **aliases})
            aliases |= {} if meant is None else {name: meant}
        if isinstance(node, ast.ClassDef):
            held = _aliases(node.body, {**names, **aliases})
            if held:
                aliases[node.name] = SimpleNamespace(**held)
    return aliases


def _of_engine(node: ast.expr, names: Mapping[str, Any]) -> EngineName | None:
    """What of an engine an expression stands for: `ti.static`, `staticmethod(ti.sin)`; a vector's type is `Vector`."""
    if not isinstance(node, ast.Call):
        meant = _resolve(node, names)
        return meant if isinstance(meant, EngineName) else None
    if isinstance(node.func, ast.Name) and node.func.id == "staticmethod" and len(node.args) == 1:
        return _of_engine(node.args[0], names)
    maker = _resolve(node.func, names)
    if isinstance(maker, EngineName) and maker.last in _MATRIX_TYPES:
        return MatrixTypeName(maker.engine, _MATRIX_TYPES[maker.last], _element_dtype(node, maker.last, names))
    return None


def _element_dtype(node: ast.Call, maker: str, names: Mapping[str, Any]) -> str:
    """`i32` of `ti.types.vector(3, ti.i32)`; "" where it is not known."""
    place = 1 if maker == "vector" else 2
    given = [*node.args[place : place + 1], *(word.value for word in node.keywords if word.arg == "dtype")]
    meant = _resolve(given[0], names) if given else None
    return meant.last if isinstance(meant, EngineName) else meant.__name__ if isinstance(meant, type) else ""


def _other_engines(body: ast.AST, names: Mapping[str, Any]) -> dict[str, EngineName]:
    """Names that kernels are decorated by and that no import tells of: `def build(lang): @lang.kernel`."""
    decorators = (one for node in walk(body) if isinstance(node, ast.FunctionDef) for one in node.decorator_list)
    roots = (
        one.value.id
        for one in decorators
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.attr in (*_KERNELS, *_FUNCTIONS)
    )
    return {name: EngineName(_SHORT.get(name, "")) for name in roots if name not in names}


# One definition ---------------------------------------------------------------------------------


def _kind(node: ast.FunctionDef, names: Mapping[str, Any]) -> tuple[str, str]:
    """What a definition's decorators make of it, and of which engine: ("kernel", "taichi"); ("", "") for others."""
    for decorator in node.decorator_list:
        meant = _resolve(decorator.func if isinstance(decorator, ast.Call) else decorator, names)
        if isinstance(meant, EngineName) and meant.last in (*_KERNELS, *_FUNCTIONS):
            return meant.last, meant.engine
    return "", ""


def _positional_parameters(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args]


def _takes_object(node: ast.FunctionDef, names: Mapping[str, Any]) -> bool:
    """Return True if the first parameter of a function of a class is the object (or the class) that it is called on."""
    is_static = any(_resolve(one, names) is staticmethod for one in node.decorator_list)
    return not is_static and bool(_positional_parameters(node))


def _resolve(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Attribute):
        return getattr(_resolve(node.value, names), node.attr, None)
    return names.get(node.id) if isinstance(node, ast.Name) else None


def _source(node: ast.FunctionDef, path: str, names: Mapping[str, Any]) -> UnrunSource:
    tree = copy.copy(node)
    tree.decorator_list = []
    # Engines refuse positional-only parameters; analyses read one list of positional ones.
    tree.args = copy.copy(node.args)
    tree.args.posonlyargs, tree.args.args = [], _positional_parameters(node)
    source = UnrunSource(function=None, tree=tree, path=path, names=names)  # type: ignore[arg-type]
    resolve_calls(source, _public_name)
    return source


def _public_name(value: Any) -> str | None:
    """The same as of a live function: the name of an engine's, "" for one of the file's, None for anything else."""
    if isinstance(value, EngineName):
        return value.last
    return "" if isinstance(value, Unrun) else None


def _spec(node: ast.FunctionDef) -> Spec | None:
    """The spec of an op that is made by a decorator: `@ts.op("x[n] -> y[n]", scratch="t[n]")`."""
    calls = (one for one in node.decorator_list if isinstance(one, ast.Call))
    return next((spec for call in calls if (spec := read_spec(call)) is not None), None)


def read_spec(call: ast.Call) -> Spec | None:
    """The spec that a call of `ts.op` or `ts.chain` is given as a literal; None where it cannot be read."""
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
    """Specs by the kernel's name, of ops that are made by a call: `conv = ts.op("x[n] -> y[n]")(conv_kernel)`."""
    specs: dict[str, Spec] = {}
    for node in walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and len(node.args) == 1:
            spec = read_spec(node.func)
            if spec is not None and isinstance(node.args[0], ast.Name):
                specs[node.args[0].id] = spec
    return specs


def _read_parameters(node: ast.FunctionDef, names: Mapping[str, Any], *, is_method: bool) -> dict[str, ParameterFacts]:
    """What annotations say of parameters."""
    arguments = _positional_parameters(node)
    objects = {one.arg: ParameterFacts("object") for one in arguments[: int(is_method)]}
    return {one.arg: _read_annotation(one.annotation, names) for one in arguments} | objects


def _read_annotation(node: ast.expr | None, names: Mapping[str, Any]) -> ParameterFacts:
    if node is None:
        return ParameterFacts("any")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):  # from __future__ import annotations
        try:
            node = parse_expression(node.value)
        except SyntaxError:  # any text may be an annotation
            return ParameterFacts("any")
    if isinstance(node, ast.Name) and isinstance(known := names.get(node.id), ast.expr):
        node = known
    call = node if isinstance(node, ast.Call) else None
    text = _last(call.func if call else node)
    if text in ("template", "Template"):
        return ParameterFacts("template")
    if text in _ARRAYS:
        words = {word.arg: word.value for word in call.keywords} if call else {}
        dtype = words.get("dtype", call.args[0] if call and call.args else None)
        rank = words.get("ndim", call.args[1] if call and len(call.args) > 1 else None)
        return ParameterFacts(
            "array",
            _last(dtype),
            rank.value if isinstance(rank, ast.Constant) and isinstance(rank.value, int) else None,
            is_clamped=isinstance(boundary := words.get("boundary"), ast.Constant) and boundary.value == "clamp",
        )
    if isinstance(node, ast.Name) and text not in names:
        return ParameterFacts("array")  # `array = lang.types.ndarray()`, a name that somebody gave an annotation
    return (
        ParameterFacts("scalar", *MATH_TYPES[text])
        if text in MATH_TYPES
        else ParameterFacts("scalar", _SCALARS.get(text, text))
    )


def _last(node: ast.expr | None) -> str:
    """`i32` of `ti.i32`; "" where there is none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
