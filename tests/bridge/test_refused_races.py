"""A parallel loop in which iterations certainly race is refused; where that is allowed, it has no gradient."""

import re

import pytest
import torch

import tinsmith as ts
from support.written import compile_text

RACES = {  # the loop, and the accesses that the refusal names
    "guarded sum": ("for i in range(x.shape[0]):\n        if i > 0:\n            y[i] += 0.5 * y[i - 1]", "y[i - 1]"),
    "guarded store": ("for i in x:\n        if i > 0:\n            y[i] = y[i - 1] + x[i]", "y[i - 1]"),
    "a bound": ("for i in range(1, x.shape[0]):\n        y[i] += y[i - 1] * x[i]", "y[i - 1]"),
    "from above": ("for i in x:\n        if i < x.shape[0] - 1:\n            y[i] += y[i + 1] * x[i]", "y[i + 1]"),
    "not the first": ("for i in x:\n        if i != 0:\n            y[i] = y[i - 1] * x[i]", "y[i - 1]"),
    "else": (
        "for i in x:\n        if i == 0:\n            y[i] = x[i]\n        else:\n            y[i] += y[i - 1]",
        "y[i - 1]",
    ),
    "a loop inside": (
        "for i in x:\n        for _ in range(3):\n            if i > 0:\n                y[i] += y[i - 1]",
        "y[i - 1]",
    ),
}
APART = {  # what may be in order: an adjoint is generated, as before
    "even and odd": "for i in x:\n        if i > 0 and i % 2 == 1:\n            y[i] = y[i - 1] * x[i]",
    "strides": "for i in range(x.shape[0] // 2):\n        y[2 * i + 1] = y[2 * i] * x[i]",
    "one half from the other": "for i in x:\n        if i < k:\n            y[i + k] = y[i] * x[i]",
    "one element": "for i in x:\n        if i == 3:\n            y[i] = y[i - 1] * x[i]",
}


def make_kernel(lang, loop):
    return compile_text(
        lang,
        f"""
def kernel(x: lang.types.ndarray(ndim=1), k: lang.i32, y: lang.types.ndarray(ndim=1)):
    for i in x:
        y[i] = x[i] * x[i]
    {loop}
""",
    )


@pytest.mark.parametrize("adjoint", ["auto", "source"])
@pytest.mark.parametrize("form", RACES)
def test_a_race_is_refused(lang64, form, adjoint):
    loop, read = RACES[form]
    with pytest.raises(ts.KernelError) as forbidden:
        ts.op("x[n] -> y[n]", adjoint=adjoint)(make_kernel(lang64, loop))
    words = str(forbidden.value)
    assert words.startswith("op `kernel` has a data race\n")
    assert "`y[i]` in line " in words
    assert re.search(rf"\n  read +`{re.escape(read)}` in line \d+, by another iteration", words)
    assert "`lang.loop_config(serialize=True)`" in words
    assert "`lang.atomic_max(y[i], ...)`" in words
    assert "`unique k[n]`" in words
    op = ts.op("x[n] -> y[n]", adjoint=adjoint, races="allow")(make_kernel(lang64, loop))
    with pytest.raises(ts.GradientError) as refused:
        op(torch.rand(8, dtype=torch.float64).requires_grad_(), 1).sum().backward()
    words = str(refused.value)
    assert "no gradient: its result depends on the order of the iterations of a parallel loop" in words
    assert "an iteration changes  `y[i]`, in line " in words
    assert f"another one reads     `{read}`, in line " in words
    assert "`lang.loop_config(serialize=True)`" in words
    assert "`for _ in range(1):`" in words
    assert "`kernel`" in words.partition("\n")[0]


@pytest.mark.parametrize(("first", "second"), [("i_2", "i_2"), ("j", "i_2"), ("i", "i")])
def test_a_race_is_named_as_in_the_source(lang64, first, second):
    kernel = compile_text(
        lang64,
        f"""
def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
    for {first} in x:
        y[{first}] = x[{first}] * x[{first}]
    for {second} in x:
        if {second} > 0:
            y[{second}] += 0.5 * y[{second} - 1]
""",
    )
    with pytest.raises(ts.GradientError) as refused:
        ts.op("x[n] -> y[n]", races="allow")(kernel)(torch.rand(8, dtype=torch.float64).requires_grad_())
    assert f"an iteration changes  `y[{second}]`, in line " in str(refused.value)
    assert f"another one reads     `y[{second} - 1]`, in line " in str(refused.value)


def test_a_race_in_two_dimensions_is_refused(lang64):
    @ts.op("x[n, m] -> y[n, m]", races="allow")
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i, j in lang64.ndrange(x.shape[0], x.shape[1]):
            y[i, j] += x[i, j]
            if i > 0 and j > 0:
                y[i, j] += x[i, j] * y[i - 1, j - 1]

    with pytest.raises(
        ts.GradientError, match=r"(?s)an iteration changes  `y\[i, j\]`,.*another one reads     `y\[i - 1, j - 1\]`"
    ):
        kernel(torch.rand(4, 4, dtype=torch.float64).requires_grad_()).sum().backward()


@pytest.mark.compiled_engine
def test_the_engines_gradient_may_be_requested(lang64):
    op = ts.op("x[n] -> y[n]", adjoint="engine", races="allow")(make_kernel(lang64, RACES["guarded sum"][0]))
    x = torch.rand(8, dtype=torch.float64).requires_grad_()
    op(x, 1).sum().backward()
    assert x.grad is not None  # its value depends on the order of the iterations


def test_a_race_in_a_function_is_refused(lang64):
    @lang64.func
    def step(y: lang64.template(), i: lang64.i32):
        y[i] += 0.5 * y[i - 1]

    @ts.op("x[n] -> y[n]", races="allow")
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i]
        for i in range(1, x.shape[0]):
            step(y, i)

    with pytest.raises(
        ts.GradientError, match=r"(?s)an iteration changes  `y\[i\]`,.*another one reads     `y\[i - 1\]`"
    ):
        kernel(torch.rand(8, dtype=torch.float64).requires_grad_()).sum().backward()


def test_allowed_races_run_without_a_gradient(lang64):
    op = ts.op("x[n] -> y[n]", races="allow")(make_kernel(lang64, RACES["guarded sum"][0]))
    assert op(torch.rand(8, dtype=torch.float64), 1).shape == (8,)


@pytest.mark.parametrize("form", RACES)
def test_a_serialized_loop_has_a_gradient(lang64, form):
    op = ts.op("x[n] -> y[n]", adjoint="source")(
        make_kernel(lang64, f"lang.loop_config(serialize=True)\n    {RACES[form][0]}")
    )
    x = torch.rand(6, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: op(x, 1), x)


SHARED = {  # all iterations, or all rows, read one element and then store to it
    "a sum": ("for i in x:\n        y[0] = y[0] + x[i]", "y[0]"),
    "a maximum": ("for i in range(x.shape[0]):\n        y[2] = ti.max(y[2], x[i])", "y[2]"),
    "sums of columns": ("for i, j in lang.ndrange(x.shape[0], x.shape[0]):\n        y[j] = y[j] + x[i]", "y[j]"),
    "guarded": ("for i in x:\n        if i > 0:\n            y[0] = y[0] * x[i]", "y[0]"),
}


@pytest.mark.parametrize("form", SHARED)
def test_an_update_that_iterations_share_is_refused(lang64, form):
    loop, place = SHARED[form]
    kernel = make_kernel(lang64, loop.replace("ti.", "lang."))
    with pytest.raises(ts.KernelError, match="has a data race"):
        ts.op("x[n] -> y[n]")(kernel)
    op = ts.op("x[n] -> y[n]", races="allow")(kernel)
    with pytest.raises(ts.GradientError) as refused:
        op(torch.rand(8, dtype=torch.float64).requires_grad_(), 1).sum().backward()
    words = str(refused.value)
    assert f"an iteration changes  `{place}`, in line " in words
    assert f"another one reads     `{place}`, in line " in words
    assert f"write `{place} += ...`" in words


UNSHARED = {
    "one iteration": "for _ in range(1):\n        y[0] = y[0] + x[0]",
    "atomic": "for i in x:\n        y[0] += x[i]",
    "each its own": "for i, j in lang.ndrange(x.shape[0], 1):\n        y[i] = y[i] + x[i] * (j + 1)",
}


@pytest.mark.parametrize("form", UNSHARED)
def test_an_update_that_is_not_shared_has_a_gradient(lang64, form):
    op = ts.op("x[n] -> y[n]")(make_kernel(lang64, UNSHARED[form]))
    op(torch.rand(8, dtype=torch.float64).requires_grad_(), 1).sum().backward()


@pytest.mark.parametrize("form", APART)
def test_accesses_that_may_be_disjoint_are_not_refused(lang64, form):
    op = ts.op("x[n] -> y[n]")(make_kernel(lang64, APART[form]))
    x = torch.rand(8, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: op(x, 4), x)


@pytest.mark.parametrize("adjoint", ["auto", "source"])
def test_explain_names_the_race_as_the_reason_without_a_gradient(lang64, adjoint):
    """Not the engine's, which no call takes."""
    op = ts.op("x[n] -> y[n]", adjoint=adjoint, races="allow")(make_kernel(lang64, RACES["guarded sum"][0]))
    with pytest.raises(ts.GradientError):
        op(torch.rand(8, dtype=torch.float64).requires_grad_(), 1).sum().backward()
    asked = op.explain("all").partition("  for x\n")[2].splitlines()
    assert asked[0].startswith(
        "    not generated: `y[i - 1]`, which another iteration of the parallel loop changes, at "
    )
    assert asked[1] == "    refused: its result depends on the order of the iterations of a parallel loop"
    assert "instead:" not in op.explain("all")
    result = ts.gradcheck(op, torch.rand(8, dtype=torch.float64), 1)
    assert result.verdict == "refused"
    assert result.origin == "which is not generated, since iterations of a parallel loop race"
    (finding,) = [one for one in result.findings if one.rule == "TS703"]
    assert "`kernel` has no gradient: its result depends on the order" in finding.message
    assert "engine" not in str(result).partition("\n")[0]


@pytest.mark.compiled_engine
def test_another_refusal_still_names_the_engine(lang64):
    op = ts.op("x[n] -> y[n]", adjoint="engine", races="allow")(make_kernel(lang64, RACES["guarded sum"][0]))
    assert ts.gradcheck(op, torch.rand(8, dtype=torch.float64), 1).origin == "by the engine's own reverse mode"
