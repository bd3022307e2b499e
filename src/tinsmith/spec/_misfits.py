"""Error messages for sizes of a call that do not fit the spec or each other.

Each function returns an error, which `_solve` raises. Its table shows only the arguments concerned.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .._errors import ArgumentError, ShapeError, nearest, refusal
from ._arithmetic import Tree, find_zero_divisor, format_tree, list_tree_names
from ._dims import Item, Named, Spec

Sizes = tuple[int, ...]


class Call(NamedTuple):
    """The arguments of `solve` for one call of an op."""

    spec: Spec
    shapes: Mapping[str, Sizes]
    values: Mapping[str, int]
    op: str


def wrong_rank(call: Call, item: Item, groups: Mapping[str, Sizes]) -> ShapeError:
    """Return the error for an input that has more or fewer dims than its spec."""
    layout, rank = item.layout, len(call.shapes[item.name])
    wanted = len(layout.plain) + sum(map(len, groups.values()) if layout.has_batch and layout.has_rest else ())
    least = "at least " if layout.has_batch or layout.has_rest else ""
    row = _row(call, item, f"expected {least}{_dims(wanted)}, got {rank}")
    remedy = f"Pass `{item.name}` with {least}{_dims(wanted)}"
    return ShapeError(refusal(_against_spec(call, item), [row], remedy + _rank_hint(call, item, wanted, rank)))


def _rank_hint(call: Call, item: Item, wanted: int, rank: int) -> str:
    if wanted == 0 and set(call.shapes[item.name]) == {1}:
        return f": `{item.name}.squeeze()`."
    if rank > wanted and call.spec.batch_name is None:
        batched = ", ".join(("*b", *map(str, item.dims)))
        return f"; to run a batch, write `{item.name}[{batched}]` and `*b` in every output."
    return f": `{item.name}[None]` adds one in front." if rank == wanted - 1 else "."


def wrong_size(call: Call, item: Item, wanted: int, size: int) -> ShapeError:
    """Return the error for a dim of an input whose size differs from the number in the spec."""
    shape = tuple(call.shapes[item.name])
    remedy = f"Pass `{item.name}` as `{item.brackets}`."
    if len(shape) == len(item.dims) == 2 and _fits(item, shape[::-1]):
        remedy = f"Pass `{item.name}.mT`, which is {shape[::-1]}, if its dims are in the other order."
    row = _row(call, item, f"expected {wanted}, got {size}")
    return ShapeError(refusal(_against_spec(call, item), [row], remedy))


def unequal_sizes(call: Call, item: Item, name: str, known: int, size: int) -> ShapeError:
    """Return the error for two dims of one name that have different sizes."""
    owner = _owner(call.spec, name)
    row = _row(call, item, f"{name} was {known}")
    remedy = f"Pass one size wherever the spec says `{name}`."
    if owner is item:
        return ShapeError(refusal(_against_spec(call, item), [row], remedy))
    if 1 in (known, size):
        small, large = (item, known) if size == 1 else (owner, size)
        remedy = f"Nothing is broadcast: expand `{name}` of `{small.name}` to {large} yourself."
        if len(small.dims) == len(call.shapes[small.name]):  # so that each dim stands for one size
            pairs = zip(small.dims, call.shapes[small.name], strict=True)
            sizes = ", ".join(str(large if dim == Named(name) else old) for dim, old in pairs)
            remedy = f"Nothing is broadcast: pass `{small.name}.expand({sizes})`."
    headline = f"`{item.name}` does not fit `{owner.name}` in op `{call.op}`"
    return ShapeError(refusal(headline, [_row(call, owner), row], remedy))


def unequal_groups(call: Call, item: Item, group: str, known: Sizes) -> ShapeError:
    """Return the error for two inputs whose dims for `*b` or for `...` differ."""
    sign = item.brackets[1:].partition(",")[0].rstrip("]") if group == "*" else group
    owner = next(one for one in call.spec.solving_order if (one.batch_name if group == "*" else one.has_rest))
    rows = [_row(call, owner), _row(call, item, f"{sign} was {tuple(known)}")]
    headline = f"`{item.name}` does not fit `{owner.name}` in op `{call.op}`"
    return ShapeError(
        refusal(headline, rows, f"Pass the same dims wherever the spec says `{sign}`: nothing is broadcast.")
    )


def unequal_value(call: Call, name: str, known: int) -> ShapeError:
    """Return the error for a scalar or keyword that gives a dim another size than an input does."""
    owner = _owner(call.spec, name)
    rows = [_row(call, owner), (name, str(call.values[name]), f"{name} was {known}")]
    remedy = f"Pass {name}={known}, or give the dim of `{owner.name}` another name in the spec."
    return ShapeError(refusal(f"`{name}` does not fit `{owner.name}` in op `{call.op}`", rows, remedy))


def missing_value(call: Call) -> ArgumentError:
    """Return the error for dims whose size no input and no argument gives."""
    missing = [name for name in call.spec.free_dims if name not in call.values]
    rows = [(item.name, item.brackets) for item in call.spec.allocations if set(missing) & set(item.names)]
    headline = f"Nothing gives the size of {_join_words(f'`{name}`' for name in missing)} in op `{call.op}`"
    remedy = f"Pass {_join_words(f'{name}=...' for name in missing)} with the call."
    meant = [(name, dim) for name in missing for dim in call.spec.input_dims if name.lower() == dim.lower()]
    if meant:
        remedy += "".join(f" Or did you mean `{dim}` in place of `{name}` in the spec?" for name, dim in meant)
    return ArgumentError(refusal(headline, rows, remedy))


def not_an_integer(call: Call, name: str) -> ArgumentError:
    """Return the error for a dim whose size is passed as something other than an integer."""
    value = call.values[name]
    headline = f"`{name}` is a size in op `{call.op}`, and {reprlib.repr(value)} is not an integer"
    rows = [(item.name, item.brackets) for item in call.spec.allocations if name in item.names]
    return ArgumentError(refusal(headline, rows, f"Pass {name}=... as an int, not as a {type(value).__name__}."))


def negative_size(call: Call, item: Item, tree: Tree, size: int) -> ShapeError:
    """Return the error for an output or scratch whose computed size is negative."""
    headline = f"`{item.name}` would have a negative size in op `{call.op}`"
    text = format_tree(tree)
    rows = [*_sources(call, tree), (item.name, item.brackets, f"{text} is {size}")]
    remedy = f"Pass {text}=0 or more." if isinstance(tree, str) else f"Pass sizes for which `{text}` is 0 or more."
    return ShapeError(refusal(headline, rows, remedy))


def division_by_zero(call: Call, item: Item, tree: Tree, sizes: Mapping[str, int]) -> ShapeError:
    """Return the error for an output or scratch whose computed size is divided by a size of zero."""
    divisor = format_tree(find_zero_divisor(tree, sizes) or 0)
    headline = f"The size of `{item.name}` divides by zero in op `{call.op}`"
    rows = [*_sources(call, tree), (item.name, item.brackets, f"{divisor} is 0")]
    return ShapeError(refusal(headline, rows, f"Pass sizes for which `{divisor}` is not 0."))


def unexpected_keyword(
    spec: Spec, name: str, arguments: Sequence[str], op: str, missing: Sequence[str] = ()
) -> ArgumentError:
    """Return the error for a keyword that is neither an argument of a call nor a dim that it may set.

    Args:
        spec: the op's spec.
        name: the keyword that was passed.
        arguments: the names of the arguments that the call takes.
        op: the op's name.
        missing: arguments and dims that the call does not give.
    """
    rows = [("arguments", ", ".join(arguments)), ("dims", ", ".join(spec.free_dims))]
    rows = [row for row in rows if row[1]]
    guess = nearest(name, [*arguments, *spec.free_dims]) or (missing[0] if len(missing) == 1 else "")
    headline, remedy = (
        f"op `{op}` has no argument `{name}`",
        f"Did you mean `{guess}`?" if guess else f"Leave `{name}` out.",
    )
    if name in spec.input_dims:
        owner = _owner(spec, name)
        headline, rows = f"op `{op}` takes `{name}` from the shape of `{owner.name}`", [(owner.name, owner.brackets)]
        remedy = f"Leave `{name}` out."
    for item in spec.allocations:
        if item.name == name:
            headline, remedy = f"op `{op}` allocates `{name}` itself", f"Leave `{name}` out."
    return ArgumentError(refusal(headline, rows, remedy))


def _against_spec(call: Call, item: Item) -> str:
    return f"`{item.name}` does not fit its spec in op `{call.op}`"


def _row(call: Call, item: Item, note: str = "") -> tuple[str, str, str]:
    return item.name, f"{item.brackets} = {tuple(call.shapes[item.name])}", note


def _owner(spec: Spec, name: str) -> Item:
    """Return the first input that determines a dim, in solving order."""
    return next(item for item in spec.solving_order if name in item.names)


def _sources(call: Call, tree: Tree) -> list[tuple[str, str, str]]:
    """Return a table row for each input and value that determines a size of a name in a tree."""
    names = dict.fromkeys(list_tree_names(tree))
    owners = {_owner(call.spec, name).name for name in names if name in call.spec.input_dims}
    inputs = [_row(call, item) for item in call.spec.inputs if item.name in owners]
    return inputs + [(name, str(call.values[name]), "") for name in names if name not in call.spec.input_dims]


def _fits(item: Item, shape: Sizes) -> bool:
    return all(wanted == size for wanted, size in zip(item.layout.plain, shape, strict=True) if isinstance(wanted, int))


def _dims(count: int) -> str:
    return "1 dim" if count == 1 else f"{count} dims"


def _join_words(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
