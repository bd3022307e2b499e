"""Rows whose arrays have vector or matrix elements."""

import torch

import tinsmith as ts
from cases._case import case


@case(lambda draw: (draw(5, 3),), lambda p: torch.sqrt((p * p).sum(1) + 0.1))
def lengths(lang, real):
    vec3 = lang.types.vector(3, real)

    @ts.op("p[n, 3] -> y[n]")
    @lang.kernel
    def lengths(p: lang.types.ndarray(dtype=vec3, ndim=1), y: lang.types.ndarray(dtype=real, ndim=1)):
        for i in p:
            y[i] = lang.sqrt(p[i].dot(p[i]) + 0.1)

    return lengths


@case(lambda draw: (draw(4, 3), draw(4, 3)), lambda a, b: torch.linalg.cross(a, b) * a)
def cross(lang, real):
    vec3 = lang.types.vector(3, real)

    @ts.op("a[n, 3], b[n, 3] -> c[n, 3]")
    @lang.kernel
    def cross(
        a: lang.types.ndarray(dtype=vec3, ndim=1),
        b: lang.types.ndarray(dtype=vec3, ndim=1),
        c: lang.types.ndarray(dtype=vec3, ndim=1),
    ):
        for i in a:
            c[i] = a[i].cross(b[i]) * a[i]

    return cross


@case(lambda draw: (draw(3, 2, 2), draw(3, 2)), lambda m, v: torch.einsum("nij,nj->ni", m, v) ** 2)
def matrix_vector(lang, real):
    vec2 = lang.types.vector(2, real)
    mat2 = lang.types.matrix(2, 2, real)

    @ts.op("m[n, 2, 2], v[n, 2] -> y[n, 2]")
    @lang.kernel
    def matrix_vector(
        m: lang.types.ndarray(dtype=mat2, ndim=1),
        v: lang.types.ndarray(dtype=vec2, ndim=1),
        y: lang.types.ndarray(dtype=vec2, ndim=1),
    ):
        for i in m:
            product = m[i] @ v[i]
            y[i] = product * product

    return matrix_vector


def _picked(m, k):
    rows = torch.stack([one[j] for one, j in zip(m, k.tolist(), strict=True)])
    columns = torch.stack([one[1:, j] for one, j in zip(m, k.tolist(), strict=True)])
    return rows * rows + torch.nn.functional.pad(columns, (0, 1))


@case(lambda draw: (draw(4, 3, 3), draw.integers(4, below=3)), _picked)
def rows_at_indices(lang, real):
    vec3, mat3 = lang.types.vector(3, real), lang.types.matrix(3, 3, real)

    @ts.op("m[n, 3, 3], k[n]: i32 -> y[n, 3]")
    @lang.kernel
    def rows_at_indices(
        m: lang.types.ndarray(dtype=mat3, ndim=1),
        k: lang.types.ndarray(),
        y: lang.types.ndarray(dtype=vec3, ndim=1),
    ):
        for i in m:
            row, column = m[i][k[i], :], m[i][1:, k[i]]
            y[i] = row * row + lang.Vector([column[0], column[1], 0.0])

    return rows_at_indices


@case(lambda draw: (draw(3, 2, 2) + 2.0 * torch.eye(2),), lambda m: torch.linalg.det(m))
def determinants(lang, real):
    mat2 = lang.types.matrix(2, 2, real)

    @ts.op("m[n, 2, 2] -> y[n]")
    @lang.kernel
    def determinants(m: lang.types.ndarray(dtype=mat2, ndim=1), y: lang.types.ndarray(dtype=real, ndim=1)):
        for i in m:
            y[i] = m[i].determinant()

    return determinants


@case(lambda draw: (draw(3, 2, 3), draw(3, 3, 2)), lambda a, b: a @ b)
def matrix_elements(lang, real):
    left = lang.types.matrix(2, 3, real)
    right = lang.types.matrix(3, 2, real)
    square = lang.types.matrix(2, 2, real)

    @ts.op("a[n, 2, 3], b[n, 3, 2] -> c[n, 2, 2]")
    @lang.kernel
    def matrix_elements(
        a: lang.types.ndarray(dtype=left, ndim=1),
        b: lang.types.ndarray(dtype=right, ndim=1),
        c: lang.types.ndarray(dtype=square, ndim=1),
    ):
        for i in a:
            c[i] = a[i] @ b[i]

    return matrix_elements


def _rotated(q, v):
    w, u = q[:, :1], q[:, 1:]
    return v + 2.0 * torch.linalg.cross(u, torch.linalg.cross(u, v) + w * v)


@case(lambda draw: (draw(4, 4), draw(4, 3)), _rotated)
def rotated(lang, real):
    vec3 = lang.types.vector(3, real)
    vec4 = lang.types.vector(4, real)

    @ts.op("q[n, 4], v[n, 3] -> y[n, 3]")
    @lang.kernel
    def rotated(
        q: lang.types.ndarray(dtype=vec4, ndim=1),
        v: lang.types.ndarray(dtype=vec3, ndim=1),
        y: lang.types.ndarray(dtype=vec3, ndim=1),
    ):
        for i in q:
            u = lang.Vector([q[i][1], q[i][2], q[i][3]])
            inner = u.cross(v[i]) + q[i][0] * v[i]
            y[i] = v[i] + 2.0 * u.cross(inner)

    return rotated


def _springs(p, rest):
    edge = p[1:] - p[:-1]
    length = torch.sqrt((edge * edge).sum(1, keepdim=True) + 0.01)
    pull = (length - rest) * edge / length
    zero = torch.zeros_like(p[:1])
    return torch.cat([pull, zero]) - torch.cat([zero, pull])


@case(lambda draw: (draw(5, 2), draw(1)), _springs)
def springs(lang, real):
    vec2 = lang.types.vector(2, real)

    @ts.op("p[n, 2], rest[1] -> force[n, 2]")
    @lang.kernel
    def springs(
        p: lang.types.ndarray(dtype=vec2, ndim=1),
        rest: lang.types.ndarray(dtype=real, ndim=1),
        force: lang.types.ndarray(dtype=vec2, ndim=1),
    ):
        for i in range(p.shape[0] - 1):
            edge = p[i + 1] - p[i]
            length = lang.sqrt(edge.dot(edge) + 0.01)
            pull = (length - rest[0]) * edge / length
            force[i] += pull
            force[i + 1] -= pull

    return springs


@case(lambda draw: (draw(3), draw(5, 3)), lambda light, n: torch.tanh(n @ light) + light[0] * light[2])
def learnable_vector(lang, real):
    vec3 = lang.types.vector(3, real)

    @ts.op("light[3], n[k, 3] -> y[k]")
    @lang.kernel
    def learnable_vector(
        light: vec3, n: lang.types.ndarray(dtype=vec3, ndim=1), y: lang.types.ndarray(dtype=real, ndim=1)
    ):
        for i in n:
            y[i] = lang.tanh(n[i].dot(light)) + light.x * light[2]

    return learnable_vector


@case(lambda draw: (draw(4, 2), draw(2, 2), draw(2)), lambda p, m, shift: (p @ m.T + shift) * m[0, 1])
def learnable_matrix(lang, real):
    vec2 = lang.types.vector(2, real)
    mat2 = lang.types.matrix(2, 2, real)

    @ts.op("p[n, 2], m[r, r], shift[r] -> y[n, 2]")
    @lang.kernel
    def learnable_matrix(
        p: lang.types.ndarray(dtype=vec2, ndim=1), m: mat2, shift: vec2, y: lang.types.ndarray(dtype=vec2, ndim=1)
    ):
        for i in p:
            y[i] = (m @ p[i] + shift) * m[0, 1]

    return learnable_matrix
