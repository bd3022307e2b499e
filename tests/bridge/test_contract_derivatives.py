"""Second derivatives and forward mode: right, or refused with a clear error, eager and compiled, never silently zero.

They are made from the kernels' source. An op with a hand-written backward has no other derivative.
"""

import re

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jvp, vmap

import cases
import tinsmith as ts

# torch's own forward mode imports modules that torch 2.13 has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")

SECOND = r"(?is)second|twice|double"
FORWARD = r"(?is)forward.mode|jvp|tangent"
EITHER = r"(?is)second|twice|double|forward.mode|jvp|tangent"
ROWS = cases.select_cases("square", "chained", "batched")
BY_HAND = cases.select_cases("own_backward")[0]


def one_input(case, lang):
    """Return the case as a function of its first input, and that input."""
    op, (x, *rest) = case.op(lang, torch.float64), case.inputs(torch.float64)
    return (lambda x: op(x, *rest)), x


def make_twin(case):
    """Return what torch computes, as a function of the first input."""
    _, *rest = case.inputs(torch.float64)
    return lambda x: case.expected(x, *rest)


def second(function, x):
    """Compute the gradient of the squared gradient of a square."""
    x = x.detach().requires_grad_()
    (first,) = torch.autograd.grad((function(x) ** 2).sum(), x, create_graph=True)
    return torch.autograd.grad((first**2).sum(), x)


def direction(x):
    return torch.cos(3.1 * torch.arange(x.numel()).to(x)).reshape(x.shape)


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_the_second_derivative(lang64, case):
    function, x = one_input(case, lang64)
    cases.assert_close(second(function, x), second(make_twin(case), x))


def test_the_second_derivative_through_a_hand_written_backward_is_refused(lang64):
    function, x = one_input(BY_HAND, lang64)
    with pytest.raises(ts.GradientError, match=SECOND) as caught:
        second(function, x)
    assert "own_backward" in str(caught.value)


def test_create_graph_alone_is_no_second_derivative(lang64):
    function, x = one_input(cases.select_cases("square")[0], lang64)
    x = x.requires_grad_()
    (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    cases.assert_close(first.detach(), 2 * x.detach())


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_forward_mode(lang64, case):
    (function, x), twin = one_input(case, lang64), make_twin(case)
    cases.assert_close(jvp(function, (x,), (direction(x),)), jvp(twin, (x,), (direction(x),)))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, direction(x))
        mine, theirs = (forward_ad.unpack_dual(f(dual)).tangent for f in (function, twin))
    cases.assert_close(mine, theirs)


def test_forward_mode_through_a_hand_written_backward_is_refused(lang64):
    function, x = one_input(BY_HAND, lang64)
    with pytest.raises(ts.GradientError, match=FORWARD) as caught:
        jvp(function, (x,), (direction(x),))
    assert "own_backward" in str(caught.value)
    with forward_ad.dual_level(), pytest.raises(ts.GradientError, match=FORWARD):
        function(forward_ad.make_dual(x, direction(x)))


def test_forward_mode_for_another_input(lang64):
    case = cases.select_cases("convolution")[0]
    op, (x, k) = case.op(lang64, torch.float64), case.inputs(torch.float64)
    mine, theirs = (jvp(lambda k, f=f: f(x, k), (k,), (direction(k),)) for f in (op, case.expected))
    cases.assert_close(mine, theirs)


TRANSFORMS = {
    "jacfwd": lambda f: jacfwd(f),
    "hessian": lambda f: hessian(lambda x: f(x).sum()),
    "grad of grad": lambda f: grad(lambda x: grad(lambda x: f(x).sum())(x).sum()),
    "grad of vmap of grad": lambda f: grad(lambda x: vmap(grad(lambda x: f(x[None]).sum()))(x).sum()),
    "jvp of grad": lambda f: lambda x: jvp(grad(lambda x: (f(x) ** 2).sum()), (x,), (direction(x),)),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_func_transforms(lang64, transform):
    case = cases.select_cases("square")[0]
    function, x = one_input(case, lang64)
    cases.assert_close(transform(function)(x), transform(make_twin(case))(x))


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_func_transforms_through_a_hand_written_backward_are_refused(lang64, transform):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    @square.backward
    @lang64.kernel
    def square_backward(x: lang64.types.ndarray(), grad_y: lang64.types.ndarray(), grad_x: lang64.types.ndarray()):
        for i in x:
            grad_x[i] = 2.0 * x[i] * grad_y[i]

    with pytest.raises(ts.GradientError, match=EITHER):
        transform(square)(torch.randn(5, dtype=torch.float64))


@pytest.fixture
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def right_or_refused(words, run, wanted):
    """Assert that compiled code returns the eager result, or raises an error that says what is missing."""
    try:
        actual = run()
    except Exception as error:  # noqa: BLE001 - the compiler wraps what it is told
        refusal = str(error)
    else:
        cases.assert_close(actual, wanted)
        return
    assert re.search(words, refusal), refusal


@pytest.mark.thinned(4)
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_func_transforms_when_compiled(lang64, transform):
    case = cases.select_cases("square")[0]
    function, x = one_input(case, lang64)
    run = torch.compile(transform(function), backend="aot_eager")
    right_or_refused(EITHER, lambda: run(x), transform(make_twin(case))(x))


@pytest.mark.usefixtures("_fresh_compiler")
def test_the_second_derivative_of_a_compiled_call(lang64):
    case = cases.select_cases("square")[0]
    function, x = one_input(case, lang64)
    run = torch.compile(function, backend="aot_eager", fullgraph=True)
    right_or_refused(SECOND, lambda: second(run, x), second(make_twin(case), x))


@pytest.mark.usefixtures("_fresh_compiler")
def test_forward_mode_of_a_compiled_call(lang64):
    case = cases.select_cases("square")[0]
    function, x = one_input(case, lang64)
    run = torch.compile(function, backend="aot_eager")

    def pushed(f):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, direction(x)))).tangent

    right_or_refused(FORWARD, lambda: pushed(run), pushed(make_twin(case)))


def test_arrays_may_be_called_as_adjoints_are(lang64):
    """The adjoint of `x` was called `grad_x`: an array of that name took its place, and the gradient was 0."""

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), grad_y: lang64.types.ndarray(), grad_x: lang64.types.ndarray()):
        for i in range(x.shape[0]):
            grad_x[i] = x[i] * x[i] * grad_y[i]

    op = ts.op("x[n], grad_y[n] -> grad_x[n]", adjoint="source")(kernel)
    x, y, c = (torch.rand(3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    gradients = torch.autograd.grad(op(x, y), (x, y), c, create_graph=True)
    torch.testing.assert_close(gradients, (2 * x * y * c, x * x * c))
    torch.testing.assert_close(torch.autograd.grad(gradients[0].sum(), y)[0], 2 * x * c)
    torch.testing.assert_close(torch.func.jvp(op, (x, y), (y, c))[1], 2 * x * y * y + x * x * c)
