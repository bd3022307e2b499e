"""Generated backward passes, and whole generated forward passes, as programs that an executor runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...transforms.adjoint import Fresh, Program, Reserve, Run
from .._case import Case
from .._executor import Action, Layout, Make, Tapes
from .._signature import Signature
from .._steps import Situation, Step
from ._emitted import Emitted
from ._pullback import Ends, Pullback

Emit = Callable[[Run], Emitted]
"""Gives a launch's kernel, for the engine."""


@dataclass(frozen=True, eq=False)
class GeneratedLaunch:
    """A launch of a generated kernel. `renamed` are the op's names for its scalar arguments."""

    emitted: Emitted
    names: Mapping[str, str]
    renamed: Mapping[str, str]

    @property
    def memory(self) -> tuple[str, ...]:
        """Names of what it works on."""
        return tuple(self.names[name] for name in self.emitted.touched)

    def step(self, situation: Situation, places: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Step:
        """Compile the kernel, and lay out its arguments."""
        # Of some memory the sizes alone are asked for: what lies there is not looked at.
        some = places[self.memory[0]] if self.memory else -1
        touched = {name: places[self.names[name]] for name in self.emitted.touched}
        found = self.emitted.step(
            {name: touched.get(name, some) for name in self.emitted.arrays},
            {name: shapes[self.names[name]] for name in self.emitted.arrays},
            self.renamed,
        )
        return found._replace(sized=tuple([one._replace(array=self.names[one.array]) for one in found.sized]))


def _launch(run: Run, emit: Emit, signature: Signature) -> GeneratedLaunch:
    emitted = emit(run)
    names = {name: run.memory.get(name, name) for name in emitted.touched}
    names |= {name: name for name in emitted.arrays if name not in names}
    return GeneratedLaunch(emitted, names, signature.stages[run.source].renamed)


def _actions(program: Program, emit: Emit, signature: Signature) -> tuple[Action, ...]:
    found: list[Action] = []
    for action in program.actions:
        match action:
            case Run():
                found.append(_launch(action, emit, signature))
            case Fresh(name, like):
                found.append(Make(name, like))
            case Reserve():
                found.append(
                    Tapes(
                        action.tapes,
                        None if isinstance(action.iterations, Run) else action.iterations,
                        action.total,
                        _launch(action.iterations, emit, signature) if isinstance(action.iterations, Run) else None,
                        None if action.count is None else _launch(action.count, emit, signature),
                        signature.stages[action.source].renamed,
                    )
                )
            case _:
                found.append(action)
    return tuple(found)


def forward_layout(
    case: Case, emit: Emit, program: Program, situation: Situation, given: Sequence[str], makes: Sequence[Make]
) -> Layout:
    """A forward pass by generated kernels alone."""
    actions = _actions(program, emit, case.signature)
    op, dtypes = case.signature.op, situation.dtypes
    return Layout(op, dtypes, tuple(given), tuple(makes), actions, {}, program.arrays, case.is_looped)


def backward_pass(case: Case, emit: Emit, program: Program, situation: Situation, active: frozenset[str]) -> Pullback:
    """A generated backward pass for a first set of sizes."""
    signature = case.signature
    gradients = program.gradients
    reads = tuple(sorted(program.reads & situation.shapes.keys()))
    numbered = enumerate(signature.outputs)
    outputs = tuple((number, name, name in program.spoils) for number, name in numbered if name in gradients)
    given = (*reads, *(gradients[name] for _, name, _ in outputs))
    owned = {name: gradient for name, gradient in gradients.items() if name not in signature.outputs}
    missing = {name: f"nothing for {name}" for name in signature.arrays if name in active and name not in gradients}
    shared = {name: gradient for name, gradient in owned.items() if name in situation.shapes} | missing
    # What only one pass knows: locals of the top level, and memory of generated kernels.
    own = [Make(gradient, name) for name, gradient in owned.items() if name not in situation.shapes]
    layout = Layout(
        signature.op,
        situation.dtypes,
        given,
        tuple(Make(gradient, name) for name, gradient in shared.items()),
        (*own, *_actions(program, emit, signature)),
        {gradients[name]: name for _, name, _ in outputs},
        program.arrays,
        case.is_looped,
    )
    found = {**gradients, **missing}
    results = tuple((layout.places[found[name]], False) if name in active else None for name in signature.arrays)
    return Pullback.of(layout, Ends(tuple((name, False) for name in reads), outputs, results), situation)
