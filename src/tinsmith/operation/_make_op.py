"""The decorator `op`, which makes an op from one kernel, and `chain`, which makes one from several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import compiling
from .._errors import ArgumentError, refusal
from .._suggestions import suggest_options
from ..spec import parse
from ._op import Op, Result
from ._options import Adjoint, Half, OpOptions, Order, Races
from ._replaced_gradients import follow_replaced


@suggest_options('ts.op("x[n] -> y[n]")(kernel)')
def op(
    spec: str,
    *,
    scratch: str | None = None,
    init: Mapping[str, str] | None = None,
    adjoint: Adjoint = "auto",
    backward: Any = None,
    engine: str | None = None,
    trust_engine: bool = False,
    check_bounds: bool = False,
    half: Half = "compute",
    name: str | None = None,
    order: Order | None = None,
    returns: type[Result] | None = None,
    deterministic: bool = False,
    races: Races = "check",
) -> Callable[[Any], Op[Result]]:
    """Make a kernel an ordinary, differentiable torch operation. A decorator.

    Args:
        spec: the arrays that the kernel reads and writes, with their dims: `"x[n], k[m] -> y[n - m + 1]"`. A value that
            the kernel returns is also an output, under a name that no parameter has: `"x[n] -> loss[]"`.
        scratch: arrays for intermediate values, in the language of the spec.
        init: `{"y": "empty"}` does not zero the memory of an output, of scratch, or, with `"grad_x"`, of a gradient
            that a hand-written `backward` fills. Scratch that is a `"workspace"` is also separate for each launch: a
            hand-written `backward` gets other memory, without the kernel's values.
        adjoint: where the gradient comes from: `"auto"` uses `backward` if passed, else an adjoint generated from the
            kernel's source if possible, else the engine's reverse mode; `"source"` and `"engine"` force one.
        backward: a hand-written gradient kernel.
        engine: the engine to run the kernel on; None for the one that it was written for.
        trust_engine: if the engine's own gradient is used, use it also for kernels that it is known to get wrong.
        check_bounds: raise BoundsError if an index is outside its array or an integer is divided by zero, in the
            forward pass, in a generated or hand-written backward pass, and in batches. Without it, a launch reads or
            overwrites other memory, or ends the process. For debugging: launches are slower, and each call waits for
            its launches. `TINSMITH_CHECK_BOUNDS=1` sets it for every op.
        half: how to treat float16 and bfloat16 tensors for arrays that the kernel annotates as float32: `"compute"` in
            float32, as for arrays without annotation, or `"refuse"`.
        name: the name in messages; the kernel's name by default.
        order: order of a call's arguments: `"kernel"` for that of its parameters, `"spec"` for the spec's inputs, then
            the other arguments. Results are always in the spec's order. The default is the kernel's order, with a
            warning if inputs and outputs with matching names (`v` and `v_new`) and dims are in different orders.
        returns: for an op with several outputs, a `NamedTuple` class with their names as fields. Calls return it.
            Without it, type checkers assume that a call returns a tensor.
        deterministic: return bitwise the same results in each run, forward and backward, also for higher derivatives:
            kernels with atomics whose order affects the last digits run on one thread. An error where this is
            impossible: for the engine's own gradient, and for such kernels on GPUs.
        races: `"check"` refuses kernels whose parallel iterations certainly race: one stores what another one reads or
            stores. Where they may race, because an index or a condition depends on data, it warns, and the loop runs in
            order on the CPU, forward and backward. A promise in the spec (`unique k[n]`) says that they do not.
            `"allow"` turns this off: values then depend on the order of the iterations, and so does the gradient.

    Raises:
        KernelError: the kernel has a data race.
        SpecError: the spec does not parse, or does not fit the kernel's parameters.
        KernelError: the kernel writes an input, returns a value that the spec does not name, or has no source.

    Example:
        >>> @ts.op("x[n] -> y[n]")
        ... @ti.kernel
        ... def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in x:
        ...         y[i] = x[i] * x[i]
        >>> x = torch.ones(3, requires_grad=True)
        >>> square(x).sum().backward()
        >>> x.grad
        tensor([2., 2., 2.])
    """
    options = OpOptions(
        scratch=scratch,
        init=init,
        adjoint=adjoint,
        backward=backward,
        engine=engine,
        trust_engine=trust_engine,
        check_bounds=check_bounds,
        half=half,
        name=name,
        order=order,
        returns=returns,
        deterministic=deterministic,
        races=races,
    )
    # A mistake in the spec raises its error here, on the line of the decorator.
    parse(spec, scratch)

    def decorate(*kernels: Any) -> Op[Result]:
        if len(kernels) != 1:
            words = f"ts.op makes an op of one kernel, and was given {len(kernels)}"
            remedy = f'ts.chain("{spec}", [first, second]) makes an op of several.'
            raise ArgumentError(refusal(words, remedy=remedy))
        if isinstance(kernels[0], Op):
            words, name = "ts.op takes a kernel, and was given an op", kernels[0].name
            raise ArgumentError(refusal(words, [("got", repr(kernels[0]))], f"Pass its kernel: `{name}.kernel`."))
        kernel, complete = follow_replaced(kernels[0], options)
        return Op([kernel], spec, complete)

    return decorate


@suggest_options('ts.chain("x[n] -> y[n]", [first, second])')
def chain(
    spec: str,
    kernels: Sequence[Any] = (),
    *,
    scratch: str | None = None,
    init: Mapping[str, str] | None = None,
    adjoint: Adjoint = "auto",
    backward: Any = None,
    engine: str | None = None,
    trust_engine: bool = False,
    check_bounds: bool = False,
    half: Half = "compute",
    name: str | None = None,
    order: Order | None = None,
    returns: type[Result] | None = None,
    deterministic: bool = False,
    races: Races = "check",
) -> Op[Result]:
    """Make one op from several kernels, which run in order, and in reverse order in the backward pass.

    Arrays are linked by parameter name: a kernel reads what an earlier one wrote to the array of that name. A kernel
    that is listed twice runs twice on the same arrays: the second launch continues from the results of the first. If it
    could only repeat the same computation, as in `[step, step]` for a `step(x, y)` that reads `x` and overwrites `y`,
    `chain` raises an error. The other arguments are those of `op`.

    Raises:
        KernelError: a kernel is listed twice and would repeat the same computation.
        ArgumentError: a listed op is itself a chain, or has a hand-written gradient.

    Example:
        >>> @ti.kernel
        ... def square(x: ti.types.ndarray(), t: ti.types.ndarray()):
        ...     for i in x:
        ...         t[i] = x[i] * x[i]
        >>> @ti.kernel
        ... def double(t: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in t:
        ...         y[i] = 2.0 * t[i]
        >>> op = ts.chain("x[n] -> y[n]", [square, double], scratch="t[n]")
        >>> op(torch.tensor([1.0, 3.0]))
        tensor([ 2., 18.])
    """
    given: tuple[Any, Any] = spec, kernels
    if not isinstance(given[0], str) or not isinstance(given[1], list | tuple):
        rows = [("got", ", ".join(type(one).__name__ for one in given))]
        remedy = 'Write ts.chain("x[n] -> y[n]", [first, second], scratch="t[n]").'
        raise ArgumentError(refusal("ts.chain takes a spec, and then a list of kernels", rows, remedy))
    if not kernels:
        raise ArgumentError(refusal("ts.chain needs at least one kernel", remedy="Pass a list of kernels."))
    options = OpOptions(
        scratch=scratch,
        init=init,
        adjoint=adjoint,
        backward=backward,
        engine=engine,
        trust_engine=trust_engine,
        check_bounds=check_bounds,
        half=half,
        name=name,
        order=order,
        returns=returns,
        deterministic=deterministic,
        races=races,
    )
    pairs = [(one.kernel, one._options.backward) if isinstance(one, Op) else (one, None) for one in kernels]
    compiling.check_links(name or "", pairs)
    made: Op[Result] = Op([kernel for kernel, _ in pairs], spec, options)
    compiling.check_repeats(made.name, made._core.signature.stages)
    return made
