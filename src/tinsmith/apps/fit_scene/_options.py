"""The options of fit-scene."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ..._errors import InputError, refusal
from .._run import require_at_least
from ..scenes import require_background


@dataclass(frozen=True)
class SceneOptions:
    """The options of fit-scene; `tinsmith fit-scene --help` describes each.

    `rays` is the number of rays per step, `samples` the number of samples of a ray that crosses the whole box, if all
    of it is occupied. The scene lies within -`bound` to `bound` on each axis.

    Raises:
        InputError: a number is too small, or the background is unknown.
    """

    out: Path
    dataset: Path | None = None
    steps: int = 1000
    rays: int = 2048
    size: int = 64
    bound: float = 1.5
    samples: int = 96
    background: str = "white"
    distortion: float = 0.0
    seed: int = 1337
    engine: str | None = None
    device: str = "cpu"
    tensorboard: bool = False
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_at_least(1, steps=self.steps, rays=self.rays, samples=self.samples)
        require_at_least(16, size=self.size)
        require_at_least(0, seed=self.seed)
        _require_number("bound", self.bound, "a number above 0", 0 < self.bound < math.inf)
        _require_number("distortion", self.distortion, "0 or a number above", 0 <= self.distortion < math.inf)
        require_background(self.background)


def _require_number(name: str, value: float, wanted: str, fits: bool) -> None:
    if not fits:
        raise InputError(refusal(f"`{name}` has an invalid value", [("got", str(value)), ("expected", wanted)]))
