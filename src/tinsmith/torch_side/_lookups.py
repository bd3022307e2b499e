"""Cached launches, and look-ups: from the arguments of an operator's call to its launch.

A compiled graph calls an operator on 64 elements in about 10 us. So the look-up of a launch is generated as Python code
for the operator's own arguments: without a loop over them, and with a flat key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..calls import Conversion, Program, Signature, in_order
from ..spec import Numbers
from ..tracing import is_plain
from ._schema import Schema

_TENSOR = "{0}.shape, {0}.dtype, {0}.device, {0}.is_contiguous(), {0}.is_neg(), type({0})"
_EACH_TENSOR = f"None if one is None else ({_TENSOR.format('one')})"
# By the argument's type in torch's schema: its entries in a key. An argument of any other type is its own entry.
_ENTRIES = {
    "Tensor": _TENSOR,
    "Tensor?": f"None if {{0}} is None else ({_TENSOR})",
    "Tensor[]": f"len({{0}}), *[{_EACH_TENSOR} for one in {{0}}]",
    "Tensor?[]": f"len({{0}}), *[{_EACH_TENSOR} for one in {{0}}]",
    "Scalar": "exact({0})",
    "Scalar[]": "len({0}), *[exact(one) for one in {0}]",
    "SymInt[]": "tuple({0})",
    "SymInt[]?": "None if {0} is None else tuple({0})",
}
# By the argument's type in torch's schema: code that is true if autograd has to see a call with this argument.
_NEEDS_GRADIENT = {
    "Tensor": "{0}.requires_grad",
    "Tensor?": "({0} is not None and {0}.requires_grad)",
    "Tensor[]": "any([one.requires_grad for one in {0}])",
    "Tensor?[]": "any([one is not None and one.requires_grad for one in {0}])",
}
_FREE = ("float", "Scalar[]")
"""Types of numbers that only kernels read. Their values are no part of a key."""


class ForwardLaunch(NamedTuple):
    """A validated forward launch, cached by dtypes, shapes, devices and integers. It has no reference to the core.

    Attributes:
        signature: the op's signature.
        conversion: how tensors are converted before the launch, and results after it.
        lead: the sizes of the spec's `*b`; `batch` is their product, or None.
        program: the program that runs the call.
        numbers: the numbers of the call's sizes.
        scalars: the scalars of the first call with this key.
        is_direct: whether neither tensors nor results are converted or copied.
        is_final: whether all tensors have memory and none is a subclass with a dispatch of its own.
    """

    signature: Signature
    conversion: Conversion
    lead: tuple[int, ...]
    batch: int | None
    program: Program
    numbers: Numbers
    scalars: Mapping[str, Any]
    is_direct: bool
    is_final: bool

    def run(self, tensors: Sequence[torch.Tensor], scalars: Mapping[str, Any]) -> Sequence[torch.Tensor]:
        """Run the kernels on these tensors. Return outputs and scratch."""
        if self.is_direct:
            return self.program.forward(tensors, self.numbers, scalars)[len(tensors) :]
        ready = in_order(self.conversion.prepare(self.signature, self.batch, tensors))
        made = self.program.forward(ready, self.numbers, scalars)[len(ready) :]
        return self.conversion.finish(made, self.lead)


class BackwardLaunch(NamedTuple):
    """A validated backward launch, cached by dtypes, shapes, devices and integers. It has no reference to the core.

    Attributes:
        program: the program that runs the pass.
        active: the inputs that want a gradient.
        numbers: the numbers of the call's sizes.
        scalars: the scalars of the first call with this key.
        needed: the arrays that the pass reads, each with its place among the operator's tensors.
        first: the place of the first cotangent.
        is_ordered: whether all tensors are contiguous and none is negated lazily.
        is_final: whether all tensors have memory and none is a subclass with a dispatch of its own.
    """

    program: Program
    active: frozenset[str]
    numbers: Numbers
    scalars: Mapping[str, Any]
    needed: tuple[tuple[str, int], ...]
    first: int
    is_ordered: bool
    is_final: bool

    def run(self, tensors: Sequence[torch.Tensor | None], scalars: Mapping[str, Any]) -> list[torch.Tensor]:
        """Run the backward pass. Return the gradients of the active inputs.

        `tensors` are those of the operator: saved arrays, then cotangents; None for an array that was not saved.
        """
        # A compiled graph may pass tensors with another memory order, and kernels get mere addresses.
        if not self.is_ordered:
            tensors = [None if one is None else in_order([one])[0] for one in tensors]
        values: dict[str, Any] = {name: tensors[place] for name, place in self.needed}
        given = tensors[self.first :]
        gradients = self.program.backward(values, given, self.active, self.numbers, scalars)
        # Results are copied here: compilers assume that an operator's results are new memory.
        taken = [one for one in given if one is not None]
        results: list[torch.Tensor] = []
        for gradient in gradients:
            if gradient is not None:
                for one in taken:
                    if one is gradient:
                        gradient = gradient.clone()
                        break
                taken.append(gradient)
                results.append(gradient)
        return results


class Lookup(NamedTuple):
    """The generated functions of one pass, which are called with the operator's arguments.

    Attributes:
        key: returns everything that a launch depends on, but not the contents of tensors or the numbers in `_FREE`. Its
            first argument is the core; that of the other two functions is the `Operator`.
        run: runs a call for dispatch keys below autograd's.
        run_final: runs a call for autograd's dispatch key.
    """

    key: Callable[..., tuple[Any, ...]]
    run: Callable[..., Any]
    run_final: Callable[..., Any]


def write_forward(schema: Schema) -> Lookup:
    """Generate the look-up of a forward operator.

    Calls without a cached launch go to `_forward` or `_forward_autograd`.
    """
    signature, order = schema.signature, schema.signature.order
    if schema.lists_arrays:
        tensors, results = "a0", "[*{}]"
    else:
        places = range(len(signature.arrays)) if schema.lists_numbers else map(order.index, signature.arrays)
        tensors = _write_tuple(places)
        results = "{}[0]" if len(schema.allocations) == 1 else "tuple({})"
    numbers = {} if schema.lists_numbers else {name: order.index(name) for name in signature.scalars}
    run = results.format(f"found.run({tensors}, {{}})")
    return _write(schema, "forward", schema.forward_arguments, numbers, run)


def write_backward(schema: Schema) -> Lookup:
    """Generate the look-up of a backward operator.

    Calls without a cached launch go to `_backward` or `_backward_autograd`.
    """
    count = 1 if schema.lists_arrays else len(schema.owners)
    tensors = "a0" if schema.lists_arrays else _write_tuple(range(count))
    first = count + schema.has_state
    pairs = enumerate(schema.signature.scalars, first)
    numbers = {} if schema.lists_numbers else {name: place for place, name in pairs}
    run = f"found.run({tensors}, {{}})"
    return _write(schema, "backward", schema.backward_arguments, numbers, run)


def _write(schema: Schema, which: str, arguments: Sequence[str], numbers: Mapping[str, int], run: str) -> Lookup:
    """Generate the functions of one pass.

    Args:
        schema: declares the operator.
        which: the name of the pass.
        arguments: the declarations of the operator's arguments by position.
        numbers: the places of scalars that have an argument of their own.
        run: code that runs the cached launch, a variable called `found`, with `{}` in place of the scalars.
    """
    types = [argument.split()[0] for argument in arguments]
    has_sizes = "*" in (schema.forward if which == "forward" else schema.backward)
    names = [f"a{place}" for place in range(len(types))]
    # By position alone: a dim may have any name.
    declared = [f"{name}=None" if "=" in one else name for name, one in zip(names, arguments, strict=True)]
    parameters = ", ".join([*declared, "/", *["**sizes"] * has_sizes])
    given = ", ".join([*names, *["**sizes"] * has_sizes])
    free = {place for place in numbers.values() if types[place] in _FREE}
    pairs = [(name, types[place], f"a{place}") for name, place in numbers.items()]
    own = ", ".join([f"{name!r}: {f'tuple({one})' if kind == 'Scalar[]' else one}" for name, kind, one in pairs])
    run = run.format(f"{{{own}}}" if free else "found.scalars")
    entries = [_ENTRIES.get(kind, "{0}").format(f"a{place}") for place, kind in enumerate(types) if place not in free]
    key = f"({', '.join([repr(which), 'core.get_engine_states()', *['*sizes.values()'] * has_sizes, *entries])})"
    needs = [_NEEDS_GRADIENT[kind].format(f"a{place}") for place, kind in enumerate(types) if kind in _NEEDS_GRADIENT]
    text = f"""
def key(core, {parameters}):
    return {key}

def run(operator, {parameters}):
    core = operator.cores.find()
    found = core.launches.get({key})
    if found is None: return operator._{which}({given})
    return {run}

def run_final(operator, {parameters}):
    if is_plain() and not (is_grad_enabled() and ({" or ".join(needs)})):
        core = operator.cores.find()
        found = core.launches.get({key})
        if found is not None and found.is_final: return {run}
    return operator._{which}_autograd({given})
"""
    known: dict[str, Any] = {"is_plain": is_plain, "is_grad_enabled": torch.is_grad_enabled, "exact": _make_exact_key}
    exec(compile(text, f"<launches of {schema.signature.op}, {which}>", "exec"), known)
    # Taken out of their own globals, or the cycle would keep them alive until the garbage collector runs.
    return Lookup(known.pop("key"), known.pop("run"), known.pop("run_final"))


def _write_tuple(places: Any) -> str:
    return f"({''.join(f'a{place}, ' for place in places)})"


def _make_exact_key(number: Any) -> Any:
    """Return a number as part of a key that tells 1, 1.0 and True apart, and 0.0 and -0.0, which compare equal."""
    return type(number), repr(number)
