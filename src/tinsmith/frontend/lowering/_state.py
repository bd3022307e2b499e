"""The state of lowering: emitted statements, locals and their names, and scopes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from ...ir import Defaults, Type, nodes, types, walk
from .._read import Source
from ._stopped_gradients import stop_gradients
from ._values import DynamicEntry, Matrix, Scalar, Struct, is_expression, is_number

ENGINE = "_lang"
"""The name of the engine's module in rewritten trees and in printed kernels."""
RESERVED = frozenset({"range", ENGINE, "part"})
Status = Literal["", "break", "continue", "return"]


@dataclass(frozen=True)
class Early:
    """The flag that an early return sets, and the local that holds the result."""

    done: nodes.Local
    result: nodes.Local | None


@dataclass
class Frame:
    """A function whose body is being lowered.

    `scopes` map names to values, the innermost last; `fixed` are parameters that must not be assigned to.
    `loops` are the loops around the current statement: whether each is static, and how many run-time branches lie
    between it and the statement. `is_quiet` is that of the statement that called the function.
    """

    source: Source
    scopes: list[dict[str, Any]]
    fixed: frozenset[str] = frozenset()
    status: Status = ""
    result: Any = None
    loops: list[list[Any]] = field(default_factory=list)
    branches: int = 0
    is_library: bool = False
    is_quiet: bool = True
    early: Early | None = None


@dataclass
class State:
    """Everything that grows while a kernel is lowered.

    In a statement with a call that changes memory, expressions read memory after the call, where the statement uses
    them. So a selection that may evaluate only one side stays in the expression until then (`defer`).

    Attributes:
        body: the statements of the innermost block.
        types: the type of every local.
        depth: number of loops and branches around the statement; 0 is the kernel's top level.
        is_static: whether an expression is evaluated inside `ti.static`.
        is_quiet: whether no call of the present statement changes memory or locals.
        is_serial_next: whether `loop_config(serialize=True)` stood before.
        block_size_next: what `loop_config(block_dim=...)` said before, 0 without one.
        is_parallel: whether the statement stands in a parallel loop.
        parallel: the parallel loop that the statement stands in, without its body; None outside.
        block_memory: sizes of the arrays that the threads of a block share, by name.
        unnamed: those of them that no local of the source has been assigned yet.
        outer: names of the top level's locals.
        cells: those of them that a parallel loop changes.
        source_names: the source's names of what is numbered here: `i` for `i_2`.
        choices: selections that become branches where they are used.
        stopped: arrays whose gradient the innermost block stops.
    """

    defaults: Defaults
    arrays: dict[str, nodes.Array]
    taken: set[str]
    frames: list[Frame]
    types: dict[str, Type] = field(default_factory=dict)
    body: list[nodes.Stmt] = field(default_factory=list)
    loop_names: set[str] = field(default_factory=set)
    depth: int = 0
    line: int = 0
    is_static: bool = False
    is_quiet: bool = True
    is_serial_next: bool = False
    block_size_next: int = 0
    is_parallel: bool = False
    parallel: nodes.For | None = None
    block_memory: dict[str, tuple[nodes.Expr, ...]] = field(default_factory=dict)
    unnamed: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)
    cells: set[str] = field(default_factory=set)
    source_names: dict[str, str] = field(default_factory=dict)
    choices: set[nodes.Select] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    # Names ------------------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        """Return a name that is not taken: `c`, or `c_2`, `c_3`."""
        stem, number = name, 1
        while name in self.taken:
            number += 1
            name = f"{stem}_{number}"
        self.taken.add(name)
        # A tree that was printed from IR has numbered names itself: messages need those of its author.
        own = self.frame.source.source_names.get(stem, stem)
        if name != own:
            self.source_names[name] = own
        return name

    def find(self, name: str) -> tuple[bool, Any]:
        """Return whether a name has a value in this function, and the value."""
        for scope in reversed(self.frame.scopes):
            if name in scope:
                return True, scope[name]
        return False, None

    def let(self, name: str, value: Any) -> None:
        """Bind a name to a value until the end of its block."""
        self.frame.scopes[-1][name] = value

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Open a scope for a block of the source."""
        self.frame.scopes.append({})
        try:
            yield
        finally:
            self.frame.scopes.pop()

    # Statements -------------------------------------------------------------------------------

    def emit(self, statement: nodes.Stmt) -> None:
        """Emit a statement, after branches for the deferred selections in it."""
        if self.choices:
            statement = walk.with_expressions(statement, self._expand_choices)
        self.body.append(statement)

    def defer(self, choice: nodes.Select) -> nodes.Select:
        """Mark a selection that becomes a branch before the statement that uses it."""
        self.choices.add(choice)
        return choice

    def _expand_choices(self, expr: nodes.Expr) -> nodes.Expr:
        """Replace deferred selections in an expression by locals, after emitting the branches that set them."""
        if expr not in self.choices or not isinstance(expr, nodes.Select):
            return walk.rebuild(expr, self._expand_choices)
        condition = self._expand_choices(expr.condition)
        # As in `_statements._branch`: Taichi 1.7.4 cannot compile every branch whose condition is known.
        if isinstance(condition, nodes.Const):
            return self._expand_choices(expr.then if condition.value else expr.otherwise)
        # Assigned before the branch too: to the engines, a local that begins in a branch ends with it.
        local = self.local("part", expr.type)
        self.body.append(nodes.Assign(local.name, nodes.Const(types.zero(expr.type), expr.type), self.line))
        sides: list[nodes.Block] = []
        for side in (expr.then, expr.otherwise):
            with self.block() as written:
                self.emit(nodes.Assign(local.name, side, self.line))
            sides.append(tuple(written))
        self.body.append(nodes.If(condition, sides[0], sides[1], self.line))
        return local

    @contextmanager
    def block(self) -> Iterator[list[nodes.Stmt]]:
        """Open a body: statements go to the list that this yields."""
        outer, self.body = self.body, []
        outer_stopped, self.stopped = self.stopped, set()
        self.depth += 1
        try:
            yield self.body
            # Only now: `stop_grad` holds for its whole block, earlier statements too. The caller has this very list.
            self.body[:] = stop_gradients(self.body, self.stopped)
        finally:
            self.body, self.stopped = outer, outer_stopped
            self.depth -= 1

    # Locals -----------------------------------------------------------------------------------

    def local(self, name: str, kind: Type) -> nodes.Local:
        """Return a new local that has no value yet."""
        name = self.fresh(name)
        self.types[name] = kind
        if self.depth == 0:
            self.outer.add(name)
        return nodes.Local(name, kind)

    def bind(self, name: str, value: Scalar) -> nodes.Local:
        """Assign a value to a new local."""
        local = self.local(name, value.type)
        self.emit(nodes.Assign(local.name, value, self.line))
        return local

    def is_cell(self, place: Any) -> bool:
        """Return True inside a parallel loop if `place` is a local from outside of it, which its iterations share."""
        return self.is_parallel and isinstance(place, nodes.Local) and place.name in self.outer

    def bind_named(self, name: str, value: Any, scalar: Any) -> Any:
        """Assign a value to new locals: `c` for a number, `c_0` and `c_1` for a vector, `c_x` for a member."""
        if isinstance(value, Matrix):
            names = [f"{name}_{'_'.join(map(str, index))}" for index in value.indices]
            return Matrix(value.shape, tuple(self.bind(n, e) for n, e in zip(names, value.entries, strict=True)))
        if isinstance(value, Struct):
            members = {key: self.bind_named(f"{name}_{key}", member, scalar) for key, member in value.members.items()}
            return Struct(members, value.methods)
        if isinstance(value, list | tuple):
            return type(value)([self.bind_named(f"{name}_{i}", item, scalar) for i, item in enumerate(value)])
        if isinstance(value, dict):
            return {key: self.bind_named(f"{name}_{key}", item, scalar) for key, item in value.items()}
        if is_expression(value) or is_number(value):
            return self.bind(name, scalar(value))
        return value

    def share(self, value: Scalar) -> Scalar:
        """Return a value for repeated use, in a local if evaluating it early cannot change it."""
        # In `a * bump(a)` the engines read `a` after the call, so it must not be read here.
        if isinstance(value, nodes.Leaf) or not self.is_quiet:
            return value
        return self.bind("part", value)


def is_place(value: Any) -> bool:
    """Return True if a value can be assigned to."""
    if isinstance(value, Matrix):
        return all(isinstance(entry, nodes.Local | nodes.Load) for entry in value.entries)
    return isinstance(value, nodes.Local | nodes.Load | Struct | DynamicEntry)
