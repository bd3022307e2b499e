"""The order of a call's arguments: warnings if the spec or the results suggest another, and a hint in an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from .._errors import TinsmithError, refusal
from .._user_warnings import warn
from ..calls import Signature, bind, check_tensors, fitting_dtypes, is_symbolic
from ..compiling import Stage
from ..spec import Item, Spec, solve
from ._options import Order

_MOST = 12
"""The number of arguments up to which `suggest_order` tries all pairs."""


def call_order(spec: Spec, stages: Sequence[Stage], order: Order | None) -> tuple[str, ...]:
    """Return the names of a call's arguments, in the kernels' order.

    With "spec", the spec's inputs come first and then the other parameters.
    """
    made = {item.name for item in spec.outputs + spec.scratch}
    in_kernels = dict.fromkeys(name for stage in stages for name in stage.parameters if name not in made)
    if order == "spec":
        return tuple(dict.fromkeys([*(item.name for item in spec.inputs), *in_kernels]))
    return tuple(in_kernels)


def warn_of_orders(signature: Signature) -> None:
    """Warn if a call in the spec's order, or `v, p = step(v, p)`, would silently swap two arrays."""
    _warn_of_results(signature)
    _warn_of_inputs(signature)


def _warn_of_inputs(signature: Signature) -> None:
    """Warn if the spec lists two interchangeable inputs in another order than a call takes them.

    Inputs with different dims or dtypes are not interchangeable: a call that swaps them raises an error.
    """
    inputs = signature.spec.inputs
    places = {name: place for place, name in enumerate(signature.order)}
    numbers = [places[one.name] for one in inputs]
    # Most specs have the kernel's order, and some have thousands of inputs.
    is_swapped = numbers != sorted(numbers) and any(
        places[first.name] > places[second.name] and _fit_as_each_other(signature, first, second)
        for place, first in enumerate(inputs)
        for second in inputs[place + 1 :]
    )
    if not is_swapped:
        return
    words = f"the spec of op `{signature.op}` lists its inputs in another order than a call takes them"
    items = signature.items
    called = [items[name].written_name if name in items else name for name in signature.order]
    rows = [("spec", ", ".join(item.written_name for item in inputs))]
    rows += [("call", f"{', '.join(called)}: the kernel's order")]
    remedy = (
        "Write the spec's inputs in the kernel's order, or order=\"spec\" to call the op in the spec's; "
        'order="kernel" keeps it as it is.'
    )
    warn(refusal(words, rows, remedy))


def _fit_as_each_other(signature: Signature, first: Item, second: Item) -> bool:
    if first.brackets != second.brackets:
        return False
    ours, theirs = fitting_dtypes(signature, first.name), fitting_dtypes(signature, second.name)
    return ours is None or theirs is None or any(dtype in theirs for dtype in ours)


def _warn_of_results(signature: Signature) -> None:
    """Warn if `v, p = step(v, p)` would swap two arrays.

    Results are in the spec's order, arguments in the kernel's. These are easily confused if outputs are named like
    inputs plus an affix (`v_new`, `next_v`), and two of them with the same dims are in another order.
    """
    results = [item for item in signature.spec.outputs if item.name not in signature.updates]
    pairs = _pair_next_states(signature.spec.inputs, results)
    places = {name: place for place, name in enumerate(signature.order)}
    swapped = next(
        (
            (first, second)
            for place, first in enumerate(pairs)
            for second in pairs[place + 1 :]
            if first[0].brackets == second[0].brackets and places[first[0].name] > places[second[0].name]
        ),
        None,
    )
    if swapped is None:
        return
    words = f"the arguments of op `{signature.op}` and its results are in different orders"
    inputs = sorted((before for before, _ in pairs), key=lambda item: places[item.name])
    rows = [("arguments", f"{', '.join(item.written_name for item in inputs)}: the kernel's order")]
    rows += [("results", f"{', '.join(after.written_name for _, after in pairs)}: the spec's order")]
    last = swapped[0][1].name
    remedy = (
        "Write the spec's outputs in the kernel's order, or order=\"spec\" to call the op in the spec's; "
        f'order="kernel" keeps it as it is. Results have names: `result.{last}`.'
    )
    warn(refusal(words, rows, remedy))


def _pair_next_states(inputs: Sequence[Item], outputs: Sequence[Item]) -> list[tuple[Item, Item]]:
    """Pair inputs with the outputs that are their next values by name and dims, in the order of the outputs.

    Of all affixes that turn input names into output names, use the one with the most pairs.
    """
    pairs: dict[tuple[str, str], list[tuple[Item, Item]]] = {}
    places = {item.name: place for place, item in enumerate(inputs)}
    for after in outputs:
        size = len(after.name)
        parts = {after.name[start:end] for start in range(size) for end in range(start + 1, size + 1)}
        # Not each input in turn: an op may have thousands of both.
        for place in sorted(places[part] for part in parts & places.keys()):
            before = inputs[place]
            head, _, tail = after.name.partition(before.name)
            if (head or tail) and after.brackets == before.brackets:
                pairs.setdefault((head, tail), []).append((before, after))
    return max(pairs.values(), key=len, default=[])


# In an error, so it may be slow ----------------------------------------------------------------------


def suggest_order(error: TinsmithError, signature: Signature, arguments: Sequence[Any], named: dict[str, Any]) -> None:
    """Add to an error's message the order in which the call's positional arguments would fit, if exactly one fits, and
    theirs does not.
    """
    if 2 <= len(arguments) <= min(len(signature.order), _MOST):
        # Then something else is wrong: an argument is given twice, or two share memory.
        if _fits(signature, signature.order[: len(arguments)], arguments, named):
            return
        fitting = {
            order for order in _list_orders(signature, len(arguments)) if _fits(signature, order, arguments, named)
        }
        if len(fitting) == 1:
            right = ", ".join(signature.order[: len(arguments)])
            order = fitting.pop()
            listed = ", ".join(order)
            hint = f"Are arguments swapped? They fit as ({listed}), and the call is `{signature.op}({right})`."
            if order == _read_spec_order(signature, len(arguments)):
                hint += ' With `order="spec"` it takes them in the order of the spec.'
            *facts, remedy = str(error).split("\n")
            error.args = ("\n".join([*facts, hint, remedy]), *error.args[1:])


def _list_orders(signature: Signature, count: int) -> Iterator[tuple[str, ...]]:
    """Yield other orders that a caller may have used by mistake: two arguments swapped, or the spec's order."""
    names = signature.order[:count]
    for i, j in combinations(range(count), 2):
        order = list(names)
        order[i], order[j] = order[j], order[i]
        yield tuple(order)
    by_spec = _read_spec_order(signature, count)
    if by_spec != names:
        yield by_spec


def _read_spec_order(signature: Signature, count: int) -> tuple[str, ...]:
    """Return the first `count` arguments of a call in the order of the spec; those that it does not list follow."""
    names = signature.order[:count]
    listed = [item.name for item in signature.spec.inputs if item.name in names]
    return (*listed, *(name for name in names if name not in listed))


def _fits(signature: Signature, order: Sequence[str], arguments: Sequence[Any], named: dict[str, Any]) -> bool:
    """Return True if a call would be accepted with its positional arguments assigned to these names."""
    try:
        bound = bind(signature, (), {**dict(zip(order, arguments, strict=True)), **named})
        check_tensors(signature, bound.tensors)
        if any(map(is_symbolic, bound.values)):
            return False
        shapes = {name: tuple(one.shape) for name, one in zip(signature.arrays, bound.tensors, strict=True)}
        solve(signature.spec, shapes, signature.size_values(bound.scalars, bound.sizes), signature.op)
    except TinsmithError:
        return False
    return True
