"""An op as torch operators of its own, for tracers and transforms.

`torch.compile`, fake tensors, `make_fx` and tensor subclasses never see a Python function. They see
`torch.ops.tinsmith.conv_3f9a12c4d5e6`, named by the op's content, and in backward graphs its sibling `..._backward`.
An operator takes the arguments of a call of the op. Torch's own differentiable operations cast half precision to
float32 and merge several batch dims (`Conversion`).
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from .. import torch_side
from .._errors import GradientError, GraphError, TinsmithError, refusal
from .._lazy import lazy
from ..calls import (
    LENGTH,
    WATCHES,
    BackwardCall,
    BoundArguments,
    Call,
    Core,
    are_in_order,
    check_dtypes,
    check_ranges,
    convert_as_it_is,
    convert_call,
    derived,
    find_program,
    make_checked_call,
    show_call,
)
from ..compiling import name_members
from ..engines import COMPILING
from ..tracing import (
    apply_at_one_level,
    are_final,
    can_run_directly,
    constant_when_traced,
    explain_missing_operators,
    is_distributed,
    is_linearized,
    may_be_differentiated,
    unwrap_levels,
)
from ._cores import Cores, explain_missing
from ._definition import DEFINED, NAMESPACE, define_operator
from ._schema import OperatorArguments, Schema, make_identifier

_KNOWN: dict[str, Operator] = {}
"""Operators by name. They are never removed, since torch's graphs may call them."""


def _explain_missing(name: str) -> GraphError | None:
    return None if name in DEFINED else explain_missing(name, [one.cores for one in _KNOWN.values()])


explain_missing_operators(NAMESPACE, _explain_missing)


class Operator:
    """The forward and the backward operator of all cores with one content.

    Args:
        name: the forward operator's name, without namespace.
        core: the first of these cores.
    """

    def __init__(self, name: str, core: Core) -> None:
        self.name = name
        self.cores = Cores(core.signature)
        self._schema: Schema | None = self._make_schema(core)
        self._allocation_count = len(self.schema.allocations)
        self._result_count = self._allocation_count + core.has_state
        self._shares: dict[Any, tuple[Any, ...]] = {}
        # Whether the gradient is an engine's own reverse mode is not known yet; a capture of that raises.
        can_all = all(one.engine.is_capturable and not one.is_checked for one in core.signature.stages)
        self._is_capturable = can_all and not core.has_state
        self._define()

    def _define(self) -> None:
        name = self.name
        define = functools.partial(define_operator, is_capturable=self._is_capturable)
        forward: tuple[Any, ...] = (self.run, self._forward_fake, self.run_final, self._forward_vmap)
        backward: tuple[Any, ...] = (
            self.run_backward,
            self._backward_fake,
            self.run_backward_final,
            self._backward_vmap,
        )
        if self.schema.has_state:
            forward = (self._forward, self._forward_fake, self._forward_autograd, self._forward_vmap)
            backward = (self._backward, self._backward_fake, self._backward_autograd, self._backward_vmap)
        self.forward = define(name, self.schema.forward, *forward)
        register_flop_formula(self.forward.overloadpacket, get_raw=True)(self._forward_flops)
        self.backward = define(f"{name}_backward", self.schema.backward, *backward)
        register_flop_formula(self.backward.overloadpacket, get_raw=True)(self._backward_flops)

    @property
    def schema(self) -> Schema:
        """The declarations for torch. Raises GraphError if no core exists any more."""
        if self._schema is None:
            self._schema = self._make_schema(self.cores.find())
        return self._schema

    def _make_schema(self, core: Core) -> Schema:
        return Schema(core.signature, core.has_state)

    def add(self, core: Core) -> None:
        """Let calls run on this core too.

        The schema refers to the core's kernels. It is deleted together with the last core.
        """
        self.cores.add(core)
        # Now, since a compiler that traces a call could not trace this.
        if self._schema is None:
            self._schema = self._make_schema(core)
        weakref.finalize(core, self._release).atexit = False

    def _release(self) -> None:
        if not self.cores.is_alive:
            self._schema = None

    def define(self, core: Core, content: Callable[[], str], label: str) -> None:
        """Define the torch operators of another core, which was derived from a core of this operator."""
        define_operators(core, content, label)

    @constant_when_traced
    def shares(self, dtypes: tuple[torch.dtype, ...]) -> tuple[Any, ...]:
        """Return the op's dims that may be sharded over processes, with the axis of each array that has the dim."""
        if dtypes not in self._shares:
            shares = torch_side.find_shares(self.cores.find(), dtypes)
            self._shares[dtypes] = tuple((dim, tuple(axes.items())) for dim, axes in shares.axes.items())
        return self._shares[dtypes]

    # Calling it -------------------------------------------------------------------------------
    def run_call(self, core: Core, bound: BoundArguments) -> list[torch.Tensor]:
        """Call the forward operator with the arguments of a caller. Return the outputs."""
        return self._run(core, bound, len(core.signature.outputs))

    def results(
        self, call: Call, tensors: Sequence[torch.Tensor], state: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """Call the forward operator for a converted call. Return outputs, scratch and state.

        If a state is passed, raise an error if Python values or fields have changed since it was taken.
        """
        before = unwrap_levels(state) if self.schema.has_state and state is not None else None
        arguments, keywords = self.schema.pack_flat(call, tensors, before)
        return self._list_results(self.forward(*arguments, **keywords, **self._traced_values(call.core)))

    def launch_backward(self, asked: BackwardCall) -> list[torch.Tensor]:
        """Call the backward operator. Return the gradients of the active inputs, in their order."""
        state = None if asked.state is None else unwrap_levels(asked.state)
        arguments, keywords = self.schema.pack_backward(*asked._replace(state=state))
        return list(self.backward(*arguments, **keywords, **self._traced_values(asked.call.core)))

    def _traced_values(self, core: Core) -> dict[str, Any]:
        """Return a digest of the kernels' current Python values as a keyword argument, which a graph records."""
        return {"_values": core.describe_values()} if self.schema.has_state else {}

    def _list_results(self, results: Any, count: int | None = None) -> list[Any]:
        """Return the first `count` results of the forward operator as a list; without a count, all.

        Torch returns a single result alone, and a tracer's stand-in does not know how many results it stands for.
        """
        if isinstance(results, torch.Tensor):
            return [results]
        if isinstance(results, (list, tuple)):
            return list(results[:count])
        is_alone = self._result_count == 1 and not self.schema.lists_arrays
        return [results] if is_alone else [results[place] for place in range(count or self._result_count)]

    def _pack_results(self, results: Sequence[Any]) -> Any:
        """Return results in the form that torch wants from an implementation: a list, one tensor, or a tuple."""
        if self.schema.lists_arrays:
            return list(results)
        return results[0] if len(results) == 1 else tuple(results)

    # Known calls ------------------------------------------------------------------------------
    @lazy
    def lookup(self) -> torch_side.Lookup:
        """Generate the functions that find the cached launch of a forward pass."""
        return torch_side.write_forward(self.schema)

    @lazy
    def backward_lookup(self) -> torch_side.Lookup:
        """Generate the functions that find the cached launch of a backward pass."""
        return torch_side.write_backward(self.schema)

    def run(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the forward operator for dispatch keys below autograd's."""
        return self.lookup.run(self, *arguments, **keywords)

    def run_final(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the forward operator for autograd's dispatch key."""
        return self.lookup.run_final(self, *arguments, **keywords)

    def run_backward(self, *arguments: Any, **keywords: Any) -> list[torch.Tensor]:
        """Run the backward operator for dispatch keys below autograd's."""
        return self.backward_lookup.run(self, *arguments, **keywords)

    def run_backward_final(self, *arguments: Any, **keywords: Any) -> list[torch.Tensor]:
        """Run the backward operator for autograd's dispatch key."""
        return self.backward_lookup.run_final(self, *arguments, **keywords)

    # Forward ----------------------------------------------------------------------------------
    def _read(
        self, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[OperatorArguments, Core, BoundArguments]:
        given = self.schema.split(arguments, keywords)
        return given, self.cores.find(), self.schema.bind_arguments(given)

    def _convert(self, core: Core, bound: BoundArguments, batch: Sequence[Any] | None) -> Call:
        """Return the converted call. With a `batch`, the arguments are those of a converted call already."""
        if batch is None:
            try:
                # Half precision may have been cast already: the op has checked the dtypes that the caller passed.
                return make_checked_call(core, bound, is_cast=True)
            except TinsmithError as error:
                name_members(error, core.signature.members)
                raise
        shapes, dtypes = [one.shape for one in bound.tensors], [one.dtype for one in bound.tensors]
        return convert_as_it_is(self.schema.make_call(core, bound, shapes, dtypes, batch))

    def _forward(self, *arguments: Any, **keywords: Any) -> Any:
        given, core, bound = self._read(arguments, keywords)
        if self.schema.has_state:
            return self._forward_with_state(core, bound, given)
        key = self.lookup.key(core, *arguments, **keywords)
        launch = core.launches.keep(key, self._prepare_forward(core, bound, given.batch))
        return self._pack_results(launch.run(bound.tensors, bound.scalars))

    def _prepare_forward(
        self, core: Core, bound: BoundArguments, batch: Sequence[Any] | None
    ) -> torch_side.ForwardLaunch:
        """Check a forward pass. Return the launch that runs it."""
        check_ranges(core.signature, bound.scalars)
        call = self._convert(core, bound, batch)
        program = find_program(call, core.device(bound.tensors))
        is_direct = call.conversion.is_identity and are_in_order(bound.tensors)
        return torch_side.ForwardLaunch(
            core.signature,
            call.conversion,
            call.lead,
            call.batch,
            program,
            call.numbers,
            call.scalars,
            is_direct,
            are_final(bound.tensors),
        )

    def _forward_with_state(self, core: Core, bound: BoundArguments, given: OperatorArguments) -> Any:
        if WATCHES:
            show_call(core, lambda: core.captures.take(bound.templates))
        captured = core.captures.take(bound.templates)
        if given.state is None:
            core.captures.refuse_rerun(captured.fingerprints)
        else:
            captured.check_state(given.state)
        made = self._prepare_forward(core, bound, given.batch).run(bound.tensors, bound.scalars)
        return self._pack_results([*made, captured.as_state()])

    def _run(self, core: Core, bound: BoundArguments, count: int | None = None) -> list[torch.Tensor]:
        """Call the forward operator with a caller's arguments. Return its first `count` results, or all."""
        arguments, keywords = self.schema.pack(bound)
        return self._list_results(self.forward(*arguments, **keywords, **self._traced_values(core)), count)

    def _forward_fake(self, *arguments: Any, **keywords: Any) -> Any:
        given, core, bound = self._read(arguments, keywords)
        call = self._convert(core, bound, given.batch)
        device = core.device(bound.tensors)
        made = [torch.empty(one.shape, dtype=one.dtype, device=device) for one in core.plan_buffers(call)]
        state = [torch.empty(LENGTH, dtype=torch.int64)] if self.schema.has_state else []
        return self._pack_results([*call.finish(made), *state])

    def _forward_autograd(self, *arguments: Any, **keywords: Any) -> Any:
        if can_run_directly(arguments):
            return self._forward(*arguments, **keywords)
        given, core, bound = self._read(arguments, keywords)
        state = given.state
        if state is None and self.schema.has_state and is_linearized():
            state = core.captures.take(bound.templates).as_state()
        if is_distributed(bound.tensors):
            return self._pack_results(torch_side.call_distributed(core, bound, functools.partial(self._run, core)))
        call = self._convert(core, bound, given.batch)
        if not call.conversion.is_identity:
            results = self.results(call, call.prepare(bound.tensors), state)
            return self._pack_results(
                [*call.finish(results[: self._allocation_count]), *results[self._allocation_count :]]
            )

        recorded = derived.find_recorded(core, call) if may_be_differentiated(bound.tensors) else None
        if recorded is not None:
            results = recorded.operators.results(recorded.make_call(call), bound.tensors, state)
            return self._pack_results(
                [*results[: self._allocation_count], *results[self._allocation_count + len(recorded.names) :]]
            )

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            again = self.schema.with_tensors(arguments, tensors)
            if state is not None:
                again = self.schema.with_state(again, unwrap_levels(state))
            return self._list_results(self.forward(*again, **keywords))

        return self._pack_results(apply_at_one_level(torch_side.Launch, call, run, *bound.tensors))

    def _forward_vmap(self, info: Any, in_dims: Any, *arguments: Any, **keywords: Any) -> Any:
        given, core, bound = self._read(arguments, keywords)
        size, dims = info.batch_size, self.schema.get_arrays(in_dims)
        shapes = [_remove_dim(tensor, dim) for tensor, dim in zip(bound.tensors, dims, strict=True)]
        dtypes = [tensor.dtype for tensor in bound.tensors]
        if given.batch is not None:
            call = convert_as_it_is(self.schema.make_call(core, bound, shapes, dtypes, given.batch))
        else:
            check_dtypes(core.signature, bound.tensors)
            call = convert_call(core, bound, shapes, dtypes)
        moved = [one if dim is None else one.movedim(dim, 0) for one, dim in zip(bound.tensors, dims, strict=True)]
        ready = call.prepare(moved, [() if dim is None else (size,) for dim in dims])
        places = [None if dim is None else 0 for dim in dims]
        results = torch_side.run_forward_over_batch(size, call, ready, places, given.state)
        made, state = results[: self._allocation_count], results[self._allocation_count :]
        batch_dims = [*[0 for _ in made], *[None for _ in state]]
        return self._pack_results([*call.finish(made, (size,)), *state]), self._pack_results(batch_dims)

    def _forward_flops(self, *arguments: Any, out_val: Any = None, **keywords: Any) -> int:  # torch's
        given, core, bound = self._read(arguments, keywords)
        return torch_side.count_forward_flops(self._convert(core, bound, given.batch))

    # Backward ---------------------------------------------------------------------------------
    def _read_backward(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> BackwardCall:
        return self.schema.read_backward_call(self.cores.find(), arguments, keywords)

    def _backward(self, *arguments: Any, **keywords: Any) -> list[torch.Tensor]:
        asked, tensors = self._read_backward(arguments, keywords), self.schema.get_owned(arguments)
        core, launch = asked.call.core, self._prepare_backward(asked, tensors)
        if not self.schema.has_state:
            core.launches.keep(self.backward_lookup.key(core, *arguments, **keywords), launch)
        return launch.run(tensors, asked.call.scalars)

    def _prepare_backward(
        self, asked: BackwardCall, tensors: Sequence[torch.Tensor | None]
    ) -> torch_side.BackwardLaunch:
        """Check a backward pass. Return the launch that runs it."""
        call, active, saved, cotangents, state = asked
        core = call.core
        if not cotangents:
            words = f"a graph asks for the gradient of op `{core.signature.op}`, and passes no gradient of its outputs"
            raise GradientError(refusal(words, remedy="Leave out the operation on the outputs that has no gradient."))
        if state is not None:
            core.captures.take(call.templates).check_state(state)
        needed = call.find_saved_names(active)
        lost = [name for name in needed if name not in saved]
        if lost:
            words = f"the gradient of op `{core.signature.op}` reads `{lost[0]}`, which the compiled graph did not save"
            remedy = (
                "A Python value that the kernel uses changed after compilation: call torch.compiler.reset(), "
                "and compile again."
            )
            raise GradientError(refusal(words, remedy=remedy))
        device = next(iter(cotangents.values())).device
        arrays = self.schema.arrays
        present = [one for one in tensors if one is not None]
        return torch_side.BackwardLaunch(
            find_program(call, device),
            active,
            call.numbers,
            call.scalars,
            tuple((name, arrays.index(name)) for name in needed),
            len(arrays),
            are_in_order(present),
            are_final(present),
        )

    def _backward_fake(self, *arguments: Any, **keywords: Any) -> list[torch.Tensor]:
        asked = self._read_backward(arguments, keywords)
        call = asked.call
        like = next(iter(asked.cotangents.values()))
        return [
            like.new_empty(shape, dtype=dtype)
            for name, shape, dtype in zip(call.core.signature.arrays, call.whole_shapes, call.dtypes, strict=True)
            if name in asked.active
        ]

    def _backward_autograd(self, *arguments: Any, **keywords: Any) -> list[torch.Tensor]:
        if can_run_directly(arguments):
            return self._backward(*arguments, **keywords)
        asked = self._read_backward(arguments, keywords)

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            given = iter(tensors)
            saved = {name: next(given) for name in asked.saved}
            cotangents = {name: next(given) for name in asked.cotangents}
            return self.launch_backward(asked._replace(saved=saved, cotangents=cotangents))

        tensors = (*asked.saved.values(), *asked.cotangents.values())
        return list(apply_at_one_level(torch_side.LaunchBackward, asked, run, *tensors))

    def _backward_vmap(self, info: Any, in_dims: Any, *arguments: Any, **keywords: Any) -> Any:
        asked = self._read_backward(arguments, keywords)
        pairs = zip(self.schema.get_owned(arguments), self.schema.get_owned(in_dims), strict=True)
        dims = [dim for tensor, dim in pairs if tensor is not None]
        gradients = torch_side.run_backward_over_batch(info.batch_size, asked, dims)
        return gradients, [0] * len(gradients)

    def _backward_flops(self, *arguments: Any, out_val: Any = None, **keywords: Any) -> int:  # torch's
        return torch_side.count_backward_flops(self._read_backward(arguments, keywords))


def _remove_dim(tensor: torch.Tensor, dim: int | None) -> tuple[int, ...]:
    return tuple(size for place, size in enumerate(tensor.shape) if place != dim)


def define_operators(
    core: Core, content: Callable[[], str], label: str = "", make: Callable[[Core], Operator] | None = None
) -> None:
    """Set how a core gets its operators: those of a core with equal content, if there is one, or what `make` returns.

    The operators' names need the source of everything that the kernels call. If a kernel uses a name that does not
    exist yet, `core.settle` defines the operators before the first use; otherwise they are defined now.

    Args:
        core: the core.
        content: returns the digest of what the core's kernels depend on.
        label: a part of the operators' names.
        make: makes an operator for the core.
    """
    core.define = functools.partial(_define, content, label, make)
    if all(stage.baked_values.knows_names for stage in core.signature.firsts):
        core.settle()


def _define(content: Callable[[], str], label: str, make: Callable[[Core], Operator] | None, core: Core) -> Operator:
    with COMPILING:
        core.content = content()
        if make is not None:
            return make(core)
        return _join_operator(core, f"{make_identifier(core.signature.op)}{label}_{core.content}")


def _join_operator(core: Core, name: str) -> Operator:
    """Add a core to the first operator of its content that accepts it, or to a new one. Return the operator.

    An operator accepts no core that takes its Python values from other objects than its living cores do.
    """
    for count in itertools.count():
        called = f"{name}_{count}" if count else name
        operator = _KNOWN.get(called)
        if operator is None:
            operator = _KNOWN[called] = Operator(called, core)
        if operator.cores.accepts(core):
            operator.add(core)
            return operator
    raise AssertionError
