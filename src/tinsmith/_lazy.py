"""Properties whose values are computed once, on first access, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801  # it is used as `property` is
    """A property whose value is computed once, as `functools.cached_property` does from Python 3.12 on.

    Older versions of `cached_property` hold a lock for all objects of the class meanwhile. Then a thread that
    computes such a value and waits for the compilation lock, and a thread that compiles and reads such a value, would
    wait for each other. Without the lock, two threads may both compute the value.

    Example:
        >>> class Circle:
        ...     radius = 2.0
        ...
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
        # without `__set__`, the object's own attribute takes precedence from now on
        value = instance.__dict__[self.name] = self.function(instance)
        return value
