"""Regions: the statements between two barriers, which one loop over the lanes of a block runs.

    lane = i % 64; a = x[i]            region 1 stores  a_of_lanes[block, lane] = a
    barrier                      ->
    y[i] = a + f32(lane)               region 2 computes  lane  again, and loads  a = a_of_lanes[block, lane]

Of the locals that live across a barrier, each lane keeps some in memory of its block, and computes the others again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...analyses import Liveness, find_operands
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


@dataclass(frozen=True)
class RegionLocals:
    """What a region does with locals that others use too, by name in the order of the text.

    Attributes:
        repeated: computed again at its start.
        loaded: taken from memory at its start.
        stored: put into memory at its end.
    """

    repeated: tuple[str, ...]
    loaded: tuple[str, ...]
    stored: tuple[str, ...]


def locals_across(regions: Sequence[Region], level: BlockLevel) -> Mapping[Region, RegionLocals]:
    """Return what each region does with locals that live across barriers."""
    own = {*level.locals, *level.layout.variables}
    uses = {region: walk.find_mentioned(region.body) | _find_votes(region) for region in regions}
    given = {region: walk.find_defined(region.body) - own for region in regions}
    everywhere = {name for names in given.values() for name in names}
    wanted = {region: _find_live(region) & everywhere for region in regions}
    repeatable = _repeatable(level, own)
    # A local that several regions mention lives across a barrier only if one of them needs a value from before it.
    across = {
        name
        for name in everywhere
        if sum(name in names for names in uses.values()) > 1 and any(name in names for names in wanted.values())
    }
    kept = across - repeatable.keys()
    by_region = {}
    for region in regions:
        # Stored wherever it is given a value: a later region, or the same one in the next turn of a loop, may load it.
        stored = given[region] & kept
        loaded = _find_live(region, frozenset(stored)) & kept
        # But for what the region gives a value itself before.
        repeated = find_operands(wanted[region] & across & repeatable.keys(), repeatable) - given[region]
        in_order = tuple(name for name in repeatable if name in repeated)
        by_region[region] = RegionLocals(in_order, tuple(sorted(loaded)), tuple(sorted(stored)))
    return by_region


def _find_votes(region: Region) -> set[str]:
    return {region.vote.value.name} if region.vote is not None else set()


def _repeatable(level: BlockLevel, own: set[str]) -> dict[str, nodes.Expr]:
    """Return locals that any region can compute, and from what; each after those that it is made of."""
    # Locals of the block with one value each may be used, and so may those that nothing in the body changes.
    repeatable: dict[str, nodes.Expr] = {}
    for name, value in level.pure.items():
        parts = walk.locals_in([value])
        is_known = all(part in own or part in repeatable or not level.given[part] for part in parts)
        is_steady = all(part not in level.locals or level.given[part] <= 1 for part in parts)
        if name not in own and is_known and is_steady:
            repeatable[name] = value
    return repeatable


def _find_live(region: Region, stored: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the locals whose value from before a region it may need.

    It may read them, or store them at its end on a path that gave them no value.
    """
    at_end = stored | _find_votes(region)
    # A `continue` ends the region for its lane, which stores and votes all the same (`_Ordering.region`).
    liveness = Liveness()
    liveness.after_continue.append(at_end)
    return frozenset(liveness.block(region.body, at_end)[1])
