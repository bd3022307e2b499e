"""From the IR back to source that an engine compiles, the same for the same kernel.

    parallel for i in 0 .. x.shape[0]:         for i in range(x.shape[0]):
      v = x[i] * 3.0                               v = x[i] * 3.0
      w = 1.0 * 3.0                     ->         w = _lang.f32(1.0) * 3.0
      atomic add y[i], v + w                       _lang.atomic_add(y[i], v + w)

The printed kernel calls the engine's module `_lang`. A number whose type is not that of a literal is written with its
type; an operation on known numbers is written so that the engine, not Python, computes it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ..engines import COMPILING, parse_expression
from ..ir import Defaults, Names, Operator, Type, cast, nodes, operators, parts_of, side_of, types, walk
from ._syntax import SIGNS, assign, call, call_operation, define, join_index, lang, number, operation, variable
from ._vectors import VectorLoop, plan_lane_arrays, vector_number, zeros

PrintedKernel: TypeAlias = ast.FunctionDef
"""A kernel as a tree of Python. Its statements have the lines of the source that they come from."""
ARITHMETIC = {f"arithmetic_{name}": f"_{name}" for name in (*operators.ARITHMETIC_FUNCTIONS, "pow")}
"""Functions by arithmetic alone, which no engine has, and their names in printed source."""


def print_kernel(kernel: nodes.Kernel, annotations: Mapping[str, str], defaults: Defaults) -> PrintedKernel:
    """Print a kernel as source.

    Args:
        kernel: the kernel.
        annotations: the annotation of every array and argument, as source, in the order of the parameters.
        defaults: types of literals in the engine that compiles it.

    Example:
        >>> k = nodes.Kernel("one", "", {"y": nodes.Array("y", "f32", 0)}, {}, {},
        ...                  (nodes.Store("y", (), (), nodes.Const(1.0, "f32")),))
        >>> print(ast.unparse(print_kernel(k, {"y": "_lang.types.ndarray()"}, Defaults())))
        def one(y: _lang.types.ndarray()):
            y[None] = 1.0
    """
    # The lock also raises Python's recursion limit, for deep expressions.
    with COMPILING:
        # An array of the blocks that is a parameter is ordinary memory by now (`passes.run_blocks_in_order`).
        writer = Writer(kernel, defaults, frozenset(kernel.block_memory.keys() - annotations.keys()))
        body = [*writer.cells(), *writer.body(writer.kernel.body, is_top=True)]
    parameters = [ast.arg(name, parse_expression(text)) for name, text in annotations.items()]
    return define(kernel.name, parameters, body)


class Writer:
    """Writes one kernel."""

    def __init__(self, kernel: nodes.Kernel, defaults: Defaults, shared: frozenset[str] = frozenset()) -> None:
        self.shared = shared
        self.is_in_blocks = bool(shared) or walk.has_barriers(kernel.body)
        self.defaults = defaults
        self.names = Names(walk.names_of(kernel))
        self.kernel = kernel = split_deep_expressions(kernel, self.reserve_name)
        self.lane_arrays = plan_lane_arrays(kernel.body, self.reserve_name)
        arrays = [one for one in walk.statements(kernel.body) if isinstance(one, nodes.LocalArray)]
        self.stored_types = {one.name: one.type for one in [*kernel.arrays.values(), *arrays]}
        self.entry_name = self.reserve_name("entry")

    # Statements -------------------------------------------------------------------------------

    def cells(self) -> list[ast.stmt]:
        """Declare the kernel's own memory: locals of the top level, which parallel iterations share in both engines."""
        kinds = ((name, self.kernel.arrays[name].type) for name in self.kernel.cells)
        return [assign(name, self.expression(nodes.Const(types.zero(kind), kind))) for name, kind in kinds]

    def body(self, statements: Sequence[nodes.Stmt], *, is_top: bool = False) -> list[ast.stmt]:
        written: list[ast.stmt] = []
        for statement in statements:
            # The engines run a loop of the top level in parallel unless a setting before it says otherwise.
            if is_top and isinstance(statement, nodes.For) and not statement.is_parallel:
                serial = ast.Call(lang("loop_config"), [], [ast.keyword("serialize", ast.Constant(True))])
                written.append(ast.Expr(serial, lineno=statement.line))
            if is_top and isinstance(statement, nodes.For) and statement.block_size and self.is_in_blocks:
                size = ast.keyword("block_dim", ast.Constant(statement.block_size))
                written.append(ast.Expr(ast.Call(lang("loop_config"), [], [size]), lineno=statement.line))
            for one in self.statements(statement):
                # For `add_comments`.
                one.lineno = statement.line
                written.append(one)
        return written or [ast.Pass()]

    def statements(self, one: nodes.Stmt) -> list[ast.stmt]:
        match one:
            case nodes.Decompose():
                return self.write_decomposition(one)
            case nodes.For() if one.vector_width:
                return VectorLoop(one, self, self.lane_arrays, self.entry_name).write()
            case nodes.LocalArray():
                return self.declare_array(one)
            case _:
                return [self.statement(one)]

    def declare_array(self, one: nodes.LocalArray) -> list[ast.stmt]:
        """Declare a local array; vectors instead of it, or beside it, if loops in vectors use it."""
        plan = self.lane_arrays.get(one.name)
        vectors = [] if plan is None else plan.vectors
        names = [(name, one.length // len(vectors)) for name in vectors]
        names += [(one.name, one.length)] if plan is None or plan.is_array else []
        return [assign(name, zeros(one.type, count)) for name, count in names]

    def write_decomposition(self, one: nodes.Decompose) -> list[ast.stmt]:
        """Write the engine's call, and the assignment of each entry of its results."""
        parts = parts_of(one)
        wholes = [self.reserve_name(part.name.upper()) for part in parts]
        entries = [self.operand(entry) for entry in one.matrix]
        side = side_of(one)
        rows: list[ast.expr] = [ast.List(entries[k : k + side], ast.Load()) for k in range(0, len(entries), side)]
        called = call(one.function, call("Matrix", ast.List(rows, ast.Load())), lang(one.type))
        places = [(whole, index) for whole, part in zip(wholes, parts, strict=True) for index in part.entries]
        targets: list[ast.expr] = [ast.Name(whole, ast.Store()) for whole in wholes]
        return [
            assign(ast.Tuple(targets, ast.Store()) if len(targets) > 1 else targets[0], called),
            *(
                assign(name, self.entry(variable(whole), index))
                for name, (whole, index) in zip(one.results, places, strict=True)
            ),
        ]

    def reserve_name(self, wish: str) -> str:
        """Return a name that the kernel does not use yet."""
        return self.names.fresh(f"{wish}_1")

    def statement(self, one: nodes.Stmt) -> ast.stmt:
        match one:
            case nodes.Assign():
                value = self.cast(one.value, self.kernel.locals[one.name])
                return assign(one.name, value)
            case nodes.Draw():
                return assign(one.name, call("random", lang(one.type)))
            case nodes.Store():
                return assign(self.element(one), self.write_stored_value(one))
            case nodes.Atomic():
                called = call(f"atomic_{one.operator}", self.element(one), self.write_stored_value(one))
                return ast.Expr(called) if one.result is None else assign(one.result, called)
            case nodes.If():
                orelse = self.body(one.orelse) if one.orelse else []
                return ast.If(self.expression(one.condition), self.body(one.body), orelse)
            case nodes.For():
                return self.loop(one)
            case nodes.While():
                return ast.While(ast.Constant(True), self.body(one.body), [])
            case nodes.Break() | nodes.Continue():
                return ast.Break() if isinstance(one, nodes.Break) else ast.Continue()
            case nodes.Barrier():
                return ast.Expr(ast.Call(lang("simt.block.sync"), [], []))
            case nodes.Vote():
                voted = ast.Call(lang(f"simt.block.sync_{one.operator}_nonzero"), [self.expression(one.value)], [])
                return assign(one.result, voted)
            case nodes.Assert():
                return ast.Assert(self.expression(one.condition), ast.Constant(one.message) if one.message else None)
        raise AssertionError(
            f"unexpected {type(one).__name__}: it is several statements in Python, and only one was requested"
        )

    def declare_block_memory(self, loop: nodes.For) -> list[ast.stmt]:
        """Declare the memory that the threads of a block share, in a parallel loop that uses it."""
        written: list[ast.stmt] = []
        # Sorted, so that a kernel always has the same text: the engines' offline caches may go by it.
        for name in sorted(self.shared & walk.find_touched(loop.body)) if loop.is_parallel else ():
            array = self.kernel.arrays[name]
            sizes = [self.expression(size) for size in self.kernel.block_memory[name]]
            kind: ast.expr = lang(array.type)
            if array.element:
                word = "vector" if len(array.element) == 1 else "matrix"
                counts = [ast.Constant(count) for count in array.element]
                kind = ast.Call(lang(f"types.{word}"), [*counts, kind], [])
            memory = ast.Attribute(lang("simt.block"), "SharedArray", ast.Load())
            called = ast.Call(memory, [ast.Tuple(sizes, ast.Load()), kind], [])
            written.append(assign(name, called))
            written[-1].lineno = loop.line
        return written

    def loop(self, one: nodes.For) -> ast.For:
        names: list[ast.expr] = [ast.Name(name, ast.Store()) for name in one.names]
        body = [*self.declare_block_memory(one), *self.body(one.body)]
        if len(names) == 1:
            first, end = one.bounds[0]
            bounds = [end] if first == nodes.Const(0, Type.I32) else [first, end]
            iterator = ast.Call(variable("range"), [self.expression(bound) for bound in bounds], [])
            return ast.For(names[0], iterator, body, [])
        pairs = [self.write_bound(*bound) for bound in one.bounds]
        return ast.For(ast.Tuple(names, ast.Store()), call("ndrange", *pairs), body, [])

    def write_bound(self, first: nodes.Expr, end: nodes.Expr) -> ast.expr:
        if first == nodes.Const(0, Type.I32):
            return self.expression(end)
        return ast.Tuple([self.expression(first), self.expression(end)], ast.Load())

    # Expressions ------------------------------------------------------------------------------

    def expression(self, one: nodes.Expr) -> ast.expr:
        match one:
            case nodes.Const():
                return self.constant(one, is_typed=one.type != types.of_literal(one.value, self.defaults))
            case nodes.Local():
                return variable(one.name)
            case nodes.Argument():
                return self.entry(variable(one.name), one.entry)
            case nodes.Size():
                shape = ast.Attribute(variable(one.array), "shape", ast.Load())
                return ast.Subscript(shape, ast.Constant(one.axis), ast.Load())
            case nodes.Load():
                return self.element(one)
            case nodes.Cast():
                return call("bit_cast" if one.keeps_bits else "cast", self.operand(one.value), lang(one.type))
            case nodes.Select():
                values = (one.condition, one.then, one.otherwise)
                return call("select", self.operand(values[0]), *(self.expression(value) for value in values[1:]))
            case nodes.Unary():
                return self.unary(one)
            case nodes.Binary():
                return self.binary(one)

    def unary(self, one: nodes.Unary) -> ast.expr:
        return self.function(one, self.operand(one.value))

    def function(self, one: nodes.Unary, value: ast.expr) -> ast.expr:
        """Write an operation on a number that is written already."""
        sign = SIGNS.get(one.operator)
        if isinstance(sign, ast.unaryop):
            return ast.UnaryOp(sign, value)
        if one.operator in ARITHMETIC:
            return ast.Call(variable(ARITHMETIC[one.operator]), [value], [])
        called = call_operation(one.operator, value)
        # Printed as a root. Lowering, which may read this tree again, must know that its derivative at 0 is 0.
        if one.operator == Operator.NORM:
            vars(called)["is_norm"] = True
        return called

    def binary(self, one: nodes.Binary) -> ast.expr:
        if one.operator == Operator.STRAIGHT_THROUGH:
            return self.straight_through(one, self.expression(one.left))
        if one.operator in ARITHMETIC:
            operands = [self.operand(one.left), self.operand(one.right)]
            return ast.Call(variable(ARITHMETIC[one.operator]), operands, [])
        # Of two literals Python would compute the result, with its own types: one is written as a number of the engine.
        is_known = isinstance(one.left, nodes.Const) and isinstance(one.right, nodes.Const)
        left = self.operand(one.left) if is_known else self.expression(one.left)
        return operation(one.operator, left, self.expression(one.right))

    def straight_through(self, one: nodes.Binary, value: ast.expr) -> ast.expr:
        """Write the value alone. If it has no derivative, mark it for lowering, which may read this tree again."""
        if not isinstance(one.right, nodes.Const):
            return value
        called = call("cast", value, lang(one.type))
        vars(called)["is_stopped"] = True
        return called

    def operand(self, one: nodes.Expr) -> ast.expr:
        """Write an expression that the engine evaluates, not Python: a number gets its type."""
        return self.constant(one, is_typed=True) if isinstance(one, nodes.Const) else self.expression(one)

    def constant(self, one: nodes.Const, *, is_typed: bool) -> ast.expr:
        written = number(one.value) if _is_plain(one.value) else _special(float(one.value))
        return ast.Call(lang(one.type), [written], []) if is_typed else written

    def cast(self, value: nodes.Expr, kind: Type) -> ast.expr:
        """Write a value as it is assigned to a local of a type."""
        same = value.type == kind
        return self.expression(value) if same else call("cast", self.operand(value), lang(kind))

    def write_stored_value(self, one: nodes.Store | nodes.Atomic) -> ast.expr:
        """Write the value of a store. Where the engine would warn that it may lose precision, write the cast out.

        The engine would name a line of generated text. The sanitizer reports a line of the user's that rounds (TS609).
        """
        kind = self.stored_types[one.array]
        is_narrower = types.promote(kind, one.value.type) != kind
        return self.operand(cast(one.value, kind)) if is_narrower else self.expression(one.value)

    def element(self, one: nodes.Load | nodes.Store | nodes.Atomic) -> ast.expr:
        context = ast.Store() if isinstance(one, nodes.Store) else ast.Load()
        if one.array in self.kernel.cells:
            return ast.Name(one.array, context)
        array = self.kernel.arrays.get(one.array)
        if array is not None and array.vector_width:
            return self.number_in_vector(one, array.vector_width, context)
        element = ast.Subscript(variable(one.array), self.index(one), ast.Load() if one.entry else context)
        return self.entry(element, one.entry, context)

    def number_in_vector(
        self, one: nodes.Load | nodes.Store | nodes.Atomic, width: int, context: ast.expr_context
    ) -> ast.expr:
        """Write an element of an array of machine vectors: its vector, and its place in that."""
        *zeros, place = one.index
        last = nodes.Binary(Operator.BIT_AND, place, nodes.Const(width - 1, Type.I32), Type.I32)
        whole = ast.Subscript(variable(one.array), self.place([*zeros, vector_number(place, width)]), ast.Load())
        return ast.Subscript(whole, self.expression(last), context)

    def index(self, one: nodes.Load | nodes.Store | nodes.Atomic) -> ast.expr:
        """Write the index of an element, without that of the entry in it."""
        return self.place(one.index)

    def place(self, parts: Sequence[nodes.Expr]) -> ast.expr:
        """Write an index of several parts, of one, or of none."""
        return join_index([self.expression(part) for part in parts])

    def entry(self, value: ast.expr, entry: tuple[int, ...], context: ast.expr_context | None = None) -> ast.expr:
        return ast.Subscript(value, self.numbers(entry), context or ast.Load()) if entry else value

    def numbers(self, entry: tuple[int, ...]) -> ast.expr:
        """Write the index of an entry."""
        return join_index([ast.Constant(place) for place in entry])


def _is_plain(value: bool | float) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _special(value: float) -> ast.expr:
    """Write infinity or NaN, by the engine's names."""
    name = lang("math.nan" if math.isnan(value) else "math.inf")
    return ast.UnaryOp(ast.USub(), name) if value < 0 else name


# Deep expressions -------------------------------------------------------------------------------
# Python's parser takes at most 200 nested parentheses, and the engines' compilers go through an expression recursively,
# with several Python calls for each level. Passes substitute expressions into each other, so that an expression may
# become deeper than any that the user wrote: its parts get names before it is printed.


DEEPEST = 40
"""The most levels of operations in a printed expression: few enough for the engines, and more than people write."""


def split_deep_expressions(kernel: nodes.Kernel, reserve_name: Callable[[str], str]) -> nodes.Kernel:
    """Return the kernel with locals in place of parts that are too deep. It computes the same, in the same order.

    Args:
        kernel: the kernel.
        reserve_name: returns an unused name, like the one it is given.
    """
    names: dict[str, str] = {}

    def split(one: nodes.Stmt) -> list[nodes.Stmt]:
        if all(_depth(expr) <= DEEPEST for expr in walk.expressions(one)):
            return [one]
        before: list[nodes.Stmt] = []

        def give_name(part: nodes.Expr) -> nodes.Expr:
            name = reserve_name("part")
            names[name] = part.type
            before.append(nodes.Assign(name, part, one.line))
            return nodes.Local(name, part.type)

        changed = walk.with_expressions(one, lambda expr: _split(expr, give_name)[0])
        return [*before, changed]

    body = walk.rewrite(kernel.body, split)
    return replace(kernel, body=body, locals={**kernel.locals, **names}) if names else kernel


def _depth(expr: nodes.Expr) -> int:
    return max((1 + _depth(part) for part in walk.operands(expr)), default=0)


def _split(expr: nodes.Expr, give_name: Callable[[nodes.Expr], nodes.Expr]) -> tuple[nodes.Expr, int]:
    """Return an expression of at most `DEEPEST` levels, and how many it has."""
    if isinstance(expr, nodes.Binary) and expr.operator == Operator.STRAIGHT_THROUGH:
        # Only its value is printed.
        return _split(expr.left, give_name)
    depths = [0]

    def change(part: nodes.Expr) -> nodes.Expr:
        short, depth = _split(part, give_name)
        if depth == DEEPEST:
            short, depth = give_name(short), 0
        depths.append(depth + 1)
        return short

    changed = walk.rebuild(expr, change)
    return changed, max(depths)
