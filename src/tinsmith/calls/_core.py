"""Core: an op's kernels, signature and gradient, without the ways to call it; and a call of it.

The sizes and dtypes of a call follow from the signature. Derived cores (`derived/`) compute them from those of the core
that they are made from.
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
from ..compiling import Stage
from ..engines import COMPILING
from ..frontend.lowering import LoweredKernel
from ..ir import NotCovered
from ..passes.adjoint import Copy
from ..spec import Numbers, Sizing, Symbol, make_fixed_sizing, make_sizing, solve
from ..tracing import constant_when_traced, is_tracing
from ._binding import BoundArguments
from ._buffers import Buffer
from ._captured_values import Captures
from ._conversion import AS_IT_IS, Conversion
from ._key import CallKey
from ._lowering import add_block_memory, find_filled_arrays, lower_stages
from ._routine import Input, Make, Result, Routine, Take
from ._signature import Signature, check_element, find_made_dtype
from ._steps import StageLaunch, Use
from ._threads import Paces

if TYPE_CHECKING:
    from .backward import Reverse, ReverseAt


class Operators(Protocol):
    """The torch operators of a core, as other parts of the library use them."""

    forward: Any

    def shares(self, dtypes: tuple[torch.dtype, ...]) -> tuple[Any, ...]:
        """Return the op's dims that may be sharded over processes, with the axis of each array that has the dim."""
        ...

    def define(self, core: Core, content: Callable[[], str], label: str) -> None:
        """Define the torch operators of another core, which was derived from this one."""
        ...

    def run_call(self, core: Core, bound: Any) -> list[torch.Tensor]:
        """Call the forward operator with the arguments of a caller. Return the outputs."""
        ...

    def results(
        self, call: Call, tensors: Sequence[torch.Tensor], state: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """Call the forward operator for a converted call. Return outputs, scratch and state."""
        ...

    def launch_backward(self, asked: BackwardCall) -> list[torch.Tensor]:
        """Call the backward operator. Return the gradients of the active inputs, in their order."""
        ...


class GradientSource:
    """The source of an op's gradient, which is made when a call first asks for one, since it needs most of the library.

    Args:
        make: makes the source.
        stage: a gradient kernel that the user wrote, or None.
    """

    def __init__(self, make: Callable[[], Reverse], stage: Stage | None = None) -> None:
        self._make = make
        self._reverse: Reverse | None = None
        self.stage = stage

    @property
    def reverse(self) -> Reverse:
        """The source itself. All threads share it, since it keeps what was generated."""
        if self._reverse is None:
            with COMPILING:
                if self._reverse is None:
                    self._reverse = self._make()
        return self._reverse


class Core:
    """A signature, a source of gradients, and the programs made so far.

    Attributes:
        hidden: arrays that only generated kernels use.
        content: the digest of everything that compiled forms depend on.
        hands_out: whether kernels use the return values of atomics; None before this is known.
        is_seeded: whether the last input is the seed of the op's random numbers.
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
        """The source of the op's gradient."""
        return self.gradient.reverse

    @lazy
    def operators(self) -> Operators:
        """Define the torch operators on first use, when all names that the kernels use exist."""
        return self.define(self)

    @constant_when_traced
    def settle(self) -> None:
        """Define the torch operators now, because a compiler that traces a call cannot trace their definition."""
        self.operators  # noqa: B018  # computes the cached property

    @property
    def has_state(self) -> bool:
        """Whether kernels use fields or Python values besides a call's arguments, which may change between calls."""
        return self.captures.has_state

    @constant_when_traced
    def describe_values(self) -> str:
        """Return a digest of the Python values that the kernels bake in now, to compare with that of another process.

        A graph saves the arrays that a backward pass with these values reads, so other values need another graph.
        """
        return self.captures.describe()

    def get_engine_states(self) -> tuple[Any, ...]:
        """Return tokens of the engines' current state. They change when an engine is started again."""
        return tuple([runtime() for runtime in self.runtimes])

    def sizing(self, call: Call) -> Sizing:
        """Return the sizing of calls like this one: the sizes of all arrays, as formulas. It is made once."""
        if self.signature.has_open_elements:
            return self._find_sizing(call)
        key = (tuple([len(shape) for shape in call.shapes]), call.batch is None, call.batched, *call.sizes)
        # The kernels determine the memory of blocks.
        if self.signature.uses_blocks:
            key = (*key, call.dtypes, self.captures.fingerprints(call.templates))
        return self._sizings.get(key) or self._sizings.keep(key, self._find_sizing(call))

    def _find_sizing(self, call: Call) -> Sizing:
        sizing = self._find_named_sizes(call)
        return self._with_block_memory(call, sizing) if self.signature.uses_blocks else sizing

    def _with_block_memory(self, call: Call, sizing: Sizing) -> Sizing:
        """Add the memory that blocks share to a sizing.

        Return the sizing unchanged if the sizes do not fit the spec, or a kernel cannot be analyzed.
        """
        signature, numbers = self.signature, sizing.solve(call.whole_shapes, call.values)
        if numbers is None:
            return sizing
        lead = 0 if call.batch is None else 1
        made = [item.name for item in signature.spec.allocations]
        shapes = dict(zip(signature.arrays, call.shapes, strict=True))
        shapes |= {name: sizing.evaluate(name, numbers)[lead:] for name in made}
        dtypes = dict(zip(signature.arrays, call.dtypes, strict=True))
        dtypes |= {name: self.made_dtype(name, call.dtypes) for name in made}
        fingerprints = self.captures.fingerprints(call.templates)
        key = CallKey(signature, shapes, dtypes, frozenset(), fingerprints, call.templates)
        try:
            kernels = lower_stages(key)
        except NotCovered:
            return sizing
        return add_block_memory(sizing, kernels, signature.op)

    def _find_named_sizes(self, call: Call) -> Sizing:
        """Return the sizing of the arrays that the signature names."""
        signature = self.signature
        if signature.has_open_elements:
            shapes = dict(zip(signature.arrays, call.whole_shapes, strict=True))
            return make_fixed_sizing(shapes | {one.name: one.shape for one in call.allocations}, call.batch)
        ranks = {name: len(shape) for name, shape in zip(signature.arrays, call.shapes, strict=True)}
        batched = None if call.batch is None else call.batched
        named = make_sizing(signature.kernel_spec, ranks, tuple(call.values), batched=batched, ends=signature.ends)
        if named is None:
            # This raises the error.
            self.solve_sizes(call)
            raise AssertionError(f"{signature.op}: ranks {ranks} do not fit {signature.kernel_spec}")
        return named

    def build_forward(self, key: CallKey) -> Routine:
        """Build the routine of the forward pass of calls with this key."""
        signature = self.signature

        # Torch copies memory faster than a kernel on one thread does. But if the op launches no kernel twice, its pass
        # may be prepared (`_prepared_passes`), which knows memory by its address alone. There kernels copy.
        is_repeated = len(signature.stages) > len(signature.firsts)
        pairs = (stage.links.copies for stage in signature.stages if is_repeated or stage.links.is_taken)
        copies = dict(
            one for one in pairs if one is not None and len({name in key.batched_arrays for name in one}) == 1
        )
        # A torch operator must not change its inputs. `is_ordered` is False for its calls.
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
        return Routine(given, made, tuple(launches), tuple(map(Result, signature.all_arrays)), {})

    @property
    def _makes(self) -> tuple[Make, ...]:
        """Outputs and scratch, which a forward pass allocates."""
        signature = self.signature
        return tuple(Make(name, name, signature.starts_at_zero(name)) for name in signature.allocations)

    def get_derivative_call(self, call: Call, made: Sequence[Any]) -> tuple[Call, Sequence[Any]]:
        """Return the call to differentiate instead of `call`, and its further inputs among the `made` arrays.

        Only a core that records the results of its atomics returns another call: one that replays them.
        """
        return call, ()

    def kernels(self, key: CallKey) -> list[LoweredKernel]:
        """Lower the kernels to IR, for calls with this key.

        Raises:
            NotCovered: a kernel uses what the front end does not know.
        """
        return lower_stages(key)

    def propagate_batch(self, batched: frozenset[str]) -> frozenset[str]:
        """Return the inputs that have a batch dimension if these have one. Only derived cores add inputs."""
        return batched

    def key(self, call: Call) -> CallKey:
        """Return the key of a call, without a device."""
        lead = () if call.batch is None else (call.batch,)
        made = {buffer.name: buffer for buffer in call.allocations}
        names = self.signature.arrays
        shapes = dict(zip(names, call.shapes, strict=True)) | {n: one.shape[len(lead) :] for n, one in made.items()}
        dtypes = dict(zip(names, call.dtypes, strict=True)) | {n: one.dtype for n, one in made.items()}
        batched = call.batched | (frozenset(made) if lead else frozenset())
        numbers = {name: call.scalars[name] for name in self.signature.launch_numbers}
        fingerprints = self.captures.fingerprints(call.templates)
        return CallKey(self.signature, shapes, dtypes, batched, fingerprints, call.templates, call.is_apart, numbers)

    def make_call_with(self, key: CallKey, numbers: Numbers, others: BoundArguments) -> Call:
        """Return a call with this key.

        `numbers` are the numbers of its sizes, `others` its arguments without tensors.
        """
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
        """Return the values that a call passes for dims: by integer scalar arguments, and by keyword."""
        return self.signature.size_values(call.scalars, call.sizes)

    def plan_buffers(self, call: Call) -> list[Buffer]:
        """Compute the sizes, batch included, and dtypes of a call's outputs and scratch.

        Raises:
            ShapeError: sizes do not fit the spec.
            DtypeError: a dtype does not follow from the inputs.
        """
        names = [one.name for one in self.signature.spec.allocations]
        numbers = None if is_tracing() or self.signature.has_open_elements else call.solution
        if numbers is None:
            lead, sizes = () if call.batch is None else (call.batch,), self.solve_sizes(call)
            shapes = [lead + sizes[name] for name in names]
        else:
            shapes = [call.sizing.evaluate(name, numbers) for name in names]
        dtypes = [self.made_dtype(name, call.dtypes) for name in names]
        return [Buffer(*one) for one in zip(names, shapes, dtypes, strict=True)]

    def solve_sizes(self, call: Call) -> Mapping[str, tuple[int, ...]]:
        """Compute the sizes of outputs and scratch, without batch. Raise ShapeError if sizes do not fit the spec."""
        signature = self.signature
        shapes = dict(zip(signature.arrays, call.shapes, strict=True))
        # Not `call.values`: torch 2.6's compiler reads this for tensors that processes share, and cannot read `lazy`.
        made = solve(signature.kernel_spec, shapes, self.size_values(call), signature.op).shapes
        # The last sizes of an array are those of a kernel's vectors or matrices.
        for parameter, dims in signature.vectors:
            name = parameter.name
            check_element(signature.op, parameter, dims, made[name] if name in made else shapes[name])
        return made

    def made_dtype(self, name: str, dtypes: tuple[torch.dtype, ...]) -> torch.dtype:
        """Return the dtype of an output or scratch, given the inputs'. Raise DtypeError if it does not follow."""
        key = (name, dtypes)
        dtype = self._made_dtypes.get(key)
        if dtype is None:
            dtype = self._made_dtypes[key] = find_made_dtype(self.signature, name, dtypes)
        return dtype

    @constant_when_traced
    def device_type(self) -> str:
        """Return torch's name of the device that the kernels run on."""
        return self.signature.stages[0].engine.device_type()

    def device(self, tensors: Sequence[torch.Tensor]) -> torch.device:
        """Return the device that a call with these inputs runs on."""
        return tensors[0].device if tensors else torch.device(self.device_type())

    def check_device(self, device: torch.device) -> None:
        """Raise DeviceError if tensors are not on the engine's device: an engine would silently copy them."""
        for stage in self.signature.firsts:
            stage.engine.require_ready(self.signature.op)
            runs_on = stage.engine.device_type()
            if device.type != runs_on or device.index not in (None, 0):
                name = stage.engine.name
                words = f"op `{self.signature.op}` got tensors on {device}, but its engine {name} runs on {runs_on}"
                remedy = f"Move the tensors (`.to({runs_on!r})`), or start the engine there: ts.init({device.type!r})."
                raise DeviceError(refusal(words, remedy=remedy))


@dataclass(frozen=True, eq=False)
class Call:
    """A call of an op after conversion (`Conversion`), without the memory of its tensors.

    Attributes:
        shapes, dtypes: of the input arrays as the kernel sees them, without batch.
        scalars, templates, sizes: the other arguments by name; `sizes` are dims given by keyword.
        batch: the size of the merged batch dimension, which comes first; None without a batch.
        batched: the input arrays that have it.
        is_apart: whether the samples of the batch run one by one.
        conversion: how a caller's tensors are converted before the call, and results after it.
        lead: the sizes of the spec's `*b`, whose product is `batch`; () without a batch.
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
        """Return the same call over a batch of this size, which these inputs have."""
        # Not `dataclasses.replace`, which torch 2.6's compiler cannot read.
        return Call(
            self.core, self.shapes, self.dtypes, self.scalars, self.templates, self.sizes, batch=batch, batched=batched
        )

    def prepare(self, tensors: Sequence[torch.Tensor], outer: Sequence[tuple[int, ...]] = ()) -> list[torch.Tensor]:
        """Convert the caller's tensors to what the kernels take.

        `outer` are, for each tensor, its leading dims that are not part of the call, as those of `vmap`.
        """
        return self.conversion.prepare(self.core.signature, self.batch, tensors, outer)

    def finish(self, results: Sequence[torch.Tensor], outer: tuple[int, ...] = ()) -> list[torch.Tensor]:
        """Convert the results, outputs first, to the caller's dtypes and batch dims."""
        return self.conversion.finish(results, self.lead, outer)

    @lazy
    def values(self) -> dict[str, Any]:
        """Return the values that the call passes for dims: by integer scalar arguments, and by keyword."""
        return self.core.size_values(self)

    @lazy
    def sizing(self) -> Sizing:
        """Return the sizing of calls like this one: the sizes of all arrays, as formulas."""
        return self.core.sizing(self)

    @lazy
    def solution(self) -> Numbers | None:
        """Solve the call's sizes for the symbols in its size formulas; None if sizes misfit or are symbolic."""
        return self.sizing.solve(self.whole_shapes, self.values)

    @property
    def numbers(self) -> Numbers:
        """The values of the symbols in the call's size formulas. Raises ShapeError if sizes do not fit the spec."""
        solution = self.solution
        if solution is None:
            self.core.solve_sizes(self)
            raise AssertionError(f"{self.core.signature.op}: {self.shapes} do not fit {self.core.signature.spec}")
        return solution

    @lazy
    def wanting(self) -> frozenset[str]:
        """Return the inputs that can have a gradient: those of floats."""
        pairs = zip(self.core.signature.arrays, self.dtypes, strict=True)
        return frozenset(name for name, dtype in pairs if dtype.is_floating_point)

    @lazy
    def allocations(self) -> Sequence[Buffer]:
        """Plan outputs and scratch. Raise an error for sizes and dtypes that they cannot have."""
        return self.core.plan_buffers(self)

    @lazy
    def reverse(self) -> ReverseAt:
        """Return the source of this call's gradient."""
        return self.core.reverse.specialize(self.core.key(self))

    def find_saved_names(self, active: frozenset[str]) -> tuple[str, ...]:
        """Return the arrays whose values the backward pass reads, in the order of `Signature.all_arrays`."""
        if not active:
            return ()
        read = self.reverse.find_checked_reads(active)
        return tuple(name for name in self.core.signature.all_arrays if name in read)

    def select_active(self, needs: Sequence[bool]) -> frozenset[str]:
        """Return the names of the inputs that need a gradient, from one flag for each input."""
        names = self.core.signature.arrays
        return frozenset([n for n, needed in zip(names, needs, strict=True) if needed]) & self.wanting

    def pull_back(
        self,
        active: frozenset[str],
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        state: torch.Tensor | None,
    ) -> list[Any]:
        """Return a gradient for each input by the backward operator; None for those that are not `active`.

        Args:
            active: the inputs that want a gradient.
            saved: the values that the backward pass reads, by name.
            cotangents: one for each output; None for those without.
            state: the state of Python values and fields in the forward pass; None if the kernels use none.
        """
        pairs = zip(self.core.signature.outputs, cotangents, strict=True)
        given = {name: one for name, one in pairs if one is not None}
        gradients = iter(self.core.operators.launch_backward(BackwardCall(self, active, saved, given, state)))
        return [next(gradients) if name in active else None for name in self.core.signature.arrays]


class BackwardCall(NamedTuple):
    """A call whose gradients are asked for.

    Attributes:
        active: the inputs that want a gradient.
        saved: the values that the call saved, by name.
        cotangents: the cotangents of the outputs that have one, by name.
        state: the state of Python values and fields in the forward pass; None if the kernels use none.
    """

    call: Call
    active: frozenset[str]
    saved: Mapping[str, Any]
    cotangents: Mapping[str, Any]
    state: torch.Tensor | None = None
