"""The sanitizer: kernels interpreted at small sizes, and what went wrong in the run."""

from ._columns import Columns
from ._look import HAZARDS, Look, describe_lines, is_hazard, look
from ._sanitize import sanitize

__all__ = ["Columns", "HAZARDS", "Look", "describe_lines", "is_hazard", "look", "sanitize"]
