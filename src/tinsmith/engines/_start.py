"""`ts.init`: starting an engine with settings that match torch."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
from typing import Any

import torch

from .._config import config
from .._errors import ArgumentError, EngineError, nearest, refusal
from ._common import belongs_to
from ._compiling import COMPILING
from ._contract import Checks, Engine
from ._registry import choose_default, get, list_loaded, module_name, public_name, run_on
from ._streams import wait_for_launches


def init(
    arch: str = "auto",
    engine: str = "auto",
    *,
    raise_on_nan: bool = False,
    raise_on_unwritten: bool = False,
    **options: Any,
) -> tuple[str, ...]:
    """Start an engine with settings that match torch, and return the names of those started.

    Args:
        arch: "cpu", "cuda", or "auto": CUDA if torch has it, else the CPU.
        engine: "taichi", "quadrants", or "auto": all engines imported so far, else Taichi if
            it is installed, else Quadrants. "python" starts the same ones on the CPU, for their fields and default
            types, and lets Python run the kernels of ops and layers.
        raise_on_nan: let the Python engine raise FloatingPointError at the first operation whose result is NaN although
            no operand is.
        raise_on_unwritten: let the Python engine raise ValueError where a kernel reads an element of an output or
            scratch that starts uninitialized (`init={"y": "empty"}`), and that no kernel has written.
        options: options of the engine's own `init`. A dtype of one engine is converted to the dtype of that name in the
            other. By default, floats have torch's default dtype, the CPU uses as many threads as torch, and Quadrants
            gets its gradient stack.

    Raises:
        ArgumentError: an option that the engine does not have, `raise_on_nan` or `raise_on_unwritten` without the
            Python engine, or a default dtype that is not the engine's.
        EngineError: the engine is not installed, torch does not have the arch, or an engine lacks the value of an
            option that was passed as a value of the other engine.

    Example:
        >>> ts.init("cpu", engine="taichi")
        ('taichi',)
    """
    asked = [name for name, one in (("nan", raise_on_nan), ("unwritten", raise_on_unwritten)) if one]
    if asked and "python" not in (engine, config().engine):
        words = (
            f"`raise_on_{asked[0]}` of ts.init works only with the Python engine: compiled engines have no such check"
        )
        raise ArgumentError(refusal(words, remedy='Add engine="python", or set TINSMITH_ENGINE=python.'))
    device = "cpu" if engine == "python" else _choose_device(arch)
    names = (engine,) if engine not in ("auto", "python") else list_loaded() or (choose_default(),)
    engines = [get(name) for name in names]
    translated = [{key: _translate_option(one, key, value) for key, value in options.items()} for one in engines]
    wait_for_launches()
    for one, own in zip(engines, translated, strict=True):
        try:
            # Not while another thread compiles for the state that this destroys.
            with COMPILING:
                one.start(device, **own)
        except KeyError as cause:  # both engines raise this for an option that they lack
            odd = next((key for key in own if key not in _list_options(one)), None)
            if odd is None:
                raise
            raise ArgumentError(_unknown_option(one, odd)) from cause
    run_on("python" if engine == "python" else None, Checks(raise_on_nan, raise_on_unwritten))
    return ("python",) if engine == "python" else names


def _list_options(engine: Engine) -> list[str]:
    """Return the names of the options of an engine's `init`, its compiler configuration included."""
    own = [name for name in inspect.signature(engine.lang.init).parameters if not name.startswith("_")]
    return [*own, *(name for name in dir(engine.lang.lang.impl.default_cfg()) if not name.startswith("_"))]


def _unknown_option(engine: Engine, name: str) -> str:
    guess = nearest(name, ["engine", *_list_options(engine)])
    words = f"ts.init got an unknown option `{name}`, which the `init` of {engine.name} does not have either"
    remedy = f"Did you mean `{guess}`?" if guess else f"Leave `{name}` out."
    if name in ("device", "backend"):
        remedy = "Name the device by the first argument, `ts.init('cpu')`, and an engine by `engine=`."
    return refusal(words, remedy=remedy)


def _translate_option(engine: Engine, option: str, value: Any) -> Any:
    """Convert an option's value that belongs to another engine to this engine's value of the same name."""
    if option in ("default_fp", "default_ip") and (isinstance(value, str | torch.dtype) or value in (int, float)):
        words = f"option `{option}` of ts.init must be a dtype of {engine.name}"
        name = getattr(value, "__name__", str(value)).removeprefix("torch.")
        short = {"double": "f64", "float": "f32", "int": "i32", "long": "i64"}.get(name)
        short = short or name.replace("float", "f").replace("int", "i")
        shown = f"{module_name(engine.name)}.{short}"
        remedy = f"Import {engine.name} and pass `{shown}`." if hasattr(engine.lang, short) else ""
        raise ArgumentError(refusal(words, [("got", repr(value))], remedy))
    others = [one for one in list_loaded() if one != engine.name]
    if not any(belongs_to(value, other) for other in others):
        return value
    name = public_name(value) or getattr(value, "name", "")  # a dtype's, or an enumeration's
    counterpart = getattr(engine.lang, name, None) if name else None
    if counterpart is None:
        words = (
            f"ts.init cannot pass the option `{option}` to {engine.name}, which has nothing called `{name or value}`"
        )
        remedy = f'Start each engine separately, with its own values: ts.init(engine="{engine.name}", {option}=...).'
        raise EngineError(refusal(words, [("got", repr(value))], remedy))
    return counterpart


def init_quietly(arch: str, engine: str) -> None:
    """Start an engine without printing its banner, for when tinsmith and not the user starts it."""
    os.environ.setdefault(f"ENABLE_{engine.upper()}_HEADER_PRINT", "False")
    _ = get(engine).lang  # imported before stdout is redirected: otherwise Taichi logs a warning
    with contextlib.redirect_stdout(io.StringIO()):
        init(arch, engine)


def _choose_device(arch: str) -> str:
    if arch == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if arch not in ("cpu", "cuda"):
        is_cpu = getattr(arch, "name", "") in ("x64", "arm64")  # `ti.cpu`
        guess = "cuda" if "gpu" in str(arch).lower() else nearest(str(arch), ["auto", "cpu", "cuda"])
        remedy = "Write ts.init('cpu')." if is_cpu else "Use 'auto', 'cpu' or 'cuda'."
        remedy = f"Did you mean {guess!r}? {remedy}" if guess and not is_cpu else remedy
        raise EngineError(refusal("ts.init got an unknown `arch`", [("got", repr(arch))], remedy))
    if arch == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            refusal("ts.init got the arch 'cuda', but torch has no CUDA device", remedy="Use ts.init('cpu').")
        )
    return arch
