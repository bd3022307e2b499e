"""Assignments to locals, elements and members, as a rewritten kernel calls them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from ._containers import UNSET
from ._numbers import KINDS, Rule
from ._run import Run
from ._values import Matrix, Struct, list_numbers


class Assignments(Run):
    """Assignment methods of an interpreter, with one kind of arithmetic."""

    casts: Mapping[str, Rule]
    _by_operator: Mapping[str, Callable[[Any, Any], Any]]

    @abstractmethod
    def convert(self, value: Any, annotation: Any) -> Any:
        """Convert a value to the type that an annotation names."""

    def let(self, value: Any) -> Any:
        """Return the value of a new local: copy vectors and structs, and convert Python numbers to a kernel type."""
        if type(value) in KINDS:
            return value
        if isinstance(value, Matrix | Struct):
            return value.copy()
        if isinstance(value, bool | int | float):
            return self.operations.arithmetic.give_type(value)
        if isinstance(value, list | tuple):
            return type(value)([self.let(item) for item in value])
        return self.capture(value)

    def let_typed(self, value: Any, annotation: Any) -> Any:
        """Return the value that a new local with a type annotation gets."""
        return self.let(self.convert(value, annotation))

    def assign(self, old: Any, value: Any) -> Any:
        """Assign `value` to a local whose value is `old`, and return the new value. The local keeps its type."""
        kind = type(old)
        if kind is type(value) and kind in KINDS:
            return value
        cast = KINDS.get(kind)
        if cast is not None:
            return self.casts[cast](self._number(value))
        if isinstance(old, Matrix):
            value = self.operations.tensor(value)
            if isinstance(value, Matrix) and value.shape != old.shape:
                raise ValueError(f"cannot assign a value of shape {value.shape} to one of shape {old.shape}")
            old.store(list(value.entries) if isinstance(value, Matrix) else [value] * len(old.entries))
            return old
        if isinstance(old, Struct):
            value = self.capture(value)
            members = value.members if isinstance(value, Struct) else value
            for name in old.members:
                self.set_member(old, name, members[name])
            return old
        return self.let(value)

    def _number(self, value: Any) -> Any:
        if isinstance(value, Matrix):
            raise TypeError(f"cannot assign a value of shape {value.shape} to a number")
        return value

    def set_member(self, owner: Any, name: str, value: Any) -> None:
        """Store to a member of a struct, or to a vector's entries by letters (`v.xy`).

        Do nothing if the value is UNSET.
        """
        if value is UNSET:
            return
        if isinstance(owner, Struct):
            old = owner.members[name]
            if isinstance(old, Matrix | Struct):
                self.assign(old, value)
            else:
                owner.put(name, self.casts[KINDS[type(old)]](self._number(value)))
            return
        places = owner.places_of(name) if isinstance(owner, Matrix) else None
        if places is None:
            raise AttributeError(f"a kernel cannot assign to `.{name}` of a {type(owner).__name__}")
        if len(places) == 1:
            owner[places[0]] = value
            return
        for place, one in zip(places, list_numbers(self.operations.tensor(value), len(places)), strict=True):
            owner[place] = one

    def change(self, name: str, old: Any, value: Any) -> Any:
        """Return a local's value after `+=`, `-=`, `&=`, `|=` or `^=`, or an atomic operation.

        The operand is converted to the local's type first, as the engines do.
        """
        if isinstance(old, Matrix):
            value = self.operations.tensor(value)
            value = self.operations.each(self.casts[old.kind], value)
        else:
            if type(old) not in KINDS:
                # The user assigned a Python number to the local in a debugger.
                old = self.let(old)
            value = self.casts[KINDS[type(old)]](self._number(value))
        return self.assign(old, self._by_operator[name](old, value))

    def change_element(self, owner: Any, index: Any, name: str, value: Any) -> Any:
        """Apply an atomic operation to an array element, and return the element's old value."""
        old = owner[index]
        new = self.change(name, old.copy() if isinstance(old, Matrix) else old, value)
        owner[index] = new
        return old

    def change_member(self, owner: Any, member: str, name: str, value: Any) -> Any:
        """Apply an atomic operation to a struct's member or to `v.x`, `v.xy` of a vector, and return the old value."""
        old = getattr(owner, member)
        self.set_member(owner, member, self.change(name, old.copy() if isinstance(old, Matrix) else old, value))
        return old

    def replace_element(self, owner: Any, index: Any, name: str, value: Any) -> None:
        """Apply an operator such as `*=` to an element: compute, and convert the result to the element's type."""
        owner[index] = getattr(self, name)(owner[index], value)

    def replace_member(self, owner: Any, member: str, name: str, value: Any) -> None:
        """Apply an operator such as `*=` to a member of a struct, or to a vector's entries by letters (`v.xy`)."""
        self.set_member(owner, member, getattr(self, name)(getattr(owner, member), value))

    def unpack(self, value: Any, olds: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values that the targets of `a, b = value` get.

        Args:
            value: what is unpacked.
            olds: for each target: a local's current value, UNSET for a new local, None for a target in memory.
        """
        items = list(value)
        if len(items) != len(olds):
            raise ValueError(f"cannot assign {len(items)} values to {len(olds)} targets")
        # Copied first: a store to one target must not change the value of the next one.
        items = [self.let(item) for item in items]
        pairs = zip(items, olds, strict=True)
        return tuple([item if old is None or old is UNSET else self.assign(old, item) for item, old in pairs])

    def members_of(self, owner: Any) -> Members:
        """Return an object whose items are the members of `owner`, as a target for unpacking: `a.x, b = value`."""
        return Members(self, owner)

    def set_element(self, owner: Any, index: Any, value: Any) -> None:
        """Store to an element inside an expression. Do nothing if the value is UNSET."""
        if value is not UNSET:
            owner[index] = value


class Members:
    """The members of a struct or vector as items, so that an assignment to several targets can store to one."""

    def __init__(self, run: Assignments, owner: Any) -> None:
        self._run, self._owner = run, owner

    def __setitem__(self, name: str, value: Any) -> None:
        self._run.set_member(self._owner, name, value)
