"""Creating: from a whole configuration to the model, its loss and its optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from .._errors import ConfigError, nearest, refusal
from .config import Section, read, resolve_section
from .losses import Loss, make_loss
from .networks import NetworkWithInputEncoding
from .optimizers import make_optimizer

_Part = Literal["loss", "optimizer", "encoding", "network"]
_PARTS: tuple[_Part, ...] = ("loss", "optimizer", "encoding", "network")


@dataclasses.dataclass(frozen=True)
class Created:
    """What a whole configuration describes: see `create_from_config`.

    Attributes:
        model: the encoding and the network, as one module.
        loss: call it with (prediction, target).
        optimizer: of the model's parameters. For the weights of EMA, Average and Lookahead see `use_averages`.
        config: the configuration with every default written out; creating from it gives the same again.

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
    alignment: int = 1,
) -> Created:
    """Model, loss and optimizer of a whole tiny-cuda-nn configuration: {"loss", "optimizer", "encoding", "network"}.

    A part that is left out has all its defaults. As with tiny-cuda-nn, the optimizer treats the network's matrices
    and the encoding's table differently: `l2_reg` is of the matrices alone, and Adam passes over entries of
    the table that no sample met.

    Args:
        n_input_dims: numbers in a position.
        n_output_dims: numbers in an output.
        config: a path to a JSON file, which may have comments; a JSON text; or a mapping.
        seed: of the initial parameters.
        dtype: float32, the default, or float64.
        device: where the model is to be; None for the CPU.
        engine: what the encoding runs on; see `NetworkWithInputEncoding`.
        alignment: 16 for parameters laid out as tiny-cuda-nn lays them out; see there.

    Raises:
        ConfigError: the configuration is not understood: parts, names, keys or values are unknown or do not fit.
        InputError: there is no such file.

    Example:
        >>> text = '{"encoding": {"otype": "Frequency"}, "network": {"n_neurons": 32}}'
        >>> created = ts.nn.create_from_config(2, 3, text)
        >>> x, target = torch.rand(64, 2), torch.rand(64, 3)
        >>> loss = created.loss(created.model(x), target)
        >>> loss.backward()
        >>> created.optimizer.step()
    """
    sections = _sections(read(config))
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


def _sections(config: Mapping[str, Any]) -> dict[str, Section]:
    for name in config:
        if name not in _PARTS:
            guess = nearest(str(name), _PARTS)
            remedy = f"Did you mean `{guess}`?" if guess else "Leave it out."
            headline = f"`{name}` is not a part of a configuration."
            raise ConfigError(refusal(headline, [("expected", ", ".join(_PARTS))], remedy))
    return {part: resolve_section(part, config.get(part, {})) for part in _PARTS}
