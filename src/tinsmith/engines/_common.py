"""Compiling and launching kernels, as far as Taichi and Quadrants do it alike: Quadrants is a fork of Taichi.

The functions get the engine's own objects as arguments and import no engine.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from .._errors import EngineError, refusal
from ._compiling import LEAST_ROOM
from ._contract import ArrayArgument, Compiled, HeldLaunch, Launch, ScalarArgument
from ._forks import remember_program
from ._streams import KernelStreams, copy_kernel_streams, note_kernel_streams

CONTEXT = ("set_arg_external_array_with_shape", "set_arg_float", "set_arg_int", "set_arg_uint")
"""Methods of both engines' launch contexts that set arguments."""
_HOLD = "_tinsmith_hold"
"""The attribute of a launch function that holds the function which makes a `HeldLaunch` of it."""
_SHARED = "_tinsmith_kernels"
"""The attribute of an engine's state that holds the kernels compiled in it, by their content."""
_CACHE_VARIABLES = ("HOME", "XDG_CACHE_HOME")
PLACES = ("global_vars", "grad_vars", "unfinalized_fields_builder")
"""Attributes of an engine's state that list the fields, gradients and builders that are not placed yet."""


def belongs_to(value: object, package: str) -> bool:
    """Return True if a module, function or object was defined inside the package called `package`."""
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if not isinstance(home, str):
        home = type(value).__module__
    return home == package or home.startswith(package + ".")


def list_entries(matrix: Any) -> tuple[float, ...]:
    """Return the numbers of a Python-scope vector or matrix as a tuple, row by row."""
    flat: list[Any] = []
    for row in matrix.to_list():
        flat.extend(row if isinstance(row, list) else [row])
    return tuple(flat)


def options_of(config: Any) -> tuple[Any, ...]:
    """Return the values of all options of an engine's configuration."""
    values = (getattr(config, name) for name in dir(config) if not name.startswith("_"))
    return tuple(value for value in values if isinstance(value, bool | int | float | str))


class SharedKernel(NamedTuple):
    """A compiled kernel, and the warnings that the engine issued when it compiled it."""

    compiled: Compiled
    warnings: Sequence[warnings.WarningMessage]


def get_or_compile(runtime: Any, key: Hashable, compile_kernel: Callable[[], Compiled]) -> Compiled:
    """Return the kernel that was compiled for this key, or compile it. With a `key` of None, always compile.

    Engines (Taichi 1.7.4, Quadrants 1.3.3) free a compiled kernel, 0.1 to 1 MiB, only when they are started again. So
    a loop that makes the same op again and again must not compile it again. The kernels are stored in the engine's
    state, and are freed with it.
    """
    if key is None:
        return _compile_in_recursion(compile_kernel)
    known: dict[Hashable, SharedKernel] = vars(runtime).setdefault(_SHARED, {})
    kernel = known.get(key)
    if kernel is None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled = _compile_in_recursion(compile_kernel)
        kernel = known[key] = SharedKernel(compiled, caught)
    for one in kernel.warnings:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return kernel.compiled


def _compile_in_recursion(compile_kernel: Callable[[], Compiled]) -> Compiled:
    """Compile a kernel.

    Raise EngineError if that exceeds Python's recursion limit because the caller recurses deeply.
    """
    try:
        return compile_kernel()
    except Exception as error:
        causes = [error]
        while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
            causes.append(cause)  # type: ignore[arg-type]
        limit, depth = sys.getrecursionlimit(), sum(1 for _ in traceback.walk_stack(None))
        # With more room than this, the reason is a kernel that calls itself without end.
        if not any(isinstance(one, RecursionError) for one in causes) or limit - depth >= LEAST_ROOM:
            raise
        words = (
            "this call is nested too deeply in a recursion: too little of Python's "
            "recursion limit is left to compile a kernel"
        )
        rows = [("depth", str(depth)), ("limit", f"{limit} (sys.getrecursionlimit())")]
        remedy = (
            "Call the op once before the recursion, to compile it; or raise the limit with `sys.setrecursionlimit`."
        )
        raise EngineError(refusal(words, rows, remedy)) from error


class WeakKernel:
    """Replaces a kernel in the engine state's list of kernels by a weak reference, so that the list does not keep it
    alive.

    The engine iterates over the list when it is started again or its compiled kernels are counted.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = weakref.ref(kernel)

    @property
    def is_alive(self) -> bool:
        """Whether the kernel still exists."""
        return self._kernel() is not None

    def reset(self) -> None:
        """Discard the kernel's compiled forms, if it still exists. The engine calls this after a restart."""
        kernel = self._kernel()
        if kernel is not None:
            kernel.reset()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the kernel, or an empty dict, standing for its table of compiled kernels, if it was
        freed.
        """
        kernel = self._kernel()
        return {} if kernel is None else getattr(kernel, name)


def hold_weakly(runtime: Any, kernels: Iterable[Any]) -> None:
    """Replace kernels in an engine state's list by weak references, so that the list does not keep them and their
    closures alive.
    """
    held = runtime.kernels
    # From the end, and in place: another thread may decorate a kernel meanwhile, which the engine appends.
    for place in reversed(range(len(held))):
        one = held[place]
        if isinstance(one, WeakKernel):
            if not one.is_alive:
                del held[place]
        elif any(one is kernel for kernel in kernels):
            held[place] = WeakKernel(one)


@contextlib.contextmanager
def change_options(config: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Enter a context in which an engine compiles with other values of its options."""
    before = {name: getattr(config, name) for name in values}
    for name, value in values.items():
        setattr(config, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def make_launcher(cpp: Any, program: Any, data: Any, streams: KernelStreams | None = None) -> Launch:
    """Return a function that launches a compiled kernel through a launch context that tinsmith fills itself.

    Measured on a CPU: 4 us in Taichi where a call of the kernel takes 85 us, 1 us in Quadrants where a call takes 35
    us. Filling a new context takes twice as long, so without `streams` contexts are kept for the next launch; threads
    that launch at once have one each. With `streams`, on CUDA, a launch leaves memory in the context that is no longer
    valid after it, so a new one is made each time.

    The program is referenced weakly: one that lives on after the engine was started again frees memory of the next
    program, that of ndarrays, when it is destroyed (Quadrants 1.3.3). Nothing is launched once it is gone.
    """
    remember_program(program)
    make_context, find_program = cpp.make_launch_context, weakref.ref(program)
    free: list[Any] = []

    def launch(arrays: Sequence[ArrayArgument], scalars: Sequence[ScalarArgument] = ()) -> None:
        # `pop` is atomic under the interpreter's lock, so that threads which launch at once never share a context.
        # Asking for the length first would not be: another thread may take the last one in between.
        try:
            context = free.pop() if streams is None else make_context()
        except IndexError:
            context = make_context()
        put = context.set_arg_external_array_with_shape
        for array in arrays:
            put(*array)
        if scalars:
            _set_scalars(context, scalars)
        find_program().launch_kernel(data, context)  # pyright: ignore[reportOptionalMemberAccess]
        # Not reached where the launch raised: what it left in the context is unknown.
        if streams is None:
            free.append(context)
        else:
            streams.note_launch(context)

    def hold_arguments(arrays: Sequence[ArrayArgument], scalars: Sequence[ScalarArgument]) -> HeldLaunch:
        context = make_context()
        put = context.set_arg_external_array_with_shape
        for array in arrays:
            put(*array)
        _set_scalars(context, scalars)

        def start() -> None:
            find_program().launch_kernel(data, context)  # pyright: ignore[reportOptionalMemberAccess]

        return HeldLaunch(put, start, functools.partial(_make_setter, context))

    if streams is None:
        make_holdable(launch, hold_arguments)
    else:
        note_kernel_streams(launch, streams)
    return launch


def _set_scalars(context: Any, scalars: Sequence[ScalarArgument]) -> None:
    for setter, slot, value in scalars:
        if setter == "float":
            context.set_arg_float(slot, value)
        elif setter == "int":
            context.set_arg_int(slot, value)
        elif setter == "uint":
            context.set_arg_uint(slot, value)
        else:
            _set_matrix(context, slot, value)


def _set_matrix(context: Any, slot: Any, value: Any) -> None:
    # The engine's own way makes a matrix of the numbers first, which takes 7 us in Quadrants and 20 us in Taichi.
    setter, places = slot
    put, convert = getattr(context, f"set_struct_arg_{setter}"), float if setter == "float" else int
    for place, number in zip(places, value, strict=True):
        put(place, convert(number))


def _make_setter(context: Any, setter: str) -> Callable[[Any, Any], None]:
    """Return a function (slot, value) that sets a scalar, vector or matrix argument in a launch context."""
    return functools.partial(_set_matrix, context) if setter == "matrix" else getattr(context, f"set_arg_{setter}")


def make_holdable(
    launch: Launch, hold_arguments: Callable[[Sequence[ArrayArgument], Sequence[ScalarArgument]], HeldLaunch]
) -> None:
    """Attach the function by which `make_held_launch` makes a `HeldLaunch` of this launch function."""
    setattr(launch, _HOLD, hold_arguments)


def make_held_launch(
    launch: Launch, arrays: Sequence[ArrayArgument], scalars: Sequence[ScalarArgument]
) -> HeldLaunch | None:
    """Return a launch with its arguments filled in once, to be run many times; None if each run needs a new context.

    Measured on a CPU with five arrays: 3.2 us in Taichi instead of 7.7, 0.6 us in Quadrants instead of 1.4.
    """
    own = getattr(launch, _HOLD, None)
    return None if own is None else own(arrays, scalars)


def bind_scalars(launch: Launch, scalars: Sequence[ScalarArgument]) -> Launch:
    """Return a launch function that passes these scalars to the kernel in addition to those of each call."""

    def launch_bound(arrays: Sequence[ArrayArgument], others: Sequence[ScalarArgument] = ()) -> None:
        launch(arrays, (*others, *scalars))

    own = getattr(launch, _HOLD, None)
    if own is not None:
        make_holdable(launch_bound, lambda arrays, others: own(arrays, (*others, *scalars)))
    copy_kernel_streams(launch, launch_bound)
    return launch_bound


def require_home(name: str) -> None:
    """Raise EngineError if the environment variables HOME and XDG_CACHE_HOME are both missing and `name` is not
    imported yet.

    Taichi 1.7 and Quadrants 1.0 look for the folder of their cache when they are imported, and abort the process if
    there is none.
    """
    if name in sys.modules or sys.platform == "win32" or any(one in os.environ for one in _CACHE_VARIABLES):
        return
    rows = [(one, "not set") for one in _CACHE_VARIABLES]
    remedy = "Set HOME to a writable folder, as in `export HOME=/tmp`."
    raise EngineError(refusal(f"engine {name!r} cannot find a folder for its cache", rows, remedy))
