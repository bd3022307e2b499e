"""The part of the engine contract that Taichi and Quadrants implement alike, since one is a fork of the other."""

from __future__ import annotations

import dataclasses
import functools
import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, get_type_hints

from .. import engines
from .._errors import KernelError, refusal
from . import _annotations, _common, _fields, _readiness
from ._compile_times import ENGINE_TIMES
from ._compiling import one_at_a_time
from ._contract import Compiled, CompileOptions, Engine, FieldFacts, Parameter
from ._streams import KernelStreams, ProgramStreams, find_program_streams, has_streams


class CompiledEngine(Engine):
    """An engine that compiles kernels of Taichi's language. Subclasses implement what differs between the engines."""

    @property
    @abstractmethod
    def _kernel_type(self) -> type:
        """Return the engine's class of a kernel, forward or reverse; a rollout intercepts calls of its instances."""

    def _module(self, name: str) -> Any:
        """Return a module of the engine's package `lang`, which it loads itself."""
        return sys.modules[f"{self.lang.__name__}.lang.{name}"]

    @property
    def _struct_type(self) -> type:
        return self._module("struct").StructType

    @property
    def _matrix_type(self) -> type:
        return self._module("matrix").MatrixType

    @abstractmethod
    def _metas(self, kernel: Any) -> list[Any]:
        """Return the engine's own descriptions of a kernel's parameters, without `self`."""

    @abstractmethod
    def _quick_front_end(self, kernel: Any, options: CompileOptions) -> AbstractContextManager[None]:
        """Enter a context in which the engine's front end is faster (`_front_ends`) for one of its kernels."""

    @abstractmethod
    def _find_compiled(self, kernel: Any, key: Any) -> Any:
        """Return the compiled form of a kernel that `ensure_compiled` returned this key for."""

    def _make_slot(self, place: int) -> Any:
        """Return the engine's own name for the place of an argument."""
        return place

    def _get_data(self, made: Any) -> Any:
        """Return what is launched of the result of the engine's compiler."""
        return made

    def _takes_object(self, annotation: Any) -> bool:
        """Return True for the annotation of a parameter that takes a Python dataclass or a `qd.Tensor`."""
        return dataclasses.is_dataclass(annotation)

    @abstractmethod
    def _explain_no_capture(self, program: Any) -> str:
        """Return why launches of a program cannot be captured in a CUDA graph, or an empty string if they can."""

    def _make_kernel_streams(self, kernel: str, *, is_reverse: bool) -> KernelStreams | None:
        """Return how launches of a kernel with this name use streams, or None if the device has none.

        The engine's own reverse kernels stay on the legacy default stream. Before them, Quadrants 1.3.3 computes the
        size of a stack there, waits for it, and allocates; it refuses its own `qd_stream=` for them.
        """
        program = self.find_streams()
        if program is None:
            return None
        obstacle = "the engine's own reverse mode waits for the device, to know how much memory it needs"
        is_on_torchs = program.set_stream is not None and not is_reverse
        return KernelStreams(program, kernel, is_on_torchs=is_on_torchs, obstacle=obstacle if is_reverse else "")

    def find_streams(self) -> ProgramStreams | None:
        if not has_streams(self.device_type()):
            return None
        runtime = _readiness.require_started(self)
        return find_program_streams(self.name, runtime, runtime.prog, self._explain_no_capture)

    def parameters(self, kernel: Any, objects: Collection[str] | None = None) -> tuple[Parameter, ...]:
        annotations = {meta.name: meta.annotation for meta in self._metas(kernel)}
        if objects is not None:
            kept = {name for name, annotation in annotations.items() if self._takes_object(annotation)}
            annotations |= dict.fromkeys((*kept, *objects), self.lang.template)
        return _parameters(kernel._primal.func.__name__, annotations, self.describe, self._struct_type)

    def structs(self, kernel: Any) -> dict[tuple[str, ...], Any]:
        return _structs({meta.name: meta.annotation for meta in self._metas(kernel)}, self._struct_type)

    def results(self, kernel: Any) -> tuple[Parameter, ...]:
        return _results(kernel._primal.return_type, self.describe)

    def describe(self, name: str, annotation: Any) -> Parameter | None:
        kinds = self.lang.types.primitive_types.type_ids
        return _annotations.describe(name, annotation, self.lang, self._matrix_type, lambda one: id(one) in kinds)

    def hold_weakly(self, kernel: Any) -> None:
        _common.hold_weakly(self._module("impl").get_runtime(), (kernel._primal, kernel._adjoint))

    def is_gradient(self, called: Any) -> bool:
        return called.autodiff_mode.name not in ("NONE", "VALIDATION")

    def redirect_calls(self, listener: engines.Listener) -> AbstractContextManager[None]:
        ndarray, matrix = self._module("_ndarray"), self._module("matrix")
        scalars = (self._module("field").ScalarField, ndarray.Ndarray, ndarray.ScalarNdarray)
        fields = (*scalars, matrix.MatrixField, matrix.VectorNdarray, matrix.MatrixNdarray)
        runtime = self._module("impl").get_runtime()
        return engines.redirect_to_listener(listener, self._kernel_type, fields, runtime)

    def start(self, device_type: str, **options: Any) -> None:
        arch = {"cpu": self.lang.cpu, "cuda": self.lang.cuda}[device_type]
        self.lang.init(arch=arch, **(_readiness.find_default_options(self.lang, device_type) | options))
        self.materialize()

    def _list_common_roots(self, core: Any) -> dict[str, Any]:
        """Return the objects from which probes follow paths that both engines have; `core` is the engine's C++ part."""
        return {
            "field": self._module("field").ScalarField,
            "impl": self._module("impl"),
            "context": core.KernelLaunchContext,
            "config": core.CompileConfig,
            "program": core.Program,
            "ndarray": self.lang.Ndarray,
        }

    def _list_common_paths(self, kernel: Sequence[str], state: str, program: str) -> tuple[str, ...]:
        """Return the private names of both engines that are used.

        Args:
            kernel: the names of a kernel's halves.
            state: the path of the engine's state.
            program: the state's name for its program.
        """
        of_state = ("grad_replaced", "target_tape", "kernels", program, "materialized", "materialize", *_common.PLACES)
        options = (
            "cache_loop_invariant_global_vars",
            "cfg_optimization",
            "cpu_max_num_threads",
            "force_scalarize_matrix",
            "mesh_localize_to_end_mapping",
            "offline_cache",
            "opt_level",
        )
        return (
            *(f"kernel.{half}.{name}" for half in ("_primal", "_adjoint") for name in kernel),
            *(f"kernel.{name}" for name in ("_is_wrapped_kernel", "_primal.grad", "_primal.autodiff_mode")),
            *(f"field.{name}" for name in ("fill", "to_torch", "_from_external_arr")),
            *(f"{state}.{name}" for name in of_state),
            *(f"context.{name}" for name in _common.CONTEXT),
            *_fields.PATHS,
            *(f"config.{name}" for name in (*options, "real_matrix_scalarize")),
        )

    def is_field(self, value: object) -> bool:
        return isinstance(value, self._module("field").Field | self._module("snode").SNode | self.lang.Ndarray)

    def is_ndarray(self, value: object) -> bool:
        return isinstance(self.unwrap(value), self.lang.Ndarray)

    def leaf_fields(self, field: Any, name: str) -> list[tuple[str, Any]]:
        return _fields.list_leaf_fields(self.unwrap(field), name)

    def field_facts(self, field: Any, name: str) -> FieldFacts:
        return _fields.facts_of(field, name, self)

    def is_unplaced(self, field: Any) -> bool:
        return _fields.is_unplaced(field, _readiness.require_started(self))

    def matrix_entries(self, value: object) -> tuple[float, ...] | None:
        return _common.list_entries(value) if isinstance(value, self.lang.Matrix) else None

    def options(self) -> tuple[Any, ...]:
        return _common.options_of(_readiness.require_started(self).prog.config())

    def device_type(self) -> str:
        return _readiness.device_type(_readiness.require_started(self).prog.config().arch)

    def is_debugging(self) -> bool:
        return _readiness.require_started(self).prog.config().debug

    def keeps_compiled(self) -> bool:
        return _readiness.require_started(self).prog.config().offline_cache

    def thread_count(self) -> int:
        return _readiness.require_started(self).prog.config().cpu_max_num_threads

    def materialize(self) -> None:
        _readiness.materialize(self)

    def require_ready(self, op: str) -> None:
        _readiness.require_materialized(self, _readiness.require_started(self, op), op)

    @one_at_a_time
    def compile(
        self,
        function: Callable[..., Any],
        templates: dict[str, Any],
        options: CompileOptions = CompileOptions(),  # noqa: B008  # a tuple, which nothing changes
        content: Hashable | None = None,
    ) -> Compiled:
        _readiness.require_placed(self)
        key = None if content is None else (function.__code__.co_filename, content, options, self.options())
        return _common.get_or_compile(
            self.runtime(), key, functools.partial(self._compile_alone, function, templates, options)
        )

    def _compile_alone(
        self, function: Callable[..., Any], templates: dict[str, Any], options: CompileOptions
    ) -> Compiled:
        """Compile a function without looking for an equal kernel that is compiled already.

        Arguments as in `compile`.
        """
        decorated = self.lang.kernel(function)
        self.hold_weakly(decorated)
        kernel = decorated._adjoint if options.adjoint else decorated._primal
        known = {name: self.unwrap(value) for name, value in templates.items()}
        arguments = _annotations.make_placeholders(function, known, self.lang, self._matrix_type)
        with self._quick_front_end(kernel, options), ENGINE_TIMES.measure("front_end"):
            key = kernel.ensure_compiled(*arguments)
        cpp = self._find_compiled(kernel, key)
        runtime = self.runtime()
        program = runtime.prog
        config = program.config()
        changed = self._find_compiler_options(config, options)
        with _common.change_options(config, changed), ENGINE_TIMES.measure("compiler"):
            data = self._get_data(program.compile_kernel(config, program.get_device_caps(), cpp))
        slots = _annotations.find_slots(self._metas(decorated), self.lang, self._matrix_type, self._make_slot)
        streams = self._make_kernel_streams(function.__name__, is_reverse=options.adjoint)
        return Compiled(_common.make_launcher(cpp, program, data, streams), slots, runtime)

    def _find_compiler_options(self, config: Any, options: CompileOptions) -> dict[str, Any]:
        """Return the values of the engine's options that differ from those of `config` for one kernel.

        `cfg_optimization` keeps an element's old value although it was written under another index, in both engines
        (Taichi 1.7.4, Quadrants 1.3.3): after `b = y[i]; y[k[i]] = b + y[k[i]]` a `y[i]` is still `b`.

        With `force_scalarize_matrix`, vectors and matrices are split into scalars first. Engines take them apart after
        they have made the reverse kernel, which is wrong then. Taichi 1.7.4 finds too little room for a local that a
        branch changes beside a vector: its gradient is wrong, zero or NaN (tests/layers/tin/test_time_of_impact.py).
        Both engines (Taichi 1.7.4, Quadrants 1.3.3) lose old values of vectors that a loop rebuilds from themselves, as
        `v = v * v.norm()` (tests/bridge/test_trust_engine.py). In a kernel that reads and changes an array of vectors,
        both do not see that a vector and its numbers are one memory: after `a = y[i][0]; y[i] = v`, `y[i][0]` is still
        `a`. And both end the process ("scalarize_store_stmt") where a loop uses a number of a vector that a statement
        outside of loops used: tasks share its address, and expect a whole vector behind it
        (tests/bridge/test_vectors_in_place.py). A local that holds an element of one array keeps numbers of it where an
        inner loop comes between, and then it is given an element of another (tests/bridge/test_vectors_again.py).
        """
        # Only Taichi looks at `is_aliased`: such loops are right in Quadrants, and wrong without that optimization.
        changed: dict[str, Any] = {"cfg_optimization": False} if options.is_careful else {}
        if options.adjoint or not options.is_simd:
            changed["force_scalarize_matrix"] = True
        if options.is_simd:
            changed["real_matrix_scalarize"] = False
        return changed

    def owns(self, value: object) -> bool:
        return _common.belongs_to(value, self.name)

    def function_of(self, kernel: Any) -> Callable[..., Any]:
        return kernel._primal.func


def _parameters(
    kernel_name: str,
    annotations: Mapping[str, Any],
    describe_one: Callable[[str, Any], Parameter | None],
    struct_type: type,
) -> tuple[Parameter, ...]:
    """Return all parameters of a kernel from its annotations, with a struct replaced by its members."""
    names = set(annotations)
    all_parameters: list[Parameter] = []
    for own_name, own_annotation in annotations.items():
        for path, annotation in _members((own_name,), own_annotation, struct_type):
            name = "_".join(path)
            parameter = describe_one(name, annotation)
            is_member = len(path) > 1
            if parameter is None:
                words = f"parameter `{'.'.join(path)}` of kernel `{kernel_name}` has a type that an op cannot pass"
                remedy = "Use ndarrays, numbers, vectors, matrices, structs of these, or templates."
                raise KernelError(refusal(words, [("annotation", repr(annotation))], remedy))
            if is_member and name in names:
                words = (
                    f"member `{'.'.join(path)}` of kernel `{kernel_name}` has the name of another argument, `{name}`"
                )
                raise KernelError(refusal(words, remedy="Give one of the two another name."))
            names.add(name)
            all_parameters.append(replace(parameter, path=path) if is_member else parameter)
    return tuple(all_parameters)


def _members(path: tuple[str, ...], annotation: Any, struct_type: type) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, annotation) of a parameter, or of all members of a struct, recursively.

    A path is the names that lead there.
    """
    members = _annotations_of_members(annotation, struct_type)
    if members is None:
        yield path, annotation
        return
    for name, member in members.items():
        yield from _members((*path, name), member, struct_type)


def _annotations_of_members(annotation: Any, struct_type: type) -> Mapping[str, Any] | None:
    """Return the members of a struct type or a Python dataclass with their annotations; None for another annotation."""
    if isinstance(annotation, struct_type):
        return annotation.members
    if not dataclasses.is_dataclass(annotation):
        return None
    members = {one.name: one.type for one in dataclasses.fields(annotation)}
    # Under `from __future__ import annotations` they are texts.
    is_text = any(isinstance(one, str) for one in members.values())
    return {name: get_type_hints(annotation)[name] for name in members} if is_text else members


def _structs(annotations: Mapping[str, Any], struct_type: type) -> dict[tuple[str, ...], Any]:
    """Return the struct types and dataclasses of parameters, and of structs inside them, by path: the names that lead
    there.
    """
    by_path: dict[tuple[str, ...], Any] = {}
    left = [((name,), annotation) for name, annotation in annotations.items()]
    for path, annotation in left:
        members = _annotations_of_members(annotation, struct_type)
        if members is not None:
            by_path[path] = annotation
            left += [((*path, name), member) for name, member in members.items()]
    return by_path


def _results(
    annotations: Sequence[Any] | None, describe_one: Callable[[str, Any], Parameter | None]
) -> tuple[Parameter, ...]:
    """Return a kernel's results from its return annotations. One that no array can hold has the kind "template"."""
    pairs = [(annotation, describe_one("", annotation)) for annotation in annotations or () if annotation is not None]
    return tuple(
        Parameter("", "template", (), text=repr(one)) if parameter is None else parameter for one, parameter in pairs
    )
