"""Which arrays' values a reverse pass over the kernel reads, and so must be saved for it.

The adjoint of `y[i] = a[i] * x[i]` reads `a` for x's gradient and `x` for a's; that of
`y[i] = 2 * x[i]` reads nothing. The analysis walks expressions in one of two moods: the
*value* of the expression is needed, or only its *slope*. It errs on the side of needing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ._read import Source
from ._roles import Roles

_LINEAR_CALLS = frozenset({"cast", "float", "f16", "f32", "f64", "Vector", "Matrix", "vec2", "vec3", "vec4", "static"})
_LINEAR_METHODS = frozenset({"sum", "cast", "transpose"})


def needed_values(source: Source, roles: dict[str, Roles], active: Iterable[str]) -> frozenset[str]:
    """Names of the arrays whose values the reverse of a kernel reads.

    Args:
        source: the kernel.
        roles: how it uses its arrays.
        active: arrays that have a gradient buffer in the reverse pass.
    """
    walker = _swept(source, roles, active)
    escaped = {name for name, role in roles.items() if role.escapes}
    return frozenset(walker.needed_arrays | escaped)


def needed_locals(source: Source, roles: dict[str, Roles], active: Iterable[str]) -> frozenset[str]:
    """Names of the locals whose values the reverse of a kernel reads, and which vary with an active array."""
    walker = _swept(source, roles, active)
    return frozenset(walker.needed_locals & walker.active_locals)


def _swept(source: Source, roles: dict[str, Roles], active: Iterable[str]) -> _Walker:
    walker = _Walker(roles, frozenset(active))
    while walker.sweep(source.tree.body):
        pass  # each sweep adds to what is needed; the last one adds nothing
    return walker


class _Walker:
    """Repeats a sweep over all statements until nothing more is found to be needed."""

    def __init__(self, roles: dict[str, Roles], active: frozenset[str]) -> None:
        self.roles = roles
        self.active = active
        self.needed_arrays: set[str] = set()
        self.needed_locals: set[str] = set()
        self.active_locals: set[str] = set()

    def sweep(self, body: list[ast.stmt]) -> bool:
        """One pass; whether it found anything new."""
        before = self._size()
        for statement in body:
            self._statement(statement)
        return self._size() > before

    def _size(self) -> int:
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
                old = (
                    ast.Subscript(target.value, target.slice, ast.Load())
                    if isinstance(target, ast.Subscript)
                    else target
                )
                is_sum = isinstance(op, ast.Add | ast.Sub)
                self._assign(target, value if is_sum else ast.BinOp(old, op, value))
            case ast.For(iter=iterator, body=body):
                self._iterator(iterator)
                self._statements(body)
            case ast.While(test=test, body=body):
                self._visit(test, value=True)
                self._statements(body)
            case ast.If(test=test, body=body, orelse=orelse):
                self._visit(test, value=True)
                self._statements(body + orelse)
            case ast.Expr(value=ast.Call() as call) if (
                _called(call) in ("atomic_add", "atomic_sub") and len(call.args) == 2
            ):
                self._assign(call.args[0], call.args[1])
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._visit(child, value=True)

    def _statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _iterator(self, node: ast.expr) -> None:
        if not isinstance(node, ast.Name):
            self._visit(node, value=True)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        root = _root(target)
        self._indices(target)
        if root in self.roles:
            self._visit(value, value=root in self.needed_arrays and root not in self.active)
            return
        names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)} if not root else {root}
        if self._is_active(value):
            self.active_locals |= names
        self._visit(value, value=bool(names & self.needed_locals))

    # Expressions --------------------------------------------------------------------------
    def _visit(self, node: ast.expr, *, value: bool) -> None:
        """Note what an expression needs when its value, or else only its slope, is needed."""
        match node:
            case ast.Name(id=name):
                if value and name not in self.roles:
                    self.needed_locals.add(name)
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
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp():
                self._all(node, value=value)
            case ast.Call():
                self._call(node, value=value)
            case _:
                self._all(node, value=True)

    def _all(self, node: ast.expr, *, value: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._visit(child, value=value)

    def _element(self, node: ast.expr, *, value: bool) -> None:
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype"):
            return
        self._indices(node)
        root = _root(node)
        if root in self.roles:
            if value:
                self.needed_arrays.add(root)
        elif root and value:
            self.needed_locals.add(root)
        elif not root:
            self._all(node, value=True)

    def _indices(self, node: ast.expr) -> None:
        while isinstance(node, ast.Subscript | ast.Attribute):
            if isinstance(node, ast.Subscript):
                self._visit(node.slice, value=True)
            node = node.value

    def _binary(self, left: ast.expr, op: ast.operator, right: ast.expr, *, value: bool) -> None:
        if isinstance(op, ast.Add | ast.Sub):
            self._visit(left, value=value)
            self._visit(right, value=value)
            return
        varies_left, varies_right = self._is_active(left), self._is_active(right)
        if isinstance(op, ast.Mult | ast.MatMult):
            self._visit(left, value=value or varies_right)
            self._visit(right, value=value or varies_left)
        elif isinstance(op, ast.Div):
            self._visit(left, value=value or varies_right)
            self._visit(right, value=value or varies_left or varies_right)
        else:
            self._visit(left, value=value or varies_left or varies_right)
            self._visit(right, value=value or varies_left or varies_right)

    def _call(self, node: ast.Call, *, value: bool) -> None:
        name = _called(node)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if name == "select" and len(arguments) == 3:
            self._visit(arguments[0], value=True)
            self._visit(arguments[1], value=value)
            self._visit(arguments[2], value=value)
            return
        method = isinstance(node.func, ast.Attribute) and not _is_module_like(node.func.value)
        if method:
            assert isinstance(node.func, ast.Attribute)
            arguments.append(node.func.value)
        linear = name in (_LINEAR_METHODS if method else _LINEAR_CALLS)
        wanted = value or (not linear and any(self._is_active(argument) for argument in arguments))
        for argument in arguments:
            self._visit(argument, value=wanted)
        if wanted or name.startswith("atomic_"):
            self._hand_over(arguments, name.startswith("atomic_"))

    def _hand_over(self, arguments: list[ast.expr], is_atomic: bool) -> None:
        """Arrays that a call reads through its arguments."""
        for argument in arguments:
            root = _root(argument)
            if root in self.roles and (is_atomic or isinstance(argument, ast.Name)):
                self.needed_arrays.add(root)

    def _is_active(self, node: ast.expr) -> bool:
        """Whether an expression's value varies with an active array."""
        match node:
            case ast.Name(id=name):
                return name in self.active_locals or name in self.active
            case ast.Compare() | ast.BoolOp():
                return False
            case ast.Attribute(attr="shape"):
                return False
            case ast.Subscript() | ast.Attribute():
                root = _root(node)
                if root:
                    return root in self.active or root in self.active_locals
        return any(self._is_active(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def _root(node: ast.expr) -> str:
    """The name under `name[...]`, `name.x` and their nests; "" for other expressions."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_module_like(node: ast.expr) -> bool:
    """Whether `node.f(...)` reads as a call through a module (`ti.sin`, `ti.math.dot`) rather than a method."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("ti", "qd", "tm", "math", "_lang", "self")
