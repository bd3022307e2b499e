"""Sanitize: interprets an op's kernels once, forward and backward, and reports what goes wrong.

Floats are rounded as in the compiled kernel: an overflow in single precision belongs to the kernel, and float64 would
hide it. The gradient is computed from the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..._errors import DEBUGGING
from ...engines import NoRule
from ...frontend import Columns
from ...ir import NotCovered, nodes
from ...linter import Finding, Findings, Severity, drop_suppressed, in_order
from ...operation import Op
from ...operation.examination import Examinable, Examination, examine_call
from .._budget import OPERATIONS, Budget, TooLong, build_too_long_error
from ._log import Log
from ._memory import Memory
from ._narrow import find_narrow_values
from ._non_finite import NonFiniteOrigins
from ._numbers import Numbers
from ._position import ExecutionPosition
from ._promises import find_broken_promises

_REMEDY = f'ts.init(engine="python", raise_on_nan=True)  # stops at the first NaN: {DEBUGGING}'


def sanitize(op: Op | Examinable, *inputs: Any, **named: Any) -> Findings:
    """Interpret the kernels of an op or a layer on small inputs, and report what goes wrong in the run.

    It finds races of parallel iterations (TS601), reads of elements that were never written (TS602), values overwritten
    after they were read (TS603), indices outside an array or negative (TS604), integer overflows (TS605), NaN and
    infinity with the operation where they first appear, in values and in the gradient (TS606), integer divisions by
    zero (TS607), fractions that are lost without a cast in the source (TS301), float64 that is rounded to float32
    (TS609), unwritten elements of outputs that `init` leaves empty (TS610), and inputs that break a promise of the spec
    (TS611). Each is reported once per line and array, with its iteration and the number of repetitions. A construct
    that cannot be interpreted is a finding too (TS608), so no findings means that the whole op was run without a
    problem, except on lines that end in `# tinsmith: ignore[TS601]`.

    Nothing is compiled or launched, so a wrong index does no harm; it is skipped (0 is read), and the run goes on.
    The findings apply to these inputs. A batch is run sample by sample, a chain kernel by kernel.

    Args:
        op: an op of `tinsmith.op` or `tinsmith.chain`; or a layer.
        inputs: the arguments of a call; a few elements per dim are enough. They are not changed.
        named: inputs by name, and dims that no input fixes.

    Returns:
        Findings, sorted by file and line; an empty list for a clean run.

    Raises:
        ArgumentError, ShapeError, DtypeError, DeviceError: as a call of the op does.
        ShapeError: the run takes more than 400,000 operations.

    Example:
        >>> @ts.op("x[n], k[m]: i32 -> y[m]")
        ... @ti.kernel
        ... def picked(x: ti.types.ndarray(), k: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in k:
        ...         y[i] = x[k[i]]
        >>> ts.sanitize(picked, torch.rand(4), torch.tensor([0, 4], dtype=torch.int32))[0].message
        '`x[4]` is read in iteration i = 1, and `x` has the shape (4,): the last index is 3; other memory is read'
    """
    with torch.random.fork_rng(devices=[]):  # an op that draws numbers would take a seed from torch's generator
        call = examine_call(op, inputs, named, "ts.sanitize")
    return Findings(drop_suppressed(in_order([*find_broken_promises(call), *_run_and_watch(call)])))


def _run_and_watch(call: Examination) -> list[Finding]:
    """Interpret a call's kernels; return the findings of the run."""
    if call.reason_unreadable:
        words = f"{call.reason_unreadable}: its kernels were not checked at run time"
        return [Finding("TS608", "warning", *call.starts[0], 0, words)]
    try:
        kernels = [lowered.kernel for lowered in call.kernels]
    except NotCovered as reason:
        return [Finding("TS608", "warning", reason.path, reason.line, 0, _unknown(reason.construct))]
    run = Run(call)
    try:
        run.go()
    except TooLong:
        raise build_too_long_error("ts.sanitize", call.title, OPERATIONS, line=run.numbers.line) from None
    except NoRule as reason:
        path = run.here.kernel.path or kernels[0].path
        finding = Finding("TS608", "warning", path, reason.line, 0, _unknown(reason.construct))
        return in_order([*run.log.findings(), finding])
    narrow = [finding for kernel in kernels for finding in find_narrow_values(kernel, run.columns, call.module_name)]
    return in_order([*run.log.findings(), *narrow])


class Run:
    """An interpreted run with its observers."""

    def __init__(self, call: Examination) -> None:
        self.call = call
        self.here, self.log, self.columns = ExecutionPosition(), Log(), Columns()
        self.origins = NonFiniteOrigins(self.here)
        self.memory = Memory(
            self.here, self.log, self.columns, call.allocated_dtypes, call.uninitialized_arrays, call.outputs
        )
        self.numbers = Numbers(self.here, self.log, self.columns, Budget(OPERATIONS), self.origins)

    def forward(
        self, leaves: Mapping[str, torch.Tensor], *, with_gradient: bool, seeded: bool = False
    ) -> dict[str, torch.Tensor]:
        """Run the kernels forward; return the outputs. If `with_gradient`, they are connected to `leaves` in torch's
        graph.
        """
        with torch.set_grad_enabled(with_gradient):
            outputs = self.call.run(leaves, faithful=True, seeded=seeded, observer=self._observe)
        self.memory.end()
        return outputs

    def go(self) -> None:
        """Run the kernels forward and backward, and log what goes wrong."""
        # A gradient that is written by hand may be finite where autograd's is not.
        has_gradient = self.call.gradient != "backward"
        leaves = self.call.leaves() if has_gradient else {}
        outputs = self.forward(leaves, with_gradient=has_gradient)
        floats = [one for one in outputs.values() if one.is_floating_point()]
        gradient = _pull_back(floats, leaves)
        odd = self.call.non_finite_inputs
        ends = [one.detach() for one in floats]
        self.origins.log_origins(self.log, self.columns, ends, list(gradient.values()), has_finite_inputs=not odd)
        if not self.origins.are_found:
            self._log_unexplained(gradient, "; ".join(odd.values()))

    def _observe(self, kernel: nodes.Kernel, number: int, arrays: Mapping[str, torch.Tensor]) -> tuple[Memory, Numbers]:
        self.here.begin(kernel, number, arrays)
        self.memory.begin(arrays, is_new_sample=number == 0)
        self.numbers.begin(kernel)
        return self.memory, self.numbers

    def _log_unexplained(self, gradient: Mapping[str, torch.Tensor], odd: str) -> None:
        """Log inputs whose gradient is not finite, if no single operation made it so.

        `odd` says which inputs are not finite: then the kernel is not to blame, and the finding is a warning.
        """
        severity: Severity = "warning" if odd else "error"
        remedy = "pass finite numbers" if odd else _REMEDY
        for name, one in gradient.items():
            wrong = ~one.isfinite()
            if wrong.any():
                path, line = self.call.starts[0]
                words = f"the gradient of `{name}` is not finite, in {int(wrong.sum())} of {one.numel()} elements"
                words += f", and neither are the inputs: {odd}" if odd else ""
                self.log.note(
                    "TS606",
                    severity,
                    path,
                    line,
                    name,
                    lambda w=words, p=path, n=line: Finding("TS606", severity, p, n, 0, w, remedy),
                )


def _pull_back(outputs: list[torch.Tensor], leaves: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Compute the gradient for random cotangents. Any cotangents would do to find numbers that are not finite."""
    ends = [one for one in outputs if one.requires_grad and one.numel()]
    if not ends or not leaves:
        return {}
    generator = torch.Generator().manual_seed(0)
    seeds = [(torch.rand(one.shape, generator=generator) + 0.5).to(one) for one in ends]
    gradients = torch.autograd.grad(ends, list(leaves.values()), seeds, allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True))


def _unknown(construct: str) -> str:
    return f"{construct} is not known to the interpreter: this kernel was not checked at run time"
