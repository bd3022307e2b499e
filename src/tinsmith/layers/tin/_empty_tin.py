"""EmptyTin: a torch module around kernels that use fields.

Registration is as in Stannum, with more options; `fields` runs the kernels. This file adds torch's
side: weights as parameters, checkpoints, copies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..._errors import ArgumentError, RegistrationError, refusal
from ..._suggestions import suggest_options
from ...linter import Finding, lint_kernels
from ...operation import Adjoint, Detail, OpOptions, Races
from ...operation.examination import Examinable, Examination
from ...torch_side import is_distributed, one_node, set_parameter
from .._by_name import build_by_name_error
from ..fields import (
    Habits,
    LayerField,
    OnFields,
    Roles,
    Running,
    break_graph,
    check_once,
    fill,
    find_half_precision,
    make_running,
    place_field,
    read,
)
from ._field_state import FieldState
from ._kernels import Kernels, build_unknown_error
from ._place import check_place, resolve_device
from ._replicated import as_replicated, replicate
from ._weights import check_accessible

FieldLike = Any
"""A field of either engine."""


class EmptyTin(FieldState, Examinable):
    """A differentiable torch module around kernels that refer to fields.

    Register fields and kernels, call `finish`, then call the module with one tensor for each input field.
    Kernels run in the order of their registration, and reversed in the backward pass.

    Args:
        device: device of the tensors; None for that of the engine.
        auto_clear_grad: whether gradients of internal fields start each backward pass at zero. Otherwise they
            accumulate in the fields. Weights' gradients accumulate in `Parameter.grad` either way.
        save: whether a call saves the values that the engine's own backward pass reads, so that the layer may be called
            again before the backward pass. For a generated backward pass they are always saved.
        on_tensors: run the kernels on the tensors themselves, as an op, instead of on the fields: nothing is copied,
            batches take one launch, and graphs of `torch.compile` do not break. Fields that are not inputs, weights or
            outputs are still read. An array that the kernels write starts each call with the content of its field,
            unless it is cleared, and is never written back into the field.
        adjoint: where the gradient comes from: "source", generated from the kernels' source; "engine", the engine's
            own reverse mode; "auto" uses the first if it can be generated.
        races: "check" refuses kernels whose parallel iterations certainly race, and warns of those that may; "allow"
            does not, as for `tinsmith.op`.

    Example:
        >>> x, y = (ti.field(ti.f32, 64, needs_grad=True) for _ in range(2))
        >>> @ti.kernel
        ... def scale(factor: ti.f32):
        ...     for i in x:
        ...         y[i] = factor * x[i]
        >>> layer = (
        ...     ts.EmptyTin()
        ...     .register_kernel(scale, 2.0)
        ...     .register_input_field(x)
        ...     .register_output_field(y)
        ...     .finish()
        ... )
        >>> layer(torch.ones(64, requires_grad=True)).sum()
        tensor(128., grad_fn=<SumBackward0>)
    """

    @suggest_options("ts.EmptyTin(device)")
    def __init__(
        self,
        device: torch.device | str | None = None,
        auto_clear_grad: bool = True,
        _auto_clear: bool | None = None,
        *,
        save: bool = True,
        on_tensors: bool = False,
        adjoint: Adjoint = "auto",
        races: Races = "check",
    ) -> None:
        super().__init__()
        self._on_tensors = on_tensors
        self._adjoint: Adjoint = OpOptions(adjoint=adjoint, races=races).adjoint  # checked
        self.device = resolve_device(device, type(self).__name__)
        self.auto_clear_grad = auto_clear_grad
        self.finished = False
        self._habits = Habits(clears_outputs=_auto_clear, clears_gradients=auto_clear_grad, saves=save)
        self._inputs: list[LayerField] = []
        self._outputs: list[LayerField] = []
        self._internals: dict[str, LayerField] = {}
        self._weights: dict[str, LayerField] = {}
        self._initial: dict[str, torch.Tensor] = {}
        self._without_value: set[str] = set()
        self._persistent: set[str] = set()
        self._kernels = Kernels(allows_races=races == "allow")
        self._program: Running | None = None

    # Registering --------------------------------------------------------------------------
    def register_input_field(
        self,
        field: FieldLike,
        name: str | None = None,
        needs_grad: bool | None = None,
        complex_dtype: bool = False,
        *,
        batched: bool = False,
    ) -> EmptyTin:
        """Register a field that is filled from the next argument of a call. Returns self.

        Args:
            field: of shape S. A field of n-vectors takes a tensor of S + (n,), of n x m matrices S + (n, m).
            name: name in messages; by default "input_field_0", "input_field_1", ...
            needs_grad: whether the input is differentiable; None for whether the field has a gradient.
            complex_dtype: whether the tensor is complex; the field then has 2-vectors, or a last dim of size 2.
            batched: whether the tensor may have batch dims before the field's; one launch runs the whole batch. The
                kernels then run on the tensors themselves (`on_tensors`), and every output is batched too.
        """
        name = name if name is not None else f"input_field_{len(self._inputs)}"
        self._inputs.append(replace(self._place(field, name, needs_grad, complex_dtype), is_batched=batched))
        self._on_tensors = self._on_tensors or batched
        return self

    def register_output_field(
        self,
        field: FieldLike,
        name: str | None = None,
        needs_grad: bool | None = None,
        complex_dtype: bool = False,
        *,
        clear: bool | None = None,
    ) -> EmptyTin:
        """Register a field that the next result of a call is read from. Returns self.

        Args:
            field: the field; its content is the result.
            name: name in messages; by default "output_field_0", "output_field_1", ...
            needs_grad: whether the result has a gradient.
            complex_dtype: whether the result is complex.
            clear: True starts each call at zero, False with the content of the field, as set from Python or left by the
                previous call. None clears a field that kernels only add to (`y[i] += ...`).
        """
        name = name if name is not None else f"output_field_{len(self._outputs)}"
        self._outputs.append(replace(self._place(field, name, needs_grad, complex_dtype), clears=clear))
        return self

    def register_internal_field(
        self,
        field: FieldLike,
        needs_grad: bool | None = None,
        name: str | None = None,
        value: torch.Tensor | None = None,
        complex_dtype: bool = False,
        *,
        persistent: bool = True,
        clear: bool | None = None,
    ) -> EmptyTin:
        """Register a field for values between kernels, or for weights that torch does not train. Returns self.

        Its gradient is left in `field.grad`.

        Args:
            field: as in `register_input_field`, and so are `needs_grad` and `complex_dtype`.
            needs_grad: whether it gets a gradient.
            name: name for `set_internal_field` and in checkpoints; by default "0", "1", ...
            value: its initial content.
            complex_dtype: whether it is set from complex tensors.
            persistent: whether checkpoints contain it. Pass False for fields that only pass values between kernels;
                a layer whose internal fields are all of that kind can be deep-copied.
            clear: True starts each call at zero, False with the content of the field. None is the same as False, with a
                warning if kernels only add to the field, so that its sum would grow from call to call.
        """
        one = replace(self._place(field, self._internal_name(name), needs_grad, complex_dtype), clears=clear)
        self._internals[one.name] = one
        self._persistent |= {one.name} if persistent else set()
        if value is not None:
            fill(one, value, self._label)
        return self

    def register_weight_field(
        self,
        field: FieldLike,
        needs_grad: bool | None = None,
        name: str | None = None,
        value: torch.Tensor | None = None,
        complex_dtype: bool = False,
    ) -> EmptyTin:
        """Register a field whose content is a `torch.nn.Parameter` of this module. Returns self.

        The parameter starts as `value`, or with the content of the field. Each call of a layer on fields copies the
        parameter into the field; a layer on tensors reads the parameter itself. It requires a gradient only if the
        field has one (`needs_grad=True`), as in Stannum. To train a weight "w" in a dense field without one, call
        `layer.w.requires_grad_()` after `finish`.
        Under `torch.device("meta")` it is on the meta device until `to_empty` and `reset_parameters`.

        Args:
            field: as in `register_input_field`, and so are `needs_grad` and `complex_dtype`.
            needs_grad: whether the parameter requires a gradient; None for whether the field has one.
            name: name of the parameter; by default "0", "1", ...
            value: its initial content.
            complex_dtype: whether the parameter is complex.
        """
        one = self._place(field, self._internal_name(name), needs_grad, complex_dtype)
        if "." in one.name or not one.name or hasattr(self, one.name):
            words = f"a weight of {self._label} cannot be called `{one.name}`: it becomes a parameter of the module"
            raise RegistrationError(refusal(words, remedy="Pass a `name=` without dots that is not an attribute yet."))
        self._weights[one.name] = one
        if isinstance(value, torch.Tensor) and value.is_meta:
            one.to_memory(value, self._label)  # raises if it does not fit
            self._without_value.add(one.name)
        elif value is not None:
            fill(one, value, self._label)
        return self

    def register_kernel(self, kernel: Any, *kernel_args: Any, kernel_name: str | None = None) -> EmptyTin:
        """Register the next kernel to run, with its arguments. Returns self."""
        self._check_open()
        self._kernels.add(kernel, kernel_args, kernel_name, self._label)
        return self

    def finish(self) -> EmptyTin:
        """Finish the registration. Returns self.

        Raises:
            RegistrationError: no input field, no output field, or no kernel was registered; or a field is a component
                or the gradient of another one.
            KernelError, GradientError: the kernels cannot run on tensors, and `on_tensors` or `batched` is set.
        """
        needed = (("input field", self._inputs), ("output field", self._outputs), ("kernel", self._kernels))
        for what, registered in needed:
            if not registered:
                words = f"{self._label} needs at least one {what}"
                call = f"register_{what.replace(' ', '_')}"
                raise RegistrationError(refusal(words, remedy=f"Call `.{call}(...)` before `.finish()`."))
        fields = (*self._filled_fields, *self._outputs, *self._internals.values())
        check_place(fields, self.device, self._label)
        self._inputs[0].engine.materialize()
        self._inputs, self._outputs = ([one.refresh() for one in fields] for fields in (self._inputs, self._outputs))
        for fields in (self._internals, self._weights):
            fields.update({name: one.refresh() for name, one in fields.items()})
        self._make_parameters()
        self._name_internals()
        check_once(self._filled_fields, "an input or a weight", self._label)
        check_once(self._outputs, "an output", self._label)
        self.finished = True
        if self._kernels.are_complete:
            self._make_program()  # raises errors here, at the registration, and not at a call
        return self

    # Setting ------------------------------------------------------------------------------
    def set_internal_field(self, field_name: str | int, tensor: torch.Tensor) -> None:
        """Set the content of an internal or weight field, by name or by number."""
        self._check_finished("set_internal_field")
        name = str(field_name)
        known = {**self._internals, **self._weights}
        if name not in known:
            raise build_unknown_error(f"{self._label} has no internal field `{name}`", name, list(known))
        if name in self._weights:
            check_accessible(known[name], getattr(self, name), self._label)
        fill(known[name], tensor, self._label)
        if isinstance(self._program, OnFields) and name in self._internals:
            self._program.note_set(known[name])
        if name in self._weights:
            set_parameter(getattr(self, name), read(known[name], self._label))

    def set_kernel_args(self, kernel: Any, *kernel_args: Any) -> None:
        """Change a kernel's arguments. Earlier calls keep their arguments in their backward pass.

        `set_kernel_args(kernel_or_name, *args)`; or `set_kernel_args(*args)` if there is one kernel.
        """
        if self._kernels.change(kernel, kernel_args, self._label):
            self._program = None  # other fields, perhaps

    # Running ------------------------------------------------------------------------------
    @one_node
    def forward(self, *input_tensors: torch.Tensor, **named: Any) -> Any:
        """Run the kernels. Takes a tensor for each input field, in order; returns a tensor, or a tuple for several.

        Results have their fields' dtypes; but if all inputs and weights are float16, or all bfloat16, they are rounded
        to that.
        """
        self._check_finished("a call")
        if named:
            raise build_by_name_error(self._label, [one.name for one in self._inputs], named)
        if torch.compiler.is_compiling() and not self._on_tensors:
            return break_graph(self._compute)(*input_tensors)
        return self._compute(*input_tensors)

    def _list_given(self, input_tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        """Return the tensors of a call: inputs, then weights."""
        if len(input_tensors) != len(self._inputs):
            rows = [("expected", f"{len(self._inputs)}: {', '.join(one.name for one in self._inputs)}")]
            words = f"{self._label} got {len(input_tensors)} tensors"
            raise ArgumentError(
                refusal(words, rows, "Pass one tensor for each input field, in the order of registration.")
            )
        return [*input_tensors, *[getattr(self, name) for name in self._weights]]

    def _as_memory(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        """Convert the tensors of a call for the fields that they fill."""
        return [one.to_memory(t, self._label) for one, t in zip(self._filled_fields, given, strict=True)]

    def _compute(self, *input_tensors: torch.Tensor) -> Any:
        program = self._program or self._make_program()
        given, mesh = self._list_given(input_tensors), None
        if not self._on_tensors and is_distributed(given):
            mesh, given = replicate(self._filled_fields, given, self._label)
        results = program(self._kernels.launches(), self._as_memory(given))
        outputs = tuple([one.from_memory(result) for one, result in zip(self._outputs, results, strict=True)])
        if (half := find_half_precision(self._filled_fields, given)) is not None:
            outputs = tuple([one.to(half) if one.is_floating_point() else one for one in outputs])
        if mesh is not None:
            outputs = tuple([as_replicated(mesh, one) for one in outputs])
        return outputs[0] if len(outputs) == 1 else outputs

    # Checking -----------------------------------------------------------------------------
    def _examine(self, inputs: tuple[Any, ...], who: str) -> Examination:
        self._check_finished(who)
        memory = [one.detach() for one in self._as_memory(self._list_given(inputs))]
        return (self._program or self._make_program()).examine(self._kernels.launches(), memory)

    def _lint(self) -> list[Finding]:
        return lint_kernels(self._kernels.kernels)

    @property
    def _filled_fields(self) -> tuple[LayerField, ...]:
        return (*self._inputs, *self._weights.values())

    def _make_program(self) -> Running:
        launches = self._kernels.launches()
        roles = Roles(self._filled_fields, tuple(self._outputs), tuple(self._internals.values()))
        self._program = make_running(
            self._label, roles, launches, self._habits, self._adjoint, on_tensors=self._on_tensors
        )
        return self._program

    def explain(self, detail: Detail = "summary") -> str:
        """Describe how the layer runs: on fields or tensors, what is saved for the backward pass, and its op.

        Args:
            detail: how much to say of the op: see `Op.explain`.
        """
        self._check_finished("explain")
        program = self._program or self._make_program()
        return f"{self._label} runs {program.explain(detail)}"

    def extra_repr(self) -> str:
        """Describe fields with their shapes and dtypes, and kernels with their arguments."""
        rows = [
            ("inputs", ", ".join(map(str, self._inputs))),
            ("weights", ", ".join(map(str, self._weights.values()))),
            ("internal", ", ".join(map(str, self._internals.values()))),
            ("outputs", ", ".join(map(str, self._outputs))),
            ("kernels", str(self._kernels)),
        ]
        lines = [f"{label}: {text}" for label, text in rows if text]
        return "\n".join(lines if self.finished else [*lines, "not finished"])

    # Helpers ------------------------------------------------------------------------------
    def _place(self, field: FieldLike, name: str, needs_grad: bool | None, is_complex: bool) -> LayerField:
        self._check_open()
        return place_field(field, name, needs_grad, is_complex, self._label)

    def _internal_name(self, name: str | None) -> str:
        name = name if name is not None else str(len(self._internals) + len(self._weights))
        if name in self._internals or name in self._weights:
            words = f"{self._label} has an internal field `{name}` already"
            raise RegistrationError(refusal(words, remedy="Give each internal field a name of its own."))
        return name

    def _check_open(self) -> None:
        if self.finished:
            words = f"{self._label} is finished: register before `.finish()`"
            raise RegistrationError(refusal(words, remedy="Register everything first, then finish."))

    def _check_finished(self, what: str) -> None:
        if not self.finished:
            words = f"{self._label} is not finished, and {what} needs it to be"
            raise RegistrationError(refusal(words, remedy="Call `.finish()` after the last registration."))
