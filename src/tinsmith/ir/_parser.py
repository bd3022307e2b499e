"""Parses the text of a kernel: the inverse of `_printer`, for tests whose input is text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar, get_args

from . import _nodes as nodes
from . import _types as types
from ._operators import BINARY, UNARY, AtomicOperator, Operator, VoteOperator
from ._printer import DEFAULTS, PRECEDENCE, TIGHTEST, list_written_fields
from ._types import Type

Word = TypeVar("Word", Type, Operator, AtomicOperator, VoteOperator)

# Of the signs, the first that matches is taken, so the longer ones stand first. A number has no sign: `_Tokens.number`
# reads `-`.
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


def parse_ir(text: str) -> nodes.Kernel:
    r"""Return the kernel of a text.

    Raises:
        TextError: the text is not that of a kernel; the message names the line.

    Example:
        >>> from tinsmith.ir import print_ir
        >>> text = "kernel one\n  array y: f32[0]\n  y[] = 1.0  @3\n"
        >>> print_ir(parse_ir(text)) == text
        True
    """
    lines = [_Line.split(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines or not lines[0].text.startswith("kernel "):
        raise TextError("a kernel's text begins with `kernel NAME`")
    header = _Header(lines[0].text.removeprefix("kernel ").strip())
    place = 1
    while place < len(lines) and header.read(lines[place]):
        place += 1
    return _Parser(header, lines[place:]).kernel()


@dataclass(frozen=True)
class _Line:
    """A line of the text: its number there, its indentation, what it says, and its line in the source."""

    number: int
    indent: int
    text: str
    source: int

    @classmethod
    def split(cls, number: int, line: str) -> _Line:
        """Split a line of the text into its parts."""
        match = _LINE.match(line.rstrip())
        assert match is not None
        return cls(number, len(match["indent"]), match["text"], int(match["line"] or 0))

    def fail(self, words: str) -> NoReturn:
        raise TextError(f"line {self.number}: {words}: {self.text}")

    def one_of(self, kind: type[Word], word: str) -> Word:
        """Return a word as one of an enum's."""
        try:
            return kind(word)
        except ValueError:
            self.fail(f"`{word}` is none of {', '.join(kind)}")


@dataclass
class _Header:
    """What a kernel's first lines declare."""

    name: str
    path: str = ""
    arrays: dict[str, nodes.Array] = field(default_factory=dict)
    arguments: dict[str, tuple[Type, tuple[int, ...]]] = field(default_factory=dict)
    locals: dict[str, Type] = field(default_factory=dict)
    cells: list[str] = field(default_factory=list)
    block_memory: dict[str, _Line] = field(default_factory=dict)
    source_names: dict[str, str] = field(default_factory=dict)

    def read(self, line: _Line) -> bool:
        """Read a line. Return False if it is not a declaration."""
        word, _, rest = line.text.partition(" ")
        # An array that an iteration has to itself is a statement inside a loop, so it is indented more deeply.
        if word == "array" and line.indent > 2:
            return False
        read = getattr(self, f"_read_{word}", None)
        if read is None:
            return False
        read(line, rest)
        return True

    def _read_file(self, _: _Line, rest: str) -> None:
        self.path = _read_value(rest)

    def _read_array(self, line: _Line, rest: str) -> None:
        name, kind, dims, facts = _read_declaration(line, rest)
        match = re.match(r"(\w+)\[(\d+)\]$", kind)
        if match is None:
            line.fail(f"a type and a rank are wanted in place of `{kind}`")
        made = nodes.Array(
            name,
            line.one_of(Type, match[1]),
            int(match[2]),
            dims,
            facts.get("field", ""),
            facts.get("offset", ()),
            "detached" not in facts,
            "of_blocks" in facts,
            facts.get("dims", ()),
            "clamped" in facts,
        )
        self.arrays[name] = made

    def _read_cell(self, line: _Line, rest: str) -> None:
        self._read_array(line, rest)
        self.cells.append(rest.partition(":")[0])

    def _read_argument(self, line: _Line, rest: str) -> None:
        name, kind, dims, _ = _read_declaration(line, rest)
        self.arguments[name] = line.one_of(Type, kind), dims

    def _read_locals(self, line: _Line, rest: str) -> None:
        kind, _, names = rest.partition(": ")
        self.locals |= dict.fromkeys(names.split(", "), line.one_of(Type, kind))

    def _read_block_memory(self, line: _Line, rest: str) -> None:
        name, _, sizes = rest.partition(": ")
        self.block_memory[name] = replace(line, text=sizes)

    def _read_written(self, _line: _Line, rest: str) -> None:
        source, _, names = rest.partition(": ")
        self.source_names |= dict.fromkeys(names.split(", "), source)


_VALUE = r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\S+"


def _read_declaration(line: _Line, rest: str) -> tuple[str, str, tuple[int, ...], Mapping[str, Any]]:
    """Return the name, type, element dims and facts of `p: f32[1] of 3x3 field='self.p' clamped`."""
    match = re.match(rf"(\w+): (\S+)(?: of ([0-9x]+))?((?: (?:\w+=(?:{_VALUE})|\w+))*)$", rest)
    if match is None:
        line.fail("a name, `:` and a type are wanted")
    name, kind, dims, words = match.groups()
    facts = {one[0]: _read_value(one[1]) if one[1] else True for one in re.findall(rf" (\w+)(?:=({_VALUE}))?", words)}
    return name, kind, tuple(map(int, dims.split("x"))) if dims else (), facts


def _read_value(text: str) -> Any:
    """Read a text, a number, None, or a tuple of these, as Python writes them."""
    text = text.strip()
    if text[:1] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text.startswith("("):
        return tuple(_read_value(part) for part in text[1:-1].split(",") if part.strip())
    return None if text == "None" else int(text)


class _Parser:
    """Parses the statements of one kernel."""

    def __init__(self, header: _Header, lines: Sequence[_Line]) -> None:
        self.header = header
        self.lines = lines
        self.place = 0
        self.local_arrays: dict[str, Type] = {}
        self.loop_names = set[str]()

    def kernel(self) -> nodes.Kernel:
        """Return the kernel."""
        known = self.header
        body = self.block(self.lines[0].indent) if self.lines else ()
        if self.place < len(self.lines):
            self.lines[self.place].fail("it is indented otherwise than the line before")
        memory = {name: self.expressions(sizes) for name, sizes in known.block_memory.items()}
        return nodes.Kernel(
            known.name,
            known.path,
            known.arrays,
            known.arguments,
            known.locals,
            body,
            tuple(known.cells),
            memory,
            known.source_names,
        )

    def expressions(self, line: _Line) -> tuple[nodes.Expr, ...]:
        """Return the expressions of a list."""
        tokens = _Tokens(line, self)
        listed = tokens.list_until("")
        tokens.end()
        return listed

    def block(self, indent: int) -> nodes.Block:
        """Return the statements at an indentation."""
        body: list[nodes.Stmt] = []
        while self.place < len(self.lines) and self.lines[self.place].indent == indent:
            line = self.lines[self.place]
            self.place += 1
            if line.text != "pass":
                body.append(self.statement(line))
        return tuple(body)

    def inside(self, line: _Line) -> nodes.Block:
        """Return the statements inside the statement that a line begins."""
        if self.place == len(self.lines) or self.lines[self.place].indent <= line.indent:
            line.fail("nothing is inside")
        return self.block(self.lines[self.place].indent)

    # Statements -------------------------------------------------------------------------------

    def statement(self, line: _Line) -> nodes.Stmt:
        tokens = _Tokens(line, self)
        parallel = tokens.skip("parallel")
        word = tokens.ahead
        # A local or an array may be called like a statement: `loop = 1`, `atomic[0] = 1`.
        is_name = tokens.behind in ("=", "[", ",", ".")
        parse = None if is_name else _STATEMENTS.get(word)
        if parse is None and word in _BY_FIELDS and not is_name:
            made = self._by_fields(tokens)
        elif parse is None:
            made = self._plain(tokens)
        else:
            tokens.take()
            made = parse(self, tokens)
        tokens.end()
        changes = {"is_parallel": True} if parallel else {}
        return replace(made, line=line.source, **changes)

    def _if(self, tokens: _Tokens) -> nodes.Stmt:
        condition = tokens.expression()
        tokens.expect(":")
        body, orelse = self.inside(tokens.line), ()
        if self.place < len(self.lines):
            following = self.lines[self.place]
            if following.text == "else:" and following.indent == tokens.line.indent:
                self.place += 1
                orelse = self.inside(following)
        return nodes.If(condition, body, orelse)

    def _ranges(self, tokens: _Tokens) -> tuple[tuple[str, ...], tuple[tuple[nodes.Expr, nodes.Expr], ...]]:
        if tokens.skip("endlessly"):
            return (), ()
        names = tokens.names()
        # The header does not declare the variables of loops, which are all i32.
        self.loop_names |= {*names}
        tokens.expect("in")
        bounds = []
        while True:
            # A bound with an operator stands in parentheses, as `_print_tight` writes it.
            first = tokens.expression(TIGHTEST)
            tokens.expect("..")
            bounds.append((first, tokens.expression(TIGHTEST)))
            if not tokens.skip(","):
                return names, tuple(bounds)

    def _options(self, tokens: _Tokens, *known: str) -> dict[str, Any]:
        """Parse what stands in brackets after a loop's ranges: some of these options."""
        options: dict[str, Any] = {}
        if tokens.skip("["):
            while not tokens.skip("]"):
                name = tokens.take()
                if name not in known:
                    tokens.line.fail(f"`{name}` is none of {', '.join(known)}")
                options[name] = tokens.expression() if tokens.skip("=") else True
                tokens.skip(";")
        tokens.expect(":")
        return options

    def _for(self, tokens: _Tokens) -> nodes.Stmt:
        names, bounds = self._ranges(tokens)
        options = self._options(tokens, "block_size", "vector_width", "may_race")
        # The options of a `For` are plain numbers; those of a `Loop`, such as `most`, are expressions.
        numbers: dict[str, Any] = {
            name: one.value if isinstance(one, nodes.Const) else one for name, one in options.items()
        }
        return nodes.For(names, bounds, self.inside(tokens.line), **numbers)

    def _while(self, tokens: _Tokens) -> nodes.Stmt:
        tokens.expect(":")
        return nodes.While(self.inside(tokens.line))

    def _loop(self, tokens: _Tokens) -> nodes.Stmt:
        names, bounds = self._ranges(tokens)
        options = self._options(tokens, "exit", "most", "has_blocks")
        carried = []
        while self.place < len(self.lines) and self.lines[self.place].text.startswith("carry "):
            inner = _Tokens(self.lines[self.place], self)
            self.place += 1
            carried.append(_parse_carried(inner))
        return nodes.Loop(names, bounds, self.inside(tokens.line), tuple(carried), **options)

    def _array(self, tokens: _Tokens) -> nodes.Stmt:
        name = tokens.take()
        tokens.expect(":")
        kind = tokens.type()
        tokens.expect("[")
        length = tokens.whole_number()
        tokens.expect("]")
        self.local_arrays[name] = kind
        return nodes.LocalArray(name, kind, length)

    def _exchange(self, tokens: _Tokens) -> nodes.Stmt:
        return replace(self._plain(tokens), takes=True)

    def _atomic(self, tokens: _Tokens, result: str | None = None) -> nodes.Stmt:
        operator, (array, index, entry) = tokens.one_of(AtomicOperator), tokens.place()
        tokens.expect(",")
        return nodes.Atomic(operator, array, index, entry, tokens.expression(), result)

    def _by_fields(self, tokens: _Tokens) -> nodes.Stmt:
        """Parse a statement that has no syntax of its own: its name, and its fields in parentheses."""
        made = _BY_FIELDS[tokens.take()]
        values: dict[str, Any] = {}
        for name in list_written_fields(made):
            tokens.expect("," if values else "(")
            values[name] = tokens.text() if tokens.ahead[:1] in ("'", '"') else tokens.expression()
        if values:
            tokens.expect(")")
        return made(**values)

    def _plain(self, tokens: _Tokens) -> Any:
        """Parse an assignment, a store, or a statement that gives several locals their values."""
        if tokens.behind == "[":
            array, index, entry = tokens.place()
            tokens.expect("=")
            return nodes.Store(array, index, entry, tokens.expression())
        names = tokens.names()
        tokens.expect("=")
        match tokens.ahead:
            case "random":
                tokens.take()
                return nodes.Draw(names[0], tokens.type())
            case "atomic":
                tokens.take()
                return self._atomic(tokens, names[0])
            case "vote":
                tokens.take()
                operator, word, value = tokens.one_of(VoteOperator), tokens.ahead, tokens.expression()
                if not isinstance(value, nodes.Local):
                    tokens.line.fail(f"a local is wanted in place of `{word}`")
                return nodes.Vote(operator, value, names[0])
            case "decompose":
                tokens.take()
                function, kind = tokens.take(), tokens.type()
                is_descending = tokens.skip("descending")
                tokens.expect("of")
                return nodes.Decompose(function, tokens.list_until(""), names, kind, is_descending)
        return nodes.Assign(names[0], tokens.expression())


_STATEMENTS: dict[str, Callable[[_Parser, _Tokens], nodes.Stmt]] = {
    "if": _Parser._if,
    "for": _Parser._for,
    "while": _Parser._while,
    "loop": _Parser._loop,
    "array": _Parser._array,
    "exchange": _Parser._exchange,
    "atomic": _Parser._atomic,
}
"""Statements that have a syntax of their own, by their first word."""

_BY_FIELDS = {one.__name__.lower(): one for one in get_args(nodes.Stmt)}
"""Types of statements by name, for those whose text is their name and fields."""


def _parse_carried(tokens: _Tokens) -> nodes.CarriedLocal:
    tokens.expect("carry")
    head = tokens.take()
    tokens.expect("=")
    first = tokens.expression()
    tokens.expect("then")
    then = tokens.expression()
    tokens.expect("last")
    last = tokens.take()
    tokens.expect("cell")
    return nodes.CarriedLocal(first, head, then, last, tokens.take())


class _Tokens:
    """The tokens of one line, and the expressions in it."""

    def __init__(self, line: _Line, parser: _Parser) -> None:
        self.line = line
        self.known = parser.header
        self.parser = parser
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
            self.line.fail("it ends too early")
        self.place_ahead += 1
        return token

    def text(self) -> str:
        """Take a text in quotes."""
        return _read_value(self.take())

    def one_of(self, kind: type[Word]) -> Word:
        """Take a token that is one of an enum's."""
        return self.line.one_of(kind, self.take())

    def type(self) -> Type:
        """Take a type."""
        return self.one_of(Type)

    def skip(self, token: str) -> bool:
        """Take a token if it is the next."""
        if self.ahead != token or not token:
            return False
        self.place_ahead += 1
        return True

    def expect(self, token: str) -> None:
        if not self.skip(token):
            self.line.fail(f"`{token}` is wanted " + (f"before `{self.ahead}`" if self.ahead else "at the end"))

    def end(self) -> None:
        if self.ahead:
            self.line.fail(f"nothing is wanted before `{self.ahead}`")

    def whole_number(self) -> int:
        token = self.take()
        if not token.isdigit():
            self.line.fail(f"a whole number is wanted in place of `{token}`")
        return int(token)

    def names(self) -> tuple[str, ...]:
        names = [self.take()]
        while self.skip(","):
            names.append(self.take())
        return tuple(names)

    def list_until(self, token: str) -> tuple[nodes.Expr, ...]:
        """Parse expressions up to a token, and take it."""
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
        """Parse an element: array, index, entry."""
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
        if self.ahead == "-" or self.ahead[:1].isdigit() or self.ahead in ("inf", "nan", "true", "false"):
            return self.number()
        name = self.take()
        if self.ahead == "(":
            return self.with_type(self.call(name))
        if not name.isidentifier():
            self.line.fail(f"an operand is wanted before `{name}`")
        is_number = name in self.known.arguments or name in self.known.locals or name in self.parser.loop_names
        is_array = name in self.known.arrays or name in self.parser.local_arrays
        # Behind a number, a bracket begins the options of a loop.
        if self.ahead == "[" and (is_array or not is_number):
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
        if not is_number:
            self.line.fail(f"`{name}` is not declared")
        return nodes.Local(name, self.known.locals.get(name, Type.I32))

    def type_of(self, array: str) -> Type:
        """Return the type of an array's elements."""
        if array in self.known.arrays:
            return self.known.arrays[array].type
        if array not in self.parser.local_arrays:
            self.line.fail(f"`{array}` is not declared")
        return self.parser.local_arrays[array]

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
            self.line.fail(f"a number is wanted in place of `{text}`")
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
            self.line.fail(f"there is no `{name}` of {len(given)}")
        return nodes.Select(*given, given[1].type)


def _split(line: _Line) -> Iterator[str]:
    text, place = line.text.rstrip(), 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            line.fail(f"{text[place:].lstrip()[0]!r} means nothing here")
        yield match[0].strip()
        place = match.end()
