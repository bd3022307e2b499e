"""Selection: which rules a check reports, chosen by ids and prefixes of ids, as in `TS105` and `TS1`."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from .._errors import InputError, nearest, refusal
from ._rules import NOT_LOOKED_AT, RULES

ALL = "ALL"
"""The prefix of every rule."""


@dataclass(frozen=True)
class RuleSelection:
    """The rules to report: those that `select` matches and `ignore` does not.

    Where both match, the longer prefix decides, and `ignore` if they are equal. TS001 and TS002 say what could not be
    checked, so they are always reported.

    Attributes:
        select: ids and prefixes of rules, or "ALL".
        ignore: the same, of rules to leave out.

    Example:
        >>> chosen = RuleSelection(("TS1", "TS303"), ("TS105",))
        >>> [chosen.includes(rule) for rule in ("TS101", "TS105", "TS303", "TS301")]
        [True, False, True, False]
    """

    select: tuple[str, ...] = (ALL,)
    ignore: tuple[str, ...] = ()

    def includes(self, rule: str) -> bool:
        """Return True if findings of a rule are reported."""
        return rule in NOT_LOOKED_AT or _match_length(rule, self.select) > _match_length(rule, self.ignore)


@functools.cache
def _match_length(rule: str, prefixes: tuple[str, ...]) -> int:
    """Return the length of the longest prefix that matches a rule: 0 for ALL, -1 if none does."""
    return max([0 if one == ALL else len(one) for one in prefixes if one == ALL or rule.startswith(one)], default=-1)


def parse_prefixes(words: Iterable[str], origin: str, *, are_ignored: bool) -> tuple[str, ...]:
    """Return ids and prefixes of rules without the spaces around them.

    Args:
        words: one or more of them each, separated by commas.
        origin: the option or setting that they come from, for the error.
        are_ignored: whether they name rules to leave out.

    Raises:
        InputError: one matches no rule, or names only rules that are always reported.
    """
    prefixes = tuple(part.strip() for word in words for part in word.split(",") if part.strip())
    for one in prefixes:
        matched = {rule for rule in RULES if one == ALL or rule.startswith(one)}
        if not matched:
            remedy = f"{_suggest_rule(one)}Write one rule, as TS105, the beginning of several, as TS1, or ALL."
            raise InputError(refusal(f"{origin} got `{one}`, which matches no rule", [], remedy))
        if are_ignored and matched <= NOT_LOOKED_AT:
            words_of_error = f"{origin} got `{one}`, which cannot be ignored: it says what could not be checked"
            remedy = "Leave the file out of the check: `exclude` in [tool.tinsmith.check] of pyproject.toml."
            raise InputError(refusal(words_of_error, [], remedy))
    return prefixes


def find_rule(word: str) -> str:
    """Return the id of the rule that has this id or name.

    Raises:
        InputError: there is none.
    """
    ids = {rule.id: rule.id for rule in RULES.values()} | {rule.name: rule.id for rule in RULES.values()}
    known = {name.lower(): one for name, one in ids.items()}
    if word.lower() not in known:
        remedy = _suggest_rule(word) or "`tinsmith rule` lists all of them."
        raise InputError(refusal(f"there is no rule `{word}`", [], remedy.rstrip()))
    return known[word.lower()]


def _suggest_rule(word: str) -> str:
    """Return the question whether another rule was meant, by its id; "" if none is similar."""
    by_name = {rule.name: rule.id for rule in RULES.values()}
    guess = nearest(word, [*RULES, *by_name])
    guess = by_name.get(guess, guess)
    return f"Did you mean `{guess}`? " if guess else ""
