"""Second derivatives and forward mode: refused with a clear error, eager and compiled, never silently zero."""

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
ROWS = cases.named("square", "chained", "own_backward", "batched")


def one_input(case, lang):
    """The case as a function of its first input, and that input."""
    op, (x, *rest) = case.op(lang, torch.float64), case.inputs(torch.float64)
    return (lambda x: op(x, *rest)), x


def names(caught, case):
    """The refusal says which op; a chain is called after its kernels."""
    return {"chained": "wave"}.get(case.name, case.name) in str(caught.value)


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_the_second_derivative_is_refused(lang64, case):
    function, x = one_input(case, lang64)
    x = x.requires_grad_()
    (first,) = torch.autograd.grad((function(x) ** 2).sum(), x, create_graph=True)
    with pytest.raises(ts.GradientError, match=SECOND) as caught:
        (first**2).sum().backward()
    assert names(caught, case)


def test_create_graph_alone_is_no_second_derivative(lang64):
    function, x = one_input(cases.named("square")[0], lang64)
    x = x.requires_grad_()
    (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    cases.assert_close(first.detach(), 2 * x.detach())


def test_a_gradient_penalty_is_refused_though_another_path_is_differentiable(lang64):
    function, x = one_input(cases.named("square")[0], lang64)
    x, weight = x.requires_grad_(), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad((weight * function(x)).sum(), x, create_graph=True)
    with pytest.raises(ts.GradientError, match=SECOND):
        (first**2).sum().backward()


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_forward_mode_is_refused(lang64, case):
    function, x = one_input(case, lang64)
    with pytest.raises(ts.GradientError, match=FORWARD) as caught:
        jvp(function, (x,), (torch.ones_like(x),))
    assert names(caught, case)
    with forward_ad.dual_level(), pytest.raises(ts.GradientError, match=FORWARD):
        function(forward_ad.make_dual(x, torch.ones_like(x)))


def test_forward_mode_for_another_input_is_refused_too(lang64):
    case = cases.named("convolution")[0]
    op, (x, k) = case.op(lang64, torch.float64), case.inputs(torch.float64)
    with pytest.raises(ts.GradientError, match=FORWARD):
        jvp(lambda k: op(x, k), (k,), (torch.ones_like(k),))


TRANSFORMS = {
    "jacfwd": lambda f: jacfwd(f),
    "hessian": lambda f: hessian(lambda x: f(x).sum()),
    "grad of grad": lambda f: grad(lambda x: grad(lambda x: f(x).sum())(x).sum()),
    "grad of vmap of grad": lambda f: grad(lambda x: vmap(grad(lambda x: f(x[None]).sum()))(x).sum()),
    "jvp of grad": lambda f: lambda x: jvp(grad(lambda x: (f(x) ** 2).sum()), (x,), (torch.ones_like(x),)),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_func_transforms_are_refused(lang64, transform):
    function, x = one_input(cases.named("square")[0], lang64)
    with pytest.raises(ts.GradientError, match=EITHER):
        transform(function)(x)


@pytest.fixture
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_func_transforms_are_refused_when_compiled(lang64, transform):
    function, x = one_input(cases.named("square")[0], lang64)
    run = torch.compile(transform(function), backend="aot_eager")
    with pytest.raises(Exception, match=EITHER):
        run(x)


@pytest.mark.usefixtures("_fresh_compiler")
def test_the_second_derivative_of_a_compiled_call_is_refused(lang64):
    function, x = one_input(cases.named("square")[0], lang64)
    run, x = torch.compile(function, backend="aot_eager", fullgraph=True), x.requires_grad_()
    (first,) = torch.autograd.grad((run(x) ** 2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=SECOND):
        (first**2).sum().backward()


@pytest.mark.usefixtures("_fresh_compiler")
def test_forward_mode_of_a_compiled_call_is_refused(lang64):
    function, x = one_input(cases.named("square")[0], lang64)
    run = torch.compile(function, backend="aot_eager")

    def pushed():
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(run(forward_ad.make_dual(x, torch.ones_like(x)))).tangent

    with pytest.raises(Exception, match=FORWARD):
        pushed()
