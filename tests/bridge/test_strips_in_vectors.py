"""Loops over elements in vectors of the engine: values and gradients, for any size and any place in memory."""

# pyright: reportInvalidTypeForm=false

from dataclasses import replace

import pytest
import torch

import tinsmith as ts
from tinsmith.calls._executor import PassWriter
from tinsmith.calls._routine import Take
from tinsmith.compiling import Alignment
from tinsmith.passes.strips import _elementwise

pytestmark = pytest.mark.compiled_engine

SIZES = (0, 1, 63, 64, 65, 200)


@pytest.fixture
def ran(monkeypatch):
    """Return the kernels with a loop in strips of vectors."""
    kernels = []

    def write(task, kernel, *others):
        kernels.append(kernel.name)
        return write_vectors(task, kernel, *others)

    write_vectors = _elementwise._write_vectors
    monkeypatch.setattr(_elementwise, "_write_vectors", write)
    return kernels


@pytest.mark.parametrize("first", [0, 1, 3])
def test_unaligned_memory_gives_the_same_result(lang, first, ran):
    """No vector begins where machines like it: a tensor may begin at any element."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array, u: array, z: array, w: array):
        for i in range(x.shape[0]):
            z[i] = lang.select(x[i] > 0.0, lang.min(2.5 * x[i], 3.0), -y[i]) - lang.sqrt(y[i] * y[i] + 1.0)
            w[i] = u[i] * z[i] + x[0]

    op = ts.op("x[n], y[n], u[n] -> z[n], w[n]", init={"z": "empty", "w": "empty"})(kernel)
    for size in SIZES[1:]:
        torch.manual_seed(size)
        inputs = tuple(torch.randn(size + first)[first:].requires_grad_() for _ in range(3))
        results = op(*inputs)
        exact = [one.detach().double().requires_grad_() for one in inputs]
        a, b, c = exact
        z = torch.where(a > 0, (2.5 * a).clamp(max=3.0), -b) - (b * b + 1).sqrt()
        wanted = (z, c * z + a[0])
        cotangents = [torch.randn(size) for _ in range(2)]
        slopes = torch.autograd.grad(results, inputs, cotangents)
        gradients = torch.autograd.grad(wanted, exact, [one.double() for one in cotangents])
        for one, other in zip((*results, *slopes), (*wanted, *gradients), strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
    assert "kernel" in ran


@pytest.mark.parametrize("shape", [(3, 64), (2, 200), (65, 7), (4, 0), (1, 130)])
def test_arrays_of_several_axes(lang, shape, ran):
    """Rows, whole or in strips; elements of one row, of the one below, and of a third axis."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array, z: array):
        for i, j in lang.ndrange(z.shape[0], z.shape[1]):
            z[i, j] = 2.5 * x[i, j] * x[i + 1, j] - y[1, i, j]

    op = ts.op("x[n, m], y[2, k, m] -> z[k, m]")(kernel)
    x, y = torch.randn(shape[0] + 1, shape[1]), torch.randn(2, *shape)
    inputs, exact = ([one.to(kind).requires_grad_() for one in (x, y)] for kind in (torch.float32, torch.float64))
    result, wanted = op(*inputs), 2.5 * exact[0][:-1] * exact[0][1:] - exact[1][1]
    cotangent = torch.randn(shape)
    slopes = torch.autograd.grad(result, inputs, cotangent)
    gradients = torch.autograd.grad(wanted, exact, cotangent.double())
    for one, other in zip((result, *slopes), (wanted, *gradients), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
    assert "kernel" in ran


def test_neighbors(lang, ran):
    """Elements beside an iteration's own, and its number as a value."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            total = 2.0 * x[i]
            if i > 0:
                total -= x[i - 1]
            if i < x.shape[0] - 1:
                total -= x[i + 1]
            y[i] = total

    op = ts.op("x[n] -> y[n]", init={"y": "empty"})(kernel)
    for size in SIZES:
        x = torch.randn(size, requires_grad=True)
        padded = torch.nn.functional.pad(x, (1, 1))
        wanted = 2.0 * x - padded[:-2] - padded[2:]
        y = op(x)
        torch.testing.assert_close(y, wanted)
        if size:
            cotangent = torch.randn(size)
            slope, gradient = (torch.autograd.grad(one, x, cotangent)[0] for one in (y, wanted))
            torch.testing.assert_close(slope, gradient)
    assert "kernel" in ran


def test_bits_are_those_of_loops(lang, monkeypatch):
    """A vector rounds as a number does."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array, z: array):
        for i in range(x.shape[0]):
            z[i] = (x[i] * y[i] + 0.1) / (x[i] * x[i] + 0.3)

    x, y = torch.randn(2, 1000)
    results = []
    for is_vector in (True, False):
        if not is_vector:
            monkeypatch.setattr(_elementwise, "_may_be_vectors", lambda *_, **__: False)
        results.append(ts.op("x[n], y[n] -> z[n]")(kernel)(x, y))
    assert torch.equal(*results)


@pytest.mark.parametrize("first", [0, 1, 16])
def test_memory_that_a_kernel_changes_may_begin_anywhere(lang, first, ran):
    """Vectors are stored whole, but not where a tensor begins elsewhere than machines store a vector."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            y[i] = 0.5 * y[i] + x[i]

    op = ts.op("x[n], inout y[n] ->")(kernel)
    for size in (*SIZES, 1000):
        x, memory = torch.randn(size), torch.randn(size + first + 1)
        wanted = memory.clone()
        wanted[first : first + size].mul_(0.5).add_(x)
        op(x, memory[first : first + size])
        torch.testing.assert_close(memory, wanted)
    assert "kernel" in ran


@pytest.mark.each_engine
@pytest.mark.parametrize("firsts", [(0, 0, 0), (1, 1, 1), (0, 1, 0), (1, 0, 0), (0, 0, 1), (3, 16, 4)])
def test_memory_that_is_read_may_begin_anywhere(lang, firsts):
    """Vectors are loaded whole, but not where one of the inputs or the cotangent begins elsewhere.

    The forms take turns: an aligned call comes before and after each other one.
    """
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array, z: array):
        for i in range(x.shape[0]):
            z[i] = x[i] * y[i] + 0.5 * x[i]

    op = ts.op("x[n], y[n] -> z[n]", init={"z": "empty"})(kernel)
    for size in (*SIZES[1:], 1000):
        for places in ((0, 0, 0), firsts, (0, 0, 0)):
            torch.manual_seed(size)
            x, y, cotangent = (torch.randn(size + first)[first:] for first in places)
            inputs, exact = ([one.to(kind).requires_grad_() for one in (x, y)] for kind in (x.dtype, torch.float64))
            assert [one.data_ptr() % 64 for one in inputs] == [4 * first % 64 for first in places[:2]]
            result, wanted = op(*inputs), exact[0] * exact[1] + 0.5 * exact[0]
            slopes = torch.autograd.grad(result, inputs, cotangent)
            gradients = torch.autograd.grad(wanted, exact, cotangent.double())
            for one, other in zip((result, *slopes), (wanted, *gradients), strict=True):
                torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


@pytest.mark.each_engine
def test_forms_for_memory_that_is_read(lang):
    """Where an input begins elsewhere, vectors are still stored whole to the output, which is allocated."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array, z: array):
        for i in range(x.shape[0]):
            z[i] = x[i] * y[i]

    op = ts.op("x[n], y[n] -> z[n]", init={"z": "empty"})(kernel)
    texts = op._core.signature.firsts[0].texts

    def find_widths():
        heads = {variant.alignment: text.partition("\n")[0] for variant, text in texts.items()}
        return {
            alignment: [", _lang.f32), ndim" in part for part in head.split(": ")[1:]]
            for alignment, head in heads.items()
        }

    x, y = torch.randn(2, 128)
    torch.testing.assert_close(op(x, y), x * y)
    assert find_widths() == {Alignment.ALL: [True, True, True]}
    z = torch.randn(129)[1:]
    torch.testing.assert_close(op(x, z), x * z)
    assert find_widths() == {Alignment.ALL: [True, True, True], Alignment.CHANGED: [False, False, True]}


def test_memory_that_is_changed_in_place_is_checked(lang):
    """A program that changes its input, as rollouts have them, runs the form for any memory where it must."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            y[i] = 0.5 * x[i]

    op = ts.op("x[n] -> y[n]")(kernel)
    op(torch.rand(100))
    (program,) = op._core.programs.values()
    routine, key = program._routine, program.key
    in_place = replace(routine, makes=(), actions=(Take("y", "x"), *routine.actions))
    run = PassWriter(in_place, key, {}).function()
    assert "% 64" in (run.__doc__ or "")
    for first in (0, 1):
        memory = torch.randn(101 + first)
        x = memory[first : first + 100]
        wanted = 0.5 * x
        numbers = program.solve([x.shape], {})
        run([x], (), numbers, {})
        torch.testing.assert_close(x, wanted)


def test_prepared_passes_store_to_any_memory(lang):
    """A scan launches on memory of its own, a row of one tensor for each step."""
    array = lang.types.ndarray()

    @lang.kernel
    def step(x: array, u: array, y: array):
        for i in range(x.shape[0]):
            y[i] = 0.5 * x[i] + u[i]

    op = ts.op("x[n], u[n] -> y[n]")(step)
    x, us = torch.randn(101, requires_grad=True), torch.randn(5, 101)
    last, states = ts.scan(lambda state, u: (op(state, u),) * 2, x, us)
    wanted = x.detach().double().requires_grad_()
    one, rows = wanted, []
    for u in us.double():
        one = 0.5 * one + u
        rows.append(one)
    torch.testing.assert_close(states.double(), torch.stack(rows))
    cotangent = torch.randn(101)
    torch.testing.assert_close(
        torch.autograd.grad(last, x, cotangent)[0].double(), torch.autograd.grad(one, wanted, cotangent.double())[0]
    )
