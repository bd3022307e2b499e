"""The process that compiles for `compile_time.py`, with the package of one checkout, on one engine.

Reads names of ops, one a line, and answers each with the seconds that the parts of compiling it took, as JSON.
Engines get no kernel to compile, and launch none, unless the second argument is "engine": then a first call is measured
with all that the engine does. After "parts of " it leaves out the first call.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import io
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

import tinsmith as ts
from _compile_kernels import CASES, GROWING, name_of
from _compile_shapes import SHAPES
from tinsmith import engines
from tinsmith.calls.backward import SourceReverse
from tinsmith.compiling import _kernel_families
from tinsmith.engines import Compiled, CompileOptions, _common
from tinsmith.engines._compiled_engine import CompiledEngine
from tinsmith.operation.reports._adjoint_source import _make_key, _select_active


class Clock:
    """Measures processor seconds by part, which other programs on the machine hardly affect."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def part(self, name: str) -> Any:
        start = time.process_time()
        yield
        self.seconds[name] = time.process_time() - start


def time_parts(build: Callable[[Any], Any], lang: Any) -> dict[str, float]:
    """Time each part of the way from an op's source to the text of its gradient by all inputs."""
    clock = Clock()
    gc.collect()
    with clock.part("lower"):
        op = build(lang)
        signature = op._core.signature
        case = _make_key(signature, op)
        active = _select_active(signature, case, ())
        at = SourceReverse(signature).specialize(case)
        _ = at.kernels
    with clock.part("adjoint"):
        program = at.prepare_program(active, None, active & {*signature.arrays})
    emitted = list({run.kernel: at.emit(run) for run in program.runs}.values())
    with clock.part("pipelines"):
        kernels = [one.prepare([]) for one in emitted]
    # The lock raises the recursion limit, which sums of hundreds of terms need.
    with clock.part("print"), engines.COMPILING:
        texts = [ast.unparse(one._tree(kernel)) for one, kernel in zip(emitted, kernels, strict=True)]
    return {**clock.seconds, "lines": sum(text.count("\n") + 1 for text in texts)}


def time_first_call(build: Callable[[Any], Any], lang: Any) -> float:
    """Return the seconds of an op's first call, forward and backward, with an engine that takes no time to compile."""
    _kernel_families._FAMILIES.clear()  # forget what earlier ops shared with it, too
    op = build(lang)
    signature = op._core.signature
    case = _make_key(signature, op)
    given: dict[str, Any] = {name: torch.ones(case.shapes[name], dtype=case.dtypes[name]) for name in signature.arrays}
    for one in given.values():
        one.requires_grad_(one.is_floating_point())
    given |= dict.fromkeys((*signature.scalars, *signature.size_names), 1)
    gc.collect()
    start = time.process_time()
    _call(op, given)
    return time.process_time() - start


ENGINE_PARTS = ("own", "front end", "compiler")
WITH_ENGINE = "with the engine"
_launched = 0.0
"""Seconds of first launches so far, in which engines do the last part of compiling."""


def time_first_launches() -> None:
    """Let each kernel's first launch add to `_launched`."""
    make_launcher = _common.make_launcher

    def make_timed_launcher(*arguments: Any, **named: Any) -> Any:
        launch = make_launcher(*arguments, **named)
        is_new = True

        def launch_timed(*given: Any) -> None:
            nonlocal is_new
            global _launched
            start = time.process_time()
            launch(*given)
            _launched += (time.process_time() - start) * is_new
            is_new = False

        return launch_timed

    _common.make_launcher = make_timed_launcher


def time_with_engine(build: Callable[[Any], Any], lang: Any) -> dict[str, float]:
    """Return the seconds of an op's first call, forward and backward, by part: with the engine's work."""
    with contextlib.redirect_stdout(io.StringIO()):
        ts.init("cpu", engine=lang.__name__, offline_cache=False)  # an engine keeps what it compiled
    _kernel_families._FAMILIES.clear()
    small = SHAPES["chain"](lang, 20)  # an engine's first kernel loads what all others use
    _call(small, _make_arguments(small))
    op = build(lang)
    given = _make_arguments(op)
    op = build(lang)
    gc.collect()
    # Another checkout may not have them.
    engine_times = getattr(engines, "ENGINE_TIMES", None)
    before = (engine_times.front_end, engine_times.compiler) if engine_times else (0.0, 0.0)
    launched, start = _launched, time.process_time()
    _call(op, given)
    seconds = time.process_time() - start
    if engine_times is None:
        return {WITH_ENGINE: seconds}
    front_end = engine_times.front_end - before[0]
    compiler = engine_times.compiler - before[1] + _launched - launched
    parts = dict(zip(ENGINE_PARTS, (seconds - front_end - compiler, front_end, compiler), strict=True))
    return {**parts, WITH_ENGINE: seconds}


def _make_arguments(op: Any) -> dict[str, Any]:
    """Return arguments with which no kernel leaves its arrays, and that hardly take time."""
    signature = op._core.signature
    key = _make_key(signature, op)
    given: dict[str, Any] = {}
    for name in signature.arrays:
        is_float = key.dtypes[name].is_floating_point
        given[name] = torch.full(key.shapes[name], 0.5 if is_float else 0, dtype=key.dtypes[name])
        given[name].requires_grad_(is_float)
    return given | dict.fromkeys(signature.scalars, 1) | dict.fromkeys(signature.size_names, 0)


def _call(op: Any, given: Mapping[str, Any]) -> None:
    made = op(**given)
    outputs = [one for one in (made if isinstance(made, tuple) else (made,)) if one.requires_grad]
    torch.autograd.backward(outputs, [torch.ones_like(one) for one in outputs])


def compile_nothing(
    engine: CompiledEngine,
    function: Callable[..., Any],
    templates: Mapping[str, Any],
    options: CompileOptions = CompileOptions(),  # noqa: B008  # a tuple, which nothing changes
    content: object = None,
) -> Compiled:
    """Return a compiled kernel that does nothing. Replaces `CompiledEngine.compile`."""
    del templates, options, content
    return Compiled(lambda *_: None, {name: name for name in function.__annotations__}, engine.runtime())


def _find_shape(case: str) -> Callable[[Any], Any]:
    shape, _, size = case.rpartition(" ")
    return lambda lang: SHAPES[shape](lang, int(size))


def main() -> None:
    name = sys.argv[1]
    torch.set_num_threads(1)
    # The garbage collector's time depends on all objects of the process, not on what is compiled.
    gc.disable()
    with contextlib.redirect_stdout(io.StringIO()):  # engines say that they start
        ts.init("cpu", engine=name, offline_cache=False)
    lang = importlib.import_module(name)
    compiles = sys.argv[2:] == ["engine"]
    if compiles:
        time_first_launches()
    else:
        CompiledEngine.compile = compile_nothing
    builds = {**CASES, **{name_of(what, size): build for what, by in GROWING.items() for size, build in by.items()}}
    print("ready", flush=True)
    for line in sys.stdin:
        _, is_part, case = line.strip().rpartition("parts of ")
        build = builds[case] if case in builds else _find_shape(case)
        if compiles:
            seconds = time_with_engine(build, lang)
        else:
            seconds = time_parts(build, lang)
        if not (compiles or is_part):
            seconds["first call"] = time_first_call(build, lang)
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
