"""Checks of a kernel and its gradient: static analysis, an interpreted run, and a comparison of derivatives."""

from .. import _offers
from ..linter import RULES, Finding, lint_file
from ._baseline import apply_baseline, write_baseline
from ._check import check, check_example, check_file
from ._examples import find_ops_in, find_ops_of, find_ops_with_examples
from ._gradcheck import gradcheck
from ._gradcheck_result import Gradcheck
from ._lint import lint
from ._records import as_json, as_sarif
from ._report import Report, join_reports
from ._terminal import plain, render_report
from .sanitize import sanitize
from .scans import ScanCheck, check_scan, describe_origin

__all__ = [
    "Finding",
    "Gradcheck",
    "RULES",
    "Report",
    "ScanCheck",
    "apply_baseline",
    "as_json",
    "as_sarif",
    "check",
    "check_example",
    "check_file",
    "check_scan",
    "describe_origin",
    "find_ops_in",
    "find_ops_of",
    "find_ops_with_examples",
    "gradcheck",
    "join_reports",
    "lint",
    "lint_file",
    "plain",
    "render_report",
    "sanitize",
    "write_baseline",
]

_offers.checking.register(check)
_offers.checking_scan.register(check_scan)
_offers.describing_origin.register(describe_origin)
