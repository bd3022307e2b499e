"""The sanitizer: interprets kernels at small sizes, and reports what goes wrong in the run."""

from ._dry_run import HAZARDS, DryRun, dry_run, is_hazard
from ._sanitize import sanitize

__all__ = [
    "DryRun",
    "HAZARDS",
    "dry_run",
    "is_hazard",
    "sanitize",
]
