"""The learner of learn-image: a network, or an array of networks, that learns a photograph; its pictures, film and
curves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...nn import NetworkArray, NetworkWithInputEncoding, Trainer, make_loss
from .._film import as_pixels, format_decibels, psnr, psnr_of_pixels, shrink_to_film
from .._photo import Photo, PhotoLearner
from .._pictures import (
    BRIGHTEST_ERROR,
    Writer,
    draw_error_map,
    make_image,
    write_film,
)
from .._processes import ALONE, Processes
from .._report import Report
from .._training import Snapshot, Training
from ._blocks import Blocks
from ._recipe import Recipe

FILES = ("learned.png", "error.png", "comparison.png", "learning.gif")

_LOOK_SIDE = 640  # pixels: snapshots of a larger photograph skip rows and columns to this size
_CHUNK = 65536  # samples that are rendered at a time, which bounds the memory of hidden layers


class NetworkLearner(PhotoLearner):
    """A model that learns a photograph: one network, or an array of networks with a block each.

    The state is that of the trainer and the generator.
    """

    recorded = ("losses", "looked", "psnrs", "frames")

    def __init__(
        self,
        photo: Photo,
        recipe: Recipe,
        seed: int,
        engine: str | None,
        device: str,
        processes: Processes = ALONE,
    ) -> None:
        self.photo, self.recipe, self.processes = photo, recipe, processes
        self.steps = recipe.steps
        self._draw = torch.Generator().manual_seed(seed)
        self.generators = {"draw": self._draw}
        grid = recipe.grid_shape or (1, 1)
        self.blocks = Blocks(photo, grid, device)
        every = -(-max(photo.height, photo.width) // _LOOK_SIDE)
        self.looked_at = self.blocks if every == 1 else Blocks(photo, grid, device, every)
        model = _build_model(recipe, seed, engine, device)
        processes.align(model)
        optimizer, loss = recipe.optimizer.config(), make_loss(recipe.loss)
        self.trainer: Trainer = Trainer(model, optimizer, loss, process_group=processes.group)

    @property
    def n_params(self) -> int:
        """The number of learned parameters. The memory of an array has some more, which are never read."""
        model = self.trainer.model
        learned = list(model.parameters())
        if isinstance(model, NetworkArray):
            layers = [part for layer in model.layers() for part in layer if part is not None]
            learned = [*layers, *(parameter for parameter in learned if parameter is not model.params)]
        return sum(part.numel() for part in learned)

    def training_step(self, training: Training[Any]) -> float:
        """Run one step of all networks; return the mean of their losses before it."""
        drawn = self.blocks.draw_pixels(self.recipe.batch_size, self._draw)
        x, colors = (self.processes.share(one, dim=1) for one in drawn)
        return self.trainer.training_step(self._as_taken(x), self._as_taken(colors)).mean().item()

    def train_block(self, row: int, column: int, steps: int) -> None:
        """Run steps of one block's network; the other networks stay bitwise the same."""
        block = torch.tensor([row * self.blocks.grid_shape[1] + column])
        for _ in range(steps):
            self.trainer.training_step(*self.blocks.draw_pixels(self.recipe.batch_size, self._draw, block), at=block)
        self.extra_steps += steps

    def _as_taken(self, values: Tensor) -> Tensor:
        """Reshape values [block, ...] to the model's inputs: [row, column, ...] for an array, [...] for one network."""
        return values[0] if self.recipe.grid_shape is None else values.unflatten(0, self.recipe.grid_shape)

    def image(self) -> Tensor:
        return self._image(self.blocks)

    def render_preview(self) -> Tensor:
        """Render the model's current picture; of a large photograph only the rows and columns of `looked_at`."""
        return self._image(self.looked_at)

    def _image(self, blocks: Blocks) -> Tensor:
        positions, parts = blocks.positions, list[Tensor]()
        for chunk in positions.split(max(1, _CHUNK // len(positions)), dim=1):
            colors = self.trainer.inference(self._as_taken(chunk))
            parts.append(colors.reshape(len(positions), -1, 3))
        return blocks.assemble_image(torch.cat(parts, 1))

    def take_snapshot(self) -> Snapshot:
        image = self.render_preview()
        frame = as_pixels(shrink_to_film(image))
        return Snapshot(psnr_of_pixels(as_pixels(image), self.looked_at.pixels), frame)

    def psnr_by_block(self, image: Tensor) -> list[float]:
        """Return the PSNR in dB of each block of a picture from `render_preview`."""
        target = self.looked_at.colors.view_as(image)
        errors = (image.clamp(0, 1) - target).square().mean(-1)
        return [psnr(error) for error in self.looked_at.mean(errors).tolist()]

    def make_report(self, training: Training[Any], evaluation: Tensor) -> Report:
        history, quality = training.history, self.psnr(evaluation)
        panels = {
            "the photograph": make_image(self.photo.pixels),
            f"learned, {format_decibels(quality)}": make_image(evaluation),
            f"error; bright: {BRIGHTEST_ERROR:.0%} and more": draw_error_map(evaluation, self.photo.pixels),
        }
        curves = {
            "loss": (range(len(history.losses)), history.losses),
            "PSNR, dB": ([*history.looked, training.step], [*history.psnrs, quality]),
        }
        title, score = f"learn-image: {self.photo.name}", format_decibels(quality, 2)
        return Report(title, score, self.describe(training, evaluation), curves, [panels])

    def writers(self, training: Training[Any], evaluation: Tensor, report: Report) -> Mapping[str, Writer]:
        writers = (
            make_image(evaluation).save,
            draw_error_map(evaluation, self.photo.pixels).save,
            report.draw_rows().save,
            lambda path: write_film(path, training.history.frames, evaluation),
        )
        return dict(zip(FILES, writers, strict=True))

    def describe(self, training: Training[Any], evaluation: Tensor) -> dict[str, object]:
        recipe, grid = self.recipe, self.recipe.grid_shape
        return {
            **super().describe(training, evaluation),
            "parameters": self.n_params,
            "configuration": recipe.name,
            "grid_shape": None if grid is None else list(grid),
            "batch_size": recipe.batch_size,
            **{part: getattr(recipe, part).config() for part in ("loss", "optimizer", "encoding", "network")},
        }


def _build_model(recipe: Recipe, seed: int, engine: str | None, device: str) -> torch.nn.Module:
    if recipe.grid_shape is not None:
        parts = (recipe.network, recipe.encoding)
        array = NetworkArray(recipe.grid_shape, 2, 3, *parts, seed=seed, dtype=torch.float32, engine=engine)
        return array.to(device)
    # Unpadded, so that checkpoints of version 0.1.0 can be resumed, and no unused rows are trained.
    model = NetworkWithInputEncoding(2, 3, recipe.encoding, recipe.network, seed, engine=engine, alignment=1)
    return model.to(device)
