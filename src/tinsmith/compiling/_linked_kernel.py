"""Linked kernel: a user's kernel with the names of the op that runs it.

Its arrays and arguments get the names that they have in the op; fields and scalars that the op differentiates become
arrays; what it returns is stored to arrays; and copies of what it updates in place are made first. `_stage` determines
which arrays it reads and writes, and what it is compiled to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .. import frontend
from .._errors import KernelError, refusal
from .._lazy import lazy
from ..engines import Engine, FieldFacts, FieldKey, Parameter, copy_node, of_kernel
from ..frontend import Source, find_lent_names, tree
from ..frontend.tree import (
    begin_with_copies,
    drop_gradient_stores,
    drop_results,
    lift_scalars,
    rename_parameters,
    simplify_tree,
    store_results,
)
from ..spec import DimSizes
from ._structs import without_structs_of


class Links(NamedTuple):
    """How an op's arrays and arguments are called in one of its kernels, where a name alone does not say.

    Attributes:
        names: maps the kernel's own parameter names to those of the op. Parameters with the same op name are one array.
        elements: the element dims of arrays, by the op's names, if they are known.
        fields: the fields that become arrays, by the kernel's expression for them: `x`, `self.x`.
        objects: the values of template parameters in which fields may be found.
        gradients: gradients of fields, `x.grad`, whose stores in the kernel are removed.
        again: the position of the earlier kernel of the op that this one repeats with other scalars.
        copies: an array of the op and the one that it is copied from, for a kernel that does nothing else.
        is_taken: whether nobody else holds the array that is copied from, or reads it after a call.
    """

    names: Mapping[str, str]
    elements: Mapping[str, tuple[int, ...]]
    fields: Mapping[str, FieldArray] = {}
    objects: Mapping[str, Any] = {}
    gradients: frozenset[str] = frozenset()
    again: int | None = None
    copies: tuple[str, str] | None = None
    is_taken: bool = False

    def keys(self, engine: Engine) -> dict[FieldKey, str]:
        """Return the op's names of the arrays that replace fields, by the fields' keys."""
        named = {array.facts.key: array.name for array in self.fields.values()}
        given = [(value, self.names.get(name, name)) for name, value in self.objects.items() if engine.is_field(value)]
        return named | {engine.field_facts(value, name).key: name for value, name in given if name in self.elements}


class FieldArray(NamedTuple):
    """The array of an op that replaces a field."""

    name: str
    facts: FieldFacts

    def parameter(self) -> Parameter:
        """Return the array as a parameter that the kernel could have declared."""
        facts = self.facts
        rank = len(facts.shape)
        return Parameter(self.name, "array", (facts.dtype,), rank, facts.element, text=f"a field of {rank} dims")


NO_NAMES: Mapping[str, str] = {}


@dataclass(frozen=True, eq=False)
class LinkedKernel:
    """A kernel, its source and its parameters, under the names of an op.

    Attributes:
        kernel: what the user decorated; `home` is the engine that it was written for.
        owner: the object that the kernel is bound to if it is a method (`is_method`).
        parameters: its parameters by name, in order, without `self`; those that stand for results come last.
        arrays: the names of the parameters that are arrays.
        results: its results that are outputs of the op, by name.
        begins: the arrays that it fills with copies before anything else, with the names of the arrays copied from.
        names: the op's names, by the kernel's own, if they differ.
    """

    kernel: Any
    home: Engine
    source: Source
    owner: Any
    is_method: bool
    parameters: dict[str, Parameter]
    arrays: tuple[str, ...]
    results: tuple[tuple[str, Parameter], ...]
    begins: dict[str, str]
    names: Mapping[str, str]

    @lazy
    def open_templates(self) -> tuple[str, ...]:
        """Return the names of the parameters that take Python objects in a call."""
        return tuple(n for n, one in self.parameters.items() if one.kind == "template" and n not in self.arrays)

    def templates(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the template arguments by name, including `self`."""
        mine = {name: values[name] for name in self.open_templates if name in values}
        return mine | ({self.source.parameters[0]: self.owner} if self.is_method else {})


def link_kernel(
    kernel: Any,
    arrays: Collection[str],
    links: Links,
    *,
    results: Sequence[str],
    updated: Mapping[str, str],
    begins: Collection[str],
    splits_gradients: bool,
    drops_results: bool,
    objects: Collection[str] | None,
    dims: Mapping[str, DimSizes],
) -> LinkedKernel:
    """Rewrite a kernel in the terms of an op. Raise KernelError if its results or gradients do not fit.

    Args:
        kernel: what the user decorated.
        arrays: the op's names of its arrays.
        links: how the op's arrays are called in the kernel.
        results: the names of the arrays that get what the kernel returns.
        updated: the names of the outputs that replace inputs which the kernel updates in place, by the inputs' names.
        begins: the updated inputs whose outputs the kernel must first fill with copies of them.
        splits_gradients: whether `x.grad` becomes a parameter of its own, `grad_x`.
        drops_results: whether the kernel is to return nothing.
        objects: the names of the parameters that take fields or objects, as `Engine.parameters` expects them.
        dims: the dims of arrays in the op's spec.
    """
    home = of_kernel(kernel)
    # Ops that are made in a function go with it, and so must the objects in their kernels' closures.
    home.hold_weakly(kernel)
    owner, is_method = home.owner_of(kernel), home.is_method(kernel)
    declared = home.parameters(kernel, objects)
    listed = {one.name for one in declared if links.names.get(one.name, one.name) in arrays}
    source, declared = without_structs_of(kernel, home, declared, listed)
    source = source.with_owner(owner)
    if links.gradients:
        source = replace(source, tree=drop_gradient_stores(source.tree, links.gradients))
    source = replace(source, tree=rename_parameters(source.tree, links.names))
    source = replace(source, tree=rename_parameters(source.tree, updated))
    source = _store_results(source, results) if results else source
    keys = links.keys(home)
    if keys:
        objects = {links.names.get(name, name): value for name, value in links.objects.items()}
        objects |= {source.parameters[0]: owner} if is_method else {}
        source = tree.pass_fields(source, home, objects, keys)
    source, declared = _hold_objects(source, declared, links, home)
    returned = tuple(zip(results, home.results(kernel), strict=False))
    parameters = [_link_parameter(parameter, links) for parameter in declared]
    parameters += [array.parameter() for array in links.fields.values()]
    parameters += [replace(one, name=name, kind="array", ndim=0) for name, one in returned]
    if splits_gradients:
        source, parameters = _split_gradients(source, parameters)
    parameters = [replace(one, name=updated.get(one.name, one.name)) for one in parameters]
    copies = {updated[name]: name for name in begins}
    ranks = {one.name: _index_count(source, one) for one in parameters if one.name in copies}
    source = replace(source, tree=begin_with_copies(source.tree, copies, ranks))
    known = [_with_element_of_spec(one, dims.get(one.name, ())) for one in parameters]
    by_name = {new.name: new for one in known for new in _with_original(one, copies)}
    names = tuple(name for name in by_name if name in arrays)
    scalars = [name for name in names if by_name[name].kind in ("scalar", "matrix")]
    lent = find_lent_names(source, home)
    plain = simplify_tree(source.tree, [name for name in names if name not in scalars], lent)
    source = replace(source, tree=lift_scalars(plain, scalars))
    if drops_results:
        source = replace(source, tree=drop_results(source.tree))
    linked = {**links.names, **{name: array.name for name, array in links.fields.items()}}
    own = {**updated, **{name: updated.get(new, new) for name, new in linked.items()}}
    return LinkedKernel(kernel, home, source, owner, is_method, by_name, names, returned, copies, own)


def _hold_objects(
    source: Source, declared: Sequence[Parameter], links: Links, engine: Engine
) -> tuple[Source, Sequence[Parameter]]:
    """Remove a kernel's parameters that take objects, and make the objects globals of its source. Return the source and
    the other parameters.

    A graph has no arguments for objects. What remains of them are numbers, which are compared at each call.
    """
    structs = {name: value for name, value in links.objects.items() if _is_object(value, engine)}
    if not structs:
        return source, declared
    names = {links.names.get(name, name): value for name, value in structs.items()}
    own = copy_node(source.tree)
    own.args.args = [one for one in own.args.args if one.arg not in names]
    return replace(source, tree=own).with_objects(names), [one for one in declared if one.name not in structs]


def _is_object(value: Any, engine: Engine) -> bool:
    """Return True for an object of a user's class: a dataclass, or an object with kernels as methods."""
    if not hasattr(value, "__dict__") or isinstance(value, type) or callable(value):
        return False
    return not engine.is_field(value) and engine.matrix_entries(value) is None


def _store_results(source: Source, names: Sequence[str]) -> Source:
    """Return the kernel's source with its results stored to arrays of these names. Raise KernelError if that is
    impossible.
    """
    try:
        return replace(source, tree=store_results(source.tree, names))
    except tree.NotRewritable as refused:
        words = f"the return value of kernel `{source.name}` cannot become an output: {refused.reason}"
        remedy = refused.remedy or (
            "Write one `return` at the end of the kernel that lists the values; branches of `if static(...)` may "
            "return, too."
        )
        raise KernelError(refusal(words, [("at", source.place(refused.node))], remedy)) from None


def _split_gradients(source: Source, parameters: list[Parameter]) -> tuple[Source, list[Parameter]]:
    """Replace each `x.grad` in a kernel by a parameter of its own, `grad_x`; return the source and all parameters."""
    try:
        changed, used = tree.split_gradients(source.tree, [one.name for one in parameters])
    except tree.NotRewritable as reason:
        words = f"kernel `{source.name}` uses a name that is reserved for a gradient: {reason.reason}"
        remedy = "Give the variable or parameter another name."
        raise KernelError(refusal(words, [("at", source.place(reason.node))], remedy)) from None
    groups = [[one, replace(one, name=f"grad_{one.name}")] if one.name in used else [one] for one in parameters]
    return replace(source, tree=changed), [one for group in groups for one in group]


def _index_count(source: Source, parameter: Parameter) -> int | None:
    """Return how many indices an element of an array has, from its annotation or its uses; None if neither says."""
    return frontend.subscript_arity(source, parameter.name) if parameter.ndim is None else parameter.ndim


def _with_original(parameter: Parameter, copies: Mapping[str, str]) -> list[Parameter]:
    """Return a parameter, preceded by the parameter that it begins as a copy of, if any."""
    original = copies.get(parameter.name)
    return [parameter] if original is None else [replace(parameter, name=original), parameter]


def _link_parameter(parameter: Parameter, links: Links) -> Parameter:
    """Return a parameter under its name in the op, with its element dims if the links know them."""
    name = links.names.get(parameter.name, parameter.name)
    is_open = parameter.open_dims or (parameter.dtypes is None and parameter.kind in ("template", "array"))
    known = links.elements.get(name, ()) if is_open else ()
    named = replace(parameter, name=name)
    return replace(named, element=known, open_dims=0) if known else named


def _with_element_of_spec(parameter: Parameter, dims: DimSizes) -> Parameter:
    """Return a parameter, with element dims from the spec if its annotation leaves them open and the spec has numbers
    for them.
    """
    last = dims[max(len(dims) - parameter.open_dims, 0) :]
    sizes = tuple(one for one in last if isinstance(one, int))
    if not parameter.open_dims or len(sizes) != parameter.open_dims:
        return parameter
    return replace(parameter, element=sizes, open_dims=0)
