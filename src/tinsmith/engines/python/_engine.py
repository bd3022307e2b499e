"""The Python engine: runs a kernel's source as Python, with the arithmetic of the engine it was written for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import torch

from ..._config import config
from ..._errors import GradientError, refusal
from ..._user_warnings import SlowEngineWarning
from .._common import make_holdable
from .._contract import (
    Checks,
    Compiled,
    CompileOptions,
    Engine,
    Facts,
    FieldFacts,
    Parameter,
)
from .._language import Language
from .._listening import Listener
from ._arithmetic import Arithmetic, NanArithmetic
from ._definitions import read_definition
from ._interpreter import Interpreter
from ._launch import Launch
from ._numbers import Defaults
from ._rewrite import rewrite


class _Runtime:
    """Identifies the state of the Python engine when the engine whose kernels it runs is not started. It never ends."""


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
        self._options: dict[str, Any] = {}
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

    def is_kernel(self, candidate: object) -> bool:
        return self._home.is_kernel(candidate)

    def function_of(self, kernel: Any) -> Callable[..., Any]:
        return self._home.function_of(kernel)

    def owner_of(self, kernel: Any) -> object | None:
        return self._home.owner_of(kernel)

    def bind(self, kernel: Any, owner: object) -> Any:
        return self._home.bind(kernel, owner)

    def is_method(self, kernel: Any) -> bool:
        return self._home.is_method(kernel)

    def parameters(self, kernel: Any, objects: Collection[str] | None = None) -> tuple[Parameter, ...]:
        return self._home.parameters(kernel, objects)

    def describe(self, name: str, annotation: Any) -> Parameter | None:
        return self._home.describe(name, annotation)

    def structs(self, kernel: Any) -> dict[tuple[str, ...], Any]:
        return self._home.structs(kernel)

    def results(self, kernel: Any) -> tuple[Parameter, ...]:
        return self._home.results(kernel)

    def inner_function(self, candidate: object) -> Callable[..., Any] | None:
        return self._home.inner_function(candidate)

    def hold_weakly(self, kernel: Any) -> None:
        self._home.hold_weakly(kernel)

    def is_bound(self, function: object) -> bool:
        return self._home.is_bound(function)

    def owns(self, value: object) -> bool:
        return self._home.owns(value)

    def is_field(self, value: object) -> bool:
        return self._home.is_field(value)

    def unwrap(self, value: Any) -> Any:
        return self._home.unwrap(value)

    def is_ndarray(self, value: object) -> bool:
        return self._home.is_ndarray(value)

    def leaf_fields(self, field: Any, name: str) -> list[tuple[str, Any]]:
        return self._home.leaf_fields(field, name)

    def field_facts(self, field: Any, name: str) -> FieldFacts:
        return self._home.field_facts(field, name)

    def is_unplaced(self, field: Any) -> bool:
        return self._home.is_unplaced(field)

    def matrix_entries(self, value: object) -> tuple[float, ...] | None:
        return self._home.matrix_entries(value)

    def free_kernel(self, called: Any) -> Any:
        return self._home.free_kernel(called)

    def is_gradient(self, called: Any) -> bool:
        return self._home.is_gradient(called)

    def redirect_calls(self, listener: Listener) -> AbstractContextManager[None]:
        return self._home.redirect_calls(listener)

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
