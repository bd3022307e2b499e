"""Each pass of a pipeline, from text to text. `golden/NAME.txt` has what it gets and, below `->`, what it returns.

Passes of the adjoint and the tangent get what the passes before them make of the text. Of what they leave, the kernels
are compared, and of `decide` the plans. `python tests/passes/test_pass_texts.py` writes what they return now.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from tinsmith.ir import nodes, parse_ir, print_ir, verify
from tinsmith.passes import PIPELINES, PassOptions, generate_adjoint, run_passes, run_pipeline
from tinsmith.passes.adjoint import AdjointOptions, CleanUpOptions, Planned
from tinsmith.passes.tangent import TangentOptions, UnneededOptions

FOLDER = Path(__file__).with_name("golden")
PASSES = {one.name: name for name, pipeline in PIPELINES.items() for one in pipeline}
"""The pipeline of each pass."""
ARROW = "->\n"


def read_options(text: str) -> dict[str, Any]:
    """The options of a file's first line: `options: batched=x,y is_serial`."""
    options: dict[str, Any] = {}
    for word in text.split():
        name, _, names = word.partition("=")
        options[name] = frozenset(names.split(",")) if names else True
    return options


def make_pass_options(racing: bool = False, sites: bool = False, **options: Any) -> PassOptions:
    """Options of passes from a kernel to a kernel."""
    if racing:
        options["find_racing_loops"] = find_reading_loops
    if sites:
        options["note_sites"] = lambda _: None
    return PassOptions(**options)


def find_reading_loops(kernel: nodes.Kernel) -> Collection[nodes.For]:
    """The second loop of the example."""
    loop = kernel.body[1]
    assert isinstance(loop, nodes.For)
    return [loop]


@dataclass(frozen=True)
class Golden:
    """A file: its options, the kernel, and what the pass makes of it."""

    name: str

    @property
    def parts(self) -> list[str]:
        return (FOLDER / f"{self.name}.txt").read_text(encoding="utf-8").split(ARROW)

    def make(self, *, is_before: bool = False) -> str:
        """What the pass leaves; or what it gets."""
        given = self.parts[0]
        first, _, rest = given.partition("\n")
        has_options = first.startswith("options:")
        options = read_options(first.removeprefix("options:")) if has_options else {}
        kernel = parse_ir(rest if has_options else given)
        verify(kernel)
        pipeline = PIPELINES[PASSES[self.name]]
        place = [one.name for one in pipeline].index(self.name)
        until = pipeline[: place if is_before else place + 1]
        match PASSES[self.name]:
            case "ADJOINT":
                return print_unit(run_passes(until, [kernel], AdjointOptions(**options)))
            case "ADJOINT_CLEAN_UP":
                program = generate_adjoint([kernel], AdjointOptions(**options))
                clean_up = CleanUpOptions(
                    alone=options["active"],
                    extent=lambda _, axis: axis,
                    outputs=options["outputs"],
                    has_vectors=True,
                )
                return print_unit(run_passes(until, program, clean_up))
            case "TANGENT":
                return print_unit(run_passes(until, kernel, TangentOptions(**options)))
            case "TANGENT_CLEAN_UP":
                options = {"idle": frozenset(), "needed": frozenset(), **options}
                return print_unit(run_passes(until, kernel, UnneededOptions(**options)))
            case _:
                # The pass alone: others of its pipeline have texts of their own.
                one = () if is_before else (pipeline[place],)
                return print_unit(run_pipeline(one, kernel, make_pass_options(**options)))


def print_unit(unit: Any) -> str:
    """The kernels of what a pass left, and the plans of what was decided."""
    if isinstance(unit, list):
        return "".join(map(print_ir, unit))
    kernels = (unit,) if isinstance(unit, nodes.Kernel) else unit.kernels
    text = "".join(map(print_ir, kernels))
    if isinstance(unit, Planned):
        text += "".join(
            f"plan of loop {number}: {describe_plan(loop)}\n"
            for plan in unit.plans
            for number, loop in plan.loops.items()
        )
    return text


def describe_plan(plan: Any) -> str:
    values = {one.name: getattr(plan, one.name) for one in fields(plan)}
    return ", ".join(f"{name}={value}" for name, value in values.items() if value)


@pytest.mark.parametrize("name", PASSES)
def test_a_pass(name: str) -> None:
    golden = Golden(name)
    made = golden.make()
    assert made == golden.parts[1]
    if PASSES[name] not in ("ADJOINT", "ADJOINT_CLEAN_UP"):  # these leave several kernels, and tables
        assert print_ir(parse_ir(made)) == made


@pytest.mark.parametrize("name", PASSES)
def test_the_example_is_changed(name: str) -> None:
    assert Golden(name).make(is_before=True) != Golden(name).parts[1]


def test_every_text_is_of_a_pass() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == PASSES.keys()


if __name__ == "__main__":
    for name in PASSES:
        golden = Golden(name)
        (FOLDER / f"{name}.txt").write_text(golden.parts[0] + ARROW + golden.make(), encoding="utf-8")
