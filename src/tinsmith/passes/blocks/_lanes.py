"""Locals of lanes that live across a barrier: each lane keeps them in memory of its block, or computes them again.

    lane = i % 64; a = x[i]            region 1 stores  a_of_lanes[block, lane] = a
    barrier                      ->
    y[i] = a + f32(lane)               region 2 computes  lane  again, and loads  a = a_of_lanes[block, lane]

Regions are the statements between barriers (`_regions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...analyses import Liveness, find_operands
from ...ir import nodes, walk
from ._regions import Region
from ._uniform import BlockLevel


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
