"""The list of private facts that we lean on, checked against the engines installed here."""

from __future__ import annotations

from ._contract import Probe
from ._registry import get, installed


def probes() -> tuple[Probe, ...]:
    """Check every private fact of every installed engine. Imports them."""
    return tuple(probe for name in installed() for probe in get(name).probe())
