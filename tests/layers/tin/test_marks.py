"""Registration by property: a class that marks its fields and kernels needs no registration."""

import pytest
import torch

import cases
import tinsmith as ts


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def make_class(lang):
    @lang.data_oriented
    class Affine:
        def __init__(self, n, scale):
            self._x, self._y, self._w = (lang.field(lang.f64, shape=n, needs_grad=True) for _ in range(3))
            self._between = lang.field(lang.f64, shape=n, needs_grad=True)
            self.scale = scale
            self._w.fill(0.5)

        @ts.input
        def x(self):
            return self._x

        @ts.output
        @property
        def y(self):
            return self._y

        @ts.weight(name="weight")
        def w(self):
            return self._w

        @ts.kernel
        @lang.kernel
        def first(self):
            for i in self._x:
                self._between[i] = self._w[i] * self._x[i] * self._x[i]

        @ts.kernel
        @lang.kernel
        def second(self):
            for i in self._x:
                self._y[i] = self._between[i] * self.scale

    return Affine


def test_decorators_replace_registration(lang64):
    layer = ts.Tin(make_class(lang64)(4, 3.0))
    assert layer.finished and [name for name, _ in layer.named_parameters()] == ["weight"]
    x, c = rand(4).requires_grad_(), rand(4)
    w = layer.weight.detach().clone().requires_grad_()
    cases.assert_close(layer(x), 3 * w * x * x)
    mine = torch.autograd.grad(layer(x), (x, layer.weight), c)
    cases.assert_close(mine, torch.autograd.grad(3 * w * x * x, (x, w), c))


def test_a_decorated_object_keeps_its_behavior(lang64):
    thing = make_class(lang64)(4, 3.0)
    assert thing.x is thing._x and thing.y is thing._y
    thing._x.fill(2.0)
    thing.first()
    thing.second()
    assert torch.equal(thing._y.to_torch(), torch.full((4,), 6.0, dtype=torch.float64))


def test_two_objects_of_one_class(lang64):
    make = make_class(lang64)
    one, two = ts.Tin(make(3, 1.0)), ts.Tin(make(3, -2.0))
    x = rand(3)
    cases.assert_close(one(x).detach(), 0.5 * x * x)
    cases.assert_close(two(x).detach(), -x * x)


def test_a_subclass_adds_and_replaces(lang64):
    base = make_class(lang64)

    @lang64.data_oriented
    class Shifted(base):
        @ts.kernel
        @lang64.kernel
        def third(self):
            for i in self._y:
                self._y[i] += 1.0

    x = rand(3)
    cases.assert_close(ts.Tin(Shifted(3, 2.0))(x).detach(), x * x + 1.0)


def test_an_explicit_order_of_decorated_fields(lang64):
    @lang64.data_oriented
    class Ordered:
        def __init__(self):
            self._x, self._y = (lang64.field(lang64.f64, shape=3, needs_grad=True) for _ in range(2))

        @ts.kernel(order=1)
        @lang64.kernel
        def last(self):
            for i in self._y:
                self._y[i] += 10.0

        @ts.kernel
        @lang64.kernel
        def begin(self):
            for i in self._x:
                self._y[i] = 2.0 * self._x[i]

        @ts.input(batched=True)
        def x(self):
            return self._x

        @ts.output
        def y(self):
            return self._y

    layer = ts.Tin(Ordered())
    assert "begin(), last()" in repr(layer)
    cases.assert_same_values_and_gradients(layer, lambda x: 2 * x + 10, (rand(2, 3),))


def test_decorators_can_be_combined_with_registration(lang64):
    @lang64.data_oriented
    class Half:
        def __init__(self):
            self._x, self._y = (lang64.field(lang64.f64, shape=3, needs_grad=True) for _ in range(2))

        @ts.input
        def x(self):
            return self._x

        @ts.kernel
        @lang64.kernel
        def run(self, scale: lang64.f64):
            for i in self._x:
                self._y[i] = scale * self._x[i]

    thing = Half()
    layer = ts.Tin(thing)
    assert not layer.finished
    layer.register_output_field(thing._y).finish()
    layer.set_kernel_args(4.0)
    cases.assert_same_values_and_gradients(layer, lambda x: 4 * x, (rand(3),))


def test_misplaced_decorators_are_refused(lang64):
    with pytest.raises(ts.ArgumentError, match=r"ts.input must decorate a method that returns a field(?s:.*)got +int"):
        ts.input(3)
    with pytest.raises(ts.ArgumentError, match=r"ts.kernel must decorate a kernel(?s:.*)above @ti.kernel"):
        ts.kernel(lambda: None)

    @lang64.kernel
    def run():
        pass

    with pytest.raises(ts.ArgumentError, match="ts.output must decorate a method"):
        ts.output(run)
