"""Parses the text of a kernel: the inverse of `_printer`, for tests whose input is text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from . import _nodes as nodes
from ._operators import AtomicOperator, VoteOperator
from ._printer import FOR_OPTIONS, TIGHTEST, list_written_fields
from ._tokens import DeclaredNames, LineTokens, TextError, TextLine, read_value
from ._types import Type


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
    lines = [TextLine.split(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines or not lines[0].text.startswith("kernel "):
        raise TextError("the text of a kernel must begin with `kernel NAME`")
    header = _Header(lines[0].text.removeprefix("kernel ").strip())
    place = 1
    while place < len(lines) and header.read(lines[place]):
        place += 1
    return _Parser(header, lines[place:]).kernel()


@dataclass
class _Header:
    """What a kernel's first lines declare."""

    name: str
    path: str = ""
    declared: DeclaredNames = field(default_factory=DeclaredNames)
    cells: list[str] = field(default_factory=list)
    block_memory: dict[str, TextLine] = field(default_factory=dict)
    source_names: dict[str, str] = field(default_factory=dict)

    def read(self, line: TextLine) -> bool:
        """Read a line. Return False if it is not a declaration."""
        word, _, rest = line.text.partition(" ")
        # An array that an iteration has to itself is a statement inside a loop, so it is indented more deeply. And a
        # local may be called `file`.
        if (word == "array" and line.indent > 2) or rest.startswith("= "):
            return False
        read = getattr(self, f"_read_{word}", None)
        if read is None:
            return False
        read(line, rest)
        return True

    def _read_file(self, _: TextLine, rest: str) -> None:
        self.path = read_value(rest)

    def _read_array(self, line: TextLine, rest: str) -> None:
        name, kind, dims, facts = _read_declaration(line, rest)
        match = re.match(r"(\w+)\[(\d+)\]$", kind)
        if match is None:
            line.fail(f"expected a type and a rank such as `f32[1]`, not `{kind}`")
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
            facts.get("vector_width", 0),
        )
        self.declared.arrays[name] = made

    def _read_cell(self, line: TextLine, rest: str) -> None:
        self._read_array(line, rest)
        self.cells.append(rest.partition(":")[0])

    def _read_argument(self, line: TextLine, rest: str) -> None:
        name, kind, dims, _ = _read_declaration(line, rest)
        self.declared.arguments[name] = line.one_of(Type, kind), dims

    def _read_locals(self, line: TextLine, rest: str) -> None:
        kind, _, names = rest.partition(": ")
        self.declared.locals |= dict.fromkeys(names.split(", "), line.one_of(Type, kind))

    def _read_block_memory(self, line: TextLine, rest: str) -> None:
        name, _, sizes = rest.partition(": ")
        self.block_memory[name] = replace(line, text=sizes)

    def _read_written(self, _line: TextLine, rest: str) -> None:
        source, _, names = rest.partition(": ")
        self.source_names |= dict.fromkeys(names.split(", "), source)


_VALUE = r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\S+"


def _read_declaration(line: TextLine, rest: str) -> tuple[str, str, tuple[int, ...], Mapping[str, Any]]:
    """Return the name, type, element dims and facts of `p: f32[1] of 3x3 field='self.p' clamped`."""
    match = re.match(rf"(\w+): (\S+)(?: of ([0-9x]+))?((?: (?:\w+=(?:{_VALUE})|\w+))*)$", rest)
    if match is None:
        line.fail("expected a name, `:` and a type, such as `x: f32`")
    name, kind, dims, words = match.groups()
    facts = {one[0]: read_value(one[1]) if one[1] else True for one in re.findall(rf" (\w+)(?:=({_VALUE}))?", words)}
    return name, kind, tuple(map(int, dims.split("x"))) if dims else (), facts


class _Parser:
    """Parses the statements of one kernel."""

    def __init__(self, header: _Header, lines: Sequence[TextLine]) -> None:
        self.header = header
        self.declared = header.declared
        self.lines = lines
        self.place = 0

    def kernel(self) -> nodes.Kernel:
        """Parse the statements and return the whole kernel."""
        known = self.header
        body = self.block(self.lines[0].indent) if self.lines else ()
        if self.place < len(self.lines):
            self.lines[self.place].fail("unexpected indentation")
        memory = {name: self.expressions(sizes) for name, sizes in known.block_memory.items()}
        return nodes.Kernel(
            known.name,
            known.path,
            self.declared.arrays,
            self.declared.arguments,
            self.declared.locals,
            body,
            tuple(known.cells),
            memory,
            known.source_names,
        )

    def expressions(self, line: TextLine) -> tuple[nodes.Expr, ...]:
        """Parse a line that is a list of expressions separated by commas."""
        tokens = LineTokens(line, self.declared)
        listed = tokens.list_until("")
        tokens.end()
        return listed

    def block(self, indent: int) -> nodes.Block:
        """Parse the statements of a block: the following lines with this indentation."""
        body: list[nodes.Stmt] = []
        while self.place < len(self.lines) and self.lines[self.place].indent == indent:
            line = self.lines[self.place]
            self.place += 1
            if line.text != "pass":
                body.append(self.statement(line))
        return tuple(body)

    def inside(self, line: TextLine) -> nodes.Block:
        """Parse the indented statements below a line, such as the body of a loop."""
        if self.place == len(self.lines) or self.lines[self.place].indent <= line.indent:
            line.fail("nothing is inside")
        return self.block(self.lines[self.place].indent)

    # Statements -------------------------------------------------------------------------------

    def statement(self, line: TextLine) -> nodes.Stmt:
        tokens = LineTokens(line, self.declared)
        parallel = tokens.begins("parallel") and tokens.skip("parallel")
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

    def _if(self, tokens: LineTokens) -> nodes.Stmt:
        condition = tokens.expression()
        tokens.expect(":")
        body, orelse = self.inside(tokens.line), ()
        if self.place < len(self.lines):
            following = self.lines[self.place]
            if following.text == "else:" and following.indent == tokens.line.indent:
                self.place += 1
                orelse = self.inside(following)
        return nodes.If(condition, body, orelse)

    def _ranges(self, tokens: LineTokens) -> tuple[tuple[str, ...], tuple[tuple[nodes.Expr, nodes.Expr], ...]]:
        if tokens.ahead == "endlessly" and tokens.behind in ("[", ":"):
            tokens.take()
            return (), ()
        names = tokens.names()
        # The header does not declare the variables of loops, which are all i32.
        self.declared.loop_variables |= {*names}
        tokens.expect("in")
        bounds = []
        while True:
            # A bound with an operator stands in parentheses, as `_print_tight` writes it.
            first = tokens.expression(TIGHTEST)
            tokens.expect("..")
            bounds.append((first, tokens.expression(TIGHTEST)))
            if not tokens.skip(","):
                return names, tuple(bounds)

    def _options(self, tokens: LineTokens, *known: str) -> dict[str, Any]:
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

    def _for(self, tokens: LineTokens) -> nodes.Stmt:
        names, bounds = self._ranges(tokens)
        options = self._options(tokens, *FOR_OPTIONS)
        # The options of a `For` are plain numbers; those of a `Loop`, such as `most`, are expressions.
        numbers: dict[str, Any] = {
            name: one.value if isinstance(one, nodes.Const) else one for name, one in options.items()
        }
        return nodes.For(names, bounds, self.inside(tokens.line), **numbers)

    def _while(self, tokens: LineTokens) -> nodes.Stmt:
        tokens.expect(":")
        return nodes.While(self.inside(tokens.line))

    def _loop(self, tokens: LineTokens) -> nodes.Stmt:
        names, bounds = self._ranges(tokens)
        options = self._options(tokens, "exit", "most", "has_blocks")
        carried = []
        while self.place < len(self.lines):
            inner = LineTokens(self.lines[self.place], self.declared)
            if not inner.begins("carry"):
                break
            self.place += 1
            carried.append(_parse_carried(inner))
        return nodes.Loop(names, bounds, self.inside(tokens.line), tuple(carried), **options)

    def _array(self, tokens: LineTokens) -> nodes.Stmt:
        name = tokens.take()
        tokens.expect(":")
        kind = tokens.type()
        tokens.expect("[")
        length = tokens.whole_number()
        tokens.expect("]")
        self.declared.local_arrays[name] = kind
        return nodes.LocalArray(name, kind, length)

    def _exchange(self, tokens: LineTokens) -> nodes.Stmt:
        return replace(self._plain(tokens), takes=True)

    def _atomic(self, tokens: LineTokens, result: str | None = None) -> nodes.Stmt:
        operator, (array, index, entry) = tokens.one_of(AtomicOperator), tokens.place()
        tokens.expect(",")
        return nodes.Atomic(operator, array, index, entry, tokens.expression(), result)

    def _by_fields(self, tokens: LineTokens) -> nodes.Stmt:
        """Parse a statement that has no syntax of its own: its name, and its fields in parentheses."""
        made = _BY_FIELDS[tokens.take()]
        values: dict[str, Any] = {}
        for name in list_written_fields(made):
            tokens.expect("," if values else "(")
            values[name] = tokens.text() if tokens.ahead[:1] in ("'", '"') else tokens.expression()
        if values:
            tokens.expect(")")
        return made(**values)

    def _plain(self, tokens: LineTokens) -> Any:
        """Parse an assignment, a store, or a statement that gives several locals their values."""
        if tokens.behind == "[":
            array, index, entry = tokens.place()
            tokens.expect("=")
            return nodes.Store(array, index, entry, tokens.expression())
        names = tokens.names()
        tokens.expect("=")
        # A local may be called like one of these words: `random + 1`.
        match tokens.take() if tokens.begins("random", "atomic", "vote", "decompose") else "":
            case "random":
                return nodes.Draw(names[0], tokens.type())
            case "atomic":
                return self._atomic(tokens, names[0])
            case "vote":
                operator, word, value = tokens.one_of(VoteOperator), tokens.ahead, tokens.expression()
                if not isinstance(value, nodes.Local):
                    tokens.line.fail(f"expected the name of a local, not `{word}`")
                return nodes.Vote(operator, value, names[0])
            case "decompose":
                function, kind = tokens.take(), tokens.type()
                is_descending = tokens.skip("descending")
                tokens.expect("of")
                return nodes.Decompose(function, tokens.list_until(""), names, kind, is_descending)
        return nodes.Assign(names[0], tokens.expression())


_STATEMENTS: dict[str, Callable[[_Parser, LineTokens], nodes.Stmt]] = {
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


def _parse_carried(tokens: LineTokens) -> nodes.CarriedLocal:
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
