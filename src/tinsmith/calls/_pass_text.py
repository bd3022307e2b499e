"""Pass text: the text of a Python function under construction, with its variables and their memory.

Which actions it does, and in which order, is decided by `PassWriter`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._config import config
from ._buffers import poison
from ._memory import clear, make_large, make_recycled, make_recycled_zeros

Pass = Callable[[Any, Sequence["torch.Tensor | None"], Sequence[int], Mapping[str, Any]], Any]
"""A pass as a function. It takes the inputs (in a backward pass the saved values, by name), the cotangents, the numbers
of the call's sizes and its scalars. It returns a tuple of results; or, if its tapes would exceed the limit, the number
of bytes that they need."""


class PassText:
    """The lines of a pass of an op.

    Variables: `n0`, `n1`, ... are the numbers of sizes, `m2` is memory, and `p2` is its address.

    Attributes:
        names: values that the function uses from outside, by their names in it.
        places: the numbers of memory variables, by the names of the arrays; `shapes` and `dtypes` are the memory's.
    """

    def __init__(self, op: str, device: torch.device) -> None:
        self.op = op
        self.names: dict[str, Any] = {}
        self.lines: list[str] = []
        self.indent = "    "
        self.places: dict[str, int] = {}
        self.shapes: dict[str, tuple[str, ...]] = {}
        self.dtypes: dict[str, torch.dtype] = {}
        self.count = 0
        self.recycles = False
        self._device = device

    @property
    def device(self) -> str:
        return self.bind(self._device, "device")

    def add(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def fresh(self, letter: str) -> str:
        """Return the name of a new variable, which begins with `letter`."""
        self.count += 1
        return f"{letter}{self.count}"

    def memory(self, name: str) -> str:
        """Return the variable of an array's memory."""
        return f"m{self.places[name]}"

    def pointer(self, name: str) -> str:
        """Return the variable of the address of an array's memory."""
        return f"p{self.places[name]}"

    def bind(self, value: Any, called: str) -> str:
        """Make a value from outside available to the function. Return its name there: `called`, or similar."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.fresh(called) if called in self.names else called
        self.names[name] = value
        return name

    def constant(self, value: Any) -> str:
        """Return the code of a constant: a literal if Python can write it, otherwise the name of a bound value."""
        is_plain = isinstance(value, int) or (isinstance(value, tuple) and all(isinstance(one, int) for one in value))
        return repr(value) if is_plain else self.bind(value, "slot")

    def compile(self, text: str) -> Pass:
        """Compile the text to a function, and store the text as its docstring."""
        exec(compile(text, f"<a call of {self.op}>", "exec"), self.names)
        run = self.names.pop("run")
        run.__doc__ = text
        return run

    def put(self, name: str, value: str, shape: Sequence[str], dtype: torch.dtype) -> None:
        """Write the lines that store memory and its address in variables, and give it an array's name.

        Memory that had the name before loses it.
        """
        self.count += 1
        self.places[name] = self.count
        self.shapes[name], self.dtypes[name] = tuple(shape), dtype
        self.add(f"{self.memory(name)} = {value}")
        self.add(f"{self.pointer(name)} = {self.memory(name)}.data_ptr()")

    def create(self, shape: Sequence[str], dtype: torch.dtype, *, is_zero: bool, is_own: bool = True) -> str:
        """Return the code that allocates memory.

        It copies the form of other memory of equal shape and dtype if there is some, which is faster.

        Args:
            shape: the code of each size.
            dtype: the dtype.
            is_zero: whether it is zeroed.
            is_own: whether the pass does not return it, so that it may be recycled.
        """
        memory = f"({self.tuple_of(shape)}, {self.bind(dtype, 'dtype')}, {self.device})"
        poisoned = f"{self.bind(poison, 'poisoned')}({{}})" if config().poison and not is_zero else "{}"
        if self.recycles and is_own:
            recycled = self.bind(make_recycled_zeros if is_zero else make_recycled, "make_recycled")
            return poisoned.format(recycled + memory)
        twin = next((n for n in self.places if self.shapes[n] == shape and self.dtypes[n] == dtype), None)
        if twin is not None:
            like = {False: self.bind(torch.empty_like, "empty_like"), True: self.bind(torch.zeros_like, "zeros_like")}
            arguments = self.memory(twin)
        else:
            like = {False: self.bind(torch.empty, "empty"), True: self.bind(torch.zeros, "zeros")}
            arguments = f"{', '.join(shape) or '()'}, dtype={self.bind(dtype, 'dtype')}, device={self.device}"
        made = f"{like[is_zero]}({arguments})"
        if self._device.type == "cpu":
            new = like[False]
            large = f"{self.bind(make_large, 'make_large')}{memory} if is_large else {new}({arguments})"
            made = f"({self.bind(clear, 'clear')}({large}) if is_long else {made})" if is_zero else f"({large})"
        return poisoned.format(made)

    def tuple_of(self, texts: Sequence[str]) -> str:
        return f"({''.join(f'{text}, ' for text in texts)})"
