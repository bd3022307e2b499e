"""`engine="quadrants"`: kernels written for Taichi run on Quadrants, unchanged."""

import types

import pytest
import torch

import cases
import tinsmith as ts
from support.engine_keeper import Configuration


@pytest.fixture
def ti(engine_keeper):
    """Return Taichi, with both engines running in float64."""
    engine_keeper.ensure("quadrants", Configuration(default_fp="f64"))
    return engine_keeper.ensure("taichi", Configuration(default_fp="f64"))


def move_all(monkeypatch, **others):
    """Make every op run on Quadrants."""
    op, chain = ts.op, ts.chain
    monkeypatch.setattr(ts, "op", lambda spec, **own: op(spec, engine="quadrants", **{**others, **own}))
    monkeypatch.setattr(ts, "chain", lambda spec, kernels, **own: chain(spec, kernels, engine="quadrants", **own))


@pytest.mark.thinned(6)
@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_all_cases_run_on_the_other_engine(ti, monkeypatch, case):
    move_all(monkeypatch)
    rehomed = case.build(ti, ti.f64)
    assert "quadrants" in str(rehomed.engine).lower()
    cases.assert_same_values_and_gradients(
        lambda *inputs: rehomed(*inputs, **case.keywords), case.expected, case.inputs(torch.float64)
    )


def test_kernels_that_taichi_gets_wrong_are_right_on_quadrants(ti):
    """exp of a loop-carried value, summed in an inner loop: silently wrong in Taichi 1.7.4 (pitfall 88)."""

    @ts.op("x[n] -> y[n]", engine="quadrants")
    @ti.kernel
    def waves(x: ti.types.ndarray(ndim=1), y: ti.types.ndarray(ndim=1)):
        for i in x:
            s = 0.0
            v = x[i]
            for _ in range(4):
                v = v * 0.5 + x[i]
                s += ti.exp(-v)
            y[i] = s

    def twin(x):
        total, v = 0.0, x
        for _ in range(4):
            v = v * 0.5 + x
            total = total + torch.exp(-v)
        return total

    cases.assert_same_values_and_gradients(waves, twin, (torch.rand(5, dtype=torch.float64),))


def test_types_of_math_have_the_precision_of_the_engine_that_runs(engine_keeper):
    """`ti.math.vec3` is of the default float of Taichi as it is started, here float32: Quadrants works in float64."""
    engine_keeper.ensure("quadrants", Configuration(default_fp="f64"))
    ti = engine_keeper.ensure("taichi", Configuration(default_fp="f32"))
    tm = ti.math

    @ts.op("x[n, 3] -> y[n]", engine="quadrants")
    @ti.kernel
    def volumes(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in y:
            v = tm.vec3(x[i, 0], x[i, 1], x[i, 2])
            m = tm.mat2(v.x, v.y, v.z, 0.3)
            y[i] = v.dot(v) + v.x * v.y * v.z + m.determinant()

    def twin(x):
        return (x * x).sum(1) + x.prod(1) + 0.3 * x[:, 0] - x[:, 1] * x[:, 2]

    cases.assert_same_values_and_gradients(volumes, twin, (torch.rand(5, 3, dtype=torch.float64),))


def test_the_same_kernel_serves_both_engines_at_once(ti):
    @ti.kernel
    def cubed(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    x = torch.rand(4, dtype=torch.float64)
    for op in (ts.op("x[n] -> y[n]")(cubed), ts.op("x[n] -> y[n]", engine="quadrants")(cubed)):
        cases.assert_same_values_and_gradients(op, lambda x: x**3, (x,))
    y = torch.zeros_like(x)
    cubed(x, y)  # and still is the user's kernel
    cases.assert_close(y, x**3)


def test_code_as_libraries_have_it(ti):
    """Functions of modules and objects, types that close over a dtype, aliases of annotations, dataclasses, `math`."""
    dtype = ti.f64
    vec3, mat2 = ti.types.vector(3, dtype), ti.types.matrix(2, 2, dtype)
    array = ti.types.ndarray()

    @ti.dataclass
    class Ray:
        origin: vec3
        slope: vec3

        @ti.func
        def at(self, t):
            return self.origin + t * self.slope

    @ti.func
    def ease(x: dtype, sharpness: ti.template()):
        return ti.math.smoothstep(0.0, sharpness, x)

    @ti.func
    def turned(v: vec3, by: dtype):
        m = mat2([[ti.cos(by), -ti.sin(by)], [ti.sin(by), ti.cos(by)]])
        flat = m @ v.xy
        return vec3(flat.x, flat.y, v.z)

    library = types.SimpleNamespace(vec3=vec3, Ray=Ray, ease=ease)
    module = types.ModuleType("geometry")
    module.turned, module.sharpness = turned, 2.0

    @ti.kernel
    def trace(
        origin: ti.types.ndarray(library.vec3, ndim=1),
        slope: ti.types.ndarray(library.vec3, ndim=1),
        t: array,
        scale: dtype,
        end: ti.types.ndarray(library.vec3, ndim=1),
        weight: array,
    ):
        for i in t:
            ray = library.Ray(origin[i], ti.math.normalize(slope[i]))
            end[i] = module.turned(ray.at(t[i]), scale)
            weight[i] = library.ease(t[i], module.sharpness) * ti.math.dot(ray.slope, library.vec3(scale))

    def expected(origin, slope, t):
        slope = slope / slope.norm(dim=-1, keepdim=True)
        end = origin + t[:, None] * slope
        turn = torch.tensor(0.3, dtype=torch.float64)
        x, y = end[:, 0] * turn.cos() - end[:, 1] * turn.sin(), end[:, 0] * turn.sin() + end[:, 1] * turn.cos()
        s = (t / 2).clamp(0, 1)
        return torch.stack([x, y, end[:, 2]], -1), s * s * (3 - 2 * s) * 0.3 * slope.sum(-1)

    spec = "origin[n, 3], slope[n, 3], t[n] -> end[n, 3], weight[n]"
    inputs = torch.rand(6, 3, dtype=torch.float64), torch.rand(6, 3, dtype=torch.float64), torch.rand(6).double() + 0.1
    for engine in ("taichi", "quadrants"):
        op = ts.op(spec, engine=engine)(trace)
        assert op.engine == engine
        cases.assert_same_values_and_gradients(lambda *given, op=op: op(*given, 0.3), expected, inputs)


@pytest.mark.compiled_engine
@pytest.mark.parametrize("case", cases.select_cases("square", "functions", "rotated", "gather", "softmax"), ids=str)
def test_gradients_by_the_other_engines_reverse_mode(ti, monkeypatch, case):
    move_all(monkeypatch, adjoint="engine")
    moved = case.build(ti, ti.f64)
    cases.assert_same_values_and_gradients(
        lambda *inputs: moved(*inputs, **case.keywords), case.expected, case.inputs(torch.float64)
    )


@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_field_of_the_other_engine_is_refused(ti, has_gradient):
    table = ti.field(ti.f64, 4)

    @ti.kernel
    def looked_up(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = table[i] * x[i]

    with pytest.raises(
        ts.KernelError, match=r"cannot be moved from taichi to quadrants\n\s+`table`\s+is a field of taichi"
    ):
        ts.op("x[n] -> y[n]", engine="quadrants")(looked_up)(
            torch.rand(4, dtype=torch.float64, requires_grad=has_gradient)
        )
