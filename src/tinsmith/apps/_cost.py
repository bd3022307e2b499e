"""Cost: lower bounds of a run's memory and time, and an error for a run that this machine cannot finish.

The bounds are generous, a tenth of the measurements on two slow cores: a run that is refused here would certainly be
killed by the system, or take months. A run within the bounds may still be too large.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from .._errors import InputError, refusal

_LONGEST = 30 * 86400.0  # seconds
_GPU_SPEED = 1000.0  # upper bound of a GPU's speed, as a multiple of two cores' speed
_UNITS = ((86400.0 * 365, "years"), (86400.0, "days"), (3600.0, "hours"))


@dataclass(frozen=True)
class Cost:
    """A lower bound of a run's cost: bytes of memory at one time, seconds on two CPU cores."""

    memory: float
    seconds: float


def require_affordable(cost: Cost, device: str, **options: object) -> None:
    """Raise InputError if a run needs more memory than its device has free, or more than 30 days.

    Args:
        cost: the cost of the run.
        device: "cpu" or "cuda".
        options: the options that the cost grows with, by name, for the message.
    """
    seconds = cost.seconds / (_GPU_SPEED if device == "cuda" else 1.0)
    free = _find_free_memory(device)
    rows = [(f"--{name.replace('_', '-')}", f"{value}") for name, value in options.items()]
    rows += [("memory", _format_size(cost.memory)), ("time", f"at least {_format_duration(seconds)}")]
    remedy = f"Choose {'a smaller value' if len(options) == 1 else 'smaller values'}."
    if cost.memory > free:
        words = f"the run needs more memory than the {free / 1e9:.0f} GB that are free"
        raise InputError(refusal(words, rows, remedy))
    if seconds > _LONGEST:
        raise InputError(refusal("the run would take too long", rows, remedy))


def _find_free_memory(device: str) -> float:
    """Return the free memory of a device in bytes; infinity if the system does not report it."""
    if device == "cuda":
        return float(torch.cuda.mem_get_info()[0])
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        [available] = [line for line in lines if line.startswith("MemAvailable:")]
        return 1024.0 * int(available.split()[1])
    except (OSError, ValueError):  # not on Linux
        try:
            return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        except (AttributeError, OSError, ValueError):  # Windows
            return float("inf")


def _format_size(size: float) -> str:
    return f"at least {size / 1e9:,.0f} GB" if size >= 1e9 else "less than 1 GB"


def _format_duration(seconds: float) -> str:
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds / 60:,.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
