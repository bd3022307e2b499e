"""Checks that the private names and behavior of the engines that tinsmith relies on still exist.

An engine's file lists the names; here they are looked up in the engines that are installed. The behavior of
reverse-mode kernels is checked by running one, if the engine is started. There is no `__future__` import here, because
both engines refuse it for the kernel.
"""

from types import FunctionType, ModuleType
from typing import Any

import torch

from ._contract import CompileOptions, Engine, Facts, Probe
from ._registry import get, list_installed


def run_probes() -> tuple[Probe, ...]:
    """Check every private name and behavior of every installed engine that tinsmith relies on. Import the engines.

    Example:
        >>> [probe.name for probe in run_probes() if not probe.ok]
        []
    """
    return tuple(probe for name in list_installed() for probe in _probes(get(name)))


def _probes(engine: Engine) -> list[Probe]:
    facts = engine.facts()
    kernel = engine.lang.kernel(_build_doubling(engine.lang))
    probes = [_check_path(engine, facts, kernel, path) for path in facts.paths]
    if engine.runtime() is not None and engine.device_type() == "cpu":
        probes += _check_reverse_mode(engine)
    return probes


def _check_path(engine: Engine, facts: Facts, kernel: Any, path: str) -> Probe:
    """Check that an object of the engine has the attributes of a dotted path, one inside another."""
    root, *attributes = path.split(".")
    value: Any = kernel if root == "kernel" else facts.roots[root]
    for attribute in attributes:
        if not hasattr(value, attribute):
            return Probe(path, engine.name, False, f"`{attribute}` is gone: see engines/_{engine.name}.py")
        value = getattr(value, attribute)
    return Probe(path, engine.name, True, "")


def _check_reverse_mode(engine: Engine) -> list[Probe]:
    """Run an engine's reverse-mode kernel and check how it changes memory."""
    compiled = engine.compile(_build_doubling(engine.lang), {}, CompileOptions(adjoint=True))
    x, y, gradient, adjoint = torch.ones(4), torch.full((4,), 7.0), torch.ones(4), torch.full((4,), 3.0)
    slots = compiled.slots
    pairs = {"x": (x, gradient), "y": (y, adjoint)}
    compiled.launch([(slots[n], one.data_ptr(), 16, (4,), slope.data_ptr()) for n, (one, slope) in pairs.items()], ())
    facts = {
        "a reverse kernel adds to an input's adjoint": (gradient, 7.0),
        "a reverse kernel zeroes the adjoint of a stored output": (adjoint, 0.0),
        "a reverse kernel leaves the values of a stored output alone": (y, 7.0),
    }
    return [_compare_memory(engine, name, memory, wanted) for name, (memory, wanted) in facts.items()]


def _compare_memory(engine: Engine, name: str, memory: torch.Tensor, wanted: float) -> Probe:
    is_right = bool((memory == wanted).all())
    return Probe(name, engine.name, is_right, "" if is_right else f"gave {memory.tolist()}, not {wanted}")


def _build_doubling(_lang: ModuleType) -> FunctionType:
    """Return a plain function that computes `y = 2 x`, fully annotated and not yet decorated as a kernel."""
    array = _lang.types.ndarray(dtype=_lang.f32, ndim=1, needs_grad=True)

    def double(x: array, y: array):  # noqa: ANN202  # pyright: ignore[reportInvalidTypeForm]  # an engine's
        for i in x:
            y[i] = 2.0 * x[i]

    return double
