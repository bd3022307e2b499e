"""Wrappers: optimizers around other optimizers. Each is a `torch.optim.Optimizer`, so that they nest."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.optim.swa_utils import AveragedModel
from typing_extensions import deprecated

from ..._errors import ArgumentError, CheckpointError, refusal
from .._precision import widen
from ._gradients import evaluate_closure, gradient, lend_gradients


class Wrapper(torch.optim.Optimizer, abc.ABC):
    """The base class of optimizers that wrap others. It shares their groups and state.

    A subclass implements `_step`; if it has state of its own, `_collect_state` and `_restore`; if it keeps other
    weights for inference, `weights`.
    """

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        self._share()

    @property
    def nested(self) -> torch.optim.Optimizer:
        """The wrapped optimizer; the first one, if there are several."""
        return self.parts[0]

    def _share(self) -> None:
        """Use the group objects of the wrapped optimizers, so that a learning rate set in one is set in the other."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]
        if len(self.parts) == 1:
            self.defaults, self.state = self.nested.defaults, self.nested.state

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Run one optimization step. A closure, if given, is called first, and its value is returned."""
        loss = evaluate_closure(closure)
        self._step()
        return loss

    @abc.abstractmethod
    def _step(self) -> None:
        """Step the wrapped optimizers as the wrapper requires, and update its own state."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raise ArgumentError: wrappers around this optimizer have state for its current parameters only."""
        if hasattr(self, "parts"):
            remedy = "Build a new optimizer over all parameters."
            raise ArgumentError(refusal(f"{type(self).__name__} cannot take further parameters", [], remedy))
        super().add_param_group(param_group)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)  # torch's own keeps groups and state only

    def weights(self) -> list[torch.Tensor]:
        """Return the weights for inference, in the order of the parameters."""
        return [weight for part in self.parts for weight in list_weights(part)]

    def use_averages(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager in which the parameters hold the weights for inference: see `nn.use_averages`."""
        return swap_parameters(list_parameters(self), self.weights())

    @deprecated("`averaged` is named `use_averages` now")
    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Call `use_averages`, the new name of this method."""
        return self.use_averages()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs to continue bitwise the same."""
        return {
            "wrapper": type(self).__name__,
            "parts": [part.state_dict() for part in self.parts],
            **self._collect_state(),
        }

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a run with the same configuration and parameters.

        Raises:
            CheckpointError: the state was saved by another optimizer.
        """
        check_saved_by(type(self).__name__, state_dict)
        for part, saved in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(saved)
        self._share()
        self._restore(state_dict)

    def _collect_state(self) -> dict[str, Any]:
        return {}

    def _restore(self, saved: dict[str, Any]) -> None:
        """Restore what `_collect_state` returned."""


def check_saved_by(name: str, saved: dict[str, Any]) -> None:
    """Raise CheckpointError unless a state was saved by a wrapper with this class name."""
    saver = saved.get("wrapper", "a plain optimizer")
    if saver != name:
        rows = [("expected", name), ("got", str(saver))]
        remedy = "Build the optimizer from the configuration that the checkpoint was made with."
        raise CheckpointError(refusal("The optimizer's state was saved by another optimizer", rows, remedy))


def list_parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return all parameters of an optimizer, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def list_weights(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the weights for inference: those that EMA, Average or Lookahead keep, else the parameters themselves."""
    return optimizer.weights() if isinstance(optimizer, Wrapper) else list_parameters(optimizer)


class AveragingOptimizer(Protocol):
    def use_averages(self) -> contextlib.AbstractContextManager[None]: ...


def use_averages(optimizer: torch.optim.Optimizer | AveragingOptimizer) -> contextlib.AbstractContextManager[None]:
    """Return a context manager in which the parameters hold the weights for inference; afterwards their own values.

    These are the averages of EMA and Average and the slow weights of Lookahead, at any nesting depth, and also those of
    a `RowOptimizer`. For other optimizers, including torch's, the parameters stay unchanged, and nothing is copied. Do
    not step the optimizer in the context.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(2, 2))
        >>> optimizer = ts.nn.make_optimizer([w], {"otype": "EMA", "decay": 0.5, "nested": {"otype": "SGD"}})
        >>> with ts.nn.use_averages(optimizer):
        ...     prediction = w @ w
    """
    if isinstance(optimizer, torch.optim.Optimizer) and not isinstance(optimizer, Wrapper):
        return contextlib.nullcontext()
    return optimizer.use_averages()


@deprecated("`tinsmith.nn.averaged` is named `tinsmith.nn.use_averages` now")
def averaged(optimizer: torch.optim.Optimizer | AveragingOptimizer) -> contextlib.AbstractContextManager[None]:
    """Call `use_averages`, the new name of this function."""
    return use_averages(optimizer)


@contextlib.contextmanager
def swap_parameters(parameters: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> Iterator[None]:
    """Enter a context in which the parameters hold these weights; afterwards restore their own values."""
    changed = [
        (parameter, weight) for parameter, weight in zip(parameters, weights, strict=True) if weight is not parameter
    ]
    with torch.no_grad():
        kept = [parameter.clone() for parameter, _ in changed]
        for parameter, weight in changed:
            parameter.copy_(weight)
    try:
        yield
    finally:
        with torch.no_grad():
            for (parameter, _), own in zip(changed, kept, strict=True):
                parameter.copy_(own)


class Composite(Wrapper):
    """A wrapper that steps several optimizers. Its groups are theirs, in order; each keeps its own state."""

    def _step(self) -> None:
        for part in self.parts:
            part.step()


def count_decays(step: int, start: int, end: int, interval: int) -> int:
    """Return how many times the learning rate has decayed by the step with this number, counted from 0."""
    return 0 if step < start or end < start else (min(step, end) - start) // interval + 1


class ExponentialDecay(Wrapper):
    """A wrapper that multiplies the learning rates by `base` before step `start`, and every `interval` steps after it.

    Steps are counted from 0; after step `end` there are no further decays.

    torch's schedulers warn if their optimizer was not stepped before them, which is normal within `Batched`. They also
    overwrite the learning rate; here it is multiplied, so that a change by the user persists.
    """

    def __init__(self, nested: torch.optim.Optimizer, base: float, start: int, end: int, interval: int) -> None:
        super().__init__(nested)
        self.base = base
        self._when = (start, end, interval)
        self._steps = 0

    def _step(self) -> None:
        if count_decays(self._steps, *self._when) > count_decays(self._steps - 1, *self._when):
            for group in self.param_groups:
                group["lr"] *= self.base
        self._steps += 1
        self.nested.step()

    def _collect_state(self) -> dict[str, Any]:
        return {"steps": self._steps}

    def _restore(self, saved: dict[str, Any]) -> None:
        self._steps = saved["steps"]


class Batched(Wrapper):
    """A wrapper that collects the gradients of `multiplier` steps and then steps the nested optimizer on their mean.

    This is gradient accumulation. Clear the gradients between steps, as for any optimizer.
    """

    def __init__(self, nested: torch.optim.Optimizer, multiplier: int) -> None:
        super().__init__(nested)
        self.multiplier = multiplier
        self._collected = 0
        self._means: list[torch.Tensor | None] = [None for _ in list_parameters(self)]

    def _step(self) -> None:
        parameters = list_parameters(self)
        self._means = [
            _add_share(mean, gradient(p), 1 / self.multiplier) for mean, p in zip(self._means, parameters, strict=True)
        ]
        self._collected += 1
        if self._collected == self.multiplier:
            with lend_gradients(parameters, self._means):
                self.nested.step()
            self._collected = 0
            self._means = [None for _ in parameters]

    def _collect_state(self) -> dict[str, Any]:
        return {"collected": self._collected, "means": self._means}

    def _restore(self, saved: dict[str, Any]) -> None:
        pairs = zip(saved["means"], list_parameters(self), strict=True)
        self._means = [None if mean is None else mean.to(p).clone() for mean, p in pairs]
        self._collected = saved["collected"]


def _add_share(mean: torch.Tensor | None, addend: torch.Tensor | None, share: float) -> torch.Tensor | None:
    if addend is None:
        return mean
    return addend * share if mean is None else mean.add_(addend, alpha=share)


class Average(Wrapper):
    """A wrapper that keeps the weights of the last `n_samples` steps, whose mean is used for inference.

    This needs `n_samples` times the memory of the weights. With fewer steps so far, it is the mean of those.
    (tiny-cuda-nn counts the missing ones as zeros.) torch's AveragedModel cannot drop old weights.
    """

    def __init__(self, nested: torch.optim.Optimizer, n_samples: int) -> None:
        super().__init__(nested)
        self.n_samples = n_samples
        self._steps = 0
        self._samples = [weight.new_zeros((n_samples, *weight.shape)) for weight in list_weights(nested)]

    def _step(self) -> None:
        self.nested.step()
        for sample, weight in zip(self._samples, list_weights(self.nested), strict=True):
            sample[self._steps % self.n_samples] = weight
        self._steps += 1

    def weights(self) -> list[torch.Tensor]:
        """Return the mean of the last weights of each parameter; before the first step the parameters themselves."""
        there = min(self._steps, self.n_samples)
        return [sample[:there].mean(0) for sample in self._samples] if there else list_parameters(self)

    def _collect_state(self) -> dict[str, Any]:
        return {"steps": self._steps, "samples": self._samples}

    def _restore(self, saved: dict[str, Any]) -> None:
        self._steps = saved["steps"]
        for sample, was in zip(self._samples, saved["samples"], strict=True):
            sample.copy_(was)


class EMA(Wrapper):
    """A wrapper that keeps a debiased exponential moving average of the weights, which is used for inference.

        average := (sum over steps s of decay**(t - s) * w_s) / (sum over s of decay**(t - s))

    After one step it equals the weights. It does not affect training. With `full_precision` the average of float16 and
    bfloat16 weights is kept in float32; else in their own dtype. It is stored by `torch.optim.swa_utils.AveragedModel`.
    """

    def __init__(self, nested: torch.optim.Optimizer, decay: float, full_precision: bool) -> None:
        super().__init__(nested)
        self.decay = decay
        self._updates = 0
        self._average = AveragedModel(_as_module(list_weights(nested)), avg_fn=self._next)
        if full_precision:
            for average in self._average.parameters():
                average.data = widen(average.data)

    def _next(self, average: torch.Tensor, weight: torch.Tensor, _: Any) -> torch.Tensor:
        newest = (1 - self.decay) / (1 - self.decay**self._updates)
        return average.lerp(weight.to(average.dtype), newest)

    def _step(self) -> None:
        self.nested.step()
        self._updates += 1
        self._average.update_parameters(_as_module(list_weights(self.nested)))

    def weights(self) -> list[torch.Tensor]:
        """Return the average of each parameter; before the first step the parameters themselves."""
        return list(self._average.parameters()) if self._updates else list_parameters(self)

    def _collect_state(self) -> dict[str, Any]:
        return {"updates": self._updates, "average": self._average.state_dict()}

    def _restore(self, saved: dict[str, Any]) -> None:
        self._updates = saved["updates"]
        self._average.load_state_dict(saved["average"])


def _as_module(weights: list[torch.Tensor]) -> torch.nn.Module:
    """Return a module with these weights as its parameters: AveragedModel takes only modules."""
    return torch.nn.ParameterList([torch.nn.Parameter(weight, requires_grad=False) for weight in weights])
