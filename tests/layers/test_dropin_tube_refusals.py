"""Tube refuses what Stannum's refuses, in words that name the tensor or kernel and the way out."""

import pytest
import torch

import tinsmith as ts
from support.dropin import assert_refused, side_by_side

pytestmark = side_by_side

F64 = torch.float64
REGISTRATION, ARGUMENT, SHAPE = ts.RegistrationError, ts.ArgumentError, ts.ShapeError


def scale(lang):
    @lang.kernel
    def scale(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = 3.0 * x[i]

    return scale


def with_ends(layers, dims=(3,), dims_of_y=None, **options):
    """Make a Tube with an input `x` and an output `y`, without a kernel."""
    tube = layers.Tube(**options).register_input_tensor(dims, F64, "x")
    return tube.register_output_tensor(dims if dims_of_y is None else dims_of_y, F64, "y", True)


def finished(layers, lang, *arguments, **options):
    return with_ends(layers, *arguments, **options).register_kernel(scale(lang), ["x", "y"]).finish()


KINDS = ("input_tensor", "output_tensor", "intermediate_field")


def registering(tube, kind, lang, dims=(3,), dtype=None, name="depth", **more):
    """Register an input, output or intermediate; `dtype` in the words that this kind takes."""
    if kind == "intermediate_field":
        return tube.register_intermediate_field(dims, dtype or lang.f64, name, more.pop("needs_grad", True), **more)
    if kind == "output_tensor":
        return tube.register_output_tensor(dims, dtype or F64, name, more.pop("needs_grad", True), **more)
    return tube.register_input_tensor(dims, dtype or F64, name, **more)


# Registering tensors ------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [0, -2])
def test_integers_are_positive(layers, lang64, kind, dim):
    with assert_refused(layers, (REGISTRATION, SHAPE, ARGUMENT), f"(?s)depth.*{dim}", "must be positive"):
        registering(layers.Tube(), kind, lang64, (dim, 3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", ["n", 1.5], ids=str)
def test_a_dim_is_one_of_four_kinds(layers, lang64, kind, dim):
    with assert_refused(layers, (REGISTRATION, SHAPE, ARGUMENT), f"(?s)depth.*{dim}", "must be all DimOptions"):
        registering(layers.Tube(), kind, lang64, (dim,))


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_first_dim_is_a_batch(layers, lang64, kind):
    with assert_refused(layers, (REGISTRATION, SHAPE, ARGUMENT), "(?s)depth.*BatchDim", "Only the leading dimension"):
        registering(layers.Tube(), kind, lang64, (3, layers.BatchDim))


@pytest.mark.parametrize("kind", KINDS[1:])
def test_any_dim_is_for_inputs(layers, lang64, kind):
    with assert_refused(layers, (REGISTRATION, SHAPE, ARGUMENT), "(?s)depth.*AnyDim", "Dim = Any is not allowed"):
        registering(layers.Tube(), kind, lang64, (3, layers.AnyDim))


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("dims", [3, "n"], ids=str)
def test_dims_are_dims_or_a_calculator(layers, lang64, kind, dims):
    with assert_refused(layers, (REGISTRATION, SHAPE, ARGUMENT), f"(?s)depth.*{dims}", "Invalid dims_or_calc"):
        registering(layers.Tube(), kind, lang64, dims)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dtype_is_one_that_fields_have(layers, lang64, kind):
    wrong = "float" if kind == "intermediate_field" else torch.bfloat16
    with assert_refused(layers, (ts.DtypeError, REGISTRATION, ARGUMENT), f"(?s)depth.*{'float'}"):
        registering(layers.Tube(), kind, lang64, dtype=wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_cannot_be_registered_twice(layers, lang64, kind):
    tube = with_ends(layers)
    with assert_refused(layers, (REGISTRATION,), "`?x`?.*(already|twice)", "name registered"):
        registering(tube, kind, lang64, name="x")


@pytest.mark.parametrize("kind", KINDS)
def test_registration_without_a_name_is_refused(layers, lang64, kind):
    with assert_refused(layers, (REGISTRATION, ARGUMENT), "name", "name cannot be None"):
        registering(layers.Tube(), kind, lang64, name=None)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_needs_grad_must_be_given(layers, lang64, kind):
    with assert_refused(
        layers, (REGISTRATION, ARGUMENT), "(?s)depth.*(requires|needs)_grad", "requires_grad cannot be None"
    ):
        registering(layers.Tube(), kind, lang64, needs_grad=None)


@pytest.mark.parametrize("kind", KINDS)
def test_other_objects_are_refused_as_field_managers(layers, lang64, kind):
    with assert_refused(layers, (REGISTRATION, ARGUMENT), "field_manager|FieldManager", "must be a FieldManager"):
        registering(layers.Tube(), kind, lang64, field_manager=3)


@pytest.mark.parametrize("kind", [*KINDS, "kernel"])
def test_nothing_is_registered_after_finish(layers, lang64, kind):
    tube = finished(layers, lang64)
    with assert_refused(layers, REGISTRATION, "finish", "after .finish"):
        if kind == "kernel":
            tube.register_kernel(scale(lang64), ["x", "y"], name="again")
        else:
            registering(tube, kind, lang64)


@pytest.mark.parametrize("identity", [1.5, None, ("n",)], ids=str)
def test_a_match_dim_is_named_by_a_string_or_an_integer(layers, lang64, identity):
    with assert_refused(layers, (ARGUMENT, REGISTRATION), "MatchDim", "Unsupported dim_id type"):
        layers.MatchDim(identity)


# Registering kernels ------------------------------------------------------------------------------
@pytest.mark.parametrize("wrong", [None, len], ids=["None", "plain function"])
def test_other_objects_are_refused_as_kernels(layers, lang64, wrong):
    with assert_refused(layers, (REGISTRATION, ts.KernelError, ARGUMENT), "kernel", "not a Taichi kernel"):
        with_ends(layers).register_kernel(wrong, ["x", "y"])


def test_a_kernel_takes_what_is_registered(layers, lang64):
    with assert_refused(layers, (REGISTRATION, ARGUMENT), "(?s)scale.*z|z.*scale", r"not registered: \['z'\]"):
        with_ends(layers).register_kernel(scale(lang64), ["x", "z"])


def test_tensors_are_given_by_name(layers, lang64):
    with assert_refused(layers, (REGISTRATION, ARGUMENT), "(?s)scale.*7|7.*scale", "must be strings"):
        with_ends(layers).register_kernel(scale(lang64), ["x", 7])


def test_a_kernels_name_cannot_be_registered_twice(layers, lang64):
    kernel = scale(lang64)
    tube = with_ends(layers).register_kernel(kernel, ["x", "y"])
    with assert_refused(layers, REGISTRATION, "scale.*(already|twice)", "scale already registered"):
        tube.register_kernel(kernel, ["x", "y"])


def test_extra_arguments_for_an_unknown_kernel_are_refused(layers, lang64):
    tube = finished(layers, lang64)
    with assert_refused(layers, (REGISTRATION, ARGUMENT), "sclae", "sclae not found"):
        tube.set_kernel_extra_args("sclae", 1.0)


# finish -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("without", ["input", "output", "kernel"])
def test_finish_wants_an_input_an_output_and_a_kernel(layers, lang64, without):
    tube = layers.Tube()
    if without != "input":
        tube.register_input_tensor((3,), F64, "x")
    if without != "output":
        tube.register_output_tensor((3,), F64, "y", True)
    tube.register_intermediate_field((3,), lang64.f64, "s", True)
    if without != "kernel":
        tube.register_kernel(scale(lang64), ["s", "s"])
    with assert_refused(layers, REGISTRATION, without, f"at least 1 {without}"):
        tube.finish()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_match_dim_of_an_output_is_declared_by_an_input(layers, lang64, kind):
    tube = registering(with_ends(layers), kind, lang64, (layers.MatchDim("width"),), name="picture")
    with assert_refused(
        layers, (REGISTRATION, SHAPE), "(?s)picture.*width|width.*picture", r"dim_id = width\) in picture"
    ):
        tube.register_kernel(scale(lang64), ["x", "y"]).finish()


# Calls --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [0, 2])
def test_calls_with_too_few_or_many_tensors_are_refused(layers, lang64, count):
    tube = finished(layers, lang64)
    with assert_refused(layers, ARGUMENT, f"(?s)1.*{count}|{count}.*1"):
        tube(*[torch.rand(3) for _ in range(count)])


@pytest.mark.parametrize("shape", [(3, 1), ()], ids=str)
def test_a_tensor_of_another_rank(layers, lang64, shape):
    tube = finished(layers, lang64)
    with assert_refused(layers, SHAPE, r"(?s)`?x`?.*3", "Dimensionality check failed"):
        tube(torch.rand(shape))


def test_a_tensor_of_another_size(layers, lang64):
    tube = finished(layers, lang64)
    with assert_refused(layers, SHAPE, r"(?s)x.*3.*4", r"0th tensor dimensions not match"):
        tube(torch.rand(4))


def test_another_size_inside_a_batch(layers, lang64):
    tube = finished(layers, lang64, (layers.BatchDim, 3))
    with assert_refused(layers, SHAPE, r"(?s)x.*3.*4", "does not match"):
        tube(torch.rand(2, 4))


def two_inputs(layers, lang, dims):
    tube = with_ends(layers, dims).register_input_tensor(dims, F64, "mask")
    return tube.register_kernel(scale(lang), ["x", "y"]).finish()


def test_sizes_of_one_match_dim_agree(layers, lang64):
    tube = two_inputs(layers, lang64, (layers.MatchDim("width"),))
    with assert_refused(layers, SHAPE, r"(?s)mask.*width|width.*mask", r"dim_id = width\) not match"):
        tube(torch.rand(3), torch.rand(4))


def test_batches_are_of_one_size(layers, lang64):
    tube = two_inputs(layers, lang64, (layers.BatchDim, 3))
    with assert_refused(layers, SHAPE, r"(?s)mask.*4", "Batch num of 1th tensor not match"):
        tube(torch.rand(2, 3), torch.rand(4, 3))


@pytest.mark.parametrize("kind", KINDS[1:])
def test_outputs_of_batched_inputs_must_be_batched(layers, lang64, kind):
    batch = (layers.BatchDim, 3)
    tube = registering(with_ends(layers, batch), kind, lang64, (3,), name="picture")
    tube.register_kernel(scale(lang64), ["x", "y"])
    with assert_refused(layers, (REGISTRATION, SHAPE), "(?s)picture", r"(?s)is not batched.*picture"):
        tube.finish()(torch.rand(2, 3))


def test_a_calculator_does_not_say_any_dim(layers, lang64):
    tube = finished(layers, lang64, (3,), lambda *_: (layers.AnyDim,))
    with assert_refused(layers, (REGISTRATION, SHAPE, ARGUMENT), "(?s)y.*AnyDim", "Dim = Any is not allowed"):
        tube(torch.rand(3))


def test_a_gradient_is_not_asked_for_where_backward_is_off(layers, lang64):
    tube = finished(layers, lang64, enable_backward=False)
    with assert_refused(
        layers, ts.GradientError, "(?s)x.*enable_backward|enable_backward.*x", "enable_backward = False"
    ):
        tube(torch.rand(3, requires_grad=True))


def test_a_tensor_on_another_device(layers, lang64):
    tube = finished(layers, lang64, device=torch.device("cuda"))
    with assert_refused(layers, ts.DeviceError, "(?s)x.*cpu", "Tensors not on the device cuda"):
        tube(torch.rand(3))


def test_tensors_on_two_devices(layers, lang64):
    tube = two_inputs(layers, lang64, (3,))
    with assert_refused(layers, (ts.DeviceError, ts.ArgumentError), "(?s)mask.*meta", "not on the same device"):
        tube(torch.rand(3), torch.rand(3, device="meta"))


def test_a_complex_tensor_for_real_values(layers, lang64):
    tube = finished(layers, lang64)
    with assert_refused(layers, ts.DtypeError, "(?s)x.*complex"):
        tube(torch.rand(3, dtype=torch.cdouble))


@pytest.mark.parametrize("name", ["FieldManager", "DimensionCalculator"])
def test_interfaces_are_abstract(layers, lang64, name):
    with pytest.raises(TypeError, match="abstract"):
        getattr(layers, name)()
