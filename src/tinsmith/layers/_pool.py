"""Memory that layers own on an engine's side: gradient fields, and the fields behind a Tube."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from .._errors import KernelError, refusal
from ..engines import NAMES, Engine, gradient_field, survive_forks

FIELDS_LOCK = survive_forks(threading.RLock())
"""Fields are one memory for all threads and layers, and a call is several launches."""


class RolloutRecording(threading.local):
    """The rollout whose function this thread runs, in order to record its kernels; "" for none.

    Fields do not hold yet what the kernels before would leave there, so no layer may run meanwhile.
    """

    name = ""

    @contextlib.contextmanager
    def mark_recording(self, name: str) -> Iterator[None]:
        """Enter a context in which the rollout of this name is being recorded."""
        self.name = name
        try:
            yield
        finally:
            self.name = ""

    def refuse(self, layer: str) -> None:
        """Raise KernelError for a layer that is called by a function that is recorded."""
        if self.name:
            words = f"the function of {self.name} calls {layer}, but a layer cannot be recorded among the kernels"
            raise KernelError(
                refusal(
                    words, remedy="Call the layer's kernels instead, or call the layer before or after the rollout."
                )
            )


RECORDED = RolloutRecording()


class FieldTree:
    """Fields that are allocated together, and freed together once nobody runs on them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.builder = engine.lang.FieldsBuilder()
        self._tree: Any = None

    def field(self, dtype: torch.dtype, shape: tuple[int, ...], element: tuple[int, ...], has_gradient: bool) -> Any:
        """Make a dense field of numbers, vectors or matrices, and place it."""
        lang: Any = self._engine.lang
        maker = (lang.field, lang.Vector.field, lang.Matrix.field)[len(element)]
        field = maker(*element, dtype=getattr(lang, NAMES[dtype]), needs_grad=has_gradient)
        node = self.builder.dense(lang.axes(*range(len(shape))), shape) if shape else self.builder
        node.place(field, gradient_field(field)) if has_gradient else node.place(field)
        return field

    def finish(self) -> None:
        """Allocate."""
        self._tree = self.builder.finalize()

    def deactivate(self) -> None:
        """Take away what is active of sparse fields."""
        self.builder.deactivate_all()

    def live_as_long_as(self, user: object) -> None:
        """Free the fields when `user` is gone, unless the engine was started again: then they are gone already."""
        finalizer = weakref.finalize(user, _free, self._engine, self._engine.runtime(), self._tree)
        # At the end of the process the engine frees its fields itself, perhaps before this would run.
        finalizer.atexit = False


def make_field(engine: Engine, dtype: torch.dtype, shape: tuple[int, ...], element: tuple[int, ...]) -> Any:
    """Make and place a field that has no gradient."""
    tree = FieldTree(engine)
    field = tree.field(dtype, shape, element, has_gradient=False)
    tree.finish()
    return field


def _free(engine: Engine, runtime: Any, tree: Any) -> None:
    if not engine.is_current(runtime):
        return
    # Both engines (Taichi 1.7.4, Quadrants 1.3.3) fail an assertion, `data->struct_modules.erase(id)`, on fields made
    # before another thread first compiled a kernel, as the backward pass of a GPU's tensors does. Their memory stays
    # then until the engine is started again; nothing reads it.
    with contextlib.suppress(RuntimeError):
        tree.destroy()
