"""Copies of a rollout: they work on the same fields, as copies of layers do. A pickle is refused."""

import copy
import io
import pickle

import pytest
import torch

import tinsmith as ts

D = torch.float64


class Simulation:
    """Computes `factor * x ** 2` by a rollout of itself, or of its method. It is copied together with the rollout."""

    def __init__(self, lang, is_method):
        x, y = lang.field(lang.f64, 3), lang.field(lang.f64, 3)

        @lang.kernel
        def square(factor: lang.f64):
            for i in x:
                y[i] = factor * x[i] ** 2

        # A function, since a kernel as an attribute cannot be copied.
        self.launch = lambda factor: square(factor)  # noqa: PLW0108
        self.factor = 2.0
        self.run = ts.rollout(self.__call__ if is_method else self, {"x": x}, {"y": y})

    def __call__(self):
        self.launch(self.factor)


class Model(torch.nn.Module):
    """Computes the square of a parameter by a rollout of a function."""

    def __init__(self, lang):
        super().__init__()
        x, y = lang.field(lang.f64, 3), lang.field(lang.f64, 3)

        @lang.kernel
        def square():
            for i in x:
                y[i] = x[i] ** 2

        self.parameter = torch.nn.Parameter(torch.rand(3, dtype=D))
        self.run = ts.rollout(lambda: square(), {"x": x}, {"y": y})  # noqa: PLW0108  # a kernel has no name

    def forward(self):
        return self.run(self.parameter)


def check(model, result):
    parameter = model.parameter.detach()
    torch.testing.assert_close(result, parameter**2)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), model.parameter)[0], 2.0 * parameter)


@pytest.mark.parametrize("is_called_before", [False, True])
def test_a_copy_has_its_own_parameters_and_the_same_fields(lang64, is_called_before):
    model = Model(lang64)
    if is_called_before:
        check(model, model())
    copied = copy.deepcopy(model)
    assert copied.run is not model.run
    assert repr(copied.run) == repr(model.run)
    with torch.no_grad():
        copied.parameter += 1.0
    result = copied()
    check(model, model())
    # Its backward pass comes after the other's call.
    check(copied, result)


def test_a_shallow_copy_computes_the_same(lang64):
    model = Model(lang64)
    copied = copy.copy(model.run)
    assert copied is not model.run
    check(model, copied(model.parameter))


def test_averaged_models_copy_a_rollout(lang64):
    model = torch.optim.swa_utils.AveragedModel(Model(lang64))
    check(model.module, model())


@pytest.mark.parametrize("is_method", [False, True])
def test_a_function_that_is_copied_too_is_that_of_the_copy(lang64, is_method):
    simulation = Simulation(lang64, is_method)
    values = torch.rand(3, dtype=D)
    copied, run = copy.deepcopy(simulation), copy.deepcopy(simulation.run)
    copied.factor = 5.0
    for _ in range(2):
        torch.testing.assert_close(copied.run(values), 5.0 * values**2)
        torch.testing.assert_close(simulation.run(values), 2.0 * values**2)
    torch.testing.assert_close(run(values), 2.0 * values**2)


@pytest.mark.parametrize("write", [pickle.dumps, lambda model: torch.save(model, io.BytesIO())])
def test_a_pickle_is_refused(lang64, write):
    words = r"rollout <lambda> cannot be pickled.*\nSave the tensors .*ts\.rollout"
    with pytest.raises(ts.CheckpointError, match=words):
        write(Model(lang64))
