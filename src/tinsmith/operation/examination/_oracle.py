"""The oracle: results and gradient of an op, computed by interpreting its kernels in float64.

The kernels are interpreted and torch's autograd differentiates every operation, so the result does not depend on how
an engine compiles or differentiates, nor on the passes that make gradient kernels. It is slow, for small sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ..._errors import ArgumentError, ShapeError, refusal
from ...calls import BoundArguments, Call, make_checked_call, require_lowered
from ...codegen import build_exact_kernel
from ...engines import DTYPES, Recorder, Watch
from ...frontend.lowering import LoweredKernel
from ...ir import nodes
from ...passes import evaluate
from ...tracing import is_transformed
from .._op import Op

Cotangents: TypeAlias = "torch.Tensor | Mapping[str, torch.Tensor] | Sequence[torch.Tensor | None]"
_Tensors: TypeAlias = dict[str, torch.Tensor]
Observer: TypeAlias = Callable[[nodes.Kernel, int, _Tensors], "tuple[Recorder | None, Watch | None]"]
"""Called for each run of a kernel on arrays, with its number in the op. Number 0 begins a sample of a batch."""


@dataclass(frozen=True)
class Answer:
    """The result of the oracle for one call of an op.

    Attributes:
        outputs: outputs by name; floats in float64, others in the op's dtype.
        gradients: gradients by name, in float64, of floating inputs (in the shape of the call) and of floating scalar
            arguments; empty if no cotangents were passed.

    Example:
        >>> @ts.op("x[n] -> y[n]")
        ... @ti.kernel
        ... def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in x:
        ...         y[i] = x[i] * x[i]
        >>> answer = ts.oracle(square, torch.arange(3.0))
        >>> answer.outputs["y"], answer.gradients
        (tensor([0., 1., 4.], dtype=torch.float64), {})
    """

    outputs: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor]


def oracle(op: Op, *inputs: Any, cotangents: Cotangents | None = None, **named: Any) -> Answer:
    """Compute outputs and exact gradient of an op by interpreting its kernels in float64.

    With outputs y = op(x):   gradients[x] = sum over y of cotangents[y] * dy/dx

    All kernels of a chain run in order, a batch sample by sample, and fields have their current values. Outputs start
    at zero. Derivatives at kinks and singular points are torch's: 0 where `norm` is 0, half for each of two equal
    operands of `max`, and 0 for `max(x, 0.0)` at 0. Each operation takes about 10 us.

    Args:
        op: made by `tinsmith.op` or `tinsmith.chain`. Its `backward=` is not used.
        inputs: the arguments of a call. They are not changed, and no graph is kept.
        cotangents: incoming gradients of outputs, shaped like them: one tensor for an op with one output; a mapping
            by name, or a sequence with None for outputs without. Missing outputs have no cotangent.
        named: inputs by name, and dims that no input fixes.

    Returns:
        An `Answer` with `.outputs` and `.gradients`, tensors by name on the device of the inputs.

    Raises:
        ArgumentError, ShapeError, DtypeError, DeviceError: as a call of the op does, and for invalid cotangents.
        KernelError: a kernel uses an unsupported construct or an index outside an array, or divides an integer by 0.

    Example:
        >>> @ts.op("x[n] -> y[n]")
        ... @ti.kernel
        ... def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in x:
        ...         y[i] = x[i] * x[i]
        >>> ts.oracle(square, torch.arange(3.0), cotangents=torch.ones(3)).gradients["x"]
        tensor([0., 2., 4.], dtype=torch.float64)
    """
    if not isinstance(op, Op):
        words = "ts.oracle takes an op"
        remedy = "Make one of a kernel with `ts.op(spec)(kernel)`."
        raise ArgumentError(refusal(words, [("got", type(op).__name__)], remedy))
    if is_transformed():
        words = f"ts.oracle of op `{op.name}` cannot run inside a transform of torch.func or in forward mode"
        raise ArgumentError(refusal(words, remedy="Call it outside: with `cotangents` it computes the gradient."))
    bound, call = bind_call(op, inputs, named)
    title = f"op `{op.name}`"
    wanted = None if cotangents is None else name_cotangents(title, call.core.signature.outputs, cotangents)
    leaves = {} if wanted is None else make_leaves(bound, call)
    with torch.set_grad_enabled(wanted is not None):
        outputs = interpret_call(bound, call, leaves)
    check_shapes(title, wanted or {}, outputs)
    gradients = {} if wanted is None else _pull_back(outputs, wanted, leaves)
    return Answer({name: tensor.detach() for name, tensor in outputs.items()}, gradients)


def bind_call(op: Op, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[BoundArguments, Call]:
    """Bind a call's arguments, and return them by kind together with the checked call. Raise what the call would."""
    bound = op._bind(inputs, dict(named))
    op._programs.find(bound)
    return bound, make_checked_call(op._core, bound)


def interpret_call(
    bound: BoundArguments,
    call: Call,
    leaves: Mapping[str, Any],
    *,
    faithful: bool = False,
    kernels: Sequence[LoweredKernel] | None = None,
    observer: Observer | None = None,
) -> _Tensors:
    """Interpret a call and return its outputs by name, as differentiable functions of `leaves`.

    `leaves` replace inputs and scalars of the same names. `faithful` rounds every float to its type in the kernel, as
    the compiled kernel does. `kernels` are run instead of the op's own; `observer` is called for each run of a
    kernel.
    """
    signature = call.core.signature
    given = [leaves.get(name, tensor) for name, tensor in zip(signature.arrays, bound.tensors, strict=True)]
    arrays = dict(zip(signature.arrays, _merge_batch_dims(call, given), strict=True))
    scalars = {name: leaves.get(name, value) for name, value in bound.scalars.items()}
    run = _Run(call.single, scalars, faithful, kernels, observer)
    if call.batch is None:
        return _place_outputs(run.outputs(arrays), bound, call, faithful)
    samples = [
        run.outputs({name: tensor[sample] if name in call.batched else tensor for name, tensor in arrays.items()})
        for sample in range(call.batch)
    ]
    outputs = {name: _stack_samples([one[name] for one in samples], run, name) for name in signature.outputs}
    return _place_outputs(outputs, bound, call, faithful)


class _Run:
    """Runs an op's kernels, as IR, on one sample after another."""

    def __init__(
        self,
        call: Call,
        scalars: Mapping[str, Any],
        faithful: bool,
        kernels: Sequence[LoweredKernel] | None,
        observer: Observer | None,
    ) -> None:
        signature = call.core.signature
        self._signature = signature
        self._observer = observer
        self.allocations = {one.name: one for one in call.allocations}
        for stage in signature.stages:
            stage.baked_values.check_fields(signature.op)
        lowered = require_lowered(call.core.key(call)) if kernels is None else kernels
        options = {"is_faithful": faithful, "is_watched": observer is not None}
        self._kernels = [(one, build_exact_kernel(one.kernel, **options)) for one in lowered]
        self._scalars = {
            name: _shape_scalar(value, signature.parameters(name)[0].element) for name, value in scalars.items()
        }

    def outputs(self, inputs: Mapping[str, torch.Tensor]) -> _Tensors:
        """Return the outputs of one sample."""
        arrays = {**inputs, **{name: torch.zeros(one.shape, dtype=one.dtype) for name, one in self.allocations.items()}}
        for number, ((kernel, fields), run) in enumerate(self._kernels):
            given = {name: arrays[name] for name in kernel.arrays if name in arrays}
            given |= {name: field.to_torch().cpu() for name, field in fields.items()}
            given |= self._block_memory(kernel, given)
            record, watch = (None, None) if self._observer is None else self._observer(kernel, number, given)
            after = run(given, self._scalars, record=record, watch=watch)
            arrays |= {name: after[name] for name in self.allocations if name in after}
            arrays |= {name: arrays[name].detach() for name in self._signature.detached}
        return {name: arrays[name] for name in self._signature.outputs}

    def _block_memory(self, kernel: nodes.Kernel, given: Mapping[str, torch.Tensor]) -> _Tensors:
        """Return zeroed memory for the shared arrays of the kernel's blocks."""
        shapes = {name: tuple(one.shape) for name, one in given.items()}
        memory = {}
        for name, sizes in kernel.block_memory.items():
            array = kernel.arrays[name]
            shape = (*(evaluate(size, shapes, self._scalars) for size in sizes), *array.element)
            memory[name] = torch.zeros(shape, dtype=DTYPES[array.type])
        return memory


def _merge_batch_dims(call: Call, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors on the CPU, with their batch dims merged into one. Floats are not rounded."""
    names = call.core.signature.arrays
    lead = len(call.lead)
    merged = (
        tensor.reshape(call.batch or 0, *tensor.shape[lead:]) if name in call.batched else tensor
        for name, tensor in zip(names, tensors, strict=True)
    )
    return [tensor.cpu() for tensor in merged]


def _stack_samples(samples: list[torch.Tensor], run: _Run, name: str) -> torch.Tensor:
    return (
        torch.stack(samples)
        if samples
        else torch.zeros(0, *run.allocations[name].shape, dtype=run.allocations[name].dtype)
    )


def _place_outputs(outputs: _Tensors, bound: BoundArguments, call: Call, faithful: bool) -> _Tensors:
    """Return outputs with the call's batch dims, on its device."""
    device = call.core.device(bound.tensors)
    inner = 0 if call.batch is None else 1
    shaped = {name: tensor.reshape((*call.lead, *tensor.shape[inner:])) for name, tensor in outputs.items()}
    wide = {name: tensor.is_floating_point() and not faithful for name, tensor in shaped.items()}
    return {name: one.to(device, torch.float64 if wide[name] else one.dtype) for name, one in shaped.items()}


def _shape_scalar(value: Any, element: tuple[int, ...]) -> Any:
    """Return a scalar argument in the interpreter's form: the numbers of a vector or matrix as a tensor
    of its shape.
    """
    return torch.as_tensor(value).reshape(element) if element else value


def make_leaves(bound: BoundArguments, call: Call) -> _Tensors:
    """Return floating inputs and scalars in float64, as new leaves of torch's autograd."""
    signature = call.core.signature
    values = {n: t for n, t in zip(signature.arrays, bound.tensors, strict=True) if t.is_floating_point()}
    device = call.core.device(bound.tensors)
    floats = {n: value for n, value in bound.scalars.items() if _is_float(call, n)}
    values |= {n: torch.tensor(v, dtype=torch.float64, device=device) for n, v in floats.items()}
    return {name: tensor.detach().double().clone().requires_grad_() for name, tensor in values.items()}


def _is_float(call: Call, name: str) -> bool:
    dtypes = call.core.signature.parameters(name)[0].dtypes or ()
    return any(dtype.is_floating_point for dtype in dtypes)


# Cotangents -------------------------------------------------------------------------------------


def name_cotangents(title: str, names: Sequence[str], cotangents: Cotangents) -> _Tensors:
    """Return cotangents by the output's name.

    `title` is the op or layer in messages: "op `blur`". Raise ArgumentError.
    """
    if isinstance(cotangents, torch.Tensor):
        cotangents = [cotangents]
    if isinstance(cotangents, Mapping):
        tensors: Mapping[str, Any] = cotangents
        unknown = [name for name in tensors if name not in names]
        if unknown:
            raise _misfit(names, f"name `{unknown[0]}`, which is not an output of {title}", ", ".join(tensors))
    elif isinstance(cotangents, Sequence) and len(cotangents) == len(names):
        tensors = dict(zip(names, cotangents, strict=True))
    else:
        count = str(len(cotangents)) if isinstance(cotangents, Sequence) else type(cotangents).__name__
        raise _misfit(names, f"do not have one entry for each output of {title}", count)
    tensors = {name: one for name, one in tensors.items() if one is not None}
    for name, one in tensors.items():
        if not isinstance(one, torch.Tensor):
            raise _misfit(names, f"have no tensor for `{name}` of {title}", type(one).__name__)
    return dict(tensors)


def _misfit(names: Sequence[str], problem: str, what: str) -> ArgumentError:
    rows = [("outputs", ", ".join(names)), ("got", what)]
    remedy = f"Pass a dict with a tensor for each output: `cotangents={{'{names[0]}': ...}}`."
    return ArgumentError(refusal(f"`cotangents` of ts.oracle {problem}", rows, remedy))


def check_shapes(title: str, wanted: _Tensors, outputs: _Tensors) -> None:
    for name, one in wanted.items():
        if not outputs[name].is_floating_point():
            words = f"output `{name}` of {title} holds no floats, and can have no cotangent"
            raise ArgumentError(refusal(words, [("dtype", str(outputs[name].dtype))], "Leave it out, or pass None."))
        if one.shape != outputs[name].shape:
            words = f"the cotangent of output `{name}` does not fit {title}"
            rows = [("output", str(tuple(outputs[name].shape))), ("cotangent", str(tuple(one.shape)))]
            raise ShapeError(refusal(words, rows, "Pass a cotangent of the output's shape."))


def _pull_back(outputs: _Tensors, cotangents: _Tensors, leaves: _Tensors) -> _Tensors:
    reached = [name for name in cotangents if outputs[name].requires_grad]
    if not reached or not leaves:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    ends = [outputs[name] for name in reached]
    seeds = [cotangents[name].detach().to(outputs[name]) for name in reached]
    gradients = torch.autograd.grad(ends, list(leaves.values()), seeds, allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True))
