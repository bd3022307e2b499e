"""Rule about indices that leave their array whatever its size: `x[i - 1]` in `for i in x`, `x[x.shape[0]]`."""

from __future__ import annotations

from collections.abc import Iterator

from ...analyses import OutOfRange, describe_sum, find_out_of_range
from ...frontend import index_parts
from .._finding import Finding
from .._sketch import Sketch, sketch_of
from .._subject import Subject


def outside(subject: Subject) -> Iterator[Finding]:
    """TS109."""
    sketch = sketch_of(subject) if subject.is_kernel else None
    if sketch is not None and not sketch.returns_early:
        for found in find_out_of_range(sketch.kernel, _measured(subject, sketch)):
            yield from _report(subject, sketch, found)


def _measured(subject: Subject, sketch: Sketch) -> list[str]:
    """Return the arrays whose indices count from 0 and are not clamped."""
    open_items = {item.name for item in (subject.spec.items if subject.spec else ()) if item.has_rest}
    parameters = {name for name, one in subject.declared.items() if one.kind == "array"} - open_items
    arrays = sketch.kernel.arrays.items()
    return [name for name, one in arrays if (one.dims or name in parameters) and not one.is_clamped]


def _report(subject: Subject, sketch: Sketch, found: OutOfRange) -> Iterator[Finding]:
    node = sketch.find_element(found.access.of, found.access.line)
    if node is None:
        return
    label, text, part = subject.label(found.access.array), subject.text(node), index_parts(node.slice)[found.axis]
    index, size = (describe_sum(one, sketch.kernel) for one in (found.index, found.size))
    is_negative = not found.index.terms and found.index.constant < 0
    words = f"`{text}` is outside `{label}` whatever its size: "
    words += f"the index {'is' if found.is_constant else 'reaches'} {index} along axis {found.axis}, "
    words += "and negative indices do not count from the end" if is_negative else f"whose size is {size}"
    guard = f"if 0 <= {subject.text(part)} < {label}.shape[{found.axis}]:  # or a loop over fewer elements"
    is_only = is_negative and len(found.access.index) == 1
    last = f"{label}[{label}.shape[0] - {-found.index.constant}]" if is_only else ""
    yield subject.finding("TS109", "error", node, words, last if found.is_constant else guard)
