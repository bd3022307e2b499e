"""The pipelines: which passes a kernel goes through, and in which order.

    Python source --lower--> IR --FORWARD--> one kernel for one sample
                                    --BATCH--> the kernel for all samples
    kernels of an op --ADJOINT--> the program of a backward pass --ADJOINT_CLEAN_UP--> the same, in short kernels
    a kernel --TANGENT--> the kernel that carries tangents along --TANGENT_CLEAN_UP--> without what nobody needs
    a generated kernel --ON_ONE_THREAD, GENERATED--> the kernel that is launched
    any kernel --CPU--> the form that the engines' compilers make machine vectors of --ENGINE--> what an engine gets
    any kernel --GPU--> the form that keeps a GPU's memory busy --ENGINE--> what an engine gets

A plain forward call takes a shorter way: the engine gets the user's own source, and the IR is only analyzed, unless
`compiling._compilation` finds that its form has to change: for a batch, strips, another engine, or what it misreads.
A pass takes a kernel and options, and returns a kernel: the very same one where there is nothing to do. Those of the
adjoint take all kernels of an op, and hand on tasks and then programs. Nothing else orders passes. With
`TINSMITH_VERIFY=1`, and in all tests, the kernels are verified after each pass that changed them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import passes
from ..ir import NotCovered, finish_pass, nodes, walk

if TYPE_CHECKING:
    from ._bounds_checks import Site

# The passes are looked up when a pipeline runs, and their files loaded then: most calls need few of them. So lambdas
# name them, also where a function alone would do.
# ruff: noqa: PLW0108


@dataclass(frozen=True, kw_only=True)
class PassOptions:
    """What passes depend on, besides the kernel.

    Attributes:
        find_racing_loops: finds the parallel loops that are to run in order since their iterations may race.
        batched: arrays that have a batch dimension, everything that the kernel changes among them.
        is_serial: whether all loops run in order.
        keeps_order: whether iterations of such loops keep their order, since they may race: no lanes run them.
        is_flat: whether arrays of vectors and matrices become arrays of numbers.
        note_divisions: is called if divisions were written out, which the engine would compute by another rule.
        note_sites: is told the places whose indices are checked; None where none are.
        is_spread: whether blocks are spread over the threads of a CPU.
        has_fast_vectors: whether the engine's compiler makes vectors of float64 that pay.
        aligned: the arrays whose memory begins at a multiple of a machine vector's size.
        first: the kernel that the pipeline was given.
    """

    find_racing_loops: Callable[[nodes.Kernel], Collection[nodes.For]] = lambda _: ()
    batched: frozenset[str] = frozenset()
    is_serial: bool = False
    keeps_order: bool = False
    is_flat: bool = False
    note_divisions: Callable[[], None] | None = None
    note_sites: Callable[[tuple[Site, ...]], None] | None = None
    is_spread: bool = False
    has_fast_vectors: bool = False
    aligned: frozenset[str] = frozenset()
    first: nodes.Kernel | None = None


class Pass(NamedTuple):
    """One pass of a pipeline.

    Attributes:
        name: what `--print-ir-after` calls it.
        run: the pass: of what the one before it left, and of the pipeline's options.
        needs: what must hold of the kernel that it is given, besides the rules of the IR.
        gives_ssa: whether what it leaves is in SSA form.
    """

    name: str
    run: Callable[[Any, Any], Any]
    needs: str = ""
    gives_ssa: bool = False


Pipeline = tuple[Pass, ...]


def _run_blocks(kernel: nodes.Kernel, _: PassOptions) -> nodes.Kernel:
    has_blocks = bool(kernel.block_memory) or walk.has_barriers(kernel.body)
    return passes.run_blocks_in_order(kernel) if has_blocks else kernel


def order_racing_loops(kernel: nodes.Kernel, options: PassOptions) -> nodes.Kernel:
    """Let the parallel loops whose iterations may race run in order, so that values do not depend on threads."""
    racing = options.find_racing_loops(kernel)
    body = tuple(
        replace(one, is_parallel=False, may_race=True) if any(one is loop for loop in racing) else one
        for one in kernel.body
    )
    return replace(kernel, body=body) if racing else kernel


def _batch(kernel: nodes.Kernel, options: PassOptions) -> nodes.Kernel:
    return passes.batch_kernel(kernel, options.batched | kernel.block_memory.keys()) if options.batched else kernel


def serialize_kernel(kernel: nodes.Kernel, *, keeps_order: bool = False) -> nodes.Kernel:
    """Make every loop of a kernel serial. Mark those that were parallel as independent, unless it `keeps_order`."""

    def serialize(one: nodes.Stmt) -> nodes.Stmt:
        if not walk.is_parallel(one):
            return one
        # Settings of a parallel loop, such as its block size, mean nothing on one thread.
        return replace(one, is_parallel=False, is_independent=not keeps_order, block_size=0)

    return replace(kernel, body=tuple(map(serialize, kernel.body)))


def run_on_one_thread(kernel: nodes.Kernel) -> nodes.Kernel:
    """Let all loops run in order, and make atomic additions plain ones.

        parallel for i in 0 .. n:                    for i in 0 .. n [is_independent]:
            atomic add total[], x[i]           ->        total[] = total[] + x[i]

    No other thread adds to an element, and an atomic addition takes as long as 20 to 60 operations. That iterations of
    a loop were parallel stays known: lanes may still run them side by side.
    """
    body = walk.rewrite(kernel.body, lambda one: (passes.write_out_addition(one),))
    return serialize_kernel(replace(kernel, body=body))


def _serialize(kernel: nodes.Kernel, options: PassOptions) -> nodes.Kernel:
    return serialize_kernel(kernel, keeps_order=options.keeps_order) if options.is_serial else kernel


def _write_divisions(kernel: nodes.Kernel, options: PassOptions) -> nodes.Kernel:
    written = passes.write_out_divisions(kernel)
    if written is not kernel and options.note_divisions is not None:
        options.note_divisions()
    return written


def _check_bounds(kernel: nodes.Kernel, options: PassOptions) -> nodes.Kernel:
    if options.note_sites is None:
        return kernel
    checked, sites = passes.insert_bounds_checks(kernel)
    options.note_sites(sites)
    return checked


def _strip(kernel: nodes.Kernel, options: PassOptions) -> nodes.Kernel:
    return passes.strip_functions(
        kernel, has_fast_vectors=options.has_fast_vectors, has_vectors=True, aligned=options.aligned
    )


def _index_by_rows(kernel: nodes.Kernel, options: PassOptions) -> nodes.Kernel:
    # A kernel that is as it was given may be the user's, which the engine compiles from its own source: it is printed
    # from IR only if an inner loop saves indices by that (docs/about/decisions/vector-speed.md).
    is_rewritten = kernel is not options.first
    return passes.index_by_rows(kernel) if is_rewritten or passes.has_rows_in_loops(kernel) else kernel


_CHECK_BOUNDS = Pass("check-bounds", _check_bounds, "its indices are those of the source, but for fields' offsets")

# Barriers go first, since no other pass knows them. Products come after races: in a loop that was put in order, an
# atomic product ends the process of both engines (`_products`).
FORWARD: Pipeline = (
    Pass("run-blocks", _run_blocks, "all lanes of a block reach the same barriers"),
    Pass("order-races", order_racing_loops, "there are no barriers"),
    Pass("write-divisions", _write_divisions),
    Pass("write-products", lambda kernel, _: passes.write_out_products(kernel), "loops that may race run in order"),
)
"""From what lowering gives to the kernel that all other pipelines, and all analyses, take."""

BATCH: Pipeline = (
    Pass("batch", _batch, "no local of the top level is changed by a parallel loop"),
    Pass("serialize", _serialize),
)
"""To the kernel that runs all samples of a batch, and to the one that runs on one thread."""

# Checks come before the batch, so that messages count axes as the source does.
GUARDED: Pipeline = (_CHECK_BOUNDS, *BATCH)
"""To the kernel that notes the first index outside of its array."""

ON_ONE_THREAD: Pipeline = (Pass("run-on-one-thread", lambda kernel, _: run_on_one_thread(kernel)),)
"""To the form of a generated kernel for a small call, and for an op that is deterministic."""

# Exchanges come before checks, which would separate a store that takes a value from its load.
GENERATED: Pipeline = (
    Pass("flatten", lambda kernel, options: passes.flat(kernel) if options.is_flat else kernel),
    Pass(
        "exchange", lambda kernel, _: passes.exchange_values(kernel), "stores that take what was there follow its load"
    ),
    _CHECK_BOUNDS,
    Pass("spread-blocks", lambda kernel, options: passes.spread_blocks(kernel) if options.is_spread else kernel),
)
"""From a kernel of a gradient, as the adjoint leaves it, to what is launched."""

# Sums come first, since an atomic keeps a loop from strips. Loops are collapsed before strips, which go over the last
# axis alone. Rows come last: strips and lanes go by the indices of the source, whose last one tells them which elements
# lie side by side.
CPU: Pipeline = (
    Pass("sum-in-locals", lambda kernel, _: passes.sum_in_locals(kernel)),
    Pass("collapse", lambda kernel, _: passes.collapse_loops(kernel)),
    Pass("strip", _strip, "every statement has a number of its own, or none"),
    Pass("index-by-rows", _index_by_rows),
)
"""To strips and lanes, which an engine's compiler turns into machine vectors."""

# Sums come first: they need the loop's own variable to tell that no other iteration adds to an element, and with fixed
# threads an engine no longer sees that. Rows come last, so that a thread computes sizes once for all of its iterations.
GPU: Pipeline = (
    Pass("sum-all-in-locals", lambda kernel, _: passes.sum_in_locals(kernel, leaves_known=False)),
    Pass("collapse", lambda kernel, _: passes.collapse_loops(kernel)),
    Pass("interleave", lambda kernel, _: passes.interleave_loops(kernel)),
    Pass("fix-threads", lambda kernel, _: passes.fix_threads(kernel)),
    Pass("delay-stores", lambda kernel, _: passes.delay_stores(kernel)),
    Pass("index-by-rows", _index_by_rows),
)
"""To one launch for each loop, several loads in flight in each thread, and indices without sizes from memory."""

ENGINE: Pipeline = (Pass("limit-nesting", lambda kernel, _: passes.limit_nesting(kernel)),)
"""What an engine's compiler needs before it gets a kernel."""

ADJOINT: Pipeline = (
    Pass(
        "normalize",
        lambda *given: passes.normalize_kernels(*given),
        "the kernels are what FORWARD leaves",
        gives_ssa=True,
    ),
    Pass(
        "decide",
        lambda *given: passes.decide_sources(*given),
        "tasks are in SSA form; what is read is loaded by a statement of its own",
        gives_ssa=True,
    ),
    Pass("emit", lambda *given: passes.emit_reverses(*given)),
    Pass("use-checkpoints", lambda *given: passes.use_checkpoints(*given)),
    Pass("assemble", lambda *given: passes.assemble(*given)),
)
"""From the kernels of an op to the program of its backward pass. Options: `AdjointOptions`."""

ADJOINT_CLEAN_UP: Pipeline = (
    Pass("gather", lambda *given: passes.gather_additions(*given), "adjoints start at zero"),
    Pass(
        "store-whole",
        lambda *given: passes.store_whole_gradients(*given),
        "no kernel is launched twice for one adjoint",
    ),
    Pass("hand-on", lambda *given: passes.hand_on_adjoints(*given), "`AdjointProgram.whole` is known"),
)
"""From a program to one that does the same with less memory traffic. Options: `CleanUpOptions`."""

TANGENT: Pipeline = (
    Pass("drop-idle-results", lambda *given: passes.drop_idle_results(*given)),
    Pass("write-extremes", lambda *given: passes.write_extremes(*given), "no atomic has a result that nobody reads"),
    Pass(
        "differentiate", lambda *given: passes.differentiate(*given), "no maximum or minimum of an array has a tangent"
    ),
)
"""From a kernel to the one that carries tangents along. Options: `TangentOptions`."""

TANGENT_CLEAN_UP: Pipeline = (Pass("drop-unneeded", lambda *given: passes.drop_unneeded(*given)),)
"""To what the results and later kernels need of a tangent. Options: `UnneededOptions`."""

PIPELINES: Mapping[str, Pipeline] = {
    "FORWARD": FORWARD,
    "BATCH": BATCH,
    "GUARDED": GUARDED,
    "ADJOINT": ADJOINT,
    "ADJOINT_CLEAN_UP": ADJOINT_CLEAN_UP,
    "TANGENT": TANGENT,
    "TANGENT_CLEAN_UP": TANGENT_CLEAN_UP,
    "ON_ONE_THREAD": ON_ONE_THREAD,
    "GENERATED": GENERATED,
    "CPU": CPU,
    "GPU": GPU,
    "ENGINE": ENGINE,
}
"""All pipelines by name."""

PASS_NAMES: tuple[str, ...] = ("lower", *dict.fromkeys(one.name for pipeline in PIPELINES.values() for one in pipeline))
"""All passes by name, in the order in which they run: lowering from Python, then those of the pipelines."""


def run_pipeline(pipeline: Pipeline, kernel: nodes.Kernel, options: PassOptions | None = None) -> nodes.Kernel:
    """Run the passes of a pipeline on a kernel, one after the other.

    Args:
        pipeline: the passes.
        kernel: what the first one gets.
        options: what they depend on.
    """
    return run_passes(pipeline, kernel, replace(options or PassOptions(), first=kernel))


def run_passes(pipeline: Pipeline, unit: Any, options: Any) -> Any:
    """Run passes one after the other, each on what the one before it left. Arguments as in `run_pipeline`."""
    for one in pipeline:
        after = one.run(unit, options)
        kernels = (after,) if isinstance(after, nodes.Kernel) else after.kernels
        finish_pass(one.name, kernels, is_changed=after is not unit, is_ssa=one.gives_ssa)
        unit = after
    return unit


def generate_adjoint(kernels: Sequence[nodes.Kernel], options: passes.AdjointOptions) -> passes.AdjointProgram:
    """Generate the backward pass of an op.

    Args:
        kernels: those of the op, in the order of their first launches; arrays of one name are one array.
        options: what it depends on besides.

    Raises:
        NotCovered: a kernel does what cannot be reversed; the message says where.
    """
    return run_passes(ADJOINT, kernels, options)


def clean_up_adjoint(program: passes.AdjointProgram, options: passes.CleanUpOptions) -> passes.AdjointProgram:
    """Return a backward pass whose kernels gather, store and hand on where they added and copied."""
    return run_passes(ADJOINT_CLEAN_UP, program, options)


def generate_tangent(
    kernel: nodes.Kernel,
    active: frozenset[str],
    *,
    inert: frozenset[str] = frozenset(),
    disordered: Mapping[str, NotCovered] = MappingProxyType({}),
) -> passes.Tangent:
    """Generate a kernel that carries tangents along (forward mode).

    Args:
        kernel: the kernel.
        active: names of the arrays and arguments that are given a tangent. What is not floating has none.
        inert: arrays that get none, whatever is stored to them.
        disordered: arrays that depend on the order of parallel iterations before the kernel runs, with the reason.

    Raises:
        NotCovered: with the line, a construct whose tangent is unknown.

    Example:
        >>> arrays = {"x": nodes.Array("x", "f32", 0), "y": nodes.Array("y", "f32", 0)}
        >>> copy = nodes.Kernel("copy", "", arrays, {}, {}, (nodes.Store("y", (), (), nodes.Load("x", (), (), "f32")),))
        >>> generate_tangent(copy, frozenset({"x"})).companions
        {'x': 'x_dot', 'y': 'y_dot'}
    """
    return run_passes(TANGENT, kernel, passes.TangentOptions(active=active, inert=inert, disordered=disordered))


def clean_up_tangent(kernel: nodes.Kernel, options: passes.UnneededOptions) -> nodes.Kernel:
    """Remove from a tangent's kernel the statements that none of its outputs need."""
    return run_passes(TANGENT_CLEAN_UP, kernel, options)
