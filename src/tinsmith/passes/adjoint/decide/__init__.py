"""The second step of the adjoint: the table of where each reverse takes its values from."""

from ._decide import Planned, decide_sources, decide_task

__all__ = ["Planned", "decide_sources", "decide_task"]
