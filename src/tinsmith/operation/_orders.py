"""The order of a call's arguments, and warnings if the spec or the results suggest another order."""

from __future__ import annotations

from collections.abc import Sequence

from .._errors import refusal
from .._user_warnings import warn
from ..calls import Signature, fitting_dtypes
from ..compiling import Stage
from ..spec import Item, Spec
from ._options import Order


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
