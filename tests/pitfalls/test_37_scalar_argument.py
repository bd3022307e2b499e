"""Pitfall 37: a learnable scale passed as a scalar argument gets no gradient (taichi #7780), nor does a vector's.

Written `a[]` in the spec, the scalar parameter takes a 0-d tensor and is differentiable; a `vec3` parameter is
`light[3]`. Without that, a tensor is refused: `.item()` would cut the graph in silence.
"""

import pytest
import torch

import cases
import tinsmith as ts
from support.engine_keeper import Configuration


def scale_kernel(lang):
    @lang.kernel
    def scale(a: lang.f64, x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = a * x[i] + lang.sin(a)

    return scale


def test_a_scalar_in_the_spec_is_differentiable(lang64):
    op = ts.op("a[], x[n] -> y[n]")(scale_kernel(lang64))
    a = torch.nn.Parameter(torch.randn((), dtype=torch.float64))
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    y = op(a, x)
    torch.testing.assert_close(y, a * x + torch.sin(a))
    y.sum().backward()
    torch.testing.assert_close(a.grad, (x.sum() + 5 * torch.cos(a)).detach())
    torch.testing.assert_close(x.grad, a.detach().expand(5))


def test_a_tensor_for_a_plain_scalar_is_refused_with_what_to_write(lang64):
    op = ts.op("x[n] -> y[n]")(scale_kernel(lang64))
    x = torch.randn(3, dtype=torch.float64)
    with pytest.raises(ts.ArgumentError, match=r"(?s)`a`.*`scale`.*a\[\]"):
        op(torch.randn((), dtype=torch.float64, requires_grad=True), x)
    torch.testing.assert_close(op(2.0, x), 2 * x + torch.sin(torch.tensor(2.0, dtype=torch.float64)))


def shade_kernel(lang):
    vec3, mat3 = lang.types.vector(3, lang.f64), lang.types.matrix(3, 3, lang.f64)

    @lang.kernel
    def shade(
        n: lang.types.ndarray(dtype=vec3, ndim=1),
        light: vec3,
        turn: mat3,
        y: lang.types.ndarray(dtype=lang.f64, ndim=1),
    ):
        for i in n:
            y[i] = (turn @ n[i]).dot(light)

    return shade


def shaded(n, light, turn):
    return (n @ turn.T) @ light


def rand(*shape):
    return torch.rand(*shape, dtype=torch.float64, requires_grad=True)


def test_vectors_and_matrices_in_the_spec_are_differentiable(lang64):
    op = ts.op("n[k, 3], light[3], turn[3, 3] -> y[k]")(shade_kernel(lang64))
    inputs = [rand(4, 3), rand(3), rand(3, 3)]
    torch.testing.assert_close(op(*inputs), shaded(*inputs))
    given = torch.autograd.grad(op(*inputs).square().sum(), inputs)
    torch.testing.assert_close(given, torch.autograd.grad(shaded(*inputs).square().sum(), inputs))


def test_one_for_each_sample_of_a_batch(lang64):
    op = ts.op("n[k, 3], light[*b, 3], turn[r, r] -> y[*b, k]")(shade_kernel(lang64))
    n, light, turn = rand(4, 3), rand(2, 3), rand(3, 3)
    expected = torch.stack([shaded(n, one, turn) for one in light])
    torch.testing.assert_close(op(n, light, turn), expected)
    given = torch.autograd.grad(op(n, light, turn).square().sum(), [n, light, turn])
    torch.testing.assert_close(given, torch.autograd.grad(expected.square().sum(), [n, light, turn]))
    scaled = ts.op("a[*b], x[n] -> y[*b, n]")(scale_kernel(lang64))
    a, x = rand(2), rand(5)
    torch.testing.assert_close(scaled(a, x), a[:, None] * x + torch.sin(a)[:, None])


SPECS = {
    "one": ("n[k, 3], light[3], turn[3, 3] -> y[k]", (3,), (3, 3)),
    "a batch of lights": ("n[k, 3], light[*b, 3], turn[3, 3] -> y[*b, k]", (2, 3), (3, 3)),
    "a batch of both": ("n[k, 3], light[*b, 3], turn[*b, 3, 3] -> y[*b, k]", (2, 3), (2, 3, 3)),
    "two batch dims": ("n[k, 3], light[*b, 3], turn[*b, 3, 3] -> y[*b, k]", (2, 4, 3), (2, 4, 3, 3)),
}


def shaded_in_a_batch(n, light, turn):
    return torch.einsum("...rc,kc,...r->...k", turn, n, light)


def assert_right(op, light, turn):
    inputs = [rand(4, 3), rand(*light), rand(*turn)]
    cases.assert_same_values_and_gradients(op, shaded_in_a_batch, inputs)


@pytest.mark.parametrize("row", SPECS)
def test_in_batches(lang64, row):
    spec, *shapes = SPECS[row]
    assert_right(ts.op(spec)(shade_kernel(lang64)), *shapes)


@pytest.mark.parametrize("row", SPECS)
def test_on_the_other_engine(engine_keeper, row):
    engine_keeper.ensure("quadrants", Configuration(default_fp="f64"))
    ti = engine_keeper.ensure("taichi", Configuration(default_fp="f64"))
    spec, *shapes = SPECS[row]
    op = ts.op(spec, engine="quadrants")(shade_kernel(ti))
    assert op.engine == "quadrants"
    assert_right(op, *shapes)


@pytest.mark.parametrize("row", SPECS)
@pytest.mark.parametrize("is_scalar", [False, True], ids=["array", "scalar"])
def test_with_a_backward_by_hand(lang64, row, is_scalar):
    """It takes `light` as the forward kernel does, a vector; what it gives its gradient in is an array."""
    vec3, mat3 = lang64.types.vector(3, lang64.f64), lang64.types.matrix(3, 3, lang64.f64)
    many, number = lang64.types.ndarray(dtype=vec3, ndim=1), lang64.types.ndarray(dtype=lang64.f64, ndim=1)
    one, square = lang64.types.ndarray(dtype=vec3, ndim=0), lang64.types.ndarray(dtype=mat3, ndim=0)

    @lang64.kernel
    def by_scalars(
        n: many, light: vec3, turn: mat3, grad_y: number, grad_n: many, grad_light: one, grad_turn: square
    ):  # fmt: skip
        for i in n:
            grad_n[i] = grad_y[i] * (turn.transpose() @ light)
            grad_light[None] += grad_y[i] * (turn @ n[i])
            grad_turn[None] += grad_y[i] * light.outer_product(n[i])

    @lang64.kernel
    def by_arrays(
        n: many, light: one, turn: square, grad_y: number, grad_n: many, grad_light: one, grad_turn: square
    ):  # fmt: skip
        for i in n:
            grad_n[i] = grad_y[i] * (turn[None].transpose() @ light[None])
            grad_light[None] += grad_y[i] * (turn[None] @ n[i])
            grad_turn[None] += grad_y[i] * light[None].outer_product(n[i])

    spec, *shapes = SPECS[row]
    assert_right(ts.op(spec, backward=by_scalars if is_scalar else by_arrays)(shade_kernel(lang64)), *shapes)


REFUSED = {
    "light": lambda op, n, light, turn: op(n, light, turn.tolist()),
    "turn": lambda op, n, light, turn: op(n, light.tolist(), turn),
}
LISTED = {"light": r"light\[3\]", "turn": r"turn\[3, 3\]"}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("needs_grad", [False, True])
def test_a_tensor_for_a_plain_vector_is_refused_with_what_to_write(lang64, name, needs_grad):
    op = ts.op("n[k, 3] -> y[k]")(shade_kernel(lang64))
    n, light, turn = (one.detach().requires_grad_(needs_grad) for one in (rand(4, 3), rand(3), rand(3, 3)))
    with pytest.raises(ts.ArgumentError, match=rf"(?s)`{name}`.*`shade`.*{name}\.tolist\(\).*{LISTED[name]}"):
        REFUSED[name](op, n, light, turn)
    torch.testing.assert_close(op(n, light.tolist(), turn.tolist()), shaded(n, light, turn))


def test_tensors_in_a_list_are_refused_too(lang64):
    op = ts.op("n[k, 3] -> y[k]")(shade_kernel(lang64))
    light = rand(3)
    with pytest.raises(ts.ArgumentError, match=r"(?s)`light`.*`shade` holds tensors.*light\[3\]"):
        op(rand(4, 3), [light[0], light[1], 1.0], [0.0] * 9)


TRANSFORMS = {
    "grad": lambda f, light: torch.func.grad(lambda one: f(one).sum())(light),
    "jvp": lambda f, light: torch.func.jvp(f, (light,), (light,)),
    "vmap": lambda f, light: torch.func.vmap(f)(light[None]),
    "compile": lambda f, light: torch.compile(f, fullgraph=True, backend="eager")(light),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_tensors_are_refused_under_transforms_too(lang64, transform):
    op = ts.op("n[k, 3] -> y[k]")(shade_kernel(lang64))
    n, light, turn = rand(4, 3).detach(), rand(3).detach(), rand(9).tolist()
    with pytest.raises(Exception, match=r"(?s)`light`.*`shade`.*light\[3\]"):
        TRANSFORMS[transform](lambda one: op(n, one, turn), light)


def test_the_spec_must_say_their_dims(lang64):
    for wrong in ("light[]", "light[3, 3]", "light[...]", "light[4]", "turn[3]", "turn[9]"):
        with pytest.raises(ts.SpecError, match=r"(?s)`(light|turn)` of op `shade`.*(light\[3\]|turn\[3, 3\]|`3`)"):
            ts.op(f"n[k, 3], {wrong} -> y[k]")(shade_kernel(lang64))
    op = ts.op("n[k, 3], light[a] -> y[k]")(shade_kernel(lang64))
    with pytest.raises(ts.ShapeError, match=r"(?s)`light`.*`shade`.*3"):
        op(rand(4, 3), rand(4), [0.0] * 9)
    with pytest.raises(ts.ArgumentError, match=r"(?s)`light`.*`shade`.*tensor"):
        op(rand(4, 3), [1.0, 2.0, 3.0], [0.0] * 9)
