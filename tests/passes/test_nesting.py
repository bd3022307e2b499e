"""Branches that nest too deeply: what is flattened computes the same."""

import ast
import random

import pytest

from tinsmith.codegen import print_kernel
from tinsmith.ir import nodes, types
from tinsmith.passes import _nesting, limit_nesting

A, B = (nodes.Local(name, "f64") for name in "ab")
ARRAYS = {name: nodes.Array(name, "f64", 0) for name in "xy"}


def const(value):
    return nodes.Const(float(value), "f64")


def add(name, value):
    return nodes.Assign(name, nodes.Binary("+", nodes.Local(name, "f64"), const(value), "f64"))


class Nest:
    """Random statements that nest: branches with and without `else`, and loops that are left early."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def condition(self):
        return nodes.Binary(self.random.choice("<>"), self.random.choice((A, B)), const(self.random.randrange(8)), "u1")

    def block(self, levels, in_loop=False):
        body = [self.random.choice((add("a", 1), add("b", 2)))]
        if levels:
            body.append(self.nested(levels, in_loop))
            body.append(self.random.choice((add("a", -1), add("b", 1))))
        return tuple(body)

    def nested(self, levels, in_loop):
        kind = self.random.randrange(6)
        # Loops inside loops cannot be flattened.
        if kind == 0 and not in_loop:
            leave = nodes.If(self.condition(), (self.random.choice((nodes.Break(), nodes.Continue())),))
            body = (*self.block(levels - 2, in_loop=True), leave, add("a", 3)) if levels > 1 else (leave,)
            return nodes.For(("k",), ((nodes.Const(0, "i32"), nodes.Const(3, "i32")),), body)
        if kind == 1 and in_loop and levels == 1:
            return nodes.If(self.condition(), (nodes.Break(),))
        orelse = self.block(levels - 1, in_loop) if self.random.random() < 0.6 else ()
        return nodes.If(self.condition(), self.block(levels - 1, in_loop), orelse)


def make_kernel(seed, levels):
    load = nodes.Load("x", (), (), "f64")
    body = (nodes.Assign("a", load), nodes.Assign("b", const(1)), *Nest(seed).block(levels))
    total = nodes.Binary("+", A, nodes.Binary("*", const(100), B, "f64"), "f64")
    return nodes.Kernel("one", "", ARRAYS, {}, {"a": "f64", "b": "f64"}, (*body, nodes.Store("y", (), (), total)))


def run(text, value):
    class Lang:
        f64 = f32 = float
        i32 = int
        u1 = bool

        @staticmethod
        def loop_config(**_options):
            pass

    space = {"_lang": Lang}
    exec(text, space)
    y = {}
    space["one"]({None: value}, y)
    return y[None]


def write(kernel):
    return ast.unparse(print_kernel(kernel, {"x": "object", "y": "object"}, types.Defaults()))


def count_levels(text):
    return max((len(line) - len(line.lstrip())) // 4 for line in text.splitlines())


@pytest.mark.parametrize("seed", range(20))
def test_splitting_deep_expressions_keeps_values(monkeypatch, seed):
    kernel = make_kernel(seed, 7)
    before = write(kernel)
    monkeypatch.setattr(_nesting, "MOST_LEVELS", 4)
    after = write(limit_nesting(kernel))
    # A block in a function is one level in.
    assert count_levels(after) <= 5 < count_levels(before)
    for value in range(-3, 12):
        assert run(after, float(value)) == run(before, float(value))


def test_python_reads_what_nests_too_deeply():
    body = (add("a", 1),)
    for level in range(150):
        body = (add("b", 1), nodes.If(nodes.Binary(">", A, const(-level), "u1"), body, (add("b", 5),)), add("a", 2))
    load = nodes.Load("x", (), (), "f64")
    store = nodes.Store("y", (), (), nodes.Binary("+", A, B, "f64"))
    kernel = nodes.Kernel(
        "one",
        "",
        ARRAYS,
        {},
        {"a": "f64", "b": "f64"},
        (nodes.Assign("a", load), nodes.Assign("b", const(0)), *body, store),
    )
    with pytest.raises(IndentationError):
        run(write(kernel), 1.0)
    # All branches run: 150 times 1 and 2, and what is innermost.
    assert run(write(limit_nesting(kernel)), 1.0) == 1 + 1 + 150 + 300


def test_kernels_without_deep_nesting_are_unchanged():
    kernel = make_kernel(1, 7)
    assert limit_nesting(kernel) is kernel
