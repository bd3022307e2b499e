"""Rows with functions, data-oriented objects, captured values and fields."""

import torch

from rows._table import Table

ROWS = Table()


@ROWS.row(lambda d: (d(6), d.zeros(6)))
def nested_functions(lang, real):
    @lang.func
    def inner(x, k=3, gain: real = 0.5):
        x = x * k
        return x * gain

    @lang.func
    def outer(x, y):
        total = 0.0
        for j in range(3):
            if x > j:
                total += inner(x, gain=y) + inner(x=y, k=j)
        return total, x

    @lang.func
    def kind(x: lang.template()):
        if lang.static(x == 0):
            return 1.0
        else:
            return 2.5

    @lang.func
    def typed(x: lang.i32) -> lang.f32:
        return x * 2

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            a, b = outer(x[i], 0.25)
            y[i] = a - b + kind(0) + kind(1) + typed(x[i])

    return kernel


@ROWS.row(lambda d: (d(6), d.zeros(6)))
def references(lang, real):
    @lang.func
    def add(total: lang.template(), v):
        total += v
        v += 1

    @lang.func
    def swap(a: lang.template(), b: lang.template()):
        a, b = b, a

    @lang.func
    def row(z: lang.template(), i, x):
        z[i] = z[i] * 2 + x
        add(z[i], 1)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            a, b = x[i], 2.0
            add(y[i], a)
            swap(a, b)
            v = lang.Vector([a, b])
            add(v, 1)
            add(v.x, a)
            row(y, i, v[0] - v[1])

    return kernel


@ROWS.row(lambda d: (d(6), d.zeros(6)))
def order_of_evaluation(lang, real):
    @lang.func
    def bump(total: lang.template()):
        total = total * 2 + 1
        return total  # noqa: RET504

    @lang.func
    def same(v: lang.template()):
        return kept(v)

    @lang.func
    def kept(v):
        return v

    @lang.func
    def scaled(v, by: lang.template()):
        return v * (by * by)

    @lang.func
    def half(v):
        v *= 0.5
        return v

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            a = x[i]
            y[i] = a + bump(a) * a + half(a)
            y[i] = y[i] + bump(y[i]) * half(y[i])
            a = half(a) + half(half(a))
            y[i] += a
            b = a
            c = scaled(lang.Vector([1.0, 2.0]), b) * bump(b) + same(b)
            y[i] += c.x + c.y

    return kernel


@ROWS.row(lambda d: (d(5), d.zeros(5)))
def methods(lang, real):
    @lang.data_oriented
    class Mixer:
        def __init__(self):
            self.gain = 1.5
            self.weights = [0.5, 2]
            self.n = 5
            self.bias = lang.Vector([0.25, 1.0])

        @lang.func
        def scaled(self, v):
            return v * self.gain + self.bias[1]

        @lang.func
        def added(self, total: lang.template(), v):
            total += self.scaled(v)

        @lang.kernel
        def mix(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in range(self.n):
                y[i] = self.scaled(x[i]) * self.weights[0]
                self.added(y[i], x[i])
                for w in lang.static(self.weights):
                    y[i] += w

    return Mixer().mix


@ROWS.row(lambda d: (d(4), 3, d.zeros(4)))
def templates(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), n: lang.template(), y: lang.types.ndarray()):
        for i in x:
            for j in lang.static(range(n)):
                y[i] += x[i] * j / n

    return kernel


@ROWS.row(lambda d: (d(2, 3), d.zeros(2, 3)), exact=False)
def fields(lang, real):
    table = lang.field(real, shape=(2, 3))
    total = lang.field(lang.i32, shape=())
    points = lang.Vector.field(2, real, shape=2)
    particles = lang.Struct.field({"mass": real, "at": lang.types.vector(2, real)}, shape=2)
    table.from_torch(torch.arange(6.0).reshape(2, 3).to(torch.float64 if real is lang.f64 else torch.float32))
    total[None] = 3

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i, j in table:
            y[i, j] = table[i, j] * x[i, j] + total[None] + table.shape[1]
        for i in points:
            points[i] = lang.Vector([x[i, 0], 2])
            points[i].x += 1
            particles[i].mass = x[i, 1]
            particles[i].at = points[i] * 2
        for i in particles:
            y[i, 0] += particles[i].mass + particles[i].at.sum() + particles.mass[i]
        for ij in lang.grouped(points):
            y[ij[0], 1] += points[ij].sum()

    return kernel


@ROWS.row(lambda d: (d(4), d.zeros(4)))
def owned_fields(lang, real):
    @lang.data_oriented
    class Grid:
        def __init__(self):
            self.x = lang.field(real, shape=4)
            self.lists = [self.x]

        @lang.func
        def put(self, i, v):
            self.x[i] = v

        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                self.put(i, x[i] * 2)
            for i in self.x:
                y[i] = self.x[i] + self.lists[0][i]

    return Grid().run


@ROWS.row(lambda d: (d(4), d.zeros(4)))
def unusual_names(lang, real):
    sin = lang.sin
    f = lang.f32
    vec = lang.math.vec2

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for part in x:
            before = x[part]
            result = vec(before, 1)
            before_2 = result.norm()
            y[part] = sin(before) * f(0.1) + before_2 + result.x

    return kernel
