"""Texts of kernels: what is printed is parsed to the same kernel, and other texts are refused by their lines."""

from dataclasses import fields

import pytest

from support.ir_texts import PLAIN, SSA
from tinsmith.ir import TextError, nodes, parse_ir, print_ir, walk


def assert_same(one, other):
    for field in fields(nodes.Kernel):
        assert getattr(one, field.name) == getattr(other, field.name), field.name


@pytest.mark.parametrize("text", [PLAIN, SSA], ids=["plain", "ssa"])
def test_a_text_comes_back(text):
    assert print_ir(parse_ir(text)) == text


def test_the_texts_have_every_node():
    seen = {type(one) for text in (PLAIN, SSA) for one in _all_nodes(parse_ir(text))}
    assert seen == set(nodes.NODE_TYPES)


def _all_nodes(kernel):
    for one in walk.statements(kernel.body):
        yield one
        yield from walk.parts(*walk.expressions(one))


def test_declarations_come_back():
    arrays = {
        "p": nodes.Array(
            "p", "f32", 2, (3, 2), "self.p", (1, -2), is_differentiable=False, dims=(None, "n"), is_clamped=True
        ),
        "s": nodes.Array("s", "i64", 1, is_of_blocks=True, dims=(4,)),
    }
    kernel = nodes.Kernel("one", "/home/it's/kernel.py", arrays, {"n": ("i32", ()), "v": ("f64", (2,))}, {}, ())
    assert_same(parse_ir(print_ir(kernel)), kernel)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("kernel plain", "plain", "a kernel's text begins with `kernel NAME`"),
        ("    a = -0.0\n", "    a = -0.0 +\n", "line 16: it ends too early: a = -0.0 +"),
        ("    a = -0.0\n", "    a = nowhere\n", "line 16: `nowhere` is not declared"),
        ("    a = -0.0\n", "    a = nowhere[0]\n", "line 16: `nowhere` is not declared"),
        ("    a = -0.0\n", "    a = erf(b)\n", "line 16: there is no `erf` of 1"),
        ("    a = -0.0\n", "    a = $\n", "line 16: '\\$' means nothing here"),
        ("    a = -0.0\n", "    a = b b\n", "line 16: nothing is wanted before `b`"),
        ("    a = -0.0\n", "    a b\n", "line 16: `=` is wanted before `b`"),
        ("    barrier  @6\n", "      barrier  @6\n", "is indented otherwise"),
        ("    if ok:\n      break", "    if ok:\n    break", "nothing is inside"),
    ],
)
def test_a_text_that_is_none(old, new, words):
    assert PLAIN.count(old) >= 1
    with pytest.raises(TextError, match=words):
        parse_ir(PLAIN.replace(old, new, 1))
