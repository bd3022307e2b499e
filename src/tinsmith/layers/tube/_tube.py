"""Tube: kernels on tensors of any shape, registered by name. Stannum's interface.

This file has the registration and the public interface of a Tube. The registered parts are a
`Blueprint`; a `TubeOnTensors` or `TubeOnFields`, made by `finish()`, runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._errors import RegistrationError, refusal
from ..._suggestions import suggest_options
from ...linter import Finding, lint_kernels
from ...operation import Adjoint, Detail, OpOptions, Races
from ...operation.examination import Examinable, Examination
from ...torch_side import Layer, one_node
from .._by_name import build_by_name_error
from ._blueprint import Blueprint
from ._dims import DimensionCalculator, DimOption
from ._fields import TubeOnFields
from ._op import TubeOnTensors
from ._parts import TensorPart, kernel_part, tensor_part
from ._why_fields import explain_need_of_fields

Dims = Sequence[DimOption]


class Tube(Layer, Examinable):
    """A differentiable module around kernels on tensors of varying shape.

    Register tensors, fields between kernels, and kernels; call `finish()`; then call the module with the
    inputs in the order of their registration. It returns the output, or a named tuple of several outputs.
    Kernels with `ti.template()` arrays run on the tensors' own memory: nothing is copied, and a new shape
    compiles nothing. `explain()` describes exceptions.

    Args:
        device: device of the tensors; None for any, the same for all tensors.
        persistent_field: whether fields, if there are any, live until the backward pass.
        enable_backward: False raises an error for inputs that require a gradient.
        adjoint: where the gradient comes from: "source", generated from the kernels' source; "engine", the engine's
            own reverse mode; "auto" uses the first if it can be generated.
        races: "check" refuses kernels whose parallel iterations certainly race, and warns of those that may; "allow"
            does not, as for `tinsmith.op`.

    Example:
        >>> @ti.kernel
        ... def add(a: ti.template(), b: ti.template(), out: ti.template()):
        ...     for i in out:
        ...         out[i] = a[i] + b[i]
        >>> tube = (
        ...     ts.Tube()
        ...     .register_input_tensor((ts.MatchDim("n"),), torch.float32, "a")
        ...     .register_input_tensor((ts.MatchDim("n"),), torch.float32, "b")
        ...     .register_output_tensor((ts.MatchDim("n"),), torch.float32, "out", True)
        ...     .register_kernel(add, ["a", "b", "out"])
        ...     .finish()
        ... )
        >>> tube(torch.ones(3), torch.ones(3))
        tensor([2., 2., 2.])
    """

    @suggest_options("ts.Tube(device)")
    def __init__(
        self,
        device: torch.device | str | None = None,
        persistent_field: bool = True,
        enable_backward: bool = True,
        *,
        adjoint: Adjoint = "auto",
        races: Races = "check",
    ) -> None:
        super().__init__()
        where = None if device is None else torch.device(device)
        self._blueprint = Blueprint(
            device=where,
            enable_backward=enable_backward,
            persistent_field=persistent_field,
            adjoint=OpOptions(adjoint=adjoint, races=races).adjoint,  # checked
            races=races,
        )
        self._program: TubeOnFields | TubeOnTensors | None = None
        self._reason = ""

    # Registration -------------------------------------------------------------------------
    def register_input_tensor(
        self,
        dims: Dims,
        dtype: torch.dtype,
        name: str,
        requires_grad: bool | None = None,
        field_manager: Any = None,
    ) -> Tube:
        """Register the next input of a call.

        Args:
            dims: each a size, `AnyDim`, `MatchDim(id)`, or `BatchDim` (only as the first).
            dtype: tensors of other dtypes are converted, but floats never to integers. Kernels see a complex
                tensor as an array of 2-vectors.
            name: the name to register kernels with.
            requires_grad: False for no gradient; None for the tensor's own `requires_grad`.
            field_manager: a `FieldManager` for the layout of its field.

        Raises:
            RegistrationError: after `finish()`, or if the name is taken.
            ShapeError: a dim is invalid.
            DtypeError: kernels do not support the dtype.
        """
        return self._add(tensor_part("input tensor", dims, dtype, name, requires_grad, field_manager))

    def register_output_tensor(
        self,
        dims_or_calc: Dims | DimensionCalculator | Callable[..., Any],
        dtype: torch.dtype,
        name: str,
        requires_grad: bool,
        field_manager: Any = None,
    ) -> Tube:
        """Register the next output of a call. It starts at zero.

        Args:
            dims_or_calc: as for an input, but not AnyDim; or a `DimensionCalculator`, or a function with its
                arguments, called at each call.
            dtype: the result's dtype.
            name: the name to register kernels with.
            requires_grad: False for a result without a gradient, which passes none to the inputs.
            field_manager: a `FieldManager` for the layout of its field.

        Raises:
            RegistrationError, ShapeError, DtypeError: as for an input.
            GradientError: `requires_grad` is True for integers.
        """
        return self._add(tensor_part("output tensor", dims_or_calc, dtype, name, requires_grad, field_manager))

    def register_intermediate_field(
        self,
        dims_or_calc: Dims | DimensionCalculator | Callable[..., Any],
        ti_dtype: Any,
        name: str,
        needs_grad: bool,
        field_manager: Any = None,
    ) -> Tube:
        """Register a field for values between kernels. It starts each call at zero.

        Args:
            dims_or_calc: as for an output.
            ti_dtype: a dtype of the engine, such as `ti.f32`, or of torch.
            name: the name to register kernels with.
            needs_grad: False for no gradient through it.
            field_manager: a `FieldManager` for the layout of the field.

        Raises:
            RegistrationError, ShapeError, DtypeError, GradientError: as for an output.
        """
        return self._add(tensor_part("intermediate field", dims_or_calc, ti_dtype, name, needs_grad, field_manager))

    def register_kernel(
        self, kernel: Any, tensor_names: Sequence[str], *extra_args: Any, name: str | None = None
    ) -> Tube:
        """Register the next kernel. Kernels run in order, and in reverse order in the backward pass.

        Args:
            kernel: a kernel of Taichi or Quadrants, free or bound to a data-oriented object.
            tensor_names: names of registered tensors, for the kernel's first parameters in their order.
            extra_args: arguments for its other parameters.
            name: a name other than its own, for example if one kernel is registered twice.

        Raises:
            RegistrationError: after `finish()`; or for something that is not a kernel; or a name is taken or unknown.
            ArgumentError: the number of arguments is wrong.
        """
        self._check_open(f"kernel `{name or getattr(kernel, '__name__', kernel)}`")
        self._blueprint = self._blueprint.with_kernel(kernel_part(kernel, tensor_names, extra_args, name))
        return self

    def set_kernel_extra_args(self, kernel: Any, *extra_args: Any) -> None:
        """Change a kernel's extra arguments. Earlier calls keep theirs in their backward pass.

        `torch.compile` makes a new graph for each set of arguments. A number that changes at every step is better
        an input with dims `()`, which a kernel may take as a number.

        Args:
            kernel: the kernel, or the name that it was registered under.
            extra_args: all extra arguments.

        Raises:
            RegistrationError: the kernel is not registered, or more than once.
            ArgumentError: the number of arguments is wrong.
        """
        before, self._blueprint = self._blueprint, self._blueprint.with_extra(kernel, extra_args)
        if self._program is not None and self._blueprint.differs_in_numbers(before):
            self._program = self._program.with_blueprint(self._blueprint)
        elif self._program is not None:
            self._settle()

    def finish(self) -> Tube:
        """Finish the registration.

        Raises:
            RegistrationError: no input, no output, no kernel, or an output that no kernel writes.
            ShapeError: dims do not fit each other.
            KernelError: the kernels cannot be combined.
        """
        if self._program is None:
            self._blueprint.check()
            self._settle()
        return self

    def _settle(self) -> None:
        """Choose how to run. Compiled kernels are kept if the choice stays the same."""
        reason = explain_need_of_fields(self._blueprint)
        if self._program is not None and reason == self._reason:
            self._program = self._program.with_blueprint(self._blueprint)
        else:
            self._program = TubeOnFields(self._blueprint) if reason else TubeOnTensors(self._blueprint)
        self._reason = reason

    def _add(self, part: TensorPart) -> Tube:
        self._check_open(f"{part.kind} `{part.name}`")
        self._blueprint = self._blueprint.with_tensor(part)
        return self

    def _check_open(self, what: str) -> None:
        if self._program is not None:
            words = f"{what} is registered after `finish()` of {self._blueprint.label}"
            raise RegistrationError(refusal(words, remedy="Register everything first, then call `finish()`."))

    # Calling ------------------------------------------------------------------------------
    @one_node
    def forward(self, *input_tensors: torch.Tensor, **named: Any) -> Any:
        """Run the kernels.

        Args:
            input_tensors: the inputs, in the order of their registration.
            named: refused: inputs are not passed by name.

        Returns:
            The output, or a named tuple of several outputs.

        Raises:
            RegistrationError: before `finish()`.
            ArgumentError, ShapeError, DtypeError, DeviceError, GradientError: tensors do not fit.
        """
        program = self._program
        if program is None:
            raise self._build_unfinished_error("called")
        if named:
            raise build_by_name_error(self._blueprint.label, [part.name for part in self._blueprint.inputs], named)
        return program(input_tensors)

    # Inspection ---------------------------------------------------------------------------
    def _examine(self, inputs: tuple[Any, ...], who: str) -> Examination:
        if self._program is None:
            raise self._build_unfinished_error(f"given to {who}")
        return self._program.examine([one.detach() for one in inputs])

    def _lint(self) -> list[Finding]:
        return lint_kernels(list(dict.fromkeys(part.kernel for part in self._blueprint.kernels)))

    def explain(self, detail: Detail = "summary") -> str:
        """Describe how the Tube runs: on tensors or on fields and why, the use of each array, what was compiled.

        Args:
            detail: how much to say of the op: see `Op.explain`.
        """
        if self._program is None:
            raise self._build_unfinished_error("explained")
        way = f"on fields, because {self._reason}" if self._reason else "on the caller's tensors, without fields"
        return f"{self._blueprint.label} runs {way}\n\n{self._program.explain(detail)}"

    def extra_repr(self) -> str:
        """Describe inputs, outputs, fields and kernels, one per line."""
        blueprint = self._blueprint
        shelves = {
            "input": blueprint.inputs,
            "output": blueprint.outputs,
            "intermediate": blueprint.intermediates,
            "kernel": blueprint.kernels,
        }
        lines = [f"{label} {part.description}" for label, parts in shelves.items() for part in parts]
        return "\n".join(lines + ([] if self._program is not None else ["not finished"]))

    def _build_unfinished_error(self, done: str) -> RegistrationError:
        words = f"{self._blueprint.label} is {done} before `finish()`"
        return RegistrationError(refusal(words, remedy="Call `finish()` after the last registration."))

    # Copying ------------------------------------------------------------------------------
    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle.

        The registered parts without their program, which is made again after unpickling.
        """
        return self.__dict__ | {"_program": None, "_is_finished": self._program is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        is_finished = state.pop("_is_finished")
        super().__setstate__(state)
        if is_finished:
            self._settle()
