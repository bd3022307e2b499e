"""The Python engine: kernels run as Python, for debuggers and tests."""

from ._engine import MANY_ELEMENTS, Python, hide_frames

__all__ = ["MANY_ELEMENTS", "Python", "hide_frames"]
