"""SGD, Novograd and Shampoo: against formulas written out, or the library's own."""

from __future__ import annotations

import pytest
import torch

from support.optimizers import draw_gradients, make_parameters, train
from tinsmith import ArgumentError, ConfigError
from tinsmith.nn.optimizers import make_optimizer


def test_sgd():
    (w,) = make_parameters((3, 2))
    expected = w.detach().clone()
    drawn = draw_gradients([w], 5)
    train(make_optimizer([w], {"otype": "SGD", "learning_rate": 0.1, "l2_reg": 0.3}), [w], drawn)
    for (grad,) in drawn:
        expected = expected - 0.1 * (grad + 0.3 * expected)
    torch.testing.assert_close(w.detach(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("relative", [0.0, 0.2])
@pytest.mark.parametrize("absolute", [0.0, 0.3])
def test_novograd(relative, absolute):
    given = make_parameters((3, 2), (4,))
    expected = [p.detach().clone() for p in given]
    drawn = draw_gradients(given, 5)
    config = {"otype": "Novograd", "learning_rate": 0.1, "beta1": 0.8, "beta2": 0.7, "epsilon": 0.01}
    train(make_optimizer(given, {**config, "relative_decay": relative, "absolute_decay": absolute}), given, drawn)
    for i in range(len(given)):
        m, v = 0.0, 0.0
        for step, row in enumerate(drawn):
            grad, w = row[i], expected[i]
            beta1, beta2 = (0.8, 0.7) if step else (0.0, 0.0)
            v = beta2 * v + (1 - beta2) * (grad**2).sum()
            m = beta1 * m + (1 - beta1) * grad / (v.sqrt() + 0.01)
            expected[i] = (1 - relative * 0.1) * w - absolute * 0.1 * w.sign() - 0.1 * m
        torch.testing.assert_close(given[i].detach(), expected[i], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("normalized", [True, False])
def test_shampoo_is_the_librarys(normalized):
    from pytorch_optimizer import ScalableShampoo

    given = make_parameters((6, 4), (5,))
    twins = [torch.nn.Parameter(p.detach().clone()) for p in given]
    library = ScalableShampoo(
        twins,
        lr=0.1,
        betas=(0.8, 0.7),
        moving_average_for_momentum=True,
        nesterov=False,
        start_preconditioning_step=2,
        preconditioning_compute_steps=10,
        graft_type=3 if normalized else 0,
        diagonal_eps=1e-3,
        matrix_eps=0.02,
    )
    config = {
        "otype": "Shampoo",
        "learning_rate": 0.1,
        "beta_shampoo": 0.8,
        "beta3": 0.7,
        "epsilon": 1e-3,
        "identity": 0.02,
        "l2_reg": 0.1,
        "frobenius_normalization": normalized,
    }
    optimizer = make_optimizer(given, config)
    for row in draw_gradients(given, 25):
        train(library, twins, [[grad + 0.1 * twin.detach() for grad, twin in zip(row, twins, strict=True)]])
        train(optimizer, given, [row])
    for p, twin in zip(given, twins, strict=True):
        assert torch.equal(p, twin)


@pytest.mark.parametrize("otype", ["Shampoo", "Novograd"])
def test_the_library_gets_copies_of_the_gradients(otype):
    given = make_parameters((6, 4))
    ((grad,),) = drawn = draw_gradients(given, 1)
    train(make_optimizer(given, {"otype": otype}), given, drawn)
    assert torch.equal(given[0].grad, grad)


def test_a_parameter_without_gradient_is_left_alone():
    for otype in ("Adam", "SGD", "Novograd", "Shampoo", "Lookahead", "EMA", "Batched"):
        given = make_parameters((6, 4), (3, 3))
        before = given[1].detach().clone()
        optimizer = make_optimizer(given, {"otype": otype})
        given[0].grad = torch.ones_like(given[0])
        optimizer.step()
        assert torch.equal(given[1], before), otype


def test_a_closure_is_called_with_gradients_on():
    (w,) = make_parameters((3, 3))
    for otype in ("Adam", "Novograd", "EMA"):
        optimizer = make_optimizer([w], {"otype": otype})

        def closure() -> torch.Tensor:
            w.grad = None
            loss = (w**2).sum()
            loss.backward()
            return loss

        assert optimizer.step(closure) > 0


@pytest.mark.parametrize(
    ("key", "value"), [("beta1", 0.5), ("beta2", 0.5), ("relative_decay", 0.1), ("absolute_decay", 0.1)]
)
def test_unsupported_options_of_shampoo_are_refused(key, value):
    with pytest.raises(ConfigError) as caught:
        make_optimizer(make_parameters((2, 2)), {"otype": "EMA", "nested": {"otype": "Shampoo", key: value}})
    assert f"`optimizer.nested.{key}` of Shampoo has an invalid value" in str(caught.value)
    assert "the default: " in str(caught.value)


def test_no_parameters_are_refused():
    with pytest.raises(ArgumentError, match="nothing to optimize"):
        make_optimizer([])
