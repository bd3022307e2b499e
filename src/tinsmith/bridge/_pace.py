"""Pace: which passes are so short that their launches had better use one thread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..engines import Launch

SERIAL_LIMIT = 400e-6
"""Seconds. A serial launch that takes longer would have been worth waking the thread pool for."""
SLOW_LAUNCHES = 4
"""That many in a row, and the thread pool is used: one may be slow by accident."""


@dataclass(eq=False)
class Pace:
    """What all plans of an op have learned about serial launches: of its forward pass, or of its backward passes.

    Size alone does not tell how long a kernel takes. An op whose serial launches turn out slow
    uses the thread pool from that size on, in every plan. `_started` are kernels that were launched before.
    """

    serial_below: int
    slow_in_a_row: int = 0
    _started: set[Launch] = field(default_factory=set)

    @property
    def limit(self) -> float:
        """Seconds that a serial launch may take."""
        return SERIAL_LIMIT

    def note(self, seconds: float, elements: int, kernels: Iterable[Launch] = ()) -> None:
        """Learn from a serial launch of these kernels over so many elements: seconds for each."""
        if seconds > SERIAL_LIMIT and not self._started.issuperset(kernels):
            # an engine makes machine code at a kernel's first launch, and one call has several first launches
            self._started.update(kernels)
            return
        self.slow_in_a_row = self.slow_in_a_row + 1 if seconds > SERIAL_LIMIT else 0
        if self.slow_in_a_row >= SLOW_LAUNCHES:
            self.serial_below = min(self.serial_below, elements)
            self.slow_in_a_row = 0
