"""The IR: a kernel as data, and the grammar of that data.

Everything is scalar: vectors and matrices were taken apart, `ti.func`s put in place of their
calls, `ti.static` computed, and Python's values of the time of lowering written in. What is left
are numbers with a type, arrays, locals, and structured control flow. Nodes are immutable: a pass makes
a new kernel.

Expressions have no side effects and may be evaluated in any order; what has one (an atomic, a
random number), or more than one result, is a statement that leaves what it gives in locals.

The types of the fields are the grammar. `_traversals` makes every traversal from them, so a new node type, or a new
field, is visited everywhere without another line of code:

| a field of type | holds |
|---|---|
| `Expr` or `Local`, or tuples of it | operands: what the node computes itself |
| `Inner` or `InnerLocal` | operands that it computes inside its body, at the end of an iteration |
| `Block` | the statements inside it |
| `Defined`, or a tuple of it | the names of locals that it gives a value |
| `Loaded` | the array that it loads an element from |
| `Changed` | the array whose element it changes |
| `tuple[CarriedLocal, ...]` | parts of the node that are made of the same kinds of fields |
| anything else | data of its own |

`None` stands for an operand, a name or an array that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, TypeVar, get_args

from ..spec import DimSizes
from ._operators import AtomicOperator, Operator, VoteOperator
from ._types import Type

Defined: TypeAlias = str
"""The name of a local that a statement gives a value."""

Inner: TypeAlias = "Expr"
"""An expression that a loop computes at the end of an iteration."""

InnerLocal: TypeAlias = "Local"
"""A local that a loop reads at the end of an iteration."""

Loaded: TypeAlias = str
"""The name of the array that a node loads an element from."""

Changed: TypeAlias = str
"""The name of the array whose element a statement changes."""

# Expressions ------------------------------------------------------------------------------------

_Node = TypeVar("_Node")


class _Hashed:
    """A value that computes its hash once: passes look expressions up many times, and a deep one takes long."""

    __slots__ = ("_hash",)


def _hash_once(cls: type[_Node]) -> type[_Node]:
    """Decorate a node class so that each instance computes its hash at the first use and stores it."""
    compute = cls.__hash__

    def get_hash(self: Any) -> int:
        try:
            return self._hash
        except AttributeError:
            # The class is frozen. The slot is not a field: a node that is made from this one begins without it.
            object.__setattr__(self, "_hash", compute(self))
            return self._hash

    cls.__hash__ = get_hash
    return cls


@dataclass(frozen=True, slots=True)
class Const:
    """A known number."""

    value: bool | int | float
    type: Type


@dataclass(frozen=True, slots=True)
class Local:
    """The current value of a local."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Argument:
    """A scalar argument of the kernel, or entry `entry` of a vector or matrix argument."""

    name: str
    type: Type
    entry: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Size:
    """`array.shape[axis]`."""

    array: str
    axis: int
    type: Type = Type.I32


@_hash_once
@dataclass(frozen=True, slots=True)
class Load(_Hashed):
    """An element of an array as it is now, or entry `entry` of a vector or matrix element."""

    array: Loaded
    index: tuple[Expr, ...]
    entry: tuple[int, ...]
    type: Type


@_hash_once
@dataclass(frozen=True, slots=True)
class Unary(_Hashed):
    """An operation on one number."""

    operator: Operator
    value: Expr
    type: Type


@_hash_once
@dataclass(frozen=True, slots=True)
class Binary(_Hashed):
    """An operation on two numbers."""

    operator: Operator
    left: Expr
    right: Expr
    type: Type


@_hash_once
@dataclass(frozen=True, slots=True)
class Select(_Hashed):
    """One of two values, both evaluated: `ti.select`."""

    condition: Expr
    then: Expr
    otherwise: Expr
    type: Type


@_hash_once
@dataclass(frozen=True, slots=True)
class Cast(_Hashed):
    """A value as another type: converted, or with the same bits."""

    value: Expr
    type: Type
    keeps_bits: bool = False


Leaf: TypeAlias = Const | Local | Argument | Size
"""What costs nothing to write twice."""
Expr: TypeAlias = Leaf | Load | Unary | Binary | Select | Cast

# Statements -------------------------------------------------------------------------------------

# Not compared: two statements that do the same are equal, whatever their numbers are.
NUMBER: Any = field(default=0, compare=False, repr=False)
"""The field that tells a statement from others of its kernel: copies keep it, and `walk.number_statements` gives it."""


class _Statement:
    """A statement. Its slots cache what `walk` finds in it, which passes ask again and again.

    `names_read` are the locals that it reads itself, without the statements inside it; the others are of both.

    Attributes:
        may_fail: whether it may end the run. Such a statement is kept though nobody reads a result of it, and has no
            derivative.
    """

    __slots__ = (
        # No fields: `replace` and the setters of `_traversals` leave them empty, and comparisons do not see them.
        "arrays_changed",
        "arrays_loaded",
        "failing",
        "has_exits",
        "names_defined",
        "names_mentioned",
        "names_read",
    )
    may_fail: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Assign(_Statement):
    """Assign a value to a local, cast to the local's type. The first assignment in a run declares it."""

    name: Defined
    value: Expr
    line: int = 0
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class Draw(_Statement):
    """Draw a random number into a local: uniform in [0, 1), or any integer of the type."""

    name: Defined
    type: Type
    line: int = 0
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class Decompose(_Statement):
    """Decompose a square matrix by the engine's own function, each entry of the parts into a local of its own.

    `matrix` are the entries row by row, of one type; `results` those of the parts, in the order and of the shapes
    that `parts_of` gives. All of them are floats of the type `type`. Eigenvalues come with the least
    first, or the greatest where the engine `is_descending`.
    """

    function: str
    matrix: tuple[Expr, ...]
    results: tuple[Defined, ...]
    type: Type
    is_descending: bool = False
    line: int = 0
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class LocalArray(_Statement):
    """Declare an array of rank 1 that each iteration has for itself, initially zero. It stands inside a loop."""

    name: str
    type: Type
    length: int
    line: int = 0
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class Store(_Statement):
    """Store a value to an element of an array, cast to the array's type.

    With `takes`, the store and the load of the element before it must be one step: the iteration takes the value with
    it, and others may want it too (`passes.exchange_values`).
    """

    array: Changed
    index: tuple[Expr, ...]
    entry: tuple[int, ...]
    value: Expr
    line: int = 0
    number: int = NUMBER
    takes: bool = False


@dataclass(frozen=True, slots=True)
class Atomic(_Statement):
    """Change an element in one step.

    The element's old value goes into the local `result`, where there is one; `value` has the array's type.
    """

    operator: AtomicOperator
    array: Changed
    index: tuple[Expr, ...]
    entry: tuple[int, ...]
    value: Expr
    result: Defined | None = None
    line: int = 0
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class If(_Statement):
    """Run one of two bodies."""

    condition: Expr
    body: Block
    orelse: Block = ()
    line: int = 0
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class For(_Statement):
    """Run a body for each combination of integers, the last name fastest.

    `bounds` are first value and end of each name; there is at least one. `is_parallel` at the top level, unless the
    loop was to be serial: then no iteration may rely on another. Names are fresh in each iteration. `block_size` is
    how many iterations of a parallel loop form a block, 0 where the kernel does not say. Where there is a
    `vector_width`, it divides the known number of iterations from 0 on, and so many of them are printed at once, in
    vectors of the engine: each has locals of its own, but for sums of all iterations. One that `may_race` was
    parallel, and runs in order since its iterations may use one element. One that `is_independent` was parallel, and
    runs on one thread since it has little to do: its iterations may still run side by side.
    """

    names: tuple[Defined, ...]
    bounds: tuple[tuple[Expr, Expr], ...]
    body: Block
    is_parallel: bool = False
    line: int = 0
    number: int = NUMBER
    block_size: int = 0
    vector_width: int = 0
    may_race: bool = False
    is_independent: bool = False


@dataclass(frozen=True, slots=True)
class While(_Statement):
    """Run a body until it breaks: `while c:` begins with `if not c: break`."""

    body: Block
    line: int = 0
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class CarriedLocal:
    """A local that an iteration of a `Loop` passes to the next.

    Attributes:
        first: its value before the loop.
        head: what an iteration calls what it is handed.
        next: what the iteration hands on.
        last: what it is called after the loop.
        cell: what holds it in between.
    """

    first: Expr
    head: Defined
    next: Inner
    last: Defined
    cell: Defined


@dataclass(frozen=True, slots=True)
class Loop(_Statement):
    """A loop in SSA form (`passes.adjoint`), over `bounds` if it has names, else until `exit`.

    Attributes:
        exit: a local that its body gives a truth; the loop ends after an iteration in which it holds.
        most: of a loop over one block of another's iterations, how many these are at most.
        has_blocks: whether it is the loop over such blocks.
    """

    names: tuple[Defined, ...]
    bounds: tuple[tuple[Expr, Expr], ...]
    body: Block
    carried: tuple[CarriedLocal, ...] = ()
    exit: InnerLocal | None = None
    is_parallel: bool = False
    line: int = 0
    number: int = NUMBER
    most: Expr | None = None
    has_blocks: bool = False


@dataclass(frozen=True, slots=True)
class Break(_Statement):
    """Leave the innermost loop."""

    line: int = 0
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class Continue(_Statement):
    """Continue with the innermost loop's next iteration."""

    line: int = 0
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class Barrier(_Statement):
    """Wait until all iterations of a block are here. `run_blocks_in_order` removes all barriers."""

    line: int = 0
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class Vote(_Statement):
    """Wait as a barrier does; the result says whether `value` is not 0 in all or any iterations, or in how many."""

    operator: VoteOperator
    value: Local
    result: Defined
    line: int = 0
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class Assert(_Statement):
    """End the run with a message unless a condition holds. A kernel has these only if the engine checks them."""

    may_fail: ClassVar[bool] = True
    condition: Expr
    message: str = ""
    line: int = 0
    number: int = NUMBER


Stmt: TypeAlias = (
    Assign
    | Draw
    | Decompose
    | LocalArray
    | Store
    | Atomic
    | If
    | For
    | While
    | Loop
    | Break
    | Continue
    | Barrier
    | Vote
    | Assert
)

Block: TypeAlias = tuple[Stmt, ...]
"""Statements that run one after the other."""

NODE_TYPES: tuple[type, ...] = (*get_args(Expr), *get_args(Stmt))
"""All types of nodes."""

# Kernels ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Array:
    """Memory of a kernel: a parameter, or a field that it names itself.

    `rank` counts the dims that an index has; `element` are those of its vectors or matrices. `label` is
    what the source calls a field ("self.x"), "" for a parameter; `offset` the first index along each axis, () for 0.
    `dims` are the sizes of its axes; () where nothing is known.
    No derivative goes through one that is not `is_differentiable`, as none does through integers. What blocks of
    iterations have for themselves `is_of_blocks`, its adjoints and tangents too. In the source, an index outside of one
    that `is_clamped` means the nearest element; the IR's indices are inside. If it has a `vector_width`, its memory
    begins at a multiple of the size of a machine vector of so many numbers, which loops over lanes load and store.
    """

    name: str
    type: Type
    rank: int
    element: tuple[int, ...] = ()
    label: str = ""
    offset: tuple[int, ...] = ()
    is_differentiable: bool = True
    is_of_blocks: bool = False
    dims: DimSizes = ()
    is_clamped: bool = False
    vector_width: int = 0

    @property
    def is_given(self) -> bool:
        """Whether a launch passes it: fields lie where their owner placed them, memory of blocks where engines do."""
        return not self.label and not self.is_of_blocks

    @property
    def sizes(self) -> DimSizes:
        """What is known of each axis; None for all of them if `dims` is empty."""
        return self.dims if len(self.dims) == self.rank else (None,) * self.rank


class _WeaklyHeld:
    """Allows weak references to objects of a class with slots, as `weakref_slot` does from Python 3.11 on."""

    __slots__ = ("__weakref__",)


# Compared by identity, so that a kernel is a key of caches (`analyses.find_accesses`): its mappings have no hash.
@dataclass(frozen=True, eq=False, slots=True)
class Kernel(_WeaklyHeld):
    """A kernel. It is equal to itself alone.

    Attributes:
        name: for people, and for what is printed.
        path: the file that `line` of a statement counts in.
        arrays: what it is given, by name, in its own order; and its cells.
        arguments: numbers that it is given, by name: (type, element dims).
        locals: types of its locals by name. A local that is first given a value inside a loop is fresh in each
            iteration.
        cells: names of those arrays that are the kernel's own, of rank 0 and zero at its start: locals of the top
            level that a parallel loop changes, where an atomic is one.
        block_memory: sizes, by name, of those arrays that are memory of blocks and zero at the kernel's start. They
            follow from sizes and arguments. Until blocks are run in order, they are the sizes for one block.
        source_names: what the source calls those locals and arrays that have a number here, because two of the source
            have one name: `i_2` is its second `i`.
    """

    name: str
    path: str
    arrays: Mapping[str, Array]
    arguments: Mapping[str, tuple[Type, tuple[int, ...]]]
    locals: Mapping[str, Type]
    body: Block
    cells: tuple[str, ...] = ()
    block_memory: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)
    source_names: Mapping[str, str] = field(default_factory=dict)

    def source_name(self, name: str) -> str:
        """Return the source's name of a local or an array."""
        return self.source_names.get(name, name)
