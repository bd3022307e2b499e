"""Scans: checks the gradient of a long simulation, how it grows, and where numbers stop being finite."""

from ._check import check_scan
from ._non_finite import describe_origin
from ._result import Horizon, ScanCheck

__all__ = ["Horizon", "ScanCheck", "check_scan", "describe_origin"]
