"""Limits torch's threads so that they do not disturb an engine's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Enter a context in which torch's CPU operations run on the calling thread. An engine keeps its own threads.

    Torch's OpenMP threads spin for a while after every operation. In a loop that alternates between small torch
    operations and kernels, they take the cores from the engine's threads, and from each other at every barrier.
    Measured on 2 cores, a step of fit-image (torch's share: 0.3 ms) takes 10 ms either way on a quiet machine, but 24
    ms instead of 130 to 250 ms beside two other busy processes. The function of each app is decorated,
    since the checks before the first step take as long then.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
