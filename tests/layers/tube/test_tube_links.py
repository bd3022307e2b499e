"""How a Tube links kernels: by position, under names of any kind, one kernel as often as wanted."""

import pytest
import torch

import tinsmith as ts
from support.dropin import assert_agree, make_leaf
from support.engine_keeper import Configuration

F64 = torch.float64
N = (ts.MatchDim("n"),)


def scale(lang):
    @lang.kernel
    def scale(a: lang.template(), out: lang.template(), by: lang.f64):
        for i in a:
            out[i] = a[i] * by

    return scale


def product(lang):
    @lang.kernel
    def product(a: lang.template(), b: lang.template(), out: lang.template()):
        for i in a:
            out[i] = a[i] * b[i] + a[i]

    return product


def ends(x="x", y="y", dims=N):
    return ts.Tube().register_input_tensor(dims, F64, x).register_output_tensor(dims, F64, y, True)


# Names --------------------------------------------------------------------------------------------
NAMES = [
    ("x", "y"),
    ("out", "a"),  # the kernel's own, the other way round
    ("by", "i"),  # what the kernel calls other things
    ("a tensor", "3"),
    ("class", "None"),
    ("_a", "__"),
    ("größe", "größe "),
    ("x y", "x_y"),  # different names, of which one identifier would be made
    ("self", "ti"),
    ("n", "batch"),  # as dims are called
    ("count", "index"),  # as methods of tuples are called
]


@pytest.mark.parametrize(("x", "y"), NAMES)
def test_tensors_may_have_any_name(lang64, x, y):
    tube = ends(x, y).register_kernel(scale(lang64), [x, y], 3.0).finish()
    given = make_leaf(4)
    assert_agree(tube(given), 3.0 * given, [given])


def test_a_name_of_the_enclosing_scope_keeps_its_meaning(lang64):
    weight = 3.0

    @lang64.kernel
    def weigh(a: lang64.template(), out: lang64.template()):
        for i in a:
            out[i] = a[i] * weight

    tube = ends("weight", "y").register_kernel(weigh, ["weight", "y"]).finish()
    given = make_leaf(4)
    assert_agree(tube(given), 3.0 * given, [given])


def test_the_results_have_the_names_of_the_outputs(lang64):
    tube = ends().register_output_tensor(N, F64, "z", True)
    tube.register_kernel(scale(lang64), ["x", "y"], 2.0).register_kernel(scale(lang64), ["y", "z"], 5.0, name="again")
    given = make_leaf(3)
    results = tube.finish()(given)
    assert results._fields == ("y", "z")
    assert_agree(results, (2.0 * given, 10.0 * given), [given])


def test_a_message_of_the_op_shows_the_name_of_the_tensor(lang64):
    tube = ends("photo", "y").register_kernel(scale(lang64), ["photo", "y"], 2.0).finish()
    with pytest.raises(ts.ArgumentError, match="tensor `photo` of op `Tube"):
        tube(torch.rand(4, dtype=F64).to_sparse())


# Kernels ------------------------------------------------------------------------------------------
def test_one_kernel_twice_with_other_tensors_and_other_arguments(lang64):
    kernel = scale(lang64)
    tube = ends().register_intermediate_field(N, lang64.f64, "t", True)
    tube.register_kernel(kernel, ["x", "t"], 2.0).register_kernel(kernel, ["t", "y"], 5.0, name="again").finish()
    given = make_leaf(4)
    assert_agree(tube(given), 10.0 * given, [given])
    tube.set_kernel_extra_args("again", 0.5)
    assert_agree(tube(given), given, [given])


def test_kernels_of_one_name(lang64):
    tube = ends().register_intermediate_field(N, lang64.f64, "t", True)
    tube.register_kernel(scale(lang64), ["x", "t"], 2.0).register_kernel(scale(lang64), ["t", "y"], 5.0, name="b")
    given = make_leaf(4)
    assert_agree(tube.finish()(given), 10.0 * given, [given])


def test_one_tensor_for_two_parameters_of_a_kernel(lang64):
    tube = ends().register_kernel(product(lang64), ["x", "x", "y"]).finish()
    given = make_leaf(4)
    assert_agree(tube(given), given * given + given, [given])


def test_one_output_for_two_parameters_of_a_kernel(lang64):
    @lang64.kernel
    def halves(a: lang64.template(), left: lang64.template(), right: lang64.template()):
        for i in a:
            left[2 * i] = 2.0 * a[i]
        for i in a:
            right[2 * i + 1] = 3.0 * a[i]

    tube = ts.Tube().register_input_tensor((2,), F64, "x").register_output_tensor((4,), F64, "y", True)
    tube.register_kernel(halves, ["x", "y", "y"]).finish()
    given = make_leaf(2)
    assert_agree(tube(given), torch.stack([2.0 * given, 3.0 * given], 1).flatten(), [given])


def test_an_array_may_be_annotated_as_one(lang64):
    @lang64.kernel
    def square(a: lang64.types.ndarray(), out: lang64.types.ndarray(dtype=lang64.f64, ndim=1)):
        for i in a:
            out[i] = a[i] * a[i]

    tube = ends().register_kernel(square, ["x", "y"]).finish()
    given = make_leaf(4)
    assert_agree(tube(given), given**2, [given])


def test_an_op_stands_for_its_kernel(lang64):
    op = ts.op("a[n], b[n] -> out[n]")(product(lang64))
    tube = ends().register_kernel(op, ["x", "x", "y"]).finish()
    given = make_leaf(4)
    assert_agree(tube(given), op(given, given), [given])


def test_a_number_may_be_a_tensor_and_then_has_a_gradient(lang64):
    @lang64.kernel
    def times(a: lang64.template(), by: lang64.f64, out: lang64.template()):
        for i in a:
            out[i] = a[i] * by

    tube = ends().register_input_tensor((), F64, "by").register_kernel(times, ["x", "by", "y"]).finish()
    given, by = make_leaf(4), make_leaf()
    assert_agree(tube(given, by), given * by, [given, by])


def test_an_input_may_be_used_only_for_its_shape(lang64):
    @lang64.kernel
    def spread(a: lang64.template(), out: lang64.template()):
        for i, j in out:
            out[i, j] = a[i]

    tube = ts.Tube().register_input_tensor(N, F64, "x").register_input_tensor((ts.MatchDim("m"),), F64, "like")
    tube.register_output_tensor((*N, ts.MatchDim("m")), F64, "y", True).register_kernel(spread, ["x", "y"]).finish()
    given = make_leaf(3)
    assert_agree(tube(given, torch.rand(2)), given[:, None].expand(3, 2), [given])


# Extra arguments ----------------------------------------------------------------------------------
def test_numbers_vectors_and_templates(lang64):
    @lang64.kernel
    def mix(
        a: lang64.template(),
        out: lang64.template(),
        by: lang64.template(),
        ends: lang64.types.vector(2, lang64.f64),
        shift: lang64.i32,
    ):
        for i in a:
            out[i] = a[i] * (by + ends[0]) - ends[1] + shift

    tube = ends().register_kernel(mix, ["x", "y"], 3, [0.5, 2.0], 1).finish()
    given = make_leaf(4)
    first = tube(given)
    tube.set_kernel_extra_args(mix, 5, lang64.Vector([1.5, 0.0]), -1)
    second = tube(given)
    tube.set_kernel_extra_args(mix, 5, torch.tensor([0.0, 1.0]).tolist(), 0)
    assert_agree((first, second, tube(given)), (3.5 * given - 1.0, 6.5 * given - 1.0, 5.0 * given - 1.0), [given])


def test_a_vector_that_learns(lang64):
    """An extra argument is numbers; registered as an input, the same parameter takes a tensor."""
    vec2 = lang64.types.vector(2, lang64.f64)

    @lang64.kernel
    def bent(a: lang64.template(), ends: vec2, out: lang64.template()):
        for i in a:
            out[i] = a[i] * ends[0] + ends.y * ends.y

    with pytest.raises(ts.ArgumentError, match=r"(?s)`ends`.*is a tensor.*ends\.tolist\(\).*`\(2,\)`"):
        ends().register_kernel(bent, ["x"], torch.rand(2), torch.rand(4))
    tube = ends().register_input_tensor((2,), F64, "ends").register_kernel(bent, ["x", "ends", "y"]).finish()
    given, bends = make_leaf(4), make_leaf(2)
    assert_agree(tube(given, bends), given * bends[0] + bends[1] ** 2, [given, bends])


def test_numbers_may_be_given_later(lang64):
    tube = ends().register_kernel(scale(lang64), ["x", "y"]).finish()
    with pytest.raises(ts.ArgumentError, match="`scale` does not get as many arguments"):
        tube(torch.rand(3, dtype=F64))
    tube.set_kernel_extra_args("scale", 2.0)
    given = make_leaf(3)
    assert_agree(tube(given), 2.0 * given, [given])


# Data-oriented kernels ----------------------------------------------------------------------------
def model(lang):
    @lang.data_oriented
    class Model:
        def __init__(self, gain):
            self.gain = gain

        @lang.kernel
        def amplify(self, a: lang.template(), out: lang.template(), by: lang.f64):
            for i in a:
                out[i] = a[i] * self.gain * by

    return Model


def test_kernels_of_objects_each_with_its_own(lang64):
    louder, softer = model(lang64)(4.0), model(lang64)(0.25)
    tube = ends().register_intermediate_field(N, lang64.f64, "t", True)
    tube.register_kernel(louder.amplify, ["x", "t"], 3.0)
    tube.register_kernel(softer.amplify, ["t", "y"], 1.0, name="softer").finish()
    given = make_leaf(4)
    assert_agree(tube(given), 3.0 * given, [given])
    softer.gain = 2.0
    assert_agree(tube(given), 24.0 * given, [given])
    tube.set_kernel_extra_args(louder.amplify, 1.0)
    assert_agree(tube(given), 8.0 * given, [given])


def test_kernels_of_both_engines(engine_keeper):
    ti, qd = (engine_keeper.ensure(name, Configuration(default_fp="f64")) for name in ("taichi", "quadrants"))

    @qd.kernel
    def square(a: qd.template(), out: qd.template()):
        for i in a:
            out[i] = a[i] * a[i]

    tube = ends().register_intermediate_field(N, qd.f64, "t", True)
    tube.register_kernel(scale(ti), ["x", "t"], 3.0).register_kernel(square, ["t", "y"]).finish()
    given = make_leaf(4)
    assert_agree(tube(given), 9.0 * given**2, [given])
