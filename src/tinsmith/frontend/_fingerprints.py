"""Fingerprints: hashable stand-ins for Python values. Equal fingerprints compile to equal kernels.

A value's fingerprint covers what it holds, because lists, dicts and objects change in place. Fields, modules and
classes are compared by identity: what a field holds is not baked in. A tensor counts by identity and by torch's count
of its changes in place, since `ti.static(float(w))` bakes in what it holds.

A description is a fingerprint as text that another process can compare with its own: it has the type and name of
objects that are compared by identity. A number stands for a fingerprint in graphs, which hold tensors alone.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
import weakref
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from .. import tracing
from ..engines import COMPILING, Engine

MISSING = object()
"""Stands for a value that is not there."""
PLAIN = (int, bool, str, bytes, complex, range, type(None))
_DEEPEST = 5
"""How many levels of objects and containers are looked into."""


@dataclass(frozen=True)
class Item:
    """A step from a container to the item with this key."""

    key: Any


class Same:
    """A hashable stand-in for a value that is compared by identity.

    As a key it keeps the value alive. An `id` does not, and is given to another object afterwards.
    """

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def fingerprint(value: Any, engine: Engine, depth: int = 0) -> Any:
    """Return the fingerprint of a value as it is now.

    Args:
        value: anything that a kernel's source can name.
        engine: whose fields, vectors and functions are recognized.
        depth: how many objects and containers it was found in.
    """
    kind = type(value)
    # The type belongs to it, since `1 == True` in Python.
    if kind in PLAIN:
        return (kind, value)
    if kind is float:
        # By text, -0.0 and 0.0 differ, and nan equals nan.
        return (kind, repr(value))
    if isinstance(value, np.ndarray | np.generic):
        return (kind, value.dtype.str, value.shape, value.tobytes())
    # The depth has a limit, since objects may refer to each other in a circle.
    if depth > _DEEPEST or isinstance(value, type | ModuleType) or engine.is_field(value):
        return Same(value)
    if isinstance(value, list | tuple | AbstractSet | Mapping):
        return _container(value, engine, depth + 1)
    function = engine.inner_function(value)
    if function is not None:
        # `values/_find_constants.py` follows what it uses. A bound method is a new object each time that it is looked
        # up.
        return (Same(function), Same(_owner(value) if engine.is_bound(value) else None))
    if isinstance(value, FunctionType | MethodType):
        return _python_function(value, engine, depth + 1)
    if is_tensor(value):
        # Tensors made under `torch.inference_mode` do not count their changes: asking would raise.
        return (Same(value), None if value.is_inference() else tracing.get_version(value))
    if isinstance(value, BuiltinMethodType) and is_tensor(value.__self__):
        # `w.sum` is another object each time it is looked up.
        return (kind, value.__name__, fingerprint(value.__self__, engine, depth + 1))
    entries = engine.matrix_entries(value)
    if entries is not None:
        return (kind, *entries)
    return _object(value, engine, depth + 1)


def has_one_fingerprint(value: Any, engine: Engine) -> bool:
    """Return True if a value certainly has the same fingerprint as long as it exists."""
    if isinstance(value, tuple):
        return all(has_one_fingerprint(part, engine) for part in value)
    is_plain = type(value) in (*PLAIN, float) or isinstance(value, type | ModuleType)
    # A bound function is a new object each time that it is looked up.
    is_function = engine.inner_function(value) is not None and not engine.is_bound(value)
    return is_plain or is_function or engine.is_field(value)


def is_tensor(value: Any) -> bool:
    # Not imported here: lint reads files without torch.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _container(value: Any, engine: Engine, depth: int) -> Any:
    kind = type(value)
    if isinstance(value, Mapping):
        items = [(fingerprint(key, engine, depth), fingerprint(value[key], engine, depth)) for key in value]
        return (kind, *items)
    parts = [fingerprint(part, engine, depth) for part in value]
    return (kind, frozenset(parts)) if isinstance(value, AbstractSet) else (kind, *parts)


def _python_function(value: Any, engine: Engine, depth: int) -> Any:
    """Return the fingerprint of a plain function: it runs during compilation, so what it captures and names counts."""
    function = value.__func__ if isinstance(value, MethodType) else value
    owner = fingerprint(value.__self__, engine, depth) if isinstance(value, MethodType) else None
    if not isinstance(function, FunctionType) or engine.owns(function) or is_steady(function):
        return (Same(function), owner)
    # `co_names` has attributes too: a global of such a name makes a fingerprint differ without need, but never wrong.
    captured = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    named = [function.__globals__.get(name, MISSING) for name in function.__code__.co_names]
    return (Same(function), owner, *[fingerprint(part, engine, depth + 1) for part in [*captured, *named]])


def _object(value: Any, engine: Engine, depth: int) -> Any:
    """Return the fingerprint of an object and its attributes. Objects of engines and libraries count by identity."""
    if engine.owns(value) and hasattr(value, "to_dict"):
        return (type(value), fingerprint(value.to_dict(), engine, depth))
    if engine.owns(value) or is_steady(type(value)):
        return Same(value)
    held = getattr(value, "__dict__", {})
    # Quadrants 1.3.3 adds a method to its object's attributes when it is first looked up: the class had it before.
    names = [name for name in list(held) if not _is_own_method(value, name, held[name], engine)]
    return (Same(value), *[(name, fingerprint(held[name], engine, depth)) for name in names])


def _is_own_method(value: Any, name: str, held: Any, engine: Engine) -> bool:
    return hasattr(type(value), name) and engine.is_bound(held) and _owner(held) is value


def is_steady(value: Any) -> bool:
    """Return True if a function or class belongs to a library whose own state no kernel depends on."""
    return (value.__module__ or "").partition(".")[0] in ("builtins", "math", "numpy", "torch")


def is_plain_object(value: Any, engine: Engine) -> bool:
    """Return True if a value is an object of a user's class, with attributes to look into."""
    if isinstance(value, type | ModuleType | FunctionType | MethodType) or engine.owns(value):
        return False
    return hasattr(value, "__dict__") and not is_steady(type(value))


def owner_step(bound: Any) -> str:
    """Return the name of the attribute in which a bound function keeps its object."""
    return "__self__" if hasattr(bound, "__self__") else "instance"


def _owner(value: Any) -> Any:
    return getattr(value, owner_step(value), None)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not MISSING
    except ValueError:
        # The enclosing function has not assigned the variable yet.
        return False


def describe(part: Any) -> str:
    """Return a fingerprint, or a part of one, as text that is the same in every process of one Python version.

    The text has the type of an object that is compared by identity, and the code of a function.
    """
    if isinstance(part, Same):
        return _describe_object(part.value)
    if isinstance(part, type):
        return f"{part.__module__}.{part.__qualname__}"
    if isinstance(part, frozenset):
        return f"{{{', '.join(sorted(map(describe, part)))}}}"
    if isinstance(part, tuple):
        return f"({', '.join(map(describe, part))})"
    return repr(part)


def _describe_object(value: Any) -> str:
    if isinstance(value, FunctionType):
        return _describe_code(value.__code__)
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, type):
        return describe(value)
    kind = describe(type(value))
    # An engine's dtypes are objects of one class, which only this distinguishes. `str` of a field would launch a
    # kernel.
    return f"{kind} {value.to_string()}" if hasattr(value, "to_string") else kind


def _describe_code(code: CodeType) -> str:
    constants = [_describe_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {code.co_freevars} {constants}"


# Numbers ------------------------------------------------------------------------------------------
_SERIALS: dict[int, tuple[weakref.ref[Any], int]] = {}
"""Live objects that are compared by identity, by address, each with a number that no other object ever gets."""
_COUNT = itertools.count()


def number_of(part: Any) -> int:
    """Return a number of 63 bits for a fingerprint. The chance that two fingerprints share one is about 10^-19.

    Python's own hash does not work: -1 and -2 have the same, and so do objects of which one is created at the address
    of another that was destroyed.
    """
    digest = hashlib.blake2b(digest_size=8)
    for piece in _pieces(part):
        # With its length, so that ("ab", "c") and ("a", "bc") differ.
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    # Without the last bit, the number fits into a signed integer of 64 bits.
    return int.from_bytes(digest.digest(), "little") >> 1


def _pieces(part: Any) -> Iterator[bytes]:
    """Yield the bytes that a fingerprint consists of."""
    if isinstance(part, tuple):
        yield b"(%d" % len(part)
        for one in part:
            yield from _pieces(one)
    elif isinstance(part, frozenset):
        yield b"{%d" % len(part)
        # The order of a set differs from process to process.
        yield from sorted(b"".join(_pieces(one)) for one in part)
    elif isinstance(part, Same):
        yield b"same %d" % _serial(part.value)
    elif isinstance(part, bytes):
        yield part
    else:
        yield (f"type {_serial(part)}" if isinstance(part, type) else repr(part)).encode()


def _serial(value: Any) -> int:
    address = id(value)
    known = _SERIALS.get(address)
    # Another object may have been created at the address.
    if known is not None and known[0]() is value:
        return known[1]
    with COMPILING:
        # Another thread may have given it one meanwhile.
        known = _SERIALS.get(address)
        if known is None or known[0]() is not value:
            try:
                reference = weakref.ref(value, lambda one: _forget(address, one))
            except TypeError:
                # An object that takes no weak reference: its address, among numbers that `_COUNT` never gives.
                return -address
            known = _SERIALS[address] = reference, next(_COUNT)
        return known[1]


def _forget(address: int, reference: weakref.ref[Any]) -> None:
    if address in _SERIALS and _SERIALS[address][0] is reference:
        del _SERIALS[address]
