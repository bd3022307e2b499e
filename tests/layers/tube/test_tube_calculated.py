"""Dims that are calculated at each call: of any rank, of numbers of any kind, beside those that are registered."""

import numpy as np
import pytest
import torch

import tinsmith as ts
from support.dropin import assert_agree, make_leaf

F64 = torch.float64
N = (ts.MatchDim("n"),)


def fill(lang):
    """Build a kernel that squares x into every element of y, whatever its rank."""

    @lang.kernel
    def fill(x: lang.template(), y: lang.template()):
        for place in lang.grouped(y):
            y[place] = x[None] * x[None]

    return fill


def test_the_rank_may_differ_from_call_to_call(lang64):
    shapes = []
    tube = ts.Tube().register_input_tensor((), F64, "x").register_output_tensor(lambda *_: shapes[-1], F64, "y", True)
    tube.register_kernel(fill(lang64), ["x", "y"]).finish()
    for shape in [(2,), (2, 3), (4,), (1, 2, 3), (3, 2)]:
        shapes.append(shape)
        x = make_leaf()
        assert_agree(tube(x), (x * x).expand(shape), [x])
    assert len(tube.explain("all").split("\n\nop `Tube(fill)`")) == 1 + 3  # one op a rank


def test_the_rank_may_differ_in_a_batch(lang64):
    shapes = []
    tube = ts.Tube().register_input_tensor((ts.BatchDim,), F64, "x")
    tube.register_output_tensor(lambda *_: (ts.BatchDim, *shapes[-1]), F64, "y", True)
    tube.register_kernel(fill(lang64), ["x", "y"]).finish()
    for shape in [(2,), (2, 3), ()]:
        shapes.append(shape)
        x = make_leaf(5)
        assert_agree(tube(x), (x * x).reshape(5, *[1] * len(shape)).expand(5, *shape), [x])


def copied(lang):
    @lang.kernel
    def copied(x: lang.template(), t: lang.template(), y: lang.template()):
        for i in t:
            t[i] = 2.0 * x[i]
        for i in y:
            y[i] = t[i] * t[i]

    return copied


SIZES = {
    "numpy": lambda shapes: (np.int64(shapes["x"][0]) - 1,),
    "torch": lambda shapes: torch.Size([shapes["x"][0] - 1]),
    "tensor": lambda shapes: (torch.tensor(shapes["x"][0] - 1),),
    "as torch counts": lambda shapes: (shapes["x"].numel() - 1,),
    "list": lambda shapes: [shapes["x"][0] - 1],
}


@pytest.mark.parametrize("size", SIZES)
def test_a_size_is_a_whole_number_of_any_kind(lang64, size):
    def dims(name, dims, shapes):
        return SIZES[size](shapes)

    tube = ts.Tube().register_input_tensor(N, F64, "x").register_intermediate_field(N, lang64.f64, "t", True)
    tube.register_output_tensor(dims, F64, "y", True).register_kernel(copied(lang64), ["x", "t", "y"]).finish()
    x = make_leaf(5)
    assert_agree(tube(x), 4.0 * x[:4] ** 2, [x])


class Registered(ts.DimensionCalculator):
    """The dims of the input, as they are registered; an intermediate field has one more element."""

    def calc_dimension(self, field_name, input_dimensions, input_tensor_shapes):
        if field_name == "t":
            return (*input_dimensions["x"][:-1], input_tensor_shapes["x"][-1])
        return input_dimensions["x"]


@pytest.mark.parametrize("lead", [(), (ts.BatchDim,)], ids=["single", "batch"])
def test_match_and_batch_dims_may_come_back(lang64, lead):
    tube = ts.Tube().register_input_tensor((*lead, *N), F64, "x")
    tube.register_intermediate_field(Registered(), lang64.f64, "t", True)
    tube.register_output_tensor(Registered(), F64, "y", True)
    tube.register_kernel(copied(lang64), ["x", "t", "y"]).finish()
    x = make_leaf(*[3] * len(lead), 4)
    assert_agree(tube(x), 4.0 * x**2, [x])


def test_an_empty_result(lang64):
    tube = ts.Tube().register_input_tensor((), F64, "x").register_output_tensor(lambda *_: (0, 3), F64, "y", True)
    y = tube.register_kernel(fill(lang64), ["x", "y"]).finish()(make_leaf())
    assert y.shape == (0, 3)


def test_vmap_of_calculated_dims_sees_one_sample(lang64):
    seen = []

    def dims(name, dims, shapes):
        seen.append(shapes["x"])
        return shapes["x"]

    tube = ts.Tube().register_input_tensor(N, F64, "x").register_intermediate_field(N, lang64.f64, "t", True)
    tube.register_output_tensor(dims, F64, "y", True).register_kernel(copied(lang64), ["x", "t", "y"]).finish()
    x = make_leaf(3, 5)
    assert_agree(torch.vmap(tube)(x), 4.0 * x**2, [x])
    assert seen == [(5,)]
