"""Modes and types that override torch's functions see an op as they see a `torch.library.custom_op`: as one call."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
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


def test_a_mode_may_replace_the_result(lang64):
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


def tube_of(lang, **_):
    @lang.kernel
    def cube(x: lang.template(), y: lang.template()):
        for i in y:
            y[i] = x[i] * x[i] * x[i]

    tube = ts.Tube().register_input_tensor((ts.MatchDim("n"),), F64, "x")
    return tube.register_output_tensor((ts.MatchDim("n"),), F64, "y", True).register_kernel(cube, ["x", "y"]).finish()


def tin_of(lang, **options):
    @lang.data_oriented
    class Cubes:
        def __init__(self):
            self.x, self.y = (lang.field(lang.f64, shape=3, needs_grad=True) for _ in range(2))

        @lang.kernel
        def run(self):
            for i in self.y:
                self.y[i] = self.x[i] * self.x[i] * self.x[i]

    cubes = Cubes()
    layer = ts.Tin(cubes, **options).register_kernel("run")
    return layer.register_input_field(cubes.x, "x").register_output_field(cubes.y, "y").finish()


@pytest.mark.filterwarnings(NESTED_WARNING)
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
@pytest.mark.parametrize("make", [tube_of, tin_of])
def test_nested_tensors_for_layers(lang64, make, layout):
    layer, x = make(lang64), torch.nested.nested_tensor([X, W], layout=layout, requires_grad=True)
    words = rf"(?s)tensor `x` of T.* is nested \({layout}\).*Call it for each part of `x.unbind\(\)`"
    with pytest.raises(ts.ArgumentError, match=words):
        layer(x)
    parts = [layer(part) for part in x.unbind()]
    torch.testing.assert_close(parts, [X**3, W**3])
    (slope,) = torch.autograd.grad(sum(part.sum() for part in parts), x)
    torch.testing.assert_close(list(slope.unbind()), [3 * X**2, 3 * W**2])


MODULES = {
    "Encoding": lambda: ts.nn.Encoding(3, {"otype": "HashGrid", "n_levels": 2, "log2_hashmap_size": 8}),
    "Network": lambda: ts.nn.Network(3, 2, {"n_neurons": 16, "n_hidden_layers": 1}),
    "NetworkWithInputEncoding": lambda: ts.nn.NetworkWithInputEncoding(
        3, 2, {"otype": "HashGrid", "n_levels": 2, "log2_hashmap_size": 8}, {"n_neurons": 16, "n_hidden_layers": 1}
    ),
}


@pytest.mark.filterwarnings(NESTED_WARNING)
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_nested_tensors_for_modules_of_nn(lang, name, layout):
    module, x = MODULES[name](), torch.nested.nested_tensor([torch.rand(5, 3), torch.rand(2, 3)], layout=layout)
    words = rf"(?s)tensor `x` of {name} is nested \({layout}\).*Call it for each part of `x.unbind\(\)`"
    with pytest.raises(ts.ArgumentError, match=words):
        module(x)
    assert [len(module(part)) for part in x.unbind()] == [5, 2]


# Layers and tensors without memory ----------------------------------------------------------------
def on_tensors(lang):
    return tin_of(lang, on_tensors=True)


@pytest.mark.parametrize("make", [tube_of, on_tensors])
def test_meta_tensors_for_layers(lang64, make):
    layer, x = make(lang64), X.to("meta")
    for shape, function in (
        ((3,), layer),
        ((3,), torch.func.grad(lambda x: layer(x).sum())),
        ((3, 3), torch.func.jacrev(layer)),
    ):
        result = function(x)
        assert (result.shape, result.device.type) == (shape, "meta")
    assert torch.vmap(layer)(x.expand(2, 3)).shape == (2, 3)


@pytest.mark.parametrize("name", MODULES)
def test_meta_tensors_for_modules_of_nn(lang, name):
    module = MODULES[name]()
    state = {key: one.to("meta") for key, one in (*module.named_parameters(), *module.named_buffers())}
    x = torch.rand(5, 3, device="meta")
    wanted = module(torch.rand(5, 3)).shape
    assert torch.func.functional_call(module, state, (x,)).shape == wanted
    assert torch.vmap(lambda x: torch.func.functional_call(module, state, (x,)))(x.expand(4, 5, 3)).shape == (
        4,
        *wanted,
    )
    slopes = torch.func.grad(lambda state: torch.func.functional_call(module, state, (x,)).sum())({**state})
    assert slopes["params"].shape == module.params.shape


def test_fields_are_not_filled_from_tensors_without_memory(lang64):
    layer = tin_of(lang64)
    with pytest.raises(ts.DeviceError, match=r"(?s)runs on fields.*meta.*on_tensors=True"):
        layer(X.to("meta"))
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(ts.ArgumentError, match=r"(?s)without memory"):
        layer(torch.ones(3, dtype=F64))
    torch.testing.assert_close(layer(X), X**3)
