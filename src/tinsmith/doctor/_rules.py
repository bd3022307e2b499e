"""Rules, by the name that this room knows them by."""

from ..lint import RULES, Rule

__all__ = ["RULES", "Rule"]
