"""Record what an engine is given to compile, and launch none of it."""

from __future__ import annotations

import contextlib
import linecache
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

import torch

from tinsmith.compiling import _kernel_families
from tinsmith.engines import Compiled, CompileOptions
from tinsmith.engines._compiled_engine import CompiledEngine


@contextlib.contextmanager
def recorded_texts() -> Iterator[list[str]]:
    """Gather the texts of all kernels that an engine is given inside; a launch of one does nothing."""
    texts: list[str] = []

    def compile_nothing(
        engine: CompiledEngine,
        function: Callable[..., Any],
        templates: Mapping[str, Any],
        options: CompileOptions = CompileOptions(),  # noqa: B008  # a tuple, which nothing changes
        content: object = None,
    ) -> Compiled:
        del templates, content
        # Every text of the store was printed from IR, so the option that says so is not part of it.
        shown = [f"{name}={value!r}" for name, value in options._asdict().items() if name != "is_printed"]
        texts.append(
            f"# CompileOptions({', '.join(shown)})\n" + "".join(linecache.getlines(function.__code__.co_filename))
        )
        return Compiled(lambda *_: None, {name: name for name in function.__annotations__}, engine.runtime())

    # Kernels of one form share a compiled kernel from the fifth on: what is written would depend on those before.
    _kernel_families._FAMILIES.clear()
    with patch.object(CompiledEngine, "compile", compile_nothing):
        yield texts


def use_in_every_way(op: Callable[..., Any], inputs: tuple[Any, ...]) -> dict[str, str]:
    """Call an op forward and backward, over a batch, with tangents, and for a second derivative.

    Returns:
        By the way of using it, the texts of the kernels that it took first, or the refusal.
    """
    places = [place for place, one in enumerate(inputs) if isinstance(one, torch.Tensor) and one.is_floating_point()]
    floats = tuple(inputs[place].detach().clone() for place in places)

    def call(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        arguments = list(inputs)
        for place, one in zip(places, given, strict=True):
            arguments[place] = one
        result = op(*arguments)
        results = result if isinstance(result, tuple) else (result,)
        return tuple(one for one in results if one.is_floating_point())

    def differentiate() -> None:
        leaves = tuple(one.clone().requires_grad_() for one in floats)
        outputs = [one for one in call(*leaves) if one.requires_grad]
        torch.autograd.grad(outputs, leaves, [torch.ones_like(one) for one in outputs], allow_unused=True)

    def loss(*given: torch.Tensor) -> torch.Tensor:
        return torch.stack([one.sum().double() for one in call(*given)]).sum()

    every = tuple(range(len(floats)))
    batch = tuple(torch.stack([one, one]) for one in floats)
    ways: dict[str, Callable[[], Any]] = {
        "call": lambda: call(*floats),
        "backward": differentiate,
        "batch": lambda: torch.func.vmap(call)(*batch),
        "batch of gradients": lambda: torch.func.vmap(torch.func.grad(loss, every))(*batch),
        "tangent": lambda: torch.func.jvp(call, floats, floats),
        "tangent of the gradient": lambda: torch.func.jvp(torch.func.grad(loss, every), floats, floats),
    }
    return {way: record(use) for way, use in ways.items()}


def record(use: Callable[[], Any]) -> str:
    """Return the texts that are generated while an op is used, or its refusal."""
    with recorded_texts() as texts, warnings.catch_warnings():
        # pytest makes errors of them, which would be in place of the texts.
        warnings.simplefilter("ignore")
        try:
            use()
        except Exception as error:  # noqa: BLE001  # whatever is said belongs to what must not change
            texts.append(f"{type(error).__name__}: {error}")
    return "\n".join(texts)
