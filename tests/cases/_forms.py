"""Rows for every form an op can take: several outputs, integer outputs, methods, template arrays, own backward."""

import torch

import tinsmith as ts
from cases._case import case


@case(lambda draw: (draw(6),), lambda x: (x * x, torch.sin(x).sum()))
def two_outputs(lang, real):
    @ts.op("x[n] -> y[n], total[]")
    @lang.kernel
    def two_outputs(x: lang.types.ndarray(), y: lang.types.ndarray(), total: lang.types.ndarray(ndim=0)):
        for i in x:
            y[i] = x[i] * x[i]
            total[None] += lang.sin(x[i])

    return two_outputs


@case(lambda draw: (draw(7),), lambda x: (x * x, (x > 0).sum(dtype=torch.int32).reshape(1)))
def counted(lang, real):
    @ts.op("x[n] -> y[n], positive[1]: i32")
    @lang.kernel
    def counted(x: lang.types.ndarray(), y: lang.types.ndarray(), positive: lang.types.ndarray(dtype=lang.i32, ndim=1)):
        for i in x:
            y[i] = x[i] * x[i]
            if x[i] > 0:
                positive[0] += 1

    return counted


@case(lambda draw: (draw(5), draw(5)), lambda x, k: 1.5 * x * k + 2.0 * k * k)
def method(lang, real):
    @lang.data_oriented
    class Mixer:
        def __init__(self):
            self.first = 1.5
            self.second = 2

        @lang.kernel
        def mix(self, x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.first * x[i] * k[i] + self.second * k[i] * k[i]

    return ts.op("x[n], k[n] -> y[n]")(Mixer().mix)


@case(lambda draw: (draw(3, 4), draw(4)), lambda x, k: (x * x * k).sum(1))
def template_arrays(lang, real):
    @ts.op("x[h, w], k[w] -> y[h]")
    @lang.kernel
    def template_arrays(x: lang.template(), k: lang.template(), y: lang.template()):
        for i, j in x:
            y[i] += x[i, j] * x[i, j] * k[j]

    return template_arrays


@case(lambda draw: (draw(2, 3, 4), draw(2, 3), draw(4)), lambda x, gain, k: (x * x * k).cumsum(-1) * gain[..., None])
def batched(lang, real):
    @ts.op("x[*b, n], gain[*b], k[n] -> y[*b, n]")
    @lang.kernel
    def batched(
        x: lang.types.ndarray(ndim=1),
        gain: lang.types.ndarray(ndim=0),
        k: lang.types.ndarray(ndim=1),
        y: lang.types.ndarray(ndim=1),
    ):
        for i in range(x.shape[0]):
            for j in range(i + 1):
                y[i] += x[j] * x[j] * k[j] * gain[None]

    return batched


@case(lambda draw: (draw(5),), lambda x: x * x * x)
def unzeroed(lang, real):
    @ts.op("x[n] -> y[n]", init={"y": "empty"})
    @lang.kernel
    def unzeroed(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    return unzeroed


@case(lambda draw: (draw(6), draw(6), 3), lambda x, k, count: (x**count) * k)
def own_backward(lang, real):
    @ts.op("x[n], k[n] -> y[n]")
    @lang.kernel
    def own_backward(x: lang.types.ndarray(), k: lang.types.ndarray(), count: lang.i32, y: lang.types.ndarray()):
        for i in x:
            power = 1.0
            step = 0
            while step < count:
                power = power * x[i]
                step += 1
            y[i] = power * k[i]

    @own_backward.backward
    @lang.kernel
    def back(
        x: lang.types.ndarray(),
        k: lang.types.ndarray(),
        count: lang.i32,
        grad_y: lang.types.ndarray(),
        grad_x: lang.types.ndarray(),
        grad_k: lang.types.ndarray(),
    ):
        for i in x:
            lower = 1.0
            step = 1
            while step < count:
                lower = lower * x[i]
                step += 1
            grad_x[i] += count * lower * k[i] * grad_y[i]
            grad_k[i] += lower * x[i] * grad_y[i]

    return own_backward


@case(lambda draw: (draw(5), draw(5)), lambda x, k: torch.sin(x) * k)
def backward_argument(lang, real):
    @lang.kernel
    def forward(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.sin(x[i]) * k[i]

    @lang.kernel
    def back(
        grad_y: lang.types.ndarray(),
        grad_k: lang.types.ndarray(),
        grad_x: lang.types.ndarray(),
        x: lang.types.ndarray(),
        k: lang.types.ndarray(),
    ):
        for i in x:
            grad_x[i] = lang.cos(x[i]) * k[i] * grad_y[i]
            grad_k[i] = lang.sin(x[i]) * grad_y[i]

    return ts.op("x[n], k[n] -> y[n]", backward=back)(forward)


@case(lambda draw: (3,), lambda n: torch.arange(n, dtype=torch.int32) ** 2)
def no_inputs(lang, real):
    @ts.op("-> y[n]: i32")
    @lang.kernel
    def no_inputs(n: lang.i32, y: lang.types.ndarray(dtype=lang.i32, ndim=1)):
        for i in range(n):
            y[i] = i * i

    return no_inputs


@case(lambda draw: (draw(6), draw(6)), lambda x, w: 0.5 * (w * torch.sin(x)).square().sum())
def returned(lang, real):
    @ts.op("x[n], w[n] -> energy[]")
    @lang.kernel
    def returned(x: lang.types.ndarray(), w: lang.types.ndarray()) -> real:
        energy = 0.0
        for i in x:
            energy += (w[i] * lang.sin(x[i])) ** 2
        return 0.5 * energy

    return returned


@case(
    lambda draw: (draw(2, 5),),
    lambda x: (x * x[:, 1:2], x.sum(1)[:, None] * x[:, :2], x[:, :4].unflatten(1, (2, 2)) ** 2, (x > 0).sum(1).int()),
)
def returned_several(lang, real):
    vec2, mat2 = lang.types.vector(2, real), lang.types.matrix(2, 2, real)

    @ts.op("x[*b, n] -> y[*b, n], pair[*b, 2], square[*b, 2, 2], above[*b]")
    @lang.kernel
    def returned_several(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)) -> (vec2, mat2, lang.i32):
        total, above = 0.0, 0
        for i in x:
            y[i] = x[i] * x[1]
            total += x[i]
            if x[i] > 0:
                above += 1
        square = mat2([[x[0] ** 2, x[1] ** 2], [x[2] ** 2, x[3] ** 2]])
        return total * vec2(x[0], x[1]), square, above

    return returned_several
