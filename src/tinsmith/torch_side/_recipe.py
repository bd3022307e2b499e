"""Recipes: descriptions of the library's own ops in exported graphs, from which another process can make the ops."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .._errors import GraphError, refusal
from ..engines import list_installed


class Recipe(NamedTuple):
    """A description of one of the library's own ops, from which any process can make it.

    Attributes:
        family: a name that was registered with `register_family`.
        engine: the name of the engine of the op's kernels.
        details: strings, numbers and booleans that determine the op, together with device and dtype.
    """

    family: str
    engine: str
    details: tuple[Any, ...]

    def write(self) -> str:
        """Return the recipe as the text that graphs contain."""
        # JSON cannot encode NumPy's numbers.
        return json.dumps([self.family, self.engine, *self.details], default=lambda number: number.item())

    @classmethod
    def read(cls, text: str) -> Recipe:
        """Parse the text that `write` returned. An engine that is not installed is replaced by one that is.

        Raises:
            GraphError: the text is not a recipe.
        """
        try:
            family, engine, *details = json.loads(text)
        except (ValueError, TypeError, RecursionError) as cause:
            words = "a graph calls an op of tinsmith by a recipe that cannot be read"
            raise GraphError(refusal(words, [("recipe", f"{text:.80}")], "Export the graph again.")) from cause
        installed = list_installed()
        return cls(family, engine if engine in installed else installed[0], tuple(details))
