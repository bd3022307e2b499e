"""What a Tube looks like in print, and what is left of it when it is copied, pickled or saved."""

import copy
import inspect
import io
import pickle

import pytest
import quadrants as qd
import taichi as ti
import torch

import tinsmith as ts
from cases import at_module_level
from support.dropin import assert_agree, make_leaf

F64 = torch.float64
N = (ts.MatchDim("n"),)


@ti.data_oriented
class TaichiModel:
    """An object with a kernel, where pickle finds it."""

    def __init__(self, gain):
        self.gain = gain

    @ti.kernel
    def amplify(self, a: ti.template(), out: ti.template()):
        for i in a:
            out[i] = a[i] * self.gain


@qd.data_oriented
class QuadrantsModel:
    """The same on the other engine, which leaves bound kernels in the object: those cannot be pickled."""

    def __init__(self, gain):
        self.gain = gain

    def __getstate__(self):
        return {"gain": self.gain}

    @qd.kernel
    def amplify(self, a: qd.template(), out: qd.template()):
        for i in a:
            out[i] = a[i] * self.gain


MODELS = {"taichi": TaichiModel, "quadrants": QuadrantsModel}
SQUARES = {"taichi": at_module_level.taichi_square, "quadrants": at_module_level.quadrants_square}


def ends(x="x", y="y"):
    return ts.Tube().register_input_tensor(N, F64, x).register_output_tensor(N, F64, y, True)


def squaring(engine):
    return ends().register_kernel(SQUARES[engine], ["x", "y"]).finish()


def doubled(name, dims, shapes):
    return (2 * shapes["photo"][1],)


# Print --------------------------------------------------------------------------------------------
def test_a_model_prints_what_its_tubes_take_and_give(lang64):
    @lang64.kernel
    def blur(photo: lang64.template(), t: lang64.template(), by: lang64.f64):
        for i in t:
            t[i] = photo[i, 0] * by

    tube = ts.Tube().register_input_tensor((ts.BatchDim, ts.AnyDim, 3), torch.float32, "photo", False)
    tube.register_intermediate_field((ts.BatchDim, 4), lang64.f64, "t", True)
    tube.register_output_tensor((ts.BatchDim, 4), torch.complex64, "out", True)
    tube.register_kernel(blur, ["photo", "t"], 0.5).register_kernel(blur, ["photo", "out"], 2.0, name="again")
    model = torch.nn.Sequential(tube)
    assert repr(model) == inspect.cleandoc("""
        Sequential(
          (0): Tube(
            input photo (BatchDim, AnyDim, 3) float32, no gradient
            output out (BatchDim, 4) complex64
            intermediate t (BatchDim, 4) float64
            kernel blur: photo, t, 0.5
            kernel again (blur): photo, out, 2.0
            not finished
          )
        )
    """)


def test_a_calculator_is_printed_by_name(lang64):
    tube = ts.Tube().register_output_tensor(doubled, F64, "y", False)
    assert "output y calculated by doubled float64, no gradient\n" in repr(tube)


def test_the_repr_of_a_finished_tube(engine):
    assert "not finished" not in repr(squaring(engine))


def test_a_large_argument_is_printed_on_one_line(lang64):
    @lang64.kernel
    def weigh(x: lang64.template(), y: lang64.template(), w: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * w[i]

    tube = ends().register_kernel(weigh, ["x", "y"], torch.arange(100.0).reshape(10, 10))
    assert "kernel weigh: x, y, tensor([[ 0., 1., 2., 3., 4., 5., 6.,...\n" in repr(tube)


def test_explain_shows_the_op(engine):
    tube = squaring(engine)
    tube(make_leaf(3))
    assert tube.explain("all").startswith(
        inspect.cleandoc(f"""
        Tube({engine}_square) runs on the caller's tensors, without fields

        op `Tube({engine}_square)`: x[n]: f64 -> y[n]: f64

        kernel `{engine}_square` at {at_module_level.__file__}:""")
    )


def test_explain_before_finish_is_refused():
    with pytest.raises(ts.RegistrationError, match="Tube.. is explained before `finish"):
        ends().explain("all")


# Copies -------------------------------------------------------------------------------------------
def saved(tube):
    file = io.BytesIO()
    torch.save(tube, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


def pickled(tube):
    return pickle.loads(pickle.dumps(tube))


every_copy = pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled, saved])


@every_copy
def test_a_copy_of_a_tube(engine, copied):
    tube = squaring(engine)
    twin, x = copied(tube), make_leaf(3)
    assert repr(twin) == repr(tube)
    assert_agree(twin(x), x**2, [x])


@every_copy
def test_a_copy_of_a_half_registered_tube(engine, copied):
    tube = ends()
    twin, x = copied(tube).register_kernel(SQUARES[engine], ["x", "y"]).finish(), make_leaf(3)
    assert_agree(twin(x), x**2, [x])
    assert "kernel" not in repr(tube)


@every_copy
def test_a_copy_of_a_tube_on_an_object(engine, copied):
    model = MODELS[engine](3.0)
    twin, x = copied(ends().register_kernel(model.amplify, ["x", "y"]).finish()), make_leaf(3)
    assert_agree(twin(x), 3.0 * x, [x])


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_a_copy_that_takes_its_object_along(engine, copied):
    model = MODELS[engine](3.0)
    both = {"model": model, "tube": ends().register_kernel(model.amplify, ["x", "y"]).finish()}
    twins, x = copied(both), make_leaf(3)
    twins["model"].gain = 5.0
    assert_agree((twins["tube"](x), both["tube"](x)), (5.0 * x, 3.0 * x), [x])


def test_a_copy_has_extra_arguments_of_its_own(lang64):
    @lang64.kernel
    def scale(x: lang64.template(), y: lang64.template(), by: lang64.f64):
        for i in x:
            y[i] = x[i] * by

    tube = ends().register_kernel(scale, ["x", "y"], 2.0).finish()
    twin, x = copy.deepcopy(tube), make_leaf(3)
    twin.set_kernel_extra_args("scale", 7.0)
    assert_agree((tube(x), twin(x)), (2.0 * x, 7.0 * x), [x])


def test_a_kernel_made_in_a_function_cannot_be_pickled(lang64):
    @lang64.kernel
    def local(x: lang64.template(), y: lang64.template()):
        for i in x:
            y[i] = x[i]

    with pytest.raises(pickle.PicklingError, match="`.*local` was made inside a function"):
        pickle.dumps(ends().register_kernel(local, ["x", "y"]).finish())


# Dtypes -------------------------------------------------------------------------------------------
def sums(lang):
    @lang.kernel
    def add(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = x[i] + x[i]

    return add


DTYPES = [torch.float16, F64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(lang64, dtype):
    tube = ts.Tube().register_input_tensor(N, dtype, "x")
    tube.register_output_tensor(N, dtype, "y", dtype.is_floating_point).register_kernel(sums(lang64), ["x", "y"])
    x = torch.randint(1, 50, (5,)).to(dtype)
    y = tube.finish()(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), 2.0 * x.double())


@pytest.mark.parametrize("given", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_a_tensor_of_another_dtype_is_converted_and_its_gradient_converted_back(lang64, given):
    tube = ends().register_kernel(sums(lang64), ["x", "y"]).finish()
    x = (3.0 * torch.rand(4)).to(given).requires_grad_(given.is_floating_point)
    y = tube(x)
    assert y.dtype == F64
    torch.testing.assert_close(y, 2.0 * x.double())
    if given.is_floating_point:
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert gradient.dtype == given
        torch.testing.assert_close(gradient, torch.full_like(x, 2.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, F64], ids=str)
def test_autocast_changes_no_registered_dtype(lang64, dtype):
    tube = ts.Tube().register_input_tensor(N, dtype, "x").register_output_tensor(N, dtype, "y", True)
    tube.register_kernel(sums(lang64), ["x", "y"]).finish()
    x = torch.rand(4, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = tube(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), 2.0 * x.double(), rtol=1e-3, atol=0.0)


def test_complex_numbers_of_another_precision_are_converted(lang64):
    tube = (
        ts.Tube().register_input_tensor(N, torch.complex128, "x").register_output_tensor(N, torch.complex64, "y", True)
    )
    tube.register_kernel(sums(lang64), ["x", "y"]).finish()
    x = make_leaf(3, dtype=torch.complex64)
    assert_agree(tube(x), 2.0 * x, [x])


def test_a_conjugated_view_is_what_it_stands_for(lang64):
    tube = ts.Tube().register_input_tensor(N, torch.complex128, "x")
    tube.register_output_tensor(N, torch.complex128, "y", True).register_kernel(sums(lang64), ["x", "y"]).finish()
    x = make_leaf(3, dtype=torch.complex128)
    assert_agree(tube(x.conj()), 2.0 * x.conj(), [x])


def test_an_intermediate_field_may_have_a_dtype_of_torch_s(lang64):
    tube = ends().register_intermediate_field(N, torch.float64, "t", True)
    tube.register_kernel(sums(lang64), ["x", "t"]).register_kernel(sums(lang64), ["t", "y"], name="again").finish()
    x = make_leaf(3)
    assert_agree(tube(x), 4.0 * x, [x])
