"""Regions: the statements between two barriers, which one loop over the lanes of a block runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...ir import nodes, walk
from ._uniform import BlockLevel


@dataclass(frozen=True, eq=False)
class Region:
    """Statements that each lane runs from the first to the last, whatever others do. Each is equal to itself alone.

    Attributes:
        vote: what counts lanes at the end; None without one.
    """

    body: nodes.Block
    vote: nodes.Vote | None = None

    @property
    def is_left_early(self) -> bool:
        """Whether a lane may leave it with `continue`."""
        return any(walk.jumps_in(self.body))


@dataclass(frozen=True)
class Uniform:
    """A statement of the block's level, and what stands in its bodies."""

    statement: nodes.Stmt
    bodies: tuple[tuple[Item, ...], ...]


Item: TypeAlias = Region | Uniform


def split_at_barriers(body: Sequence[nodes.Stmt], level: BlockLevel) -> tuple[Item, ...]:
    """Split the statements of a thread block at its barriers.

    Return the regions, whose statements each lane runs without waiting, and the statements between regions that the
    block runs as a whole.
    """
    items: list[Item] = []
    waiting: list[nodes.Stmt] = []
    for one in body:
        if not level.has(one):
            waiting.append(one)
            continue
        # A vote without statements before it still needs a loop over lanes, which counts.
        vote = one if isinstance(one, nodes.Vote) else None
        if waiting or vote:
            items.append(Region(tuple(waiting), vote))
            waiting = []
        if not isinstance(one, nodes.Barrier | nodes.Vote):
            items.append(Uniform(one, tuple(split_at_barriers(part, level) for part in walk.bodies(one))))
    return (*items, Region(tuple(waiting))) if waiting else tuple(items)


def regions_in(items: Sequence[Item]) -> Iterator[Region]:
    """Yield all regions, in the order of the text."""
    for one in items:
        if isinstance(one, Region):
            yield one
        else:
            for part in one.bodies:
                yield from regions_in(part)
