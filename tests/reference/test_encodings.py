"""The encodings' twins against facts that need none of them: formulas by hand, integrals, sums."""

from __future__ import annotations

import math

import pytest
import torch

from tinsmith import reference


def test_frequencies_by_hand():
    x = torch.tensor([[0.1, -0.7]], dtype=torch.float64)
    expected = [f(2**k * math.pi * v) for v in (0.1, -0.7) for k in range(3) for f in (math.sin, math.cos)]
    assert reference.frequency(x, 3)[0].tolist() == pytest.approx(expected, abs=1e-14)


def test_a_triangle_wave_by_hand():
    x = torch.tensor([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, -0.5], dtype=torch.float64)[:, None]
    first, second = reference.triangle_wave(x, 2).unbind(-1)
    assert first.tolist() == [1, 0.5, 0, -1, 0, 1, 0]  # period 2, the top at 0
    assert second.tolist() == [0, -1, 0, 0, 0, 0, 0]  # period 1, a quarter further: 1/4, 1/2, 3/4, ...


@pytest.mark.parametrize("n_bins", [1, 3, 16])
def test_the_bins_of_a_blob_add_up_to_one(n_bins):
    x = torch.rand(50, 2, dtype=torch.float64)
    y = reference.one_blob(x, n_bins).unflatten(-1, (2, n_bins))
    torch.testing.assert_close(y.sum(-1), torch.ones_like(x))
    assert y.min() >= 0


def test_a_bin_of_a_blob_is_the_integral_of_the_quartic_kernel():
    n_bins, x = 4, 0.93  # the bump reaches over 1 and comes in at 0
    u = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    density = 15 / 16 * (1 - u**2) ** 2
    position = (x + u / n_bins) % 1
    expected = [density[(position >= k / n_bins) & (position < (k + 1) / n_bins)].sum() * 1e-5 for k in range(n_bins)]
    y = reference.one_blob(torch.tensor([x], dtype=torch.float64), n_bins)
    torch.testing.assert_close(y, torch.stack(expected), rtol=0, atol=1e-4)


def test_spherical_harmonics_are_orthonormal():
    """By Gauss and Legendre along z, and an even spacing around it: exact for polynomials of these degrees."""
    count = 24
    z, weight = _gauss_legendre(count)
    turn = torch.arange(2 * count, dtype=torch.float64) * math.pi / count
    across = (1 - z**2).sqrt()[:, None]
    directions = torch.stack([across * turn.cos(), across * turn.sin(), z[:, None].expand(-1, 2 * count)], -1)
    y = reference.spherical_harmonics((directions + 1) / 2, 8)
    gram = torch.einsum("zti,ztj,z->ij", y, y, weight) * math.pi / count
    torch.testing.assert_close(gram, torch.eye(64, dtype=torch.float64), rtol=0, atol=1e-12)


def _gauss_legendre(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return nodes and weights by the eigenvalues of the Jacobi matrix."""
    k = torch.arange(1, count, dtype=torch.float64)
    beside = k / (4 * k**2 - 1).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(beside, 1) + torch.diag(beside, -1))
    return nodes, 2 * vectors[0] ** 2


# Some of tiny-cuda-nn's polynomials, in its columns: its order and signs.
POLYNOMIALS = {
    0: lambda x, y, z: 0.28209479177387814 + 0 * x,
    1: lambda x, y, z: -0.48860251190291987 * y,
    2: lambda x, y, z: 0.48860251190291987 * z,
    3: lambda x, y, z: -0.48860251190291987 * x,
    4: lambda x, y, z: 1.0925484305920792 * x * y,
    6: lambda x, y, z: 0.94617469575755997 * z**2 - 0.31539156525251999,
    9: lambda x, y, z: 0.59004358992664352 * y * (-3 * x**2 + y**2),
    15: lambda x, y, z: 0.59004358992664352 * x * (-(x**2) + 3 * y**2),
    19: lambda x, y, z: 0.66904654355728921 * y * z * (3 - 7 * z**2),
    24: lambda x, y, z: 0.62583573544917614 * (x**4 + y**4) - 3.7550144126950569 * x**2 * y**2,
    33: lambda x, y, z: -0.48923829943525038 * x * (x**2 - 3 * y**2) * (9 * z**2 - 1),
    42: lambda x, y, z: (
        6.6747662381009842 * z**2 - 20.024298714302954 * z**4 + 14.684485723822165 * z**6 - 0.31784601133814211
    ),
    63: lambda x, y, z: 0.70716273252459627 * x * (-35 * x**2 * y**4 + 21 * x**4 * y**2 - x**6 + 7 * y**6),
}


@pytest.mark.parametrize("column", POLYNOMIALS)
def test_spherical_harmonics_have_their_order_and_signs(column):
    directions = torch.randn(20, 3, dtype=torch.float64)  # of any length: the polynomials are what they are
    y = reference.spherical_harmonics((directions + 1) / 2, 8)
    torch.testing.assert_close(y[:, column], POLYNOMIALS[column](*directions.unbind(-1)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "twin",
    [reference.frequency, reference.triangle_wave, reference.one_blob, reference.spherical_harmonics],
)
def test_batches_of_any_shape(twin):
    x = torch.rand(2, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(twin(x).flatten(0, 1), twin(x.flatten(0, 1)))
