"""The assertion for users' tests."""

from __future__ import annotations

from typing import Any

from .._errors import CheckError
from ..doctor import Report, check
from ..operation import Op
from ..operation.examination import Examinable


def assert_differentiable(op: Op | Examinable, *inputs: Any, **named: Any) -> Report:
    """Assert that the kernels of an op or a layer have no errors on these inputs, and that its gradient is right.

    Runs `tinsmith.check`; warnings and hints do not raise.

    Args:
        op: an op of `tinsmith.op` or `tinsmith.chain`; or a layer.
        inputs: the arguments of a call; small ones. They are not changed.
        named: inputs by name, and dims that no input fixes.

    Returns:
        The report, for further assertions: `assert not report.findings`.

    Raises:
        CheckError: an AssertionError that says what is wrong and where; also if there is nothing to differentiate, or
            if all derivatives are 0 at these inputs, so that nothing was tested.
        ArgumentError, ShapeError, DtypeError, DeviceError: as a call of the op does.

    Example:
        >>> from tinsmith.testing import assert_differentiable
        >>> @ts.op("x[n] -> y[n]")
        ... @ti.kernel
        ... def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in x:
        ...         y[i] = x[i] * x[i]
        >>> def test_square():
        ...     assert_differentiable(square, torch.rand(5))
        >>> test_square()
    """
    __tracebackhide__ = True
    report = check(op, *inputs, **named)
    report.raise_if_failed()
    gradient = report.gradient
    if gradient is not None and gradient.verdict == "nothing to differentiate":
        raise CheckError(f"{gradient.summary}\n  Pass tensors of floats: an op of integers alone has no gradient.")
    if gradient is not None and gradient.verdict == "not tested":
        raise CheckError(f"{gradient}\n  Pass inputs on which the outputs depend.")
    return report
