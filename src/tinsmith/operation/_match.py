"""Matching of a spec with the parameters of the kernels that it describes, before any call.

The result is a `Signature`. Whether a call's arguments fit it is checked by `_binding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from .._errors import KernelError, SpecError, nearest, refusal
from ..calls import WHOLE_DTYPES, Signature
from ..compiling import Stage
from ..engines import HALVES, SPEC_DTYPES, Parameter
from ..frontend import find_method_call, find_whole_assignment, returns_value
from ..spec import Fixed, Item, Spec


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
    """Check a spec against the parameters of kernels, and return the op's `Signature`.

    `order` names a call's arguments.

    If not `is_run`, the op is only made for its checks: its kernels need not write its outputs, and may return values.

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
            raise SpecError(_describe_unlisted(op, name, spec))
    kinds = {name: "array" if name in items else parameters[name].kind for name in order}
    signature = Signature(
        op,
        spec,
        tuple(stages),
        tuple(order),
        tuple(name for name in order if kinds[name] == "array"),
        tuple(name for name in order if kinds[name] in ("scalar", "matrix")),
        tuple(name for name in order if kinds[name] == "template"),
        _check_init(op, spec, init or {}),
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
    return signature


def _check_item(op: str, item: Item, spec: Spec, parameters: dict[str, Parameter], stages: Sequence[Stage]) -> None:
    if item.name not in parameters:
        raise SpecError(_describe_unknown(op, item, spec, parameters, stages))
    for stage in stages:
        if item.name in stage.parameters:
            is_result = any(item.name == name for name, _ in stage.results)
            _check_parameter(op, item, stage.parameters[item.name], is_result=is_result)


def _describe_unknown(
    op: str, item: Item, spec: Spec, parameters: dict[str, Parameter], stages: Sequence[Stage]
) -> str:
    """Describe a spec's item that is neither a parameter of a kernel nor returned by one."""
    returned = [name for stage in stages for name, _ in stage.results]
    rows = [("spec", str(item)), ("parameters", ", ".join(name for name in parameters if name not in returned))]
    is_output = item in spec.outputs
    if is_output:
        rows.append(("returned", ", ".join(f"`{name}`" for name in returned) or "nothing"))
    listed = [one.name for one in spec.items]
    unlisted = [name for name, one in parameters.items() if one.kind == "array" and name not in listed]
    close = unlisted[0] if len(unlisted) == 1 else nearest(item.name, list(parameters))
    ways = f"Did you mean `{close}`?" if close else "Use the names of the kernel's parameters."
    if is_output and not item.label:
        ways += f" {_describe_ways_to_output(item.name, stages, is_parameter=bool(close))}"
    fields = [name for stage in stages for name in stage.baked_values.list_fields()]
    if item.name in [name.rpartition(".")[2] for name in fields]:
        rows.append(("fields", ", ".join(fields)))
        ways = f"`{item.name}` is a field: make a layer of the kernel (`ts.EmptyTin`, or `ts.Tin` for an object)."
    words = f"the spec of op `{op}` names `{item.written_name}`, which is not a parameter of the kernel"
    return refusal(f"{words}, and not returned" if is_output else words, rows, ways)


def _describe_ways_to_output(name: str, stages: Sequence[Stage], *, is_parameter: bool) -> str:
    """Describe how a kernel gets an output `name`. `is_parameter`: a parameter for it was found."""
    lang = stages[0].module_name
    if any(returns_value(stage.source) for stage in stages):
        return f"What a kernel returns is an output if its type is declared: `-> {lang}.f32` after the parameters."
    returned = f"What a kernel returns is an output too: `return {name}`, with its type after `->`."
    if is_parameter:
        return returned
    return f"For an array that the kernel fills, add `{name}: {lang}.types.ndarray()` to them. {returned}"


def _check_parameter(op: str, item: Item, parameter: Parameter, *, is_result: bool) -> None:
    rows = [("spec", str(item)), ("returned" if is_result else "annotation", parameter.annotation)]
    rank = len(item.dims) - (item.batch_name is not None)
    if parameter.kind in ("scalar", "matrix") and (item.has_rest or rank != parameter.element_rank):
        words = f"parameter `{item.name}` of op `{op}` is a {parameter.noun}, not an array"
        remedy = f"Leave it out of the spec, or write `{parameter.spec_item}` to differentiate by it."
        raise SpecError(refusal(words, rows, remedy))
    declared = None if parameter.ndim is None else parameter.ndim + parameter.element_rank
    least = parameter.element_rank if declared is None else declared
    if not item.has_rest and (rank < least or (declared is not None and rank != declared)):
        wanted = least if declared is not None else f"at least {least}"
        words = f"the spec gives `{item.name}` of op `{op}` {rank} dims, but its annotation has {wanted}"
        element = ", ".join(map(str, parameter.element))
        shown = f"`{item.name}[n, {element}]`" if element and parameter.ndim == 1 else ""
        dims = "one dim for each dim of the array, then those of its vector or matrix element"
        remedy = f"Write {shown}: {dims}." if shown else f"Write {dims}."
        # The name of a parameter may also be misspelt.
        if is_result:
            words = f"the spec gives `{item.name}` of op `{op}` {rank} dims, but what the kernel returns has {wanted}"
            remedy = f"Write `{parameter.spec_item}`; a parameter of the kernel is listed by its own name."
        raise SpecError(refusal(words, rows, remedy))
    for dim, size in zip(reversed(item.dims), reversed(parameter.element), strict=False):
        if isinstance(dim, Fixed) and dim.size != size:
            words = (
                f"the spec gives `{item.name}` of op `{op}` elements of size {dim.size}, but its annotation of {size}"
            )
            raise SpecError(refusal(words, rows, f"Write `{size}` for that dim."))
    fitting = (torch.float32, *HALVES) if parameter.dtypes == (torch.float32,) else parameter.dtypes
    if item.promise and fitting and not any(dtype in WHOLE_DTYPES for dtype in fitting):
        words = f"`{item.name}` of op `{op}` is `{item.promise}` in the spec, and its annotation is not an integer type"
        rows = [("spec", str(item)), ("annotated", parameter.annotation)]
        remedy = f"Leave out `{item.promise}`, or annotate `{item.name}` with integers: such an array holds indices."
        raise SpecError(refusal(words, rows, remedy))
    if item.dtype and fitting and SPEC_DTYPES[item.dtype] not in fitting:
        words = f"the spec gives `{item.name}` of op `{op}` the dtype {item.dtype}, but its annotation says another"
        raise SpecError(refusal(words, rows, "Leave the dtype out of one of the two."))


def _describe_unlisted(op: str, name: str, spec: Spec) -> str:
    return refusal(
        f"array parameter `{name}` of op `{op}` is not in its spec",
        [("spec", str(spec)), ("scratch", spec.scratch_text or "(none)")],
        f"Write `{name}[...]` left of `->` if the kernel reads it, right of it if it is a result, or in `scratch=`.",
    )


def _check_init(op: str, spec: Spec, init: Mapping[str, str]) -> dict[str, str]:
    outputs, scratch = ([item.name for item in side] for side in (spec.outputs, spec.scratch))
    known = [*outputs, *scratch, *(f"grad_{item.name}" for item in spec.inputs)]
    for name, how in init.items():
        if name not in known:
            words = f"`init` of op `{op}` has `{name}`, which is not an output, scratch, or an input's gradient"
            guess = nearest(str(name), known)
            remedy = f"Did you mean `{guess}`?" if guess else f"Leave `{name}` out."
            raise SpecError(refusal(words, [("expected", ", ".join(known))], remedy))
        words = ("zeros", "empty", "workspace") if name in scratch else ("zeros", "empty")
        if how not in words:
            rows = [(name, repr(how)), ("expected", ", ".join(map(repr, words)))]
            guess = nearest(str(how), words)
            remedy = f"Did you mean {guess!r}?" if guess else "Leave it out: arrays start at zero."
            raise SpecError(refusal(f"`init` of op `{op}` cannot be {how!r} for `{name}`", rows, remedy))
    return dict(init)


def _check_returns(op: str, spec: Spec, stage: Stage) -> None:
    """Raise KernelError unless the spec names every value that a kernel returns, and arrays can hold them."""
    results = stage.home.results(stage.kernel)
    what = "a value" if len(results) == 1 else f"{len(results)} values"
    words = f"kernel `{stage.name}` of op `{op}` returns {what}"
    rows = [("at", stage.source.place())]
    odd = next((one for one in results if one.kind not in ("scalar", "matrix")), None)
    if odd is not None:
        number = f"{stage.module_name}.f32"
        remedy = (
            f"Return numbers, vectors or matrices, and each member of a struct by itself: `-> ({number}, {number})`."
        )
        raise KernelError(
            refusal(f"{words} of a type that an array cannot hold", [*rows, ("kind", odd.annotation)], remedy)
        )
    if len(results) > len(stage.results):
        free = [str(item) for item in spec.outputs if item.name not in stage.parameters]
        named = f"names {len(free)} of them" if 0 < len(free) < len(results) else "does not name what it returns"
        names = ["result"] if len(results) == 1 else [f"result{place}" for place in range(len(results))]
        listed = (replace(one, name=name).spec_item for name, one in zip(names, results, strict=True))
        remedy = f"Add it to the outputs, by a name that no parameter has: `-> {', '.join(listed)}`."
        raise KernelError(refusal(f"{words}, and the spec {named}", rows, remedy))


def _check_size(op: str, stage: Stage) -> None:
    where = next((role.static_size for role in stage.roles.values() if role.static_size), "")
    if where:
        words = (
            f"kernel `{stage.name}` of op `{op}` needs an array's size at compile time, but it is known only at a call"
        )
        remedy = "Leave out `static`, or pass the size as a template argument."
        raise KernelError(refusal(words, [("at", where)], remedy))


def _check_whole_use(op: str, name: str, stage: Stage) -> None:
    """Raise KernelError if a kernel calls a method of an input array.

    Leave other uses of whole arrays to `_refused_kernels`.
    """
    call = find_method_call(stage.source, name)
    if call is not None:
        words = f"kernel `{stage.name}` of op `{op}` calls `{call.text}`, but arrays have no methods in a kernel"
        remedy = "Loop over the elements, or call it on the tensor and pass what it returns as an argument."
        raise KernelError(refusal(words, [("at", call.place)], remedy))
    stage.inputs_used_whole |= {name}


def _check_kernel(op: str, spec: Spec, stage: Stage, overwrites: frozenset[str]) -> None:
    for item in spec.inputs:
        if item.name in overwrites:
            continue
        changes = stage.roles[item.name].of("write", "add") if item.name in stage.roles else []
        if changes:
            words = f"kernel `{stage.name}` of op `{op}` writes its input `{item.name}`"
            remedy = (
                f"Make `{item.name}` an output, or write to one: inputs are the caller's and are never changed. "
                f"To update the caller's tensor in place, write `inout {item}`."
            )
            raise KernelError(refusal(words, [("at", changes[0].place)], remedy))
        if item.name in stage.roles and stage.roles[item.name].escapes:
            _check_whole_use(op, item.name, stage)


def _check_written(signature: Signature) -> None:
    for name in signature.outputs:
        if not any(_is_written_by(stage, name) for stage in signature.firsts):
            if name in signature.updates:
                words = f"no kernel of op `{signature.op}` writes `{signature.updates[name]}`"
                remedy = "Leave out `inout`: an array that is only read is an input."
                raise KernelError(refusal(words, [("spec", signature.spec.text)], remedy))
            words = f"no kernel of op `{signature.op}` writes its output `{name}`"
            rows: list[tuple[str, ...]] = [("spec", str(signature.spec))]
            remedy = f"Move `{name}` to the left of `->` if it is an input."
            wholes = [find_whole_assignment(stage.source, name) for stage in signature.firsts]
            whole = next(filter(None, wholes), None)
            if whole is not None:
                rows.append((f"`{whole.text}`", f"at {whole.place}", f"gives the name `{name}` to another value"))
                remedy = f"Write the elements, in a loop: `for i in {name}: {name}[i] = ...`."
            raise KernelError(refusal(words, rows, remedy))


def _is_written_by(stage: Stage, name: str) -> bool:
    """Return True if a kernel writes an array, not counting the copy that first fills it."""
    role = stage.roles.get(name)
    return role is not None and (bool(role.escapes) or len(role.of("write", "add")) > (name in stage.begins))
