"""The class `Op`: a kernel as an ordinary torch operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, cast

import torch
from torch.overrides import has_torch_function
from typing_extensions import TypeVar

from .. import operation, torch_side
from .._errors import ArgumentError, DtypeError, ShapeError, TinsmithError, refusal
from .._offers import scan_operators
from .._tracebacks import hide_frames
from ..calls import (
    WATCHES,
    BoundArguments,
    CapturedValues,
    Core,
    DirectCalls,
    Program,
    Programs,
    autocast,
    bind,
    call_watched,
    check_reach,
    check_scalar,
    check_tensors,
    current_watch,
    in_order,
    make_checked_call,
    solve_numbers,
)
from ..compiling import Structs, name_members
from ..engines import of_kernel
from ..spec import Numbers, parse
from ..torch_side import make_eager_function
from ..tracing import (
    constant_when_traced,
    disable_torch_function,
    has_legacy_batch,
    has_modes,
    is_distributed,
    is_in_backward,
    is_jit_traced,
    is_plain,
    is_tracing,
    is_transformed,
)
from ._make_core import make_core
from ._op_description import OpDescription
from ._options import OpOptions
from ._results import result_type

if TYPE_CHECKING:
    from ..calls.derived import SeededCore


_NOTHING: Mapping[str, Any] = {}
_DEFAULTS = OpOptions()


Result = TypeVar("Result", default=torch.Tensor)
"""The return type of a call: a tensor, or the named tuple passed as `returns=`."""


Prepared = Callable[[Mapping[str, torch.Tensor]], Sequence[torch.Tensor]]
"""A call with fixed numbers, as a function of the tensors by name."""


class Op(OpDescription, Generic[Result]):
    """A differentiable operation made from one or several kernels.

    Call it with the kernels' parameters, without outputs and scratch, by position or by
    name, and with dims that no input fixes by keyword. Returns a tensor, or a named tuple of
    several. Made by `tinsmith.op` and `tinsmith.chain`, whose arguments are the options.

    Example:
        >>> @ts.op("x[n], k[m] -> y[n - m + 1]")
        ... @ti.kernel
        ... def conv(x: ti.types.ndarray(), k: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in y:
        ...         for j in range(k.shape[0]):
        ...             y[i] += x[i + j] * k[j]
        >>> conv.arguments, str(conv.spec), conv.engine
        (('x', 'k'), 'x[n], k[m] -> y[n - m + 1]', 'taichi')
        >>> conv(k=torch.ones(2), x=torch.arange(4.0))
        tensor([1., 3., 5.])
    """

    def __init__(self, kernels: Sequence[Any], spec: str, options: OpOptions = _DEFAULTS) -> None:
        self._kernels = tuple(kernels)
        self._text = spec
        self._options = options
        self._examples = dict(options.examples)
        self.name: str = options.name or "_then_".join(of_kernel(one).function_of(one).__name__ for one in kernels)
        self.__name__ = self.name
        self._eager = make_eager_function(self.name)
        self._spec = parse(spec, options.scratch)
        self.__doc__ = getattr(kernels[0], "__doc__", None) or type(self).__doc__
        try:
            self._make_core()
        except TinsmithError as error:
            name_members(error, [part for kernel in kernels for part in of_kernel(kernel).parameters(kernel)])
            raise
        self._seeded = cast("SeededCore", self._core) if self._core.is_seeded else None
        signature = self._signature
        declared = [part for one in kernels for part in of_kernel(one).parameters(one)] if options.links is None else []
        self._structs = Structs(self.name, [signature.parameters(name)[0] for name in signature.order], declared)
        self._count = len(signature.order) if not self._structs else -1
        self._takes_tensors_only = len(signature.arrays) == self._count and not signature.size_names
        self._result_names = signature.outputs if self._updates is None else self._updates.results
        self._result = result_type(self.name, self._result_names, options.returns)

    # Making -------------------------------------------------------------------------------
    def backward(self, kernel: Any) -> Any:
        """Use `kernel` as the hand-written gradient kernel. A decorator.

        Its parameters are matched by name: those of the forward kernel, and `grad_<name>` for the incoming gradient of
        an output or the outgoing gradient of an input, which starts at zero. (If the op's `init` says otherwise for a
        gradient, pass the kernel as `backward=` when the op is made.)

        Example:
            >>> @ts.op("x[n] -> y[n]")
            ... @ti.kernel
            ... def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
            ...     for i in x:
            ...         y[i] = 2.0 * x[i]
            >>> @double.backward
            ... @ti.kernel
            ... def double_backward(grad_y: ti.types.ndarray(), grad_x: ti.types.ndarray()):
            ...     for i in grad_y:
            ...         grad_x[i] = 2.0 * grad_y[i]
            >>> x = torch.ones(3, requires_grad=True)
            >>> double(x).sum().backward()
            >>> x.grad
            tensor([2., 2., 2.])
        """
        self._options = replace(self._options, backward=kernel)
        self._make_core()
        return kernel

    def _make_core(self) -> None:
        made_of = self._kernels, self._text, self._options
        self._core = make_core(self.name, *made_of)
        self._programs = Programs(self._core)
        is_updating = bool(self._spec.updated_inputs) and not self._options.functional
        self._updates = operation.Updates(self._core, self._programs, *made_of) if is_updating else None
        self._finder = self._updates or self._programs
        self._functional: Op[Any] | None = None

    def example(self, make: Callable[[], Any]) -> Callable[[], Any]:
        """Register a function that returns example inputs, under its own name. A decorator; see `examples`."""
        return operation.register_example(self.name, self.examples, make)

    def __get__(self, instance: Any, owner: type | None = None) -> Op[Result]:
        """Return the op bound to an object, as a method is, if the op is an attribute of a data-oriented class."""
        if instance is None or self.owner is not None:
            return self
        kept = instance.__dict__.setdefault("_tinsmith_ops", {})
        bound: Op[Result] | None = kept.get(self)
        # A copied object has its original's attributes, which include ops bound to the original.
        if bound is None or bound.owner is not instance:
            bound = Op(
                [_bind_kernel(kernel, instance) for kernel in self._kernels],
                self._text,
                self._bind_options(instance),
            )
            kept[self] = bound
        return bound

    def _bind_options(self, instance: Any) -> OpOptions:
        backward = self._options.backward
        bound = None if backward is None else _bind_kernel(backward, instance)
        return replace(self._options, backward=bound, examples=self._examples)

    # Calling ------------------------------------------------------------------------------
    def __call__(self, *arguments: Any, **named: Any) -> Result:
        """Run the op. The class describes its arguments and results."""
        try:
            if is_tracing():
                bound, updates = self._bind(arguments, named), self._updates
                return self._wrap(
                    self._run_traced(bound) if updates is None else updates.run_updating(bound, self._run_traced)
                )
            if WATCHES and (watch := current_watch()) is not None:
                return call_watched(watch, self, arguments, named)
            direct = self._finder.direct
            if direct is not None and is_plain() and not is_in_backward():
                outputs = self._call_directly(direct, arguments, named)
                if outputs is not None:
                    return self._wrap(outputs)
            return self._call_checked(arguments, named)
        except Exception as error:
            if self._structs and isinstance(error, TinsmithError):
                name_members(error, self._signature.members)
            # A compiler that traces this follows no tracebacks.
            if not is_tracing():
                hide_frames(error)
            raise

    def _call_directly(self, direct: DirectCalls, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run a call whose program is known from an earlier, checked call. Return None if there was no such call."""
        if self._structs:
            arguments, named = (), self._structs.take_apart(arguments, named)
        if has_torch_function((*arguments, *named.values()) if named else arguments):
            return None
        try:
            call = direct.find(*arguments, **named)
        except TypeError:
            # Arguments of wrong names or number: the checked call says which.
            return None
        if call is None:
            return None
        if self._updates is not None:
            return self._updates.run_directly(call)
        program, tensors, numbers, others = call
        if program.active and torch.is_grad_enabled():
            return self._eager((self._core, program, numbers, others), *tensors)
        return program.forward(tensors, numbers, others.scalars)[program.outputs]

    def _call_checked(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run a call after binding and checking its arguments."""
        try:
            bound = self._bind(arguments, named)
            updates = self._updates
            return self._wrap(
                self._compute_outputs(bound) if updates is None else updates.run_updating(bound, self._compute_outputs)
            )
        except (ArgumentError, DtypeError, ShapeError) as error:
            # Under torch.jit.trace sizes are tensors.
            if not self._structs and not is_jit_traced():
                operation.suggest_order(error, self._signature, arguments, named)
            raise

    def prepare(self, numbers: Mapping[str, Any]) -> Prepared | None:
        """Prepare calls that share their scalar arguments, which are checked once. Return None if that is impossible.

        The op of a simulation has an argument for each launch: checking thousands of them takes as long as launching
        them.
        """
        if self._seeded is not None or self._structs or self._updates is not None or self._signature.templates:
            return None
        scalars = {name: check_scalar(self._signature, name, numbers[name]) for name in self._signature.scalars}

        def call(tensors: Mapping[str, torch.Tensor]) -> Sequence[torch.Tensor]:
            given = tuple([tensors[name] for name in self._signature.arrays])
            return self._compute_outputs(BoundArguments(given, scalars, _NOTHING, _NOTHING))

        return call

    def _run_traced(self, bound: BoundArguments) -> Sequence[torch.Tensor]:
        """Run a call that a compiler traces."""
        self._core.settle()
        bound = autocast(self._core.signature, bound)
        check_tensors(self._core.signature, bound.tensors)
        return self._dispatch(bound)

    def _dispatch(self, bound: BoundArguments) -> Sequence[torch.Tensor]:
        """Run a call by the op's torch operator. If tensors are sharded, each process runs it on its part."""
        if is_distributed(bound.tensors):
            return torch_side.call_distributed(self._core, bound, self._run_part)
        return self._core.operators.run_call(self._core, bound)

    def _dispatch_traced(self, bound: BoundArguments) -> Sequence[torch.Tensor]:
        """Run a call by the torch operator alone, under a tracer, a mode or a tensor subclass.

        Values that merely represent tensors are checked when the graph runs.
        """
        signature = self._core.signature
        with disable_torch_function():
            check_tensors(signature, bound.tensors)
        vectors = [name for name in signature.scalars if signature.parameters(name)[0].kind == "matrix"]
        if vectors and is_jit_traced():
            words = f"torch.jit.trace cannot record `{vectors[0]}` of op `{self.name}`, a list of numbers"
            raise ArgumentError(refusal(words, remedy="Use torch.export.export, or torch.compile."))
        return self._dispatch(bound)

    def _run_part(self, bound: BoundArguments) -> Sequence[torch.Tensor]:
        return self._dispatch(bound) if is_tracing() else self._compute_outputs(bound)

    def _bind(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> BoundArguments:
        if self._structs:
            bound = bind(self._signature, (), self._structs.take_apart(arguments, named))
        elif named or not self._takes_tensors_only or len(arguments) != self._count:
            bound = bind(self._signature, arguments, named)
        else:
            bound = BoundArguments(arguments, _NOTHING, _NOTHING, _NOTHING)
        if self._seeded is None:
            return bound
        check_tensors(self._signature, bound.tensors)
        return self._seeded.with_seed(bound)

    def _compute_outputs(self, bound: BoundArguments) -> Sequence[torch.Tensor]:
        is_special = not is_plain()
        if is_special:
            bound = autocast(self._core.signature, bound)
        if is_jit_traced() or has_torch_function(bound.values):
            return self._dispatch_traced(bound)
        if is_in_backward() and has_legacy_batch(bound.tensors):
            # A tensor of torch's legacy vmap has no memory, and no mode or transform tells that there is one.
            return self._dispatch(bound)
        program = self._programs.find(bound)
        if program is None:
            return self._dispatch(bound)
        is_recorded = program.is_recorded and torch.is_grad_enabled()
        if is_recorded or (is_special and (is_transformed() or has_modes())):
            return self._dispatch(bound)
        if not program.is_converted:
            return self._run(program, solve_numbers(self._core, program, bound), bound)
        call = make_checked_call(self._core, bound)
        return call.finish(self._run(program, call.numbers, bound.with_tensors(tuple(call.prepare(bound.tensors)))))

    def _run(self, program: Program, numbers: Numbers, bound: BoundArguments) -> Sequence[torch.Tensor]:
        tensors = bound.tensors
        if not program.key.is_ordered:
            check_reach(self.name, program.key.sizing, numbers)
            tensors = in_order(tensors)
        if program.active and torch.is_grad_enabled():
            made: Any = self._eager((self._core, program, numbers, bound.with_tensors(())), *tensors)
            return (made,) if isinstance(made, torch.Tensor) else made
        return program.forward(tensors, numbers, bound.scalars)[program.outputs]

    def _wrap(self, outputs: Any) -> Any:
        """Return outputs as a caller gets them: a tensor, or a named tuple."""
        if isinstance(outputs, torch.Tensor):
            return outputs
        return outputs[0] if len(outputs) == 1 else self._result(*outputs)

    # Related ops ------------------------------------------------------------------------------
    def _make_fresh_core(self) -> Core:
        return Op(self._kernels, self._text, self._options)._core

    @property
    def functional(self) -> Op[Any]:
        """The same op without `inout`: it changes no argument and returns the new values first, as `state_after`.

        For an op without `inout` arguments it is the op itself.

        Example:
            >>> @ts.op("inout state[n] ->")
            ... @ti.kernel
            ... def double(state: ti.types.ndarray()):
            ...     for i in state:
            ...         state[i] *= 2.0
            >>> state = torch.ones(2)
            >>> double.functional(state), state
            (tensor([2., 2.]), tensor([1., 1.]))
        """
        if self._updates is None:
            return self
        # Kept, since a simulation asks for it in every step.
        if self._functional is None:
            self._functional = Op(self._kernels, self._text, replace(self._options, functional=True, returns=None))
        return self._functional

    @constant_when_traced
    def scan_operator(self) -> str | None:
        """Return the name of the torch operator of scans over this op; None if a graph cannot contain one.

        A graph can pass neither a seed nor values that the kernels read besides their arguments.
        """
        if self._seeded is not None or self._core.has_state:
            return None
        return scan_operators(self.functional)

    def note_values(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> CapturedValues | None:
        """Return the values that a call depends on besides its arguments; None if there are none."""
        if not self._core.has_state:
            return None
        # `_bind` would draw a seed, and so change torch's random numbers.
        signature, structs = self._signature, self._structs
        if structs:
            arguments, named = (), structs.take_apart(tuple(arguments), dict(named))
        return self._core.captures.take(bind(signature, tuple(arguments), dict(named)).templates)

    def __reduce__(self) -> Any:
        written = operation.write_options(self.name, replace(self._options, examples=_NOTHING))
        return _remake, (tuple(map(operation.reference_to, self._kernels)), self._text, written)

    def __deepcopy__(self, memo: dict[int, Any]) -> Op:
        """Return a copy on the same kernels.

        If the object that the op is bound to is being copied too, bind it to the copy.
        """
        owner = memo.get(id(self.owner), self.owner)
        if owner is None:
            return self.__copy__()
        kernels = [_bind_kernel(kernel, owner) for kernel in self._kernels]
        return Op(kernels, self._text, self._bind_options(owner))

    def __copy__(self) -> Op:
        return Op(self._kernels, self._text, replace(self._options, examples=self._examples))


def _bind_kernel(kernel: Any, instance: Any) -> Any:
    engine = of_kernel(kernel)
    return engine.bind(kernel, instance) if engine.is_method(kernel) else kernel


def _remake(kernels: Sequence[operation.Reference], text: str, options: Mapping[str, Any]) -> Op:
    backward = options.get("backward")
    given: dict[str, Any] = {**options, "backward": None if backward is None else backward.kernel()}
    return Op([reference.kernel() for reference in kernels], text, OpOptions(**given))
