"""Lint of what a user holds in his hands: a kernel, or an op."""

from __future__ import annotations

from typing import Any

from .._errors import ArgumentError, refusal
from ..bridge import Op
from ..engines import is_kernel
from ..linter import Finding, lint_kernels


def lint(kernel_or_op: Any) -> list[Finding]:
    """What is wrong with a kernel, told from its source: nothing is run or compiled.

    Engine functions that it calls are looked at too. A line that ends in `# tinsmith: ignore[TS101]` is not named.

    Args:
        kernel_or_op: a kernel of Taichi or Quadrants, also a bound method of a data-oriented object, or an op.

    Returns:
        findings by file and line. "error": wrong whoever differentiates; "warning": right by tinsmith's gradient, wrong
        by the engine's own, which the message names; "info": hints.

    Raises:
        ArgumentError: it is neither.
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
    if not isinstance(kernel_or_op, Op) and not is_kernel(kernel_or_op):
        words = "ts.lint takes a kernel or an op"
        remedy = "Decorate the function with `@ti.kernel`; `tinsmith check FILE` lints files that nobody runs."
        raise ArgumentError(refusal(words, [("came", type(kernel_or_op).__name__)], remedy))
    if isinstance(kernel_or_op, Op):
        return kernel_or_op.lint()
    return lint_kernels([kernel_or_op])
