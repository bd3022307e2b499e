"""Types: which locals of a kernel hold integers and which hold floats, as far as the text tells.

The engines' rule: a local has the type of its first value, for good, in the block in which it got it. A name that two
loops or two branches give their first values stands for two locals.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from .. import engines
from .._lazy import lazy
from ..engines import Engine, walk
from ..frontend import assignments, find_called_function, is_size, resolve_callee, root
from ._members import is_swizzle
from ._names import MATH_TYPES, get_last_name
from ._source_form import get_all_arguments
from ._subject import ParameterFacts, Subject, keep_with_subject
from ._unrun import FLOAT_TYPES, INTEGER_TYPES, EngineName, MatrixTypeName, element_of


class Kind(NamedTuple):
    """What an expression is.

    Attributes:
        element: what its numbers are; "" where that is unknown.
        is_vector: whether it is certainly a vector or matrix.
    """

    element: Literal["int", "float", ""]
    is_vector: bool = False


INT, FLOAT, UNKNOWN = Kind("int"), Kind("float"), Kind("")

_FLOATS = frozenset(
    {"acos", "asin", "atan2", "ceil", "cos", "degrees", "distance", "exp", "floor", "fract", "length", "log"}
    | {"normalize", "radians", "randn", "random", "round", "rsqrt", "sin", "smoothstep", "sqrt", "tan", "tanh"}
)
"""Functions whose result is a float, also of integers."""
_OF_VECTORS = frozenset({"distance", "length"})
"""Those that make one number of vectors."""
_SAME = frozenset({"abs", "clamp", "max", "min", "mix", "pow", "static"})
"""Functions whose result has the common type of their arguments."""
_FILLED = frozenset({"identity", "one", "zero"})
"""Functions of `ti.Vector` and `ti.Matrix` whose first argument is the dtype."""
_ENTRY_METHODS = frozenset({"max", "min", "sum", "trace", "norm_sqr", "dot", "determinant"})
_VECTOR_METHODS = frozenset({"cross", "outer_product", "transpose"})
_FLOAT_METHODS = {"norm": FLOAT, "norm_inv": FLOAT, "normalized": Kind("float", True), "inverse": Kind("float", True)}
"""Methods of vectors and matrices: with a number of their type, with a vector of it, with floats."""
_OPEN = ParameterFacts("any")


@keep_with_subject
def types_of(subject: Subject) -> Types:
    """Return the types of a kernel's locals, computed once."""
    return Types(subject)


class Local(NamedTuple):
    """A local: its type, and its first value if that is assigned."""

    kind: Kind
    first: ast.expr | None


class Types:
    """Types of a kernel's locals."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._scopes: dict[ast.stmt, Scope] = {}
        self._kinds: dict[str, set[Kind]] = {}
        self._visit_block(subject.tree.body, Scope(subject))

    def at(self, statement: ast.stmt) -> Scope:
        """Return the scope of a statement."""
        return self._scopes[statement]

    @lazy
    def integers(self) -> frozenset[str]:
        """Return the names whose locals hold integers in every block that defines them."""
        return frozenset(name for name, kinds in self._kinds.items() if {one.element for one in kinds} == {"int"})

    @lazy
    def names(self) -> frozenset[str]:
        """Return the names of all locals."""
        return frozenset(self._kinds)

    def _visit_block(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._scopes[statement] = scope
            self._define_assigned(statement, scope)
            blocks = [(block, Scope(self._subject, scope)) for block in _inner_blocks(statement)]
            for block, inner in blocks:
                if isinstance(statement, ast.For):
                    for node in walk(statement.target):
                        if isinstance(node, ast.Name):
                            self._define(inner, node.id, Local(inner.of_item(statement.iter), None))
                self._visit_block(block, inner)
            if isinstance(statement, ast.If) and resolve_callee(statement.test) == "static":
                for _, inner in blocks:
                    scope.merge(inner)  # one of the branches is compiled, into the block around it

    def _define_assigned(self, statement: ast.stmt, scope: Scope) -> None:
        for target, value in assignments(statement):
            if isinstance(target, ast.Name) and target.id not in scope.locals:
                kind = scope.dtype(statement.annotation) if isinstance(statement, ast.AnnAssign) else scope.of(value)
                self._define(scope, target.id, Local(kind, value))

    def _define(self, scope: Scope, name: str, local: Local) -> None:
        scope.locals[name] = local
        self._kinds.setdefault(name, set()).add(local.kind)


class Scope:
    """The locals that a statement sees, and the types of expressions there."""

    def __init__(self, subject: Subject, outer: Scope | None = None) -> None:
        self.subject = subject
        self.locals: ChainMap[str, Local] = ChainMap() if outer is None else outer.locals.new_child()

    def merge(self, branch: Scope) -> None:
        """Add the locals of a branch that `ti.static` chooses; of those that two branches type differently, no type."""
        for name, local in branch.locals.maps[0].items():
            known = self.locals.maps[0].setdefault(name, local)
            if known.kind != local.kind:
                self.locals[name] = Local(UNKNOWN, None)

    def find_first(self, name: str) -> ast.expr | None:
        """Return the first value that a local is assigned; None if it has none or is no local."""
        return self.locals[name].first if name in self.locals else None

    def of(self, node: ast.expr) -> Kind:
        """Return the type of an expression."""
        match node:
            case ast.Constant(value=bool() | int()):
                return INT
            case ast.Constant(value=float()):
                return FLOAT
            case ast.Name(id=name):
                return self._name(name)
            case ast.Subscript() | ast.Attribute():
                return self._part(node)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self.of(inner)._replace(element="int")
            case ast.UnaryOp(operand=inner):
                return self.of(inner)
            case ast.Compare(left=left, comparators=others):
                return _join(map(self.of, [left, *others]))._replace(element="int")
            case ast.BoolOp(values=values):
                return _join(map(self.of, values))._replace(element="int")
            case ast.BinOp(left=left, op=op, right=right):
                kind = _join([self.of(left), self.of(right)])
                return kind._replace(element="float") if isinstance(op, ast.Div) else kind
            case ast.IfExp(body=body, orelse=orelse):
                return _join([self.of(body), self.of(orelse)])
            case ast.Call():
                return self._call(node)
        return UNKNOWN

    def of_item(self, iterator: ast.expr) -> Kind:
        """Return the type of a loop's variable: an integer, a vector of indices, or unknown."""
        if isinstance(iterator, ast.Name):
            return INT if iterator.id in self.subject.arrays else UNKNOWN
        name = self.subject.resolve_builtin(iterator)
        return INT if name in ("range", "ndrange") else Kind("int", True) if name == "grouped" else UNKNOWN

    def dtype(self, node: ast.expr | None) -> Kind:
        """Return the type that an expression names, such as `ti.i32` or `ti.math.ivec3`."""
        if node is None:
            return UNKNOWN
        value = find_called_function(self.subject.source, node)
        matrix = self._matrix_type(value)
        if matrix is not None:
            return matrix
        named = getattr(value, "__name__", None) if isinstance(value, type) else None
        named = value.last if isinstance(value, EngineName) else named
        live = (
            engines.Language(self.subject.engine).scalar_type(value)
            if isinstance(self.subject.engine, Engine)
            else None
        )
        return _of_dtype(live or named or get_last_name(node))

    def _matrix_type(self, value: object) -> Kind | None:
        """Return the type of a vector or matrix made by a vector or matrix type such as `ti.math.vec3`.

        Return None if `value` is no such type.
        """
        engine = self.subject.engine
        if isinstance(value, MatrixTypeName):
            return _of_dtype(value.dtype)._replace(is_vector=True)
        if isinstance(value, EngineName):
            return Kind(_of_dtype(MATH_TYPES[value.last][0]).element, True) if value.last in MATH_TYPES else None
        if not isinstance(engine, Engine):
            return None
        facts = engines.Language(engine).matrix_type(value)
        if facts is None:
            return None
        default: dict[str | None, Kind] = {"fp": FLOAT, "ip": INT}
        kind = default.get(engines.Language(engine).default_of(value), UNKNOWN)
        return (_of_dtype(facts[1] or "") if facts[1] else kind)._replace(is_vector=True)

    def _name(self, name: str) -> Kind:
        if name in self.locals:
            return self.locals[name].kind
        one = self.subject.declared.get(name)
        if one is not None:
            return Kind(_of_dtype(one.dtype).element, bool(one.element)) if one.kind == "scalar" else UNKNOWN
        value = find_called_function(self.subject.source, ast.Name(name, ast.Load()))
        return INT if isinstance(value, int) else FLOAT if isinstance(value, float) else UNKNOWN

    def dtype_of(self, array: str) -> Literal["int", "float", ""]:
        """Return the kind of numbers that an array is declared to hold; "" if that is not known."""
        return "int" if array in self.subject.integers else self.subject.find_declared_element(array) or ""

    def _part(self, node: ast.Subscript | ast.Attribute) -> Kind:
        """Return the type of an array's element, a vector's entry or entries, or a struct's member."""
        if is_size(node):
            return INT
        name = root(node)
        declared = self.subject.declared.get(name, _OPEN)
        if name not in self.locals and (self.dtype_of(name) or declared.kind == "array"):
            is_element = isinstance(node.value, ast.Name)
            return Kind(self.dtype_of(name), is_element and bool(declared.element))
        if declared.member is not None and isinstance(node, ast.Attribute):
            facts = self.subject.find_facts(ast.unparse(node)) or _OPEN
            return Kind(element_of(facts.dtype), bool(facts.element)) if facts.kind == "scalar" else UNKNOWN
        whole = self.of(node.value)
        if not whole.is_vector:
            return UNKNOWN
        if isinstance(node, ast.Attribute):
            return Kind(whole.element, len(node.attr) > 1) if is_swizzle(node.attr) else UNKNOWN
        return Kind(whole.element, any(isinstance(one, ast.Slice) for one in walk(node.slice)))

    def _call(self, node: ast.Call) -> Kind:
        name = self.subject.resolve_builtin(node)
        if not name:
            return self._method(node)
        given = get_all_arguments(node)
        made = self._made_vector(node, name, given)
        if made is not None:
            return made
        kinds = [self.of(one) for one in given]
        if name in ("cast", "round", "floor", "ceil") and len(given) == 2:
            return Kind(self.dtype(given[1]).element, kinds[0].is_vector)
        if name in INTEGER_TYPES | FLOAT_TYPES:
            return Kind(_of_dtype(name).element, _join(kinds).is_vector)
        if name in _FLOATS:
            return Kind("float", name not in _OF_VECTORS and _join(kinds).is_vector)
        if name == "dot":
            return _join(kinds)._replace(is_vector=False)
        if name.startswith("atomic_") or name in _FILLED:
            return kinds[0] if kinds else UNKNOWN
        if name == "select":
            return _join(kinds[1:])
        return _join(kinds) if name in _SAME else UNKNOWN

    def _made_vector(self, node: ast.Call, name: str, given: list[ast.expr]) -> Kind | None:
        """Return the type of the vector or matrix that a type's call or a constructor makes; None for other calls."""
        made = self._matrix_type(find_called_function(self.subject.source, node.func))
        if made is not None:
            return made
        if name in ("Vector", "Matrix"):
            return self._constructor(node)
        if name in _FILLED and len(given) > 1:
            return self.dtype(given[0])._replace(is_vector=True)
        if name == "unit":
            return (self.dtype(given[2]) if len(given) > 2 else INT)._replace(is_vector=True)
        if name == "diag" and len(given) == 2:
            return self.of(given[1])._replace(is_vector=True)
        return None

    def _constructor(self, node: ast.Call) -> Kind:
        """Return the type of `ti.Vector([0, 1])` or `ti.Matrix([[0, 1], [1, 0]], dt=ti.i32)`."""
        dtype = next((word.value for word in node.keywords if word.arg == "dt"), None)
        dtype = node.args[1] if dtype is None and len(node.args) == 2 else dtype
        if dtype is not None:
            return self.dtype(dtype)._replace(is_vector=True)
        return self._entries(node.args[0])._replace(is_vector=True) if node.args else UNKNOWN

    def _entries(self, node: ast.expr) -> Kind:
        """Return the type that all entries of a list have; unknown if they differ."""
        match node:
            case ast.List(elts=entries) | ast.Tuple(elts=entries) if entries:
                kinds = {self._entries(one) for one in entries}
                return kinds.pop() if len(kinds) == 1 else UNKNOWN
            case ast.ListComp(elt=entry, generators=generators):
                scope = Scope(self.subject)
                scope.locals = self.locals.new_child()
                for one in generators:
                    kind = scope.of_item(_drop_static(one.iter))
                    names = (part.id for part in walk(one.target) if isinstance(part, ast.Name))
                    scope.locals.update(dict.fromkeys(names, Local(kind, None)))
                return scope._entries(entry)
        kind = self.of(node)
        return UNKNOWN if kind.is_vector else kind

    def _method(self, node: ast.Call) -> Kind:
        """Return the type of what a method of a vector or matrix returns."""
        if not isinstance(node.func, ast.Attribute):
            return UNKNOWN
        whole, name = self.of(node.func.value), node.func.attr
        if not whole.is_vector:
            return UNKNOWN
        if name == "cast" and len(node.args) == 1:
            return self.dtype(node.args[0])._replace(is_vector=True)
        if name in _ENTRY_METHODS | _VECTOR_METHODS:
            return _join([whole, *map(self.of, node.args)])._replace(is_vector=name in _VECTOR_METHODS)
        return _FLOAT_METHODS.get(name, UNKNOWN)


def _inner_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Return the blocks of a statement; each has its own locals."""
    return [block for name in ("body", "orelse") if (block := getattr(statement, name, None))]


def _drop_static(node: ast.expr) -> ast.expr:
    """Return the argument of `ti.static(...)`; any other expression unchanged."""
    is_static = isinstance(node, ast.Call) and resolve_callee(node) == "static" and len(node.args) == 1
    return node.args[0] if is_static and isinstance(node, ast.Call) else node


def _of_dtype(name: str) -> Kind:
    return Kind(element_of(name))


def _join(kinds: Iterable[Kind]) -> Kind:
    """Return the type of an operation: float if an operand is a float, else unknown if one is unknown, else integer."""
    present = list(kinds)
    elements = {one.element for one in present}
    kind = next((one for one in (FLOAT, UNKNOWN, INT) if one.element in elements), UNKNOWN)
    return kind._replace(is_vector=any(one.is_vector for one in present))
