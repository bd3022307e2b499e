"""Rows with vectors, matrices and structs."""

import numpy as np

from rows._table import Table

ROWS = Table()


@ROWS.row(lambda d: (d(6, 3), d(6, 3), d.zeros(6, 3)))
def vectors(lang, real):
    vec3 = lang.types.vector(3, real)

    @lang.kernel
    def kernel(
        a: lang.types.ndarray(dtype=vec3, ndim=1),
        b: lang.types.ndarray(dtype=vec3, ndim=1),
        c: lang.types.ndarray(dtype=vec3, ndim=1),
    ):
        for i in a:
            u = a[i]
            v = b[i] * 2 + 1
            w = u.cross(v) / (1 + u.norm_sqr())
            w += u - v
            w *= 0.5
            w[1] = w.x + u.sum() * v.max() - v.min()
            w.x, w.z = w.z, w.x
            w.xy = w.yx + 0.5
            c[i] = w * u.dot(v) + -u.normalized() * v.norm(1e-3) + lang.min(u, v) + abs(w) ** 2
            c[i].y += w.z
            c[i] -= u.zyx
            c[i][0] *= 2
            c[i] = lang.select(u > v, c[i], c[i].yzx)

    return kernel


@ROWS.row(lambda d: (d(5, 2, 2), d(5, 2), d.zeros(5, 2), d.zeros(5, 2, 2)), exact=False)
def matrices(lang, real):
    vec2 = lang.types.vector(2, real)
    mat2 = lang.types.matrix(2, 2, real)

    @lang.kernel
    def kernel(
        m: lang.types.ndarray(dtype=mat2, ndim=1),
        v: lang.types.ndarray(dtype=vec2, ndim=1),
        y: lang.types.ndarray(dtype=vec2, ndim=1),
        z: lang.types.ndarray(dtype=mat2, ndim=1),
    ):
        for i in m:
            n = m[i] @ m[i].transpose() + lang.Matrix([[2, 0], [0, 2.5]])
            y[i] = n @ v[i] + v[i] @ n
            z[i] = n.inverse() * n.determinant() + v[i].outer_product(v[i]) + lang.math.eye(2) * n.trace()
            z[i][0, 1] += n.sum()
            n[1, 0] = 3
            n.fill(0.5)
            n[0, 1] = v[i].x + 3
            y[i][1] -= n[1, 0] + n[0, 0] + lang.math.determinant(n) + lang.math.inverse(n)[0, 1]
            z[i] += n

    return kernel


@ROWS.row(lambda d: (d(4, 3, 3), d(4, 4, 4), d.zeros(4, 2)), exact=False)
def inverses(lang, real):
    mat3 = lang.types.matrix(3, 3, real)
    mat4 = lang.types.matrix(4, 4, real)

    @lang.kernel
    def kernel(
        a: lang.types.ndarray(dtype=mat3, ndim=1),
        b: lang.types.ndarray(dtype=mat4, ndim=1),
        y: lang.types.ndarray(),
    ):
        for i in a:
            y[i, 0] = a[i].determinant() + a[i].inverse()[1, 2]
            y[i, 1] = b[i].determinant() + b[i].inverse().trace()

    return kernel


@ROWS.row(lambda d: (d(6), d.integers(6, low=0, high=3), d.zeros(6, 4)))
def entries(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            v = lang.Vector([x[i], 2, i])
            v[k[i]] += 1.5
            v[(k[i] + 1) % 3] = v[k[i]] * 3
            m = lang.Matrix([[1, 2, 3], [4, 5, 6]])
            m[k[i] % 2, k[i]] = 7.9
            w = lang.Vector([j * x[i] for j in lang.static(range(4))], real)
            y[i, 0] = v[0] + v[1] * v[2]
            y[i, 1] = m[k[i] % 2, k[i]] + m[1, k[i]] + m[0, 0] + m.n * m.m + len(w)
            y[i, 2] = w[1:3].sum() + m[0, 1:].sum() + w[3]
            own = lang.Vector([k[i] % 2, 2, 0])
            own[own[0]] = 1
            own[own[1]] += 1
            y[i, 0] += own[0] + 10 * own[1] + 100 * own[2]
            a, b, c = v
            y[i, 3] = a + b * c + max(v[0], v[1]) + lang.Vector([True, False])[0]

    return kernel


@ROWS.row(lambda d: (d(3, 4), d(3, 3, 3), d.zeros(3, 4), d.zeros(3, 3, 3)))
def slices(lang, real):
    vec4, mat3 = lang.types.vector(4, real), lang.types.matrix(3, 3, real)

    @lang.kernel
    def kernel(
        x: lang.types.ndarray(dtype=vec4, ndim=1),
        m: lang.types.ndarray(dtype=mat3, ndim=1),
        y: lang.types.ndarray(dtype=vec4, ndim=1),
        z: lang.types.ndarray(dtype=mat3, ndim=1),
    ):
        for i in x:
            v = x[i]
            v[1:3] = v[0:2]
            v[0:2] += v[2:4]
            v[::3] *= 2.0
            y[i] = v
            y[i][2:4] = v[0:2]
            a = m[i]
            a[1:3, 0] += a[0:2, 1]
            a[0:2, 0:2] = a[1:3, 1:3]
            # A number is stored to each.
            v[1:3] = 0.5
            v.xw = 1.5
            a[2, :] = 2.0
            z[i] = a
            z[i][0, :] = v[1:4]
            z[i][:, 1] += v.xyz

    return kernel


@ROWS.row(lambda d: (d(3, 3, 3), d.integers(3, low=0, high=3), d.zeros(3, 3, 3)))
def slices_beside_indices(lang, real):
    mat3 = lang.types.matrix(3, 3, real)

    @lang.kernel
    def kernel(
        m: lang.types.ndarray(dtype=mat3, ndim=1),
        k: lang.types.ndarray(),
        y: lang.types.ndarray(dtype=mat3, ndim=1),
    ):
        for i in m:
            a, j = m[i], k[i]
            y[i][0, :] = a[j, :] * a[:, 1]
            y[i][1, 0:2] += a[1:3, (j + 1) % 3]
            y[i][2, :] = m[i][j, :]

    return kernel


@ROWS.row(lambda d: (d(5), d.zeros(5, 4)))
def constructors(lang, real):
    vec2, vec3, vec4 = (lang.types.vector(n, real) for n in (2, 3, 4))
    mat2 = lang.types.matrix(2, 2, real)
    ivec = lang.types.vector(2, lang.i32)
    K = lang.Matrix([[1.5, 2.0], [0.25, -1.0]])
    L = np.array([[1.0, 2.0], [3.0, 4.0]])
    n32 = np.float32(0.1)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            a = vec3(x[i])
            b = vec4(a, 1.0)
            c = vec2([x[i], 2])
            d = mat2(1, 2, x[i], 4)
            e = ivec(2.9, 3)
            f = lang.Vector.zero(real, 3) + lang.Vector.one(real, 3) * 2
            g = lang.Matrix.identity(real, 2) * x[i] + lang.Matrix.zero(lang.f32, 2, 2)
            h = lang.Vector.unit(3, 1)
            p = vec2(x[i], 1) + vec2(3.0)
            y[i, 0] = a.sum() + b.sum() + c.dot(p) + d.trace() + e.x / 2
            y[i, 1] = f[2] + g[0, 0] + h[1] + (K @ c).sum() + K[1, 0] + L[0, 1] + n32
            y[i, 2] = (g @ K).sum() + lang.Matrix.diag(2, x[i]).sum() + K[i % 2, 0]
            y[i, 3] = lang.math.vec2(1, 2).y + lang.cast(a, lang.i32).sum() + lang.math.dot(c, p)
            z = a > 0
            if lang.static(True) and any(z) and all(a < 5):
                y[i, 3] += 1

    return kernel


@ROWS.row(lambda d: (d(5, 3), d(5, 3), d.zeros(5, 3)), exact=False)
def shading(lang, real):
    vec3 = lang.types.vector(3, real)
    tm = lang.math

    @lang.kernel
    def kernel(
        a: lang.types.ndarray(dtype=vec3, ndim=1),
        b: lang.types.ndarray(dtype=vec3, ndim=1),
        c: lang.types.ndarray(dtype=vec3, ndim=1),
    ):
        for i in a:
            n = tm.normalize(b[i])
            c[i] = tm.reflect(a[i], n) + tm.refract(tm.normalize(a[i]), n, 0.6) + tm.cross(a[i], b[i])
            c[i] += tm.length(a[i]) * tm.distance(a[i], b[i]) + tm.clamp(a[i], 0.0, 1.0) + tm.fract(b[i])
            c[i] = tm.mix(c[i], a[i], tm.smoothstep(0.0, 1.0, b[i].x)) + tm.sign(a[i]) + tm.step(0.0, a[i])
            c[i] += tm.max(a[i], 0.3) + lang.exp(a[i]) + tm.rot_by_axis(n, 0.3)[0, 1] + (tm.rotation2d(0.2) @ a[i].xy).x

    return kernel


@ROWS.row(lambda d: (d(5, 3), d.zeros(5)))
def structs(lang, real):
    vec3 = lang.types.vector(3, real)

    @lang.dataclass
    class Ray:
        origin: vec3
        direction: vec3
        near: real

        @lang.func
        def at(self, t):
            return self.origin + t * self.direction

        @lang.func
        def push(self, far):
            self.near += far

    pair = lang.types.struct(a=real, b=lang.i32)

    @lang.func
    def moved(ray, by):
        ray.origin += by
        return ray

    @lang.kernel
    def kernel(p: lang.types.ndarray(dtype=vec3, ndim=1), y: lang.types.ndarray()):
        for i in p:
            ray = Ray(p[i], vec3(0, 1, 0.5), near=0.25)
            ray.direction.y = 2
            ray.push(0.5)
            other = moved(ray, 1.0)
            other.origin.x *= 3
            both = pair(1.5, 2.9)
            both.b += 1
            free = lang.Struct(c=p[i].x, d=vec3(1))
            y[i] = ray.at(ray.near).sum() + other.origin.sum() + both.a * both.b + free.c + free.d.z
            other = ray
            y[i] += other.origin.x

    return kernel


@ROWS.row(lambda d: (d(3, 3), d.integers(3, 2, low=0, high=3), d.zeros(3, 3)))
def indices(lang, real):
    ivec2 = lang.types.vector(2, lang.i32)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), k: lang.types.ndarray(dtype=ivec2, ndim=1), y: lang.types.ndarray()):
        for ij in lang.grouped(x):
            J = ij.yx
            y[ij] = x[J] + x[k[ij[0]]] + x[ij[0], (ij[1] + 1) % 3]
            J += 1
            if all(J < 3):
                y[ij] += x[J] * J.sum()

    return kernel
