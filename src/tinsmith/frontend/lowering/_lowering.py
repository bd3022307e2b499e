"""The lowering of one kernel: its state, and the walk over its tree.

How each kind of node is lowered is in the files that provide the `Handlers`. They import this file, which imports none
of them (docs/about/decisions/front-end.md).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

from ..._errors import KernelError
from ...engines import NAMES, Engine, FieldKey, Language
from ...ir import (
    DIVISION_BY_ZERO,
    Deadly,
    Defaults,
    Misfit,
    NotANumber,
    NotCovered,
    Operator,
    Type,
    nodes,
    walk,
    with_cells,
)
from .._nodes import root
from .._read import Source, read
from ._operations import Operations
from ._state import ENGINE, RESERVED, Early, Frame, State
from ._stopped_gradients import stop_gradients
from ._values import ArrayValue, Matrix, is_expression, kind_of, plain


class Fields:
    """The fields that a kernel uses, each as one array. `objects` holds the engine's fields by array name."""

    def __init__(self, engine: Engine, state: State) -> None:
        self.engine = engine
        self.state = state
        self.objects: dict[str, Any] = {}
        self._names: dict[FieldKey, str] = {}

    def array(self, field: Any, label: str) -> ArrayValue:
        """Return a field of numbers as an array. Raise Misfit for any other value."""
        try:
            facts = self.engine.field_facts(field, label)
        except KernelError as reason:
            raise Misfit(str(reason).splitlines()[0]) from None
        # `self.x` and `fields[0]` may be one field: the key identifies it, and its first label gives the name.
        if facts.key not in self._names:
            name = self.state.fresh(re.sub(r"\W+", "_", label.removeprefix("self.")).strip("_") or "field")
            kind = Type(NAMES[facts.dtype])
            self._names[facts.key] = name
            self.objects[name] = field
            offset = facts.offset if any(facts.offset) else ()
            self.state.arrays[name] = nodes.Array(name, kind, len(facts.shape), facts.element, label, offset)
        array = self.state.arrays[self._names[facts.key]]
        return ArrayValue(array, facts.shape, facts.offset, facts.is_dense)


_Node = TypeVar("_Node", bound=ast.AST)
_Fact = TypeVar("_Fact")


class LoweredKernel(NamedTuple):
    """A kernel as IR, and the fields that its labeled arrays stand for."""

    kernel: nodes.Kernel
    fields: Mapping[str, Any]


class Handlers(NamedTuple):
    """The functions that lower the nodes of Python's tree.

    Attributes:
        value: returns the value of an expression.
        statement: emits a statement.
        may_leave: returns True if a function may return inside a statement.
        after_leaving: emits the statements that follow such a statement.
    """

    value: Callable[[Lowering, ast.expr], Any]
    statement: Callable[[Lowering, ast.stmt], None]
    may_leave: Callable[[ast.stmt], bool]
    after_leaving: Callable[[Lowering, Early, Frame, list[ast.stmt]], None]


class Lowering:
    """The lowering of one kernel."""

    def __init__(
        self,
        source: Source,
        engine: Engine,
        arrays: Mapping[str, nodes.Array],
        arguments: dict[str, tuple[Type, tuple[int, ...]]],
        defaults: Defaults | None,
        handlers: Handlers,
        *,
        keeps_assertions: bool = False,
    ) -> None:
        self.handlers = handlers
        self.keeps_assertions = keeps_assertions
        self.engine = engine
        self.language = Language(engine)
        self.arguments = arguments
        defaults = defaults or Defaults(*self.language.default_types)  # type: ignore[arg-type]
        self.ops = Operations(defaults, self.language.rows_of)
        taken = set(RESERVED) | set(source.parameters)
        self.state = State(defaults, dict(arrays), taken, [Frame(source, [{}], frozenset(source.parameters))])
        self.fields = Fields(engine, self.state)
        self.path = source.path
        self._sources: dict[Callable[..., Any], Source] = {}
        self._facts: dict[Any, Any] = {}

    def kernel(self, source: Source, names: Mapping[str, Any]) -> LoweredKernel:
        """Lower the body of a kernel, in which `names` are defined, and return the kernel in the IR."""
        scope = self.state.frame.scopes[0]
        scope.update(names)
        scope.update({name: whole_array(array) for name, array in self.state.arrays.items()})
        scope.update({name: _argument(name, *facts) for name, facts in self.arguments.items()})
        self.run(source.tree.body)
        state = self.state
        try:
            body = stop_gradients(state.body, state.stopped)
        except Misfit as reason:
            raise self.make_refusal(str(reason), source.tree) from None
        kernel = nodes.Kernel(source.name, source.path, state.arrays, self.arguments, state.types, body)
        # Only now is it known which locals of the top level a parallel loop changes: they become memory of the kernel.
        kernel = replace(
            with_cells(kernel, frozenset(state.cells)),
            block_memory=state.block_memory,
            source_names=state.source_names,
        )
        # Passes tell statements apart by these numbers, so they come last.
        return LoweredKernel(replace(kernel, body=walk.number_statements(kernel.body)), self.fields.objects)

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression. A NumPy number is Python's own."""
        return plain(self.python_value(node))

    def python_value(self, node: ast.expr) -> Any:
        """Return the value of an expression, with NumPy numbers in their own types, which NumPy computes in."""
        # An operand on a line of its own gives that line to what it emits; the rest of the statement keeps its own.
        outer = self.state.line
        self._step_to(node)
        try:
            value = self.engine.unwrap(self.handlers.value(self, node))
            # The numbers of a vector that an unrolled loop runs over are known: `static(I[0] > 1)`.
            is_known = self.state.is_static and not self.state.frame.is_library and isinstance(value, nodes.Const)
            return value.value if is_known else value
        except Misfit as reason:
            raise self.make_refusal(reason, node) from None
        finally:
            self.state.line = outer

    def number(self, node: ast.expr) -> nodes.Expr:
        """Lower an expression that must be a single number."""
        try:
            return self.ops.scalar(self.value(node))
        except Misfit as reason:
            raise self.make_refusal(f"`{ast.unparse(node)}`: {reason}", node) from None

    def binary(self, operator: Operator, left: Any, right: Any) -> Any:
        """Apply a binary operation to any values. A number beside a vector is computed once, not for each entry."""

        def alone(value: Any, other: Any) -> Any:
            return self.state.share(value) if isinstance(other, Matrix) and is_expression(value) else value

        left, right = alone(left, right), alone(right, left)
        try:
            return self.ops.binary(operator, left, right)
        # Of two known numbers. In a kernel, the engines end the process on it.
        except ZeroDivisionError:
            raise Deadly(*DIVISION_BY_ZERO) from None
        except (TypeError, ValueError, ArithmeticError) as reason:
            words = f"`{operator}` of {kind_of(left)} and {kind_of(right)}"
            # Python's words name a class of this library where an array is an operand.
            is_whole = isinstance(left, ArrayValue) or isinstance(right, ArrayValue)
            raise Misfit(words if is_whole else f"{words}: {reason}") from None

    def callee_name(self, node: ast.expr) -> str:
        """Return the engine's name of the function that an expression calls, or "" for any other expression."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return ""
        name = root(node.func)
        if name != ENGINE and self.state.find(name)[0]:
            return ""
        return self.language.name_of(self.value(node.func))

    def scalar_type(self, value: Any) -> Type | None:
        """Return the type for one of the engine's dtypes, or None for any other value."""
        name = self.language.scalar_type(value)
        return None if name is None else Type(name)

    def matrix_type(self, value: Any) -> tuple[tuple[int, ...], Type | None] | None:
        """Return dims and dtype (None if not declared) of a vector or matrix type, or None for any other value."""
        matrix = self.language.matrix_type(value)
        return matrix if matrix is None else (matrix[0], None if matrix[1] is None else Type(matrix[1]))

    def is_static(self, node: ast.expr) -> bool:
        """Return True if an expression is a call of `ti.static`."""
        return self.callee_name(node) == "lang.impl.static"

    def evaluate_static(self, node: ast.expr) -> Any:
        """Evaluate an expression as inside `ti.static`."""
        outer, self.state.is_static = self.state.is_static, True
        try:
            return self.value(node)
        finally:
            self.state.is_static = outer

    def aside(self, lowered: Callable[[], Any]) -> tuple[Any, list[nodes.Stmt]]:
        """Lower an expression; return its value and the statements that compute it, which are not emitted yet.

        If a call in the statement changes memory, they are emitted at once and the list is empty: engines run every
        call, whether its result is used or not.
        """
        outer, self.state.body = self.state.body, []
        try:
            value = lowered()
            written = self.state.body
        finally:
            self.state.body = outer
        if self.state.is_quiet:
            return value, written
        self.state.body += written
        return value, []

    def read(self, function: Callable[..., Any]) -> Source:
        """Return the source of a function that the kernel calls."""
        if function not in self._sources:
            self._sources[function] = _of_library(function) if self.engine.owns(function) else read(function)
        return self._sources[function]

    def fact(self, describe: Callable[[_Node], _Fact], node: _Node) -> _Fact:
        """Return `describe(node)`, computed once for each node: an unrolled loop's body is lowered many times."""
        key = (describe, node)
        if key not in self._facts:
            self._facts[key] = describe(node)
        return self._facts[key]

    def run(self, body: list[ast.stmt]) -> None:
        """Lower a block of statements in a new scope: locals defined in it end with it."""
        with self.state.scope():
            self.steps(body)

    def steps(self, body: list[ast.stmt]) -> None:
        """Lower the statements of a block; stop after one that leaves it, such as `break` or `return`."""
        for number, statement in enumerate(body):
            frame = self.state.frame
            if frame.status:
                return
            self.step(statement)
            if frame.early is not None and self.fact(self.handlers.may_leave, statement) and not frame.status:
                # The rest runs only if the function has not returned: the handler puts it under that condition.
                self.handlers.after_leaving(self, frame.early, frame, body[number + 1 :])
                return

    def step(self, statement: ast.stmt) -> None:
        """Lower one statement."""
        self._step_to(statement)
        try:
            self.handlers.statement(self, statement)
        except Misfit as reason:
            raise self.make_refusal(reason, statement) from None

    def _step_to(self, node: ast.AST) -> None:
        """Give statements emitted from now on the line of `node`, or that of the call if `node` is in another file."""
        if self.state.frame.source.path == self.path and not self.state.frame.is_library:
            self.state.line = getattr(node, "lineno", self.state.line)

    def _find_name_of(self, value: object, node: ast.AST) -> str:
        """Return the name or attribute in an expression that has this value; "" if there is none."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name | ast.Attribute):
                try:
                    own_value = self.handlers.value(self, part)
                except (Misfit, NotCovered):
                    continue
                if own_value is value:
                    return ast.unparse(part)
        return ""

    def make_refusal(self, construct: str | Misfit, node: ast.AST) -> NotCovered:
        """Return the refusal of a construct. In an engine's own function it names the line of the user's call."""
        frame = self.state.frame
        place = (self.state.line, self.path)
        if not frame.is_library:
            place = getattr(node, "lineno", frame.source.tree.lineno), frame.source.path
        if isinstance(construct, NotANumber) and (name := self._find_name_of(construct.value, node)):
            return NotCovered(f"`{name}`, {construct}", *place, remedy=f"Give `{name}` a number")
        if isinstance(construct, Misfit):
            is_deadly = isinstance(construct, Deadly)
            return NotCovered(str(construct), *place, remedy=construct.remedy, ends_process=is_deadly)
        return NotCovered(construct, *place)


@cache
def _of_library(function: Callable[..., Any]) -> Source:
    """Return the source of an engine's own function. It is read once: a lookup takes a millisecond."""
    return read(function)


def whole_array(array: nodes.Array) -> ArrayValue:
    """Return an array parameter as a value."""
    sizes = tuple(nodes.Size(array.name, axis) for axis in range(array.rank))
    return ArrayValue(array, sizes, (0,) * array.rank)


def _argument(name: str, kind: Type, element: tuple[int, ...]) -> Any:
    if not element:
        return nodes.Argument(name, kind)
    empty = Matrix(element, ())
    return Matrix(element, tuple(nodes.Argument(name, kind, index) for index in empty.indices))
