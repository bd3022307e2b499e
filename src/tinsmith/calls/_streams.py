"""Ordering an engine's CUDA work with torch's.

Both engines launch on the legacy default stream, which torch's side streams do not wait
for. So when torch's current stream is another one, the default stream is made to wait for
it before the launch, and it for the default stream after.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def keep_order(device: torch.device) -> Iterator[None]:
    """Launches within come after all work on torch's current stream and before all later work."""
    if device.type != "cuda":
        yield
        return
    current = torch.cuda.current_stream(device)
    default = torch.cuda.default_stream(device)
    if current == default:
        yield
        return
    default.wait_stream(current)
    yield
    current.wait_stream(default)
