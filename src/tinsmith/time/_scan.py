"""`scan`: many steps of a simulation as one differentiable operation."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from .._errors import ArgumentError, refusal
from .._offers import checking_scan, scan_operators
from .._suggestions import suggest_options
from ..calls import check_before_copy
from ..operation import Op
from ..tracing import count_transforms, get_version, has_forward_mode, is_tracing, is_transformed
from ._arguments import Options, check_tensors, count_bytes, find_length, format_bytes, read_keep, read_memory
from ._environment import RandomStates, note_surroundings
from ._function import Scan, run_loop
from ._job import Arguments, Job, Like, is_differentiable
from ._operators import ALL, define_scan_operators
from ._recorder import find_captured_leaves
from ._schedule import Schedule
from ._steps import CallStep, Given, check_repeatable, make_step
from ._trees import Tree, take_apart


class Prepared(NamedTuple):
    """A call of `scan` after its checks: its job, its tensors, and the structure of its state."""

    job: Job
    given: Arguments
    tree: Tree


@suggest_options("ts.scan(step, state, inputs, parameters=...)")
def scan(
    step: Any,
    state: Any,
    inputs: Any = None,
    *,
    length: int | None = None,
    parameters: Any = (),
    keep: Literal["last", "all"] | int = "last",
    checkpoint: Literal["auto", "all"] | int = "auto",
    memory: str | int | None = None,
    unroll: int = 1,
    offload: bool = False,
    check_finite: bool = False,
) -> tuple[Any, Any]:
    """Run a step thousands of times, as one differentiable operation with bounded memory.

        for t in range(length):
            state, outputs[t] = step(state, inputs[t], *parameters)

    The backward pass recomputes the states that are not kept from those that are. The initial state, the inputs and the
    parameters have gradients, which are bitwise the same for every choice of kept states.

    How `step` is called:

    - **A Python function** is called as `step(state, inputs, *parameters)` and returns `(state, outputs)`, as in
      `jax.lax.scan`. The state may be a tensor, or nested tuples, lists and dicts of tensors. `inputs` are those of one
      step, or None without inputs; `outputs` may be None. If `parameters` is a dict, they are passed by name. A
      `torch.nn.Module` that is not a layer of this library is called in the same way.
    - **An op, a chain or a layer** is called with the state, the inputs and the parameters as its arguments, in the
      order of `op.arguments`. Dicts are passed by name, and the others fill the remaining arguments. The first results
      are the next state, in the order of the arguments; the others are outputs. Arguments that an op updates (`inout`)
      belong to the state, and their new values are the next state. The caller's tensors are not changed.

    Args:
        step: an op, a chain, a layer, or a Python function.
        state: the initial state. Floats are differentiable.
        inputs: tensors with time as their first dim, a row for each step. Differentiable.
        length: the number of steps; by default the length of the inputs.
        parameters: arguments that are the same in all steps: a tensor, or a tuple or dict of tensors, and of numbers.
            Tensors are differentiable; their gradient is summed over the steps.
        keep: which states to return: the `"last"`, `"all"`, or every k-th for an integer k.
        checkpoint: which states to keep for the backward pass: `"all"`, every k-th, or `"auto"`: all if they fit into
            `memory`, else as many as fit, chosen so that the fewest steps are run again.
        memory: limit for the kept states, `"2GB"`, `"100MiB"` or bytes; 1 GB by default. Only for `"auto"`.
        unroll: number of steps of a Python function that the backward pass records at once. More steps take more memory
            and less time.
        offload: keep the states of a scan on a GPU in pinned host memory, which `memory` then limits. No effect on a
            CPU.
        check_finite: check the results of each step, and raise CheckError with the first step that produces
            infinities or NaN.

    Returns:
        The state and the outputs. The state has the structure of the initial one, with time as the first dim of its
        tensors unless `keep` is `"last"`; row `i` is the state after `i + 1` steps (after `(i + 1) * keep`). Outputs
        have time as their first dim; None if the step has none. One output of an op is a tensor, several are a dict.
        The outputs of a Python function are None if there are zero steps, since it is not called.

    Raises:
        ArgumentError: the arguments do not fit the step, or the step returns a state with another structure.
        ShapeError: a step changes the shape of its state, or inputs have different lengths.
        DtypeError: a step changes the dtype of its state.
        GradientError: a later step uses a tensor that needs a gradient, is not an argument, and is not used in step 0.
        CheckError: with `check_finite`, a step produced infinities or NaN.

    Tensors of closures and modules that a Python function uses also get gradients. Torch's random numbers and autocast
    are the same when a step is run again. Second derivatives, and Python functions under `torch.func` or in forward
    mode, use the loop above, and its memory.

    Example:
        >>> @ts.op("x[n], v[n], stiffness[] -> x_next[n], v_next[n]")
        ... @ti.kernel
        ... def swing(
        ...     x: ti.types.ndarray(), v: ti.types.ndarray(), stiffness: ti.types.ndarray(),
        ...     x_next: ti.types.ndarray(), v_next: ti.types.ndarray(),
        ... ):
        ...     for i in x:
        ...         w = v[i] - 0.01 * stiffness[None] * x[i]
        ...         v_next[i] = w
        ...         x_next[i] = x[i] + 0.01 * w
        >>> stiffness = torch.tensor(4.0, requires_grad=True)
        >>> begin = torch.ones(1), torch.zeros(1)
        >>> (x, v), _ = ts.scan(swing, begin, length=1000, parameters=stiffness)
        >>> x.sum().backward()
        >>> x.detach(), stiffness.grad
        (tensor([0.3986]), tensor(-2.2942))
    """
    options = Options(keep, checkpoint, memory, unroll, offload, check_finite)
    run = _run_traced if is_tracing() else _run
    return run(step, state, inputs, length, parameters, options)


def _run_traced(
    step: Any, state: Any, inputs: Any, length: int | None, parameters: Any, options: Options
) -> tuple[Any, Any]:
    """Run a scan under tracing: by the operator of scans over an op if there is one, else outside of the graph."""
    transforms = count_transforms()
    is_first = not transforms.tangents and max(transforms.batches, transforms.gradients) < 2
    name = (
        step.scan_operator()
        if isinstance(step, Op) and is_first and not (options.check_finite or options.offload)
        else None
    )
    if name is None:
        # A compiler would unroll the steps, and take hours for a thousand of them.
        outside: Any = torch.compiler.disable(_run)
        return outside(step, state, inputs, length, parameters, options)
    begin, rows, others = (Given(*take_apart(one)) for one in (state, inputs, parameters))
    check_tensors(begin, rows)
    count = find_length(length, rows)
    made: Any = make_step(step, begin, rows, others)
    names = [*made.names[0], *made.names[1], *made.names[2], *made.numbers]
    spacings: dict[Any, Any] = {"auto": None, "all": ALL}
    results = getattr(torch.ops.tinsmith, name)(
        [*begin.leaves, *rows.leaves, *others.tensors],
        list(made.numbers.values()),
        names,
        [len(begin.leaves), len(rows.leaves), len(others.tensors)],
        count,
        read_keep(options.keep, count),
        spacings.get(options.checkpoint, options.checkpoint),
        None if options.memory is None else read_memory(options.memory),
        options.unroll,
        [],
    )
    states = len(begin.leaves)
    return begin.tree.put_together(results[:states]), made.outputs.put_together(results[states:])


def _run(*arguments: Any) -> tuple[Any, Any]:
    """Run a scan in eager mode. The arguments are those of `_prepare`."""
    job, given, tree = _prepare(*arguments)
    tensors = given.flat
    if not job.needs_gradient:
        job.keeps_graphs = False
        job.schedule = Schedule(job.schedule.length)  # no backward pass follows, which would need the states
    if is_transformed() and (job.step.op is None or job.checks or has_forward_mode()):
        results = run_loop(job, tensors)
    else:
        results = list(Scan.apply(job, *tensors))
    count = job.sizes[0]
    outputs = job.step.outputs
    return tree.put_together(results[:count]), None if outputs is None else outputs.put_together(results[count:])


@suggest_options("ts.scan.explain(step, state, inputs, parameters=...)")
def explain(
    step: Any,
    state: Any,
    inputs: Any = None,
    *,
    length: int | None = None,
    parameters: Any = (),
    keep: Literal["last", "all"] | int = "last",
    checkpoint: Literal["auto", "all"] | int = "auto",
    memory: str | int | None = None,
    unroll: int = 1,
    offload: bool = False,
    check_finite: bool = False,
) -> str:
    """Describe which states a call of `scan` with these arguments keeps, and how many steps its backward pass reruns.

    The arguments are those of `scan`. Only the first step is run, to find out what it returns.

    Example:
        >>> def decay(x, _):
        ...     return 0.99 * x, None
        >>> print(ts.scan.explain(decay, torch.ones(250_000), length=10_000, memory="100MB"))
        scan over `decay`: 10000 steps, a state of 1.00 MB
        forward:  10000 steps, 100 states kept, 100.00 MB
        backward: 14647 steps run again to find the others, at most 100 states kept at once, 100.00 MB
                  10000 steps recorded for autograd, 1 at a time
    """
    options = Options(keep, checkpoint, memory, unroll, offload, check_finite)
    job = _prepare(step, state, inputs, length, parameters, options).job
    size = count_bytes(job.state)
    counts = job.schedule.counts
    kept = len(job.schedule.stored_positions) - 1
    again = min(counts.again * job.unroll, job.length * max(counts.again, 1))
    lines = [
        f"scan over `{job.step.name}`: {job.length} steps, a state of {format_bytes(size)}",
        f"forward:  {job.length} steps, {kept} states kept, {format_bytes(kept * size)}",
        f"backward: {again} steps run again to find the others, at most {counts.most_states} states kept at once, "
        f"{format_bytes(counts.most_states * size)}",
    ]
    if job.step.op is None and not job.keeps_graphs:
        lines.append(f"          {job.length} steps recorded for autograd, {job.unroll} at a time")
    return "\n".join(lines)


def check(*arguments: Any, **named: Any) -> Any:
    """Compare a scan's gradient with finite differences and measure its growth: see `tinsmith.doctor.scans`."""
    return checking_scan(*arguments, **named)


for _name, _function in (("explain", explain), ("check", check)):
    setattr(scan, _name, _function)  # pyright rejects attributes of a function


def _prepare(step: Any, state: Any, inputs: Any, length: int | None, parameters: Any, options: Options) -> Prepared:
    """Check the arguments of `scan`, and run the first step to find out what it returns. Return the job."""
    begin, rows, others = (Given(*take_apart(one)) for one in (state, inputs, parameters))
    check_tensors(begin, rows)
    count = find_length(length, rows)
    made = make_step(step, begin, rows, others)
    names = begin.tree.names("state")
    like = [Like(name, one.shape, one.dtype) for name, one in zip(names, begin.leaves, strict=True)]

    def plan(state: Sequence[Like]) -> Schedule:
        return options.schedule(count, count_bytes(state))

    job = Job(
        step=made,
        length=count,
        every=read_keep(options.keep, count),
        unroll=options.unroll,
        schedule=plan(like),
        sizes=(len(begin.leaves), len(rows.leaves), len(others.tensors)),
        state=like,
        outputs=[],
        random=RandomStates([*begin.leaves, *rows.leaves, *others.tensors]),
        surroundings=note_surroundings([*begin.leaves, *rows.leaves, *others.tensors]),
        plan=plan,
        checks=options.check_finite,
        offloads=options.offload,
    )
    given = Arguments(begin.leaves, rows.leaves, others.tensors)
    captured, recorded = _run_first_step(job, given) if count else ((), 0)
    if not count and made.op is not None:
        _infer_outputs(job, given)
    given = given._replace(captured=captured)
    fits = options.checkpoint == "all" or recorded * count <= options.budget
    job.keeps_graphs = job.schedule.every == 1 and fits and not job.offloads  # graphs would stay on the GPU
    if torch.is_grad_enabled() and any(one.requires_grad for one in given.flat):
        check_repeatable(job.step)
        job.needs_gradient = tuple(one.requires_grad for one in given.flat)
    return Prepared(job, given, begin.tree)


scan_operators.register(functools.partial(define_scan_operators, _prepare))


def _run_first_step(job: Job, given: Arguments) -> tuple[Sequence[Tensor], int]:
    """Run the first step to find out what it returns, whether it changes its arguments, and what autograd records.

    Return the tensors that it captured, and the number of bytes that autograd keeps for a step.

    Raises:
        ArgumentError: the step changes its inputs or parameters in place.
    """
    is_recorded = torch.is_grad_enabled() and not is_transformed()
    state, row = list(given.state), [one[0] for one in given.inputs]
    leaves: list[Tensor] = [*state, *row, *given.parameters]
    # A Python function may do without kernels.
    for leaf in leaves if isinstance(job.step, CallStep) else ():
        check_before_copy(f"an argument of step `{job.step.name}` of a scan", leaf)
    if is_recorded:
        # If any argument needs a gradient, the later states have one too.
        wants = any(one.requires_grad for one in leaves)
        asked = [wants] * len(state) + [one.requires_grad for one in leaves[len(state) :]]
        pairs = zip(leaves, asked, strict=True)
        leaves = [one.detach().requires_grad_(is_asked and is_differentiable(one)) for one, is_asked in pairs]
    with job.random.preserve_states(), torch.set_grad_enabled(is_recorded):
        own = job.arguments([one.clone() for one in leaves])  # clones, since leaves cannot be changed in place
        saved = _Saved(own.flat if is_recorded else ())
        groups = {"state": own.state, "inputs": own.inputs, "parameters": own.parameters}
        before = {what: [get_version(one) for one in group] for what, group in groups.items()}
        with saved.record_saved(is_recorded), job.first.note():
            following, outputs = job.step(own.state, own.inputs, own.parameters)
    changed = [what for what, group in groups.items() if [get_version(one) for one in group] != before[what]]
    for what in changed:
        if what != "state":
            words = f"step `{job.step.name}` of a scan changes its {what} in place"
            remedy = "Change a `.clone()` instead: the tensors belong to the caller."
            raise ArgumentError(refusal(words, remedy=remedy))
    job.changes_state = "state" in changed
    job.check_state(following, 0)
    _note_outputs(job, outputs)
    ends = [*following, *outputs]
    return (find_captured_leaves(ends, leaves), saved.bytes_with(ends)) if is_recorded else ((), 0)


def _infer_outputs(job: Job, given: Arguments) -> None:
    """Find out what an op returns in a scan without steps: a call on torch's meta device computes sizes alone."""
    rows = [one.new_empty(one.shape[1:], device="meta") for one in given.inputs]
    _, outputs = job.step([one.to("meta") for one in given.state], rows, [one.to("meta") for one in given.parameters])
    _note_outputs(job, outputs)


def _note_outputs(job: Job, outputs: Sequence[Tensor]) -> None:
    tree = job.step.outputs
    names = tree.names("outputs") if tree is not None else []
    job.outputs = [Like(name, one.shape, one.dtype) for name, one in zip(names, outputs, strict=True)]


class _Saved:
    """A counter of the bytes that autograd keeps for a step, without the arguments."""

    def __init__(self, leaves: Sequence[Tensor]) -> None:
        self._given = {one.untyped_storage().data_ptr() for one in leaves}
        self._sizes: dict[int, int] = {}

    def record_saved(self, is_recorded: bool) -> Any:
        """Return a context manager in which tensors that autograd saves are counted, if `is_recorded`.

        Transforms of torch.func do not support the hooks that this takes.
        """
        return saved_tensors_hooks(self._note, lambda tensor: tensor) if is_recorded else contextlib.nullcontext()

    def _note(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._given:
            self._sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    def bytes_with(self, results: Sequence[Tensor]) -> int:
        """Return the number of bytes of the saved tensors and of the results."""
        for one in results:
            self._note(one)
        return sum(self._sizes.values())
