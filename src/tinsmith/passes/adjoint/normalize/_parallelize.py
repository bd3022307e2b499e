"""Serial loops with independent iterations, so that their reverse can run in parallel.

A kernel may ask for one thread because its iterations add up in one place (`ti.loop_config(serialize=True)`), where
atomic additions would cost more than a second thread gains. Its reverse only gathers there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....analyses import Activity
from ....ir import nodes, walk
from .._access import find_owned, is_mere_sum
from .._ssa import Step
from ._reversible import Reversible


def parallelize(task: Reversible, activity: Activity) -> Reversible:
    """A task with its loop made parallel, where its reverse then takes no atomic and gives the same bits."""
    *before, loop = task.steps
    if not isinstance(loop, nodes.Loop) or loop.is_parallel or not _is_plain(loop) or not _are_bounds(before, loop):
        return task
    steps = (*before, replace(loop, is_parallel=True))
    own = find_owned(steps)
    gathered = {load.array for load in walk.loads(steps) if activity.has_array(load.array)}
    if (gathered | _find_ordered_arrays(loop)) - own:
        return task
    return replace(task, steps=steps, own=own)


def _is_plain(loop: nodes.Loop) -> bool:
    """Whether a loop hands nothing on, and runs as often as its bounds say."""
    return bool(loop.names) and loop.exit is None and not loop.carried


def _are_bounds(before: Sequence[Step], loop: nodes.Loop) -> bool:
    """Whether what stands before a loop is for its bounds only."""
    inside = walk.find_read(loop.body)
    return all(isinstance(step, nodes.Assign) and step.name not in inside for step in before)


def _find_ordered_arrays(loop: nodes.Loop) -> set[str]:
    """Arrays that a loop changes, and not only by adding to what nobody reads."""
    loaded = walk.find_loaded(loop.body)
    return {one.array for one in walk.stores(loop.body) if not is_mere_sum(one) or one.array in loaded}
