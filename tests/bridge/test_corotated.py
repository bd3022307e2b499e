"""Elasticity as public examples of Taichi write it: a step of the material point method, by `svd` or `polar_decompose`.

Gradients are compared with differences in float64, from the state that every simulation starts in: no deformation.
"""

import pytest
import torch

import tinsmith as ts


def step_op(lang, side, by_svd):
    """Build the step from particles to grid: momentum and mass, from velocities, affine velocities and deformations."""
    real = lang.f64
    vectors = lang.types.ndarray(dtype=lang.types.vector(side, real), ndim=1)
    matrices = lang.types.ndarray(dtype=lang.types.matrix(side, side, real), ndim=1)
    nodes = lang.types.ndarray(dtype=lang.types.vector(side, real), ndim=side)
    n_grid = 4
    dx, dt, mu, la = 1.0 / n_grid, 1e-2, 2.0, 3.0
    axes = ", ".join(str(n_grid) for _ in range(side))

    @lang.func
    def stress(F):
        R = lang.Matrix.identity(real, side)
        J = F.determinant()
        if lang.static(by_svd):
            U, sig, V = lang.svd(F)
            R = U @ V.transpose()
            J = 1.0
            for d in lang.static(range(side)):
                J *= sig[d, d]
        else:
            R, _ = lang.polar_decompose(F)
        return 2 * mu * (F - R) @ F.transpose() + lang.Matrix.identity(real, side) * la * J * (J - 1)

    spec = f"x[n, {side}], v[n, {side}], C[n, {side}, {side}], F[n, {side}, {side}]"

    @ts.op(f"{spec} -> new_F[n, {side}, {side}], grid_v[{axes}, {side}]", adjoint="source")
    @lang.kernel
    def substep(x: vectors, v: vectors, C: matrices, F: matrices, new_F: matrices, grid_v: nodes):
        for p in x:
            base = (x[p] / dx - 0.5).cast(int)
            fx = x[p] / dx - base.cast(real)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            new_F[p] = (lang.Matrix.identity(real, side) + dt * C[p]) @ F[p]
            affine = -dt * 4 / dx**2 * stress((lang.Matrix.identity(real, side) + dt * C[p]) @ F[p]) + C[p]
            for offset in lang.static(lang.grouped(lang.ndrange(*((3,) * side)))):
                dpos = (offset.cast(real) - fx) * dx
                weight = 1.0
                for d in lang.static(range(side)):
                    weight *= w[offset[d]][d]
                grid_v[base + offset] += weight * (v[p] + affine @ dpos)

    return substep


@pytest.mark.thinned(8)
@pytest.mark.parametrize("by_svd", [True, False], ids=["svd", "polar"])
@pytest.mark.parametrize("side", [2, 3])
def test_a_step_from_rest(side, by_svd, lang64):
    op = step_op(lang64, side, by_svd)
    count = 2
    x = 0.4 + 0.2 * torch.rand(count, side, dtype=torch.float64)
    v = torch.randn(count, side, dtype=torch.float64)
    C = torch.zeros(count, side, side, dtype=torch.float64)
    F = torch.eye(side, dtype=torch.float64).repeat(count, 1, 1)
    F[1] += 0.3 * torch.randn(side, side, dtype=torch.float64)
    inputs = [one.requires_grad_() for one in (x, v, C, F)]
    assert torch.autograd.gradcheck(lambda *given: tuple(op(*given)), inputs, eps=1e-6, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", [2, 3])
def test_a_body_comes_to_rest(side, lang64):
    """Descent on the energy of a deformed element ends at a rotation: gradients hold from there to the identity."""
    real = lang64.f64
    matrices = lang64.types.ndarray(dtype=lang64.types.matrix(side, side, real), ndim=1)

    @ts.op(f"F[n, {side}, {side}] -> energy[]", adjoint="source")
    @lang64.kernel
    def corotated(F: matrices, energy: lang64.types.ndarray()):
        for p in F:
            R, S = lang64.polar_decompose(F[p])
            energy[None] += (F[p] - R).norm_sqr() + 0.5 * (S.trace() - side) ** 2

    F = torch.eye(side, dtype=torch.float64) + 0.4 * torch.randn(5, side, side, dtype=torch.float64)
    F = F * torch.linalg.det(F)[:, None, None].sign() if side == 3 else F[torch.linalg.det(F) > 0]
    for _ in range(200):
        F = F.detach().requires_grad_()
        F = F - 0.1 * torch.autograd.grad(corotated(F), F)[0]
    torch.testing.assert_close(F.mT @ F, torch.eye(side, dtype=F.dtype).expand_as(F), rtol=1e-6, atol=1e-6)
