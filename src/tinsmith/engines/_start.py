"""Starting an engine so that it matches torch."""

from __future__ import annotations

from typing import Any

import torch

from .._errors import EngineError, refusal
from ._registry import get, loaded


def init(arch: str = "auto", engine: str = "auto", **options: Any) -> tuple[str, ...]:
    """Start an engine to match torch, and return the names of those started.

    Args:
        arch: "cpu", "cuda", or "auto": CUDA if torch has it, else the CPU.
        engine: "taichi", "quadrants", or "auto": every engine imported so far, else Taichi.
        options: handed to the engine's own `init`. Unless given, floats default to torch's
            default dtype and the CPU uses as many threads as torch; Quadrants gets its
            gradient stack.

    Raises:
        EngineError: the engine is not installed, or the arch is not one that torch has.

    Example:
        >>> import tinsmith as ts
        >>> ts.init("cpu", engine="taichi")
        ('taichi',)
    """
    device = _device(arch)
    names = (engine,) if engine != "auto" else loaded() or ("taichi",)
    for name in names:
        get(name).start(device, **options)
    return names


def _device(arch: str) -> str:
    if arch == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if arch not in ("cpu", "cuda"):
        raise EngineError(
            refusal("ts.init does not know this arch", [("came", repr(arch))], "Use 'auto', 'cpu' or 'cuda'.")
        )
    if arch == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            refusal("torch has no CUDA device, so an op could not run on one", remedy="Use ts.init('cpu').")
        )
    return arch
