"""Stores after which nobody reads an array: they go, but where another iteration may read."""

import pytest

from support.by_hand import array, branch, local, loop, store
from tinsmith.ir import nodes, walk
from tinsmith.passes.polish import eliminate_dead_code

Y, K = array("y"), array("k", "i32")
IF = local("p", "u1")
READ, CLEAR = store(array("x"), "i", Y["i"]), store(Y, "i", 0.0)
GONE = {
    "after the last load": [READ, CLEAR],
    "in a branch": [READ, branch(IF, [CLEAR])],
    "in both branches, which read first": [branch(IF, [READ, CLEAR], [READ, CLEAR])],
    "behind a loop that reads": [loop("j", 3, [READ]), CLEAR],
}
KEPT = {
    "read later": [CLEAR, READ],
    "read in a branch later": [CLEAR, branch(IF, [READ])],
    "read by the next iteration of a loop inside": [loop("j", 3, [READ, CLEAR])],
    "of an element that another iteration reads": [store(array("x"), "i", Y[K["i"]]), CLEAR],
}


def task(body):
    size = nodes.Size("y", 0)
    return nodes.For(("i",), ((nodes.Const(0, "i32"), size),), tuple(body), True)


def stores(body):
    return [one for one in walk.stores(eliminate_dead_code(body, private=["y"])) if one.array == "y"]


@pytest.mark.parametrize("name", GONE)
def test_dead_stores_are_removed(name):
    assert stores([task(GONE[name])]) == []


@pytest.mark.parametrize("name", KEPT)
def test_stores_that_may_be_read_are_kept(name):
    assert stores([task(KEPT[name])]) == [CLEAR]


def test_a_later_task_reads():
    assert stores([task([READ, CLEAR]), task([READ])]) == [CLEAR]
    assert stores([task([READ]), task([READ, CLEAR])]) == []


def test_other_arrays_keep_theirs():
    (left,) = eliminate_dead_code([task([READ, CLEAR])], private=["y"])
    assert [*walk.stores([left])] == [READ]


def test_stores_read_only_by_their_own_loop_are_removed():
    """Each iteration adds to what the one before left, and nobody asks for the sum."""
    counts = loop("j", 3, [store(Y, "i", nodes.Binary("+", Y["i"], nodes.Const(1.0, "f32"), "f32"))])
    assert stores([task([READ, counts])]) == []
    assert stores([task([counts, READ])]) == [*walk.stores([counts])]
