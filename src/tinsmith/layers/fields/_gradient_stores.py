"""Gradients that kernels store to themselves: `x.grad[i] = 0.0` before each step, as programs with a tape do.

Gradients of a layer start each backward pass at zero, so such stores have no part in it. Arrays that take the fields'
places have no gradient to store to. An engine's reverse kernel would run them again, after what it added up there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..._errors import GradientError, refusal
from ._roles import Launch, Roles, Use, by_key, uses_of_each


class GradientStores:
    """Which launches of a layer only store to gradients, and whether a kernel does something else with one.

    `texts` are the gradients that the others store to by the way, `x.grad`, for each of them.
    """

    def __init__(self, roles: Roles, launches: Sequence[Launch]) -> None:
        uses = uses_of_each(launches)
        registered = by_key((*roles.filled, *roles.outputs, *roles.internal))
        fields = by_key([use.one for of_launch in uses for use in of_launch.values()]) | registered
        self._parts = {part for one in fields.values() for part in one.gradient_parts}
        self._refused: tuple[str, str, str] | None = None
        known: dict[object, tuple[bool, frozenset[str]]] = {}
        looks: list[tuple[bool, frozenset[str]]] = []
        for launch, used in zip(launches, uses, strict=True):
            kind = launch.kind
            if kind not in known:
                known[kind] = self._look(launch, used)
            looks.append(known[kind])
        self._takes_part = tuple(one for one, _ in looks)
        self.texts = tuple(texts for takes_part, texts in looks if takes_part)

    def select_taking_part(self, launches: Sequence[Any]) -> tuple[Any, ...]:
        """Select the launches that do more than store to gradient fields.

        `launches` may also be any values that belong to the launches, one for each.
        """
        pairs = zip(launches, self._takes_part, strict=True)
        return tuple([one for one, takes_part in pairs if takes_part])

    def select_left_out(self, launches: Sequence[Any]) -> tuple[Any, ...]:
        """Select the launches that only store to gradient fields, or the values that belong to them."""
        pairs = zip(launches, self._takes_part, strict=True)
        return tuple([one for one, takes_part in pairs if not takes_part])

    def expand_to_launches(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return one number for each launch: those given for the launches that take part, and 0 for the others."""
        rest = iter(numbers)
        return tuple(next(rest) if takes_part else 0 for takes_part in self._takes_part)

    def check(self, layer: str) -> None:
        """Raise GradientError where a kernel uses a gradient as a value."""
        if self._refused is None:
            return
        kernel, name, place = self._refused
        words = f"kernel `{kernel}` of {layer} uses the gradient `{name}`, which a layer cannot use as a value"
        remedy = "Leave the kernel out, and run it between calls; or let an optimizer of torch do its work."
        raise GradientError(refusal(words, [("at", place)], remedy))

    def _look(self, launch: Launch, used: Mapping[str, Use]) -> tuple[bool, frozenset[str]]:
        """Return whether a launch does more than store to gradients, and the names of gradients that it stores to."""
        texts, other = launch.launcher.gradients(launch.bound)
        own = [name for name, use in used.items() if not self._parts.isdisjoint(use.one.facts.parts)]  # `clear(x.grad)`
        writes = any(use.is_written for name, use in used.items() if name not in own)
        takes_part = writes or bool(launch.bound.tensors) or not (texts or own or other)
        if takes_part and own:
            stage = launch.launcher.stage
            other = other or (own[0], stage.source.place())
        if takes_part and other and self._refused is None:
            self._refused = (launch.launcher.stage.name, *other)
        return takes_part, texts
