"""Pass text: the text of a Python function under construction, with its variables and their memory.

The `PassWriter` decides on its actions and their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._config import config
from ._buffers import poison
from ._large_memory import in_huge_pages
from ._recycled_memory import make_recycled, make_recycled_zeros

Pass = Callable[[Any, Sequence["torch.Tensor | None"], Sequence[int], Mapping[str, Any]], Any]
"""A program as a function: of its inputs (of a backward pass what was saved, by name), of cotangents, of the numbers of
the call's sizes and of its scalars. It returns a tuple of results; or how many bytes of tape it would have taken, where
these are too many."""


class PassText:
    """Lines of a pass of an op.

    Its variables: `n0`, `n1` are the numbers of sizes, `m2` is memory, `p2` its address.

    Attributes:
        names: values from outside, by the names that the function has for them.
        places: numbers of the memory's variables, by the names of arrays; `shapes` and `dtypes` are the memory's.
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
        """A new variable."""
        self.count += 1
        return f"{letter}{self.count}"

    def memory(self, name: str) -> str:
        """The variable of some memory."""
        return f"m{self.places[name]}"

    def pointer(self, name: str) -> str:
        """The variable of its address."""
        return f"p{self.places[name]}"

    def bind(self, value: Any, called: str) -> str:
        """A name for a value from outside: `called`, or like it."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.fresh(called) if called in self.names else called
        self.names[name] = value
        return name

    def constant(self, value: Any) -> str:
        """A value that stands in the code where Python can write it."""
        is_plain = isinstance(value, int) or (isinstance(value, tuple) and all(isinstance(one, int) for one in value))
        return repr(value) if is_plain else self.bind(value, "slot")

    def compile(self, text: str) -> Pass:
        """The text as a function, whose docstring it is."""
        exec(compile(text, f"<a call of {self.op}>", "exec"), self.names)
        run = self.names.pop("run")
        run.__doc__ = text
        return run

    def put(self, name: str, value: str, shape: Sequence[str], dtype: torch.dtype) -> None:
        """Give memory a name, which other memory may have had."""
        self.count += 1
        self.places[name] = self.count
        self.shapes[name], self.dtypes[name] = tuple(shape), dtype
        self.add(f"{self.memory(name)} = {value}")
        self.add(f"{self.pointer(name)} = {self.memory(name)}.data_ptr()")

    def create(self, shape: Sequence[str], dtype: torch.dtype, *, is_zero: bool, is_own: bool = True) -> str:
        """Code for new memory: like other memory where there is some, for saying it again costs more.

        `is_own` says that the pass does not return it.
        """
        if self.recycles and is_own:
            recycled = self.bind(make_recycled_zeros if is_zero else make_recycled, "make_recycled")
            made = f"{recycled}({self.tuple_of(shape)}, {self.bind(dtype, 'dtype')}, {self.device})"
            return f"{self.bind(poison, 'poisoned')}({made})" if config().poison and not is_zero else made
        twin = next((n for n in self.places if self.shapes[n] == shape and self.dtypes[n] == dtype), None)
        if twin is not None:
            like = {False: self.bind(torch.empty_like, "empty_like"), True: self.bind(torch.zeros_like, "zeros_like")}
            arguments = self.memory(twin)
        else:
            like = {False: self.bind(torch.empty, "empty"), True: self.bind(torch.zeros, "zeros")}
            arguments = f"{', '.join(shape) or '()'}, dtype={self.bind(dtype, 'dtype')}, device={self.device}"
        made = f"{like[is_zero]}({arguments})"
        if self._device.type == "cpu":
            large = f"{self.bind(in_huge_pages, 'in_huge_pages')}({like[False]}({arguments}))"
            made = f"({large}{'.zero_()' if is_zero else ''} if is_large else {made})"
        return f"{self.bind(poison, 'poisoned')}({made})" if config().poison and not is_zero else made

    def tuple_of(self, texts: Sequence[str]) -> str:
        return f"({''.join(f'{text}, ' for text in texts)})"
