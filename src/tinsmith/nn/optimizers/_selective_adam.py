"""SelectiveAdam: Adam that updates some rows of a parameter at a time, such as the Gaussians that a camera sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ..._errors import ArgumentError, ShapeError, refusal
from ._gradients import evaluate_closure, gradient


class SelectiveAdam(torch.optim.Optimizer):
    """Adam that updates the visible rows of its parameters, and leaves the others and their moments unchanged.

    With g the gradient of a row, and t the number of steps in which the row was visible, including this one:

        m := beta1 * m + (1 - beta1) * g
        v := beta2 * v + (1 - beta2) * g**2
        w := w - lr * (m / (1 - beta1**t)) / (sqrt(v / (1 - beta2**t)) + eps)

    When all rows are visible in each step, this is `torch.optim.Adam`. (gsplat's optimizer of this name does not
    debias the moments: its first steps are up to 1 / sqrt(1 - beta2) times smaller or larger.)

    Args:
        params: parameters, or groups with `lr` and other options; each (rows, ...), all with the same number of rows.
        eps: added to the denominator.
        betas: the decay rates of the two moments.
        lr: learning rate of groups without their own.

    Example:
        >>> weights = torch.nn.Parameter(torch.zeros(3, 2))
        >>> optimizer = ts.render.gaussians.SelectiveAdam([weights], eps=1e-8, betas=(0.9, 0.999), lr=0.5)
        >>> weights.sum().backward()
        >>> optimizer.step(visibility=torch.tensor([True, False, True]))
        >>> weights[:, 0]
        tensor([-0.5000,  0.0000, -0.5000], grad_fn=<SelectBackward0>)
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor] | Iterable[dict[str, Any]],
        eps: float = 1e-8,
        betas: tuple[float, float] = (0.9, 0.999),
        lr: float = 1e-3,
    ) -> None:
        if not (eps >= 0 and lr >= 0 and all(0 <= beta < 1 for beta in betas)):
            rows = [("eps", repr(eps), "0 or more"), ("betas", repr(betas), "0 or more, below 1"), ("lr", repr(lr))]
            raise ArgumentError(refusal("SelectiveAdam cannot be made with these numbers", rows))
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps})

    @torch.no_grad()
    def step(  # type: ignore[override]  # gsplat's signature: what is visible comes first
        self, visibility: torch.Tensor | None = None, closure: Callable[[], Any] | None = None
    ) -> Any:
        """Run one optimization step of the visible rows.

        Args:
            visibility: (rows), bools, or numbers that are 0 for rows that are not visible; None for all rows.
            closure: called first, if passed; its value is returned.

        Raises:
            ShapeError: a parameter and `visibility` differ in the number of rows. No parameter is changed.
        """
        loss = evaluate_closure(closure)
        steps = [
            (group, parameter, grad)
            for group in self.param_groups
            for parameter in group["params"]
            if (grad := gradient(parameter)) is not None
        ]
        rows = None if visibility is None else _visible_rows(visibility, [parameter for _, parameter, _ in steps])
        for group, parameter, grad in steps:
            self._update(parameter, grad, group, rows)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned. (torch's own method would convert the step counts to floats.)"""
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state["steps"] = state["steps"].to(torch.int64)

    def _update(
        self, parameter: torch.Tensor, grad: torch.Tensor, group: Mapping[str, Any], rows: torch.Tensor | None
    ) -> None:
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["steps"] = torch.zeros(len(parameter), dtype=torch.int64, device=parameter.device)
        whole = (grad, state["exp_avg"], state["exp_avg_sq"], state["steps"])
        g, m, v, steps = whole if rows is None else (part.index_select(0, rows) for part in whole)
        beta1, beta2 = group["betas"]
        steps = steps + 1
        m = torch.lerp(m, g, 1 - beta1)
        v = torch.lerp(v, g * g, 1 - beta2)
        t = steps.double().view(-1, *[1] * (parameter.ndim - 1))
        rate = (group["lr"] / (1 - beta1**t)).to(v.dtype)
        debias = (1 - beta2**t).sqrt().to(v.dtype)
        change = rate * m / (v.sqrt() / debias + group["eps"])
        for old, new in zip(whole[1:], (m, v, steps), strict=True):
            old.copy_(new) if rows is None else old.index_copy_(0, rows, new)
        parameter.sub_(change) if rows is None else parameter.index_add_(0, rows, change, alpha=-1)


def _visible_rows(visibility: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
    for parameter in parameters:
        if visibility.numel() != len(parameter):
            rows = [
                ("visibility", f"[rows] = {tuple(visibility.shape)}"),
                ("parameter", str(tuple(parameter.shape)), f"has {len(parameter)} rows"),
            ]
            raise ShapeError(refusal("`visibility` does not match a parameter of SelectiveAdam", rows))
    return visibility.flatten().nonzero()[:, 0]
