"""Kernels whose inner loops work out exponentials ahead, in strips: the values and gradients of float64, at any length.

Lengths are 0 and 1, those around 8, below which a loop stays whole, and those around 64, where a strip ends.
"""

# pyright: reportInvalidTypeForm=false

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.engines import get

LENGTHS = (0, 1, 7, 8, 64, 65, 200)


def along_rays(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for r in range(x.shape[0]):
            t = 1.0
            for s in range(x.shape[1]):
                e = lang.exp(-x[r, s] * w[r, s])
                y[r] += t * (1.0 - e) * w[r, s]
                t *= e

    def twin(x, w):
        e = torch.exp(-x * w)
        t = torch.cat([torch.ones_like(e[:, :1]), e[:, :-1]], 1).cumprod(1)
        return (t * (1 - e) * w).sum(1)

    return kernel, twin


def two_loops_deep(lang):
    """Build a kernel with two nested function calls, in a loop from 1 below a loop that changes nothing."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for r in range(x.shape[0]):
            total = 0.0
            for k in range(2):
                for s in range(1, x.shape[1]):
                    a = x[r, s] * (k + 1.0)
                    b = lang.exp(-a * a)
                    total += w[r, s - 1] * lang.exp(b) + b * total * 0.01
            y[r] = total

    def twin(x, w):
        total = torch.zeros_like(x[:, 0]) if x.shape[1] else x.new_zeros(len(x))
        for k in range(2):
            for s in range(1, x.shape[1]):
                b = torch.exp(-((x[:, s] * (k + 1.0)) ** 2))
                total = total + w[:, s - 1] * torch.exp(b) + b * total * 0.01
        return total

    return kernel, twin


def of_what_the_loop_carries(lang):
    """Build a kernel with one function of the carried state, which stays in place, and one of an element."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for r in range(x.shape[0]):
            state = 0.5
            for s in range(x.shape[1]):
                gate = lang.exp(-state)
                state = 0.5 * gate + 0.1 * lang.exp(-x[r, s]) * w[r, s]
            y[r] = state

    def twin(x, w):
        state = torch.full_like(x.sum(1), 0.5)
        for s in range(x.shape[1]):
            state = 0.5 * torch.exp(-state) + 0.1 * torch.exp(-x[:, s]) * w[:, s]
        return state

    return kernel, twin


def of_what_came_before_and_now(lang):
    """Build a kernel with one expression for two values: of the previous element, and of this one."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for r in range(x.shape[0]):
            a = 0.5
            for s in range(x.shape[1]):
                y[r] += lang.exp(a) * w[r, s]
                a = x[r, s]
                y[r] += 2.0 * lang.exp(a)

    def twin(x, w):
        before = torch.cat([torch.full_like(x[:, :1], 0.5), x[:, :-1]], 1)
        return (torch.exp(before) * w + 2.0 * torch.exp(x)).sum(1)

    return kernel, twin


def in_a_branch(lang):
    """Build a kernel with a function in a branch that only some iterations take."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for r in range(x.shape[0]):
            for s in range(x.shape[1]):
                e = lang.exp(-w[r, s])
                if x[r, s] > 0.5:
                    y[r] += e * lang.exp(-x[r, s])

    def twin(x, w):
        return torch.where(x > 0.5, torch.exp(-w) * torch.exp(-x), 0.0).sum(1)

    return kernel, twin


def with_an_early_end(lang):
    """Build a kernel whose loop may end early, so that nothing may be read ahead."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for r in range(x.shape[0]):
            for s in range(1000000):
                if s >= x.shape[1]:
                    break
                y[r] += lang.exp(-x[r, s]) * w[r, s]

    def twin(x, w):
        return (torch.exp(-x) * w).sum(1)

    return kernel, twin


KERNELS = (
    along_rays,
    two_loops_deep,
    of_what_the_loop_carries,
    of_what_came_before_and_now,
    in_a_branch,
    with_an_early_end,
)


@pytest.mark.parametrize("make", KERNELS)
def test_values_and_gradients(lang, make):
    kernel, twin = make(lang)
    op = ts.op("x[r, s], w[r, s] -> y[r]")(kernel)
    for length in LENGTHS:
        torch.manual_seed(length)
        inputs = [torch.rand(5, length, requires_grad=True) for _ in range(2)]
        exact = [one.detach().double().requires_grad_() for one in inputs]
        y, wanted = op(*inputs), twin(*exact)
        torch.testing.assert_close(y.double(), wanted, rtol=2e-5, atol=1e-6, msg=f"{length}: {{}}".format)
        if length > 1:
            cotangent = torch.rand(5)
            gradients = torch.autograd.grad(y, inputs, cotangent)
            for one, other in zip(gradients, torch.autograd.grad(wanted, exact, cotangent.double()), strict=True):
                torch.testing.assert_close(one.double(), other, rtol=2e-4, atol=2e-6, msg=f"{length}: {{}}".format)


def test_an_array_that_the_loop_changes_is_not_read_ahead(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def decay(x: array, y: array):
        for r in range(x.shape[0]):
            for s in range(x.shape[1]):
                y[r, s + 1] = x[r, s] * lang.exp(-y[r, s])

    x = torch.rand(3, 100)
    y = torch.zeros(3, 101)
    for s in range(100):
        y[:, s + 1] = x[:, s] * torch.exp(-y[:, s])
    torch.testing.assert_close(ts.op("x[r, s] -> y[r, s + 1]")(decay)(x), y)


def test_float64_keeps_the_library(lang64):
    kernel, twin = along_rays(lang64)
    x, w = torch.rand(3, 100, dtype=torch.float64), torch.rand(3, 100, dtype=torch.float64)
    torch.testing.assert_close(ts.op("x[r, s], w[r, s] -> y[r]")(kernel)(x, w), twin(x, w), rtol=1e-14, atol=0)


@pytest.mark.compiled_engine
def test_numbers_of_a_field_of_vectors_outside_of_loops(lang64):
    """A kernel that uses them cannot be compiled from its IR: the engine gets it as it is."""
    x, y = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(2))
    v = lang64.Vector.field(3, lang64.f64, shape=2)

    @lang64.kernel
    def kernel(w: lang64.types.ndarray(ndim=2)):
        v[0][1] = 2.0
        for i in range(4):
            s = 0.0
            for j in range(w.shape[1]):
                s += lang64.exp(x[i] * w[i, j]) * v[0][1]
            y[i] = s

    layer = ts.EmptyTin(adjoint="engine").register_input_field(x, "x").register_output_field(y, "y")
    w, value = torch.rand(4, 65, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    layer = layer.register_internal_field(v, name="v").register_kernel(kernel, w).finish()
    torch.testing.assert_close(layer(value), 2.0 * torch.exp(value[:, None] * w).sum(1))


@pytest.mark.compiled_engine
@pytest.mark.parametrize("function", ["exp", "abs"])
def test_a_form_for_cpus_that_does_not_compile_is_to_be_reported(lang, engine, monkeypatch, function):
    """With functions to compute in advance, and with row-major indices alone; the kernel itself compiles."""
    by_engine = type(get(engine)).compile

    def refuse_rewritten(self, compiled, *arguments, **options):
        if "rewritten" in compiled.__code__.co_filename:
            raise RuntimeError("no")
        return by_engine(self, compiled, *arguments, **options)

    monkeypatch.setattr(type(get(engine)), "compile", refuse_rewritten)
    kernel = compile_text(
        lang,
        f"""
def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for r in range(x.shape[0]):
        s = 0.0
        for k in range(x.shape[1]):
            s += lang.{function}(x[r, k])
        y[r] = s
""",
    )
    with pytest.raises(ts.KernelError) as refused:
        ts.op("x[n, m] -> y[n]", name="sums")(kernel)(torch.rand(3, 70))
    lines = str(refused.value).splitlines()
    assert lines[0] == "the kernel of op `sums` does not compile in the form for its device"
    assert lines[-1] == "Report this as a bug of tinsmith, with the kernel."
    assert refused.value.is_internal
