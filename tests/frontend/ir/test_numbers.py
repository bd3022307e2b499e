"""Numbers of statements: each has one of its own from lowering on, and passes keep them."""

import torch

import rows
from rows import Draw
from support.by_hand import array, assign, branch, local, loop, store
from support.tangents import lower_with_arguments
from tinsmith.ir import walk
from tinsmith.passes import flat, write_out_divisions

X, Y = array("x"), array("y")
T = local("t")


def list_numbers(body):
    return [one.number for one in walk.statements(body)]


def test_lowering_numbers_every_statement(lang64):
    row = next(one for one in rows.ALL if one.name == "serial_state")
    lowered, _, _ = lower_with_arguments(row.build(lang64, lang64.f64), row.draw(Draw(torch.float64)))
    all_numbers = list_numbers(lowered.body)
    assert 0 not in all_numbers and len({*all_numbers}) == len(all_numbers) > 5
    for change in (flat, write_out_divisions):
        assert {*all_numbers} <= {*list_numbers(change(lowered).body)}


def test_a_statement_used_twice_gets_two_numbers():
    twice = store(Y, "i", T)
    body = [assign("t", X["i"]), branch(T > 0.0, [twice], [twice])]
    numbered = walk.number_statements([loop("i", X.size(), body)])
    assert sorted(list_numbers(numbered)) == [1, 2, 3, 4, 5]


def test_rewriting_keeps_numbers():
    """Also where other statements come in between; and it is no part of what a statement says."""
    (first,) = walk.number_statements([loop("i", X.size(), [assign("t", X["i"]), store(Y, "i", T)])])
    (changed,) = walk.rewrite([first], lambda one: (assign("u", 0.0), one) if one == first.body[1] else (one,))
    numbered = walk.number_statements([changed])
    assert len({*list_numbers(numbered)}) == 4
    assert [one.number for one in numbered[0].body if one in first.body] == [one.number for one in first.body]
    assert walk.number_statements(numbered) == numbered and list_numbers(
        walk.number_statements(numbered)
    ) == list_numbers(numbered)
    assert first == loop("i", X.size(), [assign("t", X["i"]), store(Y, "i", T)])
