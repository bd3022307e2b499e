"""Find the arrays whose values the reverse pass of a kernel reads, and which must be saved for it.

The adjoint of `y[i] = a[i] * x[i]` reads `a` for x's gradient and `x` for a's; that of `y[i] = 2 * x[i]` reads nothing.
The analysis visits each expression in one of two modes: the *value* of the expression is needed, or only its *slope*.
It is conservative: what it does not understand is needed.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...engines import list_children, walk
from .._calls import EngineFacts, callee_of
from .._definitions import make_load
from .._effects import Change, changes_of, indices_of, shaping_name
from .._nodes import is_size, names_in, resolve_callee, root, sub_expressions, unwrap_call
from .._read import Source, find_called_function
from ._roles import Roles

_LINEAR_CALLS = frozenset({"cast", "float", "f16", "f32", "f64", "Vector", "Matrix", "vec2", "vec3", "vec4", "static"})
_LINEAR_METHODS = frozenset({"sum", "cast", "transpose"})


@dataclass(frozen=True)
class SavedValues:
    """What the reverse pass of a kernel reads.

    Attributes:
        values: arrays whose values it reads.
        locals: locals whose values it reads.
        returns: arrays whose atomics return values that it reads.
        active: locals that depend on an array with a gradient, whether or not the reverse pass reads them.
        reads: by the name of an array, the places of the reads whose values it needs.
        own_reads: the same without those in the functions that get the array as a whole.
    """

    values: frozenset[str]
    locals: frozenset[str]
    returns: frozenset[str]
    active: frozenset[str]
    reads: Mapping[str, frozenset[str]]
    own_reads: Mapping[str, frozenset[str]]


def find_saved_values(
    source: Source, roles: Mapping[str, Roles], active: Iterable[str], engine: EngineFacts
) -> SavedValues:
    """Find what the reverse pass of a kernel reads.

    Args:
        source: the kernel.
        roles: how it uses its arrays.
        active: arrays that have a gradient buffer in the reverse pass.
        engine: the engine whose functions are known.
    """
    walker = _Walker(source, roles, frozenset(active), engine)
    while walker.sweep(source.tree.body):
        # Each sweep adds to what is needed, until one adds nothing.
        pass
    escaped = {name for name, role in roles.items() if role.escapes}
    return SavedValues(
        values=frozenset(walker.needed_arrays | escaped),
        locals=frozenset(walker.needed_locals),
        returns=frozenset(walker.needed_returns),
        active=frozenset(walker.active_locals),
        reads={name: walker.reads_of(name) for name in roles},
        own_reads={name: frozenset(places) for name, places in walker.needed_places.items()},
    )


class _Walker:
    """Repeats a sweep over all statements until nothing more is found to be needed."""

    def __init__(self, source: Source, roles: Mapping[str, Roles], active: frozenset[str], engine: EngineFacts) -> None:
        self.source = source
        self.roles = roles
        self.active = active
        self.engine = engine
        self.needed_arrays: set[str] = set()
        self.needed_places: dict[str, set[str]] = {name: set() for name in roles}
        self.needed_whole: set[str] = set()
        self.needed_locals: set[str] = set()
        self.needed_returns: set[str] = set()
        self.active_locals: set[str] = set()
        self._bound: frozenset[str] = frozenset()

    def sweep(self, body: list[ast.stmt]) -> bool:
        """Visit all statements once. Return True if anything new is needed."""
        before = self._size()
        for statement in body:
            self._statement(statement)
        return self._size() > before

    def reads_of(self, array: str) -> frozenset[str]:
        """Return the places of the reads of an array whose values are needed."""
        reads = frozenset(access.place for access in self.roles[array].of("read"))
        return reads if array in self.needed_whole else reads & self.needed_places[array]

    def _size(self) -> int:
        # Not the places, `needed_whole` and `needed_returns`: they follow from these sets, and so are complete once a
        # sweep adds nothing to these.
        return len(self.needed_arrays) + len(self.needed_locals) + len(self.active_locals)

    # Statements ---------------------------------------------------------------------------
    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value)
            case ast.AugAssign(target=target, op=op, value=value):
                (change,) = changes_of(node)
                # `y[i] += v` does not read the old value, so a sum needs nothing that `v` does not.
                self._assign(target, ast.BinOp(make_load(target), op, value) if change.reads else value)
            case ast.For(target=target, iter=iterator, body=body):
                self._iterator(iterator)
                outer, self._bound = self._bound, self._bound | names_in(target)
                self._statements(body)
                self._bound = outer
            # The reverse pass goes the same way through conditions, so it needs their values.
            case ast.While(test=test, body=body):
                self._visit(test, value=True)
                self._statements(body)
            case ast.If(test=test, body=body, orelse=orelse):
                self._visit(test, value=True)
                self._statements(body + orelse)
            case ast.Expr(value=ast.Call(args=args) as call) if len(args) < 3 and changes_of(call):
                self._update(*changes_of(call))
            case _:
                self._all(node, value=True)

    def _statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _iterator(self, node: ast.expr) -> None:
        """Visit what a loop runs over, except an array: `for i in x` and `ti.grouped(x)` use its shape alone."""
        if not shaping_name(node):
            self._visit(unwrap_call(node, "grouped"), value=True)

    def _update(self, change: Change) -> None:
        """Visit an atomic on an element, or `x[i].fill(v)`, that stands as a statement."""
        if change.value is None:
            return
        self._assign(change.target, change.value)
        if change.reads:
            # A product or a maximum: its slope depends on the element and on the operand.
            self._visit(change.target, value=True)
            self._visit(change.value, value=True)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            is_matched = len(parts) == len(target.elts)
            for part, its_value in zip(target.elts, parts if is_matched else [value] * len(target.elts), strict=True):
                self._assign(part, its_value)
            return
        name = root(target)
        self._indices(target)
        if name in self.roles:
            # The reverse pass runs stores to arrays without an adjoint again.
            self._visit(value, value=name not in self.active)
            return
        if self._is_active(value):
            self.active_locals.add(name)
        self._visit(value, value=name in self.needed_locals)

    # Expressions --------------------------------------------------------------------------
    def _visit(self, node: ast.expr, *, value: bool) -> None:
        """Note what is needed to compute an expression (`value=True`), or only to differentiate it."""
        match node:
            case ast.Name(id=name):
                if value and name not in self.roles:
                    self._need_local(name)
            case ast.Subscript() | ast.Attribute():
                self._element(node, value=value)
            case ast.BinOp(left=left, op=op, right=right):
                self._binary(left, op, right, value=value)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                self._visit(operand, value=value)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._visit(test, value=True)
                self._visit(body, value=value)
                self._visit(orelse, value=value)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                for part in parts:
                    self._visit(part, value=value)
            # The slope of a condition is 0: its operands are needed where its value is.
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp():
                self._all(node, value=value)
            case ast.Call():
                self._call(node, value=value)
            case _:
                self._binding(node, value=value)

    def _binding(self, node: ast.expr, *, value: bool) -> None:
        """Visit an expression that assigns names: `(v := x[i])`, `[v * v for v in ...]`."""
        match node:
            case ast.NamedExpr(target=target, value=inner):
                self._assign(target, inner)
                self._visit(inner, value=value)
            case ast.ListComp(elt=part, generators=generators) | ast.GeneratorExp(elt=part, generators=generators):
                for generator in generators:
                    self._assign(generator.target, generator.iter)
                    self._all(generator, value=True)
                self._visit(part, value=value)
            case _:
                self._all(node, value=True)

    def _all(self, node: ast.AST, *, value: bool) -> None:
        for child in sub_expressions(node):
            self._visit(child, value=value)

    def _element(self, node: ast.expr, *, value: bool) -> None:
        """Visit an element, an attribute, or a part of one. Indices are needed in any case."""
        self._indices(node)
        if is_size(node):
            return
        name = root(node)
        if name in self.roles:
            if value:
                self.needed_arrays.add(name)
                self.needed_places[name].add(self.source.place(node))
        elif name and value:
            self._need_local(name)
        elif not name:
            self._all(node, value=True)

    def _need_local(self, name: str) -> None:
        # In a loop, its variable hides a local of the same name, and needs no stored values.
        if name not in self._bound:
            self.needed_locals.add(name)

    def _indices(self, node: ast.expr) -> None:
        for index in indices_of(node):
            self._visit(index, value=True)

    def _binary(self, left: ast.expr, op: ast.operator, right: ast.expr, *, value: bool) -> None:
        """Visit `left op right`. The derivative of a product by one factor is the other factor's value."""
        if isinstance(op, ast.Add | ast.Sub):
            self._visit(left, value=value)
            self._visit(right, value=value)
            return
        varies_left, varies_right = self._is_active(left), self._is_active(right)
        if isinstance(op, ast.Mult | ast.MatMult):
            self._visit(left, value=value or varies_right)
            self._visit(right, value=value or varies_left)
        # The derivatives of a / b are 1 / b by a, and -a / b**2 by b.
        elif isinstance(op, ast.Div):
            self._visit(left, value=value or varies_right)
            self._visit(right, value=value or varies_left or varies_right)
        else:
            self._visit(left, value=value or varies_left or varies_right)
            self._visit(right, value=value or varies_left or varies_right)

    def _call(self, node: ast.Call, *, value: bool) -> None:
        name, is_known = resolve_callee(node), self._is_known(node)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if is_known and name == "select" and len(arguments) == 3:
            self._visit(arguments[0], value=True)
            self._visit(arguments[1], value=value)
            self._visit(arguments[2], value=value)
            return
        is_method = isinstance(node.func, ast.Attribute) and not self._is_free(node.func.value)
        # `v.dot(w)` has `v` for an argument too.
        if isinstance(node.func, ast.Attribute) and is_method:
            arguments.append(node.func.value)
        if not is_known:
            ignored = self._find_ignored(node)
            for argument in ignored:
                self._indices(argument)
            arguments = [one for one in arguments if one not in ignored]
        varies = any(self._is_active(argument) for argument in arguments)
        if not is_known:
            # A template parameter of a user's function is the caller's variable, so the call may be an assignment to
            # it.
            value = self._references(arguments, varies) or value
        linear = name in (_LINEAR_METHODS if is_method else _LINEAR_CALLS) and (is_known or is_method)
        wanted = value or (not linear and varies)
        for argument in arguments:
            self._visit(argument, value=wanted)
        if wanted:
            self._hand_over(arguments)
            if name.startswith("atomic_"):
                # What an atomic returns is gone after the forward pass: the array holds a later value.
                self.needed_returns.update(map(root, arguments[:1]))

    def _find_ignored(self, node: ast.Call) -> list[ast.expr]:
        """Return the arguments of a user's function that its body does not use, if computing them changes nothing."""
        callee = callee_of(self.source, node, self.engine)
        if callee is None:
            return []
        unused = (one for name, one in callee.arguments.items() if name not in callee.source.used_names)
        return [one for one in unused if not any(isinstance(part, ast.Call) for part in walk(one))]

    def _references(self, arguments: list[ast.expr], varies: bool) -> bool:
        """Note that a user's function may change its arguments. Return True if the value of one of them is needed."""
        roots = {root(argument) for argument in arguments} - {""} - self.roles.keys()
        if varies:
            self.active_locals |= roots
        return bool(roots & self.needed_locals)

    def _is_known(self, node: ast.Call) -> bool:
        """Return True if a called function is the engine's own or a Python builtin, so that its name is enough."""
        function = find_called_function(self.source, node.func)
        is_builtin = function is not None and function is getattr(builtins, getattr(function, "__name__", ""), None)
        return is_builtin or (function is not None and self.engine.owns(function))

    def _is_free(self, node: ast.expr) -> bool:
        """Return True if `node` in `node.f(...)` is a module or a Python object, and not a local."""
        name = root(node)
        if not name or name in self.roles or name in self.source.assigned_names:
            return False
        return (
            name in self.source.parameters or find_called_function(self.source, ast.Name(name, ast.Load())) is not None
        )

    def _hand_over(self, arguments: list[ast.expr]) -> None:
        """Note the arrays that a call gets as a whole: it may read any of their elements."""
        for argument in arguments:
            name = root(argument)
            if name in self.roles and isinstance(argument, ast.Name):
                self.needed_arrays.add(name)
                self.needed_whole.add(name)

    def _is_active(self, node: ast.AST) -> bool:
        """Return True if an expression depends on an active array."""
        match node:
            case ast.Name(id=name):
                return name in self.active_locals or name in self.active
            # Conditions are piecewise constant.
            case ast.Compare() | ast.BoolOp():
                return False
            case ast.Subscript() | ast.Attribute():
                if is_size(node):
                    return False
                name = root(node)
                if name:
                    return name in self.active or name in self.active_locals
        return any(map(self._is_active, list_children(node)))
