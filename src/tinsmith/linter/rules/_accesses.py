"""Rules that ask the IR about accesses: elements that iterations share, and indices that leave their array."""

from __future__ import annotations

from collections.abc import Iterator

from ...analyses import (
    Conflict,
    OutOfRange,
    Verdict,
    describe_conflict,
    describe_sum,
    find_conflicts,
    find_out_of_range,
)
from ...frontend import index_parts, names_in
from ...ir import nodes, walk
from .._finding import Edit, Finding
from .._sketch import Sketch, sketch_of
from .._source_form import Node, get_self_addition
from .._subject import Subject


def find_races(subject: Subject) -> Iterator[Finding]:
    """Report certain races as errors, and possible ones as warnings: TS105 and TS106."""
    if not subject.is_kernel:
        return
    sketch = sketch_of(subject)
    promised = {item.name for item in (subject.spec.inputs if subject.spec else ()) if item.promise}
    for conflict in find_conflicts(sketch.kernel):
        # Sizes of a file's arrays may be related in ways that it does not say.
        if conflict.verdict is Verdict.CONDITIONAL or conflict.array in sketch.escaped:
            continue
        if conflict.verdict is Verdict.POSSIBLE and subject.spec is None and [*_loads(conflict)]:
            continue  # whether numbers in an array are unique, only an op's spec can say
        is_promised = promised & {part.array for part in _loads(conflict)}
        if conflict.verdict is Verdict.CERTAIN or not is_promised:
            yield _report_conflict(subject, sketch, conflict)


def _loads(conflict: Conflict) -> Iterator[nodes.Load]:
    """Yield the loads in the indices of both accesses of a conflict, including those behind locals."""
    for access in (conflict.change, conflict.other):
        yield from (part for part in walk.parts(*access.index) if isinstance(part, nodes.Load))


def _report_conflict(subject: Subject, sketch: Sketch, conflict: Conflict) -> Finding:
    is_certain = conflict.verdict is Verdict.CERTAIN
    words = describe_conflict(conflict, sketch.kernel)
    change = conflict.change.of
    node = subject.tree if isinstance(change, nodes.Load) else sketch.places.get(change.number, subject.tree)
    rule = "TS106" if conflict.is_of_neighbors else "TS105"
    fix = _add_atomically(subject, node, conflict.array)
    in_order = f"{subject.module_name}.loop_config(serialize=True)  # before the loop"
    remedy = (
        f"{in_order}; or use one atomic operation" if fix is None else f"{fix.replacement}  # atomic; or {in_order}"
    )
    remedy += "" if is_certain else "; or a promise in the spec, `unique k[n]`"
    return subject.finding(rule, "error" if is_certain else "warning", node, words, remedy, fix=fix)


def _add_atomically(subject: Subject, target: Node, array: str) -> Edit | None:
    """Return the edit of `x[i] = x[i] + a` to `x[i] += a`, which is atomic; None for other stores to a target."""
    for spot in subject.spots:
        addition = get_self_addition(spot.statement)
        if addition is not None and addition.target is target and array not in names_in(addition.value):
            text = f"{subject.text(target)} {addition.sign}= {subject.text(addition.value)}"
            return subject.replace_node(spot.statement, text)
    return None


def find_indices_outside(subject: Subject) -> Iterator[Finding]:
    """Report indices that leave their array whatever its size, as `x[i - 1]` in `for i in x` (TS109)."""
    sketch = sketch_of(subject) if subject.is_kernel else None
    if sketch is not None and not sketch.returns_early:
        for outside in find_out_of_range(sketch.kernel, _find_measured_arrays(subject, sketch)):
            yield from _report_index(subject, sketch, outside)


def _find_measured_arrays(subject: Subject, sketch: Sketch) -> list[str]:
    """Return the arrays whose indices can be checked against their sizes: indices start at 0 and are not clamped."""
    open_items = {item.name for item in subject.spec_items if item.has_rest}
    parameters = {name for name, one in subject.declared.items() if one.kind == "array"} - open_items
    arrays = sketch.kernel.arrays.items()
    return [name for name, one in arrays if (one.dims or name in parameters) and not one.is_clamped]


def _report_index(subject: Subject, sketch: Sketch, outside: OutOfRange) -> Iterator[Finding]:
    node = sketch.find_element(outside.access.of, outside.access.line)
    if node is None:
        return
    label, text, part = subject.label(outside.access.array), subject.text(node), index_parts(node.slice)[outside.axis]
    index, size = (describe_sum(one, sketch.kernel) for one in (outside.reached, outside.size))
    is_negative = not outside.reached.terms and outside.reached.constant < 0
    words = f"`{text}` is outside `{label}` whatever its size: "
    words += f"the index {'is' if outside.is_constant else 'reaches'} {index} along axis {outside.axis}, "
    words += "and negative indices do not count from the end" if is_negative else f"whose size is {size}"
    guard = f"if 0 <= {subject.text(part)} < {label}.shape[{outside.axis}]:  # or a loop over fewer elements"
    is_only = is_negative and len(outside.access.index) == 1
    last = f"{label}[{label}.shape[0] - {-outside.reached.constant}]" if is_only else ""
    yield subject.finding("TS109", "error", node, words, last if outside.is_constant else guard)
