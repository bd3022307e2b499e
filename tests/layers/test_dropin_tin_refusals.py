"""Tin and EmptyTin refuse what Stannum's refuse, in words that name the argument and the way out."""

import pytest
import torch

import tinsmith as ts
from support.dropin import CPU, assert_refused, side_by_side
from support.scenes import Scene, make_field, model

pytestmark = side_by_side

REGISTRATION, ARGUMENT, SHAPE = ts.RegistrationError, ts.ArgumentError, ts.ShapeError


@pytest.mark.parametrize(
    ("without", "words", "stannum"),
    [
        ("input", "input field", "at least 1 input"),
        ("output", "output field", "at least 1 output"),
        ("kernel", "kernel", "at least 1 kernel"),
    ],
)
def test_finish_wants_an_input_an_output_and_a_kernel(layers, lang64, without, words, stannum):
    scene = Scene(layers, lang64)
    tin = scene.tin
    if without != "input":
        tin.register_input_field(scene.x)
    if without != "output":
        tin.register_output_field(scene.y)
    if without != "kernel":
        tin.register_kernel(scene.times(), 1.0)
    with assert_refused(layers, REGISTRATION, words, stannum):
        tin.finish()


@pytest.mark.parametrize("what", ["input_field", "output_field", "internal_field", "kernel"])
def test_nothing_is_registered_after_finish(layers, lang64, what):
    scene = Scene(layers, lang64)
    kernel = scene.times()
    tin = scene.registered().register_kernel(kernel, 1.0).finish()
    with assert_refused(layers, REGISTRATION, "finish", "after .finish"):
        getattr(tin, f"register_{what}")(kernel if what == "kernel" else scene.w)


def test_a_call_before_finish(layers, lang64):
    scene = Scene(layers, lang64)
    tin = scene.registered().register_kernel(scene.times(), 1.0)
    with assert_refused(layers, REGISTRATION, "finish", "finish registrations"):
        tin(torch.rand(4))


def test_an_internal_field_set_before_finish(layers, lang64):
    scene = Scene(layers, lang64)
    tin = scene.registered().register_internal_field(scene.w, name="w").register_kernel(scene.scaled())
    with assert_refused(layers, REGISTRATION, "finish", "only be set after finishing"):
        tin.set_internal_field("w", torch.tensor(1.0))


def test_setting_an_unknown_internal_field_is_refused(layers, lang64):
    scene = Scene(layers, lang64)
    tin = scene.registered().register_internal_field(scene.w, name="weight").register_kernel(scene.scaled()).finish()
    with assert_refused(layers, (REGISTRATION, ARGUMENT), "wieght", "wieght not registered"):
        tin.set_internal_field("wieght", torch.tensor(1.0))


def test_an_internal_field_set_from_a_tensor_of_another_shape(layers, lang64):
    scene = Scene(layers, lang64)
    tin = scene.registered().register_internal_field(scene.w, name="w").register_kernel(scene.scaled()).finish()
    with assert_refused(layers, SHAPE, "(?s)w.*2", r"Field w.*\(\), got \(2,\)"):
        tin.set_internal_field("w", torch.rand(2))


def test_an_initial_value_of_another_shape(layers, lang64):
    scene = Scene(layers, lang64)
    with assert_refused(layers, SHAPE, "(?s)w.*2", "does not match"):
        scene.tin.register_internal_field(scene.w, name="w", value=torch.rand(2))


def test_invalid_devices_are_refused(layers, lang64):
    with assert_refused(layers, (ARGUMENT, REGISTRATION), "(?s)device.*7", "device must be"):
        layers.EmptyTin(7.5, True)


@pytest.mark.parametrize("wrong", [None, len, 3], ids=["None", "plain function", "number"])
def test_other_objects_are_refused_as_kernels(layers, lang64, wrong):
    scene = Scene(layers, lang64)
    with assert_refused(
        layers, (REGISTRATION, ts.KernelError, ARGUMENT), "kernel", "Kernel must not be None|not a Taichi kernel"
    ):
        scene.tin.register_kernel(wrong)


def test_empty_tin_knows_no_kernel_by_name(layers, lang64):
    with assert_refused(layers, (REGISTRATION, ts.KernelError, ARGUMENT), "scale", "not its name"):
        layers.EmptyTin(CPU, True).register_kernel("scale")


def test_a_kernels_name_cannot_be_registered_twice(layers, lang64):
    scene = Scene(layers, lang64)
    kernel = scene.times()
    tin = scene.registered().register_kernel(kernel, 1.0)
    with assert_refused(layers, REGISTRATION, "times", "times already registered"):
        tin.register_kernel(kernel, 2.0)


def test_arguments_for_an_unknown_kernel_are_refused(layers, lang64):
    scene = Scene(layers, lang64)
    tin = scene.registered().register_kernel(scene.times(), 1.0).finish()
    with assert_refused(layers, (REGISTRATION, ARGUMENT), "tmies", "Kernel not found"):
        tin.set_kernel_args("tmies", 1.0)


def test_tin_wants_a_data_oriented_object(layers, lang64):
    with assert_refused(layers, (REGISTRATION, ARGUMENT), "data_oriented|data-oriented", "data-oriented"):
        layers.Tin(object(), CPU, True)


def test_tin_does_not_find_a_kernel(layers, lang64):
    with assert_refused(layers, (REGISTRATION, ts.KernelError, ARGUMENT), "scael", "scael"):
        layers.Tin(model(lang64), CPU, True).register_kernel("scael")


def test_attributes_that_are_no_kernels_are_refused(layers, lang64):
    with assert_refused(layers, (REGISTRATION, ts.KernelError, ARGUMENT), "kernel", "not a Taichi kernel"):
        layers.Tin(model(lang64), CPU, True).register_kernel("x")


@pytest.mark.parametrize("what", ["input", "output", "internal"])
def test_other_objects_are_refused_as_fields(layers, lang64, what):
    with assert_refused(layers, (REGISTRATION, ARGUMENT), "field", "Only accept ti ScalarField or MatrixField"):
        getattr(layers.EmptyTin(CPU, True), f"register_{what}_field")(torch.rand(3), needs_grad=True)


def test_complex_values_in_a_scalar_field_want_a_last_dim_of_2(layers, lang64):
    with assert_refused(layers, ts.KernelError, "(?s)`z`.*complex.*last dim is 2", "z: ScalarField.*to be 2"):
        layers.EmptyTin(CPU, True).register_input_field(make_field(lang64, (2, 3)), name="z", complex_dtype=True)


def test_complex_values_in_a_matrix_field_want_2_vectors(layers, lang64):
    vectors = lang64.Vector.field(3, lang64.f64, shape=(2,), needs_grad=True)
    with assert_refused(layers, ts.KernelError, "(?s)`z`.*complex.*2-vectors", r"z: MatrixField.*\(2, 1\)"):
        layers.EmptyTin(CPU, True).register_output_field(vectors, name="z", complex_dtype=True)


@pytest.mark.parametrize("count", [0, 2])
def test_calls_with_too_few_or_many_tensors_are_refused(layers, lang64, count):
    scene = Scene(layers, lang64)
    tin = scene.registered().register_kernel(scene.times(), 1.0).finish()
    with assert_refused(layers, ARGUMENT, str(count)):
        tin(*[torch.rand(4) for _ in range(count)])


@pytest.mark.parametrize("shape", [(5,), (4, 1), ()], ids=str)
def test_a_tensor_of_another_shape(layers, lang64, shape):
    scene = Scene(layers, lang64)
    tin = scene.tin.register_input_field(scene.x, name="distance").register_output_field(scene.y)
    tin = tin.register_kernel(scene.times(), 1.0).finish()
    with assert_refused(layers, SHAPE, r"(?s)distance.*4", r"distance: Expecting a real tensor of shape \(4,\)"):
        tin(torch.rand(shape))


def of_complex(layers, lang):
    x, y = (lang.Vector.field(2, lang.f64, shape=(3,), needs_grad=True) for _ in range(2))

    @lang.kernel
    def same():
        for i in x:
            y[i] = x[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(x, name="wave", complex_dtype=True)
    return tin.register_output_field(y, complex_dtype=True).register_kernel(same).finish()


def test_a_complex_tensor_of_another_shape(layers, lang64):
    tin = of_complex(layers, lang64)
    with assert_refused(layers, SHAPE, r"(?s)wave.*3", r"wave: Expecting a complex tensor of shape \(3,\)"):
        tin(torch.rand(3, 2, dtype=torch.cdouble))


def test_a_real_tensor_for_complex_values(layers, lang64):
    tin = of_complex(layers, lang64)
    with assert_refused(layers, ts.DtypeError, "(?s)wave.*complex", "wave: Expecting a complex tensor, got dtype"):
        tin(torch.rand(3))


def test_a_complex_tensor_for_real_values(layers, lang64):
    scene = Scene(layers, lang64)
    tin = scene.registered().register_kernel(scene.times(), 1.0).finish()
    with assert_refused(layers, ts.DtypeError, "complex"):
        tin(torch.rand(4, dtype=torch.cdouble))


def test_a_kernel_called_with_too_few_arguments(layers, lang64):
    scene = Scene(layers, lang64)
    with assert_refused(layers, (ts.TinsmithError,), "`?a`?", "missing"):
        scene.registered().register_kernel(scene.times()).finish()(torch.rand(4))
