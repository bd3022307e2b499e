"""Generated backward passes, and forward passes by generated kernels alone, as routines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ...compiling import Alignment
from ...passes.adjoint import AdjointProgram, Copy, Fresh, Reserve, Run, WithResults
from .._cost import Cost
from .._key import CallKey
from .._routine import Action, Cotangent, Input, Make, Result, Routine, Saved, Tapes
from .._signature import Signature
from .._steps import RoutineLaunch, Step
from ._generated_kernel import GeneratedKernel

Emit = Callable[[Run], GeneratedKernel]
"""Returns the kernel of a launch, ready for the engine."""


@dataclass(frozen=True, eq=False)
class GeneratedLaunch(RoutineLaunch):
    """A launch of a generated kernel.

    Attributes:
        emitted: the kernel.
        names: the names of the memory of its arrays.
        likes: for memory that is not an array of the call, the array that has the same sizes.
        renamed: the op's names for its scalar arguments.
    """

    emitted: GeneratedKernel
    names: Mapping[str, str]
    likes: Mapping[str, str]
    renamed: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.emitted.kernel.name

    @property
    def memory(self) -> tuple[str, ...]:
        return tuple(self.names.values())

    def on_one_thread(self) -> GeneratedLaunch:
        return replace(self, emitted=self.emitted.on_one_thread)

    def cost(self, key: CallKey) -> Cost:
        """Return the facts from which its operations are counted: its kernel, and the sizes of its arrays."""
        is_looped, known = key.is_looped, key.sizing.shapes
        memory = {name: self.names.get(name, name) for name in self.emitted.kernel.arrays}
        pairs = ((name, self.likes.get(one, one)) for name, one in memory.items())
        shapes = {
            name: known[memory][is_looped and memory in key.batched_arrays :]
            for name, memory in pairs
            if memory in known
        }
        threads = self.emitted.stage.engine.thread_count()
        return Cost(self.emitted, self.emitted.kernel, shapes, self.renamed, threads)

    def step(self, key: CallKey, alignment: Alignment) -> Step:
        return self.emitted.step(self.names, self.renamed, alignment)


def _make_actions(program: AdjointProgram, emit: Emit, signature: Signature) -> tuple[Action, ...]:
    likes = _find_likes(program)

    def launch(run: Run) -> GeneratedLaunch:
        emitted = emit(run)
        names = {name: run.memory.get(name, name) for name in emitted.touched}
        names |= {name: name for name in emitted.arrays if name not in names}
        return GeneratedLaunch(emitted, names, likes, signature.stages[run.source].scalar_names)

    actions: list[Action] = []
    for action in program.actions:
        match action:
            case Run():
                actions.append(launch(action))
            case Fresh(name, like, kind):
                actions.append(Make(name, like, type=kind))
            case Reserve():
                iterations, count = action.iterations, action.count
                known = launch(iterations) if isinstance(iterations, Run) else iterations
                entries = None if count is None else launch(count)
                renamed = signature.stages[action.source].scalar_names
                actions.append(Tapes(action.tapes, known, action.total, entries, renamed))
            case _:
                actions.append(action)
    return tuple(actions)


def _find_likes(program: AdjointProgram) -> Mapping[str, str]:
    """Return, for the memory of gradients, fresh arrays and copies, the array of the op that has the same sizes."""
    likes = {gradient: name for name, gradient in program.gradients.items()}
    for action in program.actions:
        if isinstance(action, Fresh):
            likes[action.name] = likes.get(action.like, action.like)
        elif isinstance(action, Copy):
            likes[action.name] = likes.get(action.of, action.of)
    return likes


def forward_routine(
    key: CallKey, emit: Emit, program: AdjointProgram, makes: Sequence[Make], kept: Sequence[str] = ()
) -> Routine:
    """Build the routine of a forward pass by generated kernels alone. Its results are all arrays, then the `kept`."""
    given = tuple(Input(name, place) for place, name in enumerate(key.signature.arrays))
    actions = _make_actions(program, emit, key.signature)
    results = tuple(map(Result, (*key.signature.all_arrays, *kept)))
    return Routine(given, tuple(makes), actions, results, program.arrays, key.is_looped)


def forward_routine_with_results(key: CallKey, emit: Emit, kept: WithResults, makes: Sequence[Make]) -> Routine:
    """Build the routine of a forward pass that keeps values of loops for the backward pass, as further results."""
    room = Tapes(kept.sizes, kept.iterations, "", None, key.signature.stages[0].scalar_names)
    routine = forward_routine(key, emit, kept.forward, makes, kept.names)
    return replace(routine, actions=(room, *routine.actions))


def backward_routine(
    key: CallKey,
    emit: Emit,
    program: AdjointProgram,
    active: frozenset[str],
    kept: Collection[str] = (),
) -> Routine:
    """Build the routine of a generated backward pass.

    `kept` are arrays that the forward pass kept for this pass alone.
    """
    signature = key.signature
    gradients = program.gradients
    reads = (Saved(name) for name in sorted(program.reads & {*signature.all_arrays, *kept}))
    cotangents = (
        Cotangent(gradients[name], name, number, name in program.spoils)
        for number, name in enumerate(signature.outputs)
        if name in gradients and name not in signature.auxiliary
    )
    given = {gradients[name] for name in signature.differentiable_outputs if name in gradients}
    owned = {name: gradient for name, gradient in gradients.items() if gradient not in given}
    missing = {name: f"nothing for {name}" for name in signature.arrays if name in active and name not in gradients}
    shared = {name: gradient for name, gradient in owned.items() if name in signature.all_arrays} | missing
    # Gradients that belong to this pass alone: of locals of the top level, and of memory of generated kernels.
    own = [Make(gradient, name) for name, gradient in owned.items() if name not in signature.all_arrays]
    gradient_of = {**gradients, **missing}
    return Routine(
        (*reads, *cotangents),
        tuple(Make(gradient, name, is_zero=gradient not in program.whole) for name, gradient in shared.items()),
        (*own, *_make_actions(program, emit, signature)),
        tuple(Result(gradient_of[name]) if name in active else None for name in signature.arrays),
        program.arrays,
        key.is_looped,
        program.has_long_tapes,
    )
