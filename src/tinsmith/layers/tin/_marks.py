"""Marks: decorators by which a data-oriented class declares what its fields and kernels are for.

A marked property returns the field; a marked kernel runs in the order of definition. Nothing
is looked up or registered before a `Tin` is made of an object.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..._errors import ArgumentError, refusal
from ...engines import is_kernel

if TYPE_CHECKING:
    from ._empty_tin import EmptyTin

_PLACE = "_tinsmith_place"
_NUMBERS = itertools.count()


class FieldMark(property):
    """A property that returns a field, and says what the field is for."""

    def __init__(self, getter: Any, role: str, options: dict[str, Any]) -> None:
        super().__init__(getter.fget if isinstance(getter, property) else getter)
        self.role = role
        self.options = options


def _mark(role: str, getter: Any, options: dict[str, Any]) -> Any:
    if getter is None:
        return lambda later: _mark(role, later, options)
    if not (isinstance(getter, property) or callable(getter)) or is_kernel(getter):
        actual = f"{type(getter).__name__} {getter!r:.60}"
        remedy = f"Write `@ts.{role}` above a method that returns the field; options go into brackets, by name."
        raise ArgumentError(
            refusal(f"ts.{role} must decorate a method that returns a field", [("got", actual)], remedy)
        )
    return FieldMark(getter, role, options)


def input(getter: Any = None, **options: Any) -> Any:  # noqa: A001  # read as `ts.input`
    """Mark a property of a data-oriented class as an input field of `ts.Tin`. A decorator.

    Args:
        getter: the method, or a property.
        options: `name=`, `needs_grad=`, `complex_dtype=`, as for `Tin.register_input_field`.

    Example:
        >>> @ti.data_oriented
        ... class Wave:
        ...     def __init__(self, n):
        ...         self._x = ti.field(ti.f32, n, needs_grad=True)
        ...
        ...     @ts.input(batched=True)
        ...     def x(self):
        ...         return self._x
        >>> Wave(4).x.shape
        (4,)
    """
    return _mark("input", getter, options)


def output(getter: Any = None, **options: Any) -> Any:
    """Mark a property of a data-oriented class as an output field of `ts.Tin`. A decorator.

    Args:
        getter: the method, or a property.
        options: as for `Tin.register_output_field`.

    Example:
        >>> class Wave:
        ...     @ts.output
        ...     def y(self):
        ...         return self._y
    """
    return _mark("output", getter, options)


def weight(getter: Any = None, **options: Any) -> Any:
    """Mark a property of a data-oriented class as a weight field of `ts.Tin`: a parameter. A decorator.

    Args:
        getter: the method, or a property.
        options: `name=`, `needs_grad=`, `value=`, `complex_dtype=`, as for `Tin.register_weight_field`.

    Example:
        >>> class Wave:
        ...     @ts.weight(value=torch.ones(4))
        ...     def w(self):
        ...         return self._w
    """
    return _mark("weight", getter, options)


def kernel(marked: Any = None, *, order: int = 0) -> Any:
    """Mark a kernel of a data-oriented class as one that `ts.Tin` runs. A decorator, above the engine's own.

    Args:
        marked: the kernel.
        order: kernels with a lower order run first; those with the same order run in the order of their definition.

    Example:
        >>> @ti.data_oriented
        ... class Wave:
        ...     @ts.kernel(order=1)
        ...     @ti.kernel
        ...     def damp(self):
        ...         for i in self._y:
        ...             self._y[i] *= 0.5
    """
    if marked is None:
        return lambda later: kernel(later, order=order)
    if not is_kernel(marked):
        rows = [("got", f"{type(marked).__name__} {getattr(marked, '__name__', '')}".strip())]
        raise ArgumentError(
            refusal("ts.kernel must decorate a kernel", rows, "Write it above @ti.kernel (or @qd.kernel).")
        )
    setattr(marked, _PLACE, (order, next(_NUMBERS)))
    return marked


def register_by_marks(tin: EmptyTin, owner: Any) -> bool:
    """Register what an object's class marks. Whether that is enough to finish: an input, an output and a kernel."""
    members: dict[str, Any] = {}
    for klass in reversed(type(owner).__mro__):
        members |= vars(klass)
    marks = {name: member for name, member in members.items() if isinstance(member, FieldMark)}
    register: dict[str, Callable[..., Any]] = {
        "input": tin.register_input_field,
        "output": tin.register_output_field,
        "weight": tin.register_weight_field,
    }
    for name, mark in marks.items():
        register[mark.role](getattr(owner, name), **({"name": name} | mark.options))
    kernels = sorted((getattr(member, _PLACE), name) for name, member in members.items() if hasattr(member, _PLACE))
    for _, name in kernels:
        tin.register_kernel(getattr(owner, name), kernel_name=name)
    return bool(kernels) and {"input", "output"} <= {mark.role for mark in marks.values()}
