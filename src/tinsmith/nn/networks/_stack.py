"""Conversion of ordinary torch modules to an array of networks, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from ..._errors import ArgumentError, refusal
from ...torch_side import Layer
from .._activations import apply
from ..config import resolve_section
from ._array import NetworkArray

_KNOWN: tuple[tuple[type[nn.Module], str], ...] = (
    (nn.ReLU, "ReLU"),
    (nn.LeakyReLU, "LeakyReLU"),
    (nn.SiLU, "SiLU"),
    (nn.Sigmoid, "Sigmoid"),
    (nn.Softplus, "Softplus"),
    (nn.Tanh, "Tanh"),
    (nn.Identity, "None"),
)


class Activation(Layer):
    """An activation function of tiny-cuda-nn as a torch module. Its formula is in `tinsmith.reference.activation`.

    Args:
        name: tiny-cuda-nn's name, in upper or lower case.

    Raises:
        ConfigError: the name is unknown.

    Example:
        >>> ts.nn.Activation("Squareplus")(torch.zeros(1))
        tensor([0.1000])
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name: str = resolve_section("network", {"activation": name}).options["activation"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the activation to each element."""
        return apply(self.name, x)

    def extra_repr(self) -> str:
        """Return the name of the activation, for `repr`."""
        return self.name


def stack(networks: Iterable[nn.Sequential], grid_shape: int | Sequence[int] | None = None) -> NetworkArray:
    """Create an array of networks from ordinary networks, with copies of their weights.

    Args:
        networks: each an `nn.Sequential` of alternating `nn.Linear` and activations, all of the same shape, with one
            activation for all hidden layers and hidden layers of equal width. An activation may follow the last layer.
        grid_shape: number of cells along each axis of the array's grid, filled with `networks` in row-major order;
            None for one axis.

    Raises:
        ArgumentError: a network has another form, or there are not as many networks as cells. The message names the
            network and the layer.

    Example:
        >>> from torch import nn
        >>> mlps = [nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(6)]
        >>> ts.nn.stack(mlps, (2, 3)).grid_shape
        (2, 3)
    """
    networks = list(networks)
    if not networks:
        raise ArgumentError(refusal("`stack` got no networks", remedy="Pass a list of one or more nn.Sequential."))
    plans = [_make_plan(number, network) for number, network in enumerate(networks)]
    for number, plan in enumerate(plans):
        if plan != plans[0]:
            rows = [("network 0", _format_plan(plans[0])), (f"network {number}", _format_plan(plan))]
            remedy = "Stack networks with the same layer sizes, activations, biases and dtype."
            raise ArgumentError(refusal("the networks to stack are built differently", rows, remedy))
    array = _make_array(plans[0], len(networks), grid_shape, next(networks[0].parameters()))
    with torch.no_grad():
        for number, (weights, biases) in enumerate(array.layers()):
            linears = [_list_linears(network)[number] for network in networks]
            weights.copy_(torch.stack([linear.weight.T for linear in linears]))
            if biases is not None:
                biases.copy_(torch.stack([linear.bias[None] for linear in linears]))
    return array


def unstack(array: NetworkArray) -> list[nn.Sequential]:
    """Convert the networks of an array to ordinary torch modules, with copies of their weights.

    Raises:
        ArgumentError: the array has an encoding, which is not a layer of a Sequential.

    Example:
        >>> ts.nn.unstack(ts.nn.NetworkArray(2, 3, 1, {"n_neurons": 4, "n_hidden_layers": 1}))[0]
        Sequential(
          (0): Linear(in_features=3, out_features=4, bias=True)
          (1): ReLU()
          (2): Linear(in_features=4, out_features=1, bias=True)
        )
    """
    if array.encoding is not None:
        remedy = "Make the array without an encoding, and encode its inputs before."
        raise ArgumentError(refusal("an array with an encoding cannot be unstacked", remedy=remedy))
    layers = [(weights.detach(), None if b is None else b.detach()) for weights, b in array.layers()]
    options = array.config.options
    return [
        _make_sequential(layers, cell, options["activation"], options["output_activation"])
        for cell in range(array.cells)
    ]


_Plan = tuple[tuple[int, ...], str, str, bool, torch.dtype]


def _make_plan(number: int, network: nn.Sequential) -> _Plan:
    """Return a network's layer sizes, hidden and output activations, whether it has biases, and its dtype.

    Raises:
        ArgumentError: the network cannot be part of an array.
    """
    if not isinstance(network, nn.Sequential):
        rows = [("got", type(network).__name__)]
        raise ArgumentError(refusal(f"network {number} is not an nn.Sequential", rows, "Pass a list of them."))
    linears = _list_linears(network)
    acts = _list_activations(number, network)
    hidden, out = set(acts[:-1]), acts[-1]
    sizes = (linears[0].in_features, *(linear.out_features for linear in linears))
    biases = {linear.bias is not None for linear in linears}
    problems = {
        "several activations in its hidden layers": len(hidden) > 1,
        "hidden layers of several widths": len(set(sizes[1:-1])) > 1,
        "biases in some of its layers only": len(biases) > 1,
        "a layer whose input size is not the output size of the layer before": any(
            a.out_features != b.in_features
            for a, b in zip(linears, linears[1:])  # noqa: B905, RUF007
        ),
    }
    for words, is_so in problems.items():
        if is_so:
            rows = [("network", " ".join(str(network).split()))]
            remedy = "Give its hidden layers one width and one activation, all its layers a bias or none of them, and"
            remedy += " each layer as many inputs as the layer before has outputs."
            raise ArgumentError(refusal(f"network {number} has {words}", rows, remedy))
    return sizes, next(iter(hidden), "ReLU"), out, biases.pop(), linears[0].weight.dtype


def _list_linears(network: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in network if isinstance(layer, nn.Linear)]


def _list_activations(number: int, network: nn.Sequential) -> list[str]:
    """Return the name of the activation after each linear layer, "None" if there is none.

    Raises:
        ArgumentError: a layer is neither linear nor a known activation, or two activations follow each other.
    """
    names: list[str] = []
    for place, layer in enumerate(network):
        if isinstance(layer, nn.Linear):
            names.append("")
        elif not names or names[-1] or not (name := _find_activation(layer)):
            words = f"layer {place} of network {number} cannot be part of an array of networks at this place"
            known = ", ".join(f"nn.{kind.__name__}" for kind, _ in _KNOWN)
            rows = [("layer", str(layer)), ("expected", f"nn.Linear and activations in turn: {known}, Activation(...)")]
            raise ArgumentError(refusal(words, rows))
        else:
            names[-1] = name
    if not names:
        remedy = "Add a linear layer, or leave it out."
        raise ArgumentError(refusal(f"network {number} has no nn.Linear", remedy=remedy))
    return [name or "None" for name in names]


def _find_activation(layer: nn.Module) -> str:
    """Return tiny-cuda-nn's name of the activation that a layer computes, or "" if there is none with its constants."""
    if isinstance(layer, Activation):
        return layer.name
    if isinstance(layer, nn.LeakyReLU) and layer.negative_slope != 0.01:
        return ""
    if isinstance(layer, nn.Softplus) and (layer.beta != 10 or layer.threshold < 20):  # torch's becomes linear there
        return ""
    return next((name for kind, name in _KNOWN if type(layer) is kind), "")


def _make_array(plan: _Plan, count: int, grid_shape: int | Sequence[int] | None, like: torch.Tensor) -> NetworkArray:
    (n_in, *hidden, n_out), act, out, biases, dtype = plan
    config = {"otype": "CutlassMLP", "activation": act, "output_activation": out, "n_hidden_layers": len(hidden)}
    config |= {"n_neurons": hidden[0]} if hidden else {}
    array = NetworkArray(grid_shape or count, n_in, n_out, config, biases=biases, dtype=dtype).to(like.device)
    if array.cells != count:
        rows = [("grid", str(array.grid_shape)), ("networks", str(count))]
        remedy = "Pass a grid with as many cells as networks, or leave `grid_shape` out."
        words = "`grid_shape` of ts.nn.stack does not have one cell for each network"
        raise ArgumentError(refusal(words, rows, remedy))
    return array


def _make_sequential(layers: list[Any], cell: int, act: str, out: str) -> nn.Sequential:
    modules: list[nn.Module] = []
    for number, (weights, biases) in enumerate(layers):
        linear = nn.Linear(*weights.shape[1:], bias=biases is not None, device=weights.device, dtype=weights.dtype)
        with torch.no_grad():
            linear.weight.copy_(weights[cell].T)
            if biases is not None:
                linear.bias.copy_(biases[cell, 0])
        name = out if number == len(layers) - 1 else act
        modules += [linear, *([] if name == "None" else [_make_activation(name)])]
    return nn.Sequential(*modules)


def _make_activation(name: str) -> nn.Module:
    if name == "Softplus":
        return nn.Softplus(beta=10)
    return next((kind() for kind, known in _KNOWN if known == name), None) or Activation(name)


def _format_plan(plan: _Plan) -> str:
    sizes, act, out, biases, dtype = plan
    return f"{' x '.join(map(str, sizes))}, {act}, {out}, biases={biases}, {dtype}"
