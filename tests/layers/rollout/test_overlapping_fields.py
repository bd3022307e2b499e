"""Inputs and outputs of a rollout that are the same field, or parts of it: each element is filled by one input."""

import pytest
import torch

import tinsmith as ts

D = torch.float64


def make_rollout(lang, choose_inputs, choose_outputs=lambda _, y: {"y": y}):
    """Return a rollout of `y = x ** 2` on fields of shape (4, 2), with inputs and outputs chosen from `x` and `y`."""
    x, y = lang.field(lang.f64, (4, 2)), lang.field(lang.f64, (4, 2))

    @lang.kernel
    def square():
        for i, j in x:
            y[i, j] = x[i, j] ** 2

    def forward():
        square()

    return ts.rollout(forward, choose_inputs(x, y), choose_outputs(x, y))


@pytest.mark.parametrize(
    "choose",
    [
        lambda x, _: {"a": x, "b": x},
        lambda x, _: {"a": (x, 0), "b": (x, 0)},
        lambda x, _: {"a": (x, 3), "other": (x, 1), "b": (x, -1)},
        lambda x, _: {"a": (x, 1), "b": x},
        lambda x, _: {"a": x, "b": (x, 1)},
        lambda x, y: {"other": (y, 1), "first": (x, 0), "a": (x, 2), "b": x},
    ],
    ids=["wholes", "parts", "index from the end", "part and whole", "whole and part", "beside others"],
)
def test_inputs_that_overlap_are_refused(lang64, choose):
    words = (
        "` and `b` of rollout forward are the same field, registered twice as an input\n"
        r"Leave one of them out. Several parts `\(field, t\)` of one field need different t\.$"
    )
    with pytest.raises(ts.RegistrationError, match=words):
        make_rollout(lang64, choose)


def test_parts_that_do_not_overlap_are_inputs(lang64):
    run = make_rollout(lang64, lambda x, _: {f"row{t}": (x, t) for t in range(4)})
    rows = torch.rand(4, 2, dtype=D, requires_grad=True)
    result = run(*rows)
    torch.testing.assert_close(result, rows**2)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), rows)[0], 2 * rows)


def test_the_same_part_of_two_fields_are_inputs(lang64):
    run = make_rollout(lang64, lambda x, y: {"a": (x, 0), "b": (y, 0)}, lambda x, _: {"x": x})
    a, b = torch.rand(2, 2, dtype=D)
    with pytest.warns(UserWarning, match="no kernel of rollout forward uses the values of its input `b`"):
        torch.testing.assert_close(run(a, b)[0], a)


def test_outputs_may_overlap_and_their_gradients_add_up(lang64):
    run = make_rollout(
        lang64, lambda x, _: {"x": x}, lambda _, y: {"all": y, "again": y, "second": (y, 1), "same": (y, -3)}
    )
    x = torch.rand(4, 2, dtype=D, requires_grad=True)
    result = run(x)
    loss = result.all.sum() + 2 * result.again.sum() + 3 * result.second.sum() + 5 * result.same.sum()
    weight = torch.full((4, 2), 3.0, dtype=D)
    weight[1] += 8.0
    torch.testing.assert_close(torch.autograd.grad(loss, x)[0], weight * 2 * x)
