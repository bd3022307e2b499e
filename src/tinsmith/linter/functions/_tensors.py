"""What the methods of a hand-written Function handle: tensors by where their memory comes from, and kernels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .._source_form import Call

Origin = Literal["input", "incoming", "made", "other"]


@dataclass(eq=False)
class Tensor:
    """A tensor object that a method of a Function has.

    Attributes:
        origin: where its memory comes from: an argument of `forward`, the gradient that `backward` is given, an
            allocation in the Function, or elsewhere (a global, an attribute).
        name: of the argument, or the text of the expression that it was made by.
        is_original: it is the very object of its origin, no detached one and no view.
        is_maybe_copy: `contiguous()` or `to()` made it: the very object where nothing has to be copied.
        requires_grad: None is unknown.
        adjoint: what was assigned to its `.grad`, in line `adjoint_line`.
        allocation: the call that allocated it, with its arguments as values.
        taken_from: the tensor whose `.grad` it is, or is a copy of.
    """

    origin: Origin
    name: str
    is_original: bool = True
    is_maybe_copy: bool = False
    requires_grad: bool | None = None
    adjoint: Tensor | None = None
    adjoint_line: int = 0
    allocation: Allocation | None = None
    taken_from: Tensor | None = None
    kept_on_context: bool = False

    def derive(self, *, requires_grad: bool | None = None) -> Tensor:
        """Return a view or a detached one: another object on the same memory."""
        return replace(
            self, is_original=False, requires_grad=requires_grad, adjoint=None, adjoint_line=0, kept_on_context=False
        )


@dataclass(frozen=True, eq=False)
class Allocation:
    """An allocation: `torch.zeros(n, 3)`, `torch.zeros_like(x)`, with its arguments as values."""

    like: Tensor | None
    dims: tuple[Any, ...] | None
    dtype: str = ""


@dataclass(frozen=True, eq=False)
class Group:
    """A tuple or list of values."""

    items: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class ShapeOf:
    """`x.shape`."""

    tensor: Tensor


@dataclass(frozen=True)
class Size:
    """A number of elements, in a spec's language: a name of (tensor, axis), an integer, or arithmetic on them."""

    operator: str
    operands: tuple[Any, ...]


@dataclass(eq=False)
class Object:
    """The context, a class, a kernel or what nothing is known of, with its text.

    Attributes:
        tensor: the tensor that it is, where its use shows that it is one.
    """

    text: str
    attributes: dict[str, Any] = field(default_factory=dict)
    tensor: Tensor | None = None

    def as_tensor(self) -> Tensor:
        """Return the tensor that this is, as its use shows."""
        self.tensor = self.tensor or Tensor("other", self.text)
        return self.tensor


@dataclass(frozen=True, eq=False)
class Launch:
    """A launch of a kernel, or of its gradient, with the values that it is given.

    Attributes:
        kernel: the text of the kernel, `self.kernel`.
        texts: the arguments as they are written.
        step: counts what happens in a method.
    """

    kernel: str
    node: Call
    positional: tuple[Any, ...]
    named: dict[str, Any]
    texts: tuple[str, ...]
    step: int

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among its arguments."""
        return [one for one in (*self.positional, *self.named.values()) if isinstance(one, Tensor)]
