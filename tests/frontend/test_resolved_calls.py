"""Names of the engine's functions as people give them: imported under another name, held by a class or a closure.

Each kernel is the same as one with the plain names, as an op (values, both gradients, vmap) and under lint.
"""

import builtins
import types

import pytest
import torch

import tinsmith as ts
from tinsmith.engines import of_kernel
from tinsmith.frontend import prints, read
from tinsmith.linter import lint_file

F64 = torch.float64


def unrolled(lang):
    unroll, each = lang.static, lang.grouped

    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for place in each(x):
            p = x[place]
            for _ in unroll(range(3)):
                p = p * x[place]
            y[place] = p

    return kernel, lambda x: x**4


def atomic(lang):
    space = types.SimpleNamespace(add_to=lang.atomic_add, over=lang.ndrange)

    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i, j in space.over(x.shape[0], 2):
            space.add_to(y[i], x[i] * x[i] * (j + 1))

    return kernel, lambda x: 3 * x * x


def a_function_of_ones_own(lang):
    """Build a kernel with a user's function that is named like an engine function that changes memory."""

    @lang.func
    def atomic_add(a, b):
        return a * b

    @lang.func
    def grouped(a):
        return a + 1.0

    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] = atomic_add(x[i], grouped(x[i]))

    return kernel, lambda x: x * (x + 1)


def lent(lang):
    by_reference = lang.template

    @lang.func
    def change(total: by_reference(), v):
        total += v * v

    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            change(y[i], x[i])

    return kernel, lambda x: x * x


def typed(lang):
    pair, real = lang.types.vector(2, lang.f64), lang.f64

    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            v = pair(x[i], real(2.0))
            y[i] = v.dot(v)

    return kernel, lambda x: x * x + 4


@pytest.mark.thinned(4)
@pytest.mark.parametrize("adjoint", ["auto", "engine"])
@pytest.mark.parametrize("program", [unrolled, atomic, a_function_of_ones_own, lent, typed])
def test_functions_under_other_names_are_recognized(lang, program, adjoint):
    kernel, reference = program(lang)
    op = ts.op("x[n] -> y[n]", adjoint=adjoint)(kernel)
    x = torch.rand(5, dtype=F64, requires_grad=True)
    expected = reference(x)
    weights = torch.rand(5, dtype=F64)
    torch.testing.assert_close(op(x), expected)
    ours, theirs = (torch.autograd.grad((weights * y).sum(), x)[0] for y in (op(x), reference(x)))
    torch.testing.assert_close(ours, theirs)
    batch = torch.rand(3, 5, dtype=F64)
    torch.testing.assert_close(torch.func.vmap(op)(batch), reference(batch))


def a_print_of_ones_own(lang):
    @lang.func
    def print(a):  # noqa: A001 - what the test is about
        return a * a

    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] = print(x[i])

    return kernel


def a_print_under_another_name(lang):
    say = print

    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            say(x[i])
            y[i] = x[i]

    return kernel


def a_print_of_a_module(lang):
    @lang.func
    def show(a):
        builtins.print(a)  # noqa: T201 - what the test is about

    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            show(x[i])
            y[i] = x[i]

    return kernel


@pytest.mark.parametrize(
    ("program", "expected"),
    [(a_print_of_ones_own, False), (a_print_under_another_name, True), (a_print_of_a_module, True)],
)
def test_a_kernel_prints_that_calls_what_python_prints_with(lang, program, expected):
    kernel = program(lang)
    engine = of_kernel(kernel)
    assert prints(read(engine.function_of(kernel)), engine) is expected


@pytest.fixture
def handed_on(lang):
    setting = lang.loop_config

    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        setting(serialize=True)
        for i in range(1, x.shape[0]):
            y[i] = y[i - 1] * 0.5 + x[i] * x[i]

    return kernel


def test_a_serial_loop_under_another_name_is_one(handed_on):
    """The engine's reverse mode gave wrong gradients here: nobody saw that the loop runs in order."""
    x = torch.rand(6, dtype=F64, requires_grad=True)
    total, expected = torch.zeros((), dtype=F64), []
    for i in range(6):
        total = total * 0.5 + x[i] ** 2 * (i > 0)
        expected.append(total)
    y = ts.op("x[n] -> y[n]")(handed_on)(x)
    torch.testing.assert_close(y, torch.stack(expected))
    ours, theirs = (torch.autograd.grad(one.sum(), x, retain_graph=True)[0] for one in (y, torch.stack(expected)))
    torch.testing.assert_close(ours, theirs)
    by_engine = ts.op("x[n] -> y[n]", adjoint="engine")(handed_on)
    with pytest.raises(ts.GradientError, match="cannot reverse the loop"):
        by_engine(x).sum().backward()


PLAIN = """import taichi as ti

@ti.kernel
def sums(x: ti.types.ndarray(), y: ti.types.ndarray()):
    ti.loop_config(serialize=True)
    for i in range(1, x.shape[0]):
        y[i] = x[i] + y[i - 1]
        for k in ti.static(range(3)):
            ti.atomic_add(y[i], ti.sqrt(x[i]))
"""
WAYS = {
    "imported": "from taichi import static as st, loop_config as lc, atomic_add as aa, sqrt as root\n",
    "assigned": "st = ti.static\nlc = ti.loop_config\naa = ti.atomic_add\nroot = ti.sqrt\n",
}
SHORT = {"ti.static": "st", "ti.loop_config": "lc", "ti.atomic_add": "aa", "ti.sqrt": "root"}


def rules(text):
    return sorted(finding.rule for finding in lint_file("sums.py", text))


@pytest.mark.parametrize("way", WAYS)
def test_lint_of_a_file_sees_through_other_names(way):
    text = PLAIN
    for long, short in SHORT.items():
        text = text.replace(long, short)
    text = text.replace("import taichi as ti\n", "import taichi as ti\n" + WAYS[way])
    assert rules(PLAIN)
    assert rules(text) == rules(PLAIN)


LENT = """import taichi as ti
T = ti.template

@ti.func
def change(total: T(), v):
    total = v

@ti.kernel
def sums(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in range(1, x.shape[0]):
        change(y[i], y[i - 1] + x[i])
"""


def test_lint_of_a_file_sees_elements_passed_by_reference():
    plain = LENT.replace("T()", "ti.template()")
    assert "TS106" in rules(plain)
    assert rules(LENT) == rules(plain)


def test_lint_of_a_file_sees_through_a_class():
    text = PLAIN.replace("import taichi as ti\n", "import taichi as ti\n\nclass space:\n    aa = ti.atomic_add\n")
    assert rules(text.replace("ti.atomic_add(y", "space.aa(y")) == rules(PLAIN)
