"""Transfer: copies between fields and tensors.

An engine's own `from_torch` and `to_torch` take 100 us each, one launch for each field. Here a field whose numbers lie
in memory as a tensor's do is copied by `memmove`, in a fifth of a kernel's time; all other copies of a transfer are
written into one kernel, whatever layouts the fields have. The kernel visits every element of a field, not only those
that are active in a sparse field: loading into one activates it, and storing an inactive one gives 0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from ..._errors import ArgumentError, ShapeError, refusal
from ..._lazy import lazy
from ...codegen import build_from_text
from ...engines import NAMES, Compiled, Engine, FieldFacts
from ...tracing import is_fake
from .._buffers import LOWEST_ADDRESS, ensure_memory


class ManagedLoads:
    """Counts how often managers have filled fields, all of them together.

    A manager may remember its last load. Other managers may fill the same fields, so what it remembers is valid only
    while this number is the same.
    """

    count = 0


@dataclass(frozen=True)
class Copy:
    """A field's part of a transfer: loaded from a tensor, stored into one, or set to zero.

    "restore" loads only what differs, so that inactive elements of a sparse field stay inactive if they may.
    """

    kind: Literal["load", "restore", "store", "clear"]
    field: Any
    facts: FieldFacts
    manager: Any = None
    is_gradient: bool = False

    def run(self, tensor: torch.Tensor) -> None:
        """Let the field's manager do this copy."""
        prefix = "grad_" if self.is_gradient else ""
        # Detached, since an engine allocates `.grad` for what requires a gradient.
        if self.kind in ("load", "restore"):
            ManagedLoads.count += not self.is_gradient
            getattr(self.manager, f"{prefix}from_tensor")(self.field, tensor.detach())
            return
        contents = getattr(self.manager, f"{prefix}to_tensor")(self.field)
        if contents.shape != tensor.shape:
            words = f"{type(self.manager).__name__}.{prefix}to_tensor returned a tensor of the wrong shape"
            rows = [("expected", str(tuple(tensor.shape))), ("got", str(tuple(contents.shape)))]
            raise ShapeError(refusal(words, rows, "Return a tensor of the shape that construct_field was called with."))
        tensor.copy_(contents)


class _Move(NamedTuple):
    """A copy by `memmove` or `memset`.

    Attributes:
        address: of the field's memory.
        nbytes: how many bytes are copied.
        place: position of the tensor's address among those that a transfer is given.
    """

    address: int
    nbytes: int
    place: int


class _Plan(NamedTuple):
    """How a transfer's copies are done, in this order.

    Attributes:
        stores: by `memmove`, from fields.
        launched: by a kernel, and the pointers that it takes; `places` are theirs.
        loads, clears: by `memmove` and `memset`, to fields.
    """

    stores: list[_Move]
    launched: tuple[Copy, ...]
    places: list[int]
    loads: list[_Move]
    clears: list[_Move]


class Transfer:
    """Copies of several fields; those that managers do come first.

    A transfer that stores a field and loads or clears it stores it first. What is compiled is compiled at the first
    run. Fields live as long as the engine's state, and so does what is known of their memory.
    """

    def __init__(self, engine: Engine, copies: Sequence[Copy]) -> None:
        self._engine = engine
        self._copies = tuple(copy for copy in copies if copy.manager is None or copy.kind == "clear")
        moved = [copy for copy in copies if copy.kind != "clear"]
        ours = [place for place, copy in enumerate(moved) if copy.manager is None]
        self._ours = ours if len(ours) < len(moved) else None
        self._managed = [(place, copy) for place, copy in enumerate(moved) if copy.manager is not None]
        self._launches: dict[bool, Callable[[Sequence[int]], None]] = {}

    def run(self, tensors: Sequence[torch.Tensor], *, is_serial: bool) -> None:
        """Run all copies. `tensors` are contiguous, one for each load and store, in order, with the fields' dtypes."""
        for place, copy in self._managed:
            copy.run(tensors[place])
        if not self._copies:
            return
        ours = tensors if self._ours is None else [tensors[place] for place in self._ours]
        # An engine that copies from or to address 0 ends the process.
        if any([is_fake(one) for one in ours]):  # noqa: C419  # faster
            words = "a layer on fields got tensors without memory, such as those of FakeTensorMode"
            raise ArgumentError(
                refusal(words, remedy="Make the layer with `on_tensors=True`, or pass tensors that have memory.")
            )
        # Tensors without memory are copied. `ours` keeps the copies alive until the launch is over.
        pointers = [tensor.data_ptr() for tensor in ours]
        if any([pointer < LOWEST_ADDRESS for pointer in pointers]):  # noqa: C419  # faster
            ours = [ensure_memory(tensor, "a tensor for a field") for tensor in ours]
            pointers = [tensor.data_ptr() for tensor in ours]
        self.run_at(pointers, is_serial=is_serial)

    def run_at(self, pointers: Sequence[int], *, is_serial: bool) -> None:
        """Run the copies that no manager does, from and to memory at these addresses."""
        plan = self._plan
        for address, nbytes, place in plan.stores:
            ctypes.memmove(pointers[place], address, nbytes)
        if plan.launched:
            launch = self._launches.get(is_serial) or self._launch(is_serial=is_serial)
            launch([pointers[place] for place in plan.places])
        for address, nbytes, place in plan.loads:
            ctypes.memmove(address, pointers[place], nbytes)
        for address, nbytes, _ in plan.clears:
            ctypes.memset(address, 0, nbytes)

    @lazy
    def _plan(self) -> _Plan:
        """Return how each copy is done."""
        plan, launched, taken = _Plan([], (), [], [], []), [], 0
        sides = {"store": plan.stores, "clear": plan.clears}
        for copy in self._copies:
            place = taken
            taken += copy.kind != "clear"
            address = self._find_memory(copy)
            if address:
                nbytes = copy.facts.count * copy.facts.dtype.itemsize
                sides.get(copy.kind, plan.loads).append(_Move(address, nbytes, place))
                continue
            launched.append(copy)
            if copy.kind != "clear":
                plan.places.append(place)
        return plan._replace(launched=tuple(launched))

    def _find_memory(self, copy: Copy) -> int:
        """Return where a field's numbers begin that `memmove` may copy; 0 if a kernel must."""
        facts = copy.facts
        # Of integers that bound a loop, an engine notes every write by a kernel: its reverse mode sizes stacks by them.
        if copy.kind != "store" and not facts.dtype.is_floating_point:
            return 0
        if not facts.address:
            return self._engine.find_row_major_memory(copy.field)
        return facts.address if not facts.layout and self._engine.device_type() == "cpu" else 0

    def _launch(self, *, is_serial: bool) -> Callable[[Sequence[int]], None]:
        """Compile the kernel. Return a function that launches it on these addresses."""
        copies = self._plan.launched
        compiled = self._compile(is_serial=is_serial)
        copied = enumerate(copy.facts for copy in copies if copy.kind != "clear")
        buffers = [
            (compiled.slots[f"a{place}"], facts.count * facts.dtype.itemsize, facts.shape + facts.element)
            for place, facts in copied
        ]
        launch = compiled.launch
        placed = [(f"f{place}", copy.facts) for place, copy in enumerate(copies) if copy.facts.address]
        ndarrays = [
            (compiled.slots[name], one.address, one.count * one.dtype.itemsize, one.memory_shape, 0)
            for name, one in placed
        ]

        def start(pointers: Sequence[int]) -> None:
            pairs = zip(buffers, pointers, strict=True)
            launch([(slot, pointer, nbytes, shape, 0) for (slot, nbytes, shape), pointer in pairs] + ndarrays, ())

        self._launches[is_serial] = start
        return start

    def _compile(self, *, is_serial: bool) -> Compiled:
        copies = self._plan.launched
        text = _write_text(copies, is_serial=is_serial)
        function = build_from_text(text, {"_lang": self._engine.lang}, "transfer")
        fields = {f"f{place}": copy.field for place, copy in enumerate(copies) if not copy.facts.address}
        return self._engine.compile(function, fields)


def _write_text(copies: Sequence[Copy], *, is_serial: bool) -> str:
    """Return the kernel's source. Its parameters `f0`, `f1`, ... are fields, and `a0`, `a1`, ... are memory."""
    parameters = [f"f{place}: {_annotate(copy.facts)}" for place, copy in enumerate(copies)]
    lines: list[str] = []
    arrays = 0
    for place, copy in enumerate(copies):
        array = ""
        if copy.kind != "clear":
            array, arrays = f"a{arrays}", arrays + 1
            parameters.append(f"{array}: {_annotate_array(copy.facts)}")
        lines += _write_loop(copy, f"f{place}", array, is_serial=is_serial)
    return f"def transfer({', '.join(parameters)}):\n" + "\n".join(f"    {line}" for line in lines)


def _annotate(facts: FieldFacts) -> str:
    return _annotate_array(facts) if facts.address else "_lang.template()"


def _annotate_array(facts: FieldFacts) -> str:
    """Return the annotation of an ndarray's or a tensor's memory, as an array of numbers."""
    rank = len(facts.shape) + len(facts.element)
    return f"_lang.types.ndarray(dtype=_lang.{NAMES[facts.dtype]}, ndim={rank})"


def _write_loop(copy: Copy, field: str, array: str, *, is_serial: bool) -> list[str]:
    facts = copy.facts
    names = [f"i{axis}" for axis in range(len(facts.shape))]
    if copy.kind == "clear" and not facts.is_dense:
        # Inactive elements of a sparse field are zero, and storing to them would activate them.
        zero = _write_statements(copy, field, ["place"], array, [])
        return [f"for place in _lang.grouped({field}):", *(f"    {line}" for line in zero)]
    # A loop of one iteration: engines do not parallelize a kernel with statements beside its loops.
    if not names:
        body = _write_statements(copy, field, [], array, [])
        header = "for _ in range(1):"
    else:
        moved = [f"{name} + {first}" if first else name for name, first in zip(names, facts.offset, strict=True)]
        moved = [moved[axis] for axis in facts.layout] or moved
        body = _write_statements(copy, field, moved, array, names)
        sizes = ", ".join(str(size) for size in facts.shape)
        header = (
            f"for {names[0]} in range({sizes}):"
            if len(names) == 1
            else f"for {', '.join(names)} in _lang.ndrange({sizes}):"
        )
    setting = ["_lang.loop_config(serialize=True)"] if is_serial else []
    return [*setting, header, *(f"    {line}" for line in body)]


def _write_statements(copy: Copy, field: str, index: list[str], array: str, names: list[str]) -> list[str]:
    """Return the statements that copy one element, one for each of its numbers."""
    lines = []
    for inner in _list_inner_indices(copy.facts):
        if copy.facts.address:
            number = f"{field}[{', '.join([*index, *map(str, inner)]) or 'None'}]"
        else:
            number = f"{field}[{', '.join(index) or 'None'}]" + (f"[{', '.join(map(str, inner))}]" if inner else "")
        place = [*names, *map(str, inner[: len(copy.facts.element)])]
        memory = f"{array}[{', '.join(place) or 'None'}]"
        target, value = {"store": (memory, number), "clear": (number, "0")}.get(copy.kind, (number, memory))
        is_careful = copy.kind == "restore" and not copy.facts.is_dense
        lines += [f"if {target} != {value}:"] if is_careful else []
        lines.append(f"{'    ' * is_careful}{target} = {value}")
    return lines


def _list_inner_indices(facts: FieldFacts) -> list[tuple[int, ...]]:
    """Return the indices of an element's numbers. Those of a matrix have two entries, even for a single column."""
    rows = facts.element[0] if facts.element else 0
    columns = facts.element[1] if len(facts.element) == 2 else 1
    if not facts.element:
        return [()]
    if facts.is_matrix:
        return [(row, column) for row in range(rows) for column in range(columns)]
    return [(row,) for row in range(rows)]
