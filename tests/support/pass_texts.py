"""Golden texts of passes: what goes in and what comes out, as text.

`tests/passes/golden/NAME.txt` has a kernel and, below `->`, what the pass `NAME` makes of it; `NAME.more.txt` has
another kernel for the same pass. The first line may give options: `options: active=x,y is_serial`.

A pass of the adjoint or the tangent gets what the passes before it make of the kernel. One that cleans up an adjoint
may be given a kernel of a backward pass, where there are no options of the adjoint, and then runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tinsmith.ir import Names, NotCovered, nodes, parse_ir, print_ir, types, verify, walk
from tinsmith.ir._printer import print_expression
from tinsmith.passes import (
    PIPELINES,
    Part,
    PassOptions,
    check_bits,
    extent,
    find_deadly,
    formula_text,
    generate_adjoint,
    most_runs,
    rename_arrays,
    run_passes,
    seed_random,
    split_edges,
)
from tinsmith.passes.adjoint import (
    AdjointOptions,
    AdjointProgram,
    CleanUpOptions,
    Copy,
    Fresh,
    NormalForm,
    Planned,
    Promise,
    Reserve,
    Run,
    records_of,
)
from tinsmith.passes.adjoint._access import find_owned, order_atomics
from tinsmith.passes.adjoint._plan import LoopPlan
from tinsmith.passes.adjoint._tasks import parts_of
from tinsmith.passes.adjoint.normalize._build_ssa import SsaBuilder
from tinsmith.passes.adjoint.normalize._normalize import parallelize, split
from tinsmith.passes.adjoint.normalize._reversible import Reversible, WantedGradients
from tinsmith.passes.polish import declare_locals, eliminate_dead_code, inline_sizes, name_locals, simplify
from tinsmith.passes.polish._branches import merge_branches, sink_constants, start_sums
from tinsmith.passes.polish._coalesce import coalesce_locals
from tinsmith.passes.polish._copies import eliminate_common_loads, propagate_copies
from tinsmith.passes.tangent import Tangent, TangentOptions, UnneededOptions
from tinsmith.passes.tangent._extremes import WrittenOut

FOLDER = Path(__file__).parents[1] / "passes" / "golden"
ARROW = "->\n"
OPTIONS = "options:"
Options = Mapping[str, tuple[str, ...]]
"""Options by name: names for `active=x,y`, nothing for `is_serial`."""


class Example(NamedTuple):
    """A file: what a pass is given and what it returns."""

    run: str
    options: Options
    given: str
    wanted: str

    def made(self) -> str:
        """Return what the pass makes of the kernel now."""
        try:
            return RUNS[self.run](self._kernel, self.options)
        except NotCovered as refusal:
            return f"refused: {refusal}\n"

    def is_changed(self) -> bool:
        """Return True if the pass returns other kernels than it gets."""
        before = self.given
        if self.run in GIVEN:
            before = GIVEN[self.run](self._kernel, self.options)
        return before.partition("kernel")[2] != self.wanted.partition("kernel")[2]

    @property
    def _kernel(self) -> nodes.Kernel:
        kernel = parse_ir(self.given)
        verify(kernel, is_ssa=any(isinstance(one, nodes.Loop) for one in walk.statements(kernel.body)))
        return kernel


def read_example(name: str) -> Example:
    """Read the file `NAME.txt` or `NAME.more.txt`."""
    given, _, wanted = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").partition(ARROW)
    options: dict[str, tuple[str, ...]] = {}
    if given.startswith(OPTIONS):
        first, _, given = given.partition("\n")
        for word in first.removeprefix(OPTIONS).split():
            option, _, values = word.partition("=")
            options[option] = tuple(values.split(",")) if values else ()
    return Example(name.partition(".")[0], options, given, wanted)


def write_example(name: str) -> None:
    """Write what a pass returns now."""
    path = FOLDER / f"{name}.txt"
    before = path.read_text(encoding="utf-8").partition(ARROW)[0]
    path.write_text(before + ARROW + read_example(name).made(), encoding="utf-8")


# Pipelines -----------------------------------------------------------------------------------------


def _run_pass(pipeline: str, place: int, kernel: nodes.Kernel, options: Options, *, is_before: bool = False) -> str:
    """Run a pass of a pipeline, and print what it returns; or what it gets.

    Those of the adjoint and the tangent get what the passes before them make of the kernel. Others run alone.
    """
    is_alone = pipeline not in _STARTS or _is_backward_pass(pipeline, options)
    passes = PIPELINES[pipeline][place if is_alone else 0 : place + (not is_before)]
    return _print_unit(run_passes(passes, *_STARTS.get(pipeline, _start_with_kernel)(kernel, options)))


def _is_backward_pass(pipeline: str, options: Options) -> bool:
    """Return True if the kernel of an example is already one of a backward pass, and not one of an op."""
    return pipeline == "ADJOINT_CLEAN_UP" and "active" not in options


def _start_with_kernel(kernel: nodes.Kernel, options: Options) -> tuple[nodes.Kernel, PassOptions]:
    given: dict[str, Any] = {name: frozenset(values) if values else True for name, values in options.items()}
    if given.pop("racing", False):
        given["find_racing_loops"] = _find_second_loop
    if given.pop("sites", False):
        given["note_sites"] = lambda _: None
    return kernel, PassOptions(**given, first=kernel)


def _find_second_loop(kernel: nodes.Kernel) -> Collection[nodes.For]:
    loop = kernel.body[1]
    assert isinstance(loop, nodes.For)
    return [loop]


def _start_adjoint(kernel: nodes.Kernel, options: Options) -> tuple[list[nodes.Kernel], AdjointOptions]:
    promises = {
        name: Promise(kind) for kind in ("unique", "segments", "ranges", "offsets") for name in options.get(kind, ())
    }
    given = AdjointOptions(
        active=options["active"],
        outputs=options["outputs"],
        allocations=options.get("allocations", options["outputs"]),
        detached=options.get("detached", ()),
        launches=[0] * int(options.get("launches", ("1",))[0]),
        promises=promises,
        has_checkpoints="has_checkpoints" in options,
        keeps_results="keeps_results" in options,
        keeps_functions="keeps_functions" in options,
    )
    return [kernel], given


def _start_adjoint_clean_up(kernel: nodes.Kernel, options: Options) -> tuple[AdjointProgram, CleanUpOptions]:
    is_backward = _is_backward_pass("ADJOINT_CLEAN_UP", options)
    given = CleanUpOptions(
        alone=options.get("alone", options.get("active", ())),
        extent=_extent(kernel),
        outputs=options.get("outputs"),
        has_vectors="has_vectors" in options,
    )
    return _program(kernel, options) if is_backward else generate_adjoint(*_start_adjoint(kernel, options)), given


def _start_tangent(kernel: nodes.Kernel, options: Options) -> tuple[nodes.Kernel, TangentOptions]:
    return kernel, TangentOptions(active=frozenset(options["active"]))


def _start_tangent_clean_up(kernel: nodes.Kernel, options: Options) -> tuple[nodes.Kernel, UnneededOptions]:
    return kernel, UnneededOptions(idle=frozenset(options["idle"]), needed=frozenset(options.get("needed", ())))


_STARTS: Mapping[str, Callable[[nodes.Kernel, Options], tuple[Any, Any]]] = {
    "ADJOINT": _start_adjoint,
    "ADJOINT_CLEAN_UP": _start_adjoint_clean_up,
    "TANGENT": _start_tangent,
    "TANGENT_CLEAN_UP": _start_tangent_clean_up,
}
"""What the first pass of a pipeline gets, and the pipeline's options, where that is no kernel with `PassOptions`."""


def _print_unit(unit: Any) -> str:
    """Print what a pass of any pipeline returns."""
    match unit:
        case NormalForm():
            return _print_normal_form(unit)
        case Planned():
            plans = (plan.loops.items() for plan in unit.plans)
            lines = [f"plan of loop {number}: {_print_plan(plan)}\n" for loops in plans for number, plan in loops]
            return "\n".join([*map(_print, unit.kernels), "".join(lines)])
        case AdjointProgram():
            return _print_program_with_results(unit)
        case WrittenOut():
            return "\n".join([*_print_memory(unit.beside, unit.room), _print(unit.kernel)])
        case Tangent():
            return _print_tangent(unit)
        case nodes.Kernel():
            verify(unit)
            text = print_ir(unit)
            assert print_ir(parse_ir(text)) == text
            return text
        case _:
            return "\n".join(map(_print, unit if isinstance(unit, list) else unit.kernels))


def _print_plan(plan: LoopPlan) -> str:
    values = {one.name: getattr(plan, one.name) for one in fields(plan)}
    return ", ".join(f"{name}={value}" for name, value in values.items() if value)


# Kernels and statements ------------------------------------------------------------------------------


def _print(
    kernel: nodes.Kernel, body: Sequence[nodes.Stmt] | None = None, kinds: Mapping[str, Any] | None = None
) -> str:
    """Verify a kernel with other statements and types of locals, and print it with the locals that it uses."""
    body, kinds = kernel.body if body is None else body, kernel.locals if kinds is None else kinds
    used = walk.find_mentioned(body)
    whole = replace(kernel, body=tuple(body), locals={name: kind for name, kind in kinds.items() if name in used})
    verify(whole, is_ssa=any(isinstance(one, nodes.Loop) for one in walk.statements(body)))
    return print_ir(whole)


def _names(kernel: nodes.Kernel) -> Names:
    names = Names(walk.names_of(kernel))
    names.types |= kernel.locals
    return names


def _of_body(change: Callable[[nodes.Block, Mapping[str, Any]], nodes.Block]) -> Callable[..., str]:
    """Run a pass that takes statements and the types of locals."""
    return lambda kernel, _: _print(kernel, change(kernel.body, kernel.locals))


def _eliminate_dead_code(kernel: nodes.Kernel, options: Options) -> str:
    given = {name: options.get(name, ()) for name in ("wanted", "private", "unread")}
    return _print(kernel, eliminate_dead_code(kernel.body, **given))


def _name_locals(kernel: nodes.Kernel, options: Options) -> str:
    body, new = name_locals(
        kernel.body, lambda name: name.rstrip("_0123456789"), kernel.arrays.keys(), options["known"]
    )
    return _print(kernel, body, {new[old]: kind for old, kind in kernel.locals.items() if old in new})


def _split_edges(kernel: nodes.Kernel, _: Options) -> str:
    (loop,) = kernel.body
    assert isinstance(loop, nodes.For)
    parts = split_edges(loop, kernel.locals)
    return "no edges\n" if parts is None else _print(kernel, (*parts.before, parts.middle, *parts.after))


def _seed_random(kernel: nodes.Kernel, _: Options) -> str:
    return _print(seed_random(kernel, "seed", 3))


def _rename_arrays(kernel: nodes.Kernel, options: Options) -> str:
    return _print(rename_arrays(kernel, {old: new for old, (new,) in options.items()}))


def _find_deadly(kernel: nodes.Kernel, _: Options) -> str:
    return f"{find_deadly(kernel)}\n"


def _most_runs(kernel: nodes.Kernel, _: Options) -> str:
    """Print how often each store and each loop of the top level runs, as a formula of the IR and of Python."""
    lines = []
    body = walk.number_statements(kernel.body)
    for one in walk.stores(body):
        most = most_runs(body, [one.number])
        lines.append(f"{one.array}: {'unknown' if most is None else _print_formula(most)}")
    trips = [extent(one.bounds) for one in body if isinstance(one, nodes.For)]
    lines += ["unknown" if one is None else _print_formula(one) for one in trips]
    return "\n".join(lines) + "\n"


def _print_formula(expr: nodes.Expr) -> str:
    return f"{print_expression(expr)} = {formula_text(expr, lambda name, axis: f'{name}.size({axis})', str)}"


def _check_bits(kernel: nodes.Kernel, options: Options) -> str:
    """Ask about each float by itself: the first refusal of a kernel would hide the others."""
    active = set(options["active"])
    kinds = {**kernel.locals, **{f"@{name}": array.type for name, array in kernel.arrays.items()}}

    def is_active(expr: nodes.Expr) -> bool:
        return not active.isdisjoint(walk.arrays_in([expr]))

    def check(name: str) -> str:
        try:
            check_bits(Part([*walk.statements(kernel.body)], is_active, lambda one: one == name, kernel.path))
        except NotCovered as refusal:
            return f"{name}: {refusal}\n"
        return f"{name}: accepted\n"

    return "".join(check(name) for name, kind in kinds.items() if types.is_float(kind))


# The tangent -----------------------------------------------------------------------------------------


def _print_tangent(made: Tangent) -> str:
    about = [f"{name} moves with {of}" for of, name in made.companions.items()]
    about += _print_memory(made.scratch, made.room)
    about += [f"{name} depends on the order: {reason}" for name, reason in sorted(made.disordered.items())]
    return "\n".join([*about, _print(made.kernel)])


def _print_memory(scratch: Mapping[str, str], room: Mapping[str, nodes.Expr]) -> Iterator[str]:
    yield from (f"{name} starts at zero, as long as {of}" for name, of in scratch.items())
    yield from (f"{name} has room for {print_expression(size)}" for name, size in room.items())


# The adjoint -----------------------------------------------------------------------------------------


def _build_ssa(kernel: nodes.Kernel, _: Options) -> str:
    parts, texts = parts_of(kernel), []
    for task in parts.tasks:
        names = _names(parts.kernel)
        steps = SsaBuilder(parts.kernel, names).task(task)
        texts.append(_print(parts.kernel, steps, names.types))
    return "\n".join(texts)


def _sequential(kernel: nodes.Kernel, _: Options) -> str:
    names = _names(kernel)
    own = find_owned(kernel.body)
    steps, unknown = order_atomics(kernel.body, kernel.arrays, own, frozenset, names, kernel.path, {})
    cells = {load.array: nodes.Array(load.array, load.type, 0) for load in walk.loads(steps) if load.array in unknown}
    return _print(replace(kernel, arrays={**kernel.arrays, **cells}), steps, names.types)


def _find_activity(kernel: nodes.Kernel, options: Options) -> Any:
    wanted = WantedGradients(options["active"], options["outputs"], (), [0])
    return wanted.activities([kernel.body], [0])[0]


def _split(kernel: nodes.Kernel, options: Options) -> str:
    names = _names(kernel)
    return _print(kernel, split(kernel.body, _find_activity(kernel, options), names), names.types)


def _parallelize(kernel: nodes.Kernel, options: Options) -> str:
    task = Reversible(kernel, 0, (), kernel.body, _names(kernel))
    made = parallelize(task, _find_activity(kernel, options))
    return f"own: {', '.join(sorted(made.own))}\n{_print(kernel, made.steps)}"


def _print_normal_form(form: NormalForm) -> str:
    texts = []
    for task in form.tasks:
        lines = [f"own: {', '.join(sorted(task.own))}"]
        lines += [f"beside: {one.array.name} like {one.like}" for one in task.beside]
        once = [one for one in walk.stores(task.steps) if one.number in form.once]
        lines += [f"written once: {one.array} in line {one.line}" for one in once]
        lines.append(_print(task.kernel, task.steps, task.names.types))
        if task.prelude is not None:
            lines.append(_print(task.prelude.kernel))
        texts.append("\n".join(lines))
    gradients = "".join(f"gradient: {array} has {name}\n" for array, name in form.gradients.items())
    return gradients + "\n".join(texts)


def _print_program_with_results(program: AdjointProgram) -> str:
    text = _print_program(program)
    if program.results is not None:
        kept = program.results
        sizes = [f"kept: {_print_size(size)} for each of {print_expression(kept.iterations)}" for size in kept.sizes]
        text += "\n".join(["", *sizes, _print_program(kept.forward), _print_program(kept.backward)])
    return text


def _print_program(program: AdjointProgram) -> str:
    lines = [line for action in program.actions for line in _print_action(action)]
    facts = {"whole": program.whole, "reads": program.reads, "spoils": program.spoils}
    lines += [f"{word}: {', '.join(sorted(names))}" for word, names in facts.items() if names]
    lines += [f"gradient: {array} has {name}" for array, name in program.gradients.items()]
    lines += [*map(str, program.decisions), *program.notes]
    kernels = dict.fromkeys(run.kernel for run in program.runs)
    return "\n".join([*lines, *map(_print, kernels)])


def _print_action(action: Any) -> Iterator[str]:
    match action:
        case Fresh():
            yield f"fresh {action.name} like {action.like} {action.type}".rstrip()
        case Copy():
            yield f"copy {action.name} of {action.of}"
        case Run():
            memory = "".join(f" {name}={place}" for name, place in action.memory.items())
            yield f"run {action.kernel.name} of launch {action.source}{memory}"
        case Reserve():
            iterations = action.iterations
            for_each = "those" if isinstance(iterations, Run) else print_expression(iterations)
            yield from (f"reserve {_print_size(size)} for each of {for_each}" for size in action.tapes)
            for one in (iterations, action.count):
                yield from _print_action(one) if isinstance(one, Run) else ()


def _print_size(size: Any) -> str:
    arrays = ", ".join(f"{width} {kind} in {name}" for name, kind, width in size.arrays)
    return f"{arrays} times {print_expression(size.depth[1]) if size.depth else size.starts}"


def _program(kernel: nodes.Kernel, options: Options) -> AdjointProgram:
    """Return a backward pass of one launch: of each array `x` of the kernel, `grad_x` is the gradient."""
    gradients = {name: f"grad_{name}" for name in kernel.arrays if f"grad_{name}" in kernel.arrays}
    whole = frozenset(options.get("whole", ()))
    return AdjointProgram((Run(kernel, 0, {}),), kernel.arrays, gradients, frozenset(), frozenset(), whole=whole)


def _extent(kernel: nodes.Kernel) -> Callable[[str, int], object]:
    """Return what tells that axes of one name are equally long."""

    def extent_of(array: str, axis: int) -> object:
        return kernel.arrays[array].sizes[axis] or (array, axis)

    return extent_of


def _records(kernel: nodes.Kernel, _: Options) -> str:
    records = records_of(kernel)
    if records is None:
        return "no records\n"
    made = records.build_recording_kernel("kept"), records.build_replaying_kernel("kept")
    return "\n".join([f"{records.type} times {print_expression(records.size)}", *map(_print, made)])


RUNS: Mapping[str, Callable[[nodes.Kernel, Options], str]] = {
    **{
        one.name: partial(_run_pass, name, place)
        for name, pipeline in PIPELINES.items()
        for place, one in enumerate(pipeline)
    },
    "build-ssa": _build_ssa,
    "check-bits": _check_bits,
    "coalesce": _of_body(coalesce_locals),
    "common-loads": _of_body(eliminate_common_loads),
    "copies": _of_body(propagate_copies),
    "dead-code": _eliminate_dead_code,
    "declare": _of_body(declare_locals),
    "find-deadly": _find_deadly,
    "inline-sizes": _of_body(lambda body, _: inline_sizes(body)),
    "merge-branches": _of_body(lambda body, _: merge_branches(body)),
    "most-runs": _most_runs,
    "name-locals": _name_locals,
    "parallelize": _parallelize,
    "records": _records,
    "rename-arrays": _rename_arrays,
    "seed-random": _seed_random,
    "sequential": _sequential,
    "simplify": _of_body(simplify),
    "sink-constants": _of_body(lambda body, _: sink_constants(body)),
    "split": _split,
    "split-edges": _split_edges,
    "start-sums": _of_body(lambda body, _: start_sums(body)),
}
"""Runs each pass, by name, and prints what it returns."""

GIVEN: Mapping[str, Callable[[nodes.Kernel, Options], str]] = {
    name: partial(_run_pass, *run.args, is_before=True) for name, run in RUNS.items() if isinstance(run, partial)
}
"""Prints what each pass of a pipeline is given, by name."""
