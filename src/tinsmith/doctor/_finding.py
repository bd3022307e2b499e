"""Findings, by the name that this room knows them by."""

from ..lint import SEVERITIES, Finding, Severity, in_order

__all__ = ["SEVERITIES", "Finding", "Severity", "in_order"]
