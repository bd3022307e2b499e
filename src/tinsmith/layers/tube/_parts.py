"""The parts of a Tube: its tensors and kernels as they were registered, each checked by itself.

Values only, frozen, so that a call that is still to be differentiated keeps what it was made with.
Rules between parts are held by `_blueprint`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch

from ..._errors import ArgumentError, DtypeError, GradientError, RegistrationError, ShapeError, refusal
from ..._integers import read_integer
from ...engines import DTYPES, Engine, Parameter, is_kernel, of_kernel
from ...operation import Op, Reference, reference_to
from ._dims import Anything, Batch, DimensionCalculator, DimOption, MatchDim

Kind = Literal["input tensor", "output tensor", "intermediate field"]
Calculator = DimensionCalculator | Callable[..., Any]

_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
_KNOWN = (*DTYPES.values(), *_REAL)


@dataclass(frozen=True)
class TensorPart:
    """One registered tensor, or field between kernels.

    Attributes:
        dims: None where `calculator` computes them at each call.
        requires_grad: for an input None means: as the tensor says.
        manager: lays its field out, None for the usual way.
    """

    name: str
    kind: Kind
    dims: tuple[DimOption, ...] | None
    calculator: Calculator | None
    dtype: torch.dtype
    requires_grad: bool | None
    manager: Any = None

    @property
    def is_complex(self) -> bool:
        """Whether kernels see it as an array of 2-vectors."""
        return self.dtype in _REAL

    @property
    def memory(self) -> torch.dtype:
        """The dtype of the numbers in memory, as kernels see them: for a complex tensor, that of its real part."""
        return _REAL.get(self.dtype, self.dtype)

    @property
    def is_batched(self) -> bool:
        """Whether its registered dims begin with BatchDim."""
        return bool(self.dims) and isinstance(self.dims[0], Batch)

    @property
    def description(self) -> str:
        """One line for people: name, dims, dtype."""
        dims = f"calculated by {_name(self.calculator)}" if self.dims is None else str(self.dims)
        gradient = "" if self.requires_grad is not False else ", no gradient"
        layout = "" if self.manager is None else f", laid out by {_name(self.manager)}"
        return f"{self.name} {dims} {str(self.dtype).removeprefix('torch.')}{gradient}{layout}"


@dataclass(frozen=True, eq=False)
class KernelPart:
    """One registered kernel: which tensors it is given, then which other arguments."""

    kernel: Any
    name: str
    tensors: tuple[str, ...]
    extra: tuple[Any, ...]

    @cached_property
    def engine(self) -> Engine:
        """The engine that it was written for."""
        return of_kernel(self.kernel)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The Python function under its decorator."""
        return self.engine.function_of(self.kernel)

    @cached_property
    def owner(self) -> Any:
        """The data-oriented object that it is bound to, or None."""
        return self.engine.owner_of(self.kernel)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its parameters in order, without `self`. Raises KernelError for kinds that no op can pass."""
        return self.engine.parameters(self.kernel)

    @property
    def tensor_names(self) -> dict[str, str]:
        """Names of its array parameters, to those of the tensors that they are given."""
        return {parameter.name: name for parameter, name in zip(self.parameters, self.tensors, strict=False)}

    @property
    def others(self) -> tuple[Parameter, ...]:
        """The parameters that take `extra`."""
        return self.parameters[len(self.tensors) :]

    @property
    def description(self) -> str:
        """One line for people: name, tensors, other arguments."""
        called = "" if self.name == self.function.__name__ else f" ({self.function.__name__})"
        return f"{self.name}{called}: {', '.join([*self.tensors, *map(_brief, self.extra)])}"

    @property
    def call(self) -> str:
        """The call on one line for people: each parameter, and what it is given."""
        given = zip(self.parameters, [*self.tensors, *map(_brief, self.extra)], strict=False)
        return f"{self.name}({', '.join(f'{parameter.name}={value}' for parameter, value in given)})"

    def is_same(self, kernel: Any) -> bool:
        """Return True if `kernel` is the registered one, compared by its function and object."""
        if not is_kernel(kernel):
            return False
        engine = of_kernel(kernel)
        return engine.function_of(kernel) is self.function and engine.owner_of(kernel) is self.owner

    def with_extra(self, extra: tuple[Any, ...]) -> KernelPart:
        """Return this part with other extra arguments."""
        return replace(self, extra=extra)

    def __reduce__(self) -> Any:
        return _restore_part, (reference_to(self.kernel), self.name, self.tensors, self.extra)

    def __deepcopy__(self, memo: dict[int, Any]) -> KernelPart:
        """Copy the part. A bound kernel is bound to the copy of its object if that is being copied too."""
        owner = memo.get(id(self.owner), self.owner)
        return self if owner is self.owner else replace(self, kernel=self.engine.bind(self.kernel, owner))


def _restore_part(reference: Reference, name: str, tensors: tuple[str, ...], extra: tuple[Any, ...]) -> KernelPart:
    return KernelPart(reference.kernel(), name, tensors, extra)


def tensor_part(
    kind: Kind, dims_or_calc: Any, dtype: Any, name: str, requires_grad: bool | None, manager: Any
) -> TensorPart:
    """Check and describe a tensor that is being registered.

    Raises:
        RegistrationError: its name or field manager is none.
        ShapeError: its dims are none.
        DtypeError: no kernel has its dtype.
        GradientError: it cannot have the gradient that it is to have.
    """
    if not isinstance(name, str) or not name:
        words = f"the name of an {kind} is a string"
        raise RegistrationError(refusal(words, [("got", repr(name))], 'Name it: `name="x"`.'))
    if manager is not None and not (callable(manager) or hasattr(manager, "construct_field")):
        words = f"the field manager of {kind} `{name}` is not a FieldManager"
        raise RegistrationError(refusal(words, [("got", repr(manager))], "Pass a FieldManager, or leave it out."))
    is_calculated = kind != "input tensor" and (callable(dims_or_calc) or isinstance(dims_or_calc, DimensionCalculator))
    dims = None if is_calculated else _checked_dims(kind, name, dims_or_calc)
    part = TensorPart(
        name, kind, dims, dims_or_calc if is_calculated else None, _dtype(kind, name, dtype), requires_grad, manager
    )
    _check_gradient(part)
    return part


def _checked_dims(kind: Kind, name: str, dims: Any) -> tuple[DimOption, ...]:
    if not isinstance(dims, tuple | list):
        remedy = "Write a tuple: `(BatchDim, 4)`; `()` is a single number."
        raise ShapeError(refusal(f"the dims of {kind} `{name}` are not a tuple", [("got", repr(dims))], remedy))
    for place, dim in enumerate(dims):
        why = explain_invalid_dim(dim, place, is_input=kind == "input tensor")
        if why:
            rows = [("dims", str(tuple(dims)), f"dim {place} {why}")]
            remedy = "A dim is a positive integer, MatchDim(id), BatchDim (only the first), or AnyDim (only in inputs)."
            if isinstance(dim, str):
                remedy = f"Write `MatchDim({dim!r})` for a size that several tensors share."
            elif dim is None or dim == -1:
                remedy = "Write `MatchDim(id)` for a size that several tensors share, or `AnyDim` (only in inputs)."
            raise ShapeError(refusal(f"the dims of {kind} `{name}` are invalid", rows, remedy))
    return tuple([dim if (number := read_integer(dim)) is None else number for dim in dims])


def explain_invalid_dim(dim: Any, place: int, *, is_input: bool) -> str:
    """Return why a dim is invalid, or an empty string if it is valid."""
    if isinstance(dim, Batch):
        return "is BatchDim, and not the first" if place else ""
    if isinstance(dim, Anything):
        return "" if is_input else "is AnyDim, which only an input can fix"
    if isinstance(dim, MatchDim):
        return ""
    number = read_integer(dim)
    if number is None:
        return "is not a dim"
    return "" if number > 0 else "is not positive"


def _dtype(kind: Kind, name: str, dtype: Any) -> torch.dtype:
    """Convert a dtype of torch or of an engine to torch's. Raises DtypeError."""
    torch_dtype = dtype if isinstance(dtype, torch.dtype) else DTYPES.get(str(dtype))
    if torch_dtype in _KNOWN and not isinstance(dtype, str):
        return torch_dtype
    words = f"{kind} `{name}` cannot have the dtype {dtype!r}"
    known = ", ".join(str(one).removeprefix("torch.") for one in _KNOWN)
    raise DtypeError(refusal(words, [("expected", known)], "Write one of torch's or the engine's: `torch.float32`."))


def _check_gradient(part: TensorPart) -> None:
    if part.kind != "input tensor" and not isinstance(part.requires_grad, bool):
        what = "needs_grad" if part.kind == "intermediate field" else "requires_grad"
        words = f"{part.kind} `{part.name}` does not say whether it has a gradient"
        rows = [(what, repr(part.requires_grad))]
        raise RegistrationError(refusal(words, rows, f"Pass {what}=True or {what}=False."))
    if part.requires_grad and not part.memory.is_floating_point:
        words = f"{part.kind} `{part.name}` holds {part.dtype}, which has no gradient"
        raise GradientError(refusal(words, remedy="Register it without a gradient, or with a floating dtype."))


def kernel_part(kernel: Any, tensors: Sequence[str], extra: tuple[Any, ...], name: str | None) -> KernelPart:
    """Check and describe a kernel that is being registered.

    Raises:
        RegistrationError: it is none, or the names are not strings, or too many.
        ArgumentError: the other arguments are too many, or arguments are missing that only a tensor can be.
    """
    kernel = kernel.kernel if isinstance(kernel, Op) else kernel
    if not is_kernel(kernel):
        words = "Tube.register_kernel takes a kernel of Taichi or Quadrants"
        raise RegistrationError(refusal(words, [("got", repr(kernel))], "Decorate it with @ti.kernel (or @qd.kernel)."))
    title = name or of_kernel(kernel).function_of(kernel).__name__
    if isinstance(tensors, str) or not all(isinstance(one, str) for one in tensors):
        words = f"the tensors of kernel `{title}` are not given by a list of their names"
        raise RegistrationError(refusal(words, [("got", repr(tensors))], 'Write a list: `["x", "y"]`.'))
    part = KernelPart(kernel, title, tuple(tensors), extra)
    count = len(part.parameters)
    if len(part.tensors) > count:
        words = f"kernel `{part.name}` is given more tensors than it has parameters"
        rows = [("tensors", ", ".join(part.tensors)), ("parameters", _format_parameters(part.parameters))]
        raise RegistrationError(refusal(words, rows, "Name one tensor for each array parameter, in their order."))
    is_open = not extra and all(parameter.kind in ("scalar", "matrix") for parameter in part.others)
    if not is_open:  # plain numbers may still be given by `set_kernel_extra_args`
        check_extra(part)
    return part


def check_extra(part: KernelPart) -> None:
    """Refuse a wrong number of arguments after the tensors, and tensors for plain numbers."""
    if len(part.extra) != len(part.others):
        words = f"kernel `{part.name}` does not get as many arguments as it has parameters"
        rows = [
            ("parameters", _format_parameters(part.parameters)),
            ("tensors", ", ".join(part.tensors) or "none"),
            ("extra arguments", ", ".join(map(_brief, part.extra)) or "none"),
        ]
        remedy = "Name a tensor for each array parameter; then pass the others, or `set_kernel_extra_args` later."
        raise ArgumentError(refusal(words, rows, remedy))

    for parameter, value in zip(part.others, part.extra, strict=True):
        if parameter.kind in ("scalar", "matrix") and isinstance(value, torch.Tensor):
            words = f"extra argument `{parameter.name}` of kernel `{part.name}` is a tensor"
            rows = [("got", f"{tuple(value.shape)} {value.dtype}")]
            name = parameter.name
            remedy = f"Pass `{name}.{parameter.conversion}()`; or register `{name}` as an input with dims "
            remedy += f"`{parameter.element}`, and it has a gradient."
            raise ArgumentError(refusal(words, rows, remedy))


def _format_parameters(parameters: Sequence[Parameter]) -> str:
    return ", ".join(f"{parameter.name}: {parameter.annotation}" for parameter in parameters) or "none"


def _brief(value: Any) -> str:
    """Format a value on one line of at most 40 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


def _name(value: Any) -> str:
    return getattr(value, "__name__", type(value).__name__)
