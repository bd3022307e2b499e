"""A run, as the builders of its functions and constructors see it."""

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
    """What an interpreter offers to the functions and constructors that it calls."""

    engine: Engine
    language: Language
    operations: Operations
    defaults: Defaults
    random: np.random.Generator
    add: Callable[[Any, Any], Any]
    multiply: Callable[[Any, Any], Any]

    @abstractmethod
    def capture(self, value: Any, name: str = "a field") -> Any:
        """Return a value that Python holds as one of the run."""

    @abstractmethod
    def let(self, value: Any) -> Any:
        """Return the first value of a local: vectors and structs are copied, Python's numbers get a type."""

    @abstractmethod
    def dtype_name(self, value: Any) -> str | None:
        """Return the name of a dtype; None for anything else."""
