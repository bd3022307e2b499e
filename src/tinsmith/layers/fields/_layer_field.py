"""A field that a layer was given, and how a tensor becomes its content and back.

Only shapes, dtypes and complex numbers are settled here, in torch operations that autograd
sees; copying into the field's memory is `Transfer`'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from ..._errors import (
    ArgumentError,
    DeviceError,
    DtypeError,
    EngineError,
    GradientError,
    KernelError,
    ShapeError,
    refusal,
)
from ...calls import check_before_copy, refuse_nested
from ...engines import Engine, FieldFacts, gradient_field, module_name, of_field, remedy_for_lost_field, unwrap

_HALF = torch.float16, torch.bfloat16
_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


@dataclass(frozen=True, eq=False)
class LayerField:
    """A registered field.

    Attributes:
        needs_grad: whether its gradient is asked for; `facts.has_gradient` says whether it has one at all.
        is_complex: whether its numbers are pairs, real and imaginary.
        runs_on: torch's name of the device that its engine runs on.
        runtime: the engine's state that it was made in: once that is gone, so is its memory.
        is_silent: whether it was registered without a gradient in so many words, so that none is missed.
        is_batched: whether a call's tensor may have leading batch dims.
        clears: whether it starts each call at zero, or with what it holds; None if not declared.
        manager: fills and reads it, in place of a transfer of ours, from a tensor of `shape` and `dtype`.
    """

    name: str
    field: Any
    facts: FieldFacts
    needs_grad: bool
    is_complex: bool
    engine: Engine
    runs_on: str
    runtime: Any
    is_silent: bool = False
    is_batched: bool = False
    clears: bool | None = None
    manager: Any = None
    shape: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        """Compute every cached property now: its lock is something that `torch.compile` cannot look into."""
        for name in ("memory_dtype", "memory_shape", "tensor_shape", "tensor_dtype"):
            getattr(self, name)

    @cached_property
    def memory_dtype(self) -> torch.dtype:
        """Dtype of the tensor that the field is filled from."""
        return self.dtype or self.facts.dtype

    @cached_property
    def memory_shape(self) -> tuple[int, ...]:
        """Shape of the tensor that the field is filled from: a real one, unless a manager takes it as it is."""
        return self.facts.shape + self.facts.element if self.shape is None else self.shape

    @cached_property
    def tensor_shape(self) -> tuple[int, ...]:
        """Shape of the tensor that a user passes or gets."""
        return self.memory_shape[:-1] if self.is_complex else self.memory_shape

    @cached_property
    def tensor_dtype(self) -> torch.dtype:
        """Dtype of the tensor that a user gets."""
        return _COMPLEX[self.facts.dtype] if self.is_complex else self.memory_dtype

    @property
    def may_have_gradient(self) -> bool:
        """Whether an array in its place would have a gradient, unless it was registered without one."""
        return self.facts.dtype.is_floating_point and not self.is_silent

    @property
    def has_gradient(self) -> bool:
        """Whether it is registered with a gradient, and its field has one."""
        return self.needs_grad and self.facts.has_gradient

    @property
    def gradient_facts(self) -> FieldFacts:
        """What its gradient is. The gradient of a field lies as the field does; that of an ndarray is other memory."""
        gradient = gradient_field(self.field) if self.facts.address else None
        return self.facts if gradient is None else self.engine.field_facts(gradient, f"{self.name}.grad")

    @property
    def gradient_parts(self) -> Sequence[int]:
        """The parts of the field that holds its gradient; empty if it has none."""
        if not self.facts.has_gradient:
            return ()
        return self.engine.field_facts(gradient_field(self.field), f"{self.name}.grad").parts

    def with_manager(self, manager: Any, shape: tuple[int, ...], dtype: torch.dtype) -> LayerField:
        """Return the field as one that a manager fills and reads, from tensors of this shape and dtype."""
        return replace(self, manager=manager, shape=shape, dtype=dtype)

    @property
    def without_manager(self) -> LayerField:
        """The same field, filled and read as it lies."""
        return self if self.manager is None else replace(self, manager=None, shape=None, dtype=None)

    def refresh(self) -> LayerField:
        """Read the field's properties again: `lazy_grad()` may have placed its gradient since."""
        facts = self.engine.field_facts(self.field, self.name)
        gains = facts.has_gradient and not self.facts.has_gradient and not self.is_silent
        return replace(self, facts=facts, needs_grad=self.needs_grad or gains)

    def check_alive(self, layer: str) -> None:
        """Raise EngineError where the engine was started again since, and took the field's memory with it."""
        if self.engine.runtime() is not self.runtime:
            words = f"the field `{self.name}` of {layer} was freed when the engine was started again"
            remedy = "Make the fields and the layer after the last ts.init()."
            raise EngineError(refusal(words, remedy=remedy_for_lost_field(self.engine, remedy)))

    def __str__(self) -> str:
        dtype = str(self.tensor_dtype).removeprefix("torch.")
        return f"{self.name}[{', '.join(map(str, self.tensor_shape))}] {dtype}"

    def to_memory(self, tensor: torch.Tensor, layer: str) -> torch.Tensor:
        """Convert a user's tensor to the field's dtype and real numbers. Differentiable. Raises if it does not fit."""
        if self._fits_exactly(tensor):
            return tensor
        if not isinstance(tensor, torch.Tensor):
            rows = [("got", f"{type(tensor).__name__} {tensor!r:.60}")]
            raise ArgumentError(
                refusal(f"`{self.name}` of {layer} must be a tensor", rows, "Pass torch.as_tensor(...).")
            )
        refuse_nested(self.name, tensor, layer)
        lead = tensor.dim() - len(self.tensor_shape) if self.is_batched else 0
        if (
            lead < 0
            or tuple(tensor.shape[lead:]) != self.tensor_shape
            or tensor.is_complex() != self.tensor_dtype.is_complex
        ):
            raise self._misfit(tensor, layer)
        if tensor.device.type not in (self.runs_on, "meta"):
            raise self._elsewhere(tensor, layer)
        if tensor.dtype == self.tensor_dtype:
            return torch.view_as_real(tensor.resolve_conj()) if self.is_complex else tensor
        if tensor.is_floating_point() and not self.tensor_dtype.is_floating_point:
            rows = [("field", str(self.facts.dtype)), ("got", str(tensor.dtype))]
            words = f"`{self.name}` of {layer} holds integers, and the tensor does not"
            raise DtypeError(refusal(words, rows, f"Pass `tensor.to({self.facts.dtype})` if rounding is meant."))
        check_before_copy(f"`{self.name}` of {layer}", tensor)
        converted = tensor.to(self.tensor_dtype)
        return torch.view_as_real(converted.resolve_conj()) if self.is_complex else converted

    def _fits_exactly(self, tensor: torch.Tensor) -> bool:
        """Return True if a tensor needs no conversion."""
        return (
            isinstance(tensor, torch.Tensor)
            and not tensor.is_nested
            and tensor.dtype is self.facts.dtype
            # Ranks first: where they differ, a tracer would compare a batch dim with the field's size, and guard it.
            and tensor.dim() == len(self.tensor_shape)
            and tensor.shape == self.tensor_shape
            and not self.is_complex
            and tensor.device.type == self.runs_on
        )

    def from_memory(self, memory: torch.Tensor) -> torch.Tensor:
        """Convert the field's numbers to the tensor that a user gets: pairs become complex. Differentiable."""
        return torch.view_as_complex(memory) if self.is_complex else memory

    def _misfit(self, tensor: torch.Tensor, layer: str) -> Exception:
        words = f"the tensor does not fit field `{self.name}` of {layer}"
        lead = "any batch dims, then " if self.is_batched else ""
        wanted = f"{lead}{self.tensor_shape} {'complex' if self.is_complex else 'real'}"
        rows = [("expected", wanted), ("got", f"{tuple(tensor.shape)} {'complex' if tensor.is_complex() else 'real'}")]
        if tensor.is_complex() == self.tensor_dtype.is_complex:
            element = f", its elements' dims {self.facts.element} last" if self.facts.element else ""
            return ShapeError(refusal(words, rows, f"Pass a tensor of the field's shape{element}."))
        remedy = "Pass `torch.complex(re, im)`." if self.is_complex else "Register it with complex_dtype=True."
        return DtypeError(refusal(words, rows, remedy))

    def _elsewhere(self, tensor: torch.Tensor, layer: str) -> DeviceError:
        words = f"`{self.name}` of {layer} is on {tensor.device}, and {self.engine.name} runs on {self.runs_on}"
        return DeviceError(refusal(words, remedy=f"Pass `tensor.to({self.runs_on!r})`, or start the engine there."))


def find_half_precision(fields: Sequence[LayerField], tensors: Sequence[torch.Tensor]) -> torch.dtype | None:
    """Return the half-precision dtype that a call's results are cast to; None if they keep the dtypes of their fields.

    That is where all floating-point tensors of the call have it, inputs and weights, and their fields are wider: in a
    model in half precision the next layer expects it.
    """
    half = None
    for one, tensor in zip(fields, tensors, strict=True):
        given = tensor.dtype
        if given.is_floating_point:
            if given not in _HALF or given == one.facts.dtype or half not in (None, given):
                return None
            half = given
    return half


def place_field(field: Any, name: str, needs_grad: bool | None, is_complex: bool, layer: str) -> LayerField:
    """Describe a field that is registered with a layer or used by a kernel.

    Raises:
        KernelError: it is not a placed field of numbers that torch has, or cannot hold complex numbers.
        GradientError: a gradient is asked of a field that has none, or lies where the field does not.
    """
    engine, field = of_field(field), unwrap(field)
    if engine is None:
        actual = f"{type(field).__name__} {getattr(field, '__name__', '')}".strip()
        remedy = "Pass the object that `ti.field(...)` or `ti.Vector.field(...)` (or `qd.field(...)`) returned"
        remedy += ", not its name." if isinstance(field, str) else "."
        raise ArgumentError(refusal(f"`{name}` of {layer} must be a field", [("got", actual)], remedy))
    facts = engine.field_facts(field, name)
    _check_gradient(field, facts, name, layer, engine)
    if needs_grad and not facts.has_gradient:
        words = f"field `{name}` of {layer} was registered with needs_grad=True, and has no gradient"
        remedy = "Declare it with needs_grad=True, or place its gradient too: `.place(field, field.grad)`."
        raise GradientError(refusal(words, [("dtype", str(facts.dtype)), ("shape", str(facts.shape))], remedy))
    if is_complex:
        _check_pairs(facts, name, layer)
    asked = facts.has_gradient if needs_grad is None else needs_grad
    return LayerField(
        name, field, facts, asked, is_complex, engine, engine.device_type(), engine.runtime(), needs_grad is False
    )


def _check_gradient(field: Any, facts: FieldFacts, name: str, layer: str, engine: Engine) -> None:
    """Refuse a gradient that the engine would write beside, or would run nothing for the lack of."""
    gradient = gradient_field(field)
    if gradient is None:
        return
    if engine.is_unplaced(gradient):
        words = (
            f"field `{name}` of {layer} was declared with needs_grad=True and placed by hand, but its gradient was not"
        )
        others = f"`{module_name(engine.name)}.root.lazy_grad()`"
        remedy = f"Place it too, before registering: `.place({name}, {name}.grad)`, or {others}."
        raise GradientError(refusal(words, [("shape", str(facts.shape))], remedy))
    if not facts.has_gradient:
        return
    gradient_facts = engine.field_facts(gradient, f"{name}.grad")
    if (gradient_facts.shape, gradient_facts.offset) == (facts.shape, facts.offset):
        return
    words = f"the gradient of field `{name}` of {layer} is not placed like the field"
    rows = [("field", f"shape {facts.shape}, offset {facts.offset}")]
    rows += [("gradient", f"shape {gradient_facts.shape}, offset {gradient_facts.offset}")]
    remedy = "Place the gradient with the field's shape and offset (`lazy_grad()` leaves offsets out)."
    raise GradientError(refusal(words, rows, remedy))


def _check_pairs(facts: FieldFacts, name: str, layer: str) -> None:
    holds_pairs = facts.element == (2,) if facts.element else facts.shape[-1:] == (2,)
    if holds_pairs and facts.dtype in _COMPLEX:
        return
    words = f"field `{name}` of {layer} cannot hold complex numbers"
    rows = [("shape", str(facts.shape)), ("elements", str(facts.element or "numbers")), ("dtype", str(facts.dtype))]
    remedy = "Use a field of 2-vectors of f32 or f64, or a scalar field whose last dim is 2."
    raise KernelError(refusal(words, rows, remedy))
