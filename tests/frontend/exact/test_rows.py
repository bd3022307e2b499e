"""The table of kernels that the IR's front end is tried on, interpreted: the values that compiled kernels give."""

import pytest
import torch

import rows
from rows import Draw
from support.interpreted import run_with_gradients
from support.roundtrip import lower_kernel
from tinsmith.engines import of_kernel


def find_disagreements(kernel, arguments, **tolerance):
    """Run a kernel compiled and interpreted; compare everything that it may have written."""
    lowering = lower_kernel(kernel, *arguments)
    names = [*lowering.kernel.arrays.keys() - lowering.fields.keys() - {*lowering.kernel.cells}]
    given = _by_name(kernel, arguments)
    before = {**{name: given[name].clone() for name in names}, **_fields(lowering)}
    kernel(*arguments)
    after = {**{name: given[name] for name in names}, **_fields(lowering)}
    scalars = {name: given[name] for name in lowering.kernel.arguments}
    mine = run_with_gradients(lowering.kernel, before, scalars, faithful=True).arrays
    for name, wanted in after.items():
        torch.testing.assert_close(mine[name].to(wanted.dtype), wanted, equal_nan=True, **tolerance)


def _by_name(kernel, arguments):
    return {p.name: value for p, value in zip(of_kernel(kernel).parameters(kernel), arguments, strict=True)}


def _fields(lowering):
    return {name: field.to_torch() for name, field in lowering.fields.items()}


@pytest.mark.thinned(8)
@pytest.mark.filterwarnings("ignore:.*Calling non-")
@pytest.mark.parametrize("row", rows.ALL, ids=str)
def test_float32(row, lang):
    find_disagreements(row.build(lang, lang.f32), row.draw(Draw(torch.float32)), rtol=1e-5, atol=1e-6)


@pytest.mark.thinned(8)
@pytest.mark.filterwarnings("ignore:.*Calling non-")
@pytest.mark.parametrize("row", rows.ALL, ids=str)
def test_float64(row, lang64):
    find_disagreements(row.build(lang64, lang64.f64), row.draw(Draw(torch.float64)), rtol=1e-12, atol=1e-13)
