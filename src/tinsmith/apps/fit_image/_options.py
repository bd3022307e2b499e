"""What a fit is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..._errors import InputError, refusal

_AT_LEAST = {"gaussians": 1, "steps": 1, "size": 1}


@dataclass(frozen=True)
class FitOptions:
    """What a fit is asked to do; `tinsmith fit-image --help` explains each.

    Raises:
        InputError: a number below what makes sense.
    """

    out: Path
    image: Path | None = None
    gaussians: int = 2000
    steps: int = 500
    size: int = 256
    seed: int = 0
    engine: str = "taichi"
    device: str = "cpu"
    resume: bool = False

    def __post_init__(self) -> None:
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise InputError(
                    refusal(f"`{name}` is too small", [("came", str(value)), ("wanted", f"{least} or more")])
                )
