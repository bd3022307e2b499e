"""RowOptimizer: an optimizer that can update only some rows of its parameters, such as some networks of an array.

torch's optimizers do not support that. So the rows of parameters, gradients and state are gathered into small tensors,
an ordinary optimizer steps these, and they are written back: the cost is proportional to the number of rows. A row's
update also depends on its number of steps, so rows with equal counts are stepped together.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from typing_extensions import deprecated

from ..._errors import ArgumentError, CheckpointError, ConfigError, ShapeError, refusal
from ...torch_side import is_distributed
from .._distributed import as_shared, join_rows, own_rows, shard_rows
from ..config import Section, resolve_section
from ._gradients import clear, gradient, lend_gradients
from ._make import build_optimizer
from ._row_wrappers import RowAverages, Wrapping, scale_rates
from ._slots import Params, Slot, list_slots
from ._wrappers import Composite, Wrapper, list_parameters, swap_parameters

Factory = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
Rows = torch.Tensor | Sequence[int] | None
_WEIGH_WHOLE_PARAMETERS = ("Adafactor", "LBFGS", "Muon")
"""Optimizers of torch whose update of an entry depends on the whole parameter. By name, since Muon needs torch 2.9.
The state of Adafactor would not reveal it."""


class RowOptimizer:
    """An optimizer for parameters whose rows (networks of an array) train independently.

    `step(rows)` updates each of these rows as a separate optimizer would, with its own moments and its own number of
    steps; all other rows, and their state, stay bitwise the same. Without `rows`, and if all rows have had the same
    number of steps, it steps the plain optimizer, without gathering.

    An optimizer works if its update of an entry depends on that entry only. From a configuration: Adam, SGD, and
    Composites of them, whose `n_params_to_optimize` count the elements of one row; around them ExponentialDecay and
    EMA, which use each row's own steps (the learning rates in `param_groups` are those before the decay). From torch:
    most, but not Adafactor, Muon or LBFGS.

    Args:
        params: the parameters, as for `make_optimizer`; each (rows, ...), with the same number of rows.
        config: a configuration, as for `make_optimizer`; or a function from a list of parameters to an optimizer,
            such as `lambda params: torch.optim.RMSprop(params, lr=0.01)`.

    Raises:
        ConfigError: the configuration asks for an optimizer that does not work by rows.
        ShapeError: the parameters have different numbers of rows.

    Example:
        >>> weights = torch.nn.Parameter(torch.zeros(4, 3, 2))
        >>> optimizer = ts.nn.RowOptimizer([weights], {"otype": "SGD", "learning_rate": 1.0})
        >>> weights.sum().backward()
        >>> optimizer.step(rows=[1, 3])
        >>> weights[:, 0, 0]
        tensor([ 0., -1.,  0., -1.], grad_fn=<SelectBackward0>)
        >>> optimizer.counts
        tensor([0, 1, 0, 1])
    """

    def __init__(
        self, params: Params, config: Section | Mapping[str, Any] | str | Path | Factory | None = None
    ) -> None:
        given = list_slots(params)
        self._given = [slot.parameter for slot in given]
        with torch.no_grad():
            self._parameters = [own_rows(one) for one in self._given]
        self.counts = torch.zeros(_count_rows(self._parameters), dtype=torch.int64)
        self._wrapping: Wrapping | None = None
        if callable(config):
            self._factory = config
        else:
            self._wrapping = Wrapping.from_section(resolve_section("optimizer", config))
            self._factory = _from_configuration(self._wrapping.plain, given)
        self._parts = _split_composite(self._factory(self._parameters))
        self._counts_differed = False
        ema = None if self._wrapping is None else self._wrapping.ema
        self._averages = None if ema is None else RowAverages(self._parameters, ema)

    @property
    def parameters(self) -> list[torch.Tensor]:
        """The optimized parameters, in the order in which `step` takes gradients."""
        return list(self._given)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups with the learning rates of all rows. Changes apply from the next step on."""
        return [group for part in self._parts for group in part.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all rows."""
        clear(self._given, set_to_none)

    @torch.no_grad()
    def step(self, rows: Rows = None, gradients: Sequence[torch.Tensor | None] | None = None) -> None:
        """Run one optimization step of these rows.

        Args:
            rows: a boolean mask (row), or indices without repetition; None for all.
            gradients: for each parameter the gradient of these k rows in their order, (k, ...), or None to skip the
                parameter. If left out, the parameters' `.grad` is used.

        Raises:
            ArgumentError: a row occurs twice, or the numbers of gradients and parameters differ.
            ShapeError: a row index is out of range, or the mask or a gradient has another size.
        """
        index = None if rows is None else _index(rows, len(self.counts))
        k = len(self.counts) if index is None else len(index)
        self._check(gradients, k)
        if index is not None and gradients is None and k == len(self.counts):
            index = None
        if index is None and int(self.counts.min()) == int(self.counts.max()):
            self._step_all(gradients)
        else:
            self._step_some(torch.arange(k) if index is None else index, gradients)
        if self._averages is not None:
            self._averages.update(self._parameters, index, self.counts)

    def _step_all(self, gradients: Sequence[torch.Tensor | None] | None) -> None:
        grads = gradients if gradients is not None else self._gradients()
        count = int(self.counts[0])
        if self._counts_differed:
            for part in self._parts:
                _set_count(part, count)
            self._counts_differed = False
        with lend_gradients(self._parameters, grads), scale_rates(self.param_groups, self._rate(count)):
            for part in self._parts:
                part.step()
        self.counts += 1

    def _step_some(self, index: torch.Tensor, gradients: Sequence[torch.Tensor | None] | None) -> None:
        self._counts_differed = True
        counts = self.counts[index]
        for count in counts.unique().tolist():
            of_count = (counts == count).nonzero().squeeze(1)
            chosen = index[of_count]
            if gradients is None:
                grads = [_select_rows_if_given(one, chosen) for one in self._gradients()]
            else:
                grads = [_select_rows_if_given(given, of_count) for given in gradients]
            self._step_equals(chosen, count, grads)
        self.counts[index] += 1

    def _step_equals(self, index: torch.Tensor, count: int, grads: list[torch.Tensor | None]) -> None:
        """Step rows that have all had `count` steps, with a temporary optimizer over copies of these rows."""
        small: list[torch.Tensor] = [
            torch.nn.Parameter(_select_rows(parameter, index)) for parameter in self._parameters
        ]
        parts = _split_composite(self._factory(small))
        big_of = {id(little): big for little, big in zip(small, self._parameters, strict=True)}
        for part, whole in zip(parts, self._parts, strict=True):
            _lend_state(part, whole, big_of, index, count)
        groups = [group for part in parts for group in part.param_groups]
        with lend_gradients(small, grads), scale_rates(groups, self._rate(count)):
            for part in parts:
                part.step()
        for part, whole in zip(parts, self._parts, strict=True):
            _return_state(part, whole, big_of, index)
        for parameter, little, given in zip(self._parameters, small, grads, strict=True):
            if given is not None:
                parameter.index_copy_(0, index.to(parameter.device), little)

    def _gradients(self) -> list[torch.Tensor | None]:
        """Return the gradient of each parameter that the backward pass stored: this process's rows, or None."""
        grads = (gradient(parameter) for parameter in self._given)
        return [None if one is None else own_rows(one) for one in grads]

    def _rate(self, count: int) -> float:
        return 1.0 if self._wrapping is None else self._wrapping.rate(count)

    def use_averages(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager in which the parameters hold the averages of EMA, if the configuration has one.

        Afterwards they hold their own values again.
        """
        if self._averages is None:
            return swap_parameters(self._parameters, self._parameters)
        return swap_parameters(self._parameters, self._averages.weights(self._parameters, self.counts))

    @deprecated("`averaged` is named `use_averages` now")
    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Call `use_averages`: `averaged` is the former name of that method."""
        return self.use_averages()

    def _check(self, gradients: Sequence[torch.Tensor | None] | None, k: int) -> None:
        if gradients is None:
            return
        if len(gradients) != len(self._parameters):
            rows = [("parameters", str(len(self._parameters))), ("gradients", str(len(gradients)))]
            remedy = "Pass one for each parameter, None where there is none."
            raise ArgumentError(refusal("There are not as many gradients as parameters", rows, remedy))
        for i, (given, parameter) in enumerate(zip(gradients, self._parameters, strict=True)):
            expected = (k, *parameter.shape[1:])
            if given is not None and tuple(given.shape) != expected:
                rows = [("expected", str(expected)), ("got", str(tuple(given.shape)))]
                remedy = "Give the gradients of the named rows only, in their order."
                raise ShapeError(refusal(f"gradients[{i}] does not fit {k} rows", rows, remedy))

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs to continue bitwise the same.

        Tensors with a row for each row of the parameters are sharded over processes as the parameters are.
        """
        averages = None if self._averages is None else [self._as_given(one) for one in self._averages.averages]
        parts = [_convert_states(part.state_dict(), self._as_given) for part in self._parts]
        return {"counts": self._as_given(self.counts.clone()), "parts": parts, "averages": averages}

    def _as_given(self, rows: torch.Tensor) -> torch.Tensor:
        """Convert a tensor of this process's rows to a DTensor of all rows, if the parameters are DTensors."""
        first = self._given[0]
        if not is_distributed([first]):
            return rows
        return join_rows(rows, len(first), as_shared(first).device_mesh)

    def _own(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return this process's rows of a tensor of all rows, a plain tensor or a DTensor."""
        first = self._given[0]
        if is_distributed([first]) and not is_distributed([tensor]):
            tensor = shard_rows(tensor, as_shared(first).device_mesh)
        return own_rows(tensor).detach()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a run with the same configuration and parameters.

        Raises:
            CheckpointError: the state was saved for another number of rows, or by another optimizer.
        """
        saved, parts = state_dict.get("counts"), state_dict.get("parts", ())
        count = len(self._given[0])
        if saved is None or saved.shape != (count,) or len(parts) != len(self._parts):
            actual = "no counts of rows" if saved is None else f"{len(saved)} rows, {len(parts)} parts"
            rows = [("expected", f"{count} rows, {len(self._parts)} parts"), ("got", actual)]
            raise CheckpointError(refusal("The state was saved by another optimizer", rows))
        if (state_dict.get("averages") is None) != (self._averages is None):
            expected, actual = ("no EMA", "an EMA") if self._averages is None else ("an EMA", "no EMA")
            words = "The state was saved by another optimizer"
            raise CheckpointError(refusal(words, [("expected", expected), ("got", actual)]))
        for part, given in zip(self._parts, parts, strict=True):
            part.load_state_dict(_convert_states(given, self._own))
        self.counts, self._counts_differed = self._own(saved).cpu().clone(), True
        if self._averages is not None:
            for average, was in zip(self._averages.averages, state_dict["averages"], strict=True):
                average.copy_(self._own(was))


def _from_configuration(section: Section, given: Sequence[Slot]) -> Factory:
    # Not a closure, which cannot be pickled.
    return functools.partial(_build_by_rows, section, tuple(slot.matrix for slot in given))


def _build_by_rows(section: Section, matrix: tuple[bool, ...], parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    networks = len(parameters[0])
    return build_optimizer(
        section, [Slot(p, is_matrix, networks) for p, is_matrix in zip(parameters, matrix, strict=True)]
    )


def _convert_states(state: dict[str, Any], by_rows: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    """Return a copy of an optimizer's state dict with each tensor that has rows converted by a function."""

    def convert(value: Any) -> Any:
        return by_rows(value) if isinstance(value, torch.Tensor) and value.ndim else value

    states = {key: {name: convert(value) for name, value in one.items()} for key, one in state["state"].items()}
    return {**state, "state": states}


def _split_composite(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """Return the plain optimizers that an optimizer consists of: the parts of a Composite, or itself.

    Raises:
        ConfigError: an optimizer does not work by rows.
    """
    if isinstance(optimizer, Composite):
        return [plain for part in optimizer.parts for plain in _split_composite(part)]
    if isinstance(optimizer, Wrapper):
        headline = f"{type(optimizer).__name__} cannot update single rows"
        raise ConfigError(refusal(headline, [], "Pass an optimizer without a wrapper."))
    if type(optimizer).__name__ in _WEIGH_WHOLE_PARAMETERS:
        raise ConfigError(_explain_unsupported(optimizer, "an entry's step depends on the others of its parameter"))
    return [optimizer]


def _count_rows(parameters: Sequence[torch.Tensor]) -> int:
    sizes = {parameter.shape[0] if parameter.ndim else 0 for parameter in parameters}
    if len(sizes) > 1 or 0 in sizes:
        rows = [(f"params[{i}]", str(tuple(parameter.shape))) for i, parameter in enumerate(parameters)]
        remedy = "Give all parameters the same number of rows."
        raise ShapeError(refusal("The parameters differ in their number of rows", rows, remedy))
    return sizes.pop()


def _index(rows: torch.Tensor | Sequence[int], n_rows: int) -> torch.Tensor:
    """Convert a mask or indices of rows to int64 indices on the CPU.

    Raises:
        ShapeError, ArgumentError: the rows are not a valid selection.
    """
    given = torch.as_tensor(rows).cpu()
    if given.dtype == torch.bool:
        if tuple(given.shape) != (n_rows,):
            table = [("expected", f"({n_rows},)"), ("got", str(tuple(given.shape)))]
            remedy = "Pass one entry per row: flatten a mask of a grid."
            raise ShapeError(refusal("The mask of rows does not fit the parameters", table, remedy))
        return given.nonzero().squeeze(1)
    if given.numel() and (given.is_floating_point() or given.is_complex()):
        table = [("got", str(given.dtype)), ("expected", "a mask, or whole numbers")]
        raise ArgumentError(refusal("Row indices must be integers", table))
    if given.ndim > 1:
        table = [("expected", "(k,)"), ("got", str(tuple(given.shape)))]
        remedy = "Count rows from 0; `NetworkArray.rows` converts positions in a grid to such indices."
        raise ShapeError(refusal("Row indices must have one dim", table, remedy))
    index = given.to(torch.int64).reshape(-1)
    if bool(((index < 0) | (index >= n_rows)).any()):
        table = [("rows", f"0 to {n_rows - 1}"), ("got", f"{int(index.min())} to {int(index.max())}")]
        raise ShapeError(refusal("A row index is out of range", table))
    if len(index.unique()) < len(index):
        remedy = "Name each row once."
        raise ArgumentError(refusal("A row is named more than once", [("rows", str(len(index)))], remedy))
    return index


def _select_rows(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return tensor.detach().index_select(0, index.to(tensor.device))


def _select_rows_if_given(tensor: torch.Tensor | None, index: torch.Tensor) -> torch.Tensor | None:
    return None if tensor is None else _select_rows(tensor, index)


_Bigs = Mapping[int, torch.Tensor]


def _lend_state(
    part: torch.optim.Optimizer, whole: torch.optim.Optimizer, big_of: _Bigs, index: torch.Tensor, count: int
) -> None:
    """Copy the options and the state of the rows `index` from the whole optimizer to a temporary one over these rows.

    Rows without steps (`count` is 0) have no state.
    """
    for group, source in zip(part.param_groups, whole.param_groups, strict=True):
        group.update({key: value for key, value in source.items() if key != "params"})
        if "step" in group:
            group["step"] = count
    for parameter in list_parameters(part):
        if count and big_of[id(parameter)] in whole.state:
            state = whole.state[big_of[id(parameter)]]
            part.state[parameter] = {name: _lent_value(value, index, count) for name, value in state.items()}


def _lent_value(value: Any, index: torch.Tensor, count: int) -> Any:
    if isinstance(value, torch.Tensor):
        return _select_rows(value, index) if value.ndim else torch.full_like(value, count)
    return value if value is None else type(value)(count)


def _return_state(
    part: torch.optim.Optimizer, whole: torch.optim.Optimizer, big_of: _Bigs, index: torch.Tensor
) -> None:
    for parameter in list_parameters(part):
        big = big_of[id(parameter)]
        for name, value in part.state[parameter].items():
            if isinstance(value, torch.Tensor) and value.ndim:
                _check_by_rows(part, name, value, parameter)
                kept = whole.state[big].get(name)
                if kept is None:
                    kept = whole.state[big][name] = value.new_zeros((big.shape[0], *value.shape[1:]))
                kept.index_copy_(0, index.to(kept.device), value)
            else:
                _check_counts(part, name, value)
                whole.state[big][name] = value


def _check_by_rows(part: torch.optim.Optimizer, name: str, value: torch.Tensor, parameter: torch.Tensor) -> None:
    if value.shape[:1] != parameter.shape[:1]:
        reason = f"its state `{name}` has the shape {tuple(value.shape)}, but the parameter has {len(parameter)} rows"
        raise ConfigError(_explain_unsupported(part, reason))


def _check_counts(part: torch.optim.Optimizer, name: str, value: Any) -> None:
    if value is not None and not name.startswith("step"):
        raise ConfigError(_explain_unsupported(part, f"its state `{name}` is one number for all rows"))


def _explain_unsupported(part: torch.optim.Optimizer, reason: str) -> str:
    remedy = "Use an optimizer that updates each entry by itself, such as Adam or SGD."
    return refusal(f"{type(part).__name__} cannot update single rows", [("because", reason)], remedy)


def _set_count(part: torch.optim.Optimizer, count: int) -> None:
    """Set the step counts that an optimizer keeps for all rows together, after steps of only some rows."""
    for group in part.param_groups:
        if "step" in group:
            group["step"] = count
    for parameter in list_parameters(part):
        for name, value in part.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor) and not value.ndim:
                value.fill_(count)
            elif isinstance(value, (int, float)):
                part.state[parameter][name] = type(value)(count)
