"""Pitfall 34: an (n, 4) tensor where the kernel wants vectors of 3 is refused, never reinterpreted (taichi #304).

Whatever the spec calls the vectors' dim. Outputs and scratch, batches and transforms: `bridge/test_element_dims.py`.
"""

import pytest
import torch

import tinsmith as ts


@pytest.mark.parametrize("spec", ["x[n, 3] -> y[n]", "x[n, d] -> y[n]", "x[n, _] -> y[n]", "x[..., d] -> y[...]"])
def test_the_width_of_the_elements_is_checked(lang64, spec):
    vec3 = lang64.types.vector(3, lang64.f64)

    @ts.op(spec)
    @lang64.kernel
    def total(x: lang64.types.ndarray(dtype=vec3, ndim=1), y: lang64.types.ndarray(dtype=lang64.f64, ndim=1)):
        for i in x:
            y[i] = x[i].sum()

    for width in (2, 4):
        with pytest.raises(ts.ShapeError, match=rf"(?s)`x`.*`total`.*\(2, {width}\)"):
            total(torch.randn(2, width, dtype=torch.float64, requires_grad=True))
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    total(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x))
