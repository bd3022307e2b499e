"""The assertion for tests of one's own."""

from __future__ import annotations

from typing import Any

from ..bridge import Op
from ..doctor import Report, check


def assert_differentiable(op: Op, *inputs: Any, **named: Any) -> Report:
    """Assert that an op's kernels have no errors on these inputs, and that its gradient is right.

    `tinsmith.check` finds out; warnings and hints do not fail.

    Args:
        op: made by `tinsmith.op` or `tinsmith.chain`.
        inputs: what the op is called with: small ones. They are not changed.
        named: inputs by name, and dims that nothing else fixes.

    Returns:
        The report, for further assertions: `assert not report.findings`.

    Raises:
        CheckError: an AssertionError that says what is wrong, and where.
        ArgumentError, ShapeError, DtypeError, DeviceError: as a call of the op does.

    Example:
        >>> from tinsmith.testing import assert_differentiable
        >>> def test_conv():
        ...     assert_differentiable(conv, torch.rand(5), torch.rand(2))
    """
    __tracebackhide__ = True
    report = check(op, *inputs, **named)
    report.raise_if_failed()
    return report
