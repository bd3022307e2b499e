"""What the rest of the library may ask of an engine.

An engine turns a Python function into a compiled kernel and launches it on raw memory. It
says nothing about tensors, gradients' ownership or shapes: those are for `calls` to know.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, NamedTuple

import torch

from .. import engines

ArrayArgument = tuple[Any, int, int, Sequence[int], int]
"""(slot, address, bytes, shape without element dims, address of the gradient or 0)."""

ScalarArgument = tuple[str, Any, Any]
"""(setter: "float", "int", "uint" or "matrix", slot, value)."""

MOST_ELEMENTS = 2**31 - 1
"""Elements that an array may have: an index has 32 bits (Taichi 1.7.4, Quadrants 1.3.3, which end the process)."""

Launch = Callable[[Sequence[ArrayArgument], Sequence[ScalarArgument]], None]


class HeldLaunch(NamedTuple):
    """A launch whose arguments stay where they are, for a kernel that is launched many times.

    Attributes:
        put: give an array argument other memory; takes the parts of an `ArrayArgument`.
        run: launch the kernel.
        setter: what gives scalar arguments other values, by the first part of a `ScalarArgument`: a function of the
            others.
    """

    put: Callable[..., None]
    run: Callable[[], None]
    setter: Callable[[str], Callable[[Any, Any], None]]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel, as its annotation declares it.

    `dtypes` are the torch dtypes that fit (None: any). `element` holds the dims of a vector
    or matrix element, () for plain numbers. `text` is the annotation as source in which the
    engine's module is called `_lang`; a variant's arrays are annotated again, by `array_text`. A member of a
    parameter that is a struct has a `path`: the kernel's own name for the struct, and the members that lead to it.
    `open_dims` counts the dims of an element whose sizes the annotation leaves to the memory, as
    `ndarray(element_dim=1)` does: `element` is () then.
    """

    name: str
    kind: Literal["array", "scalar", "matrix", "template"]
    dtypes: tuple[torch.dtype, ...] | None = None
    ndim: int | None = None
    element: tuple[int, ...] = ()
    setter: str = ""
    boundary: str = "unsafe"
    text: str = ""
    path: tuple[str, ...] = ()
    open_dims: int = 0

    @property
    def annotation(self) -> str:
        """The annotation as a user would write it, without the module."""
        return self.text.replace("_lang.", "")

    @property
    def noun(self) -> str:
        """What a parameter that is not an array is called."""
        return "vector" if self.kind == "matrix" and len(self.element) == 1 else self.kind

    @property
    def spec_item(self) -> str:
        """How a spec lists a number, vector or matrix that a tensor is to be given for."""
        return f"{self.name}[{', '.join([f'{size}' for size in self.element])}]"

    @property
    def conversion(self) -> str:
        """The method of a tensor that gives what such a parameter takes."""
        return "tolist" if self.element else "item"

    @property
    def element_rank(self) -> int:
        """How many dims an element has, whether or not their sizes are known."""
        return len(self.element) or self.open_dims

    @property
    def entries(self) -> int:
        """How many numbers one element holds."""
        return math.prod(self.element)


@dataclass(frozen=True)
class Compiled:
    """A kernel compiled for one set of annotations: how to launch it, and where arguments go.

    `slots` maps a parameter's name to the engine's own name for its place. `runtime` is the
    engine's state that it was compiled in; once that is gone the launch must not be used. One that `is_flat` has arrays
    of numbers where its author wrote vectors or matrices.
    """

    launch: Launch
    slots: dict[str, Any]
    runtime: Any
    is_flat: bool = False


@dataclass(frozen=True)
class FieldFacts:
    """What a placed field is.

    Attributes:
        key: the same for two objects that stand for the same memory.
        shape: of the field; `offset` is its first index in each dim.
        element: dims of its vector or matrix elements, () for plain numbers.
        is_matrix: whether an element takes two indices, even where it has one column.
        dtype: of the numbers.
        has_gradient: whether its gradient field is placed.
        is_dense: whether every element is always there: no pointer, bitmasked, hash or dynamic node above it.
        address: where its memory begins if it is an ndarray, which the engine knows by its address; 0 for a field.
        layout: the dims of an ndarray from the outermost in memory to the innermost; () is their own order.
    """

    key: int
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    element: tuple[int, ...]
    is_matrix: bool
    dtype: torch.dtype
    has_gradient: bool
    is_dense: bool
    address: int = 0
    layout: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape + self.element)

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """Dims of the numbers of an ndarray, from the outermost in memory to the innermost."""
        return (tuple(self.shape[axis] for axis in self.layout) or self.shape) + self.element


@dataclass(frozen=True)
class Probe:
    """One private fact that we lean on, and whether it still holds."""

    name: str
    package: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Facts:
    """Where an engine's file leans on private names: objects by name, and attribute paths from them.

    The path's root `kernel` is a freshly decorated kernel.
    """

    roots: dict[str, Any]
    paths: tuple[str, ...]


class CompileOptions(NamedTuple):
    """Options of a compilation that do not follow from the kernel's text.

    Attributes:
        adjoint: whether the engine's own reverse of the kernel is compiled.
        stack: the depth that the gradient stack needs; 0 leaves it to the engine.
        is_careful: whether an element may be read and written under two names, which engines' optimizers do not look
            for.
        is_aliased: whether it may be changed under two names, of which an inner loop moves only one.
        is_simd: whether vectors are kept whole: machine vectors on the CPU, which count on memory that begins at a
            multiple of an element's size.
    """

    adjoint: bool = False
    stack: int = 0
    is_careful: bool = False
    is_aliased: bool = False
    is_simd: bool = False


class Checks(NamedTuple):
    """What is an error on the Python engine although no compiled engine says so.

    Attributes:
        nan: an operation that makes NaN, of operands that are not.
        unwritten: a read of an element that no kernel has written, in memory that starts uninitialized.
    """

    nan: bool = False
    unwritten: bool = False


class Engine(ABC):
    """One engine. Stateless: everything that changes lives in the engine itself."""

    name: str
    runs_source: bool = False
    """Whether Python runs the kernel's own source, so that no form for compilers is needed."""
    ends_on_nested_powers: bool = False
    """Whether a power of a power ends the process where a kernel `is_aliased` (`passes.separate_powers`)."""
    has_fast_vectors: bool = False
    """Whether vectors of float64 are wide enough to pay, on all CPUs: its compiler must know those of today."""

    @property
    def checks_unwritten(self) -> bool:
        """Whether a read of memory that no kernel has written is an error."""
        return False

    @property
    def home(self) -> Engine:
        """The engine whose kernels it runs: itself, but for one that `runs_source`."""
        return self

    # Recognising what the user hands us -------------------------------------------------
    @property
    @abstractmethod
    def lang(self) -> ModuleType:
        """The engine's module, which kernel source calls `ti` or `qd`."""

    @abstractmethod
    def is_kernel(self, candidate: object) -> bool:
        """Whether `candidate` is one of this engine's kernels, free or bound to an object."""

    @abstractmethod
    def function_of(self, kernel: Any) -> Callable[..., Any]:
        """The Python function under a kernel's decorator."""

    @abstractmethod
    def owner_of(self, kernel: Any) -> object | None:
        """The data-oriented object that a bound kernel belongs to, or None."""

    @abstractmethod
    def bind(self, kernel: Any, owner: object) -> Any:
        """A kernel of a data-oriented class, free or bound, bound to `owner`."""

    @abstractmethod
    def is_method(self, kernel: Any) -> bool:
        """Whether the kernel's first parameter is its object (`self`)."""

    @abstractmethod
    def parameters(self, kernel: Any, objects: Collection[str] | None = None) -> tuple[Parameter, ...]:
        """Return a kernel's parameters in order, without `self`. Raise KernelError for kinds that cannot be passed.

        Args:
            kernel: the kernel.
            objects: None puts the members of structs in their places. Otherwise, objects are known: these parameters,
                and those that are declared as a Python dataclass or a `qd.Tensor`, are templates.
        """

    @abstractmethod
    def describe(self, name: str, annotation: Any) -> Parameter | None:
        """What an annotation declares a parameter to be; None for a kind that we cannot pass."""

    @abstractmethod
    def structs(self, kernel: Any) -> dict[tuple[str, ...], Any]:
        """Return the engine's struct types of parameters, and of structs in them, by the names that lead there."""

    @abstractmethod
    def results(self, kernel: Any) -> tuple[Parameter, ...]:
        """What the kernel returns, as its return annotation says, without names."""

    @abstractmethod
    def inner_function(self, candidate: object) -> Callable[..., Any] | None:
        """The Python function of a `ti.func` written by a user, None for anything else."""

    @abstractmethod
    def hold_weakly(self, kernel: Any) -> None:
        """Let a decorated kernel be freed once nobody uses it: the engine would keep it as long as the process."""

    @abstractmethod
    def is_bound(self, function: object) -> bool:
        """Whether an engine function was reached through an object, which is then its first argument."""

    @abstractmethod
    def owns(self, value: object) -> bool:
        """Whether a value (module, function, dtype) is part of the engine's own package."""

    @abstractmethod
    def is_field(self, value: object) -> bool:
        """Return True for a field or an ndarray: memory that the engine reads at launch, not a constant."""

    def unwrap(self, value: Any) -> Any:
        """Return the field or ndarray inside a `qd.Tensor`; any other value is returned unchanged."""
        return value

    @abstractmethod
    def is_ndarray(self, value: object) -> bool:
        """Return True for an engine's ndarray, by itself or inside a `qd.Tensor`. It is a field to `is_field`, too."""

    @abstractmethod
    def leaf_fields(self, field: Any, name: str) -> list[tuple[str, Any]]:
        """The fields of numbers that a field consists of, by name: itself, or the members of a field of structs."""

    @abstractmethod
    def field_facts(self, field: Any, name: str) -> FieldFacts:
        """Describe a field; `name` is for messages. Raises KernelError for what a tensor cannot fill."""

    def share_memory(self, field: Any) -> torch.Tensor | None:
        """Return a tensor that shares a field's memory; None where the engine gives nobody one."""
        return None

    @abstractmethod
    def is_awaited(self, field: Any) -> bool:
        """Whether a field, or a gradient that `needs_grad=True` asked for, was declared and is not placed."""

    @abstractmethod
    def matrix_entries(self, value: object) -> tuple[float, ...] | None:
        """The numbers of a Python-scope vector or matrix, None for anything else."""

    # Running ------------------------------------------------------------------------------
    @abstractmethod
    def runtime(self) -> Any:
        """A token for the engine's present state: another object after every init or reset. None if not started.

        In a process that was forked from one in which the engine ran, it is started again first. Raises EngineError
        where it cannot be.
        """

    @abstractmethod
    def is_current(self, runtime: Any) -> bool:
        """Return True if `runtime` is the engine's present state. Starts nothing."""

    @abstractmethod
    def detach_program(self) -> Any:
        """Take the program, with all memory and compiled kernels, off the engine, and return it; None if there is none.

        Afterwards the engine is not started.
        """

    @abstractmethod
    def options(self) -> tuple[Any, ...]:
        """The options that the started engine compiles with, as they are now. Kernels depend on them and their text."""

    @property
    def default_types(self) -> tuple[str, str]:
        """Types of Python's floats and integers. Raises EngineError if the engine is not started."""
        runtime = self.runtime()
        return runtime.default_fp.to_string(), runtime.default_ip.to_string()

    @abstractmethod
    def device_type(self) -> str:
        """Where the started engine runs: "cpu" or "cuda". Raises EngineError if it is not started."""

    @abstractmethod
    def is_debugging(self) -> bool:
        """Whether the started engine runs the `assert` statements of kernels."""

    @abstractmethod
    def thread_count(self) -> int:
        """How many threads share a parallel loop out, on CPUs."""

    @abstractmethod
    def settle(self) -> None:
        """Make later first launches from other threads safe, if that can be done now."""

    @abstractmethod
    def require_ready(self, op: str) -> None:
        """Raise EngineError unless a kernel may be launched from this thread now."""

    @abstractmethod
    def compile(
        self,
        function: Callable[..., Any],
        templates: dict[str, Any],
        options: CompileOptions = CompileOptions(),  # noqa: B008  # a tuple, which nothing changes
        content: Hashable | None = None,
    ) -> Compiled:
        """Compile a function whose annotations fix everything but its template values.

        Functions of the same file name, which depends on their text (`codegen.build`), and of equal `content` share a
        compiled kernel: `content` is everything else that the function depends on. None is not shared.
        """

    @property
    @abstractmethod
    def needs_stack_depth(self) -> bool:
        """Whether a gradient stack that is too shallow kills the process, so that `ts.init` must set its depth."""

    def reverse_option(self) -> str:
        """An option of `ts.init` that the engine's reverse mode lacks as it runs now: "name=value", or ""."""
        return ""

    @abstractmethod
    def free_kernel(self, called: Any) -> Any:
        """The decorated kernel behind what a listener gets; a method without its object."""

    @abstractmethod
    def is_gradient(self, called: Any) -> bool:
        """Whether what a listener gets is the engine's gradient of a kernel, and not the kernel."""

    @abstractmethod
    def tell(self, listener: engines.Listener) -> AbstractContextManager[None]:
        """Within, this thread's calls of kernels, and reads and writes of fields, go to a listener instead."""

    @abstractmethod
    def start(self, device_type: str, **options: Any) -> None:
        """Start the engine."""

    @abstractmethod
    def facts(self) -> Facts:
        """The private names that this engine's file leans on."""
