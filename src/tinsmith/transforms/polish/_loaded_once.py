"""Loads done once: what an array that nobody changes holds at one place is asked for once an iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...source.ir import nodes, walk
from ._uncopied import Text

Block = tuple[nodes.Stmt, ...]
Known = dict[nodes.Load, nodes.Local]


def loaded_once(body: Sequence[nodes.Stmt], kinds: Mapping[str, str]) -> Block:
    """Statements in which `b = x[i]` is `b = a` where `a = x[i]` stands before it on every way.

    Args:
        body: the statements.
        kinds: types of locals.
    """
    changed = frozenset(store.array for store in walk.stores(body))
    return _Once(Text(body), changed, kinds).block(tuple(body), {})


@dataclass(frozen=True)
class _Once:
    text: Text
    changed: frozenset[str]
    kinds: Mapping[str, str]

    def block(self, body: Block, outer: Known) -> Block:
        known = dict(outer)
        found: list[nodes.Stmt] = []
        for one in body:
            match one:
                case nodes.Assign(name, nodes.Load() as load):
                    source = known.get(load)
                    found.append(one if source is None else replace(one, value=source))
                    if source is None and self.is_steady(one, load):
                        known[load] = nodes.Local(name, load.type)
                case nodes.If():
                    found.append(replace(one, body=self.block(one.body, known), orelse=self.block(one.orelse, known)))
                case nodes.For() | nodes.While():
                    found.append(replace(one, body=self.block(one.body, known)))
                case _:
                    found.append(one)
        return tuple(found)

    def is_steady(self, one: nodes.Assign, load: nodes.Load) -> bool:
        """Whether a local holds what the load gives, wherever both can be asked for."""
        if load.array in self.changed or self.kinds[one.name] != load.type or len(self.text.given[one.name]) != 1:
            return False
        ((number, _),) = self.text.given[one.name]
        inside = [part for part in walk.parts(load) if isinstance(part, nodes.Load)]
        if any(part.array in self.changed for part in inside):
            return False
        return all(other < number for name in walk.locals_in([load]) for other, _ in self.text.given.get(name, ()))
