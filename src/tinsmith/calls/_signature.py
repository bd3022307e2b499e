"""Signature: a spec, matched with the parameters of the kernels that it describes.

It holds, once, everything that is known before a call: which parameter is an input, an output, scratch, a scalar or a
template, and the order of a call's arguments. `_match` checks that the kernels fit the spec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .. import frontend
from .._errors import DtypeError, ShapeError, refusal
from .._lazy import lazy
from ..compiling import Stage
from ..engines import DTYPES, FLOATS, HALVES, INTEGERS, SPEC_DTYPES, Language, Parameter
from ..frontend import draws
from ..spec import Item, Spec

WHOLE_DTYPES = tuple(dtype for name, dtype in SPEC_DTYPES.items() if name[0] in "iu" and name != "u1")
"""Dtypes that arrays with a promise in the spec may have: integers."""


@dataclass(frozen=True, eq=False)
class Signature:
    """The arguments and results of an op, in terms of its kernels' parameters.

    Attributes:
        op: the op's name, for messages.
        order: names of the call arguments, in the kernels' order.
        arrays, scalars, templates: the same names by kind, each in call order.
        init: "zeros", "empty" or "workspace", by the name of an output, scratch or gradient (`grad_x`); the default is
            "zeros".
        detached: outputs and scratch that have no gradient and pass none on.
        auxiliary: outputs that are not differentiated: gradients pass through them, as through scratch.
        trusts_engine: whether the engine's gradient is used even if it is known to be wrong for such kernels.
        is_deterministic: whether each run must give bitwise equal results.
        refuses_half: whether an array that a kernel annotates as float32 refuses half precision.
        updates: for outputs that are new values of inputs, the names of these.
        overwrites: inputs whose memory the kernels change.
        hidden_sizes: dims that a call passes by keyword for arrays that only the spec of the base core names.
    """

    op: str
    spec: Spec
    stages: tuple[Stage, ...]
    order: tuple[str, ...]
    arrays: tuple[str, ...]
    scalars: tuple[str, ...]
    templates: tuple[str, ...]
    init: dict[str, str]
    detached: frozenset[str] = frozenset()
    auxiliary: frozenset[str] = frozenset()
    trusts_engine: bool = False
    is_deterministic: bool = False
    refuses_half: bool = False
    hidden_sizes: tuple[str, ...] = ()
    updates: Mapping[str, str] = field(default_factory=dict)
    overwrites: frozenset[str] = frozenset()

    @lazy
    def recycles_memory(self) -> bool:
        """Return True if passes keep their own memory for the next pass, as the op on arrays of a layer does."""
        return any(stage.links.is_taken for stage in self.stages)

    @lazy
    def items(self) -> dict[str, Item]:
        return {item.name: item for item in self.spec.items}

    @lazy
    def outputs(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.spec.outputs)

    @lazy
    def differentiable_outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs that a backward pass may get cotangents of."""
        return tuple(name for name in self.outputs if name not in self.auxiliary)

    @lazy
    def scratch(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.spec.scratch)

    @lazy
    def allocations(self) -> tuple[str, ...]:
        """Return the names of the arrays that a call allocates: outputs, then scratch."""
        return self.outputs + self.scratch

    @lazy
    def all_arrays(self) -> tuple[str, ...]:
        """Return the names of the inputs, then the outputs, then scratch."""
        return self.arrays + self.allocations

    @lazy
    def kernel_spec(self) -> Spec:
        """Return the spec as the kernel sees it: without `*b`."""
        sides = [
            tuple(replace(item, dims=item.dims[1:]) if item.batch_name else item for item in side)
            for side in (self.spec.inputs, self.spec.outputs, self.spec.scratch)
        ]
        return Spec(self.spec.text, self.spec.scratch_text, *sides)

    @lazy
    def kernel_items(self) -> dict[str, Item]:
        """Return the items of the spec as the kernel sees them, by array."""
        return {item.name: item for item in self.kernel_spec.items}

    @lazy
    def size_names(self) -> tuple[str, ...]:
        """Return the dims that a call passes by keyword: free dims that are not scalar parameters."""
        own = (name for name in self.spec.free_dims if name not in self.scalars)
        return tuple(dict.fromkeys((*self.hidden_sizes, *own)))

    @lazy
    def uses_blocks(self) -> bool:
        """Return True if a kernel runs in blocks of threads that share memory or wait for each other."""
        return any(stage.uses_blocks for stage in self.firsts)

    @lazy
    def draws(self) -> bool:
        """Return True if a kernel draws random numbers."""
        return any(draws(stage.source, stage.home) for stage in self.stages)

    @lazy
    def size_scalars(self) -> tuple[str, ...]:
        """Return the scalar arguments that sizes are computed from. In a kernel with blocks any scalar may be one."""
        used = {name for item in self.spec.items for name in item.names}
        return tuple(name for name in self.scalars if name in used or self.uses_blocks)

    def size_values(self, scalars: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """Return the values that a call passes for dims: by integer scalar arguments, and by keyword."""
        # No `|` of dicts, which torch 2.6's compiler cannot read.
        return {**{name: scalars[name] for name in self.size_scalars}, **sizes}

    @lazy
    def vectors(self) -> tuple[tuple[Parameter, str], ...]:
        """Return the parameters that are arrays of vectors or matrices, each with its dims in the spec."""
        dims = {item.name: item.brackets for item in self.kernel_spec.items}
        parameters = (stage.parameters[name] for stage in self.firsts for name in stage.arrays)
        return tuple((parameter, dims.get(parameter.name, "")) for parameter in parameters if parameter.element)

    @lazy
    def ends(self) -> dict[str, tuple[int, ...]]:
        """Return the last dims of arrays of vectors or matrices, which the kernels fix."""
        ends: dict[str, tuple[int, ...]] = {}
        for parameter, _ in self.vectors:
            ends[parameter.name] = max(parameter.element, ends.get(parameter.name, ()), key=len)
        return ends

    @lazy
    def has_open_elements(self) -> bool:
        """Return True if the sizes of a call decide which last dims of an array are those of vectors or matrices."""
        pairs = ((stage, name) for stage in self.firsts for name in stage.arrays)
        return any(
            bool(stage.parameters[name].open_dims)
            or (stage.parameters[name].kind == "template" and name not in stage.links.elements)
            for stage, name in pairs
        )

    def starts_at_zero(self, name: str) -> bool:
        """Return True if an output, scratch or gradient (`grad_x`) is zeroed before the kernels run."""
        return self.init.get(name, "zeros") == "zeros"

    @lazy
    def firsts(self) -> tuple[Stage, ...]:
        """Return the stages without those that launch an earlier one again."""
        return tuple(dict.fromkeys(stage.first for stage in self.stages))

    @lazy
    def launch_numbers(self) -> tuple[str, ...]:
        """Return the integer arguments that distinguish launches of one kernel; () if no kernel is launched again."""
        if len(self.firsts) == len(self.stages):
            return ()
        kinds = ((name, self.by_name[name][0]) for name in self.scalars)
        return tuple(name for name, one in kinds if one.kind == "scalar" and one.setter == "int")

    @lazy
    def places(self) -> dict[Stage, int]:
        """Return the place of each stage among the stages."""
        return {stage: place for place, stage in enumerate(self.stages)}

    @lazy
    def by_name(self) -> dict[str, list[Parameter]]:
        """Return the parameters of each name, one for each stage that has it."""
        parameters: dict[str, list[Parameter]] = {}
        for stage in self.stages:
            for name, parameter in stage.parameters.items():
                if stage is stage.first or name not in stage.arrays:
                    parameters.setdefault(name, []).append(parameter)
        return parameters

    @lazy
    def members(self) -> tuple[Parameter, ...]:
        """Return the parameters that stand for members of structs."""
        return tuple(some[0] for some in self.by_name.values() if some[0].path)

    def parameters(self, name: str) -> list[Parameter]:
        """Return the parameter of this name in every stage that has it."""
        return self.by_name.get(name, [])


def compute_lazy_values(signature: Signature) -> Signature:
    """Compute all lazy properties of a signature and its specs now. Return the signature."""
    spec, inner = signature.spec, signature.kernel_spec
    for part in (signature, spec, inner, *spec.items, *inner.items):
        _settle(part)
    return signature


def _settle(value: object) -> None:
    """Compute every lazy property of a value now, so that `torch.compile` finds plain attributes."""
    for name, member in vars(type(value)).items():
        if isinstance(member, lazy):
            getattr(value, name)


def fitting_dtypes(signature: Signature, name: str) -> tuple[torch.dtype, ...] | None:
    """Return the dtypes that an array may have by its spec and annotations; None if it may have any."""
    item = signature.items[name]
    if item.dtype:
        return (SPEC_DTYPES[item.dtype],)
    declared = [p.dtypes for p in signature.parameters(name) if p.dtypes is not None]
    if not declared:
        return WHOLE_DTYPES if item.promise else None
    # Lists, since torch 2.6's compiler, which reads this too, knows no `set.intersection`.
    return tuple(sorted([dtype for dtype in declared[0] if all(dtype in others for others in declared)], key=str))


def find_default_integer(signature: Signature) -> torch.dtype:
    """Return the dtype of `int` in an annotation: the engine's default integer type, as it was started."""
    return DTYPES[Language(signature.stages[0].engine).default_types[1]]


def default_float(signature: Signature) -> torch.dtype:
    """Return the dtype of `float` in an annotation: the engine's default floating type, as it was started."""
    return DTYPES[Language(signature.stages[0].engine).default_types[0]]


def takes_half(signature: Signature, name: str) -> bool:
    """Return True if an array that its kernel annotates as float32 may have half precision in a call."""
    item = signature.items[name]
    return item.dtype is None and not signature.refuses_half and fitting_dtypes(signature, name) == (torch.float32,)


def takes_half_alone(signature: Signature, name: str) -> bool:
    """Return True if an array may have half precision only, by its annotation or the spec."""
    fitting = fitting_dtypes(signature, name)
    return fitting is not None and len(fitting) == 1 and fitting[0] in HALVES


def is_steady(signature: Signature, name: str) -> bool:
    """Return True if an output or scratch has no gradient in any call: it holds integers, or is detached."""
    if name in signature.detached:
        return True
    fitting = fitting_dtypes(signature, name)
    return fitting is not None and not any(dtype.is_floating_point for dtype in fitting)


def promote_floats(dtypes: Sequence[torch.dtype]) -> torch.dtype | None:
    """Return the dtype that torch promotes the floating dtypes among these to; None if there are none."""
    floats = [dtype for dtype in dtypes if dtype.is_floating_point]
    result: Any = None
    for dtype in floats:
        result = dtype if result is None else torch.promote_types(result, dtype)
    return result


def find_made_dtype(signature: Signature, name: str, dtypes: Sequence[torch.dtype]) -> torch.dtype:
    """Return the dtype in which an output or scratch is computed; never half precision.

    It is that of the spec or the annotation, or the common one of the floating inputs. A new value of an argument has
    the argument's dtype if its kernels take it.

    Raises:
        DtypeError: the dtype does not follow from the inputs.
    """
    fitting = fitting_dtypes(signature, name)
    old = _updated_dtype(signature, name, dtypes)
    if old is not None and (fitting is None or old in fitting):
        return old
    common = promote_floats(dtypes)
    if common is not None and (fitting is None or common in fitting):
        return common
    if fitting is not None and len(fitting) == 1:
        return torch.float32 if fitting[0] in HALVES else fitting[0]
    if fitting is not None and set(fitting) == set(INTEGERS):
        return find_default_integer(signature)
    if fitting is not None and set(fitting) == set(FLOATS) and common is None:
        return default_float(signature)
    words = f"the dtype of `{name}` in op `{signature.op}` cannot be derived from its inputs"
    rows = [("floating inputs", "none" if common is None else str(common)), ("annotation", str(fitting or "any"))]
    raise DtypeError(refusal(words, rows, f"Write it into the spec: `{signature.items[name]}: f32`."))


def find_half_dtype(signature: Signature, name: str, inputs: Sequence[torch.dtype]) -> torch.dtype | None:
    """Return the half-precision dtype that an output is cast back to; None if it is not cast."""
    fitting = fitting_dtypes(signature, name)
    is_fixed = fitting is not None and len(fitting) == 1 and not takes_half(signature, name)
    wanted = fitting[0] if fitting and is_fixed else _updated_dtype(signature, name, inputs) or promote_floats(inputs)
    return wanted if wanted in HALVES else None


def _updated_dtype(signature: Signature, name: str, inputs: Sequence[torch.dtype]) -> torch.dtype | None:
    """Return the dtype of the argument that an output is the new value of; None for other outputs."""
    argument = signature.updates.get(name)
    return None if argument is None else inputs[signature.arrays.index(argument)]


# Elements -------------------------------------------------------------------------------------
# An engine gets a pointer and a count of elements of the kernel's type. If the vectors in memory had another length, it
# would read and write out of bounds. So the lengths are checked with the sizes of a call, once for a set of shapes.


def element_of(stage: Stage, name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the element dims of an array in one stage: those of its annotation, or the trailing dims that its
    subscripts leave out.
    """
    parameter = stage.parameters[name]
    if parameter.open_dims:
        return tuple(shape[max(len(shape) - parameter.open_dims, 0) :])
    if parameter.kind != "template" or name in stage.links.elements:
        return parameter.element
    arity = frontend.subscript_arity(stage.source, name)
    left_out = len(shape) - arity if arity is not None else 0
    return tuple(shape[len(shape) - left_out :]) if 0 < left_out <= 2 else ()


def check_element(op: str, parameter: Parameter, dims: str, shape: Sequence[int]) -> None:
    """Raise ShapeError if an array's shape does not end in the dims of the parameter's vectors or matrices.

    Args:
        op: its name, for messages.
        parameter: as the kernel declares it.
        dims: what the spec calls the dims, "" where there is none.
        shape: of the memory, without batch.
    """
    name, element, count = parameter.name, parameter.element, parameter.element_rank
    last = tuple(shape[max(len(shape) - count, 0) :])
    if last == element or (parameter.open_dims and len(last) == count):
        return
    # In a form that torch.compile can trace.
    wanted = (
        f"{count} dim{'s' * (count > 1)} of any size"
        if not element
        else f"{element[0]}"
        if count == 1
        else f"{element}"
    )
    actual = f"{dims} = {tuple(shape)}" if dims else f"{tuple(shape)}"
    rows = [(name, actual, f"must end in {wanted}, as the kernel declares"), ("annotation", parameter.annotation)]
    remedy = f"Give `{name}` {wanted} as its last {'dim' if count == 1 else 'dims'}, or change its annotation."
    raise ShapeError(
        refusal(
            f"array `{name}` of op `{op}` has a shape that does not fit the annotation of its vectors or matrices",
            rows,
            remedy,
        )
    )
