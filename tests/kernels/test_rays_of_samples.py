"""The kernels of compositing, segments and penalties: no race, nothing read that nobody wrote, on rays of all kinds."""

from __future__ import annotations

import pytest
import torch

import tinsmith as ts
from support.findings import sanitize_call
from support.packed import draw_samples, make_rays
from tinsmith import kernels

RAYS = make_rays([6, 0, 1, 2], gap=1)
SAMPLES = "densities[s], colors[m], t[s], steps[s], rays[n, 2]: i32"


def composite_ops(lang):
    for grouped in (False, True):
        built = kernels.composite(lang, fp="f32", n_channels=2, by_weights=True, by_place=True, grouped=grouped)
        yield f"{SAMPLES} -> color[n, 2], depth[n], left[n], weights[s]", built.value, {"threshold": 0.3}
    yield (
        f"{SAMPLES}, weights[s], left[n], c_color[n, 2], c_depth[n], c_left[n], c_weights[s] "
        "-> slope_densities[s], slope_colors[m], slope_t[s], slope_steps[s]",
        built.pull,
        {"threshold": 0.3},
    )


def segment_ops(lang):
    for exclusive in (True, False):
        for factory in (kernels.running_sum, kernels.running_product):
            built = factory(lang, fp="f32", lanes=2, exclusive=exclusive)
            yield "values[s, 4], rays[n, 2]: i32 -> y[s, 4]", built.value, {}
            given = "" if factory is kernels.running_sum else "values[s, 4], y[s, 4], "
            yield f"{given}rays[n, 2]: i32, c[s, 4] -> slope[s, 4]", built.pull, {}
    built = kernels.segment_sum(lang, fp="f32", lanes=2)
    yield "values[s, 4], rays[n, 2]: i32 -> y[n, 4]", built.value, {}
    yield "rays[n, 2]: i32, c[n, 4] -> slope[s, 4]", built.pull, {"s": len(draw_samples(RAYS)[0])}
    built = kernels.accumulate(lang, fp="f32", lanes=2)
    yield "weights[s], values[s, 4], rays[n, 2]: i32 -> y[n, 4]", built.value, {}
    arrays = "weights[s], values[s, 4], rays[n, 2]: i32, c[n, 4] -> slope_weights[s], slope_values[s, 4]"
    yield arrays, built.pull, {}


def penalty_ops(lang):
    built = kernels.distortion(lang, fp="f32")
    yield "weights[s], t[s], steps[s], rays[n, 2]: i32 -> loss[n]", built.value, {}
    arrays = "weights[s], t[s], steps[s], rays[n, 2]: i32, c[n] -> slope_weights[s], slope_t[s], slope_steps[s]"
    yield arrays, built.pull, {}
    built = kernels.entropy(lang, fp="f32")
    yield "weights[s], rays[n, 2]: i32 -> entropy[n]", built.value, {"faintest": 1e-3}
    yield "weights[s], rays[n, 2]: i32, c[n] -> slope[s]", built.pull, {"faintest": 1e-3}


@pytest.mark.parametrize("ops", [composite_ops, segment_ops, penalty_ops])
def test_the_sanitizer_finds_nothing(lang, ops):
    s = len(draw_samples(RAYS)[0])
    sizes = {"s": s, "n": len(RAYS), "m": 2 * s}
    for spec, kernel, named in ops(lang):
        op = ts.op(spec, races="allow")(kernel)
        inputs = {item.name: draw_argument(item, sizes) for item in op.spec.inputs}
        findings = sanitize_call(op, **inputs, **named)
        assert not findings.errors and "TS608" not in findings.rules, "\n".join(map(str, findings))


def test_the_sanitizer_sees_rays_that_share_a_sample(lang):
    built = kernels.running_sum(lang, fp="f32", lanes=1, exclusive=False)
    op = ts.op("values[s, 1], rays[n, 2]: i32 -> y[s, 1]", races="allow")(built.value)
    assert "TS601" in sanitize_call(op, torch.rand(4, 1), torch.tensor([[0, 3], [2, 2]], dtype=torch.int32)).rules


def draw_argument(item, sizes):
    if item.name == "rays":
        return RAYS
    return torch.rand([sizes.get(str(dim), None) or int(str(dim)) for dim in item.dims])


def test_rays_that_point_outside_are_cut(lang):
    built = kernels.segment_sum(lang, fp="f32", lanes=1)
    op = ts.op("values[s, 1], rays[n, 2]: i32 -> y[n, 1]")(built.value)
    rays = torch.tensor([[-2, 3], [2, 2**31 - 1], [2**31 - 1, 2**31 - 1], [1, -5]], dtype=torch.int32)
    assert op(torch.tensor([[1.0], [2.0], [4.0]]), rays).flatten().tolist() == [7.0, 4.0, 0.0, 0.0]
