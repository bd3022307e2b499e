"""Wrappers: optimizers around other optimizers. Each is a `torch.optim.Optimizer`, so that they nest."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from typing_extensions import deprecated

from ..._errors import ArgumentError, CheckpointError, refusal


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
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
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
