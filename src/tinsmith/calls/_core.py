"""Core: an op's kernels, signature, gradient and plans, without the ways to call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from .._config import config
from .._errors import DeviceError, DtypeError, refusal
from .._lazy import lazy
from ..compiling import check_element
from ..engines import COMPILING, FLOATS, HALVES, INTEGERS
from ..frontend.lowering import LoweredKernel
from ..ir import NotCovered
from ..passes.adjoint import Copy
from ..spec import Sizing, fixed_sizing, sizing, solve
from ..tracing import constant_when_traced, is_tracing
from ._block_memory import add_block_memory
from ._buffers import Buffer
from ._cache import Cache
from ._call import BackwardCall, Call
from ._captured_values import Captures
from ._filled_arrays import find_filled_arrays
from ._kind import Kind
from ._layout import Input, Layout, Make, Result
from ._lower import lower_stages
from ._pace import Paces
from ._plan import Plan
from ._signature import Signature, common_float, default_float, default_integer, fitting_dtypes, takes_half
from ._specialization import Specialization
from ._steps import StageLaunch, Use
from .backward import Reverse


class Operators(Protocol):
    """The torch operators of a core, as other parts of the library use them."""

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


class Core:
    """A signature, a source of gradients, and the plans so far.

    `hidden` are arrays that only generated kernels use. `content` is the digest of all that compiled forms depend on.
    `hands_out`: whether kernels use the return values of atomics; None before this is known.
    """

    hidden: frozenset[str] = frozenset()
    hands_out: bool | None = None
    content: str
    define: Callable[[Core], Operators]

    def __init__(self, signature: Signature, reverse: Reverse) -> None:
        self.signature = signature
        self.reverse = reverse
        self.tangents: dict[frozenset[str], Any] = {}
        # `derived.find_recorded` fills both.
        self.recorded: dict[Any, Any] = {}
        self.cores_with_records: dict[Any, Any] = {}
        self.plans: Cache[Any, Plan] = Cache()
        # Filled by `_route.form_of`.
        self.conversions: Cache[Any, Any] = Cache()
        self._sizings: Cache[Any, Sizing] = Cache()
        self.paces = Paces(config().serial_below)
        self._made_dtypes: dict[tuple[str, tuple[torch.dtype, ...]], torch.dtype] = {}
        self.captures = Captures(signature, reverse.gradient_stage)
        # Filled by `operators`.
        self.launches: Cache[Any, Any] = Cache()
        self.runtimes = tuple(dict.fromkeys(stage.engine.runtime for stage in signature.firsts))

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

    def runtime(self) -> tuple[Any, ...]:
        """Tokens of the engines' present state."""
        return tuple([runtime() for runtime in self.runtimes])

    def plan(self, call: Call, device: torch.device) -> Plan:
        """The plan for calls like this one; made once."""
        fingerprints = self.fingerprints(call.templates)
        key = (
            # Symbols stand for sizes that may differ; numbers become constants in the plan's code.
            tuple(call.sizing.shapes.values()),
            call.dtypes,
            device,
            self.launch_numbers(call.scalars),
            call.batch is None,
            call.batched,
            call.is_apart,
            fingerprints,
            self.runtime(),
        )
        plan = self.plans.get(key)
        if plan is not None:
            return plan
        with COMPILING:
            plan = self.plans.get(key)
            if plan is None:
                self.check_device(device)
                kind = Kind(self.case(call), device, call.sizing)
                self.captures.note_plan(fingerprints)
                plan = self.plans.keep(
                    key, Plan(kind, call.reverse, self._layout(call, kind), self.paces, self.captures)
                )
            return plan

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
        dtypes |= {name: self.made_dtype(name, call) for name in made}
        fingerprints = self.fingerprints(call.templates)
        case = Specialization(signature, shapes, dtypes, frozenset(), fingerprints, call.templates)
        try:
            kernels = lower_stages(case)
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

    def _layout(self, call: Call, kind: Kind) -> Layout:
        """The forward pass of calls of one kind."""
        signature = self.signature

        # Torch copies memory faster than a kernel on one thread. What is not launched many times may be prepared, which
        # knows memory by its address alone.
        is_repeated = len(signature.stages) > len(signature.firsts)
        pairs = (stage.links.copies for stage in signature.stages if is_repeated)
        copies = dict(
            one for one in pairs if one is not None and len({name in kind.batched_arrays for name in one}) == 1
        )
        launches: list[StageLaunch | Copy] = [Copy(*one) for one in copies.items()]
        for stage in signature.stages:
            if stage.links.copies is not None and stage.links.copies[0] in copies:
                continue
            uses = tuple(Use(name, name, name, "", name in kind.batched_arrays) for name in stage.arrays)
            launches.append(StageLaunch(stage, uses))
        given = tuple(Input(name, place) for place, name in enumerate(signature.arrays))
        filled = find_filled_arrays(kind.case)
        makes = (replace(one, is_zero=one.is_zero and one.name not in filled) for one in self._makes)
        made = tuple(one for one in makes if one.name not in copies)
        return Layout(given, made, tuple(launches), tuple(map(Result, kind.names)), {})

    @property
    def _makes(self) -> tuple[Make, ...]:
        """Outputs and scratch, which a forward pass makes."""
        signature = self.signature
        names = signature.outputs + signature.scratch
        return tuple(Make(name, name, signature.starts_at_zero(name)) for name in names)

    def get_derivative_call(self, call: Call, made: Sequence[Any]) -> tuple[Call, Sequence[Any]]:
        """The call that derivatives of a call are those of, and its inputs that the forward pass `made`."""
        return call, ()

    def kernels(self, case: Specialization) -> list[LoweredKernel]:
        """The kernels as IR, for a kind of call. Raises NotCovered."""
        return lower_stages(case)

    def together(self, batched: frozenset[str]) -> frozenset[str]:
        """Inputs that have a batch dimension where these have: no more of them."""
        return batched

    def case(self, call: Call) -> Specialization:
        """The kind of a call."""
        lead = () if call.batch is None else (call.batch,)
        made = {buffer.name: buffer for buffer in call.allocations}
        names = self.signature.arrays
        shapes = dict(zip(names, call.shapes, strict=True)) | {n: one.shape[len(lead) :] for n, one in made.items()}
        dtypes = dict(zip(names, call.dtypes, strict=True)) | {n: one.dtype for n, one in made.items()}
        batched = call.batched | (frozenset(made) if lead else frozenset())
        numbers = {name: call.scalars[name] for name in self.signature.launch_numbers}
        fingerprints = self.fingerprints(call.templates)
        return Specialization(
            self.signature, shapes, dtypes, batched, fingerprints, call.templates, call.is_apart, numbers
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
        dtypes = [self.made_dtype(name, call) for name in names]
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

    def made_dtype(self, name: str, call: Call) -> torch.dtype:
        """An output's dtype: the spec's, the annotation's, or the floating inputs' common one; never half.

        A new value of an argument has the argument's dtype where its kernels take it.
        """
        key = (name, call.dtypes)
        dtype = self._made_dtypes.get(key)
        if dtype is None:
            dtype = self._made_dtypes[key] = self._find_made_dtype(name, call)
        return dtype

    def _find_made_dtype(self, name: str, call: Call) -> torch.dtype:
        fitting = fitting_dtypes(self.signature, name)
        old = self._updated_dtype(name, call.dtypes)
        if old is not None and (fitting is None or old in fitting):
            return old
        common = common_float(call.dtypes)
        if common is not None and (fitting is None or common in fitting):
            return common
        if fitting is not None and len(fitting) == 1:
            return torch.float32 if fitting[0] in HALVES else fitting[0]
        if fitting is not None and set(fitting) == set(INTEGERS):
            return default_integer(self.signature)
        if fitting is not None and set(fitting) == set(FLOATS) and common is None:
            return default_float(self.signature)
        words = f"the dtype of `{name}` in op `{self.signature.op}` does not follow from its inputs"
        rows = [("floating inputs", "none" if common is None else str(common)), ("annotation", str(fitting or "any"))]
        raise DtypeError(refusal(words, rows, f"Write it into the spec: `{self.signature.items[name]}: f32`."))

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

    def result_dtype(self, name: str, inputs: Sequence[torch.dtype]) -> torch.dtype | None:
        """The half dtype that a result is cast back to, None where it is computed in its own."""
        fitting = fitting_dtypes(self.signature, name)
        is_fixed = fitting is not None and len(fitting) == 1 and not takes_half(self.signature, name)
        wanted = fitting[0] if fitting and is_fixed else self._updated_dtype(name, inputs) or common_float(inputs)
        return wanted if wanted in HALVES else None

    def _updated_dtype(self, name: str, inputs: Sequence[torch.dtype]) -> torch.dtype | None:
        """The dtype of the argument whose new value an output is, None for other outputs."""
        argument = self.signature.updates.get(name)
        return None if argument is None else inputs[self.signature.arrays.index(argument)]
