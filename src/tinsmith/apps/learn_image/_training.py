"""The training: the model, its steps, and its history."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...nn import NetworkArray, NetworkWithInputEncoding, Trainer, make_loss
from .._film import as_pixels, film_steps, psnr, psnr_of_pixels, shrink_to_film
from .._photo import Photo
from .._processes import ALONE, Processes
from ._blocks import Blocks
from ._recipe import Recipe

_LOOK_SIDE = 640  # pixels, about: of a larger photograph fewer are looked at along the way
_CHUNK = 65536  # samples that go through a network at once when all are asked for: what lies between layers is large


@dataclass
class History:
    """The training so far: the loss before each step, and looks at the whole picture in between.

    `looked` are the steps of the looks, `psnrs` what they found, `frames` (rows, columns, 3) uint8 of the film.
    """

    losses: list[float] = field(default_factory=list)
    looked: list[int] = field(default_factory=list)
    psnrs: list[float] = field(default_factory=list)
    frames: list[Tensor] = field(default_factory=list)


class Training:
    """A model on its way to a photograph: one network, or an array of networks with a block each.

    The state is the trainer's, `draw`'s, `history` and `step`, the number of steps taken. Steps of one block alone
    (`train_block`) are not counted there: `alone` is how many this run took.
    """

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
        self.step, self.steps = 0, recipe.steps
        self.alone = 0
        self.history = History()
        self.draw = torch.Generator().manual_seed(seed)
        grid = recipe.grid_shape or (1, 1)
        self.blocks = Blocks(photo, grid, device)
        every = -(-max(photo.height, photo.width) // _LOOK_SIDE)
        self.looked_at = self.blocks if every == 1 else Blocks(photo, grid, device, every)
        model = _model(recipe, seed, engine, device)
        processes.align(model)
        optimizer, loss = recipe.optimizer.config(), make_loss(recipe.loss)
        self.trainer = Trainer(model, optimizer, loss, process_group=processes.group)
        self._filmed = film_steps(recipe.steps)

    @property
    def psnr(self) -> float:
        """In dB, of the last evaluated picture; nan before."""
        return self.history.psnrs[-1] if self.history.psnrs else math.nan

    quality = psnr

    @property
    def loss(self) -> float:
        """Before the last step, the mean of all networks; nan before the first."""
        return self.history.losses[-1] if self.history.losses else math.nan

    @property
    def n_params(self) -> int:
        """How many numbers are learned; an array's memory has some more, which nothing reads."""
        model = self.trainer.model
        learned = list(model.parameters())
        if isinstance(model, NetworkArray):
            layers = [part for layer in model.layers() for part in layer if part is not None]
            learned = [*layers, *(parameter for parameter in learned if parameter is not model.params)]
        return sum(part.numel() for part in learned)

    def advance(self) -> None:
        """One step of all networks."""
        if self.step in self._filmed and self.processes.is_first:
            image = self.glance()
            self.look(image)
            self.history.frames.append(as_pixels(shrink_to_film(image)))
        drawn = self.blocks.draw_pixels(self.recipe.batch_size, self.draw)
        x, colours = (self.processes.share(one, dim=1) for one in drawn)
        losses = self.trainer.training_step(self._as_taken(x), self._as_taken(colours))
        self.history.losses.append(losses.mean().item())
        self.step += 1

    def train_block(self, row: int, column: int, steps: int) -> None:
        """Steps of one block's network; the others stay as they are, bit for bit."""
        block = torch.tensor([row * self.blocks.grid_shape[1] + column])
        for _ in range(steps):
            self.trainer.training_step(*self.blocks.draw_pixels(self.recipe.batch_size, self.draw, block), at=block)
        self.alone += steps

    def _as_taken(self, values: Tensor) -> Tensor:
        """[block, ...] as the model takes it: [row, column, ...], or of one network without."""
        return values[0] if self.recipe.grid_shape is None else values.unflatten(0, self.recipe.grid_shape)

    def image(self) -> Tensor:
        """The picture as the model has it now, (rows, columns, 3)."""
        return self._image(self.blocks)

    def glance(self) -> Tensor:
        """The same, of a large photograph only the rows and columns of `looked_at`."""
        return self._image(self.looked_at)

    def _image(self, blocks: Blocks) -> Tensor:
        positions, parts = blocks.positions, list[Tensor]()
        for chunk in positions.split(max(1, _CHUNK // len(positions)), dim=1):
            colours = self.trainer.inference(self._as_taken(chunk))
            parts.append(colours.reshape(len(positions), -1, 3))
        return blocks.assemble_image(torch.cat(parts, 1))

    def look(self, image: Tensor) -> None:
        """Remember how good a glance is, which was taken at this step."""
        self.history.looked.append(self.step)
        self.history.psnrs.append(psnr_of_pixels(as_pixels(image), self.looked_at.pixels))

    def psnr_by_block(self, image: Tensor) -> list[float]:
        """In dB, of each block of a glance."""
        target = self.looked_at.colours.view_as(image)
        errors = (image.clamp(0, 1) - target).square().mean(-1)
        return [psnr(error) for error in self.looked_at.mean(errors).tolist()]

    def state(self) -> dict[str, Any]:
        """State of a resumed run besides the trainer's: a nest for a checkpoint."""
        frames = torch.stack(self.history.frames) if self.history.frames else None
        return {
            "step": self.step,
            "draw": self.draw.get_state(),
            "losses": torch.tensor(self.history.losses, dtype=torch.float64),
            "looked": self.history.looked,
            "psnrs": self.history.psnrs,
            "frames": frames,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`."""
        self.step = state["step"]
        self.draw.set_state(state["draw"])
        frames = [] if state["frames"] is None else list(state["frames"])
        self.history = History(state["losses"].tolist(), state["looked"], state["psnrs"], frames)


def _model(recipe: Recipe, seed: int, engine: str | None, device: str) -> torch.nn.Module:
    if recipe.grid_shape is not None:
        parts = (recipe.network, recipe.encoding)
        array = NetworkArray(recipe.grid_shape, 2, 3, *parts, seed=seed, dtype=torch.float32, engine=engine)
        return array.to(device)
    # Without padding: checkpoints of version 0.1.0 resume, and no unread rows are trained.
    model = NetworkWithInputEncoding(2, 3, recipe.encoding, recipe.network, seed, engine=engine, alignment=1)
    return model.to(device)
