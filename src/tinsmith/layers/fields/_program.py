"""Program: kernels that work on fields, as a function of tensors and its gradient.

The fields are shared: by two calls of a layer, by two layers, by the user's own code. So a
call owns nothing there. Forward fills the inputs, runs the kernels and copies the results
out, with whatever the kernels changed besides (`saved_fields`). Backward puts all of that back as it
was when the forward pass ended, runs the reverse kernels on clean gradients, copies those
out, and leaves what the kernels change as it was found.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..._config import config
from ..._errors import GradientError, KernelError, refusal
from ..._user_warnings import warn
from ...calls.fields import Copy, Transfer
from ...engines import Engine, FieldKey, gradient_field
from ...tracing import keep_order
from .._pool import FIELDS_LOCK
from ._as_op import OpProgram, make_op_for_checks
from ._effects import Reading, Writing
from ._gradient_stores import GradientStores
from ._layer_field import LayerField
from ._roles import Habits, Launch, Roles, by_key, uses_of_each
from ._starts import Starts
from ._transfer import FieldCopies, share_unchanged


class FieldProgram:
    """Transfers and launches of one layer. Made again when a kernel gets other fields.

    `is_wished` says that the engine's gradient was asked for.

    Attributes:
        reset: comes first in each pass, where fields that are this layer's own must start it as new.
        saved_fields: fields that kernels change, beside plain results, and those that they only read: saved for a
            backward pass, which leaves them as it found them.
        active, ungraded: places, among filled fields, of those with a gradient, and of those that have
            none though nobody asked for that.
        differentiated, silent_outputs: places, among outputs, of those with a gradient and of those without.
        calls: how often the kernels ran forward.
        settings, last_set: how often a field was set where nothing is saved for a backward pass; and which.
    """

    def __init__(
        self,
        layer: str,
        roles: Roles,
        launches: Sequence[Launch],
        habits: Habits,
        reset: Callable[[], None] | None = None,
        *,
        is_wished: bool = False,
    ) -> None:
        self.reset = reset
        self._is_wished = is_wished
        self.layer = layer
        self.roles = roles
        self.habits = habits
        self.engine: Engine = roles.filled[0].engine
        self._check_engines(launches)
        uses = _Uses(roles, launches)
        self.looked_at = uses.looked_at
        self.saved_fields = (*uses.saved_fields, *self.looked_at)
        self._blocking = uses.find_blocking_fields()
        self._gradient_stores = GradientStores(roles, launches)
        filled, outputs = roles.filled, roles.outputs
        values = _copies("load", filled), _copies("store", outputs), _copies("store", self.saved_fields)
        cleared = _copies("clear", Starts(roles, launches, habits).fields_at_zero)
        graded = [one for one in outputs if one.facts.has_gradient]
        self.active_fields = tuple(one for one in filled if one.needs_grad)
        self.active = _places(filled, lambda one: one.needs_grad)
        self.ungraded = _places(filled, lambda one: not (one.needs_grad or one.is_silent))
        self.differentiated = _places(outputs, lambda one: one in graded and one.needs_grad)
        self.silent_outputs = _places(outputs, lambda one: not (one in graded and one.needs_grad))
        silent = [one for one in graded if not one.needs_grad]
        shown = by_key(outputs)  # their gradients are what a backward pass begins with, even where they are inputs too
        dirty = [one for one in (*filled, *uses.select_fields_to_clear(habits)) if one.facts.has_gradient]
        dirty = [one for one in dirty if one.facts.key not in shown]
        self._load = self._transfer(cleared + values[0])
        self._store, self._store_all = self._transfer(values[1]), self._transfer(values[1] + values[2])
        saved = [*values[0], *_copies("restore", self.saved_fields)] if habits.saves else []
        given = _gradients("load", [outputs[place] for place in self.differentiated])
        own = by_key((*filled, *outputs, *roles.internal)) if reset is not None else {}
        self._present = tuple(one for one in self.saved_fields if one.facts.key not in own)
        present = _copies("store", self._present)
        self._restore = self._transfer([*present, *saved, *given, *_gradients("clear", [*silent, *dirty])])
        put_back = _copies("restore", self._present)
        self._collect = self._transfer([*_gradients("store", self.active_fields), *put_back])
        elements = sum(one.facts.count for one in (*filled, *outputs, *roles.internal))
        self._is_serial = filled[0].runs_on == "cpu" and config().is_serial(elements)
        self._op_for_checks = functools.cache(lambda: make_op_for_checks(layer, roles, launches, is_wished=is_wished))
        self._foreseen: tuple[Sequence[Launch], tuple[int, ...]] | None = None
        self._field_copies = FieldCopies(self.engine)
        self._last_kept: list[torch.Tensor] = []
        self.calls = 0
        self.settings, self.last_set = 0, ""

    def note_set(self, one: LayerField) -> None:
        """Note that a user's code has set a field, which an earlier call's backward pass reads if nothing is saved."""
        if not self.habits.saves:
            self.settings, self.last_set = self.settings + 1, one.name

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
        """Return the depths of the kernels' gradient stacks.

        Raises GradientError if the gradient would be wrong or crash.
        """
        if self._foreseen is not None and self._foreseen[0] is launches:
            return self._foreseen[1]
        for one in self._blocking:
            raise _build_blocked_error(one, self.layer)
        self._gradient_stores.check(self.layer)
        _check_arrays(launches, self.layer)
        op_program = self._op_for_checks()
        if isinstance(op_program, OpProgram):
            stacks = op_program.foresee(launches, self.active_fields)
            if self._foreseen is None and (words := op_program.outside(launches)):
                warn(words)
        else:
            stacks = (0,) * len(launches)
            if self._foreseen is None:
                warn(_unforeseen(op_program, self.layer))
        self._foreseen = (launches, stacks)
        return stacks

    @property
    def is_unforeseen(self) -> bool:
        """Whether the gradient could not be checked before a call; the first call warned of that."""
        return not isinstance(self._op_for_checks(), OpProgram)

    def explain(self, gradient: str = "") -> str:
        """Describe a call. `gradient` is a further remark about the gradient, for example that it is refused."""
        rows = [
            ("filled", self.roles.filled),
            ("outputs", self.roles.outputs),
            ("internal", self.roles.internal),
            ("saved for the backward pass besides", self.saved_fields),
            ("gradients of", self.active_fields),
        ]
        lines = [f"{label}: {', '.join(map(str, fields)) or 'nothing'}" for label, fields in rows]
        return "\n".join([*lines, f"gradient: {gradient or self._describe_gradient()}"])

    def _describe_gradient(self) -> str:
        op_program = self._op_for_checks()
        is_checked = isinstance(op_program, OpProgram)
        checked = (
            "checked as the op that the kernels would make" if is_checked else f"not checked: {headline(op_program)}"
        )
        return f"the engine's reverse mode, {checked}"

    # Checking -----------------------------------------------------------------------------
    def as_saving(self, launches: Sequence[Launch]) -> FieldProgram:
        """Return a program like this one that saves what its backward pass needs."""
        if self.habits.saves:
            return self
        return FieldProgram(
            self.layer, self.roles, launches, replace(self.habits, saves=True), self.reset, is_wished=self._is_wished
        )

    def find_cleared_fields(self, launches: Sequence[Launch]) -> tuple[LayerField, ...]:
        """Return the fields that start each call at zero."""
        return Starts(self.roles, launches, self.habits).fields_at_zero

    @contextlib.contextmanager
    def preserve_fields(self) -> Iterator[None]:
        """Enter a context at whose end fields and their gradients hold again what they held at its start."""
        device = torch.device(self.roles.filled[0].runs_on)
        everything = by_key((*self.roles.filled, *self.roles.outputs, *self.roles.internal, *self.saved_fields))
        # A field that a manager fills is the layer's own.
        fields = [one for one in everything.values() if one.manager is None]
        graded = [one for one in fields if one.facts.has_gradient]

        def read() -> Sequence[torch.Tensor]:
            memory: list[torch.Tensor] = []
            self._run_locked(device, lambda: memory.extend(self._field_copies.take(fields, graded)))
            return memory

        def write(memory: Sequence[torch.Tensor]) -> None:
            self._run_locked(device, lambda: self._field_copies.put(fields, memory, graded))

        memory = Reading.apply(read)
        try:
            yield
        finally:
            Writing.apply(write, False, *memory)

    # Running ------------------------------------------------------------------------------
    def forward(
        self,
        tensors: Sequence[torch.Tensor],
        launches: Sequence[Launch],
        fingerprints: Sequence[tuple[Any, ...]],
        *,
        saves: bool,
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Run the kernels. Return the results and, if `saves`, the content of `saved_fields` afterwards."""
        device, serial = tensors[0].device, self._is_serial
        outputs = [_memory(one, device) for one in self.roles.outputs]
        kept = [_memory(one, device) for one in self.saved_fields] if saves else []

        def run() -> None:
            # Before anything changes: a kernel may not compile.
            ready = [
                launch.launcher.prepare(launch.bound, fingerprint, adjoint=False, is_serial=serial)
                for launch, fingerprint in zip(launches, fingerprints, strict=True)
            ]
            if self.reset is not None:
                self.reset()
            self._load.run(tensors, is_serial=serial)
            for launch, one in zip(launches, ready, strict=True):
                launch.launcher.run(one, launch.bound)
            (self._store_all if saves else self._store).run([*outputs, *kept], is_serial=serial)
            self.calls += 1

        self._run_locked(device, run)
        return outputs, kept

    def reuse_unchanged(self, kept: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Replace the copy of each large field that has not changed since the last call by that call's copy."""
        pairs = zip(kept, self._last_kept or [None] * len(kept), strict=True)
        self._last_kept = [share_unchanged(tensor, before) for tensor, before in pairs]
        return self._last_kept.copy()

    def backward(
        self,
        tensors: Sequence[torch.Tensor],
        kept: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor],
        launches: Sequence[Launch],
        fingerprints: Sequence[tuple[Any, ...]],
        stacks: Sequence[int],
    ) -> list[torch.Tensor]:
        """Run the reverse kernels.

        Return the gradients of `active` from cotangents of `differentiated` and the saved contents.
        """
        device, serial = cotangents[0].device, self._is_serial
        gradients = [_memory(one, device) for one in self.active_fields]
        present = [_memory(one, device) for one in self._present]
        reversible = self._gradient_stores.select_taking_part([*zip(launches, fingerprints, stacks, strict=True)])

        def run() -> None:
            if self.reset is not None:
                self.reset()
            self._restore.run([*present, *tensors, *kept, *cotangents], is_serial=serial)
            for launch, fingerprint, stack in reversed(reversible):
                launch.launcher.launch(launch.bound, fingerprint, adjoint=True, stack=stack)
            self._collect.run([*gradients, *present], is_serial=serial)

        self._run_locked(device, run)
        return gradients

    def _run_locked(self, device: torch.device, run: Callable[[], None]) -> None:
        with FIELDS_LOCK:
            self.roles.filled[0].check_alive(self.layer)
            self.engine.require_ready(self.layer)
            with keep_order(self.engine, device, self.layer):
                run()


class _Uses:
    """Which fields the kernels read and write, as far as their sources tell."""

    def __init__(self, roles: Roles, launches: Sequence[Launch]) -> None:
        self._written: set[FieldKey] = set()
        self._read: set[FieldKey] = set()
        self._unseen: set[FieldKey] = set()
        self._seen: dict[FieldKey, LayerField] = {}
        different = dict.fromkeys(tuple(uses.values()) for uses in uses_of_each(launches))
        for use in (use for uses in different for use in uses):
            key = use.one.facts.key
            self._seen.setdefault(key, use.one)
            self._written |= {key} if use.is_written else set()
            self._read |= {key} if use.is_read else set()
            self._unseen |= set() if use.is_followed else {key}
        registered = by_key((*roles.filled, *roles.outputs, *roles.internal))
        self._registered = registered
        self._unregistered = {key: one for key, one in self._seen.items() if key not in registered}
        self._roles = roles
        outputs = {one.facts.key for one in roles.outputs}
        everything = [*registered.values(), *self._unregistered.values()]
        self.saved_fields: tuple[LayerField, ...] = tuple(
            one for one in everything if self._is_written(one) and (one.facts.key not in outputs or self._matters(one))
        )

    @property
    def looked_at(self) -> tuple[LayerField, ...]:
        """Fields that are only read: anybody may change them before a backward pass, which must find what was read."""
        others = by_key((*self.saved_fields, *self._roles.filled)).keys()
        read = (one for key, one in (self._seen | self._registered).items() if key in self._read)
        return tuple(one for one in read if one.facts.key not in others)

    def _is_written(self, one: LayerField) -> bool:
        """Return True if kernels may write a field: a field that no source names counts as written."""
        return one.facts.key in self._written or one.facts.key not in self._seen

    def _matters(self, output: LayerField) -> bool:
        """Return True if a backward pass needs an output's values."""
        key = output.facts.key
        return key in self._read or key not in self._seen or not output.facts.has_gradient

    def find_blocking_fields(self) -> list[LayerField]:
        """Return the fields without a gradient that kernels both write and read.

        Gradients through them would be lost.
        """
        between = ((self._seen | self._registered)[key] for key in self._written & self._read - self._unseen)
        return [
            one
            for one in between
            if one.facts.dtype.is_floating_point and not one.facts.has_gradient and not one.is_silent
        ]

    def select_fields_to_clear(self, habits: Habits) -> list[LayerField]:
        """Return the fields whose gradients are cleared before a backward pass.

        Fields between kernels that nobody registered are among them.
        """
        internal = self._roles.internal if habits.clears_gradients else ()
        return [*internal, *(one for key, one in self._unregistered.items() if key in self._written)]


def _places(fields: Sequence[LayerField], is_wanted: Callable[[LayerField], bool]) -> tuple[int, ...]:
    return tuple(place for place, one in enumerate(fields) if is_wanted(one))


def build_clear_function(fields: Sequence[LayerField]) -> Callable[[], None]:
    """Return a function that sets fields and their gradients to zero."""
    graded = [one for one in fields if one.facts.has_gradient]
    transfer = Transfer(fields[0].engine, [*_copies("clear", fields), *_gradients("clear", graded)])
    return functools.partial(transfer.run, (), is_serial=False)


def _copies(kind: str, fields: Sequence[LayerField]) -> list[Copy]:
    return [Copy(kind, one.field, one.facts, one.manager) for one in fields]  # type: ignore[arg-type]  # one of four words


def _gradients(kind: str, fields: Sequence[LayerField]) -> list[Copy]:
    return [Copy(kind, gradient_field(one.field), one.gradient_facts, one.manager, True) for one in fields]  # type: ignore[arg-type]


def _memory(one: LayerField, device: torch.device) -> torch.Tensor:
    return torch.empty(one.memory_shape, dtype=one.memory_dtype, device=device)


def headline(reason: Exception) -> str:
    """Return the first line of an error's message."""
    return str(reason).partition("\n")[0]


def _unforeseen(reason: Exception, layer: str) -> str:
    """Format the warning for an engine gradient that could not be checked before its use."""
    words = f"the gradient of {layer} is the engine's own, which is silently wrong for some kernels; it was not checked"
    rows = [("because", headline(reason)), *(("", line.strip()) for line in str(reason).splitlines()[1:-1])]
    return refusal(
        words, rows, "Rewrite the construct named, or compare the gradient with one that is known to be right."
    )


def _check_arrays(launches: Sequence[Launch], layer: str) -> None:
    """Raise GradientError if launches both write and read an array argument, through which no gradient flows."""
    uses = [
        (tensor.data_ptr(), name, launch.launcher.stage)
        for launch in launches
        for name, tensor in zip(launch.launcher.signature.arrays, launch.bound.tensors, strict=True)
        if tensor.is_floating_point() and tensor.numel()
    ]
    written = {memory for memory, name, stage in uses if stage.roles[name].is_written}
    for memory, name, stage in uses:
        if memory in written and stage.roles[name].is_read:
            words = f"values of {layer} go through the array `{name}` of kernel `{stage.name}`, which has no gradient: "
            words += "what flows back would be lost"
            remedy = "Use a field with needs_grad=True in its place, registered by register_internal_field."
            raise GradientError(refusal(words, remedy=remedy))


def _build_blocked_error(one: LayerField, layer: str) -> GradientError:
    words = f"values of {layer} go through the field `{one.name}`, which has no gradient: what flows back would be lost"
    remedy = "Declare it with needs_grad=True; or register it with needs_grad=False if nothing is to flow through it."
    return GradientError(refusal(words, [("field", str(one))], remedy))
