"""The table of every construct of the language, run by Python: the values that compiled kernels give."""

import pytest
import torch

import rows
import tinsmith as ts
from rows import Draw
from support.pythonic import run_by_python
from support.roundtrip import lower_kernel
from tinsmith.engines import of_kernel

LATE = {"choices_beside_changes", "order_of_evaluation"}
"""Rows of statements with several calls that change one local.

What a function returns of a variable that it got by reference, compiled engines read after the later calls.
"""
ROWS = [row for row in rows.ALL if str(row) not in LATE]
ROUGH = {"more_vectors"}
"""Rows whose float64 is rough: Quadrants 1.3.3 computes `atan2` of vectors to 1e-7, of numbers to 1e-16."""


def find_disagreements(kernel, arguments, **tolerance):
    """Run a kernel compiled and by Python; compare everything that it may have written."""
    fields = lower_kernel(kernel, *arguments).fields
    parameters = [one.name for one in of_kernel(kernel).parameters(kernel)]
    before = {name: field.to_torch() for name, field in fields.items()}
    given = [one.clone() if isinstance(one, torch.Tensor) else one for one in arguments]
    kernel(*given)
    wanted = {**dict(zip(parameters, given, strict=True)), **{name: field.to_torch() for name, field in fields.items()}}
    for name, field in fields.items():
        field.from_torch(before[name])
    run_by_python(kernel, *arguments)
    mine = {
        **dict(zip(parameters, arguments, strict=True)),
        **{name: field.to_torch() for name, field in fields.items()},
    }
    for name, one in wanted.items():
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(mine[name], one, equal_nan=True, **tolerance)


@pytest.mark.thinned(8)
@pytest.mark.filterwarnings("ignore:.*Calling non-", "ignore:.* holds integers")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_float32(row, lang):
    find_disagreements(row.build(lang, lang.f32), row.draw(Draw(torch.float32)), rtol=1e-5, atol=1e-6)


@pytest.mark.thinned(8)
@pytest.mark.filterwarnings("ignore:.*Calling non-", "ignore:.* holds integers")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_float64(row, lang64):
    limits = {"rtol": 1e-6, "atol": 1e-6} if str(row) in ROUGH else {"rtol": 1e-12, "atol": 1e-13}
    find_disagreements(row.build(lang64, lang64.f64), row.draw(Draw(torch.float64)), **limits)


def define_power(lang):
    global power  # As users write functions: at the top of a file, whose names are no closure.

    @lang.func
    def power(x, n: lang.template()):
        y = 1.0
        if lang.static(n > 0):
            y = x * power(x, n - 1)
        return y


def test_a_function_at_module_level_that_calls_itself(lang):
    define_power(lang)

    @lang.kernel
    def cubes(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = power(x[i], 3)

    op = ts.op("x[n] -> y[n]", engine="python")(cubes)
    x = torch.tensor([2.0, -3.0], requires_grad=True)
    y = op(x)
    torch.testing.assert_close(y, x**3)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 3 * x**2)


SHARED = 3.0


def test_a_global_is_seen_where_a_local_of_its_name_is_not_defined(lang):
    @lang.kernel
    def reads(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = SHARED * x[i]  # noqa: F823  # the global
        for i in x:
            SHARED = SHARED + i  # a local, from the global
            y[i] += SHARED

    x = torch.tensor([1.0, 2.0])
    for engine in (None, "python"):
        op = ts.op("x[n] -> y[n]", **({"engine": engine} if engine else {}))(reads)
        assert op(x).tolist() == [6.0, 10.0]
