"""float16 and bfloat16: computed in float32, rounded once on the way out, with gradients of the inputs' dtype."""

import pytest
import torch
from torch.func import grad, jacrev, jvp, vmap

import tinsmith as ts

HALVES = (torch.float16, torch.bfloat16)
pytestmark = pytest.mark.parametrize("half", HALVES, ids=["float16", "bfloat16"])


@pytest.fixture(autouse=True)
def _fresh_compiler():
    """Reset torch's compiler, which compiles the code shared by all ops only a limited number of times."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def weighed(lang, annotated=False, **options):
    """Build y = sum of w x over a row, and the row's squares."""
    array = lang.types.ndarray(dtype=lang.f32) if annotated else lang.types.ndarray()

    @ts.op(options.pop("spec", "x[n, m], w[m] -> y[n], s[n, m]"), **options)
    @lang.kernel
    def row(x: array, w: array, y: array, s: array):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i] += x[i, j] * w[j]
                s[i, j] = x[i, j] * x[i, j]

    return row


def compute_expected(x, w):
    """Compute in float32, rounded at the end."""
    a, b = x.float(), w.float()
    return (a @ b).to(x.dtype), (a * a).to(x.dtype)


def inputs(half):
    x, w = torch.randn(5, 700).to(half), torch.randn(700).to(half)
    return x.requires_grad_(), w.requires_grad_()


def compute_gradients(function, x, w):
    y, s = function(x, w)
    return torch.autograd.grad((y.float().sin().sum() + (s.float() * 0.5).sum()), (x, w))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("annotated", [False, True], ids=["open", "annotated f32"])
@pytest.mark.parametrize("way", ["eager", "compiled", "operator"])
def test_values_and_gradients(lang, half, annotated, way):
    op = weighed(lang, annotated)
    call = {
        "eager": op,
        "compiled": torch.compile(op, backend="aot_eager", fullgraph=True),
        "operator": op.operator,
    }[way]
    x, w = inputs(half)
    for mine, want in zip(call(x, w), compute_expected(x, w), strict=True):
        assert mine.dtype == half
        torch.testing.assert_close(mine, want, rtol=torch.finfo(half).eps, atol=1e-3)
    for mine, want in zip(compute_gradients(call, x, w), compute_gradients(compute_expected, x, w), strict=True):
        assert mine.dtype == half
        torch.testing.assert_close(mine, want, rtol=2 * torch.finfo(half).eps, atol=1e-2)


def test_results_are_rounded_once(lang, half):
    """4,096 times 1 is 4096: a sum in half precision would stop at 2048 or 256."""
    op = weighed(lang)
    x = torch.ones(1, 4096, dtype=half)
    assert op(x, x[0]).y.item() == 4096


def test_transforms(lang, half):
    op = weighed(lang, annotated=True)
    x, w = (one.detach() for one in inputs(half))
    batch = torch.stack([x, 2 * x])
    torch.testing.assert_close(vmap(op, (0, None))(batch, w).y[1], op(2 * x, w).y)
    slope = grad(lambda w: op(x, w).y.float().sum())(w)
    assert slope.dtype == half
    torch.testing.assert_close(slope, x.float().sum(0).to(half), rtol=torch.finfo(half).eps, atol=1e-3)
    assert jacrev(lambda w: op(x, w).y)(w).dtype == half
    value, tangent = jvp(lambda w: op(x, w).y, (w,), (w,))
    assert tangent.dtype == half
    torch.testing.assert_close(value, tangent, rtol=torch.finfo(half).eps, atol=1e-3)


def test_several_batch_dims(lang, half):
    @ts.op("x[*b, n] -> y[*b]")
    @lang.kernel
    def total(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            y[None] += x[i]

    x = torch.randn(2, 3, 4).to(half).requires_grad_()
    for call in (total, total.operator):
        y = call(x)
        torch.testing.assert_close(y, x.float().sum(-1).to(half))
        (g,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(g, torch.ones_like(x))


@pytest.mark.compiled_engine
def test_the_dtypes_of_results(lang, half):
    x, w = (one.detach() for one in inputs(half))
    assert [one.dtype for one in weighed(lang)(x, w.float())] == [torch.float32] * 2
    assert [one.dtype for one in weighed(lang, spec="x[n, m], w[m] -> y[n]: f32, s[n, m]")(x, w)] == [
        torch.float32,
        half,
    ]
    name = {torch.float16: "f16", torch.bfloat16: "bf16"}[half]
    asked = weighed(lang, annotated=True, spec=f"x[n, m], w[m] -> y[n]: {name}, s[n, m]")
    assert [one.dtype for one in asked(x.float(), w.float())] == [half, torch.float32]


def test_float16_and_bfloat16_together_give_float32(lang, half):
    x, w = (one.detach() for one in inputs(half))
    other = HALVES[1 - HALVES.index(half)]
    assert weighed(lang)(x, w.to(other)).y.dtype == torch.float32


def test_half_precision_is_refused_on_request(lang, half):
    x, w = (one.detach() for one in inputs(half))
    weighed(lang, half="refuse")(x, w)
    name = str(half).removeprefix("torch.")
    with pytest.raises(ts.DtypeError, match=rf"(?s)`x` of op `row`.*float32.*got +{name}.*\.to\(torch.float32\)"):
        weighed(lang, annotated=True, half="refuse")(x, w)
    with pytest.raises(ts.DtypeError, match=r"(?s)`x` of op `row`.*spec"):
        weighed(lang, spec="x[n, m]: f32, w[m] -> y[n], s[n, m]")(x, w)
    with pytest.raises(ts.ArgumentError, match="`half` cannot be 'round'"):
        weighed(lang, half="round")


def test_a_contradicting_output_dtype_is_refused(lang, half):
    name = {torch.float16: "f16", torch.bfloat16: "bf16"}[half]

    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray(dtype=lang.f64)):
        for i in x:
            y[i] = x[i]

    with pytest.raises(
        ts.SpecError, match=f"gives `y` of op `double` the dtype {name}, but its annotation says another"
    ):
        ts.op(f"x[n] -> y[n]: {name}")(double)


def test_under_autocast(lang, half):
    x, w = inputs(half)
    with torch.autocast("cpu", dtype=half):
        assert weighed(lang)(x, w).y.dtype == torch.float32
        assert torch.compile(weighed(lang), backend="aot_eager", fullgraph=True)(x, w).y.dtype == torch.float32


@pytest.mark.parametrize("spec", ["x[n], u[n]: f16 -> y[n]", "x[*b, n], u[*b, n] -> y[*b, n]"])
def test_an_array_of_half_precision_alone_under_transforms(lang, half, spec):
    """It is computed in single precision: an operator gets it twice, the second time as float32."""
    if half is not torch.float16:
        # Engines have no arrays of bfloat16.
        return

    @ts.op(spec)
    @lang.kernel
    def scaled(x: lang.types.ndarray(ndim=1), u: lang.types.ndarray(dtype=lang.f16, ndim=1), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * u[i] * u[i]

    x, u = torch.rand(4), torch.rand(4).half()
    slope = 2.0 * x * u.float()
    ways = {
        "backward": torch.autograd.grad(scaled(x, leaf := u.clone().requires_grad_()).sum(), leaf)[0],
        "grad": grad(lambda u: scaled(x, u).sum())(u),
        "vmap(grad)": vmap(grad(lambda u, x: scaled(x, u).sum()))(u[None], x[None])[0],
        "jacrev": jacrev(lambda u: scaled(x, u))(u).diagonal(),
        "jvp": jvp(lambda u: scaled(x, u), (u,), (torch.ones_like(u),))[1],
        "twice": grad(lambda u: (grad(lambda u: scaled(x, u).sum())(u) * u).sum())(u) / 2.0,
    }
    for way, one in ways.items():
        torch.testing.assert_close(one.float(), slope, rtol=4e-3, atol=4e-3, msg=way)
    with pytest.raises(ts.DtypeError, match="expected +float16"):
        grad(lambda u: scaled(x, u).sum())(u.float())


@pytest.mark.parametrize("dims", ["n", "*b, n"])
def test_an_output_of_half_precision_in_the_spec_under_transforms(lang, half, dims):
    """The kernel gives float32, also where torch calls the operator again with the inputs as they are computed."""
    name = {torch.float16: "f16", torch.bfloat16: "bf16"}[half]

    @ts.op(f"x[{dims}] -> y[{dims}]: {name}")
    @lang.kernel
    def square(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] = x[i] * x[i]

    def total(x):
        return square(x).float().sum()

    for x in torch.rand(4), torch.rand(4).to(half):
        value, slope = (x.float() ** 2).to(half), 2.0 * x
        ways = {
            "vmap": (vmap(square)(x[None])[0], value),
            "jvp": (jvp(square, (x,), (torch.ones_like(x),))[0], value),
            "tangent": (jvp(square, (x,), (torch.ones_like(x),))[1], slope.to(half)),
            "grad": (grad(total)(x), slope),
            "twice": (grad(lambda x: grad(total)(x).sum())(x), torch.full_like(x, 2.0)),
            "compiled": (torch.compile(square, backend="aot_eager", fullgraph=True)(x), value),
            "compiled grad": (
                torch.autograd.grad(torch.compile(total, backend="aot_eager")(y := x.clone().requires_grad_()), y)[0],
                slope,
            ),
        }
        for way, (one, wanted) in ways.items():
            torch.testing.assert_close(one, wanted, rtol=2e-2, atol=2e-2, msg=way)
