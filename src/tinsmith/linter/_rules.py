"""Rules: every one that a finding can name, the selection of some by ids and prefixes, and their pages."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .._errors import InputError, nearest, refusal


class Rule(NamedTuple):
    """A rule: its id, a name for people and scanners, and what it finds."""

    id: str
    name: str
    about: str


_ALL = (
    # What could not be checked: without these rules a report would look clean
    Rule("TS001", "not-python", "a file that is not Python, or has a syntax error"),
    Rule("TS002", "not-run", "a file, an example or a part of the check that could not be run"),
    # Memory, from the source
    Rule("TS101", "value-overwritten", "a value is read, and overwritten later in the same launch"),
    Rule("TS102", "updated-in-place", "an array is changed in place from its own values"),
    Rule("TS103", "input-written", "an input of the op is written"),
    Rule("TS104", "output-read-before-written", "an output is read before the kernel writes it"),
    Rule("TS105", "racing-stores", "parallel iterations store to one element without an atomic"),
    Rule("TS106", "racing-read", "a parallel iteration reads what another one writes"),
    Rule("TS107", "steered-by-changed-value", "a value that the kernel changes decides control flow or an index"),
    Rule(
        "TS108", "state-of-the-outermost-loop", "the outermost serial loop carries state from one iteration to the next"
    ),
    Rule("TS109", "index-certainly-outside", "an index that is outside its array for every size"),
    # Control flow
    Rule("TS201", "mixed-top-level", "statements beside loops at the kernel's top level"),
    Rule("TS202", "while-loop", "a `while` in a differentiated kernel"),
    Rule("TS203", "early-exit", "`break` or `continue` in a differentiated kernel"),
    Rule(
        "TS204", "deep-carrying-loop", "a loop carries locals through more iterations than a gradient stack has entries"
    ),
    Rule("TS205", "changed-loop-variable", "the body of a loop changes the loop's variable"),
    # Numbers
    Rule("TS301", "silent-truncation", "an integer variable is given a float, whose fraction is lost"),
    Rule("TS302", "gradient-through-integer", "a value that has a gradient is cast to an integer"),
    Rule(
        "TS303", "singular-function", "a function at a point where its slope is infinite or undefined, without a guard"
    ),
    Rule("TS304", "half-precision-sum", "many small numbers are added up in half precision"),
    Rule("TS305", "single-precision-literal", "a float literal makes a local less precise than the arrays are"),
    Rule("TS306", "known-division", "a division of a negative integer that is known when the kernel is compiled"),
    # Mistakes of the engines' reverse modes
    Rule("TS401", "atomic-without-gradient", "an atomic other than an addition, whose gradient engines get wrong"),
    Rule("TS402", "atomic-result", "the return value of an atomic is used"),
    Rule("TS403", "random-number", "a random number in a differentiated kernel"),
    Rule("TS404", "unkept-result", "exp, tanh or rsqrt in an inner loop, beside locals or loads outside it"),
    Rule("TS405", "unkept-operand", "min or max of a local that a loop carries, or in an inner loop beside loads"),
    Rule("TS406", "carried-vector", "a vector or matrix that a loop rebuilds from itself"),
    Rule("TS407", "function-without-rule", "a function that an engine cannot differentiate"),
    Rule("TS408", "kernel-returns", "a kernel that returns a value"),
    Rule("TS409", "baked-in-number", "a Python number that is compiled into the kernel as a constant"),
    Rule("TS410", "scalar-without-gradient", "a float argument that is a number, and so gets no gradient"),
    Rule("TS411", "lost-iterations", "an inner loop uses a local from outside; engines add its gradient only once"),
    Rule("TS412", "unkept-decision", "a branch, or the bound of a loop, in an inner loop, beside loads outside it"),
    # Hygiene
    Rule("TS501", "unused-parameter", "a parameter that the kernel does not use"),
    Rule("TS502", "not-analyzed", "something that tinsmith cannot analyze, so it is not checked"),
    Rule("TS503", "parameter-hides-global", "a parameter hides a number or field of the file, and is always given 0"),
    Rule("TS504", "dropped-arithmetic", "unused arithmetic on the return value of an atomic"),
    # Found by the sanitizer in a run
    Rule("TS601", "race", "two parallel iterations touch one element, and one of them writes it"),
    Rule("TS602", "read-of-nothing", "an element is read before it is written"),
    Rule("TS603", "overwritten-after-read", "a value is overwritten after it was read"),
    Rule("TS604", "index-outside", "an index outside its array, or negative"),
    Rule("TS605", "integer-overflow", "an integer result that its type cannot hold"),
    Rule("TS606", "not-finite", "the operation in which a NaN or infinity first appears"),
    Rule("TS607", "division-by-zero", "an integer is divided by zero"),
    Rule("TS608", "not-interpreted", "something that the interpreter cannot run"),
    Rule("TS609", "narrow-local", "a local that begins as a literal, or a `vec3`, rounds float64 values to float32"),
    Rule("TS610", "never-written", "an element of an uninitialized output is never written"),
    Rule("TS611", "broken-promise", "an input breaks a promise of the spec: equal numbers, or segments that overlap"),
    # The gradient check
    Rule("TS701", "wrong-gradient", "the op's gradient is wrong"),
    Rule("TS702", "no-derivative", "the function has no derivative at this point"),
    Rule("TS703", "gradient-refused", "the op has no gradient, and raises an error that says why"),
    Rule("TS704", "value-differs", "the op returns other values than its source says, or different ones in each call"),
    Rule("TS705", "only-zeros", "every derivative by an input is 0, so the gradient check has nothing to compare"),
    # Around kernels
    Rule("TS801", "hand-written-function", "`kernel.grad` in a hand-written `torch.autograd.Function`"),
)

RULES: dict[str, Rule] = {rule.id: rule for rule in _ALL}
"""By id."""
NOT_LOOKED_AT = frozenset({"TS001", "TS002"})
"""The rules for files and parts that could not be checked."""


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


_HERE = Path(__file__).resolve()
_FOLDERS = (_HERE.parent / "pages", _HERE.parents[3] / "docs" / "reference" / "lint")
"""Where the pages are: in an installed package, and in a checkout. pyproject.toml copies them into wheels."""
_END = "\n\nAll rules: ["


def read_rule_page(rule: str) -> str:
    """Return the page of a rule as Markdown: what it finds, why that matters, a wrong kernel and a right one.

    Args:
        rule: the id of the rule.

    Raises:
        InputError: this installation has no pages.
    """
    for folder in _FOLDERS:
        file = folder / f"{rule}.md"
        if file.is_file():
            return file.read_text("utf-8").partition(_END)[0].rstrip() + "\n"
    rows = [("looked in", str(folder)) for folder in _FOLDERS]
    raise InputError(refusal(f"the page of {rule} is missing", rows, "Install tinsmith again."))
