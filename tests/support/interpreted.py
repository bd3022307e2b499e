"""An op run by the interpreter, connected with its inputs in torch's autograd, whatever mode that is in."""

from __future__ import annotations

from typing import Any

import torch

from tinsmith.bridge._oracle import bind_call, interpret_call


def interpreted(op: Any, *inputs: Any, faithful: bool = False, **sizes: int) -> tuple[torch.Tensor, ...]:
    """Outputs of a call. What `ts.oracle` gives, before it differentiates: tests do that as they please."""
    bound, route = bind_call(op, inputs, sizes)
    return tuple(interpret_call(bound, route, {}, faithful=faithful).values())
