"""Launcher: launches a kernel on fields, forward and in reverse.

An op owns the arrays of its kernel. Here the kernel uses the fields that it names; the caller (`layers/`) fills them
and decides which gradients they hold. Array arguments are constants of the gradient.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._cache import Cache
from ..._errors import (
    ArgumentError,
    DeviceError,
    DtypeError,
    GradientError,
    KernelError,
    ShapeError,
    TinsmithError,
    refusal,
)
from ...analyses import find_filled
from ...compiling import (
    ArrayType,
    Stage,
    Variant,
    build_changed_value_error,
    check_races,
    ensure_compiled,
    remember,
)
from ...engines import NAMES, ArrayArgument, Compiled, Engine, Parameter, of_kernel
from ...frontend import FieldUse, subscript_arity
from ...ir import NotCovered, nodes
from ...spec import Spec
from ...tracing import get_version, suspend_transforms, unwrap_levels
from .._binding import BoundArguments, bind
from .._buffers import LOWEST_ADDRESS, check_element_count, ensure_memory
from .._signature import Signature, check_element, element_of
from ._held_arrays import lift_held_arrays


class Ready(NamedTuple):
    """A compiled kernel, and how each of its scalar arguments is set."""

    compiled: Compiled
    scalars: tuple[tuple[str, Any, str], ...]


class Launcher:
    """Launches one kernel for a layer, whose name messages use.

    `objects` are array parameters that get an engine's ndarray, which counts as a field. With `like`, another launcher
    of the same kernel, both share what is compiled. With `allows_races`, the kernel is not checked for races.

    Arrays that the kernel reads as members of dataclasses are its last arguments, `held`. The dataclasses are found in
    `templates`, which are arguments by name, and in what the kernel captures.
    """

    def __init__(
        self,
        kernel: Any,
        layer: str,
        like: Launcher | None = None,
        objects: Collection[str] = (),
        *,
        allows_races: bool = False,
        templates: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.engine: Engine = of_kernel(kernel)
        if like is not None:
            self.stage, self._ready, self.held, self._dtypes = like.stage, like._ready, like.held, like._dtypes
            self.signature = _signature(layer, self.stage)
            return
        kernel, self.held = lift_held_arrays(kernel, self.engine, templates)
        self._dtypes: dict[str, torch.dtype] = {}
        parameters = self.engine.parameters(kernel, objects)
        arrays = [parameter.name for parameter in parameters if parameter.kind == "array"]
        self.stage = Stage(kernel, arrays, may_write_fields=True, objects=objects, allows_races=allows_races)
        self.stage.check_object(layer)
        self._refuse_held_writes(layer)
        self.signature = _signature(layer, self.stage)
        self._ready: Cache[Any, Ready] = Cache("launches on fields")

    @property
    def argument_count(self) -> int:
        """How many arguments the user's kernel takes."""
        return len(self.signature.order) - len(self.held)

    def bind_arguments(self, arguments: Sequence[Any]) -> BoundArguments:
        """Sort a launch's arguments by kind and check them.

        Raises:
            ArgumentError, ShapeError: an argument does not fit its parameter.
        """
        if self.held and len(arguments) == self.argument_count:
            arguments = [*arguments, *(one.value for one in self.held.values())]
        bound = bind(self.signature, arguments, {})
        pairs = zip(self.signature.arrays, bound.tensors, strict=True)
        of_numpy = tuple(place for place, value in enumerate(bound.tensors) if isinstance(value, np.ndarray))
        return bound._replace(tensors=tuple(self._array(name, value) for name, value in pairs), of_numpy=of_numpy)

    def check_races(self, bound: BoundArguments) -> None:
        """Raise KernelError for a certain race of a launch with these arguments; warn of a possible one.

        It does nothing if the kernel cannot be lowered yet, as before its fields are placed.
        """
        if self.stage.allows_races or self.engine.runtime() is None:
            return
        try:
            variant = self.variant(bound, self.stage)
            self.stage.find_conflicts(variant, bound.templates)
        except (NotCovered, TinsmithError):
            return
        check_races(self.stage, variant, bound.templates, self.signature.op)

    def fields(self, bound: BoundArguments) -> Sequence[FieldUse]:
        """Return every field that a launch with these arguments uses."""
        return self.stage.baked_values.look_up(bound.templates).uses

    def find_read_fields(self, bound: BoundArguments) -> frozenset[int]:
        """Return the `FieldFacts.parts` of all fields that the kernel reads, also for its return value alone."""
        uses = self.stage.baked_values.list_uses_with_results(self.stage.templates(bound.templates))
        leaves = (leaf for use in uses if use.is_read for leaf in self.engine.leaf_fields(use.field, use.name))
        return frozenset([part for name, field in leaves for part in self.engine.field_facts(field, name).parts])

    def find_filled(self, bound: BoundArguments, shapes: Mapping[str, tuple[int, ...]]) -> frozenset[str]:
        """Return the fields, by their names in the source, in which the kernel stores every element before it uses any.

        `shapes` are the shapes of the fields; none of them is sparse.
        """
        try:
            kernel, _ = self.stage.lower_variant(self.variant(bound, self.stage), bound.templates)
        except NotCovered:
            return frozenset()
        labels = {name: array.label for name, array in kernel.arrays.items() if array.label in shapes}

        def length(expr: nodes.Expr) -> object:
            match expr:
                case nodes.Size(array, axis) if array in labels:
                    return shapes[labels[array]][axis]
            return None

        filled = remember(
            self.engine,
            "filled fields",
            lambda: (kernel, labels, {label: shapes[label] for label in labels.values()}),
            lambda: find_filled(kernel, length),
        )
        return frozenset(labels[name] for name in filled & labels.keys())

    def gradients(self, bound: BoundArguments) -> tuple[frozenset[str], tuple[str, str] | None]:
        """Return the gradients of fields (`x.grad`) that the kernel stores to, and one that it uses otherwise.

        The latter comes with the place of the use; it is None if there is none.
        """
        constants = self.stage.baked_values.look_up(bound.templates)
        return constants.gradients, constants.gradient_use

    def versions(self, bound: BoundArguments) -> tuple[Any, ...]:
        """Return a version of each array argument, to detect changes: torch's counter, or a digest of the contents."""
        versions: list[Any] = [get_version(tensor) for tensor in bound.tensors]
        with suspend_transforms() if bound.of_numpy else nullcontext():  # inside, no tensor shows its memory
            for place in bound.of_numpy:
                versions[place] = hashlib.blake2b(bound.tensors[place].numpy()).digest()
        return tuple(versions)

    def check_unchanged(self, bound: BoundArguments, versions: Sequence[Any]) -> None:
        """Raise GradientError if an array argument has changed since the forward pass noted these versions."""
        for name, now, then in zip(
            map(self._spell, self.signature.arrays), self.versions(bound), versions, strict=True
        ):
            if now != then:
                words = f"array `{name}` of `{self.signature.op}` changed between forward and backward pass"
                raise GradientError(refusal(words, remedy="Change it after the backward pass, or pass a copy."))

    def fingerprint(self, bound: BoundArguments) -> tuple[Any, ...]:
        """Return the fingerprint of the Python values that a launch bakes in now; fields were fixed before."""
        is_steady = not (self.signature.templates or self.stage.baked_values.bakes_numbers)
        return () if is_steady else self.stage.baked_values.fingerprint(bound.templates)

    def launch(
        self,
        bound: BoundArguments,
        fingerprint: tuple[Any, ...],
        *,
        adjoint: bool,
        is_serial: bool = False,
        stack: int = 0,
    ) -> None:
        """Run the kernel, or its reverse, which reads and adds to the gradient fields.

        The caller has checked that the engine was not restarted.

        Args:
            bound: the arguments.
            fingerprint: of the values baked in when the call began: a reverse differentiates what ran forward.
            adjoint: whether to run the reverse.
            is_serial: whether to use one thread; never for the reverse.
            stack: the depth that the reverse's gradient stack needs; 0 leaves it to the engine.

        Raises:
            KernelError, GradientError: the engine does not compile it; or `fingerprint` is out of date.
        """
        self.run(self.prepare(bound, fingerprint, adjoint=adjoint, is_serial=is_serial, stack=stack), bound)

    def prepare(
        self,
        bound: BoundArguments,
        fingerprint: tuple[Any, ...],
        *,
        adjoint: bool,
        is_serial: bool = False,
        stack: int = 0,
    ) -> Ready:
        """Compile what `launch` runs, and return it. Arguments and errors are those of `launch`."""
        if self.held:
            raise self._refuse_launch()
        # If the kernel leaves the sizes of vectors open, those of the memory decide, so they are part of the key.
        is_open = self.signature.has_open_elements
        types = tuple([(tensor.dtype, tensor.shape if is_open else tensor.dim()) for tensor in bound.tensors])
        key = (adjoint, is_serial, stack, types, fingerprint)
        return self._ready.get(key) or self._compile_variant(bound, key)

    def run(self, ready: Ready, bound: BoundArguments) -> None:
        """Launch the kernel that `prepare` compiled, with these arguments."""
        scalars = [(setter, slot, bound.scalars[name]) for setter, slot, name in ready.scalars]
        ready.compiled.launch(self._entries(ready.compiled, bound) if bound.tensors else (), scalars)

    def _refuse_launch(self) -> KernelError:
        """Build the error for launching on fields a kernel that reads arrays from structs: it runs on arrays alone."""
        one, lang = next(iter(self.held.values())), self.stage.module_name
        words = (
            f"kernel `{self.stage.name}` of {self.signature.op} reads the array `{one.path}`, and {self.engine.name}"
        )
        words += " cannot run it on fields, where Python asks for a value or a gradient is cleared"
        remedy = f"Make the array a parameter of the kernel, `{one.attribute}: {lang}.types.ndarray()`."
        return KernelError(refusal(words, [("at", self.stage.source.place())], remedy))

    def _compile_variant(self, bound: BoundArguments, key: tuple[Any, ...]) -> Ready:
        adjoint, is_serial, stack, _, fingerprint = key
        now = self.fingerprint(bound)
        if fingerprint != now:
            raise build_changed_value_error(f"`{self.signature.op}`", fingerprint, now)
        variant = replace(self.variant(bound, self.stage), adjoint=adjoint, is_serial=is_serial, stack=stack)
        compiled = ensure_compiled(self.stage, variant, bound.templates, self.signature.op)
        parameters: Mapping[str, Any] = self.stage.parameters
        scalars = tuple((parameters[n].setter, compiled.slots[n], n) for n in self.signature.scalars)
        return self._ready.keep(key, Ready(compiled, scalars))

    def variant(self, bound: BoundArguments, stage: Stage) -> Variant:
        """Return the variant of a stage of this kernel for these arguments: forward, and on several threads."""
        return Variant(self._types(bound), fingerprint=stage.baked_values.fingerprint(bound.templates))

    # Arrays -------------------------------------------------------------------------------
    def _spell(self, name: str) -> str:
        """Return what the user calls an array argument: `state.w` for a member of a dataclass."""
        return self.held[name].path if name in self.held else name

    def _array(self, name: str, value: Any) -> torch.Tensor:
        """Convert an array argument to a tensor whose memory a kernel can be given.

        Raises:
            ArgumentError, ShapeError: it does not fit its parameter, or a kernel cannot be given its memory.
        """
        parameter, name = self.stage.parameters[name], self._spell(name)
        tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        if not isinstance(tensor, torch.Tensor):
            words = f"array argument `{name}` of `{self.signature.op}` must be a tensor or a NumPy array"
            raise ArgumentError(refusal(words, [("got", f"{type(value).__name__} {value!r:.60}")]))
        what = f"array argument `{name}` of `{self.signature.op}`"
        self._check_memory(what, tensor)
        check_element_count(what, tuple(tensor.shape))
        if tensor.data_ptr() < LOWEST_ADDRESS:
            tensor = ensure_memory(tensor, what)
        if parameter.element_rank:
            check_element(self.signature.op, parameter, "", tensor.shape)
        if parameter.dtypes is not None and tensor.dtype not in parameter.dtypes:
            words = f"array argument `{name}` of `{self.signature.op}` has the wrong dtype"
            rows = [("annotation", parameter.annotation), ("got", str(tensor.dtype))]
            raise ArgumentError(refusal(words, rows, f"Pass `{name}.to({parameter.dtypes[0]})`."))
        if parameter.name in self.held:
            self._check_kind(parameter, tensor)
            return tensor.contiguous()
        if not tensor.is_contiguous() or tensor.requires_grad:
            words = f"array argument `{name}` of `{self.signature.op}` cannot be passed to a kernel"
            rows = [("contiguous", str(tensor.is_contiguous())), ("requires_grad", str(tensor.requires_grad))]
            remedy = "Pass `.detach().contiguous()`; a tensor that needs a gradient must be the input of a field."
            raise ArgumentError(refusal(words, rows, remedy))
        return tensor

    def _check_memory(self, what: str, tensor: torch.Tensor) -> None:
        """Refuse a tensor whose memory no kernel of the engine reads: its dtype, device, layout, or a transform."""
        if unwrap_levels(tensor) is not tensor:
            remedy = "Keep its values in a field that is an input of the layer or rollout, and transform by that input."
            raise GradientError(refusal(f"{what} belongs to a transform of torch.func", remedy=remedy))
        if tensor.dtype not in NAMES:
            rows = [("expected", ", ".join(map(str, NAMES))), ("got", str(tensor.dtype))]
            words = f"{what} has a dtype that {self.engine.name} does not have"
            raise DtypeError(refusal(words, rows, "Convert it with `.to(...)`."))
        if tensor.layout is not torch.strided:
            rows = [("layout", str(tensor.layout))]
            raise ArgumentError(refusal(f"{what} is sparse", rows, "Pass `.to_dense()`."))
        if tensor.device.type not in (self.engine.device_type(), "cpu"):
            rows = [("expected", self.engine.device_type()), ("got", str(tensor.device))]
            remedy = f"Pass `.to({self.engine.device_type()!r})`."
            raise DeviceError(refusal(f"{what} is on another device than {self.engine.name}", rows, remedy))

    def _refuse_held_writes(self, layer: str) -> None:
        """Raise KernelError if the kernel writes an array of a struct, which is the caller's, or uses it as a whole."""
        for name, one in self.held.items():
            roles = self.stage.roles[name]
            if roles.escapes:
                words = (
                    f"kernel `{self.stage.name}` of {layer} uses the whole array `{one.path}`, and can only read "
                    "its elements"
                )
                remedy = (
                    f"Index it in the kernel: `{one.path}[i]`, or `{one.path}[None]` if it has no dims. "
                    f"Or store a number there, outside of the kernel: `{one.path} = float({one.path})`."
                )
                raise KernelError(refusal(words, [("at", roles.escapes)], remedy))
            if roles.is_written:
                words = f"kernel `{self.stage.name}` of {layer} writes to the array `{one.path}`, which is the caller's"
                remedy = f"Make `{one.path}` a field or an ndarray of the engine: a layer keeps those up to date."
                raise KernelError(refusal(words, [("at", self.stage.source.place())], remedy))

    def _check_kind(self, parameter: Parameter, tensor: torch.Tensor) -> None:
        """Raise ShapeError or DtypeError for an array of a struct of another rank or dtype than the kernel takes."""
        name, what = self._spell(parameter.name), f"array `{self._spell(parameter.name)}` of `{self.signature.op}`"
        rank = parameter.ndim
        if rank is None:
            rank = subscript_arity(self.stage.source, parameter.name)
        if rank is not None and tensor.dim() != rank + parameter.element_rank:
            rows = [("expected", f"{rank + parameter.element_rank} dims"), ("got", str(tuple(tensor.shape)))]
            raise ShapeError(refusal(f"{what} has a wrong number of dims", rows, f"Reshape `{name}`."))
        dtype = self._dtypes.setdefault(parameter.name, tensor.dtype)
        if dtype is not tensor.dtype:
            rows = [("before", str(dtype)), ("now", str(tensor.dtype))]
            words = f"{what} has another dtype than in the call before"
            raise DtypeError(refusal(words, rows, f"Pass `{name}.to({dtype})`."))

    def _types(self, bound: BoundArguments) -> tuple[tuple[str, ArrayType], ...]:
        types = []
        for name, tensor in zip(self.signature.arrays, bound.tensors, strict=True):
            element = element_of(self.stage, name, tensor.shape)
            types.append((name, ArrayType(tensor.dtype, tensor.dim() - len(element), element)))
        return tuple(types)

    def _entries(self, compiled: Compiled, bound: BoundArguments) -> list[ArrayArgument]:
        entries: list[ArrayArgument] = []
        for name, tensor in zip(self.signature.arrays, bound.tensors, strict=True):
            rank = tensor.dim() - (0 if compiled.is_flat else self.stage.parameters[name].element_rank)
            entries.append((compiled.slots[name], tensor.data_ptr(), tensor.nbytes, tuple(tensor.shape[:rank]), 0))
        return entries


def _signature(layer: str, stage: Stage) -> Signature:
    """Return a signature without a spec: a launch takes its kernel's arguments as they are."""
    kinds = {name: parameter.kind for name, parameter in stage.parameters.items()}
    arrays = tuple(name for name, kind in kinds.items() if kind == "array")
    scalars = tuple(name for name, kind in kinds.items() if kind in ("scalar", "matrix"))
    templates = tuple(name for name, kind in kinds.items() if kind == "template")
    return Signature(layer, Spec("", "", (), (), ()), (stage,), tuple(kinds), arrays, scalars, templates, {})
