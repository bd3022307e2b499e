"""Core: an op's kernels, signature and gradient, without the ways to call it; and one call of it.

Sizes and dtypes of a call follow from the signature; derived cores (`derived/`) determine them from those of the core
that they are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from .._cache import Cache
from .._config import config
from .._errors import DeviceError, refusal
from .._lazy import lazy
from ..compiling import Stage, check_element
from ..engines import COMPILING
from ..frontend.lowering import LoweredKernel
from ..ir import NotCovered
from ..passes.adjoint import Copy
from ..spec import Numbers, Sizing, Symbol, fixed_sizing, sizing, solve
from ..tracing import constant_when_traced, is_tracing
from ._binding import BoundArguments
from ._buffers import Buffer
from ._captured_values import Captures
from ._conversion import AS_IT_IS, Conversion
from ._key import CallKey
from ._lowering import add_block_memory, find_filled_arrays, lower_stages
from ._routine import Input, Make, Result, Routine, Take
from ._signature import Signature, find_made_dtype
from ._steps import StageLaunch, Use
from ._threads import Paces

if TYPE_CHECKING:
    from .backward import Reverse, ReverseAt


class Operators(Protocol):
    """The torch operators of a core, as other parts of the library use them."""

    forward: Any

    def shares(self, dtypes: tuple[torch.dtype, ...]) -> tuple[Any, ...]:
        """The op's dims that processes may share out, with the axis of each array that has it."""
        ...

    def define(self, core: Core, content: Callable[[], str], label: str) -> None:
        """Give another core, made of this one, operators of its own."""
        ...

    def run_call(self, core: Core, bound: Any) -> list[torch.Tensor]:
        """The outputs of a call as a caller writes it."""
        ...

    def results(
        self, call: Call, tensors: Sequence[torch.Tensor], state: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """Everything that the forward operator gives for a call in the form in which it is run."""
        ...

    def launch(
        self, call: Call, tensors: Sequence[torch.Tensor], state: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """Outputs and scratch of a call."""
        ...

    def launch_backward(self, asked: BackwardCall) -> list[torch.Tensor]:
        """Gradients of the active inputs, in their order."""
        ...


class GradientSource:
    """Where an op's gradient comes from: made when a call first asks for a gradient, as most of the library is for it.

    Args:
        make: makes it.
        stage: a gradient kernel that the user wrote.
    """

    def __init__(self, make: Callable[[], Reverse], stage: Stage | None = None) -> None:
        self._make = make
        self._reverse: Reverse | None = None
        self.stage = stage

    @property
    def reverse(self) -> Reverse:
        """The source itself; one for all threads, since it keeps what was generated."""
        if self._reverse is None:
            with COMPILING:
                if self._reverse is None:
                    self._reverse = self._make()
        return self._reverse


class Core:
    """A signature, a source of gradients, and the programs so far.

    `hidden` are arrays that only generated kernels use. `content` is the digest of all that compiled forms depend on.
    `hands_out`: whether kernels use the return values of atomics; None before this is known. `is_seeded`: whether its
    last input is the seed of its random numbers.
    """

    hidden: frozenset[str] = frozenset()
    hands_out: bool | None = None
    is_seeded = False
    content: str
    define: Callable[[Core], Operators]

    def __init__(self, signature: Signature, gradient: GradientSource) -> None:
        self.signature = signature
        self.gradient = gradient
        self.tangents: dict[frozenset[str], Any] = {}
        # `derived.find_recorded` fills both.
        self.recorded: dict[Any, Any] = {}
        self.cores_with_records: Cache[Any, Any] = Cache("kernels with records")
        # Filled by `_program.find_program`.
        self.programs: Cache[CallKey, Any] = Cache("programs")
        # Filled by `_program.convert_call`.
        self.conversions: Cache[Any, Any] = Cache("conversions")
        self._sizings: Cache[Any, Sizing] = Cache("sizes")
        self.paces = Paces(config().serial_below)
        self._made_dtypes: dict[tuple[str, tuple[torch.dtype, ...]], torch.dtype] = {}
        self.captures = Captures(signature, gradient.stage)
        # Filled by `torch_side`.
        self.launches: Cache[Any, Any] = Cache("launches in graphs")
        self.runtimes = tuple(dict.fromkeys(stage.engine.runtime for stage in signature.firsts))

    @property
    def reverse(self) -> Reverse:
        """Where the gradient comes from."""
        return self.gradient.reverse

    def fingerprints(self, templates: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
        """Fingerprints of every Python value that the kernels bake in."""
        return self.captures.fingerprints(templates)

    @property
    def varies(self) -> bool:
        """Whether a call depends on Python values outside its arguments."""
        return self.captures.varies

    @lazy
    def operators(self) -> Operators:
        """The torch operators, defined on first use, when all names that the kernels use exist."""
        return self.define(self)

    @constant_when_traced
    def settle(self) -> None:
        """Define the operators before a compiler traces a call, since it could not trace their definition."""
        self.operators  # noqa: B018  # computes the cached property

    @property
    def has_state(self) -> bool:
        """Whether kernels use fields or Python values besides a call's arguments, which may change between calls."""
        return self.captures.has_state

    @constant_when_traced
    def describe_values(self) -> str:
        """A digest of the Python values that the kernels bake in now, which another process can compare with its own.

        A graph keeps the arrays that a backward pass with these values reads: with others it is another graph.
        """
        return self.captures.describe()

    @property
    def environment(self) -> tuple[Any, ...]:
        """The objects from which Python values come that kernels of this core use; none where they use none."""
        return self.captures.environment

    def launch_numbers(self, scalars: Mapping[str, Any]) -> tuple[Any, ...]:
        """The scalar arguments that are part of a call's kind: those that distinguish launches of one kernel."""
        return tuple([scalars[name] for name in self.signature.launch_numbers])

    def get_engine_states(self) -> tuple[Any, ...]:
        """Return tokens of the engines' present state, which change when one is started again."""
        return tuple([runtime() for runtime in self.runtimes])

    def sizing(self, call: Call) -> Sizing:
        """Sizes of all arrays of calls like this one; made once."""
        if self.signature.has_open_elements:
            return self._find_sizing(call)
        key = (tuple([len(shape) for shape in call.shapes]), call.batch is None, call.batched, *call.sizes)
        # The kernels determine the memory of blocks.
        if self.signature.uses_blocks:
            key = (*key, call.dtypes, self.fingerprints(call.templates))
        return self._sizings.get(key) or self._sizings.keep(key, self._find_sizing(call))

    def _find_sizing(self, call: Call) -> Sizing:
        sizing = self._find_named_sizes(call)
        return self._with_block_memory(call, sizing) if self.signature.uses_blocks else sizing

    def _with_block_memory(self, call: Call, sizing: Sizing) -> Sizing:
        """Sizes including the memory of blocks; without it if sizes misfit or the kernels cannot be analysed."""
        signature, numbers = self.signature, sizing.solve(call.whole_shapes, call.values)
        if numbers is None:
            return sizing
        lead = 0 if call.batch is None else 1
        made = [item.name for item in signature.spec.allocations]
        shapes = dict(zip(signature.arrays, call.shapes, strict=True))
        shapes |= {name: sizing.evaluate(name, numbers)[lead:] for name in made}
        dtypes = dict(zip(signature.arrays, call.dtypes, strict=True))
        dtypes |= {name: self.made_dtype(name, call.dtypes) for name in made}
        fingerprints = self.fingerprints(call.templates)
        key = CallKey(signature, shapes, dtypes, frozenset(), fingerprints, call.templates)
        try:
            kernels = lower_stages(key)
        except NotCovered:
            return sizing
        return add_block_memory(sizing, kernels, signature.op)

    def _find_named_sizes(self, call: Call) -> Sizing:
        """Sizes of the arrays that the signature names."""
        signature = self.signature
        if signature.has_open_elements:
            shapes = dict(zip(signature.arrays, call.whole_shapes, strict=True))
            return fixed_sizing(shapes | {one.name: one.shape for one in call.allocations}, call.batch)
        ranks = {name: len(shape) for name, shape in zip(signature.arrays, call.shapes, strict=True)}
        batched = None if call.batch is None else call.batched
        named = sizing(signature.kernel_spec, ranks, tuple(call.values), batched=batched, ends=signature.ends)
        if named is None:
            # This raises the error.
            self.solve_sizes(call)
            raise AssertionError(f"{signature.op}: ranks {ranks} do not fit {signature.kernel_spec}")
        return named

    def build_forward(self, key: CallKey) -> Routine:
        """Build the forward pass of calls with this key."""
        signature = self.signature

        # Torch copies memory faster than a kernel on one thread. What is not launched many times may be prepared, which
        # knows memory by its address alone.
        is_repeated = len(signature.stages) > len(signature.firsts)
        pairs = (stage.links.copies for stage in signature.stages if is_repeated or stage.links.is_taken)
        copies = dict(
            one for one in pairs if one is not None and len({name in key.batched_arrays for name in one}) == 1
        )
        # An operator of torch's leaves its inputs as they are, and its calls are not known to be in order.
        is_taking = key.is_ordered and not key.is_looped
        taken = {stage.links.copies for stage in signature.stages if stage.links.is_taken and is_taking}
        launches: list[StageLaunch | Copy | Take] = [(Take if one in taken else Copy)(*one) for one in copies.items()]
        for stage in signature.stages:
            if stage.links.copies is not None and stage.links.copies[0] in copies:
                continue
            uses = tuple(Use(name, name, name, "", name in key.batched_arrays) for name in stage.arrays)
            launches.append(StageLaunch(stage, uses))
        given = tuple(Input(name, place) for place, name in enumerate(signature.arrays))
        filled = find_filled_arrays(key)
        makes = (replace(one, is_zero=one.is_zero and one.name not in filled) for one in self._makes)
        made = tuple(one for one in makes if one.name not in copies)
        return Routine(given, made, tuple(launches), tuple(map(Result, key.names)), {})

    @property
    def _makes(self) -> tuple[Make, ...]:
        """Outputs and scratch, which a forward pass makes."""
        signature = self.signature
        names = signature.outputs + signature.scratch
        return tuple(Make(name, name, signature.starts_at_zero(name)) for name in names)

    def get_derivative_call(self, call: Call, made: Sequence[Any]) -> tuple[Call, Sequence[Any]]:
        """The call that derivatives of a call are those of, and its inputs that the forward pass `made`."""
        return call, ()

    def kernels(self, key: CallKey) -> list[LoweredKernel]:
        """The kernels as IR, for a kind of call. Raises NotCovered."""
        return lower_stages(key)

    def together(self, batched: frozenset[str]) -> frozenset[str]:
        """Inputs that have a batch dimension where these have: no more of them."""
        return batched

    def key(self, call: Call) -> CallKey:
        """The kind of a call."""
        lead = () if call.batch is None else (call.batch,)
        made = {buffer.name: buffer for buffer in call.allocations}
        names = self.signature.arrays
        shapes = dict(zip(names, call.shapes, strict=True)) | {n: one.shape[len(lead) :] for n, one in made.items()}
        dtypes = dict(zip(names, call.dtypes, strict=True)) | {n: one.dtype for n, one in made.items()}
        batched = call.batched | (frozenset(made) if lead else frozenset())
        numbers = {name: call.scalars[name] for name in self.signature.launch_numbers}
        fingerprints = self.fingerprints(call.templates)
        return CallKey(self.signature, shapes, dtypes, batched, fingerprints, call.templates, call.is_apart, numbers)

    def call_with(self, key: CallKey, numbers: Numbers, others: BoundArguments) -> Call:
        """Return a call with this key; `numbers` are those of its sizes, `others` its arguments but tensors."""
        sizing, arrays = key.sizing, self.signature.arrays
        batched = key.batched & frozenset(arrays)
        shapes = tuple([sizing.evaluate(name, numbers)[name in batched :] for name in arrays])
        batch = numbers[sizing.batch.place] if isinstance(sizing.batch, Symbol) else sizing.batch
        dtypes = tuple([key.dtypes[name] for name in arrays])
        return Call(
            self,
            shapes,
            dtypes,
            others.scalars,
            others.templates,
            others.sizes,
            batch=batch,
            batched=batched,
            is_apart=key.is_apart,
        )

    def size_values(self, call: Call) -> dict[str, Any]:
        """What a call gives for dims: by integer scalar arguments, and by keyword."""
        return self.signature.size_values(call.scalars, call.sizes)

    def plan_buffers(self, call: Call) -> list[Buffer]:
        """Outputs and scratch of a call: their sizes, batch included, and dtypes. Raises for what does not fit."""
        names = [one.name for one in self.signature.spec.allocations]
        numbers = None if is_tracing() or self.signature.has_open_elements else call.solution
        if numbers is None:
            lead, cores = () if call.batch is None else (call.batch,), self.solve_sizes(call)
            shapes = [lead + cores[name] for name in names]
        else:
            shapes = [call.sizing.evaluate(name, numbers) for name in names]
        dtypes = [self.made_dtype(name, call.dtypes) for name in names]
        return [Buffer(*one) for one in zip(names, shapes, dtypes, strict=True)]

    def solve_sizes(self, call: Call) -> Mapping[str, tuple[int, ...]]:
        """Sizes of outputs and scratch without batch, solved step by step. Raises ShapeError with the misfit."""
        signature = self.signature
        shapes = dict(zip(signature.arrays, call.shapes, strict=True))
        # Not `call.values`: torch 2.6's compiler reads this for tensors that processes share, and cannot read `lazy`.
        made = solve(signature.kernel_spec, shapes, self.size_values(call), signature.op).shapes
        if signature.vectors:
            self.check_elements({**shapes, **made})
        return made

    def check_elements(self, cores: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse sizes, without batch, that do not end in those of the kernels' vectors."""
        for parameter, dims in self.signature.vectors:
            check_element(self.signature.op, parameter, dims, cores[parameter.name])

    def made_dtype(self, name: str, dtypes: tuple[torch.dtype, ...]) -> torch.dtype:
        """Return the dtype of an output or of scratch, for inputs of these dtypes. Raises DtypeError."""
        key = (name, dtypes)
        dtype = self._made_dtypes.get(key)
        if dtype is None:
            dtype = self._made_dtypes[key] = find_made_dtype(self.signature, name, dtypes)
        return dtype

    @constant_when_traced
    def device_type(self) -> str:
        """Torch's name of the device that the kernels run on."""
        return self.signature.stages[0].engine.device_type()

    def device(self, tensors: Sequence[torch.Tensor]) -> torch.device:
        """Where a call with these inputs runs."""
        return tensors[0].device if tensors else torch.device(self.device_type())

    def check_device(self, device: torch.device) -> None:
        """Refuse tensors on another device than the engine's: an engine would silently copy them."""
        for stage in self.signature.firsts:
            stage.engine.require_ready(self.signature.op)
            runs_on = stage.engine.device_type()
            if device.type != runs_on or device.index not in (None, 0):
                name = stage.engine.name
                words = f"op `{self.signature.op}` got tensors on {device}, its engine {name} runs on {runs_on}"
                remedy = f"Move the tensors (`.to({runs_on!r})`), or start the engine there: ts.init({device.type!r})."
                raise DeviceError(refusal(words, remedy=remedy))


@dataclass(frozen=True, eq=False)
class Call:
    """One call of an op in the form in which it runs, without the memory of its tensors.

    Attributes:
        shapes, dtypes: of the input arrays as the kernel sees them, without batch.
        scalars, templates, sizes: the other arguments by name; `sizes` are dims given by keyword.
        batch: size of the flat leading batch dimension, None without one.
        batched: input arrays that have it.
        is_apart: whether the samples of the batch run one by one.
        conversion: what becomes of a caller's tensors before, and of results afterwards.
        lead: sizes of the spec's `*b`, whose product `batch` is; () without.
    """

    core: Core
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    scalars: Mapping[str, Any]
    templates: Mapping[str, Any]
    sizes: Mapping[str, int]
    batch: int | None = None
    batched: frozenset[str] = frozenset()
    is_apart: bool = False
    conversion: Conversion = AS_IT_IS
    lead: tuple[int, ...] = ()

    @property
    def whole_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the input arrays, batch included."""
        if self.batch is None:
            return list(self.shapes)
        pairs = zip(self.core.signature.arrays, self.shapes, strict=True)
        return [(self.batch, *shape) if name in self.batched else shape for name, shape in pairs]

    @property
    def single(self) -> Call:
        """The call of one sample of the batch."""
        return Call(self.core, self.shapes, self.dtypes, self.scalars, self.templates, self.sizes)

    def with_batch(self, batch: int, batched: frozenset[str]) -> Call:
        """The same call over a batch."""
        # Not `dataclasses.replace`, which torch 2.6's compiler cannot read.
        return Call(
            self.core, self.shapes, self.dtypes, self.scalars, self.templates, self.sizes, batch=batch, batched=batched
        )

    def prepare(self, tensors: Sequence[torch.Tensor], outer: Sequence[tuple[int, ...]] = ()) -> list[torch.Tensor]:
        """Convert the caller's tensors to what the kernels take. `outer` are leading dims that the op does not see."""
        return self.conversion.prepare(self.core.signature, self.batch, tensors, outer)

    def finish(self, results: Sequence[torch.Tensor], outer: tuple[int, ...] = ()) -> list[torch.Tensor]:
        """Convert the results, outputs first, to the caller's dtypes and batch dims."""
        return self.conversion.finish(results, self.lead, outer)

    @lazy
    def values(self) -> dict[str, Any]:
        """What the call gives for dims: by integer scalar arguments, and by keyword."""
        return self.core.size_values(self)

    @lazy
    def sizing(self) -> Sizing:
        """Sizes of all arrays of calls like this one."""
        return self.core.sizing(self)

    @lazy
    def solution(self) -> Numbers | None:
        """What the symbols of its sizes stand for; None where they misfit, or are symbols of a tracer's."""
        return self.sizing.solve(self.whole_shapes, self.values)

    @property
    def numbers(self) -> Numbers:
        """The same. Raises where sizes misfit."""
        solution = self.solution
        if solution is None:
            self.core.solve_sizes(self)
            raise AssertionError(f"{self.core.signature.op}: {self.shapes} do not fit {self.core.signature.spec}")
        return solution

    @lazy
    def wanting(self) -> frozenset[str]:
        """Inputs that can have a gradient."""
        pairs = zip(self.core.signature.arrays, self.dtypes, strict=True)
        return frozenset(name for name, dtype in pairs if dtype.is_floating_point)

    @lazy
    def allocations(self) -> Sequence[Buffer]:
        """Outputs and scratch. Raises for sizes and dtypes that they cannot have."""
        return self.core.plan_buffers(self)

    @lazy
    def reverse(self) -> ReverseAt:
        """Where this call's gradient comes from."""
        return self.core.reverse.at(self.core.key(self))

    def select_active(self, needs: Sequence[bool]) -> frozenset[str]:
        """Names of the inputs that need a gradient, from one flag an input."""
        names = self.core.signature.arrays
        return frozenset([n for n, needed in zip(names, needs, strict=True) if needed]) & self.wanting

    def by_input(self, active: frozenset[str], gradients: Sequence[Any]) -> list[Any]:
        """Gradients of the active inputs, put in place of theirs among all inputs; None elsewhere."""
        remaining = iter(gradients)
        return [next(remaining) if name in active else None for name in self.core.signature.arrays]


class BackwardCall(NamedTuple):
    """A call whose gradients are asked for.

    Attributes:
        active: inputs whose gradients are wanted.
        saved: values that the call kept, by name.
        cotangents: those of outputs that have one, by name.
        state: what the forward pass noted of Python values and fields; None where it is not needed.
    """

    call: Call
    active: frozenset[str]
    saved: Mapping[str, Any]
    cotangents: Mapping[str, Any]
    state: torch.Tensor | None = None
