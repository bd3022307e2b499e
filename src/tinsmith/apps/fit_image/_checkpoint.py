"""The checkpoint of fit-image: everything that a fit needs to continue, in one safetensors file.

Tensors: the five of `Gaussians`; Adam's as `adam.<tensor>.<state>`; `history.errors` and `history.frames`. Metadata:
photograph, number of Gaussians, seed and step. A resumed fit must have the same photograph, number of Gaussians and
seed. No random generator is stored: only the initial values are random, and the seed determines them.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from ..._untrusted import parse_json, read_safetensors
from .._checkpoint import Checkpoints, make_broken_error, require_checkpoint, require_same
from .._files import replace_when_whole
from .._photo import Photo
from .._training import Training
from ._gaussians import list_shapes
from ._learner import GaussianLearner

_FORMAT = "tinsmith fit-image 1"
_ADAM = ("exp_avg", "exp_avg_sq", "step")


class FitCheckpoints(Checkpoints):
    """The checkpoints of a fit."""

    def __init__(self, folder: Path, photo: Photo, gaussians: int, seed: int) -> None:
        super().__init__(folder, _FORMAT, photo.identity() | {"gaussians": gaussians, "seed": seed})
        self._count = gaussians

    def save(self, training: Training[GaussianLearner]) -> Path:
        """Write the state of a fit to the checkpoint file; return its path. Raise InputError if it cannot be
        written.
        """
        metadata = {"format": _FORMAT, "step": str(training.step), "fit": json.dumps(self._run)}
        with replace_when_whole(self.path) as beside:
            save_file(_tensors(training), beside, metadata)
        return self.path

    def load(self) -> None:
        """Read the checkpoint, and check that it is complete and belongs to this fit.

        Raises:
            CheckpointError: the checkpoint is missing, broken, or belongs to another fit.
        """
        path = self.path
        require_checkpoint(path)
        metadata, tensors = read_safetensors(path, partial(make_broken_error, path))
        if metadata.get("format") != _FORMAT:
            raise make_broken_error(path, f"its format is {metadata.get('format')!r}, not {_FORMAT!r}")
        try:
            theirs = dict(parse_json(metadata["fit"]))
        except (KeyError, TypeError, ValueError) as cause:
            raise make_broken_error(path, "it does not say which fit it belongs to") from cause
        require_same(path, "fit", theirs, self._run)
        _require_whole(path, metadata, tensors, self._count)
        self._state = {"step": int(metadata["step"]), **tensors}

    def restore(self, training: Training[GaussianLearner]) -> None:
        """Restore a fit from the loaded checkpoint, if there is one."""
        state, learner = self._state, training.learner
        if state is None:
            return
        training.step = state["step"]
        with torch.no_grad():
            for name, value in learner.gaussians.tensors().items():
                value.copy_(state[name])
                learner.optimizer.state[value] = {
                    key: state[f"adam.{name}.{key}"].to(value.device) for key in _ADAM if training.step
                }
        training.history.losses = state["history.errors"].tolist()
        training.history.frames = list(state["history.frames"])


def _tensors(training: Training[GaussianLearner]) -> dict[str, Tensor]:
    learner, history = training.learner, training.history
    tensors = {name: value.detach().cpu() for name, value in learner.gaussians.tensors().items()}
    for name, value in learner.gaussians.tensors().items():
        for key, state in learner.optimizer.state[value].items():
            tensors[f"adam.{name}.{key}"] = state.cpu()
    tensors["history.errors"] = torch.tensor(history.losses, dtype=torch.float64)
    tensors["history.frames"] = torch.stack(history.frames) if history.frames else _no_frames()
    return tensors


def _require_whole(path: Path, metadata: dict[str, str], tensors: dict[str, Tensor], count: int) -> None:
    step = metadata.get("step", "")
    if not step.isdecimal():
        raise make_broken_error(path, f"its step is {step!r}, not a whole number")
    for name, shape in _expected_shapes(count, int(step)).items():
        if name not in tensors:
            raise make_broken_error(path, f"it has no tensor {name!r}")
        if tuple(tensors[name].shape) != shape:
            raise make_broken_error(path, f"{name!r} has shape {tuple(tensors[name].shape)}, not {shape}")
        dtype = torch.float64 if name == "history.errors" else torch.float32
        if tensors[name].dtype != dtype:
            raise make_broken_error(path, f"{name!r} is {tensors[name].dtype}, not {dtype}")
    frames = tensors.get("history.frames", torch.empty(0))
    if frames.dtype != torch.uint8 or frames.ndim != 4:
        raise make_broken_error(path, "'history.frames' is missing or does not hold 8-bit images")
    for name, value in tensors.items():
        if not value.isfinite().all():
            raise make_broken_error(path, f"{name!r} holds numbers that are not finite")


def _expected_shapes(count: int, step: int) -> dict[str, tuple[int, ...]]:
    expected: dict[str, tuple[int, ...]] = {"history.errors": (step,)}
    for name, shape in list_shapes(count).items():
        expected[name] = shape
        if step:
            expected |= {f"adam.{name}.exp_avg": shape, f"adam.{name}.exp_avg_sq": shape, f"adam.{name}.step": ()}
    return expected


def _no_frames() -> Tensor:
    return torch.empty(0, 1, 1, 3, dtype=torch.uint8)
