"""Python values that a kernel bakes in: wherever they are kept, a change of one is seen at the next call."""

import collections

import numpy as np
import pytest
import torch

import tinsmith as ts

X = torch.arange(1.0, 6.0, dtype=torch.float64)


def factor(op, *extra):
    """Return the number that an op multiplies by."""
    return (op(X, *extra) / X)[0].item()


class box:
    """An object with these attributes."""

    def __init__(self, **held):
        self.__dict__.update(held)


def in_an_object_of_a_list(lang):
    kept = [box(gain=2.0)]

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * kept[0].gain

    return kernel, lambda: setattr(kept[0], "gain", 3.0)


def deep_in_a_dict(lang):
    kept = {"a": box(b=box(gain=2.0))}

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * kept["a"].b.gain

    return kernel, lambda: setattr(kept["a"].b, "gain", 3.0)


def in_an_ordered_dict(lang):
    kept = collections.OrderedDict(gain=2.0)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * kept["gain"]

    return kernel, lambda: kept.update(gain=3.0)


def in_a_set(lang):
    kept = {1, 2}

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * lang.static(3.0 if 5 in kept else 2.0)

    return kernel, lambda: kept.add(5)


def in_a_numpy_array(lang):
    kept = np.array([2.0, 1.0])

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * kept[0]

    return kernel, lambda: kept.__setitem__(0, 3.0)


def in_a_vector(lang):
    kept = lang.Vector([2.0, 1.0])

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * kept[0]

    return kernel, lambda: kept.__setitem__(0, 3.0)


def behind_a_python_function(lang):
    kept = box(gain=2.0)

    def gain():
        return kept.gain

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * lang.static(gain())

    return kernel, lambda: setattr(kept, "gain", 3.0)


def behind_a_method_of_a_python_object(lang):
    class Kept:
        inner = 2.0

        def gain(self):
            return self.inner

    kept = Kept()

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * lang.static(kept.gain())

    return kernel, lambda: setattr(kept, "inner", 3.0)


def in_a_function_of_a_list(lang):
    kept = [2.0]

    @lang.func
    def scaled(v):
        return v * kept[0]

    functions = [scaled]

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.static(functions[0])(x[i])

    return kernel, lambda: kept.__setitem__(0, 3.0)


def in_an_object_handed_to_a_function(lang):
    kept = box(gain=2.0)

    @lang.func
    def scaled(held: lang.template(), v):
        return held.gain * v

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = scaled(kept, x[i])

    return kernel, lambda: setattr(kept, "gain", 3.0)


def in_self_handed_to_a_function(lang):
    @lang.func
    def scaled(held: lang.template(), v):
        return held.gain * v

    @lang.data_oriented
    class Kept:
        def __init__(self):
            self.gain = 2.0

        @lang.kernel
        def kernel(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = scaled(self, x[i])

    kept = Kept()
    return kept.kernel, lambda: setattr(kept, "gain", 3.0)


def in_another_field(lang):
    fields = [lang.field(lang.f64, shape=1) for _ in range(2)]
    fields[0][0], fields[1][0] = 2.0, 3.0
    table = fields[0]

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * table[0]

    def change():
        nonlocal table
        table = fields[1]

    return kernel, change


def in_a_tensor(lang):
    kept = torch.tensor(2.0)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * lang.static(float(kept))

    return kernel, lambda: kept.fill_(3.0)


def in_a_method_of_a_tensor(lang):
    kept = torch.tensor([1.5, 0.5])

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * kept.sum().item()

    return kernel, lambda: kept.fill_(1.5)


KEPT = [
    in_a_tensor,
    in_a_method_of_a_tensor,
    in_an_object_of_a_list,
    deep_in_a_dict,
    in_an_ordered_dict,
    in_a_set,
    in_a_numpy_array,
    in_a_vector,
    behind_a_python_function,
    behind_a_method_of_a_python_object,
    in_a_function_of_a_list,
    in_an_object_handed_to_a_function,
    in_self_handed_to_a_function,
    in_another_field,
]


@pytest.mark.parametrize("make", KEPT, ids=lambda make: make.__name__)
def test_a_change_is_seen(lang64, make):
    kernel, change = make(lang64)
    op = ts.op("x[n] -> y[n]")(kernel)
    assert factor(op) == 2.0
    change()
    assert factor(op) == 3.0


def test_template_arguments_are_distinguished(lang64):
    """Numbers, fields, and objects with fields or functions of their own, each back and forth."""
    tables = [lang64.field(lang64.f64, shape=1) for _ in range(2)]
    tables[0][0], tables[1][0] = 2.0, 3.0

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def by_number(x: lang64.types.ndarray(), gain: lang64.template(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * gain

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def by_field(x: lang64.types.ndarray(), table: lang64.template(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * table[0]

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def by_object(x: lang64.types.ndarray(), held: lang64.template(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * held.table[0]

    for place in (0, 1, 0):
        assert factor(by_number, [2, 3.0][place]) == 2.0 + place
        assert factor(by_field, tables[place]) == 2.0 + place
        assert factor(by_object, box(table=tables[place])) == 2.0 + place


def test_objects_whose_functions_differ(lang64):
    gain = 3.0

    @lang64.func
    def twice(v):
        return v * 2.0

    @lang64.func
    def scaled(v):
        return v * gain

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def op(x: lang64.types.ndarray(), held: lang64.template(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = held.function(x[i])

    first, second = box(function=twice), box(function=scaled)
    assert [factor(op, held) for held in (first, second, first)] == [2.0, 3.0, 2.0]
    gain = 4.0
    assert [factor(op, held) for held in (first, second, first)] == [2.0, 4.0, 2.0]


def test_a_method_of_an_engine_object_compiles_once(lang64):
    """A bound method is another object each time that it is looked up."""

    @lang64.data_oriented
    class Scaler:
        def __init__(self):
            self.gain = 2.0

        @lang64.func
        def scaled(self, v):
            return self.gain * v

        @lang64.kernel
        def kernel(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = self.scaled(x[i])

    scaler = Scaler()
    op = ts.op("x[n] -> y[n]")(scaler.kernel)
    for _ in range(3):
        op(X)
    assert "compiled variants: 1" in op.explain("all")
    scaler.gain = 5.0
    assert factor(op) == 5.0
