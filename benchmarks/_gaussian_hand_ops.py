"""`tinsmith.render.gaussians` with hand-written gradients instead of the generated ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from _gaussian_by_hand import (
    blend_back_to_front,
    blend_front_to_back,
    blend_to_an_end,
    covariance_backward,
    projection_backward,
)
from tinsmith import kernels
from tinsmith.calls import language
from tinsmith.render import _ops
from tinsmith.render._rule import steady

FLOATS = _ops.FLOATS
Order = Literal["back to front", "front to back"]
ORDERS: tuple[Order, Order] = ("back to front", "front to back")
Ops = Mapping[tuple[Any, ...], Any]
"""By name and static values, as `tinsmith.render._ops.get_op` takes them."""


def build_ops(engine: str, *, fp: str, order: Order, channels: int = 3, tile_size: int = 16) -> Ops:
    """Build the ops with these gradients, by the names and static values of the ops that they replace."""
    lang = language(engine, torch.device("cpu"))
    static = {"fp": fp, "channels": channels, "tile_size": tile_size}
    spec = (
        f"means2d[m, 2], conics[m, 3], colors[m, {channels}], opacities[m], ids[k]: i32, starts[t]: i32"
        f" -> image[v, h, w, {channels}], left[v, h, w]"
    )
    init = {"image": "empty", "left": "empty"}
    if order == "front to back":
        backward = blend_front_to_back(lang, **static)
        blend = steady(spec, kernels.gaussian_blend(lang, **static), init=init, backward=backward)
    else:
        backward = blend_back_to_front(lang, **static)
        to_an_end = steady(
            f"{spec}, last[v, h, w]: i32",
            blend_to_an_end(lang, **static),
            init=init | {"last": "empty"},
            backward=backward,
        )

        def blend(*tensors: Tensor, **sizes: int) -> Sequence[Tensor]:
            return to_an_end(*tensors, **sizes)[:2]

    cameras = "viewmats[v, 4, 4], intrinsics[v, 3, 3], images[p]: i32, rows[p]: i32, radii[p, 2]: i32"
    values = "means2d[p, 2], depths[p], conics[p, 3], compensations[p]"
    project = steady(
        f"means[g, 3], covars[g, 6], {cameras} -> {values}",
        kernels.gaussian_projection(lang, fp=fp, camera_model="pinhole"),
        backward=projection_backward(lang, fp=fp),
    )
    covariance = steady(
        "quats[n, 4], scales[n, 3] -> covars[n, 6]",
        kernels.gaussian_covariance(lang, fp=fp, inverse=False),
        init={"covars": "empty", "grad_quats": "empty", "grad_scales": "empty"},
        backward=covariance_backward(lang, fp=fp),
    )
    return {
        ("gaussian_blend", channels, tile_size, False): blend,
        ("gaussian_projection", "pinhole", False): project,
        ("gaussian_covariance", False): covariance,
    }


@contextmanager
def replace_ops(ops: Ops, engine: str, like: Tensor) -> Iterator[None]:
    """Enter a context in which the renderer uses these ops. What is rendered inside also uses them in its backward
    pass.
    """
    places = {_ops._build_op(name, engine, like.device, like.dtype, *static): op for (name, *static), op in ops.items()}
    before = {place: getattr(_ops._SHELF, place) for place in places}
    for place, op in places.items():
        setattr(_ops._SHELF, place, op)
    try:
        yield
    finally:
        for place, op in before.items():
            setattr(_ops._SHELF, place, op)
