"""Tokens: the words and signs of a spec, passed one by one from left to right.

This file knows which characters the language has, and what to say of the others. What may follow
what is the grammar's business, in `_parse`.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from .._errors import SpecError, point_at, refusal

EXAMPLE = "x[n], k[m] -> y[n - m + 1]"
COMPUTED = "Sizes are computed with + - * // and parentheses; pass any other by keyword: `y[m]`, called with m=..."

_TOKEN = re.compile(
    r"""\s*(?: (?P<word>[^\W\d]\w*(?:\.[^\W\d]\w*)*)    # with full stops, so that `torch.float32` is met whole
             | (?P<fraction>\d+\.\d+)
             | (?P<integer>\d+(?:_\d+)*)
             | (?P<stranger>-{2,}>|=>|\*\*|\.\.(?!\.))
             | (?P<sign>->|//|\.\.\.|[][(),:*+-])
             | (?P<unknown>\S)
             | (?P<end>\Z) )""",
    re.VERBOSE,
)
_REMEDIES = {
    "/": "Write `//`: sizes are divided as whole numbers.",
    "**": "Write `n * n` for a square; a batch is `*b`, with one star.",
    ";": "Write `,` between items.",
    ".": "Write `...` for any number of dims.",
    "=": "Write a size alone, `x[3]`, or give it a name, `x[n]`.",
    "?": "Write `_` for a dim of any size.",
    **dict.fromkeys(("=>", "-->", "--->", "→", "⇒"), "Write the arrow as `->`."),
    **dict.fromkeys(("..", "…"), "Write `...`, three full stops, for any number of dims."),
    **dict.fromkeys(("'", '"'), "Write names without quotes."),
    **dict.fromkeys("{}<>", "Write the dims in square brackets: `x[n]`."),
    **dict.fromkeys("%^@&|~!", COMPUTED),
}


class Token(NamedTuple):
    """One word or sign; the last of a text is empty."""

    kind: str
    text: str
    start: int

    def __str__(self) -> str:
        return f"`{self.text}`" if self.text else "the end"


class Tokens:
    """A text and the place in it that has been reached."""

    def __init__(self, text: str) -> None:
        self._text = text
        matches = [(match.lastgroup or "", match) for match in _TOKEN.finditer(text)]
        self._tokens = [Token(kind, match[kind], match.start(kind)) for kind, match in matches]
        self._position = 0

    @property
    def here(self) -> Token:
        """The next token; refused when it is none of the language."""
        token = self._tokens[self._position]
        if token.kind == "fraction":
            self.refuse(f"{token} is not an integer.", "Write sizes as whole numbers.")
        if token.kind in ("stranger", "unknown"):
            self.refuse(
                f"{token} has no meaning in a spec.", _REMEDIES.get(token.text, f"Write a spec as in `{EXAMPLE}`.")
            )
        return token

    @property
    def last(self) -> Token:
        """The token that was passed before."""
        return self._tokens[self._position - 1]

    def next(self) -> Token:
        """Pass a token, and have it."""
        token = self.here
        self._position += 1
        return token

    def took(self, text: str) -> bool:
        """Pass the next token if it is this one."""
        is_here = self.here.text == text
        self._position += is_here
        return is_here

    def refuse(self, headline: str, remedy: str, at: Token | None = None) -> NoReturn:
        """Raise SpecError with a caret under a token, by default the next."""
        start = (at or self._tokens[self._position]).start
        raise SpecError(refusal(headline, point_at(self._text, start), remedy))
