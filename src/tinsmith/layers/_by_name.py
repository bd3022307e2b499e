"""Calls of a layer that pass tensors by keyword, which layers do not take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._errors import ArgumentError, refusal


def build_by_name_error(layer: str, inputs: Sequence[str], named: Iterable[str]) -> ArgumentError:
    """Build the error for a call of a layer with keywords.

    Args:
        layer: what the message calls the layer.
        inputs: the names of its inputs, in order.
        named: the keywords.
    """
    rows = [("inputs", ", ".join(inputs)), ("got", f"{', '.join(named)} by name")]
    remedy = "Pass one tensor for each input, in the order of registration, without its name."
    return ArgumentError(refusal(f"{layer} takes its inputs in order, not by name", rows, remedy))
