"""What a configuration wraps around an optimizer, by rows: decays and averages that go by each row's own steps."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..._errors import ConfigError, refusal
from ..config import Section
from ._exponential_decay import decays


@dataclasses.dataclass(frozen=True)
class Wrapping:
    """A section taken apart.

    Attributes:
        plain: the section within: Adam, SGD, or a Composite of them.
        decays: the options of each ExponentialDecay around it.
        ema: the decay of the EMA around it; None if there is none.
    """

    plain: Section
    decays: tuple[dict[str, Any], ...] = ()
    ema: float | None = None

    @classmethod
    def of(cls, section: Section) -> Wrapping:
        """ConfigError for what does not work by rows."""
        if section.otype == "ExponentialDecay":
            within = cls.of(section.nested[0])
            return dataclasses.replace(within, decays=(*within.decays, section.options))
        if section.otype == "EMA":
            within = cls.of(section.nested[0])
            if within.ema is not None or section.options["full_precision"]:
                raise ConfigError(_no_rows(section, "EMA of an EMA, or in full precision,"))
            return dataclasses.replace(within, ema=section.options["decay"])
        _refuse_what_mixes_rows(section)
        return cls(section)

    def rate(self, step: int) -> float:
        """What multiplies the learning rate of a row that has had so many steps."""
        factor = 1.0
        for o in self.decays:
            factor *= o["decay_base"] ** decays(step, o["decay_start"], o["decay_end"], o["decay_interval"])
        return factor


def _refuse_what_mixes_rows(section: Section) -> None:
    if section.otype not in ("Adam", "SGD", "Composite"):
        raise ConfigError(_no_rows(section, section.otype))
    for part in section.nested:
        _refuse_what_mixes_rows(part)


def _no_rows(section: Section, what: str) -> str:
    known = "Adam, SGD and Composites of them, in ExponentialDecay and EMA"
    return refusal(f"`{section.where}`: {what} does not work by rows.", [("expected", known)], "Use one of these.")


@contextlib.contextmanager
def scale_rates(groups: Sequence[dict[str, Any]], factor: float) -> Iterator[None]:
    """Within, the learning rates are this much smaller."""
    own = [group["lr"] for group in groups]
    for group, lr in zip(groups, own, strict=True):
        group["lr"] = lr * factor
    try:
        yield
    finally:
        for group, lr in zip(groups, own, strict=True):
            group["lr"] = lr


class RowAverages:
    """Exponential moving averages of rows, each debiased by its own number of steps."""

    def __init__(self, parameters: Sequence[torch.Tensor], decay: float) -> None:
        self.decay = decay
        self.averages = [parameter.detach().clone() for parameter in parameters]

    def weights(self, parameters: Sequence[torch.Tensor], counts: torch.Tensor) -> list[torch.Tensor]:
        """The averages; of rows without steps the parameters as they are, which may have been loaded since."""
        self._follow(parameters)
        if int(counts.min()):
            return self.averages
        weights: list[torch.Tensor] = []
        for average, parameter in zip(self.averages, parameters, strict=True):
            has_steps = (counts > 0).to(average.device).reshape(-1, *[1] * (average.ndim - 1))
            weights.append(torch.where(has_steps, average, parameter.detach()))
        return weights

    def update(self, parameters: Sequence[torch.Tensor], index: torch.Tensor | None, counts: torch.Tensor) -> None:
        """After a step of these rows (None: all); `counts` are all rows' steps, this one too."""
        self._follow(parameters)
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

    def _follow(self, parameters: Sequence[torch.Tensor]) -> None:
        """To the dtype and device that the parameters have now: `module.to(...)` may come after the optimizer."""
        pairs = zip(self.averages, parameters, strict=True)
        self.averages = [average.to(parameter.device, parameter.dtype) for average, parameter in pairs]
