"""A training step of a small model: called, compiled with CUDA graphs by torch, and captured by hand."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import tinsmith as ts
from _harness import Call

Activation = Callable[[Tensor, Tensor], Tensor]


def ours(lang: Any) -> Activation:
    """Return an elementwise op with a parameter, on an engine."""

    @lang.kernel
    def scaled_tanh(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i, j in x:
            y[i, j] = w[j] * lang.tanh(x[i, j]) + x[i, j]

    return ts.op("x[n, m], w[m] -> y[n, m]")(scaled_tanh)


def in_torch(x: Tensor, w: Tensor) -> Tensor:
    """Compute what the op computes."""
    return w * x.tanh() + x


class Model(torch.nn.Module):
    """Three linear layers with the activation between them."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.layers = torch.nn.ModuleList([torch.nn.Linear(*sizes) for sizes in ((8, 64), (64, 64), (64, 1))])
        self.w = torch.nn.Parameter(torch.ones(64))

    def forward(self, x: Tensor) -> Tensor:
        first, second, third = self.layers
        return third(self.activation(second(self.activation(first(x), self.w)), self.w))


def make_step(activation: Activation, device: str, how: str = "") -> Call:
    """Return a call that trains for one step.

    Args:
        activation: the op, or torch's twin of it.
        device: "cpu" or "cuda".
        how: "" calls the model; "reduce-overhead" compiles it in this mode of torch; "a CUDA graph" captures the step.
    """
    torch.manual_seed(0)
    model = Model(activation).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, wanted = torch.rand(1024, 8, device=device), torch.rand(1024, 1, device=device)
    run = torch.compile(model, mode=how) if how == "reduce-overhead" else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        (run(x) - wanted).square().mean().backward()
        optimizer.step()

    if how != "a CUDA graph":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
