"""Links: the names of an op's arrays and arguments in one of its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..engines import Engine, FieldFacts, Parameter


class Links(NamedTuple):
    """How an op's arrays and arguments are called in one of its kernels, where a name alone does not say.

    `names` leads from the kernel's own parameter names to those of the op; parameters that get the same
    one are one array. `elements` are the element dims of arrays, by the op's names, where they are known.
    `fields` are those that become arrays, by what the kernel calls them: `x`, `self.x`. `objects` are what its
    template parameters stand for, where fields may be found in it. `gradients` of fields, `x.grad`, are not stored to:
    the kernel's own statements that do are left out. `again` is the place of an earlier kernel of the op
    that this one is, launched with other scalars. `copies` are an array of the op and the one that the kernel copies
    it from, where it does nothing else.
    """

    names: Mapping[str, str]
    elements: Mapping[str, tuple[int, ...]]
    fields: Mapping[str, FieldArray] = {}
    objects: Mapping[str, Any] = {}
    gradients: frozenset[str] = frozenset()
    again: int | None = None
    copies: tuple[str, str] | None = None

    def keys(self, engine: Engine) -> dict[int, str]:
        """Arrays that take the places of fields, by what tells these apart."""
        named = {array.facts.key: array.name for array in self.fields.values()}
        given = [(value, self.names.get(name, name)) for name, value in self.objects.items() if engine.is_field(value)]
        return named | {engine.field_facts(value, name).key: name for value, name in given if name in self.elements}


class FieldArray(NamedTuple):
    """The array of an op that takes a field's place."""

    name: str
    facts: FieldFacts

    def parameter(self) -> Parameter:
        """As if the kernel had declared it."""
        facts = self.facts
        rank = len(facts.shape)
        return Parameter(self.name, "array", (facts.dtype,), rank, facts.element, text=f"a field of {rank} dims")
