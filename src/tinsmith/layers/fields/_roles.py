"""Roles: the roles of a layer's kernels and fields, and the fields that a kernel uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..._errors import RegistrationError, refusal
from ...calls import BoundArguments
from ...calls.fields import Launcher
from ...engines import FieldKey
from ._layer_field import LayerField, place_field


class Launch(NamedTuple):
    """One kernel with its arguments."""

    launcher: Launcher
    bound: BoundArguments

    @property
    def kind(self) -> tuple[Any, ...]:
        """What launches have in common that use the same fields in the same way: a kernel, and its templates."""
        return self.launcher.stage, *map(id, self.bound.templates.values())

    @property
    def versions(self) -> tuple[Any, ...]:
        """What tells each array among the arguments from itself after a change."""
        return self.launcher.versions(self.bound)


@dataclass(frozen=True, eq=False)
class Roles:
    """What a layer's fields are for.

    Attributes:
        filled: from a call's tensors: inputs, then weights.
        outputs: results, in order.
        internal: everything else that was registered with the layer.
    """

    filled: tuple[LayerField, ...]
    outputs: tuple[LayerField, ...]
    internal: tuple[LayerField, ...]

    @property
    def without_managers(self) -> Roles:
        """The same without field managers: fields as they lie. Whoever runs on them keeps these roles, too."""
        filled, outputs, internal = (
            tuple([one.without_manager for one in side]) for side in (self.filled, self.outputs, self.internal)
        )
        return Roles(filled, outputs, internal)


@dataclass(frozen=True)
class Habits:
    """How a layer treats its fields between calls.

    Attributes:
        clears_outputs: whether outputs start each call at zero where they do not say themselves; None is for those
            that kernels only add to.
        clears_internal: the same of internal fields. What is not cleared starts with what the field holds.
        clears_gradients: of internal fields, before each backward pass; otherwise they add up.
        saves: what kernels change is saved for the backward pass.
    """

    clears_outputs: bool | None = False
    clears_internal: bool = False
    clears_gradients: bool = True
    saves: bool = True


class Use(NamedTuple):
    """A field of numbers that a kernel uses. One that is not followed counts as written, replaced and read.

    `is_replaced` says that it is written otherwise than by adding to it.
    """

    one: LayerField
    is_written: bool
    is_read: bool
    is_followed: bool
    is_replaced: bool


def uses_of(launch: Launch) -> dict[str, Use]:
    """Return the fields that a kernel and its functions use, by the names that they use for them.

    Two functions may call two fields the same. The first keeps the name: it is the kernel's own.
    """
    stage, engine = launch.launcher.stage, launch.launcher.engine
    uses: dict[str, Use] = {}
    for use in launch.launcher.fields(launch.bound):
        leaves = engine.leaf_fields(use.field, use.name)
        members = [name[len(use.name) + 1 :] for name, _ in leaves]
        for (name, leaf), member in zip(leaves, members, strict=True):
            one = place_field(leaf, name, None, False, f"kernel `{stage.name}`")
            of_leaf = use.of_member(member, members)
            while name in uses and uses[name].one.facts.key != one.facts.key:
                name += "'"
            uses[name] = Use(one, of_leaf.is_written, of_leaf.is_read, of_leaf.is_followed, of_leaf.is_replaced)
    return uses


def uses_of_each(launches: Sequence[Launch]) -> list[dict[str, Use]]:
    """Return `uses_of` for each launch, computed once for launches of one kernel with the same templates."""
    known: dict[object, dict[str, Use]] = {}
    uses = []
    for launch in launches:
        kind = launch.kind
        if kind not in known:
            known[kind] = uses_of(launch)
        uses.append(known[kind])
    return uses


def check_once(fields: Sequence[LayerField], role: str, layer: str, remedy: str = "Register each field once.") -> None:
    """Raise RegistrationError for a field that is there twice: it holds one tensor, and has one gradient."""
    seen: dict[FieldKey, LayerField] = {}
    for one in fields:
        other = seen.setdefault(one.facts.key, one)
        if other is not one:
            words = f"`{other.name}` and `{one.name}` of {layer} are the same field, registered twice as {role}"
            raise RegistrationError(refusal(words, remedy=remedy))


def check_memory(layer: str, roles: Roles, launches: Sequence[Launch]) -> None:
    """Raise RegistrationError for two fields that share memory, unless kernels only read both: a field and a component.

    Each is copied as a whole, and the arrays that take their places share nothing. Of registered fields, none may be
    the gradient of another.
    """
    uses = [use for of_launch in uses_of_each(launches) for use in of_launch.values() if use.is_read or use.is_written]
    registered = by_key((*roles.filled, *roles.outputs, *roles.internal))
    changed = by_key([use.one for use in uses if use.is_written]) | registered
    owners: dict[int, LayerField] = {}
    for one in (changed | by_key([use.one for use in uses]) | changed).values():
        for other in [owners.setdefault(part, one) for part in one.facts.parts]:
            if other is not one and other.facts.key in changed:
                words = f"`{other.name}` and `{one.name}` of {layer} share memory: one is a component of the other"
                remedy = "Use the whole field, in kernels and where it is registered, or each component by itself."
                raise RegistrationError(refusal(words, [("fields", f"{other}, {one}")], remedy))
    for one in registered.values():
        for other in [owners[part] for part in one.gradient_parts if part in owners]:
            if other.facts.key in registered:
                words = f"field `{other.name}` of {layer} is the gradient of `{one.name}`, or a component of it"
                remedy = (
                    "Leave it out: torch gives the gradient of a call, as `tensor.grad` or by `torch.autograd.grad`."
                )
                raise RegistrationError(refusal(words, remedy=remedy))


def by_key(fields: Sequence[LayerField]) -> dict[FieldKey, LayerField]:
    """Return fields by their keys, which are equal for the same memory."""
    return {one.facts.key: one for one in fields}
