"""Tin: a data-oriented object as a torch module."""

from __future__ import annotations

from typing import Any

import torch

from ..._errors import ArgumentError, RegistrationError, nearest, refusal
from ...operation import Adjoint, Races
from ._empty_tin import EmptyTin
from ._marks import register_by_marks


class Tin(EmptyTin):
    """A differentiable torch module around a data-oriented object's kernels.

    Like `EmptyTin`, but kernels may also be registered by name. A class that marks its fields and
    kernels (`ts.input`, `ts.output`, `ts.weight`, `ts.kernel`) needs no registration.

    Args:
        data_oriented: an object of a class with the decorator `@ti.data_oriented`.
        device: as for `EmptyTin`, like `auto_clear_grad`, `save`, `on_tensors`
            and `adjoint`.

    Raises:
        ArgumentError: the object is not data-oriented.

    Example:
        >>> @ti.data_oriented
        ... class Scale:
        ...     def __init__(self):
        ...         self._x, self._y, self._w = (ti.field(ti.f32, 3, needs_grad=True) for _ in range(3))
        ...
        ...     @ts.input(batched=True)
        ...     def x(self):
        ...         return self._x
        ...
        ...     @ts.output
        ...     def y(self):
        ...         return self._y
        ...
        ...     @ts.weight(value=torch.ones(3))
        ...     def w(self):
        ...         return self._w
        ...
        ...     @ts.kernel
        ...     @ti.kernel
        ...     def run(self):
        ...         for i in self._x:
        ...             self._y[i] = self._w[i] * self._x[i]
        >>> layer = ts.Tin(Scale())
        >>> layer(torch.rand(16, 3)).shape, list(dict(layer.named_parameters()))
        (torch.Size([16, 3]), ['w'])
    """

    def __init__(
        self,
        data_oriented: Any,
        device: torch.device | str | None = None,
        auto_clear_grad: bool = True,
        _auto_clear: bool | None = None,
        *,
        save: bool = True,
        on_tensors: bool = False,
        adjoint: Adjoint = "auto",
        races: Races = "check",
    ) -> None:
        super().__init__(
            device, auto_clear_grad, _auto_clear, save=save, on_tensors=on_tensors, adjoint=adjoint, races=races
        )
        is_class = isinstance(data_oriented, type)
        if is_class or not hasattr(data_oriented, "_data_oriented"):
            rows = [("got", f"class {data_oriented.__name__}" if is_class else type(data_oriented).__name__)]
            remedy = "Decorate its class with @ti.data_oriented (or @qd.data_oriented), or use ts.EmptyTin."
            if is_class:
                remedy = f"Pass an object of it: `ts.Tin({data_oriented.__name__}(...))`."
            raise ArgumentError(refusal("Tin takes an object of a data-oriented class", rows, remedy))
        self.data_oriented = data_oriented
        if register_by_marks(self, data_oriented):
            self.finish()

    @property
    def _label(self) -> str:
        return f"Tin({type(self.data_oriented).__name__})" if "data_oriented" in vars(self) else "Tin"

    def register_kernel(self, kernel: Any, *kernel_args: Any, kernel_name: str | None = None) -> EmptyTin:
        """Register the next kernel to run: the kernel, or the name of the object's method. Returns self."""
        if isinstance(kernel, str):
            kernel_name = kernel if kernel_name is None else kernel_name
            attribute = getattr(self.data_oriented, kernel, None)
            if attribute is None:
                words = f"the object of {self._label} has no kernel `{kernel}`"
                known = [name for name in dir(type(self.data_oriented)) if not name.startswith("_")]
                close = nearest(kernel, known)
                raise RegistrationError(
                    refusal(words, remedy=f"Did you mean `{close}`?" if close else "Pass the name of a kernel method.")
                )
            kernel = attribute
        return super().register_kernel(kernel, *kernel_args, kernel_name=kernel_name)
