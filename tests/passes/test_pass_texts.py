"""Each pass of a pipeline, from text to text. `golden/NAME.txt` has what it gets and, below `->`, what it returns.

`python tests/passes/test_pass_texts.py` writes what they return now.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tinsmith.ir import nodes, parse_ir, print_ir, verify
from tinsmith.passes import PIPELINES, Pass, PassOptions, run_pipeline

FOLDER = Path(__file__).with_name("golden")
PASSES = {one.name: one for pipeline in PIPELINES.values() for one in pipeline}
ARROW = "->\n"


def read_options(text: str) -> PassOptions:
    """The options of a file's first line: `options: batched=x,y is_serial`."""
    options: dict[str, Any] = {}
    for word in text.split():
        name, _, names = word.partition("=")
        options[name] = frozenset(names.split(",")) if names else True
    if options.pop("racing", False):
        options["find_racing_loops"] = find_reading_loops
    if options.pop("sites", False):
        options["note_sites"] = lambda _: None
    return PassOptions(**options)


def find_reading_loops(kernel: nodes.Kernel) -> Collection[nodes.For]:
    """The second loop of the example."""
    loop = kernel.body[1]
    assert isinstance(loop, nodes.For)
    return [loop]


def run_pass(one: Pass, given: str) -> str:
    """What a pass makes of a text."""
    first, _, rest = given.partition("\n")
    options = read_options(first.removeprefix("options:")) if first.startswith("options:") else PassOptions()
    kernel = parse_ir(rest if first.startswith("options:") else given)
    verify(kernel)
    made = run_pipeline((one,), kernel, options)
    verify(made)
    return print_ir(made)


@pytest.mark.parametrize("name", PASSES)
def test_a_pass(name: str) -> None:
    given, wanted = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").split(ARROW)
    made = run_pass(PASSES[name], given)
    assert made == wanted
    assert print_ir(parse_ir(made)) == made


@pytest.mark.parametrize("name", PASSES)
def test_the_example_is_changed(name: str) -> None:
    given, wanted = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").split(ARROW)
    assert given.partition("kernel")[2] != wanted.partition("kernel")[2]


def test_every_text_is_of_a_pass() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == PASSES.keys()


if __name__ == "__main__":
    for name, one in PASSES.items():
        path = FOLDER / f"{name}.txt"
        given = path.read_text(encoding="utf-8").split(ARROW)[0]
        path.write_text(given + ARROW + run_pass(one, given), encoding="utf-8")
