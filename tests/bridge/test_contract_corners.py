"""Corners of the contract: odd tensors, odd surroundings, odd kernels, each met somewhere in real programs."""

import gc
import resource
import threading
import weakref

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import cases
import tinsmith as ts

same = cases.assert_same_values_and_gradients


def rand(*shape):
    return torch.rand(shape, dtype=torch.float64)


@pytest.fixture
def ops(lang64):
    """Return ops of the table by name."""
    return lambda name: cases.select_cases(name)[0].op(lang64, torch.float64)


# --- tensors ----------------------------------------------------------------------------------------------------------


def test_a_tensor_whose_negation_is_pending(ops):
    """`z.conj().imag` holds the opposite of what its memory says."""
    x = torch._neg_view(rand(4))
    cases.assert_close(ops("fraction")(x), torch.remainder(x, 1.0) * x)
    imaginary = torch.randn(4, dtype=torch.complex128).conj().imag
    cases.assert_close(ops("fraction")(imaginary), torch.remainder(imaginary, 1.0) * imaginary)
    leaf = rand(4).requires_grad_()
    (gradient,) = torch.autograd.grad(ops("square")(leaf), leaf, torch._neg_view(torch.ones(4, dtype=torch.float64)))
    cases.assert_close(gradient, -2 * leaf.detach())


def test_a_gradient_that_is_a_symbolic_zero(ops):
    x = rand(4).requires_grad_()
    zero = torch._efficientzerotensor((4,), dtype=torch.float64)
    (gradient,) = torch.autograd.grad(ops("square")(x), x, zero)
    cases.assert_close(gradient, torch.zeros(4, dtype=torch.float64))


def test_channels_last(lang64):
    case = cases.select_cases("any_rank")[0]
    x = rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    same(case.op(lang64, torch.float64), case.expected, (x, rand(2, 3, 4, 5)))


def test_a_tensor_subclass(ops):
    class Named(torch.Tensor):
        pass

    x = rand(3)
    cases.assert_close(ops("square")(x.as_subclass(Named)).as_subclass(torch.Tensor), x * x)


def test_an_inference_tensor_is_not_saved_in_silence(ops):
    with torch.inference_mode():
        k = rand(3) + 0.5
    w = rand(3).requires_grad_()
    with pytest.raises(RuntimeError, match=r"[Ii]nference tensor"):
        ops("formula")(w, k).sum().backward()


def test_mixed_precision_inputs_get_gradients_of_their_own_dtype(lang64):
    @ts.op("x[n], w[n] -> y[n]")
    @lang64.kernel
    def product(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * w[i]

    x, w = rand(3).requires_grad_(), torch.rand(3).requires_grad_()
    y = product(x, w)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == torch.float64 and w.grad.dtype == torch.float32
    cases.assert_close(w.grad, x.detach().float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_output_declared_in_less_precision(lang, dtype):
    name = {torch.float32: "f32", torch.float16: "f16"}[dtype]

    @ts.op(f"x[n] -> y[n]: {name}")
    @lang.kernel
    def squared(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.rand(4).requires_grad_()
    y = squared(x)
    y.sum().backward()
    assert y.dtype == dtype and x.grad.dtype == torch.float32
    cases.assert_close(x.grad, 2 * x.detach(), rtol=1e-2, atol=1e-2)


def test_half_precision_under_vmap_and_grad(lang):
    op = cases.select_cases("convolution")[0].op(lang, torch.float32)
    x, k = torch.rand(4, 6).half(), torch.rand(3).half()
    assert torch.func.vmap(op, (0, None))(x, k).dtype == torch.float16
    assert torch.func.vmap(torch.func.grad(lambda row: op(row, k).sum()))(x).dtype == torch.float16


# --- surroundings -----------------------------------------------------------------------------------------------------


def test_under_another_default_device(ops):
    """`with torch.device("meta")` changes what torch's factories make, not where an op works."""
    x, incoming = rand(4).requires_grad_(), torch.ones(4, dtype=torch.float64)
    with torch.device("meta"):
        y = ops("two_loops")(x)
        (gradient,) = torch.autograd.grad(y, x, incoming)
        mapped = torch.func.vmap(ops("two_loops"))(x.detach()[None])
    assert y.device.type == mapped.device.type == "cpu"
    cases.assert_close(gradient, (torch.cos(x * x) * 2 * x).detach())


def test_with_deterministic_algorithms(lang64):
    case = cases.select_cases("scatter")[0]
    torch.use_deterministic_algorithms(True)
    try:
        same(case.op(lang64, torch.float64), case.expected, case.inputs(torch.float64))
    finally:
        torch.use_deterministic_algorithms(False)


def test_under_a_dispatch_mode(lang64):
    case = cases.select_cases("convolution")[0]
    with FlopCounterMode(display=False):
        same(case.op(lang64, torch.float64), case.expected, case.inputs(torch.float64))


def test_export(ops):
    convolution = ops("convolution")  # outside: torch 2.6 exports no op that is made while it traces

    class Model(torch.nn.Module):
        def forward(self, x, k):
            return convolution(x, k) * 2

    x, k = rand(7), rand(3)
    cases.assert_close(torch.export.export(Model(), (x, k)).module()(x, k), Model()(x, k))


def test_inside_a_hook(ops):
    x = rand(3).requires_grad_()
    y = ops("square")(x)
    y.register_hook(lambda gradient: gradient + ops("square")(gradient.detach()))
    y.sum().backward()
    cases.assert_close(x.grad, 4 * x.detach())


def test_hooks_after_accumulation_and_before_the_node(ops):
    x, seen = rand(3).requires_grad_(), []
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))
    y = ops("square")(x)
    y.grad_fn.register_prehook(lambda gradients: tuple(None if g is None else 2 * g for g in gradients))
    y.sum().backward()
    cases.assert_close(seen[0], 4 * x.detach())


@pytest.mark.parametrize("name", ["softmax", "cross"])
def test_threads_race_for_the_first_call(lang64, name):
    case, failures = cases.select_cases(name)[0], []
    op = case.build(lang64, lang64.f64)

    def work(seed):
        try:
            for _ in range(4):
                same(op, case.expected, case.inputs(torch.float64, seed))
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_calls_keep_no_tensors_alive(ops):
    x = rand(3).requires_grad_()
    ops("square")(x).sum().backward()
    y = ops("square")(x)
    gone = [weakref.ref(y), weakref.ref(x)]
    del x, y
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


@pytest.mark.compiled_engine
def test_memory_does_not_grow(ops):
    def steps(count):
        for _ in range(count):
            ops("two_loops")(torch.rand(20_000, dtype=torch.float64, requires_grad=True)).sum().backward()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert steps(300) - steps(50) < 30_000  # KiB; 300 leaked gradients would be 48 000


# --- arguments --------------------------------------------------------------------------------------------------------


def test_numpy_numbers_are_numbers(lang64, ops):
    x = rand(3)
    for scale, shift in ((np.float64(2.5), np.int64(3)), (np.float32(2.5), np.int32(3))):
        cases.assert_close(ops("scalars")(x, scale, shift), 2.5 * torch.sin(x) * x + 3)
    splat = cases.select_cases("splat")[0].raw_op(lang64, torch.float64)
    assert splat(rand(2, 2), rand(2), h=np.int64(3), w=np.int32(4)).shape == (3, 4)


def test_a_template_of_another_kind_is_another_kernel(lang64):
    """2, 2.0 and True are equal in Python and not in a kernel: a negative number to the 2.0 is no number."""

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def power(x: lang64.types.ndarray(), p: lang64.template(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] ** p

    x = -rand(3) - 0.1
    for p in (2, 2.0, 1, True, 1.0, 2):
        want = torch.zeros_like(x)
        power.kernel(x, p, want)
        torch.testing.assert_close(power(x, p), want, equal_nan=True)


def test_an_input_used_for_its_size_alone(lang64):
    @ts.op("x[n], m[k] -> y[n]")
    @lang64.kernel
    def scaled(x: lang64.types.ndarray(), m: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * m.shape[0]

    same(scaled, lambda x, m: x * m.shape[0] + 0 * m.sum(), (rand(3), rand(4)))


def test_an_output_that_depends_on_nothing(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def three(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = 3.0

    same(three, lambda x: 3 + 0 * x, (rand(3),))


def test_a_scalar_of_the_name_of_a_dim_must_agree_with_it(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def squared(x: lang64.types.ndarray(), n: lang64.i32, y: lang64.types.ndarray()):
        for i in range(n):
            y[i] = x[i] * x[i]

    same(lambda x: squared(x, 4), lambda x: x * x, (rand(4),))
    with pytest.raises(ts.TinsmithError, match=r"(?s)n.*5"):
        squared(rand(4), 5)
