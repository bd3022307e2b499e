"""ExponentialDecay and EMA for RowOptimizer: they use each row's own number of steps."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..._errors import ConfigError, refusal
from ..config import Section
from ._wrappers import count_decays


@dataclasses.dataclass(frozen=True)
class Wrapping:
    """An optimizer section split into its base optimizer and the wrappers around it.

    Attributes:
        plain: the section of the base optimizer: Adam, SGD, or a Composite of them.
        decays: the options of each ExponentialDecay around it.
        ema: the decay of the EMA around it; None if there is none.
    """

    plain: Section
    decays: tuple[dict[str, Any], ...] = ()
    ema: float | None = None

    @classmethod
    def from_section(cls, section: Section) -> Wrapping:
        """Split an optimizer section into its base optimizer, decays and EMA.

        Raises:
            ConfigError: the section has options that row-wise updates do not support.
        """
        if section.otype == "ExponentialDecay":
            within = cls.from_section(section.nested[0])
            return dataclasses.replace(within, decays=(*within.decays, section.options))
        if section.otype == "EMA":
            within = cls.from_section(section.nested[0])
            if within.ema is not None or section.options["full_precision"]:
                raise ConfigError(_explain_unsupported(section, "EMA of an EMA, or EMA in full precision,"))
            return dataclasses.replace(within, ema=section.options["decay"])
        _check_by_rows(section)
        return cls(section)

    def rate(self, step: int) -> float:
        """Return the factor by which the decays scale the learning rate of a row after this number of steps."""
        factor = 1.0
        for o in self.decays:
            factor *= o["decay_base"] ** count_decays(step, o["decay_start"], o["decay_end"], o["decay_interval"])
        return factor


def _check_by_rows(section: Section) -> None:
    if section.otype not in ("Adam", "SGD", "Composite"):
        raise ConfigError(_explain_unsupported(section, section.otype))
    for part in section.nested:
        _check_by_rows(part)


def _explain_unsupported(section: Section, what: str) -> str:
    known = "Adam, SGD and Composites of them, in ExponentialDecay and EMA"
    return refusal(f"`{section.where}`: {what} cannot update single rows", [("expected", known)], "Use one of these.")


@contextlib.contextmanager
def scale_rates(groups: Sequence[dict[str, Any]], factor: float) -> Iterator[None]:
    """Enter a context in which the learning rates of the groups are multiplied by `factor`."""
    own = [group["lr"] for group in groups]
    for group, lr in zip(groups, own, strict=True):
        group["lr"] = lr * factor
    try:
        yield
    finally:
        for group, lr in zip(groups, own, strict=True):
            group["lr"] = lr


class RowAverages:
    """Exponential moving averages of parameters, with each row debiased by its own number of steps."""

    def __init__(self, parameters: Sequence[torch.Tensor], decay: float) -> None:
        self.decay = decay
        self.averages = [parameter.detach().clone() for parameter in parameters]

    def weights(self, parameters: Sequence[torch.Tensor], counts: torch.Tensor) -> list[torch.Tensor]:
        """Return the averages of the parameters; for rows without steps, the parameters' current values.

        `counts`, [row], are the numbers of steps of the rows.
        """
        self._match_parameters(parameters)
        if int(counts.min()):
            return self.averages
        weights: list[torch.Tensor] = []
        for average, parameter in zip(self.averages, parameters, strict=True):
            has_steps = (counts > 0).to(average.device).reshape(-1, *[1] * (average.ndim - 1))
            weights.append(torch.where(has_steps, average, parameter.detach()))
        return weights

    def update(self, parameters: Sequence[torch.Tensor], index: torch.Tensor | None, counts: torch.Tensor) -> None:
        """Update the averages after a step of the rows `index` (None: all).

        `counts`, [row], are the numbers of steps of all rows, including this step.
        """
        self._match_parameters(parameters)
        for average, parameter in zip(self.averages, parameters, strict=True):
            own = counts if index is None else counts[index]
            newest = ((1 - self.decay) / (1 - self.decay ** own.to(torch.float64))).to(average.dtype)
            newest = newest.to(average.device).reshape(-1, *[1] * (average.ndim - 1))
            if index is None:
                average.lerp_(parameter.detach(), newest)
            else:
                at = index.to(average.device)
                part = average.index_select(0, at).lerp_(parameter.detach().index_select(0, at), newest)
                average.index_copy_(0, at, part)

    def _match_parameters(self, parameters: Sequence[torch.Tensor]) -> None:
        """Move the averages to the parameters' current dtype and device (`module.to()` may come later)."""
        pairs = zip(self.averages, parameters, strict=True)
        self.averages = [average.to(parameter.device, parameter.dtype) for average, parameter in pairs]
