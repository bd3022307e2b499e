"""The Python engine: runs a kernel's source as Python, with the arithmetic of the engine it was written for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import torch

from ..._config import config
from ..._errors import GradientError, refusal
from ..._user_warnings import SlowEngineWarning
from .._common import make_holdable
from .._contract import Checks, Compiled, CompileOptions, Engine, Facts
from .._language import Language
from ._arithmetic import Arithmetic, NanArithmetic
from ._definitions import read_definition
from ._interpreter import Interpreter
from ._launch import Launch
from ._numbers import Defaults
from ._rewrite import rewrite


class _Runtime:
    """Identifies the state of the Python engine when the engine whose kernels it runs is not started. It never ends."""


def _ask_home(name: str) -> Any:
    """Return a method of the Python engine that the engine answers which its kernels were written for."""

    def ask(python: Python, *given: Any, **named: Any) -> Any:
        return getattr(python.home, name)(*given, **named)

    return ask


class Python(Engine):
    """The Python engine for kernels that were written for one of the compiled engines.

    That engine decides what kernels and fields are; only compiling and launching are implemented here.

    Args:
        home: the engine that the kernels were written for.
        checks: additional errors to raise, which that engine does not.
        lock: held while a kernel runs, since the interpreter holds the contents of fields of one launch.
    """

    name = "python"
    runs_source = True

    def __init__(self, home: Engine, checks: Checks, lock: AbstractContextManager[Any]) -> None:
        self._home = home
        self._runtime = _Runtime()
        self._interpreters: dict[tuple[Defaults, bool], Interpreter] = {}
        self._has_warned = False
        self.checks = checks
        self.lock = lock

    @property
    def home(self) -> Engine:
        return self._home

    # Recognizing ---------------------------------------------------------------------------
    @property
    def lang(self) -> ModuleType:
        return self._home.lang

    is_kernel = _ask_home("is_kernel")
    function_of = _ask_home("function_of")
    owner_of = _ask_home("owner_of")
    bind = _ask_home("bind")
    is_method = _ask_home("is_method")
    parameters = _ask_home("parameters")
    describe = _ask_home("describe")
    structs = _ask_home("structs")
    results = _ask_home("results")
    inner_function = _ask_home("inner_function")
    hold_weakly = _ask_home("hold_weakly")
    is_bound = _ask_home("is_bound")
    owns = _ask_home("owns")
    is_field = _ask_home("is_field")
    unwrap = _ask_home("unwrap")
    is_ndarray = _ask_home("is_ndarray")
    leaf_fields = _ask_home("leaf_fields")
    field_facts = _ask_home("field_facts")
    is_unplaced = _ask_home("is_unplaced")
    matrix_entries = _ask_home("matrix_entries")
    free_kernel = _ask_home("free_kernel")
    is_gradient = _ask_home("is_gradient")
    redirect_calls = _ask_home("redirect_calls")

    # Running -------------------------------------------------------------------------------
    def runtime(self) -> Any:
        # Kernels that use fields depend on the state of the engine that holds them.
        return self._home.runtime() or self._runtime

    def is_current(self, runtime: Any) -> bool:
        return runtime is self.runtime()

    def detach_program(self) -> Any:
        return None

    def options(self) -> tuple[Any, ...]:
        return self.defaults, self._checks_nan

    def device_type(self) -> str:
        return "cpu"

    def is_debugging(self) -> bool:
        return True

    def keeps_compiled(self) -> bool:
        return True

    def thread_count(self) -> int:
        return 1

    def materialize(self) -> None:
        return None

    def require_ready(self, op: str) -> None:
        return None

    @property
    def needs_stack_depth(self) -> bool:
        return False

    @property
    def default_types(self) -> tuple[str, str]:
        return self.defaults

    @property
    def defaults(self) -> Defaults:
        """The types of Python's numbers: those of the compiled engine if it is started, else those that match torch."""
        if self._home.runtime() is not None:
            return Defaults(*self._home.default_types)
        return Defaults("f64" if torch.get_default_dtype() == torch.float64 else "f32", "i32")

    def start(self, device_type: str, **options: Any) -> None:
        # The home engine stores fields and defines the default types; it compiles nothing here.
        self._home.start("cpu", **options)

    def facts(self) -> Facts:
        return Facts({}, ())

    def compile(
        self,
        function: Callable[..., Any],
        templates: dict[str, Any],
        options: CompileOptions = CompileOptions(),  # noqa: B008  # a tuple, which nothing changes
        content: Hashable | None = None,
    ) -> Compiled:
        # The other options are for optimizing compilers and have no effect here.
        del content
        if options.adjoint:
            words = "the Python engine has no reverse mode of its own"
            raise GradientError(refusal(words, remedy='Leave out `adjoint="engine"`: then a gradient is generated.'))
        return self.run_source(function, templates)

    def run_source(
        self,
        function: Callable[..., Any],
        templates: dict[str, Any],
        *,
        fields: Mapping[str, Any] | None = None,
        copies: Mapping[str, str] | None = None,
        batched: frozenset[str] = frozenset(),
        labels: Mapping[str, str] | None = None,
        names: Mapping[str, Any] | None = None,
    ) -> Compiled:
        """Return a compiled kernel whose source Python runs.

        Args:
            function: the kernel's function, with an annotation for each parameter.
            templates: values of template parameters.
            fields: fields that the kernel names and that are replaced by array arguments, by the arguments' names.
            copies: for some of these arrays, the array whose contents are copied into them before the run.
            batched: arrays whose first dim is a batch: the kernel runs once for each sample.
            labels: arrays with the names of their dims, for messages.
            names: values of names that the function cannot look up itself.
        """
        described = {name: self._home.describe(name, one) for name, one in function.__annotations__.items()}
        fields = fields or {}
        given = {name for name in described if name in fields or name not in templates}
        parameters = {name: one for name, one in described.items() if one is not None and name in given}
        arrays = frozenset(name for name, one in parameters.items() if one.kind == "array" and name not in fields)
        run = self._interpreter().for_kernel()
        made = rewrite(read_definition(function), run, arrays=arrays, names=names, objects=templates, is_kernel=True)
        launch = Launch(
            made,
            run,
            parameters,
            templates,
            fields,
            copies or {},
            batched,
            labels or {},
            self.lock,
            self.warn_of_size,
        )
        make_holdable(launch, launch.hold)
        return Compiled(launch, {name: name for name in parameters}, self.runtime())

    def _interpreter(self) -> Interpreter:
        key = self.defaults, self._checks_nan
        if key not in self._interpreters:
            arithmetic = NanArithmetic(self.defaults) if self._checks_nan else Arithmetic(self.defaults)
            self._interpreters[key] = Interpreter(Language(self._home), arithmetic, _translate)
        return self._interpreters[key]

    @property
    def _checks_nan(self) -> bool:
        return self.checks.nan or config().raise_on_nan

    @property
    def checks_unwritten(self) -> bool:
        """Whether reading memory that no kernel has written is an error."""
        return self.checks.unwritten or config().raise_on_unwritten

    def warn_of_size(self, name: str, count: int) -> None:
        """Warn, once, that an array is large for an engine that runs Python."""
        if not self._has_warned:
            self._has_warned = True
            words = f"array `{name}` has {count:,} elements; the Python engine runs about 100,000 statements a second"
            warnings.warn(refusal(words, remedy="Debug with smaller arrays."), SlowEngineWarning, stacklevel=2)


def _translate(
    function: Callable[..., Any], run: Interpreter, is_method: bool, owner: object | None
) -> Callable[..., Any]:
    """Rewrite an engine function (`ti.func`) to a Python function for an interpreter.

    `owner` is the object of a method.
    """
    definition = read_definition(function)
    objects = {} if owner is None else {definition.tree.args.args[0].arg: owner}
    return rewrite(definition, run, objects=objects, is_method=is_method)
