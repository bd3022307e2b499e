"""What a loop hands on: sums have one adjoint, products are run backwards where that is safe, guards stay guards."""

import textwrap

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.operation.reports import adjoint_source

CHAINS = {  # an iteration over x[i, j], and whether what it hands on goes on a tape
    "clamped, and stops": (
        "a = lang.min(0.9, abs(x[i, j])); s += t * a; t = t * (1.0 - a)",
        "t < 0.01",
        False,
    ),
    "stops before it hands on": (
        """
            a = lang.min(0.9, abs(x[i, j]))
            n = t * (1.0 - a)
            if n < 0.01:
                break
            s += t * a
            t = n
            """,
        "x[i, j] > 50.0",
        False,
    ),
    "under a threshold": (
        """
            a = lang.min(0.9, x[i, j])
            if a > 0.1:
                s += t * a
                t *= 1.0 - a
            """,
        "t < 0.01",
        False,
    ),
    "in two branches": (
        """
            a = lang.min(0.9, abs(x[i, j]))
            s += t * a
            if x[i, j] > 0.0:
                t *= 1.0 - a
            else:
                t *= 1.0 - 0.5 * a
            """,
        "t < 0.01",
        False,
    ),
    "two factors": (
        "a = lang.min(0.5, abs(x[i, j])); s += t * a; t = (1.0 - a) * t * (1.0 - 0.5 * a)",
        "t < 0.01",
        False,
    ),
    "a quotient": (
        "a = lang.min(0.5, abs(x[i, j])); s += t * a; t = t / (1.0 + a)",
        "t < 0.01",
        False,
    ),
    "not clamped": (
        "a = abs(x[i, j]); s += t * a; t = t * (1.0 - a)",
        "t < 0.01",
        True,
    ),
    "clamped to all": (
        "a = lang.min(1.0, abs(x[i, j])); s += t * a; t = t * (1.0 - a)",
        "t < 0.01",
        True,
    ),
    "may grow": (
        "a = lang.min(0.9, x[i, j]); s += t * a; t = t * (1.0 - a)",
        "t < 0.01",
        True,
    ),
    "never stops": (
        "a = lang.min(0.9, abs(x[i, j])); s += t * a; t = t * (1.0 - a)",
        "x[i, j] > 50.0",
        True,
    ),
    "stops elsewhere": (
        "a = lang.min(0.9, abs(x[i, j])); s += t * a; t = t * (1.0 - a)",
        "t < 0.01 and x[i, j] > 50.0",
        True,
    ),
    "a factor of what it hands on": (
        "a = lang.min(0.9, abs(x[i, j]) * t); s += t * a; t = t * (1.0 - a)",
        "t < 0.01",
        True,
    ),
    "a branch on what it hands on": (
        """
            a = lang.min(0.9, abs(x[i, j]))
            s += t * a
            if t > 0.5:
                t *= 1.0 - a
            """,
        "t < 0.01",
        True,
    ),
    "begun anew": (
        """
            a = lang.min(0.9, abs(x[i, j]))
            s += t * a
            t *= 1.0 - a
            if x[i, j] > 0.7:
                t = 1.0
            """,
        "t < 0.01",
        True,
    ),
    "a difference": (
        "s += t * t * x[i, j]; t = t - 0.1 * x[i, j]",
        "t < 0.01",
        True,
    ),
}


def chain(lang, form, start="1.0"):
    step, stop, is_taped = CHAINS[form]
    kernel = compile_text(
        lang,
        f"""
def kernel(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1), z: lang.types.ndarray(ndim=1)):
    for i in range(x.shape[0]):
        s = 0.0
        t = {start}
        for j in range(x.shape[1]):
            {textwrap.indent(textwrap.dedent(step).strip(), " " * 12).strip()}
            if {stop}:
                break
        y[i] = s
        z[i] = t
""",
    )
    return ts.op("x[n, m] -> y[n], z[n]", adjoint="source")(kernel), is_taped


@pytest.mark.thinned(4)
@pytest.mark.parametrize("form", CHAINS)
def test_a_chain(lang64, form):
    op, is_taped = chain(lang64, form)
    torch.manual_seed(0)
    x = torch.rand(6, 9, dtype=torch.float64) * 1.4 - 0.4
    c = [torch.rand(6, dtype=torch.float64) for _ in range(2)]
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(op(leaf), leaf, c)
    torch.testing.assert_close(gradient, ts.oracle(op, x, cotangents=c).gradients["x"], rtol=1e-11, atol=1e-12)
    assert ("tape_f" in adjoint_source(op)) == is_taped, adjoint_source(op)
    assert ("invert: `t`" in op.explain("all")) == (not is_taped)


def test_a_chain_from_memory_may_begin_anywhere(lang64):
    op, _ = chain(lang64, "clamped, and stops", start="x[i, 0]")
    assert op(torch.rand(3, 4, dtype=torch.float64).requires_grad_())[0].shape == (3,)
    assert "tape_f" in adjoint_source(op)


def test_a_while_whose_condition_reads_a_carried_local(lang64):
    @ts.op("x[n, m] -> y[n]", adjoint="source")
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(ndim=2), y: lang64.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 0.0
            t = 1.0
            j = 0
            while j < x.shape[1] and t > 0.05:
                a = lang64.min(0.8, abs(x[i, j]))
                s += lang64.sin(t * a)
                t = (1.0 - a) * t
                j += 1
            y[i] = s

    x = torch.rand(6, 9, dtype=torch.float64).requires_grad_()
    c = torch.rand(6, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(kernel(x), x, c)
    torch.testing.assert_close(
        gradient, ts.oracle(kernel, x.detach(), cotangents=c).gradients["x"], rtol=1e-11, atol=1e-12
    )
    assert "tape_f" not in adjoint_source(kernel), adjoint_source(kernel)


def test_second_derivatives_of_a_chain_that_is_run_backwards(lang64):
    op, _ = chain(lang64, "under a threshold")
    x = (torch.rand(2, 4, dtype=torch.float64) * 0.5 + 0.2).requires_grad_()
    assert torch.autograd.gradcheck(op, (x,))
    assert torch.autograd.gradgradcheck(op, (x,))


# Guards -------------------------------------------------------------------------------------------

GUARDED = {  # an iteration over j, and the number of additions to memory outside of any branch of its reverse
    "one threshold": (
        """
            v = x[j] * x[j + 1]
            if v > 0.3:
                s += v * v
            """,
        0,
    ),
    "a threshold in a threshold": (
        """
            v = x[j] * x[j + 1]
            if v > 0.1:
                u = v * x[j + 2]
                if u > 0.2:
                    s += u * u
            """,
        0,
    ),
    "otherwise": (
        """
            v = x[j] * x[j + 1]
            if v > 0.3:
                s += 1.0
            else:
                s += v * v
            """,
        0,
    ),
    "both arms": (
        """
            v = x[j] * x[j + 1]
            if v > 0.3:
                s += v
            else:
                s += v * v
            """,
        2,
    ),
    "used outside too": (
        """
            v = x[j] * x[j + 1]
            if v > 0.3:
                s += v * v
            s += 0.5 * v
            """,
        2,
    ),
    "two thresholds": (
        """
            v = x[j] * x[j + 1]
            w = lang.sin(x[j + 2])
            if v > 0.3:
                s += v * v
            if w > 0.2:
                s += w
            """,
        0,
    ),
    "a sum in both arms": (
        """
            if x[j] > 0.5:
                s += x[j + 1]
            else:
                s -= x[j + 2]
            """,
        0,
    ),
    "a sum that is asked": (
        """
            v = x[j] * x[j + 1]
            if s < 1.0:
                s += v * v
            """,
        0,
    ),
}


@pytest.mark.parametrize("form", GUARDED)
def test_guards_stay_guards_in_the_adjoint(lang64, form):
    step, count = GUARDED[form]
    kernel = compile_text(
        lang64,
        f"""
def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
    for i in range(2):
        s = 0.0
        for j in range(x.shape[0] - 2):
            {textwrap.indent(textwrap.dedent(step).strip(), " " * 12).strip()}
        y[i] = s * (i + 1)
""",
    )
    op = ts.op("x[n] -> y[2]", adjoint="source")(kernel)
    torch.manual_seed(1)
    x = torch.rand(12, dtype=torch.float64)
    c = torch.rand(2, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(op(leaf), leaf, c)
    torch.testing.assert_close(gradient, ts.oracle(op, x, cotangents=c).gradients["x"])
    assert unguarded_additions(adjoint_source(op)) == count, adjoint_source(op)


def unguarded_additions(source: str) -> int:
    """Count how many atomic additions stand in the body of the loop over j itself."""
    lines = [line for line in source.splitlines() if "atomic_add" in line]
    indents = [len(line) - len(line.lstrip()) for line in source.splitlines() if line.lstrip().startswith("for ")]
    return sum(len(line) - len(line.lstrip()) == max(indents) + 4 for line in lines)


def test_a_branch_that_is_not_taken_adds_nothing(lang64):
    @ts.op("x[n], k[n]: i32 -> y[n]", adjoint="source")
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), k: lang64.types.ndarray(lang64.i32), y: lang64.types.ndarray()):
        for i in x:
            v = lang64.sqrt(x[k[i]])
            if v > 0.0:
                y[i] = v

    x = torch.tensor([0.0, 4.0], dtype=torch.float64).requires_grad_()
    k = torch.tensor([0, 1], dtype=torch.int32)
    (gradient,) = torch.autograd.grad(kernel(x, k).sum(), x)
    assert gradient.tolist() == [0.0, 0.25]
