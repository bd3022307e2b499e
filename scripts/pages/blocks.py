"""Blocks: the programs of a page, and the marks next to them that say how they run.

A page's ```python and ```sh blocks are one program, run from top to bottom. What the marks say:

    <!-- output -->              below a block: what it printed follows, in a block of text that `docs write` writes
    <!-- output: ShapeError -->  below a block that must end with this error: what it said follows
    <!-- output: 1 -->           the same below a block of shell that must end with this exit code
    <!-- output, varies -->      its numbers are others in each run, as times are: they are not compared
    <!-- output, any -->         it is another one in each run, or on each machine: that there is one is enough
    <!-- not run: why -->        above a block that cannot run here (a shell block without output never runs)

A block with `title="swarm.py"` after its language is a file of that name, which later blocks of shell may name.

    python -m pages.blocks PAGE    prints the commands that a page's blocks of shell show: ./scripts/readme runs them
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(
    r"(?P<why><!-- not run: [^\n]+ -->\n\s*)?"
    r"^(?P<indent> *)```(?P<language>python|sh)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$"
    r"(?P<mark>\s*<!-- (?P<shown>output)(?:: (?P<error>\w+))?(?:, (?P<varies>varies|any))? -->"
    r"(?P<written>\s*^(?P=indent)(?P<ticks>```+)text\n(?P<output>.*?)^(?P=indent)(?P=ticks)[ ]*$)?)?",
    re.DOTALL | re.MULTILINE,
)


_NUMBER = re.compile(r"0x[0-9a-f]+|\d[\d.,]*(?:e[+-]?\d+)?")
_FLOAT = re.compile(r"\d+(?:\.\d*)?e[+-]?\d+|\d+\.\d+")


class Block(NamedTuple):
    """A block of a page.

    Attributes:
        language: "python" or "sh".
        name: the name of its file.
        text: its content.
        is_shown: whether the page shows its output.
        error: the exception or exit code with which it must end, "" for none.
    """

    language: str
    name: str
    text: str
    is_shown: bool
    error: str


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page that run, in order."""
    blocks = [_block(match, number) for number, match in enumerate(_FENCE.finditer(page)) if _runs(match)]
    names = [block.name for block in blocks]
    assert len(set(names)) == len(names), f"two blocks of one page have one title: {names}"
    return blocks


def commands_of(page: str) -> list[str]:
    """Return the commands in a page's shell blocks, one for each line, without comments."""
    texts = [match["text"] for match in _FENCE.finditer(page) if match["language"] == "sh" and not match["why"]]
    lines = [re.sub(r"(^|\s+)#.*", "", line) for text in texts for line in text.splitlines()]
    return [line.strip() for line in lines if line.strip()]


class Output(NamedTuple):
    """The output that a page shows below a block, and what may vary between runs: "" nothing, "varies" numbers, "any"
    everything.
    """

    text: str
    varies: str

    def is_of(self, printed: str) -> bool:
        """Return True if a program's printed text matches the output that the page shows."""
        if self.varies == "any":
            return bool(self.text)
        if self.varies:
            return _NUMBER.sub("#", self.text).split() == _NUMBER.sub("#", printed).split()
        return _round_alike(self.text, printed)


def shown_outputs(page: str) -> list[Output]:
    """Return the output that a page shows below each block that runs, in order; its text is "" if nothing is shown."""
    matches = [match for match in _FENCE.finditer(page) if _runs(match)]
    return [Output(textwrap.dedent(match["output"] or ""), match["varies"] or "") for match in matches]


def with_outputs(page: str, outputs: list[str]) -> str:
    """Return a page with new outputs of its blocks. An old output stays if it differs only where it is allowed to."""
    rest = iter(outputs)

    def write(match: re.Match[str]) -> str:
        if not _runs(match):
            return match[0]
        printed = next(rest).rstrip()
        if not match["shown"]:
            return match[0]
        if match["written"] and Output(textwrap.dedent(match["output"]), match["varies"] or "").is_of(printed):
            return match[0]
        end = match.start("written") if match["written"] else match.end()
        ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", printed)), default=0))
        lines = "\n".join(line.rstrip() for line in printed.splitlines())
        shown = textwrap.indent(f"{ticks}text\n{lines}\n{ticks}", match["indent"])
        return f"{page[match.start() : end]}\n\n{shown}"

    return _FENCE.sub(write, page)


def without_outputs(page: str) -> str:
    """Return a page without the outputs of its blocks."""
    return _FENCE.sub(
        lambda match: page[match.start() : match.start("written")] if match["written"] else match[0], page
    )


def as_the_site_has_it(page: str) -> str:
    """Convert a page for the site: style outputs as such, and remove marks."""

    def style(match: re.Match[str]) -> str:
        if not match["written"]:
            return match[0]
        start = f"{match['indent']}{match['ticks']} {{ .text .output }}"
        block = match["written"].strip().partition("\n")[2]
        return f"{page[match.start() : match.start('mark')]}\n\n{start}\n{block}"

    return _FENCE.sub(style, page)


class Cell(NamedTuple):
    """A cell of a notebook: prose, or a program with its output."""

    is_program: bool
    text: str
    output: str = ""


def cells_of(page: str) -> list[Cell]:
    """Split a page into the cells of a notebook: Python blocks that run are programs, the rest is prose."""
    cells, end = list[Cell](), 0
    for match in _FENCE.finditer(page):
        if match["language"] != "python" or not _runs(match):
            continue
        prose = page[end : match.start()].strip()
        cells += [Cell(False, prose)] if prose else []
        cells.append(Cell(True, textwrap.dedent(match["text"]).strip(), textwrap.dedent(match["output"] or "")))
        end = match.end()
    prose = page[end:].strip()
    return cells + ([Cell(False, prose)] if prose else [])


def _round_alike(one: str, other: str) -> bool:
    """Return True if texts differ at most in the last digits of floats, as they may on another processor."""
    if _FLOAT.sub("#", one).split() != _FLOAT.sub("#", other).split():
        return False
    pairs = zip(_FLOAT.findall(one), _FLOAT.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-3, abs_tol=1e-6) for a, b in pairs)


def _runs(match: re.Match[str]) -> bool:
    return not match["why"] and (match["language"] == "python" or bool(match["shown"]))


def _block(match: re.Match[str], number: int) -> Block:
    titled = re.search(r'title="([\w.-]+)"', match["info"])
    name = titled[1] if titled else f"block_{number}.{'py' if match['language'] == 'python' else 'sh'}"
    text = textwrap.dedent(match["text"])
    return Block(match["language"], name, text, bool(match["shown"]), match["error"] or "")


if __name__ == "__main__":
    print(*commands_of(Path(sys.argv[1]).read_text(encoding="utf-8")), sep="\n")
