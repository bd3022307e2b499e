"""One small case of every part of the library, computed on a device: results and gradients by name.

What comes in is drawn on the CPU, so that it is the same on every device. What is compared with what is said in
`on_device.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import _blend
import _gaussian_ways as splatting
import _network_ways as networks
import _rendering_ways as compositing
import _ways
import tinsmith as ts
from _kernels import triple

Values = dict[str, Tensor]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Draw numbers between 0 and 1, the same on each device."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def with_gradients(function: Callable[..., Sequence[Tensor]], given: Sequence[Tensor], device: str) -> Values:
    """Return the outputs of a function, and the gradients by all floating inputs for random cotangents, by name."""
    mine = [one.to(device).requires_grad_(one.is_floating_point()) for one in given]
    outputs = function(*mine)
    cotangents = [drawn(*one.shape, seed=7).to(device) for one in outputs]
    leaves = [one for one in mine if one.requires_grad]
    slopes = torch.autograd.grad(outputs, leaves, cotangents)
    values = {f"output {place}": one for place, one in enumerate(outputs)}
    return values | {f"gradient {place}": one for place, one in enumerate(slopes)}


def of_op(engine: str, device: str) -> Values:
    """Compute an op with a one-line kernel."""
    op = _ways.ours(__import__(engine))
    return with_gradients(lambda x: [op(x)], [drawn(100_000)], device)


def of_batch(engine: str, device: str) -> Values:
    """Compute an op under vmap: one launch for the batch."""
    op = _ways.ours(__import__(engine))
    return with_gradients(lambda x: [torch.func.vmap(op)(x)], [drawn(16, 1000)], device)


def of_generated_gradient(engine: str, device: str) -> Values:
    """Compute a kernel with loops that carry a value and break, and its generated gradient."""
    torch.manual_seed(3)
    given = _blend.sorted_gaussians(is_small=False)
    op = ts.op(_blend.SPEC)(_blend.blend(__import__(engine)))
    return with_gradients(lambda *x: [op(*x, **_blend.sides(is_small=False))], given, device)


def of_second_derivative(engine: str, device: str) -> Values:
    """Compute a gradient of a gradient."""
    op = _ways.ours(__import__(engine))

    def slope(x: Tensor) -> list[Tensor]:
        (gradient,) = torch.autograd.grad(op(x * x).sum(), x, create_graph=True)
        return [gradient]

    return with_gradients(slope, [drawn(1000)], device)


def of_scan(engine: str, device: str) -> Values:
    """Compute a scan of many steps, with checkpoints in between."""
    step = ts.op("x[n] -> y[n]")(triple(__import__(engine)))
    return with_gradients(
        lambda x: [ts.scan(lambda state, _: (0.3 * step(state), None), x, length=50)[0]], [drawn(256)], device
    )


def of_layer(engine: str, device: str) -> Values:
    """Compute a Tube layer."""
    layer = _ways.tube(ts, __import__(engine), 64, batched=False)
    return with_gradients(lambda x: [layer(x)], [drawn(64)], device)


def of_encoding(engine: str, device: str) -> Values:
    """Compute a hash grid, with the gradients by its table and by the positions."""
    config = {"otype": "HashGrid", "n_levels": 8, "log2_hashmap_size": 14}
    encoding = ts.nn.Encoding(3, config, engine=engine)
    table = drawn(len(encoding.params), seed=1)
    encoding = encoding.to(device)
    return with_gradients(lambda x, p: [encoding.encoder(x, p, engine)], [drawn(5000, 3), table], device)


def of_networks(engine: str, device: str) -> Values:
    """Compute the losses of an array of small networks, and the gradient by all parameters."""
    torch.manual_seed(4)
    sizes = networks.Networks(16, 16, 2)
    array = sizes.array(engine)
    x, target = sizes.batches()
    array = array.to(device)
    losses = array.loss(x.to(device), target.to(device))
    (slope,) = torch.autograd.grad(losses.sum(), [array.params])
    return {"losses": losses, "gradient": slope}


def of_composite(engine: str, device: str) -> Values:
    """Compute a volume rendering of ragged samples."""
    counts = torch.randint(0, 40, (500,), generator=torch.Generator().manual_seed(5))
    rays = torch.stack([counts.cumsum(0) - counts, counts], 1).int()
    s = int(counts.sum())
    given = [drawn(s), drawn(s, 3, seed=1), 2 + drawn(s, seed=2).cumsum(0), 0.1 * drawn(s, seed=3)]
    way = compositing.ours(engine, rays.to(device))
    return with_gradients(lambda *x: way(*x)[:3], given, device)


def of_gaussians(engine: str, device: str) -> Values:
    """Compute a splatting of 3-D Gaussians, with the gradients by all their parameters."""
    torch.manual_seed(6)
    *given, view, intrinsics = splatting.scene(2000, 128)
    way = splatting.ours(engine)
    camera = [view.to(device), intrinsics.to(device)]
    return with_gradients(lambda *x: way(*x, *camera, side=128), given, device)


CASES: dict[str, Callable[[str, str], Values]] = {
    "op": of_op,
    "vmap": of_batch,
    "generated gradient": of_generated_gradient,
    "second derivative": of_second_derivative,
    "scan": of_scan,
    "layer": of_layer,
    "encoding": of_encoding,
    "networks": of_networks,
    "composite": of_composite,
    "gaussians": of_gaussians,
}
