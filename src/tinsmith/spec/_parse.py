"""The parser of the spec language, which describes the inputs and outputs of an op.

    spec   =  [items] "->" items              "x[n], k[m] -> y[n - m + 1]"
    items  =  item {"," item}
    item   =  ["inout" | "unique" | "segments" | "ranges" | "offsets"] name "[" [dims] "]" [":" dtype]
    dim    =  name | integer | sum | "_" | "..." | "*" name
    sum    =  over names and integers, with + - * // and parentheses

Every mistake raises an error with a caret under it and the text to write instead. Mistakes in one place are found here
while parsing, those between items by `_agreement`. Whether the items are parameters of a kernel is checked when the op
is made; `_solve` computes the sizes of the dims in a call.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from .._errors import ArgumentError, SpecError, nearest, point_at, refusal
from ._agreement import check_agreement
from ._arithmetic import Tree, format_tree
from ._dims import (
    PROMISES,
    UPDATED,
    Anything,
    Arithmetic,
    Batch,
    Dim,
    Fixed,
    Item,
    Named,
    Rest,
    Spec,
)

EXAMPLE = "x[n], k[m] -> y[n - m + 1]"
COMPUTED = "Sizes are computed with + - * // and parentheses; pass any other by keyword: `y[m]`, called with m=..."

_TOKEN = re.compile(
    r"""\s*(?: (?P<word>[^\W\d]\w*(?:\.[^\W\d]\w*)*)    # with dots, so that `torch.float32` is one token
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
    """A word or sign of a spec. The last token of a text is empty."""

    kind: str
    text: str
    start: int

    def __str__(self) -> str:
        return f"`{self.text}`" if self.text else "the end"


class Tokens:
    """The tokens of a text, and the current position."""

    def __init__(self, text: str) -> None:
        self._text = text
        matches = [(match.lastgroup or "", match) for match in _TOKEN.finditer(text)]
        self._tokens = [Token(kind, match[kind], match.start(kind)) for kind, match in matches]
        self._position = 0

    @property
    def here(self) -> Token:
        """The next token, without consuming it. Raises SpecError if it is not part of the language."""
        token = self._tokens[self._position]
        if token.kind == "fraction":
            self.refuse(f"{token} is not an integer", "Write sizes as whole numbers.")
        if token.kind in ("stranger", "unknown"):
            self.refuse(
                f"{token} has no meaning in a spec", _REMEDIES.get(token.text, f"Write a spec as in `{EXAMPLE}`.")
            )
        return token

    @property
    def last(self) -> Token:
        """The token that was consumed last."""
        return self._tokens[self._position - 1]

    def next(self) -> Token:
        """Consume the next token and return it."""
        token = self.here
        self._position += 1
        return token

    def accept(self, text: str) -> bool:
        """Consume the next token if it has this text. Return True if it was consumed."""
        is_here = self.here.text == text
        self._position += is_here
        return is_here

    def refuse(self, headline: str, remedy: str, at: Token | None = None) -> NoReturn:
        """Raise SpecError with a caret under a token, by default the next one."""
        start = (at or self._tokens[self._position]).start
        raise SpecError(refusal(headline, point_at(self._text, start), remedy))


DTYPES = ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64")
"""The dtypes that may follow `:`."""

_OTHER_DTYPES = {
    "half": "f16",
    "bfloat16": "bf16",
    "float": "f32",
    "single": "f32",
    "double": "f64",
    "bool": "u1",
    "byte": "u8",
    "char": "i8",
    "short": "i16",
    "int": "i32",
    "long": "i64",
}
_SCRATCH = 'Write a list of items: `scratch="t[n], u[n, 3]: f32"`.'


def parse(text: str, scratch: str | None = None) -> Spec:
    """Parse a spec, and the text of its scratch arrays.

    Raises:
        SpecError: it does not parse; the message has a caret under the place.
        ArgumentError: it is not a string.

    Example:
        >>> spec = parse("x[n], k[m] -> y[n - m + 1]")
        >>> [item.name for item in spec.inputs], spec.outputs[0].brackets
        (['x', 'k'], '[n - m + 1]')
    """
    _require_strings(text, scratch)
    inputs, outputs = _Reader(text, "input").spec()
    made = _Reader(scratch, "scratch").scratch() if scratch and not scratch.isspace() else ()
    spec = Spec(text, scratch or "", inputs, outputs, made)
    check_agreement(spec)
    return spec


def _require_strings(text: object, scratch: object) -> None:
    decorate = f'Write the spec first: `@ts.op("{EXAMPLE}")`.'
    for noun, value, remedy in (("A spec", text, decorate), ("`scratch`", scratch or "", _SCRATCH)):
        if not isinstance(value, str):
            kind = "a function or kernel" if callable(value) else f"`{type(value).__name__}`"
            headline = f"{noun} must be a string, and got {kind}"
            raise ArgumentError(refusal(headline, (), remedy))


class _Reader:
    """Parses one text from left to right. Each method parses one rule of the grammar."""

    def __init__(self, text: str, side: str) -> None:
        self.text = text
        self.at = Tokens(text)
        self.side = side  # of the arrow: "input", "output", or "scratch"
        self.item = self.bracket = Token("end", "", 0)  # the name of the item being read, and its opening bracket
        self.is_updated = False  # the item being read

    def spec(self) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
        if self.at.here.kind == "end":
            self.refuse("The spec is empty", f"Write the inputs, `->` and the outputs: `{EXAMPLE}`.")
        inputs = () if self.at.here.text == "->" else self.items()
        if self.at.here.kind == "end":
            remedy = f"Write the inputs left of `->` and the outputs right of it: `{EXAMPLE}`."
            if any(item.is_updated for item in inputs):
                remedy = f"Nothing needs to stand right of it where arguments are updated: `{self.text.strip()} ->`."
            self.refuse("The spec has no `->`", remedy)
        self.refuse_unless("->")
        self.side = "output"
        if self.at.here.kind == "end" and any(item.is_updated for item in inputs):
            return inputs, ()
        if self.at.here.kind == "end":
            self.refuse("The spec has no output", f"Write what the kernel fills right of `->`: `{EXAMPLE}`.")
        outputs = self.items()
        if self.at.here.text == "->":
            self.refuse("The spec has a second `->`", "Write one arrow; `ts.chain` runs several kernels in order.")
        self.refuse_unless("")
        return inputs, outputs

    def scratch(self) -> tuple[Item, ...]:
        items = self.items()
        if self.at.here.text == "->":
            self.refuse("`scratch` takes no `->`", _SCRATCH)
        self.refuse_unless("")
        return items

    def items(self) -> tuple[Item, ...]:
        items = [self.one_item()]
        while self.at.accept(","):
            items.append(self.one_item())
        return tuple(items)

    def one_item(self) -> Item:
        if self.at.here.kind != "word" or self.at.here.text == "_":
            remedy = "Write a kernel parameter and its dims: `x[n, 3]`."
            self.refuse(f"An item is missing before {self.at.here}", remedy)
        self.item = self.at.here
        name = self.item_name()
        self.is_updated = name == UPDATED and self.at.here.kind == "word"
        if self.is_updated:
            self.refuse_updated_unless_input()
            self.item = self.at.here
            name = self.item_name()
        promise = name if name in PROMISES and self.at.here.kind == "word" else ""
        if promise:
            self.refuse_promise_unless_input(promise)
            self.item = self.at.here
            name = self.item_name()
        self.refuse_without_brackets()
        self.bracket = self.at.next()
        dims = () if self.at.accept("]") else self.dims()
        dtype = self.dtype() if self.at.accept(":") else None
        label = self.item.text if self.item.text != name else ""
        return Item(name, dims, dtype, self.item.start, self.is_updated, promise, label)

    def dims(self) -> tuple[Dim, ...]:
        dims = [self.one_dim(first=True)]
        while not self.at.accept("]"):
            if not self.at.accept(","):
                self.refuse_without_comma()
            self.refuse_a_second(dims)
            dims.append(self.one_dim(first=False))
        return tuple(dims)

    def one_dim(self, first: bool) -> Dim:
        if self.at.accept("..."):
            return Rest()
        if self.at.here.text == "*":
            return self.batch(first)
        if self.side == "input" and not self.is_updated and self.at.accept("_"):
            return Anything()
        tree = self.sum()
        if isinstance(tree, str):
            return Named(tree)
        return Fixed(tree) if isinstance(tree, int) else Arithmetic(format_tree(tree), tree)

    def batch(self, first: bool) -> Batch:
        star = self.at.next()
        if self.at.here.kind != "word" or self.at.here.text == "_":
            self.refuse("`*` is not followed by a name", f"Write `{self.item.text}[*b]`: batch dims have a name.", star)
        name = self.name("a batch")
        if not first:
            remedy = f"Write `*{name}` before the other dims: the kernel does not see batch dims."
            self.refuse(f"`*{name}` is not the first dim of {self.item}", remedy, star)
        return Batch(name)

    def sum(self) -> Tree:
        return self.parse_arithmetic(("+", "-"), self.product)

    def product(self) -> Tree:
        return self.parse_arithmetic(("*", "//"), self.atom)

    def parse_arithmetic(self, operators: tuple[str, str], operand: Callable[[], Tree]) -> Tree:
        tree = operand()
        while self.at.here.text in operators:
            operator = self.at.next()
            if self.side == "input":
                remedy = "Name it, and compute with the name on the right: `x[n] -> y[n + 1]`."
                self.refuse(f"The size of an input cannot be computed with {operator}", remedy, operator)
            right = operand()
            if operator.text == "//" and right == 0:
                self.refuse("A size is divided by zero", "Write a divisor of 1 or more.", operator)
            tree = (operator.text, tree, right)
        return tree

    def atom(self) -> Tree:
        if self.at.here.kind == "integer":
            return int(self.at.next().text)
        if self.at.here.text == "_" and self.is_updated:
            remedy = "Write a name for the dim: an array of the same size is made of it."
            self.refuse(f"`_` gives no size to {self.item}, which is `{UPDATED}`", remedy)
        if self.at.here.text == "_":
            remedy = "Write a name or a number: tinsmith allocates it, so its sizes must be known."
            self.refuse(f"`_` gives no size to {self.item}, which is {self.side_name}", remedy)
        if self.at.here.kind == "word":
            return self.name("a dim")
        opening = self.at.here
        if not self.at.accept("("):
            self.refuse_invalid_size()
        tree = self.sum()
        if not self.at.accept(")"):
            self.refuse_when_glued()
            self.refuse("`(` is not closed", "Write `)` after the sum.", opening)
        return tree

    def item_name(self) -> str:
        """Parse the name of a kernel parameter, or of a member: `state.q` is the parameter `state_q`."""
        steps = self.at.here.text.split(".")
        if len(steps) > 1 and all(step.isidentifier() and not keyword.iskeyword(step) for step in steps):
            return "_".join(self.at.next().text.split("."))
        return self.name("an item")

    def name(self, noun: str) -> str:
        word = self.at.next()
        if keyword.iskeyword(word.text):
            remedy = f"Write another name, such as `{word.text.lower()}_`."
            if word.text == "None":
                remedy = f"Write `{self.item.text}[]` for a 0-d tensor, `_` for a dim of any size."
            self.refuse(f"{word} is a keyword of Python and cannot name {noun}", remedy, word)
        if not word.text.isidentifier():
            self.refuse(f"{word} cannot name {noun}", "Write letters, digits and `_`, as in Python.", word)
        return word.text

    def dtype(self) -> str:
        word = self.at.here
        if word.kind != "word":
            self.refuse(f"A dtype is missing before {word}", _dtype_remedy(""))
        if word.text not in DTYPES:
            self.refuse(f"{word} is not a dtype of a kernel", _dtype_remedy(word.text.rpartition(".")[2]))
        return self.at.next().text

    def refuse(self, headline: str, remedy: str, at: Token | None = None) -> NoReturn:
        self.at.refuse(headline, remedy, at)

    @property
    def side_name(self) -> str:
        return "an output" if self.side == "output" else "scratch"

    # Errors. Each method looks at the next token to describe what is wrong.

    def refuse_unless(self, wanted: str) -> None:
        """Consume `wanted` after an item: an arrow, or "" for the end. Raise SpecError for anything else."""
        here, item = self.at.here, self.item
        if here.text in ("]", ")"):
            self.refuse(f"{here} closes nothing", f"Leave it out, or open it before: `{EXAMPLE}`.")
        if here.text == "[":
            self.refuse(f"{item} has a second pair of brackets", "Write all dims in one pair: `x[n, 3]`.")
        if not self.at.accept(wanted):
            self.refuse(f"{here} follows {item} without a comma", "Write `,` between items: `x[n], k[m]`.")

    def refuse_without_brackets(self) -> None:
        name = self.item.text
        if self.at.here.text == ":":
            self.refuse(f"`{name}` has its dtype before its dims", f"Write the dims first: `{name}[n]: f32`.")
        if self.at.here.text == "(":
            self.refuse(f"`{name}` has its dims in round brackets", f"Write them in square ones: `{name}[n]`.")
        if self.at.here.kind == "word" and (guess := nearest(name, [UPDATED, *PROMISES])):
            self.refuse(f"`{name}` has no brackets", f"Did you mean `{guess} {self.at.here.text}[...]`?", self.item)
        if self.at.here.text != "[":
            remedy = f"Write `{name}[]` for a 0-d tensor, `{name}[n]` for one dim; leave plain scalars out of the spec."
            self.refuse(f"`{name}` has no brackets", remedy, self.item)

    def refuse_updated_unless_input(self) -> None:
        if self.side != "input":
            remedy = f"Write `{UPDATED} {self.at.here.text}[...]` left of `->`: the call gives the array."
            self.refuse(f"{self.at.here} is {self.side_name}, and cannot be `{UPDATED}`", remedy, self.item)

    def refuse_promise_unless_input(self, promise: str) -> None:
        """Raise SpecError if a promise is on an output, scratch or an updated array: the kernel must not change its
        numbers.
        """
        name = self.at.here.text
        if self.side != "input" or self.is_updated:
            what = f"`{UPDATED}`" if self.is_updated else self.side_name
            remedy = f"Leave out `{promise}`: it says what the numbers of an input are, which the kernel never changes."
            self.refuse(f"`{name}` is {what}, and cannot be `{promise}`", remedy, self.item)

    def refuse_a_second(self, dims: list[Dim]) -> None:
        if self.at.here.text == "..." and Rest() in dims:
            self.refuse(f"{self.item} has a second `...`", "Write one: nothing would say where the first ends.")
        if self.at.here.text == "*" and isinstance(dims[0], Batch):
            remedy = f"Write `{dims[0]}` alone: it stands for any number of dims."
            self.refuse(f"{self.item} has a second batch", remedy)

    def refuse_without_comma(self) -> NoReturn:
        if self.at.here.kind == "end" or self.at.here.text in ("->", "["):
            self.refuse_unclosed()
        if self.at.here.text == ")":
            self.refuse("`)` closes nothing", "Leave it out, or write `(` before it.")
        if self.at.here.text == ":":
            self.refuse_colon()
        self.refuse_when_glued()
        last = self.at.last
        self.refuse(f"{self.at.here} cannot follow {last}", f"Write `,` between dims: `{self.item.text}[n, 3]`.")

    def refuse_when_glued(self) -> None:
        """Raise SpecError for two sizes with nothing between them, and for a name that is called like a function."""
        last, here = self.at.last, self.at.here
        if last.kind == "word" and here.text == "(":
            self.refuse(f"A spec cannot call {last}", COMPUTED, last)
        if here.kind in ("word", "integer") or here.text == "(":
            behind = "(...)" if here.text == "(" else here.text
            product = "" if self.side == "input" else f", or `{last.text} * {behind}` for their product"
            remedy = f"Write `{last.text}, {behind}` for two dims{product}."
            self.refuse(f"There is no comma or operator between {last} and {here}", remedy)

    def refuse_invalid_size(self) -> NoReturn:
        here, last = self.at.here, self.at.last
        if here.text == "-" and last.text in ("[", ","):
            remedy = "Write `_` for a dim of any size." if self.side == "input" else "Write `m - n`, the larger first."
            self.refuse("A size cannot begin with `-`", remedy)
        if here.text == ":":
            self.refuse_colon()
        if last.text in ("[", ",") and (here.kind == "end" or here.text == "->"):
            self.refuse_unclosed()
        noun = "A dim" if last.text in ("[", ",") else "A size"
        self.refuse(f"{noun} is missing before {here}", "Write a name or a whole number there.")

    def refuse_unclosed(self) -> NoReturn:
        self.refuse(f"`[` of {self.item} is not closed", "Write `]` after its last dim.", self.bracket)

    def refuse_colon(self) -> NoReturn:
        remedy = "Write `_` for a dim of any size; a dtype stands behind the brackets: `x[n]: f32`."
        self.refuse("`:` has no meaning inside brackets", remedy)


def _dtype_remedy(word: str) -> str:
    if word.startswith("c") and word != "char":  # complex64, cfloat, c64
        return "Write `f32`, a last dim of 2, and pass `torch.view_as_real(...)`: no engine has complex numbers."
    word = word.lower()
    digits = word.lstrip("abcdefghijklmnopqrstuvwxyz_")
    likely = _OTHER_DTYPES.get(word, f"{word[:1]}{digits}")
    guess = likely if likely in DTYPES else nearest(word, DTYPES)
    return (f"Write `{guess}`, or another of " if guess else "Write one of ") + " ".join(DTYPES) + "."
