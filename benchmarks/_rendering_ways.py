"""The ways to composite: tinsmith, plain torch in two forms, nerfacc's pure torch functions, and the kernel that people
copy.

A way is a function of densities, colors, t and steps, dense [n, k] or packed [s] with `rays` told beforehand, which
gives color, opacity, depth and weights.
"""

import torch
from torch import Tensor

import tinsmith as ts
from _copied_compositing import copied
from tinsmith.engines import get
from tinsmith.render import composite

ENGINES = ("taichi", "quadrants")
_SPEC = (
    "densities[s], colors[s, 3], t[s], steps[s], segments rays[n, 2]: i32 "
    "-> color[n, 3], opacity[n], depth[n], weights[s]"
)


def ours(engine, rays=None):
    return lambda *samples: composite(*samples, rays, engine=engine)


def torch_dense(densities: Tensor, colors: Tensor, t: Tensor, steps: Tensor):
    """Composite as most implementations since the first NeRF do: a running product of 1 - alpha, shifted by one."""
    alpha = 1 - torch.exp(-densities * steps)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha[:, :-1]], 1), 1)
    weights = through * alpha
    color = (weights[..., None] * colors).sum(1)
    return color, weights.sum(1), (weights * t).sum(1), weights


class TorchRagged:
    """Composites packed samples in torch: a running sum minus its value at the ray's start, and `index_add`.

    Uses `index_select`, since the gradient of `before[index]` takes longer.
    """

    def __init__(self, rays: Tensor) -> None:
        self.n = len(rays)
        self.ray = torch.arange(self.n).repeat_interleave(rays[:, 1])
        self.start = rays[:, 0].long().clamp(max=max(len(self.ray) - 1, 0))

    def __call__(self, densities: Tensor, colors: Tensor, t: Tensor, steps: Tensor):
        absorbed = densities * steps
        before = absorbed.cumsum(0) - absorbed
        at_start = before.index_select(0, self.start).index_select(0, self.ray)
        through = torch.exp(at_start - before)
        weights = through * (1 - torch.exp(-absorbed))
        return self.sum(weights[:, None] * colors), self.sum(weights), self.sum(weights * t), weights

    def sum(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.n, *values.shape[1:]).index_add(0, self.ray, values)


def nerfacc_dense(densities: Tensor, colors: Tensor, t: Tensor, steps: Tensor):
    """Composite by nerfacc's functions in their batched form. Those for packed samples need CUDA."""
    import nerfacc

    weights, *_ = nerfacc.render_weight_from_density(t - steps / 2, t + steps / 2, densities)
    color = nerfacc.accumulate_along_rays(weights, colors)
    opacity = nerfacc.accumulate_along_rays(weights)[:, 0]
    return color, opacity, nerfacc.accumulate_along_rays(weights, t[..., None])[:, 0], weights


def copied_kernel(engine, rays, adjoint):
    """Return the corrected copied kernel as a function. `adjoint` selects the engine's gradient, as people use it, or
    the generated one.
    """
    options = {"adjoint": adjoint, "trust_engine": adjoint == "engine"}
    # Different rays use different slots, but no promise of the spec can say so.
    op = ts.op(_SPEC, scratch="through[s + n]", name="copied", races="allow", **options)(copied(get(engine).lang))
    return lambda *samples: op(*samples, rays)
