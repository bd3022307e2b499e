"""Values computed once, when they are first asked for, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801  # it is used as `property` is
    """A property whose value is computed once; what `functools.cached_property` is from Python 3.12 on.

    The older ones hold a lock for all objects of the class meanwhile. A thread that works such a value out, and waits
    for the lock of the compilers, and one that compiles, and asks for such a value, would wait for each other.
    Two threads that ask first work the value out twice.

    Example:
        >>> class Circle:
        ...     radius = 2.0
        ...     @lazy
        ...     def area(self):
        ...         return 3.0 * self.radius**2
        >>> Circle().area
        12.0
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> lazy[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> lazy[T] | T:
        if instance is None:
            return self
        # no data descriptor: from now on the object's own attribute is found first
        value = instance.__dict__[self.name] = self.function(instance)
        return value
