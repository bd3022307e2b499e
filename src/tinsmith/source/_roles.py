"""What a kernel does with each array: which lines read it, write it, add to it.

The engines do not say. The bridge needs it to know which arrays must be saved for the
backward pass, which parameter is an output in truth, and where a value is overwritten that
the gradient still needs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from ..engines import Engine
from ._read import Source, read

Kind = Literal["read", "write", "add"]


@dataclass(frozen=True)
class Access:
    """One use of an array element: what is done, the index as text, where, inside which loops."""

    kind: Kind
    index: str
    place: str
    order: int
    loops: tuple[tuple[int, frozenset[str]], ...] = ()
    value_used: bool = True


@dataclass
class Roles:
    """All uses of one array by a kernel. `escapes` names a place that we could not follow."""

    accesses: list[Access] = field(default_factory=list)
    escapes: str = ""

    def of(self, *kinds: Kind) -> list[Access]:
        return [access for access in self.accesses if access.kind in kinds]

    @property
    def is_read(self) -> bool:
        """Whether values flow from the array into the kernel, an atomic's own reading not counted."""
        return bool(self.escapes) or bool(self.of("read"))

    @property
    def is_written(self) -> bool:
        return bool(self.escapes) or bool(self.of("write", "add"))

    def overwritten(self) -> tuple[Access, Access] | None:
        """A read, and a later change of the same element that makes the value read be gone."""
        for read_access in self.of("read"):
            for change in self.of("write", "add"):
                if change.index == read_access.index and _comes_after(change, read_access):
                    return read_access, change
        return None


def _comes_after(change: Access, read_access: Access) -> bool:
    """Whether `change` may run after `read_access` on the same element."""
    if change.order >= read_access.order:
        return True
    common = [loop for loop in change.loops if loop in read_access.loops]
    words = set(change.index.replace("[", " ").replace("]", " ").replace(",", " ").replace("(", " ").split())
    return any(not (words & variables) for _, variables in common[1:])


def roles_of(source: Source, arrays: Iterable[str], engine: Engine, owner: Any = None) -> dict[str, Roles]:
    """How a kernel uses each of its `arrays`, engine functions included.

    Args:
        source: the kernel.
        arrays: names of its array parameters.
        engine: whose functions are followed.
        owner: the object of a data-oriented kernel, to find its methods.
    """
    walker = _Walker(source, {name: Roles() for name in arrays}, engine, owner)
    walker.run()
    return walker.roles


class _Walker(ast.NodeVisitor):
    """Visits statements in program order, the right side of an assignment before its left."""

    def __init__(self, source: Source, roles: dict[str, Roles], engine: Engine, owner: Any, depth: int = 0) -> None:
        self.source = source
        self.roles = roles
        self.engine = engine
        self.owner = owner
        self.depth = depth
        self.loops: tuple[tuple[int, frozenset[str]], ...] = ()
        self.order = 0

    def run(self) -> None:
        for statement in self.source.tree.body:
            self.visit(statement)

    # Statements ---------------------------------------------------------------------------
    def visit_For(self, node: ast.For) -> None:
        self._iterator(node.iter)
        outer = self.loops
        self.loops = (*outer, (node.lineno, frozenset(_names(node.target))))
        for statement in node.body + node.orelse:
            self.visit(statement)
        self.loops = outer

    def visit_While(self, node: ast.While) -> None:
        outer = self.loops
        self.loops = (*outer, (node.lineno, frozenset()))
        self.generic_visit(node)
        self.loops = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        self.order += 1
        addend = self._self_addition(node)
        self.visit(addend if addend is not None else node.value)
        for target in node.targets:
            self._target(target, "add" if addend is not None else "write")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.order += 1
        if node.value is not None:
            self.visit(node.value)
        self._target(node.target, "write")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.order += 1
        self.visit(node.value)
        is_sum = isinstance(node.op, ast.Add | ast.Sub)
        element = self._element(node.target)
        if element is not None and not is_sum:
            self._note(element, "read")
        self._target(node.target, "add" if is_sum else "write")

    def visit_Expr(self, node: ast.Expr) -> None:
        self.order += 1
        if isinstance(node.value, ast.Call) and self._atomic(node.value, value_used=False):
            return
        self.visit(node.value)

    # Expressions --------------------------------------------------------------------------
    def visit_Call(self, node: ast.Call) -> None:
        if not self._atomic(node, value_used=True) and not self._engine_function(node):
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        element = self._element(node)
        if element is None:
            self.generic_visit(node)
            return
        self._note(element, "read")
        self._indices(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id in self.roles and node.attr in ("shape", "dtype"):
            return
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.roles and isinstance(node.ctx, ast.Load):
            self.roles[node.id].escapes = self.roles[node.id].escapes or self.source.place(node)

    # Helpers ------------------------------------------------------------------------------
    def _iterator(self, node: ast.expr) -> None:
        """`for i in x` and `ti.grouped(x)` use an array for its shape alone."""
        inner = node.args[0] if isinstance(node, ast.Call) and _called(node) == "grouped" and node.args else node
        if not (isinstance(inner, ast.Name) and inner.id in self.roles):
            self.visit(node)

    def _target(self, node: ast.expr, kind: Kind) -> None:
        if isinstance(node, ast.Tuple | ast.List):
            for part in node.elts:
                self._target(part, kind)
            return
        element = self._element(node)
        if element is not None:
            self._note(element, kind)
        if isinstance(node, ast.Subscript | ast.Attribute):
            self._indices(node)

    def _element(self, node: ast.AST) -> ast.Subscript | None:
        """The subscript of an array under `x[i]`, `x[i].y` or `x[i][0]`; None for other things."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in self.roles:
                return node
            node = node.value
        return None

    def _indices(self, node: ast.AST) -> None:
        """Visit what stands inside the brackets: it may read arrays too."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            if isinstance(node, ast.Subscript):
                self.visit(node.slice)
            node = node.value

    def _note(self, element: ast.Subscript, kind: Kind, value_used: bool = True) -> None:
        assert isinstance(element.value, ast.Name)
        index, place = ast.unparse(element.slice), self.source.place(element)
        access = Access(kind, index, place, self.order, self.loops, value_used)
        self.roles[element.value.id].accesses.append(access)

    def _self_addition(self, node: ast.Assign) -> ast.expr | None:
        """The `e` of `x[i] = x[i] + e` or `x[i] = e + x[i]`, which is an addition to x."""
        if len(node.targets) != 1 or self._element(node.targets[0]) is not node.targets[0]:
            return None
        if not (isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add)):
            return None
        target = ast.unparse(node.targets[0])
        left, right = node.value.left, node.value.right
        for same, other in ((left, right), (right, left)):
            if ast.unparse(same) == target and target not in ast.unparse(other):
                return other
        return None

    def _atomic(self, node: ast.Call, *, value_used: bool) -> bool:
        name = _called(node)
        if not name.startswith("atomic_") or not node.args:
            return False
        element = self._element(node.args[0])
        if element is None:
            return False
        kind: Kind = "add" if name in ("atomic_add", "atomic_sub") else "write"
        if kind == "write":
            self._note(element, "read", value_used)
        self._note(element, kind, value_used)
        self._indices(node.args[0])
        for argument in node.args[1:]:
            self.visit(argument)
        return True

    def _engine_function(self, node: ast.Call) -> bool:
        """Follow a call that is handed a whole array; False where there is nothing to follow."""
        handed = {place: a.id for place, a in enumerate(node.args) if isinstance(a, ast.Name) and a.id in self.roles}
        if not handed or self.depth > 16:
            return False
        callee = self._resolve(node.func)
        function = self.engine.inner_function(callee)
        if function is None:
            return False
        inner = read(function)
        names = inner.parameters[1:] if self.engine.is_bound(callee) else inner.parameters
        renamed = {names[place]: self.roles[array] for place, array in handed.items() if place < len(names)}
        walker = _Walker(inner, renamed, self.engine, self.owner, self.depth + 1)
        walker.loops, walker.order = self.loops, self.order
        walker.run()
        self.order = walker.order
        for place, argument in enumerate(node.args):
            if place not in handed:
                self.visit(argument)
        return True

    def _resolve(self, node: ast.expr) -> Any:
        """The Python value of `name` or `name.attribute...`, None if it has none."""
        if isinstance(node, ast.Attribute):
            return getattr(self._resolve(node.value), node.attr, None)
        if not isinstance(node, ast.Name):
            return None
        if node.id == "self":
            return self.owner
        try:
            return self.source.lookup(node.id)
        except KeyError:
            return None


def _called(node: ast.Call) -> str:
    """The last part of the called name: `atomic_add` for `ti.atomic_add(...)`."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _names(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
