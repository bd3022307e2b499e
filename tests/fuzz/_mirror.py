"""A kernel as plain Python: the interpreter runs its text on torch float64 scalars that carry autograd.

This is a reference that shares no code with the front end of tinsmith. A kernel's text is Python, so CPython runs it;
this module only supplies what `lang` means, arrays, vectors and matrices, and rewrites the statements whose meaning
differs: `a += b` must not change a tensor in place, an assignment copies a vector, an atomic reads and writes its
first argument. Loops run one iteration after the other, so a program must be free of races.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from fuzz._parts import KERNELS

Scalar = Any
"""A 0-d float64 tensor, or a number of Python's."""


def run_mirror(source: str, arguments: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
    """Run the kernels of a source on arguments by name, each on those that it names. Arrays are changed in place."""
    tree = ast.fix_missing_locations(_Rewrite().visit(ast.parse(source)))
    scope: dict[str, Any] = {"lang": LANG, "_copy": _copy, **constants}
    exec(compile(tree, "<mirror>", "exec"), scope)
    for kernel in [scope[name] for name in KERNELS if name in scope]:
        names = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
        kernel(**{name: arguments[name] for name in names})


class Array:
    """An array of scalars, vectors or matrices. An index outside of it is an IndexError, a negative one too."""

    def __init__(self, tensor: torch.Tensor, element_dims: int = 0) -> None:
        self.shape = tuple(tensor.shape[: tensor.ndim - element_dims])
        self.is_integer = not tensor.is_floating_point()
        places = itertools.product(*map(range, self.shape))
        self.elements = {place: self._element(tensor[place], element_dims) for place in places}

    def _element(self, one: torch.Tensor, element_dims: int) -> Any:
        if element_dims == 2:
            return Matrix([list(row.unbind()) for row in one.unbind()])
        if element_dims == 1:
            return Vector(list(one.unbind()))
        return int(one) if self.is_integer else one

    def _place(self, index: Any) -> tuple[int, ...]:
        if index is None:
            index = ()
        parts = index.parts if isinstance(index, Vector) else index if isinstance(index, tuple) else (index,)
        place = tuple(parts)
        if place not in self.elements:
            raise IndexError(f"{place} is outside {self.shape}")
        return place

    def __getitem__(self, index: Any) -> Any:
        return self.elements[self._place(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        place = self._place(index)
        self.elements[place] = int(value) if self.is_integer else _copy(value)

    def __iter__(self) -> Iterator[Any]:
        places = itertools.product(*map(range, self.shape))
        return (place[0] if len(place) == 1 else place for place in places)

    def stacked(self) -> torch.Tensor:
        """Return all elements as one tensor, connected with what they were computed from."""
        flat = [number for one in self.elements.values() for number in _numbers(one)]
        if self.is_integer:
            return torch.tensor(flat, dtype=torch.int64)
        return torch.stack([torch.as_tensor(number, dtype=torch.float64) for number in flat])


class Vector:
    """A vector, as kernels know it: of floats, or of integers."""

    def __init__(self, parts: Sequence[Scalar]) -> None:
        self.parts = list(parts)

    def __getitem__(self, place: int) -> Scalar:
        return self.parts[_within(place, len(self.parts))]

    def __setitem__(self, place: int, value: Scalar) -> None:
        self.parts[_within(place, len(self.parts))] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not set(name) <= set("xyz"):
            raise AttributeError(name)
        picked = [self.parts["xyz".index(letter)] for letter in name]
        return picked[0] if len(picked) == 1 else Vector(picked)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "parts":
            object.__setattr__(self, name, value)
        else:
            self.parts["xyz".index(name)] = value

    def assign(self, other: Vector) -> None:
        """Take the values of another, where a function changes what its caller handed over."""
        self.parts = list(other.parts)

    def map(self, function: Callable[..., Scalar], *others: Any) -> Vector:
        """Apply a function to each number of a vector."""
        columns = [one.parts if isinstance(one, Vector) else [one] * len(self.parts) for one in others]
        return Vector([function(*numbers) for numbers in zip(self.parts, *columns, strict=True)])

    def __add__(self, other: Any) -> Vector:
        return self.map(lambda a, b: a + b, other)

    def __sub__(self, other: Any) -> Vector:
        return self.map(lambda a, b: a - b, other)

    def __mul__(self, other: Any) -> Vector:
        return self.map(lambda a, b: a * b, other)

    def __truediv__(self, other: Any) -> Vector:
        return self.map(lambda a, b: a / b, other)

    def __radd__(self, other: Any) -> Vector:
        return self.map(lambda a, b: b + a, other)

    def __rsub__(self, other: Any) -> Vector:
        return self.map(lambda a, b: b - a, other)

    def __rmul__(self, other: Any) -> Vector:
        return self.map(lambda a, b: b * a, other)

    def __neg__(self) -> Vector:
        return self.map(lambda a: -a)

    def sum(self) -> Scalar:
        return sum(self.parts[1:], self.parts[0])

    def max(self) -> Scalar:
        return _maximum(*self.parts)

    def min(self) -> Scalar:
        return _minimum(*self.parts)

    def dot(self, other: Vector) -> Scalar:
        return (self * other).sum()

    def cross(self, other: Vector) -> Vector:
        (a, b, c), (d, e, f) = self.parts, other.parts
        return Vector([b * f - c * e, c * d - a * f, a * e - b * d])

    def norm_sqr(self) -> Scalar:
        return self.dot(self)

    def norm(self, eps: float = 0.0) -> Scalar:
        return torch.sqrt(_float(self.norm_sqr() + eps))

    def normalized(self, eps: float = 0.0) -> Vector:
        return self / (self.norm() + eps)

    def outer_product(self, other: Vector) -> Matrix:
        return Matrix([[a * b for b in other.parts] for a in self.parts])


class Matrix:
    """A matrix of floats."""

    def __init__(self, rows: Sequence[Sequence[Scalar]]) -> None:
        self.rows = [list(row) for row in rows]

    def __getitem__(self, place: tuple[int, int]) -> Scalar:
        return self.rows[_within(place[0], len(self.rows))][_within(place[1], len(self.rows[0]))]

    def __setitem__(self, place: tuple[int, int], value: Scalar) -> None:
        self.rows[_within(place[0], len(self.rows))][_within(place[1], len(self.rows[0]))] = value

    def map(self, function: Callable[..., Scalar], other: Any) -> Matrix:
        """Apply a function to each number of a matrix."""
        others = other.rows if isinstance(other, Matrix) else [[other] * len(row) for row in self.rows]
        pairs = zip(self.rows, others, strict=True)
        return Matrix([[function(a, b) for a, b in zip(mine, theirs, strict=True)] for mine, theirs in pairs])

    def __add__(self, other: Any) -> Matrix:
        return self.map(lambda a, b: a + b, other)

    def __sub__(self, other: Any) -> Matrix:
        return self.map(lambda a, b: a - b, other)

    def __mul__(self, other: Any) -> Matrix:
        return self.map(lambda a, b: a * b, other)

    def __rmul__(self, other: Any) -> Matrix:
        return self.map(lambda a, b: b * a, other)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, Vector):
            return Vector([Vector(row).dot(other) for row in self.rows])
        columns = other.transpose().rows
        return Matrix([[Vector(row).dot(Vector(column)) for column in columns] for row in self.rows])

    def transpose(self) -> Matrix:
        return Matrix(list(zip(*self.rows, strict=True)))

    def trace(self) -> Scalar:
        return sum((row[place] for place, row in enumerate(self.rows) if place), self.rows[0][0])

    def determinant(self) -> Scalar:
        (a, b), (c, d) = self.rows
        return a * d - b * c

    def assign(self, other: Matrix) -> None:
        """Take the values of another, where a function changes what its caller handed over."""
        self.rows = [list(row) for row in other.rows]


class Struct:
    """What a kernel's dataclass makes."""

    def copy(self) -> Struct:
        """Copy the value."""
        made = type(self).__new__(type(self))
        vars(made).update({name: _copy(value) for name, value in vars(self).items()})
        return made


def _dataclass(described: type) -> type:
    """Make a class of structs with the methods of the described one."""

    def start(self: Any, **members: Any) -> None:
        vars(self).update({name: _copy(value) for name, value in members.items()})

    methods = {name: one for name, one in vars(described).items() if callable(one)}
    return type(described.__name__, (Struct,), {**methods, "__init__": start})


def _svd(matrix: Matrix, _dtype: Any = None) -> tuple[Matrix, Matrix, Matrix]:
    left, stretches, right = torch.linalg.svd(_stack(matrix))
    return _unstack(left), _unstack(torch.diag(stretches)), _unstack(right.T)


def _polar_decompose(matrix: Matrix, _dtype: Any = None) -> tuple[Matrix, Matrix]:
    whole = _stack(matrix)
    left, _, right = torch.linalg.svd(whole)
    turn = left @ right
    return _unstack(turn), _unstack(turn.T @ whole)


def _stack(matrix: Matrix) -> torch.Tensor:
    return torch.stack([torch.stack([_float(number) for number in row]) for row in matrix.rows])


def _unstack(tensor: torch.Tensor) -> Matrix:
    return Matrix([list(row.unbind()) for row in tensor.unbind()])


def _within(place: int, size: int) -> int:
    if not 0 <= place < size:
        raise IndexError(f"{place} is outside a vector or matrix of {size}")
    return place


def _numbers(value: Any) -> list[Scalar]:
    if isinstance(value, Matrix):
        return [number for row in value.rows for number in row]
    return value.parts if isinstance(value, Vector) else [value]


def _copy(value: Any) -> Any:
    """Copy a value as an assignment does: vectors and matrices are copied."""
    if isinstance(value, Vector):
        return Vector(value.parts)
    if isinstance(value, Matrix):
        return Matrix(value.rows)
    if isinstance(value, Struct):
        return value.copy()
    return tuple(map(_copy, value)) if isinstance(value, tuple) else value


# What `lang` means ------------------------------------------------------------------------------


def _float(value: Scalar) -> torch.Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


def _elementwise(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Make a function of floats that vectors apply entry by entry."""

    def apply(first: Any, *others: Any) -> Any:
        if isinstance(first, Vector):
            return first.map(apply, *others)
        return function(_float(first), *map(_float, others))

    return apply


def _extreme(of_tensors: Callable[..., torch.Tensor], of_integers: Callable[..., int]) -> Callable[..., Any]:
    def apply(first: Any, *others: Any) -> Any:
        for other in others:
            if isinstance(first, Vector):
                first = first.map(apply, other)
            elif isinstance(first, int) and isinstance(other, int):
                first = of_integers(first, other)
            else:
                first = of_tensors(_float(first), _float(other))
        return first

    return apply


_maximum, _minimum = _extreme(torch.maximum, max), _extreme(torch.minimum, min)


def _cast(value: Any, dtype: str) -> Any:
    if dtype.startswith("i"):
        return int(value)
    if dtype == "f16":
        return _float(value).half().double()
    return value


def _ndrange(*bounds: Any) -> Iterator[Any]:
    ranges = [range(*bound) if isinstance(bound, tuple) else range(bound) for bound in bounds]
    return iter(ranges[0]) if len(ranges) == 1 else itertools.product(*ranges)


def _grouped(array: Any) -> Iterator[Vector]:
    return (Vector(place if isinstance(place, tuple) else (place,)) for place in array)


def _matrix(rows: Any) -> Matrix:
    return Matrix(rows)


LANG = SimpleNamespace(
    func=lambda function: function,
    real_func=lambda function: function,
    dataclass=_dataclass,
    data_oriented=lambda described: described,
    svd=_svd,
    polar_decompose=_polar_decompose,
    template=lambda: None,
    static=lambda value: value,
    loop_config=lambda **_: None,
    ndrange=_ndrange,
    grouped=_grouped,
    Vector=Vector,
    Matrix=_matrix,
    types=SimpleNamespace(ndarray=lambda **_: None, matrix=lambda *_: None, vector=lambda *_: None),
    math=SimpleNamespace(
        vec2=None,
        vec3=None,
        mix=lambda a, b, t: a * (1.0 - t) + b * t,
        clamp=lambda a, low, high: _maximum(_minimum(a, high), low),
    ),
    f16="f16",
    f32="f32",
    i32="i32",
    i64="i64",
    f64="f64",
    cast=_cast,
    select=lambda condition, a, b: a if condition else b,
    max=_maximum,
    min=_minimum,
    abs=lambda value: abs(value) if isinstance(value, int) else _elementwise(torch.abs)(value),
    sin=_elementwise(torch.sin),
    cos=_elementwise(torch.cos),
    tan=_elementwise(torch.tan),
    asin=_elementwise(torch.asin),
    tanh=_elementwise(torch.tanh),
    exp=_elementwise(torch.exp),
    log=_elementwise(torch.log),
    sqrt=_elementwise(torch.sqrt),
    rsqrt=_elementwise(torch.rsqrt),
    floor=_elementwise(torch.floor),
    round=_elementwise(torch.round),
    atan2=_elementwise(torch.atan2),
    pow=_elementwise(torch.pow),
)
"""What a kernel calls `lang` here."""


# Statements that mean something else in Python --------------------------------------------------

_OPERATORS = {"atomic_add": ast.Add, "atomic_sub": ast.Sub, "atomic_max": "max", "atomic_min": "min"}


class _Rewrite(ast.NodeTransformer):
    """The text of a kernel as Python that does what the kernel means."""

    def __init__(self) -> None:
        self.references: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Copy arguments of functions, except those by reference; remove annotations and decorators."""
        parameters = node.args.args
        references = {one.arg for one in parameters if one.annotation and "template" in ast.unparse(one.annotation)}
        outer, self.references = self.references, references
        body = [part for statement in node.body for part in _listed(self.visit(statement))]
        self.references = outer
        if node.name not in KERNELS:
            copied = [one.arg for one in parameters if one.arg not in references]
            body = [*(_parsed(f"{name} = _copy({name})") for name in copied), *body]
        node.body, node.decorator_list = body, []
        for one in parameters:
            one.annotation = None
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        if self._is_atomic(node.value):
            call: Any = node.value
            old = ast.Assign(node.targets, self._loaded(call.args[0]))
            # The result may be a name that the value uses: the value is worked out first.
            value = ast.Assign([ast.Name("_value", ast.Store())], call.args[1])
            call.args[1] = ast.Name("_value", ast.Load())
            kept = ast.Assign([ast.Name("_old", ast.Store())], self._loaded(call.args[0]))
            old.value = ast.Name("_old", ast.Load())
            return [value, kept, self._changed(call), old]
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in self.references:
            return ast.Expr(_call(ast.Attribute(ast.Name(target.id, ast.Load()), "assign", ast.Load()), node.value))
        node.value = _call(ast.Name("_copy", ast.Load()), node.value)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Visit methods only: decorators say how the class is made."""
        node.body = [self.visit(one) if isinstance(one, ast.FunctionDef) else one for one in node.body]
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        return self.visit_Assign(ast.Assign([node.target], ast.BinOp(self._loaded(node.target), node.op, node.value)))

    def visit_Expr(self, node: ast.Expr) -> Any:
        return self._changed(node.value) if self._is_atomic(node.value) else node

    def _is_atomic(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _OPERATORS

    def _changed(self, call: Any) -> ast.Assign:
        """Rewrite an atomic as the assignment that it stands for."""
        target, value = call.args
        operator = _OPERATORS[call.func.attr]
        if isinstance(operator, str):
            function = ast.Attribute(ast.Name("lang", ast.Load()), operator, ast.Load())
            changed: ast.expr = _call(function, self._loaded(target), value)
        else:
            changed = ast.BinOp(self._loaded(target), operator(), value)
        stored = copy.deepcopy(target)
        stored.ctx = ast.Store()
        return ast.Assign([stored], changed)

    def _loaded(self, target: ast.expr) -> Any:
        loaded = copy.deepcopy(target)
        loaded.ctx = ast.Load()  # type: ignore[attr-defined]  # a name, an element or an attribute
        return loaded


def _listed(statement: Any) -> list[Any]:
    return statement if isinstance(statement, list) else [statement]


def _call(function: ast.expr, *arguments: ast.expr) -> ast.Call:
    return ast.Call(function, list(arguments), [])


def _parsed(text: str) -> ast.stmt:
    return ast.parse(text).body[0]
