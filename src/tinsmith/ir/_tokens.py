"""Tokens of a kernel's text, and the expressions that they are: the part of `_parser` below statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

from . import _nodes as nodes
from . import _types as types
from ._operators import BINARY, UNARY, AtomicOperator, Operator, VoteOperator
from ._printer import DEFAULTS, PRECEDENCE
from ._types import Type

Word = TypeVar("Word", Type, Operator, AtomicOperator, VoteOperator)

# Of the signs, the first that matches is taken, so the longer ones stand first. A number has no sign:
# `LineTokens.number` reads `-`.
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|\d+)
  | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
  | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<sign>\.\.|>>>|>>|<<|<=|>=|==|!=|//|[-+*/%&|^<>=(),.:\[\]{}~;])
)""",
    re.VERBOSE,
)
_LINE = re.compile(r"(?P<indent> *)(?P<text>.*?)(?:  @(?P<line>\d+))?$")


class TextError(ValueError):
    """A text is not that of a kernel."""


@dataclass(frozen=True)
class TextLine:
    """A line of the text: its number there, its indentation, what it says, and its line in the source."""

    number: int
    indent: int
    text: str
    source: int

    @classmethod
    def split(cls, number: int, line: str) -> TextLine:
        """Split a line of a kernel's text into its indentation, its statement and the source line that it names."""
        match = _LINE.match(line.rstrip())
        assert match is not None
        return cls(number, len(match["indent"]), match["text"], int(match["line"] or 0))

    def fail(self, words: str) -> NoReturn:
        raise TextError(f"line {self.number}: {words}: {self.text}")

    def one_of(self, kind: type[Word], word: str) -> Word:
        """Return the member of an enum whose value is `word`. Raise TextError if it has none."""
        try:
            return kind(word)
        except ValueError:
            self.fail(f"`{word}` is none of {', '.join(kind)}")


def read_value(text: str) -> Any:
    """Read a text, a number, None, or a tuple of these, as Python writes them."""
    text = text.strip()
    if text[:1] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text.startswith("("):
        return tuple(read_value(part) for part in text[1:-1].split(",") if part.strip())
    return None if text == "None" else int(text)


@dataclass
class DeclaredNames:
    """What the names in a text stand for, as far as it was read."""

    arrays: dict[str, nodes.Array] = field(default_factory=dict)
    arguments: dict[str, tuple[Type, tuple[int, ...]]] = field(default_factory=dict)
    locals: dict[str, Type] = field(default_factory=dict)
    local_arrays: dict[str, Type] = field(default_factory=dict)
    loop_variables: set[str] = field(default_factory=set)

    def has_number(self, name: str) -> bool:
        """Return True for an argument, a local, or a variable of a loop."""
        return name in self.arguments or name in self.locals or name in self.loop_variables

    def has_array(self, name: str) -> bool:
        """Return True for an array of the kernel or of an iteration."""
        return name in self.arrays or name in self.local_arrays


class LineTokens:
    """The tokens of one line, and the expressions in it."""

    def __init__(self, line: TextLine, known: DeclaredNames) -> None:
        self.line = line
        self.known = known
        self.tokens = [*_split(line)]
        self.place_ahead = 0

    # Tokens -----------------------------------------------------------------------------------

    @property
    def ahead(self) -> str:
        """The next token; "" at the end."""
        return self.tokens[self.place_ahead] if self.place_ahead < len(self.tokens) else ""

    @property
    def behind(self) -> str:
        """The token after the next; "" at the end."""
        return self.tokens[self.place_ahead + 1] if self.place_ahead + 1 < len(self.tokens) else ""

    def take(self) -> str:
        token = self.ahead
        if not token:
            self.line.fail("the line ends too early")
        self.place_ahead += 1
        return token

    def begins(self, *words: str) -> bool:
        """Return True if the next token is one of some words and begins what it stands for: it is no operand."""
        # No operand has a name behind it, unless that is an operator. `atomic and y[0], 1` has a second part.
        is_operator = self.behind in PRECEDENCE and not (self.ahead == "atomic" and self.has_parts)
        return self.ahead in words and self.behind.isidentifier() and not is_operator

    @property
    def has_parts(self) -> bool:
        """Whether a comma that stands in no brackets is ahead."""
        depth = 0
        for token in self.tokens[self.place_ahead :]:
            depth += (token in "([{") - (token in ")]}")
            if token == "," and not depth:
                return True
        return False

    def text(self) -> str:
        """Consume the next token, a string in quotes, and return the string."""
        return read_value(self.take())

    def one_of(self, kind: type[Word]) -> Word:
        """Consume the next token and return the member of the enum `kind` that it spells."""
        return self.line.one_of(kind, self.take())

    def type(self) -> Type:
        """Consume the next token, the name of a scalar type such as `f32`, and return the type."""
        return self.one_of(Type)

    def skip(self, token: str) -> bool:
        """Consume the next token if it equals `token`; return True if it did."""
        if self.ahead != token or not token:
            return False
        self.place_ahead += 1
        return True

    def expect(self, token: str) -> None:
        if not self.skip(token):
            self.line.fail(
                f"expected `{token}` " + (f"before `{self.ahead}`" if self.ahead else "at the end of the line")
            )

    def end(self) -> None:
        if self.ahead:
            self.line.fail(f"expected the end of the line, not `{self.ahead}`")

    def whole_number(self) -> int:
        token = self.take()
        if not token.isdigit():
            self.line.fail(f"expected an integer, not `{token}`")
        return int(token)

    def names(self) -> tuple[str, ...]:
        """Consume one or more names that are separated by commas, and return them."""
        names = [self.take()]
        while self.skip(","):
            names.append(self.take())
        return tuple(names)

    def list_until(self, token: str) -> tuple[nodes.Expr, ...]:
        """Parse expressions separated by commas up to `token`, which is consumed; to the end of the line if empty."""
        listed: list[nodes.Expr] = []
        while self.ahead != token:
            listed.append(self.expression())
            if not self.skip(","):
                break
        if token:
            self.expect(token)
        return tuple(listed)

    # Expressions ------------------------------------------------------------------------------

    def place(self) -> tuple[str, tuple[nodes.Expr, ...], tuple[int, ...]]:
        """Parse an element as in `x[i, j]{0}`; return its array, its index and the entry in a vector or matrix."""
        array = self.take()
        self.type_of(array)
        self.expect("[")
        return array, self.list_until("]"), self.entry()

    def entry(self) -> tuple[int, ...]:
        entry = []
        if self.skip("{"):
            while not self.skip("}"):
                entry.append(self.whole_number())
                self.skip(",")
        return tuple(entry)

    def expression(self, strength: int = 0) -> nodes.Expr:
        """Parse an expression whose operators bind at least so strongly."""
        left = self.operand()
        while PRECEDENCE.get(self.ahead, -1) >= strength:
            operator = self.one_of(Operator)
            # All operators bind to the left: what is on the right must bind more strongly.
            right = self.expression(PRECEDENCE[operator] + 1)
            left = nodes.Binary(operator, left, right, types.of_operation(operator, left.type, right.type, DEFAULTS))
        return left

    def operand(self) -> nodes.Expr:
        if self.skip("("):
            inner = self.expression()
            self.expect(")")
            return self.with_type(inner)
        # A `-` in front of an operand is the sign of a number: a negation is written `neg(x)`.
        # A local or an array of the user's may be called `inf`, too.
        is_declared = self.known.has_number(self.ahead) or self.known.has_array(self.ahead)
        is_number = self.ahead in ("inf", "nan", "true", "false") and not is_declared
        if self.ahead == "-" or self.ahead[:1].isdigit() or is_number:
            return self.number()
        name = self.take()
        if self.ahead == "(":
            return self.with_type(self.call(name))
        if not name.isidentifier():
            self.line.fail(f"expected an operand before `{name}`")
        # Behind a number, a bracket begins the options of a loop.
        if self.ahead == "[" and (self.known.has_array(name) or not self.known.has_number(name)):
            self.place_ahead -= 1
            array, index, entry = self.place()
            return nodes.Load(array, index, entry, self.type_of(array))
        if self.ahead == "." and self.behind == "shape":
            self.take()
            self.take()
            self.expect("[")
            axis = self.whole_number()
            self.expect("]")
            self.type_of(name)
            return self.with_type(nodes.Size(name, axis))
        if name in self.known.arguments:
            return nodes.Argument(name, self.known.arguments[name][0], self.entry())
        if not self.known.has_number(name):
            self.line.fail(f"`{name}` is not declared")
        return nodes.Local(name, self.known.locals.get(name, Type.I32))

    def type_of(self, array: str) -> Type:
        """Return the scalar type of an array. Raise TextError if the array is not declared."""
        if array in self.known.arrays:
            return self.known.arrays[array].type
        if array not in self.known.local_arrays:
            self.line.fail(f"`{array}` is not declared")
        return self.known.local_arrays[array]

    def with_type(self, expr: Any) -> Any:
        """Return an expression with the type that is written after it."""
        # A `:` also ends the first line of a branch or a loop.
        if self.ahead == ":" and self.behind:
            self.take()
            return replace(expr, type=self.type())
        return expr

    def number(self) -> nodes.Const:
        sign = -1 if self.skip("-") else 1
        text = self.take()
        if text in ("true", "false"):
            return self.with_type(nodes.Const(text == "true", Type.U1))
        is_whole = text.isdigit()
        if not is_whole and not text[:1].isdigit() and text not in ("inf", "nan"):
            self.line.fail(f"expected a number, not `{text}`")
        value = sign * int(text) if is_whole else float("-" * (sign < 0) + text)
        return self.with_type(nodes.Const(value, Type.I32 if is_whole else Type.F32))

    def call(self, name: str) -> nodes.Expr:
        self.expect("(")
        if name == "bits":
            value = self.expression()
            self.expect(",")
            kind = self.type()
            self.expect(")")
            return nodes.Cast(value, kind, keeps_bits=True)
        given = self.list_until(")")
        if len(given) == 1 and name in types.ALL:
            return nodes.Cast(given[0], Type(name))
        if len(given) == 1 and name in UNARY:
            return nodes.Unary(Operator(name), given[0], types.of_unary(name, given[0].type, DEFAULTS))
        if len(given) == 2 and name in BINARY:
            return nodes.Binary(
                Operator(name), *given, types.of_operation(Operator(name), given[0].type, given[1].type, DEFAULTS)
            )
        if len(given) != 3 or name != "select":
            self.line.fail(f"no operation `{name}` has {len(given)} operands")
        return nodes.Select(*given, given[1].type)


def _split(line: TextLine) -> Iterator[str]:
    text, place = line.text.rstrip(), 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            line.fail(f"unexpected character {text[place:].lstrip()[0]!r}")
        yield match[0].strip()
        place = match.end()
