"""Exact runs: runs of a kernel that torch's autograd differentiates, and whose accesses and results can be observed.

The kernel's tree calls functions by the names of `ExactInterpreter.names`: typed conversions and operations, and
notifications of where the run is.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import numpy as np
import torch

from .._language import Language
from ._containers import Ranges
from ._decompositions import evaluate_decomposition
from ._definitions import Definition
from ._exact_memory import ExactArray, ExactView
from ._exact_numbers import FLOAT_BINARY, FLOAT_UNARY, RECTIFIERS, ExactArithmetic
from ._expressions import ATOMIC
from ._interpreter import Interpreter
from ._numbers import FLOATS, INTEGER_RULES, TYPES, UNARY_RULES, Defaults, bits_of
from ._observers import Recorder, Watch
from ._rewrite import rewrite
from ._values import Matrix


class _NoLanguage(Language):
    """The language of trees that call no engine: none of their names is an engine's object."""

    def __init__(self) -> None:
        self.engine: Any = None

    def name_of(self, value: Any) -> str:
        return ""

    def function_of(self, value: object) -> None:
        return None

    def is_template(self, annotation: Any) -> bool:
        return False


class ExactInterpreter(Interpreter):
    """An interpreter whose floats torch's autograd differentiates.

    Attributes:
        exact: the arithmetic.
        record: notified of each access, if it is not None.
        watch: notified of statements, results and errors, if it is not None.
    """

    # Locals of the IR end with an iteration: both branches of an `if` may assign one.
    ends_locals_with_blocks = False

    def __init__(self, exact: ExactArithmetic) -> None:
        super().__init__(_NoLanguage(), exact, lambda function, *_: function)
        self.exact = exact
        self.record: Recorder | None = None
        self.watch: Watch | None = None
        self._views: Mapping[str, ExactView] = {}
        self._held: dict[str, int] = {}
        self._turns: dict[int, int] = {}
        self._generator = random.Random(0)
        self._was_parallel = False

    def begin(self, views: Mapping[str, ExactView], seed: int, record: Recorder | None, watch: Watch | None) -> None:
        """Prepare a run on arrays. `seed` is that of random numbers."""
        self._views, self.record, self.watch = views, record, watch
        self._generator, self._was_parallel, self._held = random.Random(seed), False, {}
        if watch is not None:
            self.exact.watch = watch
            watch.on_begin(self._held)

    def place(self, owner: Any, index: Any) -> Any:
        return owner.element_at(index) if isinstance(owner, ExactView) else super().place(owner, index)

    def combine(self, operator: str, old: Any, value: Any) -> Any:
        """Return the result of an atomic operation on two numbers of one type."""
        return self._by_operator[ATOMIC[operator]](old, value)

    # Functions that trees call -------------------------------------------------------------------------------

    def names(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that trees call, by name."""
        made: dict[str, Callable[..., Any]] = {
            "at": self._begin_statement,
            "task": self._begin_task,
            "enter": self._enter,
            "turn": self._begin_turn,
            "begin_while": self._begin_while,
            "goes_on": self._begin_while_turn,
            "product": self._join_ranges,
            "element": lambda owner, index: owner.element_at(index),
            "svd": _build_decomposition("svd"),
            "polar_decompose": _build_decomposition("polar_decompose"),
            "make_spd": _build_decomposition("make_spd"),
            "sym_eig": _build_decomposition("sym_eig"),
            "sym_eig_descending": _build_decomposition("sym_eig", is_descending=True),
        }
        made |= {f"cast_{kind}": self.casts[kind] for kind in TYPES}
        made |= {f"number_{kind}": self.exact.plain_casts[kind] for kind in TYPES}
        made |= {f"bits_{kind}": self._build_bit_cast(kind) for kind in TYPES}
        made |= {f"draw_{kind}": self._build_draw(kind) for kind in TYPES}
        made |= {f"atomic_{name}": self._build_atomic(name) for name in ATOMIC}
        made |= {name: self.operations.unary(name) for name in {*UNARY_RULES, *FLOAT_UNARY} if name.isidentifier()}
        made |= {name: self.operations.binary(name) for name in {*INTEGER_RULES, *FLOAT_BINARY} if name.isidentifier()}
        made |= {f"{name}_{k}_and_0": self.exact.rectify(name, k) for name in RECTIFIERS for k in sorted(FLOATS)}
        made["shift_right_filling_zeros"] = self.operations.binary(">>>")
        return {f"__{name}__": function for name, function in made.items()}

    def _begin_statement(self, operations: int, line: int) -> None:
        """Note the line of the next statement, and notify the watch of the line and the number of operations."""
        self.exact.line = line
        if self.watch is not None:
            self.watch.on_statement(operations, line)

    def _begin_task(self, is_parallel: bool) -> None:
        """Begin a top-level statement. Before and after a parallel loop, forget ties of atomic maxima and minima."""
        if is_parallel or self._was_parallel:
            for view in self._views.values():
                view.forget_ties()
        self._was_parallel = is_parallel

    def _enter(self, task: int, *iteration: Any) -> None:
        """Notify the recorder that an iteration starts: the number of its top-level loop, and its loop variables."""
        if self.record is not None:
            self.record.enter(task, tuple([int(one) for one in iteration]))

    def _begin_turn(self, names: str, *values: Any) -> None:
        """Note the values of a loop's variables, whose names are separated by spaces, for the watch."""
        self._held.update(zip(names.split(), map(int, values), strict=True))

    def _begin_while(self, line: int) -> None:
        """Reset the count of iterations of the `while` loop on this line."""
        self._turns[line] = 0

    def _begin_while_turn(self, line: int) -> bool:
        """Notify the watch that another iteration of a `while` loop begins, and return True."""
        if self.watch is not None:
            self.watch.on_while_turn(line, self._turns[line])
            self._turns[line] += 1
        return True

    def _join_ranges(self, *bounds: Any) -> Ranges:
        """Return one loop range over several dims, given (start, end) of each in turn; the last varies fastest."""
        ends = iter(bounds)
        return Ranges(list(zip(ends, ends, strict=True)), (), self.operations)

    def _build_bit_cast(self, kind: str) -> Callable[[Any], Any]:
        return lambda value: self.exact.reinterpret(self.let(value), kind)

    def _build_draw(self, kind: str) -> Callable[[], Any]:
        # The generator is looked up at each call, since each run begins with a new one.
        if kind in FLOATS:
            return lambda: self.exact.plain_casts[kind](self._generator.random())
        return lambda: np.array(self._generator.getrandbits(bits_of(kind)), np.uint64).astype(TYPES[kind])[()]

    def _build_atomic(self, name: str) -> Callable[..., Any]:
        return lambda value, owner, index: owner.change(name, index, value)


def _build_decomposition(function: str, *, is_descending: bool = False) -> Callable[..., tuple[Any, ...]]:
    """Build a function from a matrix's entries to the entries of its factors.

    Of a diagonal factor, return only the diagonal.
    """

    def decompose(*entries: Any) -> tuple[Any, ...]:
        side = round(len(entries) ** 0.5)
        matrix = torch.stack([one.tensor for one in entries]).reshape(side, side)
        parts = evaluate_decomposition(function, matrix, is_descending=is_descending)
        return tuple([type(entries[0])(one) for part in parts for one in part.reshape(-1).unbind()])

    return decompose


def _do_nothing() -> None:
    """Do nothing: stands for the Python function of a tree that was not parsed from one."""


_find_nothing = FunctionType(_do_nothing.__code__, {})
"""A function without globals, in which no name is found."""


class ExactKernel:
    """A kernel for exact runs on tensors.

    Args:
        tree: the kernel; its parameters are the arrays and arguments.
        path: the file that its line numbers refer to.
        arrays: types and dims of its arrays, by name.
        arguments: the types and dims of its other arguments, by name.
        cells: names of its internal arrays of one number, which start at zero.
        is_faithful: whether a float is rounded to its own type after each operation; otherwise all are float64.
        is_watched: whether runs are watched: they continue after an index out of range and a division by zero.
    """

    def __init__(
        self,
        tree: ast.FunctionDef,
        path: str,
        arrays: Mapping[str, ExactArray],
        arguments: Mapping[str, tuple[str, tuple[int, ...]]],
        cells: frozenset[str],
        *,
        is_faithful: bool,
        is_watched: bool,
    ) -> None:
        exact = ExactArithmetic(Defaults(), is_faithful=is_faithful, is_watched=is_watched)
        self._run = ExactInterpreter(exact)
        self._arrays, self._arguments, self._cells = arrays, arguments, cells
        definition, names = Definition(tree, path, _find_nothing), self._run.names()
        self._function = rewrite(definition, self._run, arrays=frozenset(arrays), names=names, is_kernel=True)

    def __call__(
        self,
        arrays: Mapping[str, torch.Tensor],
        arguments: Mapping[str, Any],
        *,
        seed: int = 0,
        record: Recorder | None = None,
        watch: Watch | None = None,
    ) -> dict[str, torch.Tensor]:
        """Run the kernel, and return its arrays as differentiable functions of the given arrays and arguments.

        Args:
            arrays: by name, (index dims, element dims). They are not changed.
            arguments: by name, numbers; for a vector or matrix, a tensor.
            seed: of random numbers, which differ from an engine's.
            record: notified of every access to an element.
            watch: notified of statements, results and errors, if the kernel is watched.

        Raises:
            KernelError: an index is outside its array, or an integer is divided by zero.
        """
        run = self._run
        given = {**arrays, **{name: torch.zeros((), dtype=torch.float64) for name in self._cells}}
        views = {name: ExactView(array, given[name], run) for name, array in self._arrays.items()}
        numbers = {name: self._argument(*facts, arguments[name]) for name, facts in self._arguments.items()}
        run.begin(views, seed, record, watch)
        with np.errstate(all="ignore"):
            self._function(**views, **numbers)
        return {name: view.read_back() for name, view in views.items() if name not in self._cells}

    def _argument(self, kind: str, dims: tuple[int, ...], value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            value = torch.as_tensor(value, dtype=torch.float64 if kind in FLOATS else None)
        value = value.cpu().reshape(-1)
        if kind in FLOATS:
            numbers = [self._run.exact.track(kind, one) for one in value.unbind()]
        else:
            numbers = [self._run.casts[kind](one) for one in value.tolist()]
        return Matrix(dims, numbers, self._run.operations) if dims else numbers[0]
