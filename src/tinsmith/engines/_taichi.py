"""Taichi 1.7.4: the only file that imports it.

It relies on private names (each has a probe below): a decorated kernel has `_primal` and `_adjoint`, each with
`func`, `arguments`, `ensure_compiled` and `compiled_kernels`; a program compiles a kernel to data that is launched
with a launch context filled by hand; `impl.pytaichi` is another object after every init and reset.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import MethodType, ModuleType
from typing import Any

from .. import engines
from .._errors import KernelError, refusal
from .._lazy import lazy
from . import _annotations, _common, _fields, _forks, _front_ends, _readiness
from ._compile_times import ENGINE_TIMES
from ._compiled_engine import CompiledEngine
from ._contract import Compiled, CompileOptions, Facts, Parameter
from ._custom_gradients import find_gradient
from ._module_name import module_name


class Taichi(CompiledEngine):
    """The Taichi engine."""

    name = "taichi"
    ends_on_nested_powers = True

    @lazy
    def lang(self) -> ModuleType:  # pyright: ignore[reportIncompatibleMethodOverride]  # it is only read
        _common.require_home("taichi")
        import taichi

        return taichi

    def is_kernel(self, candidate: object) -> bool:
        if type(candidate).__name__ == "_BoundedDifferentiableMethod":
            return type(candidate).__module__ == "taichi.lang.kernel_impl"
        primal = getattr(candidate, "_primal", None)
        return getattr(candidate, "_is_wrapped_kernel", False) and type(primal).__module__ == "taichi.lang.kernel_impl"

    def owner_of(self, kernel: Any) -> object | None:
        return getattr(kernel, "_kernel_owner", None)

    def bind(self, kernel: Any, owner: object) -> Any:
        from taichi.lang.kernel_impl import _BoundedDifferentiableMethod

        try:
            bound: Any = _BoundedDifferentiableMethod(owner, _Unbound(kernel._primal, kernel._adjoint))
        except self.lang.TaichiSyntaxError as cause:
            name = type(owner).__name__
            words = f"class `{name}` of kernel `{self.function_of(kernel).__name__}` is not data-oriented"
            lang = module_name(self.name, self.function_of(kernel))
            raise KernelError(refusal(words, remedy=f"Decorate `{name}` with @{lang}.data_oriented.")) from cause
        bound.__name__ = self.function_of(bound).__name__
        return bound

    def is_method(self, kernel: Any) -> bool:
        return kernel._primal.classkernel

    def _metas(self, kernel: Any) -> list[Any]:
        return kernel._primal.arguments[1 if self.is_method(kernel) else 0 :]

    def inner_function(self, candidate: object) -> Callable[..., Any] | None:
        function = getattr(candidate, "__func__", candidate)
        if getattr(function, "_is_taichi_function", False) and not self.owns(function):
            return function.func.func  # type: ignore[attr-defined]  # ours after the check above
        return None

    def hold_weakly(self, kernel: Any) -> None:
        from taichi.lang import impl

        _common.hold_weakly(impl.pytaichi, (kernel._primal, kernel._adjoint))

    def is_bound(self, function: object) -> bool:
        return isinstance(function, MethodType)

    def is_field(self, value: object) -> bool:
        from taichi.lang.field import Field
        from taichi.lang.snode import SNode

        return isinstance(value, Field | SNode | self.lang.Ndarray)

    def runtime(self) -> Any:
        impl = sys.modules.get("taichi.lang.impl")  # asked at every call of an op: an import would cost 1 us
        if impl is None or impl.pytaichi.prog is None:
            return _forks.restart_after_fork(self)
        return impl.pytaichi

    def is_current(self, runtime: Any) -> bool:
        impl = self.lang.lang.impl
        return impl.pytaichi is runtime and runtime.prog is not None

    def detach_program(self) -> Any:
        runtime = self.lang.lang.impl.pytaichi
        program, runtime.prog = runtime.prog, None
        return program

    @property
    def needs_stack_depth(self) -> bool:
        return True

    def _compile_alone(
        self, function: Callable[..., Any], templates: dict[str, Any], options: CompileOptions
    ) -> Compiled:
        decorated = self.lang.kernel(function)
        self.hold_weakly(decorated)
        kernel = decorated._adjoint if options.adjoint else decorated._primal
        arguments = _annotations.make_placeholders(function, templates, self.lang, self._matrix_type)
        with _quick_front_end(), ENGINE_TIMES.measure("front_end"):
            key = kernel.ensure_compiled(*arguments)
        cpp = kernel.compiled_kernels[key]
        runtime = self.runtime()
        program = runtime.prog
        config = program.config()
        in_numbers = options.adjoint or not options.is_simd
        # Taichi 1.7.4 holds `y[i]` in a register through a loop over j that does `y[i] += a; y[j] += b`: one is lost.
        off = _common.disable_optimizations(
            config,
            cfg_optimization=options.is_careful,
            advanced_optimization=options.is_aliased,
            real_matrix_scalarize=options.is_simd,
        )
        with (
            _set_stack_depth(config, options.stack),
            _common.scalarize_matrices(config, is_wanted=in_numbers),
            off,
            ENGINE_TIMES.measure("compiler"),
        ):
            data = program.compile_kernel(config, program.get_device_caps(), cpp)
        slots = _annotations.find_slots(kernel.arguments, self.lang, self._matrix_type, lambda place: (place,))
        streams = self._make_kernel_streams(function.__name__, is_reverse=options.adjoint)
        return Compiled(_common.make_launcher(cpp, program, data, streams), slots, runtime)

    def _explain_no_capture(self, program: Any) -> str:
        return "Taichi launches on CUDA's legacy default stream, which a capture forbids"

    def free_kernel(self, called: Any) -> Any:
        decorated: Any = _Unbound(called, vars(called)["grad"])  # the reverse kernel, no memory
        decorated._is_wrapped_kernel = True
        return decorated

    def is_gradient(self, called: Any) -> bool:
        from taichi.lang.enums import AutodiffMode

        return called.autodiff_mode not in (AutodiffMode.NONE, AutodiffMode.VALIDATION)

    def redirect_calls(self, listener: engines.Listener) -> AbstractContextManager[None]:
        from taichi.lang import impl
        from taichi.lang._ndarray import Ndarray, ScalarNdarray
        from taichi.lang.field import ScalarField
        from taichi.lang.kernel_impl import Kernel
        from taichi.lang.matrix import MatrixField, MatrixNdarray, VectorNdarray

        fields = (ScalarField, MatrixField, Ndarray, ScalarNdarray, VectorNdarray, MatrixNdarray)
        return engines.redirect_to_listener(listener, Kernel, fields, impl.get_runtime(), find_gradient)

    def start(self, device_type: str, **options: Any) -> None:
        arch = {"cpu": self.lang.cpu, "cuda": self.lang.cuda}[device_type]
        self.lang.init(arch=arch, **(_readiness.find_default_options(self.lang, device_type) | options))
        self.materialize()

    def facts(self) -> Facts:
        _common.require_home("taichi")
        from taichi._lib import core
        from taichi.lang import impl, kernel_impl
        from taichi.lang.ast.ast_transformer_utils import ASTTransformerContext
        from taichi.lang.field import ScalarField

        roots = {
            "field": ScalarField,
            "impl": impl,
            "context": core.KernelLaunchContext,
            "config": core.CompileConfig,
            "program": core.Program,
            "ndarray": self.lang.Ndarray,
            "snode": core.SNode,
            "expression": core.Expr,
            "context_of_tree": ASTTransformerContext,
            "kernel_impl": kernel_impl,
        }
        kernel = ("func", "arguments", "classkernel", "return_type", "ensure_compiled", "compiled_kernels")
        paths = (
            *(f"kernel.{half}.{name}" for half in ("_primal", "_adjoint") for name in kernel),
            "kernel._is_wrapped_kernel",
            "kernel._primal.grad",
            "kernel._primal.autodiff_mode",
            "field.fill",
            "field.to_torch",
            "field._from_external_arr",
            *(
                f"impl.pytaichi.{name}"
                for name in (
                    "grad_replaced",
                    "target_tape",
                    "kernels",
                    "prog",
                    "materialized",
                    "materialize",
                    *_common.PLACES,
                )
            ),
            *(f"context.{name}" for name in _common.CONTEXT),
            *_fields.PATHS,
            "config.ad_stack_size",
            "config.cfg_optimization",
            "config.cpu_max_num_threads",
            "config.force_scalarize_matrix",
            "config.offline_cache",
            "config.real_matrix_scalarize",
            "context_of_tree.get_pos_info",
            "kernel_impl.getsourcelines",
            "kernel_impl.textwrap.fill",
        )
        return Facts(roots, paths)

    def describe(self, name: str, annotation: Any) -> Parameter | None:
        from taichi.types import primitive_types

        def is_scalar(candidate: Any) -> bool:
            return id(candidate) in primitive_types.type_ids

        return _annotations.describe(name, annotation, self.lang, self._matrix_type, is_scalar)

    @property
    def _struct_type(self) -> type:
        from taichi.lang.struct import StructType

        return StructType

    @property
    def _matrix_type(self) -> type:
        from taichi.lang.matrix import MatrixType

        return MatrixType


def _quick_front_end() -> AbstractContextManager[None]:
    """Enter a context in which the engine's front end is faster (`_front_ends`)."""
    from taichi.lang import kernel_impl
    from taichi.lang.ast.ast_transformer_utils import ASTTransformerContext

    return _front_ends.replace_attributes(
        (ASTTransformerContext, "get_pos_info", _front_ends.describe_position(ASTTransformerContext.get_pos_info)),
        (kernel_impl, "getsourcelines", _front_ends.find_lines(kernel_impl.getsourcelines)),
        (kernel_impl, "textwrap", _front_ends.WRAPPING),
    )


@contextlib.contextmanager
def _set_stack_depth(config: Any, depth: int) -> Iterator[None]:
    """Enter a context that compiles with a gradient stack of this depth; 0 keeps the user's setting."""
    before = config.ad_stack_size
    config.ad_stack_size = depth or before
    try:
        yield
    finally:
        config.ad_stack_size = before


class _Unbound:
    """An object with the attributes of a kernel that Taichi reads when it binds one."""

    _is_staticmethod = False

    def __init__(self, primal: Any, adjoint: Any) -> None:
        self._primal, self._adjoint = primal, adjoint
