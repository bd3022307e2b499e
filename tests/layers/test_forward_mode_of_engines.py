"""Forward mode through a layer whose gradient is the engine's own: the refusal says so, and why none is generated."""

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import tinsmith as ts

N, D = 4, torch.float64
REVERSE_ONLY = r"^{layer} has no forward mode: its gradient is the reverse mode of (taichi|quadrants)"
NOT_GENERATED = (
    r"\n  because of  a call of the Python function `square` with a value computed "
    r"at run time\n  at +\S+test_forward_mode\S+\n"
)


def square(value):
    return value * value


def fields(lang):
    return lang.field(lang.f64, N, needs_grad=True), lang.field(lang.f64, (), needs_grad=True)


def of_python(lang):
    x, y = fields(lang)

    @lang.kernel
    def kernel():
        for i in x:
            y[None] += square(x[i])

    return make_layer(x, y, kernel), "EmptyTin", NOT_GENERATED + "Rewrite this construct, or use reverse mode"


def with_an_array(lang):
    x, y = fields(lang)

    @lang.kernel
    def kernel(weights: lang.types.ndarray()):
        for i in x:
            y[None] += square(x[i]) * weights[i]

    layer = make_layer(x, y, kernel, np.arange(N, dtype=np.int32))
    return layer, "EmptyTin", NOT_GENERATED + "Rewrite this construct, or use reverse mode"


def as_wished(lang):
    x, y = fields(lang)

    @lang.kernel
    def kernel(weights: lang.types.ndarray()):
        for i in x:
            y[None] += x[i] * x[i] * weights[i]

    layer = make_layer(x, y, kernel, torch.arange(N), adjoint="engine")
    return layer, "EmptyTin", "\nLeave out adjoint='engine', or use reverse mode"


def tube(lang):
    seen = lang.field(lang.i32, ())  # a Tube's kernels that write a field of their own run on fields

    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in x:
            seen[None] += 1
            y[i] = square(x[i])

    shape = (ts.MatchDim("n"),)
    made = ts.Tube().register_input_tensor(shape, D, "x").register_output_tensor(shape, D, "y", True)
    return (
        made.register_kernel(kernel, ["x", "y"]).finish(),
        "Tube.kernel.",
        NOT_GENERATED + "Rewrite this construct, or use reverse mode",
    )


def make_layer(x, y, kernel, *arguments, **options):
    layer = ts.EmptyTin(**options).register_input_field(x).register_output_field(y)
    return layer.register_kernel(kernel, *arguments).finish()


def dual(layer, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(layer(forward_ad.make_dual(x, x))).tangent


MODES = {
    "jvp": lambda layer, x: torch.func.jvp(layer, (x,), (x,)),
    "jacfwd": lambda layer, x: torch.func.jacfwd(layer)(x),
    "linearize": lambda layer, x: torch.func.linearize(layer, x),
    "dual": dual,
    "compiled": lambda layer, x: torch.compile(lambda x: torch.func.jvp(layer, (x,), (x,))[1], backend="aot_eager")(x),
    "over reverse": lambda layer, x: torch.func.jvp(torch.func.grad(lambda x: layer(x).sum()), (x,), (x,)),
}


@pytest.mark.compiled_engine
@pytest.mark.filterwarnings("ignore")  # the engine's gradient is used, and Taichi calls a Python function
@pytest.mark.parametrize("make", [of_python, with_an_array, as_wished, tube])
def test_refused(lang64, make):
    layer, name, words = make(lang64)
    x = torch.ones(N, dtype=D)
    for mode in MODES.values():
        with pytest.raises(ts.GradientError, match=f"(?s){REVERSE_ONLY.format(layer=name)}.*{words}"):
            mode(layer, x)
    assert torch.func.grad(lambda x: layer(x).sum())(x).any()  # reverse mode works, with arrays too
