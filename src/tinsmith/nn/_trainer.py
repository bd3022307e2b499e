"""Trainer: training steps, inference, checkpoints and logs of one model."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from .._errors import ArgumentError, CheckpointError, ConfigError, refusal
from .._integers import read_positive
from ..torch_side import is_distributed
from ._board import Board
from ._checkpoint import get_random_state, read_checkpoint, restore_random_state, write_checkpoint
from ._distributed import as_shared, average, own_rows, shard_rows
from .config import Section, resolve_section
from .losses import Loss, make_loss
from .networks import NetworkArray
from .optimizers import RowOptimizer, gradient, make_optimizer, use_averages

Batch = tuple[torch.Tensor, torch.Tensor]
Config = Section | Mapping[str, Any]
LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_FORMAT = "tinsmith trainer 1"


class Trainer:
    """A trainer of one model, with inference, checkpoints and logs.

    A step minimizes the sum of the losses. A `NetworkArray` has one loss for each network, the mean over its own
    samples; all are computed together with their gradients in one pass, and each network learns independently. The
    trainer does not own the model and the optimizer: you may also train them in a loop of your own before, after and
    between its steps.

    Args:
        model: any module.
        optimizer: a name such as `"Adam"`, a configuration, or an optimizer of the model's parameters, from torch or
            `nn.optimizers`. For a `NetworkArray` a name or a configuration becomes a `RowOptimizer` if the optimizer
            works by rows; others, such as Novograd's, treat all networks as one, so that one network's update depends
            on the others' gradients. None: Adam.
        loss: a name such as `"L2"`, a configuration, or a function (prediction, target) -> losses, whose sum is
            minimized. None: tiny-cuda-nn's default, RelativeL2.
        log_dir: a folder for TensorBoard: loss, learning rates, and the values passed to `log`. None: no logs.
        log_every: number of steps between logs. Reading the loss synchronizes a GPU.
        process_group: processes that train together, each on its own part of every batch: gradients and losses are
            averaged over them, so a step is that of the whole batch. All start with the same weights and take the same
            steps, and the parts have the same size. A submodule may be a `NetworkArray` after `shard`, called by
            `route_points`; a model that is one itself needs no group, since each process trains its own networks.

    Attributes:
        model, optimizer, loss: as passed, or made from the configurations.
        step: the number of training steps so far.

    Raises:
        ConfigError: a configuration is invalid, or tensorboard is not installed and `log_dir` is passed.
        ArgumentError: the model is `torch.compile` of a NetworkArray, or `log_every` is less than 1; or the model is a
            NetworkArray after `shard`, and there is a process group.

    Example:
        >>> array = ts.nn.NetworkArray((4, 4), 2, 1, {"n_neurons": 8, "n_hidden_layers": 1})
        >>> trainer = ts.nn.Trainer(array, {"otype": "Adam", "learning_rate": 0.01}, "L2")
        >>> x = torch.rand(4, 4, 32, 2)
        >>> trainer.training_step(x, x.sum(-1, keepdim=True)).shape
        torch.Size([4, 4])
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: str | torch.optim.Optimizer | RowOptimizer | Config | None = None,
        loss: str | Config | LossFunction | None = None,
        *,
        log_dir: str | Path | None = None,
        log_every: int = 10,
        process_group: torch.distributed.ProcessGroup | None = None,
    ) -> None:
        log_every = read_positive("log_every", "the Trainer", log_every)
        if isinstance(getattr(model, "_orig_mod", None), NetworkArray):
            remedy = "Pass the array itself: compiling it makes nothing faster, since a step is a few launches already."
            raise ArgumentError(refusal("The Trainer does not support a compiled NetworkArray", remedy=remedy))
        if process_group is not None and isinstance(model, NetworkArray) and model.owners is not None:
            remedy = "Leave `process_group` out: each process trains its own networks, on all of their samples."
            raise ArgumentError(refusal("Networks that are sharded have no gradient to average", remedy=remedy))
        self.model = model
        self.optimizer = _resolve_optimizer(model, optimizer)
        self.loss = _resolve_loss(loss)
        self.step = 0
        self._board = Board(log_dir)
        self._log_every = log_every
        self._process_group = process_group

    # Training ------------------------------------------------------------------------------
    def training_step(self, x: torch.Tensor, target: torch.Tensor, at: Any = None) -> torch.Tensor:
        """Run one training step: compute losses and gradients, and update the parameters.

        Args:
            x: a batch of inputs of the model.
            target: the expected outputs.
            at: for a `NetworkArray`: the networks to train, as in its `rows`. Only these are computed; the
                others, and their optimizer's state, stay bitwise the same. None: all.

        Returns:
            The losses before the step, detached: [*grid] for an array, [k] with `at`, else the result of the loss.

        Raises:
            ArgumentError: `at` is not supported by the model or the optimizer.
            ShapeError, DtypeError: as raised by the model or the loss.
        """
        losses = self._step_all(x, target) if at is None else self._step_some(x, target, at)
        self.step += 1
        if self._board.is_open and self.step % self._log_every == 0:
            self._log_step(losses)
        return losses

    def _step_all(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        losses = self._losses(self.model, x, target)
        losses.sum().backward()
        loss_values = losses.detach()
        if self._process_group is not None:
            loss_values = loss_values.clone()
            self._average(loss_values, self._process_group)
        self.optimizer.step()
        return loss_values

    def _average(self, losses: torch.Tensor, group: torch.distributed.ProcessGroup) -> None:
        """Replace the losses and the parameters' gradients by their means over processes, in place."""
        given = (gradient(parameter) for parameter in self.model.parameters())
        average([*[one for one in given if one is not None and not is_distributed([one])], losses], group)
        # Each process has the gradients of its own networks of a sharded array, already summed over all samples.
        arrays = [one for one in self.model.modules() if isinstance(one, NetworkArray) and one.owners is not None]
        for parameter in {parameter for array in arrays for parameter in array.parameters()}:
            slope = gradient(parameter)
            if slope is not None:
                own_rows(slope).div_(group.size())

    def _step_some(self, x: torch.Tensor, target: torch.Tensor, at: Any) -> torch.Tensor:
        """Run one step of the networks `at` alone: the cost is proportional to their number."""
        array, optimizer = self._by_rows()
        part, rows = array.part(at), array.rows(at)
        losses = self._losses(part, x, target)
        gradients = _compute_gradients(losses, array, part, optimizer.parameters)
        loss_values = losses.detach()
        if self._process_group is not None:
            loss_values = loss_values.clone()
            average([*[one for one in gradients if one is not None], loss_values], self._process_group)
        optimizer.step(rows, gradients)
        return loss_values

    def _losses(self, model: torch.nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if isinstance(model, NetworkArray) and isinstance(self.loss, Loss):
            return model.loss(x, target, self.loss.otype)
        loss: LossFunction = self.loss
        return loss(model(x), target)

    def _array(self) -> NetworkArray:
        if not isinstance(self.model, NetworkArray):
            rows = [("model", type(self.model).__name__)]
            raise ArgumentError(refusal("`at` chooses among the networks of a NetworkArray", rows, "Leave it out."))
        return self.model

    def _by_rows(self) -> tuple[NetworkArray, RowOptimizer]:
        array = self._array()
        if not isinstance(self.optimizer, RowOptimizer):
            rows = [("optimizer", type(self.optimizer).__name__)]
            remedy = "Give the Trainer the configuration of an optimizer that does, such as Adam."
            raise ArgumentError(refusal("`at` needs an optimizer that can update single rows", rows, remedy))
        return array, self.optimizer

    def fit(self, batches: Iterable[Batch] | Callable[[int], Batch], steps: int, progress: bool = True) -> torch.Tensor:
        """Run several training steps.

        Args:
            batches: pairs (x, target), iterated again when they end; or a function from the number of steps so far to
                the pair for the next step. With a function, a resumed run continues bitwise the same.
            steps: the number of steps to take.
            progress: whether to show a progress bar.

        Returns:
            The losses of the last step; an empty tensor if `steps` is 0.

        Raises:
            ArgumentError: the batches ended and cannot be restarted.
        """
        losses, drawn = torch.empty(0), _make_batch_source(batches)
        with _open_progress_bar(steps) if progress else nullcontext() as show:
            for _ in range(steps):
                losses = self.training_step(*drawn(self.step))
                if show is not None:
                    show(losses)
        return losses

    @torch.no_grad()
    def inference(self, x: torch.Tensor, at: Any = None) -> torch.Tensor:
        """Evaluate the model in eval mode, with the weights for inference (the averages of EMA, Average, Lookahead).

        Weights and modes are restored afterwards, and training is not affected.

        Args:
            x: inputs of the model.
            at: for a `NetworkArray`: the networks to evaluate.

        Raises:
            ArgumentError: `at` is passed for another model.
        """
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            with use_averages(self.optimizer):
                return self.model(x) if at is None else self._array()(x, at)
        finally:
            for module in training:
                module.training = True

    # Logs ----------------------------------------------------------------------------------
    def log(self, **values: float) -> None:
        """Write named numbers to TensorBoard at the current step: `trainer.log(psnr=31.4)`."""
        self._board.add(self.step, **values)

    def _log_step(self, losses: torch.Tensor) -> None:
        values = {"loss": losses.mean().item()}
        if losses.numel() > 1:
            values["loss_of_the_worst"] = losses.max().item()
        for place, group in enumerate(self.optimizer.param_groups):
            values["learning_rate" + (f"_{place}" if place else "")] = float(group["lr"])
        self._board.add(self.step, **values)

    def close(self) -> None:
        """Write pending logs and close the log file."""
        self._board.close()

    # Checkpoints ---------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs: model, optimizer, number of steps, and random generators.

        The generators are the global ones of torch (CUDA's too), numpy and Python.

        Raises:
            ArgumentError: the model's parameters are DTensors, and the optimizer was not made by this library:
                save it with `torch.distributed.checkpoint`.
        """
        self._check_shares()
        return {
            "format": _FORMAT,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "random": get_random_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned: model, optimizer, number of steps, and random generators.

        Raises:
            CheckpointError: the state belongs to another model or optimizer.
        """
        if state.get("format") != _FORMAT:
            rows = [("expected", repr(_FORMAT)), ("got", repr(state.get("format")))]
            remedy = "Pass what `Trainer.state_dict()` returned."
            raise CheckpointError(refusal("This is not the state of a Trainer", rows, remedy))
        _require_same_tensors(self.model.state_dict(), state["model"])
        try:
            self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))  # torch's optimizers keep what they load
        except (KeyError, TypeError, ValueError) as cause:
            if isinstance(cause, CheckpointError):
                raise
            remedy = "Make the Trainer with the optimizer that the run had."
            headline = "The checkpoint's optimizer state does not fit the optimizer"
            raise CheckpointError(refusal(headline, [("because", str(cause))], remedy)) from cause
        own = self.model.state_dict()
        self.model.load_state_dict({name: _as_shared(own[name], one) for name, one in state["model"].items()})
        self.step = state["step"]
        restore_random_state(state["random"])

    def _check_shares(self) -> None:
        if isinstance(self.optimizer, RowOptimizer) or not is_distributed(list(self.model.parameters())):
            return
        rows = [("optimizer", type(self.optimizer).__name__)]
        words = "A Trainer cannot save this optimizer's state: the parameters are sharded over processes"
        remedy = "Save with torch.distributed.checkpoint."
        if isinstance(self.model, NetworkArray):
            remedy = 'Give the Trainer a configuration such as "Adam", or save with torch.distributed.checkpoint.'
        raise ArgumentError(refusal(words, rows, remedy))

    def save(self, path: str | Path, extra: Mapping[str, Any] | None = None) -> None:
        """Write a checkpoint of the run, with which `load` can resume it.

        On the CPU a resumed run continues bitwise the same; on CUDA sums have no fixed order. If the model's parameters
        are DTensors, all processes must call this; the first one writes the full tensors.

        Args:
            path: a safetensors file, replaced atomically.
            extra: other state of the run, such as that of your own random generator: nested dicts, lists,
                tensors, numbers and strings.

        Raises:
            InputError: the file cannot be written.
        """
        write_checkpoint(path, {"trainer": self.state_dict(), "extra": dict(extra or {})})

    def load(self, path: str | Path) -> dict[str, Any]:
        """Restore a checkpoint that `save` wrote, and return its `extra`.

        Raises:
            CheckpointError: the file is missing, broken, or belongs to another model or optimizer.
        """
        state = read_checkpoint(path)
        self.load_state_dict(state.get("trainer", {}))
        return state["extra"]


def _resolve_optimizer(
    model: torch.nn.Module, given: str | torch.optim.Optimizer | RowOptimizer | Config | None
) -> torch.optim.Optimizer | RowOptimizer:
    if isinstance(given, (torch.optim.Optimizer, RowOptimizer)):
        return given
    section = resolve_section("optimizer", {"otype": given} if isinstance(given, str) else given)
    if isinstance(model, NetworkArray):
        try:
            return RowOptimizer(model, section)
        except ConfigError:  # the optimizer does not work by rows; other mistakes are reported below
            return make_optimizer(model, section)
    return make_optimizer(model, section)


def _compute_gradients(
    losses: torch.Tensor, array: NetworkArray, part: NetworkArray, optimized: list[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Return the losses' gradients with respect to the parameters of a part, one for each of `optimized`.

    `optimized` are parameters of the whole array. The gradient of a frozen one is None.
    """
    of_part = dict(part.named_parameters())
    twins = {id(parameter): of_part[name] for name, parameter in array.named_parameters()}
    learning = {id(one): twins[id(one)] for one in optimized if id(one) in twins and twins[id(one)].requires_grad}
    gradient_by_id = dict(zip(learning, torch.autograd.grad(losses.sum(), list(learning.values())), strict=True))
    return [gradient_by_id.get(id(one)) for one in optimized]


def _resolve_loss(given: str | Config | LossFunction | None) -> LossFunction:
    if isinstance(given, str):
        return Loss(given)
    return make_loss(given) if given is None or isinstance(given, (Section, Mapping)) else given


def _make_batch_source(batches: Iterable[Batch] | Callable[[int], Batch]) -> Callable[[int], Batch]:
    """Return a function from the number of steps so far to the next batch."""
    if not isinstance(batches, Iterable):
        return batches
    endless = _repeat_batches(batches)
    return lambda _: next(endless)


def _repeat_batches(batches: Iterable[Batch]) -> Iterator[Batch]:
    for epoch in itertools.count():
        has_batches = False
        for batch in batches:
            has_batches = True
            yield batch
        if not has_batches:
            remedy = "Pass a list, a DataLoader, or a function from the step to its batch."
            rows = [("epochs before", str(epoch))]
            words = "`batches` was exhausted before the last step, and cannot be restarted"
            raise ArgumentError(refusal(words, rows, remedy))


def _require_same_tensors(ours: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> None:
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        expected, actual = (str(tuple(side[name].shape)) if name in side else "none" for side in (ours, theirs))
        if expected != actual:
            rows = [("tensor", name), ("expected", expected), ("got", actual)]
            remedy = "Make the model with the configuration and the alignment that the run had."
            raise CheckpointError(refusal("The checkpoint belongs to another model", rows, remedy))


def _as_shared(own: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Shard `whole`, a checkpoint's full tensor, if the model's tensor `own` is a DTensor; else return it unchanged."""
    return shard_rows(whole.to(own.device), as_shared(own).device_mesh) if is_distributed([own]) else whole


def _open_progress_bar(steps: int) -> Any:
    """Return a context manager that shows a progress bar: `progress_bar`, imported when it is first needed."""
    from ._progress import progress_bar

    return progress_bar(steps)
