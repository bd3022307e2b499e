"""`ts.oracle`: values and gradients of an op, worked out number by number, against torch in float64."""

import math
import time

import pytest
import torch
from torch.func import vmap

import cases
import tinsmith as ts
from cases import Draw, assert_close

draw = Draw(torch.float64)


def torch_says(function, inputs, given):
    """Compute outputs and gradients of a torch function in float64."""
    leaves = [t.double().clone().requires_grad_() if t.is_floating_point() else t for t in inputs]
    outputs = cases.list_tensors(function(*leaves))
    floats = [t for t in leaves if t.requires_grad]
    gradients = torch.autograd.grad(outputs, floats, given, allow_unused=True, materialize_grads=True)
    return tuple(t.detach() for t in outputs), gradients


def assert_agree(op, twin, inputs, *scalars, **sizes):
    """Assert that the oracle agrees with torch, in single precision too."""
    outputs = cases.list_tensors(twin(*(t.double() if t.is_floating_point() else t for t in inputs)))
    given = cases.draw_cotangents([t.double() for t in outputs])
    answer = ts.oracle(op, *inputs, *scalars, cotangents=given, **sizes)
    values, gradients = torch_says(twin, inputs, given)
    assert_close(tuple(answer.outputs.values()), values, rtol=1e-12, atol=1e-13)
    names = [name for name, t in zip(op.arguments, inputs, strict=False) if t.is_floating_point()]
    assert_close(tuple(answer.gradients[name] for name in names), gradients, rtol=1e-12, atol=1e-13)
    return answer


@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_the_table_of_ops_agrees_with_torch(lang64, case):
    inputs = case.inputs(torch.float64)
    op = case.raw_op(lang64, torch.float64)
    values, given = case.expected(*inputs), None
    floats = cases.select_differentiable(cases.list_tensors(values))
    given = dict(zip([n for n, _ in _float_outputs(op, values)], cases.draw_cotangents(floats), strict=True))
    answer = ts.oracle(op, *inputs, cotangents=given, **case.keywords)
    assert_close(tuple(answer.outputs.values()), cases.list_tensors(values))
    if cases.select_differentiable(inputs):
        wanted = cases.compute_gradients(case.expected, inputs)
        tensors = [n for n, v in zip(op.arguments, inputs, strict=True) if isinstance(v, torch.Tensor)]
        mine = [answer.gradients[name] for name in tensors if name in answer.gradients]
        assert_close(tuple(mine), wanted)


def _float_outputs(op, values):
    names = [item.name for item in op.spec.outputs]
    return [(n, v) for n, v in zip(names, cases.list_tensors(values), strict=True) if v.is_floating_point()]


def decay(lang):
    """Build a kernel with a loop-carried value, for which both engines' own gradients are wrong."""

    @ts.op("x[n], w[m] -> y[n]")
    @lang.kernel
    def decay(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            through = 1.0
            for j in range(w.shape[0]):
                if through < 0.2:
                    break
                through *= lang.exp(-x[i] * w[j])
            y[i] = through

    return decay


def decay_twin(x, w):
    values = []
    for one in x:
        through = torch.ones((), dtype=torch.float64)
        for weight in w:
            if through < 0.2:
                break
            through = through * torch.exp(-one * weight)
        values.append(through)
    return torch.stack(values)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_values_are_float64_whatever_the_inputs_are(lang, dtype):
    x, w = draw(6, low=0.1).to(dtype), draw(4, low=0.1).to(dtype)
    answer = assert_agree(decay(lang), decay_twin, (x, w))
    assert answer.outputs["y"].dtype == answer.gradients["x"].dtype == torch.float64


def test_only_outputs_are_computed_without_cotangents(lang):
    answer = ts.oracle(decay(lang), draw(6), draw(4))
    assert set(answer.outputs) == {"y"}
    assert answer.gradients == {}
    assert not answer.outputs["y"].requires_grad


def test_inputs_are_left_as_they_were(lang):
    x, w = draw(6).requires_grad_(), draw(4)
    before = x.detach().clone()
    ts.oracle(decay(lang), x, w, cotangents=torch.ones(6))
    assert torch.equal(x, before)
    assert x.grad is None


def two(lang):
    @ts.op("x[n] -> y[n], z[], c[n]: i32")
    @lang.kernel
    def two(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray(), c: lang.types.ndarray()):
        for i in x:
            y[i] = lang.sin(x[i])
            z[None] += x[i] ** 3
            c[i] = lang.cast(x[i] > 0.0, lang.i32)

    return two


@pytest.mark.parametrize("shape", ["mapping", "sequence"])
def test_cotangents_by_name_or_in_order(lang64, shape):
    op, x, given = two(lang64), draw(5), draw(5)
    named = {"y": given, "z": torch.tensor(2.0)}
    answer = ts.oracle(op, x, cotangents=named if shape == "mapping" else (given, torch.tensor(2.0), None))
    assert_close(answer.gradients["x"], given * x.cos() + 6 * x**2)
    assert torch.equal(answer.outputs["c"], (x > 0).int())


def test_omitted_cotangents_count_as_zero(lang64):
    x, given = draw(5), draw(5)
    assert_close(ts.oracle(two(lang64), x, cotangents={"y": given}).gradients["x"], given * x.cos())
    assert not ts.oracle(two(lang64), x, cotangents={}).gradients["x"].any()


def test_a_chain_runs_all_its_kernels(lang64):
    @lang64.kernel
    def squares(x: lang64.types.ndarray(), t: lang64.types.ndarray()):
        for i in x:
            t[i] = x[i] * x[i]

    @lang64.kernel
    def sums(t: lang64.types.ndarray(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in t:
            for j in range(i + 1):
                y[i] += t[j] * x[i]

    op = ts.chain("x[n] -> y[n]", [squares, sums], scratch="t[n]")
    assert_agree(op, lambda x: (x * x).cumsum(0) * x, (draw(6),))


def test_vectors_are_elements(lang64):
    @ts.op("p[n, 3], q[n, 3] -> y[n], c[n, 3]")
    @lang64.kernel
    def crossed(
        p: lang64.types.ndarray(dtype=lang64.math.vec3, ndim=1),
        q: lang64.types.ndarray(dtype=lang64.math.vec3, ndim=1),
        y: lang64.types.ndarray(ndim=1),
        c: lang64.types.ndarray(dtype=lang64.math.vec3, ndim=1),
    ):
        for i in p:
            c[i] = p[i].cross(q[i])
            y[i] = c[i].norm()

    assert_agree(
        crossed,
        lambda p, q: (torch.linalg.cross(p, q).norm(dim=-1), torch.linalg.cross(p, q)),
        (draw(4, 3), draw(4, 3)),
    )


def test_fields_of_a_template_s_rank_are_elements_too(lang64):
    @ts.op("p[n, 3] -> y[n]")
    @lang64.kernel
    def lengths(p: lang64.template(), y: lang64.template()):
        for i in p:
            y[i] = p[i].norm()

    assert_agree(lengths, lambda p: p.norm(dim=-1), (draw(4, 3),))


def test_scalar_arguments_have_gradients(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def scaled(
        x: lang64.types.ndarray(), a: float, v: lang64.types.vector(2, lang64.f64), k: int, y: lang64.types.ndarray()
    ):
        for i in x:
            y[i] = x[i] * a**k + v[1]

    x, given = draw(5), draw(5)
    answer = ts.oracle(scaled, x, 1.5, (0.2, 0.3), 2, cotangents=given)
    assert_close(answer.outputs["y"], 2.25 * x + 0.3)
    assert set(answer.gradients) == {"x", "a", "v"}
    assert_close(answer.gradients["a"], (given * x * 3.0).sum())
    assert_close(answer.gradients["v"], torch.stack([torch.zeros_like(given[0]), given.sum()]))


def test_a_scalar_of_the_spec_is_a_tensor(lang64):
    @ts.op("x[n], a[] -> y[n]")
    @lang64.kernel
    def scaled(x: lang64.types.ndarray(), a: float, y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * a

    assert_agree(scaled, lambda x, a: x * a, (draw(5), draw(1)[0]))


def test_templates_functions_and_sizes(lang64):
    @lang64.func
    def bent(v, how: lang64.template()):
        if lang64.static(how == "sine"):
            return lang64.sin(v)
        else:
            return lang64.tanh(v)

    @ts.op("x[n] -> y[n, m]")
    @lang64.kernel
    def spread(x: lang64.types.ndarray(), k: lang64.template(), y: lang64.types.ndarray()):
        for i, j in y:
            y[i, j] = bent(x[i] * (j + 1), "sine") + bent(x[i], "tanh") * k

    def twin(x):
        return (x[:, None] * torch.arange(1, 4)).sin() + x.tanh()[:, None] * 3

    answer = assert_agree(spread, twin, (draw(5),), 3, m=3)
    assert set(answer.gradients) == {"x"}


def test_batch_dims_run_sample_by_sample(lang64):
    @ts.op("x[*b, n], w[n] -> y[*b], z[*b, n]")
    @lang64.kernel
    def dotted(
        x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray(), z: lang64.types.ndarray()
    ):
        for i in x:
            y[None] += x[i] * w[i]
            z[i] = x[i] * x[i]

    for lead in [(), (3,), (2, 3)]:
        assert_agree(dotted, lambda x, w: ((x * w).sum(-1), x * x), (draw(*lead, 4), draw(4)))
    empty = ts.oracle(dotted, draw(0, 4), draw(4), cotangents={"y": draw(0)})
    assert empty.outputs["z"].shape == (0, 4)
    assert not empty.gradients["w"].any()


def test_fields_have_their_present_values(lang64):
    table = lang64.field(lang64.f64, 3)
    table.from_torch(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def scaled(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * table[i % 3]

    factors = torch.tensor([1.0, 2.0, 3.0, 1.0], dtype=torch.float64)
    assert_agree(scaled, lambda x: x * factors, (draw(4),))
    table[0] = 7.0
    assert_agree(scaled, lambda x: x * torch.tensor([7.0, 2.0, 3.0, 7.0]), (draw(4),))


def test_data_of_an_object(lang64):
    @lang64.data_oriented
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        @ts.op("x[n] -> y[n]")
        @lang64.kernel
        def run(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = x[i] * self.factor

    assert_agree(Scale(2.5).run, lambda x: x * 2.5, (draw(4),))


def test_derivatives_at_kinks_are_torchs(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def kinks(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = (
                lang64.max(x[i], 2.0 * x[i])
                + lang64.max(x[i], 0.0)
                + lang64.Vector([x[i], 0.0]).norm()
                + lang64.abs(x[i])
            )

    zero = torch.zeros(1, dtype=torch.float64)
    assert ts.oracle(kinks, zero, cotangents=torch.ones(1)).gradients["x"].item() == 1.5


# Refusals ---------------------------------------------------------------------------------------


def catch_refusal(error, op, *inputs, **named):
    with pytest.raises(error) as caught:
        ts.oracle(op, *inputs, **named)
    return str(caught.value)


def test_kernels_are_refused(lang):
    assert "ts.oracle takes an op" in catch_refusal(ts.ArgumentError, two(lang).kernel, draw(3))


def test_a_call_s_own_refusals_are_kept(lang):
    assert "is missing `w`" in catch_refusal(ts.ArgumentError, decay(lang), draw(3))
    assert "x" in catch_refusal(ts.DtypeError, decay(lang), draw(3).to(torch.complex64), draw(3))


def test_cotangents_that_fit_no_output(lang64):
    op, x = two(lang64), draw(5)
    words = catch_refusal(ts.ArgumentError, op, x, cotangents={"w": x})
    assert "`w`, which is not an output of op `two`" in words
    assert "y, z, c" in words
    assert "cotangents={'y': ...}" in words
    for wrong in ([x], x, 3.0):
        assert "one entry for each output of op `two`" in catch_refusal(ts.ArgumentError, op, x, cotangents=wrong)
    assert "no tensor for `y`" in catch_refusal(ts.ArgumentError, op, x, cotangents={"y": 1.0})
    assert "output `c` of op `two` holds no floats" in catch_refusal(ts.ArgumentError, op, x, cotangents={"c": x})
    words = catch_refusal(ts.ShapeError, op, x, cotangents={"y": draw(4)})
    assert "(5,)" in words
    assert "(4,)" in words


def test_unanalyzable_code_is_reported_with_its_line(lang):
    def outside(v):
        return v.undoable

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def strange(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = outside(x[i])

    words = catch_refusal(ts.KernelError, strange, draw(3))
    assert "op `strange` uses a construct that tinsmith cannot analyze" in words
    assert "the Python function `outside`" in words
    assert "test_oracle.py:" in words
    assert "Where the engine compiles the kernel, the op itself runs" in words


def test_an_index_outside_an_array_is_refused(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def shifted(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = x[i + 1]  # tinsmith: ignore[TS109]

    assert "index of `x` that is out of range" in catch_refusal(ts.KernelError, shifted, draw(3))


def test_inside_a_transform_it_is_refused(lang):
    op = two(lang)
    with pytest.raises(ts.ArgumentError, match=r"cannot run inside a transform"):
        vmap(lambda x: ts.oracle(op, x).outputs["y"])(draw(2, 3))


# Time -------------------------------------------------------------------------------------------


@pytest.mark.costly
def test_a_hundred_thousand_operations_take_seconds(lang64, capsys):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def long(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            v = x[i]
            for _ in range(250):
                v = lang64.sin(v) * 0.9 + x[i]  # sine, product, load, sum: 4
            y[i] = v

    x = draw(100)
    begin = time.process_time()
    answer = ts.oracle(long, x, cotangents=torch.ones(100))
    taken = time.process_time() - begin
    with capsys.disabled():
        print(f"\noracle: 100 x 250 x 4 operations with their gradient in {taken:.2f} s")  # noqa: T201
    assert math.isfinite(answer.gradients["x"].sum().item())
    assert taken < 10
