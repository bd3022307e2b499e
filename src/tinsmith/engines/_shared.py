"""What both engines have in common, because one is a fork of the other.

The functions here read annotations, build argument text and watch over starting and
threads; they are handed the engine's own objects and import no engine.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import torch

from .._errors import EngineError, refusal
from ._contract import ArrayArgument, Engine, HeldLaunch, Launch, Parameter, ScalarArgument
from ._module_name import module_name

DTYPES: dict[str, torch.dtype] = {
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u1": torch.bool,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
}
SPEC_DTYPES: dict[str, torch.dtype] = {**DTYPES, "bf16": torch.bfloat16}
"""What a spec may say; no engine has bfloat16, which is computed in float32."""
NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}
CONTEXT = ("set_arg_external_array_with_shape", "set_arg_float", "set_arg_int", "set_arg_uint")
"""What both engines' launch contexts are filled with."""
_HOLD = "_tinsmith_hold"
"""The attribute of a launch that makes a `HeldLaunch` of it."""
PLACES = ("global_vars", "grad_vars", "unfinalized_fields_builder")
"""What an engine's state keeps of fields until they are placed."""
FLOATS = (torch.float16, torch.float32, torch.float64)
HALVES = (torch.float16, torch.bfloat16)
INTEGERS = tuple(dtype for name, dtype in DTYPES.items() if name[0] in "iu" and name != "u1")
COMPILING = threading.RLock()
"""Held while anything is parsed, lowered, generated or compiled: neither the engines nor `ast` do two at a time.

Who makes a part of an op that all its calls share holds it too, and looks again whether another thread was faster. A
call whose parts are made never takes it. Nothing that may wait for another thread is done meanwhile: no launch, and
no backward pass."""
_PYTHON_TYPES = (float, int, bool)
"""What an annotation may say instead of an engine's dtype."""
_BOUNDARIES = {0: "unsafe", 1: "clamp"}


Made = TypeVar("Made")
Options = ParamSpec("Options")


def one_at_a_time(function: Callable[Options, Made]) -> Callable[Options, Made]:
    """A function that one thread runs at a time, and no other compiles or parses meanwhile."""

    @functools.wraps(function)
    def guarded(*positional: Options.args, **named: Options.kwargs) -> Made:
        with COMPILING:
            return function(*positional, **named)

    return guarded


def dtypes_of(declared: Any) -> tuple[torch.dtype, ...] | None:
    """Torch dtypes that fit an annotation's dtype: Python's `float` stands for any float."""
    if declared is None:
        return None
    if declared is float:
        return FLOATS
    if declared is int:
        return INTEGERS
    if declared is bool:
        return (torch.bool,)
    return (DTYPES[declared.to_string()],)


def dtype_text(declared: Any) -> str:
    """An annotation's dtype as source."""
    return declared.__name__ if declared in _PYTHON_TYPES else f"_lang.{declared.to_string()}"


def setter_of(declared: Any) -> str:
    """Which of an argument buffer's setters takes a scalar of this dtype."""
    letter = declared.__name__[0] if declared in _PYTHON_TYPES else declared.to_string()[0]
    return {"f": "float", "i": "int", "u": "uint", "b": "uint"}[letter]


def element_of(matrix: Any) -> tuple[int, ...]:
    """Dims of a vector or matrix type."""
    return (matrix.n,) if matrix.ndim == 1 else (matrix.n, matrix.m)


def matrix_text(matrix: Any) -> str:
    """A vector or matrix type as source."""
    dims = ", ".join(str(size) for size in element_of(matrix))
    maker = "vector" if matrix.ndim == 1 else "matrix"
    return f"_lang.types.{maker}({dims}, {dtype_text(matrix.dtype)})"


def describe(
    name: str, annotation: Any, lang: ModuleType, matrix_type: type, is_scalar: Callable[[Any], bool]
) -> Parameter | None:
    """A parameter from its annotation; None where the kind is one that we cannot pass."""
    if isinstance(annotation, lang.template) or annotation is lang.template:
        return Parameter(name, "template", text="_lang.template()")
    if isinstance(annotation, lang.types.ndarray):
        return _array(name, annotation, matrix_type)
    if annotation in _PYTHON_TYPES or is_scalar(annotation):
        dtypes, text = dtypes_of(annotation), dtype_text(annotation)
        return Parameter(name, "scalar", dtypes, setter=setter_of(annotation), text=text)
    if isinstance(annotation, matrix_type):
        element, text = element_of(annotation), matrix_text(annotation)
        return Parameter(name, "matrix", dtypes_of(annotation.dtype), None, element, "matrix", text=text)
    return None


def _array(name: str, annotation: Any, matrix_type: type) -> Parameter:
    declared = annotation.dtype
    boundary = _BOUNDARIES[int(annotation.boundary)]
    is_matrix = isinstance(declared, matrix_type)
    scalar = declared.dtype if is_matrix else declared
    shown = "" if declared is None else matrix_text(declared) if is_matrix else dtype_text(declared)
    parts = [f"dtype={shown}"] * bool(shown) + [f"ndim={annotation.ndim}"] * (annotation.ndim is not None)
    text = f"_lang.types.ndarray({', '.join(parts)})"
    element = element_of(declared) if is_matrix else ()
    return Parameter(name, "array", dtypes_of(scalar), annotation.ndim, element, boundary=boundary, text=text)


def array_text(dtype: torch.dtype, ndim: int, element: tuple[int, ...], boundary: str, needs_grad: bool) -> str:
    """The annotation of an array, as source in which the engine's module is called `_lang`."""
    scalar = f"_lang.{NAMES[dtype]}"
    if len(element) == 1:
        scalar = f"_lang.types.vector({element[0]}, {scalar})"
    elif element:
        scalar = f"_lang.types.matrix({element[0]}, {element[1]}, {scalar})"
    edge = f", boundary={boundary!r}" if boundary != "unsafe" else ""
    return f"_lang.types.ndarray(dtype={scalar}, ndim={ndim}, needs_grad={needs_grad}{edge})"


def stand_ins(
    function: Callable[..., Any], templates: dict[str, Any], lang: ModuleType, matrix_type: type
) -> list[Any]:
    """Arguments that make an engine compile `function`: what it specialises on, and no memory."""
    values = []
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = parameter.annotation
        if name in templates:
            values.append(templates[name])
        elif isinstance(annotation, lang.types.ndarray):
            values.append(_stand_in_array(annotation, matrix_type))
        else:
            values.append(0)
    return values


def _stand_in_array(annotation: Any, matrix_type: type) -> torch.Tensor:
    declared = annotation.dtype
    element = element_of(declared) if isinstance(declared, matrix_type) else ()
    scalar = declared.dtype if element else declared
    return torch.empty((0,) * annotation.ndim + element, dtype=DTYPES[scalar.to_string()])


def places(metas: list[Any], lang: ModuleType, matrix_type: type, place: Callable[[int], Any]) -> dict[str, Any]:
    """Where each run-time argument goes, by name; templates take no place, matrices bring their type along."""
    runtime = [meta for meta in metas if not isinstance(meta.annotation, lang.template)]
    slots = {}
    for index, meta in enumerate(runtime):
        is_matrix = isinstance(meta.annotation, matrix_type)
        slots[meta.name] = ((index,), meta.annotation) if is_matrix else place(index)
    return slots


def belongs_to(value: object, package: str) -> bool:
    """Whether a module, function or object was defined inside `package`."""
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if not isinstance(home, str):
        home = type(value).__module__
    return home == package or home.startswith(package + ".")


def entries(matrix: Any) -> tuple[float, ...]:
    """The numbers of a Python-scope vector or matrix, row by row."""
    flat: list[Any] = []
    for row in matrix.to_list():
        flat.extend(row if isinstance(row, list) else [row])
    return tuple(flat)


def options_of(config: Any) -> tuple[Any, ...]:
    """The values of all options of an engine's configuration."""
    values = (getattr(config, name) for name in dir(config) if not name.startswith("_"))
    return tuple(value for value in values if isinstance(value, bool | int | float | str))


@contextlib.contextmanager
def without(config: Any, **unwanted: bool) -> Iterator[None]:
    """Compile without some optimisations: those that are True.

    `cfg_optimization` keeps an element's old value although it was written under another index, in both engines (Taichi
    1.7.4, Quadrants 1.3.3): after `b = y[i]; y[k[i]] = b + y[k[i]]` a `y[i]` is still `b`.
    """
    before = {name: getattr(config, name) for name in unwanted}
    for name, is_unwanted in unwanted.items():
        setattr(config, name, before[name] and not is_unwanted)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


@contextlib.contextmanager
def scalarized(config: Any, *, is_wanted: bool) -> Iterator[None]:
    """Compile with vectors and matrices taken apart into numbers before anything else, where that is wanted.

    Engines take them apart after they have made the reverse kernel, which is wrong then. Taichi 1.7.4 finds too little
    room for a local that a branch changes beside a vector: its gradient is wrong, zero or NaN
    (tests/layers/tin/test_time_of_impact.py). Both engines (Taichi 1.7.4, Quadrants 1.3.3) lose old values of vectors
    that a loop rebuilds from themselves, as `v = v * v.norm()` (tests/bridge/test_trust_engine.py). In a kernel that
    reads and changes an array of vectors, both do not see that a vector and its numbers are one memory: after
    `a = y[i][0]; y[i] = v`, `y[i][0]` is still `a`. And both end the process ("scalarize_store_stmt") where a loop uses
    a number of a vector that a statement outside of loops used: tasks share its address, and expect a whole vector
    behind it (tests/bridge/test_vectors_in_place.py). A local that holds an element of one array keeps numbers of it
    where an inner loop comes between, and then it is given an element of another (tests/bridge/test_vectors_again.py).
    """
    before = config.force_scalarize_matrix
    config.force_scalarize_matrix = before or is_wanted
    try:
        yield
    finally:
        config.force_scalarize_matrix = before


def settle(engine: Engine) -> None:
    """Set up an engine's memory on this thread, so that a first launch may come from any other.

    Without it the first launch from a thread other than the one that started the engine dies
    in an assertion (taichi #2022), and so does the first after new fields were placed. Fields
    declared but not yet placed, themselves or their gradients, forbid it for now, and another thread
    cannot do it: then a first launch is refused in words (`require_settled`).
    """
    if threading.current_thread() is not threading.main_thread():
        return
    runtime = engine.runtime()
    if runtime is not None and not _waiting(runtime) and not _open_builders(engine, runtime):
        runtime.materialize()


def _open_builders(engine: Engine, runtime: Any) -> list[Any]:
    """Builders that nobody finalized, but for the root's own, which the engine finalizes when it must."""
    root = engine.lang.root.ptr
    return [one for one in runtime.unfinalized_fields_builder if one.ptr is not root]


def _waiting(runtime: Any) -> list[Any]:
    """Fields, and gradients asked for by `needs_grad=True`, that were declared and not placed."""
    return [one for one in (*runtime.global_vars, *runtime.grad_vars) if one.ptr.snode() is None]


def require_placed(engine: Engine) -> None:
    """Refuse to compile while a field of the program, any, has no place: the engine would run nothing at all."""
    runtime = require_started(engine)
    if _open_builders(engine, runtime):
        words = f"{engine.name} runs no kernel while a FieldsBuilder is not finalized"
        raise EngineError(refusal(words, remedy="Call its `.finalize()` after the last `.place(...)`."))
    waiting = _waiting(runtime)
    if not waiting:
        return
    gradients = [one for one in waiting if any(one is other for other in runtime.grad_vars)]
    what, place = ("its gradient", "x, x.grad") if gradients else ("it", "x")
    asked = " with needs_grad=True" if gradients else ""
    words = f"{engine.name} runs no kernel while a field is declared{asked} and {what} is not placed"
    rows = [("declared", _declared_at(one, engine)) for one in gradients or waiting]
    remedy = (
        f"Place {what} too, `{module_name(engine.name)}.root.dense(...).place({place})`, or give the field a shape."
    )
    raise EngineError(refusal(words, rows[:3], remedy))


def _declared_at(variable: Any, engine: Engine) -> str:
    """The user's line that declared a field: the engine keeps the stack, its own frames last."""
    lines = str(getattr(variable, "declaration_tb", "")).splitlines()
    frames = [line.strip() for line in lines if line.strip().startswith("File ")]
    users = [line for line in frames if f"/{engine.name}/" not in line]
    return users[-1] if users else "somewhere"


def require_started(engine: Engine, op: str = "") -> Any:
    """The engine's runtime. Raises EngineError where nobody has started it."""
    runtime = engine.runtime()
    if runtime is None:
        where = f" for op `{op}`" if op else ""
        raise EngineError(
            refusal(
                f"engine {engine.name!r} has not been started{where}",
                remedy="Call ts.init() once at the start of the program (or the engine's own init).",
            )
        )
    return runtime


def require_settled(engine: Engine, runtime: Any, op: str) -> None:
    """Refuse a first launch that the engine would die of."""
    if runtime.materialized or threading.current_thread() is threading.main_thread():
        return
    raise EngineError(
        refusal(
            f"the first launch of engine {engine.name!r} came from another thread, by op `{op}`",
            [("thread", threading.current_thread().name)],
            "Start the engine with ts.init(), or make the op after the engine was started, or call it once "
            "from the main thread.",
        )
    )


def defaults(lang: ModuleType, device_type: str) -> dict[str, Any]:
    """Options that make an engine behave as torch does now: its default float, its thread count."""
    is_double = torch.get_default_dtype() == torch.float64
    options = {"log_level": lang.WARN, "default_fp": lang.f64 if is_double else lang.f32}
    return options | ({"cpu_max_num_threads": torch.get_num_threads()} if device_type == "cpu" else {})


def device_type(arch: Any) -> str:
    """Torch's name of the device that an engine runs on."""
    name = arch.name
    if name == "cuda":
        return "cuda"
    if name in ("x64", "arm64"):
        return "cpu"
    raise EngineError(
        refusal(
            "ops run on the CPU or on CUDA",
            [("engine runs on", name)],
            "Start the engine with ts.init(), which picks what torch has.",
        )
    )


def launcher(cpp: Any, program: Any, data: Any, *, is_reused: bool) -> Launch:
    """Fill a launch context by hand and launch it.

    Measured on a CPU: 4 us in Taichi where a call of the kernel takes 85 us, 1 us in Quadrants
    where a call takes 35 us. There a context `is_reused`, for filling a new one takes twice as long; threads that
    launch at once have one each. On CUDA a launch leaves memory in the context that is gone after it.
    """
    make_context, start = cpp.make_launch_context, program.launch_kernel
    free: list[Any] = []

    def launch(arrays: Sequence[ArrayArgument], scalars: Sequence[ScalarArgument] = ()) -> None:
        context = free.pop() if free else make_context()
        put = context.set_arg_external_array_with_shape
        for array in arrays:
            put(*array)
        if scalars:
            _set_scalars(context, scalars)
        start(data, context)
        if is_reused:
            free.append(context)

    def hold(arrays: Sequence[ArrayArgument], scalars: Sequence[ScalarArgument]) -> HeldLaunch:
        context = make_context()
        put = context.set_arg_external_array_with_shape
        for array in arrays:
            put(*array)
        _set_scalars(context, scalars)
        return HeldLaunch(put, functools.partial(start, data, context), functools.partial(_setter, context))

    if is_reused:
        setattr(launch, _HOLD, hold)
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
    place, matrix = slot
    matrix.set_kernel_struct_args(matrix(*value), context, place)


def _setter(context: Any, setter: str) -> Callable[[Any, Any], None]:
    """What sets scalars of one kind, as a function of slot and value."""
    return functools.partial(_set_matrix, context) if setter == "matrix" else getattr(context, f"set_arg_{setter}")


def hold(launch: Launch, arrays: Sequence[ArrayArgument], scalars: Sequence[ScalarArgument]) -> HeldLaunch | None:
    """A launch with its arguments filled in, for many times; None where each time needs a context of its own.

    Measured on a CPU with five arrays: 3.2 us in Taichi instead of 7.7, 0.6 us in Quadrants instead of 1.4.
    """
    own = getattr(launch, _HOLD, None)
    return None if own is None else own(arrays, scalars)
