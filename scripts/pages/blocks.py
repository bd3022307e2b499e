"""Blocks: the programs of a page, and the marks beside them that say how they run.

A page's ```python and ```sh blocks are one program, run from top to bottom. What the marks say:

    <!-- output -->              below a block: here comes what it printed
    <!-- output: ShapeError -->  below a block that must end with this error: here comes what it said
    <!-- output: 1 -->           the same below a block of shell that must end with this exit code
    <!-- not run: why -->        above a block that cannot run here (a shell block without output never runs)

A block with `title="swarm.py"` after its language is a file of that name, which later blocks of shell may name.

    python -m pages.blocks PAGE    prints the commands that a page's blocks of shell show: ./scripts/readme runs them
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(
    r"(?P<why><!-- not run: [^\n]+ -->\n\s*)?"
    r"^(?P<indent> *)```(?P<language>python|sh)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$"
    r"(?:\s*<!-- (?P<shown>output)(?:: (?P<error>\w+))? -->)?",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """One block: its language, the name of its file, its text; if its output is shown; the error or code of its end."""

    language: str
    name: str
    text: str
    is_shown: bool
    error: str


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page that run, in their order."""
    found = [_block(match, number) for number, match in enumerate(_FENCE.finditer(page)) if _runs(match)]
    names = [block.name for block in found]
    assert len(set(names)) == len(names), f"two blocks of one page have one title: {names}"
    return found


def commands_of(page: str) -> list[str]:
    """The commands that the blocks of shell of a page show, one a line, without their comments."""
    texts = [match["text"] for match in _FENCE.finditer(page) if match["language"] == "sh" and not match["why"]]
    lines = [re.sub(r"(^|\s+)#.*", "", line) for text in texts for line in text.splitlines()]
    return [line.strip() for line in lines if line.strip()]


def with_outputs(page: str, outputs: list[str]) -> str:
    """The page with each mark replaced by what its block printed."""
    rest = iter(outputs)

    def replaced(match: re.Match[str]) -> str:
        if not _runs(match):
            return match[0]
        output = next(rest)
        if not match["shown"]:
            return match[0]
        shown = textwrap.indent(f"``` {{ .text .output }}\n{output.rstrip()}\n```", match["indent"])
        return f"{match[0][: match[0].rindex('<!-- output')].rstrip()}\n\n{shown}"

    return _FENCE.sub(replaced, page)


def _runs(match: re.Match[str]) -> bool:
    return not match["why"] and (match["language"] == "python" or bool(match["shown"]))


def _block(match: re.Match[str], number: int) -> Block:
    titled = re.search(r'title="([\w.-]+)"', match["info"])
    name = titled[1] if titled else f"block_{number}.{'py' if match['language'] == 'python' else 'sh'}"
    text = textwrap.dedent(match["text"])
    return Block(match["language"], name, text, bool(match["shown"]), match["error"] or "")


if __name__ == "__main__":
    print(*commands_of(Path(sys.argv[1]).read_text(encoding="utf-8")), sep="\n")
