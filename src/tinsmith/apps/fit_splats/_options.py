"""The options of fit-splats."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..._errors import InputError, nearest, refusal
from .._run import require_at_least
from ..scenes import require_background

STRATEGIES = ("default", "mcmc")
_MOST_DEGREE = 4


@dataclass(frozen=True)
class SplatOptions:
    """The options of fit-splats; `tinsmith fit-splats --help` describes each.

    `gaussians` is the initial number of Gaussians, `most` their maximum number.

    Raises:
        InputError: a number is out of range, or the background or strategy is unknown.
    """

    out: Path
    dataset: Path | None = None
    steps: int = 1000
    size: int = 64
    gaussians: int = 2000
    most: int = 20_000
    degree: int = 2
    strategy: str = "default"
    background: str = "white"
    seed: int = 1337
    engine: str | None = None
    device: str = "cpu"
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_at_least(1, steps=self.steps, gaussians=self.gaussians)
        require_at_least(self.gaussians, most=self.most)
        require_at_least(16, size=self.size)
        require_at_least(0, seed=self.seed, degree=self.degree)
        if self.degree > _MOST_DEGREE:
            raise InputError(refusal("`degree` is too large", [("got", str(self.degree)), ("expected", "0 to 4")]))
        require_background(self.background)
        if self.strategy not in STRATEGIES:
            guess = nearest(self.strategy, STRATEGIES)
            rows = [("got", self.strategy), ("expected", ", ".join(STRATEGIES))]
            raise InputError(refusal("there is no such strategy", rows, f"Did you mean `{guess}`?" if guess else ""))
