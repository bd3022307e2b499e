"""Each pass of a pipeline, and each step of the adjoint and the tangent, from text to text (`support.pass_texts`).

`python -m passes.test_pass_texts` in the folder `tests` writes what they return now.
"""

from __future__ import annotations

import pytest

from support.pass_texts import FOLDER, RUNS, read_example, write_example

NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_a_pass(name: str) -> None:
    example = read_example(name)
    assert example.made() == example.wanted


@pytest.mark.parametrize("run", RUNS)
def test_an_example_is_changed(run: str) -> None:
    examples = [read_example(name) for name in NAMES if name.partition(".")[0] == run]
    assert any(one.is_changed() for one in examples)


def test_every_text_is_of_a_pass() -> None:
    assert {name.partition(".")[0] for name in NAMES} == RUNS.keys()


if __name__ == "__main__":
    for name in NAMES:
        write_example(name)
