"""Rows with corners of the language."""

import torch

from rows._table import Table

ROWS = Table()


@ROWS.row(lambda d: (d(4, 5), d.zeros(4, 5)))
def shapes_of_arrays(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        h, w = x.shape
        for i, j in lang.ndrange(*x.shape):
            y[i, j] = x[h - 1 - i, w - 1 - j]
        for ij in lang.grouped(lang.ndrange(h, w)):
            y[ij] += x[ij] * lang.min(ij[0], w)

    return kernel


@ROWS.row(lambda d: (d(6, 3), d.zeros(6, 3), d.zeros(6, 6)), exact=False)
def more_vectors(lang, real):
    vec3 = lang.types.vector(3, real)

    @lang.kernel
    def kernel(
        p: lang.types.ndarray(dtype=vec3, ndim=1), q: lang.types.ndarray(dtype=vec3, ndim=1), y: lang.types.ndarray()
    ):
        for i in p:
            q[i].xy = p[i].yx
            q[i].yz += p[i].xx * 2
            q[i].z *= 2
            m = lang.Matrix.rows([p[i], q[i]])
            n = lang.Matrix.cols([p[i], q[i]])
            y[i, 0] = m.sum() + (m @ n)[1, 0] + p[i].norm_inv(1e-3)
            y[i, 1] = lang.exp(p[i]).x + lang.atan2(p[i], 0.5).y + lang.max(p[i], q[i], 0.1).z
            v = lang.Vector([1, 2, 3], dt=real) / 2
            v //= 0.4
            v %= 1.3
            v **= 2
            y[i, 2] = v.sum() + p[i].any() + p[i].all() + (p[i] > 0).cast(lang.i32).sum()
            w = lang.Vector([i, 5]) << 1
            w |= 1
            y[i, 3] = (w & 3).sum() + (-w).x + (~w).y + (w // 3).x + (w % 3).y + (w / 3).y
            e = p[i] == p[i].zyx
            y[i, 4] = e.sum() + (p[i] if i > 2 else q[i]).x
            lang.atomic_add(q[i], p[i])
            r = lang.Matrix([[0.0] * 2 for _ in range(2)])
            r[0, 1] = i
            for a, b in lang.static(lang.ndrange(2, 2)):
                r[a, b] += a - b
            y[i, 5] = r.sum() + lang.math.rotation3d(0.1, 0.2, 0.3).trace()

    return kernel


@ROWS.row(lambda d: (d(6), d.zeros(6, 3)))
def held_by_python(lang, real):
    settings = lang.Struct(gain=1.5, at=lang.Vector([1.0, 2.0]))
    dictionary = {"a": 2, "inner": {"b": 0.5}}

    class Plain:
        scale = 3
        flag = True

    plain = Plain()

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            s = settings
            s.gain += x[i]
            y[i, 0] = s.gain + s.at.y * settings.gain
            y[i, 1] = dictionary["a"] * dictionary["inner"]["b"] + plain.scale
            if plain.flag:
                y[i, 2] = 1
            if not plain.flag and x[i] > 0:
                y[i, 2] += 5
            t = True
            t = t and i > 2
            y[i, 2] += t + (1 if plain.flag else x[i])

    return kernel


@ROWS.row(lambda d: (d(6), d.zeros(6), d.zeros(6)))
def loops_in_functions(lang, real):
    @lang.func
    def fill(y: lang.template(), x: lang.template()):
        for i in x:
            total = 0.0
            for j in range(i):
                total += x[j]
            y[i] = total

    @lang.func
    def longest(x: lang.types.ndarray(), i):
        j = i
        while j < x.shape[0] and x[j] > -1:
            j += 1
        return j - i

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        fill(y, x)
        for i in x:
            z[i] = longest(x, i) if i % 2 == 0 or longest(x, 0) > 2 else -1

    return kernel


@ROWS.row(
    lambda d: (d.integers(7, dtype=torch.int64), d.integers(7, low=0, high=5, dtype=torch.uint8), d(7), d.zeros(7))
)
def memory_of_other_types(lang, real):
    @lang.kernel
    def kernel(k: lang.types.ndarray(), b: lang.types.ndarray(), x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in k:
            y[i] = k[i] * b[i] + x[b[i]]
            b[i] += 1
            k[i] -= x[i]
            k[i] = k[i] * 3.7
            b[i] = k[i]
            big = lang.i64(10000000000)
            y[i] += lang.cast(big + k[i], real) * 1e-9

    return kernel


@ROWS.row(lambda d: (d(5), d.zeros(5)), exact=False)
def constants_are_the_engines(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            third = lang.f32(1.0) / 3
            y[i] = third * x[i] + lang.f64(0.1) * lang.f32(0.2) - lang.i32(7) // 2 + 7 % -3 + -7 // 2
            y[i] += lang.math.inf if x[i] > 5 else -0.0
            y[i] += (
                lang.i32(8) // 2
                + lang.i32(7) % 3
                + lang.bit_shr(71, 6)
                + (-7 + i) // 2
                + (-7 + i) % 3
                + lang.cast(-2.7, lang.i32)
            )
            y[i] += 1e-30 * 1e-10 * 1e38 + 16777217

    return kernel


@ROWS.row(lambda d: (d(4, 2, 2), d(4, 3, 3), d.zeros(4, 7)), exact=False)
def decompositions(lang, real):
    mat2, mat3 = lang.types.matrix(2, 2, real), lang.types.matrix(3, 3, real)

    @lang.kernel
    def kernel(
        a: lang.types.ndarray(dtype=mat2, ndim=1), b: lang.types.ndarray(dtype=mat3, ndim=1), y: lang.types.ndarray()
    ):
        for i in a:
            u, s, v = lang.svd(a[i], real)
            y[i, 0] = (u @ s @ v.transpose()).sum()
            r, p = lang.polar_decompose(a[i], real)
            y[i, 1] = r[0, 0] + p.trace()
            y[i, 2] = s[0, 0]
            y[i, 3] = lang.solve(b[i], lang.Vector([1.0, 2.0, 3.0], real), real).y
            u3, s3, v3 = lang.svd(b[i], real)
            y[i, 4] = (u3 @ s3 @ s3 @ s3 @ v3.transpose()).sum()
            r3, p3 = lang.polar_decompose(b[i], real)
            y[i, 5] = r3[0, 1] * p3[1, 2] + p3.trace()
            w3, q3 = lang.sym_eig(b[i] @ b[i].transpose(), real)
            y[i, 6] = q3[0, 2] ** 2 + w3[1]

    return kernel


@ROWS.row(lambda d: (d(5), d.zeros(5)))
def first_parameters(lang, real):
    @lang.func
    def grown(it, by):
        it.a += by  # of a copy: no class surrounds it
        return it.a

    pair = lang.types.struct(a=real, b=real, __struct_methods={"grown": grown})

    @lang.dataclass
    class Box:
        a: real

        @lang.func
        def grown(this, by):
            this.a += by
            return this.a

    @lang.func
    def doubled(it: Box):
        it.a *= 2
        return it.a

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            p = pair(x[i], 2)
            q = Box(x[i])
            y[i] = p.grown(1) * q.grown(2) + p.a
            y[i] += q.a * doubled(q) + q.a

    return kernel


@ROWS.row(lambda d: (d(6), d.integers(6, low=0, high=6), d.zeros(6)), exact=False)
def choices_inside_atomics(lang, real):
    @lang.func
    def formed(v, how: lang.template()):
        if lang.static(how == 1):
            return lang.sin(v)
        else:
            return v * 0.5

    @lang.kernel
    def kernel(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            lang.atomic_add(y[k[i]], x[i] if x[k[i]] > 0.0 else 2.0 * x[0])
        for i in x:
            if formed(x[i], 1) > 0.1 or x[k[i]] < formed(x[0], 0):
                lang.atomic_max(y[0], (x[i] if k[i] > 2 else x[1]) * 0.5)

    return kernel


@ROWS.row(lambda d: (d(6), d.zeros(6)))
def containers(lang, real):
    weights = ((0.5, -1.0), (2.0, 0.25))

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            powers = tuple([x[i] * k for k in range(3)])
            pairs = list(zip((x[i], 3), (2.0, x[0]), strict=True))
            y[i] = powers[1] + powers[2] + pairs[0][0] * pairs[1][1]
            for k, value in lang.static(enumerate([x[i], 2.5], start=1)):
                y[i] += k * value
            for one, other in lang.static(zip((x[i], 2), powers, strict=False)):
                y[i] += one * other
            for k, pair in lang.static(enumerate(weights)):
                y[i] += k * pair[0] + pair[1]

    return kernel
