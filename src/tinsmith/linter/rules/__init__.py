"""Rules: each looks at one kernel and says what it finds."""

from ._all_rules import OUTSIDE, RACES, RULES, Rule

__all__ = ["OUTSIDE", "RACES", "RULES", "Rule"]
