"""What a statement reads is found once, and kept in the statement; a copy of it is another statement."""

from dataclasses import replace

from tinsmith.source.ir import nodes, walk


def test_a_changed_copy_is_asked_again():
    a, b = nodes.Local("a", "f32"), nodes.Local("b", "f32")
    one = nodes.Assign("c", nodes.Binary("+", a, b, "f32"))
    assert walk.locals_read(one) == {"a", "b"}
    assert walk.locals_read(replace(one, value=a)) == {"a"}
    assert walk.locals_read(replace(one, line=7)) == {"a", "b"}
    assert replace(one) == one
    assert walk.locals_read(nodes.Break()) == set()
