"""The description of an op: its spec and arguments, the origin of its gradient, its findings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from inspect import Parameter
from inspect import Signature as PythonSignature
from typing import TYPE_CHECKING, Any

import torch

from .. import linter, operation
from .._offers import checking
from ..calls import Core, Signature
from ..compiling import Structs
from ..frontend import FieldUse
from ..spec import Spec

if TYPE_CHECKING:
    from ..calls.derived import SeededCore


class OpDescription:
    """The part of an `Op` that describes it: properties, reports and representations. `Op` is its only subclass."""

    name: str
    _kernels: tuple[Any, ...]
    _core: Core
    _seeded: SeededCore | None
    _spec: Spec
    _structs: Structs
    _result: Any
    _result_names: Sequence[str]
    _examples: dict[str, Callable[[], Any]]

    @property
    def spec(self) -> Spec:
        """The parsed spec; `str` returns its text."""
        return self._spec

    @property
    def kernel(self) -> Any:
        """The kernel, or the tuple of a chain's kernels."""
        return self._kernels[0] if len(self._kernels) == 1 else self._kernels

    @property
    def engine(self) -> str:
        """The name of the engine that runs it."""
        return self._core.signature.stages[0].engine.name

    @property
    def owner(self) -> Any:
        """The data-oriented object that the kernel is bound to, or None."""
        return self._core.signature.stages[0].owner

    @property
    def operator(self) -> Any:
        """The op as a torch operator, `torch.ops.tinsmith.<name>_<digest>`: the node of a call in graphs.

        The digest covers everything that the op's compiled forms depend on: the source of its kernels and of the
        functions that they call, its spec and options, and the versions of its engine and of this library. Ops with the
        same content have the same operator, in every process.

        Example:
            >>> @ts.op("x[n] -> y[n]")
            ... @ti.kernel
            ... def halve(x: ti.types.ndarray(), y: ti.types.ndarray()):
            ...     for i in x:
            ...         y[i] = 0.5 * x[i]
            >>> halve.operator.name().startswith("tinsmith::halve_")
            True
            >>> halve.operator(torch.ones(2))
            tensor([0.5000, 0.5000])
        """
        self._core.settle()
        return self._core.operators.forward

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of a call's arguments, in order, without sizes that are passed by keyword."""
        return self._structs.order

    @property
    def results(self) -> tuple[str, ...]:
        """Names of a call's results, in order."""
        return tuple(self._result_names)

    @property
    def __signature__(self) -> PythonSignature:
        """The signature that `inspect.signature` returns: a call's arguments, and dims passed by keyword."""
        signature = self._signature
        kinds: dict[str, Any] = dict.fromkeys(signature.arrays, torch.Tensor)
        for name in signature.scalars:
            own = signature.parameters(name)[0]
            kinds[name] = Sequence[float] if own.kind == "matrix" else float if own.setter == "float" else int
        order = [(name, kinds.get(name, Parameter.empty)) for name in self._structs.order]
        parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind) for name, kind in order]
        parameters += [Parameter(name, Parameter.KEYWORD_ONLY, annotation=int) for name in signature.size_names]
        given = torch.Tensor if len(self._result_names) == 1 else self._result
        return PythonSignature(parameters, return_annotation=given)

    @property
    def _signature(self) -> Signature:
        """The signature without the seed that a seeded op adds."""
        return self._core.signature if self._seeded is None else self._seeded.base.signature

    @property
    def examples(self) -> dict[str, Callable[[], Any]]:
        """Functions that `example` registered, by name; `tinsmith check --run` and pytest check the op on them."""
        return self._examples

    @property
    def fields(self) -> tuple[FieldUse, ...]:
        """The fields that its kernels and their functions use, besides arrays."""
        return tuple(use for stage in self._core.signature.firsts for use in stage.baked_values.field_uses())

    @property
    def draws_anew(self) -> bool:
        """Whether its kernels draw random numbers from the engine, which a second run cannot reproduce."""
        return self._seeded is None and self._core.signature.draws

    def lint(self) -> linter.Findings:
        """Return findings in the source of the kernels: see `tinsmith.lint`."""
        findings = linter.lint_kernels(self._kernels, self.spec)
        return linter.Findings(operation.replace_races(self._core.signature, findings))

    def check(self, *inputs: Any, **named: Any) -> Any:
        """Run lint, the sanitizer and a gradient check on a call, and return one report: see `tinsmith.check`."""
        return checking(self, *inputs, **named)

    def explain(self, detail: operation.Detail = "summary", *, passes: bool = False) -> operation.Explanation:
        """Describe the origin of the op's gradient, what is saved, its arrays, threads and batches.

        The result is a string; a notebook shows it as a page that has everything.

        Args:
            detail: "summary" for at most 25 lines of 80 columns. "all" also for the source of the gradient kernels,
                what each program does, and the source of what was compiled.
            passes: whether to append the IR after each pass of the compiler, for the calls and gradients so far, with
                the line of the source at each statement. This implies "all".

        Raises:
            ArgumentError: `detail` is neither.
        """
        explanation = operation.explain(self._core, "all" if passes else detail)
        if not passes:
            return explanation
        text = operation.explain_passes(self._core, self._make_fresh_core)
        return operation.Explanation(f"{explanation}\n\n{text}", {**explanation.sections, "passes": text})

    @abstractmethod
    def _make_fresh_core(self) -> Core:
        """Return a core of the same op that has not been called."""

    def __repr__(self) -> str:
        origin = self._core.reverse.name
        return f"<tinsmith op `{self.name}`: {self.spec}, on {self.engine}, gradient from {origin}>"

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks."""
        # Here, so that a program that shows nothing does not load it.
        from .._html import write_table

        rows = {"spec": str(self.spec), "arguments": ", ".join(self.arguments), "results": ", ".join(self.results)}
        rows |= {"engine": self.engine, "gradient from": self._core.reverse.name}
        return write_table(f"op {self.name}", rows.items())
