"""Helpers of Genesis' geometry as ops: prints how far values are from NumPy's, and derivatives from differences."""

from __future__ import annotations

import json

import genesis as gs
import genesis.utils.geom as gu
import numpy as np
import quadrants as qd
import torch

import tinsmith as ts

gs.init(backend=gs.cpu, precision="64", logging_level="error")
torch.set_num_threads(1)

EPS = 1e-12
vec3, vec4, mat3 = gs.qd_vec3, gs.qd_vec4, gs.qd_mat3


def vectors(of):
    return qd.types.ndarray(dtype=of, ndim=1)


@ts.op("quat[n, 4] -> R[n, 3, 3]", adjoint="source")
@qd.kernel
def quat_to_R(quat: vectors(vec4), R: vectors(mat3)):
    for i in quat:
        R[i] = gu.qd_quat_to_R(quat[i], EPS)


@ts.op("rotvec[n, 3] -> quat[n, 4]", adjoint="source")
@qd.kernel
def rotvec_to_quat(rotvec: vectors(vec3), quat: vectors(vec4)):
    for i in rotvec:
        quat[i] = gu.qd_rotvec_to_quat(rotvec[i], EPS)


@ts.op("quat[n, 4] -> rotvec[n, 3]", adjoint="source")
@qd.kernel
def quat_to_rotvec(quat: vectors(vec4), rotvec: vectors(vec3)):
    for i in quat:
        rotvec[i] = gu.qd_quat_to_rotvec(quat[i], EPS)


@ts.op("v[n, 3], quat[n, 4] -> out[n, 3]", adjoint="source")
@qd.kernel
def transform_by_quat(v: vectors(vec3), quat: vectors(vec4), out: vectors(vec3)):
    for i in v:
        out[i] = gu.qd_transform_by_quat(v[i], quat[i])


@ts.op("u[n, 4], v[n, 4] -> out[n, 4]", adjoint="source")
@qd.kernel
def quat_mul(u: vectors(vec4), v: vectors(vec4), out: vectors(vec4)):
    for i in u:
        out[i] = gu.qd_quat_mul(u[i], v[i])


@ts.op("xyz[n, 3] -> quat[n, 4]", adjoint="source")
@qd.kernel
def xyz_to_quat(xyz: vectors(vec3), quat: vectors(vec4)):
    for i in xyz:
        quat[i] = gu.qd_xyz_to_quat(xyz[i])


@ts.op("p[n, 4, 3] -> volume[n]", adjoint="source")
@qd.kernel
def tet_volume(p: qd.types.ndarray(dtype=vec3, ndim=2), volume: qd.types.ndarray(ndim=1)):
    for i in volume:
        volume[i] = gu.qd_tet_vol(p[i, 0], p[i, 1], p[i, 2], p[i, 3])


def rotate(quat):
    """Return rotation matrices of quaternions, in NumPy."""
    w, v = quat[:, 0], quat[:, 1:]
    cross = np.zeros((len(quat), 3, 3))
    for (i, j), (k, sign) in {(0, 1): (2, -1), (0, 2): (1, 1), (1, 2): (0, -1)}.items():
        cross[:, i, j], cross[:, j, i] = sign * v[:, k], -sign * v[:, k]
    scale = 2 / (quat**2).sum(1)
    return np.eye(3) + scale[:, None, None] * (w[:, None, None] * cross + cross @ cross)


def multiply(u, v):
    """Return products of quaternions, in NumPy."""
    w = u[:, :1] * v[:, :1] - (u[:, 1:] * v[:, 1:]).sum(1, keepdims=True)
    return np.hstack([w, u[:, :1] * v[:, 1:] + v[:, :1] * u[:, 1:] + np.cross(u[:, 1:], v[:, 1:])])


def turn(rotvec):
    """Return quaternions of rotation vectors, in NumPy."""
    angle = np.linalg.norm(rotvec, axis=1, keepdims=True)
    return np.hstack([np.cos(angle / 2), np.sin(angle / 2) * rotvec / angle])


def unit(quat):
    return quat / np.linalg.norm(quat, axis=1, keepdims=True)


def about(axis, angle):
    return turn(np.eye(3)[[axis]] * angle[:, None])


rng = np.random.default_rng(0)
v, q, p = rng.standard_normal((5, 3)), rng.standard_normal((5, 4)), unit(rng.standard_normal((5, 4)))
q[:, 0], p[:, 0] = np.abs(q[:, 0]), np.abs(p[:, 0])
turned = 2 * np.arccos(p[:, :1]) * p[:, 1:] / np.linalg.norm(p[:, 1:], axis=1, keepdims=True)
corners = rng.standard_normal((5, 4, 3))
edges = corners[:, 1:] - corners[:, :1]
CASES = {
    quat_to_R: ((q,), rotate(q)),
    rotvec_to_quat: ((v,), turn(v)),
    quat_to_rotvec: ((p,), turned),
    transform_by_quat: ((v, p), np.einsum("nij,nj->ni", rotate(p), v)),
    quat_mul: ((q, p), multiply(q, p)),
    xyz_to_quat: ((v,), multiply(about(0, v[:, 0]), multiply(about(1, v[:, 1]), about(2, v[:, 2])))),
    tet_volume: ((corners,), np.linalg.det(edges) / 6),
}
results = {}
for op, (inputs, expected) in CASES.items():
    tensors = [torch.from_numpy(one).requires_grad_() for one in inputs]
    weights = torch.from_numpy(rng.standard_normal(expected.shape))
    gradients = torch.autograd.grad((op(*tensors) * weights).sum(), tensors)
    moves = [torch.from_numpy(rng.standard_normal(one.shape)) for one in inputs]

    def energy(step, op=op, tensors=tensors, moves=moves, weights=weights):
        return (op(*[one.detach() + step * move for one, move in zip(tensors, moves, strict=True)]) * weights).sum()

    slope = float(energy(1e-6) - energy(-1e-6)) / 2e-6
    got = sum(float((one * move).sum()) for one, move in zip(gradients, moves, strict=True))
    off = np.abs(op(*tensors).detach().numpy() - expected).max()
    results[op.__name__] = [float(off), abs(got - slope) / (1 + abs(slope))]
print("RESULTS", json.dumps(results), flush=True)
