"""Fields: what both engines let us read off one, once it has been placed."""

from __future__ import annotations

from typing import Any

from .._errors import KernelError, refusal
from . import _shared
from ._contract import Engine, FieldFacts

PATHS = ("expression.snode", "snode.has_adjoint", "snode.id", "snode.offset", "snode.type")
"""Private names leaned on here, for the probes."""
ALWAYS_THERE = ("dense", "root")


def facts_of(field: Any, name: str, engine: Engine) -> FieldFacts:
    """What a field is, read off the engine's own object."""
    kind = f"{type(field).__name__} of {type(field).__module__.partition('.')[0]}"
    if not engine.is_field(field):
        raise KernelError(refusal(f"`{name}` is no field of {engine.name}", [("came", kind)]))
    if not hasattr(field, "vars"):
        remedy = "Register its members one by one: `field.get_member_field('x')`, or `field.x`."
        raise KernelError(refusal(f"field `{name}` holds structs, which no tensor can fill", [("came", kind)], remedy))
    snode = field.vars[0].ptr.snode()
    if snode is None:
        remedy = "Give it a shape, or place it: `ti.root.dense(ti.i, n).place(field)`."
        raise KernelError(refusal(f"field `{name}` has not been placed", [("came", kind)], remedy))
    dtype = _shared.DTYPES.get(field.dtype.to_string())
    if dtype is None:
        rows = [("dtype", str(field.dtype)), ("known", ", ".join(_shared.DTYPES))]
        raise KernelError(refusal(f"field `{name}` holds numbers that torch has not", rows))
    rows, columns = (field.n, field.m) if hasattr(field, "n") else (0, 1)
    element = () if not rows else (rows,) if columns == 1 else (rows, columns)
    shape = tuple(field.shape)
    return FieldFacts(
        key=snode.id,
        shape=shape,
        offset=tuple(field.snode.ptr.offset) or (0,) * len(shape),
        element=element,
        is_matrix=getattr(field, "ndim", 0) == 2,
        dtype=dtype,
        has_gradient=snode.has_adjoint(),
        is_dense=all(kind in ALWAYS_THERE for kind in _nodes(field)),
    )


def leaves(field: Any, name: str) -> list[tuple[str, Any]]:
    """Fields of numbers: `field` itself, the members of a field of structs, none for a bare node of the layout."""
    if hasattr(field, "vars"):
        return [(name, field)]
    members = getattr(field, "keys", ())
    return [leaf for member in members for leaf in leaves(field.get_member_field(member), f"{name}.{member}")]


def _nodes(field: Any) -> list[str]:
    """Kinds of the nodes that a field lies under: "dense", "pointer", ..., up to "root"."""
    kinds: list[str] = []
    node = field.parent()
    while node is not None:
        kinds.append(str(node.ptr.type).rpartition(".")[2])
        node = None if kinds[-1] == "root" else node.parent()
    return kinds
