"""A Tube without fields is an op: transforms, compilers, threads, graphs kept and freed, batches."""

import threading

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

import tinsmith as ts
from support.dropin import assert_agree, make_leaf
from tinsmith._config import Config

pytestmark = pytest.mark.thinned(4)

F64 = torch.float64


# Tubes, with what they calculate ------------------------------------------------------------------
def blend(lang):
    """Make y = (w x)^2 and its square root, through an intermediate field, for vectors of any length."""

    @lang.kernel
    def weigh(w: lang.template(), x: lang.template(), out: lang.template()):
        for i in x:
            out[i] = w[i] * x[i]

    @lang.kernel
    def square(x: lang.template(), out: lang.template(), also: lang.template(), by: lang.f64):
        for i in x:
            out[i] = x[i] * x[i]
            also[i] = x[i] * by

    n = (ts.MatchDim("n"),)
    tube = ts.Tube().register_input_tensor(n, F64, "w").register_input_tensor(n, F64, "x")
    tube.register_intermediate_field(n, lang.f64, "t", True)
    tube.register_output_tensor(n, F64, "y", True).register_output_tensor(n, F64, "z", True)
    return tube.register_kernel(weigh, ["w", "x", "t"]).register_kernel(square, ["t", "y", "z"], 0.5).finish()


def blended(w, x):
    return (w * x) ** 2, 0.5 * w * x


def convolution(lang):
    """Make a convolution whose output length is calculated."""

    @lang.kernel
    def convolve(x: lang.template(), k: lang.template(), out: lang.template()):
        for i in out:
            for j in range(k.shape[0]):
                out[i] += x[i + j] * k[j]

    def length(name, dims, shapes):
        return (shapes["x"][0] - shapes["k"][0] + 1,)

    tube = ts.Tube().register_input_tensor((ts.AnyDim,), F64, "x").register_input_tensor((ts.AnyDim,), F64, "k")
    tube.register_output_tensor(length, F64, "y", True)
    return tube.register_kernel(convolve, ["x", "k", "y"]).finish()


def convolved(x, k):
    return torch.nn.functional.conv1d(x[None, None], k[None, None])[0, 0]


def rotation(lang):
    """Make a Tube that squares complex numbers."""

    @lang.kernel
    def square(z: lang.template(), out: lang.template()):
        for i in z:
            re, im = z[i][0], z[i].y
            out[i] = lang.Vector([re * re - im * im, 2.0 * re * im])

    n = (ts.MatchDim("n"),)
    tube = ts.Tube().register_input_tensor(n, torch.complex128, "z")
    return tube.register_output_tensor(n, torch.complex128, "w", True).register_kernel(square, ["z", "w"]).finish()


def squared(z):
    return z * z


def batch(lang):
    """Make a batch of vectors, each multiplied by one matrix that all share."""

    @lang.kernel
    def multiply(a: lang.template(), x: lang.template(), out: lang.template()):
        for i, j in a:
            out[i] += a[i, j] * x[j]

    tube = ts.Tube().register_input_tensor((ts.MatchDim("n"), ts.MatchDim("m")), F64, "a")
    tube.register_input_tensor((ts.BatchDim, ts.MatchDim("m")), F64, "x")
    tube.register_output_tensor((ts.BatchDim, ts.MatchDim("n")), F64, "y", True)
    return tube.register_kernel(multiply, ["a", "x", "y"]).finish()


def multiplied(a, x):
    return x @ a.T


class Example:
    """A Tube, what it computes in torch's words, and random inputs of any size."""

    def __init__(self, make, expected, inputs, ranks):
        self.make, self.expected, self.inputs, self.ranks = make, expected, inputs, ranks

    def __repr__(self):
        return self.make.__name__


EXAMPLES = [
    Example(blend, blended, lambda n: (make_leaf(n), make_leaf(n)), (1, 1)),
    Example(convolution, convolved, lambda n: (make_leaf(n + 3), make_leaf(n)), (1, 1)),
    Example(rotation, squared, lambda n: (make_leaf(n, dtype=torch.complex128),), (1,)),
    Example(batch, multiplied, lambda n: (make_leaf(2, n), make_leaf(4, n)), (2, 2)),
]
examples = pytest.mark.parametrize("example", EXAMPLES, ids=repr)


# Eager --------------------------------------------------------------------------------------------
@examples
def test_values_and_gradients_for_any_size(lang64, example):
    tube = example.make(lang64)
    for size in (3, 1, 6, 3):
        inputs = example.inputs(size)
        assert_agree(tube(*inputs), example.expected(*inputs), inputs)


@pytest.mark.gpu
@examples
def test_the_device_of_tensors(lang64, example):
    inputs = [tensor.detach().cuda().requires_grad_() for tensor in example.inputs(4)]
    outputs = example.make(lang64)(*inputs)
    assert all(part.is_cuda for part in flat(outputs))
    assert_agree(outputs, example.expected(*inputs), inputs)


def test_tensors_without_elements(lang64):
    tube, w, x = blend(lang64), make_leaf(0), make_leaf(0)
    assert_agree(tube(w, x), blended(w, x), [w, x])


@examples
def test_gradcheck(lang64, example):
    assert torch.autograd.gradcheck(example.make(lang64), example.inputs(3))


@examples
def test_two_calls_before_one_backward_pass(lang64, example):
    tube, one, two = example.make(lang64), example.inputs(3), example.inputs(3)
    actual, expected = ([each(*one), each(*two)] for each in (tube, example.expected))
    assert_agree(
        [part for parts in actual for part in flat(parts)],
        [part for parts in expected for part in flat(parts)],
        one + two,
    )


def flat(parts):
    return (parts,) if isinstance(parts, torch.Tensor) else tuple(parts)


@examples
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_a_graph(lang64, example, mode):
    inputs = example.inputs(3)
    with mode():
        outputs = flat(example.make(lang64)(*inputs))
    assert not any(part.requires_grad for part in outputs)
    torch.testing.assert_close(outputs, tuple(part.detach() for part in flat(example.expected(*inputs))))


@examples
def test_a_graph_that_is_kept(lang64, example):
    inputs = example.inputs(3)
    total = sum(part.abs().sum() for part in flat(example.make(lang64)(*inputs)))
    first = torch.autograd.grad(total, inputs, retain_graph=True)
    for before, again in zip(first, torch.autograd.grad(total, inputs), strict=True):
        torch.testing.assert_close(before, again)


def test_a_checkpoint_runs_it_again(lang64):
    tube, (w, x) = blend(lang64), (make_leaf(4), make_leaf(4))
    y = torch.utils.checkpoint.checkpoint(tube, w, x, use_reentrant=False)
    assert_agree(y, blended(w, x), [w, x])


def test_views_and_transposed_tensors(lang64):
    tube, a, x = batch(lang64), make_leaf(3, 2), make_leaf(3, 8)
    assert_agree(tube(a.T, x.T[::2]), multiplied(a.T, x.T[::2]), [a, x])


def test_an_empty_batch(lang64):
    tube, a, x = batch(lang64), make_leaf(2, 3), make_leaf(0, 3)
    y = tube(a, x)
    assert y.shape == (0, 2)
    for gradient, tensor in zip(torch.autograd.grad(y.sum(), [a, x]), [a, x], strict=True):
        assert gradient.shape == tensor.shape
        assert not gradient.any()


def test_a_batch_is_one_launch(lang64):
    """A kernel that runs once a sample would be listed as such."""
    tube = batch(lang64)
    tube(make_leaf(2, 3), make_leaf(4, 3))
    assert "batches of `multiply`: one launch\n" in tube.explain("all")


@examples
def test_from_many_threads(lang64, example):
    tube, failures = example.make(lang64), []

    def work(inputs):
        try:
            for _ in range(10):
                assert_agree(tube(*inputs), example.expected(*inputs), inputs)
        except Exception as failure:  # noqa: BLE001 - told below, where the test can fail
            failures.append(failure)

    assert_agree(tube(*(first := example.inputs(2))), example.expected(*first), first)
    threads = [threading.Thread(target=work, args=(example.inputs(2 + place % 3),)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_calls_before_new_extra_arguments_keep_theirs(lang64):
    tube, (w, x) = blend(lang64), (make_leaf(3), make_leaf(3))
    before = tube(w, x)
    tube.set_kernel_extra_args("square", 4.0)
    assert_agree(before + tube(w, x), (*blended(w, x), (w * x) ** 2, 4.0 * w * x), [w, x])


@pytest.mark.compiled_engine
def test_new_sizes_compile_nothing(lang64):
    tube = convolution(lang64)
    tube(make_leaf(5), make_leaf(2)).sum().backward()
    before = tube.explain("all")
    for size in range(6, 12):
        tube(make_leaf(size), make_leaf(3)).sum().backward()
    assert tube.explain("all") == before


def test_the_cache_of_sizes_is_bounded(lang64, monkeypatch):
    monkeypatch.setattr("tinsmith._cache.config", lambda: Config(plan_cache=4))
    tube = blend(lang64)
    for size in range(1, 12):
        w, x = make_leaf(size), make_leaf(size)
        assert_agree(tube(w, x), blended(w, x), [w, x])
        assert len(tube._program._recipes) <= 4


# Transforms ---------------------------------------------------------------------------------------
@examples
def test_vmap(lang64, example):
    tube = example.make(lang64)
    several = [torch.stack(group) for group in zip(*[example.inputs(3) for _ in range(4)], strict=True)]
    assert_agree(torch.vmap(tube)(*several), torch.vmap(example.expected)(*several), several)


def test_vmap_over_one_input(lang64):
    tube, a, x = batch(lang64), make_leaf(2, 3), make_leaf(5, 4, 3)
    assert_agree(torch.vmap(tube, (None, 0))(a, x), x @ a.T, [a, x])


@examples
def test_func_grad(lang64, example):
    inputs = tuple(tensor.detach() for tensor in example.inputs(3))
    places = tuple(range(len(inputs)))

    def gradients(function):
        return torch.func.grad(lambda *given: sum(part.abs().sum() for part in flat(function(*given))), places)(*inputs)

    for gradient, expected in zip(gradients(example.make(lang64)), gradients(example.expected), strict=True):
        torch.testing.assert_close(gradient, expected)


def test_vmap_of_grad_is_a_gradient_for_each_sample(lang64):
    tube, a, x = batch(lang64), make_leaf(2, 3).detach(), make_leaf(5, 4, 3).detach()

    def each(function):
        return torch.vmap(torch.func.grad(lambda *given: function(*given).sin().sum(), (0, 1)), (None, 0))(a, x)

    for gradient, expected in zip(each(tube), each(multiplied), strict=True):
        torch.testing.assert_close(gradient, expected)


# Compilers ----------------------------------------------------------------------------------------
@pytest.fixture
def compiler():
    torch._dynamo.reset()
    yield CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()


def among_others(function):
    """Surround the Tube with plain torch operations."""
    return lambda *inputs: tuple(part * 2 for part in flat(function(*[tensor * 1.5 for tensor in inputs])))


no_deprecation = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


@no_deprecation
@examples
def test_a_call_compiles_into_one_graph(lang64, example, compiler):
    compiled = torch.compile(among_others(example.make(lang64)), fullgraph=True, backend=compiler)
    for _ in range(2):
        inputs = example.inputs(3)
        assert_agree(compiled(*inputs), among_others(example.expected)(*inputs), inputs)
    assert compiler.frame_count == 1


@no_deprecation
@examples
def test_a_dynamic_graph_serves_all_sizes(lang64, example, compiler):
    compiled = torch.compile(among_others(example.make(lang64)), fullgraph=True, dynamic=True, backend=compiler)
    for size in (3, 5, 8):
        inputs = example.inputs(size)
        assert_agree(compiled(*inputs), among_others(example.expected)(*inputs), inputs)
    assert compiler.frame_count == 1


@no_deprecation
@examples
def test_a_traced_graph_with_symbolic_sizes(lang64, example):
    tube = example.make(lang64)  # a traced graph calls it by a handle, and does not keep it alive
    traced = make_fx(tube, tracing_mode="symbolic")(*example.inputs(4))
    for size in (4, 6):
        inputs = example.inputs(size)
        assert_agree(traced(*inputs), example.expected(*inputs), inputs)


@no_deprecation
def test_the_default_compiler(lang64):
    torch._dynamo.reset()
    compiled, (w, x) = torch.compile(blend(lang64), fullgraph=True), (make_leaf(4), make_leaf(4))
    assert_agree(compiled(w, x), blended(w, x), [w, x])


@no_deprecation
def test_a_graph_with_other_extra_arguments_is_another(lang64, compiler):
    tube, (w, x) = blend(lang64), (make_leaf(3), make_leaf(3))
    compiled = torch.compile(tube, fullgraph=True, backend=compiler)
    assert_agree(compiled(w, x), blended(w, x), [w, x])
    tube.set_kernel_extra_args("square", 4.0)
    assert_agree(compiled(w, x), ((w * x) ** 2, 4.0 * w * x), [w, x])


@no_deprecation
def test_a_graph_that_detaches_and_converts(lang64, compiler):
    @lang64.kernel
    def product(a: lang64.template(), b: lang64.template(), out: lang64.template(), left: lang64.template()):
        for i in a:
            out[i] = a[i] * b[i]
            left[i] = a[i]

    n = (ts.MatchDim("n"),)
    tube = ts.Tube().register_input_tensor(n, F64, "a", False).register_input_tensor(n, F64, "b")
    tube.register_output_tensor(n, F64, "y", True).register_output_tensor(n, F64, "left", False)
    tube.register_kernel(product, ["a", "b", "y", "left"]).finish()
    compiled = torch.compile(tube, fullgraph=True, backend=compiler)
    a, b = make_leaf(3), make_leaf(3, dtype=torch.float32)
    y, left = compiled(a, b)
    assert not left.requires_grad
    gradients = torch.autograd.grad(y.sum(), [a, b], allow_unused=True)
    assert gradients[0] is None
    torch.testing.assert_close(gradients[1], a.detach().float())
    torch.testing.assert_close(y, a * b)
