"""Quadrants 1.3: the only file that imports it.

It relies on private names (each has a probe below): a decorated kernel has `_primal` and `_adjoint`, each with
`func`, `arg_metas`, `ensure_compiled` and `materialized_kernels`; a program compiles a kernel to data that is
launched with a launch context filled by hand; `impl.pyquadrants` is another object after every init and reset.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any, Final, get_origin

import torch

from .._lazy import lazy
from . import _common, _fields, _forks, _front_ends, _readiness
from ._compiled_engine import CompiledEngine
from ._contract import CompileOptions, Facts, Parameter

_SHARED = ("f32", "f64", "i32", "i64", "u1")
"""Numbers whose memory the engine shares; it prints an error for some others."""


@contextmanager
def _members_as_constants() -> Generator[None]:
    """Enter a context in which this thread compiles numeric members of objects as constants, whatever their class
    declares.

    Members of a class that is `data_oriented(template_primitives=False)` would become further arguments of the
    kernel. An op compares the values of constants at each call, and its gradient is made for them.
    """
    from quadrants.lang.ast.ast_transformers import struct_primitive_predeclarer as lifter

    wants, thread = lifter.wants_runtime_primitives, threading.get_ident()

    def wants_elsewhere(value: Any) -> bool:
        return threading.get_ident() != thread and wants(value)

    lifter.wants_runtime_primitives = wants_elsewhere
    try:
        yield
    finally:
        lifter.wants_runtime_primitives = wants


def _once_through(kernel: Any) -> AbstractContextManager[None]:
    """Enter a context in which the front end goes through a kernel once, not twice.

    The first time it only finds out which members of dataclasses the kernel uses; what it returns if there are none is
    what the engine's cache of sources would have. A kernel that tinsmith printed has no dataclasses.
    """
    look_up = kernel._try_load_fastcache
    return _front_ends.replace_attributes((kernel, "_try_load_fastcache", lambda *asked: look_up(*asked) or set()))


class Quadrants(CompiledEngine):
    """The Quadrants engine."""

    name = "quadrants"
    has_fast_vectors = True
    is_capturable = True

    @lazy
    def lang(self) -> ModuleType:  # pyright: ignore[reportIncompatibleMethodOverride]  # it is only read
        _common.require_home("quadrants")
        import quadrants

        return quadrants

    def is_kernel(self, candidate: object) -> bool:
        if not type(candidate).__module__.startswith("quadrants."):
            return False
        return bool(getattr(candidate, "_is_wrapped_kernel", False))

    def owner_of(self, kernel: Any) -> object | None:
        return getattr(kernel, "instance", None)

    def bind(self, kernel: Any, owner: object) -> Any:
        from quadrants.lang._quadrants_callable import BoundQuadrantsCallable

        return BoundQuadrantsCallable(owner, getattr(kernel, "quadrants_callable", kernel))

    def is_method(self, kernel: Any) -> bool:
        return kernel._primal.is_classkernel

    def _metas(self, kernel: Any) -> list[Any]:
        return kernel._primal.arg_metas[1 if self.is_method(kernel) else 0 :]

    def inner_function(self, candidate: object) -> Callable[..., Any] | None:
        callable_: Any = getattr(candidate, "quadrants_callable", candidate)
        is_func = type(callable_).__name__ == "QuadrantsCallable" and callable_._is_quadrants_function
        return callable_.fn if is_func and not self.owns(callable_.fn) else None

    def is_bound(self, function: object) -> bool:
        return type(function).__name__ == "BoundQuadrantsCallable"

    def is_field(self, value: object) -> bool:
        return isinstance(value, self.lang.Tensor) or super().is_field(value)

    def unwrap(self, value: Any) -> Any:
        return value._unwrap() if isinstance(value, self.lang.Tensor) else value

    def _takes_object(self, annotation: Any) -> bool:
        return annotation is self.lang.Tensor or super()._takes_object(annotation)

    def runtime(self) -> Any:
        impl = sys.modules.get("quadrants.lang.impl")  # asked at every call of an op: an import would cost 1 us
        if impl is None or impl.pyquadrants._prog is None:  # `prog` raises
            return _forks.restart_after_fork(self)
        return impl.pyquadrants

    def is_current(self, runtime: Any) -> bool:
        impl = self.lang.lang.impl
        return impl.pyquadrants is runtime and runtime._prog is not None

    def detach_program(self) -> Any:
        runtime = self.lang.lang.impl.pyquadrants
        program, runtime._prog = runtime._prog, None
        return program

    @property
    def needs_stack_depth(self) -> bool:
        return False

    def reverse_option(self) -> str:
        is_on = _readiness.require_started(self).prog.config().ad_stack_experimental_enabled
        return "" if is_on else "ad_stack_experimental_enabled=True"

    @contextmanager
    def _quick_front_end(self, kernel: Any, options: CompileOptions) -> Generator[None]:
        from quadrants.lang import _func_base, _kernel_impl_dataclass, _wrap_inspect
        from quadrants.lang.ast.ast_transformer_utils import ASTTransformerFuncContext as Context

        unpack = _kernel_impl_dataclass.unpack_ast_struct_expressions

        def unpack_if_any(tree: Any, struct_locals: set[str]) -> Any:
            # Without structs it rebuilds the tree unchanged, in a tenth of the front end's time.
            return unpack(tree, struct_locals) if struct_locals else tree

        kernel.raise_on_templated_floats = False  # a call of the kernel would set it, but the kernel is never called
        quick = _front_ends.replace_attributes(
            (Context, "memoized_get_pos_info", _front_ends.describe_position(Context.memoized_get_pos_info)),
            (_kernel_impl_dataclass, "unpack_ast_struct_expressions", unpack_if_any),
            (_wrap_inspect, "getsourcelines", _front_ends.find_lines(_wrap_inspect.getsourcelines)),
            (_func_base, "textwrap", _front_ends.WRAPPING),
        )
        once = _once_through(kernel) if options.is_printed else nullcontext()
        with _members_as_constants(), quick, once:
            yield

    def _find_compiled(self, kernel: Any, key: Any) -> Any:
        return kernel.materialized_kernels[key]

    def _get_data(self, made: Any) -> Any:
        return made.compiled_kernel_data

    def _explain_no_capture(self, program: Any) -> str:
        config = program.config()
        if not hasattr(program, "set_current_cuda_stream"):
            return "this version of Quadrants launches on CUDA's legacy default stream"
        if config.debug:
            return "with debug=True, Quadrants waits for each kernel"
        return "with kernel_profiler=True, Quadrants waits for each kernel" if config.kernel_profiler else ""

    def free_kernel(self, called: Any) -> Any:
        return called.quadrants_callable

    def share_memory(self, field: Any) -> torch.Tensor | None:
        from torch.utils.dlpack import from_dlpack

        try:
            return from_dlpack(field.to_dlpack())
        # The layout is not that of a strided tensor, or this version does not share memory.
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
            return None

    def find_row_major_memory(self, field: Any) -> int:
        field = self.unwrap(field)
        # `to_dlpack` itself ignores what else lies under a field's node.
        if self.device_type() != "cpu" or field.dtype.to_string() not in _SHARED or not _fields.is_row_major(field):
            return 0
        shared = self.share_memory(field)
        return shared.data_ptr() if shared is not None and shared.is_contiguous() else 0

    @property
    def _kernel_type(self) -> type:
        from quadrants.lang.kernel import Kernel

        return Kernel

    def start(self, device_type: str, **options: Any) -> None:
        super().start(device_type, **{"ad_stack_experimental_enabled": True} | options)

    def facts(self) -> Facts:
        _common.require_home("quadrants")
        from quadrants._lib.core import quadrants_python as core
        from quadrants.lang import _func_base, _kernel_impl_dataclass, _wrap_inspect
        from quadrants.lang.ast.ast_transformer_utils import ASTTransformerFuncContext
        from quadrants.lang.ast.ast_transformers import struct_primitive_predeclarer

        roots = {
            **self._list_common_roots(core),
            "snode": core.SNodeCxx,
            "expression": core.ExprCxx,
            "lifter": struct_primitive_predeclarer,
            "tensor": self.lang.Tensor,
            "context_of_tree": ASTTransformerFuncContext,
            "function_base": _func_base,
            "dataclasses": _kernel_impl_dataclass,
            "inspection": _wrap_inspect,
        }
        kernel = ("func", "arg_metas", "is_classkernel", "return_type", "ensure_compiled", "materialized_kernels")
        paths = (
            *self._list_common_paths(kernel, "impl.pyquadrants", "_prog"),
            "lifter.wants_runtime_primitives",
            "tensor._unwrap",
            "kernel._primal.quadrants_callable",
            "program.set_current_cuda_stream",
            "config.debug",
            "config.kernel_profiler",
            "context_of_tree.memoized_get_pos_info",
            "dataclasses.unpack_ast_struct_expressions",
            "function_base.textwrap.fill",
            "inspection.getsourcelines",
            "kernel._primal._try_load_fastcache",
        )
        return Facts(roots, paths)

    def describe(self, name: str, annotation: Any) -> Parameter | None:
        # An op passes its own memory, so a parameter that takes a field or an ndarray is an array. `Final` is constant.
        if annotation is self.lang.Tensor:
            annotation = self.lang.types.ndarray()
        elif get_origin(annotation) is Final:
            annotation = self.lang.template
        return super().describe(name, annotation)
