"""DefaultStrategy: adaptive density control as in the paper of 3-D Gaussian splatting."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..._errors import ArgumentError, refusal
from ...nn.optimizers import gradient
from ._surgery import Optimizers, Params, change_rows, check_params, draw_normal, overwrite_rows, rotate

_SHRINK = 1.6  # the scales of a split Gaussian's parts are divided by this number, as in the paper


@dataclass
class DefaultStrategy:
    """A strategy of density control that clones and splits Gaussians with high gradients and prunes faint ones.

    The strategy of Kerbl et al., 3D Gaussian Splatting for Real-Time Radiance Field Rendering (2023), with the options,
    names and defaults of gsplat 1.5. Every `refine_every` steps between `refine_start_iter` and `refine_stop_iter`,
    with g the mean norm of the gradient of a Gaussian's position in the image since the last refinement, in units of
    half the image's sides:

    - g > grow_grad2d, its largest scale at most grow_scale3d * scene_scale: it is cloned;
    - g > grow_grad2d, larger: it is split into two, at positions drawn from it, with scales 1.6 times smaller;
    - opacity < prune_opa, or (once step > reset_every) a scale > prune_scale3d * scene_scale: it is removed.

    Every `reset_every` steps, opacities above 2 prune_opa are set to 2 prune_opa. Gaussians that remain keep their
    moments in the optimizers; new ones start without moments.

    Attributes:
        prune_opa: Gaussians with an opacity below this are pruned.
        grow_grad2d: Gaussians with a gradient above this are cloned or split. With `absgrad` 0.0008 is a good value.
        grow_scale3d: Gaussians of at most this scale are cloned, larger ones split; a fraction of the scene's scale.
        grow_scale2d: Gaussians with a radius above this are split; a fraction of the image's longer side.
        prune_scale3d: Gaussians larger than this are pruned; a fraction of the scene's scale.
        prune_scale2d: Gaussians with a radius above this are pruned; a fraction of the image's longer side.
        refine_scale2d_stop_iter: radii are used only before this step; 0: never.
        refine_start_iter: no refinement up to this step.
        refine_stop_iter: no refinement from this step on.
        reset_every: steps between resets of the opacities.
        refine_every: steps between refinements.
        pause_refine_after_reset: steps after a reset without refinement.
        absgrad: use absolute gradients (AbsGS, Ye et al. 2024); render with `absgrad=True`.
        revised_opacity: give the parts of a split Gaussian the opacity 1 - sqrt(1 - o), so that together they are as
            opaque as it was (Rota Bulò et al. 2024).
        verbose: print the changes.
        key_for_gradient: the entry of `info` whose gradient is used.
        generator: the random generator for positions of split Gaussians; None for torch's default. Not in gsplat.

    Example:
        >>> params = {
        ...     "means": torch.nn.Parameter(torch.zeros(2, 3)),
        ...     "scales": torch.nn.Parameter(torch.zeros(2, 3)),
        ...     "quats": torch.nn.Parameter(torch.tensor([[1.0, 0, 0, 0]] * 2)),
        ...     "opacities": torch.nn.Parameter(torch.tensor([2.0, -9.0])),
        ... }
        >>> optimizers = {name: torch.optim.Adam([one]) for name, one in params.items()}
        >>> strategy = ts.render.gaussians.DefaultStrategy(refine_start_iter=0, refine_every=1)
        >>> strategy.check_sanity(params, optimizers)
        >>> state = strategy.initialize_state(scene_scale=1.0)
        >>> means2d = torch.zeros(1, 2, 2, requires_grad=True)
        >>> info = {"width": 64, "height": 48, "n_cameras": 1, "means2d": means2d * 1, "gaussian_ids": None}
        >>> info["radii"] = torch.ones(1, 2, 2, dtype=torch.int32)
        >>> strategy.step_pre_backward(params, optimizers, state, 1, info)
        >>> info["means2d"].sum().backward()
        >>> strategy.step_post_backward(params, optimizers, state, 1, info)
        >>> len(params["means"])  # of three, for one was split, the faint one was split too, and then pruned
        2
    """

    prune_opa: float = 0.005
    grow_grad2d: float = 0.0002
    grow_scale3d: float = 0.01
    grow_scale2d: float = 0.05
    prune_scale3d: float = 0.1
    prune_scale2d: float = 0.15
    refine_scale2d_stop_iter: int = 0
    refine_start_iter: int = 500
    refine_stop_iter: int = 15_000
    reset_every: int = 3000
    refine_every: int = 100
    pause_refine_after_reset: int = 0
    absgrad: bool = False
    revised_opacity: bool = False
    verbose: bool = False
    key_for_gradient: Literal["means2d", "gradient_2dgs"] = "means2d"
    generator: torch.Generator | None = None

    def initialize_state(self, scene_scale: float = 1.0) -> dict[str, Any]:
        """Return the initial state, a dict that the other methods keep between steps.

        Args:
            scene_scale: the size of the scene in the units of the means, for example half of its side.
        """
        state: dict[str, Any] = {"grad2d": None, "count": None, "scene_scale": scene_scale}
        if self.refine_scale2d_stop_iter > 0:
            state["radii"] = None
        return state

    def check_sanity(self, params: Params, optimizers: Optimizers) -> None:
        """Raise an error unless the other methods can work with these parameters and optimizers.

        Args:
            params: by name: "means" (N, 3), "scales" (N, 3) logarithms, "quats" (N, 4), "opacities" (N) or (N, 1)
                logits, and any others with N rows.
            optimizers: one for each parameter that requires a gradient, by its name.

        Raises:
            ArgumentError, ShapeError: a parameter or an optimizer is missing or does not fit.
        """
        check_params("DefaultStrategy", params, optimizers)

    def step_pre_backward(
        self,
        params: Params,
        optimizers: Optimizers,
        state: MutableMapping[str, Any],
        step: int,
        info: Mapping[str, Any],
    ) -> None:
        """Retain the gradient of the Gaussians' positions in the image. Call this before `loss.backward()`.

        Raises:
            ArgumentError: `info` is not from `rasterization`.
        """
        self._require_info(info, (self.key_for_gradient,))
        info[self.key_for_gradient].retain_grad()

    def step_post_backward(
        self,
        params: Params,
        optimizers: Optimizers,
        state: MutableMapping[str, Any],
        step: int,
        info: Mapping[str, Any],
        packed: bool = False,
    ) -> None:
        """Accumulate gradients, and refine and reset Gaussians when due. Call this after `loss.backward()`.

        Args:
            params: as for `check_sanity`; parameters are replaced by ones of another size.
            optimizers: as for `check_sanity`; updated to the new parameters.
            state: from `initialize_state`.
            step: the index of the step, from 0.
            info: from `rasterization`, after the backward pass.
            packed: whether the image was rendered with `packed=True`.

        Raises:
            ArgumentError: `info` is not from `rasterization`, or it has no gradient.
        """
        if step >= self.refine_stop_iter:
            return
        self._count(params, state, info, packed)
        is_paused = step % self.reset_every < self.pause_refine_after_reset
        if step > self.refine_start_iter and step % self.refine_every == 0 and not is_paused:
            cloned, split = self._grow(params, optimizers, state, step)
            pruned = self._prune(params, optimizers, state, step)
            for name in ("grad2d", "count", "radii"):
                if state.get(name) is not None:
                    state[name].zero_()
            if self.verbose:
                changes = f"{cloned} Gaussians cloned, {split} split, {pruned} pruned"
                print(f"Step {step}: {changes}. Now there are {len(params['means'])}.")  # noqa: T201  # it was asked for
        if step % self.reset_every == 0 and step > 0:
            most = math.log(2 * self.prune_opa / (1 - 2 * self.prune_opa))
            everyone = torch.arange(len(params["opacities"]), device=params["opacities"].device)
            overwrite_rows(params, optimizers, ("opacities",), everyone, lambda _, rows: rows.clamp(max=most))

    @torch.no_grad()
    def _count(self, params: Params, state: MutableMapping[str, Any], info: Mapping[str, Any], packed: bool) -> None:
        self._require_info(info, ("width", "height", "n_cameras", "radii", self.key_for_gradient))
        if packed != (info.get("gaussian_ids") is not None):
            words = f"`info` is of an image that was {'not ' * packed}rendered with packed=True"
            raise ArgumentError(refusal(words, [("packed", str(packed))], f"Pass packed={not packed} here too."))
        grads = self._gradients(info[self.key_for_gradient])
        half_sides = grads.new_tensor([info["width"] / 2, info["height"] / 2])
        norms = (grads * half_sides * info["n_cameras"]).norm(dim=-1)
        radii = info["radii"]
        if packed:
            rows, radii = info["gaussian_ids"].long(), radii.amax(-1)
        else:
            seen = (radii > 0).all(-1)
            rows = seen.nonzero()[:, -1]
            norms, radii = norms[seen], radii[seen].amax(-1)
        wanted = ["grad2d", "count", *(["radii"] if self.refine_scale2d_stop_iter > 0 else [])]
        for name in wanted:
            if state[name] is None:
                state[name] = norms.new_zeros(len(params["means"]))
        state["grad2d"].index_add_(0, rows, norms)
        state["count"].index_add_(0, rows, torch.ones_like(norms))
        if "radii" in wanted:
            shares = radii.to(norms.dtype) / max(info["width"], info["height"])
            state["radii"].scatter_reduce_(0, rows, shares, "amax")

    def _require_info(self, info: Mapping[str, Any], names: tuple[str, ...]) -> None:
        """Raise ArgumentError if `info` lacks one of these entries."""
        missing = [name for name in names if info.get(name) is None]
        if missing:
            rows = [("missing", ", ".join(missing)), ("info", ", ".join(info))]
            function = "rasterization_2dgs" if self.key_for_gradient == "gradient_2dgs" else "rasterization"
            remedy = f"Pass the last result of {function}, as key_for_gradient={self.key_for_gradient!r} needs."
            raise ArgumentError(refusal("`info` does not have what DefaultStrategy reads", rows, remedy))

    def _gradients(self, means2d: Tensor) -> Tensor:
        if self.absgrad:
            grad = getattr(means2d, "absgrad", None)
        else:  # torch warns if a gradient is read that was not retained
            grad = gradient(means2d) if means2d.is_leaf or means2d.retains_grad else None
        if grad is None:
            headline = f'info["{self.key_for_gradient}"] has no {"absolute " * self.absgrad}gradient'
            remedy = "Call step_pre_backward before loss.backward()."
            if self.absgrad:
                remedy = "Render with absgrad=True, and call this after loss.backward()."
            raise ArgumentError(refusal(headline, [], remedy))
        return grad

    @torch.no_grad()
    def _grow(
        self, params: Params, optimizers: Optimizers, state: MutableMapping[str, Any], step: int
    ) -> tuple[int, int]:
        is_high = state["grad2d"] / state["count"].clamp(min=1) > self.grow_grad2d
        is_small = params["scales"].exp().amax(-1) <= self.grow_scale3d * state["scene_scale"]
        is_split = is_high & ~is_small
        if step < self.refine_scale2d_stop_iter:
            is_split |= state["radii"] > self.grow_scale2d
        cloned, split = (is_high & is_small).nonzero()[:, 0], is_split.nonzero()[:, 0]
        everyone = torch.arange(len(is_high), device=is_high.device)
        if len(cloned):
            change_rows(params, optimizers, state, everyone, cloned)
        if len(split):
            kept = torch.ones(len(params["means"]), dtype=torch.bool, device=is_high.device)  # includes the clones
            kept[split] = False
            self._split(params, optimizers, state, kept.nonzero()[:, 0], split)
        return len(cloned), len(split)

    def _split(
        self, params: Params, optimizers: Optimizers, state: MutableMapping[str, Any], kept: Tensor, split: Tensor
    ) -> None:
        scales, quats = params["scales"][split].exp(), params["quats"][split]
        noise = draw_normal((2, len(split), 3), scales, self.generator)
        offsets = rotate(quats.expand(2, -1, -1), scales * noise).flatten(0, 1)

        def new_values(name: str, rows: Tensor) -> Tensor:
            if name == "means":
                return rows + offsets
            if name == "scales":
                return rows - math.log(_SHRINK)
            if name == "opacities" and self.revised_opacity:
                return (1 - (1 - rows.sigmoid()).sqrt()).logit()
            return rows

        change_rows(params, optimizers, state, kept, split.repeat(2), new_values)

    @torch.no_grad()
    def _prune(self, params: Params, optimizers: Optimizers, state: MutableMapping[str, Any], step: int) -> int:
        is_pruned = params["opacities"].flatten().sigmoid() < self.prune_opa
        if step > self.reset_every:
            is_pruned |= params["scales"].exp().amax(-1) > self.prune_scale3d * state["scene_scale"]
            if step < self.refine_scale2d_stop_iter:
                is_pruned |= state["radii"] > self.prune_scale2d
        count = int(is_pruned.sum())
        if count:
            kept = (~is_pruned).nonzero()[:, 0]
            change_rows(params, optimizers, state, kept, kept[:0])
        return count
