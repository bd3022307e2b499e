"""An op run by the interpreter, connected with its inputs in torch's autograd, whatever mode that is in."""

from __future__ import annotations

from typing import Any

import torch

from tinsmith.bridge._oracle import called, followed


def interpreted(op: Any, *inputs: Any, faithful: bool = False, **sizes: int) -> tuple[torch.Tensor, ...]:
    """Outputs of a call. What `ts.oracle` gives, before it differentiates: tests do that as they please."""
    bound, route = called(op, inputs, sizes)
    return tuple(followed(bound, route, {}, faithful=faithful).values())
