"""The ways to train many small networks: tinsmith, torch's batched matrix products, torch.compile, vmap, tinn's scheme.

All begin with the same weights, learn the same samples, and go down the sum of the networks' mean squared errors with
torch's fused Adam (tinn's scheme descends by itself). A way is a function that takes one step and returns that sum.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tinsmith.nn import NetworkArray

N_IN, N_OUT, BATCH = 2, 3, 64
ENGINES = ("taichi", "quadrants")
Step = Callable[[], Tensor]


@dataclass(frozen=True)
class Networks:
    """The sizes of an array of networks: how many, their width and number of hidden layers; and their device."""

    cells: int
    width: int
    hidden: int
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.cells:,} x width {self.width}, {self.hidden} hidden"

    @property
    def samples(self) -> int:
        """The number of samples of all networks in a step."""
        return self.cells * BATCH

    @property
    def weights(self) -> int:
        """The number of weights of one network."""
        return self.width * (N_IN + (self.hidden - 1) * self.width + N_OUT)

    @property
    def parameters(self) -> int:
        """The number of weights and biases of all networks."""
        return self.cells * (self.weights + self.hidden * self.width + N_OUT)

    @property
    def activations(self) -> int:
        """The number of outputs of all layers of all networks in a step."""
        return self.samples * (self.hidden * self.width + N_OUT)

    @property
    def operations(self) -> float:
        """The operations of a step: the matrix products of the forward pass, and of the backward pass to weights and
        hidden layers, but not to x.
        """
        return 2.0 * self.samples * (3 * self.weights - N_IN * self.width)

    def array(self, engine: str | None = None, way: str = "auto") -> NetworkArray:
        config = {"n_neurons": self.width, "n_hidden_layers": self.hidden, "activation": "ReLU"}
        array = NetworkArray(self.cells, N_IN, N_OUT, config, engine=engine, way=way, dtype=torch.float32)
        return array.to(self.device)

    def batches(self) -> tuple[Tensor, Tensor]:
        inputs, targets = (torch.rand(self.cells, BATCH, size, device=self.device) for size in (N_IN, N_OUT))
        return inputs, targets


def ours(networks: Networks, engine: str, x: Tensor, target: Tensor) -> Step:
    """Build a training step like that of `Trainer`, with tinsmith's loss."""
    array = networks.array(engine)
    optimizer = adam([array.params])

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = array.loss(x, target).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def ours_by_forward(networks: Networks, engine: str, x: Tensor, target: Tensor) -> Step:
    """Build a training step that uses tinsmith's array like any module of torch: outputs, then a loss of torch."""
    array = networks.array(engine)
    return stepping(array, [array.params], x, target)


def eager(networks: Networks, x: Tensor, target: Tensor) -> Step:
    weights, biases = pieces(networks)
    return stepping(lambda x: perceptrons(weights, biases, x), [*weights, *biases], x, target)


def compiled(networks: Networks, x: Tensor, target: Tensor) -> Step:
    """Build a training step with forward, loss and gradient compiled by inductor. The fused optimizer is one call
    already.
    """
    weights, biases = pieces(networks)
    torch.compiler.reset()

    @torch.compile(dynamic=False)
    def losses(weights: list[Tensor], biases: list[Tensor], x: Tensor, target: Tensor) -> Tensor:
        return error(perceptrons(weights, biases, x), target)

    optimizer = adam([*weights, *biases])

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = losses(weights, biases, x, target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def vmapped(networks: Networks, x: Tensor, target: Tensor) -> Step:
    """Build a training step of one Sequential, mapped over the stacked parameters of all, as in torch's tutorial on
    ensembles.
    """
    weights, biases = pieces(networks)
    sizes = [N_IN, *[networks.width] * networks.hidden, N_OUT]
    layers: list[nn.Module] = []
    for n, m in itertools.pairwise(sizes):
        layers += [nn.Linear(n, m), nn.ReLU()]
    one = nn.Sequential(*layers[:-1])
    params: dict[str, Tensor] = {}
    for number, (w, b) in enumerate(zip(weights, biases, strict=True)):
        params[f"{2 * number}.weight"] = nn.Parameter(w.detach().transpose(1, 2).contiguous())
        params[f"{2 * number}.bias"] = nn.Parameter(b.detach()[:, 0].clone())
    call = torch.func.vmap(lambda params, x: torch.func.functional_call(one, params, (x,)))
    return stepping(lambda x: call(params, x), list(params.values()), x, target)


def tinn(networks: Networks, x: Tensor, target: Tensor) -> Step:
    from _tinn_scheme import TinnScheme  # its kernels need a started Taichi

    scheme = TinnScheme(*pieces(networks), x, target)
    return lambda: torch.tensor(scheme.step())


def stepping(model: Callable[[Tensor], Tensor], params: list[Tensor], x: Tensor, target: Tensor) -> Step:
    optimizer = adam(params)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = error(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def perceptrons(weights: list[Tensor], biases: list[Tensor], x: Tensor) -> Tensor:
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        x = torch.baddbmm(b, x, w).relu_()
    return torch.baddbmm(biases[-1], x, weights[-1])


def error(y: Tensor, target: Tensor) -> Tensor:
    """Return the sum of the networks' mean squared errors."""
    return functional.mse_loss(y, target) * len(y)


def pieces(networks: Networks) -> tuple[list[Tensor], list[Tensor]]:
    """Return weights [cell, in, out] and biases [cell, 1, out] of each layer, as separate parameters."""
    layers = networks.array(way="matrices").layers()
    weights = [nn.Parameter(w.detach().clone(memory_format=torch.contiguous_format)) for w, _ in layers]
    return list(weights), [nn.Parameter(b.detach().clone()) for _, b in layers if b is not None]


def adam(params: list[Tensor]) -> torch.optim.Adam:
    return torch.optim.Adam(params, lr=1e-3, fused=True)


def why_not_compiled() -> str:
    """Return why inductor cannot work here, or "" if it can."""
    has_compiler = any(shutil.which(name) for name in ("g++", "clang++", "c++"))
    return "" if has_compiler else "inductor needs a C++ compiler, and there is none: install g++ or clang++"
