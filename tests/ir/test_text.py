"""Texts of kernels: what is printed is parsed to the same kernel, and other texts are refused by their lines."""

from dataclasses import fields

import pytest

from tinsmith.ir import TextError, nodes, parse_ir, print_ir, walk

PLAIN = """\
kernel plain
  array x: f32[1]
  array p: f32[1] of 3x3
  array q: f64[0] of 2
  array s: f32[1] of_blocks
  cell total: i64[0]
  argument n: i32
  argument v: f32 of 2x2
  locals f32: a, b, c
  locals i32: at, votes, old
  locals i64: wide
  locals u1: ok
  block_memory s: 64, n * 2
  written a: a, b
  parallel for i, j in 1 .. (x.shape[0] - 1), 0 .. 3 [block_size = 64; may_race]:  @5
    a = -0.0
    barrier  @6
    votes = vote any at
    array near: f32[8]
    exchange x[i] = near[3]  @8
    q[]{1} = 0.5:f64
    p[i]{2, 1} = v{0, 1} * -1e-07
  for k in 0 .. 8 [vector_width = 8]:
    b = a - (b - c) - min(a, inf)
    c = (a + b) * c / (a * b)
    ok = not(ok) and (ok or a < b) and true
    at = at >>> 2 & 7 | 1 << 3
    wide = i64(at) + 3:i64
    at = bits(a, i32)
    a = neg(select(ok, a, 1.0)) + straight_through(a, b)
    a = (at / n):f64
    a = sqrt(n):f64
  while:
    if ok:
      break
    else:
      continue
  if ok:
    pass
  old = atomic max x[0], a
  atomic add total[], wide
  a, b = decompose sym_eig f32 descending of a, b, c, a
  a = random f32
"""
SSA = """\
kernel loops
  array y: f32[1]
  locals f32: first, head, then, last, cell
  locals u1: done
  loop j in 0 .. 4 [exit = done; most = 3; has_blocks]:  @3
    carry head = 1.0 then then last last cell cell
    then = head * 2.0
    done = then > 8.0
  loop endlessly [exit = done]:
    done = true
"""


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
