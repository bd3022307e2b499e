"""The cases of the adjoint benchmark: each kernel as an op, with a generated and a hand-written gradient, and in plain
torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import _adjoint_kernels as kernels
import _blend
import tinsmith as ts
from _splat_by_hand import splat_by_hand
from _ways import Way
from splat import squares
from tinsmith.kernels import splat

STEPS = 64
"""Steps of the chain."""


@dataclass(frozen=True)
class Case:
    """A kernel and its gradients.

    Attributes:
        size: of what is timed, in words.
        spec: of the op.
        kernel: builds the kernel, or those of a chain; what is compared are its gradients.
        by_hand: builds whole ops with a gradient by hand, by what kind they are; the bar is "by hand".
        twin: the same in plain torch.
        inputs: makes random float32 inputs, few of them or as many as are timed; whole numbers have no gradient.
        named: sizes of outputs, likewise.
        scratch: of a chain.
        bar: how many times as long as by hand the generated gradient may take.
    """

    name: str
    size: str
    spec: str
    kernel: Callable[[Any], Any]
    by_hand: Mapping[str, Callable[[Any], Way]]
    twin: Way
    inputs: Callable[[bool], tuple[Tensor, ...]]
    bar: float
    named: Callable[[bool], Mapping[str, int]] = field(default=lambda is_small: {})
    scratch: str | None = None

    def generated(self, lang: Any, adjoint: str = "source") -> Way:
        """Return the op whose gradient is generated from the kernel's source, or is the engine's own, right
        or wrong.
        """
        kernels = self.kernel(lang)
        kernels = kernels if isinstance(kernels, list) else [kernels]
        return ts.chain(self.spec, kernels, scratch=self.scratch, adjoint=adjoint, trust_engine=True)


def with_backward(spec: str, forward: Callable[[Any], Any], backward: Callable[[Any], Any], **options: Any) -> Any:
    return lambda lang: ts.op(spec, backward=backward(lang), **options)(forward(lang))


# Splatting --------------------------------------------------------------------------------
SPLAT = "pos[n, 2], scale[n, 2], angle[n], color[n, 3], opacity[n] -> image[h, w, 3]"


def serial_splat(lang: Any) -> Any:
    return splat(lang, serial=True)


def gaussians(is_small: bool) -> tuple[Tensor, ...]:
    """Draw Gaussians like those of a fitted picture: a few pixels large, all over it."""
    n, h, w = (6, 9, 8) if is_small else (2000, 256, 218)
    wide = torch.exp(0.5 * torch.randn(n, 2)) * (1 if is_small else 2.0)
    return torch.rand(n, 2) * torch.tensor([w, h]), wide, torch.rand(n) * 3, torch.randn(n, 3), torch.rand(n) * 0.9


def picture(is_small: bool) -> dict[str, int]:
    return {"h": 9, "w": 8} if is_small else {"h": 256, "w": 218}


# Light along rays -------------------------------------------------------------------------
RAYS = "density[r, s], thickness[r, s], color[r, s, 3] -> light[r, 3]"


def composited(density: Tensor, thickness: Tensor, color: Tensor) -> Tensor:
    depth = density * thickness
    after = torch.exp(-depth.cumsum(1))
    before = functional.pad(after[:, :-1], (1, 0), value=1.0)
    return ((before - after)[..., None] * color).sum(1)


def rays(is_small: bool) -> tuple[Tensor, ...]:
    r, s = (5, 7) if is_small else (8192, 64)
    return torch.rand(r, s), torch.rand(r, s) * 0.2, torch.rand(r, s, 3)


# A chain of masses and springs ------------------------------------------------------------
CHAIN = "start[n], speed[n], stiffness[n] -> x[t, n], v[t, n]"
LAST = "start[n], speed[n], stiffness[n] -> x[n], v[n]"


def moved(start: Tensor, speed: Tensor, stiffness: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return positions and speeds at all times."""
    states = [(start, speed)]
    for _ in range(STEPS):
        x, v = states[-1]
        pull = stiffness[1:] * (x.diff() - 1.0)
        v = v + kernels.STEP * (functional.pad(pull, (0, 1)) - functional.pad(pull, (1, 0)))
        states.append((x + kernels.STEP * v, v))
    return states


def all_times(start: Tensor, speed: Tensor, stiffness: Tensor, *, t: int) -> tuple[Tensor, Tensor]:
    x, v = zip(*moved(start, speed, stiffness), strict=True)
    return torch.stack(x), torch.stack(v)


def last_time(start: Tensor, speed: Tensor, stiffness: Tensor) -> tuple[Tensor, Tensor]:
    return moved(start, speed, stiffness)[-1]


def springs(is_small: bool) -> tuple[Tensor, ...]:
    n = 5 if is_small else 4096
    return torch.arange(n) + torch.rand(n), torch.randn(n), torch.rand(n) * 50


def in_place(lang: Any) -> Any:
    return kernels.chain_in_place(lang, STEPS)


# Distortion of ragged rays ----------------------------------------------------------------
DISTORTION = "w[s], t[s], d[s], segments rays[r, 2]: i32 -> loss[r]"
BETWEEN = "weights[s], moments[s], terms[s]"


def distorted(w: Tensor, t: Tensor, rays: Tensor, d: Tensor) -> Tensor:
    """Compute the distortion of each ray in plain torch. The arguments are those of the chain."""
    starts, ends = rays.long().unbind(1)
    counts = ends - starts

    def before(values: Tensor) -> Tensor:
        whole = functional.pad(values.cumsum(0), (1, 0))
        return whole[:-1] - torch.repeat_interleave(whole[starts], counts)

    terms = 2.0 * w * (t * before(w) - before(w * t)) + w * w * d / 3.0
    ray = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return torch.zeros(len(counts), dtype=w.dtype).index_add(0, ray, terms)


def ragged(is_small: bool) -> tuple[Tensor, ...]:
    counts = torch.randint(0, 5, (4,)) if is_small else torch.randint(32, 96, (8192,))
    ends = counts.cumsum(0)
    samples = int(ends[-1])
    rays = torch.stack([ends - counts, ends], 1).to(torch.int32)
    return torch.rand(samples), torch.rand(samples), rays, torch.rand(samples)


def distortion_by_hand(lang: Any) -> Way:
    backward = kernels.distortion_by_hand(lang)
    return ts.chain(DISTORTION, kernels.distortion(lang), scratch=BETWEEN, backward=backward)


# Online softmax ---------------------------------------------------------------------------
SOFTMAX = "x[r, n] -> y[r, n]"


def rows(is_small: bool) -> tuple[Tensor, ...]:
    return (torch.randn((4, 6) if is_small else (2048, 256)) * 3,)


CASES = (
    Case(
        "splat",
        "2000 Gaussians, 218 x 256",
        SPLAT,
        serial_splat,
        {"by hand": with_backward(SPLAT, serial_splat, splat_by_hand)},
        squares,
        gaussians,
        1.5,
        picture,
    ),
    Case(
        "blend",
        f"2000 Gaussians, {_blend.SIDE} x {_blend.SIDE}",
        _blend.SPEC,
        _blend.blend,
        {
            "by hand": with_backward(_blend.SPEC, _blend.blend, _blend.blend_by_hand),
            "deterministic": lambda lang: ts.op(_blend.SPEC, deterministic=True)(_blend.blend(lang)),
        },
        _blend.blend_by_tiles,
        _blend.sorted_gaussians,
        1.4,
        _blend.sides,
    ),
    Case(
        "compositing",
        "8192 rays x 64",
        RAYS,
        kernels.compositing,
        {"by hand": with_backward(RAYS, kernels.compositing, kernels.compositing_by_hand)},
        composited,
        rays,
        2.0,
    ),
    Case(
        "chain [t, i]",
        f"{STEPS} steps, 4096 masses",
        CHAIN,
        kernels.chain,
        {"by hand": with_backward(CHAIN, kernels.chain, kernels.chain_by_hand)},
        all_times,
        springs,
        2.0,
        lambda is_small: {"t": STEPS + 1},
    ),
    Case(
        "chain in place",
        f"{STEPS} steps, 4096 masses",
        LAST,
        in_place,
        {
            "by hand": with_backward(
                LAST,
                kernels.chain_that_remembers,
                kernels.remembered_by_hand,
                scratch=f"path[{STEPS + 1}, n]",
            )
        },
        last_time,
        springs,
        2.0,
    ),
    Case(
        "distortion",
        "chain of three, 8192 rays, 520,000 samples",
        DISTORTION,
        kernels.distortion,
        {"by hand": distortion_by_hand},
        distorted,
        ragged,
        1.3,
        scratch=BETWEEN,
    ),
    Case(
        "online softmax",
        "2048 rows x 256",
        SOFTMAX,
        kernels.online_softmax,
        {
            "by hand": with_backward(SOFTMAX, kernels.online_softmax, kernels.softmax_by_hand),
            "by hand, closed form": with_backward(SOFTMAX, kernels.online_softmax, kernels.softmax_in_closed_form),
        },
        lambda x: torch.softmax(x, 1),
        rows,
        2.0,
    ),
)
