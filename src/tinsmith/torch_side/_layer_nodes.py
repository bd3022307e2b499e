"""Layers under torch's tracers that read Python: `torch.fx.symbolic_trace` and `torch.jit.script`.

In a graph of `torch.fx.symbolic_trace` a call of a layer is one node, as with torch's own layers: a layer reads the
dtypes and sizes of its inputs, which are unknown while the graph is traced. `torch.jit.script` cannot compile a layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from .._errors import ArgumentError, refusal
from .._tracebacks import hide_frames
from ..tracing import is_tracing

Forward = TypeVar("Forward", bound=Callable[..., Any])


class Layer(torch.nn.Module):
    """Base class of this library's modules."""

    def __prepare_scriptable__(self) -> Any:
        """Refuse `torch.jit.script`, which calls this method for each module.

        Without it, torch's error would point into this library.

        Raises:
            ArgumentError: always.
        """
        words = f"torch.jit.script cannot compile a layer of type {type(self).__name__}"
        rows = [("layer", f"{' '.join(repr(self).split()):.100}")]
        raise ArgumentError(refusal(words, rows, "Use torch.export.export, torch.compile or torch.jit.trace."))


def one_node(forward: Forward) -> Forward:
    """Decorate the `forward` of a module so that `torch.fx.symbolic_trace` records a call as one node.

    Raises:
        ArgumentError: the module is not part of the traced module, so that the node would have no name.
    """

    @functools.wraps(forward)
    def record_or_run(module: torch.nn.Module, *inputs: Any, **named: Any) -> Any:
        # A list, since torch 2.6's compiler cannot read a generator here.
        proxies = [one for one in (*inputs, *named.values()) if isinstance(one, torch.fx.Proxy)]
        if proxies:
            return _record(module, proxies[0], inputs, named)
        try:
            return forward(module, *inputs, **named)
        except Exception as error:
            # A compiler that traces this follows no tracebacks.
            if not is_tracing():
                hide_frames(error)
            raise

    return record_or_run  # type: ignore[return-value]


def _record(module: torch.nn.Module, proxy: torch.fx.Proxy, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
    tracer: Any = proxy.tracer
    try:
        path = tracer.path_of_module(module)
    except NameError:
        path = ""
    if not path:
        words = f"torch.fx traces a call of a {type(module).__name__} that is not part of the traced module"
        remedy = "Trace a module that has it as an attribute, such as `torch.nn.Sequential(layer)`."
        raise ArgumentError(refusal(words, remedy=remedy))
    return tracer.create_proxy("call_module", path, inputs, named)
