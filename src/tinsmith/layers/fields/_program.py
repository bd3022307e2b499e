"""Program: kernels that work on fields, as a function of tensors and its gradient.

The fields are shared: by two calls of a layer, by two layers, by the user's own code. So a
call owns nothing there. Forward fills the inputs, runs the kernels and copies the results
out, with whatever the kernels changed besides (`kept`). Backward puts all of that back as it
was when the forward pass ended, runs the reverse kernels on clean gradients, copies those
out, and leaves what the kernels change as it was found.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence

import torch

from ..._config import config
from ..._errors import GradientError, KernelError, refusal
from ...bridge import in_order
from ...engines import Engine
from .._pool import gradient_field
from ._as_op import foresight
from ._placed import Placed
from ._roles import Habits, Launch, Roles, by_key, uses_of
from ._transfer import Copy, Transfer

_LOCK = threading.RLock()
"""Fields are one memory for all threads and layers, and a call is several launches."""


class Program:
    """Transfers and launches of one layer. Made anew when a kernel gets other fields.

    `reset` comes first in each pass, where fields that are this layer's own must start it as new.
    """

    def __init__(
        self,
        layer: str,
        roles: Roles,
        launches: Sequence[Launch],
        habits: Habits,
        reset: Callable[[], None] | None = None,
    ) -> None:
        self._reset = reset or (lambda: None)
        self.layer = layer
        self.roles = roles
        self.habits = habits
        self.engine: Engine = roles.filled[0].engine
        self._check_engines(launches)
        uses = _Uses(roles, launches)
        self.kept = uses.kept
        self._blocking = uses.blocking()
        filled, outputs = roles.filled, roles.outputs
        values = _copies("load", filled), _copies("store", outputs), _copies("store", self.kept)
        cleared = _copies("clear", outputs) if habits.clears_outputs else []
        cleared += _copies("clear", roles.internal) if habits.clears_internal else []
        graded = [one for one in outputs if one.facts.has_gradient]
        self.differentiated = tuple(one for one in graded if one.needs_grad)
        self.active = tuple(one for one in filled if one.needs_grad)
        silent = [one for one in graded if not one.needs_grad]
        dirty = [one for one in (*filled, *uses.cleared(habits)) if one.facts.has_gradient]
        self._load = self._transfer(values[0] + cleared)
        self._store, self._store_all = self._transfer(values[1]), self._transfer(values[1] + values[2])
        self._look = self._transfer(values[2])
        saved = [*values[0], *_copies("load", self.kept)] if habits.saves else []
        given = _gradients("load", self.differentiated)
        self._restore = self._transfer([*saved, *given, *_gradients("clear", [*silent, *dirty])])
        self._collect = self._transfer(_gradients("store", self.active))
        self._put_back = self._transfer(_copies("load", self.kept))
        self._elements = sum(one.facts.count for one in (*filled, *outputs, *roles.internal))
        self._foresight = functools.cache(lambda: foresight(layer, roles, launches))
        self.calls = 0

    def _check_engines(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            if launch.launcher.engine is not self.engine:
                words = f"kernel `{launch.launcher.stage.name}` of {self.layer} and its fields belong to two engines"
                rows = [("kernel", launch.launcher.engine.name), ("fields", self.engine.name)]
                raise KernelError(
                    refusal(words, rows, "Make the fields with the engine that the kernel is written for.")
                )

    def _transfer(self, copies: Sequence[Copy]) -> Transfer:
        return Transfer(self.engine, copies)

    def foresee(self, launches: Sequence[Launch]) -> tuple[int, ...]:
        """Depths of the kernels' gradient stacks. Raises GradientError where a gradient would be wrong, or a crash."""
        for one in self._blocking:
            raise _blocked(one, self.layer)
        found = self._foresight()
        return (0,) * len(launches) if found is None else found.foresee(launches, self.active)

    def explain(self) -> str:
        """What a call does, for people."""
        checked = "checked as the op that the kernels would make" if self._foresight() else "the engine's word for it"
        rows = [
            ("filled", self.roles.filled),
            ("outputs", self.roles.outputs),
            ("internal", self.roles.internal),
            ("saved for the backward pass besides", self.kept),
            ("gradients of", self.active),
        ]
        lines = [f"{label}: {', '.join(map(str, fields)) or 'nothing'}" for label, fields in rows]
        return "\n".join([*lines, f"gradient: the engine's reverse mode, {checked}"])

    # Running ------------------------------------------------------------------------------
    def forward(
        self, tensors: Sequence[torch.Tensor], launches: Sequence[Launch], *, saves: bool
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Results, and the content of `kept` fields after the kernels ran, if `saves`."""
        device = tensors[0].device
        outputs = [_memory(one, device) for one in self.roles.outputs]
        kept = [_memory(one, device) for one in self.kept] if saves else []

        def run() -> None:
            serial = self._is_serial(device)
            self._reset()
            self._load.run(tensors, is_serial=serial)
            for launch in launches:
                launch.launcher.launch(launch.bound, adjoint=False, is_serial=serial)
            (self._store_all if saves else self._store).run([*outputs, *kept], is_serial=serial)
            self.calls += 1

        self._guarded(device, run)
        return outputs, kept

    def backward(
        self,
        tensors: Sequence[torch.Tensor],
        kept: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor],
        launches: Sequence[Launch],
        stacks: Sequence[int],
    ) -> list[torch.Tensor]:
        """Gradients of `active`, given the cotangents of `differentiated`, and what the forward pass saved."""
        device = cotangents[0].device
        gradients = [_memory(one, device) for one in self.active]
        present = [_memory(one, device) for one in self.kept]

        def run() -> None:
            serial = self._is_serial(device)
            self._look.run(present, is_serial=serial)
            self._reset()
            self._restore.run([*tensors, *kept, *cotangents], is_serial=serial)
            for launch, stack in zip(reversed(launches), reversed(stacks), strict=True):
                launch.launcher.launch(launch.bound, adjoint=True, is_serial=serial, stack=stack)
            self._collect.run(gradients, is_serial=serial)
            self._put_back.run(present, is_serial=serial)

        self._guarded(device, run)
        return gradients

    def _guarded(self, device: torch.device, run: Callable[[], None]) -> None:
        with _LOCK:
            self.engine.require_ready(self.layer)
            self.roles.filled[0].check_alive(self.layer)
            in_order(device, run)

    def _is_serial(self, device: torch.device) -> bool:
        """Small problems run on one thread: waking an engine's costs more than they do."""
        return device.type == "cpu" and self._elements < config().serial_below


class _Uses:
    """Which fields the kernels read and write, as far as their sources tell."""

    def __init__(self, roles: Roles, launches: Sequence[Launch]) -> None:
        self._written: set[int] = set()
        self._read: set[int] = set()
        self._unseen: set[int] = set()
        self._seen: dict[int, Placed] = {}
        for use in (use for launch in launches for use in uses_of(launch).values()):
            key = use.one.facts.key
            self._seen.setdefault(key, use.one)
            self._written |= {key} if use.is_written else set()
            self._read |= {key} if use.is_read else set()
            self._unseen |= set() if use.is_followed else {key}
        told = by_key((*roles.filled, *roles.outputs, *roles.internal))
        self._told = told
        self._found = {key: one for key, one in self._seen.items() if key not in told}
        self._roles = roles
        outputs = {one.facts.key for one in roles.outputs}
        everything = [*told.values(), *self._found.values()]
        self.kept: tuple[Placed, ...] = tuple(
            one for one in everything if self._is_written(one) and (one.facts.key not in outputs or self._matters(one))
        )

    def _is_written(self, one: Placed) -> bool:
        """What no source names is reached in a way that is not followed, and so may be written."""
        return one.facts.key in self._written or one.facts.key not in self._seen

    def _matters(self, output: Placed) -> bool:
        """Whether a backward pass reads an output's values, or runs stores to it again."""
        key = output.facts.key
        return key in self._read or key not in self._seen or not output.facts.has_gradient

    def blocking(self) -> list[Placed]:
        """Fields without a gradient through which values go from kernel to kernel: their gradient would be lost."""
        between = ((self._seen | self._told)[key] for key in self._written & self._read - self._unseen)
        return [
            one
            for one in between
            if one.facts.dtype.is_floating_point and not one.facts.has_gradient and not one.is_silent
        ]

    def cleared(self, habits: Habits) -> list[Placed]:
        """Fields whose gradients must not carry over: a field in between that nobody registered is one."""
        told = self._roles.internal if habits.clears_gradients else ()
        return [*told, *(one for key, one in self._found.items() if key in self._written)]


def clearing(fields: Sequence[Placed]) -> Callable[[], None]:
    """What sets fields and their gradients to zero."""
    graded = [one for one in fields if one.facts.has_gradient]
    transfer = Transfer(fields[0].engine, [*_copies("clear", fields), *_gradients("clear", graded)])
    return functools.partial(transfer.run, (), is_serial=False)


def _copies(kind: str, fields: Sequence[Placed]) -> list[Copy]:
    return [Copy(kind, one.field, one.facts, one.manager) for one in fields]  # type: ignore[arg-type]  # one of three words


def _gradients(kind: str, fields: Sequence[Placed]) -> list[Copy]:
    return [Copy(kind, gradient_field(one.field), one.facts, one.manager, True) for one in fields]  # type: ignore[arg-type]


def _memory(one: Placed, device: torch.device) -> torch.Tensor:
    return torch.empty(one.memory_shape, dtype=one.memory_dtype, device=device)


def _blocked(one: Placed, layer: str) -> GradientError:
    words = f"values of {layer} go through the field `{one.name}`, which has no gradient: what flows back would be lost"
    remedy = "Declare it with needs_grad=True; or register it with needs_grad=False if nothing is to flow through it."
    return GradientError(refusal(words, [("field", str(one))], remedy))
