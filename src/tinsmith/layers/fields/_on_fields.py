"""On fields: a layer whose fields belong to the user, run in one of two ways.

Dense fields are arrays by another name: the kernels become an op, whose gradient is generated from their source. Where
that cannot be, the kernels run on the fields themselves and the engine's own reverse mode gives the gradient, as far
as it is known not to be wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from textwrap import indent
from typing import Any, TypeGuard

import torch

from ..._cache import Cache
from ..._errors import DeviceError, GradientError, TinsmithError, refusal
from ..._lazy import lazy
from ..._preparation import show_preparation
from ..._user_warnings import warn
from ...calls import show_call
from ...calls.backward import RACE, refuse_race
from ...ir import NotCovered
from ...operation import Adjoint, Detail
from ...operation.examination import Examination
from ...tracing import is_in_backward, is_transformed
from .._pool import FIELDS_LOCK, RECORDED
from ._call import plan_call, run_call, run_plain
from ._call_notes import NotedFields, fingerprints_of
from ._examination import FieldsExamination
from ._layer_field import LayerField
from ._on_arrays import ArrayProgram, NoArray
from ._program import FieldProgram, headline
from ._roles import Habits, Launch, Roles, by_key, uses_of_each
from ._starts import Starts, find_held, find_state, warn_of_rerun

Reason = NotCovered | TinsmithError
"""Why the kernels are not an op on arrays, or why that has no gradient."""


class OnFields:
    """A layer that runs on fields.

    Args:
        layer: its name, for messages.
        roles: what its fields are for.
        launches: its kernels with their arguments.
        habits: how it treats its fields between calls.
        adjoint: where the gradient comes from, as for `tinsmith.op`.
        reset: puts fields that are the layer's own back to where they began.
    """

    def __init__(
        self,
        layer: str,
        roles: Roles,
        launches: Sequence[Launch],
        habits: Habits,
        adjoint: Adjoint = "auto",
        reset: Callable[[], None] | None = None,
    ) -> None:
        self.layer = layer
        self.roles = roles
        self._habits = habits
        self._adjoint: Adjoint = adjoint
        self._reset = reset
        self._launches = tuple(launches)
        self._arrays: Cache[Any, ArrayProgram | Reason] = Cache("layers on arrays")
        self._warned: set[str] = set()

    @lazy
    def program(self) -> FieldProgram:
        """Build the program that runs the kernels on the fields, with the engine's reverse mode."""
        is_wished = self._adjoint == "engine"
        return FieldProgram(self.layer, self.roles, self._launches, self._habits, self._reset, is_wished=is_wished)

    @lazy
    def _state(self) -> tuple[str, ...]:
        """Find the names of fields that carry a state from call to call."""
        cleared = by_key(Starts(self.roles, self._launches, self._habits).fields_at_zero)
        return find_state(find_held(self.roles, self._launches, cleared), self._launches)

    @lazy
    def _source_only(self) -> str:
        """Describe an ndarray or struct, for which only a generated gradient exists; an empty string if none is used.

        Engines cannot be given these as fields and templates.
        """
        for launch in self._launches:
            structs = (name for name, value in launch.bound.templates.items() if dataclasses.is_dataclass(value))
            if name := next(structs, ""):
                return f"the struct `{name}`"
            if held := next(iter(launch.launcher.held.values()), None):
                return f"the array `{held.path}` of a struct"
        used = (use.one for uses in uses_of_each(self._launches) for use in uses.values())
        fields = (*self.roles.filled, *self.roles.outputs, *self.roles.internal, *used)
        return next((f"the ndarray `{one.name}`" for one in fields if one.facts.address), "")

    def __call__(self, launches: tuple[Launch, ...], memory: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Run the layer. Return its results."""
        if any(one.device.type == "meta" for one in memory):
            words = f"{self.layer} runs on fields, and tensors on the meta device have no memory to fill them from"
            raise DeviceError(refusal(words, remedy="Run it on tensors, with `on_tensors=True`; or pass real ones."))
        with FIELDS_LOCK:
            RECORDED.refuse(self.layer)
            self.roles.filled[0].check_alive(self.layer)
            self.roles.filled[0].engine.require_ready(self.layer)
            active = self._active(memory)
            choice = self._choose(launches, active)
            show_call(self, lambda: self._note(launches, choice))
            if isinstance(choice, ArrayProgram):
                return choice(launches, memory)
            if active and _is_race(choice):
                raise refuse_generated(self.layer, choice, launches)
            # In this order: it takes time to find the state.
            if is_in_backward() and self._state:
                warn_of_rerun(self.layer, self._state)
            with self._source_first(choice):
                call = plan_call(self.program, launches, memory, () if choice is None else _rows(choice))
            if call is None:
                return run_plain(self.program, launches, memory)
            results = run_call(call, memory)
            if active and choice is not None and not (isinstance(choice, NoArray) or self.program.is_unforeseen):
                self._warn(choice)
            return results

    def _note(self, launches: tuple[Launch, ...], choice: ArrayProgram | Reason | None) -> NotedFields:
        """Note what a call depends on besides its tensors: Python values, and fields that it begins with."""
        fields = choice.held if isinstance(choice, ArrayProgram) else self.program.looked_at
        return NotedFields.of(self.layer, launches, fields)

    def _active(self, memory: Sequence[torch.Tensor]) -> tuple[LayerField, ...]:
        """Return the filled fields whose gradient may be asked for."""
        if not (torch.is_grad_enabled() or is_transformed()):
            return ()
        pairs = zip(self.roles.filled, memory, strict=True)
        is_any = is_transformed()
        return tuple([one for one, t in pairs if (t.requires_grad or is_any) and not one.is_silent])

    def _choose(self, launches: tuple[Launch, ...], active: Sequence[LayerField]) -> ArrayProgram | Reason | None:
        """Choose how a call runs.

        Return the program on arrays; for a run on fields the reason, or None if the caller asked for it.
        """
        if self._adjoint == "engine":
            if self._source_only:
                raise _refuse_engines(self.layer, self._source_only)
            return None
        key = fingerprints_of(launches)
        known = self._arrays.get(key)
        choice = self._arrays.keep(key, self._make_arrays(launches)) if known is None else known
        if isinstance(choice, ArrayProgram) and active:
            choice = choice.refusal(launches, active) or choice
        if not isinstance(choice, ArrayProgram) and (self._adjoint == "source" or self._source_only):
            raise _no_source(self.layer, choice, self._source_only)
        return choice

    def _make_arrays(self, launches: tuple[Launch, ...]) -> ArrayProgram | Reason:
        try:
            with show_preparation(self.layer, len({launch.kind for launch in launches})):
                return ArrayProgram(self.layer, self.roles, launches, self._habits, self._reset)
        except (TinsmithError, NotCovered) as reason:
            reason.__context__ = reason.__cause__ = None
            # The traceback's frames would keep this object alive, and with it the memory of its fields.
            return reason.with_traceback(None)

    # Words ------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _source_first(self, reason: Reason | None) -> Iterator[None]:
        """Enter a context that adds to a refusal of the engine's gradient why none is generated."""
        try:
            yield
        except GradientError as engines:
            if reason is None:
                raise
            engine = self.program.engine.name
            words = (
                f"{self.layer} has no gradient: none can be generated from its source, and {engine}'s own is refused"
            )
            remedy = f"Rewrite this construct. {engine}'s own is refused because:"
            raise GradientError(f"{refusal(words, _rows(reason), remedy)}\n{indent(str(engines), '  ')}") from engines

    def _warn(self, reason: Reason) -> None:
        """Warn once of each reason why the gradient is the engine's."""
        if str(reason) in self._warned:
            return
        self._warned.add(str(reason))
        words = (
            f"the gradient of {self.layer} is the engine's own, since none can be generated from its source; "
            "the engine's is silently wrong for some kernels"
        )
        remedy = "Rewrite this construct; or pass adjoint='engine' to accept the engine's gradient."
        warn(refusal(words, _rows(reason), remedy))

    # Inspection -------------------------------------------------------------------------------
    def note_set(self, one: LayerField) -> None:
        """Note that a user's code has set a field."""
        if "program" in vars(self):
            self.program.note_set(one)

    def examine(self, launches: tuple[Launch, ...], memory: Sequence[torch.Tensor]) -> Examination:
        """Examine a call, for checks."""
        self.roles.filled[0].check_alive(self.layer)
        choice = self._choose(launches, self._all_active())
        arrays = choice if isinstance(choice, ArrayProgram) else None
        refused = refuse_generated(self.layer, choice, launches) if _is_race(choice) else None
        return FieldsExamination(self.program, launches, memory, arrays, refused)

    def explain(self, detail: Detail = "summary") -> str:
        """Describe a call."""
        choice = self._choose(self._launches, self._all_active())
        if isinstance(choice, ArrayProgram):
            return f"on fields\n\ngradient: generated from the kernels' source\n{choice.explain(detail)}"
        rows = [] if choice is None else [f"not generated from the source: {headline(choice)}"]
        refused = f"refused: {RACE}" if _is_race(choice) else ""
        return "\n".join(["on fields\n", *rows, self.program.explain(refused)])

    def _all_active(self) -> tuple[LayerField, ...]:
        return tuple(one for one in self.roles.filled if one.may_have_gradient)


def _is_race(choice: ArrayProgram | Reason | None) -> TypeGuard[NotCovered]:
    """Return True if the reason is a data race: then the engine's gradient is not used either."""
    return isinstance(choice, NotCovered) and choice.race is not None


def _rows(reason: Reason) -> list[tuple[str, ...]]:
    if isinstance(reason, NotCovered):
        return [("because of", reason.construct), ("at", reason.place)]
    lines = str(reason).splitlines()
    return [("because", lines[0]), *(("", line.strip()) for line in lines[1:-1])]


def refuse_generated(layer: str, reason: NotCovered, launches: Sequence[Launch]) -> GradientError:
    """Build the error for a gradient that cannot be generated."""
    if reason.race is not None:
        return refuse_race(layer, reason, reason.race, launches[0].launcher.stage.module_name)
    words = f"{layer} uses a construct for which no gradient can be generated"
    return GradientError(refusal(words, _rows(reason), f"{reason.remedy}."))


def _no_source(layer: str, reason: Reason, source_only: str) -> GradientError:
    """Build the error for a layer that needs the generated gradient: it was asked for, or no other is offered."""
    words = f"{layer} uses a construct for which no gradient can be generated"
    remedy = "Rewrite this construct, or leave out adjoint='source'."
    if source_only:
        advice = reason.remedy if isinstance(reason, NotCovered) else "Rewrite this construct"
        remedy = f"{advice}: a layer with {source_only} needs the generated gradient."
    return GradientError(refusal(words, _rows(reason), remedy))


def _refuse_engines(layer: str, source_only: str) -> GradientError:
    words = f"{layer} uses {source_only}, for which the engine's own gradient is not offered"
    return GradientError(refusal(words, remedy="Leave out adjoint='engine', or use fields that the kernel names."))
