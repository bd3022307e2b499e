"""Losses against their twin: values and gradients, with and without densities; and what is refused."""

from __future__ import annotations

import pickle

import pytest
import torch

from tinsmith import ConfigError, ShapeError, reference
from tinsmith.nn.config import resolve_section
from tinsmith.nn.losses import Loss, make_loss

NAMES = [
    "L1",
    "L2",
    "RelativeL1",
    "RelativeL2",
    "RelativeL2Luminance",
    "MAPE",
    "SMAPE",
    "CrossEntropy",
    "Variance",
]
OF_DENSITIES = ("CrossEntropy", "Variance")  # predictions above 0


def _drawn(otype: str, channels: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(7)
    prediction, target, pdf = torch.randn(3, 5, channels, generator=rng, dtype=torch.float64)
    if otype in OF_DENSITIES:
        prediction, target = prediction.abs() + 0.1, target.abs()
    return prediction, target, pdf.abs() + 0.2


@pytest.mark.parametrize("channels", [3, 4, 6, 7])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("otype", NAMES)
def test_values_and_gradients_agree_with_the_twin(otype, weighted, channels):
    prediction, target, pdf = _drawn(otype, channels)
    densities = pdf if weighted else None
    expected, slope = reference.loss(otype, prediction, target, densities)
    leaf = prediction.clone().requires_grad_()
    value = Loss(otype)(leaf, target, densities)
    value.backward()
    torch.testing.assert_close(value.detach(), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(leaf.grad, slope, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("otype", ["L1", "L2", "MAPE", "CrossEntropy", "Variance"])
def test_losses_without_a_constant_denominator_have_the_true_gradient(otype):
    prediction, target, pdf = _drawn(otype, 3)
    assert torch.autograd.gradcheck(lambda p: Loss(otype)(p, target, pdf), prediction.requires_grad_())


@pytest.mark.parametrize("otype", ["RelativeL1", "RelativeL2", "RelativeL2Luminance", "SMAPE"])
def test_relative_losses_treat_their_denominator_as_constant(otype):
    """The true slope is another: a test that the twin's convention matters at all."""
    prediction, target, pdf = _drawn(otype, 3)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(lambda p: Loss(otype)(p, target, pdf), prediction.requires_grad_())


def test_one_density_per_row_is_broadcast():
    prediction, target, pdf = _drawn("L2", 3)
    whole = Loss("L2")(prediction, target, pdf[:, :1].expand(-1, 3))
    assert Loss("L2")(prediction, target, pdf[:, :1]) == whole


def test_losses_of_stacked_networks_add_up():
    prediction, target, _ = _drawn("RelativeL2", 3)
    loss = Loss("RelativeL2")
    both = loss(torch.stack([prediction, prediction]), torch.stack([target, target]), n_elements=prediction.numel())
    torch.testing.assert_close(both, 2 * loss(prediction, target))


def test_dtype_and_pickle():
    prediction, target, _ = _drawn("L1", 3)
    loss = pickle.loads(pickle.dumps(Loss("mape")))
    assert loss(prediction.float(), target.float()).dtype == torch.float32
    assert repr(loss) == "Loss(MAPE)"


@pytest.mark.parametrize("otype", NAMES)
def test_from_a_configuration_in_any_case(otype):
    assert make_loss({"otype": otype.lower()}).otype == otype
    assert make_loss(resolve_section("loss", {"otype": otype.upper()})).otype == otype


def test_the_default_is_tiny_cuda_nns():
    assert make_loss().otype == make_loss({}).otype == Loss().otype == "RelativeL2"


def _zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Loss("mse"), ConfigError, ["is not a known loss", '"mse"', "RelativeL2Luminance"]),
        (lambda: make_loss({"otype": "L2", "eps": 1}), ConfigError, ["`loss.eps` is not a key of L2"]),
        (
            lambda: Loss("L2")(_zeros(4, 3), _zeros(4)),
            ShapeError,
            ["The target does not fit the prediction in loss L2", "(4, 3)", "(4,)"],
        ),
        (
            lambda: Loss("L2")(_zeros(4, 3), _zeros(4, 3), _zeros(4)),
            ShapeError,
            ["The densities do not fit the target in loss L2", "data_pdf    (4,)", "(..., 1)"],
        ),
        (
            lambda: Loss("RelativeL2Luminance")(_zeros(4, 2), _zeros(4, 2)),
            ShapeError,
            ["needs red, green and blue", "(4, 2)", "RelativeL2"],
        ),
    ],
)
def test_invalid_inputs_are_refused(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)
