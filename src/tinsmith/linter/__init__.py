"""Lint: static analysis of kernels, given as objects or in files that are not run.

A kernel becomes a `Subject`; rules look at it, one idea each, and say `Finding`s. Nothing here knows ops.
"""

from ._contents import FileContents, Showable, describe_file, find_showable
from ._finding import SEVERITIES, Finding, Severity, drop_suppressed, in_order, not_run
from ._lint import find_certain_mistakes, lint_file, lint_kernels
from ._rules import RULES, Rule
from ._source_form import Cuts
from ._subject import ENGINES
from .rules import OUTSIDE, RACES

__all__ = [
    "Cuts",
    "ENGINES",
    "FileContents",
    "Finding",
    "OUTSIDE",
    "RACES",
    "RULES",
    "Rule",
    "SEVERITIES",
    "Severity",
    "Showable",
    "describe_file",
    "drop_suppressed",
    "find_certain_mistakes",
    "find_showable",
    "in_order",
    "lint_file",
    "lint_kernels",
    "not_run",
]
