"""A backward pass after a restart of the engine: the gradients of its fields have no memory any more."""

import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.each_engine


@pytest.mark.parametrize("is_rollout", [False, True])
def test_backward_after_a_restart_is_refused(lang64, is_rollout):
    lang = lang64
    x, y = (lang.field(lang.f64, 3, needs_grad=True) for _ in range(2))

    @lang.kernel
    def square():
        for i in range(3):
            y[i] = x[i] ** 2

    layer = ts.EmptyTin().register_input_field(x, "x").register_output_field(y).register_kernel(square).finish()
    run = ts.rollout(lambda: square(), {"x": x}, {"y": y}) if is_rollout else layer
    result = run(torch.rand(3, dtype=torch.float64, requires_grad=True))
    lang.init(lang.cpu, default_fp=lang.f64)
    with pytest.raises(ts.EngineError, match="`x` of .* was freed"):
        result.sum().backward()
    with pytest.raises(ts.EngineError, match="`x` of .* was freed"):
        ts.check(layer, torch.rand(3, dtype=torch.float64))


@pytest.mark.parametrize("is_seen_before", [False, True])
@pytest.mark.parametrize("makes_others", [False, True])
def test_a_destroyed_field_cannot_be_registered(lang64, is_seen_before, makes_others):
    lang = lang64
    plain, vectors = lang.field(lang.f64, 3), lang.Vector.field(2, lang.f64, (3, 2), needs_grad=True)
    member = lang.Struct.field({"mass": lang.f64}, shape=(4,)).mass
    fields = [plain, vectors, member]
    plain[0] = 1.0
    if is_seen_before:
        for one in fields:
            ts.EmptyTin().register_input_field(one, "x")
    lang.init(lang.cpu, default_fp=lang.f64)
    if makes_others:
        others = [lang.field(lang.f32, (2, 3)) for _ in range(3)]
        others[0][0, 0] = 1.0
        ts.EmptyTin().register_input_field(others[0], "x")
    for one in fields:
        with pytest.raises(ts.EngineError, match="`x` was freed when"):
            ts.EmptyTin().register_input_field(one, "x")
        with pytest.raises(ts.EngineError, match="`x` was freed when"):
            ts.rollout(lambda: None, {"x": one}, {"y": one})


def test_fields_of_a_builder_that_is_not_finalized_are_alive(lang64):
    builder, x, y = lang64.FieldsBuilder(), lang64.field(lang64.f64), lang64.field(lang64.f64)
    builder.dense(lang64.i, 3).place(x, y)
    tin = ts.EmptyTin().register_input_field(x, "x").register_output_field(y, "y")
    builder.finalize()

    @lang64.kernel
    def double():
        for i in x:
            y[i] = 2.0 * x[i]

    given = torch.rand(3, dtype=torch.float64)
    torch.testing.assert_close(tin.register_kernel(double).finish()(given), 2.0 * given)
