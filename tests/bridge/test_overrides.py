"""Modes and types that override torch's functions see an op as they see a `torch.library.custom_op`: as one call."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import tinsmith as ts

pytestmark = pytest.mark.thinned(4)

F64 = torch.float64
X = torch.rand(3, dtype=F64) + 0.1
W = torch.rand(3, dtype=F64) + 0.1


@torch.library.custom_op("override_tests::cube", mutates_args=())
def cube_of_torch(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x**3 * w


@cube_of_torch.register_fake
def _(x, w):
    return torch.empty_like(x)


def cubes(lang):
    @ts.op("x[n], w[n] -> y[n]")
    @lang.kernel
    def cube(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * x[i] * w[i]

    return cube


class Functions(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Functions, Dispatches])
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_mode_sees_one_call(lang64, mode, needs_gradient):
    op, x = cubes(lang64), X.clone().requires_grad_(needs_gradient)
    op(x, W)  # the fast path knows it
    with mode() as active:
        result = op(x, W)
    assert active.seen == [op.operator]
    with mode() as active:
        cube_of_torch(x, W)
    assert active.seen == [torch.ops.override_tests.cube.default]
    if needs_gradient:
        torch.testing.assert_close(torch.autograd.grad(result.sum(), x), (3 * X**2 * W,))


def test_a_mode_may_answer_for_it(lang64):
    op = cubes(lang64)

    class Zero(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return torch.zeros(3) if func is op.operator else func(*args, **(kwargs or {}))

    with Zero():
        assert torch.equal(op(X, W), torch.zeros(3))
    with torch.device("cpu"):  # a mode too
        torch.testing.assert_close(op(X, W), X**3 * W)


SEEN = []


class Listening(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Logging(torch.Tensor):
    """A tensor around another one, as in torch's own `LoggingTensor`."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner.detach()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        SEEN.append(func)
        bare = tree_map(lambda one: one.inner if isinstance(one, Logging) else one, (args, kwargs or {}))
        return tree_map(lambda one: Logging(one) if isinstance(one, torch.Tensor) else one, func(*bare[0], **bare[1]))


@pytest.mark.parametrize("make", [lambda x: x.as_subclass(Listening), Logging], ids=["function", "dispatch"])
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_type_of_tensors_sees_one_call(lang64, make, needs_gradient):
    op = cubes(lang64)
    x = make(X.clone()).detach().requires_grad_(needs_gradient)
    for function, operator in ((op, op.operator), (cube_of_torch, torch.ops.override_tests.cube.default)):
        SEEN.clear()
        result = function(x, W)
        assert SEEN == [operator]
        assert type(result) is type(x)
    if needs_gradient:
        (slope,) = torch.autograd.grad(op(x, W).sum(), x)
        slope = slope.inner if isinstance(slope, Logging) else slope.as_subclass(torch.Tensor)
        torch.testing.assert_close(slope, 3 * X**2 * W)


# Tensors that an op does not take -----------------------------------------------------------------
def rows_doubled(lang):
    @ts.op("x[b, n] -> y[b, n]")
    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i, j in x:
            y[i, j] = 2.0 * x[i, j]

    return double


NESTED_WARNING = "ignore:The PyTorch API of nested tensors:UserWarning"


@pytest.mark.filterwarnings(NESTED_WARNING)
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_and_what_to_do_with_them(lang64, layout):
    op = cubes(lang64)
    x, w = (torch.nested.nested_tensor([one, one[:2]], layout=layout, requires_grad=True) for one in (X, W))
    words = rf"(?s)tensor `x` of op `cube` is nested \({layout}\).*2 parts.*Call it for each part: `(.*)`\."
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode(), pytest.raises(ts.ArgumentError, match=words) as caught:
            op(x, w)
    remedy = caught.match(words) and str(caught.value).split("`")[-2]
    parts = eval(remedy, {"cube": op, "x": x, "w": w})
    for ours, one, other in zip(parts, x.unbind(), w.unbind(), strict=True):
        torch.testing.assert_close(ours, one**3 * other)
    (slope,) = torch.autograd.grad(sum(part.sum() for part in parts), x)
    for ours, one, other in zip(slope.unbind(), x.unbind(), w.unbind(), strict=True):
        torch.testing.assert_close(ours, 3 * one**2 * other)
    with pytest.raises(ts.ArgumentError, match=r"`\[cube\(x, w\) for w in w.unbind\(\)\]`"):
        op(X, w)


@pytest.mark.filterwarnings(NESTED_WARNING)
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_a_nested_tensor_for_an_op_on_batches_is_padded(lang64, layout):
    double = rows_doubled(lang64)
    x = torch.nested.nested_tensor([X, X[:2]], layout=layout)
    with pytest.raises(ts.ArgumentError, match=r"Pass `x.to_padded_tensor\(0.0\)`"):
        double(x)
    padded = double(x.to_padded_tensor(0.0))
    torch.testing.assert_close(padded, torch.stack([2 * X, torch.cat([2 * X[:2], torch.zeros(1)])]))


EXOTIC = {
    "masked": (lambda: torch.masked.masked_tensor(X, X > 0.3), "is masked", lambda x: x.to_tensor(0.0)),
    "sparse": (lambda: X.to_sparse(), "is sparse", lambda x: x.to_dense()),
    "mkldnn": (lambda: X.float().to_mkldnn(), "torch._mkldnn", lambda x: x.to_dense().double()),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors:UserWarning")
@pytest.mark.parametrize("name", EXOTIC)
def test_other_tensors_and_what_to_do_with_them(lang64, name):
    make, words, remedy = EXOTIC[name]
    op, x = cubes(lang64), make()
    with pytest.raises(ts.ArgumentError, match=f"`x` of op `cube` {words}" if name != "mkldnn" else words):
        op(x, W)
    assert op(remedy(x), W).shape == (3,)
