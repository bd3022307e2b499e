"""What the analyses of a kernel's tree ask of an engine: little enough to answer for a file that nobody runs."""

from __future__ import annotations

from typing import Any, Protocol


class Followed(Protocol):
    """Whoever knows which functions a kernel calls."""

    def inner_function(self, candidate: object) -> Any:
        """The function under an engine function's decorator, which `read` takes; None for other things."""
        ...

    def is_bound(self, function: object) -> bool:
        """Whether a call gives the function its object first."""
        ...

    def owns(self, value: object) -> bool:
        """Whether a value is the engine's own."""
        ...
