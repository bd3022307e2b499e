"""Ordering an engine's CUDA work with torch's.

Both engines launch on the legacy default stream, which torch's side streams do not wait
for. So when torch's current stream is another one, the default stream is made to wait for
it before the launch, and it for the default stream after.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


def in_order(device: torch.device, launch: Callable[[], None]) -> None:
    """Run `launch` so that it comes after all work on torch's current stream and before all later work."""
    if device.type != "cuda":
        launch()
        return
    current = torch.cuda.current_stream(device)
    default = torch.cuda.default_stream(device)
    if current == default:
        launch()
        return
    default.wait_stream(current)
    launch()
    current.wait_stream(default)
