"""Tube: kernels on tensors of any shape, registered by name. Stannum's interface.

This file has the registration and the public face of a Tube. What was registered is a
`Blueprint`; how it runs is a `Program`, made at `finish()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._errors import RegistrationError, refusal
from ...bridge import Adjoint, Examinable, Examination, OpOptions
from ...linter import Finding, lint_kernels
from ._blueprint import Blueprint
from ._dims import DimensionCalculator, DimOption
from ._fields import field_program
from ._op import Program, TensorProgram
from ._parts import TensorPart, kernel_part, tensor_part
from ._why_fields import why_fields

Dims = Sequence[DimOption]


class Tube(torch.nn.Module, Examinable):
    """A differentiable module of kernels whose arrays are tensors of varying shape.

    Register tensors, fields between kernels, and kernels; then `finish()`; then call it with the
    inputs in the order of their registration. It returns the output, or a named tuple of several.
    Kernels written with `ti.template()` arrays run on the tensors' own memory: nothing is copied, and no
    new shape compiles anything. `explain()` says where that is not so.

    Args:
        device: where its tensors must be; None for wherever they are, all on one device.
        persistent_field: whether fields, where there are any, live until the backward pass.
        enable_backward: False refuses inputs that require a gradient.
        adjoint: where the gradient comes from: "source", generated from the kernels' source; "engine", the engine's
            own reverse mode; "auto" uses the first where it can be generated.

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

    def __init__(
        self,
        device: torch.device | str | None = None,
        persistent_field: bool = True,
        enable_backward: bool = True,
        *,
        adjoint: Adjoint = "auto",
    ) -> None:
        super().__init__()
        where = None if device is None else torch.device(device)
        self._blueprint = Blueprint(
            device=where,
            enable_backward=enable_backward,
            persistent_field=persistent_field,
            adjoint=OpOptions(adjoint=adjoint).adjoint,  # checked
        )
        self._program: Program | None = None
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
            dtype: tensors of another are converted, but floats never to integers. Kernels see a complex
                tensor as an array of 2-vectors.
            name: what kernels are registered with.
            requires_grad: False for no gradient; None for as the tensor says.
            field_manager: lays its field out in its own way.

        Raises:
            RegistrationError: after `finish()`, or where the name is taken.
            ShapeError: dims that are none.
            DtypeError: a dtype that no kernel has.
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
        """Register the next output of a call, which kernels find filled with zeros.

        Args:
            dims_or_calc: as for an input but for AnyDim; or a `DimensionCalculator`, or a function of its
                arguments, asked at each call.
            dtype: the result's dtype.
            name: what kernels are registered with.
            requires_grad: False makes a result without a gradient, through which nothing flows.
            field_manager: lays its field out in its own way.

        Raises:
            RegistrationError, ShapeError, DtypeError: as for an input.
            GradientError: integers that are to have a gradient.
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
        """Register what kernels keep between them; each call finds it filled with zeros.

        Args:
            dims_or_calc: as for an output.
            ti_dtype: the engine's dtype, `ti.f32`, or torch's.
            name: what kernels are registered with.
            needs_grad: False lets no gradient flow through it.
            field_manager: lays the field out in its own way.

        Raises:
            RegistrationError, ShapeError, DtypeError, GradientError: as for an output.
        """
        return self._add(tensor_part("intermediate field", dims_or_calc, ti_dtype, name, needs_grad, field_manager))

    def register_kernel(
        self, kernel: Any, tensor_names: Sequence[str], *extra_args: Any, name: str | None = None
    ) -> Tube:
        """Register the next kernel: kernels run in order, and in reverse in the backward pass.

        Args:
            kernel: a kernel of Taichi or Quadrants, free or bound to a data-oriented object.
            tensor_names: names of registered tensors, for the kernel's first parameters in their order.
            extra_args: what its other parameters get.
            name: another name than its own, as where one kernel is registered twice.

        Raises:
            RegistrationError: after `finish()`; no kernel; a name that is taken or not registered.
            ArgumentError: a wrong number of arguments.
        """
        self._check_open(f"kernel `{name or getattr(kernel, '__name__', kernel)}`")
        self._blueprint = self._blueprint.with_kernel(kernel_part(kernel, tensor_names, extra_args, name))
        return self

    def set_kernel_extra_args(self, kernel: Any, *extra_args: Any) -> None:
        """Give a kernel other extra arguments. A call made before keeps its own for its backward pass.

        `torch.compile` makes a new graph for each set of them: a number that changes at every step is better
        an input with dims `()`, which a kernel may have for a plain number.

        Args:
            kernel: the kernel, or the name that it was registered under.
            extra_args: all of them.

        Raises:
            RegistrationError: the kernel is not registered, or more than once.
            ArgumentError: a wrong number of arguments.
        """
        before, self._blueprint = self._blueprint, self._blueprint.with_extra(kernel, extra_args)
        if self._program is not None and self._blueprint.differs_in_numbers(before):
            self._program = self._program.with_blueprint(self._blueprint)
        elif self._program is not None:
            self._settle()

    def finish(self) -> Tube:
        """Close registration.

        Raises:
            RegistrationError: no input, no output, no kernel, or an output that no kernel writes.
            ShapeError: dims that do not go together.
            KernelError: kernels that cannot be joined.
        """
        if self._program is None:
            self._blueprint.check()
            self._settle()
        return self

    def _settle(self) -> None:
        """Decide how to run, and get ready. What is compiled already is kept where the way stays the same."""
        reason = why_fields(self._blueprint)
        if self._program is not None and reason == self._reason:
            self._program = self._program.with_blueprint(self._blueprint)
        else:
            self._program = field_program(self._blueprint, reason) if reason else TensorProgram(self._blueprint)
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
    def forward(self, *input_tensors: torch.Tensor) -> Any:
        """Run the kernels.

        Args:
            input_tensors: the inputs, in the order of their registration.

        Returns:
            The output, or a named tuple of several.

        Raises:
            RegistrationError: before `finish()`.
            ArgumentError, ShapeError, DtypeError, DeviceError, GradientError: tensors that do not fit.
        """
        program = self._program
        if program is None:
            raise self._build_unfinished_error("called")
        return program(input_tensors)

    # Looking ------------------------------------------------------------------------------
    def _examine(self, inputs: tuple[Any, ...], who: str) -> Examination:
        if self._program is None:
            raise self._build_unfinished_error(f"given to {who}")
        return self._program.examine([one.detach() for one in inputs])

    def _lint(self) -> list[Finding]:
        return lint_kernels(list(dict.fromkeys(part.kernel for part in self._blueprint.kernels)))

    def explain(self) -> str:
        """How it runs: on tensors or on fields and why, what is done with each array, what was compiled."""
        if self._program is None:
            raise self._build_unfinished_error("explained")
        way = f"on fields, because {self._reason}" if self._reason else "on the caller's tensors, without fields"
        return f"{self._blueprint.label} runs {way}\n\n{self._program.explain()}"

    def extra_repr(self) -> str:
        """Inputs, outputs, fields and kernels, a line each."""
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
        """What was registered; how to run it is found again."""
        return self.__dict__ | {"_program": None, "_is_finished": self._program is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        is_finished = state.pop("_is_finished")
        super().__setstate__(state)
        if is_finished:
            self._settle()
