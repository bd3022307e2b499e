"""Arrays whose elements are not written after they were read: their reverse keeps nothing."""

import random

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.ir import nodes
from tinsmith.passes.adjoint._dependences import never_overwritten_after_read, never_written_where_read
from tinsmith.passes.adjoint._ssa import number_steps

FORMS = {  # what the loop does, and whether nothing is overwritten after it was read
    "forward in time": ("x[t + 1, i] = lang.sin(x[t, i]) * a[i]", True),
    "two steps back": ("x[t + 2, i] = lang.sin(x[t, i]) * x[t + 1, i]", True),
    "neighbors": ("x[t + 1, i] = lang.sin(x[t, i]) * x[t, (i + 1) % n] * a[i]", True),
    "what was just written": ("x[t + 1, i] = x[t, i] * a[i]; x[t + 2, i] = lang.sin(x[t + 1, i])", True),
    "in place": ("x[t, i] = lang.sin(x[t, i]) + a[i]", False),
    "backwards": ("x[t, i] = lang.sin(x[t + 1, i]) + a[i]", False),
    "two columns": ("x[t + 1, 2 * i % n] = lang.sin(x[t, i])", True),
    "always the same row": ("x[0, i] = lang.sin(x[0, i]) + a[i]", False),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients(lang64, form):
    line, never = FORMS[form]
    source = f"""
def kernel(a: lang.types.ndarray(), x: lang.types.ndarray()):
    n = a.shape[0]
    for i in a:
        x[0, i] = a[i]
        x[1, i] = a[i] * a[i]
    lang.loop_config(serialize=True)
    for t in range(x.shape[0] - 2):
        for i in range(n):
            {line}
"""
    kernel = compile_text(lang64, source)
    op = ts.op("a[n] -> x[t, n]", adjoint="source")(kernel)
    a = torch.rand(4, dtype=torch.float64).requires_grad_()
    x = op(a, t=7)
    c = torch.rand(7, 4, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(x, a, c)
    answer = ts.oracle(op, a, cotangents=c, t=7)
    torch.testing.assert_close(x.detach(), answer.outputs["x"])
    torch.testing.assert_close(gradient, answer.gradients["a"])
    assert ("log: `x`" not in op.explain("all")) == never


def test_a_recursion_along_rows(lang64):
    """Each thread its own row; the element before is final when it is read."""

    @ts.op("x[n, m], a[] -> y[n, m]", adjoint="source")
    @lang64.kernel
    def recursion(x: lang64.types.ndarray(), a: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(x.shape[0]):
            y[i, 0] = x[i, 0]
            for j in range(1, x.shape[1]):
                y[i, j] = lang64.tanh(a[None] * y[i, j - 1] + x[i, j])

    x, a = (
        torch.rand(3, 6, dtype=torch.float64).requires_grad_(),
        torch.tensor(0.7, dtype=torch.float64).requires_grad_(),
    )
    assert torch.autograd.gradcheck(recursion, (x, a))
    assert torch.autograd.gradgradcheck(recursion, (x, a))
    assert "tape: none" in recursion.explain("all")


def drawn_index(dice, names):
    """Draw a sum of loop variables whose factors are mostly 0 or 1."""
    index = nodes.Const(dice.randint(0, 2), "i32")
    for name in names:
        factor = nodes.Const(dice.choice([0, 1, 1, 1, -1, 2]), "i32")
        index = nodes.Binary("+", index, nodes.Binary("*", factor, nodes.Local(name, "i32"), "i32"), "i32")
    return index


def drawn_steps(dice, names=(), count=3):
    statements = []
    for _ in range(dice.randint(1, count)):
        index = (drawn_index(dice, names), drawn_index(dice, names))
        match dice.choice(["load", "store", "loop"] if len(names) < 3 else ["load", "store"]):
            case "load":
                statements.append(nodes.Assign("v", nodes.Load("x", index, (), "f32")))
            case "store":
                statements.append(nodes.Store("x", index, (), nodes.Const(0.0, "f32")))
            case "loop":
                mine = tuple(f"i{len(names) + at}_{dice.random()}" for at in range(dice.randint(1, 2)))
                bounds = ((nodes.Const(0, "i32"), nodes.Const(3, "i32")),) * len(mine)
                statements.append(nodes.Loop(mine, bounds, drawn_steps(dice, (*names, *mine), count)))
    return tuple(statements)


def accesses(steps, held):
    """List the loads and stores of a run in order, with their elements."""
    for step in steps:
        match step:
            case nodes.Loop(names=(first, *rest)):
                inner = step.body if not rest else (nodes.Loop(tuple(rest), step.bounds[1:], step.body),)
                for value in range(3):
                    yield from accesses(inner, held | {first: value})
            case nodes.Assign():
                yield "load", tuple(number(one, held) for one in step.value.index)
            case nodes.Store():
                yield "store", tuple(number(one, held) for one in step.index)


def number(expr, held):
    match expr:
        case nodes.Const(value):
            return value
        case nodes.Local(name):
            return held[name]
        case nodes.Binary(operator, left, right):
            one, two = number(left, held), number(right, held)
            return one + two if operator == "+" else one * two


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", range(20))
def test_random_loops_run_one_by_one(seed):
    """What is said never to happen does not; and it is said of many."""
    dice, never, apart = random.Random(seed), 0, 0
    for _ in range(200):
        steps = number_steps(drawn_steps(dice), iter(range(1, 1000)))
        run = list(accesses(steps, {}))
        stored = {element for kind, element in run if kind == "store"}
        loaded = {element for kind, element in run if kind == "load"}
        if not stored or not loaded:
            continue
        if never_written_where_read(steps, {"x"}):
            apart += 1
            assert not stored & loaded, steps
        if never_overwritten_after_read(steps, {"x"}):
            never += 1
            read = set()
            for kind, element in run:
                assert kind == "load" or element not in read, steps
                read |= {element} if kind == "load" else set()
    assert never > apart > 0
