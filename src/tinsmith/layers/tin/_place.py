"""Place: checks that a layer's fields and its device agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..._errors import ArgumentError, DeviceError, RegistrationError, refusal
from ..fields import LayerField


def resolve_device(device: Any, layer: str) -> torch.device | None:
    """Convert a user's device to torch's; None stays None. Raises ArgumentError."""
    try:
        return None if device is None else torch.device(device)
    except (TypeError, RuntimeError) as cause:
        words = f"`device` of {layer} is not a device of torch"
        remedy = "Pass torch.device('cpu'), or leave it out."
        if callable(device):
            remedy += " A kernel is given by `.register_kernel(...)`."
        raise ArgumentError(refusal(words, [("got", repr(device))], remedy)) from cause


def check_place(fields: Sequence[LayerField], device: torch.device | None, layer: str) -> None:
    """Raise RegistrationError for fields of several engines, and DeviceError where theirs does not run on `device`."""
    if len({one.engine for one in fields}) > 1:
        words = f"the fields of {layer} belong to several engines"
        rows = [(one.name, one.engine.name) for one in fields]
        raise RegistrationError(refusal(words, rows, "Make all of them with the engine of its kernels."))
    runs_on = fields[0].engine.device_type()
    if device is not None and device.type != runs_on:
        words = f"{layer} was made for {device}, and its engine runs on {runs_on}"
        raise DeviceError(refusal(words, remedy=f"Start the engine there: ts.init({device.type!r})."))
