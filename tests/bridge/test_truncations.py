"""A float that a kernel gives to an integer, where nobody wrote a cast, is warned of at its line."""

import warnings

import pytest
import torch

import tinsmith as ts


def added(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            s = 0
            s += x[i]  # here
            y[i] = s

    return kernel, "x[n] -> y[n]", "s"


def stored(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            s = 1
            s = s * x[i]  # here
            y[i] = s

    return kernel, "x[n] -> y[n]", "s"


def counted(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[0] += x[i]  # here

    return kernel, "x[n] -> y[n]: i32", "y[0]"


def in_a_function(lang):
    @lang.func
    def sum_of(a: lang.template()):
        s = 0
        for j in range(a.shape[0]):
            s += a[j]  # here
        return s

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = sum_of(x)

    return kernel, "x[n] -> y[n]", "s"


@pytest.mark.parametrize("gradient", [False, True], ids=["value", "gradient"])
@pytest.mark.parametrize("make", [added, stored, counted, in_a_function], ids=lambda make: make.__name__)
def test_a_truncated_float_warns_once(lang, make, gradient):
    kernel, spec, target = make(lang)
    op = ts.op(spec)(kernel)
    x = torch.full((3,), 0.7, requires_grad=gradient)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        op(x)
        op(x.double())
    words = f"`{target}` holds integers in op `kernel`: the float assigned to it is truncated, and has no gradient"
    warned = [one for one in caught if words in str(one.message)]
    assert len(warned) == 1
    with open(warned[0].filename) as file:
        assert file.readlines()[warned[0].lineno - 1].endswith("# here\n")


def cast(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            s = 0
            s += int(x[i])
            y[i] = s

    return kernel, "x[n] -> y[n]"


def floored(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.floor(x[i])

    return kernel, "x[n] -> y[n]: i32"


def meant(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]  # tinsmith: ignore[TS301]

    return kernel, "x[n] -> y[n]: i32"


def of_integers(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            s = 0
            if x[i] > 0.5:
                s += 1
            y[i] = s * x[i]

    return kernel, "x[n] -> y[n]"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [cast, floored, meant, of_integers], ids=lambda make: make.__name__)
def test_explicit_truncations_do_not_warn(lang, make):
    kernel, spec = make(lang)
    ts.op(spec)(kernel)(torch.full((3,), 0.7))


@pytest.mark.filterwarnings("error")
def test_an_accumulator_of_integers_is_right_for_integers(lang):
    kernel, spec, _ = added(lang)
    assert ts.op(f"{spec}: i32")(kernel)(torch.arange(3, dtype=torch.int32)).tolist() == [0, 1, 2]
