"""The options of a fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...engines import choose_default
from .._run import require_at_least


@dataclass(frozen=True)
class FitOptions:
    """The options of a fit; `tinsmith fit-image --help` describes each.

    Raises:
        InputError: a number is too small.
    """

    out: Path
    image: Path | None = None
    gaussians: int = 2000
    steps: int = 500
    size: int = 256
    seed: int = 0
    engine: str = field(default_factory=choose_default)
    device: str = "cpu"
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_at_least(1, gaussians=self.gaussians, steps=self.steps, size=self.size)
