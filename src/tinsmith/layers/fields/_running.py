"""Running: creates the program of a layer's registered parts, on fields or on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..._errors import refusal
from ..._user_warnings import warn
from ...operation import Adjoint
from ._as_op import OpProgram
from ._layer_field import LayerField
from ._on_fields import OnFields
from ._roles import Habits, Launch, Roles, check_memory
from ._starts import Starts
from ._transfer import read

Running: TypeAlias = OpProgram | OnFields
"""From kernels with their arguments and the memory of filled fields to that of outputs."""


def make_running(
    layer: str, roles: Roles, launches: Sequence[Launch], habits: Habits, adjoint: Adjoint, *, on_tensors: bool
) -> Running:
    """Build what runs a layer's calls. Warn of fields that may not start a call as a user expects.

    Raises:
        KernelError, GradientError: the kernels cannot run on tensors, where they are to.
    """
    check_memory(layer, roles, launches)
    starts = Starts(roles, launches, habits)
    running: Running = (
        OpProgram(layer, roles, launches, cleared=starts.fields_at_zero, adjoint=adjoint)
        if on_tensors
        else OnFields(layer, roles, launches, habits, adjoint)
    )
    # Only now: kernels that cannot run are refused, whatever there is to warn of.
    warn_of_unwritten_outputs(layer, starts, launches)
    warn_of_unused_inputs(layer, starts)
    _warn_of_values(layer, starts)
    if not on_tensors:
        warn_of_sums(layer, starts, starts.accumulators)
    return running


def warn_of_unwritten_outputs(layer: str, starts: Starts, launches: Sequence[Launch]) -> None:
    """Warn of results that no kernel computes: most often another field was meant."""
    for one in starts.unwritten_outputs:
        words = f"no kernel of {layer} writes its output `{one.name}`: each call returns what the field holds"
        kernels = ", ".join(dict.fromkeys(launch.launcher.stage.name for launch in launches))
        remedy = "Register the field that they write, or the kernel that writes this one."
        warn(refusal(words, [*starts.describe_field(one), ("kernels", kernels)], remedy))


def warn_of_unused_inputs(layer: str, starts: Starts) -> None:
    """Warn of inputs and weights whose values nothing computes with: most often another field was meant."""
    for one in starts.unused_inputs:
        words = f"no kernel of {layer} uses the values of its input `{one.name}`: it has no effect, and no gradient"
        remedy = "Pass the field that the kernels read as this input, or leave it out."
        warn(refusal(words, starts.describe_field(one), remedy))


def _warn_of_values(layer: str, starts: Starts) -> None:
    """Warn where clearing an output, which nobody asked for, loses what somebody put there."""
    for one in starts.cleared_by_default:
        if read(one, layer).any():
            words = f"{layer} sets its output `{one.name}` to zero before each call, and it holds values now"
            remedy = "Register it with clear=False to add to them, or with clear=True if they do not matter."
            warn(refusal(words, starts.describe_field(one), remedy))


def warn_of_sums(
    layer: str,
    starts: Starts,
    fields: Sequence[LayerField],
    remedy: str = "Register it with clear=True to start each call at zero, or with clear=False if the sum is to go on.",
) -> None:
    """Warn of fields that add up from call to call, though nobody asked for that."""
    for one in fields:
        words = f"kernels of {layer} add to the field `{one.name}`, which is never cleared: its sum grows in each call"
        warn(refusal(words, starts.describe_field(one), remedy))
