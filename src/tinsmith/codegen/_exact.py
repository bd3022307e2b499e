"""Exact runs of the IR: a kernel as a tree for the Python engine, whose floats torch's autograd follows.

    parallel for i in 0 .. x.shape[0]:  @76         __task__(True)
      atomic add y[0], x[i] * 2.0  @77              __at__(1, 76)
                                                    for i in range(0, x.shape[0]):
                                             ->         __enter__(0, i)
                                                        __turn__('i', i)
                                                        __at__(3, 77)
                                                        __atomic_add__(x[i] * __number_f32__(2.0), y, 0)

Floats are torch's 0-d tensors in float64, whatever their type in the kernel, so derivatives are those of torch's
autograd, exact to rounding. Nothing of the passes that generate gradients is used here: exact runs are the reference
that they are compared with. Parallel loops run in order: no iteration may rely on another, so any order will do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..engines import COMPILING
from ..engines.python import EXACT_OPERATIONS, ExactKernel, NoRule
from ..ir import Operator, Type, nodes, types, walk
from ._kernel import Writer
from ._syntax import SIGNS, assign, define, operation, variable


def build_exact_kernel(kernel: nodes.Kernel, *, is_faithful: bool = False, is_watched: bool = False) -> ExactKernel:
    """Build a function that runs a kernel on tensors number by number, so that torch's autograd differentiates it.

    Of `select`, "and" and "or" only the side that is chosen is computed: expressions have no side effects, so nobody
    can tell, and the other side's derivative is 0 even where it is infinite or not a number.

    Args:
        kernel: the kernel.
        is_faithful: whether every float is rounded to its type in the kernel, as the compiled kernel does.
        is_watched: whether runs have a `watch`: they go on after a wrong index and a division by zero.

    Raises:
        NoRule: the kernel has an operation that exact runs do not know.

    Example:
        >>> x = nodes.Load("x", (), (), "f32")
        >>> arrays = {"x": nodes.Array("x", "f32", 0), "y": nodes.Array("y", "f32", 0)}
        >>> body = (nodes.Store("y", (), (), nodes.Binary("*", x, x, "f32")),)
        >>> square = build_exact_kernel(nodes.Kernel("square", "", arrays, {}, {}, body))
        >>> square({"x": torch.tensor(3.0), "y": torch.tensor(0.0)}, {})["y"]
        tensor(9., dtype=torch.float64)
    """
    tree = _ExactWriter(kernel).write()
    options = {"is_faithful": is_faithful, "is_watched": is_watched}
    return ExactKernel(tree, kernel.path, kernel.arrays, kernel.arguments, frozenset(kernel.cells), **options)


class _ExactWriter(Writer):
    """Writes a kernel that calls the functions of exact runs by name, and reports each iteration and statement."""

    def __init__(self, kernel: nodes.Kernel) -> None:
        self._names = [*kernel.arrays, *kernel.arguments]
        self._line = 0
        # The kernel's own memory is given like other arrays, so that accesses to it are observed too.
        super().__init__(replace(kernel, cells=()), types.Defaults())

    def write(self) -> ast.FunctionDef:
        """Return the whole kernel."""
        with COMPILING:
            body = [one for number, task in enumerate(self.kernel.body) for one in self._task(number, task)]
        return define(self.kernel.name, [ast.arg(name) for name in self._names], body or [ast.Pass()])

    def _task(self, number: int, one: nodes.Stmt) -> list[ast.stmt]:
        """Write a statement of the top level."""
        is_parallel = walk.is_parallel(one)
        first = [_say("task", ast.Constant(is_parallel))]
        if not isinstance(one, nodes.For):
            return [*first, _say("enter", ast.Constant(number)), *self.body([one])]
        at, loop = self.body([one])
        assert isinstance(loop, ast.For)
        values = [variable(name) for name in one.names]
        loop.body.insert(0, _say("enter", ast.Constant(number), *values))
        return [*first, at, loop]

    def body(self, statements: Sequence[nodes.Stmt], *, is_top: bool = False) -> list[ast.stmt]:
        return [part for one in statements for part in self._with_line(one)] or [ast.Pass()]

    def _with_line(self, one: nodes.Stmt) -> Iterable[ast.stmt]:
        self._line = one.line
        written = [_say("at", ast.Constant(_cost(one)), ast.Constant(one.line)), *self.statements(one)]
        for part in written:
            # A statement that stands for no line of the source has line 0.
            part.lineno = part.end_lineno = max(one.line, 1)
        return written

    def statements(self, one: nodes.Stmt) -> list[ast.stmt]:
        match one:
            case nodes.Assign():
                value = self.cast(one.value, self.kernel.locals[one.name])
                return [assign(one.name, value)]
            case nodes.Draw():
                return [assign(one.name, _call(f"draw_{one.type}"))]
            case nodes.Decompose():
                return [self._decompose(one)]
            case nodes.Store():
                return [assign(self.element(one), self.expression(one.value))]
            case nodes.Atomic():
                return [self._atomic(one)]
            case nodes.While():
                line = ast.Constant(one.line)
                return [_say("begin_while", line), ast.While(_call("goes_on", line), self.body(one.body), [])]
            case nodes.Barrier() | nodes.Vote() | nodes.LocalArray() | nodes.Loop():
                raise AssertionError(f"the Python engine cannot run {one}; an earlier pass should have removed it")
        return [self.statement(one)]

    def _decompose(self, one: nodes.Decompose) -> ast.stmt:
        name = one.function + "_descending" * (one.is_descending and one.function == "sym_eig")
        targets: list[ast.expr] = [ast.Name(result, ast.Store()) for result in one.results]
        entries = [self.cast(entry, one.type) for entry in one.matrix]
        return assign(ast.Tuple(targets, ast.Store()), _call(name, *entries))

    def _atomic(self, one: nodes.Atomic) -> ast.stmt:
        owner: ast.expr = variable(one.array)
        place: ast.expr = self.index(one)
        if one.entry:
            owner = _call("element", owner, place)
            place = self.numbers(one.entry)
        called = _call(f"atomic_{one.operator}", self.expression(one.value), owner, place)
        return ast.Expr(called) if one.result is None else assign(one.result, called)

    def loop(self, one: nodes.For) -> ast.For:
        names: list[ast.expr] = [ast.Name(name, ast.Store()) for name in one.names]
        values = [variable(name) for name in one.names]
        body = [_say("turn", ast.Constant(" ".join(one.names)), *values), *self.body(one.body)]
        bounds = [*map(self.expression, walk.expressions(one))]
        if len(names) == 1:
            return ast.For(names[0], ast.Call(variable("range"), bounds, []), body, [])
        return ast.For(ast.Tuple(names, ast.Store()), _call("product", *bounds), body, [])

    # Expressions ------------------------------------------------------------------------------

    def expression(self, one: nodes.Expr) -> ast.expr:
        match one:
            case nodes.Cast(value, kind, keeps_bits):
                return _call(f"{'bits' if keeps_bits else 'cast'}_{kind}", self.operand(value))
            case nodes.Select(condition, then, otherwise, kind):
                chosen = ast.IfExp(self.expression(condition), self.convert(then, kind), self.convert(otherwise, kind))
                # Both sides were converted, so the Python engine need not evaluate one to learn its type.
                vars(chosen)["has_one_type"] = True
                return chosen
        return super().expression(one)

    def convert(self, one: nodes.Expr, kind: Type) -> ast.expr:
        """Write an expression, converted to a type."""
        return self.operand(one) if one.type == kind else _call(f"cast_{kind}", self.operand(one))

    def cast(self, value: nodes.Expr, kind: Type) -> ast.expr:
        return self.convert(value, kind)

    def unary(self, one: nodes.Unary) -> ast.expr:
        keeps_type = one.operator in (Operator.NOT, Operator.FFS)
        return self.function(one, self.operand(one.value) if keeps_type else self.convert(one.value, one.type))

    def function(self, one: nodes.Unary, value: ast.expr) -> ast.expr:
        self._require_rule(one)
        sign = SIGNS.get(one.operator)
        return ast.UnaryOp(sign, value) if isinstance(sign, ast.unaryop) else _call(one.operator, value)

    def _require_rule(self, one: nodes.Unary | nodes.Binary) -> None:
        if one.operator not in EXACT_OPERATIONS:
            raise NoRule(one.operator, one.type, self._line)

    def binary(self, one: nodes.Binary) -> ast.expr:
        name = one.operator
        # Python's own operators evaluate the right side only if it is needed.
        if name in ("and", "or"):
            sides = [self.expression(one.left), self.expression(one.right)]
            return ast.BoolOp(ast.And() if name == "and" else ast.Or(), sides)
        # `max(x, 0.0)` is a rectifier: at a tie its slope is 0, as that of `torch.relu`, and not one half.
        if name in ("min", "max") and types.is_float(one.type):
            for zero, other in ((one.right, one.left), (one.left, one.right)):
                if isinstance(zero, nodes.Const) and zero.value == 0:
                    return _call(f"{name}_{one.type}_and_0", self.convert(other, one.type))
        self._require_rule(one)
        left, right = (self._operand_of(one, side) for side in (one.left, one.right))
        if isinstance(SIGNS.get(name), ast.operator | ast.cmpop):
            return operation(name, left, right)
        return _call("shift_right_filling_zeros" if name == ">>>" else name, left, right)

    def _operand_of(self, one: nodes.Binary, side: nodes.Expr) -> ast.expr:
        """Write an operand. Integers that are divided become floats of the result's type."""
        is_widened = one.operator in (Operator.DIV, Operator.ATAN2) and not types.is_float(side.type)
        return self.convert(side, one.type) if is_widened else self.operand(side)

    def constant(self, one: nodes.Const, *, is_typed: bool) -> ast.expr:
        return _call(f"number_{one.type}", ast.Constant(one.value)) if is_typed else ast.Constant(one.value)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    """Return a call of a function of exact runs."""
    return ast.Call(variable(f"__{name}__"), list(arguments), [])


def _say(name: str, *arguments: ast.expr) -> ast.stmt:
    return ast.Expr(_call(name, *arguments))


def _cost(stmt: nodes.Stmt) -> int:
    """Count the operations of a statement, without those of the statements inside it."""
    return 1 + sum(not isinstance(one, nodes.Leaf) for one in walk.parts(*walk.expressions(stmt)))
