"""Lint of an object: a kernel, an op, or a layer."""

from __future__ import annotations

from typing import Any

from .._errors import ArgumentError, refusal
from ..engines import is_kernel
from ..linter import Findings, lint_kernels
from ..operation import Op
from ..operation.examination import Examinable, lint_subject


def lint(subject: Any) -> Findings:
    """Find mistakes in a kernel from its source: nothing is run or compiled.

    Engine functions that it calls are checked as well. Lines that end in `# tinsmith: ignore[TS101]` are not reported.

    Args:
        subject: a kernel of Taichi or Quadrants, or a bound method of a data-oriented object; an op; or a layer.

    Returns:
        Findings, sorted by file and line: a list that prints as text. "error": wrong with any gradient; "warning":
        right with tinsmith's gradient, wrong with the engine's own, which the message names; "info": hints.

    Raises:
        ArgumentError: `subject` is none of these.
        KernelError: its source cannot be found.

    Example:
        >>> @ti.kernel
        ... def count(x: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in x:
        ...         n = 0
        ...         n += 0.5 * x[i]
        ...         y[i] = n
        >>> print(ts.lint(count)[0].rule)
        TS301
    """
    if isinstance(subject, Op | Examinable):
        return Findings(lint_subject(subject))
    if not is_kernel(subject):
        words = "ts.lint takes a kernel, an op or a layer"
        decorators = "`@ti.kernel` (or `@qd.kernel`)"
        remedy = f"Decorate the function with {decorators}; `tinsmith check FILE` lints files without running them."
        raise ArgumentError(refusal(words, [("got", type(subject).__name__)], remedy))
    return Findings(lint_kernels([subject]))
