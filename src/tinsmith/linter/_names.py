"""Names: what expressions, annotations and fields in a file that is not run mean, given what its names mean."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..engines import list_children, parse_expression
from ._subject import ParameterFacts
from ._unrun import Element, EngineName, MatrixTypeName, element_of

_MATRIX_TYPES = {"vector": "Vector", "matrix": "Matrix"}
"""What makes a type in `ti.types`, and what a call of that type does."""
_ARRAYS = ("ndarray", "any_arr", "NDArray", "Ndarray", "Tensor")
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

# Expressions --------------------------------------------------------------------------------------


def resolve(node: ast.expr | None, names: Mapping[str, Any]) -> Any:
    """Return what a name or a chain of attributes means; None where that is not known."""
    if isinstance(node, ast.Attribute):
        return getattr(resolve(node.value, names), node.attr, None)
    return names.get(node.id) if isinstance(node, ast.Name) else None


def resolve_engine_value(node: ast.expr, names: Mapping[str, Any]) -> EngineName | None:
    """Return what of an engine an expression stands for: `ti.static`, `staticmethod(ti.sin)`, a vector's type."""
    if not isinstance(node, ast.Call):
        meant = resolve(node, names)
        return meant if isinstance(meant, EngineName) else None
    if isinstance(node.func, ast.Name) and node.func.id == "staticmethod" and len(node.args) == 1:
        return resolve_engine_value(node.args[0], names)
    maker = resolve(node.func, names)
    if isinstance(maker, EngineName) and maker.last in _MATRIX_TYPES:
        return MatrixTypeName(maker.engine, _MATRIX_TYPES[maker.last], _element_dtype(node, maker.last, names))
    return None


def _element_dtype(node: ast.Call, maker: str, names: Mapping[str, Any]) -> str:
    """Return `i32` of `ti.types.vector(3, ti.i32)`; "float" without a dtype, and "" where it is not known."""
    place = 1 if maker == "vector" else 2
    given = [*node.args[place : place + 1], *(word.value for word in node.keywords if word.arg == "dtype")]
    return _name_dtype(resolve(given[0], names)) if given else "float"


def _name_dtype(meant: Any) -> str:
    return meant.last if isinstance(meant, EngineName) else meant.__name__ if isinstance(meant, type) else ""


def get_last_name(node: ast.expr | None) -> str:
    """Return `i32` of `ti.i32`; "" where there is none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# Statements ---------------------------------------------------------------------------------------


def statements_in_blocks(nodes: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Yield statements, and all that stand in their blocks, as in loops; functions and classes are closed."""
    for one in nodes:
        if isinstance(one, ast.stmt):
            yield one
        # Not a list of the statements that have blocks: `except` and `case` have theirs below a node of another type.
        # An expression contains no statement.
        if not isinstance(one, ast.expr | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from statements_in_blocks(list_children(one))


# Annotations --------------------------------------------------------------------------------------


def read_annotation(node: ast.expr | None, names: Mapping[str, Any]) -> ParameterFacts:
    """Return what an annotation says of a parameter, or of a member of a class; "any" where that is not known."""
    if node is None:
        return ParameterFacts("any")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):  # from __future__ import annotations
        try:
            node = parse_expression(node.value)
        except SyntaxError:  # any text may be an annotation
            return ParameterFacts("any")
    if isinstance(known := resolve(node, names), ast.expr):
        node = known
    call = node if isinstance(node, ast.Call) else None
    text = _name_maker(call.func if call else node, names)
    if text in ("template", "Template"):
        return ParameterFacts("template")
    if text in _ARRAYS:
        return _read_array(call, names)
    if isinstance(node, ast.Name) and text not in names:
        return ParameterFacts("array")  # `array = lang.types.ndarray()`, a name that somebody gave an annotation
    meant = resolve_engine_value(node, names) or resolve(node, names)
    if isinstance(meant, StructName):
        return ParameterFacts("struct", member=meant.read_member)
    if isinstance(meant, MatrixTypeName):
        return ParameterFacts("scalar", _SCALARS.get(meant.dtype, meant.dtype), None, _find_sizes(call) or (0,))
    dtype = _name_dtype(meant) or ("" if meant is None and not _is_dtype(node, names) else text)
    if dtype in MATH_TYPES:
        return ParameterFacts("scalar", *MATH_TYPES[dtype])
    return ParameterFacts("scalar", _SCALARS.get(dtype, dtype)) if element_of(dtype) else ParameterFacts("any")


def is_array_type(node: ast.expr, names: Mapping[str, Any]) -> bool:
    """Return True for the expression of an array type, `ti.types.ndarray(dtype=ti.f32)`."""
    return isinstance(node, ast.Call) and _name_maker(node.func, names) in _ARRAYS


def _name_maker(node: ast.expr, names: Mapping[str, Any]) -> str:
    """Return `ndarray` of `ti.types.ndarray`, also by another name, `array = ti.types.ndarray`."""
    meant = resolve(node, names)
    return meant.last if isinstance(meant, EngineName) and meant.last in _ARRAYS else get_last_name(node)


def _is_dtype(node: ast.expr, names: Mapping[str, Any]) -> bool:
    """Return True for `lang.f32`, where nobody says what `lang` is: a name of a dtype, of an engine that is given."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in names


def _read_array(call: ast.Call | None, names: Mapping[str, Any]) -> ParameterFacts:
    words = {word.arg: word.value for word in call.keywords} if call else {}
    dtype = words.get("dtype", call.args[0] if call and call.args else None)
    rank = words.get("ndim", call.args[1] if call and len(call.args) > 1 else None)
    meant = None if dtype is None else resolve_engine_value(dtype, names)
    element = meant.dtype if isinstance(meant, MatrixTypeName) else ""
    boundary = words.get("boundary")
    return ParameterFacts(
        "array",
        element or (meant.last if meant is not None else get_last_name(dtype)),
        rank.value if isinstance(rank, ast.Constant) and isinstance(rank.value, int) else None,
        is_clamped=isinstance(boundary, ast.Constant) and boundary.value == "clamp",
    )


def _find_sizes(call: ast.Call | None) -> tuple[int, ...]:
    """Return the sizes in `types.vector(3)` or `types.matrix(3, 3)`, as far as they are literals."""
    count = 1 if call is not None and get_last_name(call.func) == "vector" else 2
    numbers = (one.value for one in (call.args[:count] if call else ()) if isinstance(one, ast.Constant))
    return tuple(one for one in numbers if isinstance(one, int))


@dataclass(frozen=True, eq=False)
class StructName:
    """A class that a file defines, whose annotations say what its objects hold."""

    members: Mapping[str, ast.expr]
    names: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, node: ast.ClassDef, names: Mapping[str, Any]) -> StructName:
        """Read the annotations in a class."""
        notes = (one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name))
        return cls({one.target.id: one.annotation for one in notes}, names)  # type: ignore[union-attr]  # names

    def read_member(self, name: str) -> ParameterFacts:
        """Return what is known of a member."""
        return read_annotation(self.members.get(name), self.names)


# Memory -------------------------------------------------------------------------------------------

_FIELDS = ("field", "ndarray", "tensor")


def find_memory(body: ast.AST, names: Mapping[str, Any], owner: str = "") -> Iterator[tuple[str, Element]]:
    """Yield the name and kind ("int", "float", or "" if unknown) of each field and array that statements allocate.

    For a field of structs, yield each member, such as `particles.x`. With an `owner` such as "self", yield those that
    are assigned to its attributes.
    """
    statements = [*statements_in_blocks(list_children(body))]
    made = {
        target.id: one.value
        for one in statements
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name) and isinstance(one.value, ast.Call)
    }
    for one in statements:
        value = one.value if isinstance(one, ast.Assign | ast.AnnAssign) else None
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        for target in targets:
            name = target.attr if owner and isinstance(target, ast.Attribute) else get_last_name(target)
            holder = get_last_name(target.value) if isinstance(target, ast.Attribute) else ""
            is_own = holder == owner and isinstance(target, ast.Attribute if owner else ast.Name)
            if is_own and isinstance(value, ast.Call):
                for member, element in _find_elements(value, made, names):
                    yield f"{name}{member}", element


def _find_elements(
    call: ast.Call, made: Mapping[str, ast.Call], names: Mapping[str, Any]
) -> Iterator[tuple[str, Element]]:
    """Yield ("", kind) for a call that allocates a field or an array: "int", "float", or "" if unknown.

    For a field of structs, yield a pair for each member instead, such as (".x", "float").
    """
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _FIELDS:
        return
    maker, words = resolve(call.func, names), {word.arg: word.value for word in call.keywords}
    if isinstance(maker, EngineName) and not isinstance(resolve(call.func.value, names), MatrixTypeName):
        place = {"Vector": 1, "Matrix": 2}.get(get_last_name(call.func.value), 0)
        dtype = words.get("dtype", call.args[place] if len(call.args) > place else None)
        yield from [] if isinstance(dtype, ast.Dict) or dtype is None else _find_elements_of_type(dtype, made, names)
    else:
        yield from _find_elements_of_type(call.func.value, made, names)


def _find_elements_of_type(
    node: ast.expr, made: Mapping[str, ast.Call], names: Mapping[str, Any]
) -> Iterator[tuple[str, Element]]:
    """Yield ("", kind) for a dtype or a vector or matrix type: "int", "float", or "" if unknown.

    For a struct type, yield a pair for each member instead, such as (".x", "float").

    Args:
        node: the expression of the type.
        made: calls that are assigned to names, which may be struct types.
        names: what the other names stand for.
    """
    known = made.get(node.id, names.get(node.id)) if isinstance(node, ast.Name) else None
    call = known if isinstance(known, ast.Call) else node
    maker = resolve(call.func, names) if isinstance(call, ast.Call) else None
    if isinstance(call, ast.Call) and isinstance(maker, EngineName) and maker.last == "struct":
        for word in call.keywords:
            for member, element in _find_elements_of_type(word.value, made, names):
                yield f".{word.arg}{member}", element
        return
    meant = resolve_engine_value(call, names)
    dtype = meant.dtype if isinstance(meant, MatrixTypeName) else _name_dtype(meant or resolve(node, names))
    yield "", element_of(MATH_TYPES[dtype][0] if dtype in MATH_TYPES else dtype)
