"""An engine's ndarray that is no argument of its kernel is refused by ops, wherever it is held: it ends the process."""

import numpy as np
import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.each_engine
X = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


def make_ndarray(lang):
    array = lang.ndarray(lang.f64, 3)
    array.from_numpy(np.arange(3.0))
    return array


def make_simulation(lang):  # noqa: C901
    @lang.data_oriented
    class Simulation:
        def __init__(self):
            self.w, self.many, self.unused, self.scale = (
                make_ndarray(lang),
                [make_ndarray(lang)],
                make_ndarray(lang),
                2.0,
            )

        @lang.func
        def at(self, i):
            return self.w[i]

        @lang.kernel
        def unheld(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.scale * x[i]

        @lang.kernel
        def read(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.w[i] * x[i]

        @lang.kernel
        def called(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.at(i) * x[i]

        @lang.kernel
        def listed(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.many[0][i] * x[i]

        @lang.kernel
        def sized(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in range(self.w.shape[0]):
                y[i] = x[i]

    return Simulation()


def test_an_object_that_holds_one(lang64):
    make, held = ts.op("x[n] -> y[n]"), make_simulation(lang64)
    assert make(held.unheld)(X).tolist() == [2.0, 4.0, 6.0]
    for name, text in {"read": "self.w", "called": "self.w", "listed": r"self.many\[0\]", "sized": "self.w"}.items():
        words = (
            rf"kernel `{name}` of op `{name}` uses the ndarray `{text}`, which is not "
            rf"an argument\n  at  .*held_ndarrays.py"
        )
        for x in (X, X.clone().requires_grad_()):
            with pytest.raises(ts.KernelError, match=words) as caught:
                make(getattr(held, name))(x)
        assert ".types.ndarray()`, list it in the spec, and give a tensor." in str(caught.value)


def test_a_template_or_a_global_that_is_one(lang64):
    w = make_ndarray(lang64)

    class Holder:
        pass

    holder = Holder()
    holder.w = w

    @lang64.kernel
    def of_object(p: lang64.template(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = p.w[i] * x[i]

    @lang64.kernel
    def itself(w: lang64.template(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = w[i] * x[i]

    @lang64.kernel
    def captured(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = w[i] * x[i]

    make = ts.op("x[n] -> y[n]")
    for kernel, arguments, name in ((of_object, (holder, X), "p.w"), (itself, (w, X), "w"), (captured, (X,), "w")):
        with pytest.raises(ts.KernelError, match=f"uses the ndarray `{name}`, which is not an argument"):
            make(kernel)(*arguments)


def test_a_layer_whose_object_holds_one(lang64):
    x, y = (lang64.field(lang64.f64, 3, needs_grad=True) for _ in range(2))

    @lang64.data_oriented
    class Net:
        def __init__(self):
            self.w = make_ndarray(lang64)

        @lang64.kernel
        def forward(self):
            for i in x:
                y[i] = self.w[i] * x[i]

    net = Net()
    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(net.forward).finish()
    torch.testing.assert_close(layer(X), X * torch.arange(3.0, dtype=torch.float64))
