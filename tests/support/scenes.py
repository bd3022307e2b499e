"""Scenes: fields and kernels that several tests of Tin and EmptyTin wrap in layers."""

from support.dropin import CPU


def make_field(lang, shape, *, dtype=None, needs_grad=True):
    return lang.field(dtype or lang.f64, shape=shape, needs_grad=needs_grad)


def make_scaling(lang, x, w, y):
    """Build y = w x, with a scalar w."""

    @lang.kernel
    def scaled():
        for i in x:
            y[i] = w[None] * x[i]

    return scaled


def make_multiplying(lang, x, y):
    """Build y = a x, with a an argument."""

    @lang.kernel
    def times(a: lang.f64):
        for i in x:
            y[i] = a * x[i]

    return times


class Scene:
    """Three fields of one size and a layer that is not finished yet."""

    def __init__(self, layers, lang, size=4, auto_clear_grad=True):
        self.lang = lang
        self.x, self.y = make_field(lang, size), make_field(lang, size)
        self.w = make_field(lang, ())
        self.w.fill(1.0)
        self.tin = layers.EmptyTin(CPU, auto_clear_grad)

    def registered(self):
        return self.tin.register_input_field(self.x).register_output_field(self.y)

    def times(self):
        return make_multiplying(self.lang, self.x, self.y)

    def scaled(self):
        return make_scaling(self.lang, self.x, self.w, self.y)


def model(lang):
    """Make a data-oriented object with two kernels."""

    @lang.data_oriented
    class Model:
        def __init__(self):
            self.x, self.y, self.w = make_field(lang, (4,)), make_field(lang, (4,)), make_field(lang, (4,))

        @lang.kernel
        def scale(self):
            for i in self.x:
                self.y[i] = self.w[i] * self.x[i]

        @lang.kernel
        def shift(self, a: lang.f64, b: lang.f64):
            for i in self.x:
                self.y[i] += a + b * self.x[i] * self.x[i]

    return Model()
