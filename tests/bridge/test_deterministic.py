"""Deterministic ops: the same bits in each run, whatever the threads do, and a refusal where that cannot be had."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.engines import get as get_engine

pytestmark = pytest.mark.compiled_engine

SIZE = 200_000
"""Iterations: enough for threads to meet, and above what runs on one thread anyway."""
SUMS = """
def kernel(x: lang.types.ndarray(), j: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in j:
        y[j[i]] += lang.sin(x[i] * x[j[i]])
"""
SLOTS = """
def kernel(x: lang.types.ndarray(), j: lang.types.ndarray(), y: lang.types.ndarray(), count: lang.types.ndarray()):
    for i in j:
        slot = lang.atomic_add(count[0], 1)
        y[slot] = x[i] * x[i]
"""


@pytest.fixture(autouse=True)
def _many_threads(lang, monkeypatch):
    """Use so many threads that atomics never make a kernel serial."""
    monkeypatch.setattr(type(get_engine(lang.__name__)), "thread_count", lambda self: 64)


def arguments(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.rand(SIZE, dtype=dtype), torch.randint(0, 16, (SIZE,), dtype=torch.int32)


def sums(lang, **options):
    return ts.op("x[n], j[n]: i32 -> y[m]", **options)(compile_text(lang, SUMS))


def runs(call, count=8):
    return [call() for _ in range(count)]


def assert_alike(results):
    first, *others = results
    assert all(torch.equal(one, two) for other in others for one, two in zip(first, other, strict=True))


def test_sums_of_threads_have_the_same_bits_each_time(lang):
    op = sums(lang, deterministic=True)
    x, j = arguments()
    x.requires_grad_()

    def call():
        y = op(x, j, m=16)
        return y, *torch.autograd.grad(y, x, torch.linspace(0, 1, 16))

    results = runs(call)
    assert_alike(results)
    plain = sums(lang)(x, j, m=16)
    torch.testing.assert_close(results[0][0], plain, rtol=1e-3, atol=1e-3)


def test_derivatives_of_higher_order_too(lang):
    op = sums(lang, deterministic=True)
    x, j = arguments()

    def call():
        leaf = x.clone().requires_grad_()
        y, tangent, *_ = torch.func.jvp(lambda one: op(one, j, m=16), (leaf,), (torch.ones_like(x),))
        (first,) = torch.autograd.grad(op(leaf, j, m=16).sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), leaf)
        return y, tangent, first, second

    assert_alike(runs(call, 4))


def test_a_batch_too(lang):
    op = sums(lang, deterministic=True)
    x, j = arguments()
    batch = torch.stack([x, x.flip(0)])
    results = runs(lambda: (torch.vmap(lambda one: op(one, j, m=16))(batch),), 4)
    assert_alike(results)


def test_slots_that_atomics_return_are_handed_out_in_order(lang):
    op = ts.op("x[n], j[n]: i32 -> y[n], count[1]: i32", deterministic=True)(compile_text(lang, SLOTS))
    x, j = arguments()
    y, count = op(x, j)
    assert torch.equal(y, x * x)
    assert count.tolist() == [SIZE]


def test_gradients_are_right(lang64):
    op = sums(lang64, deterministic=True)
    x = torch.rand(40, dtype=torch.float64, requires_grad=True)
    j = torch.randint(0, 7, (40,), dtype=torch.int32)

    def twin(one):
        return torch.zeros(7, dtype=torch.float64).index_add(0, j, torch.sin(one * one[j.long()]))

    y, wanted = op(x, j, m=7), twin(x)
    torch.testing.assert_close(y, wanted)
    c = torch.rand(7, dtype=torch.float64)
    torch.testing.assert_close(torch.autograd.grad(y, x, c), torch.autograd.grad(wanted, x, c))


def test_other_kernels_use_all_threads(lang, configure):
    configure(serial_below="0")
    text = """
def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] += x[i] * x[i]
"""
    op = ts.op("x[n] -> y[n]", deterministic=True)(compile_text(lang, text))
    x = torch.rand(SIZE, requires_grad=True)
    op(x).sum().backward()
    (variant,) = [one for stage in op._core.signature.stages for one in stage.compiled]
    assert not variant.is_serial


def test_a_hand_written_gradient_runs_in_order_too(lang):
    backward = compile_text(
        lang,
        """
def back(x: lang.types.ndarray(), j: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
    for i in j:
        v = lang.cos(x[i] * x[j[i]]) * grad_y[j[i]]
        grad_x[i] += v * x[j[i]]
        grad_x[j[i]] += v * x[i]
""",
    )
    op = sums(lang, deterministic=True, backward=backward)
    x, j = arguments()
    x.requires_grad_()
    assert_alike(runs(lambda: torch.autograd.grad(op(x, j, m=16).sum(), x)))


def test_the_engines_gradient_is_refused(lang):
    op = sums(lang, deterministic=True, adjoint="engine")
    x, j = arguments()
    with pytest.raises(
        ts.GradientError,
        match=r"(?s)op `kernel` has `deterministic=True`, but the engine's own gradient is not deterministic",
    ):
        op(x.requires_grad_(), j, m=16).sum().backward()


def test_an_atomic_product_is_refused(lang):
    text = SUMS.replace("y[j[i]] += lang.sin(x[i] * x[j[i]])", "lang.atomic_mul(y[j[i]], x[i])")
    op = ts.op("x[n], j[n]: i32 -> y[m]", deterministic=True)(compile_text(lang, text))
    x, j = arguments()
    words = r"(?s)op `kernel` has `deterministic=True`, but its kernel uses `atomic_mul`, whose result depends on the "
    words += r"order of threads\n.*:4\nWrite `a\[i\] \*= v` in a loop that runs in order"
    with pytest.raises(ts.KernelError, match=words):
        op(x, j, m=16)


def test_chains_and_copies_of_ops_keep_it(lang):
    import copy

    op = ts.chain("x[n], j[n]: i32 -> y[m]", [compile_text(lang, SUMS)], deterministic=True)
    x, j = arguments()
    assert_alike(runs(lambda: (copy.deepcopy(op)(x, j, m=16),), 3))
