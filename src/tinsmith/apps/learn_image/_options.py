"""The options of learn-image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .._run import require_at_least


@dataclass(frozen=True)
class LearnOptions:
    """The options of learn-image; `tinsmith learn-image --help` describes each.

    `steps`, `batch_size` and `blocks` (rows, columns) override the configuration; None uses the configuration's.

    Raises:
        InputError: a number is too small.
    """

    out: Path
    image: Path | None = None
    config: str | Path = "hash-grid"
    steps: int | None = None
    batch_size: int | None = None
    blocks: tuple[int, int] | None = None
    size: int = 512
    seed: int = 1337
    engine: str | None = None
    device: str = "cpu"
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        given = {"steps": self.steps, "batch_size": self.batch_size, "size": self.size}
        require_at_least(1, **{name: value for name, value in given.items() if value is not None})
        require_at_least(0, seed=self.seed)
        if self.blocks is not None:
            require_at_least(1, blocks=min(self.blocks))
