"""Binding: sorts the arguments of a call, given by position and by name, by kind, and checks them.

This file checks each *argument* of a call by itself; `spec._solve` checks whether the sizes agree. Everything is
checked before a kernel is launched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.overrides import is_tensor_like

from .._errors import ArgumentError, DeviceError, DtypeError, refusal
from .._integers import read_integer
from ..engines import FLOATS, HALVES, INTEGERS, NAMES, Parameter
from ..spec import unexpected_keyword
from ..tracing import is_jit_traced
from ._buffers import check_before_copy
from ._signature import Signature, find_default_integer, fitting_dtypes, takes_half, takes_half_alone

_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_SUPPORTED = (*FLOATS, torch.bfloat16, *_INTEGERS, torch.bool)


class BoundArguments(NamedTuple):
    """The arguments of a call by kind.

    Attributes:
        sizes: dims that are passed by keyword.
        of_numpy: places of the tensors whose memory belongs to a NumPy array; torch does not count their changes.
    """

    tensors: tuple[Any, ...]
    scalars: Mapping[str, Any]
    templates: Mapping[str, Any]
    sizes: Mapping[str, int]
    of_numpy: tuple[int, ...] = ()

    @property
    def values(self) -> list[Any]:
        """All tensors and numbers; vectors and matrices entry by entry."""
        values = [*self.tensors, *self.sizes.values()]
        for one in (*self.scalars.values(), *self.templates.values()):
            if isinstance(one, tuple):
                values += one
            else:
                values.append(one)
        return values

    def with_tensors(self, tensors: tuple[Any, ...]) -> BoundArguments:
        """Return the same arguments with other tensors. Torch 2.6's compiler cannot trace `_replace`."""
        return BoundArguments(tensors, self.scalars, self.templates, self.sizes)


def is_symbolic(value: Any) -> bool:
    """Return True if a value is a tracer's stand-in for a tensor or a number, such as a `torch.fx.Proxy`."""
    return not isinstance(value, torch.Tensor) and is_tensor_like(value)


def bind(signature: Signature, arguments: Sequence[Any], named: Mapping[str, Any]) -> BoundArguments:
    """Sort a call's arguments by kind.

    Raises:
        ArgumentError: there are too many arguments, or one is missing, unknown, given twice, or no valid number.
    """
    order = signature.order
    if len(arguments) > len(order):
        raise ArgumentError(_explain_count(signature, len(arguments)))
    # Cut to one length, since torch 2.6's compiler reads `strict=False` as a check all the same.
    values = dict(zip(order[: len(arguments)], arguments, strict=True))
    sizes = {}
    for name, value in named.items():
        if name in values:
            raise ArgumentError(
                refusal(f"argument `{name}` of op `{signature.op}` was given twice", remedy=_explain_usage(signature))
            )
        if name in order:
            values[name] = value
        elif name in signature.size_names:
            sizes[name] = _check_size(signature, name, value)
        else:
            known = (*order, *signature.spec.free_dims)
            missing = [one for one in known if one not in values and one not in named]
            raise unexpected_keyword(signature.spec, name, order, signature.op, missing)
    if len(values) < len(order):
        raise ArgumentError(_explain_missing(signature, [name for name in order if name not in values]))
    return BoundArguments(
        tuple([values[name] for name in signature.arrays]),
        {name: check_scalar(signature, name, values[name]) for name in signature.scalars},
        {name: _check_template(signature, name, values[name]) for name in signature.templates},
        sizes,
    )


def check_scalar(signature: Signature, name: str, value: Any) -> Any:
    """Convert a scalar argument to what the engine takes: a float, an int, or the tuple of a vector's numbers.

    Raises:
        ArgumentError: it is a tensor, or not a number that fits the parameter's annotation.
    """
    parameter = signature.parameters(name)[0]
    if is_symbolic(value):
        return value
    # Refused even if it needs no gradient: if it needed one later, the call would silently lose it.
    if isinstance(value, torch.Tensor):
        raise ArgumentError(_tensor_for_a_number(signature, parameter, value, "is a tensor"))
    if parameter.kind == "matrix":
        return _check_matrix(signature, name, value)
    return _check_number(signature, parameter, value, name)


def takes_integers(parameter: Parameter) -> bool:
    """Return True if a number, or the entries of a vector or matrix, are integers."""
    if parameter.kind == "matrix":
        return parameter.dtypes is not None and not parameter.dtypes[0].is_floating_point
    return parameter.setter != "float"


def _check_number(signature: Signature, parameter: Parameter, value: Any, what: str) -> Any:
    """Return a number as what a kernel takes, an integer or a float; `what` names it in messages."""
    is_integer = takes_integers(parameter)
    number = _read_kernel_integer(value) if is_integer else _read_float(value)
    if number is None:
        wanted, convert = ("an integer", "int") if is_integer else ("a number", "float")
        words = f"{parameter.noun} argument `{what}` of op `{signature.op}` must be {wanted}"
        rows = [("got", f"{type(value).__name__} {value!r}")]
        raise ArgumentError(refusal(words, rows, f"Pass {convert}({what})."))
    if is_integer:
        _check_range(signature, parameter, number)
    return number


def _read_float(value: Any) -> float | None:
    """Return a number as a float; None for a text, and for a number that no float equals."""
    if isinstance(value, float):
        return float(value)
    try:
        return float(value) if not isinstance(value, str) and float(value) == value else None
    except (TypeError, ValueError):
        return None


def _read_kernel_integer(value: Any) -> int | None:
    """Return an argument for an integer of a kernel; None if it is not one.

    Unlike a size, it may be a bool, Python's or NumPy's, since kernels take integers as flags, and a float without a
    fraction.
    """
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return int(value) if float(value).is_integer() else None
    return read_integer(value)


def _tensor_for_a_number(signature: Signature, parameter: Parameter, value: torch.Tensor, what: str) -> str:
    name = parameter.name
    words = f"{parameter.noun} argument `{name}` of op `{signature.op}` {what}"
    rows = [(name, f"{tuple(value.shape)} {value.dtype}")]
    remedy = f"if it needs a gradient, list `{parameter.spec_item}` in the spec of the op."
    return refusal(words, rows, f"Pass `{name}.{parameter.conversion}()`; {remedy}")


def check_ranges(signature: Signature, scalars: Mapping[str, Any]) -> None:
    """Refuse integer arguments that do not fit their annotation: a graph passes numbers that nobody has checked."""
    for name, value in scalars.items():
        parameter = signature.parameters(name)[0]
        if parameter.kind != "matrix" and takes_integers(parameter):
            _check_range(signature, parameter, value)


def _check_range(signature: Signature, parameter: Parameter, value: Any) -> None:
    name = parameter.name
    low, high = find_integer_limits(parameter, lambda: find_default_integer(signature))
    if not low <= value <= high:
        words = f"{parameter.noun} argument `{name}` of op `{signature.op}` does not fit its annotation"
        rows = [("annotation", f"{parameter.annotation}: {low} to {high}"), ("got", str(value))]
        kind = "signed" if low == 0 > value else "wider"
        is_held = -(2**63) <= value < 2**63
        remedy = f"Annotate `{name}` with a {kind} integer." if is_held else "Pass a number that 64 bits hold."
        raise ArgumentError(refusal(words, rows, remedy))


def find_integer_limits(parameter: Parameter, find_default: Callable[[], torch.dtype]) -> tuple[int, int]:
    """Return the least and the greatest integer that fit a parameter's annotation.

    `find_default` returns the dtype of `int`. It is called only if that is the annotation: compilers that trace a call
    cannot trace it.
    """
    fitting = parameter.dtypes or (torch.int32,)
    dtype = find_default() if fitting == INTEGERS else fitting[0]
    limits = torch.iinfo(torch.uint8 if dtype == torch.bool else dtype)
    return limits.min, limits.max


def _check_size(signature: Signature, name: str, value: Any) -> Any:
    """Return a dim that was passed by keyword, checked. A float such as 5.0 is refused."""
    # Nearly every size is one, and the other tests take a microsecond.
    if type(value) is int:
        return value
    if is_symbolic(value):
        return value
    if isinstance(value, torch.Tensor) and is_jit_traced():
        words = f"torch.jit.trace would record dim `{name}` of op `{signature.op}`, a tensor's size, as a constant"
        remedy = f"Use torch.export.export, or torch.compile; or pass {name}=int(...) if it is constant."
        raise ArgumentError(refusal(words, remedy=remedy))
    number = read_integer(value)
    if number is not None:
        return number
    words = f"dim `{name}` of op `{signature.op}` must be an integer"
    raise ArgumentError(refusal(words, [("got", f"{type(value).__name__} {value!r}")], f"Pass {name}=int(...)."))


def _check_template(signature: Signature, name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        words = f"template argument `{name}` of op `{signature.op}` is a tensor"
        remedy = f"Pass a Python value, `{name}.item()`; or write `{name}[...]` into the spec if it is an array."
        raise ArgumentError(refusal(words, [(name, _describe_value(value))], remedy))
    return value


def _check_matrix(signature: Signature, name: str, value: Any) -> tuple[Any, ...]:
    parameter = signature.parameters(name)[0]
    entries = signature.stages[0].home.matrix_entries(value)
    flat = list(entries) if entries is not None else _flatten(value)
    for entry in flat:
        if isinstance(entry, torch.Tensor):
            raise ArgumentError(_tensor_for_a_number(signature, parameter, entry, "holds tensors"))
    count = parameter.entries
    if len(flat) != count or not all(isinstance(entry, (int, float)) or is_symbolic(entry) for entry in flat):
        words = f"argument `{name}` of op `{signature.op}` must hold {count} numbers"
        raise ArgumentError(refusal(words, [("got", repr(value))], f"Pass a list of {count} numbers."))
    if takes_integers(parameter):
        check = functools.partial(_check_number, signature, parameter)
        flat = [one if is_symbolic(one) else check(one, f"{name}[{place}]") for place, one in enumerate(flat)]
    return tuple(flat)


def _flatten(value: Any) -> list[Any]:
    if hasattr(value, "tolist") and not isinstance(value, torch.Tensor) and not is_symbolic(value):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        return [value]
    return [entry for part in value for entry in _flatten(part)]


def check_tensors(signature: Signature, tensors: Sequence[Any], *, is_cast: bool = False) -> None:
    """Refuse array arguments that are not tensors, or whose layout, dtype or device does not fit.

    With `is_cast`, arrays of half precision may have been cast to float32 already, in which they are computed.
    """
    _refuse_nested(signature, tensors)
    given: list[torch.Tensor] = []
    for name, tensor in zip(signature.arrays, tensors, strict=True):
        if isinstance(tensor, torch.Tensor):
            _check_layout(signature, name, tensor)
            _check_dtype(signature, name, tensor, is_cast=is_cast)
            given.append(tensor)
        elif not is_symbolic(tensor):
            raise ArgumentError(_explain_non_tensor(signature, name, tensor))
    if len(given) == len(tensors):
        check_devices(signature, tensors)


def check_dtypes(signature: Signature, tensors: Sequence[torch.Tensor]) -> None:
    """Refuse dtypes that do not fit. Half precision may have been cast to float32 already."""
    for name, tensor in zip(signature.arrays, tensors, strict=True):
        _check_dtype(signature, name, tensor, is_cast=True)


def check_devices(signature: Signature, tensors: Sequence[torch.Tensor]) -> None:
    """Raise DeviceError if the tensors are on different devices."""
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        rows = [(name, str(tensor.device)) for name, tensor in zip(signature.arrays, tensors, strict=True)]
        raise DeviceError(
            refusal(
                f"the tensors of op `{signature.op}` are on different devices",
                rows,
                "Move them to one device with `.to(device)`.",
            )
        )


def _refuse_nested(signature: Signature, tensors: Sequence[Any]) -> None:
    """Refuse nested tensors of both layouts, in which the parts of a batch have different sizes."""
    pairs = zip(signature.arrays, tensors, strict=True)
    nested = {name: one for name, one in pairs if isinstance(one, torch.Tensor) and one.is_nested}
    if not nested:
        return
    name, tensor = next(iter(nested.items()))
    layout = signature.items[name].layout
    takes_any_rank = layout.has_batch or layout.has_rest
    plain = len(layout.plain)
    if plain == tensor.dim() and not takes_any_rank:
        remedy = f"Pass `{name}.to_padded_tensor(0.0)`, in which all parts have the size of the largest."
    else:
        names, parts = ", ".join(nested), ", ".join(f"{one}.unbind()" for one in nested)
        call = f"{signature.op}({', '.join(signature.order)})"
        remedy = f"Call it for each part: `[{call} for {names} in {f'zip({parts})' if len(nested) > 1 else parts}]`."
    refuse_nested(name, tensor, f"op `{signature.op}`", remedy=remedy)


def refuse_nested(name: str, tensor: torch.Tensor, whose: str, *, remedy: str = "") -> None:
    """Raise ArgumentError if an input is a nested tensor.

    Args:
        name: the input's name.
        tensor: the input.
        whose: the op or layer, as messages call it.
        remedy: what the user can do instead; the default is a call for each part.
    """
    if tensor.is_nested:
        words = f"tensor `{name}` of {whose} is nested ({tensor.layout})"
        got = f"{tensor.size(0)} parts with {tensor.dim() - 1} dims each, {_shorten_dtype(tensor.dtype)}"
        raise ArgumentError(refusal(words, [("got", got)], remedy or f"Call it for each part of `{name}.unbind()`."))


def _check_layout(signature: Signature, name: str, tensor: torch.Tensor) -> None:
    actual = remedy = ""
    if tensor.is_quantized:
        actual, remedy = f"quantized ({tensor.dtype})", f"Pass `{name}.dequantize()`."
    elif tensor.layout != torch.strided:
        actual, remedy = f"sparse ({tensor.layout})", f"Pass `{name}.to_dense()`."
    elif isinstance(tensor, torch.masked.MaskedTensor):
        actual, remedy = "masked", f"Pass `{name}.to_tensor(0.0)`, where the argument is the value of masked elements."
    if remedy:
        raise ArgumentError(
            refusal(f"tensor `{name}` of op `{signature.op}` is {actual}", [(name, _describe_value(tensor))], remedy)
        )


def _check_dtype(signature: Signature, name: str, tensor: torch.Tensor, *, is_cast: bool) -> None:
    fitting, dtype = fitting_dtypes(signature, name), tensor.dtype
    wanted = " or ".join(_shorten_dtype(d) for d in fitting) if fitting else "any real dtype of at most 64 bits"
    if dtype in _SUPPORTED and (fitting is None or dtype in fitting):
        return
    if dtype in HALVES and takes_half(signature, name):
        return
    if is_cast and dtype == torch.float32 and takes_half_alone(signature, name):
        return
    why = _explain_dtype(signature, name) if fitting else ""
    if dtype.is_complex:
        remedy = f"Pass `torch.view_as_real({name})`; the kernel then sees one more dim of size 2."
    elif fitting and len(fitting) == 1:
        remedy = f"Pass `{name}.to({fitting[0]})`; or {_suggest_annotation(signature, name, dtype)}."
    else:
        is_float = dtype.is_floating_point and not signature.items[name].promise
        remedy = f"Pass `{name}.float()`." if is_float else f"Pass `{name}.to(torch.int32)`."
    words = f"tensor `{name}` of op `{signature.op}` has the wrong dtype"
    raise DtypeError(refusal(words, [("expected", wanted, why), ("got", _shorten_dtype(dtype))], remedy))


def _suggest_annotation(signature: Signature, name: str, dtype: torch.dtype) -> str:
    """Return advice how to change the spec or annotation of an array that accepts one dtype, so that `dtype` fits."""
    if signature.items[name].dtype:
        return "leave the dtype out of the spec, which then allows any dtype"
    stage, parameter = next(
        (stage, stage.parameters[name])
        for stage in signature.firsts
        if name in stage.parameters and stage.parameters[name].dtypes is not None
    )
    lang = stage.module_name
    # The annotation of a scalar fixes its dtype, unlike that of an array.
    if parameter.kind == "scalar":
        own = f"`{name}: {lang}.{NAMES[dtype]}`, or " if dtype in NAMES else ""
        return f"annotate it as {own}`{name}: {lang}.types.ndarray()`, which allows any dtype, and read `{name}[None]`"
    if parameter.kind == "matrix":
        return f"annotate it as `{name}: {lang}.types.ndarray()`, which allows any dtype, and read its elements"
    return "leave the dtype out of the annotation, which then allows any dtype"


def _explain_dtype(signature: Signature, name: str) -> str:
    """Return where an array's dtype comes from, for a message: the spec or the annotation."""
    item = signature.items[name]
    if item.dtype:
        return f"spec `{item}`"
    if all(parameter.dtypes is None for parameter in signature.parameters(name)):
        return f"`{item.promise}` in the spec"
    return f"annotated {next(p.annotation for p in signature.parameters(name) if p.dtypes is not None)}"


def _explain_non_tensor(signature: Signature, name: str, value: Any) -> str:
    fitting = fitting_dtypes(signature, name) or ()
    # Of a number, torch makes a float32, which an array of another dtype would refuse.
    dtype = f", dtype={fitting[0]}" if len(fitting) == 1 else ""
    remedy = f"Pass a tensor: `torch.as_tensor({name}{dtype})`."
    if value is None:
        remedy = "Pass a tensor: an op has no optional arrays. Make a second op for calls without it, or pass zeros."
    elif any(stage.home.is_field(value) for stage in signature.stages):
        remedy = (
            f"Pass a tensor, `torch.from_numpy({name}.to_numpy())`. For kernels on fields: ts.EmptyTin, ts.rollout."
        )
    return refusal(
        f"argument `{name}` of op `{signature.op}` must be a tensor",
        [("got", f"{type(value).__name__} {value!r:.60}")],
        remedy,
    )


def _explain_count(signature: Signature, count: int) -> str:
    rows = [("expected", f"{len(signature.order)}: {', '.join(signature.order) or 'none'}"), ("got", str(count))]
    return refusal(f"op `{signature.op}` got too many arguments", rows, _explain_usage(signature))


def _explain_missing(signature: Signature, names: Sequence[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names)
    return refusal(
        f"op `{signature.op}` is missing {listed}",
        [("expected", ", ".join(signature.order))],
        _explain_usage(signature),
    )


def _explain_usage(signature: Signature) -> str:
    # A layer launches it on fields, without a spec.
    if not signature.spec.items:
        return f"Give ({', '.join(signature.order)}) when the kernel is registered, or by `set_kernel_args`."
    parts = [*signature.order, *(f"{name}=..." for name in signature.size_names)]
    return f"Call it as `{signature.op}({', '.join(parts)})`; the op allocates outputs and scratch."


def _describe_value(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {_shorten_dtype(tensor.dtype)} on {tensor.device}"


def _shorten_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def autocast(signature: Signature, bound: BoundArguments) -> BoundArguments:
    """Cast floating inputs to float32 under autocast, as `torch.amp.custom_fwd(cast_inputs=torch.float32)` does.

    float64 is not cast, and neither are arrays that only take half precision: they are computed in float32 in any case.
    """

    def single(name: str, tensor: Any) -> Any:
        # torch has no autocast for the meta device, and raises when asked.
        if not isinstance(tensor, torch.Tensor) or tensor.device.type == "meta":
            return tensor
        if not torch.is_autocast_enabled(tensor.device.type):
            return tensor
        is_cast = tensor.is_floating_point() and tensor.dtype != torch.float64
        if not is_cast or takes_half_alone(signature, name) or tensor.dtype == torch.float32:
            return tensor
        check_before_copy(f"array `{name}` of op `{signature.op}`", tensor)
        return tensor.float()

    pairs = zip(signature.arrays, bound.tensors, strict=True)
    return bound.with_tensors(tuple([single(name, tensor) for name, tensor in pairs]))
