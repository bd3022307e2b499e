"""The table behind the pages of lint rules: why each matters, a kernel that it names, one that it does not."""

from . import engines, flow, memory, numbers, other, runs
from .row import Row

ROWS: dict[str, Row] = {row.rule: row for part in (other, memory, flow, numbers, engines, runs) for row in part.ROWS}
"""By rule."""
