"""The registry of engines: which are installed, imported and running, and which one runs a kernel."""

from __future__ import annotations

import importlib.util
import platform
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from .. import engines
from .._config import config
from .._errors import ArgumentError, EngineError, nearest, refusal
from .._extras import EXTRAS, install_command
from ._common import belongs_to
from ._compiling import COMPILING
from ._contract import Checks, Engine
from ._custom_gradients import Replaced, unwrap_replaced
from ._forks import survive_forks, watch_forks

if TYPE_CHECKING:
    from .python import Python

ENGINE_NAMES = ("taichi", "quadrants")
"""The engines that compile, in order of preference."""
USUAL_NAMES = {"taichi": "ti", "quadrants": "qd"}
"""The names under which files import the engines' modules."""


class _Engines(dict[str, Engine]):
    """The engines that compile, by name. Each is made, and its file imported, on first use."""

    def __missing__(self, name: str) -> Engine:
        with COMPILING:
            if name not in self:
                self[name] = engines.Taichi() if name == "taichi" else engines.Quadrants()
        return self[name]


class _PythonEngines(dict[str, "Python"]):
    """The Python engines, by the name of the engine whose kernels they run."""

    def __missing__(self, name: str) -> Python:
        with COMPILING:
            if name not in self:
                self[name] = engines.Python(_ENGINES[name], _Choice.checks, PYTHON_LOCKS[name])
        return self[name]


_ENGINES = _Engines()
_PYTHON = _PythonEngines()


def list_installed() -> tuple[str, ...]:
    """Return the names of the engines that can be imported."""
    return tuple(name for name in ENGINE_NAMES if importlib.util.find_spec(name) is not None)


def list_loaded() -> tuple[str, ...]:
    """Return the names of the engines that have been imported already."""
    return tuple(name for name in ENGINE_NAMES if name in sys.modules)


def list_running() -> tuple[str, ...]:
    """Return the names of the engines that are started."""
    return tuple(name for name in list_loaded() if _ENGINES[name].runtime() is not None)


def choose_default() -> str:
    """Return the engine to use if the user names none: Taichi if it is installed, else Quadrants.

    Taichi has no wheel for Linux on ARM, where tinsmith depends on Quadrants.

    Raises:
        EngineError: neither is installed.
    """
    installed = list_installed()
    if not installed:
        command = "pip install taichi" if _has_taichi_wheel() else install_command("quadrants")
        raise EngineError(refusal("no engine is installed", remedy=f"Run {command}."))
    return installed[0]


class _Choice:
    """The engine of ops that do not name one: "python", or None for the engine that the kernel was written for."""

    engine: str | None = None
    checks = Checks()


def run_on(engine: str | None, checks: Checks = Checks()) -> None:  # noqa: B008  # a tuple, which nothing changes
    """Set the engine that runs the kernels of ops which do not name one: "python", or None for the kernels' own
    engine.

    `checks` are those of the Python engine.
    """
    _Choice.engine, _Choice.checks = engine, checks
    for one in _PYTHON.values():
        one.checks = checks


def runner_of(home: Engine, name: str | None = None) -> Engine:
    """Return the engine that runs kernels written for `home`.

    Args:
        home: the engine that they were written for.
        name: the engine that the user chose; None for the process-wide choice: `ts.init(engine="python")`, the
            environment variable TINSMITH_ENGINE, else `home`.
    """
    name = name or _Choice.engine or config().engine or None
    if name == "python":
        return _PYTHON[home.name]
    return home if name is None else get(name)


def get(name: str) -> Engine:
    """Return the engine called `name`. Raise EngineError if it is unknown or not installed."""
    if name == "python":
        return _PYTHON[choose_default()]
    if name not in ENGINE_NAMES:
        guess = nearest(str(name), [*ENGINE_NAMES, "python"])
        remedy = f"Did you mean {guess!r}?" if guess else "Name one of these, or leave `engine` out."
        rows = [("engines", ", ".join((*ENGINE_NAMES, "python")))]
        raise EngineError(refusal(f"there is no engine {name!r}", rows, remedy))
    if name not in list_installed():
        raise EngineError(refusal(f"engine {name!r} is not installed", remedy=_explain_missing(name)))
    return _ENGINES[name]


def _explain_missing(name: str) -> str:
    """Return advice for an engine that is not installed. Taichi is a dependency of tinsmith, so it has no extra."""
    others = " or ".join(f"engine={one!r}" for one in list_installed())
    if name == "taichi" and not _has_taichi_wheel():
        command = "" if others else f" Run {install_command('quadrants')}."
        return f"Taichi has no wheel for Linux on ARM: use {others or 'Quadrants'}.{command}"
    command = install_command(name) if name in EXTRAS else f"pip install {name}"
    return f"Run {command}{f', or use {others}' if others else ''}."


def _has_taichi_wheel() -> bool:
    """Return False on Linux on ARM, where pyproject.toml requires Quadrants instead of Taichi."""
    return not (sys.platform == "linux" and platform.machine() == "aarch64")


watch_forks(lambda: [_ENGINES[name] for name in list_loaded()])
# Registered after `COMPILING`, which a kernel that Python runs may need: a fork acquires locks in the reverse order of
# their registration. And before the locks of layers, so the locks are made before the engines.
PYTHON_LOCKS = {name: survive_forks(threading.RLock()) for name in ENGINE_NAMES}
"""The locks of the Python engines, by the names of the engines whose kernels they run."""


def is_kernel(candidate: object) -> bool:
    """Return True if `candidate` is a kernel of an imported engine."""
    return any(_ENGINES[name].is_kernel(candidate) for name in list_loaded())


def find_replaced(candidate: object) -> Replaced | None:
    """Return the parts of a function decorated by an engine's `grad_replaced`; None for anything else."""
    matches = (unwrap_replaced(_ENGINES[name], candidate) for name in list_loaded())
    return next((one for one in matches if one is not None), None)


def public_name(value: Any) -> str | None:
    """Return the public name of an engine's function or type, such as "static" or "f32".

    Return "Vector" or "Matrix" for vector and matrix types, "" for a user's function, and None for anything else.
    """
    if not any(belongs_to(value, package) for package in ENGINE_NAMES):
        is_compiled = any(getattr(value, f"_is_{name}_function", False) for name in ENGINE_NAMES)
        return "" if is_compiled or isinstance(value, FunctionType) else None
    if callable(getattr(value, "to_string", None)) and not isinstance(value, type):
        dims: int | None = getattr(value, "ndim", None)
        return str(value.to_string()) if dims is None else ("Vector" if dims == 1 else "Matrix")
    name = getattr(value, "__qualname__", None)
    return name.rpartition(".")[2] if isinstance(name, str) else None


def of_field(field: object) -> Engine | None:
    """Return the engine that `field` belongs to; None if it is not a field."""
    return next((_ENGINES[name] for name in list_loaded() if _ENGINES[name].is_field(field)), None)


def unwrap(value: Any) -> Any:
    """Return the field or ndarray inside a `qd.Tensor`; any other value is returned unchanged."""
    for name in list_loaded():
        value = _ENGINES[name].unwrap(value)
    return value


def of_kernel(kernel: object) -> Engine:
    """Return the engine that made `kernel`. Raise ArgumentError if none did."""
    for name in list_loaded():
        if _ENGINES[name].is_kernel(kernel):
            return _ENGINES[name]
    raise ArgumentError(
        refusal(
            "ts.op takes a kernel of Taichi or Quadrants",
            [("got", f"{type(kernel).__name__} {getattr(kernel, '__name__', '')}".strip())],
            _explain_no_kernel(kernel),
        )
    )


def _explain_no_kernel(value: object) -> str:
    holder = getattr(value, "__self__", value)  # `Function.apply` is a method of the class
    import torch  # late, since a check of files needs none

    if isinstance(holder, type) and issubclass(holder, torch.autograd.Function):
        words = f"Pass the kernel that `{holder.__name__}.forward` launches: the op replaces the class"
        return f"{words}, and `tinsmith check` prints the line."
    return "Decorate the function with @ti.kernel (or @qd.kernel) below @ts.op(...)."


# The name of an engine's module in a user's file, for code in messages ---------------------------


def module_name(engine: str, function: Callable[..., Any] | None = None) -> str:
    """Return the name under which the file of a kernel's Python function imports an engine.

    Return the usual one, `ti` or `qd`, if no function is given or the function cannot see the module.

    Example:
        >>> module_name("quadrants")
        'qd'
    """
    if function is None:
        return USUAL_NAMES[engine]
    visible = {**function.__globals__, **dict(_closure(function))}
    modules = {name: one for name, one in visible.items() if isinstance(one, ModuleType)}
    # A kernel that tinsmith printed sees the module as `_lang`, which no user wrote.
    names = [name for name, one in modules.items() if one.__name__ == engine and name != "_lang"]
    code = function.__code__
    return preferred_name(engine, names, {*code.co_names, *code.co_freevars})


def preferred_name(engine: str, names: Collection[str], used: Collection[str]) -> str:
    """Choose one of several names of an engine's module: one in `used` if possible, else the usual one (`ti`, `qd`)."""
    usual = USUAL_NAMES.get(engine, "ti")
    return min(names, key=lambda name: (name not in used, name != usual), default=usual)


def _closure(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
