"""Rules: each looks at one kernel and says what it finds."""

from ._all_rules import CERTAIN, RULES, Rule

__all__ = ["CERTAIN", "RULES", "Rule"]
