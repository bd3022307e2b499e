"""Rules: each looks at one kernel and says what it finds."""

from ._all_rules import RULES, Rule

__all__ = ["RULES", "Rule"]
