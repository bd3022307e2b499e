"""Signature: a spec matched with the parameters of the kernels that it describes.

Everything that can be said before a call is said here, once: which parameter is an input, an
output, scratch, a scalar or a template, in which order a call gives them, and whether the
kernels keep to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .._errors import KernelError, SpecError, nearest, refusal
from .._lazy import lazy
from ..engines import HALVES, SPEC_DTYPES, Parameter
from ..source import static_size
from ..spec import Fixed, Item, Spec
from ._stage import Stage


@dataclass(frozen=True, eq=False)
class Signature:
    """What an op takes and gives, in terms of its kernels' parameters.

    Attributes:
        op: the op's name, for messages.
        order: names of the call arguments, in the kernels' order.
        arrays, scalars, templates: the same names by kind, each in call order.
        init: "zeros", "empty" or "workspace" of outputs, scratch and gradients (`grad_x`); of others "zeros".
        detached: outputs and scratch that get no gradient, and let none through.
        trusts_engine: whether the engine's gradient is taken where it is known to go wrong.
        is_deterministic: whether each run gives the same bits.
        refuses_half: whether an array that a kernel annotates as float32 takes no half precision.
        updates: outputs that are new values of inputs, with the names of these.
        overwrites: inputs whose memory the kernels change.
        hidden_sizes: dims that a call gives by keyword for arrays that the spec does not name: those of a base.
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
    trusts_engine: bool = False
    is_deterministic: bool = False
    refuses_half: bool = False
    hidden_sizes: tuple[str, ...] = ()
    updates: Mapping[str, str] = field(default_factory=dict)
    overwrites: frozenset[str] = frozenset()

    @lazy
    def items(self) -> dict[str, Item]:
        return {item.name: item for item in self.spec.items}

    @lazy
    def outputs(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.spec.outputs)

    @lazy
    def scratch(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.spec.scratch)

    @lazy
    def kernel_spec(self) -> Spec:
        """The spec as the kernel sees it: without `*b`."""
        sides = [
            tuple(replace(item, dims=item.dims[1:]) if item.batch_name else item for item in side)
            for side in (self.spec.inputs, self.spec.outputs, self.spec.scratch)
        ]
        return Spec(self.spec.text, self.spec.scratch_text, *sides)

    @lazy
    def kernel_items(self) -> dict[str, Item]:
        """The arrays of the spec as the kernel sees them, by name."""
        return {item.name: item for item in self.kernel_spec.items}

    @lazy
    def size_names(self) -> tuple[str, ...]:
        """Dims that a call gives by keyword: free dims that are no scalar parameter."""
        own = (name for name in self.spec.free_dims if name not in self.scalars)
        return tuple(dict.fromkeys((*self.hidden_sizes, *own)))

    @lazy
    def uses_blocks(self) -> bool:
        """Whether a kernel runs in blocks of threads that share memory or wait for each other."""
        return any(stage.uses_blocks for stage in self.firsts)

    @lazy
    def size_scalars(self) -> tuple[str, ...]:
        """Scalar arguments that dims are computed from; any may say how many blocks there are."""
        used = {name for item in self.spec.items for name in item.names}
        return tuple(name for name in self.scalars if name in used or self.uses_blocks)

    def size_values(self, scalars: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """What a call gives for dims: by integer scalar arguments, and by keyword."""
        # No `|` of dicts, which torch 2.6's compiler cannot read.
        return {**{name: scalars[name] for name in self.size_scalars}, **sizes}

    @lazy
    def vectors(self) -> tuple[tuple[Parameter, str], ...]:
        """Parameters that are arrays of vectors or matrices, of every stage, and their dims in the spec."""
        dims = {item.name: item.brackets for item in self.kernel_spec.items}
        found = (stage.parameters[name] for stage in self.firsts for name in stage.arrays)
        return tuple((parameter, dims.get(parameter.name, "")) for parameter in found if parameter.element)

    @lazy
    def ends(self) -> dict[str, tuple[int, ...]]:
        """The last dims of arrays of vectors or matrices, which are known."""
        found: dict[str, tuple[int, ...]] = {}
        for parameter, _ in self.vectors:
            found[parameter.name] = max(parameter.element, found.get(parameter.name, ()), key=len)
        return found

    @lazy
    def has_open_elements(self) -> bool:
        """Whether sizes decide which last dims of an array are those of vectors or matrices."""
        pairs = ((stage, name) for stage in self.firsts for name in stage.arrays)
        return any(
            stage.parameters[name].kind == "template" and name not in stage.links.elements for stage, name in pairs
        )

    def starts_at_zero(self, name: str) -> bool:
        """Whether the memory of an output, of scratch, or of a gradient (`grad_x`) is zeroed."""
        return self.init.get(name, "zeros") == "zeros"

    @lazy
    def firsts(self) -> tuple[Stage, ...]:
        """The stages without those that launch an earlier one again."""
        return tuple(dict.fromkeys(stage.first for stage in self.stages))

    @lazy
    def launch_numbers(self) -> tuple[str, ...]:
        """Integer arguments, where they tell launches of one kernel apart: of an op that launches one again."""
        if len(self.firsts) == len(self.stages):
            return ()
        kinds = ((name, self.by_name[name][0]) for name in self.scalars)
        return tuple(name for name, one in kinds if one.kind == "scalar" and one.setter == "int")

    @lazy
    def places(self) -> dict[Stage, int]:
        """The place of each stage among the stages."""
        return {stage: place for place, stage in enumerate(self.stages)}

    @lazy
    def by_name(self) -> dict[str, list[Parameter]]:
        """The parameters of each name, of every stage that has it."""
        found: dict[str, list[Parameter]] = {}
        for stage in self.stages:
            for name, parameter in stage.parameters.items():
                if stage is stage.first or name not in stage.arrays:
                    found.setdefault(name, []).append(parameter)
        return found

    def parameters(self, name: str) -> list[Parameter]:
        """The parameter of that name in every stage that has it."""
        return self.by_name.get(name, [])


def match(
    op: str,
    spec: Spec,
    stages: Sequence[Stage],
    init: Mapping[str, str] | None,
    detached: Iterable[str] = (),
    *,
    order: Sequence[str],
    is_run: bool = True,
    updates: Mapping[str, str] | None = None,
    overwrites: frozenset[str] = frozenset(),
) -> Signature:
    """Match a spec with kernels. `order` are a call's arguments; the others are the signature's.

    An op that is not run may leave outputs as they are, and return values.

    Raises:
        SpecError: the spec and the parameters do not fit each other.
        KernelError: a kernel returns what the spec does not name, writes an input, or never writes an output.
    """
    firsts = tuple(dict.fromkeys(stage.first for stage in stages))
    for stage in firsts:
        if not stage.drops_results:
            _check_returns(op, spec, stage)
    items = {item.name: item for item in spec.items}
    parameters = {name: p for stage in reversed(stages) for name, p in stage.parameters.items()}
    for item in spec.items:
        _check_item(op, item, spec, parameters, firsts)
    for name, parameter in parameters.items():
        if parameter.kind == "array" and name not in items:
            raise SpecError(_unlisted(op, name, spec))
    kinds = {name: "array" if name in items else parameters[name].kind for name in order}
    signature = Signature(
        op,
        spec,
        tuple(stages),
        tuple(order),
        tuple(name for name in order if kinds[name] == "array"),
        tuple(name for name in order if kinds[name] in ("scalar", "matrix")),
        tuple(name for name in order if kinds[name] == "template"),
        _checked_init(op, spec, init or {}),
        frozenset(detached),
        updates=updates or {},
        overwrites=overwrites,
    )
    for stage in firsts:
        if is_run:
            _check_size(op, stage)
        _check_kernel(op, spec, stage, overwrites)
        stage.baked_values.survey(stage.templates({}))
    if is_run:
        _check_written(signature)
    return settled(signature)


def settled(signature: Signature) -> Signature:
    """The signature with everything that it works out once, worked out."""
    spec, inner = signature.spec, signature.kernel_spec
    for part in (signature, spec, inner, *spec.items, *inner.items):
        _settle(part)
    return signature


def _settle(value: object) -> None:
    """Compute every lazy property now: `torch.compile` finds plain attributes then."""
    for name, member in vars(type(value)).items():
        if isinstance(member, lazy):
            getattr(value, name)


def _check_item(op: str, item: Item, spec: Spec, parameters: dict[str, Parameter], stages: Sequence[Stage]) -> None:
    if item.name not in parameters:
        raise SpecError(_unknown(op, item, spec, parameters, stages))
    for stage in stages:
        if item.name in stage.parameters:
            is_result = any(item.name == name for name, _ in stage.results)
            _check_parameter(op, item, stage.parameters[item.name], is_result=is_result)


def _unknown(op: str, item: Item, spec: Spec, parameters: dict[str, Parameter], stages: Sequence[Stage]) -> str:
    """What is said of an item that is neither a parameter nor returned."""
    returned = [name for stage in stages for name, _ in stage.results]
    rows = [("spec", str(item)), ("parameters", ", ".join(name for name in parameters if name not in returned))]
    is_output = item in spec.outputs
    if is_output:
        rows.append(("returned", ", ".join(f"`{name}`" for name in returned) or "nothing"))
    close = nearest(item.name, list(parameters))
    ways = f"Did you mean `{close}`?" if close else "Use the names of the kernel's parameters."
    if is_output:
        ways += f" What a kernel returns is an output too: `return {item.name}`, with its type after `->`."
    words = f"the spec of op `{op}` names `{item.name}`, which is not a parameter of the kernel"
    return refusal(f"{words}, and not returned" if is_output else words, rows, ways)


def _check_parameter(op: str, item: Item, parameter: Parameter, *, is_result: bool = False) -> None:
    rows = [("spec", str(item)), ("returned" if is_result else "annotation", parameter.shown)]
    rank = len(item.dims) - (item.batch_name is not None)
    if parameter.kind in ("scalar", "matrix") and (item.has_rest or rank != len(parameter.element)):
        words = f"parameter `{item.name}` of op `{op}` is a {parameter.noun}, not an array"
        remedy = f"Leave it out of the spec, or write `{parameter.listed}` to differentiate by it."
        raise SpecError(refusal(words, rows, remedy))
    declared = None if parameter.ndim is None else parameter.ndim + len(parameter.element)
    least = len(parameter.element) if declared is None else declared
    if not item.has_rest and (rank < least or (declared is not None and rank != declared)):
        wanted = least if declared is not None else f"at least {least}"
        words = f"the spec gives `{item.name}` of op `{op}` {rank} dims, its annotation {wanted}"
        remedy = "Write one dim for each of the array's, then those of its vector or matrix element."
        if is_result:  # also met where the name of a parameter is misspelt
            words = f"the spec gives `{item.name}` of op `{op}` {rank} dims, and what the kernel returns has {wanted}"
            remedy = f"Write `{parameter.listed}`; a parameter of the kernel goes by its own name."
        raise SpecError(refusal(words, rows, remedy))
    for dim, size in zip(reversed(item.dims), reversed(parameter.element), strict=False):
        if isinstance(dim, Fixed) and dim.size != size:
            words = f"the spec gives `{item.name}` of op `{op}` elements of size {dim.size}, its annotation of {size}"
            raise SpecError(refusal(words, rows, f"Write `{size}` for that dim."))
    fitting = (torch.float32, *HALVES) if parameter.dtypes == (torch.float32,) else parameter.dtypes
    if item.dtype and fitting and SPEC_DTYPES[item.dtype] not in fitting:
        words = f"the spec gives `{item.name}` of op `{op}` the dtype {item.dtype}, its annotation another"
        raise SpecError(refusal(words, rows, "Leave the dtype out of one of the two."))


def _unlisted(op: str, name: str, spec: Spec) -> str:
    return refusal(
        f"array parameter `{name}` of op `{op}` is not in its spec",
        [("spec", str(spec)), ("scratch", spec.scratch_text or "(none)")],
        f"Write `{name}[...]` left of `->` if the kernel reads it, right of it if it is a result, or in `scratch=`.",
    )


def _checked_init(op: str, spec: Spec, init: Mapping[str, str]) -> dict[str, str]:
    outputs, scratch = ([item.name for item in side] for side in (spec.outputs, spec.scratch))
    known = [*outputs, *scratch, *(f"grad_{item.name}" for item in spec.inputs)]
    for name, how in init.items():
        if name not in known:
            words = f"`init` of op `{op}` names `{name}`, which is no output, no scratch, and no input's gradient"
            raise SpecError(refusal(words, [("known", ", ".join(known))]))
        words = ("zeros", "empty", "workspace") if name in scratch else ("zeros", "empty")
        if how not in words:
            rows = [(name, repr(how)), ("known", ", ".join(map(repr, words)))]
            raise SpecError(refusal(f"`init` of op `{op}` does not know {how!r} for `{name}`", rows))
    return dict(init)


def _check_returns(op: str, spec: Spec, stage: Stage) -> None:
    """Check that what a kernel returns can be outputs, and is."""
    results = stage.home.results(stage.kernel)
    what = "a value" if len(results) == 1 else f"{len(results)} values"
    words = f"kernel `{stage.name}` of op `{op}` returns {what}"
    rows = [("at", stage.source.place(stage.source.tree))]
    odd = next((one for one in results if one.kind not in ("scalar", "matrix")), None)
    if odd is not None:
        number = f"{stage.module_name}.f32"
        remedy = f"Return numbers, vectors and matrices; a struct's members each by itself, `-> ({number}, {number})`."
        raise KernelError(refusal(f"{words} of a kind that no array holds", [*rows, ("kind", odd.shown)], remedy))
    if len(results) > len(stage.results):
        free = [str(item) for item in spec.outputs if item.name not in stage.parameters]
        named = f"names {len(free)} of them" if 0 < len(free) < len(results) else "does not name what it returns"
        names = ["result"] if len(results) == 1 else [f"result{place}" for place in range(len(results))]
        listed = (replace(one, name=name).listed for name, one in zip(names, results, strict=True))
        remedy = f"Add it to the outputs, by a name that no parameter has: `-> {', '.join(listed)}`."
        raise KernelError(refusal(f"{words}, and the spec {named}", rows, remedy))


def _check_size(op: str, stage: Stage) -> None:
    where = static_size(stage.source, stage.arrays, stage.home)
    if where:
        words = (
            f"kernel `{stage.name}` of op `{op}` needs an array's size when it is compiled, and it is known at a call"
        )
        remedy = "Leave out `static`, or pass the size as a template argument."
        raise KernelError(refusal(words, [("at", where)], remedy))


def _check_kernel(op: str, spec: Spec, stage: Stage, overwrites: frozenset[str]) -> None:
    for item in spec.inputs:
        if item.name in overwrites:
            continue
        changes = stage.roles[item.name].of("write", "add") if item.name in stage.roles else []
        if changes:
            words = f"kernel `{stage.name}` of op `{op}` writes its input `{item.name}`"
            remedy = (
                f"Make `{item.name}` an output, or write to one: inputs are the caller's and are never changed. "
                f"Where the caller's tensor should be, write `inout {item}`."
            )
            raise KernelError(refusal(words, [("at", changes[0].place)], remedy))
        if item.name in stage.roles and stage.roles[item.name].escapes:
            words = f"input `{item.name}` of op `{op}` is used whole, and what becomes of it cannot be seen"
            raise KernelError(
                refusal(
                    words,
                    [("at", stage.roles[item.name].escapes)],
                    "Index it element by element, or hand it to a function of the engine.",
                )
            )


def _check_written(signature: Signature) -> None:
    for name in signature.outputs:
        if not any(_changes(stage, name) for stage in signature.firsts):
            if name in signature.updates:
                words = f"no kernel of op `{signature.op}` writes `{signature.updates[name]}`"
                remedy = "Leave out `inout`: an array that is only read is an input."
                raise KernelError(refusal(words, [("spec", signature.spec.text)], remedy))
            words = f"no kernel of op `{signature.op}` writes its output `{name}`"
            raise KernelError(
                refusal(words, [("spec", str(signature.spec))], f"Move `{name}` to the left of `->` if it is an input.")
            )


def _changes(stage: Stage, name: str) -> bool:
    """Whether a kernel writes an array besides filling it with a copy of another."""
    role = stage.roles.get(name)
    return role is not None and (bool(role.escapes) or len(role.of("write", "add")) > (name in stage.begins))


def fitting_dtypes(signature: Signature, name: str) -> tuple[torch.dtype, ...] | None:
    """Dtypes that an array may have by its spec and annotations; None where any will do."""
    item = signature.items[name]
    if item.dtype:
        return (SPEC_DTYPES[item.dtype],)
    declared = [p.dtypes for p in signature.parameters(name) if p.dtypes is not None]
    if not declared:
        return None
    # Lists, since torch 2.6's compiler, which reads this too, knows no `set.intersection`.
    return tuple(sorted([dtype for dtype in declared[0] if all(dtype in others for others in declared)], key=str))


def takes_half(signature: Signature, name: str) -> bool:
    """Whether an array that is computed in float32, as its kernel annotates it, may be of half precision outside."""
    item = signature.items[name]
    return item.dtype is None and not signature.refuses_half and fitting_dtypes(signature, name) == (torch.float32,)


def is_steady(signature: Signature, name: str) -> bool:
    """Whether an output or scratch has no gradient, whatever a call brings: it holds integers, or is detached."""
    if name in signature.detached:
        return True
    fitting = fitting_dtypes(signature, name)
    return fitting is not None and not any(dtype.is_floating_point for dtype in fitting)


def common_float(dtypes: Sequence[torch.dtype]) -> torch.dtype | None:
    """The dtype that torch would promote these floats to; None where there is no float."""
    floats = [dtype for dtype in dtypes if dtype.is_floating_point]
    result: Any = None
    for dtype in floats:
        result = dtype if result is None else torch.promote_types(result, dtype)
    return result
