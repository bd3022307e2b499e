"""`create_from_config`: model, loss and optimizer from one configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from .._errors import ConfigError, nearest, refusal
from .config import Section, read, resolve_section
from .losses import Loss, make_loss
from .networks import ALIGNMENT, NetworkWithInputEncoding
from .optimizers import make_optimizer

_Part = Literal["loss", "optimizer", "encoding", "network"]
_PARTS: tuple[_Part, ...] = ("loss", "optimizer", "encoding", "network")


@dataclasses.dataclass(frozen=True)
class Created:
    """The model, loss and optimizer that a configuration describes, as returned by `create_from_config`.

    Attributes:
        model: the encoding and the network, as one module.
        loss: a module, called with (prediction, target).
        optimizer: optimizes the model's parameters. For the weights of EMA, Average and Lookahead see `use_averages`.
        config: the configuration with all defaults; creating from it gives the same parts.

    Example:
        >>> created = ts.nn.create_from_config(2, 3, {"loss": {"otype": "L2"}})
        >>> created.loss, created.config["network"]["n_neurons"]
        (Loss(L2), 128)
    """

    model: NetworkWithInputEncoding
    loss: Loss
    optimizer: torch.optim.Optimizer
    config: dict[str, Any]


def create_from_config(
    n_input_dims: int,
    n_output_dims: int,
    config: Mapping[str, Any] | str | Path,
    seed: int = 1337,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    engine: str | None = None,
    alignment: int = ALIGNMENT,
) -> Created:
    """Create model, loss and optimizer from a tiny-cuda-nn configuration: {"loss", "optimizer", "encoding", "network"}.

    A missing part has its defaults. As in tiny-cuda-nn, the optimizer treats the network's matrices and the encoding's
    table differently: `l2_reg` applies to the matrices only, and Adam skips entries of the table that no sample used.

    Args:
        n_input_dims: number of input dims, the coordinates of a position.
        n_output_dims: number of output dims.
        config: a path to a JSON file, which may have comments; a JSON string; or a mapping.
        seed: seed of the initial parameters.
        dtype: float32, the default, or float64.
        device: the device of the model; None for the CPU.
        engine: what the encoding runs on; see `NetworkWithInputEncoding`.
        alignment: widths are padded to a multiple of this number: 16, as in tiny-cuda-nn; 1 turns padding off. See
            `NetworkWithInputEncoding`.

    Raises:
        ConfigError: a part, name, key or value of the configuration is unknown or invalid.
        InputError: the file does not exist.

    Example:
        >>> text = '{"encoding": {"otype": "Frequency"}, "network": {"n_neurons": 32}}'
        >>> created = ts.nn.create_from_config(2, 3, text)
        >>> x, target = torch.rand(64, 2), torch.rand(64, 3)
        >>> loss = created.loss(created.model(x), target)
        >>> loss.backward()
        >>> created.optimizer.step()
    """
    sections = _resolve_sections(read(config))
    model = NetworkWithInputEncoding(
        n_input_dims,
        n_output_dims,
        sections["encoding"],
        sections["network"],
        seed,
        dtype=dtype,
        engine=engine,
        alignment=alignment,
    ).to(device=device)
    optimizer = make_optimizer(model, sections["optimizer"])
    settled = {part: section.config() for part, section in sections.items()}
    return Created(model, make_loss(sections["loss"]), optimizer, settled)


def _resolve_sections(config: Mapping[str, Any]) -> dict[str, Section]:
    for name in config:
        if name not in _PARTS:
            guess = nearest(str(name), _PARTS)
            remedy = f"Did you mean `{guess}`?" if guess else "Leave it out."
            headline = f"`{name}` is not a part of a configuration"
            raise ConfigError(refusal(headline, [("expected", ", ".join(_PARTS))], remedy))
    return {part: resolve_section(part, config.get(part, {})) for part in _PARTS}
