"""Texts of kernels: what is printed is parsed to the same kernel, and other texts are refused by their lines."""

import re
from dataclasses import fields

import pytest

from support.ir_texts import PLAIN, SSA
from tinsmith.ir import TextError, nodes, parse_ir, print_ir, walk


def assert_same(one, other):
    for field in fields(nodes.Kernel):
        assert getattr(one, field.name) == getattr(other, field.name), field.name


@pytest.mark.parametrize("text", [PLAIN, SSA], ids=["plain", "ssa"])
def test_texts_are_parsed_and_printed_unchanged(text):
    assert print_ir(parse_ir(text)) == text


def test_the_texts_have_every_node():
    seen = {type(one) for text in (PLAIN, SSA) for one in _all_nodes(parse_ir(text))}
    assert seen == set(nodes.NODE_TYPES)


def _all_nodes(kernel):
    for one in walk.statements(kernel.body):
        yield one
        yield from walk.parts(*walk.expressions(one))


def test_declarations_are_parsed_and_printed_unchanged():
    arrays = {
        "p": nodes.Array(
            "p", "f32", 2, (3, 2), "self.p", (1, -2), is_differentiable=False, dims=(None, "n"), is_clamped=True
        ),
        "s": nodes.Array("s", "i64", 1, is_of_blocks=True, dims=(4,)),
    }
    kernel = nodes.Kernel("one", "/home/it's/kernel.py", arrays, {"n": ("i32", ()), "v": ("f64", (2,))}, {}, ())
    assert_same(parse_ir(print_ir(kernel)), kernel)


def test_options_after_a_name_are_parsed_and_printed_unchanged():
    text = """\
kernel one
  argument n: i32
  locals i32: m
  m = 0
  for i in 0 .. m [may_race]:
    for j in i .. n [vector_width = 4]:
      m = j
"""
    assert print_ir(parse_ir(text)) == text


OF_NUMBERS = """\
kernel one
  array x: i32[1]
  array y: i32[2]
  locals i32: q, b
  locals u1: c, e
  q = 1
  q = q
  b = q + q
  b = q - q
  x[q] = q
  b = atomic and x[q], q
  exchange y[q, q] = max(q, b)
  b, q = decompose sym_eig i32 of q, b
  q, b = decompose sym_eig i32 descending of q, b
  e = vote any c
  if q > b:
    q = random i32
  parallel for i in 0 .. q [block_size = 64]:
    q = i
  while:
    q = y[b, q]
"""
OF_TRUTHS = """\
kernel one
  array x: u1[2]
  locals u1: q, b
  q = q and b
  b = q or q and b
  b = q and x[0, 1]
  b = atomic and x[0, 1], q
  b = atomic and x[0, 1], q and b
  if q:
    q = vote any q
"""
OF_LOOPS = """\
kernel one
  locals i32: q, b
  loop q in 0 .. b:
    b = q
  loop b in 0 .. q [most = q]:
    carry q = q then q last q cell q
    carry b = q then b last q cell q
    q = b
  for q, b in 0 .. 3, 1 .. 4:
    pass
  loop b in 0 .. 4:
    q = q
"""
OF_ARRAYS = """\
kernel one
  array q: i32[1]
  array y: i32[1]
  locals i32: b
  q[0] = 1
  b = q[0] + 1
  b = atomic add q[0], b
  atomic add q[b], b
  exchange q[0] = q[b]
  parallel for i in 0 .. q.shape[0]:
    array b: f32[3]
    y[i] = q[i]
"""
WORDS = (
    *("file", "array", "cell", "argument", "locals", "block_memory", "written", "kernel"),
    *("parallel", "loop", "endlessly", "carry", "then", "last", "exit", "most", "exchange", "barrier", "draw"),
    *("random", "atomic", "vote", "any", "decompose", "descending", "of", "add", "max", "select", "bits", "i32"),
    *("shape", "inf", "nan", "true", "false"),
)
"""What a text has words for, and what a user may call a local, too."""


@pytest.mark.parametrize(
    "text", [OF_NUMBERS, OF_TRUTHS, OF_LOOPS, OF_ARRAYS], ids=["numbers", "truths", "loops", "arrays"]
)
@pytest.mark.parametrize("word", WORDS)
def test_a_name_may_be_a_word_of_the_text(word, text):
    renamed = re.sub(r"\bq\b", word, text)
    kernel = parse_ir(renamed)
    assert print_ir(kernel) == renamed
    assert repr(kernel) == re.sub(r"\bq\b", word, repr(parse_ir(text)))


REFUSED = {
    "no kernel": ("kernel plain", "plain", "the text of a kernel must begin with `kernel NAME`"),
    "half an expression": ("    a = -0.0\n", "    a = -0.0 +\n", "line 16: the line ends too early: a = -0.0 +"),
    "an undeclared local": ("    a = -0.0\n", "    a = nowhere\n", "line 16: `nowhere` is not declared"),
    "an undeclared array": ("    a = -0.0\n", "    a = nowhere[0]\n", "line 16: `nowhere` is not declared"),
    "an undeclared array that is stored to": (
        "    q[]{1} = 0.5:f64",
        "    r[]{1} = 0.5:f64",
        "line 21: `r` is not declared",
    ),
    "an undeclared array of an atomic": ("atomic add total[]", "atomic add sum[]", "line 41: `sum` is not declared"),
    "the size of an undeclared array": ("x.shape[0]", "w.shape[0]", "line 15: `w` is not declared"),
    "a local array before its declaration": (
        "    array near: f32[8]\n    exchange x[i] = near[3]",
        "    exchange x[i] = near[3]",
        "line 19: `near` is not declared",
    ),
    "an unknown function": ("    a = -0.0\n", "    a = erf(b)\n", "line 16: no operation `erf` has 1 operands"),
    "an unknown function of two": (
        "    a = -0.0\n",
        "    a = nand(b, c)\n",
        "line 16: no operation `nand` has 2 operands",
    ),
    "an unknown operator": ("    a = -0.0\n", "    a = b ** c\n", r"line 16: expected an operand before `\*`"),
    "an unknown sign": ("    a = -0.0\n", "    a = $\n", "line 16: unexpected character '\\$'"),
    "an unknown atomic": (
        "atomic max",
        "atomic nand",
        "line 40: `nand` is none of add, sub, mul, min, max, and, or, xor",
    ),
    "an unknown vote": ("vote any", "vote most", "line 18: `most` is none of"),
    "a vote about a number": ("vote any at", "vote any 3", "line 18: expected the name of a local, not `3`"),
    "an unknown type of a local": ("  locals u1: ok", "  locals u3: ok", "line 12: `u3` is none of f16, f32"),
    "an unknown type of an array": ("array x: f32[1]", "array x: f31[1]", "line 2: `f31` is none of f16, f32"),
    "an unknown type of an argument": ("argument n: i32", "argument n: int", "line 7: `int` is none of f16, f32"),
    "an unknown type of a number": ("0.5:f64", "0.5:f63", "line 21: `f63` is none of f16, f32"),
    "an unknown type of random numbers": ("random f32", "random f31", "line 43: `f31` is none of f16, f32"),
    "a rank that is no number": (
        "array x: f32[1]",
        "array x: f32[n]",
        r"line 2: expected a type and a rank such as `f32\[1\]`, not `f32\[n\]`",
    ),
    "half a declaration": (
        "array x: f32[1]",
        "array x f32[1]",
        "line 2: expected a name, `:` and a type, such as `x: f32`",
    ),
    "sizes of block memory": ("n * 2", "n * m", r"line 13: `m` is not declared"),
    "an unknown statement": (
        "    barrier  @6\n",
        "    return  @6\n",
        "line 17: expected `=` at the end of the line: return",
    ),
    "an unknown statement with a word": (
        "    barrier  @6\n",
        "    goto a  @6\n",
        "line 17: expected `=` before `a`: goto a",
    ),
    "an unknown option": ("may_race", "may_wait", "line 15: `may_wait` is none of block_size, vector_width, may_race"),
    "two expressions": ("    a = -0.0\n", "    a = b b\n", "line 16: expected the end of the line, not `b`"),
    "no `=`": ("    a = -0.0\n", "    a b\n", "line 16: expected `=` before `b`"),
    "no `:`": (
        "    if ok:\n      break",
        "    if ok\n      break",
        "line 34: expected `:` at the end of the line: if ok",
    ),
    "no `..`": ("for k in 0 .. 8", "for k in 0, 8", r"line 23: expected `\.\.` before `,`"),
    "no `]`": ("x[i] = near[3]", "x[i = near[3]", "line 20: expected `]` before `=`"),
    "no `)`": ("    a = -0.0\n", "    a = (b + c\n", r"line 16: expected `\)` at the end of the line"),
    "no `]` of an option": ("[vector_width = 8]", "[vector_width = 8", "line 23: "),
    "an entry that is no number": ("p[i]{2, 1}", "p[i]{2, n}", "line 22: expected an integer, not `n`"),
    "an axis that is no number": ("x.shape[0]", "x.shape[n]", "line 15: expected an integer, not `n`"),
    "a length that is no number": ("near: f32[8]", "near: f32[n]", "line 19: expected an integer, not `n`"),
    "a sign before a local": ("    a = -0.0\n", "    a = -b\n", "line 16: expected a number, not `b`"),
    "another indentation": ("    barrier  @6\n", "      barrier  @6\n", "unexpected indentation"),
    "nothing inside": ("    if ok:\n      break", "    if ok:\n    break", "nothing is inside"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_texts_are_refused(name):
    old, new, words = REFUSED[name]
    assert PLAIN.count(old) >= 1
    with pytest.raises(TextError, match=words):
        parse_ir(PLAIN.replace(old, new, 1))
