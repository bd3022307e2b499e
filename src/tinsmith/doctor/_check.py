"""Check: runs all checks of one op on given inputs, and reports the results."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any, overload

from .. import _offers
from .._errors import KernelError, refusal
from .._user_warnings import TruncationWarning
from ..engines import init, list_running, of_kernel
from ..linter import SEVERITIES, Finding, in_order, not_run
from ..operation import Op, example_inputs
from ..operation.examination import Examinable, Examination, examine_call
from ..time import scan
from ._gradcheck import gradcheck
from ._gradcheck_result import Gradcheck
from ._lint import lint
from ._report import Report
from .sanitizer import HAZARDS, is_hazard, sanitize
from .scans import ScanCheck, check_scan


@overload
def check(op: Op | Examinable, *inputs: Any, **named: Any) -> Report: ...
@overload
def check(op: FunctionType, *inputs: Any, **named: Any) -> ScanCheck: ...
def check(op: Op | Examinable | FunctionType, *inputs: Any, **named: Any) -> Report | ScanCheck:
    """Lint the kernels of an op or a layer, run them in the sanitizer, and compare its gradient with the true one.

    A part that could not run is a finding of rule TS002 and severity "error", so an incomplete check does not pass. The
    gradient check runs compiled kernels, so it is skipped if the sanitizer found an index outside its array or an
    output that is not written. Findings that only concern the engine's own reverse mode are put into `aside`, unless
    the op uses it.

    Args:
        op: an op of `tinsmith.op` or `tinsmith.chain`; or a layer; or `tinsmith.scan` itself: see `scan.check`.
        inputs: the arguments of a call; small ones, since the sanitizer interprets the kernels. They are not changed.
        named: inputs by name, and dims that no input fixes.

    Returns:
        A `Report`: `.ok`, `.verdict`, `.findings`, `.gradient`, `.html()`, `.raise_if_failed()`; print it to read it.

    Raises:
        ArgumentError, ShapeError, DtypeError, DeviceError: as a call of the op does.

    Example:
        >>> @ts.op("x[n] -> y[n]")
        ... @ti.kernel
        ... def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in x:
        ...         y[i] = x[i] * x[i]
        >>> ts.check(square, torch.rand(5)).raise_if_failed()
    """
    if isinstance(op, FunctionType) and op is scan:
        return check_scan(*inputs, **named)
    return _report(op, None, inputs, named)


def check_example(op: Op, example: str) -> Report:
    """Run `check` on the inputs of one of `op.examples`, on the CPU unless the engine was started on another device.

    An example that fails, or returns inputs that do not fit, is a finding.
    """
    label = f"{op.name}({example})"
    try:
        if op.owner is None and any(of_kernel(kernel).is_method(kernel) for kernel in _kernels(op)):
            words = f"op `{op.name}` is a method, and the module has no object of its class at its top level"
            raise KernelError(refusal(words, remedy="Make an object of the class at the top level of the module."))
        if op.engine not in list_running():
            init("cpu", engine=op.engine)
        inputs, named = example_inputs(op.examples[example]())
        return _report(op, label, inputs, named)
    except Exception as error:  # noqa: BLE001  # the example is the user's code
        code = getattr(op.examples[example], "__code__", None)
        place = (code.co_filename, code.co_firstlineno) if code else ("<example>", 1)
        return Report(f"op `{label}`", [not_run(f"example `{example}` of op `{op.name}`", error, *place)])


def _report(op: Any, label: str | None, inputs: tuple[Any, ...], named: dict[str, Any]) -> Report:
    """Run all checks of a call. `label` is the op's name in the report; None for its own."""
    call = examine_call(op, inputs, named, "ts.check")
    label = call.name if label is None else label
    title = f"{call.kind} `{label}`"
    gradients: dict[str, Gradcheck] = {}

    def compare_gradients() -> list[Finding]:
        harmful = next(filter(is_hazard, findings_by_part.get("sanitizer", [])), None)
        if harmful:
            return [_build_left_out_hint(title, harmful)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncationWarning)  # the sanitizer reports it, with the numbers
            gradients[label] = gradcheck(op, *inputs, **named)
        return gradients[label].findings

    findings_by_part: dict[str, list[Finding]] = {}
    lost: list[Finding] = []
    parts = {
        "lint": lambda: lint(op),
        "sanitizer": lambda: sanitize(op, *inputs, **named),
        "gradient check": compare_gradients,
    }
    for part, run in parts.items():
        try:
            findings_by_part[part] = run()
        except Exception as error:  # noqa: BLE001  # engines raise any type; go on with the other parts
            lost.append(not_run(f"{part} of {title}", error, *call.starts[0]))
    linted = _merge_findings(findings_by_part.get("lint", []), findings_by_part.get("sanitizer", []))
    findings = in_order([*lost, *linted, *findings_by_part.get("gradient check", [])])
    aside = () if _uses_engine(call) else tuple(one for one in findings if one.engines)
    shown = [one for one in findings if one not in aside]
    looked = tuple(part for part in findings_by_part if part != "gradient check" or gradients)
    return Report(title, shown, gradients, looked, tuple(call.starts), aside)


def _uses_engine(call: Examination) -> bool:
    """Return True if an op's gradient comes from the engine's own reverse mode."""
    return call.origin(frozenset(call.differentiable)) == "engine"


def _kernels(op: Op) -> tuple[Any, ...]:
    return op.kernel if isinstance(op.kernel, tuple) else (op.kernel,)


def _merge_findings(linted: list[Finding], seen: list[Finding]) -> list[Finding]:
    """Remove duplicates of lint and the run: keep lint's finding of the two, unless the run's is more severe."""

    def drop_repeated(findings: list[Finding], others: list[Finding], *, is_first: bool) -> list[Finding]:
        severities = {(one.rule, one.path, one.line): SEVERITIES.index(one.severity) for one in others}
        places = ((one, severities.get((one.rule, one.path, one.line))) for one in findings)
        return [one for one, at in places if at is None or SEVERITIES.index(one.severity) < at + is_first]

    narrow = {(one.path, one.line) for one in seen if one.rule == "TS609"}
    # For a literal that rounds, the run's finding names the value that is rounded.
    linted = [one for one in linted if one.rule != "TS305" or (one.path, one.line) not in narrow]
    # For an index outside its array, the run's finding names iteration and shape.
    outside = {(one.path, one.line, one.column) for one in seen if one.rule == "TS604"}
    linted = [one for one in linted if one.rule != "TS109" or (one.path, one.line, one.column) not in outside]
    return drop_repeated(linted, seen, is_first=True) + drop_repeated(seen, linted, is_first=False)


def _build_left_out_hint(title: str, harmful: Finding) -> Finding:
    """Build the hint that the gradient check was left out because of a harmful finding, which is itself an error."""
    words = f"gradient check of {title} was left out: {HAZARDS[harmful.rule]}"
    return Finding("TS002", "info", harmful.path, harmful.line, harmful.column, words)


_offers.checking.register(check)


def find_ops_in(namespace: Mapping[str, Any]) -> list[Op]:
    """Return the ops in a module's namespace and those of the objects in it, each once.

    If the module defines a class and has no object of it, the ops of the class are included. They are not bound to an
    object, and cannot run.
    """
    values = list(namespace.values())
    ops = [op for value in values for op in find_ops_of(value)]
    for value in values:
        is_own = inspect.isclass(value) and value.__module__ == namespace.get("__name__")
        if is_own and not any(issubclass(type(one), value) for one in values):
            ops += [op for op in vars(value).values() if issubclass(type(op), Op)]
    return [op for place, op in enumerate(ops) if not any(op is one for one in ops[:place])]


def find_ops_of(value: Any) -> Iterator[Op]:
    """Yield an op itself, or the ops of a data-oriented object.

    Members are looked up in the type, since an object may answer to any attribute.
    """
    if issubclass(type(value), Op):
        yield value
        return
    for owner in type(value).__mro__:
        for name, member in vars(owner).items():
            if issubclass(type(member), Op):
                yield getattr(value, name)
