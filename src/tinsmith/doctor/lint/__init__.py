"""Lint."""

from ...lint import lint_file
from .._lint import lint

__all__ = ["lint", "lint_file"]
