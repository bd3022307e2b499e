"""TS105 and TS106: iterations of a parallel loop that use one element, as `analyses` decides for ops too."""

from __future__ import annotations

from collections.abc import Iterator

from ...analyses import Conflict, Verdict, describe_conflict, find_conflicts
from ...ir import nodes, walk
from .._finding import Finding
from .._sketch import Sketch, sketch_of
from .._subject import Subject


def find_races(subject: Subject) -> Iterator[Finding]:
    """Report certain races as errors, and possible ones as warnings."""
    if not subject.is_kernel:
        return
    sketch = sketch_of(subject)
    promised = {item.name for item in (subject.spec.inputs if subject.spec else ()) if item.promise}
    for conflict in find_conflicts(sketch.kernel):
        # Sizes of a file's arrays may be related in ways that it does not say.
        if conflict.verdict is Verdict.CONDITIONAL or conflict.array in sketch.escaped:
            continue
        is_promised = promised & {part.array for part in _loads(conflict)}
        if conflict.verdict is Verdict.CERTAIN or not is_promised:
            yield _report(subject, sketch, conflict)


def _loads(conflict: Conflict) -> Iterator[nodes.Load]:
    """Loads in the indices of both accesses, with those that their locals come from."""
    for access in (conflict.change, conflict.other):
        yield from (part for part in walk.parts(*access.index) if isinstance(part, nodes.Load))


def _report(subject: Subject, sketch: Sketch, conflict: Conflict) -> Finding:
    is_certain = conflict.verdict is Verdict.CERTAIN
    words = describe_conflict(conflict, sketch.kernel)
    remedy = f"{subject.module_name}.loop_config(serialize=True)  # before the loop; or one atomic operation"
    remedy += "" if is_certain else "; or a promise in the spec, `unique k[n]`"
    change = conflict.change.of
    node = subject.tree if isinstance(change, nodes.Load) else sketch.places.get(change.number, subject.tree)
    rule = "TS106" if conflict.is_of_neighbors else "TS105"
    return subject.finding(rule, "error" if is_certain else "warning", node, words, remedy)
