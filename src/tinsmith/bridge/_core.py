"""Core: what an op is without its doors, and the description of one call of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from .._config import config
from .._errors import DeviceError, DtypeError, refusal
from .._lazy import lazy
from ..engines import COMPILING, HALVES
from ..source.ir import Lowered
from ..spec import QuickSolver, Solution, quick_solver, solve
from ._buffers import Buffer
from ._cache import Cache
from ._case import Case
from ._digest import digest_of
from ._elements import check_element
from ._executor import Layout, Make
from ._field_contents import FieldContents
from ._lowered import lowered
from ._plan import Kind, Pace, Plan
from ._signature import Signature, common_float, fitting_dtypes, takes_half
from ._steps import Situation, StageLaunch, Use
from ._tracing import constant_when_traced
from .backward import Reverse, ReverseAt


@dataclass(frozen=True, eq=False)
class Call:
    """One call of an op, without its tensors' memory.

    Attributes:
        shapes, dtypes: of the input arrays as the kernel sees them, without batch.
        scalars, templates, sizes: the other arguments by name; `sizes` are dims given by keyword.
        batch: size of the flat leading batch dimension, None without one.
        batched: input arrays that have it.
        is_apart: whether the samples of the batch are run one by one.
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

    @property
    def whole_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the input arrays, batch included."""
        if self.batch is None:
            return list(self.shapes)
        pairs = zip(self.core.signature.arrays, self.shapes, strict=True)
        return [(self.batch, *shape) if name in self.batched else shape for name, shape in pairs]

    def keep_made(self, made: Sequence[Buffer]) -> None:
        """Keep outputs and scratch, which are known already."""
        vars(self)["made"] = made

    def with_batch(self, batch: int, batched: frozenset[str]) -> Call:
        """The same call over a batch."""
        # Not `dataclasses.replace`, which torch 2.6's compiler cannot read.
        return Call(
            self.core, self.shapes, self.dtypes, self.scalars, self.templates, self.sizes, batch=batch, batched=batched
        )

    def plan(self, device: torch.device) -> Plan:
        """The plan to run this call on `device`."""
        return self.core.plan(self, device)

    @lazy
    def wanting(self) -> frozenset[str]:
        """Inputs that can have a gradient."""
        pairs = zip(self.core.signature.arrays, self.dtypes, strict=True)
        return frozenset(name for name, dtype in pairs if dtype.is_floating_point)

    @lazy
    def made(self) -> Sequence[Buffer]:
        """Outputs and scratch. Raises for sizes and dtypes that they cannot have."""
        return self.core.made(self)

    @lazy
    def reverse(self) -> ReverseAt:
        """Where this call's gradient comes from."""
        return self.core.reverse.at(self.core.case(self))

    def wanted(self, needs: Sequence[bool]) -> frozenset[str]:
        """Names of the inputs that need a gradient, from one flag an input."""
        names = self.core.signature.arrays
        return frozenset([n for n, needed in zip(names, needs, strict=True) if needed]) & self.wanting

    def by_input(self, active: frozenset[str], gradients: Sequence[Any]) -> list[Any]:
        """Gradients of the active inputs, put in the place of theirs among all inputs; None elsewhere."""
        found = iter(gradients)
        return [next(found) if name in active else None for name in self.core.signature.arrays]


class BackwardCall(NamedTuple):
    """A call whose gradients are asked for.

    Attributes:
        active: inputs whose gradients are wanted.
        saved: values that the call kept, by name.
        cotangents: those of outputs that have one, by name.
        state: what the forward pass noted of Python values and fields; None where nobody asks.
    """

    call: Call
    active: frozenset[str]
    saved: Mapping[str, Any]
    cotangents: Mapping[str, Any]
    state: torch.Tensor | None = None


class Operators(Protocol):
    """The torch operators of a core, as other parts of the bridge use them."""

    forward: Any

    def shares(self, dtypes: tuple[torch.dtype, ...]) -> tuple[Any, ...]:
        """The op's dims that processes may share out, with the axis of each array that has it."""
        ...

    def define(self, core: Core, content: Callable[[], str], label: str) -> None:
        """Give another core, made of this one, operators of its own."""
        ...

    def call(self, core: Core, bound: Any) -> list[torch.Tensor]:
        """The outputs of a call as a caller writes it."""
        ...

    def results(self, call: Call, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Everything that the forward operator gives for a call in the form in which it is run."""
        ...

    def launch(self, call: Call, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Outputs and scratch of a call."""
        ...

    def launch_backward(self, asked: BackwardCall) -> list[torch.Tensor]:
        """Gradients of the active inputs, in their order."""
        ...


class Core:
    """A signature, a source of gradients, and the plans made so far.

    `hidden` are arrays that only generated kernels see. `content` is the digest of all that compiled forms depend on.
    """

    hidden: frozenset[str] = frozenset()
    operators: Operators
    content: str
    define: Callable[[Core], None]

    def __init__(self, signature: Signature, reverse: Reverse) -> None:
        self.signature = signature
        self.reverse = reverse
        self.forms: Cache[Any, Any] = Cache()  # kept by `_route.form_of`
        self.tangents: dict[frozenset[str], Any] = {}
        self._fixed = tuple(dict.fromkeys(signature.size_scalars + reverse.scalars + signature.launch_numbers))
        self._pace = Pace(config().serial_below)
        self._kinds: Cache[Any, Kind] = Cache()
        self._made_dtypes: dict[tuple[str, tuple[torch.dtype, ...]], torch.dtype] = {}
        self._plans: Cache[Any, Plan] = Cache()
        self._kind_scalars = tuple(dict.fromkeys(reverse.scalars + signature.launch_numbers))
        self.contents = FieldContents(signature)
        self.runtimes = tuple(dict.fromkeys(stage.engine.runtime for stage in signature.firsts))

    def fingerprints(self, templates: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
        """Pictures of every Python value that the kernels bake in."""
        found = {stage: stage.fingerprint(templates) for stage in self.signature.firsts}
        return tuple([found[stage.first] for stage in self.signature.stages])

    @property
    def varies(self) -> bool:
        """Whether a call's meaning depends on Python values outside its arguments."""
        return any(stage.varies for stage in self.signature.firsts)

    @constant_when_traced
    def settle(self) -> None:
        """Define the operators, where that had to wait for names that the kernels use."""
        if "operators" not in vars(self):
            self.define(self)

    @property
    def has_state(self) -> bool:
        """Whether kernels use fields or Python values that are no arguments of a call, and may change between calls."""
        return any(stage.has_state for stage in self.signature.firsts)

    @constant_when_traced
    def describe_values(self) -> str:
        """A digest of the Python values that the kernels bake in now, which another process can compare with its own.

        A graph keeps the arrays that a backward pass with these values reads: with others it is another graph.
        """
        return digest_of(*(stage.describe_values() for stage in self.signature.firsts))

    @property
    def environment(self) -> tuple[Any, ...]:
        """The objects from which Python values come that kernels of this core use; none where they use none."""
        return tuple(one for stage in self.signature.firsts for one in stage.environment)

    def fixed(self, scalars: Mapping[str, Any]) -> tuple[Any, ...]:
        """The scalar arguments that a plan depends on."""
        return tuple([scalars[name] for name in self._fixed])

    def fixed_by_name(self, scalars: Mapping[str, Any]) -> dict[str, Any]:
        """The same by name."""
        return {name: scalars[name] for name in self._fixed}

    def runtime(self) -> tuple[Any, ...]:
        """Tokens of the engines' present state."""
        return tuple([runtime() for runtime in self.runtimes])

    def plan(self, call: Call, device: torch.device) -> Plan:
        """The plan for a call; made once."""
        fixed = self.fixed(call.scalars)
        fingerprints = self.fingerprints(call.templates)
        key = (
            call.shapes,
            call.dtypes,
            device,
            fixed,
            tuple(call.sizes.items()),
            call.batch,
            call.batched,
            call.is_apart,
            fingerprints,
            self.runtime(),
        )
        found = self._plans.get(key)
        if found is not None:
            return found
        with COMPILING:
            if key not in self._plans:
                situation = self._situation(call, device, fingerprints)
                return self._plans.keep(key, Plan(situation, self._kind(call, situation), self._pace))
            return self._plans[key]

    def _kind(self, call: Call, situation: Situation) -> Kind:
        """What the plan of a call has in common with those of other sizes."""
        open_shapes = self.signature.has_open_elements
        key = (
            call.shapes if open_shapes else tuple([len(shape) for shape in call.shapes]),
            call.dtypes,
            situation.device,
            self.kind_scalars(call.scalars),
            call.batch is None,
            call.batched,
            call.is_apart,
            situation.fingerprints,
            self.runtime(),
        )
        found = self._kinds.get(key)
        if found is None:
            self.check_device(situation.device)
            found = self._kinds.keep(key, Kind(situation, call.reverse, self._layouts(call, situation)))
        return found

    def _layouts(self, call: Call, situation: Situation) -> tuple[Layout, Layout]:
        """The forward pass of calls of one kind, on several threads and on one."""
        signature = self.signature

        def layout(is_serial: bool) -> Layout:
            launches = []
            for stage in signature.stages:
                uses = tuple(Use(name, name, name, "", name in situation.batched) for name in stage.arrays)
                launches.append(StageLaunch(stage, uses, is_serial=is_serial))
            return Layout(signature.op, situation.dtypes, signature.arrays, self._makes, tuple(launches))

        return layout(False), layout(True)

    @property
    def _makes(self) -> tuple[Make, ...]:
        """Outputs and scratch, which a forward pass makes."""
        signature = self.signature
        names = signature.outputs + signature.scratch
        return tuple(Make(name, name, signature.starts_at_zero(name)) for name in names)

    def quick_solver(self, ranks: Sequence[int], names: Sequence[str]) -> QuickSolver | None:
        """Code that solves the spec for calls of one kind, which give values of these names; None where there is none.

        What it finds is all that differs between their plans.
        """
        return quick_solver(self.signature.spec, ranks, names)

    def kind_scalars(self, scalars: Mapping[str, Any]) -> tuple[Any, ...]:
        """The scalar arguments that decide more of a plan than sizes."""
        return tuple([scalars[name] for name in self._kind_scalars])

    def kernels(self, case: Case) -> list[Lowered]:
        """The kernels as IR, for a kind of call. Raises NotCovered."""
        return lowered(case)

    def together(self, batched: frozenset[str]) -> frozenset[str]:
        """Inputs that have a batch dimension where these have: no more of them."""
        return batched

    def private(self, call: Call) -> dict[str, tuple[int, ...]]:
        """Memory of a call that neither it nor its caller sees: sizes without batch, by name."""
        return {}

    def case(self, call: Call) -> Case:
        """The kind of a call."""
        lead = () if call.batch is None else (call.batch,)
        made = {buffer.name: buffer for buffer in call.made}
        names = self.signature.arrays
        shapes = dict(zip(names, call.shapes, strict=True)) | {n: one.shape[len(lead) :] for n, one in made.items()}
        dtypes = dict(zip(names, call.dtypes, strict=True)) | {n: one.dtype for n, one in made.items()}
        batched = call.batched | (frozenset(made) if lead else frozenset())
        numbers = {name: call.scalars[name] for name in self.signature.launch_numbers}
        pictures = self.fingerprints(call.templates)
        return Case(self.signature, shapes, dtypes, batched, pictures, call.templates, call.is_apart, numbers)

    def made(self, call: Call) -> list[Buffer]:
        """Outputs and scratch of a call: their sizes, batch included, and dtypes."""
        signature = self.signature
        shapes = dict(zip(signature.arrays, call.shapes, strict=True))
        values = signature.size_values(call.scalars, call.sizes)
        solution = solve(signature.kernel_spec, shapes, values, signature.op)
        return self._checked_made(call, solution.shapes)

    def made_of(self, call: Call, solution: Solution) -> list[Buffer]:
        """The same where the op's whole spec has been solved, batch dims and all."""
        count = len(solution.batch)
        return self._checked_made(call, {name: shape[count:] for name, shape in solution.shapes.items()})

    def _checked_made(self, call: Call, made: Mapping[str, tuple[int, ...]]) -> list[Buffer]:
        """Outputs and scratch of a call, whose sizes without batch are known."""
        signature = self.signature
        if signature.vectors:
            self.check_elements({**dict(zip(signature.arrays, call.shapes, strict=True)), **made})
        lead = () if call.batch is None else (call.batch,)
        return [Buffer(one.name, lead + made[one.name], self.made_dtype(one.name, call)) for one in signature.spec.made]

    def check_elements(self, cores: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse sizes, without batch, that do not end in those of the kernels' vectors."""
        for parameter, dims in self.signature.vectors:
            check_element(self.signature.op, parameter, dims, cores[parameter.name])

    def _situation(self, call: Call, device: torch.device, fingerprints: tuple[Any, ...]) -> Situation:
        names = self.signature.arrays
        shapes = dict(zip(names, call.whole_shapes, strict=True)) | {one.name: one.shape for one in call.made}
        dtypes = dict(zip(names, call.dtypes, strict=True)) | {one.name: one.dtype for one in call.made}
        batched = call.batched
        if call.batch is not None:
            batched = batched.union([one.name for one in call.made])
        fixed = self.fixed_by_name(call.scalars)
        private = self.private(call)
        return Situation(
            self.signature, shapes, dtypes, device, call.batch, batched, fingerprints, call.templates, fixed, private
        )

    def made_dtype(self, name: str, call: Call) -> torch.dtype:
        """An output's dtype: the spec's, the annotation's, or the floating inputs' common one; never half."""
        key = (name, call.dtypes)
        found = self._made_dtypes.get(key)
        if found is None:
            found = self._made_dtypes[key] = self._find_made_dtype(name, call)
        return found

    def _find_made_dtype(self, name: str, call: Call) -> torch.dtype:
        fitting = fitting_dtypes(self.signature, name)
        common = common_float(call.dtypes)
        if common is not None and (fitting is None or common in fitting):
            return common
        if fitting is not None and len(fitting) == 1:
            return torch.float32 if fitting[0] in HALVES else fitting[0]
        words = f"the dtype of `{name}` in op `{self.signature.op}` cannot be told from its inputs"
        rows = [("floating inputs", "none" if common is None else str(common)), ("annotation", str(fitting or "any"))]
        raise DtypeError(refusal(words, rows, f"Write it into the spec: `{self.signature.items[name]}: f32`."))

    @constant_when_traced
    def device_type(self) -> str:
        """Torch's name of the device that the kernels run on."""
        return self.signature.stages[0].engine.device_type()

    def check_device(self, device: torch.device) -> None:
        """Refuse tensors that are not where the engine runs: an engine would copy them in silence."""
        for stage in self.signature.firsts:
            stage.engine.require_ready(self.signature.op)
            runs_on = stage.engine.device_type()
            if device.type != runs_on or device.index not in (None, 0):
                name = stage.engine.name
                words = f"op `{self.signature.op}` got tensors on {device}, its engine {name} runs on {runs_on}"
                remedy = f"Move the tensors (`.to({runs_on!r})`), or start the engine there: ts.init({device.type!r})."
                raise DeviceError(refusal(words, remedy=remedy))

    def result_dtype(self, name: str, inputs: Sequence[torch.dtype]) -> torch.dtype | None:
        """The half dtype that a result is cast back to, None where it is computed in its own."""
        fitting = fitting_dtypes(self.signature, name)
        is_fixed = fitting is not None and len(fitting) == 1 and not takes_half(self.signature, name)
        wanted = fitting[0] if fitting and is_fixed else common_float(inputs)
        return wanted if wanted in HALVES else None
