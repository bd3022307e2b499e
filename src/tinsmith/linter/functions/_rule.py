"""TS801: the rule for Functions whose backward pass is the engine's own gradient of a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...engines import count_column
from .._finding import Finding
from .._modules import parse_file
from .._subject import Subject
from ._failures import find_failures
from ._reader import Class, Module
from ._replacement import write_replacement
from ._trace import Tracer


def find_hand_written(path: str, text: str, subjects: Sequence[Subject]) -> Iterator[Finding]:
    """Yield a finding for each `torch.autograd.Function` of a file that calls `kernel.grad`.

    Args:
        path: the file.
        text: what stands in it.
        subjects: the kernels of the file.
    """
    if ".grad" not in text or "Function" not in text:  # most files: they are not traced
        return
    module = Module.read(parse_file(path, text))
    lines = text.splitlines(keepends=True)
    for node in module.autograd_functions():
        yield from _examine(path, lines, module, node, [one for one in subjects if one.is_kernel])


def _examine(path: str, lines: list[str], module: Module, node: Class, kernels: Sequence[Subject]) -> Iterator[Finding]:
    def find_kernel(kernel: str) -> Subject | None:
        name = kernel.rpartition(".")[2]
        names = {name, module.attributes.get(name, name)}
        named = [one for one in kernels if one.tree.name in names]
        before = [one for one in named if one.tree.lineno < node.lineno]
        return (before or named or [None])[-1]

    trace = Tracer(module, node, lambda name: find_kernel(name) is not None).run()
    if not trace.gradients:
        return
    call = trace.gradients[0].node
    backward = module.methods(node).get("backward")
    decorators = [module.resolve(one).rpartition(".")[2] for one in (backward.decorator_list if backward else [])]
    failures = find_failures(trace, find_kernel, is_differentiable_once="once_differentiable" in decorators)
    is_wrong = any(one.is_wrong for one in failures)
    listed = "; ".join(f"({place}) {one.words}" for place, one in enumerate(failures, 1))
    names = " and ".join(dict.fromkeys(f"`{one.kernel}.grad`" for one in trace.gradients))
    words = f"{names} in the autograd Function `{node.name}`"
    words += f": {listed}" if listed else " is the engine's own reverse mode; an op generates a gradient"
    remedy = write_replacement(node.name, trace, find_kernel)
    column = count_column("".join(lines[call.lineno - 1 : call.lineno]), call.col_offset)
    severity = "error" if is_wrong else "info"
    yield Finding("TS801", severity, path, call.lineno, column, words, remedy)
