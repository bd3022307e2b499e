"""The options of learn-image, and its recipe: model and training of a configuration, resolved before anything is built.

A configuration has the sections of tiny-cuda-nn (`loss`, `optimizer`, `encoding`, `network`) and three keys of
learn-image: `grid_shape` (rows and columns of blocks, one network each), `steps` and `batch_size` (samples a step, for
each network). The summary that a run writes is a configuration too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._errors import ConfigError, nearest, refusal
from ...nn import Encoding, read
from ...nn.config import Section, resolve_section
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


_PARTS = ("loss", "optimizer", "encoding", "network")
_OWN = ("grid_shape", "steps", "batch_size")
_TOLD = ("photograph", "width", "height", "psnr_db", "step", "seconds", "parameters", "configuration")  # of a summary
_STEPS = 500
_BATCH_SIZE = {True: 256, False: 16384}  # of each network in an array; of a single network


@dataclass(frozen=True)
class Recipe:
    """A resolved configuration. `grid_shape` is the rows and columns of blocks, or None for a single network."""

    name: str
    loss: Section
    optimizer: Section
    encoding: Section
    network: Section
    grid_shape: tuple[int, int] | None
    steps: int
    batch_size: int

    def identity(self) -> dict[str, object]:
        """Return the entries that a checkpoint and a run that resumes from it must share."""
        parts = {part: json.dumps(getattr(self, part).config(), sort_keys=True) for part in _PARTS}
        return {**parts, "grid_shape": str(self.grid_shape), "batch_size": self.batch_size}


def find_shipped_configs() -> dict[str, Path]:
    """Return the paths of the configurations that come with tinsmith, by name."""
    folder = Path(__file__).parent / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def resolve_recipe(options: LearnOptions) -> Recipe:
    """Read the configuration of the options, and resolve it to a recipe.

    Raises:
        InputError: the configuration cannot be read.
        ConfigError: a name, value or size is invalid.
    """
    path = _path(options.config)
    config = read(path)
    if set(_TOLD) < set(config):
        config = {name: value for name, value in config.items() if name not in _TOLD}
    _refuse_unknown(path, config)
    sections = {part: resolve_section(part, config.get(part, {}), where=f"{path}: {part}") for part in _PARTS}
    grid = options.blocks or _grid(path, config.get("grid_shape"))
    # Raise the error now if the encoding does not accept two inputs.
    Encoding(2, sections["encoding"])
    steps = options.steps or _count(path, "steps", config.get("steps", _STEPS))
    batch_size = options.batch_size or _count(
        path, "batch_size", config.get("batch_size", _BATCH_SIZE[grid is not None])
    )
    return Recipe(path.stem, **sections, grid_shape=grid, steps=steps, batch_size=batch_size)


def _path(given: str | Path) -> Path:
    known = find_shipped_configs()
    if str(given) in known:
        return known[str(given)]
    path = Path(given)
    if path.exists():
        return path
    guess = nearest(str(given), list(known))
    rows = [("got", str(given)), ("known by name", ", ".join(known))]
    remedy = f"Did you mean `{guess}`? Else pass the path of a JSON file." if guess else "Pass the path of a JSON file."
    raise ConfigError(refusal("there is no such configuration", rows, remedy))


def _refuse_unknown(path: Path, config: Mapping[str, Any]) -> None:
    known = [*_PARTS, *_OWN]
    for name in config:
        if name not in known:
            guess = nearest(str(name), known)
            remedy = f"Did you mean `{guess}`?" if guess else "Leave it out."
            words = f"`{path}: {name}` is not a key of learn-image"
            raise ConfigError(refusal(words, [("expected", ", ".join(known))], remedy))


def _grid(path: Path, given: Any) -> tuple[int, int] | None:
    if given is None:
        return None
    fits = isinstance(given, list) and len(given) == 2
    if not fits or not all(type(size) is int and size > 0 for size in given):
        raise _misfit(path, "grid_shape", given, "rows and columns of blocks, such as [16, 14]")
    return (given[0], given[1])


def _count(path: Path, name: str, given: Any) -> int:
    if type(given) is not int or given < 1:
        raise _misfit(path, name, given, "a whole number, 1 or more")
    return given


def _misfit(path: Path, name: str, value: Any, expected: str) -> ConfigError:
    words = f"`{path}: {name}` has an invalid value"
    return ConfigError(refusal(words, [("got", json.dumps(value)), ("expected", expected)]))
