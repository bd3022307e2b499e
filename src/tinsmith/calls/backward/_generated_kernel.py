"""Generated kernels: printed and compiled for the engine that runs their op."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..._errors import EngineError, TinsmithError, internal_error
from ...codegen import PrintedKernel, add_comments, print_kernel
from ...compiling import (
    Alignment,
    Stage,
    annotate_added,
    annotate_numbers,
    compile_printed,
    engine_options,
    find_error_line,
    fit_to_device,
    guard_launches,
    remember,
)
from ...engines import COMPILING, DTYPES, Compiled, CompileOptions, Language, Parameter, array_text
from ...ir import nodes, types, walk
from ...passes import (
    ENGINE,
    GENERATED,
    ON_ONE_THREAD,
    PassOptions,
    Site,
    has_aliases,
    has_elements_at_top,
    has_vector_loops,
    is_swept,
    run_pipeline,
)
from .._steps import Entry, Step

_SHORT = {"taichi": "ti", "quadrants": "qd"}
"""The usual short names of the engines' modules."""


class GeneratedKernel:
    """A generated kernel, which can be printed, compiled and launched.

    Args:
        kernel: its IR.
        stage: the op's kernel that it comes from, which has its engine and the annotations of its scalars.
        fields: fields, by the names of the arrays that stand for them in the IR.
        op: the op's name, for messages.
    """

    def __init__(self, kernel: nodes.Kernel, stage: Stage, fields: Mapping[str, Any], op: str) -> None:
        self.kernel = kernel
        self.stage = stage
        self.op = op
        self.fields = {name: field for name, field in fields.items() if name in kernel.arrays}
        self.arrays = tuple(name for name in kernel.arrays if name not in self.fields and name not in kernel.cells)
        touched = walk.find_touched(kernel.body)
        self.touched = tuple(name for name in self.arrays if name in touched)
        self._is_flat = has_aliases(kernel.body) or has_elements_at_top(kernel)
        self._is_swept = is_swept(kernel.body)
        self._compiled: dict[Alignment, Compiled] = {}
        self._twin: GeneratedKernel | None = None

    @property
    def on_one_thread(self) -> GeneratedKernel:
        """The same kernel on one thread. It is made once."""
        if self._twin is None:
            with COMPILING:
                kernel = remember(
                    self.stage.engine,
                    "one thread",
                    lambda: (self.kernel,),
                    lambda: run_pipeline(ON_ONE_THREAD, self.kernel),
                    (self.kernel,),
                )
                self._twin = self._twin or GeneratedKernel(kernel, self.stage, self.fields, self.op)
        return self._twin

    @property
    def readable(self) -> list[str]:
        """The lines of its source for people: each group of statements follows the user's line that it comes from.

        It is the kernel that is launched, but not in the form with which a CPU uses machine vectors.
        """
        path, name = self.kernel.path, _SHORT[self.stage.engine.home.name]
        kernel = run_pipeline(GENERATED, self.kernel, self._make_options([]))
        lines = add_comments(self._tree(kernel), lambda number: linecache.getline(path, number).strip())
        return [line.replace("_lang.", f"{name}.").replace(", needs_grad=False", "") for line in lines]

    def prepare(self, sites: list[Site], alignment: Alignment = Alignment.ALL) -> nodes.Kernel:
        """Run the passes that turn the IR into the engine's form. Append the places of checked indices to `sites`."""
        engine, options = self.stage.engine, self._make_options(sites)
        aligned = alignment.select(self.arrays, self.kernel)

        def find_form() -> nodes.Kernel:
            kernel = run_pipeline(GENERATED, self.kernel, options)
            if not self.stage.is_checked:
                kernel = fit_to_device(kernel, engine, aligned)
            return run_pipeline(ENGINE, kernel)

        if self.stage.is_checked:
            # The places of checked indices are found on the way.
            return find_form()
        given = (options.is_flat, options.is_spread, options.has_fast_vectors, aligned)
        state = (*given, engine.is_debugging(), engine.device_type())
        return remember(engine, "engine's form", lambda: (self.kernel, *state), find_form, (self.kernel,))

    def _make_options(self, sites: list[Site]) -> PassOptions:
        engine = self.stage.engine
        return replace(
            engine_options(engine),
            is_flat=self._is_flat,
            note_sites=sites.extend if self.stage.is_checked else None,
            is_spread=engine.device_type() == "cpu",
        )

    def _tree(self, kernel: nodes.Kernel) -> PrintedKernel:
        defaults = types.Defaults(*Language(self.stage.engine).default_types)  # type: ignore[arg-type]
        return print_kernel(kernel, annotate_numbers(kernel, self._annotate(kernel)), defaults)

    def _annotate(self, kernel: nodes.Kernel) -> dict[str, str]:
        """Return the annotations of the kernel's parameters in this form, by parameter."""
        texts = {}
        for name in self.arrays:
            array = kernel.arrays[name]
            texts[name] = array_text(DTYPES[array.type], array.rank, array.element, "unsafe", False)
        for name in self.kernel.arguments:
            parameter = self._parameter(name)
            if parameter is not None:
                texts[name] = parameter.text
        handed = [name for name in kernel.arrays if name in self.fields]
        added = annotate_added(kernel, is_checked=self.stage.is_checked)
        return texts | dict.fromkeys(handed, "_lang.template()") | added

    def ensure_compiled(self, alignment: Alignment = Alignment.NONE) -> Compiled:
        """Return the compiled kernel. It is compiled again if the engine was started again."""
        compiled = self._find_compiled(alignment)
        if compiled is not None:
            return compiled
        with COMPILING:
            compiled = self._find_compiled(alignment)
            if compiled is None:
                compiled = self._compiled[alignment] = self._compile(alignment)
                if not compiled.vector_sizes:
                    # It does not depend on alignment, so it is that of any memory.
                    self._compiled = dict.fromkeys(Alignment, compiled)
        return compiled

    def _find_compiled(self, alignment: Alignment) -> Compiled | None:
        compiled = self._compiled.get(alignment)
        is_current = compiled is not None and compiled.runtime is self.stage.engine.runtime()
        return compiled if is_current else None

    def _compile(self, alignment: Alignment) -> Compiled:
        engine = self.stage.engine
        engine.require_ready(self.op)
        self.stage.baked_values.check_fields(self.op)
        sites: list[Site] = []
        kernel = self.prepare(sites, alignment)
        # Taichi sometimes cannot compile the result of its control flow optimization; without it launches are as fast.
        is_simd = has_vector_loops(kernel)
        choices = CompileOptions(is_careful=True, is_aliased=self._is_swept, is_simd=is_simd, is_printed=True)

        try:
            texts = self._annotate(kernel)
            compiled = compile_printed(engine, kernel, texts, self.fields, choices, kernel.name)
            return guard_launches(self.stage, compiled, sites, self.op, kernel) if self.stage.is_checked else compiled
        except TinsmithError:
            raise
        except Exception as cause:
            words = f"a kernel that was generated for the gradient of op `{self.op}` does not compile"
            rows = [("kernel", self.kernel.name), (engine.name, find_error_line(cause))]
            raise internal_error(EngineError, words, rows) from cause

    def step(self, names: Mapping[str, str], renamed: Mapping[str, str], alignment: Alignment = Alignment.NONE) -> Step:
        """Compile the kernel for a launch.

        Args:
            names: the memory of each array, by name.
            renamed: the op's names for the launch's scalar arguments, if they differ from the kernel's.
            alignment: of the memory: launches ensure it where the kernel asks for it (`Compiled.vector_sizes`).
        """
        compiled = self.ensure_compiled(alignment)
        # Of an array that is not touched only the sizes are used, so any memory will do.
        some = names[self.touched[0]] if self.touched else ""
        entries = []
        for name in self.arrays:
            array = self.kernel.arrays[name]
            memory = names[name] if name in self.touched else some
            inner = 0 if self._is_flat else len(array.element)
            itemsize = DTYPES[array.type].itemsize
            size = compiled.vector_sizes.get(name, 0)
            entries.append(Entry(compiled.slots[name], memory, names[name], itemsize, inner, vector_size=size))
        named = ((name, renamed.get(name, name)) for name in self.kernel.arguments)
        scalars = tuple((self._setter(name), compiled.slots[name], called) for name, called in named)
        return Step(compiled.launch, tuple(entries), scalars)

    def _parameter(self, name: str) -> Parameter | None:
        """Return the stage's parameter of this name. A repeated launch of the kernel may use another name."""
        return self.stage.parameters.get(name) or self.stage.first.parameters.get(name)

    def _setter(self, name: str) -> str:
        parameter = self._parameter(name)
        return "int" if parameter is None else parameter.setter
