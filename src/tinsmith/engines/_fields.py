"""Properties of fields and ndarrays, read from the engine's own objects once they have been placed."""

from __future__ import annotations

import itertools
import math
import weakref
from typing import Any

import torch

from .._errors import EngineError, KernelError, refusal
from . import _annotations, _forks
from ._contract import Engine, FieldFacts
from ._registry import module_name

PATHS = (
    "expression.snode",
    "snode.get_ch",
    "snode.get_num_ch",
    "snode.has_adjoint",
    "snode.id",
    "snode.offset",
    "snode.type",
    "ndarray.element_shape",
    "program.get_ndarray_data_ptr_as_int",
    "program.get_snode_root",
    "program.get_snode_tree_size",
)
"""Private names used here, for the probes."""
ALWAYS_THERE = ("dense", "root")


def facts_of(field: Any, name: str, engine: Engine) -> FieldFacts:
    """Return the properties of a field or ndarray. Raise KernelError if it is not placed or no tensor can fill it."""
    field = engine.unwrap(field)
    kind = f"{type(field).__name__} of {type(field).__module__.partition('.')[0]}"
    if not engine.is_field(field):
        raise KernelError(refusal(f"`{name}` is not a field of {engine.name}", [("got", kind)]))
    if isinstance(field, engine.lang.Ndarray):
        return _facts_of_ndarray(field, name, engine)
    if not hasattr(field, "vars"):
        remedy = "Register its members one by one: `field.get_member_field('x')`, or `field.x`."
        raise KernelError(
            refusal(f"field `{name}` holds structs, which cannot be copied from a tensor", [("got", kind)], remedy)
        )
    snode = field.vars[0].ptr.snode()
    if snode is not None and not _is_alive(field, snode, engine):
        words = f"the field `{name}` was freed when {engine.name} was started again"
        remedy = f"Create `{name}` again after the last call of {module_name(engine.name)}.init()."
        raise EngineError(refusal(words, remedy=_forks.remedy_for_lost_field(engine, remedy)))
    if snode is None:
        lang = module_name(engine.name)
        remedy = f"Give it a shape, or place it: `{lang}.root.dense({lang}.i, n).place(field)`."
        raise KernelError(refusal(f"field `{name}` has not been placed", [("got", kind)], remedy))
    dtype = _dtype_of(field, name)
    rows, columns = (field.n, field.m) if hasattr(field, "n") else (0, 1)
    element = () if not rows else (rows,) if columns == 1 else (rows, columns)
    shape = tuple(field.shape)
    kinds = _list_layout_nodes(field)
    if not all(kind in ALWAYS_THERE for kind, _ in kinds):
        _check_divisions(kinds, name)
    return FieldFacts(
        key=(len(element), *[one.ptr.snode().id for one in field.vars]),
        shape=shape,
        offset=tuple(field.snode.ptr.offset) or (0,) * len(shape),
        element=element,
        is_matrix=getattr(field, "ndim", 0) == 2,
        dtype=dtype,
        has_gradient=snode.has_adjoint() and gradient_field(field) is not None,
        is_dense=all(kind in ALWAYS_THERE for kind, _ in kinds),
    )


def _is_alive(field: Any, snode: Any, engine: Engine) -> bool:
    """Return True if a field's node belongs to the engine's present state. Reading any other ends the process."""
    runtime = engine.runtime()
    if runtime is None:
        return False
    known = _RUNTIMES.get(field)
    if known is None:
        program, builders = runtime.prog, runtime.unfinalized_fields_builder
        nodes = [program.get_snode_root(place) for place in range(program.get_snode_tree_size())]
        nodes += [builder.root.ptr for builder in builders]
        # The list holds every node, so that the engine's binding gives the same object for the field's own.
        for node in nodes:
            nodes += [node.get_ch(place) for place in range(node.get_num_ch())]
        # Another node may lie where a destroyed one did.
        if not any(node is snode and str(node.type).endswith(".place") for node in nodes):
            return False
        known = _RUNTIMES[field] = weakref.ref(runtime)
    return known() is runtime


_RUNTIMES: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()
"""The engine's state in which a field was first looked at."""


def _dtype_of(field: Any, name: str) -> torch.dtype:
    dtype = _annotations.DTYPES.get(field.dtype.to_string())
    if dtype is None:
        rows = [("dtype", str(field.dtype)), ("expected", ", ".join(_annotations.DTYPES))]
        raise KernelError(refusal(f"torch has no dtype for the numbers of field `{name}`", rows))
    return dtype


def _facts_of_ndarray(array: Any, name: str, engine: Engine) -> FieldFacts:
    if array.arr is None:
        lang = module_name(engine.name)
        words = f"the memory of ndarray `{name}` was freed when {engine.name} was started again"
        raise KernelError(refusal(words, remedy=f"Create `{name}` again after the last call of {lang}.init()."))
    program = engine.runtime().prog
    address = program.get_ndarray_data_ptr_as_int(array.arr)
    element = tuple(array.element_shape)
    # Taichi's `layout` says how vectors lie.
    layout = array.layout if isinstance(array.layout, tuple) else ()
    return FieldFacts(
        # Negative, so that it differs from the numbers of fields.
        key=(len(element), -address),
        shape=tuple(array.shape),
        offset=(0,) * len(array.shape),
        element=element,
        is_matrix=len(element) == 2,
        dtype=_dtype_of(array, name),
        has_gradient=array.grad is not None,
        is_dense=True,
        address=address,
        layout=layout,
    )


def is_unplaced(field: Any, runtime: Any) -> bool:
    """Return True if this field or gradient is declared but not placed; until then the engine runs no kernel."""
    if not hasattr(field, "vars"):
        return False
    # `is`, since `==` of two of an engine's expressions makes a third one, not a bool.
    return any(one is part for one in find_unplaced(runtime) for part in field.vars)


def find_unplaced(runtime: Any) -> list[Any]:
    """Return the fields, and the gradients requested by `needs_grad=True`, that are declared but not placed."""
    return [one for one in (*runtime.global_vars, *runtime.grad_vars) if one.ptr.snode() is None]


def list_leaf_fields(field: Any, name: str) -> list[tuple[str, Any]]:
    """Return named fields of numbers: `field` itself, or the members of a field of structs, or none for a bare layout
    node.
    """
    if hasattr(field, "vars") or hasattr(field, "arr"):
        return [(name, field)]
    members = getattr(field, "keys", ())
    return [leaf for member in members for leaf in list_leaf_fields(field.get_member_field(member), f"{name}.{member}")]


def is_row_major(field: Any) -> bool:
    """Return True if a field's numbers certainly lie side by side in memory, in the order of its indices.

    They do under one dense node that holds this field alone, with an element's entries in their order.
    """
    nodes = _list_layout_nodes(field)
    if [kind for kind, _ in nodes] != ["dense", "root"]:
        return False
    node = field.parent().ptr
    held = [node.get_ch(place).id for place in range(node.get_num_ch())]
    return held == [one.ptr.snode().id for one in field.vars]


def _list_layout_nodes(field: Any) -> list[tuple[str, int]]:
    """Return the layout nodes above a field, up to the root, as (kind, total cells).

    A kind is "dense", "pointer" etc.
    """
    nodes: list[tuple[str, int]] = []
    node = field.parent()
    while node is not None:
        kind = str(node.ptr.type).rpartition(".")[2]
        nodes.append((kind, 1 if kind == "root" else math.prod(node.shape)))
        node = None if kind == "root" else node.parent()
    return nodes


def _check_divisions(nodes: list[tuple[str, int]], name: str) -> None:
    """Raise KernelError for a sparse field over which a loop visits wrong elements.

    Both engines find the indices of a sparse field's elements by shifting bits, below its first division: with
    `pointer(i, 2).dense(i, 3)` a loop over the field visits only 0, 1, 3 and 4. Taichi 1.7.4 and Quadrants 1.3.3 only
    warn that this is slow.
    """
    below_first = itertools.pairwise(nodes[:-1])
    sizes = [(kind, cells // above) for (kind, cells), (_, above) in below_first]
    odd = [(kind, f"{size} cells in each cell above") for kind, size in sizes if size & (size - 1)]
    if odd:
        reason = "it is sparse, and its divisions are not powers of two"
        words = f"a loop over field `{name}` would visit wrong elements: {reason}"
        remedy = "Use powers of two in every division but the first, or place it dense."
        raise KernelError(refusal(words, odd, remedy))


def gradient_field(field: Any) -> Any:
    """Return the field that holds a field's gradient; None if it has none."""
    return getattr(field, "grad", None)
