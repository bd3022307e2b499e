"""SelectiveAdam: torch's Adam on visible rows, and nothing on the others."""

from __future__ import annotations

import copy

import pytest
import torch

import tinsmith as ts
from tinsmith.render.gaussians import SelectiveAdam


def problem(dtype=torch.float64):
    draw = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(6, *rest, generator=draw, dtype=dtype)) for rest in ((3,), (), (4, 3))]


def give_gradients(params, step):
    for parameter in params:
        parameter.grad = torch.sin(torch.arange(parameter.numel(), dtype=parameter.dtype).view_as(parameter) + step)


@pytest.mark.parametrize(
    "visibility", [None, torch.ones(6, dtype=torch.bool), torch.ones(6)], ids=["none", "bool", "1"]
)
def test_when_all_is_visible_it_is_adam(visibility):
    ours, theirs = problem(), problem()
    numbers = {"lr": 0.03, "betas": (0.8, 0.97), "eps": 1e-3}
    mine, adam = SelectiveAdam(ours, **numbers), torch.optim.Adam(theirs, **numbers)
    for step in range(20):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        mine.step(visibility)
        adam.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_each_row_is_adam_over_the_steps_that_it_was_visible_in():
    whole, draw = problem(), torch.Generator().manual_seed(3)
    rows = [[torch.nn.Parameter(p[i : i + 1].detach().clone()) for p in whole] for i in range(6)]
    selective = SelectiveAdam(whole, lr=0.1)
    adams = [torch.optim.Adam(row, lr=0.1) for row in rows]
    for step in range(15):
        visible = torch.rand(6, generator=draw) < 0.5
        give_gradients(whole, step)
        selective.step(visible)
        for i in visible.nonzero()[:, 0].tolist():
            for part, parameter in zip(rows[i], whole, strict=True):
                part.grad = parameter.grad[i : i + 1]
            adams[i].step()
    for place, parameter in enumerate(whole):
        torch.testing.assert_close(parameter, torch.cat([row[place] for row in rows]), rtol=1e-12, atol=1e-14)


def test_hidden_rows_stay_to_the_bit():
    params = problem(torch.float32)
    optimizer = SelectiveAdam(params)
    give_gradients(params, 0)
    optimizer.step()
    before = [parameter.detach().clone() for parameter in params]
    held = copy.deepcopy([optimizer.state[parameter] for parameter in params])
    give_gradients(params, 1)
    optimizer.step(torch.tensor([0, 0, 1, 0, 0, 0]))
    others = [0, 1, 3, 4, 5]
    for parameter, old, state in zip(params, before, held, strict=True):
        assert torch.equal(parameter[others], old[others]) and (parameter[2] != old[2]).all()
        for key, value in state.items():
            assert torch.equal(optimizer.state[parameter][key][others], value[others])


def test_a_saved_state_can_be_resumed():
    one, other = problem(torch.float32), problem(torch.float32)
    first, second = SelectiveAdam(one, lr=0.1), SelectiveAdam(other, lr=0.1)
    for step in range(3):
        give_gradients(one, step)
        first.step(torch.tensor([1, 1, 0, 1, 0, 1]))
    with torch.no_grad():
        for mine, theirs in zip(other, one, strict=True):
            mine.copy_(theirs)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.state[other[0]]["steps"].dtype == torch.int64
    for params, optimizer in ((one, first), (other, second)):
        give_gradients(params, 9)
        optimizer.step()
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def test_a_closure_is_called_and_parameters_without_gradient_are_passed_over():
    params = problem()
    optimizer = SelectiveAdam([{"params": params[:1], "lr": 1.0}, {"params": params[1:]}])
    before = params[1].detach().clone()

    def closure():
        loss = params[0].square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure=closure).requires_grad
    assert torch.equal(params[1], before) and not optimizer.state[params[1]]


def test_refusals():
    params = problem()
    optimizer = SelectiveAdam(params)
    give_gradients(params, 0)
    before = params[0].detach().clone()
    with pytest.raises(
        ts.ShapeError, match="`visibility` does not match a parameter of SelectiveAdam(.|\n)*has 6 rows"
    ):
        optimizer.step(torch.ones(5))
    assert torch.equal(params[0], before)
    for numbers in ({"lr": -1.0}, {"eps": -1.0}, {"betas": (0.9, 1.0)}):
        with pytest.raises(ts.ArgumentError, match="cannot be made with these numbers"):
            SelectiveAdam(params, **numbers)
