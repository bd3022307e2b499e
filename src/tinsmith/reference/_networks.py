"""References of tiny-cuda-nn's activations and of its small networks without biases, as explicit formulas."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def activation(name: str, x: Tensor) -> Tensor:
    """Apply an activation function of tiny-cuda-nn to each element.

        None         x                       Sigmoid     1 / (1 + exp(-x))
        ReLU         max(x, 0)               Tanh        (1 - exp(-2x)) / (1 + exp(-2x))
        LeakyReLU    x, or 0.01 x below 0    Squareplus  (z + sqrt(z^2 + 4)) / 20, with z = 10 x
        SiLU         x / (1 + exp(-x))       Softplus    log(1 + exp(10 x)) / 10
        Exponential  exp(x)                  Sine        sin(x)

    If a formula overflows, this function does too, unlike the library's implementation.

    Args:
        name: one of these names.
        x: a tensor of any shape. Differentiable.

    Returns:
        Shaped like `x`.

    Example:
        >>> activation("LeakyReLU", torch.tensor([-1.0, 2.0]))
        tensor([-0.0100,  2.0000])
    """
    return _FORMULAS[name](x)


_FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "None": lambda x: x,
    "ReLU": lambda x: torch.where(x > 0, x, 0.0),
    "LeakyReLU": lambda x: torch.where(x > 0, x, x / 100),
    "SiLU": lambda x: x / (1 + torch.exp(-x)),
    "Exponential": torch.exp,
    "Sine": torch.sin,
    "Sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "Squareplus": lambda x: (10 * x + torch.sqrt((10 * x) ** 2 + 4)) / 20,
    "Softplus": lambda x: torch.log(1 + torch.exp(10 * x)) / 10,
    "Tanh": lambda x: (1 - torch.exp(-2 * x)) / (1 + torch.exp(-2 * x)),
}


def mlp(
    x: Tensor,
    params: Tensor,
    widths: Sequence[int],
    activation_name: str = "ReLU",
    output_activation_name: str = "None",
) -> Tensor:
    """Evaluate a multilayer perceptron without biases, neuron by neuron.

    Each neuron is the activation of   sum over i of w[i] x[i],   with x the outputs of the previous layer.

    Args:
        x: (..., widths[0]). Differentiable.
        params: (n), all weights: layer after layer, in each the weights of its first neuron, then of its second,
            and so on, as in tiny-cuda-nn. Differentiable.
        widths: the numbers of inputs, of neurons of each hidden layer, and of outputs, such as (3, 16, 16, 1).
        activation_name: the activation of all layers but the last; see `activation`.
        output_activation_name: the activation of the last layer.

    Returns:
        (..., widths[-1]).

    Raises:
        ValueError: there are not as many weights as the widths need.

    Example:
        >>> mlp(torch.tensor([[1.0, 2.0]]), torch.tensor([3.0, 4.0, 5.0, -6.0]), (2, 2), output_activation_name="ReLU")
        tensor([[11.,  0.]])
    """
    weights = iter(params)
    if params.numel() != sum(before * after for before, after in itertools.pairwise(widths)):
        raise ValueError(f"{params.numel()} weights do not fill layers between {tuple(widths)}")
    for number, (before, after) in enumerate(itertools.pairwise(widths), start=1):
        nothing = x.new_zeros(x.shape[:-1])
        neurons = [sum((next(weights) * x[..., i] for i in range(before)), nothing) for _ in range(after)]
        name = output_activation_name if number == len(widths) - 1 else activation_name
        x = activation(name, torch.stack(neurons, dim=-1))
    return x
