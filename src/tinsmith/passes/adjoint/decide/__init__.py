"""The second step of the adjoint: the table of where each reverse takes its values from."""

from ._decide import decide_sources, decide_task

__all__ = ["decide_sources", "decide_task"]
