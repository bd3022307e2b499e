"""`@op.example`: example inputs are kept by name, made when asked for, and stay out of an op's way."""

import copy
import importlib
import pickle

import pytest
import torch

import tinsmith as ts
from tinsmith.operation import example_inputs


@pytest.fixture
def square(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    return square


def test_examples_are_kept_by_name_and_made_when_asked_for(square):
    made = []

    @square.example
    def small():
        made.append("small")
        return torch.rand(3)

    @square.example
    def long():
        return {"x": torch.rand(50)}

    assert list(square.examples) == ["small", "long"]
    assert square.examples["small"] is small
    assert made == []
    arguments, named = example_inputs(square.examples["long"]())
    assert not arguments and square(*arguments, **named).shape == (50,)


X, K = torch.rand(3), torch.rand(2)

FORMS = {
    "one input": (X, ((X,), {})),
    "a list is one input": ([1.0, 2.0], (([1.0, 2.0],), {})),
    "by position": ((X, K), ((X, K), {})),
    "by name": ({"x": X, "k": K}, ((), {"x": X, "k": K})),
    "both": (((X,), {"m": 4}), ((X,), {"m": 4})),
    "none": ((), ((), {})),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_example_inputs_are_accepted(form):
    given, (arguments, named) = FORMS[form]
    inputs, inputs_named = example_inputs(given)
    assert [id(one) for one in inputs] == [id(one) for one in arguments] if form != "a list is one input" else True
    assert len(inputs) == len(arguments) and list(inputs_named) == list(named)
    assert all(inputs_named[name] is named[name] for name in named)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_has_the_examples_and_keeps_its_own(square, copied):
    @square.example
    def small():
        return torch.rand(3)

    twin = copied(square)
    assert twin.examples == {"small": small}

    @twin.example
    def another():
        return torch.rand(4)

    assert list(square.examples) == ["small"]
    x = torch.rand(5)
    assert torch.equal(twin(x), square(x))


def test_a_backward_of_one_s_own_leaves_them(square, lang):
    @square.example
    def small():
        return torch.rand(3)

    @square.backward
    @lang.kernel
    def square_backward(x: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in x:
            grad_x[i] = 2.0 * x[i] * grad_y[i]

    assert list(square.examples) == ["small"]


def test_an_op_pickles_whatever_its_examples_are(lang):
    original = getattr(importlib.import_module("cases.at_module_level"), f"{lang.__name__}_square")
    op = copy.copy(original)
    op.example(lambda: torch.rand(3))  # no function that pickles
    again = pickle.loads(pickle.dumps(op))
    x = torch.rand(4)
    assert torch.equal(again(x), x * x)
    assert again.examples == {}
    assert list(op.examples) == ["<lambda>"] and original.examples == {}


def test_a_bound_op_has_those_of_its_class(lang):
    @lang.data_oriented
    class Scaler:
        factor = 3.0

        @ts.op("x[n] -> y[n]")
        @lang.kernel
        def scale(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.factor * x[i]

        @scale.example
        def small():
            return torch.rand(3)

    bound = Scaler().scale
    assert list(bound.examples) == ["small"]
    assert bound(bound.examples["small"]()).shape == (3,)


def test_two_of_one_name_in_one_file_are_refused(square):
    @square.example
    def small():
        return torch.rand(3)

    first = small.__code__.co_firstlineno
    with pytest.raises(ts.ArgumentError) as refused:

        @square.example
        def small():
            return torch.rand(4)

    words = str(refused.value)
    assert "op `square` has an example `small` already" in words
    assert f"{__file__}:{first}" in words and "Give the function another name." in words
    assert square.example(square.examples["small"]) is square.examples["small"]  # the same again is no second one


def test_inputs_instead_of_a_function_are_refused(square):
    with pytest.raises(
        ts.ArgumentError, match="an example of op `square` must be a function that returns inputs"
    ) as refused:
        square.example(torch.rand(3))
    assert "Tensor" in str(refused.value)
