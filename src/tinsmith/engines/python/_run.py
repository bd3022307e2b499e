"""The interface of an interpreter for the functions and constructors that it calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from .._contract import Engine
from .._language import Language
from ._numbers import Defaults
from ._operations import Operations


class Run(ABC):
    """The members of an interpreter that built-in functions and constructors use."""

    engine: Engine
    language: Language
    operations: Operations
    defaults: Defaults
    random: np.random.Generator
    add: Callable[[Any, Any], Any]
    multiply: Callable[[Any, Any], Any]

    @abstractmethod
    def capture(self, value: Any, name: str = "a field") -> Any:
        """Convert a Python-scope vector, matrix, struct or field to a value of the run."""

    @abstractmethod
    def let(self, value: Any) -> Any:
        """Return the value of a new local: copy vectors and structs, and convert Python numbers to a kernel type."""

    @abstractmethod
    def dtype_name(self, value: Any) -> str | None:
        """Return the name of a dtype; None for anything else."""
