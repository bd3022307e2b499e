"""TS101 counts only values that the gradient needs, and elements that may be the overwritten ones."""

import textwrap

import pytest
import torch

import tinsmith as ts
from tinsmith.linter import lint_file


def find_overwritten(text):
    return [one.line for one in lint_file("k.py", textwrap.dedent(text)) if one.rule == "TS101"]


IGNORED = """
    import quadrants as ti

    @ti.func
    def move(pos, normal):
        return 2.0 * pos{use}

    @ti.kernel
    def step(x: ti.types.ndarray(), z: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in y:
            y[i] = move(x[i], z[i])
            z[i] = x[i]
"""


@pytest.mark.parametrize(("use", "lines"), [("", []), (" * normal", [12])])
def test_an_argument_that_a_function_ignores(use, lines):
    assert find_overwritten(IGNORED.format(use=use)) == lines


def test_engines_agree_that_an_ignored_argument_is_not_needed(lang64):
    x, y, z = (lang64.field(lang64.f64, 3, needs_grad=True) for _ in range(3))

    @lang64.func
    def move(pos, normal):
        return pos * pos

    @lang64.kernel
    def step():
        for i in x:
            y[i] = move(x[i], z[i])
            z[i] = 3.0 * x[i]

    layer = ts.EmptyTin(adjoint="engine").register_input_field(x).register_output_field(y)
    layer.register_internal_field(z, clear=False).register_kernel(step).finish()
    given = torch.rand(3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(given).sum(), given)
    torch.testing.assert_close(gradient, 2 * given)
    assert not any(one.rule == "TS101" for one in ts.lint(layer))


APPENDED = """
    import quadrants as ti

    @ti.func
    def change(b: ti.template()):
        b += 1

    @ti.data_oriented
    class Tree:
        def __init__(self):
            self.place = ti.field(ti.f64, (9, 4))
            self.size = ti.field(ti.i32, 4)
            self.x = ti.field(ti.f64, 4)

        @ti.kernel
        def grow(self):
            for b_ in self.x:
                b = b_ + 0
                nearest = {start}
                least = 1e30
                for i in range({bound}):
                    d = (self.place[i, b] - self.x[b]) ** 2
                    if d < least:
                        least = d
                        nearest = i
                {before}
                self.place[self.size[b], b] = self.place[nearest, b] ** 2 + self.x[b]
                self.size[b] += 1
                change(b)
"""
ROWS = {
    "a new element": ({}, False),
    "more elements": ({"bound": "self.size[b] + 1"}, True),
    "an element that may be there": ({"start": "3"}, True),
    "another size": ({"before": "self.size[b] -= 1"}, True),
    "another local": ({"before": "b = 0"}, True),
    "a local that a function may change": ({"before": "change(b)"}, True),
}


@pytest.mark.parametrize("row", ROWS)
def test_an_element_after_all_that_were_read(row):
    changes, has_finding = ROWS[row]
    parts = {"start": "-1", "bound": "self.size[b]", "before": "pass"} | changes
    assert bool(find_overwritten(APPENDED.format(**parts))) == has_finding
