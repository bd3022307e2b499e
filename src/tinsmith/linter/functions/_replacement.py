"""Replacement: the `ts.op` line that stands for a hand-written Function, as far as its text tells it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..._errors import SpecError
from ...engines import parse_expression
from ...engines import walk as walk_tree
from ...ir import Type, nodes, walk
from ...spec import parse
from .._names import MATH_TYPES
from .._sketch import sketch_of
from .._source_form import find_names
from .._subject import Subject
from ._failures import FindKernel
from ._reader import find_ranks
from ._tensors import Launch, ShapeOf, Size, Tensor
from ._trace import Trace, tensors_in

OPEN = "?"
"""A dim that the text does not tell."""
_NAMES = "nmkhwdpqrst"


@dataclass(eq=False)
class _Array:
    """An array parameter of a launched kernel, and the tensor that it is given."""

    name: str
    tensor: Tensor
    kernel: Subject | None
    dims: list[str] | None = None
    element: tuple[int, ...] = ()


@dataclass
class _Names:
    """Names of dims: one for each (array, axis) of the inputs, and those of sizes that the caller passes."""

    taken: set[str]
    by_axis: dict[tuple[str, int], str] = field(default_factory=dict)

    def new(self, wanted: str = "") -> str:
        """Return a name that is not used yet."""
        names = [wanted] if wanted else []
        names += [*_NAMES, *(f"n{number}" for number in range(100))]
        name = next(one for one in names if one not in self.taken)
        self.taken.add(name)
        return name


def write_replacement(name: str, trace: Trace, find_kernel: FindKernel) -> str:
    """Return the lines that replace a Function: the op, its call, and what is left to fill in."""
    launches = trace.launches or trace.gradients[:1]
    if not any(one.tensors for one in launches):
        return _write_for_fields(launches[0].kernel)
    kernels = [find_kernel(one.kernel) for one in launches]
    pairs = list(zip(launches, kernels, strict=True))
    arrays = [array for launch, kernel in pairs for array in _list_arrays(launch, kernel, trace)]
    _fill_dims(arrays, trace)
    parts = _sort(list({one.name: one for one in arrays}.values()), trace)
    left = [*map(_write_item, parts.inputs), *(f"inout {_write_item(one)}" for one in parts.updated)]
    spec = f"{', '.join(left)} -> {', '.join(map(_write_item, parts.outputs))}".rstrip()
    scratch = f', scratch="{", ".join(map(_write_item, parts.scratch))}"' if parts.scratch else ""
    texts = [one.kernel for one in launches]
    made = f'ts.op("{spec}"{scratch})({texts[0]})'
    if len(texts) > 1:
        made = f'ts.chain("{spec}", [{", ".join(texts)}]{scratch})'
    given = ", ".join(one.name for one in trace.inputs)
    lines = [f"op = {made}", f"{_write_call(pairs, parts, spec)}  # in place of {name}.apply({given})"]
    return "\n".join([*lines, *_list_missing(spec, scratch, arrays, pairs)])


class _Parts(NamedTuple):
    """Arrays by their place in a spec."""

    inputs: list[_Array]
    updated: list[_Array]
    outputs: list[_Array]
    scratch: list[_Array]


def _sort(arrays: list[_Array], trace: Trace) -> _Parts:
    """Tell inputs, outputs and scratch apart: what `forward` allocates and returns is an output."""
    results = tensors_in(trace.forward_result)
    outputs = [one for one in arrays if any(_is_memory_of(one.tensor, result) for result in results)]
    outputs = outputs or [one for one in arrays if one.tensor.origin == "made" and _is_written(one)]
    others = [one for one in arrays if one not in outputs]
    # The kernel's own buffers: allocated in `forward`, or given to it to be overwritten.
    scratch = [one for one in others if one.tensor.origin == "made" or (one.kernel is not None and _is_written(one))]
    updated = [one for one in outputs if one.tensor.origin == "input"]
    return _Parts(
        [one for one in others if one not in scratch], updated, [one for one in outputs if one not in updated], scratch
    )


def _is_memory_of(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.allocation is not None and one.allocation is other.allocation)


def _write_for_fields(kernel: str) -> str:
    lines = [
        f'op = ts.op("x[{OPEN}] -> y[{OPEN}]")({kernel})',
        f"# give `{kernel}` ndarray parameters in place of its fields, and write their dims for `{OPEN}`;",
        "# or keep the fields, and use ts.EmptyTin",
    ]
    return "\n".join(lines)


def _list_parameters(launch: Launch, kernel: Subject | None) -> list[str]:
    """Return the names of a kernel's parameters; if the kernel is in another file, guess them from the arguments."""
    if kernel is None:
        return [*map(_guess_name, launch.texts, range(len(launch.texts)))]
    return [name for name, facts in kernel.declared.items() if facts.kind != "object"]


def _list_arrays(launch: Launch, kernel: Subject | None, trace: Trace) -> Iterator[_Array]:
    gradient = next((one for one in trace.gradients if one.kernel == launch.kernel), launch)
    named = [(name, value) for name, value in launch.named.items()]
    for place, (name, value) in enumerate(
        [*zip(_list_parameters(launch, kernel), launch.positional, strict=False), *named]
    ):
        if kernel is not None:
            is_array = name in kernel.declared and kernel.declared[name].kind in ("array", "template", "any")
        else:  # what the gradient kernel is given a number for is one
            is_array = place >= len(gradient.positional) or isinstance(gradient.positional[place], Tensor)
        if isinstance(value, Tensor) and is_array:
            yield _Array(name, value, kernel, element=_find_element(kernel, name))


def _guess_name(text: str, place: int) -> str:
    name = text.lstrip("*").partition(".")[0]  # `x.detach()`
    return name if name.isidentifier() else f"a{place}"


def _find_element(kernel: Subject | None, name: str) -> tuple[int, ...]:
    facts = kernel.declared.get(name) if kernel is not None else None
    return () if facts is None else facts.element or (MATH_TYPES[facts.dtype][2] if facts.dtype in MATH_TYPES else ())


def _is_written(array: _Array) -> bool:
    roles = None if array.kernel is None else array.kernel.roles.get(array.name)
    return array.kernel is None or (roles is not None and roles.is_written)


# Dims -------------------------------------------------------------------------------------------


def _fill_dims(arrays: list[_Array], trace: Trace) -> None:
    """Give each array its dims: inputs names, allocated ones what their sizes are computed from."""
    sizes = {one.name for one in trace.inputs}
    names = _Names(set(sizes) | {one.name for one in arrays})
    equal = _find_equal_axes(arrays)
    known: dict[str, list[str] | None] = {}
    for array in arrays:
        if array.tensor.origin == "input":
            key = array.tensor.name
            if key not in known:
                rank = _find_rank(array)
                names_of_axes = [_name_axis(array.name, axis, names, equal) for axis in range(rank or 0)]
                known[key] = None if rank is None else [*names_of_axes, *map(str, array.element)]
            array.dims = _drop_element(known[key], array)
    for array in arrays:
        if array.tensor.origin != "input":
            array.dims = _write_allocated_dims(array, known, names, equal)


def _drop_element(dims: list[str] | None, array: _Array) -> list[str] | None:
    """Return the dims of a tensor without the last ones, those of the vectors or matrices that are its elements."""
    return dims if dims is None or not array.element else dims[: -len(array.element)]


def _name_axis(array: str, axis: int, names: _Names, equal: dict[tuple[str, int], tuple[str, int]]) -> str:
    key = equal.get((array, axis), (array, axis))
    if key not in names.by_axis:
        names.by_axis[key] = names.new()
    return names.by_axis[key]


def _find_rank(array: _Array) -> int | None:
    """Return the number of axes of a kernel's parameter, as declared or as its indices show; None if unknown."""
    kernel = array.kernel
    if kernel is None or array.name not in kernel.declared:
        return None
    declared = kernel.declared[array.name].rank
    if declared is not None:
        return declared
    ranks = find_ranks(kernel, array.name)
    return ranks.pop() if len(ranks) == 1 else None


def _find_equal_axes(arrays: list[_Array]) -> dict[tuple[str, int], tuple[str, int]]:
    """Map axes of equal size to one of them: a loop over the whole size of one axis also indexes the others."""
    first: dict[tuple[str, int], tuple[str, int]] = {}
    for kernel in dict.fromkeys(one.kernel for one in arrays if one.kernel is not None):
        sketch = sketch_of(kernel)
        uses = _find_plain_uses(sketch.kernel)
        for loop in (one for one in walk.statements(sketch.kernel.body) if isinstance(one, nodes.For)):
            inside = walk.find_touched([loop])
            for name, (low, end) in zip(loop.names, loop.bounds, strict=True):
                if low == nodes.Const(0, Type.I32) and isinstance(end, nodes.Size):
                    axis, variable = (end.array, end.axis), sketch.kernel.source_name(name)
                    stands = first.get(axis, axis)
                    plain = (one for one, names in uses.items() if names == {variable} and one[0] in inside)
                    for one in (axis, *plain):
                        first.setdefault(one, stands)
    return first


def _find_plain_uses(kernel: nodes.Kernel) -> dict[tuple[str, int], set[str]]:
    """Return, for each array and axis, the locals that index it; "" stands for any other expression."""
    uses: dict[tuple[str, int], set[str]] = {}
    for one in (*walk.loads(kernel.body), *walk.stores(kernel.body)):
        for axis, part in enumerate(one.index):
            name = kernel.source_name(part.name) if isinstance(part, nodes.Local) else ""
            uses.setdefault((one.array, axis), set()).add(name)
    return uses


def _write_allocated_dims(
    array: _Array, known: dict[str, list[str] | None], names: _Names, equal: dict[tuple[str, int], tuple[str, int]]
) -> list[str] | None:
    made = array.tensor.allocation
    if made is not None and made.like is not None:
        like = made.like
        if like.origin == "made" and like.allocation is not None:
            return _write_allocated_dims(
                _Array(array.name, like, array.kernel, element=array.element), known, names, equal
            )
        return _drop_element(known.get(like.name), array)
    if made is not None and made.dims is not None:
        return _drop_element([text for one in made.dims for text in _write_dims(one, known)], array)
    rank = _find_rank(array)
    if rank is None:
        return None
    return [names.by_axis.get(equal.get((array.name, axis), (array.name, axis)), OPEN) for axis in range(rank)]


def _write_dims(size: Any, known: dict[str, list[str] | None]) -> list[str]:
    """Return a size of an allocation as dims of a spec; several dims for `x.shape[:2]`."""
    if isinstance(size, ShapeOf):
        return known.get(size.tensor.name) or [OPEN]
    if isinstance(size, Size) and size.operator == "dims":
        tensor, first, last = size.operands
        dims = known.get(tensor.name)
        return [OPEN] if dims is None else dims[first:last]
    return [_write_dim(size, known)]


def _write_dim(size: Any, known: dict[str, list[str] | None]) -> str:
    if isinstance(size, Tensor) and size.origin == "input":  # `forward(ctx, x, h)`: a number, passed by keyword
        return size.name
    if not isinstance(size, Size):
        return OPEN
    if size.operator == "number":
        return str(size.operands[0])
    if size.operator == "dim":
        tensor, axis, _ = size.operands
        dims = known.get(tensor.name)
        return dims[axis] if dims is not None and axis is not None and -len(dims) <= axis < len(dims) else OPEN
    if size.operator == "dims":
        return OPEN
    left, right = (_write_dim(one, known) for one in size.operands)
    if OPEN in (left, right):
        return OPEN
    return f"{_parenthesize(left, size.operator)} {size.operator} {_parenthesize(right, size.operator, is_right=True)}"


def _parenthesize(text: str, operator: str, *, is_right: bool = False) -> str:
    is_sum = any(sign in text for sign in (" + ", " - "))
    is_product = any(sign in text for sign in (" * ", " // "))
    needs = (is_sum and (operator in ("*", "//") or (is_right and operator == "-"))) or (
        is_product and is_right and operator in ("*", "//")
    )
    return f"({text})" if needs else text


# Text -------------------------------------------------------------------------------------------


def _write_item(array: _Array) -> str:
    dims = ["..."] if array.dims is None and array.kernel is not None else array.dims or [OPEN]
    dims = [] if array.dims == [] else dims
    facts = array.kernel.declared.get(array.name) if array.kernel is not None else None
    declared = facts.dtype if facts is not None and facts.dtype[:1] in ("i", "u") and facts.dtype[1:].isdigit() else ""
    dtype = (array.tensor.allocation.dtype if array.tensor.allocation is not None else "") or declared
    shown = ", ".join([*dims, *map(str, array.element)])
    return f"{array.name}[{shown}]" + (f": {dtype}" if dtype and array.tensor.origin == "made" else "")


def _write_call(pairs: list[tuple[Launch, Subject | None]], parts: _Parts, spec: str) -> str:
    """Return the call of the op, `op(x, k, h=h)`: the kernels' arguments in order, without outputs and scratch."""
    given: dict[str, str] = {}
    hidden = {one.name for one in (*parts.outputs, *parts.scratch)}
    for launch, kernel in pairs:
        names = _list_parameters(launch, kernel)
        for name, value, text in zip(names, launch.positional, launch.texts, strict=False):
            if name not in hidden:
                given.setdefault(name, value.name if isinstance(value, Tensor) else text)
    left, _, right = spec.partition(" -> ")
    fixed = _find_dim_names(left)
    sizes = [name for name in dict.fromkeys(_find_dim_names(right)) if name not in fixed]
    return f"op({', '.join([*given.values(), *(f'{name}={name}' for name in sizes)])})"


def _find_dim_names(items: str) -> list[str]:
    brackets = [part.partition("]")[0] for part in items.split("[")[1:]]
    return [name for text in brackets for name in _find_names(text)]


def _find_names(text: str) -> Iterator[str]:
    try:
        tree = parse_expression(f"({text.replace('?', '0').replace('...', '0')},)")
    except SyntaxError:
        return
    yield from find_names(walk_tree(tree))


def _list_missing(
    spec: str, scratch: str, arrays: list[_Array], pairs: list[tuple[Launch, Subject | None]]
) -> Iterator[str]:
    """Yield comments that say what the user must fill in."""
    unknown = [launch.kernel for launch, kernel in pairs if kernel is None]
    if unknown:
        shown = " and ".join(f"`{one}`" for one in unknown)
        yield f"# {shown} is not in this file: write the names of its parameters, and their dims for `{OPEN}`"
    elif OPEN in spec + scratch:
        is_open = [one for one in arrays if OPEN in " ".join(one.dims or [OPEN])]
        shown = ", ".join(f"`{name}`" for name in dict.fromkeys(one.name for one in is_open))
        yield f"# write the dims of {shown} for `{OPEN}`, which the text of `forward` does not tell"
    elif not spec.partition("->")[2].strip() and "inout" not in spec:
        yield "# name the outputs on the right of `->`, with their dims"
    else:
        try:
            parse(spec)
        except SpecError:
            yield "# the spec is not complete: see docs/reference/spec.md"
