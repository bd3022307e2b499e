"""Walk a kernel, and the engine functions that it calls, and note how it uses each array."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ...engines import list_children
from ...ir import EnclosingLoop
from .._calls import Callee, EngineFacts, callee_of
from .._definitions import definitions
from .._effects import Change, Kind, changes_of, indices_of, possibly_changed, shaping_name
from .._indices import IndexReader
from .._loops import constant_extent, get_iterable, is_setting, tasks
from .._nodes import resolve_callee, root
from .._read import Source
from ._references import reference_kinds
from ._roles import Access, Roles


def roles_of(
    source: Source,
    arrays: Iterable[str],
    engine: EngineFacts | None,
    ranks: Mapping[str, int | None] = MappingProxyType({}),
) -> dict[str, Roles]:
    """Find how a kernel uses each of its `arrays`, also in the engine functions that it calls.

    Args:
        source: the kernel.
        arrays: names of its array parameters.
        engine: the engine whose functions are followed; None follows none.
        ranks: the number of axes of each array; None if unknown.
    """
    names = tuple(arrays)
    if not names:
        return {}
    changing = possibly_changed(source.tree, names)
    roles = {name: Roles(changing=changing, rank=ranks.get(name)) for name in names}
    walker = _Walker(source, roles, engine)
    walker.run()
    for role in roles.values():
        if role.repeats and role.of("write", "add"):
            # The walk stops where a function calls itself, so the calls inside that may change other elements.
            role.escapes = role.escapes or role.repeats
    return walker.roles


def find_store_line(source: Source, roles: Roles) -> int:
    """Return the line of a function's only store to an array; that of its `def` if the only one is not its own."""
    stores = [access.node for access in roles.of("write", "add")]
    # Nodes of called functions may be in other files.
    is_own = len(stores) == 1 and any(node is stores[0] for node in source.nodes)
    return stores[0].lineno if is_own else source.tree.lineno


class _Walker(ast.NodeVisitor):
    """Visits statements in program order, the right side of an assignment before its left."""

    def __init__(
        self,
        source: Source,
        roles: dict[str, Roles],
        engine: EngineFacts | None,
        caller: _Walker | None = None,
    ) -> None:
        self.source = source
        self.roles = roles
        self.engine = engine
        self.depth: int = caller.depth + 1 if caller else 0
        self._open: tuple[Any, ...] = (*(caller._open if caller else ()), source.identity)
        self.loops: tuple[EnclosingLoop, ...] = caller.loops if caller else ()
        self.order: int = caller.order if caller else 0
        self.names = IndexReader(source.tree, {})
        self._tasks = {} if caller else dict(tasks(source.tree.body))
        self._is_guarded: bool = caller._is_guarded if caller else False
        self._is_static = False

    def generic_visit(self, node: ast.AST) -> None:
        # `ast` would also visit operators, and the contexts of names.
        for child in list_children(node):
            self.visit(child)

    def run(self) -> None:
        for statement in self.source.tree.body:
            self.visit(statement)

    # Statements ---------------------------------------------------------------------------
    def visit_For(self, node: ast.For) -> None:
        self.order += 1
        # Before the loop is entered: what it runs over is computed once.
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
        self._visit_nested(node)
        self.loops = outer

    def visit_If(self, node: ast.If) -> None:
        self.order += 1
        self._visit_nested(node)

    def _visit_nested(self, node: ast.stmt) -> None:
        outer, self._is_guarded = self._is_guarded, True
        self.generic_visit(node)
        self._is_guarded = outer

    def _loop(self, node: ast.For) -> EnclosingLoop:
        counted = get_iterable(node)
        # With a step, a range may go down.
        is_range = isinstance(counted, ast.Call) and resolve_callee(counted) == "range" and len(counted.args) < 3
        is_outermost, is_serialized = node in self._tasks, self._tasks.get(node, False)
        return EnclosingLoop(
            self.names.key(node),
            self.names.enter(node),
            is_range,
            is_outermost and not is_serialized,
            constant_extent(node),
            is_outermost and is_serialized,
        )

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assign(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._assign(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign(node)

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        self.order += 1
        changes = self._changes(node)
        # The targets of one statement share its value, which is computed before any of them is stored.
        value = changes[0].value if changes else None
        copied = self._find_copied_members(node)
        if value is not None and copied is not None:
            element = self._element(value)
            assert element is not None
            for member in copied:
                self._note(element, "read", member=member)
            self._indices(value)
        elif value is not None:
            self.visit(value)
        for change in changes:
            element = self._element(change.target)
            if element is not None:
                for kind in change.kinds:
                    self._note(element, kind, is_plain=change.is_plain, member=_member_of(change.target, element))
            elif not root(change.target):
                # `(x if ... else y)[i] = ...`: which array it is, is not known, so both escape.
                self.visit(change.target)
                continue
            self._indices(change.target)

    def visit_Expr(self, node: ast.Expr) -> None:
        self.order += 1
        is_atomic = isinstance(node.value, ast.Call) and self._atomic(node.value, is_fetched=False)
        if not (is_atomic or is_setting(node)):
            self.visit(node.value)

    # Expressions --------------------------------------------------------------------------
    def visit_Call(self, node: ast.Call) -> None:
        if resolve_callee(node) == "stop_grad" and root(node.args[0] if node.args else node) in self.roles:
            # The argument is named whole, but the call does nothing with it that a run sees.
            roles = self.roles[root(node.args[0])]
            roles.stopped = roles.stopped or self.source.place(node)
        elif not self._atomic(node, is_fetched=True) and not self._engine_function(node):
            self._visit_parts(node, is_static=_takes_constants(node))

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Visit a comprehension. The bounds of its range must be known at compilation."""
        self._visit_parts(node, is_static=resolve_callee(node.iter) in ("range", "ndrange"))

    def _visit_parts(self, node: ast.AST, *, is_static: bool) -> None:
        outer = self._is_static
        # An array's rank is known, unlike its sizes.
        self._is_static = (outer or is_static) and resolve_callee(node) != "len"
        self.generic_visit(node)
        self._is_static = outer

    def visit_Subscript(self, node: ast.Subscript) -> None:
        element = self._element(node)
        if element is None:
            self.generic_visit(node)
            return
        self._note(element, "read", member=_member_of(node, element))
        self._indices(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        element = self._element(node)
        if element is not None:
            self._note(element, "read", member=_member_of(node, element))
            self._indices(node)
            return
        if isinstance(node.value, ast.Name) and node.value.id in self.roles and node.attr in ("shape", "dtype"):
            roles = self.roles[node.value.id]
            roles.static_size = roles.static_size or (self.source.place(node) if self._is_static else "")
            return
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        # Elements, sizes and followed calls do not get here: this is an array that is used as a whole, for example
        # given another name.
        if node.id in self.roles and isinstance(node.ctx, ast.Load):
            self.roles[node.id].escapes = self.roles[node.id].escapes or self.source.place(node)

    # Helpers ------------------------------------------------------------------------------
    def _iterator(self, node: ast.expr) -> None:
        """Visit what a loop runs over, except an array: `for i in x` and `ti.grouped(x)` use its shape alone."""
        if shaping_name(node) not in self.roles:
            self.visit(node)

    def _element(self, node: ast.AST) -> ast.Subscript | None:
        """Return the subscript of an array in `x[i]`, `x[i].y` or `x[i][0]`; None for other expressions."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in self.roles:
                return node
            node = node.value
        return None

    def _find_copied_members(self, node: ast.stmt) -> list[str] | None:
        """Return the members that a body uses of the copy `p = x[i]`; None if it uses more of it, or is no copy."""
        match node:
            case ast.Assign([ast.Name(name)], ast.Subscript() as value) if self._element(value) is value:
                source = self.source
                if definitions(source.tree).single.get(name) is not value or name in source.names_changed:
                    return None
                used = [source.attributes_taken.get(one, "") for one in source.names_read.get(name, ())]
                return list(dict.fromkeys(used)) if all(used) else None
        return None

    def _indices(self, node: ast.AST) -> None:
        """Visit the indices of a location, which may read arrays too."""
        for index in indices_of(node):
            self.visit(index)

    def _note(
        self,
        element: ast.Subscript,
        kind: Kind,
        is_fetched: bool = False,
        *,
        is_used: bool = False,
        is_plain: bool = False,
        member: str = "",
    ) -> None:
        assert isinstance(element.value, ast.Name)
        roles = self.roles[element.value.id]
        index, place = self.names.index(element.slice), self.source.place(element)
        if len(index) == roles.rank:
            # An index for each axis, so none of them is a vector.
            index = tuple(replace(part, wide=frozenset()) for part in index)
        roles.accesses.append(
            Access(
                kind,
                index,
                place,
                self.order,
                self.loops,
                is_fetched,
                is_used,
                self._is_guarded,
                is_plain,
                member,
                element,
            )
        )

    def _changes(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[Change]:
        """Return the changes by a statement. `x[i].y = x[i].y + v`, to one number of a vector, counts as a write."""
        changes = changes_of(node)
        if isinstance(node, ast.Assign) and any(one.kind == "add" for one in changes):
            return [
                one if self._element(one.target) is one.target else replace(one, kind="write", value=node.value)
                for one in changes
            ]
        return changes

    def _atomic(self, node: ast.Call, *, is_fetched: bool) -> bool:
        """Note the uses by an atomic on an element, or by `fill`; return False for other calls."""
        for change in changes_of(node):
            element = self._element(change.target)
            if element is None:
                return False
            for kind in change.kinds:
                is_used = is_fetched and node not in self.source.idle_calls
                self._note(element, kind, is_fetched, is_used=is_used, member=_member_of(change.target, element))
            self._indices(change.target)
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                if argument is not change.target:
                    self.visit(argument)
            return True
        return False

    def _engine_function(self, node: ast.Call) -> bool:
        """Follow a call that gets an array, or an element by reference. Return False if it cannot be followed."""
        callee = None if self.engine is None else callee_of(self.source, node, self.engine)
        # Arrays that are passed to calls which are not followed escape (`visit_Name`).
        if callee is None or self.depth > 16 or any(isinstance(argument, ast.Starred) for argument in node.args):
            return False
        whole = {n: a.id for n, a in callee.arguments.items() if isinstance(a, ast.Name) and a.id in self.roles}
        # A recursion, which ends while the kernel is compiled.
        is_repeated = callee.source.identity in self._open
        for name, argument in callee.arguments.items():
            if name not in whole:
                self._argument(callee, name, argument)
        if is_repeated:
            for array in whole.values():
                self.roles[array].repeats = self.source.place(node)
        elif whole:
            self._enter(callee, whole)
        return True

    def _argument(self, inner: Callee, parameter: str, argument: ast.expr) -> None:
        """Note the uses of an argument of a followed call. A template parameter gets an element by reference."""
        element = self._element(argument)
        kinds = reference_kinds(inner, parameter, self.engine) if element is not None and self.engine else ()
        if element is None or not kinds:
            self.visit(argument)
            return
        for kind in kinds:
            self._note(element, kind, member=_member_of(argument, element))
        self._indices(argument)

    def _enter(self, callee: Callee, whole: dict[str, str]) -> None:
        """Walk a called function. `whole` are the arrays that are passed to it, by its parameters."""
        inner = callee.source
        roles = {name: self.roles[array] for name, array in whole.items()}
        walker = _Walker(inner, roles, self.engine, self)
        # A parameter that the function assigns does not stand for its argument everywhere.
        given = {name: self.names.read(a) for name, a in callee.arguments.items() if inner.is_constant(name)}
        # The prefix keeps the locals of two calls apart, which have different values.
        walker.names = IndexReader(inner.tree, given, f"{self.names.prefix}{self.order}.")
        walker.run()
        # What follows the call comes after all accesses in it.
        self.order = walker.order


def _member_of(node: ast.AST, element: ast.Subscript) -> str:
    """Return the attributes that lead from an element to a location in it: "y.z" for `x[i].y.z[0]`."""
    names: list[str] = []
    while node is not element and isinstance(node, ast.Attribute | ast.Subscript):
        # What follows an index of a vector is no member.
        names = [*names, node.attr] if isinstance(node, ast.Attribute) else []
        node = node.value
    return ".".join(reversed(names))


def _takes_constants(call: ast.Call) -> bool:
    """Return True if a call's arguments must be known at compilation: of `static`, or `Vector.zero(dt, n)`."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_of_matrices = (of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")) in ("Vector", "Matrix")
    name = resolve_callee(call)
    return name in ("static", "static_assert") or (is_of_matrices and name in ("zero", "one", "unit", "identity"))
