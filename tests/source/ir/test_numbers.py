"""Numbers of statements: each has one of its own from lowering on, and passes keep them."""

import torch

import rows
from rows import Draw
from support.by_hand import array, assign, branch, local, loop, store
from support.tangents import given
from tinsmith.source.ir import walk
from tinsmith.transforms import flat, write_out_divisions

X, Y = array("x"), array("y")
T = local("t")


def numbers(body):
    return [one.number for one in walk.statements(body)]


def test_lowering_gives_every_statement_one(lang64):
    row = next(one for one in rows.ALL if one.name == "serial_state")
    lowered, _, _ = given(row.build(lang64, lang64.f64), row.draw(Draw(torch.float64)))
    found = numbers(lowered.body)
    assert 0 not in found and len({*found}) == len(found) > 5
    for change in (flat, write_out_divisions):
        assert {*found} <= {*numbers(change(lowered).body)}


def test_one_object_in_two_places():
    twice = store(Y, "i", T)
    body = [assign("t", X["i"]), branch(T > 0.0, [twice], [twice])]
    found = walk.number_statements([loop("i", X.size(), body)])
    assert sorted(numbers(found)) == [1, 2, 3, 4, 5]


def test_a_number_stays():
    """Also where other statements come in between; and it is no part of what a statement says."""
    (first,) = walk.number_statements([loop("i", X.size(), [assign("t", X["i"]), store(Y, "i", T)])])
    (changed,) = walk.rewrite([first], lambda one: (assign("u", 0.0), one) if one == first.body[1] else (one,))
    found = walk.number_statements([changed])
    assert len({*numbers(found)}) == 4
    assert [one.number for one in found[0].body if one in first.body] == [one.number for one in first.body]
    assert walk.number_statements(found) == found and numbers(walk.number_statements(found)) == numbers(found)
    assert first == loop("i", X.size(), [assign("t", X["i"]), store(Y, "i", T)])
