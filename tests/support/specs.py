"""Specs drawn at random: everything the language has, put together as it may be."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tinsmith.spec import DTYPES, Anything, Arithmetic, Batch, Dim, Fixed, Item, Named, Rest, Spec, format_tree

NAMES = ("n", "m", "k", "h")

_named = st.sampled_from(NAMES).map(Named)
_fixed = st.integers(0, 3).map(Fixed)
_leaves = st.sampled_from(NAMES) | st.integers(0, 3)
_trees = st.recursive(
    _leaves,
    lambda trees: (
        st.tuples(st.sampled_from("+-*"), trees, trees)
        | st.tuples(st.just("//"), trees, trees.filter(lambda tree: tree != 0))
    ),
    max_leaves=4,
)
_arithmetic = _trees.filter(lambda tree: isinstance(tree, tuple)).map(lambda tree: Arithmetic(format_tree(tree), tree))
_dtypes = st.none() | st.sampled_from(DTYPES)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Draw a spec that `parse` accepts, with `*b` and `...` in about half of all."""
    inputs = draw(_items("x", 0, 3, _named | _fixed | st.just(Anything()), st.booleans(), st.booleans()))
    if not any((item.batch_name is None) == item.has_rest for item in inputs):
        inputs = [_without(Batch("b"), item) if item.has_rest else item for item in inputs]
    batch = st.just(any(item.batch_name for item in inputs))
    rest = st.booleans() if any(item.has_rest for item in inputs) else st.just(False)
    outputs = draw(_items("y", 1, 2, _named | _fixed | _arithmetic, batch, rest))
    scratch = draw(_items("t", 0, 1, _named | _fixed | _arithmetic, batch, rest))
    left, right, between = (", ".join(map(str, items)) for items in (inputs, outputs, scratch))
    return Spec(f"{left} -> {right}", between, tuple(inputs), tuple(outputs), tuple(scratch))


def _items(
    letter: str,
    least: int,
    most: int,
    dim: st.SearchStrategy[Dim],
    batch: st.SearchStrategy[bool],
    rest: st.SearchStrategy[bool],
) -> st.SearchStrategy[list[Item]]:
    one = st.builds(_item, st.lists(dim, max_size=3), batch, rest, st.integers(0, 3), _dtypes)
    return st.lists(one, min_size=least, max_size=most).map(
        lambda items: [Item(f"{letter}{place}", item.dims, item.dtype) for place, item in enumerate(items)]
    )


def _item(dims: Sequence[Dim], batch: bool, rest: bool, place: int, dtype: str | None) -> Item:
    place = min(place, len(dims))
    middle = (Rest(),) if rest else ()
    return Item("", (Batch("b"),) * batch + (*dims[:place], *middle, *dims[place:]), dtype)


def _without(unwanted: Dim, item: Item) -> Item:
    return Item(item.name, tuple(dim for dim in item.dims if dim != unwanted), item.dtype)
