"""Learning a scene: the interface of a training, for any renderer, and its history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from .._film import as_pixels, psnr_of_pixels
from .._loop import Reached
from ._views import Dataset, Views

_LOOKED_AT = 2  # held-out views at a look in between; all of them are looked at in the end


@dataclass
class History:
    """The training so far: the loss before each step, and looks at held-out views in between.

    `looked` are the steps of the looks, `psnrs` what they found, of `_LOOKED_AT` views.
    """

    losses: list[float] = field(default_factory=list)
    looked: list[int] = field(default_factory=list)
    psnrs: list[float] = field(default_factory=list)


class Rendered(Protocol):
    """A picture: `colour` (h, w, 3), `opacity` (h, w), `depth` (h, w), not divided by the opacity."""

    @property
    def colour(self) -> Tensor: ...
    @property
    def opacity(self) -> Tensor: ...
    @property
    def depth(self) -> Tensor: ...


class SceneTraining(Protocol):
    """A model on its way to a scene; `ground` (3) is what pictures are laid on.

    `psnr` is of the held-out views that were looked at last, in dB; nan before.
    """

    step: int
    steps: int
    history: History

    @property
    def psnr(self) -> float: ...
    @property
    def dataset(self) -> Dataset: ...
    @property
    def ground(self) -> Tensor: ...

    def view(self, views: Views, number: int, /) -> Rendered:
        """Render the view of a picture."""
        ...

    def render_camera(self, pose: Tensor, intrinsics: Tensor, size: tuple[int, int], convention: str, /) -> Rendered:
        """Render any camera's view; `size` is (width, height), `convention` that of the pose: "opengl" or "opencv"."""
        ...


@dataclass(frozen=True)
class SceneReached(Reached):
    """What a training reached; `psnr` and `ssim` are means over `held_out` views."""

    ssim: float
    held_out: int


def look(training: SceneTraining) -> None:
    """Evaluate the first held-out views and record the result."""
    test, history = training.dataset.test, training.history
    numbers = list(range(0, len(test), -(-len(test) // _LOOKED_AT)))
    targets = as_pixels(test.at(numbers).on(training.ground.cpu()))
    psnrs = [
        psnr_of_pixels(as_pixels(training.view(test, number).colour), target)
        for number, target in zip(numbers, targets, strict=True)
    ]
    history.looked.append(training.step)
    history.psnrs.append(sum(psnrs) / len(psnrs))
