"""`ts.check`, `ts.gradcheck`, `ts.sanitize` and `ts.lint` of layers, on fields and on tensors."""

import pytest
import torch

import tinsmith as ts
from tinsmith.layers.fields._program import FieldProgram

N = 4
WAYS = {"fields": {}, "tensors": {"on_tensors": True}}


@pytest.fixture(params=WAYS)
def way(request):
    """Return options of a layer."""
    return WAYS[request.param]


def rand(*shape):
    return torch.rand(shape, dtype=torch.float64)


def graded(lang, shape=N, dtype=None):
    return lang.field(lang.f64 if dtype is None else dtype, shape=shape, needs_grad=True)


def scaled(lang, dtype=None, goal_s=3.0, **options):
    """Make y[i] = gain * x[i]^2 + goal[i], where `goal` is a field that is not registered."""
    x, y, gain = graded(lang, dtype=dtype), graded(lang, dtype=dtype), graded(lang, (), dtype)
    goal = lang.field(lang.f64, shape=N)
    goal.fill(goal_s)

    @lang.kernel
    def scale():
        for i in x:
            y[i] = gain[None] * x[i] * x[i] + goal[i]

    layer = ts.EmptyTin(**options).register_input_field(x, "x").register_output_field(y, "y")
    value = torch.tensor(2.0, dtype=torch.float32 if dtype is lang.f32 else torch.float64)
    return layer.register_weight_field(gain, name="gain", value=value).register_kernel(scale).finish()


# Right gradients ----------------------------------------------------------------------------------
def test_inputs_and_weights_are_compared(lang, way):
    result = ts.gradcheck(scaled(lang, **way), rand(N))
    assert result.verdict == "right", result
    assert result.name == "EmptyTin"
    assert "in float64" in result.notes
    by_name = {one.name: one for one in result.inputs}
    assert set(by_name) == {"x", "gain"}
    for one in by_name.values():
        torch.testing.assert_close(one.op, one.oracle)
        torch.testing.assert_close(one.op, one.differences, rtol=1e-6, atol=1e-8)
    assert result.summary.startswith("the gradient of layer `EmptyTin`, generated from the kernel's source: right\n")
    assert "layer - oracle" in result.summary


def test_in_single_precision(lang, way):
    result = ts.gradcheck(scaled(lang, lang.f32, **way), torch.rand(N))
    assert result.verdict == "right", result
    assert "in the layer's own precision, which is less than float64" in result.notes


def test_the_whole_report(lang, way):
    report = ts.check(scaled(lang, **way), rand(N))
    assert report.name == "layer `EmptyTin`"
    assert report.verdict == "right", report
    assert report.looked == ("lint", "sanitizer", "gradient check")
    assert report.gradient.kind == "layer"


def test_a_tin_of_a_data_oriented_object(lang, way):
    @lang.data_oriented
    class Square:
        def __init__(self):
            self.x, self.y = graded(lang), graded(lang)

        @lang.kernel
        def run(self):
            for i in self.x:
                self.y[i] = self.x[i] * self.x[i]

    one = Square()
    layer = ts.Tin(one, **way).register_input_field(one.x, "x").register_output_field(one.y, "y")
    layer = layer.register_kernel(one.run).finish()
    assert ts.check(layer, rand(N)).verdict == "right"


def chained(lang, *, lead=(), manager=None):
    """Make a Tube of two kernels; a field manager puts it on fields."""

    @lang.kernel
    def square(x: lang.template(), h: lang.template()):
        for i in x:
            h[i] = x[i] * x[i]

    @lang.kernel
    def triple(h: lang.template(), y: lang.template()):
        for i in h:
            y[i] = 3.0 * h[i]

    dims = (*lead, ts.MatchDim("n"))
    tube = ts.Tube().register_input_tensor(dims, torch.float64, "x")
    tube.register_intermediate_field(dims, lang.f64, "h", True, manager)
    tube.register_output_tensor(dims, torch.float64, "y", True)
    return tube.register_kernel(square, ["x", "h"]).register_kernel(triple, ["h", "y"]).finish()


def in_blocks(lang):
    """Make a field manager that lays out a field in blocks of two."""

    def construct(builder, shape, needs_grad):
        field = lang.field(lang.f64, needs_grad=needs_grad)
        blocks = builder.dense(lang.i, (shape[0] + 1) // 2).dense(lang.i, 2)
        blocks.place(*[field, field.grad] if needs_grad else [field])
        return field

    return construct


def test_a_tube_on_tensors(lang):
    report = ts.check(chained(lang), rand(N))
    assert report.verdict == "right", report
    assert report.gradient.origin == "generated from the kernel's source"


@pytest.mark.parametrize("lead", [(), (ts.BatchDim,)], ids=["single", "batch"])
def test_a_tube_on_fields(lang, lead):
    tube = chained(lang, lead=lead, manager=in_blocks(lang))
    assert "on fields" in tube.explain("all")
    report = ts.check(tube, rand(3, N) if lead else rand(N))
    assert report.verdict == "right", report
    assert report.gradient.origin == "generated from the kernel's source"


def test_a_layer_that_does_not_save(lang):
    assert ts.gradcheck(scaled(lang, save=False), rand(N)).verdict == "right"


def test_a_kernel_that_makes_no_op_is_compared_with_differences(lang64):
    lang = lang64
    x, y = lang.field(lang.f64, needs_grad=True), graded(lang)
    lang.root.dense(lang.i, N).place(x, offset=(2,))
    lang.root.dense(lang.i, N).place(x.grad, offset=(2,))

    @lang.kernel
    def shift():
        for i in y:
            y[i] = x[i + 2] ** 3

    layer = ts.EmptyTin().register_input_field(x, "x").register_output_field(y, "y").register_kernel(shift).finish()
    report = ts.check(layer, rand(N))
    assert report.verdict == "right"
    (finding,) = report.findings
    assert finding.rule == "TS608"
    assert "has a layout that no tensor has" in finding.message
    (x,) = report.gradient.inputs
    assert x.oracle is None
    torch.testing.assert_close(x.op, x.differences, rtol=1e-6, atol=1e-8)


def test_an_input_without_a_gradient_is_not_differentiated(lang):
    x, y, mask = graded(lang), graded(lang), lang.field(lang.f64, shape=N)

    @lang.kernel
    def masked():
        for i in x:
            y[i] = x[i] * mask[i]

    layer = ts.EmptyTin(adjoint="engine").register_input_field(x, "x").register_input_field(mask, "mask")
    layer = layer.register_output_field(y, "y").register_kernel(masked).finish()
    result = ts.gradcheck(layer, rand(N), rand(N))
    assert result.verdict == "right"
    assert [one.name for one in result.inputs] == ["x"]
    assert "not differentiated: `mask`, as registered, or since its field has no gradient" in result.notes


# Wrong gradients ----------------------------------------------------------------------------------
def test_a_wrong_gradient_of_the_engine_is_seen(lang, monkeypatch):
    right = FieldProgram.backward
    monkeypatch.setattr(FieldProgram, "backward", lambda *given: [1.5 * one for one in right(*given)])
    result = ts.gradcheck(scaled(lang, adjoint="engine"), rand(N))
    assert result.verdict == "wrong"
    assert {one.rule for one in result.findings} == {"TS701"}
    assert "the layer's gradient is wrong" in result.findings[0].message
    assert 'leave out adjoint="engine"' in result.findings[0].remedy


def test_a_wrong_gradient_without_an_oracle_is_seen(lang, monkeypatch):
    right = FieldProgram.backward
    x, y = graded(lang), lang.field(lang.f64, needs_grad=True)
    lang.root.dense(lang.i, N).place(y, offset=(1,))
    lang.root.dense(lang.i, N).place(y.grad, offset=(1,))

    @lang.kernel
    def shift():
        for i in x:
            y[i + 1] = x[i] ** 2

    layer = ts.EmptyTin(adjoint="engine").register_input_field(x, "x").register_output_field(y, "y")
    layer.register_kernel(shift).finish()
    monkeypatch.setattr(FieldProgram, "backward", lambda *given: [1.5 * one for one in right(*given)])
    assert ts.gradcheck(layer, rand(N)).verdict == "wrong"


def test_the_generated_gradient_of_a_layer_on_fields(lang, monkeypatch):
    monkeypatch.setattr(FieldProgram, "backward", lambda *given: pytest.fail("the engine's gradient was asked for"))
    result = ts.gradcheck(scaled(lang), rand(N), adjoint="source")
    assert result.verdict == "right"
    assert result.origin == "generated from the kernel's source"


@pytest.mark.each_engine
def test_constructs_that_the_engine_gets_wrong_are_reported(engine, lang):
    x, y = graded(lang), graded(lang)

    @lang.kernel
    def carried():
        for i in x:
            a = x[i]
            for _ in range(3):
                a = lang.exp(a) * 0.5
            y[i] = a

    def make(adjoint):
        layer = ts.EmptyTin(adjoint=adjoint).register_input_field(x, "x").register_output_field(y, "y")
        return layer.register_kernel(carried).finish()

    assert ts.gradcheck(make("auto"), rand(N)).verdict == "right"
    result = ts.gradcheck(make("engine"), rand(N))
    if engine == "taichi":
        assert result.verdict == "refused"
        assert "TS404" in result.findings[0].message
    else:
        assert result.verdict == "right"


# Other findings -----------------------------------------------------------------------------------
def test_an_index_outside_is_seen_before_anything_is_launched(lang, way, monkeypatch):
    x, y = graded(lang), graded(lang)

    @lang.kernel
    def slopes():
        for i in x:
            y[i] = x[i + 1] - x[i]

    layer = ts.EmptyTin(**way).register_input_field(x, "x").register_output_field(y, "y").register_kernel(slopes)
    layer.finish()
    monkeypatch.setattr(FieldProgram, "forward", lambda *_, **__: pytest.fail("launched"))
    report = ts.check(layer, rand(N))
    assert report.verdict == "wrong"
    assert "TS604" in {one.rule for one in report.findings}
    assert ts.gradcheck(layer, rand(N)).verdict == "not compared"
    assert "TS604" in {one.rule for one in ts.sanitize(layer, rand(N))}


def test_lint_of_a_layer(lang, way):
    x, y = graded(lang), graded(lang)

    @lang.kernel
    def count():
        for i in x:
            n = 0
            n += 0.5 * x[i]
            y[i] = n

    layer = ts.EmptyTin(**way).register_input_field(x, "x").register_output_field(y, "y").register_kernel(count)
    assert "TS301" in {one.rule for one in ts.lint(layer.finish())}
    assert "TS301" in {one.rule for one in ts.check(layer, rand(N)).findings}


def test_lint_of_a_tube(lang):
    assert ts.lint(chained(lang)) == []


# Fields -------------------------------------------------------------------------------------------
def test_fields_are_left_as_they_are(lang):
    x, y, total = graded(lang), graded(lang), graded(lang, ())

    @lang.kernel
    def add():
        for i in x:
            y[i] += x[i] * x[i]
            total[None] += x[i]

    layer = ts.EmptyTin().register_input_field(x, "x").register_output_field(y, "y", clear=False)
    layer = layer.register_internal_field(total, name="total", clear=False).register_kernel(add).finish()
    contents = {x: 1.0, y: 2.0, total: 3.0}
    for field, value in contents.items():
        field.fill(value)
        field.grad.fill(10.0 * value)
    result = ts.gradcheck(layer, rand(N))
    assert result.verdict == "right", result
    for field, value in contents.items():
        assert (field.to_numpy() == value).all()
        assert (field.grad.to_numpy() == 10.0 * value).all()


def test_contents_of_fields_are_part_of_the_values(lang):
    """The oracle, the differences and the layer see the same `goal`."""
    layer = scaled(lang, goal_s=5.0)
    torch.testing.assert_close(layer(torch.zeros(N, dtype=torch.float64)), torch.full((N,), 5.0, dtype=torch.float64))
    assert ts.check(layer, rand(N)).findings == []


# Refusals -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("ask", [ts.check, ts.gradcheck, ts.sanitize], ids=["check", "gradcheck", "sanitize"])
def test_unsupported_layers_are_refused(lang, ask):
    layer = scaled(lang)
    with pytest.raises(ts.ArgumentError, match="EmptyTin got 0 tensors"):
        ask(layer)
    with pytest.raises(ts.ArgumentError, match="by name"):
        ask(layer, x=rand(N))
    with pytest.raises(ts.RegistrationError, match="finish"):
        ask(ts.EmptyTin(), rand(N))
    with pytest.raises(ts.RegistrationError, match="finish"):
        ask(ts.Tube(), rand(N))
    with pytest.raises(ts.ArgumentError, match="takes an op or a layer"):
        ask(torch.nn.Linear(3, 3), rand(3))
