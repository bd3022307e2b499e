"""Launches of the Python engine: a rewritten kernel runs on raw memory."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from ..._tracebacks import PYTHON_LAUNCHES
from .._annotations import NAMES
from .._contract import ArrayArgument, HeldLaunch, Parameter, ScalarArgument
from ._interpreter import Interpreter
from ._memory import ArrayView, find_write_mask
from ._numbers import TYPES
from ._values import Matrix

MANY_ELEMENTS = 100_000
"""The number of elements of an array above which the engine warns that it is slow."""


def run_kernel(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Call a rewritten kernel with its arguments by name.

    A breakpoint here, followed by `step` in a debugger, enters any kernel, even a generated gradient, which is not in
    a file.
    """
    function(**arguments)


class Launch:
    """A callable that runs a rewritten kernel on raw memory."""

    def __init__(
        self,
        function: Callable[..., Any],
        run: Interpreter,
        parameters: Mapping[str, Parameter],
        templates: Mapping[str, Any],
        fields: Mapping[str, Any],
        copies: Mapping[str, str],
        batched: frozenset[str],
        labels: Mapping[str, str],
        lock: AbstractContextManager[Any],
        warn_of_size: Callable[[str, int], None],
    ) -> None:
        self._function, self._run = function, run
        self._lock, self._warn_of_size = lock, warn_of_size
        self._parameters, self._templates = parameters, templates
        self._fields, self._copies, self._batched, self._labels = fields, copies, batched, labels

    def __call__(self, arrays: Sequence[ArrayArgument], scalars: Sequence[ScalarArgument] = ()) -> None:
        if torch.compiler.is_compiling():
            # torch's compiler would trace the kernel with its own arrays instead of NumPy's.
            outside: Any = torch.compiler.disable(self._launch)
            outside(arrays, scalars)
        else:
            self._launch(arrays, scalars)

    def hold(self, arrays: Sequence[ArrayArgument], scalars: Sequence[ScalarArgument]) -> HeldLaunch:
        """Return a launch that keeps these arguments until they are replaced."""
        held_arrays = {array[0]: array for array in arrays}
        held_scalars = {scalar[1]: scalar for scalar in scalars}

        def put(*array: Any) -> None:
            held_arrays[array[0]] = array

        def run() -> None:
            self(tuple(held_arrays.values()), tuple(held_scalars.values()))

        def setter(kind: str) -> Callable[[Any, Any], None]:
            def set_scalar(slot: Any, value: Any) -> None:
                held_scalars[slot] = (kind, slot, value)

            return set_scalar

        return HeldLaunch(put, run, setter)

    def _launch(self, arrays: Sequence[ArrayArgument], scalars: Sequence[ScalarArgument]) -> None:
        memory = {slot: self._memory(slot, address, size, shape) for slot, address, size, shape, _ in arrays}
        written = {slot: find_write_mask(address, memory[slot].size) for slot, address, *_ in arrays}
        given = dict(self._templates) | {slot: self._scalar(slot, value) for _, slot, value in scalars}
        count = min((len(memory[name]) for name in self._batched), default=1)
        with self._lock:
            self._run_samples(memory, written, given, count)

    def _run_samples(
        self,
        memory: Mapping[str, np.ndarray],
        written: Mapping[str, np.ndarray | None],
        given: Mapping[str, Any],
        count: int,
    ) -> None:
        try:
            with np.errstate(all="ignore"):
                for sample in range(count):
                    views = {name: self._view(name, data, written[name], sample) for name, data in memory.items()}
                    for made, of in self._copies.items():
                        np.copyto(views[made].data, views[of].data)
                    self._run.replace_fields(
                        [(field, self._labels[name], views.pop(name, None)) for name, field in self._fields.items()]
                    )
                    run_kernel(self._function, {**given, **views})
        except BaseException:
            self._run.forget_fields()
            raise
        self._run.write_fields()

    def _memory(self, name: str, address: int, size: int, shape: Sequence[int]) -> np.ndarray:
        """Return an array's memory as a NumPy array."""
        parameter = self._parameters[name]
        assert parameter.dtypes is not None
        dtype = TYPES[NAMES[parameter.dtypes[0]]]
        dims = (*shape, *parameter.element)
        count = math.prod(dims)
        if count > MANY_ELEMENTS:
            self._warn_of_size(name, count)
        if not count:
            return np.empty(dims, dtype)
        memory: Any = (ctypes.c_byte * size).from_address(address)
        return np.frombuffer(memory, dtype, count).reshape(dims)

    def _view(self, name: str, data: np.ndarray, written: np.ndarray | None, sample: int) -> ArrayView:
        written = None if written is None else written.reshape(data.shape)
        if name in self._batched:
            data, written = data[sample, ...], None if written is None else written[sample, ...]
        parameter = self._parameters[name]
        operations = self._run.operations
        is_clamped = parameter.boundary == "clamp"
        label = self._labels.get(name, "")
        return ArrayView(name, data, parameter.element, operations, label, is_clamped=is_clamped, written=written)

    def _scalar(self, name: str, value: Any) -> Any:
        parameter = self._parameters[name]
        assert parameter.dtypes is not None
        # A parameter of Python's `int` accepts any integer dtype, and has the engine's default type.
        default = {"int": self._run.defaults.ip, "float": self._run.defaults.fp}.get(parameter.text)
        cast = self._run.operations.arithmetic.plain_casts[default or NAMES[parameter.dtypes[0]]]
        if not parameter.element:
            return cast(value)
        return Matrix(parameter.element, [cast(one) for one in value], self._run.operations)


PYTHON_LAUNCHES.add(Launch.__call__.__code__)
