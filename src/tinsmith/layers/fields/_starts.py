"""Starts: the content of a field when the first kernel of a call runs.

A field starts each call at zero (it is cleared) or with what it holds. Layers on fields clear the former. Layers on
tensors copy the latter into the arrays that take the fields' places, unless the first kernel replaces every element.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..._errors import refusal
from ..._user_warnings import warn
from ...codegen import build_from_text
from ...compiling import Links
from ...engines import FieldKey
from ._layer_field import LayerField
from ._roles import Habits, Launch, Roles, Use, by_key, uses_of_each


class Starts:
    """Which fields of a layer are cleared before each call, and which are added to though nobody clears them."""

    def __init__(self, roles: Roles, launches: Sequence[Launch], habits: Habits) -> None:
        self._roles, self._launches = roles, launches
        self._uses_by_launch = uses_by_launch = uses_of_each(launches)
        self._uses = [use for uses in uses_by_launch for use in uses.values()]
        self._labels = {use.one.facts.key: label for uses in reversed(uses_by_launch) for label, use in uses.items()}
        self._added = {use.one.facts.key for use in self._uses if use.is_written}
        self._added -= {use.one.facts.key for use in self._uses if use.is_replaced}
        self._read = {use.one.facts.key for use in self._uses if use.is_read}
        self._filled = by_key(roles.filled)
        self._outputs = by_key(roles.outputs)
        self._declared = {
            one.facts.key: one.clears for one in (*roles.internal, *roles.outputs) if one.clears is not None
        }
        self._habits = habits
        self._registered = by_key((*roles.internal, *roles.outputs))

    @property
    def fields_at_zero(self) -> tuple[LayerField, ...]:
        """Fields that start each call at zero."""
        return tuple(one for key, one in self._registered.items() if key not in self._filled and self._is_cleared(key))

    @property
    def cleared_by_default(self) -> tuple[LayerField, ...]:
        """Those that are not declared so: outputs that kernels only add to."""
        is_open = self._habits.clears_outputs is None
        return tuple(one for one in self.fields_at_zero if is_open and one.facts.key not in self._declared)

    @property
    def unwritten_outputs(self) -> tuple[LayerField, ...]:
        """Outputs that are no inputs and that no kernel writes."""
        written = {use.one.facts.key for use in self._uses if use.is_written}
        return tuple(one for key, one in self._outputs.items() if key not in written | self._filled.keys())

    @property
    def unused_inputs(self) -> tuple[LayerField, ...]:
        """Filled fields whose values have no effect: they are not returned, or no kernel reads them before it
        overwrites all of them.
        """
        used = {use.one.facts.key for use in self._uses if use.is_read or use.is_written}
        used |= self._outputs.keys()
        return tuple(one for one in self._roles.filled if one.facts.key not in used or self._is_overwritten_first(one))

    def _is_overwritten_first(self, one: LayerField) -> bool:
        # Most fields are only read, and need no kernel to be lowered.
        is_written = any(use.is_written for use in self._uses if use.one.facts.key == one.facts.key)
        return is_written and is_replaced_first(one, self._launches, self._uses_by_launch)

    def describe_field(self, one: LayerField) -> list[tuple[str, str]]:
        """Format a field as rows of a message: as registered, and by its name in kernels."""
        label = self._labels.get(one.facts.key, one.name)
        return [("field", str(one)), *([("in kernels", label)] if label != one.name else [])]

    def _is_cleared(self, key: FieldKey) -> bool:
        if key in self._declared:
            return bool(self._declared[key])
        if key not in self._outputs:
            return self._habits.clears_internal
        if self._habits.clears_outputs is None:
            return key in self._added - self._read
        return self._habits.clears_outputs

    @property
    def accumulators(self) -> tuple[LayerField, ...]:
        """Fields of numbers with a slope that kernels add to, and that nobody clears or declared."""
        fields = by_key([use.one for use in self._uses]) | self._registered
        known = self._filled.keys() | self._declared.keys() | by_key(self.fields_at_zero).keys()
        known |= self._outputs.keys() if self._habits.clears_outputs is not None else set()
        candidates = [one for key, one in fields.items() if key in self._added - known]
        return tuple(one for one in candidates if one.facts.dtype.is_floating_point and not one.is_silent)

    def is_seen(self, one: LayerField) -> bool:
        """Return True if results may depend on a field: it is an output, or a kernel reads it."""
        return one.facts.key in self._outputs or one.facts.key in self._read


# Arrays in place of fields --------------------------------------------------------------------
def start_kernel(one: LayerField, array: str) -> tuple[Any, Links]:
    """Build the kernel that copies a field's content to the array in its place, called `array` in the op."""
    shape = one.facts.shape
    names = [f"i{axis}" for axis in range(len(shape))]
    sizes = ", ".join(map(str, shape))
    header = {0: "for _ in range(1):", 1: f"for i0 in range({sizes}):"}
    place = ", ".join(names) or "None"
    lines = [
        "def start(target: _lang.template()):",
        f"    {header.get(len(shape)) or f'for {place} in _lang.ndrange({sizes}):'}",
        f"        target[{place}] = source[{place}]",
    ]
    lang: Any = one.engine.lang
    function = build_from_text("\n".join(lines), {"_lang": lang, "source": one.field}, "start")
    return lang.kernel(function), Links({"target": array}, {array: one.facts.element})


def find_held(roles: Roles, launches: Sequence[Launch], cleared: Collection[FieldKey]) -> tuple[LayerField, ...]:
    """Return the fields that no caller fills and whose content a call begins with.

    Args:
        roles: the fields of the layer.
        launches: its kernels. Each has names of its own for its fields.
        cleared: keys of the fields that start each call at zero.
    """
    uses = uses_of_each(launches)
    written = {use.one.facts.key for of_launch in uses for use in of_launch.values() if use.is_written}
    used = by_key([use.one for of_launch in uses for use in of_launch.values()]) | by_key(roles.outputs)
    used |= {key: one for key, one in by_key(roles.internal).items() if key in used}
    others = [one for key, one in used.items() if key not in by_key(roles.filled)]
    # What is cleared and written starts as an array of zeros does.
    others = [one for one in others if not (one.facts.key in cleared and one.facts.key in written)]
    return tuple([one for one in others if one.facts.key not in written or not is_replaced_first(one, launches, uses)])


def find_state(held: Sequence[LayerField], launches: Sequence[Launch]) -> tuple[str, ...]:
    """Return the names of those fields that kernels both read and write: they carry a state from call to call."""
    uses = [use for of_launch in uses_of_each(launches) for use in of_launch.values()]
    written = {use.one.facts.key for use in uses if use.is_written}
    read = {use.one.facts.key for use in uses if use.is_read}
    return tuple(one.name for one in held if one.facts.key in written & read)


def warn_of_rerun(layer: str, state: Sequence[str]) -> None:
    """Warn that a layer with a state runs in a backward pass: the state that its first run began with is gone.

    Whether kernels read elements of it that none of them wrote before is not known.
    """
    fields = ", ".join(f"`{name}`" for name in state)
    words = f"{layer} is run again in a backward pass, and may begin with what the last call left in {fields}"
    rows = [("gradient", "that of this run, which differs from the first if a kernel reads what was left")]
    remedy = "Leave the layer out of what `torch.utils.checkpoint` runs again, or register these fields as inputs."
    warn(refusal(words, rows, remedy))


def is_replaced_first(one: LayerField, launches: Sequence[Launch], uses: Sequence[Mapping[str, Use]]) -> bool:
    """Return True if the first kernel that uses a field certainly overwrites all its elements before it reads any.

    The kernels are those that name each field by itself.
    """
    for launch, launch_uses in zip(launches, uses, strict=True):
        labels = [label for label, use in launch_uses.items() if use.one.facts.key == one.facts.key]
        if labels:
            facts = ((label, use.one.facts) for label, use in launch_uses.items())
            shapes = {label: field.shape for label, field in facts if field.is_dense}
            return len(labels) == 1 and labels[0] in launch.launcher.find_filled(launch.bound, shapes)
    return False
