"""What is printed compiles to what the kernel computes, bit for bit, on both engines."""

import pytest
import torch

import rows
from rows import Draw
from support.roundtrip import assert_same, load_printed_kernel, print_lowered

pytestmark = pytest.mark.thinned(4)

# Quadrants compiles that one for ten seconds; tests/bridge/test_decompositions.py compiles its functions one by one.
ROWS = [pytest.param(row, marks=pytest.mark.costly if row.name == "decompositions" else ()) for row in rows.ALL]


@pytest.mark.thinned(9)
@pytest.mark.filterwarnings("ignore:.*Calling non-")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_float32(row, lang):
    assert_same(row.build(lang, lang.f32), *row.draw(Draw(torch.float32)), exact=row.is_exact)


@pytest.mark.thinned(9)
@pytest.mark.filterwarnings("ignore:.*Calling non-")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_float64(row, lang64):
    assert_same(row.build(lang64, lang64.f64), *row.draw(Draw(torch.float64)), exact=row.is_exact)


@pytest.mark.filterwarnings("ignore:.*Calling non-")
def test_printing_a_printed_kernel_changes_nothing(lang):
    row = rows.ALL[0]
    arguments = row.draw(Draw(torch.float32))
    assert print_lowered(row.build(lang, lang.f32), *arguments) == print_lowered(row.build(lang, lang.f32), *arguments)


def test_names_stay_the_users(lang):
    @lang.kernel
    def kernel(p: lang.types.ndarray(dtype=lang.math.vec2, ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in p:
            c = p[i] * 2
            y[i] = c.x - c.y

    shown = print_lowered(kernel, torch.zeros(3, 2), torch.zeros(3))
    assert "c_0 = p[i][0] * 2" in shown
    assert "y[i] = c_0 - c_1" in shown


def test_fields_given_as_templates(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i, j in x:
            y[i, j] += x[i, j] * 2

    x, y = lang.field(lang.f32, (2, 3)), lang.field(lang.f32, (2, 3))
    x.from_torch(torch.randn(2, 3))
    kernel(x, y)
    load_printed_kernel(kernel, x, y)(x, y)
    torch.testing.assert_close(y.to_torch(), x.to_torch() * 4, rtol=0, atol=0)
