"""What is found in a statement is found once, and kept in the statement; a copy of it is another statement."""

from dataclasses import replace

import pytest

from tinsmith.ir import nodes, walk

A, B = nodes.Local("a", "f32"), nodes.Local("b", "f32")
INNER = nodes.Assign("d", nodes.Load("x", (B,), (), "f32"))
BRANCH = nodes.If(A, (INNER, nodes.Store("y", (B,), (), A)), (nodes.Atomic("add", "z", (), (), A, "e"),))
LOOP = nodes.For(("i",), ((A, B),), (BRANCH, nodes.While((nodes.Break(),))))


def test_changed_copies_do_not_inherit_cached_results():
    one = nodes.Assign("c", nodes.Binary("+", A, B, "f32"))
    assert walk.locals_read(one) == {"a", "b"}
    assert walk.locals_read(replace(one, value=A)) == {"a"}
    assert walk.locals_read(replace(one, line=7)) == {"a", "b"}
    assert replace(one) == one
    assert walk.locals_read(nodes.Break()) == set()


@pytest.mark.parametrize(
    ("find", "found", "of_inner"),
    [
        (walk.defined_in, {"i", "d", "e"}, {"d"}),
        (walk.mentioned_in, {"i", "a", "b", "d", "e"}, {"b", "d"}),
        (walk.loaded_in, {"x"}, {"x"}),
        (walk.changed_in, {"y", "z"}, set()),
    ],
)
def test_results_for_a_statement_include_its_blocks(find, found, of_inner):
    assert find(LOOP) == found
    assert find(replace(LOOP, body=(INNER,))) - {"i", "a"} == of_inner
    assert find(LOOP) == found


def test_rewriting_without_a_change_returns_the_same_object():
    assert walk.rewrite((LOOP,), lambda one: [one])[0] is LOOP
    assert walk.change_parts((LOOP,), lambda one: one)[0] is LOOP
