"""The abstract class `Engine`: everything that the rest of the library may ask of an engine.

An engine turns a Python function into a compiled kernel and launches it on raw memory. It knows nothing of tensors,
shapes, or who owns gradient memory: `calls` does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .. import engines

if TYPE_CHECKING:
    import torch

    from ._streams import ProgramStreams

ArrayArgument = tuple[Any, int, int, Sequence[int], int]
"""(slot, address, size in bytes, shape without element dims, address of the gradient or 0)."""

ScalarArgument = tuple[str, Any, Any]
"""(setter: "float", "int", "uint" or "matrix", slot, value)."""

MOST_ELEMENTS = 2**31 - 1
"""The largest number of elements of an array.

An index has 32 bits. Beyond that, Taichi 1.7.4 and Quadrants 1.3.3 end the process.
"""

MOST_DIMS = 12
"""The largest number of dims of an array, without those of its elements: `taichi_max_num_indices` of both engines."""

Launch = Callable[[Sequence[ArrayArgument], Sequence[ScalarArgument]], None]
FieldKey = tuple[int, ...]
"""Identifies a field: the rank of its elements, then the number that the engine has for each entry of an element."""


class HeldLaunch(NamedTuple):
    """A launch whose arguments are kept, for a kernel that is launched many times.

    Attributes:
        put: function that gives an array argument other memory; takes the parts of an `ArrayArgument`.
        run: function that launches the kernel.
        setter: function that returns, for a kind of scalar ("float", "int", "uint", "matrix"), a function (slot,
            value) that changes a scalar argument.
    """

    put: Callable[..., None]
    run: Callable[[], None]
    setter: Callable[[str], Callable[[Any, Any], None]]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel, as its annotation declares it.

    `dtypes` are the torch dtypes that fit (None: any). `element` holds the dims of a vector or matrix element, () for
    plain numbers. `text` is the annotation's source, in which `_lang` is the engine's module; arrays of a variant get
    a new annotation from `array_text`. A member of a struct has a `path`: the kernel's name for the struct, followed
    by the names of the members that lead to it. `open_dims` counts the dims of an element whose sizes the annotation
    does not fix, as `ndarray(element_dim=1)`: `element` is () then.
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
        """The word for this kind of parameter in messages: "vector", or its kind."""
        return "vector" if self.kind == "matrix" and len(self.element) == 1 else self.kind

    @property
    def spec_item(self) -> str:
        """How a spec lists this number, vector or matrix, so that a tensor can be passed for it."""
        return f"{self.name}[{', '.join([f'{size}' for size in self.element])}]"

    @property
    def conversion(self) -> str:
        """The tensor method that converts an argument for this parameter: "item" for a number, else "tolist"."""
        return "tolist" if self.element else "item"

    @property
    def element_rank(self) -> int:
        """The number of dims of an element, whether or not their sizes are known."""
        return len(self.element) or self.open_dims

    @property
    def entries(self) -> int:
        """The number of scalars in one element."""
        return math.prod(self.element)


@dataclass(frozen=True)
class Compiled:
    """A kernel compiled for one set of annotations, with the function that launches it.

    `slots` maps a parameter's name to the engine's own name for its place. `runtime` is the state of the engine in
    which it was compiled; after a restart the launch must not be used. If `is_flat`, its arrays hold scalars where
    the author of the kernel wrote vectors or matrices. `vector_sizes` maps a parameter's name to the number of bytes
    that the address of its memory must be a multiple of, if there is such a number.
    """

    launch: Launch
    slots: dict[str, Any]
    runtime: Any
    is_flat: bool = False
    vector_sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FieldFacts:
    """The properties of a field that has been placed, or of an ndarray.

    Attributes:
        key: equal for two objects that stand for the same elements in the same memory.
        shape: of the field.
        offset: the field's first index in each dim.
        element: dims of its vector or matrix elements, () for plain numbers.
        is_matrix: whether an element takes two indices, even if it has one column.
        dtype: of the numbers.
        has_gradient: whether it has a gradient field that is placed. A component of a field has none of its own.
        is_dense: whether every element always exists: there is no pointer, bitmasked, hash or dynamic node above it.
        address: the address of an ndarray's memory; 0 for a field.
        layout: the dims of an ndarray from the outermost in memory to the innermost; () means in order.
    """

    key: FieldKey
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
    def parts(self) -> tuple[int, ...]:
        """The engine's number for each entry of an element. Fields share memory if they share one of these."""
        return self.key[1:]

    @property
    def count(self) -> int:
        """The number of scalars in the field."""
        return math.prod(self.shape + self.element)

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """The shape of an ndarray's memory in scalars, from the outermost dim in memory to the innermost."""
        return (tuple(self.shape[axis] for axis in self.layout) or self.shape) + self.element


@dataclass(frozen=True)
class Probe:
    """The result of checking one private name or behavior of an engine that tinsmith relies on."""

    name: str
    package: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Facts:
    """The private names that an engine's file relies on: objects by name, and attribute paths that start from them.

    The root `kernel` of a path is a freshly decorated kernel.
    """

    roots: dict[str, Any]
    paths: tuple[str, ...]


class CompileOptions(NamedTuple):
    """Options of a compilation that do not follow from the kernel's text.

    Attributes:
        adjoint: whether to compile the engine's own reverse-mode kernel.
        stack: the required depth of the gradient stack; 0 leaves it to the engine.
        is_careful: whether an element may be read and written under two indices, which the engines' optimizers do not
            consider.
        is_aliased: whether an element may be changed under two indices, and an inner loop changes only one of them.
        is_simd: whether vectors are kept whole, as machine vectors on the CPU, which require memory aligned to an
            element's size.
        is_printed: whether the text was printed from IR, so that its parameters are arrays, numbers and fields only.
    """

    adjoint: bool = False
    stack: int = 0
    is_careful: bool = False
    is_aliased: bool = False
    is_simd: bool = False
    is_printed: bool = False


class Checks(NamedTuple):
    """Extra errors that only the Python engine can raise.

    Attributes:
        nan: raise if an operation returns NaN although no operand is NaN.
        unwritten: raise if a kernel reads an element of uninitialized memory that no kernel has written.
    """

    nan: bool = False
    unwritten: bool = False


class Engine(ABC):
    """An engine. Its objects are stateless: all state lives in the engine's own runtime."""

    name: str
    runs_source: bool = False
    """Whether Python runs the kernel's own source, so that no form for compilers is needed."""
    has_fast_vectors: bool = False
    """Whether machine vectors of float64 are faster than scalars on all CPUs, which needs a recent compiler."""

    is_capturable: bool = False
    """Whether its launches may be part of a CUDA graph."""

    @property
    def checks_unwritten(self) -> bool:
        """Whether a read of memory that no kernel has written is an error."""
        return False

    @property
    def home(self) -> Engine:
        """The engine that kernels were written for: the engine itself, unless it `runs_source`."""
        return self

    # Recognizing what the user passes -------------------------------------------------
    @property
    @abstractmethod
    def lang(self) -> ModuleType:
        """Return the engine's module, which kernel source calls `ti` or `qd`."""

    @abstractmethod
    def is_kernel(self, candidate: object) -> bool:
        """Return True if `candidate` is one of this engine's kernels, free or bound to an object."""

    @abstractmethod
    def function_of(self, kernel: Any) -> Callable[..., Any]:
        """Return the Python function under a kernel's decorator."""

    @abstractmethod
    def owner_of(self, kernel: Any) -> object | None:
        """Return the data-oriented object that a bound kernel belongs to, or None."""

    @abstractmethod
    def bind(self, kernel: Any, owner: object) -> Any:
        """Return a kernel of a data-oriented class, free or bound, bound to `owner`."""

    @abstractmethod
    def is_method(self, kernel: Any) -> bool:
        """Return True if the kernel's first parameter is its object (`self`)."""

    @abstractmethod
    def parameters(self, kernel: Any, objects: Collection[str] | None = None) -> tuple[Parameter, ...]:
        """Return a kernel's parameters in order, without `self`. Raise KernelError for kinds that cannot be passed.

        Args:
            kernel: the kernel.
            objects: None replaces structs by their members. Otherwise the structs' values are known: the parameters
                named here, and those declared as a Python dataclass or a `qd.Tensor`, become templates.
        """

    @abstractmethod
    def describe(self, name: str, annotation: Any) -> Parameter | None:
        """Return the parameter that an annotation declares, or None if parameters of its kind cannot be passed."""

    @abstractmethod
    def structs(self, kernel: Any) -> dict[tuple[str, ...], Any]:
        """Return the struct types and dataclasses of parameters, and of structs inside them, by path: the names that
        lead there.
        """

    @abstractmethod
    def results(self, kernel: Any) -> tuple[Parameter, ...]:
        """Return the values that the kernel's return annotation declares, as parameters without names."""

    @abstractmethod
    def inner_function(self, candidate: object) -> Callable[..., Any] | None:
        """Return the Python function of a `ti.func` written by a user; None for anything else."""

    @abstractmethod
    def hold_weakly(self, kernel: Any) -> None:
        """Let a decorated kernel be freed once it is unused; the engine would keep it until the process ends."""

    @abstractmethod
    def is_bound(self, function: object) -> bool:
        """Return True if an engine function is a method bound to an object, which is its first argument."""

    @abstractmethod
    def owns(self, value: object) -> bool:
        """Return True if a value (module, function, dtype) is part of the engine's own package."""

    @abstractmethod
    def is_field(self, value: object) -> bool:
        """Return True for a field or an ndarray: memory that the engine reads at launch, not a constant."""

    def unwrap(self, value: Any) -> Any:
        """Return the field or ndarray inside a `qd.Tensor`; any other value is returned unchanged."""
        return value

    @abstractmethod
    def is_ndarray(self, value: object) -> bool:
        """Return True for an engine's ndarray, by itself or inside a `qd.Tensor`.

        For an ndarray, `is_field` is True too.
        """

    @abstractmethod
    def leaf_fields(self, field: Any, name: str) -> list[tuple[str, Any]]:
        """Return the scalar, vector and matrix fields of a field, with names: itself, or the members of a field of
        structs.
        """

    @abstractmethod
    def field_facts(self, field: Any, name: str) -> FieldFacts:
        """Return the properties of a field; `name` is for messages. Raise KernelError if no tensor can fill it."""

    def share_memory(self, field: Any) -> torch.Tensor | None:
        """Return a tensor that shares a field's memory, or None if the engine does not support it."""
        return None

    def find_row_major_memory(self, field: Any) -> int:
        """Return the address of a field's numbers on the CPU, if they certainly lie there in row-major order; else 0.

        `field` is no ndarray.
        """
        return 0

    @abstractmethod
    def is_unplaced(self, field: Any) -> bool:
        """Return True if a field, or the gradient requested by `needs_grad=True`, is declared but not placed."""

    @abstractmethod
    def matrix_entries(self, value: object) -> tuple[float, ...] | None:
        """Return the numbers of a Python-scope vector or matrix, row by row; None for anything else."""

    # Running ------------------------------------------------------------------------------
    @abstractmethod
    def runtime(self) -> Any:
        """Return an object that identifies the engine's current state, or None if it is not started.

        Every init or reset makes a new object. In a process forked from one in which the engine ran, the engine is
        started again first. Raises EngineError if that fails.
        """

    @abstractmethod
    def is_current(self, runtime: Any) -> bool:
        """Return True if `runtime` is the engine's current state. Do not start the engine."""

    @abstractmethod
    def detach_program(self) -> Any:
        """Remove the program, with all its memory and kernels, from the engine and return it; None if there is none.

        Afterwards the engine counts as not started.
        """

    @abstractmethod
    def options(self) -> tuple[Any, ...]:
        """Return the current compiler options of the started engine, on which compiled kernels depend."""

    @property
    def default_types(self) -> tuple[str, str]:
        """The engine's types for Python's floats and integers, such as ("f32", "i32").

        Raises EngineError if the engine is not started.
        """
        runtime = self.runtime()
        return runtime.default_fp.to_string(), runtime.default_ip.to_string()

    @abstractmethod
    def device_type(self) -> str:
        """Return the device on which the started engine runs: "cpu" or "cuda".

        Raise EngineError if it is not started.
        """

    def find_streams(self) -> ProgramStreams | None:
        """Return the streams that the running program launches on, or None if its device has none."""
        return None

    @abstractmethod
    def is_debugging(self) -> bool:
        """Return True if the started engine runs the `assert` statements of kernels."""

    @abstractmethod
    def keeps_compiled(self) -> bool:
        """Return True if compiled kernels are kept on disk for later processes, or nothing is compiled."""

    @abstractmethod
    def thread_count(self) -> int:
        """Return the number of CPU threads that a parallel loop is divided among."""

    @abstractmethod
    def materialize(self) -> None:
        """Allocate the engine's memory on the main thread, if possible now, so that other threads may launch first."""

    @abstractmethod
    def require_ready(self, op: str) -> None:
        """Raise EngineError unless a kernel may be launched from this thread now. `op` is named in the message."""

    @abstractmethod
    def compile(
        self,
        function: Callable[..., Any],
        templates: dict[str, Any],
        options: CompileOptions = CompileOptions(),  # noqa: B008  # a tuple, which nothing changes
        content: Hashable | None = None,
    ) -> Compiled:
        """Compile a function whose annotations fix everything except the values of its templates.

        Functions with the same file name, which depends on their text (`codegen.build`), and equal `content` share a
        compiled kernel: `content` is everything else that the function depends on. With None, nothing is shared.
        """

    @property
    @abstractmethod
    def needs_stack_depth(self) -> bool:
        """Return True if a gradient stack that is too shallow ends the process, so that `ts.init` must
        set its depth.
        """

    def reverse_option(self) -> str:
        """Return the `ts.init` option that the engine's reverse mode needs and that is not set, as "name=value", or
        "".
        """
        return ""

    @abstractmethod
    def free_kernel(self, called: Any) -> Any:
        """Return the decorated kernel of the object passed to a listener; for a method, without its object."""

    @abstractmethod
    def is_gradient(self, called: Any) -> bool:
        """Return True if the object passed to a listener is the engine's gradient of a kernel, not the
        kernel itself.
        """

    @abstractmethod
    def redirect_calls(self, listener: engines.Listener) -> AbstractContextManager[None]:
        """Enter a context that redirects this thread's calls of kernels and accesses to fields to a listener."""

    @abstractmethod
    def start(self, device_type: str, **options: Any) -> None:
        """Start the engine on a device, "cpu" or "cuda", with options of its own `init`."""

    @abstractmethod
    def facts(self) -> Facts:
        """Return the private names that this engine's file relies on."""
