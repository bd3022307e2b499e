"""Indices as sums, and what follows for who names which element: against every value that they can have."""

import itertools
import random

import pytest

from support.by_hand import E, array, assign, atomic, branch, local, loop, store
from tinsmith.analyses import (
    Expander,
    affine,
    definitions,
    find_owned,
    is_invariant,
    single_definitions,
    whole_definitions,
)
from tinsmith.ir import nodes, walk

X, Y, K = array("x"), array("y"), array("k", "i32")
NAMES = ("i", "j", "n", "m")
SIZE = X.size().expr


def whole(value):
    return nodes.Const(value, "i32")


def draw_index(dice, depth=3, names=NAMES):
    """Draw an index over names that differ between iterations and a size that does not."""
    if depth == 0 or dice.random() < 0.25:
        leaves = [*(nodes.Local(name, "i32") for name in names), SIZE, *(whole(dice.randint(-3, 4)) for _ in range(3))]
        return dice.choice(leaves)
    operator = dice.choice(["+", "+", "-", "-", "*", "*", "%"])
    right = whole(dice.randint(1, 4)) if operator == "%" else draw_index(dice, depth - 1, names)
    return nodes.Binary(operator, draw_index(dice, depth - 1, names), right, "i32")


def value(expr, held):
    match expr:
        case nodes.Const(number):
            return number
        case nodes.Local(name):
            return held[name]
        case nodes.Size():
            return held["size"]
        case nodes.Binary(operator, left, right):
            one, two = value(left, held), value(right, held)
            return {"+": one + two, "-": one - two, "*": one * two}[operator] if operator != "%" else one % two


def iterations(size):
    return [dict(zip((*NAMES, "size"), (*held, size), strict=True)) for held in itertools.product(range(3), repeat=4)]


@pytest.mark.parametrize("seed", range(40))
def test_indices_found_disjoint_are_disjoint(seed):
    dice = random.Random(seed)
    for _ in range(10):
        one, two = draw_index(dice), draw_index(dice)
        sums = affine(one, {}), affine(two, {})
        for size in (1, 4):
            values = [[value(expr, held) for held in iterations(size)] for expr in (one, two)]
            if sums[0].never_equals(sums[1], is_invariant):
                assert not {*values[0]} & {*values[1]}, (one, two)
            distance = sums[0].distance(sums[1])
            if distance is not None:
                assert {a - b for a, b in zip(*values, strict=True)} == {distance}, (one, two)


@pytest.mark.parametrize("seed", range(20))
def test_owned_elements_are_accessed_by_one_iteration(seed):
    """Also by a local that holds an index."""
    dice, count = random.Random(seed), 0
    for _ in range(100):
        first, held = draw_index(dice, 1, "ij"), draw_index(dice, 1, "ij")
        second = dice.choice([first, local("n", "i32").expr, draw_index(dice, 1, "ij")])
        body = [assign("n", E(held)), store(Y, E(first), 1.0), store(Y, E(second), 2.0)]
        outer = loop("i", E(whole(3)), [loop("j", E(whole(3)), body)], is_parallel=True)
        if "y" not in find_owned(outer):
            continue
        count += 1
        owners = {}
        for i, j in itertools.product(range(3), repeat=2):
            now = {"i": i, "j": j, "size": 4}
            now["n"] = value(held, now)
            for one in (first, second):
                owners.setdefault(value(one, now), set()).add(i)
        assert all(len(outer) == 1 for outer in owners.values()), body
    assert count > 3


def test_owned_arrays_are_indexed_by_every_loop_variable():
    def over(*indices):
        body = [store(Y, index, 1.0) for index in indices]
        return "y" in find_owned(loop(("i", "j"), (X.size(), X.size()), body, is_parallel=True))

    i, j = local("i", "i32"), local("j", "i32")
    assert over((i, j)) and over((j, i)) and over((i + 1, j * 2)) and over((i + X.size(), j), (i + X.size(), j))
    assert not over((i, j), (j, i)) and not over((i, i)) and not over((i + j, j)) and not over((i, j), (i + 1, j))
    assert not over((i * 0, j)) and not over((i, 0))


def test_definitions():
    body = [
        assign("a", X["i"]),
        branch(local("a") > 0.0, [assign("b", local("a") * 2.0)], [assign("b", local("c"))]),
        assign("s", local("s") + local("a")),
        atomic("add", Y, 0, local("b"), "old"),
        loop("j", K["i"], [store(Y, "j", local("d"))]),
    ]
    assert [name for name, _ in definitions(body)] == ["a", "b", "b", "s", "old", "j"]
    assert single_definitions(definitions(body)) == {"a": X["i"].expr}
    assert walk.find_defined(body) == {"a", "b", "s", "old", "j"}
    assert walk.find_mentioned(body) == {"a", "b", "c", "d", "s", "old", "i", "j"}


def test_indices_from_memory_may_differ_each_time():
    """Of `k[i] + 1` before and after a store to `k`, and `k[i] + 2` then, nothing is known."""
    i = local("i", "i32")
    body = [assign("n", K[i] + 1), store(Y, local("n", "i32"), 1.0), store(K, i, 0), store(Y, K[i] + 2, 2.0)]
    known = whole_definitions(definitions(body))
    first, second = (affine(one.index[0], known) for one in (body[1], body[3]))
    assert first.terms == second.terms and first.constant != second.constant
    assert not first.never_equals(second, is_invariant)
    assert "y" not in find_owned(loop("i", X.size(), body, is_parallel=True))


# What locals are worked out from ----------------------------------------------------------------------


def test_definitions_are_put_in_place_of_locals():
    i, n = nodes.Local("i", "i32"), nodes.Local("n", "i32")
    given = {"a": nodes.Binary("*", i, SIZE, "i32"), "b": nodes.Binary("+", nodes.Local("a", "i32"), n, "i32")}
    b = nodes.Local("b", "i32")
    assert Expander(given)(b) == nodes.Binary("+", nodes.Binary("*", i, SIZE, "i32"), n, "i32")


def test_a_definition_is_expanded_once_however_often_it_is_read():
    """Sixty locals, each twice the one before: as a tree, more parts than any memory holds."""
    doubled = {f"v{k}": nodes.Binary("+", *[nodes.Local(f"v{k - 1}", "i32")] * 2, "i32") for k in range(1, 61)}
    expanded = Expander(doubled)(nodes.Local("v60", "i32"))
    for _ in range(60):
        assert expanded.left is expanded.right
        expanded = expanded.left
    assert expanded == nodes.Local("v0", "i32")
