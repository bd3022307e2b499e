"""Field managers: a user's own way to lay a Tube's field out, and to fill and read it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch


class FieldManager(ABC):
    """Lays out the field behind a tensor of a `Tube`: in blocks, sparse nodes, or any layout that suits the kernel.

    The field need not have the tensor's shape: this class maps elements to it. Where it has,
    a plain function with the arguments of `construct_field` works as well.

    A backward pass calls `from_tensor` again, with the tensor of the call, before it moves gradients. So the state of a
    manager, and the content of its field, are those of that call. A dense field's gradient is generated from the
    kernels' source; a sparse one's is the engine's own.

    Example:
        >>> class Blocks(ts.FieldManager):
        ...     def construct_field(self, fields_builder, concrete_tensor_shape, needs_grad):
        ...         field = ti.field(ti.f32, needs_grad=needs_grad)
        ...         blocks = fields_builder.dense(ti.i, concrete_tensor_shape[0] // 8).dense(ti.i, 8)
        ...         blocks.place(field, field.grad) if needs_grad else blocks.place(field)
        ...         return field
        ...
        ...     def to_tensor(self, field):
        ...         return field.to_torch()
        ...
        ...     def from_tensor(self, field, tensor):
        ...         field.from_torch(tensor)
        ...
        ...     grad_to_tensor, grad_from_tensor = to_tensor, from_tensor
        >>> @ti.kernel
        ... def double(x: ti.template(), y: ti.template()):
        ...     for i in x:
        ...         y[i] = 2.0 * x[i]
        >>> tube = ts.Tube().register_input_tensor((8,), torch.float32, "x", field_manager=Blocks())
        >>> tube = tube.register_output_tensor((8,), torch.float32, "y", True)
        >>> tube.register_kernel(double, ["x", "y"]).finish()(torch.ones(8))
        tensor([2., 2., 2., 2., 2., 2., 2., 2.])
    """

    @abstractmethod
    def construct_field(self, fields_builder: Any, concrete_tensor_shape: tuple[int, ...], needs_grad: bool) -> Any:
        """Make a field for a tensor of that shape, batch left out, and place it in `fields_builder`. Return it.

        Args:
            fields_builder: an `ti.FieldsBuilder` that is not finalized.
            concrete_tensor_shape: the tensor's shape.
            needs_grad: whether its gradient must be placed too.
        """

    @abstractmethod
    def to_tensor(self, field: Any) -> torch.Tensor:
        """The field's content as a tensor of the shape that it was made for."""

    @abstractmethod
    def grad_to_tensor(self, grad_field: Any) -> torch.Tensor:
        """The same of its gradient field."""

    @abstractmethod
    def from_tensor(self, field: Any, tensor: torch.Tensor) -> None:
        """Fill the field from a tensor."""

    @abstractmethod
    def grad_from_tensor(self, grad_field: Any, tensor: torch.Tensor) -> None:
        """Fill its gradient field from a tensor."""
