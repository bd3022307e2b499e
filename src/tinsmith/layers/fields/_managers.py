"""Field managers: custom layouts of a Tube's fields, with custom methods to fill and read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch


class FieldManager(ABC):
    """Defines the layout of the field behind a tensor of a `Tube`: blocks, sparse nodes, or any other.

    The field need not have the tensor's shape: this class maps its elements. If the shapes are the same, a plain
    function with the arguments of `construct_field` works as well.

    A backward pass calls `from_tensor` again with the tensor of the call before it moves gradients, so the state of the
    manager and the content of its field are those of the call. The gradient of a dense field is generated from the
    kernels' source; that of a sparse field is the engine's own.

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
        """Create a field for a tensor of that shape, place it in `fields_builder`, and return it.

        Args:
            fields_builder: a `ti.FieldsBuilder` that is not finalized.
            concrete_tensor_shape: the tensor's shape without the batch dim.
            needs_grad: whether to place its gradient as well.
        """

    @abstractmethod
    def to_tensor(self, field: Any) -> torch.Tensor:
        """Return the field's content as a tensor of the shape that it was created for."""

    @abstractmethod
    def grad_to_tensor(self, grad_field: Any) -> torch.Tensor:
        """Return the content of its gradient field as such a tensor."""

    @abstractmethod
    def from_tensor(self, field: Any, tensor: torch.Tensor) -> None:
        """Fill the field from a tensor."""

    @abstractmethod
    def grad_from_tensor(self, grad_field: Any, tensor: torch.Tensor) -> None:
        """Fill its gradient field from a tensor."""
