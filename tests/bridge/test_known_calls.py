"""Eager calls of a known kind, which are checked no more: whatever makes one another call is seen all the same."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

import tinsmith as ts


def make_square(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    return square


def make_known(lang):
    """Make an op that has been called with and without a gradient."""
    square, x = make_square(lang), torch.rand(3, requires_grad=True)
    for _ in range(2):
        square(x.detach())
        torch.autograd.grad(square(x).sum(), x)
    return square


def test_a_repeated_call_is_not_checked_again(lang, monkeypatch):
    def refuse(*_arguments, **_named):
        raise AssertionError("a call of a known kind was checked again")

    square = make_known(lang)
    monkeypatch.setattr(type(square), "_call_checked", refuse)
    monkeypatch.setattr(type(square._core.programs[next(iter(square._core.programs))]), "backward", refuse)
    x = torch.rand(4, requires_grad=True)
    torch.testing.assert_close(square(x.detach()), x.detach() ** 2)
    (slope,) = torch.autograd.grad(square(x).sum(), x)
    torch.testing.assert_close(slope, 2 * x.detach())


def test_other_layouts_dtypes_and_ranks_are_not_the_same_call(lang):
    square = make_known(lang)
    x = torch.rand(6)
    for given in (x, x[::2], x.double(), torch._neg_view(x), x.flip(0), x[:0]):
        torch.testing.assert_close(square(given), given * given)
        leaf = given.clone().requires_grad_()
        (slope,) = torch.autograd.grad(square(leaf * 1.0).sum(), leaf)
        torch.testing.assert_close(slope, 2 * given)
    with pytest.raises(ts.ShapeError):
        square(torch.rand(2, 3))


@pytest.mark.parametrize("order", ["strided", "expanded", "negative"])
def test_the_memory_layout_of_cotangents_is_respected(lang, order):
    square = make_known(lang)
    x = torch.rand(3, requires_grad=True)
    cotangents = {
        "strided": torch.rand(6)[::2],
        "expanded": torch.rand(()).expand(3),
        "negative": torch._neg_view(torch.rand(3)),
    }
    before = cotangents[order].clone()
    (slope,) = torch.autograd.grad(square(x), x, cotangents[order])
    torch.testing.assert_close(slope, 2 * x.detach() * before)
    torch.testing.assert_close(cotangents[order], before)


def test_tensors_that_are_not_strided_are_refused(lang):
    square = make_known(lang)
    for given in (1.0, [1.0], torch.ones(3).to_sparse()):
        with pytest.raises(ts.ArgumentError):
            square(given)
    assert square(torch.rand(3, device="meta")).is_meta


def test_transforms_and_modes_see_repeated_calls(lang):
    class Counted(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), named=None):
            seen.append(function)
            return function(*arguments, **(named or {}))

    class Named(torch.Tensor):
        pass

    square, x, seen = make_known(lang), torch.rand(2, 3), []
    torch.testing.assert_close(torch.func.vmap(square)(x), x * x)
    torch.testing.assert_close(torch.func.grad(lambda x: square(x).sum())(x[0]), 2 * x[0])
    with Counted():
        square(x[0])
    assert square.operator in seen
    assert type(square(x[0].as_subclass(Named))) is Named
    with torch.autocast("cpu"):
        assert square(x[0]).dtype == torch.float32


def test_gradients_of_repeated_calls_are_differentiable(lang):
    square = make_known(lang)
    x = torch.rand(3, requires_grad=True)
    (slope,) = torch.autograd.grad(square(x).sum(), x, create_graph=True)
    (again,) = torch.autograd.grad(slope.sum(), x)
    torch.testing.assert_close(again, torch.full((3,), 2.0))
    rows = torch.autograd.grad(square(x), x, torch.eye(3), is_grads_batched=True)[0]
    torch.testing.assert_close(rows, torch.diag(2 * x.detach()))


def test_a_restarted_engine_is_not_the_same_call(lang):
    square = make_known(lang)
    x = torch.rand(3, requires_grad=True)
    y = square(x)
    ts.init("cpu", engine=square.engine)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(slope, 2 * x.detach())
    (slope,) = torch.autograd.grad(square(x).sum(), x)
    torch.testing.assert_close(slope, 2 * x.detach())


def test_the_set_of_requested_gradients_is_part_of_the_key(lang):
    @ts.op("x[n], z[n] -> y[n]")
    @lang.kernel
    def product(x: lang.types.ndarray(), z: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * z[i]

    x, z = (torch.rand(3, requires_grad=True) for _ in range(2))
    for _ in range(2):
        slopes = torch.autograd.grad(product(x, z).sum(), (x, z))
        torch.testing.assert_close(slopes, (z.detach(), x.detach()))
        (alone,) = torch.autograd.grad(product(x, z).sum(), z)
        torch.testing.assert_close(alone, x.detach())
        (alone,) = torch.autograd.grad(product(x.detach(), z).sum(), z)
        torch.testing.assert_close(alone, x.detach())
    with pytest.raises(ts.ShapeError):
        product(x, z[:2])


def test_inout_arguments_are_updated_by_repeated_calls(lang):
    @ts.op("inout state[n] ->")
    @lang.kernel
    def double(state: lang.types.ndarray()):
        for i in state:
            state[i] *= 2.0

    state = torch.ones(3)
    for _ in range(3):
        double(state)
    torch.testing.assert_close(state, torch.full((3,), 8.0))
    leaf = torch.ones(3, requires_grad=True)
    for _ in range(2):
        moved = leaf * 1.0
        double(moved)
        torch.testing.assert_close(torch.autograd.grad(moved.sum(), leaf)[0], torch.full((3,), 2.0))
