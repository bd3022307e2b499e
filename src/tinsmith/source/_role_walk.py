"""Going through a kernel, and the engine functions that it calls, for what is done with each array."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ._affine import EnclosingLoop
from ._calls import Callee, Followed, callee_of
from ._field_uses import self_addition
from ._indices import IndexReader
from ._loops import constant_extent, is_setting, iterated, tasks
from ._nodes import called, root
from ._read import Source
from ._references import reference_kinds
from ._roles import Access, Kind, Roles
from ._walk import walk


def roles_of(
    source: Source,
    arrays: Iterable[str],
    engine: Followed,
    owner: Any = None,
    ranks: Mapping[str, int | None] = MappingProxyType({}),
) -> dict[str, Roles]:
    """How a kernel uses each of its `arrays`, engine functions included.

    Args:
        source: the kernel.
        arrays: names of its array parameters.
        engine: whose functions are followed.
        owner: the object of a data-oriented kernel, to find its methods.
        ranks: how many axes arrays have, where that is known.
    """
    names = tuple(arrays)
    changing = changed_arrays(source.tree, names)
    roles = {name: Roles(changing=changing, rank=ranks.get(name)) for name in names}
    walker = _Walker(source, roles, engine, owner)
    walker.run()
    for role in roles.values():
        if role.repeats and role.of("write", "add"):
            role.escapes = role.escapes or role.repeats  # what the calls further inside overwrite is not known
    return walker.roles


def changed_arrays(tree: ast.FunctionDef, arrays: Iterable[str]) -> frozenset[str]:
    """Arrays that a function may write: stored into, given to an atomic, or handed to another function."""
    known, found = set(arrays), set()
    for node in walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found |= {root(node)}
        elif isinstance(node, ast.Call) and called(node) not in ("grouped", "static", "cast", "int"):
            found |= {root(argument) for argument in node.args if "shape" not in ast.unparse(argument)}
    return frozenset(found & known)


class _Walker(ast.NodeVisitor):
    """Visits statements in program order, the right side of an assignment before its left."""

    def __init__(
        self, source: Source, roles: dict[str, Roles], engine: Followed, owner: Any, caller: _Walker | None = None
    ) -> None:
        self.source = source
        self.roles = roles
        self.engine = engine
        self.owner = owner
        self.depth: int = caller.depth + 1 if caller else 0
        self._open: tuple[Any, ...] = (*(caller._open if caller else ()), source.identity)
        self.loops: tuple[EnclosingLoop, ...] = caller.loops if caller else ()
        self.order: int = caller.order if caller else 0
        self.names = IndexReader(source.tree, {})
        self._tasks = {} if caller else dict(tasks(source.tree.body))
        self._is_guarded: bool = caller._is_guarded if caller else False

    def run(self) -> None:
        for statement in self.source.tree.body:
            self.visit(statement)

    # Statements ---------------------------------------------------------------------------
    def visit_For(self, node: ast.For) -> None:
        self.order += 1
        self._iterator(node.iter)
        outer = self.loops
        self.loops = (*outer, self._loop(node))
        for statement in node.body + node.orelse:
            self.visit(statement)
        self.loops = outer
        self.names.leave(node)

    def visit_While(self, node: ast.While) -> None:
        self.order += 1
        outer = self.loops
        self.loops = (*outer, EnclosingLoop(self.names.key(node), self.names.enter(node)))
        self._nested(node)
        self.loops = outer

    def visit_If(self, node: ast.If) -> None:
        self.order += 1
        self._nested(node)

    def _nested(self, node: ast.stmt) -> None:
        outer, self._is_guarded = self._is_guarded, True
        self.generic_visit(node)
        self._is_guarded = outer

    def _loop(self, node: ast.For) -> EnclosingLoop:
        counted = iterated(node)
        is_range = isinstance(counted, ast.Call) and called(counted) == "range" and len(counted.args) < 3
        is_outermost, is_serialized, extent = node in self._tasks, self._tasks.get(node, False), constant_extent(node)
        return EnclosingLoop(
            self.names.key(node),
            self.names.enter(node),
            is_range,
            is_outermost and not is_serialized,
            extent is not None and extent[0] == extent[1],
            extent,
            is_outermost and is_serialized,
        )

    def visit_Assign(self, node: ast.Assign) -> None:
        self.order += 1
        addend = self._self_addition(node)
        self.visit(addend if addend is not None else node.value)
        for target in node.targets:
            self._target(target, "add" if addend is not None else "write", is_plain=True)

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
        is_atomic = isinstance(node.value, ast.Call) and self._atomic(node.value, is_fetched=False)
        if not (is_atomic or is_setting(node)):
            self.visit(node.value)

    # Expressions --------------------------------------------------------------------------
    def visit_Call(self, node: ast.Call) -> None:
        if not self._atomic(node, is_fetched=True) and not self._engine_function(node):
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
        inner = node.args[0] if isinstance(node, ast.Call) and called(node) == "grouped" and node.args else node
        if not (isinstance(inner, ast.Name) and inner.id in self.roles):
            self.visit(node)

    def _target(self, node: ast.expr, kind: Kind, *, is_plain: bool = False) -> None:
        if isinstance(node, ast.Tuple | ast.List):
            for part in node.elts:
                self._target(part, kind, is_plain=is_plain)
            return
        element = self._element(node)
        if element is not None:
            self._note(element, kind, is_plain=is_plain)
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

    def _note(self, element: ast.Subscript, kind: Kind, is_fetched: bool = False, *, is_plain: bool = False) -> None:
        assert isinstance(element.value, ast.Name)
        roles = self.roles[element.value.id]
        index, place = self.names.index(element.slice), self.source.place(element)
        if len(index) == roles.rank:  # an index for each axis: none of them is a vector
            index = tuple(replace(part, wide=frozenset()) for part in index)
        access = Access(kind, index, place, self.order, self.loops, is_fetched, self._is_guarded, is_plain, element)
        roles.accesses.append(access)

    def _self_addition(self, node: ast.Assign) -> ast.expr | None:
        """The `e` of `x[i] = x[i] + e` or `x[i] = e + x[i]`, which is an addition to x."""
        is_element = len(node.targets) == 1 and self._element(node.targets[0]) is node.targets[0]
        return self_addition(node) if is_element else None

    def _atomic(self, node: ast.Call, *, is_fetched: bool) -> bool:
        name = called(node)
        if not name.startswith("atomic_") or not node.args:
            return False
        element = self._element(node.args[0])
        if element is None:
            return False
        kind: Kind = "add" if name in ("atomic_add", "atomic_sub") else "write"
        if kind == "write":
            self._note(element, "read", is_fetched)
        self._note(element, kind, is_fetched)
        self._indices(node.args[0])
        for argument in node.args[1:]:
            self.visit(argument)
        return True

    def _engine_function(self, node: ast.Call) -> bool:
        """Follow a call that is handed an array, or an element by reference; False where there is nothing to follow."""
        callee = callee_of(self.source, node, self.engine, self.owner)
        if callee is None or self.depth > 16 or any(isinstance(argument, ast.Starred) for argument in node.args):
            return False
        whole = {n: a.id for n, a in callee.arguments.items() if isinstance(a, ast.Name) and a.id in self.roles}
        is_repeated = callee.source.identity in self._open  # a recursion that ends while the kernel is compiled
        for name, argument in callee.arguments.items():
            if name not in whole:
                self._argument(callee.source, name, argument)
        if is_repeated:
            for array in whole.values():
                self.roles[array].repeats = self.source.place(node)
        elif whole:
            self._enter(callee, whole)
        return True

    def _argument(self, inner: Source, parameter: str, argument: ast.expr) -> None:
        """An argument of a followed call; a template parameter is the very element that it is given."""
        element = self._element(argument)
        kinds = reference_kinds(inner, parameter, self.engine) if element is not None else ()
        if element is None or not kinds:
            self.visit(argument)
            return
        for kind in kinds:
            self._note(element, kind)
        self._indices(argument)

    def _enter(self, callee: Callee, whole: dict[str, str]) -> None:
        inner = callee.source
        walker = _Walker(
            inner, {name: self.roles[array] for name, array in whole.items()}, self.engine, self.owner, self
        )
        given = {name: self.names.read(a) for name, a in callee.arguments.items() if inner.is_constant(name)}
        walker.names = IndexReader(inner.tree, given, f"{self.names.prefix}{self.order}.")
        walker.run()
        self.order = walker.order
