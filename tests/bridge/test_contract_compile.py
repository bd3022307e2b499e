"""The contract with torch.compile: one graph without breaks, forwards and backwards, the same numbers as eager."""

import pytest
import setuptools  # noqa: F401 - before Quadrants, see below
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.func import grad, vmap

import cases
import tinsmith as ts

# Quadrants 1.3.3 imports pip, after which Python 3.10 and 3.11 cannot import setuptools any more,
# which Inductor does. Imported first, it is there. (setuptools' DistutilsMetaFinder.spec_for_pip)

# Inductor imports modules of torch's that torch 2.13 has deprecated.
pytestmark = [pytest.mark.thinned(4), pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")]

# Every form that an op can take; the default backend compiles C++ and is asked for a few.
FORMS = cases.select_cases(
    "square", "convolution", "two_outputs", "counted", "learnable_scalar", "scalars", "polynomial", "method",
    "template_arrays", "batched", "unzeroed", "own_backward", "chained", "gather", "scratch_recurrence", "splat",
    "upsampled", "cross", "dot", "no_inputs", "returned", "returned_several",
)  # fmt: skip
COMPILED = cases.select_cases("convolution", "two_outputs", "chained", "gather")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def around(function):
    """Surround the op with plain torch operations, which a compiler would fuse around it."""

    def block(*inputs):
        inputs = [v * 1.5 if torch.is_tensor(v) and v.is_floating_point() else v for v in inputs]
        return tuple(o * 2 for o in cases.list_tensors(function(*inputs)))

    return block


def compiled(function, backend):
    return torch.compile(function, fullgraph=True, backend=backend)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("case", FORMS, ids=str)
def test_aot_eager(lang64, case):
    cases.assert_same_values_and_gradients(
        compiled(around(case.op(lang64, torch.float64)), "aot_eager"),
        around(case.expected),
        case.inputs(torch.float64),
    )


@pytest.mark.compiled_engine
@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_the_default_backend(lang64, case):
    cases.assert_same_values_and_gradients(
        compiled(around(case.op(lang64, torch.float64)), "inductor"), around(case.expected), case.inputs(torch.float64)
    )


def test_an_op_never_called_before(lang64):
    case = cases.select_cases("formula")[0]
    op = case.build(lang64, lang64.f64)
    cases.assert_same_values_and_gradients(compiled(op, "aot_eager"), case.expected, case.inputs(torch.float64))


def test_the_outputs_keep_their_names(lang64):
    op = cases.select_cases("two_outputs")[0].op(lang64, torch.float64)
    x = torch.rand(4, dtype=torch.float64)

    def named_parts(x):
        out = op(x)
        return out.y + out.total

    cases.assert_close(compiled(named_parts, "aot_eager")(x), x * x + torch.sin(x).sum())


def test_without_gradients(lang64):
    op = cases.select_cases("square")[0].op(lang64, torch.float64)
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        y = compiled(op, "aot_eager")(x)
    assert not y.requires_grad
    cases.assert_close(y, x.detach() ** 2)


def test_only_some_inputs_require_a_gradient(lang64):
    case = cases.select_cases("convolution")[0]
    op = compiled(case.op(lang64, torch.float64), "aot_eager")
    x, k = case.inputs(torch.float64)
    k.requires_grad_()
    op(x, k).sum().backward()
    assert x.grad is None
    cases.assert_close(k.grad, x.unfold(0, 6, 1).sum(1))


def test_sizes_may_change_without_compiling_each(lang64):
    op = cases.select_cases("convolution")[0].op(lang64, torch.float64)
    twin = cases.select_cases("convolution")[0].expected
    counter = CompileCounterWithBackend("aot_eager")
    run = compiled(op, counter)
    for size in (7, 9, 12, 20, 31):
        inputs = (torch.rand(size, dtype=torch.float64), torch.rand(3, dtype=torch.float64))
        cases.assert_same_values_and_gradients(run, twin, inputs)
    assert counter.frame_count <= 4  # static and dynamic, without and with gradient


def test_dynamic_from_the_start(lang64):
    case = cases.select_cases("matrix_product")[0]
    run = torch.compile(case.op(lang64, torch.float64), fullgraph=True, backend="aot_eager", dynamic=True)
    for h in (3, 5):
        inputs = (torch.rand(h, 4, dtype=torch.float64), torch.rand(4, 2, dtype=torch.float64))
        cases.assert_same_values_and_gradients(run, case.expected, inputs)


def test_noncontiguous_inputs(lang64):
    op = cases.select_cases("any_rank")[0].op(lang64, torch.float64)
    inputs = (torch.rand(3, 4, dtype=torch.float64), torch.rand(4, 3, dtype=torch.float64))
    cases.assert_same_values_and_gradients(
        compiled(lambda x, k: op(x.t(), k), "aot_eager"), lambda x, k: torch.cos(x.t()) * k * k, inputs
    )


def test_a_changed_template_and_scalar(lang64):
    polynomial, scalars = (case.op(lang64, torch.float64) for case in cases.select_cases("polynomial", "scalars"))
    x, c = torch.rand(3, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    run = compiled(lambda x, c, degree, scale: polynomial(x, c, degree) + scalars(x, scale, 2), "aot_eager")
    for degree, scale in ((1, 0.5), (3, 1.25), (2, -3.0)):
        want = sum(c[k] * x**k for k in range(degree + 1)) + scale * torch.sin(x) * x + 2
        cases.assert_close(run(x, c, degree, scale), want)


@pytest.mark.parametrize("name", ["convolution", "own_backward", "chained"])
def test_compiled_grad(lang64, name):
    case = cases.select_cases(name)[0]
    op, (x, *rest) = case.op(lang64, torch.float64), case.inputs(torch.float64)
    mine = compiled(grad(lambda x: (op(x, *rest) ** 2).sum()), "aot_eager")(x)
    cases.assert_close(mine, grad(lambda x: (case.expected(x, *rest) ** 2).sum())(x))


def test_compiled_vmap_and_vmap_of_grad(lang64):
    case = cases.select_cases("convolution")[0]
    op, twin = case.op(lang64, torch.float64), case.expected
    x, k = torch.rand(4, 6, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
    cases.assert_same_values_and_gradients(
        compiled(vmap(op, (0, None)), "aot_eager"), lambda x, k: torch.stack([twin(row, k) for row in x]), (x, k)
    )
    each = compiled(vmap(grad(lambda x, k: (op(x, k) ** 2).sum()), (0, None)), "aot_eager")(x, k)
    want = torch.stack([grad(lambda row: (twin(row, k) ** 2).sum())(row) for row in x])
    cases.assert_close(each, want)


def test_a_module_that_trains(lang64):
    op = cases.select_cases("convolution")[0].op(lang64, torch.float64)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))

        def forward(self, x):
            return op(x, self.kernel)

    layer, x = Layer(), torch.rand(40, dtype=torch.float64)
    wanted = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    run, optimizer = compiled(layer, "aot_eager"), torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        ((run(x) - op(x, wanted)) ** 2).mean().backward()
        optimizer.step()
    cases.assert_close(layer.kernel.detach(), wanted, rtol=5e-2, atol=5e-2)


def test_an_input_changed_after_the_compiled_call_is_detected(lang64):
    op = compiled(cases.select_cases("square")[0].op(lang64, torch.float64), "aot_eager")
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    y = op(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_float16_is_computed_in_float32_when_compiled_too(lang):
    op = compiled(cases.select_cases("dot")[0].op(lang, torch.float32), "aot_eager")
    x = torch.ones(4096, dtype=torch.float16)
    assert op(x, x).item() == 4096 and op(x, x).dtype == torch.float16


def test_a_refusal_names_the_op_when_compiled_too(lang64):
    op = compiled(cases.select_cases("convolution")[0].op(lang64, torch.float64), "aot_eager")
    with pytest.raises(Exception, match="convolution"):
        op(torch.rand(4, 4, dtype=torch.float64), torch.rand(3, dtype=torch.float64))


def test_two_ops_of_one_name_stay_apart(lang64):
    def build(factor):
        @ts.op("x[n] -> y[n]", name="same")
        @lang64.kernel
        def same(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = factor * x[i] * x[i]

        return same

    two, three = build(2.0), build(3.0)
    x = torch.rand(3, dtype=torch.float64)
    run = compiled(lambda x: (two(x), three(x)), "aot_eager")
    cases.assert_same_values_and_gradients(run, lambda x: (2 * x * x, 3 * x * x), (x,))
