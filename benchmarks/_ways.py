"""The ways to call a kernel from torch: tinsmith's, the hand-written one, and other libraries'.

Each is used as its own documentation says. A library that is missing is a `Missing`, by name.
"""

# pyright: reportIncompatibleMethodOverride=false
# torch declares a Function's backward as (ctx, *grad_outputs); everybody writes its real arguments.

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import tinsmith as ts
from _kernels import total, triple, triple_of_fields, triple_of_templates, warp_triple

ENGINES = ("taichi", "quadrants")
Way = Callable[..., Tensor]


@dataclass(frozen=True)
class Missing:
    """A library that is not installed, and how to install it."""

    name: str
    reason: str


def library(name: str, package: str, extra: str) -> Any:
    """Import and return a library's module, or a `Missing` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as cause:
        return Missing(package, f'{cause}; install it with `pip install ".[{extra}]"`')


# Ours -------------------------------------------------------------------------------------
def ours(lang: Any) -> Way:
    return ts.op("x[n] -> y[n]")(triple(lang))


def ours_unfilled(lang: Any) -> Way:
    """Return the op with an output that is not zeroed first, for a kernel that writes every element."""
    return ts.op("x[n] -> y[n]", init={"y": "empty"})(triple(lang))


def ours_of_templates(lang: Any, *, batched: bool) -> Way:
    spec = "x[*b, n] -> y[*b, n]" if batched else "x[n] -> y[n]"
    return ts.op(spec)(triple_of_templates(lang))


def ours_total(lang: Any, count: int) -> Way:
    return ts.op(", ".join(f"a{place}[n]" for place in range(count)) + " -> y[n]")(total(lang, count))


# By hand ----------------------------------------------------------------------------------
def by_hand(kernel: Any) -> Way:
    """Wrap an engine's kernel in the widely copied autograd Function. The README says what is wrong with it."""

    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = torch.zeros_like(x, requires_grad=True)
            kernel(x, y)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Any:
            x, y = ctx.saved_tensors
            y.grad = dy.contiguous()
            kernel.grad(x, y)
            return x.grad

    return ByHand.apply


def total_by_hand(kernel: Any) -> Way:
    """Wrap a kernel of several inputs in the widely copied autograd Function."""

    class TotalByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            y = torch.zeros_like(inputs[0], requires_grad=True)
            kernel(*inputs, y)
            ctx.save_for_backward(*inputs, y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Any:
            *inputs, y = ctx.saved_tensors
            y.grad = dy.contiguous()
            kernel.grad(*inputs, y)
            return tuple(x.grad for x in inputs)

    return TotalByHand.apply


# Torch itself -----------------------------------------------------------------------------
class Triple(torch.autograd.Function):
    """An autograd Function y = 3 x without any engine, which shows what a Function costs by itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 3.0

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return dy * 3.0


class Total(torch.autograd.Function):
    """An autograd Function that sums several inputs without any engine."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        ctx.count = len(inputs)
        return functools.reduce(torch.add, inputs)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return (dy,) * ctx.count


# Warp -------------------------------------------------------------------------------------
def with_warp(wp: Any) -> Way:
    """Wrap Warp's own kernel in the Function of Warp's manual, "PyTorch Interoperability"."""
    wp.config.log_level = wp.LOG_ERROR
    wp.init()
    kernel = warp_triple(wp)

    class WithWarp(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.x = wp.from_torch(x, requires_grad=True)
            ctx.y = wp.zeros(len(x), requires_grad=True, device=ctx.x.device)
            wp.launch(kernel=kernel, dim=len(x), inputs=[ctx.x], outputs=[ctx.y], device=ctx.x.device)
            return wp.to_torch(ctx.y)

        @staticmethod
        def backward(ctx: Any, adj_y: Tensor) -> Any:
            ctx.y.grad = wp.from_torch(adj_y)
            wp.launch(
                kernel=kernel,
                dim=len(ctx.y),
                inputs=[ctx.x],
                outputs=[ctx.y],
                adj_inputs=[ctx.x.grad],
                adj_outputs=[ctx.y.grad],
                adjoint=True,
                device=ctx.x.device,
            )
            return wp.to_torch(ctx.x.grad)

    return WithWarp.apply


# Stannum ----------------------------------------------------------------------------------
def empty_tin(stannum: Any, lang: Any, size: int, device: str, **options: Any) -> Way:
    """Build Stannum's layer around a kernel that refers to fields, which has one size. Only tinsmith's layer takes
    `options`.
    """
    x, y = (lang.field(lang.f32, shape=size, needs_grad=True) for _ in range(2))
    tin = stannum.EmptyTin(torch.device(device), True, **options)
    tin = tin.register_input_field(x).register_output_field(y)
    return tin.register_kernel(triple_of_fields(lang, x, y), kernel_name="triple").finish()


def tube(stannum: Any, lang: Any, size: int, *, batched: bool) -> Way:
    """Build Stannum's layer that allocates fields at every call."""
    dims = (stannum.BatchDim, size) if batched else (size,)
    made = stannum.Tube().register_input_tensor(dims, torch.float32, "x")
    made = made.register_output_tensor(dims, torch.float32, "y", True)
    return made.register_kernel(triple_of_templates(lang), ["x", "y"], name="triple").finish()
